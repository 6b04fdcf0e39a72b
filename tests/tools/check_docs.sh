#!/usr/bin/env bash
# Every file of this repository that a README names exists: the targets of links, and names in backticks that have a
# source's suffix or begin with a folder of the top level (`ring.h`, `ipc/ring.{c,h}`, `tests/unit/`). A name may be the
# end of a path. Names with capitals, such as `test_X.c`, stand for others. In `FILE`, `NAME` the file has that name.
set -u
cd "$(dirname "$0")/../.." || exit
files=$(find . \( -path ./build -o -path ./.git \) -prune -o -print | sed 's|^\./||')
suffix='.+\.(c|h|cu|md|sh|awk|in|mk|lua|py|gguf|service|socket|conf)'
folder='(daemon|client|kernels|ipc|tests|systemd)/.*'
bad=0 seen=0
missing() {
    echo "$page: there is no $1"
    bad=1
}

while read -r page; do
    here=$(dirname "$page")
    while read -r target; do
        seen=$((seen + 1))
        [ -e "$here/$target" ] || missing "$target"
    done < <(grep -oE '\]\([^)]+' "$page" | cut -c3- | grep -v :// | sed 's|#.*||' | grep .)
    # shellcheck disable=SC2016 # backticks, not a command
    for name in $(grep -oE '`[^`]+`' "$page" | tr -d '`' | tr ' ' '\n' | grep -xE '[a-z0-9_./*{},-]+(README|NUMERICS)?[a-z.]*' |
                  grep -xE "$suffix|$folder" | grep -vE '^(build|/)' | sort -u); do
        for one in $(set -f; eval "echo $name"); do # {a,b}: each of them
            seen=$((seen + 1))
            pattern=$(sed 's|/$||; s|\.|\\.|g; s|\*|[^/]*|g' <<<"$one")
            grep -qE "(^|/)$pattern\$" <<<"$files" || missing "$one"
        done
    done
    # shellcheck disable=SC2016
    while read -r file name; do
        [ ! -e "$file" ] || grep -qw "$name" "$file" || missing "$name in $file"
    done < <(grep -oE '`[a-z0-9_./]+\.[ch]`, `[a-z0-9_]+`' "$page" | tr -d '`,')
done < <(grep '\.md$' <<<"$files")
[ $bad -eq 0 ] && echo "ok: $seen files that READMEs name are there"
exit $bad
