"""AsyncClient: many answers through one descriptor of the event loop."""

import asyncio
import functools
import gc
import os
import signal
import threading
import time

import pytest
from conftest import ENDLESS, LONG, PATIENCE, until

import hearth

PROMPT = "def read_lines(path):"


def in_loop(test):
    @functools.wraps(test)
    def run(**fixtures):
        return asyncio.run(asyncio.wait_for(test(**fixtures), PATIENCE))

    return run


async def until_async(check):
    end = time.monotonic() + PATIENCE
    while not await check():
        assert time.monotonic() < end, "it did not come true"
        await asyncio.sleep(0.02)


@in_loop
async def test_the_answer_is_the_same(daemon):
    theirs = daemon.answer(PROMPT, "--max-tokens", "40", "--temperature", "0.7", "--seed", "3")
    async with hearth.AsyncClient(daemon.socket) as client:
        stream = client.generate(PROMPT, max_tokens=40, temperature=0.7, seed=3, logprobs=1)
        events = [event async for event in stream]
        assert stream.result.ids == theirs["ids"] == [i for e in events for i in e.ids]
        assert stream.result.text == "".join(e.text for e in events)
        assert len(stream.result.logprobs) == 40
        assert [event async for event in stream] == []
        texts = [
            text async for text in client.generate(PROMPT, max_tokens=40, temperature=0.7, seed=3).text()
        ]
        assert "".join(texts) == stream.result.text
        assert client.detokenize(client.tokenize("é")) == "é"


@in_loop
async def test_sixteen_streams_on_one_handle_and_as_many_in_the_queue(daemon):
    prompts = [f"class C{i}:\n    def" for i in range(16)]
    with hearth.Client(daemon.socket, slots=1) as client:
        alone = [client.generate(p, max_tokens=40).wait().receipt for p in prompts]
    async with hearth.AsyncClient(daemon.socket, slots=16) as client:
        threads, order = threading.active_count(), []

        async def read(i):
            result = await client.generate(prompts[i], max_tokens=40).wait()
            order.append(i)
            return result.receipt

        assert await asyncio.gather(*(read(i) for i in range(16))) == alone
        assert sorted(order) == list(range(16))
        assert await asyncio.gather(*(read(i % 16) for i in range(48))) == alone * 3
        assert threading.active_count() == threads  # no thread waits


@in_loop
async def test_streams_run_side_by_side(own_daemon):
    """Each of four makes progress before any of them ends."""
    async with hearth.AsyncClient(own_daemon.socket, slots=4) as client:
        began = set()

        async def read(i):
            async for _ in client.generate(f"def f{i}(", **ENDLESS):
                began.add(i)
                if len(began) == 4:
                    return
            raise AssertionError(f"{i} ended, but only {began} began")

        await asyncio.gather(*(read(i) for i in range(4)))


async def close(client):
    stream = client.generate(PROMPT, **ENDLESS)
    await stream.__anext__()
    await stream.aclose()
    assert stream.result.reason == "cancelled"


async def leave_with(client):
    async with client.generate(PROMPT, **ENDLESS) as stream:
        await stream.__anext__()


async def drop(client):
    await client.generate(PROMPT, **ENDLESS).__anext__()


async def drop_the_texts(client):
    async for _ in client.generate(PROMPT, **ENDLESS).text():
        break


async def drop_in_another_thread(client):
    streams = [client.generate(PROMPT, **ENDLESS)]
    await streams[0].__anext__()
    thread = threading.Thread(target=streams.clear)
    thread.start()
    thread.join()


async def cancel_the_task(client):
    streams = []

    async def read():
        streams.append(client.generate(PROMPT, **ENDLESS))
        await streams[0].wait()

    task = asyncio.ensure_future(read())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert streams[0].result.reason == "cancelled"


async def time_out(client):
    stream = client.generate(PROMPT, **ENDLESS)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(stream.wait(), 0.05)


async def fail_between(client):
    async def read():
        async for _ in client.generate(PROMPT, **ENDLESS):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await read()
    gc.collect()  # the exception held the frame


WAYS = [
    close,
    leave_with,
    drop,
    drop_the_texts,
    drop_in_another_thread,
    cancel_the_task,
    time_out,
    fail_between,
]


@pytest.mark.parametrize("way", WAYS, ids=[w.__name__ for w in WAYS])
@in_loop
async def test_dropping_cancels(own_daemon, way):
    async with hearth.AsyncClient(own_daemon.socket, slots=2) as client:
        await way(client)

        async def is_cancelled():
            status = await client.status()
            void = status["requests_cancelled"] + status["requests_superseded"]
            return void == 1 and status["slots_active"] == 0

        await until_async(is_cancelled)
        assert (await client.status())["output_tokens"] < ENDLESS["max_tokens"]
        assert (await client.generate(PROMPT, max_tokens=5).wait()).output_tokens == 5


def count_turns():
    """The turns that the loop takes from now on, as a list that grows."""
    selector, turns = asyncio.get_running_loop()._selector, []
    select = selector.select
    selector.select = lambda timeout=None: turns.append(timeout) or select(timeout)
    return turns


@in_loop
async def test_waiting_neither_spins_nor_blocks_the_loop(own_daemon):
    async with hearth.AsyncClient(own_daemon.socket) as client:
        stream = client.generate(PROMPT, **ENDLESS)
        await stream.__anext__()
        own_daemon.signal(signal.SIGSTOP)
        reader = asyncio.ensure_future(stream.wait())
        await asyncio.sleep(0.05)  # what had arrived
        turns = count_turns()
        for _ in range(20):
            await asyncio.sleep(0.05)
        assert len(turns) < 100 and not reader.done()
        had = len(stream.ids)
        own_daemon.signal(signal.SIGCONT)
        await until_async(lambda: asyncio.sleep(0, len(stream.ids) > had))
        reader.cancel()


@in_loop
async def test_the_daemon_is_killed_and_back(own_daemon):
    async with hearth.AsyncClient(own_daemon.socket, slots=2) as client:
        params = dict(LONG, temperature=0.8, seed=4)
        undisturbed = await client.generate(PROMPT, **params).wait()
        streams = [client.generate(PROMPT, **params) for _ in range(4)]
        await streams[0].__anext__()
        own_daemon.kill()
        readers = asyncio.gather(*(s.wait() for s in streams))
        await asyncio.sleep(0.2)  # the loop runs while there is no daemon
        await asyncio.get_running_loop().run_in_executor(None, own_daemon.start)
        for result in await readers:
            assert result.receipt == undisturbed.receipt
        own_daemon.kill()
        await asyncio.get_running_loop().run_in_executor(None, own_daemon.start)
        assert (await client.generate(PROMPT, **params).wait()).receipt == undisturbed.receipt


@in_loop
async def test_the_daemon_does_not_come_back(own_daemon):
    async with hearth.AsyncClient(own_daemon.socket, slots=1, resume=0.3) as client:
        streams = [client.generate(PROMPT, **ENDLESS) for _ in range(2)]
        await streams[0].__anext__()
        own_daemon.kill()
        for stream in streams:
            with pytest.raises(hearth.NotRunning):
                await stream.wait()
        turns = count_turns()
        await asyncio.sleep(0.3)
        assert len(turns) < 10  # the loop stopped watching the descriptor, which stays readable
        with pytest.raises(hearth.NotRunning):
            client.generate("x")


@in_loop
async def test_forks_and_records(daemon):
    async with hearth.AsyncClient(daemon.socket, slots=4) as client:
        trunk = client.sequence("import os\n" * 60)
        await trunk.warm()
        forks = [trunk.fork().append(f"def f{i}(") for i in range(6)]
        results = await asyncio.gather(*(f.generate(max_tokens=6, keep=True).wait() for f in forks))
        assert all(r.cached_tokens >= len(trunk) - 32 for r in results)
        assert forks[2].text() == "import os\n" * 60 + "def f2(" + results[2].text
        stream = forks[0].generate(max_tokens=5)
        await stream.wait()
        assert (await client.replay(stream.record())).equal


@in_loop
async def test_bad_requests_and_wrong_places(daemon):
    client = hearth.AsyncClient(daemon.socket, slots=1)
    with pytest.raises(hearth.Closed, match="not connected"):
        client.generate("x")
    await client.connect()
    running = client.generate("def f(", max_tokens=30)
    with pytest.raises(hearth.InvalidRequest, match="top"):
        client.generate("x", top_p=3.0)
    with pytest.raises(hearth.InvalidRequest, match="another task reads this answer"):
        contested = client.generate("def f(", **LONG)
        await asyncio.gather(contested.wait(), contested.wait())
    assert (await running.wait()).output_tokens == 30
    left = client.generate("def f(", **LONG)
    await client.aclose()
    await client.aclose()
    with pytest.raises(hearth.Closed):
        await left.wait()


def test_another_loop_is_refused(daemon):
    async def connect():
        return await hearth.AsyncClient(daemon.socket).connect()

    async def use(client):
        with pytest.raises(hearth.InvalidRequest, match="belongs to another event loop"):
            client.generate("x")

    client = asyncio.run(connect())
    asyncio.run(use(client))


def test_connecting_does_not_block_the_loop(own_daemon):
    async def connect():
        own_daemon.signal(signal.SIGSTOP)
        task = asyncio.ensure_future(hearth.AsyncClient(own_daemon.socket).connect())
        for _ in range(10):
            await asyncio.sleep(0.02)
        assert not task.done()
        own_daemon.signal(signal.SIGCONT)
        client = await task
        await client.generate("x", max_tokens=2).wait()
        await client.aclose()

    threads = threading.active_count()
    asyncio.run(connect())
    assert threading.active_count() == threads


@in_loop
async def test_a_daemon_that_does_not_answer(own_daemon):
    own_daemon.signal(signal.SIGSTOP)
    files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(hearth.NotRunning, match="did not answer in time"):
        await hearth.AsyncClient(own_daemon.socket, timeout=0.2).connect()
    task = asyncio.ensure_future(hearth.AsyncClient(own_daemon.socket).connect())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    own_daemon.signal(signal.SIGCONT)
    with pytest.raises(hearth.NotRunning, match="no daemon at"):
        await hearth.AsyncClient(own_daemon.socket + "x").connect()
    assert len(os.listdir("/proc/self/fd")) == files
    async with hearth.AsyncClient(own_daemon.socket, slots=0) as client:
        assert client.detokenize(client.tokenize("x")) == "x"
        with pytest.raises(hearth.InvalidRequest, match="no slots"):
            client.generate("x")


def test_nothing_leaks(own_daemon):
    async def ask():
        async with hearth.AsyncClient(own_daemon.socket, slots=2) as client:
            for i in range(50):
                stream = client.generate(f"def f{i}(", max_tokens=4)
                if i % 2:
                    await stream.wait()

    async def forget():
        client = await hearth.AsyncClient(own_daemon.socket).connect()
        await client.generate("x", max_tokens=500).__anext__()

    for _ in range(3):
        asyncio.run(ask())
        asyncio.run(forget())
    gc.collect()
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        asyncio.run(ask())
        asyncio.run(forget())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == files
    until(lambda: own_daemon.counters()["slots_used"] == 0)


@in_loop
async def test_a_daemon_is_found_by_its_model(daemon, monkeypatch, tmp_path):
    (tmp_path / "hearth").mkdir()
    (tmp_path / "hearth" / "model-8b.sock").symlink_to(daemon.socket)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with hearth.AsyncClient(model="model") as client:
        assert client.info.server_pid == daemon.process.pid
    with pytest.raises(hearth.NotRunning, match="no daemon serves other"):
        await hearth.AsyncClient(model="other").connect()


@in_loop
async def test_a_forked_child_that_ends_leaves_the_loop_alone(daemon):
    async with hearth.AsyncClient(daemon.socket, slots=1) as client:
        stream = client.generate(PROMPT, **ENDLESS)
        await stream.__anext__()
        child = os.fork()
        if child == 0:  # as an interpreter that ends: all is finalized, the loop is not closed
            stream = client._core = None
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        stream._run.events.clear()
        for _ in range(5):  # the child has the loop's epoll, too
            assert (await asyncio.wait_for(stream.__anext__(), 20)).ids
