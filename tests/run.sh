#!/usr/bin/env bash
# Runs suites that were built; prints each suite's own closing line, and last `N passed, N failed, N skipped` over suites.
# Exit 1 when one failed.
# Usage: tests/run.sh check       all but the simulated GPU's
#        tests/run.sh sim         those of the simulated GPU; may be given together with check
#        tests/run.sh quick       of check those that changed since they last passed, as many as fit in QUICK_SECONDS
#        tests/run.sh total       nothing; the sum over the last check and sim
# Suites run side by side, one more than there are cores and at most four, the longest first; the output of each comes when it ends.
# In $BUILD/tests: logs/ has each suite's output, times each suite's seconds, stamps/ when it last passed.
# Environment: BUILD (build folder), HEARTH_TESTDATA (optional real models and vectors), LANES (suites at a time),
# QUICK_SECONDS (40).
set -u
cd "$(dirname "$0")/.." || exit
# On a busy machine a test may wait for long, and a stuck one is still stuck after minutes. (Check's default of 4 s
# suits an idle machine.)
export CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-120} CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-3}
export BUILD=${BUILD:-build}
cores=$(nproc)
lanes=${LANES:-$((cores < 4 ? cores + 1 : 4))} # some suites wait more than they compute
folder=$BUILD/tests logs=$BUILD/tests/logs stamps=$BUILD/tests/stamps times=$BUILD/tests/times
group=${1:-check}

total() { # VERDICTS...: lines `started N`, and for each suite ok or FAILED, how many skips, its name, why it failed
    awk '
        $1 == "started" { started += $2; next }
        { skipped += $2 }
        $1 == "ok" { passed++; next }
        { names = names "\n    " substr($0, length($1 $2) + 3) }
        END {
            failed = started - passed # a suite that was killed did not report
            if (names) print "failed:" names
            printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
            exit failed > 0 || !started
        }' "$@"
}
[ "$group" != total ] || { total "$folder"/verdicts-{check,sim}; exit; }

# ---- which suites there are ----------------------------------------------------------------------

declare -A command    # by name
declare -A program    # what is run: a program or a script
names=()
add() { # NAME PROGRAM COMMAND...
    names+=("$1")
    program[$1]=$2
    command[$1]=$(printf '%q ' "${@:3}")
}
# From part to part in the usual order of threads and in a shuffled one.
add_contract() {
    local contract=$folder/gpu/contract part orders=(up 1) n=0
    while read -r part; do
        n=$((n + 1))
        add "cudasim/contract ($part)" "$contract" env HEARTH_PLUGINS="$folder/cudasim" \
            HEARTH_CUDASIM_ORDER="${orders[n % 2]}" "$contract" --part "$part"
    done < <("$contract" --parts)
    # Without wgmma many rows of F16 and BF16 have a kernel of their own.
    add "cudasim/contract (no wgmma)" "$contract" env HEARTH_PLUGINS="$folder/cudasim" \
        HEARTH_CUDASIM_ARCH=80 "$contract" native_rows_do_not_depend_on_their_pass
}
add_built() { # PATTERN...: programs
    for t in "$@"; do
        case $t in *.* | */cudasim/test_\* | */e2e/test_cuda) continue ;; esac
        [ -x "$t" ] && add "${t#"$folder"/}" "$t" "$t"
    done
}
add_scripts() {
    for t in "$@"; do [ ! -f "$t" ] || add "${t#tests/}" "$t" bash "$t"; done
}
simulated=(tests/e2e/device.sh tests/e2e/gpu_run.sh tests/tools/check_registers.sh)

add_sim() {
    if [ -f "$folder/cudasim/hearth-cuda.so" ]; then # the CUDA backend on this processor
        case $BUILD in
        *tsan) # it does not follow threads that switch stacks
            echo "skip: cudasim/contract: the thread sanitizer does not follow the simulator's threads" ;;
        *) add_contract ;;
        esac
        add_built "$folder"/cudasim/test_*
        add e2e/test_cuda "$folder/e2e/test_cuda" "$folder/e2e/test_cuda"
    else
        echo "skip: cudasim: no C++ compiler (g++), the CUDA backend is not tested"
    fi
    add_scripts "${simulated[@]}"
}

add_check() {
    add_built "$folder"/e2e/test_* "$folder"/hostile/test_* "$folder"/unit/*/test_* "$folder"/stress/stress_*
    for p in shadow draft mtp; do # the engine's roughest suites again, with a model that drafts
        for t in engine_hostile engine_soak engine_thread; do
            t=unit/daemon/test_$t
            [ ! -x "$folder/$t" ] || add "$t ($p)" "$folder/$t" env HEARTH_RIG_PROPOSER=$p "$folder/$t"
        done
    done
    for t in engine_hostile engine_soak engine_models engine_drafts; do # and with window pages, as few as serve
        t=unit/daemon/test_$t
        [ ! -x "$folder/$t" ] || add "$t (windows)" "$folder/$t" env HEARTH_RIG_WINDOW=45 "$folder/$t"
    done
    t=e2e/test_determinism
    [ ! -x "$folder/$t" ] || add "$t (qwen35)" "$folder/$t" env HEARTH_DETERMINISM_ARCH=qwen35 "$folder/$t"
    for p in none shadow mtp; do # and of a recurrent model, with few states
        for t in engine_hostile engine_soak engine_thread; do
            t=unit/daemon/test_$t
            [ ! -x "$folder/$t" ] || add "$t (states, $p)" "$folder/$t" env HEARTH_RIG_STATES=4 HEARTH_RIG_PROPOSER=$p "$folder/$t"
        done
    done
    for t in tests/tools/check_*.sh tests/e2e/*.sh; do
        case " ${simulated[*]} " in *" $t "*) ;; *) add_scripts "$t" ;; esac
    done
}

# ---- what a suite depends on ------------------------------------------------------------------------

stamp_of() { echo "$stamps/${1//\//_}.ok"; }

inputs() { # NAME: files and folders
    local of=${program[$1]}
    echo "$of"
    [ ! -f "$of.took" ] || grep -o '[^ ,()]*\.o' "$of.took" # objects, for a suite that was not linked again
    case $1 in # real programs, and what is installed with them
    e2e/* | hostile/* | tools/* | unit/daemon/test_config)
        printf '%s\n' "$BUILD"/{bin,lib,man} client/{man,nvim,python,shell} systemd tests/python tests/e2e/*.lua ;;
    esac
    printf '%s\n' tests/fixtures daemon/models
}

changed() { # NAME: what changed since it last passed, or "all" where it never did
    local stamp
    stamp=$(stamp_of "$1")
    [ -f "$stamp" ] || { echo all; return; }
    inputs "$1" | xargs -d '\n' sh -c 'find "$@" -type f -newer "$0" ! -name "*.pyc" 2>/dev/null' "$stamp"
}

declare -A seconds # by name, of the last time
if [ -f "$times" ]; then while read -r s name; do seconds[$name]=$s; done <"$times"; fi
expected() { # NAME
    local guess=1
    case $1 in
    cudasim/contract* | e2e/test_cuda) guess=60 ;;
    */test_cpu_* | */test_grammar_* | */test_vocabulary | */test_determinism | */test_http_rough | */python.sh) guess=30 ;;
    */test_idle_stop | */test_jinja_limits | */test_engine_thread | */stress_ring | e2e/*.sh) guess=15 ;;
    hostile/*) guess=40 ;;
    e2e/*) guess=4 ;;
    esac
    echo "${seconds[$1]:-$guess}"
}
by_seconds() { # [-r]: the names on stdin
    while read -r name; do [ -z "$name" ] || echo "$(expected "$name") $name"; done | sort -s -n "$@" | cut -d ' ' -f 2-
}

# Of those that changed: test_X of a changed X.c or test_X.c, then other unit tests, then the rest, the shortest first, while
# they fit.
pick_quick() {
    local name s what subject own=() units=() others=() picked=() left=() budget=$((${QUICK_SECONDS:-40} * (lanes > cores ? cores : lanes))) all=${#names[@]}
    for name in "${names[@]}"; do
        what=$(changed "$name")
        subject=${name##*/test_}
        case "$what " in
        ' ') ;;
        *"/$subject.o"[[:space:]]* | "${program[$name]} ") own+=("$name") ;;
        *) case $name in e2e/* | hostile/*) others+=("$name") ;; *) units+=("$name") ;; esac ;;
        esac
    done
    for name in "${own[@]}"; do picked+=("$name") budget=$((budget - $(expected "$name"))); done
    while read -r name; do
        s=$(expected "$name")
        if [ "$s" -le 10 ] && [ "$s" -lt "$budget" ]; then
            picked+=("$name") budget=$((budget - s))
        else
            left+=("$name")
        fi
    done < <(printf '%s\n' "${units[@]}" | by_seconds; printf '%s\n' "${others[@]}" | by_seconds)
    echo "hearth: of $all suites $((${#picked[@]} + ${#left[@]})) can be broken by what changed"
    [ ${#left[@]} -eq 0 ] || echo "left to make check: ${left[*]}"
    names=("${picked[@]}")
}

# ---- running ----------------------------------------------------------------------------------------

suite() { # NAME
    local name=$1 log child verdict=FAILED began=$SECONDS stamp why
    log=$logs/${name//\//_}.log stamp=$(stamp_of "$name")
    rm -f "$stamp"
    : >"$stamp.new"
    eval "exec timeout -k 10 1800 ${command[$name]}" >"$log" 2>&1 </dev/null &
    child=$!
    trap 'kill "$child" 2>/dev/null; exit 143' TERM # it has a process group of its own
    wait "$child" && verdict=ok
    exec 9>"$logs/lock"
    flock 9
    [ $verdict = ok ] || sed 's/^/    /' "$log" | tail -n 60
    printf '%-36s %-7s %s\n' "$name" $verdict "$(grep -E '^[0-9]+%: Checks|^ok:' "$log" | tail -n 1)"
    grep '^skip' "$log" | sort -u | sed 's/^/    /'
    why=
    [ $verdict = ok ] || why=": $(tail -n 1 "$log" | cut -c 1-200)" # the summary is all that some will see
    echo "$verdict $(grep -c '^skip' "$log") $name$why" >>"$verdicts"
    echo "$((SECONDS - began)) $name" >>"$logs/times"
    if [ $verdict = ok ]; then mv "$stamp.new" "$stamp"; else rm "$stamp.new"; fi
}

verdicts=$folder/verdicts-$group
rm -rf "$logs"
mkdir -p "$logs" "$stamps"
: >"$logs/times"
trap 'kill $(jobs -rp) 2>/dev/null; exit 130' INT TERM

for part in "$@"; do
    case $part in
    check | sim) add_$part ;;
    quick) add_check && pick_quick ;;
    *) echo "usage: tests/run.sh check|sim|quick|total"; exit 64 ;;
    esac
done
echo "hearth: running ${#names[@]} suites (logs in $logs)"
echo "started ${#names[@]}" >"$verdicts"
while read -r name; do
    while [ "$(jobs -rp | wc -l)" -ge "$lanes" ]; do wait -n; done
    suite "$name" &
done < <(printf '%s\n' "${names[@]}" | by_seconds -r)
wait

if [ -f "$times" ]; then # of suites that did not run now
    awk 'NR == FNR { now[substr($0, length($1) + 2)]; next } !(substr($0, length($1) + 2) in now)' \
        "$logs/times" "$times" >"$times.new"
fi
cat "$logs/times" >>"$times.new"
mv "$times.new" "$times"
if [ "$group" = quick ]; then
    [ ${#names[@]} -gt 0 ] || exit 0
else
    echo "the slowest, in seconds:"
    sort -rn "$logs/times" | head -n 10 | sed 's/^/    /'
    [ -n "${HEARTH_TESTDATA:-}" ] || echo "note: HEARTH_TESTDATA is not set: tests on real models were skipped"
fi
total "$verdicts"
