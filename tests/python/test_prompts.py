"""Prompts that the library makes."""

import asyncio
import json
import re

import pytest

import hearth
from hearth import _native

PREFIX, SUFFIX = "def total(items):\n    n = 0\n    for item in ", ":\n        n += item\n    return n\n"


def forget(monkeypatch, name):
    """As if the library were one that has no such function."""
    library = _native.load()

    class Without:
        def __getitem__(self, wanted):
            if wanted == name:
                raise AttributeError(wanted)
            return dll[wanted]

    dll = library._dll
    monkeypatch.setattr(library, "_dll", Without())
    monkeypatch.delattr(library, name, raising=False)


def test_fim_is_that_of_hearth_fim(daemon, client, tmp_path):
    (tmp_path / "a").write_text(PREFIX)
    (tmp_path / "b").write_text(SUFFIX)
    options = [
        "--prefix-file",
        str(tmp_path / "a"),
        "--suffix-file",
        str(tmp_path / "b"),
        "--max-tokens",
        "12",
    ]
    for order in ("spm", "psm", "auto", "plain"):
        line = daemon.run("fim", *options, "--order", order, "--json").splitlines()[-1]
        stream = client.fim(PREFIX, SUFFIX, order=order, max_tokens=12)
        result = stream.wait()
        assert f'"receipt":"{result.receipt}"' in line


def test_fim_places_all_parts(client):
    assert client.info.fim
    bos, pre, suf, mid = 1, 3, 4, 5
    spm = client.fim(PREFIX, SUFFIX, middle="items", order="spm", max_tokens=0).prompt
    assert [i for i in spm if i in (bos, pre, suf, mid)] == [bos, suf, pre, mid]
    parts = [client.tokenize(text, bos=False) for text in (SUFFIX, PREFIX, "items")]
    assert spm == [bos, suf, *parts[0], pre, *parts[1], mid, *parts[2]]
    psm = client.fim(PREFIX, SUFFIX, order="psm", max_tokens=0).prompt
    assert psm == [bos, pre, *parts[1], suf, *parts[0], mid]
    assert client.fim("<|end|>", "", max_tokens=0).prompt.count(2) == 0  # text is text
    extra = client.fim(
        PREFIX, SUFFIX, extra=[("util.py", "def helper():\n    pass\n"), (None, "x = 1\n")], max_tokens=0
    )
    assert "def helper():" in client.detokenize(extra.prompt)
    assert "x = 1" in client.detokenize(extra.prompt)
    cut = client.fim("x = 1\n" * 400, SUFFIX, prompt_tokens=100, max_tokens=0)
    assert len(cut.prompt) <= 100
    assert client.fim(PREFIX, max_tokens=5).wait().output_tokens <= 5


def test_bad_fim(client, monkeypatch):
    for arguments, sentence in [
        ({"order": "mps"}, "order 'mps': give 'auto', 'psm', 'spm' or 'plain'"),
        ({"prompt_tokens": -1}, "prompt_tokens -1: give 0 to"),
        ({"prompt_tokens": 20, "middle": "x " * 300}, "."),
        ({"suffix": 7}, "suffix: give a text, not int"),
        ({"extra": [(3, "x")]}, "extra: give a text, not int"),
    ]:
        with pytest.raises(hearth.InvalidRequest, match=sentence):
            client.fim(PREFIX, **arguments)
    for name in ("hearth_fim", "hearth_fim_init"):
        with monkeypatch.context() as patch:
            forget(patch, name)
            with pytest.raises(
                hearth.NotSupported, match=rf"too old for fim\(\): it has no {name}: install a newer"
            ):
                client.fim(PREFIX, SUFFIX)
    assert client.fim(PREFIX, SUFFIX, max_tokens=1).wait().output_tokens == 1


def test_schemas_become_grammars(monkeypatch):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "é": {"enum": [1, 2]}},
        "required": ["é"],
    }
    grammar = hearth.grammar_from_schema(schema)
    assert "root ::=" in grammar
    assert hearth.grammar_from_schema(json.dumps(schema)) == grammar
    names = [f"property_{i}" for i in range(500)]
    long = hearth.grammar_from_schema(
        {"type": "object", "properties": {n: {"type": "integer"} for n in names}}
    )
    assert len(long) > 16384 and all(name in long for name in names)
    for bad in ("{", '{"$ref": "#/nowhere"}', {"type": "thing"}, {"type": {1, 2}}, {"const": float("nan")}):
        with pytest.raises(hearth.InvalidRequest) as refused:
            hearth.grammar_from_schema(bad)
        assert str(refused.value) and "\n" not in str(refused.value)
    forget(monkeypatch, "hearth_schema")
    with pytest.raises(hearth.NotSupported, match="too old for grammars and JSON schemas"):
        hearth.grammar_from_schema({})


ANSWERS = 'root ::= "yes" | "no" | "per" [h-n] "aps"'


def test_answers_follow_a_grammar(daemon, client):
    for seed in range(8):
        result = client.generate("def f():", grammar=ANSWERS, temperature=1.5, seed=seed).wait()
        assert re.fullmatch("yes|no|per[h-n]aps", result.text) and result.reason == "eos"
    theirs = daemon.answer("def f():", "--grammar", ANSWERS, "--temperature", "1.5", "--seed", "7")
    assert theirs["receipt"] == result.receipt
    fork = client.sequence("def f():").fork().generate(grammar=ANSWERS, keep=True)
    assert re.fullmatch("yes|no|per[h-n]aps", fork.wait().text)


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_answers_follow_a_schema(client):
    for seed, schema in enumerate((SCHEMA, json.dumps(SCHEMA))):
        result = client.generate(
            "# JSON\n", json_schema=schema, temperature=1, seed=seed, max_tokens=300
        ).wait()
        answer = json.loads(result.text)
        assert result.reason == "eos" and set(answer) == {"name", "age"}
        assert isinstance(answer["name"], str) and 0 <= answer["age"] <= 150
    grammar = hearth.grammar_from_schema(SCHEMA)
    plain = client.generate("# JSON\n", grammar=grammar, temperature=1, seed=1, max_tokens=300).wait()
    assert plain.receipt == result.receipt


def test_bad_grammars(client, monkeypatch):
    stream = client.generate("x", grammar='root ::= "a" | missing')
    with pytest.raises(hearth.InvalidRequest, match="missing"):  # the daemon's own sentence
        stream.wait()
    for arguments, sentence in [
        ({"grammar": ANSWERS, "json_schema": {}}, "grammar and json_schema: give one of them"),
        ({"grammar": ""}, "grammar: give a text without a byte 0"),
        ({"grammar": "root ::= [\0]"}, "grammar: give a text without a byte 0"),
        ({"grammar": 3}, "grammar: give a text, not int"),
        ({"json_schema": {"$ref": "#/nowhere"}}, "nowhere"),
        ({"grammar": 'root ::= "' + "a" * (3 << 20) + '"'}, "a grammar of 3145739 bytes: the daemon has room for"),
    ]:
        with pytest.raises(hearth.InvalidRequest, match=sentence):
            client.generate("x", **arguments)
    forget(monkeypatch, "hearth_schema")
    for arguments in ({"grammar": ANSWERS}, {"json_schema": {}}):
        with pytest.raises(hearth.NotSupported, match="too old for grammars and JSON schemas"):
            client.generate("x", **arguments)


def test_in_an_event_loop(daemon):
    async def ask():
        async with hearth.AsyncClient(daemon.socket) as client:
            return (await client.fim(PREFIX, SUFFIX, max_tokens=8).wait()).receipt

    with hearth.Client(daemon.socket) as client:
        assert asyncio.run(ask()) == client.fim(PREFIX, SUFFIX, max_tokens=8).wait().receipt
