#!/usr/bin/env bash
# Installs the Debian packages named, where they are missing: as root, or through sudo without asking
# for a password; else says in one line what to install. Usage: deps.sh PACKAGE...
set -euo pipefail
missing=()
for package in "$@"; do
    case "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)" in
    *' installed') ;;
    *) missing+=("$package") ;;
    esac
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "hearth: not a Debian system: install what corresponds to: ${missing[*]}" >&2
    exit 69
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    else
        echo "hearth: packages are missing; run: sudo apt-get install ${missing[*]}" >&2
        exit 69
    fi
fi
echo "hearth: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { "${as_root[@]}" apt-get install -y -qq "${missing[@]}" ||
       { "${as_root[@]}" apt-get update -qq &&
         "${as_root[@]}" apt-get install -y -qq "${missing[@]}"; }; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "hearth: apt-get could not install ${missing[*]}: install them by hand and try again" >&2
    rm -f "$log"
    exit 69
fi
rm -f "$log"
