#!/usr/bin/env bash
# The models of rings and bells (tests/model/README.md): every execution, and every order taken away.
exec bash "$(dirname "$0")/../model/run.sh"
