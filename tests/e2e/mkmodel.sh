#!/usr/bin/env bash
# hearth-mkmodel from its command line: hearthd loads its files, hearth tokenizes with them, usage
# errors are one line each with an exit code of sysexits.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
bin=$PWD/${BUILD:-build}/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

make() { "$bin/hearth-mkmodel" "$@"; }
for type in F32 F16 BF16 Q8_0; do
    make --shape tiny --type $type --seed 3 $type.gguf
    "$bin/hearthd" --model $type.gguf --check >check
    grep -q "^tiny random 3: llama, $type, 1.31 M parameters" check || { cat check; exit 1; }
done
for arch in qwen2 qwen3 gemma3; do
    make --shape tiny --arch $arch --type Q4_K_M $arch.gguf
    "$bin/hearthd" --model $arch.gguf --check | grep "^tiny random 1: $arch, Q4_K, 1.31 M parameters" >/dev/null
done
make --shape tiny --arch qwen35 --type Q8_0 --peaked --mtp --mtp-acceptance 0.5 mtp.gguf
"$bin/hearthd" --model mtp.gguf --check | grep '^tiny random 1 peaked: qwen35, Q8_0, .* 2 layers and one that drafts, ' >/dev/null
make --from F16.gguf --type=q8_0 copy.gguf
"$bin/hearthd" --model copy.gguf --check | grep '^tiny random 3: llama, Q8_0, ' >/dev/null

# Any text round trips through ids: words, code, other scripts, bytes that are not text.
{
    printf 'The quick brown fox, 12345 + 6.7e8!\n\tif (x != 0) { return "\\n"; }\r\n'
    printf 'h\303\251llo w\303\266rld \346\227\245\346\234\254\350\252\236 \360\237\231\202 <|im_end|> \377\376\000end'
} >text
"$bin/hearth" tokenize --model F16.gguf <text >ids
"$bin/hearth" detokenize --model F16.gguf <ids | cmp - text
[ "$(printf ' the' | "$bin/hearth" tokenize --model F16.gguf)" != '[32,116,104,101]' ] # merges work
[ "$(printf '<|im_end|>' | "$bin/hearth" tokenize --special --model F16.gguf)" = '[502]' ]

# A pre-tokenizer that hearth does not know is named in one line, by the daemon before it loads weights.
LC_ALL=C sed 's/\(tokenizer\.ggml\.pre.\{12\}\)qwen2/\1plums/' F16.gguf >plums.gguf
for command in 'hearthd --check' 'hearth tokenize'; do
    # shellcheck disable=SC2086
    if "$bin/"$command --model plums.gguf </dev/null >out 2>error; then exit 1; fi
    [ "$(wc -l <error)" -eq 1 ]
    grep -q "pre-tokenizer 'plums' is not known to hearth" error
done

refused() { # EXIT LINE ARGUMENTS...
    local want=$1 line=$2 code=0; shift 2
    make "$@" >out 2>error || code=$?
    [ "$code" -eq "$want" ] && [ ! -s out ] && [ "$(wc -l <error)" -eq 1 ] && grep -qF -- "$line" error &&
        [ ! -e new.gguf ] && [ ! -e new.gguf.part ] || { echo "$*: exit $code"; cat error; exit 1; }
}
refused 64 'give the file to write'      --shape tiny --type F16
refused 64 'give either --shape or'      --type F16 new.gguf
refused 64 'give either --shape or'      --shape tiny --from F16.gguf --type F16 new.gguf
refused 64 'give --type, one of F32'     --shape tiny new.gguf
refused 64 'unknown shape huge; known:' --shape huge --type F16 new.gguf
refused 64 'unknown type Q3; known:'    --shape tiny --type Q3 new.gguf
refused 64 'unknown architecture gpt'   --shape tiny --type F16 --arch gpt new.gguf
refused 64 'mtp: llama has no next-token' --shape tiny --type F16 --mtp new.gguf
refused 64 'needs --mtp and --peaked'    --shape tiny --arch qwen35 --type F16 --mtp --mtp-acceptance 0.5 new.gguf
refused 64 'not with --from'             --from F16.gguf --peaked --type F16 new.gguf
refused 64 "--seed '-1': give a whole"   --shape tiny --type F16 --seed -1 new.gguf
refused 64 "--seed '1x': give a whole"   --shape tiny --type F16 --seed 1x new.gguf
refused 64 '--seed needs a value'        --shape tiny --type F16 new.gguf --seed
refused 64 'unknown option --sead'      --shape tiny --type F16 --sead 1 new.gguf
refused 64 "unexpected argument 'one'"    --shape tiny --type F16 new.gguf one
refused 66 'none.gguf: cannot open: No such'     --from none.gguf --type F16 new.gguf
refused 65 'text: '                      --from text --type F16 new.gguf
refused 65 'is already Q8_0'             --from Q8_0.gguf --type F16 new.gguf
refused 73 'cannot create none/new.gguf' --shape tiny --type F16 none/new.gguf
mkdir folder
refused 73 'folder: it exists'           --shape tiny --type F16 folder
refused 64 'give the file to write'      --shape tiny --type F16 ''
cp F16.gguf kept.gguf.part
refused 64 'rename it first'             --from kept.gguf.part --type Q8_0 kept.gguf
cmp F16.gguf kept.gguf.part
make --help | grep '^usage: hearth-mkmodel' >/dev/null
make --version | grep '^hearth-mkmodel [0-9]' >/dev/null
echo 'ok: hearth-mkmodel'
