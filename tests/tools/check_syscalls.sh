#!/usr/bin/env bash
# The units' lists of system calls have all that hearthd and hearth-http make, by io_uring and by epoll: start, connect,
# answer, follow a grammar, ask for the status, hang up, stop.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=$PWD/${BUILD:-build}
model=daemon/models/hearth-code-5m-f16.gguf
case $build in *asan | *tsan) echo "skip: the sanitizers' runtime makes calls of its own"; exit 0 ;; esac
for tool in strace systemd-analyze curl; do
    command -v $tool >/dev/null || { echo "skip: $tool is not installed, system calls are not watched"; exit 0; }
done
strace -f -o /dev/null true 2>/dev/null || { echo "skip: strace may not trace here"; exit 0; }

folder=$(mktemp -d)
pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
    pids=()
}
trap 'stop; rm -rf "$folder"' EXIT

# What the unit allows, groups by their members; ? lets strace ignore calls of other processors.
allowed() { # UNIT
    local name
    # shellcheck disable=SC2013
    for name in $(sed -n 's/^SystemCallFilter=//p' "systemd/system/$1"); do
        case $name in
        @*) systemd-analyze --no-pager syscall-filter "$name" | sed '1d; s/#.*//' ;;
        *) echo "$name" ;;
        esac
    done | awk 'NF { printf "%s?%s", n++ ? "," : "", $1 }'
}
watch() { # UNIT NAME PROGRAM...: prints calls that are not allowed to a file of that name
    strace -D --seccomp-bpf -f -qq --signal=none -e "trace=!$(allowed "$1")" -o "$folder/$2" "${@:3}" \
        2>"$folder/log" &
    pids+=($!)
}
await() { # SOCKET
    for _ in $(seq 300); do
        [ ! -S "$1" ] || return 0
        sleep 0.1
    done
    cat "$folder/log"
    echo "no program listens at $1"
    exit 1
}

# The first run writes the weights' file and the store's, the second one uses them.
for loop in auto epoll; do
    export HEARTH_SOCKET=$folder/$loop.sock
    watch hearthd.service "hearthd.$loop" "$build/bin/hearthd" --model "$model" --event-loop $loop --threads 2 \
        --weights-cache "$folder/weights" --kv-store "$folder/store" --kv-store-min 0
    await "$HEARTH_SOCKET"
    watch hearth-http.service "gateway.$loop" "$build/bin/hearth-http" --listen "$folder/http.$loop"
    await "$folder/http.$loop"
    "$build/bin/hearth" run --slot a --max-tokens 20 --grammar 'root ::= [a-z]+' 'x = ' >/dev/null
    "$build/bin/hearth" status >/dev/null
    ask() { curl -s --fail --unix-socket "$folder/http.$loop" "http://localhost$1" "${@:2}" >/dev/null; }
    ask /health
    ask /metrics
    ask /completion -d '{"prompt": "x = ", "n_predict": 20, "json_schema": {"type": "integer"}}'
    ask /completion -d '{"prompt": "x = ", "n_predict": 20, "stream": true}'
    ask /completion -d "{\"prompt\": \"$(seq -s ' ' 150)\", \"n_predict\": 1}"
    for _ in $(seq 300); do
        [ ! -f "$(echo "$folder"/weights/*.weights)" ] || break
        sleep 0.1
    done
    stop
done
[ -f "$(echo "$folder"/weights/*.weights)" ] || { echo "the weights were not kept"; exit 1; }
[ -f "$(echo "$folder"/store/*/*/*.kv)" ] || { echo "nothing was stored"; exit 1; }
if grep -v 'exited with\|killed by' "$folder"/hearthd.* "$folder"/gateway.*; then
    echo "a system call is not in the unit's SystemCallFilter: add it, or do not make it"
    exit 1
fi
[ -e "$folder/hearthd.auto" ] || { echo "strace wrote nothing"; exit 1; }
echo "ok: the units allow every system call that was made"
