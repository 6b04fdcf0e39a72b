#!/bin/sh
# Prints a hash of the sources of run.sh's programs; build/portable/sources has that of the tree it was built from.
cd "$(dirname "$0")/../.." || exit
find Makefile ipc kernels daemon client tests/gpu tests/e2e tests/rig -name '*.[ch]' -o -name '*.cu' -o -name Makefile |
    LC_ALL=C sort | xargs sha256sum | sha256sum
