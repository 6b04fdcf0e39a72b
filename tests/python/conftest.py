"""Private daemons for the tests of client/python. tests/e2e/python.sh sets PYTHONPATH and HEARTH_LIBRARY."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import gguf
import pytest

import hearth

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD", "build")
MODEL = ROOT / "daemon" / "models" / "hearth-code-5m-f16.gguf"
PATIENCE = 120  # seconds; sanitizers and busy machines are slow

# Never the end-of-sequence token. A client has room for all of it: it may be whole before it is read.
LONG = {"max_tokens": 900, "logit_bias": {2: -10000.0}}
# An answer that ends only by a cancel, in a context that has room for it: seconds, and as the
# daemon goes on only while it is read, it runs however long the reader is not let run.
ENDLESS = dict(LONG, max_tokens=15000)


class Daemon:
    def __init__(self, *arguments, model=MODEL):
        self.folder = tempfile.mkdtemp(prefix="hearth-python-")
        self.socket = os.path.join(self.folder, "s")
        self.arguments = arguments
        self.model = model
        self.process = None
        self.start()

    def start(self):
        log = open(os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen(
            [BUILD / "bin" / "hearthd", "--model", self.model, "--socket", self.socket, "--device", "cpu"]
            + ["--threads", "1", *self.arguments],
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
        log.close()
        until(lambda: self.counters() is not None)

    def counters(self):
        try:
            with hearth.Client(self.socket, slots=0) as client:
                return client.status()
        except hearth.NotRunning:
            assert self.process.poll() is None, Path(self.folder, "log").read_text()
            return None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait(PATIENCE)
        shutil.rmtree(self.folder)

    def run(self, *arguments, text=None):
        """What `hearth ARGUMENTS` says."""
        done = subprocess.run(
            [BUILD / "bin" / "hearth", *arguments, "--socket", self.socket],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def answer(self, prompt, *options):
        """The last line of `hearth run --json`."""
        return json.loads(self.run("run", "--json", *options, prompt).splitlines()[-1])


def until(check):
    """Waits for what must come true."""
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def daemon():
    d = Daemon("--slots", "40", "--client-slots", "16")
    yield d
    d.stop()


@pytest.fixture
def own_daemon():
    """One that the test may kill."""
    d = Daemon("--slots", "8", "--context", "16384")
    yield d
    d.stop()


TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}"
    "{% if tools %}<|tools|>{{ tools[0].function.name }}<|end|>\n{% endif %}"
    "{% if mood %}{{ mood }}{% endif %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def chat_daemon(tmp_path_factory):
    """One whose model has a chat template."""
    model = tmp_path_factory.mktemp("chat") / "chat.gguf"
    gguf.add_text(MODEL, model, "tokenizer.chat_template", TEMPLATE)
    d = Daemon("--slots", "8", model=model)
    yield d
    d.stop()


@pytest.fixture
def client(daemon):
    with hearth.Client(daemon.socket, slots=4) as c:
        yield c
