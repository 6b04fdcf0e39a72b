#!/usr/bin/env bash
# Which device the daemon takes, on the simulator: by choice with a reason, by name or not at all, and what stands in the
# way in one line each. Sampled and drafted answers are the CPU's as well (greedy ones: test_cuda.c).
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
sim=$PWD/$build/tests/cudasim
[ -f "$sim/hearth-cuda.so" ] || { echo "skip: no simulator (g++), the daemon is not tried on CUDA"; exit 0; }
case $build in *asan | *tsan) echo "skip: sanitizers do not follow the simulator's threads"; exit 0 ;; esac
bin=$PWD/$build/bin
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$work"' EXIT
export HEARTH_PLUGINS=$sim

die() { echo "$*"; for log in "$work"/*.log; do [ ! -f "$log" ] || tail -n 5 "$log"; done; exit 1; }
serve() { # DEVICE MODEL
    rm -f "$work/s"
    "$bin/hearthd" --device "$1" --model "$2" --socket "$work/s" --slots 2 --context 256 >"$work/hearthd.log" 2>&1 &
    pid=$!
    for _ in $(seq 200); do [ -S "$work/s" ] && return; sleep 0.05; done
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
        answer "$3" --max-tokens 24 >"$work/$device"
        answer "$3" --max-tokens 12 --temperature 0.8 --seed 3 --top-p 0.9 >>"$work/$device"
        answer "$3" --max-tokens 24 --proposer lookup >>"$work/$device"
        stop
    done
    grep -q '"ids":\[[0-9]' "$work/cpu" || die "$1: no answer"
    cmp -s "$work/cpu" "$work/cuda" || die "$1: other tokens than the CPU's"
}

code=daemon/models/hearth-code-5m-f16.gguf
"$bin/hearth-mkmodel" --from $code --type Q4_0 "$work/q4_0.gguf" >/dev/null
same "the bundled model in Q4_0" "$work/q4_0.gguf" "def main():"

# By choice: a GPU where there is one, else the CPU, and the log says which and why.
check() { "$bin/hearthd" --check --model $code "$@" 2>&1; }
said() { # PATTERN TEXT
    grep -qE "$1" <<<"$2" || die "not said: $1, but: $2"
    [ "$(grep -c '^hearthd:' <<<"$2")" -le 1 ] || die "more than a line: $2"
}
said 'on cuda \(sm_90' "$(check --device auto)"
said 'on cpu ' "$(HEARTH_CUDASIM_DEVICES=0 check --device auto)"
said 'on cpu ' "$(HEARTH_CUDASIM_MEMORY=4194304 check --device auto)"
said 'on cpu ' "$(check --device auto --isa ref)"

# By name: one line, exit 71, never the CPU.
refused() { # PATTERN ENVIRONMENT...
    local pattern=$1 text code_; shift
    text=$(env "$@" "$bin/hearthd" --check --device cuda --model $code 2>&1) && die "accepted: $text"
    code_=$?
    [ $code_ -eq 71 ] || die "exit $code_ for: $text"
    said "$pattern" "$text"
}
refused 'no (NVIDIA driver|GPU)|sees no GPU' HEARTH_CUDASIM_DEVICES=0
refused 'compute capability 7.5: hearth needs 8.0' HEARTH_CUDASIM_ARCH=75
refused 'MiB free, [0-9]+ are needed .* lower kv-bytes' HEARTH_CUDASIM_MEMORY=4194304
refused 'there is no .*hearth-cuda.so' HEARTH_PLUGINS="$work"
cp "$build/lib/libhearth.so" "$work/hearth-cuda.so"
refused 'another version of hearth' HEARTH_PLUGINS="$work"

echo "ok: the daemon takes a device for a reason, or says in one line why not"
