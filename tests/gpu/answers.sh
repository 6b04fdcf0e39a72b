#!/usr/bin/env bash
# Compares one answer of a model served on the GPU with the same on the CPU: the tokens must be equal.
# Usage: answers.sh FOLDER MODEL TOKENS   FOLDER: contains bin/hearthd and bin/hearth. HEARTH_PLUGINS: the plugin's folder.
set -u
bin=$1/bin model=$2 tokens=$3
work=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill $daemon 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 143' TERM

ids() { # DEVICE
    "$bin/hearthd" --device "$1" --numerics portable --model "$model" --socket "$work/socket" --slots 2 --context 1024 >"$work/log" 2>&1 &
    daemon=$!
    for _ in $(seq 600); do
        [ ! -S "$work/socket" ] || break
        kill -0 $daemon 2>/dev/null || break
        sleep 0.1
    done
    timeout 60 "$bin/hearth" run --socket "$work/socket" --json --max-tokens "$tokens" 'def main():' 2>"$work/client" | tail -n 1 |
        grep -o '"ids":\[[^]]*\]' >"$work/$1"
    kill $daemon 2>/dev/null
    wait $daemon 2>/dev/null
    daemon=
    [ -s "$work/$1" ] || { echo "error: no answer on $1: $(tail -q -n 1 "$work/log" "$work/client" | tr '\n' ' ')"; exit 1; }
}
ids cpu
ids cuda
cmp -s "$work/cpu" "$work/cuda" || {
    echo "error: tokens differ from the CPU's"
    cat "$work/cpu" "$work/cuda"
    exit 1
}
echo "$(tr ',' '\n' <"$work/cpu" | wc -l) tokens equal the CPU's"
