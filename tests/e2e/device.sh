#!/usr/bin/env bash
# Which device the daemon takes, on the simulator: with auto it logs the reason, a named device it takes or refuses in one
# line. Sampled and drafted answers equal the CPU's (greedy ones: test_cuda.c).
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
sim=$PWD/$build/tests/cudasim
[ -f "$sim/hearth-cuda.so" ] || { echo "skip: no simulator (g++), the daemon is not tested on CUDA"; exit 0; }
case $build in *asan | *tsan) echo "skip: sanitizers do not follow the simulator's threads"; exit 0 ;; esac
bin=$PWD/$build/bin
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$work"' EXIT
export HEARTH_PLUGINS=$sim

die() { echo "$*"; for log in "$work"/*.log; do [ ! -f "$log" ] || tail -n 5 "$log"; done; exit 1; }
serve() { # DEVICE MODEL
    rm -f "$work/s" "$work/hearthd.log" # an old log says that it is ready, too
    "$bin/hearthd" --device "$1" --model "$2" --socket "$work/s" --slots 2 --context 256 --rows 16 \
        >"$work/hearthd.log" 2>&1 &
    pid=$!
    for _ in $(seq 6000); do grep -qs ' ready at ' "$work/hearthd.log" && return; sleep 0.05; done
    die "hearthd --device $1 does not start"
}
stop() { kill "$pid" && wait "$pid"; pid=; }
answer() { # TEXT OPTIONS...: the ids and the receipt
    local text=$1; shift
    "$bin/hearth" run --socket "$work/s" --json "$@" "$text" | tail -n 1 | grep -oE '"(ids|receipt)":("[^"]*"|\[[^]]*\])'
}
same() { # NAME MODEL TEXT
    local device
    for device in cpu cuda; do
        serve $device "$2"
        answer "$3" --max-tokens 6 >"$work/$device"
        answer "$3" --max-tokens 8 --temperature 0.8 --seed 3 --top-p 0.9 >>"$work/$device"
        answer "$3" --max-tokens 12 --proposer lookup >>"$work/$device"
        stop
    done
    grep -q '"ids":\[[0-9]' "$work/cpu" || die "$1: no answer"
    cmp -s "$work/cpu" "$work/cuda" || die "$1: other tokens than the CPU's"
}

code=daemon/models/hearth-code-5m-f16.gguf
"$bin/hearth-mkmodel" --from $code --type Q4_0 "$work/q4_0.gguf" >/dev/null
same "the bundled model in Q4_0" "$work/q4_0.gguf" "def main():"

# Small models, of which instances open in a second. A GPU with too little memory is one for the larger model.
small=$work/small.gguf float=$work/float.gguf
"$bin/hearth-mkmodel" --shape tiny --type Q8_0 "$small" >/dev/null
"$bin/hearth-mkmodel" --shape tiny --type F16 "$float" >/dev/null

# auto: a GPU where there is one, else the CPU; the log says which and why.
check() { "$bin/hearthd" --check --model "$model" "$@" 2>&1; }
said() { # PATTERN TEXT: it is one line, but for those that say how far a long load is
    grep -qE "$1" <<<"$2" || die "expected: $1, got: $2"
    [ "$(grep '^hearthd:' <<<"$2" | grep -cvE ': (loading|loaded) ')" -le 1 ] || die "more than a line: $2"
}
model=$float
said 'on cuda \(sm_90' "$(check --device auto)"
said 'on cpu ' "$(HEARTH_CUDASIM_DEVICES=0 check --device auto)"
said 'on cpu ' "$(model=$code HEARTH_CUDASIM_MEMORY=4194304 check --device auto)"
said 'on cpu ' "$(check --device auto --isa ref)"
# Numerics: native for float models on a GPU, else portable.
said 'numerics native-2-sm90$' "$(check --device cuda)"
said 'numerics cpu-float-1$' "$(check --device cpu)"
said 'numerics cpu-float-1-kvq8$' "$(check --device cuda --kv-type q8_0 --numerics portable)"
said 'numerics portable-1$' "$(model=$small check --device cuda)"

# A start logs the device, the reason, and what it serves on.
logged() { # WHY SERVES ENVIRONMENT...
    local why=$1 on=$2 device=$DEVICE; shift 2
    rm -f "$work/hearthd.log"
    env "$@" "$bin/hearthd" --device "$device" --model "$model" --socket "$work/s" --slots 2 --context 256 \
        >"$work/hearthd.log" 2>&1 &
    pid=$!
    for _ in $(seq 6000); do grep -qs ' ready at ' "$work/hearthd.log" && break; sleep 0.05; done
    stop
    [ -z "$why" ] || [ "$(grep -cE "^hearthd: $why\$" "$work/hearthd.log")" -eq 1 ] || die "not logged once: $why"
    [ -n "$why" ] || ! grep -qE '^hearthd: device ' "$work/hearthd.log" || die "a reason for a named device"
    grep -qE "^hearthd: $on, context 256, .* numerics " "$work/hearthd.log" || die "not logged: $on"
}
model=$small
cuda='on cuda \(sm_90, [0-9]+ threads\)' cpu='on cpu \([a-z0-9]+, [0-9]+ threads\)'
DEVICE=auto logged 'device cuda: a GPU with 1024 MiB free' "$cuda"
DEVICE=auto logged 'device cpu: no NVIDIA driver is loaded: .*' "$cpu" HEARTH_CUDASIM_DEVICES=0
DEVICE=auto logged 'device cpu: .*hearth-cuda.so does not exist: .*' "$cpu" HEARTH_PLUGINS="$work"
model=$code DEVICE=auto logged 'device cpu: the GPU has [0-9]+ MiB free, [0-9]+ are needed .*' "$cpu" HEARTH_CUDASIM_MEMORY=4194304
DEVICE=auto logged 'device cpu: the GPU has 1024 MiB free, [0-9]+ are needed .*, the rest [0-9]{4,}.*' "$cpu" HEARTH_CUDASIM_STACK=200000
DEVICE=auto logged 'device cpu: .* has no code that this GPU \(sm_90\) and its driver can run.*' "$cpu" \
    HEARTH_CUDASIM_FAIL=launch@1=209
DEVICE=cuda logged '' "$cuda"
DEVICE=cpu logged '' "$cpu"

# A draft model's KV counts too: both fit where the model alone would take everything.
text=$(HEARTH_CUDASIM_MEMORY=$((24 << 20)) "$bin/hearthd" --check --device cuda --model "$small" --draft "$small" --rows 16 2>&1) ||
    die "a model and its draft model do not fit: $text"
pages=$(grep -oE '[0-9]+ KV pages of 32 KiB' <<<"$text" | cut -d' ' -f1)
[ "$pages" -gt 192 ] && [ $((2 * pages * 32)) -lt $((24 << 10)) ] || die "pages: $text"

# By name: one line, exit 71, never the CPU.
refused() { # PATTERN ENVIRONMENT...
    local pattern=$1 text code_; shift
    text=$(env HEARTH_CUDA_SELF_TEST=all "$@" "$bin/hearthd" --check --device cuda --model "$model" 2>&1) && die "accepted: $text"
    code_=$?
    [ $code_ -eq 71 ] || die "exit $code_ for: $text"
    said "$pattern" "$text"
}
refused 'no (NVIDIA driver|GPU)|sees no GPU' HEARTH_CUDASIM_DEVICES=0
refused 'self-test failed: 1 rows in the graph for 1 give other numbers than one by one' HEARTH_CUDASIM_FAIL=bit@1=3
refused 'self-test failed: 3 rows in the graph for 4 give other numbers than one by one' HEARTH_CUDASIM_FAIL=bit@8=3
refused 'compute capability 7.5: hearth needs 8.0' HEARTH_CUDASIM_ARCH=75
model=$code refused 'MiB free, [0-9]+ are needed .* lower kv-bytes' HEARTH_CUDASIM_MEMORY=4194304
refused 'no code that this GPU \(sm_90\) and its driver can run: build it with make CUDA_ARCHS=90' \
    HEARTH_CUDASIM_FAIL=launch@3=209
refused 'too little memory for what its kernels need beside weights and KV \(in the launch of a graph\): lower kv-bytes' \
    HEARTH_CUDASIM_FAIL=graph@1=2
refused 'it failed in [a-z ]+: an illegal memory access' HEARTH_CUDASIM_FAIL=graph@1=700
refused 'hearth-cuda.so does not exist' HEARTH_PLUGINS="$work"
cp "$build/lib/libhearth.so" "$work/hearth-cuda.so"
refused 'another version of hearth' HEARTH_PLUGINS="$work"

echo "ok: the daemon takes a device with a reason, or refuses in one line"
