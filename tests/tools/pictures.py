#!/usr/bin/env python3
"""Pictures of the page of hearth-http and of `hearth top`, to be looked at: two models under load, in a headless Chromium
and in tmux. The page is also used: its tables must fill, a prompt be answered, markup that a model is made to write stay
text, a wrong key be refused and the right one accepted.

Usage: tests/tools/pictures.py FOLDER, from the repository's root after `make`. Needs chromium and tmux."""
import base64
import contextlib
import html
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(os.environ.get("BUILD", "build")).resolve() / "bin"
MODEL = pathlib.Path("daemon/models/hearth-code-5m-f16.gguf")


class Browser:
    """Chromium by its debugging protocol: JSON with a zero byte after it, through descriptors 3 and 4."""

    def __init__(self, folder):
        to_read, self.to = os.pipe()
        self.back, from_write = os.pipe()
        words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe",
                 f"--user-data-dir={folder}", "--window-size=1100,900", "about:blank"]

        def place():
            high = [os.dup(to_read), os.dup(from_write)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(words, preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.rest, self.last, self.session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.errors = []
        self.call("Runtime.enable")
        self.call("Log.enable")

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                part = os.read(self.back, 65536)
                if not part:
                    raise RuntimeError("chromium ended")
                self.rest += part
            one, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(one)
            if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.errors.append(json.dumps(answer["params"])[:300])
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["result"]

    def run(self, code):
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait(self, code):
        end = time.monotonic() + 60
        while not (value := self.run(code)):
            if time.monotonic() > end:
                raise SystemExit(f"the page never came to: {code}\n{self.run('document.body.innerText')}")
            time.sleep(0.1)
        return value

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def gateway(*options):
    port = free_port()
    process = subprocess.Popen([BIN / "hearth-http", "--port", str(port), *options], stderr=subprocess.DEVNULL)
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def load(names):
    """A reader of each model, again and again."""
    loop = 'while "$0" run --model "$1" --slot "$2" --max-tokens 900 "def read_lines(path):" >/dev/null; do :; done'
    readers = [subprocess.Popen(["sh", "-c", loop, BIN / "hearth", name, f"reader-of-{name}"], start_new_session=True)
               for name in names]
    try:
        yield
    finally:
        for reader in readers:
            os.killpg(reader.pid, 15)
            reader.wait()


def prompt(browser, text, kind):
    browser.run(f"document.querySelector('#prompt').value = {json.dumps(text)}; document.querySelector('#kind').value = "
                f"'{kind}'; document.querySelector('#most').value = 60; document.querySelector('#send').click()")
    browser.wait("document.querySelector('#send').disabled === false && document.querySelector('#note').textContent")


def try_page(browser, out):
    with gateway("--chat-template", "chatml") as url:
        browser.open(url)
        browser.wait("document.querySelectorAll('#models tr').length === 2")
        browser.wait("document.querySelector('#slots').innerText.includes('decode')")
        browser.wait("/[1-9][0-9.]*/.test(document.querySelector('#models tr').children[4].textContent)")
        prompt(browser, "def add(a, b):", "text")
        assert browser.run("document.querySelector('#answer').textContent.length") > 0
        browser.picture(out / "page.png")
        browser.run("show({choices: [{text: '<img src=x onerror=alert(1)><b>bold</b>'}]})")
        assert browser.run("document.querySelector('#answer').childElementCount") == 0, "markup of a model became HTML"
        assert "reader-of" not in browser.run("document.querySelector('#slots').innerText"), "a name without a key"
    assert not browser.errors, browser.errors


def try_alias(browser, folder):
    """A daemon of two names is one row, and each name can be chosen."""
    [path] = folder.glob("**/*code-small*.sock")
    with gateway("--socket", str(path), "--alias", "gpt-4o") as url:
        browser.open(url)
        browser.wait("document.querySelectorAll('#model option').length === 2")
        assert browser.run("document.querySelectorAll('#models tr').length") == 1


def try_key(browser, out, folder):
    keys = folder / "keys"
    keys.write_text("the-key\n")
    with gateway("--api-key-file", str(keys), "--budget", "1G", "--upstream", "far=http://127.0.0.1:1/v1") as url:
        browser.open(url)
        browser.wait("!document.querySelector('#key-form').hidden")
        use = "document.querySelector('#key').value = '%s'; document.querySelector('#key-form button').click()"
        browser.run(use % "another")
        browser.wait("!document.querySelector('#key-form').hidden && !document.querySelector('#trouble').hidden")
        browser.picture(out / "page-key.png")
        browser.run(use % "the-key")
        browser.wait("document.querySelector('#slots').innerText.includes('reader-of')")
        shown = browser.run("document.querySelector('#models').innerText")
        assert "code-spare\tnot loaded" in shown and "far\telsewhere" in shown, shown
        assert browser.run("document.documentElement.outerHTML + JSON.stringify({...localStorage}) + document.cookie"
                           ).count("the-key") == 0
        browser.picture(out / "page-names.png")


def terminal(out, columns, rows):
    """What `hearth top` shows in tmux, as text."""
    name = f"hearth-{os.getpid()}-{columns}"
    tmux = ["tmux", "-L", name, "-f", "/dev/null"]
    subprocess.run([*tmux, "new-session", "-d", "-x", str(columns), "-y", str(rows), f"{BIN}/hearth top"], check=True)
    time.sleep(3)
    shown = subprocess.run([*tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout
    subprocess.run([*tmux, "kill-server"], check=True)
    assert "2 models" in shown and "decode" in shown, shown
    (out / f"top-{columns}.txt").write_text(shown)


def picture_of_terminal(browser, out, columns):
    text = (out / f"top-{columns}.txt").read_text()
    page = f"<body style='background:#1b1f23;color:#d7dde3'><pre style='font:12px monospace'>{html.escape(text)}</pre>"
    browser.open("data:text/html;base64," + base64.b64encode(page.encode()).decode())
    browser.picture(out / f"top-{columns}.png")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for tool in ("chromium", "tmux"):
        if not shutil.which(tool):
            raise SystemExit(f"skip: {tool} is not installed")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "models").mkdir()
        names = ["code-small", "code-large"]
        for name in (*names, "code-spare"):
            shutil.copy(MODEL, folder / "models" / f"{name}.gguf")
        os.environ.update(HOME=str(folder), XDG_RUNTIME_DIR=str(folder), HEARTH_MODELS=str(folder / "models"))
        os.environ.pop("HEARTH_SOCKET", None)
        for name in names:
            subprocess.run([BIN / "hearth", "serve", name], check=True, stdout=subprocess.DEVNULL)
        try:
            with load(names):
                terminal(out, 80, 24)
                terminal(out, 140, 24)
                browser = Browser(folder / "chromium")
                try:
                    picture_of_terminal(browser, out, 80)
                    picture_of_terminal(browser, out, 140)
                    try_page(browser, out)
                    try_alias(browser, folder)
                    try_key(browser, out, folder)
                finally:
                    browser.close()
        finally:
            for name in names:
                subprocess.run([BIN / "hearth", "stop", name], check=False)
    print(f"ok: {', '.join(sorted(p.name for p in out.iterdir()))} in {out}")


main()
