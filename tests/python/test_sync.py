"""Client and Stream against a real daemon."""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest
from conftest import ENDLESS, LONG, MODEL, PATIENCE, Daemon, until

import hearth

PROMPT = "def read_lines(path):"


def test_the_answer_is_that_of_hearth_run(daemon, client):
    cases = [
        ({"max_tokens": 40}, ["--max-tokens", "40"]),
        (
            {
                "max_tokens": 40,
                "temperature": 0.9,
                "seed": 2**64 - 1,
                "top_p": 0.9,
                "top_k": 50,
                "min_p": 0.01,
            },
            ["--max-tokens", "40", "--temperature", "0.9", "--seed", str(2**64 - 1), "--top-p", "0.9"]
            + ["--top-k", "50", "--min-p", "0.01"],
        ),
        (
            {"temperature": 0.7, "seed": 3, "stop": ["return", "\n\n"], "stop_tokens": [17]},
            [
                "--temperature",
                "0.7",
                "--seed",
                "3",
                "--stop",
                "return",
                "--stop",
                "\n\n",
                "--stop-token",
                "17",
            ],
        ),
        (
            {
                "max_tokens": 30,
                "repeat_penalty": 1.3,
                "frequency_penalty": 0.5,
                "presence_penalty": -0.5,
                "penalty_last_n": -1,
                "typical_p": 0.8,
                "temperature": 0.5,
                "logit_bias": {275: -float("inf"), 17: 3.5},
                "priority": "batch",
                "proposer": "lookup",
                "guess": "    return",
            },
            [
                "--max-tokens",
                "30",
                "--repeat-penalty",
                "1.3",
                "--frequency-penalty",
                "0.5",
                "--presence-penalty",
            ]
            + ["-0.5", "--penalty-last-n", "-1", "--typical-p", "0.8", "--temperature", "0.5", "--logit-bias"]
            + ["275=-inf", "--logit-bias", "17=3.5"],
        ),
    ]
    for params, options in cases:
        theirs = daemon.answer(PROMPT, *options)
        ours = client.generate(PROMPT, **params).wait()
        for name in ("reason", "ids", "receipt", "numerics", "model", "prompt_tokens", "output_tokens"):
            assert getattr(ours, name) == theirs[name], (name, params)


def test_chunks_concatenate_to_the_answer(client):
    stream = client.generate(PROMPT, max_tokens=60, temperature=0.8, seed=5, logprobs=2)
    events = list(stream)
    result = stream.result
    assert result.reason == "length" and len(result.ids) == 60
    assert [i for e in events for i in e.ids] == result.ids == stream.ids
    assert "".join(e.text for e in events) == result.text
    assert [p for e in events for p in e.logprobs] == result.logprobs
    assert [p.token for p in result.logprobs] == result.ids
    assert all(len(p.top) == 2 and p.top[0].logprob >= p.top[1].logprob for p in result.logprobs)
    assert all(p.logprob <= 0 for p in result.logprobs)
    at = len(stream.prompt)
    for e in events:
        assert e.kind == "tokens" and e.position == at
        at += len(e.ids)
    assert list(stream) == []  # an end stays the end
    texts = "".join(client.generate(stream.prompt, max_tokens=60, temperature=0.8, seed=5).text())
    assert texts == result.text


def test_seeds_choose_and_are_reproducible(client):
    def answer(seed):
        return client.generate(PROMPT, max_tokens=20, temperature=1, seed=seed).wait().receipt

    assert answer(1) == answer(1) != answer(2)


def test_a_stop_text_is_not_part_of_the_text(client):
    whole = client.generate(PROMPT, max_tokens=40).wait()
    stop = whole.text[10:14]
    cut = client.generate(PROMPT, max_tokens=40, stop=stop).wait()
    assert cut.reason == "stop" and cut.text == whole.text[: whole.text.index(stop)]
    assert cut.ids == whole.ids[: len(cut.ids)]


def test_text_and_tokens(client):
    text = "def f(x):\n    return 'é→𝄞'"
    ids = client.tokenize(text)
    assert ids[0] == client.info.bos and client.tokenize(text, bos=False) == ids[1:]
    assert client.detokenize(ids) == text
    assert client.detokenize_bytes(ids) == text.encode()
    assert client.detokenize([]) == "" and client.tokenize("", bos=False) == []
    assert client.tokenize("<|end|>", bos=False, special=True) == [client.info.eos]
    assert client.tokenize("<|end|>", bos=False) != [client.info.eos]
    assert client.detokenize([client.info.eos], special=True) == "<|end|>"
    assert client.detokenize([client.info.eos]) == ""
    one_by_one = b"".join(client.detokenize_bytes([i]) for i in ids[1:])
    assert one_by_one == text.encode()


def test_a_byte_that_a_vocabulary_lacks_is_several_tokens(tmp_path):
    def string(text):
        data = text.encode()
        return struct.pack("<Q", len(data)) + data

    model = tmp_path / "model.gguf"
    model.write_bytes(MODEL.read_bytes().replace(string("\u00ff"), string("\u0259")))
    daemon = Daemon(model=model)
    try:
        with hearth.Client(daemon.socket, slots=1) as client:
            assert client.detokenize(client.tokenize("\udcff" * 20, bos=False)) == "\ufffd" * 20
            assert len(client.tokenize("\udcff" * 20, bos=False)) == 60
    finally:
        daemon.stop()



def test_info_and_status(daemon, client):
    info = client.info
    assert info.server_pid == daemon.process.pid and info.socket_path == daemon.socket
    assert (info.context, info.slots, info.bos, info.eos) == (1024, 4, 1, 2)
    assert not info.is_away and info.resumes == 0
    status = client.status()
    assert status["model"] == info.model and status["fingerprint"] == info.fingerprint


def test_more_requests_than_slots_wait_their_turn(daemon):
    prompts = [f"def f{i}(" for i in range(9)]
    with hearth.Client(daemon.socket, slots=1) as one:
        alone = [one.generate(p, max_tokens=12).wait().receipt for p in prompts]
    with hearth.Client(daemon.socket, slots=2) as two:
        streams = [two.generate(p, max_tokens=12) for p in prompts]
        last = streams.pop()
        assert last.wait().receipt == alone[-1]  # though those before it are not read
        streams.pop(3).close()  # it waited, or runs, and is gone
        assert [s.wait().receipt for s in streams] == alone[:3] + alone[4:-1]


def test_sixteen_streams_from_threads(daemon):
    with hearth.Client(daemon.socket, slots=16) as client:
        assert client.info.slots == 16
        prompts = [f"class C{i}:\n    def" for i in range(16)]
        alone = [client.generate(p, max_tokens=50).wait().receipt for p in prompts]
        found = {}

        def read(i):
            found[i] = [client.generate(prompts[i], max_tokens=50).wait().receipt for _ in range(3)]

        threads = [threading.Thread(target=read, args=(i,)) for i in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(PATIENCE)
        assert found == {i: [alone[i]] * 3 for i in range(16)}


def test_one_thread_a_stream(client):
    stream, refused = client.generate(PROMPT, **LONG), []

    def read():
        try:
            stream.wait()
        except hearth.InvalidRequest as e:
            refused.append(str(e))

    threads = [threading.Thread(target=read) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE)
    assert stream.result.reason == "length"
    assert all(text == "another thread reads this answer: one thread a stream" for text in refused)


def test_closing_from_another_thread_ends_the_wait(own_daemon):
    client = hearth.Client(own_daemon.socket, slots=2)
    stream, ends = client.generate(PROMPT, **ENDLESS), []
    own_daemon.signal(signal.SIGSTOP)

    def read():
        try:
            stream.wait()
        except hearth.Closed as e:
            ends.append(str(e))

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.2)
    client.close()
    thread.join(PATIENCE)
    assert ends == ["the client was closed before the answer was whole"]
    own_daemon.signal(signal.SIGCONT)
    until(lambda: own_daemon.counters()["slots_used"] == 0)


@pytest.mark.parametrize("readers", [1, 2])
def test_closing_a_stream_from_another_thread_ends_the_wait(own_daemon, readers):
    """Both that of the thread which polls, and that of one which waits for it."""
    with hearth.Client(own_daemon.socket, slots=2) as client:
        streams = [client.generate(PROMPT, **LONG) for _ in range(readers)]
        for stream in streams:
            next(stream)
        own_daemon.signal(signal.SIGSTOP)
        threads = [threading.Thread(target=stream.wait) for stream in streams]
        for t in threads:
            t.start()
        time.sleep(0.2)
        for stream in streams:
            stream.close()
        for t in threads:
            t.join(PATIENCE)
            assert not t.is_alive()
        own_daemon.signal(signal.SIGCONT)
        assert client.generate(PROMPT, max_tokens=3).wait().output_tokens == 3


def test_events_read_by_another_thread_wake_the_waiter(daemon):
    with hearth.Client(daemon.socket, slots=2) as client:
        for i in range(50):
            stream = client.generate(f"def f{i}(", max_tokens=3)
            thread = threading.Thread(target=stream.wait)
            thread.start()
            while thread.is_alive():
                client.tokenize("x")  # takes in what has arrived
            thread.join()
            assert stream.result.output_tokens == 3


# What runs the tests may ignore Ctrl-C, as a shell does for what it starts in the background.
HEED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def test_ctrl_c_while_the_daemon_does_not_answer(own_daemon):
    own_daemon.signal(signal.SIGSTOP)
    code = HEED + "import sys, hearth\nprint('go', flush=True)\nhearth.Client(sys.argv[1], timeout=3600)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, own_daemon.socket], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout.readline() == b"go\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode != 0


class Counted:
    """A poller that counts how often it is asked."""

    def __init__(self, poller):
        self.poller, self.polls = poller, 0

    def poll(self, *arguments):
        self.polls += 1
        return self.poller.poll(*arguments)


def test_waiting_does_not_spin(own_daemon):
    with hearth.Client(own_daemon.socket) as client:
        stream = client.generate(PROMPT, **ENDLESS)
        next(stream)
        own_daemon.signal(signal.SIGSTOP)
        timer = threading.Timer(1.0, own_daemon.signal, [signal.SIGCONT])
        timer.start()
        client._core._poller = counted = Counted(client._core._poller)
        start = time.monotonic()
        while time.monotonic() - start < 0.9:
            next(stream)
        assert counted.polls < 50


def test_a_named_slot_stays_warm(daemon):
    text = "import os\n" * 40
    for round_ in range(2):
        with hearth.Client(daemon.socket, slots=1, slot_name="py-test") as client:
            result = client.generate(text + f"def f{round_}", max_tokens=4).wait()
            if round_:
                assert result.cached_tokens >= len(client.tokenize(text)) - 1
    with hearth.Client(daemon.socket, slots=1, slot_name="py-test"):
        with pytest.raises(hearth.Busy, match="py-test is in use"):
            hearth.Client(daemon.socket, slots=1, slot_name="py-test")


def test_progress_of_a_long_prompt_has_no_text(client):
    for event in client.generate([1] + [300 + i % 3000 for i in range(1000)], max_tokens=2, proposer="none"):
        if event.kind == "progress":
            assert not event.ids and not event.text and 0 <= event.done <= event.total <= 1001


SILENT = """
import os, sys, gc
import hearth
try:
    hearth.Client("/nowhere/s")
except hearth.NotRunning:
    pass
client = hearth.Client(sys.argv[1])
try:
    client.generate("x", top_p=7).wait()
except hearth.InvalidRequest:
    pass
stream = client.generate("def f(", max_tokens=500)
next(stream)
del stream
left = client.generate("def g(", max_tokens=900)
next(left)
client.sequence("class A").generate(max_tokens=3).wait()
"""


def test_nothing_is_printed(daemon):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SILENT, daemon.socket],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert (done.returncode, done.stdout) == (0, b"")


CTRL_C = """
import sys, threading, time
import hearth
client = hearth.Client(sys.argv[1])
stream = client.generate("def f(", max_tokens=15000, logit_bias={2: -10000.0})
next(stream)

def tell():
    had = len(stream.ids)
    while len(stream.ids) == had:  # only wait() reads events
        time.sleep(0.001)
    print("reading", flush=True)

threading.Thread(target=tell, daemon=True).start()
try:
    stream.wait()
except KeyboardInterrupt:
    assert stream.result.reason == "cancelled", stream.result
    assert len(client.generate("def g(", max_tokens=5).wait().ids) == 5
    print("interrupted")
"""


def test_ctrl_c_cancels_the_answer_and_leaves_the_client_usable(own_daemon):
    process = subprocess.Popen(
        [sys.executable, "-c", HEED + CTRL_C, own_daemon.socket],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    assert process.stdout.readline() == "reading\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE)[0] == "interrupted\n"


def test_json_of_status_is_what_the_command_says(daemon, client):
    theirs = json.loads(daemon.run("status", "--json"))
    assert set(theirs) == set(client.status())
    assert os.path.samefile(theirs["socket"], client.info.socket_path)


def test_a_daemon_is_found_by_its_model(daemon, monkeypatch, tmp_path):
    (tmp_path / "hearth").mkdir()
    (tmp_path / "hearth" / "some-model-8b.sock").symlink_to(daemon.socket)
    (tmp_path / "hearth" / "some-model-3b.sock").symlink_to(daemon.socket)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in "some-model-8b", "some:model-8", "hearth code 5M":  # the last is what the daemon says
        with hearth.Client(model=name, slots=0) as client:
            assert client.info.server_pid == daemon.process.pid
    with pytest.raises(hearth.InvalidRequest, match="several"):
        hearth.Client(model="some")
    with pytest.raises(hearth.NotRunning, match="no daemon serves other, only some-model-3b"):
        hearth.Client(model="other")
