#!/usr/bin/env bash
# Runs every built test: unit, stress, end to end, then the scripts. Prints each suite's own closing
# line, and last `N passed, N failed, N skipped` over suites. Exit 1 when one failed.
# Environment: BUILD (build folder), HEARTH_TESTDATA (optional real models and vectors).
set -u
cd "$(dirname "$0")/.." || exit
# A busy machine may let a test wait for long: what is stuck is stuck after minutes, too. (Check's own 4 s are for
# a machine with nothing else to do.)
export CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-120} CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-3}
export BUILD=${BUILD:-build}
passed=0 failed=0 skipped=0 broken=()
logs=$BUILD/tests/logs
mkdir -p "$logs"

run() { # NAME COMMAND...
    local name=$1 log; shift
    log=$logs/$(echo "$name" | tr / _).log
    if timeout -k 10 900 "$@" >"$log" 2>&1 </dev/null; then
        passed=$((passed + 1)); verdict=ok
    else
        failed=$((failed + 1)); verdict=FAILED; broken+=("$name")
        sed 's/^/    /' "$log" | tail -n 60
    fi
    skips=$(grep -c '^skip' "$log" || true)
    skipped=$((skipped + skips))
    printf '%-36s %-7s %s\n' "$name" "$verdict" "$(grep -E '^[0-9]+%: Checks|^ok:' "$log" | tail -n 1)"
    grep '^skip' "$log" | sort -u | sed 's/^/    /'
}

echo "hearth: running the tests (logs in $logs)"
for t in "$BUILD"/tests/unit/test_* "$BUILD"/tests/stress/stress_* "$BUILD"/tests/e2e/test_*; do
    case $t in *.d | *.o) continue ;; esac
    [ -x "$t" ] && run "${t#"$BUILD"/tests/}" "$t"
done
for p in shadow draft; do # the engine's roughest suites again, with a model that drafts
    for t in engine_hostile engine_soak engine_thread; do
        run "unit/test_$t ($p)" env HEARTH_RIG_PROPOSER=$p "$BUILD/tests/unit/test_$t"
    done
done
if [ -f "$BUILD/tests/cudasim/hearth-cuda.so" ]; then # the CUDA backend on this processor
    for t in "$BUILD"/tests/cudasim/test_*; do
        [ -x "$t" ] && [ -f "$t" ] && run "cudasim/${t##*/}" "$t"
    done
    case $BUILD in
    *tsan) # it does not follow threads that switch stacks
        echo "skip: cudasim/contract: the thread sanitizer does not follow the simulator's threads" ;;
    *)
        contract() { # NAME VARIABLE=VALUE...
            run "cudasim/contract ($1)" env HEARTH_PLUGINS="$BUILD/tests/cudasim" "${@:2}" "$BUILD/tests/gpu/contract"
        }
        contract up HEARTH_CUDASIM_ORDER=up
        contract "shuffled, one kernel" HEARTH_CUDASIM_ORDER=1 HEARTH_CUDA_STEPS=1
        ;;
    esac
else
    echo "skip: cudasim: no C++ compiler (g++), the CUDA backend is not tested"
fi
for t in tests/tools/check_*.sh tests/e2e/*.sh; do
    [ -f "$t" ] && run "${t#tests/}" bash "$t"
done

[ -n "${HEARTH_TESTDATA:-}" ] || echo "note: HEARTH_TESTDATA is not set: tests on real models were skipped"
[ ${#broken[@]} -eq 0 ] || echo "failed: ${broken[*]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
