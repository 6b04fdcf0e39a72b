#!/usr/bin/env bash
# The demo: a private daemon on the bundled model, one completion streamed through a real client, and the
# daemon stopped again. Environment: BUILD. Leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
bin=$PWD/${BUILD:-build}/bin
model=daemon/models/hearth-code-5m-f16.gguf
prompt='import os

def read_lines(path):
    with open(path) as f:'
ask=(run --slot demo --max-tokens 100 --temperature 0.6 --top-p 0.9 --repeat-penalty 1.1 --seed 7)
[ -f "$model" ] || { echo "demo: $model is missing: is this a complete clone?" >&2; exit 66; }

folder=$(mktemp -d)
export HEARTH_SOCKET=$folder/hearth.sock
daemon=
stop() {
    if [ -n "$daemon" ]; then kill "$daemon" 2>/dev/null || true; wait "$daemon" 2>/dev/null || true; fi
    rm -rf "$folder"
}
trap stop EXIT

echo "demo: starting a private hearthd on $model"
"$bin/hearthd" --model "$model" --slots 4 2>"$folder/log" &
daemon=$!
for _ in $(seq 100); do
    [ -S "$HEARTH_SOCKET" ] && break
    kill -0 "$daemon" 2>/dev/null || { cat "$folder/log" >&2; echo "demo: the daemon did not start" >&2; exit 1; }
    sleep 0.1
done

echo "demo: hearth ${ask[*]} \"import os ...\""
echo "----------------------------------------------------------------"
printf '%s' "$prompt"
"$bin/hearth" "${ask[@]}" "$prompt"
echo
echo "----------------------------------------------------------------"
echo "demo: the same again, twice, from new processes: the prompt is warm, the receipt is the same"
for _ in 1 2; do
    "$bin/hearth" "${ask[@]}" --json "$prompt" | tail -n 1 |
        sed -e 's/"ids":\[[^]]*\],//' -e 's/^{"event":"done",//' -e 's/}$//' | tr ',' '\n' |
        grep -E 'cached_tokens|output_tokens|passes|accepted_drafts|_ms|receipt' | paste -sd' '
done
"$bin/hearth" status | grep -E '^(model|isa|threads|output_tokens|requests_finished|kv_bytes|rss_bytes) '
echo "demo: stopping the daemon"
kill "$daemon"
wait "$daemon" || { echo "demo: FAILED: the daemon did not stop cleanly" >&2; exit 1; }
daemon=
echo "demo: ok"
