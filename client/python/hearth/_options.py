"""What a connection is asked for, checked and laid out as the library wants it."""

from __future__ import annotations

import ctypes
import os
from typing import Optional

from . import _native
from ._text import encode_name
from .errors import InvalidRequest, make_error
from .types import Socket


def make_path(socket: Optional[Socket]) -> Optional[bytes]:
    if socket is None:
        return None
    try:
        path = os.fsencode(socket)
    except TypeError:
        raise InvalidRequest(f"socket: give a path, not {socket!r}") from None
    if b"\0" in path:
        raise InvalidRequest("socket: a path cannot hold a byte 0")
    return path


def find_socket(model: str) -> str:
    """Where the daemon listens that serves a model of that name."""
    path, text = ctypes.create_string_buffer(128), ctypes.create_string_buffer(512)
    name = encode_name("model", model)
    code = _native.load().hearth_find(name, path, len(path), text, len(text))
    if code < 0:
        raise make_error(code, text.value.decode("utf-8", "replace"))
    return os.fsdecode(path.value)


def make_options(
    slots: int, slot_name: Optional[str], timeout: Optional[float], resume: float, flags: int
) -> _native.Options:
    options = _native.Options()
    _native.load().hearth_options_init(ctypes.byref(options), ctypes.sizeof(options))
    options.flags = flags
    options.slots = _slots(slots)
    options.slot_name = None if slot_name is None else encode_name("slot_name", slot_name)
    options.connect_timeout_ms = -1 if timeout is None else _milliseconds("timeout", timeout)
    options.resume_ms = _milliseconds("resume", resume)
    return options


def _slots(slots: int) -> int:
    try:
        number = slots.__index__()
    except AttributeError:
        raise InvalidRequest(f"slots: give a whole number, not {slots!r}") from None
    if not 0 <= number < 2**32:
        raise InvalidRequest(f"slots {number}: give how many answers run at once, or 0 for none")
    return number


def _milliseconds(name: str, seconds: float) -> int:
    try:
        ms = float(seconds) * 1000
    except (TypeError, ValueError):
        raise InvalidRequest(f"{name}: give seconds, not {seconds!r}") from None
    if not 0 <= ms < 2**31:
        raise InvalidRequest(f"{name} {seconds}: give seconds, 0 or more")
    return int(ms)
