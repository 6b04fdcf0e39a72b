#!/usr/bin/env python3
"""Records the terminal session at the top of README.md: types commands into tmux, and writes what the screen showed as an
animated SVG.

Usage: tests/tools/cast.py OUT.svg, from the repository's root after `make`. Needs tmux."""
import html
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

COLUMNS, ROWS, STEP_S, HOLD_S = 84, 18, 0.25, 3
BIN = pathlib.Path(os.environ.get("BUILD", "build")).resolve() / "bin"
# What is typed, and for how many seconds it is watched.
SESSION = [
    ("hearth models", 2.5),
    ("hearth serve hearth-code", 2.5),
    ("hearth run --model hearth-code --max-tokens 60 --seed 4 --temperature 0.6 'def read_lines(path):'", 4),
    ("hearth top", 5),
]
LOAD = "while hearth run --model hearth-code --slot an-editor --max-tokens 900 'import os' >/dev/null; do :; done"


class Terminal:
    def __init__(self, environment):
        self.tmux = ["tmux", "-L", f"cast-{os.getpid()}", "-f", "/dev/null"]
        self.frames, self.began = [], 0.0
        subprocess.run([*self.tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS),
                        "env 'PS1=$ ' bash --norc --noprofile"],
                       check=True, env=environment)
        time.sleep(0.5)
        self.send("clear\n")
        time.sleep(0.5)
        self.began = time.monotonic()

    def send(self, text):
        if text.endswith(";"): # would end the command of tmux
            text = text[:-1] + "\\;"
        subprocess.run([*self.tmux, "send-keys", "-l", "--", text], check=True)

    def look(self):
        shown = subprocess.run([*self.tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout
        lines = [line.rstrip() for line in shown.split("\n")[:ROWS]]
        if not self.frames or self.frames[-1][1] != lines:
            self.frames.append((time.monotonic() - self.began, lines))

    def watch(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(STEP_S)

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], check=False)


def record(environment):
    terminal = Terminal(environment)
    load = None
    try:
        for command, seconds in SESSION:
            if command == "hearth top": # something to be seen
                load = subprocess.Popen(["sh", "-c", LOAD], env=environment, start_new_session=True)
            for at in range(0, len(command), 12): # some letters at a time
                terminal.send(command[at:at + 12])
                terminal.watch(STEP_S / 2)
            terminal.send("\n")
            terminal.watch(seconds)
        terminal.send("q")
        return terminal.frames
    finally:
        if load:
            os.killpg(load.pid, 15)
            load.wait()
        terminal.close()


def svg(frames):
    """Each frame is a group that is visible from its time to the next one's."""
    whole = frames[-1][0] + HOLD_S
    width, height = COLUMNS * 8.4 + 24, ROWS * 18 + 24
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="monospace" '
           f'font-size="14"><rect width="100%" height="100%" rx="6" fill="#1b1f23"/><style>text{{fill:#d7dde3;'
           f'white-space:pre}}g{{visibility:hidden;animation:{whole:.2f}s step-end infinite}}']
    ends = [at for at, _ in frames[1:]] + [whole]
    for i, ((at, _), end) in enumerate(zip(frames, ends)):
        begin, stop = (100 * t / whole for t in (at, end))
        first = "" if i == 0 else "0%{visibility:hidden}"
        last = "" if i + 1 == len(frames) else f"{stop:.2f}%{{visibility:hidden}}"
        out.append(f"@keyframes k{i}{{{first}{0 if i == 0 else begin:.2f}%{{visibility:visible}}{last}}}#f{i}"
                   f"{{animation-name:k{i}}}")
    out.append("</style>")
    for i, (_, lines) in enumerate(frames):
        out.append(f'<g id="f{i}">')
        out += [f'<text x="12" y="{26 + 18 * row}" xml:space="preserve">{html.escape(line)}</text>'
                for row, line in enumerate(lines) if line]
        out.append("</g>")
    return "\n".join([*out, "</svg>\n"])


def main():
    if not shutil.which("tmux"):
        raise SystemExit("skip: tmux is not installed")
    with tempfile.TemporaryDirectory(prefix="me-") as home:
        environment = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": home, "XDG_RUNTIME_DIR": home, "PS1": "$ ", "LANG": "C.UTF-8",
                       "HEARTH_MODELS": str(pathlib.Path("daemon/models").resolve()), "TERM": "xterm", "USER": "me"}
        try:
            frames = record(environment)
        finally:
            subprocess.run([BIN / "hearth", "stop", "hearth-code"], env=environment, check=False)
    pathlib.Path(sys.argv[1]).write_text(svg(frames))
    print(f"ok: {len(frames)} frames of {frames[-1][0]:.0f} s in {sys.argv[1]}")


main()
