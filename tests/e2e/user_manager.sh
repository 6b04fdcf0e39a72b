#!/usr/bin/env bash
# `hearth serve` and the gateway's --budget where a service manager of this user runs: a real one, in a mount namespace of
# its own, since it starts only where /run says that the system runs systemd. Daemons are units, settings files of
# `hearth serve` are written anew, one of the user's stays, and all units end with what started them.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
manager=/lib/systemd/systemd
case $build in *asan | *tsan) echo "skip: the units' limits leave no room for a sanitizer"; exit 0 ;; esac
for tool in systemctl curl unshare "$manager"; do
    command -v "$tool" >/dev/null || { echo "skip: $tool is not installed"; exit 0; }
done
if [ "${1:-}" != inside ]; then
    unshare -m true 2>/dev/null || { echo "skip: no mount namespace may be made here"; exit 0; }
    exec unshare -m "$PWD/tests/e2e/user_manager.sh" inside
fi

mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
folder=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap finish EXIT
fail() { tail -n 20 "$folder/log"; echo "$*"; exit 1; }

export HOME=$folder XDG_RUNTIME_DIR=$folder HEARTH_MODELS=$folder/models
unset HEARTH_SOCKET XDG_CONFIG_HOME XDG_STATE_HOME DBUS_SESSION_BUS_ADDRESS
mkdir -p "$folder/models" "$folder/.config/systemd"
for name in alpha beta gamma; do cp daemon/models/hearth-code-5m-f16.gguf "$folder/models/$name.gguf"; done
make --no-print-directory -s BUILD="$build" PREFIX="$folder/usr" install >/dev/null
cp -r "$folder/usr/lib/systemd/user" "$folder/.config/systemd/user"
PATH=$folder/usr/bin:$PATH

$manager --user --log-target=console >"$folder/log" 2>&1 &
pids+=($!)
for _ in $(seq 600); do
    if systemctl --user is-system-running >/dev/null 2>&1; then break; fi
    kill -0 "${pids[0]}" 2>/dev/null || { echo "skip: no user manager runs here: $(tail -n 1 "$folder/log")"; exit 0; }
    sleep 0.1
done
runs() { systemctl --user --quiet is-active "hearth@$1.service"; }

# ---- by hand
hearth serve alpha >/dev/null || fail "alpha is not served"
runs alpha || fail "alpha is not a unit"
grep -q "^model = $folder/models/alpha.gguf$" "$folder/.config/hearth/alpha.conf" || fail "no settings"
hearth run --model alpha --max-tokens 2 'x' >/dev/null || fail "alpha does not answer"
hearth stop alpha
! runs alpha || fail "alpha runs on"
hearth serve alpha --context 512 >/dev/null || fail "settings of hearth serve are not written anew"
hearth status --model alpha --json | grep '"context":512' >/dev/null || fail "the new settings are not those of the daemon"
hearth stop alpha
echo "# mine" >"$folder/.config/hearth/alpha.conf"
code=0
hearth serve alpha 2>/dev/null || code=$?
[ "$code" = 65 ] || fail "settings of the user's: $code"
[ "$(cat "$folder/.config/hearth/alpha.conf")" = "# mine" ] || fail "settings of the user's were written over"
rm "$folder/.config/hearth/alpha.conf"

# ---- by request, from the gateway's own unit
mkdir -p "$folder/.config/systemd/user/hearth-http.service.d"
printf '[Service]\nExecStart=\nExecStart=%s --budget 56M --stay 0\n' "$folder/usr/bin/hearth-http" \
    >"$folder/.config/systemd/user/hearth-http.service.d/budget.conf"
rm "$folder"/.config/systemd/user/hearthd.* # the default daemon would fill the budget
systemctl --user daemon-reload
systemctl --user start hearth-http.socket
ask() {
    curl -sS --fail --unix-socket "$folder/hearth/http.sock" http://localhost/v1/completions \
         -d '{"prompt": "x", "max_tokens": 2, "model": "'"$1"'"}' >/dev/null || fail "$1 does not answer"
}
ask alpha
ask beta
ask gamma
! runs alpha || fail "alpha did not give way"
for name in beta gamma; do runs $name || fail "$name is not a unit"; done
systemctl --user stop hearth-http.socket hearth-http.service
for name in beta gamma; do ! runs $name || fail "$name outlives the gateway that started it"; done
! systemctl --user --quiet is-failed hearth-http.service || fail "the gateway did not end cleanly"
echo "ok: daemons are units of the user's manager, by hand and by request"
