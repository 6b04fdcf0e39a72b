#!/usr/bin/env bash
# Manual pages: complete (every function of the header, every key of the configuration file), found by
# name, and without warnings from the programs that read them.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*" >&2; exit 1; }
pages=("$build"/man/*.[0-9] client/man/*.1 client/http/*.8 daemon/*.8 kernels/tools/*.1)

# The exported functions, from the library itself.
functions=$(nm -D --defined-only "$build/lib/libhearth.so.0" | awk '$2 == "T" { print $3 }')
[ "$(echo "$functions" | wc -l)" -ge 15 ] || fail "the library has no functions: $functions"
for function in $functions; do
    grep -q "^\\\\fB.*$function(" "$build/man/libhearth.3" || fail "libhearth.3 does not describe $function"
    sed -n '/^.SH NAME/,/^.SH SYN/p' "$build/man/libhearth.3" | grep -w "$function" >/dev/null || fail "$function is not a name of libhearth.3"
done
for key in $("$build/bin/hearthd" --help | sed -n 's/^  --\([a-z-]*\) .*/\1/p' | grep -vxE 'config|check|describe|version|help'); do
    grep -q "^\.BI ${key//-/\\\\-} \" = " "$build/man/hearthd.conf.5" || fail "hearthd.conf.5 has no $key"
    # Every key of the page exists: the daemon then reports the missing model, not the key.
    printf '%s =\n' "$key" >"$work/conf"
    "$build/bin/hearthd" --config "$work/conf" --check 2>&1 | grep "no option is called" >/dev/null && fail "$key is not an option"
done

# Installed, each function has its own page.
make --no-print-directory -s BUILD="$build" CUDA=0 DESTDIR="$work/root" PREFIX=/usr install >/dev/null
for function in $functions; do
    [ -e "$work/root/usr/share/man/man3/$function.3" ] || fail "man 3 $function finds nothing"
done

for page in "${pages[@]}"; do
    if command -v man >/dev/null; then
        complaints=$(LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$page" 2>&1 >/dev/null)
        [ -z "$complaints" ] || fail "$page: $complaints"
    fi
    if command -v lexgrog >/dev/null; then
        lexgrog "$page" >/dev/null || fail "$page: whatis finds no name in it"
    fi
    if command -v mandoc >/dev/null; then
        complaints=$(mandoc -T lint -W warning "$page" || true)
        [ -z "$complaints" ] || fail "$complaints"
    fi
done
command -v man >/dev/null || echo "skip: warnings of man: man is not installed"
command -v mandoc >/dev/null || echo "skip: warnings of mandoc: mandoc is not installed"
echo "ok: ${#pages[@]} manual pages, $(echo "$functions" | wc -l) functions"
