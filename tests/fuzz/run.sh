#!/usr/bin/env bash
# Builds and runs fuzz targets: tests/fuzz/run.sh SECONDS [TARGET...], e.g. `run.sh 600 fuzz_segment`;
# without a target, all. The corpus stays in $BUILD/fuzz/corpus/TARGET for the next run;
# findings are in $BUILD/fuzz/findings, and `$BUILD/fuzz/TARGET FILE` reproduces one.
# Prints a verdict for each target, and one for all. Exit 1 for a finding, 69 without clang.
set -u
cd "$(dirname "$0")/../.." || exit
BUILD=${BUILD:-build}

case ${1:-} in
'' | *[!0-9]*)
    echo "usage: tests/fuzz/run.sh SECONDS [TARGET...]" >&2
    exit 64
    ;;
esac
seconds=$1
shift
[ $# -gt 0 ] || set -- $(basename -s .c tests/fuzz/fuzz_*.c)

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

failed=()
for target in "$@"; do
    corpus=$BUILD/fuzz/corpus/$target findings=$BUILD/fuzz/findings log=$BUILD/fuzz/$target.log
    mkdir -p "$corpus" "$findings"
    if ! make --no-print-directory BUILD="$BUILD" "$BUILD/fuzz/$target" >"$log" 2>&1; then
        tail -n 20 "$log"
        echo "$target: FAILED: it does not build (log in $log)"
        failed+=("$target")
        continue
    fi
    # shellcheck disable=SC2046
    "$BUILD/fuzz/$target" $(options "$target") -max_total_time="$seconds" -timeout=20 -print_final_stats=1 \
        -artifact_prefix="$findings/$target-" "$corpus" >"$log" 2>&1 </dev/null
    rc=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    if [ "$rc" -eq 0 ]; then
        echo "$target: ok: $runs runs in $seconds s, $(find "$corpus" -type f | wc -l) inputs kept, no finding"
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
echo "ok: fuzzed $# targets for $seconds s each, no finding"
