"""What the library makes of texts: prompts, and grammars of JSON schemas."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Mapping, Optional, Sequence, Tuple, Union

from . import _native
from ._text import encode, encode_name
from .errors import InvalidRequest, make_error
from .types import Messages, Schema, Tools

Chunk = Tuple[Optional[str], str]  # a file's name, and its text

_ERROR_BYTES = 512


def to_json(what: str, value: Any) -> bytes:
    """A text is JSON already."""
    if isinstance(value, str):
        return encode(what, value)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as e:
        raise InvalidRequest(f"{what}: no JSON: {e}") from None


def make_chat(
    messages: Messages,
    tools: Optional[Tools],
    variables: Union[str, Mapping[str, Any], None],
    template: Optional[str],
    answers: bool,
) -> _native.Chat:
    chat = _native.Chat()
    _native.load().hearth_chat_init(ctypes.byref(chat), ctypes.sizeof(chat))
    texts = {
        "messages": to_json("messages", messages),
        "tools": None if tools is None else to_json("tools", tools),
        "extra": None if variables is None else to_json("variables", variables),
        "chat_template": None if template is None else encode("template", template),
    }
    for what, data in texts.items():
        if data is not None:
            setattr(chat, what, data)
            setattr(chat, what + "_bytes", len(data))
    chat.add_generation_prompt = answers
    return chat


def bind_calls(
    chat: _native.Chat, tool_choice: str, parallel_tool_calls: bool, thinking_tokens: Optional[int]
) -> None:
    """What an answer has to call, and how long it may think."""
    if tool_choice == "none":
        chat.tool_choice = _native.TOOLS_NONE
    elif tool_choice != "auto":
        chat.tool_choice = _native.TOOLS_REQUIRED
    if tool_choice not in ("auto", "none", "required"):
        chat.tool_name = encode_name("tool_choice", tool_choice)
    chat.single_call = not parallel_tool_calls
    if thinking_tokens is not None:
        if not 0 <= thinking_tokens < 2**31:
            raise InvalidRequest(f"thinking_tokens {thinking_tokens}: give 0 to {2**31 - 1}")
        chat.thinking_tokens = thinking_tokens


def grammar_from_schema(schema: Schema) -> str:
    """A grammar in llama.cpp's dialect of GBNF that answers of a JSON schema follow. InvalidRequest: what
    the schema asks for is not possible, or makes no sense."""
    data = to_json("json_schema", schema)
    make = _native.load().hearth_schema
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    room = 16384
    while True:
        text = ctypes.create_string_buffer(room)
        n = make(data, len(data), text, room, error, len(error))
        if n < 0:
            raise make_error(n, error.value.decode("utf-8", "replace"))
        if n < room:
            return text.raw[:n].decode("utf-8")
        room = n + 1


def _name(what: str, name: Optional[str]) -> Optional[bytes]:
    return None if name is None else encode_name(what, name)


def make_fim(
    prefix: str,
    suffix: str,
    extra: Sequence[Chunk],
    middle: str,
    order: str,
    prompt_tokens: int,
    repo: Optional[str],
    name: Optional[str],
) -> _native.Fim:
    fim = _native.Fim()
    _native.load().hearth_fim_init(ctypes.byref(fim), ctypes.sizeof(fim))
    texts = {"prefix": prefix, "suffix": suffix, "middle": middle}
    for what, text in texts.items():
        data = encode(what, text)
        setattr(fim, what, data)
        setattr(fim, what + "_bytes", len(data))
    chunks = [(_name("extra", file), encode("extra", text)) for file, text in extra]
    fim.extra = (_native.Chunk * len(chunks))(*(_native.Chunk(n, t, len(t)) for n, t in chunks))
    fim.n_extra = len(chunks)
    if order not in _native.FIM_ORDERS:
        raise InvalidRequest(f"order {order!r}: give 'auto', 'psm', 'spm' or 'plain'")
    fim.order = _native.FIM_ORDERS[order]
    if not 0 <= prompt_tokens < 2**32:
        raise InvalidRequest(f"prompt_tokens {prompt_tokens}: give 0 to {2**32 - 1}")
    fim.max_tokens = prompt_tokens
    fim.repo, fim.name = _name("repo", repo), _name("name", name)
    return fim
