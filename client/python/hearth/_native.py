"""libhearth.so.0 through ctypes: its structures, its functions, and where it is found.

The structures repeat client/hearth.h, pointers as plain addresses; tests/python/test_layout.py compares
them with the header. Nothing is loaded before the first connection.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from .errors import LibraryMissing, NotSupported

SONAME = "libhearth.so.0"

POLLABLE, NONBLOCK = 1, 2
ADD_BOS, SPECIAL = 1, 2
TOKENS, PROGRESS, DONE = 1, 2, 3
ANY_SLOT = 0xFFFFFFFF
REASONS = {1: "eos", 2: "stop", 3: "length", 4: "cancelled", 5: "superseded", 6: "error"}
PRIORITIES = {"interactive": 0, "batch": 1}
FIM_ORDERS = {"auto": 0, "psm": 1, "spm": 2, "plain": 3}


class Options(ctypes.Structure):
    """struct hearth_options"""

    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("slots", c_uint32),
        ("slot_name", c_char_p),
        ("connect_timeout_ms", c_int32),
        ("resume_ms", c_int32),
    ]


class Info(ctypes.Structure):
    """struct hearth_info"""

    _fields_ = [
        ("size", c_uint32),
        ("context", c_uint32),
        ("slots", c_uint32),
        ("n_vocab", c_uint32),
        ("bos", c_int32),
        ("eos", c_int32),
        ("server_pid", c_uint32),
        ("model", c_char_p),
        ("numerics", c_char_p),
        ("fingerprint", c_char_p),
        ("server_version", c_char_p),
        ("socket_path", c_char_p),
        ("is_away", c_uint32),
        ("resumes", c_uint32),
        ("fim", c_uint32),
        ("chat_template", c_char_p),
    ]


class Chunk(ctypes.Structure):
    """struct hearth_chunk"""

    _fields_ = [("name", c_char_p), ("text", c_char_p), ("text_bytes", c_size_t)]


class Fim(ctypes.Structure):
    """struct hearth_fim"""

    _fields_ = [
        ("size", c_uint32),
        ("prefix", c_char_p),
        ("prefix_bytes", c_size_t),
        ("suffix", c_char_p),
        ("suffix_bytes", c_size_t),
        ("extra", POINTER(Chunk)),
        ("n_extra", c_uint32),
        ("middle", c_char_p),
        ("middle_bytes", c_size_t),
        ("order", c_uint32),
        ("max_tokens", c_uint32),
        ("step_bytes", c_size_t),
        ("repo", c_char_p),
        ("name", c_char_p),
    ]


class Chat(ctypes.Structure):
    """struct hearth_chat"""

    _fields_ = [
        ("size", c_uint32),
        ("messages", c_char_p),
        ("messages_bytes", c_size_t),
        ("tools", c_char_p),
        ("tools_bytes", c_size_t),
        ("extra", c_char_p),
        ("extra_bytes", c_size_t),
        ("chat_template", c_char_p),
        ("chat_template_bytes", c_size_t),
        ("add_generation_prompt", c_uint32),
        ("tool_choice", c_uint32),
        ("tool_name", c_char_p),
        ("single_call", c_uint32),
        ("thinking_tokens", c_int32),
    ]


class Bias(ctypes.Structure):
    """struct hearth_bias"""

    _fields_ = [("token", c_uint32), ("value", c_float)]


TOOLS_NONE = 1
TOOLS_REQUIRED = 2
MARK_KINDS = {"call": 1, "thought": 2, "thought_end": 3}


class Mark(ctypes.Structure):
    """struct hearth_mark"""

    _fields_ = [("kind", c_uint32), ("text", c_char_p), ("open", c_uint32), ("tokens", c_int32)]


class Request(ctypes.Structure):
    """struct hearth_request"""

    _fields_ = [
        ("size", c_uint32),
        ("n_tokens", c_uint32),
        ("tokens", c_void_p),
        ("text", c_void_p),
        ("text_bytes", c_size_t),
        ("text_flags", c_uint32),
        ("max_tokens", c_uint32),
        ("priority", c_uint32),
        ("deterministic", c_uint32),
        ("logprobs", c_int32),
        ("temperature", c_float),
        ("top_k", c_uint32),
        ("top_p", c_float),
        ("min_p", c_float),
        ("typical_p", c_float),
        ("repeat_penalty", c_float),
        ("frequency_penalty", c_float),
        ("presence_penalty", c_float),
        ("penalty_last_n", c_int32),
        ("seed", c_uint64),
        ("bias", c_void_p),
        ("n_bias", c_uint32),
        ("n_stop_tokens", c_uint32),
        ("stop_tokens", c_void_p),
        ("stops", c_void_p),
        ("n_stops", c_uint32),
        ("proposer", c_char_p),
        ("cookie", c_uint64),
        ("n_guess", c_uint32),
        ("guess", c_void_p),
        ("grammar", c_char_p),
        ("grammar_bytes", c_size_t),
        ("ignore_eos", c_uint32),
        ("n_shown_tokens", c_uint32),
        ("shown_tokens", c_void_p),
        ("n_marks", c_uint32),
        ("marks", c_void_p),
        ("n_closing", c_uint32),
        ("closing", c_void_p),
        ("n_banned", c_uint32),
        ("banned", c_void_p),
    ]


class ChatEvent(ctypes.Structure):
    """struct hearth_chat_event"""

    _fields_ = [
        ("size", c_uint32),
        ("kind", c_uint32),
        ("call", c_uint32),
        ("text", c_void_p),
        ("text_bytes", c_size_t),
    ]


class Logprob(ctypes.Structure):
    """struct hearth_logprob"""

    _fields_ = [("token", c_uint32), ("logprob", c_float)]


class TokenLogprobs(ctypes.Structure):
    """struct hearth_token_logprobs"""

    _fields_ = [("picked", Logprob), ("n_top", c_uint32), ("top", POINTER(Logprob))]


class Result(ctypes.Structure):
    """struct hearth_result"""

    _fields_ = [
        ("reason", c_uint32),
        ("error", c_int32),
        ("error_text", c_char_p),
        ("prompt_tokens", c_uint32),
        ("cached_tokens", c_uint32),
        ("output_tokens", c_uint32),
        ("passes", c_uint32),
        ("drafted", c_uint32),
        ("accepted_drafts", c_uint32),
        ("rollbacks", c_uint32),
        ("prefill_ns", c_uint64),
        ("decode_ns", c_uint64),
        ("n_ids", c_uint32),
        ("ids", c_void_p),
        ("numerics", c_char_p),
        ("receipt", c_char_p),
        ("model", c_char_p),
        ("prefix_break", c_uint32),
        ("stored_tokens", c_uint32),
    ]


class Event(ctypes.Structure):
    """struct hearth_event"""

    _fields_ = [
        ("kind", c_uint32),
        ("slot", c_uint32),
        ("cookie", c_uint64),
        ("position", c_uint32),
        ("n_tokens", c_uint32),
        ("tokens", c_void_p),
        ("logprobs", POINTER(TokenLogprobs)),
        ("text", c_void_p),
        ("text_bytes", c_size_t),
        ("done", c_uint32),
        ("total", c_uint32),
        ("result", POINTER(Result)),
    ]


STRUCTURES: Dict[str, Any] = {
    "hearth_options": Options,
    "hearth_info": Info,
    "hearth_chunk": Chunk,
    "hearth_fim": Fim,
    "hearth_chat": Chat,
    "hearth_chat_event": ChatEvent,
    "hearth_bias": Bias,
    "hearth_mark": Mark,
    "hearth_request": Request,
    "hearth_logprob": Logprob,
    "hearth_token_logprobs": TokenLogprobs,
    "hearth_result": Result,
    "hearth_event": Event,
}

# name: (result, arguments). A handle, a text and a list of ids are addresses.
_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "hearth_options_init": (None, [POINTER(Options), c_size_t]),
    "hearth_connect": (c_int, [c_char_p, POINTER(Options), POINTER(c_void_p), c_void_p, c_size_t]),
    "hearth_find": (c_int, [c_char_p, c_void_p, c_size_t, c_void_p, c_size_t]),
    "hearth_ready": (c_int, [c_void_p]),
    "hearth_close": (None, [c_void_p]),
    "hearth_info": (c_int, [c_void_p, POINTER(Info)]),
    "hearth_tokenize": (c_int64, [c_void_p, c_char_p, c_size_t, c_uint32, c_void_p, c_size_t]),
    "hearth_detokenize": (c_int64, [c_void_p, c_void_p, c_size_t, c_uint32, c_void_p, c_size_t]),
    "hearth_request_init": (None, [POINTER(Request), c_size_t]),
    "hearth_submit": (c_int, [c_void_p, c_uint32, POINTER(Request)]),
    "hearth_check": (c_int, [c_void_p, POINTER(Request)]),
    "hearth_cancel": (c_int, [c_void_p, c_uint32]),
    "hearth_next": (c_int, [c_void_p, c_uint32, POINTER(POINTER(Event)), c_int]),
    "hearth_fd": (c_int, [c_void_p]),
    "hearth_status": (c_int64, [c_void_p, c_void_p, c_size_t]),
    "hearth_error": (c_char_p, [c_void_p]),
    "hearth_fim_init": (None, [POINTER(Fim), c_size_t]),
    "hearth_fim": (c_int64, [c_void_p, POINTER(Fim), c_void_p, c_size_t]),
    "hearth_chat_init": (None, [POINTER(Chat), c_size_t]),
    "hearth_chat_text": (c_int64, [c_void_p, POINTER(Chat), c_void_p, c_size_t]),
    "hearth_chat_tokens": (c_int64, [c_void_p, POINTER(Chat), c_void_p, c_size_t]),
    "hearth_chat_open": (c_int, [c_void_p, POINTER(Chat), POINTER(c_void_p)]),
    "hearth_chat_another": (c_int, [c_void_p, POINTER(c_void_p)]),
    "hearth_chat_close": (None, [c_void_p]),
    "hearth_chat_marks": (c_void_p, [c_void_p, POINTER(c_uint32)]),
    "hearth_chat_request": (c_int, [c_void_p, POINTER(Request)]),
    "hearth_chat_loosened": (c_char_p, [c_void_p]),
    "hearth_chat_feed": (c_int, [c_void_p, c_char_p, c_size_t, c_int]),
    "hearth_chat_next": (c_int, [c_void_p, POINTER(ChatEvent)]),
    "hearth_chat_unparsed": (c_char_p, [c_void_p]),
    "hearth_schema": (c_int64, [c_char_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t]),
}

# Those that an older library may lack, and what for.
_LATER = {
    "hearth_fim_init": "fim()",
    "hearth_fim": "fim()",
    "hearth_chat_init": "chat()",
    "hearth_chat_text": "chat()",
    "hearth_chat_tokens": "chat()",
    "hearth_chat_open": "chat_reader()",
    "hearth_chat_another": "chat_reader()",
    "hearth_chat_close": "chat_reader()",
    "hearth_chat_marks": "chat_reader()",
    "hearth_chat_request": "chat_reader()",
    "hearth_chat_loosened": "chat_reader()",
    "hearth_chat_feed": "chat_reader()",
    "hearth_chat_next": "chat_reader()",
    "hearth_chat_unparsed": "chat_reader()",
    "hearth_schema": "grammars and JSON schemas",
}


class Library:
    """The loaded library: its functions as attributes."""

    def __init__(self, dll: ctypes.CDLL, path: str) -> None:
        self.path = path
        self._dll = dll
        for name in _FUNCTIONS:
            if name not in _LATER:
                setattr(self, name, self._bind(name, "this package"))

    def _bind(self, name: str, what: str) -> Any:
        try:
            function = self._dll[name]
        except AttributeError:
            raise NotSupported(
                f"{self.path} is too old for {what}: it has no {name}: install a newer libhearth"
            ) from None
        function.restype, function.argtypes = _FUNCTIONS[name]
        return function

    def __getattr__(self, name: str) -> Any:
        """A function of _LATER, when it is called for the first time."""
        if name not in _LATER:
            raise AttributeError(name)
        function = self._bind(name, _LATER[name])
        setattr(self, name, function)
        return function


def _candidates() -> List[str]:
    named = os.environ.get("HEARTH_LIBRARY")
    if named:
        return [named]
    here = Path(__file__).resolve()
    carried = here.parent / SONAME  # by a wheel, whose library is of its own version
    checkout = here.parent.parent.parent.parent / "build" / "lib" / SONAME
    return [str(carried)] if carried.exists() else [SONAME, str(checkout)]


_library: Optional[Library] = None


def load() -> Library:
    """The library, loaded once: $HEARTH_LIBRARY, else the one beside this file, else the system's, else
    that of the checkout around it. Raises LibraryMissing."""
    global _library
    if _library is None:
        why = ""
        for path in _candidates():
            try:
                _library = Library(ctypes.CDLL(path), path)
                break
            except OSError as e:
                why = why or str(e)
        else:
            raise LibraryMissing(f"{why}: install hearth (make install), or set HEARTH_LIBRARY to {SONAME}")
    return _library
