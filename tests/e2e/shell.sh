#!/usr/bin/env bash
# Completions and widgets in real shells: what Tab offers is compared with --help of each program, in
# bash, zsh and fish; the widgets run in interactive bash and zsh on a pseudo-terminal, with a fake
# hearth that imitates models and daemons, and with a real daemon.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
bin=$PWD/${BUILD:-build}/bin
shell=$PWD/client/shell
pty=$PWD/tests/e2e/shell_pty.py
work=$(mktemp -d)
daemon=
# shellcheck disable=SC2317 # called by the trap
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
export PATH=$bin:$PATH
unset HEARTH_SOCKET
fail() { echo "$*" >&2; exit 1; }

has() { # PROGRAM: is it there? Else says so.
    command -v "$1" >/dev/null || { echo "skip: $2: $1 is not installed"; return 1; }
}

# ---- completions --------------------------------------------------------------------------------

programs=$(cd "$bin" && ls | grep -E '^hearth' | grep -vx hearth)
commands=$(hearth --help | sed -n 's/^  \([a-z-]*\)  .*/\1/p')
[ "$(echo "$commands" | wc -w)" -ge 6 ] && echo "$programs" | grep -x hearthd >/dev/null

options() { "$@" --help | grep -oE '^ +(-[a-z], )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+'; echo --help; }

# Lines that end where Tab is pressed, then a tab and the words that must be offered; no other words with
# a leading dash may be.
{
    printf 'hearth \t%s\n' "$(echo "$commands" | tr '\n' ' ')"
    for command in $commands; do
        printf 'hearth %s --\t%s\n' "$command" "$(options hearth "$command" | sort -u | tr '\n' ' ')"
    done
    for program in $programs; do
        printf '%s --\t%s\n' "$program" "$(options "$program" | sort -u | tr '\n' ' ')"
    done
    printf 'hearth run --priority \tinteractive batch\n'
    printf 'hearth run --priority=b\tbatch\n'
    printf 'hearthd --device \tauto cpu cuda\n'
    printf 'hearth-bench --isa \tref avx2 avxvnni avx512\n'
    printf 'hearth-mkmodel --shape \ttiny small qwen2.5-0.5b\n'
    printf 'hearth-mkmodel --type Q4\tQ4_0 Q4_K_S Q4_K_M\n'
    printf 'hearth-mkmodel --shape llama-3\tllama-3.2-1b llama-3.1-8b\n'
    printf 'hearth chat --template m\tmistral minicpm megrez\n'
    printf 'hearth chat --template %s/\tone.gguf text.txt folder\n' "$work/files"
    printf 'hearth tokenize --model %s/\tone.gguf folder\n' "$work/files"
    printf 'hearth run --file %s/\tone.gguf text.txt folder\n' "$work/files"
    printf 'hearth replay %s/\tone.gguf text.txt folder\n' "$work/files"
} >"$work/wanted"
mkdir -p "$work/files/folder"
touch "$work/files/one.gguf" "$work/files/text.txt"

# OFFERED holds a line for each of WANTED: "LINE<tab>WORDS".
compare() { # SHELL OFFERED
    local line words word offered n=0
    while IFS=$'\t' read -r line words; do
        offered=" $(awk -F'\t' -v line="$line" '$1 == line { print $2 }' "$2" | tr '/' ' ') "
        for word in $words; do
            # A sole candidate is inserted: then the end of the line shows it.
            [[ $offered == *[\ =]"$word"\ * ]] || fail "$1: <$line>: $word is not offered:$offered"
        done
        if [[ $line == *-- ]]; then
            for word in $(grep -oE '(^| )--[a-z0-9-]+' <<<"$offered"); do
                [[ $word == -- || " $words " == *" $word "* ]] || fail "$1: <$line>: $word is offered"
            done
        fi
        [[ $offered != *[\ =]NAME\ * && $offered != *[\ =]FILE\ * ]] || fail "$1: <$line>: NAME or FILE is offered as a word"
        [[ $line != *tokenize* || $offered != *text.txt* ]] || fail "$1: a text where a model belongs"
        n=$((n + 1))
    done <"$work/wanted"
    echo "  $1: $n places, each with the words of --help"
}

if has bash completions; then
    cat >"$work/bash.sh" <<'END'
source "$1/hearth.bash"
while IFS=$'\t' read -r line _; do
    read -ra COMP_WORDS <<<"${line/=/ = }"
    [[ $line != *' ' ]] || COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    function=$(complete -p "${COMP_WORDS[0]}" | sed 's/.*-F \([^ ]*\).*/\1/')
    "$function" "${COMP_WORDS[0]}"
    printf '%s\t%s\n' "$line" "${COMPREPLY[*]}"
done
END
    bash "$work/bash.sh" "$shell" <"$work/wanted" >"$work/bash"
    compare bash "$work/bash"
fi
if has fish completions; then
    for program in hearth $programs; do
        cp "$shell/hearth.fish" "$work/$program.fish"
        echo "source $work/$program.fish" >>"$work/all.fish"
    done
    cat >>"$work/all.fish" <<'END'
while read -l line
    set -l typed (string split -f 1 \t -- $line)
    printf '%s\t' $typed
    complete -C $typed | string replace -r '\t.*' '' | string join ' '
    or echo
end
END
    HOME=$work fish --no-config "$work/all.fish" <"$work/wanted" >"$work/fish"
    compare fish "$work/fish"
fi
if has zsh completions && has python3 "zsh's completions"; then
    cut -f 1 "$work/wanted" | tr '\n' '\0' | HOME=$work xargs -0 python3 "$pty" complete zsh "$shell" >"$work/zsh"
    compare zsh "$work/zsh"
fi
if has python3 "bash's completions at the keyboard"; then
    python3 "$pty" complete bash "$shell" 'hearth run --prio' >"$work/keyboard"
    grep -q -- '--priority' "$work/keyboard" || { cat "$work/keyboard"; fail 'bash: Tab does nothing'; }
fi

# ---- widgets ------------------------------------------------------------------------------------

mkdir "$work/fake"
cat >"$work/fake/hearth" <<'END'
#!/bin/sh
echo start >>"$FAKE_LOG"
printf '%s|' "$@" >>"$FAKE_LOG.arguments"
cat >"$FAKE_LOG.prompt"
mode=$(cat "$FAKE_MODE")
case $mode in
answer*) printf '%s' "${mode#answer }" ;;
lines) printf '\n```bash\n$ touch one\ntouch two\n```\n' ;;
nasty) printf 'echo \033[31mred\007 a\342\200\256b\302\233\tc\302\255\343\205\244\363\240\201\201\363\240\204\200\357\276\240\r\n' ;;
down) echo 'hearth: no daemon there: start hearthd' >&2; exit 69 ;;
slow)
    trap 'echo interrupted >>"$FAKE_LOG"; exit 130' INT
    echo sleeping >>"$FAKE_LOG"
    for _ in $(seq 300); do sleep 1; done ;;
esac
END
chmod +x "$work/fake/hearth"

"$bin/hearthd" --model daemon/models/hearth-code-5m-f16.gguf --socket "$work/socket" --threads 1 2>"$work/log" &
daemon=$!
for _ in $(seq 600); do
    HEARTH_SOCKET=$work/socket hearth status >/dev/null 2>&1 && break
    sleep 0.1
done

for which in bash zsh; do
    has $which "the widget in $which" && has python3 "the widget in $which" || continue
    echo "  the widget in $which:"
    rm -f "$work"/fake.log*
    PATH=$work/fake:$PATH FAKE_LOG=$work/fake.log FAKE_MODE=$work/mode HOME=$work \
        python3 "$pty" widget $which "$shell/hearth-widget.$which"
    for words in '--temperature|0|' '--slot|widget-' "--stop|
|"; do
        [[ $(cat "$work/fake.log.arguments") == *"$words"* ]] || fail "$which: hearth was not given $words"
    done
    grep -qx 'Task: another key' "$work/fake.log.prompt" || fail "$which: the description is not in the prompt"
    HEARTH_SOCKET=$work/socket HOME=$work python3 "$pty" real $which "$shell/hearth-widget.$which"
done
echo 'ok: completions and widgets in the installed shells'
