# stages.sh: how run.sh runs things; sourced by it. Nothing here waits forever: a command has its limit, a stage may have a
# deadline of its own (`local deadline`), and what not even SIGKILL ends (a process inside a driver) is abandoned.
# shellcheck shell=bash
# shellcheck disable=SC2154 # run.sh sets logs, table, results, deadline and lanes

failed=0
child=   # what `limited` runs
names=() # of the jobs since the last jobs_end
pids=()

say() { printf '%s\n' "$*" | tee -a "$table"; }
left() { echo $((deadline - SECONDS)); }
kill_child() { [ -z "$child" ] || kill "$child" 2>/dev/null; }

# Runs COMMAND for at most LIMIT seconds and never beyond the deadline, its output in LOG. Returns its exit code, 124 where
# its limit ended it, 125 where the deadline did, or where it did not begin.
limited() { # LOG LIMIT COMMAND...
    local log=$1 limit=$2 ended=124 rest end code; shift 2
    rest=$(left)
    [ "$rest" -gt 3 ] || return 125
    [ "$limit" -lt "$rest" ] || { limit=$rest; ended=125; }
    timeout -k 3 "$limit" "$@" >"$log" 2>&1 </dev/null &
    child=$!
    end=$((SECONDS + limit + 6))
    while kill -0 "$child" 2>/dev/null; do
        [ $SECONDS -lt $end ] || { child=; return $ended; }
        sleep 0.1
    done
    wait "$child"
    code=$?
    child=
    [ $code -ne 124 ] && [ $code -ne 137 ] || return $ended # 137: killed by force
    return $code
}

# ---- jobs side by side, up to `lanes` ----------------------------------------------------------------------------------

running() {
    local pid n=0
    for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null && n=$((n + 1)); done
    echo $n
}

# Its output is NAME.log, its exit code NAME.code.
job() { # NAME LIMIT COMMAND...
    local name=$1; shift
    while [ "$(running)" -ge "$lanes" ]; do sleep 0.1; done
    names+=("$name")
    (
        trap 'kill_child; exit 143' TERM
        limited "$logs/$name.log" "$@"
        echo $? >"$logs/$name.code"
    ) &
    pids+=($!)
}
jobs_end() {
    [ ${#pids[@]} -eq 0 ] || wait "${pids[@]}"
    pids=()
}
code_of() { cat "$logs/$1.code" 2>/dev/null || echo 125; }

# ---- verdicts ---------------------------------------------------------------------------------------------------------

# The first line of a log that names an error, else its last one.
reason() { # LOG
    { grep -m 1 -E ': line [0-9]+: |: FAILED|[Ee]rror|Invalid|hazard|abort|Assert' "$1" || tail -n 1 "$1"; } 2>/dev/null | cut -c 1-160
}
verdict() { # NAME CODE LOG
    case $2 in
    0) say "ok      $1: $(tail -n 1 "$3" | cut -c 1-160)" ;;
    125) say "skip    $1: no time left" ;;
    124) say "FAILED  $1: it did not end in time (see $3)"; failed=1 ;;
    *) say "FAILED  $1 (exit $2): $(reason "$3") (see $3)"; failed=1 ;;
    esac
}

# Saves the state so far: the table and the bench's lines in the results, these and the logs in OUT.
keep() {
    cp "$table" "$results/table.txt"
    [ ! -f "$logs/bench.jsonl" ] || cp "$logs/bench.jsonl" "$results/"
    [ -z "${OUT:-}" ] || {
        mkdir -p "$OUT" && cp "$table" "$OUT/summary.txt" &&
            tar -czf "$OUT/results.tar.gz" -C "$(dirname "$results")" "$(basename "$results")" -C "$PWD/$(dirname "$logs")" "$(basename "$logs")"
    }
}
