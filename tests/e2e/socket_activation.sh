#!/usr/bin/env bash
# The service manager holds the socket: the first client starts the daemon; one that stops under load is replaced,
# and streaming clients continue with the same tokens; an idle one stops and the next client starts it again.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
bin=$PWD/${BUILD:-build}/bin
command -v systemd-socket-activate >/dev/null || { echo "skip: systemd-socket-activate is not installed"; exit 0; }

folder=$(mktemp -d)
export HEARTH_SOCKET=$folder/hearth.sock
activator=
trap '[ -z "$activator" ] || kill "$activator" 2>/dev/null; rm -rf "$folder"' EXIT
fail() { cat "$folder/log"; echo "$*"; exit 1; }

# Listens at the socket; the first client turns the process into the daemon, with these options.
activate() {
    local before
    before=$(grep -c '^Listening' "$folder/log" 2>/dev/null || true)
    systemd-socket-activate --seqpacket -l "$HEARTH_SOCKET" "$bin/hearthd" "$@" 2>>"$folder/log" &
    activator=$!
    for _ in $(seq 1200); do
        [ "$(grep -c '^Listening' "$folder/log")" -gt "${before:-0}" ] && return
        sleep 0.05
    done
    fail "the socket did not appear"
}

# As the daemon it exits with 0, and keeps the socket, which is not its own.
stopped() {
    wait "$activator" || fail "the daemon did not stop cleanly"
    activator=
    [ -S "$HEARTH_SOCKET" ] || fail "the daemon removed a socket that is not its own"
}

ids() { sed -n 's/.*"ids":\(\[[^]]*\]\).*/\1/p' <<<"$1"; }

# ---- the first client starts it

activate --model daemon/models/hearth-code-5m-f16.gguf
first=$("$bin/hearth" run --max-tokens 8 --json 'def main():' | tail -n 1)
grep -q '"reason":"length"' <<<"$first" || fail "the first client got no answer: $first"
second=$("$bin/hearth" run --max-tokens 8 --json 'def main():' | tail -n 1)
[ "$(ids "$first")" = "$(ids "$second")" ] || fail "two answers to one request"
kill -TERM "$activator"
stopped

# ---- replaced under load, by SIGTERM and by SIGKILL: the answers are those of an undisturbed run

model=$folder/tiny.gguf
"$bin/hearth-mkmodel" --shape tiny --type Q8_0 "$model"
ends=()
for id in $(printf '<|endoftext|><|im_end|><|fim_pad|><|repo_name|><|file_sep|>' | "$bin/hearth" tokenize --special --model "$model" |
            tr -c '0-9' ' '); do
    ends+=(--logit-bias "$id=-inf")
done
options=(--model "$model" --threads 1 --context 4096)
# SEED: a long answer that never ends by itself.
stream() {
    "$bin/hearth" run --max-tokens 4000 "${ends[@]}" --temperature 1 --proposer none --seed "$1" \
        --tokens 5,6,7 --json 2>"$folder/log.$1" | tail -n 1 >"$folder/answer.$1"
}
activate "${options[@]}"
for seed in 1 2 3; do stream $seed && mv "$folder/answer.$seed" "$folder/alone.$seed"; done
# SIGNAL: ends the daemon under three clients, and starts the next one. Fails unless one of them was interrupted.
replace() {
    local clients=() client seed
    for seed in 1 2 3; do stream $seed & clients+=($!); done
    for _ in $(seq 200); do
        "$bin/hearth" status | grep '^slots_active *3$' >/dev/null && break
        sleep 0.02
    done
    kill -"$1" "$activator"
    { wait "$activator" || [ "$1" = KILL ] || fail "the daemon did not stop cleanly"; } 2>/dev/null
    activate "${options[@]}"
    for client in "${clients[@]}"; do wait "$client" || fail "a client failed: $(cat "$folder"/log.*)"; done
    for seed in 1 2 3; do
        grep -q '"output_tokens":4000' "$folder/answer.$seed" || fail "no complete answer: $(cut -c -200 "$folder/answer.$seed")"
        [ "$(ids "$(cat "$folder/answer.$seed")")" = "$(ids "$(cat "$folder/alone.$seed")")" ] ||
            fail "SIG$1 changed an answer"
    done
    grep -q 'the daemon is back' "$folder"/log.*
}
for signal in TERM KILL; do
    for try in 1 2 3 4 5 6 7 8 9 10; do # on a busy machine the answers may be there before the signal
        replace $signal && break
        [ $try -lt 10 ] || fail "no client was interrupted by SIG$signal"
    done
done
kill -TERM "$activator"
stopped

# ---- idle: it stops after its time and no sooner, and the next client starts a new one

activate "${options[@]}" --idle-stop 1
for round in 1 2; do
    before=$(date +%s%N)
    "$bin/hearth" run --max-tokens 4 --tokens 5,6,7 --json | grep '"reason":"length"' >/dev/null || fail "no answer in round $round"
    kill -0 "$activator" 2>/dev/null || [ $(($(date +%s%N) - before)) -gt 1000000000 ] ||
        fail "the daemon stopped at once"
    stopped
    grep -q 'no client was connected' "$folder/log" || fail "it does not say why it stopped"
    activate "${options[@]}" --idle-stop 1
done
sleep 1.5
kill -0 "$activator" || fail "it does not wait for its first client"
"$bin/hearth" status >/dev/null
stopped
echo "ok: started by the first client, replaced under load, stopped when idle, started again"
