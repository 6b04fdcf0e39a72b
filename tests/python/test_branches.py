"""Sequences: forks share their trunk."""

import pytest

import hearth

TRUNK = "class Reader:\n    def __init__(self, path):\n        self.path = path\n" * 8


def test_forks_share_the_trunk(own_daemon):
    with hearth.Client(own_daemon.socket, slots=4) as client:
        trunk = client.sequence(TRUNK)
        n = len(trunk)
        assert n > 150 and trunk.warm().cached_tokens == 0
        rows = own_daemon.counters()["rows"]
        forks = [trunk.fork().append(f"    def m{i}(self") for i in range(4)]
        streams = [f.generate(max_tokens=1, proposer="none") for f in forks]  # at the same time
        results = [s.wait() for s in streams]
        for result in results:
            assert result.cached_tokens >= n - 32  # but for a page at most
        tails = sum(r.prompt_tokens - r.cached_tokens for r in results)
        assert own_daemon.counters()["rows"] - rows <= tails + 4
        assert tails <= 4 * (32 + 16)


def test_a_fork_answers_as_if_it_were_alone(client):
    trunk = client.sequence(TRUNK)
    forks = [trunk.fork().append(f"    def m{i}(self") for i in range(6)]  # more than there are slots
    together = [s.wait() for s in [f.generate(max_tokens=25) for f in forks]]
    for i, result in enumerate(together):
        assert forks[i].text() == TRUNK + f"    def m{i}(self"
        assert client.generate(forks[i].tokens, max_tokens=25).wait().receipt == result.receipt
    assert len({r.receipt for r in together}) == 6


def test_an_answer_is_kept_when_asked_for(client):
    sequence = client.sequence("def f(x):\n    return")
    before = sequence.tokens
    kept = sequence.generate(max_tokens=8, keep=True).wait()
    assert sequence.tokens == before + kept.ids
    assert sequence.generate(max_tokens=8).wait().cached_tokens >= len(sequence) - 1
    assert sequence.tokens == before + kept.ids
    whole = client.generate(before, max_tokens=16).wait()
    assert sequence.generate(max_tokens=8).wait().ids == whole.ids[8:]


def test_a_closed_answer_keeps_what_was_read(client):
    sequence = client.sequence("def f(x):\n    return")
    before = sequence.tokens
    stream = sequence.generate(max_tokens=500, keep=True)
    with pytest.raises(hearth.InvalidRequest, match="has not ended yet"):
        sequence.append("x")
    with pytest.raises(hearth.InvalidRequest, match="has not ended yet"):
        sequence.generate()
    fork = sequence.fork()
    read = next(stream).ids
    stream.close()
    assert sequence.tokens == before + read and fork.tokens == before
    stream = sequence.generate(max_tokens=500, keep=True)
    del stream
    assert len(sequence.append("y").tokens) > len(before)


def test_a_failed_request_does_not_lock_its_sequence(client):
    sequence = client.sequence("def f")
    with pytest.raises(hearth.InvalidRequest):
        sequence.generate(keep=True, top_p=5.0)
    sequence.append("(x):")
    assert sequence.text() == "def f(x):"


def test_tokens_and_texts_are_appended(client):
    sequence = client.sequence()
    assert len(sequence) == 0
    sequence.append("def f")
    assert sequence.tokens[0] == client.info.bos
    n = len(sequence)
    sequence.append([300, 301]).append("<|fim_middle|>", special=True)
    assert sequence.tokens[n:] == [300, 301, 5]
    assert client.sequence([1, 2, 3]).tokens == [1, 2, 3]
    with pytest.raises(hearth.InvalidRequest):
        sequence.append([-4])
