"""A request: parameters checked, and laid out as the library wants them.

ctypes cuts a number that does not fit without a word, so ranges of integers are checked here; what the
numbers mean is the library's to check.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable
from collections.abc import Mapping as MappingABC
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _native
from ._prompts import grammar_from_schema
from ._text import address, encode, encode_name, make_ids
from .errors import InvalidRequest
from .types import Mark, Params, Prompt, Schema

_U32 = (0, 2**32 - 1)
_I32 = (-(2**31), 2**31 - 1)
_INTEGERS = {
    "max_tokens": _U32,
    "top_k": _U32,
    "penalty_last_n": _I32,
    "seed": (0, 2**64 - 1),
    "logprobs": _I32,
}
_FLOATS = (
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
)
_KNOWN = frozenset(Params.__annotations__)

Tokenize = Callable[[str, bool, bool], "array[int]"]


def _integer(name: str, value: Any) -> int:
    low, high = _INTEGERS[name]
    try:
        number = value.__index__()
    except AttributeError:
        raise InvalidRequest(f"{name}: give a whole number, not {value!r}") from None
    if not low <= number <= high:
        raise InvalidRequest(f"{name} {number}: give {low} to {high}")
    return int(number)


def _float(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidRequest(f"{name}: give a number, not {value!r}") from None


def _stops(value: Union[str, Sequence[str]]) -> List[bytes]:
    if not isinstance(value, (str, Iterable)):
        raise InvalidRequest(f"stop: give texts, not {value!r}")
    texts = [encode("stop", text) for text in ([value] if isinstance(value, str) else value)]
    for text in texts:
        if b"\0" in text:
            raise InvalidRequest("stop: a stop text cannot hold a byte 0")
    return texts


def _bias(value: Mapping[int, float]) -> List[Tuple[int, float]]:
    if not isinstance(value, MappingABC):
        raise InvalidRequest("logit_bias: give {token id: value}")
    ids = make_ids("logit_bias", list(value))
    return [(i, ctypes.c_float(_float("logit_bias", v)).value) for i, v in zip(ids, value.values())]


def _marks(value: Sequence[Mark]) -> List[_native.Mark]:
    marks = []
    for mark in value:
        kind, text, is_open, tokens = mark
        if kind not in _native.MARK_KINDS:
            raise InvalidRequest(f"marks: no kind {kind!r}: give 'call', 'thought' or 'thought_end'")
        data = encode("marks", text)
        if b"\0" in data:
            raise InvalidRequest("marks: a text cannot hold a byte 0")
        limit = -1 if tokens is None else tokens
        if not -1 <= limit < 2**31:
            raise InvalidRequest(f"marks: {tokens} tokens: give 0 to {2**31 - 1}, or None")
        thought = kind == "thought"
        marks.append(_native.Mark(_native.MARK_KINDS[kind], data, bool(is_open), limit if thought else 0))
    return marks


def _grammar(grammar: Optional[str], schema: Optional[Schema]) -> Optional[bytes]:
    if grammar is not None and schema is not None:
        raise InvalidRequest("grammar and json_schema: give one of them")
    if schema is not None:
        grammar = grammar_from_schema(schema)
    if grammar is None:
        return None
    _ = _native.load().hearth_schema  # NotSupported: a library without it does not look at the grammar
    text = encode("grammar", grammar)
    if not text or b"\0" in text:
        raise InvalidRequest("grammar: give a text without a byte 0")
    return text


class Request:
    """What is submitted: prompt, parameters, and everything that the structure points to."""

    def __init__(self, prompt: Prompt, params: Params, tokenize: Tokenize) -> None:
        for name in params:
            if name not in _KNOWN:
                raise TypeError(f"no such parameter: {name}: there are {', '.join(sorted(_KNOWN))}")
        self.values: Dict[str, Any] = {k: v for k, v in params.items() if v is not None}
        values = self.values
        bos, special = values.pop("bos", True), values.pop("special", False)
        self.prompt = (
            tokenize(prompt, bool(bos), bool(special))
            if isinstance(prompt, str)
            else make_ids("prompt", prompt)
        )
        guess = values.pop("guess", ())
        self.guess = tokenize(guess, False, False) if isinstance(guess, str) else make_ids("guess", guess)
        self.stops = _stops(values.pop("stop", ()))
        self.stop_tokens = make_ids("stop_tokens", values.pop("stop_tokens", ()))
        self.shown_tokens = make_ids("shown_tokens", values.pop("shown_tokens", ()))
        self.marks = _marks(values.pop("marks", ()))
        self.closing = make_ids("closing", values.pop("closing", ()))
        self.banned = make_ids("banned", values.pop("banned", ()))
        self.bias = _bias(values.pop("logit_bias", {}))
        self.grammar = _grammar(values.pop("grammar", None), values.pop("json_schema", None))
        self._keep: List[Any] = []
        self.c = _native.Request()
        _native.load().hearth_request_init(ctypes.byref(self.c), ctypes.sizeof(self.c))
        self._set_numbers()
        self._set_lists()

    def _set_numbers(self) -> None:
        c, values = self.c, dict(self.values)
        for name in _INTEGERS:
            if name in values:
                setattr(c, name, _integer(name, values.pop(name)))
        for name in _FLOATS:
            if name in values:
                setattr(c, name, _float(name, values.pop(name)))
        c.deterministic = bool(values.pop("deterministic", True))
        c.ignore_eos = bool(values.pop("ignore_eos", False))
        priority = values.pop("priority", "interactive")
        if priority not in _native.PRIORITIES:
            raise InvalidRequest(f"priority {priority!r}: give 'interactive' or 'batch'")
        c.priority = _native.PRIORITIES[priority]
        if "proposer" in values:
            c.proposer = encode_name("proposer", values.pop("proposer"))
        assert not values, values

    def _set_lists(self) -> None:
        c = self.c
        if not self.prompt:
            raise InvalidRequest("the prompt is empty: give at least one token")
        c.n_tokens, c.tokens = len(self.prompt), address(self.prompt)
        if self.grammar is not None:
            c.grammar, c.grammar_bytes = self.grammar, len(self.grammar)
        c.n_guess, c.guess = len(self.guess), address(self.guess)
        c.n_stop_tokens, c.stop_tokens = len(self.stop_tokens), address(self.stop_tokens)
        c.n_shown_tokens, c.shown_tokens = len(self.shown_tokens), address(self.shown_tokens)
        stops = (ctypes.c_char_p * len(self.stops))(*self.stops)
        bias = (_native.Bias * len(self.bias))(*(_native.Bias(*pair) for pair in self.bias))
        c.n_stops, c.stops = len(stops), ctypes.addressof(stops)
        c.n_bias, c.bias = len(bias), ctypes.addressof(bias)
        marks = (_native.Mark * len(self.marks))(*self.marks)
        c.n_marks, c.marks = len(marks), ctypes.addressof(marks)
        c.n_closing, c.closing = len(self.closing), address(self.closing)
        c.n_banned, c.banned = len(self.banned), address(self.banned)
        self._keep = [stops, bias, marks]
