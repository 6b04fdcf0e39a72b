"""Records: what an answer is a function of, the answer, and its receipt. `hearth replay` reads them.

client/cli/record.h says what the members are.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple, Union, cast

from ._native import MARK_KINDS
from ._request import Request
from .errors import InvalidRequest
from .types import Info, Mark, Params, Replay, Result

_VERSION = 1
_ENDS = ("eos", "stop", "length")

# Members that are parameters of the same name, in the record's order.
_NUMBERS = (
    "max_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
    "penalty_last_n",
    "seed",
)


def _number(value: Any) -> Any:
    """Nine digits say which float it is."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def make_record(info: Info, request: Request, result: Result) -> str:
    """One line of JSON, as `hearth run --record` writes it."""
    if result.reason not in _ENDS:
        raise InvalidRequest(f"no record of an answer that ended with {result.reason}: it has no receipt")
    c = request.c
    numbers = {name: _number(getattr(c, name)) for name in _NUMBERS}
    # The context ends the answer too: so that a daemon with a larger one ends it there.
    numbers["max_tokens"] = min(c.max_tokens, info.context - len(request.prompt))
    record: Dict[str, Any] = {
        "hearth_record": _VERSION,
        "model": result.model,
        "fingerprint": info.fingerprint,
        "numerics": result.numerics,
        "prompt": request.prompt.tolist(),
        **numbers,
        "logit_bias": [[token, _number(max(value, -10000.0))] for token, value in request.bias],
        "stop": [_text(stop) for stop in request.stops],
        "stop_tokens": request.stop_tokens.tolist(),
        "logprobs": c.logprobs,
        "deterministic": bool(c.deterministic),
        "ids": result.ids,
        "reason": result.reason,
        "receipt": result.receipt,
    }
    if request.grammar is not None:
        record["grammar"] = _text(request.grammar)
    if request.marks:
        record["marks"] = [[m.kind, m.open, m.tokens, _text(m.text)] for m in request.marks]
    if request.closing:
        record["closing"] = request.closing.tolist()
    if request.banned:
        record["banned"] = request.banned.tolist()
    if c.ignore_eos:
        record["ignore_eos"] = True
    return json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n"


class Recorded(NamedTuple):
    model: str
    fingerprint: str
    numerics: str
    prompt: List[int]
    params: Params
    ids: List[int]
    reason: str
    receipt: str


def _check_types(wanted: type, *values: Any) -> None:
    for value in values:
        if not isinstance(value, wanted):
            raise TypeError(f"{wanted.__name__} expected, not {value!r:.80}")


def read_record(record: Union[str, bytes, Mapping[str, Any]]) -> Recorded:
    """Raises InvalidRequest for anything but a record. Ranges are checked by the library."""
    try:
        members: Dict[str, Any] = json.loads(record) if isinstance(record, (str, bytes)) else dict(record)
        if members.pop("hearth_record") != _VERSION:
            raise InvalidRequest(f"this is not a record of version {_VERSION}")
        names: Tuple[str, ...] = ("model", "fingerprint", "numerics", "prompt")
        first = [members.pop(name) for name in names]
        last = [members.pop(name) for name in ("ids", "reason", "receipt")]
        params = {name: members.pop(name) for name in (*_NUMBERS, "stop", "stop_tokens", "deterministic")}
        params["logit_bias"] = {int(token): value for token, value in members.pop("logit_bias")}
        params["grammar"] = members.pop("grammar", None)
        kinds = {number: kind for kind, number in MARK_KINDS.items()}
        params["marks"] = [
            Mark(kinds[kind], text, bool(is_open), None if tokens < 0 else tokens)
            for kind, is_open, tokens, text in members.pop("marks", ())
        ]
        params["closing"] = members.pop("closing", ())
        params["banned"] = members.pop("banned", ())
        params["ignore_eos"] = members.pop("ignore_eos", False)
        logprobs = members.pop("logprobs")
        params["logprobs"] = None if logprobs < 0 else logprobs
        model, fingerprint, numerics, prompt = first
        ids, reason, receipt = last
        _check_types(str, model, fingerprint, numerics, reason, receipt)
        _check_types(list, prompt, ids)
        _check_types(int, params["max_tokens"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as e:
        if isinstance(e, InvalidRequest):
            raise
        raise InvalidRequest(f"not a record of an answer: {e!r}") from None
    if members:
        raise InvalidRequest(f"a record has no member {sorted(members, key=str)[0]}")
    params["deterministic"] = not _is_fast(numerics)  # an answer that was verified is, again
    return Recorded(model, fingerprint, numerics, prompt, cast(Params, params), ids, reason, receipt)


# At the end of the numerics id: fast passes gave the answer, and it was not verified.
_FAST = "+fast"


def _is_fast(numerics: str) -> bool:
    return numerics.endswith(_FAST)


def check_origin(recorded: Recorded, info: Info) -> str:
    """Why this daemon cannot be asked; "" when it can."""
    if recorded.fingerprint != info.fingerprint:
        return f"recorded with another model: {recorded.model} (fingerprint {recorded.fingerprint}), the " + (
            f"daemon has {info.model} ({info.fingerprint})"
        )
    if recorded.numerics != info.numerics + (_FAST if _is_fast(recorded.numerics) else ""):
        return f"recorded with other numerics: {recorded.numerics}, the daemon has {info.numerics}"
    length = len(recorded.prompt) + (recorded.params["max_tokens"] or 0)
    if length > info.context:
        return f"prompt and answer may take {length} tokens, the context holds {info.context}"
    return ""


def compare(recorded: Recorded, now: Result) -> Replay:
    replay = _compare(recorded, now)
    if not _is_fast(recorded.numerics):
        return replay
    may = "another time it may differ" if replay.equal else "a difference proves nothing"
    return replay._replace(text=f"{replay.text}; it was not deterministic: {may}")


def _compare(recorded: Recorded, now: Result) -> Replay:
    """receipt: hearth1:MODEL:NUMERICS:REQUEST:ANSWER"""
    was, is_ = (receipt.split(":")[-2:-1] for receipt in (recorded.receipt, now.receipt))
    if was != is_:
        return Replay(False, "the prompt or a parameter was changed after the recording", now)
    if recorded.ids != now.ids:
        at = 0
        while at < min(len(recorded.ids), len(now.ids)) and recorded.ids[at] == now.ids[at]:
            at += 1
        return Replay(False, f"differs at token {at} (position {len(recorded.prompt) + at})", now)
    if recorded.reason != now.reason:
        return Replay(False, f"reason differs: recorded {recorded.reason}, now {now.reason}", now)
    if recorded.receipt != now.receipt:
        return Replay(False, f"receipt differs: recorded {recorded.receipt}, now {now.receipt}", now)
    return Replay(True, f"equal: {len(now.ids)} tokens, receipt {now.receipt}", now)
