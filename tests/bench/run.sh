#!/usr/bin/env bash
# All benches, one JSON object per line on stdout and in $BUILD/bench/bench.jsonl, tables and plots of it last.
# Ratios count, not absolute times: every row has a floor measured in the same run.
# Environment: BUILD; HEARTH_TESTDATA (adds stories260K); BENCH_MODELS (files to measure instead);
# BENCH_LOAD (the file whose load is measured; else one of 1.3 GB is made and kept in $BUILD/bench/models);
# HEARTH_BENCH_SHADOW (an F16 model of real size, for the shadow proposer's row); BENCH_SHAPES,
# BENCH_TYPES (kernels.sh).
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
out=$build/bench/bench.jsonl
mkdir -p "$build/bench"
models=${BENCH_MODELS:-daemon/models/hearth-code-5m-f16.gguf}
if [ -z "${BENCH_MODELS:-}" ] && [ -n "${HEARTH_TESTDATA:-}" ]; then
    models="$HEARTH_TESTDATA/models/stories260K-f32.gguf $models"
fi
noop=$build/tests/bench/noop
echo 'int main(void) { return 0; }' | ${CC:-gcc} -O2 -static -x c - -o "$noop"

loaded=${BENCH_LOAD:-$build/bench/models/llama-3.2-1b-Q8_0.gguf}
if [ ! -e "$loaded" ]; then
    mkdir -p "$build/bench/models"
    "$build/bin/hearth-mkmodel" --arch llama --shape llama-3.2-1b --type Q8_0 --seed 1 "$loaded"
fi

echo "hearth: measuring (about six minutes); load now: $(cut -d' ' -f1-3 /proc/loadavg)" >&2
# shellcheck disable=SC2086
{
    "$build/tests/bench/bench_ipc"
    "$build/tests/bench/bench_chat"
    "$build/tests/bench/bench_daemon" "$build/bin" "$noop" $models
    "$build/tests/bench/bench_speculation" "$build/bin" daemon/models/training/corpus.py $models
    "$build/tests/bench/bench_warm" "$build/bin" $models
    if [ -n "${HEARTH_TESTDATA:-}" ]; then
        "$build/tests/bench/bench_grammar" "$HEARTH_TESTDATA/tokenizers/ggml-vocab-qwen2.gguf"
    fi
    "$build/tests/bench/bench_http" "$build/bin" $models
    for model in $models; do "$build/bin/hearth-bench" --json --model "$model" -p 16 -n 128 -t 1; done
    "$build/tests/bench/bench_load" "$build/bin" "$loaded"
    tests/bench/kernels.sh
} | tee "$out"

percent() { [ -z "$1" ] || awk "BEGIN { printf \"%.1f\", 100 * $1 }"; }
field() { sed -n "s/.*\"$1\":\"\\{0,1\\}\\([^,\"}]*\\).*/\\1/p" <<<"$2"; }
echo
printf '%-34s %8s %9s %9s %9s %9s %8s\n' 'latency, us' clients floor p50 p99 'target p50' met
while read -r line; do
    [ -n "$(field p50_us "$line")" ] || continue
    printf '%-34s %8s %9s %9s %9s %9s %8s\n' "$(field what "$line")" "$(field clients "$line")" "$(field floor_us "$line")" \
        "$(field p50_us "$line")" "$(field p99_us "$line")" "$(field target_p50_us "$line")" "$(field met "$line")"
done <"$out"
echo
printf '%-34s %-24s %8s %6s %7s %10s %6s\n' throughput model threads slots prompt 'tokens/s' 'read %'
while read -r line; do
    [ -n "$(field tok_s "$line")" ] || continue
    printf '%-34s %-24s %8s %6s %7s %10s %6s\n' "$(field bench "$line"): $(field what "$line")" "$(field model "$line")" \
        "$(field threads "$line")" "$(field slots "$line")" "$(field prompt "$line")" "$(field tok_s "$line")" \
        "$(percent "$(field bandwidth_share "$line")")"
done <"$out"
echo
printf '%-38s %-24s %8s %9s %6s  %s\n' 'ratios and counts' model value target met note
while read -r line; do
    [ -n "$(field ratio "$line")$(field skipped "$line")" ] || continue
    printf '%-38s %-24s %8s %9s %6s  %s\n' "$(field bench "$line"): $(field what "$line")" "$(field model "$line")" \
        "$(field ratio "$line")" "$(field target "$line")" "$(field met "$line")" \
        "$(sed -n 's/.*"\(note\|skipped\)":"\([^"]*\)".*/\2/p' <<<"$line")"
done <"$out"
echo
printf '%-34s %8s %10s\n' 'a pass of several rows over one' rows ratio
while read -r line; do
    [ -n "$(field over_one "$line")" ] || continue
    printf '%-34s %8s %10s\n' "$(field model "$line")" "$(field rows "$line")" "$(field over_one "$line")"
done <"$out"
echo
tests/bench/plot.sh "$out" "$build/bench"
