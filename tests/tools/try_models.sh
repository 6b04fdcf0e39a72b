#!/usr/bin/env bash
# What a new user does in a throw-away system, for try_release.sh and try_deb.sh.
#   try_models.sh put ROOT         a home, /tmp/home, with a model where Ollama, LM Studio, llama.cpp and Hugging Face put theirs
#   try_models.sh use ROOT [PATH]  finds them, serves one by name, asks it, stops it
#   try_models.sh take ROOT        removes the home
# Each of the commands of `use` is a thing that one has to know; they are counted in the last line.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
verb=$1 root=$2 home=$2/tmp/home model=daemon/models/hearth-code-5m-f16.gguf known=0
fail() { echo "$root: $*"; exit 1; }
# A user with a home and nothing else.
hearth() {
    chroot --userspec=1000:1000 "$root" env -i PATH="${path:-/usr/bin:/bin}" HOME=/tmp/home XDG_RUNTIME_DIR=/tmp/run hearth "$@"
}
know() { known=$((known + 1)); }

case $verb in
put)
    hub=$home/.cache/huggingface/hub/models--org--hub-GGUF
    ollama=$home/.ollama/models
    mkdir -p "$root/tmp/run" "$hub/blobs" "$hub/snapshots/1" "$home/.cache/llama.cpp" "$home/.lmstudio/models/publisher/repository" \
        "$ollama/manifests/registry.ollama.ai/library/ollama-model" "$ollama/blobs"
    cp "$model" "$hub/blobs/0123"
    ln -s ../../blobs/0123 "$hub/snapshots/1/hub-model.gguf"
    cp "$model" "$home/.cache/llama.cpp/cpp-model.gguf"
    cp "$model" "$home/.lmstudio/models/publisher/repository/studio-model.gguf"
    cp "$model" "$ollama/blobs/sha256-01"
    echo '{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:01"}]}' \
        >"$ollama/manifests/registry.ollama.ai/library/ollama-model/latest"
    chown -R 1000:1000 "$home" "$root/tmp/run"
    chmod 700 "$root/tmp/run" ;;
use)
    path=${3:-}
    hearth models >"$home/models" || fail "hearth models"
    know
    for name in hub-model cpp-model studio-model ollama-model:latest; do
        grep -q "^$name  *llama  *F16 .* text, fim$" "$home/models" || fail "hearth models does not find $name"
    done
    rm "$home/models"
    hearth serve ollama | grep '^ollama-model:latest is served at ' >/dev/null || fail "hearth serve"
    know
    hearth run --model ollama --max-tokens 8 --json 'def main():' | grep '"reason":"length"' >/dev/null || fail "hearth run --model"
    know
    hearth top --once --interval 0.2 | grep 'tokens/s' >/dev/null || fail "hearth top"
    hearth stop ollama || fail "hearth stop"
    know
    rm -rf "$home/.local/state" # the log
    find "$home/.local" -maxdepth 0 -empty -delete 2>/dev/null || true
    echo "$known" ;;
take) rm -rf "$home" "$root/tmp/run" ;;
esac
