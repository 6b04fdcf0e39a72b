#!/usr/bin/env bash
# The Python package against real daemons, by pytest: HEARTH_PYTHON, else a Python 3 with pytest (Debian: python3-pytest).
# HEARTH_VENV=FOLDER makes a virtual environment there with the package, pytest and llm from PyPI, for the tests of llm.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
export BUILD=${BUILD:-build}
if [ -n "${HEARTH_VENV:-}" ]; then
    "${HEARTH_PYTHON:-python3}" -m venv "$HEARTH_VENV"
    "$HEARTH_VENV/bin/pip" install -q --disable-pip-version-check pytest llm ./client/python
    HEARTH_PYTHON=$HEARTH_VENV/bin/python
fi
python=
for candidate in ${HEARTH_PYTHON:+"$HEARTH_PYTHON"} python3 /usr/bin/python3; do
    if "$candidate" -c 'import pytest' 2>/dev/null; then python=$candidate; break; fi
done
[ -n "$python" ] || { echo "skip: no Python 3 with pytest (python3-pytest), the Python package is not tested"; exit 0; }
if nm -D --undefined-only "$BUILD/lib/libhearth.so" | grep -E '__(asan|tsan)_init' >/dev/null; then
    echo "skip: a sanitizer's library does not load into Python"; exit 0
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
export PYTHONPATH=$PWD/client/python HEARTH_LIBRARY=$PWD/$BUILD/lib/libhearth.so.0 PYTHONDONTWRITEBYTECODE=1
code=0
"$python" -m pytest -q -rs -p no:cacheprovider -o faulthandler_timeout=120 tests/python "$@" >"$log" 2>&1 || code=$?
cat "$log"
sed -n 's/^SKIPPED \[[0-9]*\] [^ ]* /skip: python: /p' "$log"
[ "$code" -eq 0 ] || exit "$code"
echo "ok: python: $(tail -n 1 "$log" | tr -d '=')"
