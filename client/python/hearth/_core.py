"""One connection and the answers that run on it; what Client and AsyncClient have in common.

A handle of the library belongs to one thread at a time: it is called with `lock` held only. The handle is
pollable, so no thread waits with the lock held. The library wants hearth_next() to be called until it has
nothing more before a poll: pump() does that, whenever the lock is given back.

A stream that is dropped without a word ends in a finalizer, and that may run anywhere, also in this thread
while it holds the lock. So drop() only notes the run; the next holder of the lock cancels it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import threading
from array import array
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

from . import _native
from ._chat import ChatReader
from ._options import make_options, make_path
from ._request import Request
from ._text import address, encode
from .errors import Closed, Error, Forked, InvalidRequest, make_error
from .types import Event, Info, Logprob, Result, Socket, TokenLogprobs

QUEUED, RUNNING, ENDED = range(3)

MOMENT = 0.05  # seconds until another look, where no descriptor tells
LOOK = 1.0  # the same beside a descriptor: did the daemon take too long to answer?

_STATUS_BYTES = 65536
_ERROR_BYTES = 512


class Run:
    """One request on its way. Streams hold it, and the core while it runs or waits for a slot."""

    def __init__(self, request: Request, kept: Optional[Callable[[List[int]], None]] = None) -> None:
        self.request = request
        self.state = QUEUED
        self.slot = -1
        self.events: Deque[Event] = deque()  # not yet taken
        self.ids: List[int] = []  # so far
        self.text: List[str] = []
        self.logprobs: Optional[List[TokenLogprobs]] = [] if request.c.logprobs >= 0 else None
        self.result: Optional[Result] = None  # ENDED
        self.is_taken = False  # the reader has come to the end, or wants no more
        self.wake: Optional[Callable[[], None]] = None  # called when there is something new
        self.kept = kept  # gets the ids of the answer when its end is taken

    @property
    def is_ready(self) -> bool:
        return bool(self.events) or self.state == ENDED

    def end(self, result: Result) -> None:
        self.state, self.result = ENDED, result
        if self.wake:
            self.wake()

    def cut(self, reason: str, error: Optional[Error] = None) -> None:
        """The end of a run that the daemon says nothing about: its counters are 0."""
        self.end(
            Result(
                reason=reason,
                text="".join(self.text),
                ids=self.ids,
                prompt_tokens=len(self.request.prompt),
                output_tokens=len(self.ids),
                logprobs=self.logprobs,
                error=error,
            )
        )

    def take_back(self) -> None:
        """Forgets what the reader did not take."""
        for e in self.events:
            del self.ids[len(self.ids) - len(e.ids) :], self.text[-1]
            if self.logprobs is not None:
                del self.logprobs[len(self.ids) :]
        self.events.clear()

    def take_end(self) -> None:
        self.is_taken = True
        kept, self.kept = self.kept, None
        if kept:
            kept(self.ids)


class _Slot:
    """What a slot runs, and which tokens it holds from before."""

    __slots__ = ("run", "last", "used")

    def __init__(self) -> None:
        self.run: Optional[Run] = None  # until its end is told
        self.last: Optional[Run] = None
        self.used = 0  # when it was last taken, in requests

    def is_free(self) -> bool:
        return self.run is None or self.run.state == ENDED

    def common(self, prompt: bytes) -> int:
        """How many of the prompt's first bytes are here already."""
        if self.last is None:
            return 0
        held = self.last.request.prompt + array("I", self.last.ids)
        return common_prefix(held.tobytes(), prompt)


def common_prefix(a: bytes, b: bytes) -> int:
    n, at, step = min(len(a), len(b)), 0, 4096
    while at < n and step:
        if a[at : at + step] == b[at : at + step]:
            at += step
        else:
            step //= 4
    return min(at, n)


def read_ids(where: Optional[int], n: int) -> List[int]:
    if not n or where is None:
        return []
    ids = array("I")
    ids.frombytes(ctypes.string_at(where, n * 4))
    return ids.tolist()


def _text(value: Optional[bytes]) -> str:
    return (value or b"").decode("utf-8", "replace")


def _read_logprobs(e: _native.Event) -> Optional[List[TokenLogprobs]]:
    if not e.logprobs:
        return None
    found = []
    for i in range(e.n_tokens):
        item = e.logprobs[i]
        top = [Logprob(item.top[k].token, item.top[k].logprob) for k in range(item.n_top)]
        found.append(TokenLogprobs(item.picked.token, item.picked.logprob, top))
    return found


class Core:
    """flags: _native.POLLABLE, and NONBLOCK where set_up() is to be called when is_ready() says so."""

    def __init__(
        self,
        socket: Optional[Socket],
        slots: int,
        slot_name: Optional[str],
        timeout: Optional[float],
        resume: float,
        flags: int,
    ) -> None:
        self._handle = ctypes.c_void_p()
        self._library = lib = _native.load()
        self._pid = os.getpid()
        self.lock = threading.Lock()
        self._dropped: Deque[Run] = deque()
        self._queue: Deque[Run] = deque()
        self._requests = 0
        self.dead: Optional[Error] = None
        options = make_options(slots, slot_name, timeout, resume, flags)
        path = make_path(socket)
        text = ctypes.create_string_buffer(_ERROR_BYTES)
        code = lib.hearth_connect(path, ctypes.byref(options), ctypes.byref(self._handle), text, len(text))
        if code < 0:
            raise make_error(code, _text(text.value))
        self._event = ctypes.POINTER(_native.Event)()
        self._next = (self._handle, _native.ANY_SLOT, ctypes.byref(self._event), 0)
        self._slots: List[_Slot] = []
        self.fd = self.check(lib.hearth_fd(self._handle)) if flags & _native.POLLABLE else -1
        if not flags & _native.NONBLOCK:
            self.set_up()

    def is_ready(self) -> bool:
        return self.check(self._library.hearth_ready(self._handle)) == 1

    def set_up(self) -> None:
        self._slots = [_Slot() for _ in range(self.info().slots)]

    # ---- the lock ------------------------------------------------------------------------------

    def __enter__(self) -> "Core":
        if os.getpid() != self._pid:  # the lock may belong to a thread of the parent
            raise Forked("this connection belongs to the parent process: connect again after fork")
        self.lock.acquire()
        if self.is_closed:
            self.lock.release()
            raise Closed("this client is closed: open another one")
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.pump()
        finally:
            self.lock.release()
            if self._dropped:
                self.bury()

    def drop(self, run: Run) -> None:
        """From a finalizer: this run is no longer referenced."""
        self._dropped.append(run)
        if os.getpid() == self._pid:
            self.bury()

    def bury(self) -> None:
        """Cancels what was dropped; where the lock is held, its holder does that."""
        while self._dropped and self.lock.acquire(blocking=False):
            try:
                while self._dropped:
                    run = self._dropped.popleft()
                    if not self.is_closed:
                        self.stop(run)
                        self.pump()
            finally:
                self.lock.release()

    # ---- with the lock held --------------------------------------------------------------------

    def fail(self, code: int) -> Error:
        return make_error(code, _text(self._library.hearth_error(self._handle)))

    def check(self, code: int) -> int:
        if code < 0:
            raise self.fail(code)
        return code

    def info(self) -> Info:
        c = _native.Info(size=ctypes.sizeof(_native.Info))
        self.check(self._library.hearth_info(self._handle, ctypes.byref(c)))
        return Info(
            c.context,
            c.slots,
            c.n_vocab,
            c.bos,
            c.eos,
            c.server_pid,
            _text(c.model),
            _text(c.numerics),
            _text(c.fingerprint),
            _text(c.server_version),
            _text(c.socket_path),
            bool(c.is_away),
            c.resumes,
            bool(c.fim),
            _text(c.chat_template),
        )

    def tokenize(self, text: str, bos: bool, special: bool) -> "array[int]":
        data = encode("text", text)
        flags = (_native.ADD_BOS if bos else 0) | (_native.SPECIAL if special else 0)

        def write(ids: "array[int]") -> int:
            where, size = address(ids), len(ids)
            return int(self._library.hearth_tokenize(self._handle, data, len(data), flags, where, size))

        # A token is a byte at least, mostly; begin-of-sequence, a space before. A byte that a vocabulary
        # lacks is several tokens.
        return self._fill(write, len(data) + 2)

    def detokenize(self, ids: "array[int]", special: bool) -> bytes:
        flags = _native.SPECIAL if special else 0
        room = 8 * len(ids)
        while True:
            text = ctypes.create_string_buffer(room)
            n = self.check(
                self._library.hearth_detokenize(self._handle, address(ids), len(ids), flags, text, room)
            )
            if n <= room:
                return text.raw[:n]
            room = n

    def fim(self, fim: _native.Fim) -> "array[int]":
        def write(ids: "array[int]") -> int:
            size = len(ids)
            return int(self._library.hearth_fim(self._handle, ctypes.byref(fim), address(ids), size))

        return self._fill(write)

    def chat(self, chat: _native.Chat) -> "array[int]":
        def write(ids: "array[int]") -> int:
            size = len(ids)
            return int(self._library.hearth_chat_tokens(self._handle, ctypes.byref(chat), address(ids), size))

        return self._fill(write)

    def chat_text(self, chat: _native.Chat) -> str:
        room = 16384
        while True:
            text = ctypes.create_string_buffer(room)
            n = self.check(self._library.hearth_chat_text(self._handle, ctypes.byref(chat), text, room))
            if n <= room:
                return _text(text.raw[:n])
            room = n

    def chat_reader(self, chat: _native.Chat) -> ChatReader:
        reader = ctypes.c_void_p()
        self.check(self._library.hearth_chat_open(self._handle, ctypes.byref(chat), ctypes.byref(reader)))
        return ChatReader(self._library, reader)

    def _fill(self, write: Callable[["array[int]"], int], room: int = 4096) -> "array[int]":
        """What a function writes that says how much room it wants."""
        while True:
            ids = array("I", bytes(4 * room))
            n = self.check(write(ids))
            if n <= room:
                del ids[n:]
                return ids
            room = n

    def status(self) -> Dict[str, Any]:
        room = _STATUS_BYTES
        while True:
            text = ctypes.create_string_buffer(room)
            n = self.check(self._library.hearth_status(self._handle, text, room))
            if n < room:
                break
            room = n + 1
        status = json.loads(_text(text.raw[:n]))
        assert isinstance(status, dict)
        return status

    # ---- requests, with the lock held ----------------------------------------------------------

    def start(self, run: Run) -> None:
        """Runs it on a free slot, or queues it after those that wait already. A bad request is refused here,
        also where it would have to wait."""
        if not self._slots:
            raise InvalidRequest("this client has no slots: connect with at least one")
        if self.dead:
            raise self.dead.again()
        slot = None if self._queue else self._find_slot(run)
        if slot is None:
            self.check(self._library.hearth_check(self._handle, ctypes.byref(run.request.c)))
            self._queue.append(run)
        else:
            self._submit(run, slot)

    def _find_slot(self, run: Run) -> Optional[int]:
        """The free slot that holds most of the prompt, else the one that was not used for longest."""
        free = [i for i, slot in enumerate(self._slots) if slot.is_free()]
        if not free:
            return None
        prompt = run.request.prompt.tobytes()
        return max(free, key=lambda i: (self._slots[i].common(prompt), -self._slots[i].used))

    def _submit(self, run: Run, number: int) -> None:
        self.check(self._library.hearth_submit(self._handle, number, ctypes.byref(run.request.c)))
        slot = self._slots[number]
        self._requests += 1
        slot.run = slot.last = run
        slot.used = self._requests
        run.state, run.slot = RUNNING, number

    def _start_queued(self) -> bool:
        """Gives free slots to those that wait. Were there any?"""
        started = False
        while self._queue:
            number = self._find_slot(self._queue[0])
            if number is None:
                break
            run = self._queue.popleft()
            try:
                self._submit(run, number)
                started = True
            except Error as e:  # it was good when it came: the daemon was lost meanwhile, or is another one
                run.cut("error", e)
        return started

    def stop(self, run: Run) -> None:
        """Cancels it, unless its end was taken. An answer that is whole, but was not read, is cancelled
        too."""
        if run.is_taken:
            return
        if run.state == QUEUED:
            if run in self._queue:
                self._queue.remove(run)
        elif run.state == RUNNING:
            self._library.hearth_cancel(self._handle, run.slot)
        run.take_back()
        run.cut("cancelled")
        run.take_end()

    def pump(self) -> None:
        """Hands out all that has arrived. Afterwards `fd` says when there is more."""
        take = self._library.hearth_next
        while self._slots and not self.dead:
            code = take(*self._next)
            if code == 1:
                self.dispatch(self._event.contents)
            elif code == -errno.EINTR:
                continue
            elif code < 0:
                self._die(self.fail(code))
            elif not self._queue or not self._start_queued():
                return

    def _running(self) -> List[Run]:
        return [slot.run for slot in self._slots if slot.run and slot.run.state == RUNNING]

    def _die(self, error: Error) -> None:
        """The daemon is gone for good. Those that ran were told so, by their last event."""
        self.dead = error
        for run in self._running() + list(self._queue):
            run.cut("error", error)
        self._queue.clear()

    def dispatch(self, e: _native.Event) -> None:
        slot = self._slots[e.slot]
        run = slot.run
        if e.kind == _native.DONE:
            slot.run = None
        if run is None or run.state != RUNNING:
            return
        if e.kind == _native.DONE:
            run.end(self._read_result(run, e.result.contents))
        else:
            self._append(run, e)

    def _append(self, run: Run, e: _native.Event) -> None:
        ids = read_ids(e.tokens, e.n_tokens)
        text = ctypes.string_at(e.text, e.text_bytes).decode("utf-8", "replace") if e.text_bytes else ""
        logprobs = _read_logprobs(e)
        kind = "tokens" if e.kind == _native.TOKENS else "progress"
        run.ids += ids
        run.text.append(text)
        if logprobs and run.logprobs is not None:
            run.logprobs += logprobs
        run.events.append(Event(kind, ids, text, e.position, logprobs, e.done, e.total))
        if run.wake:
            run.wake()

    def _read_result(self, run: Run, c: _native.Result) -> Result:
        reason = _native.REASONS.get(c.reason, "error")
        return Result(
            reason=reason,
            text="".join(run.text),
            ids=run.ids,
            prompt_tokens=c.prompt_tokens,
            cached_tokens=c.cached_tokens,
            stored_tokens=c.stored_tokens,
            output_tokens=c.output_tokens,
            passes=c.passes,
            drafted=c.drafted,
            accepted_drafts=c.accepted_drafts,
            rollbacks=c.rollbacks,
            prefill_ns=c.prefill_ns,
            decode_ns=c.decode_ns,
            numerics=_text(c.numerics),
            receipt=_text(c.receipt),
            model=_text(c.model),
            prefix_break=c.prefix_break,
            logprobs=run.logprobs,
            error=make_error(c.error, _text(c.error_text)) if reason == "error" else None,
        )

    # ---- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """With the lock held. Every stream that still runs fails with Closed."""
        runs = self._running() + list(self._queue)
        self._slots, self._queue = [], deque()
        self._close_handle()
        for run in runs:
            run.cut("error", Closed("the client was closed before the answer was whole"))

    def _close_handle(self) -> None:
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._library.hearth_close(handle)

    @property
    def is_closed(self) -> bool:
        return not self._handle

    def __del__(self) -> None:
        # Without a handle __init__ failed, or this was closed. In a forked child only descriptors
        # are closed.
        if getattr(self, "_handle", None) and not self.lock.locked():
            self._close_handle()


def is_crowded(error: Error, waited: float, timeout: Optional[float]) -> bool:
    """True where the daemon just had no room for one more connection: trying again may help."""
    return error.code == -errno.EAGAIN and (timeout is None or waited < timeout)
