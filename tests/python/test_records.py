"""Records are those of `hearth run --record`, and `hearth replay` takes them."""

import json

import pytest

import hearth

PROMPT = "def total(items):"
CASES = [
    (
        {"grammar": 'root ::= [a-zé"\\n ]+', "max_tokens": 9, "temperature": 0.9},
        ["--grammar", 'root ::= [a-zé"\\n ]+', "--max-tokens", "9", "--temperature", "0.9"],
    ),
    ({"max_tokens": 12}, ["--max-tokens", "12"]),
    (
        {
            "max_tokens": 2000,
            "temperature": 0.7,
            "top_p": 0.95,
            "min_p": 0.05,
            "top_k": 40,
            "typical_p": 0.9,
            "seed": 2**63 + 5,
            "stop": ["\n\n", 'é"\\\t'],
            "stop_tokens": [3, 2],
            "logit_bias": {5: -float("inf"), 17: -1.7},
            "repeat_penalty": 1.1,
            "logprobs": 0,
        },
        [
            "--max-tokens",
            "2000",
            "--temperature",
            "0.7",
            "--top-p",
            "0.95",
            "--min-p",
            "0.05",
            "--top-k",
            "40",
        ]
        + ["--typical-p", "0.9", "--seed", str(2**63 + 5), "--stop", "\n\n", "--stop", 'é"\\\t']
        + ["--stop-token", "3", "--stop-token", "2", "--logit-bias", "5=-inf", "--logit-bias", "17=-1.7"]
        + ["--repeat-penalty", "1.1", "--logprobs", "0", "--json"],
    ),
]


@pytest.mark.parametrize("params, options", CASES, ids=["grammar", "plain", "everything"])
def test_it_is_the_record_of_the_command(daemon, client, tmp_path, params, options):
    daemon.run("run", "--record", str(tmp_path / "theirs"), *options, PROMPT)
    stream = client.generate(PROMPT, **params)
    stream.wait()
    ours = stream.record()
    assert ours.count("\n") == 1 and ours.endswith("\n")
    assert json.loads(ours) == json.loads((tmp_path / "theirs").read_text())
    (tmp_path / "ours").write_text(ours)
    assert daemon.run("replay", str(tmp_path / "ours")).startswith(f"{tmp_path}/ours: equal: ")
    assert client.replay(ours).equal


NEVER = [{"banned": [5, 7]}, {"ignore_eos": True}, {"banned": [5], "ignore_eos": True}]


@pytest.mark.parametrize("params", NEVER)
def test_what_is_never_picked_is_part_of_it(daemon, client, tmp_path, params):
    stream = client.generate(PROMPT, max_tokens=5, logit_bias={5: 1.0, 17: -1.7}, **params)
    stream.wait()
    (tmp_path / "r").write_text(stream.record())
    assert "equal" in daemon.run("replay", str(tmp_path / "r"))
    assert client.replay(stream.record()).equal


def test_bytes_that_are_not_utf8_are_kept(daemon, client, tmp_path):
    stream = client.generate(PROMPT, max_tokens=5, stop=b"\xff\x80a".decode("utf-8", "surrogateescape"))
    stream.wait()
    (tmp_path / "r").write_text(stream.record())
    assert "equal" in daemon.run("replay", str(tmp_path / "r"))
    assert client.replay(stream.record()).equal


def test_replay_says_what_differs(daemon, client, tmp_path):
    daemon.run("run", "--record", str(tmp_path / "r"), "--max-tokens", "9", "--temperature", "0.9", PROMPT)
    record = json.loads((tmp_path / "r").read_text())
    replay = client.replay(record)
    assert replay.equal and replay.result.ids == record["ids"]
    assert replay.text == f"equal: 9 tokens, receipt {record['receipt']}"

    def text(**changes):
        replay = client.replay(json.dumps({**record, **changes}))
        assert not replay.equal
        return replay.text

    assert (
        text(seed=1)
        == text(prompt=record["prompt"][:-1])
        == ("the prompt or a parameter was changed after the recording")
    )
    other = list(record["ids"])
    other[4] += 1
    assert text(ids=other) == f"differs at token 4 (position {len(record['prompt']) + 4})"
    assert text(ids=record["ids"][:-1]).startswith("differs at token 8 ")
    assert text(reason="stop") == "reason differs: recorded stop, now length"
    assert text(receipt=record["receipt"][:-1] + "g").startswith("receipt differs: ")
    assert text(fingerprint="0" * 32).startswith("recorded with another model: ")
    assert text(numerics="other-1").startswith("recorded with other numerics: other-1, the daemon has ")
    assert "the context holds 1024" in text(max_tokens=5000)
    other_fast = dict(record, numerics=record["numerics"] + "+fast", ids=other)
    assert client.replay(other_fast).text.endswith("; it was not deterministic: a difference proves nothing")


def test_an_answer_that_was_not_verified(client):
    stream = client.generate(PROMPT, max_tokens=3, deterministic=False)
    stream.wait()
    record = json.loads(stream.record())
    assert record["deterministic"] is False and not record["numerics"].endswith("+fast")  # a CPU verifies
    assert "deterministic" not in client.replay(record).text
    fast = client.replay(dict(record, numerics=record["numerics"] + "+fast"))
    assert fast.equal and fast.text.endswith("; it was not deterministic: another time it may differ")


def test_malformed_records_are_refused(client):
    stream = client.generate(PROMPT, max_tokens=3)
    with pytest.raises(hearth.InvalidRequest, match="still on its way"):
        stream.record()
    stream.wait()
    record = json.loads(stream.record())
    bad = [
        "",
        "[]",
        "7",
        "{}",
        "null",
        json.dumps({**record, "hearth_record": 9}),
        json.dumps({**record, "more": 1}),
    ]
    bad += [json.dumps({k: v for k, v in record.items() if k != name}) for name in record]
    bad += [json.dumps({**record, "logit_bias": [7]}), json.dumps({**record, "logprobs": "x"})]
    of_numbers = (*hearth.record._NUMBERS, "deterministic")  # which says no more than numerics
    bad += [json.dumps({**record, name: 7.5}) for name in record if name not in of_numbers]
    bad += [json.dumps({**record, "max_tokens": "x"}), json.dumps({**record, "numerics": [1]})]
    bad += [json.dumps({**record, "logit_bias": [[float("inf"), 0]]}), "[" * 100000]
    for text in bad:
        with pytest.raises(hearth.InvalidRequest):
            client.replay(text)
    closed = client.generate(PROMPT, max_tokens=500)
    closed.close()
    with pytest.raises(hearth.InvalidRequest, match="no record of an answer that ended with cancelled"):
        closed.record()
