"""Conversations, through the model's template or another one."""

import asyncio
import json

import pytest
from test_prompts import forget

import hearth

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Is <|end|> an end? é"},
]
TEXT = "<|begin|><|system|>Be brief.<|end|>\n<|user|>Is <|end|> an end? é<|end|>\n"
TOOLS = [{"type": "function", "function": {"name": "look_up", "description": "Looks up.", "parameters": {}}}]


@pytest.fixture
def chat(chat_daemon):
    with hearth.Client(chat_daemon.socket, slots=2) as client:
        yield client


def test_the_models_template_writes_the_prompt(chat):
    assert "add_generation_prompt" in chat.info.chat_template
    assert chat.chat_text(MESSAGES) == TEXT + "<|assistant|>"
    assert chat.chat_text(json.dumps(MESSAGES)) == TEXT + "<|assistant|>"
    assert chat.chat_text(MESSAGES, answers=False) == TEXT
    assert chat.chat_text(MESSAGES, TOOLS, answers=False) == TEXT + "<|tools|>look_up<|end|>\n"
    assert chat.chat_text(MESSAGES, variables={"mood": "glad"}, answers=False) == TEXT + "glad"
    long = [{"role": "user", "content": "x" * 100000}]
    assert chat.chat_text(long).count("x") == 100000


def test_control_tokens_come_from_the_template_alone(chat):
    prompt = chat.chat(MESSAGES, max_tokens=0).prompt
    bos, eos = chat.info.bos, chat.info.eos
    assert prompt[0] == bos and prompt.count(bos) == 1 and prompt.count(eos) == 2
    assert chat.detokenize(prompt, special=True) == TEXT + "<|assistant|>"


def test_an_answer(chat):
    stream = chat.chat(MESSAGES, max_tokens=10, temperature=0.5, seed=1)
    result = stream.wait()
    assert result.output_tokens > 0
    again = chat.generate(stream.prompt, max_tokens=10, temperature=0.5, seed=1).wait()
    assert again.receipt == result.receipt
    assert chat.replay(stream.record()).equal
    more = [*MESSAGES, {"role": "assistant", "content": result.text}, {"role": "user", "content": "So?"}]
    assert chat.chat(more, max_tokens=2).wait().cached_tokens >= len(stream.prompt)


TOOLS_TEMPLATE = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}{% for c in "
    "m.tool_calls or [] %}<tool_call>{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}"
    "</tool_call>{% endfor %}{% endfor %}<think>"
)


def test_an_answer_is_read(chat):
    reader = chat.chat_reader(MESSAGES, TOOLS, template=TOOLS_TEMPLATE)
    text = 'Hm.</think>Well. <tool_call>{"name": "look_up", "arguments": {"é": 1}}</tool_call>'
    events = [e for i in range(len(text)) for e in reader.feed(text[i])] + reader.finish()
    said = {}
    for e in events:
        said[e.kind, e.call] = said.get((e.kind, e.call), "") + e.text
    assert said == {
        ("reasoning", 0): "Hm.", ("content", 0): "Well.", ("call", 0): "look_up",
        ("arguments", 0): '{"é": 1}', ("call_end", 0): "",
    }
    assert reader.unparsed is None and reader.marks == []
    reader = chat.chat_reader(MESSAGES, TOOLS, template=TOOLS_TEMPLATE, variables={})
    said = reader.feed("</think><tool_call>no") + reader.finish()
    assert said == [("content", 0, "<tool_call>no")]
    assert reader.unparsed == "a call is not a JSON object"
    with pytest.raises(hearth.NotSupported, match="does not write tools"):
        chat.chat_reader(MESSAGES, TOOLS, template="chatml")
    assert chat.chat(MESSAGES, max_tokens=4, shown_tokens=[chat.info.bos]).wait().output_tokens > 0


def test_a_call_is_bound_and_checked(chat):
    properties = {"line": {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 1000003}}
    schema = {"type": "object", "properties": properties, "required": ["line"]}
    tools = [{"type": "function", "function": {"name": n, "parameters": schema}} for n in ("open", "shut")]
    template = "{{ messages[0].content }}{{ tools }}{# <tool_call></tool_call> #}"
    reader = chat.chat_reader(
        MESSAGES, tools, template=template, tool_choice="shut", parallel_tool_calls=False
    )
    assert "marks" not in reader.params and "closing" not in reader.params
    stream = chat.chat(MESSAGES, tools, template=template, max_tokens=400, **reader.params)
    text = stream.wait().text
    events = reader.feed(text) + reader.finish()
    assert [e.text for e in events if e.kind == "call"] == ["shut"]
    arguments = json.loads("".join(e.text for e in events if e.kind == "arguments"))
    assert 1 <= arguments["line"] <= 9
    assert len(reader.loosened) == 1 and "multipleOf" in reader.loosened[0]
    assert 'at #/line: "multipleOf"' in reader.unparsed
    with pytest.raises(hearth.InvalidRequest, match="names 'other'"):
        chat.chat_reader(MESSAGES, tools, template=template, tool_choice="other")


def test_no_call_is_read_where_none_is_wanted(chat):
    tools = [{"type": "function", "function": {"name": "open", "parameters": {"type": "object", "properties": {}}}}]
    template = "{{ messages[0].content }}{{ tools }}{# <tool_call></tool_call> #}"
    answer = '<tool_call>{"name": "open", "arguments": {}}</tool_call>'
    reader = chat.chat_reader(MESSAGES, tools, template=template, tool_choice="none")
    assert [(e.kind, e.text) for e in reader.feed(answer) + reader.finish()] == [("content", answer)]
    assert "tool_choice is none" in reader.unparsed
    stream = chat.chat(MESSAGES, tools, template=template, max_tokens=2, banned=[chat.info.eos], **reader.params)
    assert stream.wait().output_tokens == 2


def test_reasoning_ends_at_its_limit(chat):
    template = "{{ messages[0].content }}</think>{% if add_generation_prompt %}<think>{% endif %}"
    reader = chat.chat_reader(MESSAGES, template=template, thinking_tokens=3)
    assert [m.kind for m in reader.params["marks"]] == ["thought", "thought_end"]
    assert reader.params["marks"][0] == hearth.Mark("thought", "<think>", True, 3)
    stream = chat.chat(MESSAGES, template=template, max_tokens=40, **reader.params)
    result = stream.wait()
    closing = reader.params["closing"]
    assert result.ids[3 : 3 + len(closing)] == closing
    assert chat.replay(stream.record()).equal
    events = reader.feed(result.text) + reader.finish()
    assert {e.kind for e in events} <= {"reasoning", "content"}
    for bad in ([("x", "t")], [("thought", "t", False, -7)], [("call", "a\0b")]):
        with pytest.raises(hearth.InvalidRequest, match="marks"):
            chat.chat(MESSAGES, marks=[hearth.Mark(*m) for m in bad])


def test_another_template(client):
    assert client.info.chat_template == ""
    with pytest.raises(hearth.NotSupported, match="template"):
        client.chat(MESSAGES)
    text = client.chat_text(MESSAGES[:1], template="chatml")
    assert text.endswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>assistant\n")
    jinja = "{% for m in messages %}[{{ m.role }}]{% endfor %}"
    assert client.chat_text(MESSAGES, template=jinja) == "[system][user]"
    with pytest.raises(hearth.NotSupported, match="nobodys"):
        client.chat(MESSAGES, template="nobodys")


def test_bad_conversations(chat, monkeypatch):
    cases = [
        ({"messages": "{"}, "."),
        ({"messages": {"role": "user"}}, "."),
        ({"messages": [{1, 2}]}, "messages: no JSON"),
        ({"tools": "["}, "."),
        ({"variables": "7"}, "."),
        ({"template": "{% if %}"}, "."),
        ({"template": "{{ raise_exception('roles must alternate') }}"}, "roles must alternate"),
        ({"template": 7}, "template: give a text, not int"),
    ]
    for arguments, sentence in cases:
        with pytest.raises(hearth.InvalidRequest, match=sentence) as refused:
            chat.chat(**{"messages": MESSAGES, **arguments})
        assert str(refused.value) and "\n" not in str(refused.value)
    for name in ("hearth_chat_init", "hearth_chat_tokens"):
        with monkeypatch.context() as patch:
            forget(patch, name)
            with pytest.raises(hearth.NotSupported, match=r"too old for chat\(\): it has no " + name):
                chat.chat(MESSAGES)


def test_in_an_event_loop(chat_daemon, chat):
    async def ask():
        async with hearth.AsyncClient(chat_daemon.socket) as client:
            assert client.chat_text(MESSAGES) == TEXT + "<|assistant|>"
            return (await client.chat(MESSAGES, max_tokens=6).wait()).receipt

    assert asyncio.run(ask()) == chat.chat(MESSAGES, max_tokens=6).wait().receipt
