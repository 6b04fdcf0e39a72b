#!/usr/bin/env bash
# hearth-http asks an upstream over TLS: with a certificate that its own authority signed it works; one of another
# authority, of another host, or that expired is refused, before the key is sent.
set -euo pipefail
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
for program in openssl python3 curl; do
    command -v $program >/dev/null || { echo "skip: $program is not installed"; exit 0; }
done
folder=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$folder"' EXIT
fail() { echo "$*"; cat "$folder"/*.log; exit 1; }
unset HEARTH_SOCKET
export XDG_RUNTIME_DIR=$folder
key=sk-tls-0123456789
(umask 077; echo "$key" >"$folder/key")

ec=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
authority() { openssl req -x509 "${ec[@]}" -keyout "$folder/$1.key" -out "$folder/$1.pem" -subj "/CN=$1" -days 2 2>/dev/null; }
# NAME AUTHORITY SUBJECT DAYS
certificate() {
    openssl req "${ec[@]}" -keyout "$folder/$1.key" -out "$folder/$1.csr" -subj "/CN=$1" 2>/dev/null
    openssl x509 -req -in "$folder/$1.csr" -CA "$folder/$2.pem" -CAkey "$folder/$2.key" -days "$4" \
        -extfile <(echo "subjectAltName=$3") -out "$folder/$1.pem" 2>/dev/null
    cat "$folder/$1.key" >>"$folder/$1.pem"
}
authority ours
authority theirs
certificate good ours IP:127.0.0.1 2
certificate stranger theirs IP:127.0.0.1 2
certificate elsewhere ours DNS:elsewhere.example 2
certificate expired ours IP:127.0.0.1 -1

# A server for each certificate; it writes its port, and the keys that it was sent.
cat >"$folder/server.py" <<'PY'
import http.server, os, ssl, sys
folder, name = sys.argv[1:]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with open(f"{folder}/{name}.keys", "a") as keys:
            print(self.headers["Authorization"], file=keys)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"choices":[{"text":"over TLS"}]}')
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{folder}/{name}.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
with open(f"{folder}/{name}.port.new", "w") as port:
    print(server.server_address[1], file=port)
os.rename(f"{folder}/{name}.port.new", f"{folder}/{name}.port")
server.serve_forever()
PY
names=(good stranger elsewhere expired)
entries=()
for name in "${names[@]}"; do
    python3 "$folder/server.py" "$folder" "$name" 2>"$folder/$name.log" & pids+=($!)
    until [ -s "$folder/$name.port" ]; do kill -0 "${pids[-1]}" || fail "no server"; sleep 0.05; done
    entries+=(--upstream "$name=https://127.0.0.1:$(cat "$folder/$name.port")/v1" --upstream-key "$name=$folder/key")
done

# SOCKET OPTIONS: starts a gateway there.
gateway() {
    "$build/bin/hearth-http" --listen "$folder/$1" "${entries[@]}" "${@:2}" 2>"$folder/$1.log" & pids+=($!)
    until [ -S "$folder/$1" ]; do kill -0 "${pids[-1]}" || fail "no gateway"; sleep 0.05; done
}
ask() { # SOCKET MODEL
    curl -s --unix-socket "$folder/$1" http://localhost/v1/completions -d "{\"model\":\"$2\",\"prompt\":\"x\"}" | tee -a "$folder/said"
}
gateway ours.sock --upstream-ca "$folder/ours.pem"
ask ours.sock good | grep '"over TLS"' >/dev/null || fail "a valid certificate is refused"
for name in stranger elsewhere expired; do
    ask ours.sock "$name" | grep '"code": *502.*certificate that does not hold' >/dev/null || fail "$name: an invalid certificate is not refused"
done
gateway system.sock
ask system.sock good | grep -E '"code": *502.*(certificate that does not hold|without certificates)' >/dev/null ||
    fail "a certificate of an unknown authority is taken"

[ "$(cat "$folder"/*.keys)" = "Bearer $key" ] || fail "the key was sent to another server: $(cat "$folder"/*.keys)"
! grep -rqF "$key" "$folder/said" "$folder"/*.log || fail "the key is in an output"

# What is no certificate is known at once.
code() { "$build/bin/hearth-http" --listen "$folder/x.sock" "${entries[@]}" --upstream-ca "$1" 2>"$folder/x.log" && echo 0 || echo $?; }
[ "$(code "$folder/missing.pem")" = 66 ] || fail "a file that is missing"
[ "$(code "$folder/server.py")" = 64 ] || fail "a file without a certificate"
echo "ok: upstreams over TLS: a valid certificate works, three invalid ones are refused"
