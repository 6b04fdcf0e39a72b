"""Talk to a resident hearthd: a language model that is already warm.

import hearth

with hearth.Client() as client:
    for text in client.generate("def fib(n):", max_tokens=64).text():
        print(text, end="", flush=True)
"""

from typing import TYPE_CHECKING, Any

from ._chat import ChatEvent, ChatReader
from ._prompts import grammar_from_schema
from .client import Client, Sequence, Stream
from .errors import (
    Busy,
    Closed,
    Error,
    Forked,
    Incompatible,
    InvalidRequest,
    LibraryMissing,
    NotAllowed,
    NotRunning,
    NotSupported,
)
from .types import Event, Info, Logprob, Mark, Params, Prompt, Replay, Result, TokenLogprobs

if TYPE_CHECKING:
    from .aio import AsyncClient, AsyncSequence, AsyncStream

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncSequence",
    "AsyncStream",
    "Busy",
    "ChatEvent",
    "ChatReader",
    "Client",
    "Closed",
    "Error",
    "Event",
    "Forked",
    "Incompatible",
    "Info",
    "InvalidRequest",
    "LibraryMissing",
    "Logprob",
    "Mark",
    "NotAllowed",
    "NotRunning",
    "NotSupported",
    "Params",
    "Prompt",
    "Replay",
    "Result",
    "Sequence",
    "Stream",
    "TokenLogprobs",
    "grammar_from_schema",
]


def __getattr__(name: str) -> Any:
    """asyncio takes longer to import than all the rest: only on demand."""
    if name in ("AsyncClient", "AsyncSequence", "AsyncStream"):
        from . import aio

        return getattr(aio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
