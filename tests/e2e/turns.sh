#!/usr/bin/env bash
# A conversation of an agent in families' chat templates: what each turn's prompt computes is new (turns.py). Needs a
# Python 3 without packages.
# Usage: tests/e2e/turns.sh               20 turns in some of the templates in HEARTH_TESTDATA; fails where rows are computed again
#        tests/e2e/turns.sh TEMPLATE...   40 turns in these files, as a table
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
case $build in /*) ;; *) build=$PWD/$build ;; esac
vectors=${HEARTH_TESTDATA:-}/vectors/jinja_chat_templates.hf.json
command -v python3 >/dev/null || { echo "skip: python3 is not installed: prefixes over turns are not tested"; exit 0; }
[ $# -gt 0 ] || [ -f "$vectors" ] || { echo "skip: HEARTH_TESTDATA has no chat templates: prefixes over turns are not tested"; exit 0; }
if nm -D --undefined-only "$build/lib/libhearth.so" | grep -E '__(asan|tsan)_init' >/dev/null; then
    echo "skip: a sanitizer's library does not load into Python"; exit 0
fi

folder=$(mktemp -d)
export HEARTH_SOCKET=$folder/hearth.sock
trap 'kill "$daemon" 2>/dev/null; wait 2>/dev/null; rm -rf "$folder"' EXIT
"$build/bin/hearthd" --model daemon/models/hearth-code-5m-f16.gguf 2>"$folder/log" & daemon=$!
for _ in $(seq 600); do "$build/bin/hearth" status >/dev/null 2>&1 && break; sleep 0.1; done

export PYTHONPATH=$PWD/client/python HEARTH_LIBRARY=$build/lib/libhearth.so.0
if [ $# -gt 0 ]; then
    python3 -B tests/e2e/turns.py "$@"
else
    python3 -B tests/e2e/turns.py --check "$vectors"
fi
