#!/usr/bin/env bash
# The Neovim plugin in a real Neovim against a real daemon: nvim.lua drives both.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=$PWD/${BUILD:-build}
command -v nvim >/dev/null || { echo "skip: nvim is not installed"; exit 0; }
case $(nm -D --undefined-only "$build/lib/libhearth.so" | grep -c -E "__(asan|tsan)_init" || true) in
0) ;;
*) echo "skip: nvim cannot load a library that was built with a sanitizer"; exit 0 ;;
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HEARTH_TEST_BUILD=$build HEARTH_TEST_FOLDER=$folder HOME=$folder XDG_RUNTIME_DIR=$folder
export XDG_CONFIG_HOME=$folder XDG_DATA_HOME=$folder XDG_STATE_HOME=$folder XDG_CACHE_HOME=$folder
unset HEARTH_SOCKET
timeout -k 5 800 nvim --headless -u NONE -i NONE -n -S tests/e2e/nvim.lua 2>&1 | tr -d '\r'
