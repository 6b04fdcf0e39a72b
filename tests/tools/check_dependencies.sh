#!/usr/bin/env bash
# The direction of dependencies: client -> ipc <- daemon -> kernels, and no circle of includes between the folders of one
# of them. The tables below say what may not be included; the top level has the folders and files that it was given.
set -u
cd "$(dirname "$0")/../.." || exit
bad=0
complain() { # WHAT LINES: nothing where there are no lines
    [ -z "$2" ] || { echo "$1:"; echo "$2"; bad=1; }
}

# Lines FILE INCLUDED, with the name as it is written.
includes=$(grep -rE '^ *# *include +["<]' ipc kernels daemon client tests --include='*.[ch]' --include='*.cu' |
    sed -E 's/^([^:]*): *# *include +(["<][^">]*).*/\1 \2/')

# FILES INCLUDED EXCEPT: regular expressions; no file of FILES includes INCLUDED, but for lines that EXCEPT matches.
while read -r files included except; do
    case $files in '' | '#'*) continue ;; esac
    complain "$files must not include $included${except:+ (exception: $except)}" \
        "$(grep -E "^${files}[^ ]* [\"<]$included" <<<"$includes" | grep -vE "${except:-^$}")"
done <<'TABLE'
ipc/            (kernels|daemon|client|tests)/
kernels/        (daemon|client|tests)/
# the tools read their options as all programs do
kernels/        ipc/                            ^kernels/tools/[^ ]* "ipc/options\.h$
daemon/         (client|tests)/
client/         (daemon|tests)/
# the command reads a model's vocabulary
client/         kernels/                        ^client/cli/[^ ]* "kernels/gguf/(gguf|gguf_vocab)\.h$
# io_uring is the daemon's alone
(ipc|kernels)/  liburing
# decisions, without input, output or a clock
daemon/policy/  daemon/(control|engine|model|loop)/
daemon/grammar/ daemon/(control|engine|model|loop|cache|policy)/
# files, under a text's hash: no slot, no device, no client
daemon/store/   (daemon/(control|engine|model|loop|cache|grammar)|kernels/[^b])
kernels/base/   kernels/(gguf|model|quant|sample|cpu|cuda|tools)/
# on its own inputs: a chat template, a vocabulary
client/(jinja|tokenizer|events)/ client/(lib|prompt|schema|cli|http)/
TABLE

complain 'includes are root-relative (#include "ipc/ring.h")' "$(grep -E ' "[^/]+$' <<<"$includes")"

# Folders as nodes (a folder in a folder, such as cpu/simd, is part of it), includes as arrows. Files that lie in a top
# folder itself are its doors (daemon/main.c, kernels/backend.h, client/hearth.h) and are left out.
for top in ipc kernels daemon client; do
    arrows=$(sed -nE "s|^($top/[^/ ]+)/[^ ]* \"($top/[^/]+)/.*|\1 \2|p" <<<"$includes" | awk '$1 != $2' | sort -u)
    circle=$(tsort <<<"$arrows" 2>&1 >/dev/null | sed -n 's/^tsort: \([^ ]*\/[^ ]*\)$/\1/p' | sort -u)
    [ -z "$circle" ] || complain "a circle of includes between folders" "$(
        while read -r from to; do
            grep -qxF "$from" <<<"$circle" && grep -qxF "$to" <<<"$circle" &&
                grep -E "^$from/[^ ]* \"$to/" <<<"$includes" | head -n 3
        done <<<"$arrows")"
done

# The engine's files, a .c and its .h as one: stages above, the parts that they are given below.
arrows=$(sed -nE 's|^daemon/engine/([^/ ]+)\.[ch] "daemon/engine/([^/]+)\.h$|\1 \2|p' <<<"$includes" | awk '$1 != $2' | sort -u)
complain 'a circle of includes inside daemon/engine' "$(tsort <<<"$arrows" 2>&1 >/dev/null | sed -n 's/^tsort: \([a-z_]*\)$/\1/p' | sort -u)"

# Policy is pure: neither a clock, nor files, nor the other folders; headers of words and numbers alone.
complain 'daemon/policy may include only itself, ipc/layout.h, ipc/params.h and headers without input, output or a clock' "$(
    grep -E '^daemon/policy/' <<<"$includes" |
        grep -vE ' ("daemon/policy/|"ipc/(layout|params)\.h$|<(assert|errno|stdbool|stddef|stdint|stdio|stdlib|string)\.h$)')"
complain 'daemon/policy does input or output' "$(grep -nE '\b(v?f?printf|f?puts|fopen|fread|fwrite|perror)\(' daemon/policy/*.[ch])"

complain 'not of the top level' "$(git ls-files 2>/dev/null | cut -d/ -f1 | sort -u |
    grep -vxE 'daemon|client|kernels|ipc|tests|systemd|Makefile|README\.md|CONTRIBUTING\.md|SECURITY\.md|LICENSE|\..*')"
[ "$bad" -eq 0 ] && echo 'ok: folders depend on each other as the design says'
exit "$bad"
