#!/usr/bin/env bash
# hearthd serves without any capability, as in its unit, and opens no file while it serves.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=$PWD/${BUILD:-build}
[ "$(id -u)" -eq 0 ] || { echo "skip: only root can give up every capability"; exit 0; }
for tool in setpriv strace; do
    command -v $tool >/dev/null || { echo "skip: $tool is not installed"; exit 0; }
done
case $build in *asan | *tsan) echo "skip: the sanitizers' runtime opens files of its own"; exit 0 ;; esac
strace -f -o /dev/null true 2>/dev/null || { echo "skip: strace may not trace here"; exit 0; }

folder=$(mktemp -d)
pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap stop EXIT

# A user without groups has to be able to read the tree.
confined=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --ambient-caps=-all --bounding-set=-all --no-new-privs)
"${confined[@]}" test -x "$build/bin/hearthd" || { echo "skip: other users cannot read this folder"; exit 0; }
mkdir -m 0777 "$folder/run"
chmod 0711 "$folder"
export HEARTH_SOCKET=$folder/run/hearth.sock XDG_CONFIG_HOME=/nonexistent
"${confined[@]}" "$build/bin/hearthd" --model daemon/models/hearth-code-5m-f16.gguf --threads 2 2>"$folder/log" &
daemon=$!
pids=("$daemon")
until "$build/bin/hearth" status >/dev/null 2>&1; do
    kill -0 $daemon 2>/dev/null || { cat "$folder/log"; echo "hearthd does not start without capabilities"; exit 1; }
    sleep 0.1
done
if grep '^Cap' /proc/$daemon/status | grep -v '0000000000000000$'; then echo "hearthd has a capability"; exit 1; fi

strace -f -qq -e trace=open,openat,openat2,creat,getsockopt -p $daemon -o "$folder/opened" 2>"$folder/strace" &
pids+=($!)
for _ in $(seq 300); do # attached
    [ "$(sed -n 's/^TracerPid:\t//p' /proc/$daemon/status)" = 0 ] || break
    sleep 0.1
done
"$build/bin/hearth" run --slot a --max-tokens 20 --grammar 'root ::= [a-z]+' 'x = ' >/dev/null
"$build/bin/hearth" run --max-tokens 20 'x = ' >/dev/null
"$build/bin/hearth" status >/dev/null
kill "${pids[1]}"
wait "${pids[1]}" 2>/dev/null || true
grep -q getsockopt "$folder/opened" || { echo "strace saw no client"; exit 1; }
if grep 'open\|creat' "$folder/opened"; then
    echo "hearthd opened a file while it served: do it at the start"
    exit 1
fi
echo "ok: hearthd serves without capabilities, and opens no file meanwhile"
