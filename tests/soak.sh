#!/usr/bin/env bash
# A day's arrivals of a coding service, squeezed into HOURS, at a daemon and its gateway: tests/soak.sh 2
# Prints a table of the four quarters: memory, descriptors and wake-ups while nothing runs at their ends, and waits. Exit 1 when an
# answer was wrong or lost, or when from the first quarter to the last memory, descriptors or idle wake-ups grew. Times are shown, not judged.
# Environment: BUILD, HEARTH_TESTDATA (the trace; without it a seeded process of bursts), SOAK_RATE (requests a second, 6),
# SOAK_MODEL (daemon/models/hearth-code-5m-f16.gguf).
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
'' | *[!0-9.]*) echo "usage: tests/soak.sh HOURS, e.g. 2 or 0.5" >&2; exit 64 ;;
esac
bin=${BUILD:-build}/bin
for program in hearthd hearth-http hearth; do
    [ -x "$bin/$program" ] || { echo "soak: $bin/$program is missing: run make first"; exit 69; }
done
command -v python3 >/dev/null || { echo "soak: python3 is missing: install it"; exit 69; }

work=$(mktemp -d)
stop() {
    # shellcheck disable=SC2046
    kill $(jobs -p) 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap stop EXIT
"$bin/hearthd" --model "${SOAK_MODEL:-daemon/models/hearth-code-5m-f16.gguf}" --socket "$work/hearth.sock" --log-level error --kv-bytes 16M &
daemon=$!
until "$bin/hearth" status --socket "$work/hearth.sock" >/dev/null 2>&1; do kill -0 $daemon; sleep 0.1; done
"$bin/hearth-http" --socket "$work/hearth.sock" --listen "$work/http.sock" 2>"$work/http.log" &
gateway=$!
until [ -S "$work/http.sock" ]; do kill -0 $gateway; sleep 0.1; done
python3 tests/tools/soak.py --hours "$1" --rate "${SOAK_RATE:-6}" --bin "$bin" --folder "$work" --daemon $daemon --gateway $gateway \
    --trace "${HEARTH_TESTDATA:-}/traces/AzureLLMInferenceTrace_code.csv"
