#!/usr/bin/env bash
# The scripts of releases and of tests/tools: shellcheck finds nothing in them.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
command -v shellcheck >/dev/null || { echo "skip: shellcheck is not installed"; exit 0; }
scripts=(tests/tools/*.sh systemd/*.sh systemd/release/*.sh)
shellcheck "${scripts[@]}" || exit 1
echo "ok: ${#scripts[@]} scripts"
