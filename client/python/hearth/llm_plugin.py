"""A plugin for the llm program: `llm -m hearth 'def fib(n):'`. Only llm imports this."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, AsyncGenerator, Dict, Iterator, List, Optional

import llm
from pydantic import Field

from . import errors
from .aio import AsyncClient
from .client import Client
from .types import Params, Result

Messages = List[Dict[str, str]]


class HearthOptions(llm.Options):
    max_tokens: Optional[int] = Field(
        description="Most tokens of the answer (all that fit, of a chat; else 256)", default=None
    )
    temperature: Optional[float] = Field(description="0: always the most likely token (0)", default=None)
    top_k: Optional[int] = Field(description="Keep the K most likely; 0 off (0)", default=None)
    top_p: Optional[float] = Field(description="Keep the likeliest that hold P; 1 off (1)", default=None)
    min_p: Optional[float] = Field(
        description="Keep those with P of the best's chance; 0 off (0)", default=None
    )
    repeat_penalty: Optional[float] = Field(
        description="Divide the logits of recent tokens; 1 off (1)", default=None
    )
    frequency_penalty: Optional[float] = Field(
        description="Subtract for each recent occurrence (0)", default=None
    )
    presence_penalty: Optional[float] = Field(description="Subtract from each recent token (0)", default=None)
    seed: Optional[int] = Field(description="Chooses among answers, temperature above 0 (0)", default=None)
    stop: Optional[str] = Field(description="End before this text", default=None)
    priority: Optional[str] = Field(description="batch lets others go first (interactive)", default=None)
    template: Optional[str] = Field(
        description="Chat template: a family's name, or Jinja (the model's)", default=None
    )
    socket: Optional[str] = Field(description="Where hearthd listens ($HEARTH_SOCKET)", default=None)


@contextmanager
def _told() -> Iterator[None]:
    """llm shows a ModelError as one line."""
    try:
        yield
    except errors.Error as e:
        raise llm.ModelError(str(e)) from None


def _content(message: Any) -> str:
    return "".join(part.text for part in message.parts if type(part).__name__ == "TextPart")


def _messages(prompt: Any, conversation: Any) -> Messages:
    """The whole conversation, system prompt first, in the form of the OpenAI API."""
    if hasattr(prompt, "messages"):  # all of it; llm 0.20 has none yet
        found = [(message.role, _content(message)) for message in prompt.messages]
    else:
        before = list(conversation.responses) if conversation else []
        system = next((p.system for p in [*(r.prompt for r in before), prompt] if p.system), "")
        found = [("system", system)]
        for response in before:
            found += [("user", response.prompt.prompt), ("assistant", response.text_or_raise())]
        found.append(("user", prompt.prompt))
    return [{"role": role, "content": text} for role, text in found if text]


def _continuation(messages: Messages) -> str:
    """For a model that has no chat template: one text, that it goes on with."""
    text = ""
    for message in messages:
        text += "\n" if text and not text.endswith("\n") else ""
        text += message["content"]
    return text


class _Shared:
    model_id = "hearth"
    can_stream = True
    supports_schema = True

    def __str__(self) -> str:
        return f"hearth: {self.model_id}"

    def _ask(self, prompt: Any, conversation: Any, client: Any) -> Any:
        """The stream of the answer."""
        values: Dict[str, Any] = dict(prompt.options)
        template, _ = values.pop("template"), values.pop("socket")
        if prompt.schema:
            values["json_schema"] = prompt.schema
        params: Params = values  # type: ignore[assignment]
        messages, info = _messages(prompt, conversation), client.info
        if not info.chat_template and not template:
            return client.generate(_continuation(messages), **params)
        if params.get("max_tokens") is None:
            params["max_tokens"] = info.context  # such a model ends its answers itself
        return client.chat(messages, template=template, **params)

    def _tell(self, response: Any, result: Optional[Result]) -> None:
        """What llm logs beside the text."""
        if result is None:
            return
        details = {"cached_tokens": result.cached_tokens, "stored_tokens": result.stored_tokens}
        response.set_usage(input=result.prompt_tokens, output=result.output_tokens, details=details)
        response.response_json = {"reason": result.reason, "receipt": result.receipt, "model": result.model}


class Hearth(_Shared, llm.Model):
    class Options(HearthOptions):
        pass

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Iterator[str]:
        with _told(), Client(prompt.options.socket, slots=1) as client:
            with self._ask(prompt, conversation, client) as answer:
                if stream:
                    yield from answer.text()
                else:
                    yield answer.wait().text
                self._tell(response, answer.result)


class AsyncHearth(_Shared, llm.AsyncModel):
    class Options(HearthOptions):
        pass

    async def execute(
        self, prompt: Any, stream: bool, response: Any, conversation: Any
    ) -> AsyncGenerator[str, None]:
        with _told():
            async with AsyncClient(prompt.options.socket, slots=1) as client:
                async with self._ask(prompt, conversation, client) as answer:
                    if stream:
                        async for text in answer.text():
                            yield text
                    else:
                        yield (await answer.wait()).text
                    self._tell(response, answer.result)


@llm.hookimpl
def register_models(register: Any) -> None:
    register(Hearth(), AsyncHearth())
