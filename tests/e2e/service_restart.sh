#!/usr/bin/env bash
# A service manager restarts a daemon with a KV store under 16 clients that stream: none of them is refused, nor is one that
# comes meanwhile; no token is lost or comes twice, and their common trunk is read, not computed.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
. tests/rig/user_manager.bash
clients=16 length=1500 trunk_tokens=1300

# Two daemons of a model: one keeps a store, the other one says what the answers are.
model=$folder/models/tiny.gguf
"$build/bin/hearth-mkmodel" --shape tiny --type Q8_0 "$model"
printf '%s\n' "model = $model" "context = 4096" "threads = 1" "user-slots = 64" | tee "$folder/.config/hearth/plain.conf" \
    >"$folder/.config/hearth/stored.conf"
printf '%s\n' "kv-store = $folder/kv" >>"$folder/.config/hearth/stored.conf"
systemctl --user daemon-reload
systemctl --user start hearth@plain.socket hearth@stored.socket
ends=()
for id in $(printf '<|endoftext|><|im_end|><|fim_pad|><|repo_name|><|file_sep|>' | hearth tokenize --special --model "$model" |
            tr -c '0-9' ' '); do
    ends+=(--logit-bias "$id=-inf")
done
trunk=$(awk -v n=$trunk_tokens 'BEGIN { srand(5); for (i = 0; i < n; i++) printf "%d,", 3 + int(300 * rand()) }')

on() { HEARTH_SOCKET=$folder/hearth/$1.sock hearth "${@:2}"; } # NAME WORD...
# NAME: all clients at once, each with an answer that never ends by itself.
stream_all() {
    rm -f "$folder"/answer.* "$folder"/said.*
    streams=()
    for i in $(seq $clients); do
        on "$1" run --max-tokens $length "${ends[@]}" --temperature 1 --proposer none --seed "$i" --tokens "$trunk$i,7,8" --json \
            >"$folder/answer.$i" 2>"$folder/said.$i" &
        streams+=($!)
    done
}
finish_all() {
    for stream in "${streams[@]}"; do wait "$stream" || fail "a client failed: $(cat "$folder"/said.*)"; done
}
# FILE: ids as they came, token by token, and those of the end. (Text that was held back may come without an id.)
streamed() { sed -n 's/^{"event":"tokens","ids":\[\([^]][^]]*\)\].*/\1/p' "$1" | paste -sd,; }
ended() { sed -n 's/^{"event":"done".*"ids":\[\([^]]*\)\].*/\1/p' "$1"; }
newcomers() {
    until [ -e "$folder/restarted" ]; do
        on stored run --max-tokens 1 --tokens 5,6,7 --json >>"$folder/newcomers" || touch "$folder/refused"
    done
}
restart() {
    rm -f "$folder/restarted"
    newcomers &
    local newcomer=$!
    pids+=("$newcomer")
    systemctl --user restart hearth@stored.service || fail "the service manager did not restart it"
    touch "$folder/restarted"
    wait "$newcomer"
    [ ! -e "$folder/refused" ] || fail "a client that came while the daemon was away was refused"
}

stream_all plain
finish_all
for i in $(seq $clients); do ended "$folder/answer.$i" >"$folder/right.$i"; done

# On a busy machine an answer may be over before the restart, and computing the trunk again may be faster than reading it.
for try in 1 2 3 4 5 6 7 8 9 10; do
    stream_all stored
    for i in $(seq $clients); do
        until [ -s "$folder/answer.$i" ] || ! kill -0 "${streams[i - 1]}" 2>/dev/null; do sleep 0.01; done
    done
    restart
    finish_all
    stored=0
    for i in $(seq $clients); do
        [ "$(ended "$folder/answer.$i")" = "$(cat "$folder/right.$i")" ] || fail "the restart changed an answer"
        [ "$(streamed "$folder/answer.$i")" = "$(cat "$folder/right.$i")" ] || fail "a token was lost, or came twice"
        stored=$((stored + $(sed -n 's/^{"event":"done".*"stored_tokens":\([0-9]*\).*/\1/p' "$folder/answer.$i")))
    done
    interrupted=$(cat "$folder"/said.* | grep -c 'the daemon is back' || true)
    [ "$interrupted" = $clients ] && [ $stored -gt 0 ] && break
    [ $try -lt 10 ] || fail "$interrupted clients were interrupted, $stored tokens of their prompts came from the store"
done
[ "$(on stored status | awk '$1 == "store_failed" { print $2 }')" = 0 ] || fail "the store failed"
on stored status | awk '$1 == "stored_tokens" { n = $2 } END { exit !(n > 0) }' || fail "no token was counted as stored"
systemctl --user stop hearth@stored.socket hearth@stored.service hearth@plain.socket hearth@plain.service
! systemctl --user --quiet is-failed hearth@stored.service || fail "the daemon did not end cleanly"
echo "ok: restarted by a service manager under $clients clients that stream; $stored tokens of their prompts came from the store"
