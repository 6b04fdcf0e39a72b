#!/usr/bin/env bash
# The kernels in process, by hearth-bench: JSON lines on stdout. Every decode line stands beside the best
# read of as many bytes measured in the same run.
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

bench() { "$build/bin/hearth-bench" --json "$@"; }

# Powers of two up to the number of cores, and that number.
threads=$(for ((t = 1; t < cores; t *= 2)); do echo "$t"; done; echo "$cores")

# As many busy processes as cores: the editor, the compiler.
busy=()
stop_busy() { [ ${#busy[@]} -eq 0 ] || kill "${busy[@]}" 2>/dev/null || true; busy=(); }
trap stop_busy EXIT
start_busy() {
    for ((i = 0; i < cores; i++)); do
        while :; do :; done &
        busy+=($!)
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
    bench --model "$model" -p 32 -n 32 | sed 's/"bench":"cpu"/"bench":"cpu beside busy processes"/'
    stop_busy
done
