#!/usr/bin/env bash
# Builds and runs fuzz targets, without a TARGET all:
#     tests/fuzz/run.sh SECONDS [TARGET...]       # e.g. run.sh 600 fuzz_segment
#     tests/fuzz/run.sh coverage [TARGET...]      # lines of each parser that its corpus reaches
#     tests/fuzz/run.sh keep [TARGET...]          # the smallest inputs that reach as much become tests/fuzz/corpus/TARGET
# A run begins with tests/fuzz/corpus/TARGET and what earlier ones left in $BUILD/fuzz/corpus/TARGET, and adds to the latter.
# Findings are in $BUILD/fuzz/findings, and `$BUILD/fuzz/TARGET FILE` reproduces one.
# Prints a verdict for each target, and one for all. Exit 1 for a finding, 69 without clang.
set -u
cd "$(dirname "$0")/../.." || exit
BUILD=${BUILD:-build}

case ${1:-} in
coverage | keep) ;;
'' | *[!0-9]*)
    echo "usage: tests/fuzz/run.sh SECONDS|coverage|keep [TARGET...]" >&2
    exit 64
    ;;
esac
seconds=$1
shift

# Families of calls have targets of their own, made of the sources of these.
per_family='fuzz_chat fuzz_tools'
families() {
    sed -n 's/^    {\.name = "\([^"]*\)".*/\1/p' client/events/call_form.c
}
base() { # TARGET: whose source it is made of
    local target
    for target in $per_family; do
        case $1 in "$target"_*) echo "$target" && return ;; esac
    done
    echo "$1"
}

if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046
    set -- $(basename -s .c tests/fuzz/fuzz_*.c)
    for target in $per_family; do
        # shellcheck disable=SC2046
        set -- "$@" $(families | sed "s/^/${target}_/")
    done
fi

if ! command -v clang >/dev/null || ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n)
    { (void)d; (void)n; return 0; }' | clang -fsanitize=fuzzer -x c - -o /dev/null 2>/dev/null; then
    if ! tests/tools/deps.sh clang libclang-rt-dev liburing-dev; then
        echo "fuzz: nothing was run: clang with libFuzzer is missing"
        exit 69
    fi
fi

# Lengths worth trying: a segment's input is a list of operations.
options() {
    case $1 in
    fuzz_segment) echo -max_len=800 -len_control=0 ;;
    *) echo -max_len=4096 ;;
    esac
}

# The parser that a target is about.
parser() {
    case $(base "$1") in
    fuzz_config) echo daemon/config.c client/http/config.c ipc/options.c ;;
    fuzz_gguf) echo kernels/gguf/*.c kernels/model/model*.c ;;
    fuzz_grammar) echo daemon/grammar/*.c ;;
    fuzz_hello) echo ipc/hello.c ;;
    fuzz_http) echo client/http/{gen_params*,fields,talk,routes_model,routes_chat}.c client/prompt/*.c ;;
    fuzz_chat) echo client/events/*.c ;;
    fuzz_jinja) echo client/jinja/*.c ;;
    fuzz_params) echo ipc/params.c ;;
    fuzz_record) echo client/cli/{record,json_read}.c ;;
    fuzz_schema) echo client/schema/*.c ;;
    fuzz_segment) echo daemon/engine/ingest.c ipc/{ring,event,segment}.{c,h} ipc/segment_guard.c ;;
    fuzz_store) echo daemon/store/{format,files,index,slots}.c ;;
    fuzz_tools) echo client/prompt/chat_{grammar,calls,calls_gemma,calls_python}.c client/schema/*.c ;;
    fuzz_history) echo client/prompt/chat_{tidy,keep,adapt,turns,render}.c client/base/json_mend.c ;;
    fuzz_translate) echo client/http/{translate*,talk,gen_params,fields}.c ;;
    fuzz_vocab) echo ipc/vocab*.c client/tokenizer/*.c ;;
    esac
}

# Corpora of $BUILD and of the tree; of a family also the one that all have.
corpora() { # TARGET
    mkdir -p "$BUILD/fuzz/corpus/$1" "tests/fuzz/corpus/$1"
    echo "$BUILD/fuzz/corpus/$1" "tests/fuzz/corpus/$1"
    [ "$(base "$1")" = "$1" ] || echo "tests/fuzz/corpus/$(base "$1")"
}

coverage() { # TARGET: from programs of their own, in $BUILD/coverage
    local program=$BUILD/coverage/fuzz/$1 raw=$BUILD/coverage/$1.raw data=$BUILD/coverage/$1.data
    make --no-print-directory BUILD="$BUILD/coverage" FUZZ_COVERAGE='-fprofile-instr-generate -fcoverage-mapping' "$program" >/dev/null || return
    # shellcheck disable=SC2046
    LLVM_PROFILE_FILE=$raw "$program" -runs=0 $(corpora "$1") >/dev/null 2>&1 || return
    llvm-profdata merge -sparse "$raw" -o "$data" || return
    # shellcheck disable=SC2046
    llvm-cov report "$program" -instr-profile="$data" $(parser "$1") | awk -v target="$1" '
        $1 == "TOTAL" { printf "%s: %s of the functions, %s of the lines, %s of the branches\n", target, $7, $10, $13 }'
}

keep() { # TARGET: edges reached count, not how often
    local new
    new=$(mktemp -d)
    # shellcheck disable=SC2046
    "$BUILD/fuzz/$1" -merge=1 -use_counters=0 $(options "$1") "$new" $(corpora "$1") >/dev/null 2>&1 || return
    rm -rf "tests/fuzz/corpus/$1"
    mv "$new" "tests/fuzz/corpus/$1"
    chmod 755 "tests/fuzz/corpus/$1"
    echo "$1: $(find "tests/fuzz/corpus/$1" -type f | wc -l) inputs, $(cat "tests/fuzz/corpus/$1"/* | wc -c) bytes"
}

failed=()
for target in "$@"; do
    if [ "$seconds" = coverage ]; then
        coverage "$target" || { echo "$target: FAILED"; failed+=("$target"); }
        continue
    fi
    findings=$BUILD/fuzz/findings log=$BUILD/fuzz/$target.log
    mkdir -p "$findings"
    if ! make --no-print-directory BUILD="$BUILD" "$BUILD/fuzz/$target" >"$log" 2>&1; then
        tail -n 20 "$log"
        echo "$target: FAILED: it does not build (log in $log)"
        failed+=("$target")
        continue
    fi
    if [ "$seconds" = keep ]; then
        keep "$target" || { echo "$target: FAILED"; failed+=("$target"); }
        continue
    fi
    # shellcheck disable=SC2046
    "$BUILD/fuzz/$target" $(options "$target") -max_total_time="$seconds" -timeout=200 -print_final_stats=1 \
        -artifact_prefix="$findings/$target-" $(corpora "$target") >"$log" 2>&1 </dev/null
    rc=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    if [ "$rc" -eq 0 ]; then
        echo "$target: ok: $runs runs in $seconds s, $(find "$BUILD/fuzz/corpus/$target" -type f | wc -l) inputs kept, no finding"
    else
        grep -v '^#' "$log" | tail -n 30
        echo "$target: FAILED: see $log and $findings/$target-*"
        failed+=("$target")
    fi
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "fuzz: findings: ${failed[*]}"
    exit 1
fi
case $seconds in
coverage | keep) ;;
*) echo "ok: fuzzed $# targets for $seconds s each, no finding" ;;
esac
