#!/usr/bin/env bash
# Tries the tarball and the wheel of build/release (`make release`) in throw-away systems: install, find a model where
# Ollama, LM Studio, llama.cpp and Hugging Face put theirs, serve it by name, answer, uninstall, nothing left; and counts what one
# has to know for that.
# Usage, as root: try_release.sh ROOT..., roots made by debootstrap (bookworm, trixie), which are left as they were found.
# The wheel is tried where the root has python3-venv.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
tarballs=(build/release/hearth-*-linux.tar.gz) wheels=(build/release/hearth-*.whl)
[ $# -gt 0 ] || { echo "usage: try_release.sh ROOT..., systems made with debootstrap"; exit 64; }
fail() { echo "$root: $*"; exit 1; }
mounted=()
finish() {
    for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do umount -l "${mounted[$i]}" || true; done
    [ -z "${root:-}" ] || { rm -rf "$root/tmp/release"; tests/tools/try_models.sh take "$root"; }
}
trap finish EXIT
path=/tmp/home/.local/bin:/usr/bin:/bin
as_user() { chroot --userspec=1000:1000 "$root" env -i PATH="$path" HOME=/tmp/home XDG_RUNTIME_DIR=/tmp/run "$@"; }
snapshot() { (cd "$root" && find . -xdev ! -path './tmp/release*' ! -path './proc/*' ! -path './dev/*' ! -path './tmp/run*' ! -path './var/cache/ldconfig*' | sort); }

for root; do
    mount -t proc proc "$root/proc" && mounted+=("$root/proc")
    mount --bind /dev "$root/dev" && mounted+=("$root/dev")
    tests/tools/try_models.sh put "$root"
    mkdir -p "$root/tmp/release"
    chmod 755 "$root/tmp/release"
    snapshot >build/release/before

    tar -xzf "${tarballs[0]}" -C "$root/tmp/release" --no-same-owner
    install=(sh "/tmp/release/$(basename "${tarballs[0]}" .tar.gz)/install.sh")
    as_user "${install[@]}" | grep 'hearth models' >/dev/null || fail "install.sh does not say what is next"
    knows=$((2 + $(tests/tools/try_models.sh use "$root" "$path"))) || fail "what a user does" # tar and install.sh
    as_user hearth-http --version >/dev/null || fail "hearth-http does not start"
    if as_user python3 -c 'import ensurepip' 2>/dev/null; then
        cp "${wheels[0]}" "$root/tmp/release/"
        as_user python3 -m venv /tmp/home/venv
        as_user /tmp/home/venv/bin/pip -q install --no-cache-dir --no-index "/tmp/release/$(basename "${wheels[0]}")" 2>/dev/null
        as_user hearth serve cpp >/dev/null
        as_user /tmp/home/venv/bin/python -c 'import hearth
with hearth.Client(model="cpp") as client:
    print(client.generate("def main():", max_tokens=8).wait().reason)' | grep -x length >/dev/null || fail "the wheel"
        as_user hearth stop cpp
        rm -rf "$root/tmp/home/venv" "$root/tmp/home/.local/state"
        wheel=", the wheel"
    else
        wheel=" (the wheel is not tried: there is no python3-venv)"
    fi
    as_user "${install[@]}" --uninstall >/dev/null
    knows=$((knows + 1))
    find "$root/tmp/home/.local" -maxdepth 0 -empty -delete 2>/dev/null || true
    snapshot | diff build/release/before - || fail "something is left"
    as_root=(chroot "$root" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/bin HOME=/root)
    "${as_root[@]}" "${install[@]}" >/dev/null
    "${as_root[@]}" hearthd --check --config /etc/hearth/hearthd.conf | grep fingerprint >/dev/null || fail "hearthd of the machine"
    "${as_root[@]}" "${install[@]}" --uninstall >/dev/null
    snapshot | diff build/release/before - || fail "something of the machine's is left"
    echo "ok: $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/etc/os-release"): the tarball$wheel; $knows commands to know"
    finish
    mounted=()
done
