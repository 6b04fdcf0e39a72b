"""The client for asyncio: AsyncClient, AsyncStream, AsyncSequence.

The connection's descriptor is a reader of the event loop; nothing polls, and no thread waits for answers.
All answers that run on a client arrive through it, and lie here until they are read. Everything belongs to
the loop that the client was opened in.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, Mapping, Optional, Union

from . import _native
from ._core import ENDED, LOOK, MOMENT, Core, Run, is_crowded
from ._options import find_socket
from ._shared import BaseClient, BaseSequence, BaseStream
from .errors import Busy, Closed, Forked, InvalidRequest
from .record import check_origin, compare, read_record
from .types import Event, Prompt, Replay, Result, Socket

if TYPE_CHECKING:
    from typing_extensions import Self


def _readable(reference: "weakref.ref[_AsyncCore]") -> None:
    core = reference()
    if core is not None and not core.is_closed:
        with core:  # leaving it hands out what is there
            pass


def _bury(reference: "weakref.ref[_AsyncCore]") -> None:
    core = reference()
    if core is not None:
        core.bury()


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class _AsyncCore(Core):
    _loop: Optional[asyncio.AbstractEventLoop] = None

    async def attach(self) -> None:
        """Waits for the daemon's answer to the connection. From then on the loop reads."""
        self._loop = loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        while not self.is_ready():
            await self._wait_readable()
        self.set_up()
        if self.fd >= 0:
            with self:  # leaving it arms the descriptor
                pass
            loop.add_reader(self.fd, _readable, weakref.ref(self))

    async def _wait_readable(self) -> None:
        if self.fd < 0:  # a client without slots has none
            await asyncio.sleep(MOMENT)
            return
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        loop.add_reader(self.fd, _wake, answer)
        try:
            await asyncio.wait([answer], timeout=LOOK)
        finally:
            loop.remove_reader(self.fd)

    def _detach(self) -> None:
        loop, fd, self.fd = self._loop, self.fd, -1
        # A forked child has the parent's epoll: what it takes out there is gone for the parent.
        if loop is not None and fd >= 0 and not loop.is_closed() and os.getpid() == self._pid:
            loop.remove_reader(fd)

    def check_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise InvalidRequest("this client belongs to another event loop: open one in this loop")
        return loop

    def bury(self) -> None:
        """A finalizer may run in any thread; the streams that it wakes belong to the loop's."""
        if self._loop is None or threading.get_ident() == self._thread:
            super().bury()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_bury, weakref.ref(self))

    def _die(self, error: Any) -> None:
        self._detach()  # it is readable for good
        super()._die(error)

    def _close_handle(self) -> None:
        self._detach()
        super()._close_handle()

    async def wait(self, run: Run) -> None:
        if run.wake:
            raise InvalidRequest("another task reads this answer: one task a stream")
        future = self.check_loop().create_future()
        run.wake = partial(_wake, future)
        try:
            await future
        except BaseException:  # the task was cancelled
            if not self.is_closed:
                with self:
                    self.stop(run)
            raise
        finally:
            run.wake = None


class AsyncStream(BaseStream):
    """An answer, as it comes: `async for` events, or text(), or `await wait()` for the whole.

    It is cancelled, within one pass of the model, by aclose(), by the end of an `async with`, when the task
    that waits for it is cancelled, or when it is no longer referenced.
    """

    _core: _AsyncCore

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        run = self._run
        while not run.is_taken:
            if run.events:
                return run.events.popleft()
            if run.state == ENDED:
                self._take_end()
            else:
                await self._core.wait(run)
        raise StopAsyncIteration

    def text(self) -> AsyncIterator[str]:
        """The answer's text, piece by piece. Dropping this iterator drops the stream with it."""
        return _Texts(self)

    async def wait(self) -> Result:
        """Reads to the end."""
        async for _ in self:
            pass
        result = self.result
        assert result
        return result

    def cancel(self) -> None:
        """Cancels the rest. `result` has what came before."""
        self._cancel()

    async def aclose(self) -> None:
        self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()


class _Texts(AsyncIterator[str]):
    """No generator: an asynchronous one is closed some time after it was dropped."""

    def __init__(self, stream: AsyncStream) -> None:
        self._stream = stream

    async def __anext__(self) -> str:
        async for event in self._stream:
            if event.text:
                return event.text
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._stream.cancel()


class AsyncSequence(BaseSequence[AsyncStream]):
    async def warm(self) -> Result:
        """Computes what is there, so that answers to it, and to its forks, begin at once."""
        return await self.generate(max_tokens=0).wait()


async def _connect(
    socket: Optional[Socket], slots: int, slot_name: Optional[str], timeout: Optional[float], resume: float
) -> _AsyncCore:
    flags, waited = _native.NONBLOCK | (_native.POLLABLE if slots else 0), 0.0
    while True:
        try:
            core = _AsyncCore(socket, slots, slot_name, timeout, resume, flags)
            break
        except Busy as e:
            if not is_crowded(e, waited, timeout):
                raise
        await asyncio.sleep(MOMENT)
        waited += MOMENT
    try:
        await core.attach()
    except BaseException:
        with core:
            core.close()
        raise
    return core


def _status(socket: str) -> Dict[str, Any]:
    core = Core(socket, 0, None, 30.0, 0.0, 0)
    with core:
        status = core.status()
        core.close()
    return status


class AsyncClient(BaseClient[AsyncStream]):
    """A connection to hearthd, of one event loop: `async with AsyncClient() as client`, or connect() and
    aclose(). The parameters are those of Client."""

    _core: Optional[_AsyncCore]

    def __init__(
        self,
        socket: Optional[Socket] = None,
        *,
        model: Optional[str] = None,
        slots: int = 4,
        slot_name: Optional[str] = None,
        timeout: Optional[float] = 30.0,
        resume: float = 30.0,
    ) -> None:
        self._model = model
        self._options = (socket, slots, slot_name, timeout, resume)
        self._core = None

    async def connect(self) -> Self:
        """Waits for a daemon that is starting, at most `timeout` seconds."""
        if self._core is None:
            socket, *others = self._options
            if self._model is not None:
                socket = await asyncio.get_running_loop().run_in_executor(None, find_socket, self._model)
            self._core = await _connect(socket, *others)
        return self

    def _start(self, run: Run) -> AsyncStream:
        core = self._open()
        assert isinstance(core, _AsyncCore)
        core.check_loop()
        with core:
            core.start(run)
        return AsyncStream(core, run)

    def sequence(self, prompt: Prompt = "") -> AsyncSequence:
        """Tokens to branch from. A text is tokenized with the begin-of-sequence token."""
        sequence = AsyncSequence(self, [])
        return sequence.append(prompt) if len(prompt) else sequence

    async def replay(self, record: Union[str, bytes, Mapping[str, Any]]) -> Replay:
        """Asks again what a record asked, and compares."""
        recorded = read_record(record)
        why = check_origin(recorded, self.info)
        if why:
            return Replay(False, why, None)
        return compare(recorded, await self.generate(recorded.prompt, **recorded.params).wait())

    async def status(self) -> Dict[str, Any]:
        """The daemon's counters, asked in a thread through a connection of its own."""
        return await asyncio.get_running_loop().run_in_executor(None, _status, self.info.socket_path)

    async def aclose(self) -> None:
        """Ends whatever runs."""
        core, self._core = self._core, None
        if core is not None:
            with suppress(Closed, Forked), core:
                core.close()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
