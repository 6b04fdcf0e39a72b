#!/usr/bin/env bash
# make install installs what Debian's policy expects, and make uninstall removes exactly that: all of our files and no
# others.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "$*"; exit 1; }

# VERB DESTDIR WORD=VALUE...
make_verb() {
    local verb=$1 destdir=$2; shift 2
    make --no-print-directory -s BUILD="$build" DESTDIR="$destdir" "$@" "$verb" >/dev/null
}
files() { (cd "$1" && find . ! -type d | sort); }

# As a package: the library by architecture, everything else where the policy says.
triplet=$(${CC:-gcc} -print-multiarch 2>/dev/null || true)
package=(PREFIX=/usr LIBDIR="/usr/lib/${triplet:-none}")
make_verb install "$root/deb" "${package[@]}"
for file in bin/hearthd bin/hearth include/hearth.h "lib/${triplet:-none}/libhearth.so.0" \
            "lib/${triplet:-none}/pkgconfig/hearth.pc" share/man/man1/hearth.1 share/man/man8/hearthd.8 \
            lib/systemd/system/hearthd.socket lib/systemd/user/hearthd.socket share/hearth/hearth-code-5m-f16.gguf; do
    [ -e "$root/deb/usr/$file" ] || fail "make install did not install $file"
done
other=$(files "$root/deb" | grep -vE '^\./(usr/(bin|include|lib|share)|etc/hearth)/' || true)
[ -z "$other" ] || fail "files where a package must not have any: $other"
grep -q "^libdir=/usr/lib/${triplet:-none}$" "$root/deb/usr/lib/${triplet:-none}/pkgconfig/hearth.pc" ||
    fail "hearth.pc does not name the library's folder"
configured() { # DESTDIR SYSCONFDIR PREFIX: the units and the file's own comment name the file where it is
    local unit name
    [ -e "$1$2/hearth/hearthd.conf" ] || fail "no hearthd.conf in $2/hearth"
    for unit in hearthd:hearthd hearth@:%i; do
        name=${unit#*:}
        grep -q "^ExecStart=.* --config $2/hearth/$name.conf$" "$1$3/lib/systemd/system/${unit%:*}.service" ||
            fail "${unit%:*}.service reads another file than $2/hearth/$name.conf"
    done
    grep -q "^# $2/hearth/hearthd.conf\`" "$1$2/hearth/hearthd.conf" || fail "hearthd.conf names another path for itself"
}
configured "$root/deb" /etc /usr
if grep -rnI '@[A-Z]*@' "$root/deb"; then fail "a placeholder was not filled in"; fi
if grep -rlI "$root" "$root/deb"; then fail "a file contains DESTDIR"; fi
modes=$(cd "$root/deb" && find . -type f ! -perm 644 ! -path './usr/bin/*' -o -type f ! -perm 755 -path './usr/bin/*' \
        -o -type d ! -perm 755)
[ -z "$modes" ] || fail "wrong modes: $modes"

# Installing twice changes nothing, and uninstalling removes everything.
files "$root/deb" >"$root/first"
make_verb install "$root/deb" "${package[@]}"
files "$root/deb" | cmp - "$root/first" || fail "a second install made different files"
make_verb uninstall "$root/deb" "${package[@]}"
[ ! -d "$root/deb" ] || [ -z "$(find "$root/deb" -mindepth 1)" ] || fail "not removed: $(find "$root/deb" -mindepth 1)"

# In a system's own folders: files of others and the folders stay.
here=(PREFIX="$root/usr/local")
mkdir -p "$root"/usr/local/{bin,lib/systemd/system,share/hearth,share/man/man1}
echo theirs | tee "$root"/usr/local/{bin/other,lib/systemd/system/other.service,share/hearth/my.gguf} >/dev/null
(cd "$root/usr" && find . | sort) >"$root/before"
# A link where a file of ours goes, such as a masked unit, is replaced: what it leads to is left alone.
echo theirs >"$root/theirs"
chmod 666 "$root/theirs"
ln -s "$root/theirs" "$root/usr/local/lib/systemd/system/hearthd.service"
make_verb install "" "${here[@]}"
[ "$(stat -c %a "$root/theirs") $(cat "$root/theirs")" = '666 theirs' ] || fail "install wrote through a link"
[ -x "$root/usr/local/bin/hearth" ] || fail "PREFIX was not honoured"
configured "" "$root/usr/local/etc" "$root/usr/local"
# The program reads the installed file and names it in --help; --check accepts its model.
here_hearthd() { env -u XDG_CONFIG_HOME HOME="$root" "$root/usr/local/bin/hearthd" "$@"; }
here_hearthd --help | grep -xF "$root/usr/local/etc/hearth/hearthd.conf." >/dev/null || fail "hearthd --help names another hearthd.conf"
here_hearthd --check | grep '^hearth code 5M' >/dev/null || fail "the installed hearthd does not read the installed hearthd.conf"
grep -qF "$root/usr/local/etc/hearth/hearthd.conf" "$root/usr/local/share/man/man8/hearthd.8" || fail "hearthd.8 names another file"
echo '# mine' >>"$root/usr/local/etc/hearth/hearthd.conf"
make_verb install "" "${here[@]}"
make_verb uninstall "" "${here[@]}"
[ "$(tail -n 1 "$root/usr/local/etc/hearth/hearthd.conf")" = '# mine' ] || fail "the administrator's configuration is gone"
rm -r "$root/usr/local/etc"
files "$root/usr" | diff <(cd "$root" && grep -vxFf <(cd "$root/usr" && find . -type d) before) - ||
    fail "uninstall kept or removed the wrong files"
[ -d "$root/usr/local/share/man/man1" ] || fail "uninstall removed a folder of the system"
[ ! -d "$root/usr/local/lib/hearth" ] || fail "uninstall left its own folder"

# A purge of the package leaves nothing of a user that is gone, since another one may get its number.
purge() { # prints the users that it removes
    mkdir -p "$root/purge"/{bin,run/hearth,etc/hearth,var/lib/hearth,var/lib/hearth-kv/1000,var/cache/hearth/kv}
    printf '#!/bin/sh\necho "$1"\n' | tee "$root/purge/bin/userdel" "$root/purge/bin/groupdel" >/dev/null
    chmod 755 "$root"/purge/bin/*
    sed -e "s, /\(run\|etc\|var\)/, $root/purge/\1/,g" -e 's,>/dev/null 2>&1,,' systemd/debian/hearth.postrm |
        PATH=$root/purge/bin:$PATH sh -s purge | tr '\n' ' '
}
[ "$(purge)" = 'hearth-http hearth hearth ' ] || fail "a purge keeps users that have nothing"
[ ! -e "$root/purge/var/lib/hearth-kv" ] || fail "a purge leaves users' prompts to whoever gets hearth's number"
mkdir -p "$root/purge/etc/hearth"
echo secret >"$root/purge/etc/hearth/KEY"
[ "$(purge)" = 'hearth hearth ' ] || fail "a purge leaves an upstream's key to whoever gets hearth-http's number"
echo "ok: installed by the policy, and uninstalled completely"
