#!/usr/bin/env bash
# Style: clang-format must have nothing to change; clang-tidy says what it dislikes (see .clang-tidy).
# Usage: lint.sh [FILE...]; without files, everything that git tracks.
set -u
cd "$(dirname "$0")/../.." || exit
tests/tools/deps.sh clang-format clang-tidy || exit $?
[ $# -gt 0 ] || mapfile -t files < <(git ls-files '*.c' '*.h')
[ $# -eq 0 ] || files=("$@")
bad=0
clang-format --dry-run -Werror "${files[@]}" 2>/tmp/hearth-format.$$ || bad=1
grep -E 'error:' /tmp/hearth-format.$$ | cut -d: -f1 | sort | uniq -c | sed 's/^/clang-format: lines, file: /'
rm -f /tmp/hearth-format.$$
for file in "${files[@]}"; do
    case $file in
    *.h | tests/unit/* | tests/e2e/test_* | tests/cudasim/test_*) continue ;; # Check's macros are not ours
    kernels/cuda/*.c | tests/cudasim/*.c) simd='-DHEARTH_CUDASIM -isystem tests/cudasim/include' ;; # no toolkit needed
    kernels/cpu/simd/pack.c) simd='-DLANES_ROWS=4 -DPACK_GROUP=pack_group_any' ;;
    *_avx2.c | kernels/cpu/simd/attend.c | kernels/cpu/simd/matmul.c | kernels/cpu/simd/ops.c) simd='-mavx2 -mfma -mf16c' ;;
    *_avxvnni.c) simd='-mavx2 -mfma -mf16c -mavxvnni' ;;
    *_avx512.c) simd='-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c' ;;
    *) simd= ;;
    esac
    # shellcheck disable=SC2086
    clang-tidy --quiet "$file" -- -std=gnu11 -I. -D_GNU_SOURCE -DHEARTH_VERSION='"lint"' $simd 2>/dev/null |
        grep -E 'warning:|error:' && bad=1
done
[ $bad -eq 0 ] && echo "ok: nothing to say"
exit $bad
