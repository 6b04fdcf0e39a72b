"""What a client tells and takes: plain values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, List, Mapping, NamedTuple, Optional, Sequence, TypedDict, Union

if TYPE_CHECKING:
    from .errors import Error

Socket = Union[str, bytes, "os.PathLike[str]"]
Prompt = Union[str, Sequence[int]]
Schema = Union[str, Mapping[str, Any], bool]  # as JSON text, or what json.loads() makes of it

# In the form of OpenAI's API, or as JSON text: [{"role": "user", "content": "..."}, ...]
Messages = Union[str, Sequence[Mapping[str, Any]]]
Tools = Union[str, Sequence[Mapping[str, Any]]]


class Mark(NamedTuple):
    """A text in an answer: where its grammar begins to bind, or where a thought begins or ends. As
    ChatReader.params has them."""

    kind: str  # "call", "thought", "thought_end"
    text: str
    open: bool = False  # of a thought: the answer begins inside of one
    tokens: Optional[int] = None  # tokens that a thought may have; then `closing`


class Params(TypedDict, total=False):
    """How to answer. None means the default, which is in brackets; client/hearth.h says more."""

    max_tokens: Optional[int]  # [256]; 0: the prompt is computed, so that the next request finds it warm
    temperature: Optional[float]  # [0] the most likely token
    top_k: Optional[int]  # [0] off
    top_p: Optional[float]  # [1] off
    min_p: Optional[float]  # [0] off
    typical_p: Optional[float]  # [1] off
    repeat_penalty: Optional[float]  # [1] off
    frequency_penalty: Optional[float]  # [0] off
    presence_penalty: Optional[float]  # [0] off
    penalty_last_n: Optional[int]  # [64] tokens that the penalties look at; 0 none, -1 all
    seed: Optional[int]  # [0]
    logit_bias: Optional[Mapping[int, float]]  # token id: added to its logit; -inf forbids it
    stop: Optional[Union[str, Sequence[str]]]  # the answer ends before this text
    stop_tokens: Optional[Sequence[int]]  # or at this token
    shown_tokens: Optional[Sequence[int]]  # control tokens that are part of the text (ChatReader.marks)
    marks: Optional[Sequence[Mark]]  # where the grammar binds, and thoughts lie (ChatReader.params)
    closing: Optional[Sequence[int]]  # the tokens that close a thought at its limit (ChatReader.params)
    banned: Optional[Sequence[int]]  # tokens that are never picked, such as those that begin a call
    ignore_eos: Optional[bool]  # [False] True: the model cannot end the answer itself
    grammar: Optional[str]  # [none] a GBNF that the answer follows, from its rule "root" on
    json_schema: Optional[Schema]  # [none] the same, made of a JSON schema
    logprobs: Optional[int]  # [none] 0 of each token, 1 to 20 also of that many alternatives
    priority: Optional[str]  # ["interactive"], "batch" lets others go first
    proposer: Optional[str]  # ["auto"] the source of drafts. Never changes the answer
    guess: Optional[Prompt]  # what may follow: the last completion, the file's next lines. May be wrong
    deterministic: Optional[bool]  # [True] the same tokens, always; False: faster where a device can
    bos: Optional[
        bool
    ]  # [True] of a prompt that is text: begin-of-sequence first, where the vocabulary wants one
    special: Optional[bool]  # [False] of a prompt that is text: "<|im_end|>" means that token


class Logprob(NamedTuple):
    token: int
    logprob: float  # natural logarithm


class TokenLogprobs(NamedTuple):
    token: int
    logprob: float
    top: List[Logprob]  # most likely first


class Event(NamedTuple):
    """A piece of an answer. `text` is whole characters; it may be empty while a stop text may begin."""

    kind: str  # "tokens", or "progress" of a prompt that takes a while
    ids: List[int]
    text: str
    position: int  # of ids[0] in prompt + answer
    logprobs: Optional[List[TokenLogprobs]]
    done: int  # progress: positions computed, ...
    total: int  # ... of so many


class Result(NamedTuple):
    """How an answer ended."""

    reason: str  # eos, stop, length, cancelled, error
    text: str  # all of it
    ids: List[int]  # all of them; the token that ended it included, which is not part of the text
    prompt_tokens: int
    output_tokens: int
    logprobs: Optional[List[TokenLogprobs]] = None  # of all ids
    error: Optional[Error] = None  # reason "error"
    # What the daemon tells of an answer that ended by itself; 0 and "" where it was cancelled.
    cached_tokens: int = 0  # of the prompt: already computed before
    stored_tokens: int = 0  # of these: read from the daemon's store
    passes: int = 0
    drafted: int = 0
    accepted_drafts: int = 0
    rollbacks: int = 0
    prefill_ns: int = 0
    decode_ns: int = 0
    numerics: str = ""  # ends in "+fast" where the answer was not verified
    receipt: str = ""
    model: str = ""
    prefix_break: int = 0  # where the prompt first differed from what the slot held before


class Info(NamedTuple):
    """What is at the other end."""

    context: int  # most tokens of prompt + answer
    slots: int  # how many answers run at the same time on this client
    n_vocab: int
    bos: int  # -1 where the vocabulary has none
    eos: int
    server_pid: int
    model: str
    numerics: str
    fingerprint: str
    server_version: str
    socket_path: str
    is_away: bool  # the daemon is gone and waited for
    resumes: int  # how often it came back
    fim: bool  # the model has fill-in-the-middle tokens
    chat_template: str  # the model's; "" where it has none


class Replay(NamedTuple):
    """What came of asking again what a record asked."""

    equal: bool
    text: str  # one line: equal, or what differs
    result: Optional[Result]  # None: the daemon is another one, it was not asked
