#!/usr/bin/env bash
# hearth-bench from its command line: the documented lines, positive rates, the plots that make bench
# draws of them, and usage errors in one line each. Does not check speed.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
root=$PWD
bin=$PWD/${BUILD:-build}/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
bench() { "$bin/hearth-bench" "$@"; }
field() { sed -n "s/.*\"$1\":\"\\{0,1\\}\\([^,\"}]*\\).*/\\1/p" <<<"$2"; }
positive() { awk "BEGIN { exit !($2 > 0) }" || { echo "$1 is $2"; exit 1; }; }

"$bin/hearth-mkmodel" --shape tiny --type Q8_0 tiny.gguf
for slots in 1 2; do
    bench --model tiny.gguf -p 8 -n 3 -b $slots -t 2 -r 1 --windows --json >>lines
done
bench --model=tiny.gguf -p 16 -n 3 -t1 -r1 --rows 5 --isa ref --json >>lines
bench --model tiny.gguf -p 16 -n 3 -t 1 -r 1 --kv-type q8_0 --json >>lines
[ "$(wc -l <lines)" -eq 26 ]
odd=$'a"\\\001\303\251\377.gguf' # a name that is not valid JSON is shown without its odd bytes
ln -s tiny.gguf "$odd"
bench --model "$odd" -p 2 -n 1 -r 1 --json | grep '"model":"a??????.gguf"' >odd
[ "$(wc -l <odd)" -eq 3 ] || { echo "a name that is not valid JSON"; cat odd; exit 1; }
for what in load prefill decode; do
    [ "$(grep -c "\"what\":\"$what\"" lines)" -eq 4 ] || { echo "lines of $what"; exit 1; }
done
[ "$(grep -c '"isa":"ref","numerics":"portable-1","threads":1,"slots":1,"prompt":16,"tokens":3' lines)" -eq 3 ]
[ "$(grep -c '"numerics":"portable-1-kvq8"' lines)" -eq 3 ]
while read -r line; do
    case $(field what "$line") in
    load) positive load_ms "$(field load_ms "$line")"
          [ "$(field file_bytes "$line")" -eq "$(stat -c %s tiny.gguf)" ] ;;
    window) positive over_one "$(field over_one "$line")" ;;
    *) for name in tok_s bytes_per_token read_gb_s bandwidth_share; do
           positive $name "$(field $name "$line")"
       done
       [ "$(field what "$line")" = prefill ] || positive turns_share "$(field turns_share "$line")" ;;
    esac
done <lines
# Two slots share a read of the weights: fewer bytes per token than one slot, more than half.
one=$(field bytes_per_token "$(grep '"what":"decode"' lines | sed -n 1p)")
two=$(field bytes_per_token "$(grep '"what":"decode"' lines | sed -n 2p)")
[ "$two" -lt "$one" ] && [ $((2 * two)) -gt "$one" ] || { echo "bytes of a token: $one, $two"; exit 1; }
bench --model tiny.gguf -p 8 -n 2 -r 1 | grep -E '^decode +[0-9.]+ tok/s' >/dev/null
# With some of the slots, then with all: a line each; more slots share a read of the weights.
bench --model tiny.gguf -p 8 -n 2 -r 1 -b 6 --batches --json >batches
[ "$(grep '"what":"decode"' batches | grep -o '"slots":[0-9]*' | tr '\n' ' ')" = '"slots":1 "slots":4 "slots":6 ' ]
grep '"what":"decode"' batches | sed 's/.*"bytes_per_token":\([0-9]*\).*/\1/' | sort -nrc
bench --model tiny.gguf -p 8 -n 2 -r 1 -b 2 --batches | grep -c '^decode' | grep -x 2 >/dev/null
# A draft model's passes: the CPU reports none.
bench --model tiny.gguf -p 8 -n 2 -r 1 --drafts --json >drafts
grep '"what":"load"' drafts | grep '"note":""}' >/dev/null && grep -q '"what":"decode"' drafts

if command -v gnuplot >/dev/null; then
    sed 's/"threads":1/"threads":2/' lines >more
    "$root/tests/bench/plot.sh" more plots >/dev/null
    grep -q '^<svg' plots/first-token.svg
    grep -q '^8 ' plots/first-token.dat && grep -q '^16 ' plots/first-token.dat
fi

refused() { # EXIT LINE ARGUMENTS...
    local want=$1 line=$2 code=0; shift 2
    bench "$@" >out 2>error || code=$?
    [ "$code" -eq "$want" ] && [ ! -s out ] && [ "$(wc -l <error)" -eq 1 ] && grep -qF -- "$line" error ||
        { echo "$*: exit $code"; cat error; exit 1; }
}
head -c 1000 tiny.gguf >cut.gguf
refused 64 'give a model: --model'   -p 3
refused 64 'give a model: --model'   tiny.gguf
refused 64 'unexpected argument other' --model tiny.gguf other
refused 64 "--prompt '0': give a whole"      --model tiny.gguf -p 0
refused 64 "--slots '65': give a whole"      --model tiny.gguf -b 65
refused 64 'unknown option -x'           --model tiny.gguf -x
refused 64 '--windows takes no value' --model tiny.gguf --windows=3
refused 64 '--kv-type must be f16 or'      --model tiny.gguf --kv-type f32
refused 64 '--numerics must be portable or' --model tiny.gguf --numerics fast
refused 65 'the CPU has no native'     --model tiny.gguf --numerics native
refused 64 'the model'\''s context of' --model tiny.gguf -p 1000000
refused 64 'the model'\''s context of' --model tiny.gguf -p 1 -n 1000000
refused 65 'cut.gguf: '               --model cut.gguf
refused 65 'instruction set "mmx"'    --model tiny.gguf --isa mmx
refused 66 'none.gguf: cannot open'   --model none.gguf
echo 'ok: hearth-bench'
