#!/usr/bin/env bash
# The scripts of releases and of tests/tools: shellcheck finds nothing in them. And no script pipes into grep -q, which ends before
# the program whose output it reads: with pipefail that one's SIGPIPE is a failure, now and then.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
if grep -rnE '^[^#]*[^|]\| *grep -[[:alpha:]]*q' tests systemd --include='*.sh'; then
    echo "write grep ... >/dev/null"
    exit 1
fi
command -v shellcheck >/dev/null || { echo "skip: shellcheck is not installed"; exit 0; }
scripts=(tests/tools/*.sh systemd/*.sh systemd/release/*.sh)
shellcheck "${scripts[@]}" || exit 1
echo "ok: ${#scripts[@]} scripts"
