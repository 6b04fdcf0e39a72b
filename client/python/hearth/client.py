"""The client for programs that wait: Client, Stream, Sequence.

Several threads may use one client. Those whose answer has nothing new wait: one of them for the descriptor
of the connection, without the lock; the others for that one, which hands out what arrives.
"""

from __future__ import annotations

import os
import select
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Union

from . import _native
from ._core import ENDED, LOOK, MOMENT, Core, Run, is_crowded
from ._options import find_socket
from ._shared import BaseClient, BaseSequence, BaseStream
from .errors import Busy, Closed, Error, Forked, InvalidRequest
from .record import check_origin, compare, read_record
from .types import Event, Prompt, Replay, Result, Socket

if TYPE_CHECKING:
    from typing_extensions import Self


class _SyncCore(Core):
    def __init__(
        self,
        socket: Optional[Socket],
        slots: int,
        slot_name: Optional[str],
        timeout: Optional[float],
        resume: float,
    ) -> None:
        self._alarm = (-1, -1)  # ends the poll of the polling thread
        self._turns: List[threading.Condition] = []  # of threads that wait for the polling one
        self._polls = self._closing = False
        super().__init__(
            socket, slots, slot_name, timeout, resume, _native.POLLABLE | _native.NONBLOCK if slots else 0
        )
        if not slots:
            return
        self._alarm = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poller = select.poll()
        self._poller.register(self._alarm[0], select.POLLIN)
        self._poller.register(self.fd, select.POLLIN)
        while not self.is_ready():  # Ctrl-C ends this
            self._poller.poll(int(LOOK * 1000))
        self.set_up()

    def wait(self, run: Run) -> None:
        """Until there is an event, or the end."""
        with self:
            try:
                while not run.is_ready:
                    if run.wake:
                        raise InvalidRequest("another thread reads this answer: one thread a stream")
                    if self._polls:
                        self._wait_turn(run)
                    else:
                        self._poll(run)
            except Error:
                raise
            except BaseException:  # Ctrl-C in the middle of an answer
                if not self.is_closed:
                    self.stop(run)
                raise
            finally:
                if self._turns and not self._polls:
                    self._turns[0].notify()

    def _wait_turn(self, run: Run) -> None:
        turn = threading.Condition(self.lock)
        run.wake = turn.notify
        self._turns.append(turn)
        try:
            turn.wait()
        finally:
            self._turns.remove(turn)
            run.wake = None

    def _poll(self, run: Run) -> None:
        self.pump()
        if run.is_ready:
            return
        self._polls, run.wake = True, self._ring  # others hand out events as well
        self.lock.release()
        try:
            if self._dropped:
                self.bury()
            self._poller.poll()
        finally:
            self.lock.acquire()
            self._polls, run.wake = False, None
            self._quiet()
            if self._closing:
                self._close_handle()
        self.pump()

    def _ring(self) -> None:
        try:
            os.write(self._alarm[1], b"!")
        except BlockingIOError:  # it rings already
            pass

    def _quiet(self) -> None:
        try:
            os.read(self._alarm[0], 4096)
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._closing = True
        super().close()

    def _close_handle(self) -> None:
        if self._polls:  # the polling thread closes it: this one, below a signal handler, or another one
            self._ring()
            return
        super()._close_handle()
        for fd in self._alarm:
            if fd >= 0:
                os.close(fd)
        self._alarm = (-1, -1)

    @property
    def is_closed(self) -> bool:
        return self._closing or super().is_closed


def _connect(
    socket: Optional[Socket], slots: int, slot_name: Optional[str], timeout: Optional[float], resume: float
) -> _SyncCore:
    waited = 0.0
    while True:
        try:
            return _SyncCore(socket, slots, slot_name, timeout, resume)
        except Busy as e:
            if not is_crowded(e, waited, timeout):
                raise
        time.sleep(MOMENT)
        waited += MOMENT


class Stream(BaseStream):
    """An answer, as it comes: iterate events, or text(), or wait() for the whole.

    It is cancelled, within one pass of the model, by close(), by the end of a `with`, when an exception
    goes through it, or when it is no longer referenced.
    """

    _core: _SyncCore

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        run = self._run
        try:
            while not run.is_taken:
                if run.events:
                    with suppress(IndexError):  # another thread took it
                        return run.events.popleft()
                elif run.state == ENDED:
                    self._take_end()
                else:
                    self._core.wait(run)
        except Error:
            raise
        except BaseException:  # Ctrl-C, which may come anywhere in here
            self.close()
            raise
        raise StopIteration

    def text(self) -> Iterator[str]:
        """The answer's text, piece by piece. Closing this iterator closes the stream."""
        try:
            for event in self:
                if event.text:
                    yield event.text
        finally:
            self.close()

    def wait(self) -> Result:
        """Reads to the end."""
        try:
            for _ in self:
                pass
        except Error:
            raise
        except BaseException:  # Ctrl-C between two events
            self.close()
            raise
        result = self.result
        assert result
        return result

    def close(self) -> None:
        """Cancels the rest. `result` has what came before."""
        self._cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sequence(BaseSequence[Stream]):
    def warm(self) -> Result:
        """Computes what is there, so that answers to it, and to its forks, begin at once."""
        return self.generate(max_tokens=0).wait()


class Client(BaseClient[Stream]):
    """A connection to hearthd.

    socket     where it listens; None: $HEARTH_SOCKET, else the user's own, else the system's
    model      in place of socket: the daemon that serves a model of that name (`hearth serve`)
    slots      how many answers may run at the same time; more than these wait for one to end. The daemon
               may grant fewer (client.info.slots)
    slot_name  a slot that keeps its tokens when the client leaves, for the next one that asks for that
               name
    timeout    seconds that the daemon may take to answer the connection; None: for ever
    resume     seconds to wait for a daemon that went away; answers go on at the next one
    """

    _core: _SyncCore

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
        if model is not None:
            socket = find_socket(model)
        self._core = _connect(socket, slots, slot_name, timeout, resume)

    def _start(self, run: Run) -> Stream:
        try:
            with self._core as core:
                core.start(run)
            return Stream(self._core, run)
        except Error:
            raise
        except BaseException:  # Ctrl-C: it may have begun, and would never be ended
            self._core.drop(run)
            raise

    def sequence(self, prompt: Prompt = "") -> Sequence:
        """Tokens to branch from. A text is tokenized with the begin-of-sequence token."""
        sequence = Sequence(self, [])
        return sequence.append(prompt) if len(prompt) else sequence

    def replay(self, record: Union[str, bytes, Mapping[str, Any]]) -> Replay:
        """Asks again what a record of Stream.record() or `hearth run --record` asked, and compares."""
        recorded = read_record(record)
        why = check_origin(recorded, self.info)
        if why:
            return Replay(False, why, None)
        return compare(recorded, self.generate(recorded.prompt, **recorded.params).wait())

    def status(self) -> Dict[str, Any]:
        """The daemon's counters."""
        with self._core as core:
            return core.status()

    def close(self) -> None:
        """Ends whatever runs."""
        with suppress(Closed, Forked), self._core as core:
            core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
