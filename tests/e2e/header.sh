#!/usr/bin/env bash
# The public header alone: clean in C99, C11 and C++, the example in it compiles and runs against the shared
# library, and the library exports its names and no others.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp client/hearth.h "$work"
cd "$work"
lib=$OLDPWD/$build/lib

printf '#include "hearth.h"\nint main(void) { return 0; }\n' > use.c
for standard in c99 c11; do
    gcc -std=$standard -Wall -Wextra -Wstrict-prototypes -pedantic -Werror -c use.c -o use.o
done
if command -v g++ > /dev/null; then
    g++ -x c++ -std=c++11 -Wall -Wextra -pedantic -Werror -c use.c -o use.o
else
    echo "skip: no g++, the header was not tested in C++"
fi

# The lines of the header's example are those of its first comment that are indented.
{
    printf '#include "hearth.h"\n#include <stdio.h>\n#include <string.h>\nint main(void)\n{\n'
    sed -n '1,/\*\//p' hearth.h | sed -n 's/^ \*   \( *[^ ].*\)$/\1/p' | sed -n '/struct hearth \*h;/,$p'
    printf 'return 0;\n}\n'
} > example.c
grep -q hearth_next example.c
gcc -std=c11 -Wall -Wextra -Werror example.c -L"$lib" -lhearth -o example
case $(nm -D --undefined-only "$lib/libhearth.so" | grep -c -E "__(asan|tsan)_init" || true) in
0)
    # Without a daemon it prints one line and exits with 1.
    if HEARTH_SOCKET=$work/none LD_LIBRARY_PATH=$lib ./example 2> error; then
        echo "the example found a daemon where there is none" >&2
        exit 1
    fi
    grep -q '^no daemon at .*: start one with hearthd --model FILE$' error
    ;;
*) echo "skip: a sanitizer's library does not load into a plain program" ;;
esac

others=$(nm -D --defined-only "$lib/libhearth.so" | awk '$2 ~ /[TDBR]/ && $3 !~ /^hearth_/ { print $3 }')
if [ -n "$others" ] && ! nm -D --undefined-only "$lib/libhearth.so" | grep -E '__(asan|tsan)_' >/dev/null; then
    echo "exported without being public: $others" >&2
    exit 1
fi
declared=$(grep -c '^HEARTH_API' hearth.h)
exported=$(nm -D --defined-only "$lib/libhearth.so" | grep -c ' T hearth_')
[ "$declared" -eq "$exported" ] || { echo "$declared declared, $exported exported" >&2; exit 1; }
echo "ok: header and example, $exported names exported"
