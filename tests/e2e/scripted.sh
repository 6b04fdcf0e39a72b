#!/usr/bin/env bash
# Models that give scripted answers (tests/tools/scripted_model.py), behind a real hearthd and hearth-http. Needs a
# Python 3 without packages.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
command -v python3 >/dev/null || { echo "skip: python3 is not installed: scripted models are not tested"; exit 0; }
BUILD=${BUILD:-build} python3 -B tests/e2e/scripted.py
