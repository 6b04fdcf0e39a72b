"""What ends: streams that are dropped, daemons that go away, clients that are forked or closed."""

import gc
import os
import threading

import pytest
from conftest import ENDLESS, LONG, PATIENCE, until

import hearth

PROMPT = "def write(self, text):"


class Watch:
    """What the daemon counted since."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.before = daemon.counters()

    def cancelled(self):
        """A request that is void before the daemon looks at it counts as superseded."""
        now = self.daemon.counters()
        return sum(now[k] - self.before[k] for k in ("requests_cancelled", "requests_superseded"))

    def expect(self, n):
        """n cancelled, nothing runs, and each made fewer tokens than it was asked for."""
        until(lambda: self.cancelled() >= n and self.daemon.counters()["slots_active"] == 0)
        now = self.daemon.counters()
        assert self.cancelled() == n
        assert now["output_tokens"] - self.before["output_tokens"] < ENDLESS["max_tokens"] * n


def begin(client):
    stream = client.generate(PROMPT, **ENDLESS)
    next(stream)
    return stream


def close(client):
    stream = begin(client)
    stream.close()
    assert stream.result.reason == "cancelled" and list(stream) == []
    assert 0 < len(stream.result.ids) < 10000


def leave_with(client):
    with begin(client):
        pass


def raise_in_with(client):
    with pytest.raises(ZeroDivisionError):
        with begin(client):
            raise ZeroDivisionError


def drop(client):
    begin(client)


def drop_the_texts(client):
    for _ in client.generate(PROMPT, **ENDLESS).text():
        break


def close_the_texts(client):
    stream = client.generate(PROMPT, **ENDLESS)
    texts = stream.text()
    next(texts)
    texts.close()  # GeneratorExit in there
    assert stream.result.reason == "cancelled"


def drop_in_a_cycle(client):
    cycle = [begin(client)]
    cycle.append(cycle)
    del cycle
    gc.collect()


def drop_in_another_thread(client):
    streams = [begin(client)]
    thread = threading.Thread(target=streams.clear)
    thread.start()
    thread.join()


def close_before_the_first_event(client):
    client.generate(PROMPT, **ENDLESS).close()


WAYS = [
    close,
    leave_with,
    raise_in_with,
    drop,
    drop_the_texts,
    close_the_texts,
    drop_in_a_cycle,
    drop_in_another_thread,
    close_before_the_first_event,
]


@pytest.mark.parametrize("way", WAYS, ids=[w.__name__ for w in WAYS])
def test_dropping_cancels(own_daemon, way):
    with hearth.Client(own_daemon.socket, slots=2) as client:
        watch = Watch(own_daemon)
        way(client)
        watch.expect(1)
        assert client.generate(PROMPT, max_tokens=5).wait().reason == "length"


def test_what_was_not_read_is_not_in_the_result(own_daemon):
    with hearth.Client(own_daemon.socket, slots=2) as client:
        stream = client.generate(PROMPT, **LONG, logprobs=0)
        read = next(stream)  # 256 tokens at most
        client.generate("def g(", max_tokens=100).wait()  # meanwhile much arrives
        until(lambda: len(stream.ids) > len(read.ids) or not client.generate("x", max_tokens=1).wait())
        stream.close()
        assert (stream.result.ids, stream.result.text) == (read.ids, read.text)
        assert len(stream.result.logprobs) == len(read.ids)
        whole = client.generate(PROMPT, **LONG)
        next(whole)
        while client.status()["slots_active"]:
            client.generate("def g(", max_tokens=20).wait()
        whole.close()  # it was whole, but was not read
        assert whole.result.reason == "cancelled" and len(whole.result.ids) < LONG["max_tokens"]


def test_a_dropped_client_goes_with_its_last_stream(own_daemon):
    stream = hearth.Client(own_daemon.socket).generate(PROMPT, max_tokens=30)
    assert len(stream.wait().ids) == 30
    del stream
    until(lambda: own_daemon.counters()["slots_used"] == 0)


def test_a_closed_client_says_so(own_daemon):
    client = hearth.Client(own_daemon.socket)
    running, queued = begin(client), None
    queued = [client.generate(PROMPT, **LONG) for _ in range(6)][-1]
    client.close()
    client.close()
    for stream in (running, queued):
        with pytest.raises(hearth.Closed, match="closed before the answer was whole"):
            stream.wait()
        stream.close()
    for call in (
        lambda: client.info,
        client.status,
        lambda: client.generate("x"),
        lambda: client.tokenize("x"),
    ):
        with pytest.raises(hearth.Closed, match="this client is closed: open another one"):
            call()


@pytest.mark.parametrize("way", ["generate", "next", "info"])
def test_a_forked_child_is_refused(client, way):
    stream = begin(client)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            {"generate": lambda: client.generate("x"), "next": stream.wait, "info": lambda: client.info}[
                way
            ]()
        except hearth.Forked as e:
            os.write(writer, str(e).encode())
            client.close()
            stream.close()
            del stream
            gc.collect()
            os.write(writer, b".")
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    said = os.read(reader, 1000)
    os.close(reader)
    assert said == b"this connection belongs to the parent process: connect again after fork."
    assert stream.wait().reason == "length"  # the parent notices nothing


def test_answers_go_on_at_the_next_daemon(own_daemon):
    with hearth.Client(own_daemon.socket, slots=2) as client:
        params = dict(LONG, temperature=0.8, seed=4)
        undisturbed = client.generate(PROMPT, **params).wait()
        for _ in range(20):  # an answer may be whole before the daemon is killed
            streams = [client.generate(PROMPT, **params), client.generate(PROMPT, **params)]
            next(streams[0])
            own_daemon.kill()
            own_daemon.start()
            for stream in streams:
                assert stream.wait().receipt == undisturbed.receipt
            if client.info.resumes >= 3:
                break
        assert client.info.resumes >= 3


def test_a_daemon_that_does_not_come_back(own_daemon):
    with hearth.Client(own_daemon.socket, slots=1, resume=0.3) as client:
        stream, queued = begin(client), client.generate("def q(", max_tokens=5)
        own_daemon.kill()
        with pytest.raises(hearth.NotRunning, match="went away in the middle of the answer"):
            stream.wait()
        assert stream.result.reason == "error" and isinstance(stream.result.error, hearth.NotRunning)
        with pytest.raises(hearth.NotRunning, match="connect again"):
            queued.wait()
        with pytest.raises(hearth.NotRunning, match="connect again"):
            client.generate("x").wait()
        with pytest.raises(hearth.NotRunning, match="no daemon at .*: start one with hearthd --model FILE"):
            hearth.Client(own_daemon.socket)
        own_daemon.start()
        assert hearth.Client(own_daemon.socket).generate("x", max_tokens=3).wait().output_tokens == 3


def test_another_waiting_thread_gets_the_error_too(own_daemon):
    with hearth.Client(own_daemon.socket, slots=3, resume=0.3) as client:
        said = []

        def read(stream):
            try:
                stream.wait()
            except hearth.NotRunning as e:
                said.append(str(e))

        streams = [client.generate(PROMPT, **ENDLESS) for _ in range(3)]
        threads = [threading.Thread(target=read, args=(s,)) for s in streams]
        own_daemon.kill()
        for t in threads:
            t.start()
        for t in threads:
            t.join(PATIENCE)
        assert len(said) == 3


def memory_pages():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1])


def test_a_thousand_requests_leave_nothing(daemon):
    with hearth.Client(daemon.socket, slots=3) as client:

        def ask(n):
            for i in range(n):
                stream = client.generate(
                    f"def f{i % 7}(", max_tokens=4 + i % 5, logprobs=1, stop=["\n\n", "zz"]
                )
                if i % 4:
                    stream.wait()
                elif i % 3:
                    next(stream)
                del stream
            gc.collect()

        ask(300)
        files, pages, objects = len(os.listdir("/proc/self/fd")), memory_pages(), len(gc.get_objects())
        ask(1000)
        assert len(os.listdir("/proc/self/fd")) == files
        assert len(gc.get_objects()) - objects < 200
        assert (memory_pages() - pages) * os.sysconf("SC_PAGE_SIZE") < 2 << 20


def test_connections_leave_nothing(daemon):
    def connect(n):
        for i in range(n):
            client = hearth.Client(daemon.socket)
            if i % 2:
                client.close()
            del client

    connect(20)
    files, pages = len(os.listdir("/proc/self/fd")), memory_pages()
    connect(200)
    assert len(os.listdir("/proc/self/fd")) == files
    assert (memory_pages() - pages) * os.sysconf("SC_PAGE_SIZE") < 4 << 20
