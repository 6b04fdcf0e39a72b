#!/bin/sh
# Makes the tarball of a release: what `make install` installs, the libraries that have no static form, and install.sh.
# Usage: pack.sh FOLDER, from the repository's root, with $TABLE (the Makefile's INSTALLED, whose folders are
# placeholders), VERSION and BUILD (where the programs are) in the environment. The same bytes from any folder, at any
# time, with any umask; their date is SOURCE_DATE_EPOCH, else the date of the last entry of the Debian changelog.
set -eu
umask 022
out=$1 name=hearth-$VERSION-$(uname -m)-linux
stage=$out/$name
date=${SOURCE_DATE_EPOCH:-$(date -d "$(sed -n 's/^ -- .*>  //p' systemd/debian/changelog | head -n 1)" +%s)}
rm -rf "$stage"
mkdir -p "$stage/files"

# FILE: puts it into the stage. Prints its path there: that of the source, without the folder of the build.
keep() {
    path=${1#"$BUILD/"}
    mkdir -p "$stage/files/$(dirname "$path")"
    if [ -d "$1" ]; then
        find "$1" -type f ! -name '.*' ! -path '*/__pycache__/*' | while read -r file; do keep "$file" >/dev/null; done
    else
        cp "$1" "$stage/files/$path"
    fi
    echo "$path"
}

# One line of the table, with the files that were put into the stage.
line() {
    kind=$1 folder=$2
    shift 2
    [ $# -gt 0 ] || return 0
    printf '%s %s' "$kind" "$folder"
    for file in "$@"; do
        if [ "$kind" = link ]; then
            printf ' %s' "$file"
        else
            to=
            case $file in *:*) to=:${file#*:} ;; esac
            printf ' %s%s' "$(keep "${file%%:*}")" "$to"
        fi
    done
    echo
}

# Libraries that FILE needs, but for those of every Linux.
libraries() {
    env -u LD_PRELOAD ldd "$1" | awk '$2 == "=>" { print $3 }' | grep -vE '/lib(c|m|dl|rt|pthread)\.so' | sort
}

{
    printf '%s\n' "$TABLE" | while read -r words; do
        # shellcheck disable=SC2086 # words
        [ -z "$words" ] || line $words
    done
    mkdir -p "$out/lib" "$out/licenses"
    for library in $(libraries "$BUILD/bin/hearth-http"); do
        cp -L "$library" "$out/lib/"
        package=$(dpkg-query -S "$(readlink -f "$library")" 2>/dev/null || dpkg-query -S "$(basename "$(readlink -f "$library")")")
        package=$(echo "$package" | head -n 1 | cut -d: -f1)
        cp "/usr/share/doc/$package/copyright" "$out/licenses/$package"
    done
    cp LICENSE "$out/licenses/hearth"
    # shellcheck disable=SC2046 # words
    line 644 @PREFIX@/lib/hearth $(find "$out/lib" -type f | sort)
    # shellcheck disable=SC2046 # words
    line 644 @PREFIX@/share/doc/hearth/licenses $(find "$out/licenses" -type f | sort)
    line 644 @PREFIX@/share/doc/hearth README.md
} >"$stage/files/table"
find "$stage/files/bin" "$stage/files/lib" "$stage/files/$out/lib" -type f -exec strip --strip-unneeded {} + 2>/dev/null
cp systemd/install.sh "$stage/files/copy.sh"
cp systemd/release/install.sh "$stage/install.sh"
cp README.md LICENSE "$stage/"
echo "$VERSION" >"$stage/files/version"
find "$stage" -type f -exec chmod 644 {} +
find "$stage" -type d -exec chmod 755 {} +
chmod 755 "$stage/install.sh" "$stage/files/copy.sh" "$stage"/files/bin/*
tar -C "$out" --sort=name --mtime="@$date" --owner=0 --group=0 --numeric-owner --format=ustar -cf - "$name" |
    gzip -n9 >"$out/$name.tar.gz"
rm -rf "$stage" "${out:?}/lib" "$out/licenses"

# What the wheel carries: the library, and what it needs.
rm -rf "$BUILD/carried"
mkdir "$BUILD/carried"
cp "$BUILD/lib/libhearth.so.0" "$BUILD/carried/"
for library in $(libraries "$BUILD/lib/libhearth.so.0"); do cp -L "$library" "$BUILD/carried/"; done
strip --strip-unneeded "$BUILD"/carried/*
echo "$out/$name.tar.gz"
