#!/usr/bin/env bash
# make install puts everything in its place under DESTDIR, the pkg-config file works, and the units are
# what systemd accepts.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

make --no-print-directory -s BUILD="$build" PREFIX="$root/usr" install >/dev/null
for file in bin/hearthd bin/hearth bin/hearth-bench bin/hearth-mkmodel \
            share/man/man1/hearth-bench.1 share/man/man1/hearth-mkmodel.1 lib/libhearth.so.0 lib/libhearth.so include/hearth.h \
            lib/pkgconfig/hearth.pc share/man/man1/hearth.1 share/man/man8/hearthd.8 \
            lib/systemd/system/hearthd.service lib/systemd/system/hearthd.socket \
            lib/systemd/user/hearthd.service lib/systemd/user/hearthd.socket; do
    [ -e "$root/usr/$file" ] || { echo "make install left out $file"; exit 1; }
done
if grep -rn '@[A-Z]*@' "$root/usr/lib/systemd" "$root/usr/lib/pkgconfig"; then
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
        g++ -Wall -Wextra -Werror -x c++ "$root/use.c" -o "$root/use" $flags
    fi ;;
esac

if command -v systemd-analyze >/dev/null; then
    # The units name programs that are there, as PREFIX was this folder. Other units' troubles are not ours.
    out=$({ systemd-analyze --man=no verify "$root"/usr/lib/systemd/system/hearthd.*
            systemd-analyze --man=no --user verify "$root"/usr/lib/systemd/user/hearthd.*; } 2>&1 || true)
    if grep -E 'hearthd\.(service|socket)' <<<"$out"; then echo "systemd-analyze does not like a unit"; exit 1; fi
else
    echo "skip: systemd-analyze is not installed, units are not verified"
fi
echo "ok: installed files are complete and usable"
