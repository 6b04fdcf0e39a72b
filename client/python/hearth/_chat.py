"""Reads reasoning and calls of tools out of a chat's answer."""

from __future__ import annotations

import ctypes
from typing import Any, List, NamedTuple, Optional

from . import _native
from .types import Mark, Params

_KINDS = {1: "content", 2: "reasoning", 3: "call", 4: "arguments", 5: "call_end"}


class ChatEvent(NamedTuple):
    """A piece of an answer."""

    kind: str  # "content", "reasoning", "call" (text is the tool's name), "arguments", "call_end"
    call: int  # which call of the answer, from 0
    text: str


class ChatReader:
    """One answer, in the form of the model's template; made by Client.chat_reader(). However the answer
    is cut into pieces the events are the same, but for where texts of one kind are cut; what is not a
    call in that form is content."""

    def __init__(self, library: _native.Library, reader: Any) -> None:
        self._library, self._reader = library, reader
        n = ctypes.c_uint32()
        marks = library.hearth_chat_marks(reader, ctypes.byref(n))
        ids = ctypes.cast(marks, ctypes.POINTER(ctypes.c_uint32))
        self.marks: List[int] = [ids[i] for i in range(n.value)]  # for shown_tokens

    @property
    def params(self) -> Params:
        """What chat() needs so that this can read its answer, and what was asked of calls and thoughts:
        client.chat(messages, tools, **reader.params)."""
        c = _native.Request()
        self._library.hearth_request_init(ctypes.byref(c), ctypes.sizeof(c))
        self._library.hearth_chat_request(self._reader, ctypes.byref(c))
        kinds = {number: kind for kind, number in _native.MARK_KINDS.items()}
        marks = ctypes.cast(c.marks, ctypes.POINTER(_native.Mark))
        closing = ctypes.cast(c.closing, ctypes.POINTER(ctypes.c_uint32))
        banned = ctypes.cast(c.banned, ctypes.POINTER(ctypes.c_uint32))
        params: Params = {"shown_tokens": self.marks}
        if c.grammar:
            params["grammar"] = c.grammar.decode("utf-8")
        if c.n_marks:
            params["marks"] = [
                Mark(kinds[m.kind], m.text.decode("utf-8"), bool(m.open), None if m.tokens < 0 else m.tokens)
                for m in (marks[i] for i in range(c.n_marks))
            ]
        if c.n_closing:
            params["closing"] = [closing[i] for i in range(c.n_closing)]
        if c.n_banned:
            params["banned"] = [banned[i] for i in range(c.n_banned)]
        return params

    @property
    def loosened(self) -> List[str]:
        """A line for each place of the tools' schemas that no grammar can say; arguments are checked
        for it, and unparsed says which do not follow."""
        lines = self._library.hearth_chat_loosened(self._reader)
        return [] if lines is None else str(lines.decode("utf-8", "replace")).split("\n")

    def feed(self, text: str) -> List[ChatEvent]:
        """What more of the answer's text says."""
        return self._feed(text, 0)

    def finish(self) -> List[ChatEvent]:
        """What is left when the answer is complete."""
        return self._feed("", 1)

    @property
    def unparsed(self) -> Optional[str]:
        """Why something that began as a call is content, a call is not complete, or the arguments of one
        that is bound do not follow its schema; None: nothing is."""
        why = self._library.hearth_chat_unparsed(self._reader)
        return None if why is None else str(why.decode("utf-8"))

    def _feed(self, text: str, end: int) -> List[ChatEvent]:
        data = text.encode("utf-8", "surrogatepass")
        if self._library.hearth_chat_feed(self._reader, data, len(data), end):
            raise MemoryError
        events, event = [], _native.ChatEvent(size=ctypes.sizeof(_native.ChatEvent))
        while self._library.hearth_chat_next(self._reader, ctypes.byref(event)):
            piece = ctypes.string_at(event.text, event.text_bytes) if event.text_bytes else b""
            events.append(ChatEvent(_KINDS[event.kind], event.call, piece.decode("utf-8", "replace")))
        return events

    def __del__(self) -> None:
        reader, self._reader = getattr(self, "_reader", None), None
        if reader:
            self._library.hearth_chat_close(reader)
