#!/usr/bin/env bash
# The dependency direction: client -> ipc <- daemon -> kernels. ipc and kernels do not know each other,
# no folder includes tests, and io_uring is used in daemon/ only. Two exceptions: the CLI reads GGUF
# vocabularies, through the leaf headers kernels/gguf/gguf.h and kernels/gguf/gguf_vocab.h, and the programs in
# kernels/tools read their options with ipc/options.h. And the top level has the folders and files that it was
# given, and no others.
set -u
cd "$(dirname "$0")/../.." || exit
bad=0
refuse() { # FOLDER PATTERN WHY
    local found
    found=$(grep -rnE "^ *# *include +[\"<]($2)" "$1" --include='*.[ch]' --include='*.cu' ${4:+--exclude-dir=$4})
    [ -z "$found" ] || { echo "$3:"; echo "$found"; bad=1; }
}
refuse ipc     '(kernels|daemon|client|tests)/' 'ipc includes what it must not know'
refuse kernels '(daemon|client|tests)/'         'kernels includes what it must not know'
refuse kernels 'ipc/'                           'kernels includes what it must not know' tools
refuse daemon  '(client|tests)/'                'daemon includes what it must not know'
refuse client  '(daemon|tests)/'                'client includes what it must not know'
refuse client  'kernels/'                       'the client library includes kernels' cli
refuse ipc     'liburing'                       'io_uring outside daemon/'
refuse kernels 'liburing'                       'io_uring outside daemon/'
tools=$(grep -nE '^#include "ipc/' kernels/tools/*.[ch] | grep -vF '"ipc/options.h"')
[ -z "$tools" ] || { echo "of ipc the tools may include options.h only:"; echo "$tools"; bad=1; }
cli=$(grep -nE '^#include "kernels/' client/cli/*.c 2>/dev/null | grep -vE 'kernels/gguf/(gguf|gguf_vocab)\.h')
[ -z "$cli" ] || { echo "the CLI may include kernels/gguf/gguf.h and gguf_vocab.h only:"; echo "$cli"; bad=1; }
relative=$(grep -rnE '^#include "[^/"]+"' ipc kernels daemon client tests --include='*.[ch]')
[ -z "$relative" ] || { echo 'includes are root-relative (#include "ipc/ring.h"):'; echo "$relative"; bad=1; }
stray=$(git ls-files 2>/dev/null | cut -d/ -f1 | sort -u |
    grep -vxE 'daemon|client|kernels|ipc|tests|systemd|Makefile|README\.md|CONTRIBUTING\.md|SECURITY\.md|LICENSE|\..*')
[ -z "$stray" ] || { echo "not of the top level:"; echo "$stray"; bad=1; }
[ "$bad" -eq 0 ] && echo 'ok: folders depend on each other as the design says'
exit "$bad"
