#!/usr/bin/env bash
# Checks the rings and bells exhaustively: the real code under the explorer. Prints what holds,
# and for everything that is taken away the execution that goes wrong then. README.md has the tables.
# Environment: BUILD (build folder), CC.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${BUILD:-build}/tests/model
rm -rf "$out"
mkdir -p "$out"
# shellcheck disable=SC2206
cc=(${CC:-gcc})

# ---- the explorer ------------------------------------------------------------------------------

flags=(-std=gnu11 -O2 -g -I. -D_GNU_SOURCE -DCOPY_ATOMIC -Wall -Wextra -Werror -ffunction-sections)
# What shim.h takes the place of leaves things unused; what no program calls is left out by the linker.
shim=(-include tests/model/shim.h -Wno-unused-variable -Wno-unused-but-set-variable -Wno-unused-function)
"${cc[@]}" "${flags[@]}" -c tests/model/explore.c -o "$out/explore.o"
"${cc[@]}" "${flags[@]}" -c tests/model/table.c -o "$out/table.o"
for file in tests/model/{classic,ring,run,bell,generation,mail}.c ipc/{ring,bell,event,segment}.c daemon/engine/mailbox.c; do
    "${cc[@]}" "${flags[@]}" "${shim[@]}" -c "$file" -o "$out/${file//\//_}.o"
done
"${cc[@]}" -Wl,--gc-sections "$out"/*.o -o "$out/explore"
"$out/explore" | tee "$out/explore.log"
in_code=$(grep -hoE 'memory_order_(consume|acquire|release|acq_rel|seq_cst)' ipc/*.[ch] | wc -l)
weakened=$(sed -n 's/^orders \([0-9]*\),.*/\1/p' "$out/explore.log")
[ "$in_code" = "$weakened" ] ||
    { echo "ipc/ has $in_code orders stronger than relaxed, the table $weakened: add the new one"; exit 1; }

echo "ok: $weakened orders weakened: each was noticed, or the page says why not"
