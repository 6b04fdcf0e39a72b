"""Texts and ids on their way to the library."""

from __future__ import annotations

from array import array
from typing import Any, Sequence

from .errors import InvalidRequest


def make_ids(what: str, ids: Sequence[int]) -> "array[int]":
    try:
        if isinstance(ids, (bytes, bytearray)):
            raise TypeError
        return array("I", ids)
    except (OverflowError, TypeError):
        raise InvalidRequest(f"{what}: give token ids, whole numbers from 0 on") from None


def encode(what: str, text: str) -> bytes:
    """Bytes that were no UTF-8 may come back as Python's surrogate escapes; other halves are nothing."""
    if not isinstance(text, str):
        raise InvalidRequest(f"{what}: give a text, not {type(text).__name__}")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what}: half of a surrogate pair is not text") from None


def encode_name(what: str, text: str) -> bytes:
    """The same for what the library takes up to its first byte 0."""
    data = encode(what, text)
    if b"\0" in data:
        raise InvalidRequest(f"{what}: a name cannot hold a byte 0")
    return data


def address(ids: "array[Any]") -> int:
    return ids.buffer_info()[0]
