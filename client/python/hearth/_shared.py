"""What Client and AsyncClient do alike: everything but waiting."""

from __future__ import annotations

from array import array
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Generic, List, Mapping, Optional, Sequence, TypeVar, Union

from ._core import Core, Run
from ._chat import ChatReader
from ._prompts import Chunk, bind_calls, make_chat, make_fim
from ._request import Request
from ._text import make_ids
from .errors import Closed, Forked, InvalidRequest
from .record import make_record
from .types import Info, Messages, Params, Prompt, Result, Tools

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

StreamT = TypeVar("StreamT")

Kept = Callable[[List[int]], None]


class BaseStream:
    """An answer on its way. Dropping the last reference to it cancels the request."""

    def __init__(self, core: Core, run: Run) -> None:
        self._core = core
        self._run = run

    @property
    def ids(self) -> List[int]:
        """All tokens that have arrived so far, those of events that were not taken yet included."""
        return list(self._run.ids)

    @property
    def prompt(self) -> List[int]:
        """What was asked, as tokens."""
        return self._run.request.prompt.tolist()

    @property
    def result(self) -> Optional[Result]:
        """How the answer ended; None before its end was read, or the stream closed."""
        return self._run.result if self._run.is_taken else None

    def record(self) -> str:
        """The request and its answer, a line of JSON that `hearth replay` and Client.replay() take. Of an
        answer that ended by itself, and was read to its end."""
        if self.result is None:
            raise InvalidRequest("no record of an answer that is still on its way: read it to its end")
        with self._core as core:
            info = core.info()
        return make_record(info, self._run.request, self.result)

    def _take_end(self) -> None:
        """Raises what the answer ended with, once."""
        run = self._run
        if run.is_taken:
            return
        run.take_end()
        if run.result and run.result.error:
            raise run.result.error.again()

    def _cancel(self) -> None:
        if not self._run.is_taken:
            # With the client it ended already, or it belongs to another process.
            with suppress(Closed, Forked), self._core as core:
                core.stop(self._run)

    def __del__(self) -> None:
        run = getattr(self, "_run", None)
        if run is not None and not run.is_taken:
            self._core.drop(run)


class BaseSequence(Generic[StreamT]):
    """Tokens that grow, and answers to them. A fork shares what is computed of its trunk: the daemon
    keeps one copy of it."""

    def __init__(self, client: BaseClient[StreamT], tokens: Sequence[int]) -> None:
        self._client = client
        self._tokens = list(tokens)
        self._growing = False

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> List[int]:
        return list(self._tokens)

    def text(self, special: bool = False) -> str:
        return self._client.detokenize(self._tokens, special=special)

    def append(self, more: Prompt, *, special: bool = False) -> Self:
        """Puts a text, tokenized on its own, or tokens at the end. Returns the sequence."""
        self._check()
        if isinstance(more, str):
            self._tokens += self._client.tokenize(more, bos=not self._tokens, special=special)
        else:
            self._tokens += make_ids("tokens", more)
        return self

    def fork(self) -> Self:
        """Another sequence with the tokens of this one."""
        return type(self)(self._client, self._tokens)

    def generate(self, *, keep: bool = False, **params: Unpack[Params]) -> StreamT:
        """Answers. keep: the answer's tokens become part of the sequence when it ends; of a stream that
        is closed before, those that were read."""
        self._check()
        stream = self._client._generate(self._tokens, params, self._keep if keep else None)
        self._growing = keep
        return stream

    def _keep(self, ids: List[int]) -> None:
        self._tokens += ids
        self._growing = False

    def _check(self) -> None:
        if self._growing:
            raise InvalidRequest(
                "an answer that you keep has not ended yet: read it to its end, or close it, first"
            )


class BaseClient(Generic[StreamT]):
    _core: Optional[Core]

    def _open(self) -> Core:
        if self._core is None:
            raise Closed("this client is not connected")
        return self._core

    def _start(self, run: Run) -> StreamT:
        raise NotImplementedError

    def _tokenize(self, text: str, bos: bool, special: bool) -> "array[int]":
        with self._open() as core:
            return core.tokenize(text, bos, special)

    def _generate(self, prompt: Prompt, params: Params, kept: Optional[Kept] = None) -> StreamT:
        return self._start(Run(Request(prompt, params, self._tokenize), kept))

    def generate(self, prompt: Prompt, **params: Unpack[Params]) -> StreamT:
        """Starts an answer to a text or to tokens. Where as many run as there are slots it waits for one
        to end, those that came before it first."""
        return self._generate(prompt, params)

    def fim(
        self,
        prefix: str,
        suffix: str = "",
        *,
        extra: Sequence[Chunk] = (),
        middle: str = "",
        order: str = "auto",
        prompt_tokens: int = 0,
        repo: Optional[str] = None,
        name: Optional[str] = None,
        **params: Unpack[Params],
    ) -> StreamT:
        """Starts an answer that stands between two texts. NotSupported: the model cannot.

        extra          more of the project, (file name, text) each; keep the order between calls
        middle         what the answer already begins with
        order          psm (prefix first), spm (suffix first), auto; plain: the prefix alone, for any model
        prompt_tokens  most tokens of the prompt, the rest is cut; 0: leaves room for an answer
        repo, name     of the project, and of the file that is edited, for models that know such
        """
        fim = make_fim(prefix, suffix, extra, middle, order, prompt_tokens, repo, name)
        with self._open() as core:
            ids = core.fim(fim)
        return self._generate(ids, params)

    def chat(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        *,
        variables: Union[str, Mapping[str, Any], None] = None,
        template: Optional[str] = None,
        **params: Unpack[Params],
    ) -> StreamT:
        """Starts the answer to a conversation, as the model's template writes it. Reasoning and calls of
        tools are part of its text: chat_reader() tells them apart. NotSupported: the model has no template.

        messages   [{"role": "user", "content": "..."}, ...], or that as JSON
        tools      descriptions of tools, in the form of OpenAI's API
        variables  more for the template, {"enable_thinking": False}
        template   another one: the name of a family ("chatml", "llama3", ...), or a Jinja text
        """
        chat = make_chat(messages, tools, variables, template, True)
        with self._open() as core:
            ids = core.chat(chat)
        return self._generate(ids, params)

    def chat_text(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        *,
        variables: Union[str, Mapping[str, Any], None] = None,
        template: Optional[str] = None,
        answers: bool = True,
    ) -> str:
        """The conversation as chat() puts it to the model, for people to look at. answers: it ends where
        the answer begins."""
        chat = make_chat(messages, tools, variables, template, answers)
        with self._open() as core:
            return core.chat_text(chat)

    def chat_reader(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        *,
        variables: Union[str, Mapping[str, Any], None] = None,
        template: Optional[str] = None,
        tool_choice: str = "auto",
        parallel_tool_calls: bool = True,
        thinking_tokens: Optional[int] = None,
    ) -> ChatReader:
        """What reads the answer to such a conversation: reasoning and calls of tools apart from the content.
        Give its params to chat(), and each text of the answer to feed(). NotSupported: the template does
        not write tools, or in no form that is known where a call is required.

        tool_choice          "auto" (a tool's own "strict": True binds its calls), "required", or the name of
                             the tool that is called
        parallel_tool_calls  False: at most one call
        thinking_tokens      so many tokens of reasoning at most; None: any number
        """
        chat = make_chat(messages, tools, variables, template, True)
        bind_calls(chat, tool_choice, parallel_tool_calls, thinking_tokens)
        with self._open() as core:
            return core.chat_reader(chat)

    @property
    def info(self) -> Info:
        with self._open() as core:
            return core.info()

    def tokenize(self, text: str, *, bos: bool = True, special: bool = False) -> List[int]:
        """The tokens that generate(text) would send. bos: with the begin-of-sequence token, where the
        vocabulary wants one; special: text such as "<|im_end|>" means that token."""
        return self._tokenize(text, bos, special).tolist()

    def detokenize(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of tokens. special: that of control tokens too. Bytes that are not a character become
        U+FFFD."""
        return self.detokenize_bytes(ids, special=special).decode("utf-8", "replace")

    def detokenize_bytes(self, ids: Sequence[int], *, special: bool = False) -> bytes:
        with self._open() as core:
            return core.detokenize(make_ids("tokens", ids), special)
