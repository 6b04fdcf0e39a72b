#!/usr/bin/env bash
# --help of every program and of every command of hearth: under both names, only on stdout, and at most 80 columns
# wide.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
bin=$PWD/${BUILD:-build}/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }

n=0
check() { # PROGRAM [COMMAND]
    "$@" --help >"$work/help" 2>"$work/error" || fail "$* --help: exit $?"
    "$@" -h >"$work/short" 2>>"$work/error" || fail "$* -h: exit $?"
    cmp "$work/help" "$work/short" || fail "$* -h is not --help"
    [ ! -s "$work/error" ] || fail "$* --help: $(cat "$work/error")"
    grep -qi "^usage: ${1##*/}" "$work/help" || fail "$* --help has no usage line"
    wide=$(LC_ALL=C.UTF-8 awk 'length > 80 && !/^\//' "$work/help") # a path is as long as it is
    [ -z "$wide" ] || fail "$* --help is wider than 80 columns: $wide"
    n=$((n + 1))
}
for program in "$bin"/hearth*; do
    check "$program"
done
for command in $("$bin/hearth" --help | sed -n 's/^  \([a-z-]*\)  .*/\1/p'); do
    check "$bin/hearth" "$command"
done
[ "$n" -ge 14 ] || fail "only $n help texts were found"
echo "ok: $n help texts, each within 80 columns"
