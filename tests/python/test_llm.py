"""The llm program and its plugin. HEARTH_VENV=FOLDER tests/e2e/python.sh makes a place that has both."""

import asyncio
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from conftest import ENDLESS, until

import hearth

llm = pytest.importorskip("llm", reason="llm is not installed (HEARTH_VENV=FOLDER gets it from PyPI)")
try:
    metadata.distribution("hearth")
except metadata.PackageNotFoundError:
    pytest.skip("llm does not see this package: pip install it (HEARTH_VENV=FOLDER)", allow_module_level=True)

PROMPT = "def read_lines(path):"


@pytest.fixture
def run(daemon, tmp_path):
    """`llm ARGUMENTS` as (exit code, stdout, stderr)."""

    def run_llm(*arguments, text=None, socket=daemon.socket):
        done = subprocess.run(
            [sys.executable, "-m", "llm", *arguments],
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            env={**os.environ, "LLM_USER_PATH": str(tmp_path), "HEARTH_SOCKET": socket},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
        return done.returncode, done.stdout, done.stderr

    return run_llm


def test_it_answers_in_a_pipe_as_hearth_run_does(daemon, run):
    theirs = daemon.run("run", "--max-tokens", "30", "--temperature", "0.8", "--seed", "5", PROMPT)
    options = ["-o", "max_tokens", "30", "-o", "temperature", "0.8", "-o", "seed", "5"]
    assert run("-m", "hearth", PROMPT, *options) == (0, theirs + "\n", "")
    assert run("-m", "hearth", *options, text=PROMPT) == (0, theirs + "\n", "")
    assert run("-m", "hearth", PROMPT, "--no-stream", *options) == (0, theirs + "\n", "")
    assert run("-m", "hearth", PROMPT, "--async", *options) == (0, theirs + "\n", "")


def test_what_is_logged(daemon, run):
    run("-m", "hearth", PROMPT, "-o", "max_tokens", "7")
    logged = json.loads(run("logs", "--json")[1])[0]
    theirs = daemon.answer(PROMPT, "--max-tokens", "7")
    assert theirs["receipt"] in json.dumps(logged)
    assert (logged["input_tokens"], logged["output_tokens"]) == (theirs["prompt_tokens"], 7)


def test_a_conversation_goes_on(daemon, run):
    """The bundled model has no chat template: the whole conversation is one text."""
    options = ["-o", "max_tokens", "10"]
    first = run("-m", "hearth", "-s", "# A file", PROMPT, *options)[1][:-1]
    second = run("-c", "    return", *options)[1][:-1]
    text = "# A file\n" + PROMPT + first
    text += "" if text.endswith("\n") else "\n"
    assert first == daemon.run("run", "--max-tokens", "10", "# A file\n" + PROMPT)
    assert second == daemon.run("run", "--max-tokens", "10", text + "    return")


def test_schemas(run):
    options = ["-o", "temperature", "1", "-o", "seed", "2", "-o", "max_tokens", "400"]
    for more in ([], ["--async"]):
        out = run("-m", "hearth", "# JSON\n", "--schema", "kind: a word, lines int", *options, *more)[1]
        answer = json.loads(out)
        assert isinstance(answer["kind"], str) and isinstance(answer["lines"], int)


def test_a_conversation_goes_through_the_models_template(chat_daemon, run):
    def ask(messages):
        with hearth.Client(chat_daemon.socket) as client:
            return client.chat(messages, max_tokens=12).wait().text

    options = ["-o", "max_tokens", "12", "-o", "socket", chat_daemon.socket]
    messages = [{"role": "system", "content": "Short."}, {"role": "user", "content": "def f"}]
    first = ask(messages)
    assert run("-m", "hearth", "-s", "Short.", "def f", *options) == (0, first + "\n", "")
    messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "Why?"}]
    second = ask(messages)
    assert run("-c", "Why?", *options) == (0, second + "\n", "")
    assert run("-c", "Why?", "--async", *options)[0] == 0


def test_a_template_by_name(daemon, run):
    with hearth.Client(daemon.socket) as client:
        text = (
            client.chat([{"role": "user", "content": "def f"}], template="chatml", max_tokens=6).wait().text
        )
    assert run("-m", "hearth", "def f", "-o", "template", "chatml", "-o", "max_tokens", "6")[1] == text + "\n"
    code, _, error = run("-m", "hearth", "def f", "-o", "template", "nobodys")
    assert code == 1 and error.startswith("Error: ") and "nobodys" in error and error.count("\n") == 1


def test_errors_are_one_line(run, tmp_path):
    assert run("-m", "hearth", "x", "-o", "top_p", "7") == (1, "", "Error: top_p 7 is outside 0..1\n")
    assert run("-m", "hearth", "x", "-o", "top_p", "7", "--async") == (
        1,
        "",
        "Error: top_p 7 is outside 0..1\n",
    )
    code, out, error = run("-m", "hearth", "x", socket=str(tmp_path / "s"))
    assert (code, out) == (1, "")
    assert error == f"Error: no daemon at {tmp_path}/s: start one with hearthd --model FILE\n"


def test_a_response_that_is_dropped_is_cancelled(own_daemon):
    options = {"max_tokens": ENDLESS["max_tokens"], "socket": own_daemon.socket}
    response = iter(llm.get_model("hearth").prompt(PROMPT, **options))
    next(response)
    del response

    async def ask():
        pieces = llm.get_async_model("hearth").prompt(PROMPT, **options)
        async for _ in pieces:
            break
        await pieces._generator.aclose()

    asyncio.run(ask())
    until(lambda: own_daemon.counters()["slots_used"] == 0)
    assert own_daemon.counters()["output_tokens"] < 2 * 10000


def test_the_package_needs_no_llm():
    code = "import sys; sys.modules['llm'] = None; import hearth, hearth.aio; print(hearth.__version__)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.stdout.decode() == hearth.__version__ + "\n" == metadata.version("hearth") + "\n"
    assert (Path(hearth.__file__).parent / "py.typed").exists()
