#!/usr/bin/env bash
# Checks the rings and bells exhaustively: the real code under the explorer, the protocols in Spin. Prints what holds,
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
# A signal fence binds the compiler alone.
in_code=$(cat ipc/*.[ch] | grep -v atomic_signal_fence | grep -oE 'memory_order_(consume|acquire|release|acq_rel|seq_cst)' | wc -l)
weakened=$(sed -n 's/^orders \([0-9]*\),.*/\1/p' "$out/explore.log")
[ "$in_code" = "$weakened" ] ||
    { echo "ipc/ has $in_code orders stronger than relaxed, the table $weakened: add the new one"; exit 1; }

# ---- Spin --------------------------------------------------------------------------------------

if ! command -v spin >/dev/null; then
    echo "skip: spin is not installed, the protocols' models were not checked (Debian package: spin)"
    echo "ok: $weakened orders weakened"
    exit 0
fi

model() { # NAME: builds $out/NAME/pan
    mkdir "$out/$1"
    cp "tests/model/$1.pml" "$out/$1/"
    (cd "$out/$1" && spin -a "$1.pml" >/dev/null && "${cc[@]}" -O2 -w -DSAFETY -DBFS -DNOCLAIM -o pan pan.c)
}

explored() { # NAME VARIABLE=VALUE...: one search; its words are in $out/NAME/log
    (cd "$out/$1" && rm -f ./*.trail && env "${@:2}" ./pan -m100000 -w20 >log 2>&1)
    grep -q 'errors: [01]$' "$out/$1/log" || { cat "$out/$1/log"; echo "spin did not come to its end"; exit 1; }
}

holds() { # NAME WHAT VARIABLE=VALUE...
    explored "$1" "${@:3}"
    echo "$1: $2: $(sed -n 's/^ *\([0-9]*\) states, stored.*/\1 states/p' "$out/$1/log")"
    if grep -q 'Search not completed' "$out/$1/log"; then
        (cd "$out/$1" && env "${@:3}" ./pan -r -S | sed 's/^/      /') || true
        echo "this should hold"; exit 1
    fi
}

mutants=0
caught() { # NAME WHAT VARIABLE=VALUE...
    explored "$1" "${@:3}"
    echo "$1: without $2:"
    grep -q 'errors: 1$' "$out/$1/log" || { echo "nothing went wrong: this should have been noticed"; exit 1; }
    (cd "$out/$1" && env "${@:3}" ./pan -r -S 2>&1 | sed -e '/trail ends/,$d' -e 's/^/      /')
    sed -n 's/^pan:1: \(.*\) (at depth.*/      so: \1/p' "$out/$1/log"
    mutants=$((mutants + 1))
}

model bell
holds bell "no wake is lost, without looking" MUTANT=0 LOOK=0
holds bell "a daemon that dies is noticed, and what it had published is read" MUTANT=0 DIES=1 EARLY=1
caught bell "the client's fence (S1)" MUTANT=1 LOOK=0
caught bell "the daemon's fence after publishing (S2)" MUTANT=2 LOOK=0
caught bell "the daemon's fence before sleeping (S1)" MUTANT=3 LOOK=0
caught bell "the client's fence after reading (S2)" MUTANT=4 LOOK=0
caught bell "the client's second look" MUTANT=5 LOOK=0
caught bell "the daemon's second look" MUTANT=6 LOOK=0
caught bell "a new number for each ticket" MUTANT=7 LOOK=0
caught bell "raising the wake word" MUTANT=8 LOOK=0
caught bell "reading the wake word before announcing" MUTANT=9 LOOK=0
caught bell "publishing before looking for sleepers" MUTANT=10 LOOK=0
caught bell "leaving an armed ticket alone while waiting for room" MUTANT=11 LOOK=0
caught bell "a last look at the ring before believing the hang-up" MUTANT=12 DIES=1 EARLY=1
caught bell "the 250 ms look" MUTANT=0 DIES=1 LOOK=0

model generation
holds generation "the daemon runs each request on its own prompt" MUTANT=0
holds generation "so it does without the fence of G1, on this machine" MUTANT=6
caught generation "the generation before the arena (G1)" MUTANT=1
caught generation "the second look at the generation (G2)" MUTANT=2
caught generation "void cells lowering 'same'" MUTANT=3
caught generation "a torn copy leaving 'same' as it was" MUTANT=4
caught generation "forgetting the arena of a cell that was never sent" MUTANT=5
caught generation "'same' bounding what a cell keeps" MUTANT=7

echo "ok: $weakened orders weakened, $mutants protocols broken: each was noticed, or the page says why not"
