#!/usr/bin/env bash
# Tries the units of the machine under a systemd that is process 1, in a container on an overlay of this system. Needs root,
# systemd-nspawn and built programs. Each service is ended at its first system call outside its unit's list. The services are
# started by their sockets, with a KV store and a weights cache; users of the group get answers, by hearth and by HTTP, another
# user gets none. Then hearthd is restarted, killed and frozen while clients stream: they must get the same answers as before.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
clients=8 length=600
[ "$(id -u)" -eq 0 ] || { echo "skip: only root can boot a container"; exit 0; }
command -v systemd-nspawn >/dev/null || { echo "skip: systemd-nspawn is not installed (systemd-container)"; exit 0; }
fail() { echo "$*"; on journalctl -b -u 'hearth*' --no-pager | tail -n 30; exit 1; }

folder=$(mktemp -d)
booted=
finish() {
    jobs -p | xargs -r kill 2>/dev/null || true
    wait 2>/dev/null || true
    umount -l "$folder/root" "$folder/over" 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
mkdir "$folder/over" "$folder/root"
mount -t tmpfs -o size=2G tmpfs "$folder/over"
mkdir "$folder/over/upper" "$folder/over/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/over/upper,workdir=$folder/over/work" "$folder/root"
make --no-print-directory install DESTDIR="$folder/root" PREFIX=/usr CUDA=0 >"$folder/install" 2>&1 || { tail "$folder/install"; exit 1; }
rm -f "$folder/root/etc/machine-id"
systemd-nspawn -q -D "$folder/root" --register=no --keep-unit --private-network -b --console=pipe </dev/null >"$folder/console" 2>&1 &
booted=$!
first=
on() { nsenter -t "$first" -a -- "$@"; }
as() { on setpriv --reuid="$1" --regid="$2" --clear-groups "${@:3}"; } # UID GID WORD...
for _ in $(seq 300); do
    [ -n "$first" ] || first=$(pgrep -P "$booted" -x systemd || true)
    [ -n "$first" ] && on systemctl is-system-running 2>/dev/null | grep 'running\|degraded' >/dev/null && break
    kill -0 "$booted" 2>/dev/null || { cat "$folder/console"; exit 1; }
    sleep 0.2
done

# ---- installed, and told to keep things on the disk
on systemd-sysusers
on systemd-tmpfiles --create hearth.conf
for unit in hearthd hearth-http; do
    mkdir -p "$folder/root/etc/systemd/system/$unit.service.d"
    printf '[Service]\nSystemCallErrorNumber=kill\n' >"$folder/root/etc/systemd/system/$unit.service.d/kill.conf"
done
printf '[Service]\nWatchdogSec=3\n' >"$folder/root/etc/systemd/system/hearthd.service.d/watchdog.conf"
printf '%s\n' 'context = 1024' 'user-slots = 16' 'kv-store = /var/cache/hearth/kv' 'kv-store-min = 64' \
    'weights-cache = /var/cache/hearth' >>"$folder/root/etc/hearth/hearthd.conf"
on systemctl daemon-reload
on systemctl enable --now hearthd.socket hearth-http.socket 2>/dev/null
group=$(on getent group hearth | cut -d: -f3)

# ---- users
plain=$(as 4001 "$group" hearth run --max-tokens 20 'def main():') || fail "a user of the group has no answer"
[ -n "$plain" ] || fail "an empty answer"
[ "$(as 4002 "$group" hearth run --max-tokens 20 'def main():')" = "$plain" ] || fail "another user has another answer"
! as 4003 4003 hearth run --max-tokens 20 'def main():' 2>/dev/null || fail "a user who is not in the group has an answer"
web() { on curl -sSf --unix-socket /run/hearth/http.sock "http://localhost$1" "${@:2}"; }
complete() { web /v1/completions -d "{\"prompt\":\"def main():\",\"max_tokens\":20,\"stream\":$1}" | grep "$2" >/dev/null; }
complete false '"finish_reason"' || fail "no answer by HTTP"
complete true DONE || fail "no stream by HTTP"
as 4001 "$group" hearth run --max-tokens 20 --grammar 'root ::= [a-z]+' 'x = ' >/dev/null || fail "no answer with a grammar"

# ---- stopped, killed and frozen under clients that stream
stream_all() { # FOLDER
    local i pids=()
    mkdir -p "$folder/$1"
    for i in $(seq $clients); do
        as $((4100 + i % 3)) "$group" timeout 60 hearth run --max-tokens $length --temperature 1 --seed "$i" \
            "def f$i(a, b):" >"$folder/$1/$i" 2>"$folder/$1/$i.said" &
        pids+=($!)
    done
    [ -z "${2:-}" ] || { sleep 0.7; $2 || fail "$2 failed"; }
    for i in "${pids[@]}"; do wait "$i" || fail "a client of $1 ended with $?: $(cat "$folder/$1"/*.said)"; done
}
main_pid() { on systemctl show -p MainPID --value hearthd; }
restart() { on systemctl restart hearthd; }
kill_it() { on systemctl kill -s KILL hearthd; }
freeze() { on systemctl kill -s STOP hearthd; } # the watchdog ends it
stream_all undisturbed
for way in restart kill_it freeze; do
    before=$(main_pid)
    stream_all $way $way
    [ "$(main_pid)" != "$before" ] || fail "$way: the same daemon runs on"
    for i in $(seq $clients); do
        cmp -s "$folder/undisturbed/$i" "$folder/$way/$i" || fail "$way: client $i has another answer"
    done
    echo "$way: $clients answers of up to $length tokens as if nothing had been"
done
on hearth store --dir /var/cache/hearth/kv | grep 4101 >/dev/null || fail "nothing was stored"
! on setpriv --reuid=hearth-http --regid=hearth --clear-groups ls /var/cache/hearth 2>/dev/null || fail "the gateway can read the store"
complete false '"finish_reason"' || fail "no answer by HTTP after all that"

# ---- what systemd says
for unit in hearthd hearth-http; do
    on systemctl is-active --quiet $unit || fail "$unit is not active"
done
if on journalctl -b --no-pager | grep -i 'SIGSYS\|31/SYS'; then fail "a unit's list lacks a system call"; fi
on systemctl stop hearth-http.socket hearth-http hearthd.socket hearthd
on systemctl show -p Result --value hearthd hearth-http | grep -v '^success$\|^$' && fail "a service did not end well"
on systemd-analyze security hearthd.service hearth-http.service --no-pager | tail -n 2
echo "ok: the machine's units under systemd $(systemctl --version | sed -n '1s/systemd \([0-9]*\).*/\1/p'), as process 1"
