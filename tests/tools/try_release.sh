#!/usr/bin/env bash
# Tries the tarball and the wheel of build/release (`make release`) in throw-away systems: install, find a model where
# Ollama, LM Studio, llama.cpp and Hugging Face put theirs, serve it by name, answer, uninstall, nothing left.
# Usage, as root: try_release.sh ROOT..., roots made by debootstrap (bookworm, trixie), which are left as they were found.
# The wheel is tried where the root has python3-venv.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
tarballs=(build/release/hearth-*-linux.tar.gz) wheels=(build/release/hearth-*.whl)
model=daemon/models/hearth-code-5m-f16.gguf
[ $# -gt 0 ] || { echo "usage: try_release.sh ROOT..., systems made with debootstrap"; exit 64; }
fail() { echo "$root: $*"; exit 1; }
mounted=()
finish() {
    for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do umount -l "${mounted[$i]}" || true; done
    [ -z "${root:-}" ] || rm -rf "$root/tmp/release" "$root/tmp/home" "$root/tmp/run"
}
trap finish EXIT
as_user() { # with a home and nothing else
    chroot "$root" env -i PATH=/tmp/home/.local/bin:/usr/bin:/bin HOME=/tmp/home XDG_RUNTIME_DIR=/tmp/run "$@"
}
snapshot() { (cd "$root" && find . -xdev ! -path './tmp/release*' ! -path './proc/*' ! -path './dev/*' ! -path './tmp/run*' | sort); }

for root; do
    mount -t proc proc "$root/proc" && mounted+=("$root/proc")
    mount --bind /dev "$root/dev" && mounted+=("$root/dev")
    home=$root/tmp/home
    mkdir -p "$root/tmp/release" "$root/tmp/run" "$home/.cache/huggingface/hub/models--org--hub-GGUF/snapshots/1" \
        "$home/.cache/llama.cpp" "$home/.lmstudio/models/publisher/repository" \
        "$home/.ollama/models/manifests/registry.ollama.ai/library/ollama-model" "$home/.ollama/models/blobs"
    tar -xzf "${tarballs[0]}" -C "$root/tmp/release"
    cp "$model" "$home/.cache/huggingface/hub/models--org--hub-GGUF/snapshots/1/hub-model.gguf"
    cp "$model" "$home/.cache/llama.cpp/cpp-model.gguf"
    cp "$model" "$home/.lmstudio/models/publisher/repository/studio-model.gguf"
    cp "$model" "$home/.ollama/models/blobs/sha256-01"
    echo '{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:01"}]}' \
        >"$home/.ollama/models/manifests/registry.ollama.ai/library/ollama-model/latest"
    snapshot >build/release/before

    install=(sh "/tmp/release/$(basename "${tarballs[0]}" .tar.gz)/install.sh" --prefix /tmp/home/.local)
    as_user "${install[@]}" | grep -q 'hearth models' || fail "install.sh does not say what is next"
    as_user hearth models >build/release/models
    for name in hub-model cpp-model studio-model ollama-model:latest; do
        grep -q "^$name  *llama  *F16 .* text, fim$" build/release/models || fail "hearth models does not find $name"
    done
    as_user hearth serve ollama | grep -q '^ollama-model:latest is served at ' || fail "hearth serve"
    as_user hearth run --model ollama --max-tokens 8 --json 'def main():' | grep -q '"reason":"length"' || fail "hearth run"
    as_user hearth-http --version >/dev/null || fail "hearth-http does not start"
    as_user hearth stop ollama || fail "hearth stop"
    if [ -x "$root/usr/bin/python3" ] && as_user python3 -c 'import ensurepip' 2>/dev/null; then
        cp "${wheels[0]}" "$root/tmp/release/"
        as_user python3 -m venv /tmp/release/venv
        as_user /tmp/release/venv/bin/pip -q install --no-index "/tmp/release/$(basename "${wheels[0]}")" 2>/dev/null
        as_user hearth serve cpp >/dev/null
        as_user /tmp/release/venv/bin/python -c 'import hearth
with hearth.Client(model="cpp") as client:
    print(client.generate("def main():", max_tokens=8).wait().reason)' | grep -qx length || fail "the wheel"
        as_user hearth stop cpp
        wheel=", the wheel"
    else
        wheel=" (the wheel is not tried: there is no python3-venv)"
    fi
    as_user "${install[@]}" --uninstall >/dev/null
    rm -rf "$home/.local/state" # the log
    find "$home/.local" -maxdepth 0 -empty -delete 2>/dev/null || true
    snapshot | diff build/release/before - || fail "something is left"
    echo "ok: $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/etc/os-release"): the tarball$wheel"
    finish
    mounted=()
done
