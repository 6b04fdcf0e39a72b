#!/usr/bin/env bash
# tests/gpu/run.sh, rehearsed without a GPU: the simulator's plugin and small programs replace driver, compiler and
# the long tests. A GPU machine may be available only once: when one stage fails there, the others must run, the failure must
# be named, and the table must come last.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
root=$PWD
build=$root/${BUILD:-build}
[ -f "$build/tests/cudasim/hearth-cuda.so" ] || { echo "skip: no simulator (g++), tests/gpu/run.sh is not tested"; exit 0; }
case $build in *asan | *tsan) echo "skip: sanitizers do not follow the simulator's threads"; exit 0 ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
die() { echo "$*"; sed 's/^/    /' "$work/out"; exit 1; }

# ---- a machine -----------------------------------------------------------------------------------------------------------

program() { # PATH, its text on stdin
    mkdir -p "$(dirname "$1")"
    rm -f "$1"
    { echo '#!/bin/sh'; cat; } >"$1"
    chmod +x "$1"
}

# A tree whose make copies from $work/made; a driver, a compiler and a sanitizer on the PATH.
fresh_machine() {
    local made=$work/made name
    rm -rf "$tree" "$made" "$work/bin" "$work/kept" "$work/results"
    mkdir -p "$tree"/tests/{e2e,rig} "$tree/ipc" "$tree/kernels" "$tree/client" "$made/bin" "$made/lib/hearth" "$made/tests/e2e"
    ln -s "$root/tests/gpu" "$tree/tests/gpu"
    ln -s "$root/daemon" "$tree/daemon"
    printf 'build/gpu/%%:\n\tmkdir -p $(@D) && cp -P %s/$* $@\n' "$made" >"$tree/Makefile"
    ln -s "$build/tests/cudasim/hearth-cuda.so" "$made/lib/hearth/hearth-cuda.so"
    for name in hearth hearth-mkmodel; do ln -s "$build/bin/$name" "$made/bin/$name"; done
    program "$work/bin/nvidia-smi" <<<'echo "NVIDIA H100 80GB HBM3, 580.159.04, 81559 MiB, 9.0"'
    program "$work/bin/nvcc" <<<'echo "Cuda compilation tools, release 13.0, V13.0.88"'
    program "$work/bin/compute-sanitizer" <<<'while [ "${1%contract}" = "$1" ]; do shift; done; "$@"'
    program "$work/bin/gcc" <<<'[ "$1" = -dumpfullversion ] && echo 12.2.0 || cat' # has every header
    # The simulator runs one quick test; the others only record how they were called.
    program "$made/tests/gpu/contract" <<END
[ "\$1" != --list ] || { printf 'first\nsecond\n'; exit; }
echo "\$1" >>$work/tests
[ "\$1" != second ] || exec $build/tests/gpu/contract a_missing_cublas_is_reported
echo "ok: \$1"
END
    # The lines of a bench on the CPU, which has no launches and no windows of 64 rows.
    program "$made/bin/hearth-bench" <<END
echo "\$*" >>$work/benches
case "\$*" in "--device cuda --json --model $work/hearth-gpu-"*.gguf\ *) ;; *) exit 64 ;; esac
case "\$*" in
*--batches*--windows*) cat $work/lines ;;
*--batches*) grep -v '"window"' $work/lines ;;
*) grep -v '"window"\|"decode".*"slots":4,' $work/lines ;;
esac
END
    program "$made/bin/hearthd" <<END
[ "\$1" != --version ] || exit 0
[ "\$1" = --device ] && shift 2 && exec $build/bin/hearthd --device cpu --threads 1 "\$@"
END
    program "$made/tests/e2e/test_determinism" <<<'echo "ok: $HEARTH_DETERMINISM_TYPE on $HEARTH_DETERMINISM_DEVICE"; echo 100%'
    : >"$work/tests"
    : >"$work/benches"
}

# The script, its output in $work/out.
start() { # VARIABLE=VALUE...
    env PATH="$work/bin:$PATH" REHEARSAL=1 OUT="$work/kept" MODELS="$work" "$@" "$tree/tests/gpu/run.sh" "$work/results" \
        >"$work/out" 2>&1 &
    script=$!
}
ends() { # EXIT
    local code=0
    wait $script || code=$?
    [ $code -eq "$1" ] || die "exit $code, not $1"
}
said() { local line; for line in "$@"; do grep -qE -- "^$line" "$work/results/table.txt" || die "not in the table: $line"; done; }
unsaid() { ! grep -qE -- "$1" "$work/results/table.txt" || die "in the table: $1"; }
# The table is printed last and kept in both folders, and no models remain.
ends_well() { # EXIT
    ends "$1"
    tail -n "$(wc -l <"$work/results/table.txt")" "$work/out" | cmp -s - "$work/results/table.txt" || die "the table is not last"
    cmp -s "$work/kept/summary.txt" "$work/results/table.txt" || die "the summary differs from the table"
    tar -tzf "$work/kept/results.tar.gz" >"$work/list"
    grep -qx 'logs/table' "$work/list" && grep -qx 'results/table.txt' "$work/list" || die "logs and results are not kept"
    ! ls -d "$work"/hearth-gpu-* 2>/dev/null || die "models remain"
}

# ---- everything works -----------------------------------------------------------------------------------------------------------

"$build/bin/hearth-mkmodel" --shape tiny --type Q8_0 "$work/tiny.gguf"
{
    echo '{"what":"start","start_us":12.5}'
    "$build/bin/hearth-bench" --json --model "$work/tiny.gguf" -t 1 -p 8 -n 2 -b 4 --batches --windows -r 1
} | sed 's/"rows":12,/"rows":64,/' >"$work/lines"
fresh_machine
start
ends_well 0
said 'NVIDIA H100 80GB HBM3, 580.159.04, 81559 MiB, sm_90' 'ok +build: .*release 13.0' 'ok +contract: 2 of 2' \
    'ok +determinism-Q8_0: ok: Q8_0 on cuda' 'ok +determinism-BF16: ok' 'ok +daemon-hearth-code-5m-f16: 2 tokens' \
    'ok +daemon-code-q8_0: 2 tokens' 'ok +memcheck-a_row_samples: ok: a_row' 'ok +racecheck-a_row_samples: ok: a_row'
for of in tiny:Q4_0 tiny:BF16; do
    said "$of  +1: [0-9.]+ ms [0-9]+ %  4: .*GB/s  w64 [0-9.]+ x  w16 [0-9.]+ x  prefill [0-9]+ tok/s, first [0-9.]+ ms  start 12.5 us" \
        "$of native +1: " "$of p4 " "$of p16 "
done
said 'tiny:Q4_0 half on CPU +1: '
unsaid 'FAILED|skip|portable'
[ "$(grep -c -- '--gpu-bytes 3500000000' "$work/benches")" -eq 1 ] || die "benches with experts on the CPU: $(cat "$work/benches")"
[ "$(grep -E 'first|second' "$work/tests" | sort | tr '\n' '.')" = 'first.second.' ] ||
    die "tests are not run once each: $(cat "$work/tests")"
[ "$(grep -c -- '-p 16 .*--numerics native' "$work/benches")" -eq 2 ] || die "native benches: $(cat "$work/benches")"
[ "$(grep -c '"run":"tiny:Q4_0 native"' "$work/results/bench.jsonl")" -eq 4 ] || die "lines of the bench"

# ---- every stage fails in its own way --------------------------------------------------------------------------------------

fresh_machine
portable=$tree/build/portable
mkdir -p "$portable/tests/gpu"
mv "$work/made/tests/gpu/contract" "$portable/tests/gpu/contract" # which cannot be built here, but was elsewhere
"$tree/tests/gpu/sources.sh" >"$portable/sources"
sed -i 's/^echo "ok: /[ "$1" != first ] || { echo "first: line 77: row 3 differs"; kill -SEGV $$; }\n&/' "$portable/tests/gpu/contract"
program "$work/bin/compute-sanitizer" <<<'echo "========= Invalid __global__ read of size 4"; echo "========= 1 error"; exit 9'
program "$work/made/tests/e2e/test_determinism" <<<'echo "an answer differs"; exit 1'
sed -i '/windows\*) cat/s/;;/; echo "hearth-bench: illegal address"; exit 71 ;;/' "$work/made/bin/hearth-bench"
program "$work/made/bin/hearthd" <<<'[ "$1" = --version ] || { echo "hearthd: no such GPU"; exit 71; }'
program "$work/made/bin/hearth-mkmodel" <<END
case "\$*" in *--type\ Q4_0*) echo "hearth-mkmodel: no space"; exit 73 ;; esac
exec $build/bin/hearth-mkmodel "\$@"
END
start
ends_well 1
said 'FAILED +build' ' +tests/gpu/contract is that of build/portable$' 'FAILED +contract-first \(exit 139\): first: line 77: row 3' \
    ' +contract: 1 of 2 tests' 'FAILED +determinism-Q8_0 \(exit 1\): an answer differs' \
    'FAILED +daemon-hearth-code-5m-f16 .*no such GPU' 'FAILED +memcheck-a_row_samples \(exit 9\): .*Invalid __global__' \
    'FAILED +racecheck' 'skip +tiny:Q4_0: it could not be written: hearth-mkmodel: no space' 'tiny:BF16  +1: ' \
    'FAILED +tiny:BF16 \(exit 71\): hearth-bench: illegal address' \
    'tiny:BF16 native +1: ' 'tiny:BF16 p16 '

# ---- no compiler, no time, one stage, an end from outside, no GPU ------------------------------------------------------------

rm -rf "$tree/build/gpu"
start SECONDS_LEFT=0
ends_well 1
said 'skip +build: no time left' 'FAILED +there is no hearth-cuda.so'
unsaid '^ok'

fresh_machine
for name in lib/hearth/hearth-cuda.so tests/gpu/contract bin/hearth-bench bin/hearth-mkmodel; do
    make -s -C "$tree" "build/gpu/$name"
done
start STAGES="contract bench" SECONDS_LEFT=3
ends_well 0
said 'skip +contract: no time left for 2 of 2' 'skip +no time left for .*tiny:BF16'
unsaid 'build|memcheck|determinism'

program "$tree/build/gpu/tests/gpu/contract" <<<'[ "$1" != --list ] || { seq 10; exit; }; echo "skip: no device"; exit 77'
start STAGES=contract
ends_well 1
said 'FAILED +contract-1 \(exit 77\): skip: no device' 'FAILED +contract-8' 'FAILED +contract: 2 more tests'
unsaid contract-9

program "$tree/build/gpu/tests/gpu/contract" <<END
[ "\$1" != --list ] || { echo second; exit; }
echo \$\$ >$work/begun
exec sleep 1000
END
start STAGES=contract
for _ in $(seq 600); do [ ! -s "$work/begun" ] || break; sleep 0.1; done
kill $script
ends_well 143
said 'FAILED +run.sh: it was ended'
for _ in $(seq 600); do kill -0 "$(cat "$work/begun")" 2>/dev/null || break; sleep 0.1; done
! kill "$(cat "$work/begun")" 2>/dev/null || die "a test process remains"

mkdir -p "$portable"
echo other >"$portable/sources"
mv "$tree/build/gpu/lib" "$portable/lib"
start STAGES=none
ends_well 0
said ' +lib/hearth/hearth-cuda.so is that of build/portable, OF OTHER SOURCES'

program "$work/bin/nvidia-smi" <<<'echo "NVIDIA-SMI has failed"; exit 9'
start
ends 69
grep -qx 'run.sh: nvidia-smi names no GPU: NVIDIA-SMI has failed' "$work/out" || die "not said"
echo "ok: tests/gpu/run.sh"
