#!/usr/bin/env bash
# Everything about the CUDA backend that needs an NVIDIA GPU: builds for this one, compares with the CPU bit by bit,
# looks for bad accesses, measures. Prints what it skipped and why, and a table last. Fits in eight minutes.
#
# Usage: tests/gpu/run.sh [RESULTS]   RESULTS: a folder for logs and the table (default: build/gpu/results)
# Needs the tree, a driver, gcc, g++, make and a CUDA toolkit; no network. tests/gpu/README.md says what to take along to
# a machine without liburing, jansson and check: without it the daemon is not tested there.
# Environment: SECONDS_LEFT (default 460; nothing begins or goes on behind it but the last line), MODELS (a folder with
# room for 20 GB, default /dev/shm or else /tmp), PROFILE (1: ncu on decoding and prefill, where it is found), OUT (a folder
# that gets, after each stage, the table as summary.txt and everything as results.tar.gz).
set -u
cd "$(dirname "$0")/../.." || exit
BUILD=build/gpu
RESULTS=${1:-$BUILD/results}
if [ -z "${MODELS:-}" ]; then # the 8 B model in BF16 has 16 GB
    MODELS=/dev/shm
    [ "$(df --output=avail -k $MODELS 2>/dev/null | tail -n 1)" -gt 20000000 ] 2>/dev/null || MODELS=${TMPDIR:-/tmp}
fi
DEADLINE=$((SECONDS + ${SECONDS_LEFT:-460}))
mkdir -p "$RESULTS"
table=$RESULTS/table.txt
: >"$table"
failed=0
export HEARTH_PLUGINS=$PWD/$BUILD/lib/hearth

say() { echo "$*" | tee -a "$table"; }
left() { echo $((DEADLINE - SECONDS)); }
# Runs COMMAND for at most LIMIT seconds, and never beyond the deadline; its output to LOG.
limited() { # LOG LIMIT COMMAND...
    local log=$1 limit=$2 rest; shift 2
    rest=$(left)
    [ "$rest" -gt 3 ] || return 125
    local cut=0 rc
    [ "$limit" -lt "$rest" ] || { limit=$rest; cut=1; }
    timeout -k 5 "$limit" "$@" >"$log" 2>&1
    rc=$?
    [ $rc -eq 124 ] && [ $cut -eq 1 ] && return 125 # stopped by the deadline, not by its own limit
    return $rc
}
# What there is so far, for whom the machine is taken from before the end.
keep() {
    [ -z "${OUT:-}" ] || { cp "$table" "$OUT/summary.txt" && tar -C "$RESULTS" -czf "$OUT/results.tar.gz" .; }
}
verdict() { # NAME CODE LOG
    case $2 in
    0) say "ok      $1: $(tail -n 1 "$3")" ;;
    125) say "skip    $1: no time left" ;;
    124) say "FAILED  $1: it did not end in time (see $3)"; failed=1 ;;
    *) say "FAILED  $1 (exit $2, see $3)"; tail -n 15 "$3"; failed=1 ;;
    esac
}

# ---- build -------------------------------------------------------------------------------------------------------------

for tool in gcc g++ make nvidia-smi; do
    command -v $tool >/dev/null || { echo "run.sh: $tool is missing"; exit 69; }
done
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "run.sh: nvcc is missing"; exit 69; }
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
[ -n "$arch" ] || { echo "run.sh: nvidia-smi names no GPU"; exit 69; }
say "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -n 1), sm_$arch, $("$nvcc" --version | grep -o 'release [0-9.]*'), $(nproc) cores"
say "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"

# The toolkit's own folders, whatever link nvcc was found by; the Makefile looks in include and lib64 beside it.
nvcc=$(readlink -f "$nvcc")
root=${nvcc%/bin/nvcc}
for folder in lib64 lib targets/x86_64-linux/lib; do
    [ ! -f "$root/$folder/libcublas.so" ] || export LD_LIBRARY_PATH="$root/$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    [ ! -f "$root/$folder/libcudart_static.a" ] || export LIBRARY_PATH="$root/$folder${LIBRARY_PATH:+:$LIBRARY_PATH}"
done
for folder in include targets/x86_64-linux/include; do
    [ ! -f "$root/$folder/cuda_runtime_api.h" ] || export CPATH="$root/$folder${CPATH:+:$CPATH}"
done

begin=$SECONDS
# Another compiler than the one that the code was written with may warn of something else.
make_=(make -j"$(nproc)" BUILD=$BUILD CUDA=1 WERROR= NVCC="$nvcc" CUDA_ARCHS="$arch")
limited "$RESULTS/build.log" 400 "${make_[@]}" $BUILD/lib/hearth/hearth-cuda.so $BUILD/tests/gpu/contract $BUILD/bin/hearth-bench \
    $BUILD/bin/hearth-mkmodel
code=$?
if [ $code -ne 0 ]; then
    tail -n 30 "$RESULTS/build.log"
    say "FAILED  build (exit $code)"
    keep
    exit 1
fi
say "ok      build in $((SECONDS - begin)) s"
keep

# ---- the same bits -----------------------------------------------------------------------------------------------------

limited "$RESULTS/contract.log" 150 $BUILD/tests/gpu/contract
verdict "contract" $? "$RESULTS/contract.log"

# compute-sanitizer on small tests: bad accesses, then races in shared memory.
sanitizer=$(command -v compute-sanitizer || echo "$(dirname "$nvcc")/compute-sanitizer")
if [ -x "$sanitizer" ]; then
    for tool in memcheck racecheck; do
        limited "$RESULTS/$tool.log" 40 "$sanitizer" --tool $tool --error-exitcode 9 \
            $BUILD/tests/gpu/contract a_pick a_key every_architecture native_numerics native_odd
        code=$?
        if grep -q "Device not supported" "$RESULTS/$tool.log"; then
            say "skip    compute-sanitizer $tool: it does not support this machine"
        elif [ $code -eq 124 ]; then
            say "skip    compute-sanitizer $tool: found nothing in the 40 s that it has, and did not end"
        else
            verdict "compute-sanitizer $tool" $code "$RESULTS/$tool.log"
        fi
    done
else
    say "skip    compute-sanitizer: not installed"
fi

# ---- the daemon --------------------------------------------------------------------------------------------------------

# PROGRAMS: a build folder with hearthd, hearth and the determinism suite; nothing where there is none.
PROGRAMS=
if printf '#include <liburing.h>\n#include <jansson.h>\n#include <check.h>\n' | gcc -E - >/dev/null 2>&1; then
    if limited "$RESULTS/build-hearthd.log" 120 "${make_[@]}" HTTP= $BUILD/bin/hearthd $BUILD/bin/hearth \
        $BUILD/tests/e2e/test_determinism; then
        PROGRAMS=$BUILD
    else
        say "FAILED  build of hearthd"; failed=1
    fi
elif build/portable/bin/hearthd --version >/dev/null 2>&1 && build/portable/bin/hearth --version >/dev/null 2>&1 &&
    ! ldd build/portable/tests/e2e/test_determinism 2>&1 | grep -qE 'not found|No such file'; then
    PROGRAMS=build/portable
else
    say "skip    hearthd: no headers of liburing, jansson and check, and no build/portable that runs here (make portable)"
fi

# The ids of one answer of a served model: DEVICE MODEL TOKENS
sockets=$(mktemp -d)
ids() {
    local socket=$sockets/$1
    rm -f "$socket"
    timeout -k 5 60 $PROGRAMS/bin/hearthd --device "$1" --model "$2" --socket "$socket" --slots 2 --context 1024 \
        >"$RESULTS/hearthd-$1.log" 2>&1 &
    local pid=$!
    for _ in $(seq 150); do [ -S "$socket" ] && break; kill -0 $pid 2>/dev/null || break; sleep 0.1; done
    timeout 30 $PROGRAMS/bin/hearth run --socket "$socket" --json --max-tokens "$3" "def main():" | tail -n 1 | grep -o '"ids":\[[^]]*\]'
    kill $pid 2>/dev/null
    wait $pid 2>/dev/null
}
if [ -n "$PROGRAMS" ] && [ "$(left)" -lt 60 ]; then
    say "skip    hearthd: no time left"
elif [ -n "$PROGRAMS" ]; then
    $BUILD/bin/hearth-mkmodel --from daemon/models/hearth-code-5m-f16.gguf --type Q8_0 "$RESULTS/code.gguf" >/dev/null 2>&1
    for model in daemon/models/hearth-code-5m-f16.gguf "$RESULTS/code.gguf"; do
        cpu=$(ids cpu "$model" 200) cuda=$(ids cuda "$model" 200)
        if [ -n "$cpu" ] && [ "$cpu" = "$cuda" ]; then
            say "ok      hearthd: 200 tokens of $(basename "$model") are the CPU's"
        else
            say "FAILED  hearthd: $(basename "$model"), $([ -n "$cuda" ] && echo "other tokens than the CPU's" ||
                echo "no answer within 30 s")"; failed=1
        fi
    done
    rm -f "$RESULTS/code.gguf"
    # One answer a request, whoever else asks, whatever is cached, after a kill; some of the daemons are the CPU's.
    for type in Q8_0 BF16; do
        limited "$RESULTS/determinism-$type.log" 60 env BUILD=$PROGRAMS HEARTH_DETERMINISM_DEVICE=cuda \
            HEARTH_DETERMINISM_TYPE=$type $PROGRAMS/tests/e2e/test_determinism
        code=$?
        grep '^ok' "$RESULTS/determinism-$type.log" | tail -n 1 >>"$RESULTS/determinism-$type.log"
        verdict "determinism $type" $code "$RESULTS/determinism-$type.log"
    done
fi
rm -rf "$sockets"
keep

# ---- how fast ----------------------------------------------------------------------------------------------------------

# One line of the table from a bench's JSON: NAME LOG
field() { grep "\"what\":\"$2\"" "$3" | grep "${4:-.}" | grep -o "\"$1\":[0-9.]*" | head -n 1 | cut -d: -f2; }
bench() { # NAME MODEL LIMIT ARGUMENTS...
    local name=$1 model=$2 limit=$3 log; shift 3
    log=$RESULTS/bench-$(echo "$name" | tr ' /' '--').json
    limited "$log" "$limit" $BUILD/bin/hearth-bench --device cuda --json --model "$model" -r 3 "$@"
    local rc=$?
    if [ $rc -ne 0 ]; then
        verdict "bench $name" $rc "$log"
        return
    fi
    local slots tok rows over
    slots=$(field slots decode "$log") tok=$(field tok_s decode "$log")
    printf '%-28s step %8.3f ms  %9.1f tok/s  %5.1f %% of %6.0f GB/s  start %5.1f us  prefill %9.1f tok/s  first %8.1f ms\n' "$name" \
        "$(awk "BEGIN { print 1000 * $slots / $tok }")" "$tok" "$(awk "BEGIN { print 100 * $(field bandwidth_share decode "$log") }")" \
        "$(field read_gb_s decode "$log")" "$(field start_us start "$log")" "$(field tok_s prefill "$log")" \
        "$(field first_token_ms prefill "$log")" | tee -a "$table"
    for rows in 16 64; do
        over=$(field over_one window "$log" "\"rows\":$rows,")
        [ -z "$over" ] || say "$(printf '%-28s %8.3f ms, %.2f x one row' "  window of $rows" "$(field pass_ms window "$log" "\"rows\":$rows,")" "$over")"
    done
}
# What the kernels of a decoding step (in a graph) and of a prefill were bound by, as ncu counts it: to the results alone.
profile() { # NAME MODEL
    local ncu what
    [ "${PROFILE:-0}" = 1 ] || return
    ncu=$(command -v ncu || echo "$root/bin/ncu")
    [ -x "$ncu" ] || { say "skip    profile of $1: no ncu"; return; }
    for what in "decode -p 1024 -n 4 --rows 1024" "prefill -p 2048 -n 1 --rows 1024"; do
        # shellcheck disable=SC2086 # words are arguments
        HEARTH_CUDA_STEPS=0 limited "$RESULTS/ncu-$(echo "$1" | tr ' /' '--')-${what%% *}.log" 45 "$ncu" --clock-control none --launch-skip 600 \
            --launch-count 24 --section SpeedOfLight --section MemoryWorkloadAnalysis --section LaunchStats --section Occupancy \
            $BUILD/bin/hearth-bench --device cuda --json --model "$2" -r 1 ${what#* }
        say "        profile of $1, ${what%% *}: exit $?"
    done
}

for shape in llama-3.2-1b llama-3.1-8b; do
    for type in Q4_0 BF16; do
        [ "$(left)" -gt 20 ] || { say "skip    $shape $type: no time left"; continue; }
        model=$MODELS/hearth-gpu-$$.gguf
        if ! limited "$RESULTS/mkmodel.log" 60 $BUILD/bin/hearth-mkmodel --shape $shape --type $type "$model"; then
            say "skip    $shape $type: the model could not be written ($(tail -n 1 "$RESULTS/mkmodel.log"))"
            rm -f "$model" "$model.part"
            continue
        fi
        bench "$shape $type 1" "$model" 40 -p 1024 -n 64 --windows
        bench "$shape $type 4" "$model" 30 -p 1024 -n 32 -b 4
        bench "$shape $type 16" "$model" 40 -p 1024 -n 16 -b 16 -r 1
        # The same steps on graphs (kernels/cuda/README.md, "How a pass runs"): which is faster, a kernel or a graph?
        HEARTH_CUDA_STEPS=0 bench "$shape $type 1 graph" "$model" 20 -p 1024 -n 64
        HEARTH_CUDA_STEPS=0 bench "$shape $type 4 graph" "$model" 20 -p 1024 -n 32 -b 4 -r 1
        HEARTH_CUDA_STEPS=0 bench "$shape $type 16 graph" "$model" 30 -p 1024 -n 16 -b 16 -r 1
        bench "$shape $type p512" "$model" 20 -p 512 -n 4 --rows 512
        bench "$shape $type p2048" "$model" 30 -p 2048 -n 4 --rows 2048
        bench "$shape $type native" "$model" 30 -p 2048 -n 16 --rows 2048 --numerics native
        # A draft model of the smaller shape reads prompts by cuBLAS, or by own kernels: the note in the log says which it was.
        [ "$shape $type" != "llama-3.2-1b BF16" ] || for rows in 64 512 2048; do
            bench "$shape $type draft p$rows" "$model" 25 -p $rows -n 4 --rows $rows --drafts
            HEARTH_CUBLAS=0 bench "$shape $type draft own p$rows" "$model" 25 -p $rows -n 4 --rows $rows --drafts
        done
        profile "$shape $type" "$model"
        rm -f "$model"
        keep
    done
done

echo
cat "$table"
keep
exit $failed
