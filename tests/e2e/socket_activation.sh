#!/usr/bin/env bash
# The first client starts the daemon through the socket that the service manager holds; the daemon says READY
# only once it can answer, and takes the answer's end with it when it is told to stop.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
bin=$PWD/${BUILD:-build}/bin
model=daemon/models/hearth-code-5m-f16.gguf
command -v systemd-socket-activate >/dev/null || { echo "skip: systemd-socket-activate is not installed"; exit 0; }

folder=$(mktemp -d)
export HEARTH_SOCKET=$folder/hearth.sock
activator=
trap '[ -z "$activator" ] || kill "$activator" 2>/dev/null; rm -rf "$folder"' EXIT

systemd-socket-activate --seqpacket -l "$HEARTH_SOCKET" "$bin/hearthd" --model "$model" 2>"$folder/log" &
activator=$!
for _ in $(seq 200); do [ -S "$HEARTH_SOCKET" ] && break; sleep 0.05; done
[ -S "$HEARTH_SOCKET" ] || { cat "$folder/log"; echo "the socket did not appear"; exit 1; }

first=$("$bin/hearth" run --max-tokens 8 --json 'def main():' | tail -n 1)
grep -q '"reason":"length"' <<<"$first" || { cat "$folder/log"; echo "the first client got no answer: $first"; exit 1; }
second=$("$bin/hearth" run --max-tokens 8 --json 'def main():' | tail -n 1)
ids() { sed -n 's/.*"ids":\(\[[^]]*\]\).*/\1/p' <<<"$1"; }
[ "$(ids "$first")" = "$(ids "$second")" ] || { echo "two answers to one question"; exit 1; }

kill -TERM "$activator" # it became the daemon
wait "$activator" || { cat "$folder/log"; echo "the daemon did not stop cleanly"; exit 1; }
activator=
[ -S "$HEARTH_SOCKET" ] || { echo "the daemon removed a socket that is not its own"; exit 1; }
echo "ok: the first client started the daemon, the socket outlived it"
