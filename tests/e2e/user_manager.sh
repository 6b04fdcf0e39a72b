#!/usr/bin/env bash
# `hearth serve` and the gateway's --budget where a service manager of this user runs. Daemons are units, settings files of
# `hearth serve` are written anew, one of the user's stays, and all units end with what started them.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
. tests/rig/user_manager.bash
for name in alpha beta gamma; do cp daemon/models/hearth-code-5m-f16.gguf "$folder/models/$name.gguf"; done
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
