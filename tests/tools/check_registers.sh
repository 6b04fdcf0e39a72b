#!/usr/bin/env bash
# Registers of each kernel of the CUDA backend, and bytes that it spills, as nvcc counted them in a build (the Makefile
# keeps its words beside the objects): are they those of kernels/cuda/registers.txt? Compared is what was built.
# Usage: BUILD=build tests/tools/check_registers.sh [--write]   --write: the table gets what was built
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."
table=kernels/cuda/registers.txt
shopt -s nullglob
build=${BUILD:-build}
logs=("$build"/obj/kernels/cuda/device/*.cu.log)
[ ${#logs[@]} -gt 0 ] || { echo "skip: hearth-cuda.so was not built: its registers are not compared"; exit 0; }
if [ "${1:-}" != --write ] && ! make -q BUILD="$build" "$build/lib/hearth/hearth-cuda.so" >/dev/null 2>&1; then
    echo "skip: hearth-cuda.so is older than its sources: its registers are not compared"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Lines NAME sm_NN REGISTERS[+BYTES]. A function that kernels call has its caller's registers: the bytes alone. Names are
# the source's; one that two objects have begins with its object's.
awk '
    FNR == 1 { object = FILENAME; gsub(/.*\/|\.cu\.log/, "", object) }
    /Compiling entry function/ { arch = $NF; gsub("\047", "", arch); kernel = $7; gsub("\047", "", kernel) }
    /Function properties for/ { of = $NF }
    /bytes spill stores/ { spilled[of " " arch] = $5; object_of[of " " arch] = object }
    /Used [0-9]+ registers/ { registers[kernel " " arch] = $5 }
    END {
        for (of in spilled) {
            own = of in registers ? registers[of] : ""
            print object_of[of], of, own (own == "" || spilled[of] > 0 ? "+" spilled[of] : "")
        }
    }
' "${logs[@]}" | c++filt | sed -E '
    s/^([^ ]+) void /\1 /
    s/^([^ ]+) _INTERNAL_[0-9a-f]+_[0-9]+_.*_cu_[0-9a-f]+_[0-9]+::/\1 \1:/
    s/^[^ ]+ //
    s/\([^()]*\) sm_/ sm_/
    s/ sm_90a / sm_90 /
    s/\(matmul_kind\)//g
    s/([0-9])u([,>])/\1\2/g
    s/, /,/g' | sort >"$work/built"

# The same of the table.
awk '$1 == "kernel" { for (i = 2; i <= NF; i++) arch[i] = $i; next }
    !/^#/ { for (i = 2; i <= NF; i++) print $1, arch[i], $i }' "$table" | sort >"$work/table"
archs=$(cut -d ' ' -f 2 "$work/built" | sort -u)
grep -wF "$archs" "$work/table" >"$work/wanted" || true

compiler="nvcc $("${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}" --version | grep -o 'V[0-9.]*$')"
if [ "${1:-}" = --write ]; then
    {
        echo "# Registers of each kernel and, after +, bytes that it spills, as $compiler counts them; a kernel's own alone,"
        echo "# not those of functions that it calls. Compared with each build: tests/tools/check_registers.sh (--write)."
        { grep -vwF "$archs" "$work/table" || true; cat "$work/built"; } | sort | awk '
            { names[$1]; value[$1, $2] = $3; if (!($1 in seen)) { seen[$1]; name[++n] = $1 } }
            function line(first, at,    i, text) {
                text = sprintf("%-30s", first)
                for (i = 1; i <= m; i++)
                    text = text sprintf(" %8s", at == "" ? arch[i] : (at, arch[i]) in value ? value[at, arch[i]] : "-")
                print text
            }
            END {
                m = split("sm_80 sm_86 sm_89 sm_90 sm_100 sm_120", arch)
                line("kernel", "")
                for (k = 1; k <= n; k++) line(name[k], name[k])
            }'
    } >"$work/new"
    cp "$work/new" "$table"
    exit
fi

grep -q "as $compiler counts" "$table" || { echo "skip: $table is of another compiler than $compiler"; exit 0; }
diff -u --label "$table" --label "this build" "$work/wanted" "$work/built" ||
    { echo "registers are others: look why, then tests/tools/check_registers.sh --write"; exit 1; }
# shellcheck disable=SC2086 # on one line
echo "ok: $(wc -l <"$work/built") counts of registers:" $archs
