#!/usr/bin/env bash
# Runs every built test: unit, stress, end to end, then the scripts. Prints each suite's own closing
# line, and last `N passed, N failed, N skipped` over suites. Exit 1 when one failed.
# Suites run side by side, one a core and at most four, the longest first; the output of each comes when it ends.
# Environment: BUILD (build folder), HEARTH_TESTDATA (optional real models and vectors), LANES (suites at a time).
set -u
cd "$(dirname "$0")/.." || exit
# A busy machine may let a test wait for long: what is stuck is stuck after minutes, too. (Check's own 4 s are for
# a machine with nothing else to do.)
export CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-120} CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-3}
export BUILD=${BUILD:-build}
cores=$(nproc) started=0
lanes=${LANES:-$((cores < 4 ? cores : 4))}
logs=$BUILD/tests/logs
rm -rf "$logs"
mkdir -p "$logs"
verdicts=$logs/verdicts # a line a suite: ok or FAILED, how many skips, its name
: >"$verdicts"
trap 'kill $(jobs -rp) 2>/dev/null; exit 130' INT TERM

suite() { # NAME COMMAND...
    local name=$1 log child verdict=FAILED; shift
    log=$logs/${name//\//_}.log
    timeout -k 10 1800 "$@" >"$log" 2>&1 </dev/null &
    child=$!
    trap 'kill "$child"; exit 143' TERM # it has a process group of its own
    wait "$child" && verdict=ok
    exec 9>"$logs/lock"
    flock 9
    [ $verdict = ok ] || sed 's/^/    /' "$log" | tail -n 60
    printf '%-36s %-7s %s\n' "$name" $verdict "$(grep -E '^[0-9]+%: Checks|^ok:' "$log" | tail -n 1)"
    grep '^skip' "$log" | sort -u | sed 's/^/    /'
    echo "$verdict $(grep -c '^skip' "$log") $name" >>"$verdicts"
}

run() { # NAME COMMAND...
    while [ "$(jobs -rp | wc -l)" -ge "$lanes" ]; do wait -n; done
    suite "$@" &
    started=$((started + 1))
}

contract() { # NAME VARIABLE=VALUE...
    run "cudasim/contract ($1)" env HEARTH_PLUGINS="$BUILD/tests/cudasim" "${@:2}" "$BUILD/tests/gpu/contract"
}

case $BUILD in # libasan opens libraries in the plugin's place, and does not look beside the plugin
*asan) export LD_LIBRARY_PATH=$PWD/$BUILD/tests/cudasim ;;
esac

echo "hearth: running the tests (logs in $logs)"
if [ -f "$BUILD/tests/cudasim/hearth-cuda.so" ]; then # the CUDA backend on this processor
    case $BUILD in
    *tsan) # it does not follow threads that switch stacks
        echo "skip: cudasim/contract: the thread sanitizer does not follow the simulator's threads" ;;
    *)
        contract up HEARTH_CUDASIM_ORDER=up
        contract "shuffled, one kernel" HEARTH_CUDASIM_ORDER=1 HEARTH_CUDA_STEPS=1 ;;
    esac
    for t in "$BUILD"/tests/cudasim/test_*; do
        [ -x "$t" ] && [ -f "$t" ] && run "cudasim/${t##*/}" "$t"
    done
else
    echo "skip: cudasim: no C++ compiler (g++), the CUDA backend is not tested"
fi
for t in "$BUILD"/tests/e2e/test_* "$BUILD"/tests/unit/*/test_* "$BUILD"/tests/stress/stress_*; do
    case $t in *.d | *.o) continue ;; esac
    [ -x "$t" ] && run "${t#"$BUILD"/tests/}" "$t"
done
for p in shadow draft; do # the engine's roughest suites again, with a model that drafts
    for t in engine_hostile engine_soak engine_thread; do
        run "unit/daemon/test_$t ($p)" env HEARTH_RIG_PROPOSER=$p "$BUILD/tests/unit/daemon/test_$t"
    done
done
for t in tests/tools/check_*.sh tests/e2e/*.sh; do
    [ -f "$t" ] && run "${t#tests/}" bash "$t"
done
wait

[ -n "${HEARTH_TESTDATA:-}" ] || echo "note: HEARTH_TESTDATA is not set: tests on real models were skipped"
awk -v started="$started" '
    { skipped += $2 }
    $1 == "ok" { passed++; next }
    { names = names "\n    " substr($0, length($1 $2) + 3) }
    END {
        failed = started - passed # one that was killed left no word
        if (names) print "failed:" names
        printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
        exit failed > 0 || !passed
    }' "$verdicts"
