"""Interactive shells on a pseudo-terminal, for tests/e2e/shell.sh.

    shell_pty.py widget bash|zsh WIDGET-FILE     against whatever `hearth` PATH holds first
    shell_pty.py complete bash|zsh DIR LINE...   what Tab offers after each LINE, one per line

The widget's line is not run, so the shell does not print it: a key is bound
to a function that writes the buffer into a file."""
import os
import pty
import re
import select
import signal
import struct
import fcntl
import subprocess
import sys
import tempfile
import termios
import time

PATIENCE_S = 120.0


class Terminal:
    """An interactive shell on its own terminal."""

    def __init__(self, argv, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:  # the test runner may ignore Ctrl-C
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGQUIT, signal.SIG_DFL)
            os.execvpe(argv[0], argv, env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 200, 200, 0, 0))
        self.seen = b""

    def send(self, keys):
        os.write(self.fd, keys.encode())

    def read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.fd, 65536)
            except OSError:
                return False
        return True

    def wait_for(self, what, ready):
        end = time.monotonic() + PATIENCE_S
        while not ready():
            if time.monotonic() > end or not self.read(0.05):
                sys.exit("%s did not happen; the terminal shows:\n%s" % (what, self.text()))

    def quiet(self, seconds):
        """Reads until no output comes for a while."""
        before = -1
        while before != len(self.seen):
            before = len(self.seen)
            self.read(seconds)

    def text(self):
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()>=]\S?|\r|\x07", "", self.seen.decode(errors="replace"))

    def close(self):
        os.close(self.fd)
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self.pid, 0)


def start(shell, setup, env=None):
    """The shell without any user's configuration, after `setup`."""
    environment = dict(os.environ, TERM="xterm", PS1="", HISTFILE="/dev/null", **(env or {}))
    argv = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    terminal = Terminal(argv, environment)
    terminal.quiet(0.5)
    terminal.send("%s; echo READY''_NOW\r" % setup)
    terminal.wait_for("the prompt", lambda: b"READY_NOW" in terminal.seen)
    terminal.quiet(0.3)
    terminal.seen = b""
    return terminal


class Widget:
    """A shell with the widget, and a key (Ctrl-X w) that writes the buffer into a file."""

    DUMP = {
        "bash": r"""_dump() { printf '%s' "$READLINE_LINE" >"$DUMP.new"; mv "$DUMP.new" "$DUMP"; }; """
                r"""bind -x '"\C-xw": _dump'; bind '"\C-xu": undo'""",
        "zsh": r"""_dump() { printf '%s' "$BUFFER" >$DUMP.new; mv $DUMP.new $DUMP }; """
               r"""zle -N _dump; bindkey '^Xw' _dump; bindkey '^Xu' undo""",
    }

    def __init__(self, shell, widget, key=None):
        self.folder = tempfile.mkdtemp()
        self.dump = os.path.join(self.folder, "buffer")
        self.shell = shell
        setup = "" if key is None else "HEARTH_WIDGET_KEY='%s'; " % key
        self.terminal = start(shell, "%ssource '%s'; %s" % (setup, widget, self.DUMP[shell]),
                              {"DUMP": self.dump, "MARK": os.path.join(self.folder, "ran")})

    def buffer(self):
        if os.path.exists(self.dump):
            os.unlink(self.dump)
        self.terminal.send("\x18w")
        self.terminal.wait_for("the buffer", lambda: os.path.exists(self.dump))
        with open(self.dump, "rb") as f:
            return f.read().decode()

    def logged(self, word):
        """How often the fake logged this."""
        log = os.environ["FAKE_LOG"]
        return open(log).read().count(word) if os.path.exists(log) else 0

    def asked(self):
        return self.logged("start")

    def close(self):
        self.terminal.close()
        subprocess.run(["rm", "-rf", self.folder], check=True)


def same(name, got, want):
    if got != want:
        sys.exit("%s: want %r, got %r" % (name, want, got))
    print("  %s" % name)


def ask(w, line, mode, key="\x1bh"):
    """Types a line and presses the key, with a fake that behaves according to `mode`."""
    with open(os.environ["FAKE_MODE"], "w") as f:
        f.write(mode)
    before = w.asked()
    w.terminal.send("\x15" + line)
    w.terminal.quiet(0.2)
    w.terminal.send(key)
    w.terminal.wait_for("a question", lambda: w.asked() > before)
    if mode != "slow":
        w.terminal.quiet(0.5)


def check_widget(shell, widget):
    w = Widget(shell, widget)
    ask(w, "list my files", "answer ls -l \"a b\" | wc")
    same("the answer replaces the line", w.buffer(), "ls -l \"a b\" | wc")
    w.terminal.send("\x18u")
    w.terminal.quiet(0.2)
    same("undo brings the description back", w.buffer(), "list my files")
    ask(w, "make a mark", "answer touch $MARK")
    same("a command that would leave a mark", w.buffer(), "touch $MARK")
    same("... is not run", os.path.exists(os.path.join(w.folder, "ran")), False)
    ask(w, "several lines", "lines")
    same("of several lines the first that is one", w.buffer(), "touch one")
    ask(w, "nasty", "nasty")
    same("no control characters, no hidden signs", w.buffer(), "echo [31mred ab c")
    ask(w, "dangling", "answer echo a \\")
    same("nothing that asks for another line", w.buffer(), "echo a")
    ask(w, "empty", "answer ")
    same("no answer, no change", w.buffer(), "empty")
    w.terminal.wait_for("a word on it", lambda: "no answer" in w.terminal.text())
    ask(w, "down", "down")
    same("without a daemon the line stays", w.buffer(), "down")
    w.terminal.wait_for("the reason", lambda: "no daemon there" in w.terminal.text())
    ask(w, "think long", "slow")
    w.terminal.wait_for("a long thought", lambda: w.logged("sleeping"))
    w.terminal.send("\x03")
    w.terminal.wait_for("the end of it", lambda: w.logged("interrupted"))
    w.terminal.quiet(0.7)
    same("Ctrl-C leaves the line alone, and stops the question", w.buffer(), "think long")
    before = w.asked()
    w.terminal.send("\x15\x1bh")
    w.terminal.quiet(0.5)
    same("an empty line asks nothing", w.asked(), before)
    w.terminal.send("\x15echo still''_here\r")
    w.terminal.wait_for("the shell", lambda: "still_here" in w.terminal.text())
    print("  the shell goes on")
    w.close()
    w = Widget(shell, widget, r"\C-xh" if shell == "bash" else "^Xh")
    ask(w, "another key", "answer true", "\x18h")
    same("HEARTH_WIDGET_KEY", w.buffer(), "true")
    w.close()


def check_real(shell, widget):
    """Against a real daemon: with any answer the line changes and stays one line."""
    w = Widget(shell, widget)
    w.terminal.send("print the working directory")
    w.terminal.quiet(0.2)
    w.terminal.send("\x1bh")
    got = ""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        w.terminal.quiet(0.5)
        got = w.buffer()
        if got != "print the working directory" or "no answer" in w.terminal.text():
            break
    if "\n" in got or any(ord(c) < 32 for c in got):
        sys.exit("not one line: %r" % got)
    if got == "print the working directory" and "no answer" not in w.terminal.text():
        sys.exit("nothing came: %s" % w.terminal.text())
    print("  a real daemon's line: %r" % got)
    w.close()


# zsh draws its list in columns and pieces, so added words are also written to a file.
ZSH_NOTES = r"""compadd() { [[ "${(j: :)@[1,(i)(-|--)]}" == (*' '|)-[OAD]' '* ]] && { builtin compadd "$@"; return }; """ \
            r"""local -a hits; builtin compadd -O hits "$@"; print -r -- $hits >>$OFFERED; builtin compadd "$@" }"""


def complete(shell, folder, lines):
    """Prints what Tab offers after each line."""
    notes = os.path.join(tempfile.mkdtemp(), "offered")
    if shell == "bash":
        setup = "source '%s/hearth.bash'; bind 'set completion-query-items 0'; bind 'set page-completions off'" \
                "; bind 'set show-all-if-ambiguous on'; bind 'set bell-style none'" % folder
    else:
        setup = "fpath=('%s' $fpath); autoload -U compinit; compinit -u -D; LISTMAX=9999" \
                "; bindkey '^I' list-choices; unsetopt list_beep; %s" % (folder, ZSH_NOTES)
    terminal = start(shell, setup, {"OFFERED": notes})
    for n, line in enumerate(lines):
        terminal.seen = b""
        terminal.send("\x15" + line + "\t")
        terminal.quiet(0.4)
        # The shell reads the next line only after its offer, however long that takes.
        end = "THE''_END_%d" % n
        terminal.send("\x15echo %s\r" % end)
        terminal.wait_for("the end of %r" % line, lambda: end.replace("'", "").encode() in terminal.seen)
        words = terminal.text().split("echo THE")[0]
        if shell == "zsh":
            with open(notes, "a+") as f:
                f.seek(0)
                words = f.read()
                f.truncate(0)
        print("%s\t%s" % (line, " ".join(words.split())))
    terminal.close()
    subprocess.run(["rm", "-rf", os.path.dirname(notes)], check=True)


if __name__ == "__main__":
    verb, which = sys.argv[1], sys.argv[2]
    if verb == "widget":
        check_widget(which, sys.argv[3])
    elif verb == "real":
        check_real(which, sys.argv[3])
    else:
        complete(which, sys.argv[3], sys.argv[4:])
