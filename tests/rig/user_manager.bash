# A service manager of this user, for tests that source this file, from the root of the repository: a real one, in a mount
# namespace of its own, since it starts only where /run says that the system runs systemd. `folder` is home and runtime
# directory; units and programs are installed in it. Skips the test, with a line that says why, where none can run.
build=${BUILD:-build}
manager=/lib/systemd/systemd
case $build in *asan | *tsan) echo "skip: the units' limits leave no room for a sanitizer"; exit 0 ;; esac
for tool in systemctl curl unshare "$manager"; do
    command -v "$tool" >/dev/null || { echo "skip: $tool is not installed"; exit 0; }
done
if [ "${1:-}" != inside ]; then
    unshare -m true 2>/dev/null || { echo "skip: no mount namespace may be made here"; exit 0; }
    # Managers share the control groups of the machine, and take each other's units for their own: one at a time.
    exec 9</sys/fs/cgroup
    flock 9
    exec unshare -m "$PWD/tests/e2e/$(basename "$0")" inside
fi

mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
folder=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap finish EXIT
fail() { tail -n 20 "$folder/log"; echo "$*"; exit 1; }

export HOME=$folder XDG_RUNTIME_DIR=$folder HEARTH_MODELS=$folder/models
unset HEARTH_SOCKET XDG_CONFIG_HOME XDG_STATE_HOME DBUS_SESSION_BUS_ADDRESS
mkdir -p "$folder/models" "$folder/.config/systemd" "$folder/.config/hearth"
make --no-print-directory -s BUILD="$build" PREFIX="$folder/usr" install >/dev/null
cp -r "$folder/usr/lib/systemd/user" "$folder/.config/systemd/user"
PATH=$folder/usr/bin:$PATH

$manager --user --log-target=console >"$folder/log" 2>&1 &
pids+=($!)
for _ in $(seq 600); do
    if systemctl --user is-system-running >/dev/null 2>&1; then break; fi
    kill -0 "${pids[0]}" 2>/dev/null || { echo "skip: no user manager runs here: $(tail -n 1 "$folder/log")"; exit 0; }
    sleep 0.1
done
