"""The openai package against a hearth-http on $PORT and $SOCKET; run by http_openai.sh."""
import os

import openai

try:
    import httpx2 as httpx  # used by the package since its version 3
except ImportError:
    import httpx

PORT, SOCKET, PROMPT, WANT = (os.environ[name] for name in ("PORT", "SOCKET", "PROMPT", "WANT"))
over_port = openai.OpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key="secret", max_retries=0)
over_socket = openai.OpenAI(
    base_url="http://localhost/v1", api_key="secret", max_retries=0,
    http_client=httpx.Client(transport=httpx.HTTPTransport(uds=SOCKET)))


def same(got: str) -> None:
    assert got in (WANT, WANT.removesuffix("\n")), f"{got!r} is not {WANT!r}"


def completions(client: openai.OpenAI, model: str) -> None:
    whole = client.completions.create(model=model, prompt=PROMPT, max_tokens=40, seed=7, logprobs=3)
    choice = whole.choices[0]
    same(choice.text)
    assert choice.finish_reason == "length" and whole.usage.completion_tokens == 40
    assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) == 40
    assert all(value <= 0 for value in choice.logprobs.token_logprobs)
    assert "".join(choice.logprobs.tokens).startswith(choice.text[:20])

    text, usage = "", None
    for chunk in client.completions.create(model=model, prompt=PROMPT, max_tokens=40, seed=7, logprobs=3, stream=True,
                                           stream_options={"include_usage": True}):
        text += "".join(c.text for c in chunk.choices)
        usage = chunk.usage or usage
    same(text)
    assert usage.completion_tokens == 40

    word = next(w for w in choice.text.split() if len(w) > 3 and not choice.text.startswith(w))
    stopped = client.completions.create(model=model, prompt=PROMPT, max_tokens=40, seed=7, stop=[word])
    assert stopped.choices[0].text == choice.text[:choice.text.index(word)]
    assert stopped.choices[0].finish_reason == "stop"


def chats(client: openai.OpenAI, model: str) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "def f(x):"}]
    whole = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=30, seed=3,
                                           logprobs=True, top_logprobs=2)
    choice = whole.choices[0]
    assert choice.message.role == "assistant" and choice.finish_reason == "length"
    assert len(choice.logprobs.content) == 30 and len(choice.logprobs.content[0].top_logprobs) == 2
    text, usage = "", None
    for chunk in client.chat.completions.create(model=model, messages=messages, max_completion_tokens=30, seed=3,
                                                stream=True, stream_options={"include_usage": True}):
        text += "".join(c.delta.content or "" for c in chunk.choices)
        usage = chunk.usage or usage
    assert text == choice.message.content, (text, choice.message.content)
    assert usage.completion_tokens == 30 and usage.prompt_tokens == whole.usage.prompt_tokens


def errors(client: openai.OpenAI, model: str) -> None:
    for wrong, kind in (({"model": "gpt-4"}, openai.NotFoundError), ({"max_tokens": "x"}, openai.BadRequestError),
                        ({"prompt": "x" * 600000}, openai.BadRequestError)):
        try:
            client.completions.create(**{"model": model, "prompt": PROMPT, **wrong})
        except kind as e:
            assert e.body["message"], e
        else:
            raise AssertionError(f"{wrong} was taken")
    try:
        client.with_options(api_key="wrong").models.list()
    except openai.AuthenticationError:
        pass
    else:
        raise AssertionError("a wrong key was taken")


def main() -> None:
    for client in (over_port, over_socket):
        model = client.models.list().data[0].id
        assert client.models.retrieve(model).id == model
        completions(client, model)
        chats(client, model)
        errors(client, model)


main()
