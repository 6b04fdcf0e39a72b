#!/bin/sh
# Installs or removes files: `make install`, `make uninstall`.
# Usage: install.sh install|uninstall|list, from the repository's root, with $TABLE (the Makefile's INSTALLED: its comment
# names the kinds of lines) and DESTDIR, PREFIX, BINDIR, LIBDIR, SYSCONFDIR, VERSION in the environment. `list` prints
# every path.
set -eu
verb=$1

# Prints FILE with its placeholders replaced.
fill() {
    sed -e "s|@PREFIX@|$PREFIX|g" -e "s|@BINDIR@|$BINDIR|g" -e "s|@LIBDIR@|$LIBDIR|g" -e "s|@VERSION@|$VERSION|g" \
        -e "s|@SYSCONFDIR@|$SYSCONFDIR|g" "$1"
}

# FILE PATH: the same, installed. A link there is replaced, not followed.
put() {
    rm -f "$2"
    fill "$1" >"$2"
    chmod 644 "$2"
}

# KIND FOLDER NAME FILE: installs one file; for a link FILE is the target.
one() {
    path=$DESTDIR$2/$3
    case $verb in
    list) echo "$2/$3" ;;
    uninstall)
        [ "$1" != conf ] || [ ! -f "$path" ] || fill "$4" | cmp -s - "$path" || return 0
        rm -f "$path" ;;
    install)
        mkdir -p "${path%/*}"
        case $1 in
        link) ln -sfn "$4" "$path" ;;
        conf) [ -e "$path" ] || [ -L "$path" ] || put "$4" "$path" ;;
        fill) put "$4" "$path" ;;
        tree) install -m 644 "$4" "$path" ;;
        *) install -m "$1" "$4" "$path" ;;
        esac ;;
    esac
    if [ "$verb" = uninstall ]; then empty "$2/$3"; fi
}

# Removes the empty folders above a removed path: below DESTDIR all of them, since we made that tree; otherwise only
# those with our name, since the others belong to the system.
empty() {
    above=${1%/*}
    while [ -n "$above" ]; do
        case $DESTDIR/$above in
        /*/hearth | /*/hearth/*) ;;
        *) [ -n "$DESTDIR" ] || return 0 ;;
        esac
        rmdir "$DESTDIR$above" 2>/dev/null || [ ! -d "$DESTDIR$above" ] || return 0
        above=${above%/*}
    done
}

# KIND FOLDER FILE...: one line of the table.
line() {
    kind=$1 folder=$2
    shift 2
    for file in "$@"; do
        case $kind in
        link) one link "$folder" "${file%%:*}" "${file#*:}" ;;
        tree) find "$file" -type f ! -name '.*' | sort | while read -r below; do
                  one tree "$folder" "${below#"$file"/}" "$below"
              done ;;
        fill | conf) name=${file##*/} && one "$kind" "$folder" "${name%.in}" "$file" ;;
        *) name=${file#*:} && one "$kind" "$folder" "${name##*/}" "${file%%:*}" ;;
        esac
    done
}

umask 022
printf '%s\n' "$TABLE" | while read -r words; do
    # shellcheck disable=SC2086 # words
    [ -z "$words" ] || line $words
done
