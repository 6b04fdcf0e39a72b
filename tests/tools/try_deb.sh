#!/usr/bin/env bash
# Tries the packages of build/deb (`make deb`) in a throw-away system: lintian, install, find models and serve one, use as a user
# would, purge, nothing left; and counts what one has to know. Usage, as root: try_deb.sh ROOT, made by debootstrap (bookworm,
# trixie); it is left as it was found, but for packages that hearth depends on.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
root=${1:?usage: try_deb.sh ROOT, a Debian made with debootstrap}
debs=(build/deb/{hearth,hearth-model,libhearth0,libhearth-dev,hearth-nvim,python3-hearth}_*_*.deb)
fail() { echo "$*"; exit 1; }
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
mounted=()
mount_in() { mount "$@" && mounted+=("${@: -1}"); }
daemon=
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do umount -l "${mounted[$i]}" || true; done
    rm -rf "$root/tmp/debs"
    tests/tools/try_models.sh take "$root"
}
trap finish EXIT

shopt -s nullglob
lintian --fail-on error,warning "${debs[@]}" build/deb/hearth-cuda_*.deb || fail "lintian is not quiet"

mount_in -t proc proc "$root/proc"
mount_in --bind /dev "$root/dev"
mkdir -p "$root/tmp/debs"
cp "${debs[@]}" "$root/tmp/debs/"
snapshot() { (cd "$root" && find etc usr run var -xdev ! -path 'var/lib/dpkg/*' ! -path 'var/cache/*' ! -path 'var/log/*' \
    ! -path 'var/lib/apt/*' | sort); }
in_root apt-get update -qq
packages=(hearth hearth-model libhearth0 libhearth-dev hearth-nvim python3-hearth)
in_root apt-get purge -y -qq "${packages[@]}" >/dev/null 2>&1 || true # of a trial that failed
# What they depend on stays afterwards, so it comes first.
depends=$(for deb in "${debs[@]}"; do dpkg-deb -f "$deb" Depends; done | tr ',' '\n' | grep -vE '^ *($|hearth|libhearth|python3-hearth)' | paste -sd ,)
in_root apt-get satisfy -y -qq --no-install-recommends "$depends" >/dev/null
in_root apt-get install -y -qq --no-install-recommends neovim systemd gcc libc6-dev pkg-config curl >/dev/null
snapshot >build/deb/before

in_root sh -c 'apt-get install -y -qq --no-install-recommends /tmp/debs/*.deb' >build/deb/install.log 2>&1 ||
    { cat build/deb/install.log; fail "apt does not install them"; }
knows=1 # apt install
in_root getent group hearth >/dev/null || fail "there is no group hearth"
[ -L "$root/etc/systemd/system/sockets.target.wants/hearthd.socket" ] || fail "hearthd.socket is not enabled"
[ "$(find "$root/etc/systemd" -name '*hearth*' | wc -l)" = 1 ] || fail "more than hearthd.socket is enabled"
in_root hearthd --check --config /etc/hearth/hearthd.conf | grep 'fingerprint' >/dev/null || fail "hearthd --check"
for page in hearth.1 hearthd.8 hearth-http.8; do
    in_root test -s "/usr/share/man/man${page##*.}/$page.gz" || fail "no man page $page"
done

tests/tools/try_models.sh put "$root"
knows=$((knows + $(tests/tools/try_models.sh use "$root"))) || fail "what a user does"
tests/tools/try_models.sh take "$root"

# As the units do it: the service's user, the socket of the group.
as_hearth=(setpriv --reuid=hearth --regid=hearth --init-groups)
in_root "${as_hearth[@]}" true || fail "there is no user hearth"
in_root setpriv --reuid=hearth-http --regid=hearth --clear-groups true || fail "there is no user hearth-http"
mkdir -p "$root/run/hearth"
chown 0:"$(in_root getent group hearth | cut -d: -f3)" "$root/run/hearth" && chmod 2775 "$root/run/hearth"
chroot "$root" env -i PATH=/usr/bin "${as_hearth[@]}" hearthd --config /etc/hearth/hearthd.conf 2>build/deb/daemon.log &
daemon=$!
for _ in $(seq 100); do [ -S "$root/run/hearth/hearth.sock" ] && break; sleep 0.1; done
in_root hearth run --max-tokens 8 --json 'def main():' | grep '"reason":"length"' >/dev/null || fail "hearth run has no answer"
in_root hearth top --once --interval 0.2 | grep 'tokens/s' >/dev/null || fail "hearth top"
in_root python3 -c 'import hearth; print(hearth.__file__)' | grep dist-packages >/dev/null || fail "python3-hearth"
in_root nvim --headless -c 'lua require("hearth")' -c 'if exists(":HearthStatus") | echo "there" | endif' -c q 2>&1 |
    grep -q there || fail "the nvim plugin is not found"
cat >"$root/tmp/debs/use.c" <<'C'
#include <hearth.h>
#include <stdio.h>
int main(void)
{
    struct hearth *h;
    char err[256];
    if (hearth_connect(NULL, NULL, &h, err, sizeof err) < 0)
        return fprintf(stderr, "%s\n", err), 69;
    hearth_close(h);
    return 0;
}
C
# shellcheck disable=SC2016 # the root's shell expands it
in_root sh -c 'cc /tmp/debs/use.c -o /tmp/debs/use $(pkg-config --cflags --libs hearth) && /tmp/debs/use' ||
    fail "libhearth-dev does not build a program"
chroot "$root" env -i /usr/bin/hearth-http --listen /run/hearth/http.sock 2>/dev/null & gateway=$!
for _ in $(seq 100); do [ -S "$root/run/hearth/http.sock" ] && break; sleep 0.1; done
in_root curl -s --unix-socket /run/hearth/http.sock http://hearth/health | grep ok >/dev/null || fail "hearth-http"
{ kill "$gateway" && wait "$gateway"; } || fail "hearth-http does not stop cleanly"
{ kill "$daemon" && wait "$daemon"; } || fail "hearthd does not stop cleanly"
daemon=

in_root apt-get purge -y -qq "${packages[@]}" >build/deb/purge.log 2>&1 ||
    { cat build/deb/purge.log; fail "apt does not purge them"; }
snapshot >build/deb/after
diff build/deb/before build/deb/after || fail "purge left something, or took what is not ours"
if in_root getent passwd | grep '^hearth'; then fail "a user is left"; fi
knows=$((knows + 1))
echo "ok: $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/etc/os-release"): lintian is quiet; installed, used and purged without a trace; $knows commands to know"
