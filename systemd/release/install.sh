#!/bin/sh
# Installs hearth from this folder, or removes what it installed. It says what it does; nothing is downloaded.
#
#   sh install.sh                    into /usr/local as root, else into ~/.local
#   sh install.sh --prefix FOLDER
#   sh install.sh --uninstall        with the prefix that was installed into
#   sh install.sh --list             the files, one a line
set -eu
fail() { echo "install.sh: $*" >&2; exit 64; }
verb=install
if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?set HOME, or give --prefix FOLDER}/.local; fi
while [ $# -gt 0 ]; do
    case $1 in
    --prefix) [ $# -gt 1 ] || fail "--prefix: give a folder"; prefix=$2; shift ;;
    --prefix=*) prefix=${1#*=} ;;
    --uninstall) verb=uninstall ;;
    --list) verb=list ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "$1: sh install.sh [--prefix FOLDER] [--uninstall | --list]" ;;
    esac
    shift
done
case $prefix in
/*[!-A-Za-z0-9._/+@]*) fail "--prefix $prefix: give a path of letters, digits and . _ - + @" ;;
/*) prefix=${prefix%/} ;;
*) fail "--prefix $prefix: give a path that begins with /" ;;
esac
case $(uname -sm) in "Linux x86_64") ;; *) fail "these programs are for Linux on x86-64, not $(uname -sm)" ;; esac
[ "$verb" = list ] || echo "hearth: $verb $prefix"
cd "$(dirname "$0")/files"

# Where programs look: a machine's folders, or those of one user, who has no system units.
case $prefix in
/usr | /usr/local) sysconfdir=/etc user_units=$prefix/lib/systemd/user ;;
*) sysconfdir=$prefix/etc user_units=$prefix/share/systemd/user ;;
esac
case $prefix in /usr) zsh=vendor-completions ;; *) zsh=site-functions ;; esac
case $prefix in /usr | /usr/local) without='^$' ;; *) without='@UNITDIR@/system|sysusers|tmpfiles' ;; esac
TABLE=$(grep -vE "$without" table |
    sed -e "s|@UNITDIR@/user|$user_units|g" -e "s|@UNITDIR@|$prefix/lib/systemd|g" -e "s|@ZSHDIR@|$prefix/share/zsh/$zsh|g" \
        -e "s|@SYSCONFDIR@|$sysconfdir|g" -e "s|@PREFIX@|$prefix|g")
export TABLE
copy() { DESTDIR='' PREFIX=$prefix BINDIR=$prefix/bin LIBDIR=$prefix/lib SYSCONFDIR=$sysconfdir VERSION=$(cat version) sh ./copy.sh "$1"; }

# The folders that were not there before are noted, and go with the last file in them.
made=$prefix/share/hearth/folders
missing() {
    copy list | while read -r path; do
        while path=${path%/*} && [ -n "$path" ] && [ ! -d "$path" ]; do echo "$path"; done
    done | sort -u
}
case $verb in
list) copy list; exit 0 ;;
install)
    folders=$(missing; cat "$made" 2>/dev/null || true)
    copy install
    [ -z "$folders" ] || printf '%s\n' "$folders" | sort -u >"$made" ;;
uninstall)
    folders=$(cat "$made" 2>/dev/null || true)
    rm -f "$made"
    copy uninstall
    printf '%s\n' "$folders" | sort -r | while read -r folder; do
        [ -z "$folder" ] || rmdir "$folder" 2>/dev/null || true
    done ;;
esac
if [ "$prefix" = /usr ] || [ "$prefix" = /usr/local ]; then ldconfig 2>/dev/null || true; fi
[ "$verb" = install ] || { echo "removed; models and your own settings stay"; exit 0; }
"$prefix/bin/hearthd" --version >/dev/null || { echo "hearthd does not run here: glibc 2.36 or later is needed (Debian 12)" >&2; exit 71; }
case :$PATH: in
*":$prefix/bin:"*) hearth=hearth ;;
*) hearth=$prefix/bin/hearth; echo "$prefix/bin is not in PATH: add it, or call programs there" ;;
esac
echo "now: $hearth models        lists the models on this disk"
echo "     $hearth serve NAME    starts one; then $hearth run 'Once upon a time' --model NAME"
