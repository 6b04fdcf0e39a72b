"""Ctrl-C at the right moment.

Python calls the handler of a signal between any two instructions of the main thread, and the usual one for
SIGINT raises KeyboardInterrupt there: behind the acquire() of a lock that is then never released, or between
an event that was taken from the library and the answer it belongs to. So while a thread's hands are full its
handler is put aside.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Callable, Optional, Tuple


class Held:
    """A handler that notes the signal for the one it stands in for."""

    __slots__ = ("_before", "_came", "wake", "is_direct")

    def __init__(self, before: Callable[[int, Optional[FrameType]], Any]) -> None:
        self._before = before
        self._came: Optional[Tuple[int, Optional[FrameType]]] = None
        self.wake: Optional[Callable[[], None]] = None  # ends the wait of the thread
        self.is_direct = False  # nothing is put aside: the thread sleeps where it can be interrupted

    def __call__(self, number: int, frame: Optional[FrameType]) -> None:
        if self.is_direct:
            self._before(number, frame)
            return
        self._came = number, frame
        if self.wake:
            self.wake()

    @property
    def has_come(self) -> bool:
        return self._came is not None

    def deliver(self) -> None:
        """Does what the signal should have done, where that is well."""
        came, self._came = self._came, None
        if came:
            self._before(*came)

    def let_go(self) -> None:
        signal.signal(signal.SIGINT, self._before)
        self.deliver()


def hold() -> Optional[Held]:
    """None: this thread gets no signals, or SIGINT has no handler of Python's."""
    if threading.current_thread() is not threading.main_thread():
        return None
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        return None
    held = Held(before)
    signal.signal(signal.SIGINT, held)
    return held
