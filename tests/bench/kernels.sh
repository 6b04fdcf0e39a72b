#!/usr/bin/env bash
# The kernels in process, by hearth-bench: JSON lines on stdout. Every decode line has the best read of as
# many bytes measured in the same run beside it. At the end of each shape, the ratios that have a target.
# Environment: BUILD; BENCH_SHAPES (default "small"; "qwen2.5-0.5b" is a real one, three minutes);
# BENCH_TYPES; models are made once and kept in $BUILD/bench/models.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
shapes=${BENCH_SHAPES:-small}
types=${BENCH_TYPES:-F16 Q8_0 Q4_K_M Q4_0}
models=$build/bench/models
cores=$(nproc)
mkdir -p "$models"

lines=$(mktemp)
bench() { "$build/bin/hearth-bench" --json "$@" | tee -a "$lines"; }

# ratio WHAT MODEL VALUE SIGN TARGET: a line that run.sh shows with its target; nothing without a value.
ratio() {
    [ -n "$3" ] || return 0
    awk -v what="$1" -v model="$2" -v x="$3" -v sign="$4" -v target="$5" 'BEGIN {
        met = sign == "<=" ? x <= target : x >= target
        printf "{\"bench\":\"cpu\",\"what\":\"%s\",\"model\":\"%s\",\"ratio\":%.4g,", what, model, x
        printf "\"target\":\"%s %s\",\"met\":%s}\n", sign, target, met ? "true" : "false" }'
}
# value FIELD PATTERN...: a field of the first line with all patterns.
value() {
    local name=$1 found; shift
    found=$(cat "$lines")
    for pattern in "$@"; do found=$(grep -F -- "$pattern" <<<"$found" || true); done
    sed -n "1s/.*\"$name\":\([0-9.]*\).*/\1/p" <<<"$found"
}
over() { [ -z "$1" ] || [ -z "$2" ] || awk "BEGIN { print $1 / $2 }"; }
ratios() { # SHAPE
    local type model one
    for type in $types; do
        model="\"model\":\"$1-$type.gguf\"" one='"slots":1,"prompt":128'
        case $type in Q8_0 | F16 | BF16) target=0.92 ;; *) target=0.88 ;; esac
        ratio 'decode: share of the best read' "$1-$type.gguf" \
            "$(value bandwidth_share "$model" '"what":"decode"' "\"threads\":$cores," "$one")" '>=' $target
    done
    model="\"model\":\"$1-Q8_0.gguf\""
    ratio 'a window of 6 rows over one' "$1-Q8_0.gguf" "$(value over_one "$model" '"rows":6,')" '<=' 1.55
    ratio 'a window of 12 rows over one' "$1-Q8_0.gguf" "$(value over_one "$model" '"rows":12,')" '<=' 2.05
    one=$(value tok_s "$model" '"what":"decode"' '"slots":1,"prompt":16,')
    ratio '8 slots together over one' "$1-Q8_0.gguf" \
        "$(over "$(value tok_s "$model" '"what":"decode"' '"slots":8,')" "$one")" '>=' 4.5
    ratio 'beside busy processes over alone' "$1-Q8_0.gguf" \
        "$(over "$(value tok_s '"bench":"cpu beside' '"what":"decode"' "$model")" "$one")" '>=' 0.35
}

# Powers of two up to the number of cores, and that number.
threads=$(for ((t = 1; t < cores; t *= 2)); do echo "$t"; done; echo "$cores")

# As many busy processes as cores, like an editor and a compiler.
busy=()
stop_busy() {
    [ ${#busy[@]} -eq 0 ] || kill "${busy[@]}" 2>/dev/null || true
    busy=()
}
trap 'stop_busy; rm -f "$lines"' EXIT
start_busy() {
    for ((i = 0; i < cores; i++)); do
        while :; do :; done &
        busy+=($!)
        disown # or bash reports its end
    done
}

for shape in $shapes; do
    for type in $types; do
        model=$models/$shape-$type.gguf
        [ -f "$model" ] || "$build/bin/hearth-mkmodel" --shape "$shape" --type "$type" "$model"
        bench --model "$model" -p 128 -n 32 --windows
    done
    for type in Q8_0 Q4_0; do
        model=$models/$shape-$type.gguf
        [ -f "$model" ] || continue
        for t in $threads; do
            [ "$t" -eq "$cores" ] || bench --model "$model" -p 128 -n 32 -t "$t"
        done
        for slots in 1 2 4 8 16; do bench --model "$model" -p 16 -n 32 -b "$slots"; done
        for prompt in 32 512 2048; do bench --model "$model" -p "$prompt" -n 1 -r 3; done
    done
    model=$models/$shape-Q8_0.gguf
    [ -f "$model" ] || continue
    start_busy
    "$build/bin/hearth-bench" --json --model "$model" -p 16 -n 32 |
        sed 's/"bench":"cpu"/"bench":"cpu beside busy processes"/' | tee -a "$lines"
    stop_busy
    ratios "$shape"
done
