#!/usr/bin/env bash
# Everything about the CUDA backend that needs an NVIDIA GPU: builds for this one, compares with the CPU bit by bit,
# looks for bad accesses, measures. Fits in eight minutes. The last thing it prints, even after failures, is the table: what is
# passed, what failed and why, what was skipped and why, rates. Exit 0, 1 where something failed, 69 where nothing can begin.
#
# Usage: tests/gpu/run.sh [RESULTS]   RESULTS: a folder for the table and the bench's lines (default:
#        tests/gpu/results/DATE-TIME-DEVICE); logs are in build/gpu/logs.
# Needs the tree, a driver, gcc, g++, make and a CUDA toolkit; no network. What is missing or cannot be built is taken from
# build/portable, where that is (`make portable` elsewhere; tests/gpu/README.md).
# Environment:
#   SECONDS_LEFT  default 460: when it is over nothing runs but the table
#   STAGES        default "build contract checks bench": those alone, on what an earlier run has built
#   OUT           a folder that gets, after each stage, the table as summary.txt and results and logs as results.tar.gz
#   MODELS        a folder with room for 42 GB (default: /dev/shm or /tmp, whichever has it)
#   PROFILE=1     ncu on decoding and prefill of some models, last
#   REHEARSAL=1   small models in a small bench: tests/e2e/gpu_run.sh, with no GPU
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit
build=build/gpu
logs=$build/logs
table=$logs/table
deadline=$((SECONDS + ${SECONDS_LEFT:-460}))
cores=$(nproc)
answer=200 # tokens
lanes=$((cores < 8 ? cores : 8))
stages=${STAGES:-build contract checks bench}
# Check's default of 4 s suits an idle machine.
export CK_DEFAULT_TIMEOUT=120
rm -rf "$logs"
mkdir -p "$logs" || exit 69
ulimit -c 0
: >"$table"
. tests/gpu/stages.sh

die() { echo "run.sh: $*"; exit 69; }
find_program() { # NAME FOLDER...: where it is, on the PATH or in a folder
    local name=$1 folder; shift
    command -v "$name" && return
    for folder in "$@"; do [ ! -x "$folder/$name" ] || { echo "$folder/$name"; return; }; done
}

smi=$(find_program nvidia-smi /usr/local/nvidia/bin /usr/bin /usr/lib/wsl/lib)
[ -n "$smi" ] || die "nvidia-smi is missing: no driver"
timeout -k 3 30 "$smi" --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader >"$logs/nvidia-smi.log" 2>&1
IFS=, read -r name driver memory capability < <(head -n 1 "$logs/nvidia-smi.log")
arch=$(tr -cd 0-9 <<<"${capability:-}")
[ -n "$arch" ] || die "nvidia-smi names no GPU: $(head -n 1 "$logs/nvidia-smi.log")"
results=${1:-tests/gpu/results/$(date +%Y-%m-%d-%H%M)-$(tr 'A-Z ' 'a-z-' <<<"$name" | tr -cd 'a-z0-9-')}
mkdir -p "$results" || die "$results cannot be made"

models=$(mktemp -d "${MODELS:-/tmp}/hearth-gpu-XXXXXX") || die "no folder for models can be made"
if [ -z "${MODELS:-}" ] && [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -gt 45000000 ] 2>/dev/null &&
    [ "$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)" -gt 75000000 ]; then
    rmdir "$models"
    models=$(mktemp -d /dev/shm/hearth-gpu-XXXXXX)
fi

finish() {
    local code=$?
    trap - EXIT
    kill_child
    kill $(jobs -p) 2>/dev/null
    rm -rf "$models"
    [ $code -eq 0 ] || [ $failed -ne 0 ] || say "FAILED  run.sh: it was ended (exit $code)"
    say "        $SECONDS s in all"
    keep
    printf '\n%s\n' "---- $results/table.txt"
    cat "$table"
    [ $code -ne 0 ] || code=$failed
    exit $code
}
trap finish EXIT
trap 'exit 143' TERM HUP
trap 'exit 130' INT

say "$name,$driver,$memory, sm_$arch, $cores cores, $(uname -r), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), sources $(tests/gpu/sources.sh | cut -c 1-12)"

# ---- build -------------------------------------------------------------------------------------------------------------

# The toolkit's own folders, also when nvcc was found through a link; the Makefile searches include and lib64 beside it.
nvcc=$(find_program nvcc /usr/local/cuda/bin /opt/cuda/bin)
[ -z "$nvcc" ] || nvcc=$(readlink -f "$nvcc")
root=${nvcc%/bin/nvcc}
for folder in lib64 lib targets/x86_64-linux/lib; do
    [ ! -e "$root/$folder/libcudart_static.a" ] || export LIBRARY_PATH="$root/$folder${LIBRARY_PATH:+:$LIBRARY_PATH}"
done
for folder in include targets/x86_64-linux/include; do
    [ ! -e "$root/$folder/cuda_runtime_api.h" ] || export CPATH="$root/$folder${CPATH:+:$CPATH}"
done
# cuBLAS: of the toolkit, or of Python's packages.
for cublas in "$root"/{lib64,lib,targets/x86_64-linux/lib} $(python3 -c 'import sys; print(*(p + "/nvidia/" + f + "/lib"
for p in sys.path if p for f in ("cu13", "cublas")))' 2>/dev/null); do
    [ ! -e "$cublas/libcublas.so.13" ] || { export LD_LIBRARY_PATH="$cublas${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"; break; }
done

portable=build/portable
stage_build() {
    local begin=$SECONDS tool code missing=
    for tool in gcc g++ make; do command -v $tool >/dev/null || missing="$missing $tool"; done
    [ -n "$nvcc" ] || missing="$missing nvcc"
    echo '#include <xxhash.h>' | gcc -E - >/dev/null 2>&1 || missing="$missing xxhash.h"
    [ -z "$missing" ] || { say "skip    build: missing:$missing"; return; }
    # Another compiler may have other warnings. -k: build as much as possible.
    local make_=(make -k -j"$cores" BUILD=$build CUDA=1 WERROR= NVCC="$nvcc" CUDA_ARCHS="$arch" HTTP=)
    limited "$logs/build.log" 240 "${make_[@]}" $build/lib/hearth/hearth-cuda.so $build/tests/gpu/contract \
        $build/bin/hearth-bench $build/bin/hearth-mkmodel
    code=$?
    [ $code -ne 0 ] || echo "$((SECONDS - begin)) s, $("$nvcc" --version | grep -o 'release [0-9.]*'), gcc $(gcc -dumpfullversion)" >>"$logs/build.log"
    verdict build $code "$logs/build.log"
    if printf '#include <liburing.h>\n#include <jansson.h>\n#include <check.h>\n' | gcc -E - >/dev/null 2>&1; then
        limited "$logs/build-hearthd.log" 120 "${make_[@]}" $build/bin/hearthd $build/bin/hearth $build/tests/e2e/test_determinism
        code=$?
        [ $code -eq 0 ] || verdict "build of hearthd" $code "$logs/build-hearthd.log"
    else
        say "skip    build of hearthd: the headers of liburing, jansson or check are missing"
    fi
}

# Sets $1 to a file of this build, or else of build/portable; says so where it is neither.
choose() { # VARIABLE FILE
    local -n chosen=$1
    chosen=
    if [ -x "$build/$2" ]; then
        chosen=$build/$2
    elif [ -x "$portable/$2" ]; then
        chosen=$portable/$2
        say "        $2 is that of build/portable$([ "$(tests/gpu/sources.sh)" = "$(cat $portable/sources 2>/dev/null)" ] ||
            echo ", OF OTHER SOURCES than these")"
    fi
}

# ---- the same bits -----------------------------------------------------------------------------------------------------

# Each test in its own process: a kernel that fails or hangs takes its process down.
stage_contract() {
    local deadline=$((deadline < SECONDS + 150 ? deadline : SECONDS + 150))
    local test job n=0 ok=0 skipped=0 unrun=0 bad=0 said=8
    names=()
    while read -r test; do
        job "contract-$test" 60 "$contract" "$test"
        case $test in # a tiny model fills the large blocks of three processors
        many_rows_* | native_rows_*) job "contract-large-$test" 60 env HEARTH_CUDA_PROCESSORS=3 "$contract" "$test" ;;
        esac
    done < <(timeout 10 "$contract" --list)
    jobs_end
    for job in "${names[@]}"; do
        n=$((n + 1))
        case $(code_of "$job") in
        0)
            ok=$((ok + 1))
            ! grep -qs '^skip' "$logs/$job.log" || skipped=$((skipped + 1)) ;;
        125) unrun=$((unrun + 1)) ;;
        *) # the first few suffice
            bad=$((bad + 1)) failed=1
            [ $bad -gt $said ] || verdict "$job" "$(code_of "$job")" "$logs/$job.log" ;;
        esac
    done
    [ $bad -le $said ] || say "FAILED  contract: $((bad - said)) more tests (see $logs)"
    [ $n -gt 0 ] || { say "FAILED  contract: it lists no tests"; failed=1; }
    [ $unrun -eq 0 ] || say "skip    contract: no time left for $unrun of $n tests"
    say "$([ $ok -eq $n ] && echo "ok     " || echo "       ") contract: $ok of $n tests pass$([ $skipped -eq 0 ] || echo ", $skipped skipped: a GPU cannot do them")"
}

# ---- bad accesses, the daemon ------------------------------------------------------------------------------------------

sanitize() { # compute-sanitizer on small tests: bad accesses, races in shared memory
    local tool test
    # Tests of one instance, or few: each takes the tools long. racecheck remembers every access to shared memory, of
    # every_number more than 120 GB, and odd_shapes does not end in its time. hearth checks the results of its own calls.
    for test in memcheck-a_row_samples memcheck-every_number racecheck-a_row_samples; do
        tool=${test%%-*}
        [ "$tool" != memcheck ] || tool="memcheck --report-api-errors no"
        # shellcheck disable=SC2086 # words are arguments
        job "$test" 55 "$sanitizer" --error-exitcode 9 --tool $tool "$contract" "${test#*-}"
    done
}
say_of_sanitizer() { # JOB
    local log=$logs/$1.log
    if grep -qs 'Device not supported' "$log"; then
        say "skip    $1: it does not support this machine"
    elif [ "$(code_of "$1")" -eq 124 ] && ! grep -qE '========= .*(Invalid|[Hh]azard|[Ee]rror:)' "$log"; then
        say "skip    $1: found nothing in the time that it has, and did not end"
    else
        verdict "$1" "$(code_of "$1")" "$log"
    fi
}

# Complete programs: hearthd, hearth and the determinism suite, with their libraries.
choose_programs() {
    local folder
    for folder in $build $portable; do
        if "$folder/bin/hearthd" --version >/dev/null 2>&1 && "$folder/bin/hearth" --version >/dev/null 2>&1 &&
            ! ldd "$folder/tests/e2e/test_determinism" 2>&1 | grep -E 'not found|No such file' >/dev/null; then
            programs=$folder
            return
        fi
    done
    say "skip    hearthd: not built here, and no build/portable that runs here (make portable)"
}

stage_checks() {
    local type model job sanitizer programs=
    names=()
    choose_programs
    if [ -n "$programs" ]; then
        # One answer per request with any other clients, any cache contents, after a kill; some daemons run on the CPU.
        for type in Q8_0 BF16; do
            # Every fourth request, since each configuration starts a daemon that tests the GPU first.
            job "determinism-$type" 110 env BUILD=$programs HEARTH_DETERMINISM_DEVICE=cuda HEARTH_DETERMINISM_TYPE=$type HEARTH_DETERMINISM_EVERY=4 \
                $programs/tests/e2e/test_determinism
        done
        [ -z "$mkmodel" ] || "$mkmodel" --from daemon/models/hearth-code-5m-f16.gguf --type Q8_0 "$models/code-q8_0.gguf" >/dev/null 2>&1
        for model in daemon/models/hearth-code-5m-f16.gguf "$models/code-q8_0.gguf"; do
            job "daemon-$(basename "$model" .gguf)" 90 tests/gpu/answers.sh $programs "$model" $answer
        done
    fi
    sanitizer=$(find_program compute-sanitizer "$root/bin" "$root/compute-sanitizer" /usr/local/cuda/bin)
    if [ -z "$sanitizer" ]; then
        say "skip    compute-sanitizer: not installed"
    elif [ -n "$contract" ]; then
        sanitize
    fi
    jobs_end
    for job in "${names[@]}"; do
        case $job in
        memcheck-* | racecheck-*) say_of_sanitizer "$job" ;;
        determinism-*) # its own verdict, not Check's summary
            grep '^ok' "$logs/$job.log" 2>/dev/null | tail -n 1 >>"$logs/$job.log"
            verdict "$job" "$(code_of "$job")" "$logs/$job.log" ;;
        *) verdict "$job" "$(code_of "$job")" "$logs/$job.log" ;;
        esac
    done
}

# ---- how fast ----------------------------------------------------------------------------------------------------------

# SHAPE@LAYERS: so many layers alone, as experts take long to write.
shapes="llama-3.2-1b:Q4_0 llama-3.1-8b:Q4_0 llama-3.2-1b:BF16 gpt-oss-20b@8:MXFP4_MOE qwen35-4b:Q4_0 gemma-3-1b:Q4_0 llama-3.1-8b:BF16"
context=1024 tokens=32 slots=16
# Of this one about half of the experts are on the CPU.
cut=gpt-oss-20b@8:MXFP4_MOE cut_bytes=3500000000
[ -z "${REHEARSAL:-}" ] || { shapes="tiny:Q4_0 tiny:BF16" context=8 tokens=2 slots=4 answer=2 cut=tiny:Q4_0; }

# Beside the tests, so that the bench need not wait: random weights, one model after the other.
write_models() {
    local of shape layers code
    for of in $shapes; do
        shape=${of%:*} layers=0
        [[ $shape != *@* ]] || layers=${shape#*@}
        limited "$logs/mkmodel-$of.log" 200 nice "$mkmodel" --shape "${shape%@*}" --layers "$layers" --type "${of#*:}" "$models/$of.gguf"
        code=$?
        [ $code -ne 0 ] || continue
        rm -f "$models/$of.gguf" "$models/$of.gguf.part"
        [ $code -eq 125 ] || : >"$models/$of.failed"
    done
}
written() { # SHAPE:TYPE: waits until it is
    until [ -f "$models/$1.gguf" ]; do
        [ ! -f "$models/$1.failed" ] || { say "skip    $1: it could not be written: $(tail -n 1 "$logs/mkmodel-$1.log")"; return 1; }
        [ "$(left)" -gt 5 ] || { unrun="$unrun, all of $1"; return 1; }
        sleep 0.1
    done
}

bench() { # NAME SHAPE:TYPE LIMIT ARGUMENTS...
    local name="$2${1:+ $1}" model=$models/$2.gguf limit=$3 log; shift 3
    log=$logs/bench-${name//[ :@]/-}.jsonl
    limited "$log" "$limit" "$bench" --device cuda --json --model "$model" "$@"
    local code=$?
    grep '^{' "$log" 2>/dev/null | sed "s/^{/{\"run\":\"$name\",/" >>"$logs/bench.jsonl"
    # Even when the bench did not finish: it prints each line as soon as it is known.
    ! grep -qs '"what":"decode"' "$log" || say "$(awk -v name="$name" -f tests/gpu/line.awk "$log")"
    case $code in
    0) ;;
    125) unrun="$unrun, $name" ;;
    *) verdict "$name" $code "$log" ;;
    esac
}

# The most informative first; each round covers all models.
stage_bench() {
    local of rows unrun='' usual="-p $context -n $tokens --rows $context -r 3" long=$((2 * context))
    local -a ready=()
    for of in $shapes; do
        written "$of" || continue
        ready+=("$of")
        # shellcheck disable=SC2086 # words are arguments
        bench "" "$of" 75 $usual -b $slots --batches --windows
    done
    keep
    for of in "${ready[@]}"; do
        bench "native" "$of" 40 -p $long -n $((tokens / 2)) --rows $long -r 3 --numerics native
    done
    for of in "${ready[@]}"; do
        [ "$of" != $cut ] || bench "half on CPU" "$of" 40 -p $context -n $((tokens / 2)) --rows $context -r 1 --gpu-bytes $cut_bytes
    done
    for rows in $((context / 2)) $long; do
        for of in "${ready[@]}"; do
            [[ $of = *8b:BF16 ]] || bench "p$rows" "$of" 30 -p "$rows" -n 4 --rows "$rows" -r 3
        done
    done
    keep
    # A draft model of the smaller shape reads prompts by cuBLAS, or by hearth's own kernels: the note in the log says which.
    for of in "${ready[@]}"; do
        [[ $of = *1b:BF16 ]] || continue
        for rows in 64 512 2048; do
            bench "draft p$rows" "$of" 25 -p $rows -n 4 --rows $rows -r 3 --drafts
            HEARTH_CUBLAS=0 bench "draft own p$rows" "$of" 25 -p $rows -n 4 --rows $rows -r 3 --drafts
        done
    done
    [ -z "$unrun" ] || say "skip    no time left for${unrun#,}"
    [ "${PROFILE:-0}" != 1 ] || for of in "${ready[@]}"; do [[ $of = gemma* ]] || profile "$of"; done
}

# What limits the kernels of a decoding step (in a graph) and of a prefill, by ncu: only in the logs.
profile() { # SHAPE:TYPE
    local ncu what
    ncu=$(find_program ncu "$root/bin" /usr/local/cuda/bin)
    [ -n "$ncu" ] || { say "skip    profile of $1: no ncu"; return; }
    for what in "decode -p 1024 -n 4 --rows 1024" "prefill -p 2048 -n 1 --rows 1024"; do
        # shellcheck disable=SC2086
        limited "$logs/ncu-$1-${what%% *}.log" 45 "$ncu" --clock-control none --launch-skip 600 \
            --launch-count 24 --section SpeedOfLight --section MemoryWorkloadAnalysis --section LaunchStats --section Occupancy \
            "$bench" --device cuda --json --model "$models/$1.gguf" -r 1 ${what#* }
        say "        profile of $1, ${what%% *}: exit $?"
    done
}

# ---- all ---------------------------------------------------------------------------------------------------------------

[[ " $stages " != *" build "* ]] || { stage_build; keep; }
choose plugin lib/hearth/hearth-cuda.so
choose contract tests/gpu/contract
choose bench bin/hearth-bench
choose mkmodel bin/hearth-mkmodel
export HEARTH_PLUGINS="$PWD/$(dirname "${plugin:-$build/lib/hearth/none}")"
[ -n "$plugin" ] || { say "FAILED  there is no hearth-cuda.so: nothing can run"; failed=1; exit 1; }

if [[ " $stages " == *" bench "* ]] && [ -n "$bench" ] && [ -n "$mkmodel" ]; then
    (trap 'kill_child; exit 143' TERM; write_models) &
fi
if [[ " $stages " == *" contract "* ]]; then
    if [ -n "$contract" ]; then stage_contract; else say "skip    contract: it could not be built"; fi
    keep
fi
[[ " $stages " != *" checks "* ]] || { stage_checks; keep; }
if [[ " $stages " == *" bench "* ]]; then
    if [ -n "$bench" ] && [ -n "$mkmodel" ]; then stage_bench; else say "skip    bench: it could not be built"; fi
fi
exit 0
