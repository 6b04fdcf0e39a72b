#!/usr/bin/env bash
# make install puts everything in its place under DESTDIR, the pkg-config file works, and the units are what systemd
# accepts, closed to what hearth does not need.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

make --no-print-directory -s BUILD="$build" PREFIX="$root/usr" install >/dev/null
units=$root/usr/lib/systemd
for file in bin/hearthd bin/hearth bin/hearth-bench bin/hearth-mkmodel bin/hearth-http \
            share/man/man1/hearth-bench.1 share/man/man1/hearth-mkmodel.1 lib/libhearth.so.0 lib/libhearth.so include/hearth.h \
            lib/pkgconfig/hearth.pc share/man/man1/hearth.1 share/man/man8/hearthd.8 share/man/man8/hearth-http.8 \
            lib/sysusers.d/hearth.conf lib/tmpfiles.d/hearth.conf etc/hearth/hearthd.conf \
            lib/systemd/{system,user}/{hearthd,hearth@,hearth-http}.{service,socket}; do
    [ -e "$root/usr/$file" ] || { echo "make install left out $file"; exit 1; }
done
if grep -rn '@[A-Z]*@' "$units" "$root/usr/lib/pkgconfig" "$root/usr/etc"; then
    echo "a placeholder was not filled in"; exit 1
fi

cat >"$root/use.c" <<'C'
#include <hearth.h>
int main(void) { struct hearth_options o; hearth_options_init(&o, sizeof(o)); return o.size == 0; }
C
flags=$(PKG_CONFIG_PATH=$root/usr/lib/pkgconfig pkg-config --cflags --libs hearth)
case $build in
*asan | *tsan) ;; # the library needs the sanitizer's runtime in the program
*)
    # shellcheck disable=SC2086
    ${CC:-gcc} -Wall -Wextra -Werror -std=c11 "$root/use.c" -o "$root/use" $flags
    LD_LIBRARY_PATH=$root/usr/lib "$root/use"
    if command -v g++ >/dev/null; then
        # shellcheck disable=SC2086
        g++ -Wall -Wextra -Werror -x c++ "$root/use.c" -o "$root/use" $flags
    fi ;;
esac

# What the daemon is told at its first start is what it understands.
"$build/bin/hearthd" --check --config "$root/usr/etc/hearth/hearthd.conf" >/dev/null

if ! command -v systemd-analyze >/dev/null; then
    echo "skip: systemd-analyze is not installed, units are not verified"
    echo "ok: installed files are complete and usable"
    exit 0
fi

# The units name programs that are there, as PREFIX was this folder. Other units' troubles are not ours. An instance
# stands for each template.
for scope in system user; do
    for unit in "$units/$scope"/*@.*; do
        [ "${unit%.d}" != "$unit" ] || cp "$unit" "${unit%@.*}@one.${unit##*.}"
    done
done
out=$({ systemd-analyze --man=no --recursive-errors=no verify "$units"/system/*.{service,socket}
        systemd-analyze --man=no --recursive-errors=no --user verify "$units"/user/*.{service,socket}; } 2>&1 || true)
if grep -E 'hearth' <<<"$out"; then echo "systemd-analyze does not like a unit"; exit 1; fi

# What is left open of a service of the machine, of 10. Under 2 is what systemd calls OK.
exposure() { # NAME MOST
    local out
    out=$(systemd-analyze --no-pager security --offline=true --threshold="${2/./}" "$units/system/$1" 2>&1) ||
        { echo "$out"; echo "$1 is open to more than $2"; exit 1; }
    tail -n 1 <<<"$out"
}
for unit in hearthd.service hearth@one.service hearth-http.service; do
    exposure $unit 1.0
done
cat "$units/system/hearthd.service" systemd/cuda.conf >"$units/system/hearthd-with-cuda.service"
exposure hearthd-with-cuda.service 1.0
sed 's/ADDRESSES/203.0.113.7 localhost/' "$units/system/hearth-http.service" "$root/usr/share/hearth/upstream.conf" \
    >"$units/system/hearth-http-upstream.service"
exposure hearth-http-upstream.service 1.0
echo "ok: installed files are complete and usable, the units are closed"
