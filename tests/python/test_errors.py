"""Every refusal is an exception with a sentence, and nothing is lost by it."""

import gc
import os
import pathlib
import socket
import subprocess
import sys

import pytest
from conftest import LONG, until

import hearth
from hearth import _native

BAD = [
    ({"top_k": -1}, "top_k -1: give 0 to"),
    ({"max_tokens": 2**32}, "max_tokens 4294967296: give 0 to"),
    ({"max_tokens": 1.5}, "max_tokens: give a whole number, not 1.5"),
    ({"seed": -1}, "seed -1: give 0 to"),
    ({"logprobs": 21}, "logprobs 21: give 0 to 20"),
    ({"temperature": float("nan")}, "temperature nan"),
    ({"temperature": "hot"}, "temperature: give a number, not 'hot'"),
    ({"top_p": 1e300}, "top-p inf|top_p inf"),
    ({"penalty_last_n": -2}, "penalty_last_n -2"),
    ({"stop": "a\0b"}, "a stop text cannot hold a byte 0"),
    ({"stop": ""}, "a stop text of 0 bytes"),
    ({"stop": ["x"] * 65}, "65 stop texts: give at most 64"),
    ({"stop": [7]}, "stop: give a text, not int"),
    ({"stop": 7}, "stop: give texts, not 7"),
    ({"prompt": b"text"}, "prompt: give token ids"),
    ({"prompt": 7}, "prompt: give token ids"),
    ({"stop_tokens": ["a"]}, "stop_tokens: give token ids"),
    ({"stop_tokens": [4096]}, "4096"),
    ({"logit_bias": {4096: 1.0}}, "token 4096 is outside the vocabulary"),
    ({"logit_bias": {-1: 1.0}}, "logit_bias: give token ids"),
    ({"logit_bias": [(1, 1.0)]}, "logit_bias: give {token id: value}"),
    ({"guess": [9999]}, "9999"),
    ({"priority": "urgent"}, "priority 'urgent': give 'interactive' or 'batch'"),
    ({"proposer": "oracle"}, "proposer 'oracle' is unknown: give auto, none"),
    ({"prompt": []}, "the prompt is empty"),
    ({"prompt": [4096]}, "token 4096 at position 0 is not in the vocabulary"),
    ({"prompt": [1, -1]}, "prompt: give token ids"),
    ({"prompt": ["a"]}, "prompt: give token ids"),
    ({"prompt": [2**32]}, "prompt: give token ids"),
    ({"prompt": "x" * 5000}, "the context holds 1024"),
    ({"prompt": "\ud800"}, "half of a surrogate pair is not text"),
]


@pytest.mark.parametrize("params, sentence", BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_requests(client, params, sentence):
    params = dict(params)
    prompt = params.pop("prompt", "x")
    with pytest.raises(hearth.InvalidRequest, match=sentence) as refused:
        client.generate(prompt, **params)
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, ValueError)
    assert client.generate("def f(", max_tokens=2).wait().output_tokens == 2


def test_a_bad_request_is_refused_at_once_also_where_it_would_wait(daemon):
    with hearth.Client(daemon.socket, slots=1) as client:
        running, queued = client.generate("def f(", **LONG), client.generate("def g(", max_tokens=5)
        for params in ({"top_p": 7.0}, {"proposer": "oracle"}, {"stop_tokens": [4096]}, {"prompt": "x" * 5000}):
            with pytest.raises(hearth.InvalidRequest):
                client.generate(**{"prompt": "x", **params})
        running.close()
        assert queued.wait().output_tokens == 5


def test_an_unknown_parameter_is_a_mistake_in_the_program(client):
    with pytest.raises(TypeError, match="no such parameter: temprature: there are .*temperature"):
        client.generate("x", temprature=1)


def test_none_means_the_default(client):
    plain = client.generate("def f(", max_tokens=5).wait()
    assert (
        client.generate("def f(", max_tokens=5, top_p=None, stop=None, seed=None).wait().receipt
        == plain.receipt
    )


def test_a_proposer_that_the_daemon_lacks_is_not_supported(client):
    with pytest.raises(hearth.NotSupported) as refused:
        client.generate("x", proposer="draft").wait()
    assert refused.value.code < 0 and str(refused.value)


def test_no_daemon(tmp_path):
    with pytest.raises(hearth.NotRunning, match="^no daemon at .*: start one with hearthd --model FILE$"):
        hearth.Client(str(tmp_path / "s"))
    with pytest.raises(hearth.InvalidRequest, match="too long for a socket"):
        hearth.Client("/" + "x" * 300)


BAD_OPTIONS = [
    ({"timeout": -1}, "timeout -1: give seconds"),
    ({"timeout": "soon"}, "timeout: give seconds, not 'soon'"),
    ({"resume": None}, "resume: give seconds, not None"),
    ({"slots": -1}, "slots -1: give how many"),
    ({"slots": 2**32}, "slots 4294967296: give how many"),
    ({"slots": 257}, "257 slots: ask for at most 256"),
    ({"slots": "4"}, "slots: give a whole number, not '4'"),
    ({"slots": None}, "slots: give a whole number, not None"),
    ({"slot_name": 3}, "slot_name: give a text, not int"),
    ({"slot_name": "a b"}, "slot name 'a b'"),
    ({"socket": 7}, "socket: give a path, not 7"),
]


@pytest.mark.parametrize("options, sentence", BAD_OPTIONS, ids=[str(i) for i in range(len(BAD_OPTIONS))])
def test_bad_options(daemon, options, sentence):
    with pytest.raises(hearth.InvalidRequest, match=sentence):
        hearth.Client(**{"socket": daemon.socket, **options})


def test_a_socket_is_a_path_to_its_end(daemon):
    assert hearth.Client(pathlib.Path(daemon.socket), slots=0).info.n_vocab == 4096
    with pytest.raises(hearth.InvalidRequest, match="socket: a path cannot hold a byte 0"):
        hearth.Client(daemon.socket + "\0.more")  # no other one than it says


@pytest.mark.parametrize(
    "what, ask",
    [
        ("model", lambda client, socket: hearth.Client(model="hearth\0x")),
        ("slot_name", lambda client, socket: hearth.Client(socket, slots=1, slot_name="a\0b")),
        ("proposer", lambda client, socket: client.generate("x", proposer="none\0x")),
        ("repo", lambda client, socket: client.fim("x", repo="a\0b")),
        ("extra", lambda client, socket: client.fim("x", extra=[("a\0b", "y")])),
        ("tool_choice", lambda client, socket: client.chat_reader([], [], tool_choice="f\0x")),
    ],
)
def test_a_name_is_not_cut_at_a_zero_byte(daemon, client, what, ask):
    with pytest.raises(hearth.InvalidRequest, match=f"{what}: a name cannot hold a byte 0"):
        ask(client, daemon.socket)


def test_a_peer_that_is_not_hearthd(tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.bind(path)
        s.listen(1)
        with pytest.raises(hearth.NotRunning):
            hearth.Client(path, timeout=0.2)


def test_busy(daemon):
    gc.collect()
    until(lambda: daemon.counters()["slots_used"] <= 8)  # those of other tests have gone
    held = [hearth.Client(daemon.socket, slots=16) for _ in range(2)]
    with pytest.raises(hearth.Busy) as refused:
        held += [hearth.Client(daemon.socket, slots=16) for _ in range(2)]
    assert "slot" in str(refused.value)
    for client in held:
        client.close()


def test_a_client_without_slots_knows_text_and_status(daemon):
    with hearth.Client(daemon.socket, slots=0) as client:
        assert client.detokenize(client.tokenize("def f")) == "def f"
        assert client.status()["model"]
        with pytest.raises(hearth.InvalidRequest, match="no slots"):
            client.generate("x")


def in_python(code, **environment):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import hearth\ntry:\n    {code}\nexcept hearth.Error as e:\n    print(type(e).__name__, e)",
        ],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    return done.stdout


def test_a_library_that_is_missing_or_too_old(tmp_path):
    said = in_python("hearth.Client()", HEARTH_LIBRARY=str(tmp_path / "none.so"))
    assert (
        said.startswith("LibraryMissing ") and "install hearth (make install), or set HEARTH_LIBRARY" in said
    )
    old = tmp_path / "old.so"
    subprocess.run(["gcc", "-shared", "-o", old, "-xc", "/dev/null"], check=True)
    said = in_python("hearth.Client()", HEARTH_LIBRARY=str(old))
    assert said == f"NotSupported {old} is too old for this package: it has no hearth_options_init: " + (
        "install a newer libhearth\n"
    )


def test_a_grammar_needs_a_library_that_looks_at_it(tmp_path):
    names = [name for name in _native._FUNCTIONS if name not in _native._LATER]
    (tmp_path / "old.c").write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    old = tmp_path / "old.so"
    subprocess.run(["gcc", "-shared", "-o", old, tmp_path / "old.c"], check=True)
    for optimize in ("", "1"):  # as by python -O
        said = in_python(
            "from hearth import _request; print(_request._grammar('root ::= \"a\"', None))",
            HEARTH_LIBRARY=str(old),
            PYTHONOPTIMIZE=optimize,
        )
        assert said.startswith(f"NotSupported {old} is too old for grammars and JSON schemas")
