#!/usr/bin/env bash
# Makes two releases of this tree, from two folders, with other umasks, times of files, time zones and languages, and, where faketime
# is installed, more than a year apart: are they the same bytes? Takes as long as two builds from nothing.
# Usage: try_release_twice.sh [FOLDER], where the trees are made (a temporary one); the first one's release stays in build/release.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
work=${1:-$(mktemp -d)}
mkdir -p "$work"
trap 'rm -rf "$work/tree.tar" "$work/first" "$work/second"' EXIT
git ls-files -z --cached --others --exclude-standard | tar -cf "$work/tree.tar" --null --no-recursion -T -

# FOLDER COMMAND...: a release of a copy of the tree in FOLDER, made by COMMAND. Its sums are in FOLDER.sums.
release() {
    local folder=$work/$1
    shift
    rm -rf "$folder"
    mkdir -p "$folder"
    tar -xmf "$work/tree.tar" --no-same-permissions -C "$folder"
    (cd "$folder" && "$@" make CC="${CC:-gcc}" CXX="${CXX:-g++}" release) >"$folder.log" 2>&1 || { tail -n 20 "$folder.log"; exit 1; }
    (cd "$folder/build/release" && sha256sum -- *.tar.gz *.whl *.deb) >"$folder.sums"
}

later=()
if command -v faketime >/dev/null; then later=(faketime -f +500d); fi
(umask 022 && release first/hearth env TZ=UTC LC_ALL=C.UTF-8)
(umask 077 && release second/other/deeper/tree env TZ=Pacific/Kiritimati LC_ALL=C LANGUAGE=de "${later[@]}")
mkdir -p build/release
cp "$work"/first/hearth/build/release/*.{tar.gz,whl,deb} build/release/
cat "$work/first/hearth.sums"
diff "$work/first/hearth.sums" "$work/second/other/deeper/tree.sums" || { echo "two releases differ"; exit 1; }
echo "ok: two releases${later[*]:+, ${later[2]#+} apart,} are the same $(wc -l <"$work/first/hearth.sums") files"
