#!/usr/bin/env bash
# The real openai package against hearth-http, on loopback and on a Unix socket, and curl beside it. HEARTH_PYTHON: a
# Python that has the package; else one is made in $BUILD where PyPI can be reached.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
bin=$PWD/$build/bin
case $build in /*) bin=$build/bin ;; esac
python=${HEARTH_PYTHON:-}
if [ -z "$python" ] || ! "$python" -c 'import openai' 2>/dev/null; then
    python=$build/tests/openai/bin/python
    if ! "$python" -c 'import openai' 2>/dev/null; then
        { python3 -m venv "$build/tests/openai" &&
          timeout 300 "$build/tests/openai/bin/pip" -q install 'openai>=1.40'; } >/dev/null 2>&1 ||
            { echo "skip: the openai package is not there and cannot be installed (HEARTH_PYTHON names a Python with it)"; exit 0; }
    fi
fi

folder=$(mktemp -d)
export HEARTH_SOCKET=$folder/hearth.sock
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$folder"' EXIT
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$bin/hearthd" --model daemon/models/hearth-code-5m-f16.gguf --slots 16 2>"$folder/daemon.log" & pids+=($!)
for _ in $(seq 600); do "$bin/hearth" status >/dev/null 2>&1 && break; sleep 0.1; done
"$bin/hearth-http" --listen "$folder/http.sock" --port "$port" --api-key secret --chat-template chatml --strict-model 2>"$folder/http.log" & pids+=($!)
for _ in $(seq 600); do grep -q "listening at http:" "$folder/http.log" && break; sleep 0.1; done

# The same seed gives the same text to every client.
prompt='def read_lines(path):'
want=$("$bin/hearth" run --max-tokens 40 --temperature 1 --seed 7 "$prompt"; echo x)
if command -v curl >/dev/null; then
    got=$(curl -sS --unix-socket "$folder/http.sock" -H 'Authorization: Bearer secret' http://localhost/v1/completions \
               -d "{\"prompt\": \"$prompt\", \"max_tokens\": 40, \"seed\": 7}" |
          python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["text"], end="")'; echo x)
    [ "${got%x}" = "${want%x}" ] || [ "${got%x}" = "${want%?x}" ] || { echo "curl got another text: $got"; exit 1; }
else
    echo "skip: curl is not installed"
fi

PORT=$port SOCKET=$folder/http.sock PROMPT=$prompt WANT=${want%x} "$python" tests/e2e/http_openai.py
echo "ok: the openai package streams, counts, stops and reports errors"
