#!/usr/bin/env python3
"""Real clients against a real hearthd and hearth-http, on a model that gives scripted answers: each completes a task of
several turns with calls of tools, with no network but loopback and an empty home.

    tests/clients/run.py [--keep] [NAME...]    # all, or those whose names begin so

A line for each client: what it is, how many requests it sent, and how many rows were computed for each of them. The
last line is `N passed, N failed, N skipped`. Packages from PyPI go to $BUILD/clients; --keep leaves the folder with logs
and all requests. llama.vscode runs where $HEARTH_LLAMA_VSCODE is a folder with its sources.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import typing

import relay

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = pathlib.Path(os.environ.get("BUILD", "build")).absolute()
BIN, PACKAGES = BUILD / "bin", BUILD / "clients"
TIMEOUT_S = 900
LLAMA_VSCODE = os.path.abspath(os.environ["HEARTH_LLAMA_VSCODE"]) if "HEARTH_LLAMA_VSCODE" in os.environ else ""
NODE = {"NODE_PATH": "/usr/share/nodejs"}  # where Debian has the packages of Node.js


class Failed(Exception):
    pass


# ---- packages -------------------------------------------------------------------------------------


def environment(name):
    """The folder of programs of a virtual environment with the packages of requirements-NAME.txt."""
    wanted = HERE / f"requirements-{name}.txt"
    folder = PACKAGES / name
    stamp = folder / "installed"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        shutil.rmtree(folder, ignore_errors=True)
        print(f"installing {wanted.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin/pip", "-q", "--disable-pip-version-check", "install", "-r", wanted]
        if subprocess.run(pip).returncode:
            raise Failed(f"{wanted.name} cannot be installed")
        stamp.write_text(wanted.read_text())
    return folder / "bin"


def bundled(name, *path):
    """A program inside of a package."""
    library = next((environment(name).parent / "lib").glob("python3*/site-packages"))
    return library.joinpath(*path)


# ---- the daemon -----------------------------------------------------------------------------------


def begin(arguments, environ, log, sign):
    """Starts a program and waits for its sign."""
    with open(log, "wb") as out:
        process = subprocess.Popen(arguments, env=environ, stdout=out, stderr=out)
    while sign not in log.read_text():
        if process.poll() is not None:
            raise Failed(f"{arguments[0].name}: {log.read_text()}")
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            pass
    return process


class Served:
    """A daemon and a gateway on a scripted model."""

    def __init__(self, folder, script, context):
        (folder / "script.json").write_text(json.dumps(script, indent=1))
        model, self.socket = folder / "model.gguf", folder / "http.sock"
        build = [ROOT / "tests/tools/scripted_model.py", folder / "script.json", model]
        subprocess.run([sys.executable, *build], check=True)
        self.environ = environ = {**os.environ, "HEARTH_SOCKET": str(folder / "hearth.sock")}
        self.processes = []
        daemon = [BIN / "hearthd", "--model", model, "--context", str(context)]
        self.start(daemon, environ, folder / "hearthd.log", "ready at")
        self.start([BIN / "hearth-http", "--listen", self.socket], environ, folder / "hearth-http.log", "listening")

    def start(self, *how):
        self.processes.append(begin(*how))

    def computed(self):
        """Rows of prompts, since the start."""
        status = subprocess.run(
            [BIN / "hearth", "status", "--json"], env=self.environ, check=True, capture_output=True
        )
        counters = json.loads(status.stdout)
        return counters["prompt_tokens"] - counters["cached_tokens"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


# ---- a session of a client ------------------------------------------------------------------------


def alone():
    """What runs a command in a network namespace of its own."""
    for command in (["unshare", "-n"], ["unshare", "-rn"]):
        try:
            if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
                return command
        except FileNotFoundError:
            break
    raise Failed("a network namespace cannot be made (unshare -n, unshare -rn)")


def run_session(client, served, folder, work):
    """Runs the client once in `work`; returns its output and what it asked."""
    record, home = folder / "exchanges", folder.parent / "home"
    for path in (record, home, work):
        path.mkdir(parents=True, exist_ok=True)
    for name, text in client.files.items():
        (work / name).write_text(text)
    for name, text in client.home.items():
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(text)
    environ = {
        "PATH": os.pathsep.join([*map(str, client.programs()), "/usr/bin", "/bin"]),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(HERE),
        "PYTHONDONTWRITEBYTECODE": "1",
        **client.environment,
    }
    command = [*alone(), sys.executable, HERE / "relay.py", served.socket, record, *client.command()]
    with open(folder / "output", "w+") as out:
        done = subprocess.run(
            command, cwd=work, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=TIMEOUT_S
        )
        out.seek(0)
        text = out.read()
    if bool(done.returncode) != client.fails:
        raise Failed(f"exit {done.returncode}: {text[-2000:]}")
    return text, relay.exchanges(record)


def usage_of(text):
    """(tokens of the prompt, how many of them were cached) of an answer in any of the dialects, or None."""
    objects = [line[6:] for line in text.splitlines() if line.startswith("data: {")] or [text]
    found = None
    for one in objects:
        try:
            value = json.loads(one)
        except ValueError:
            continue
        value = value.get("response") or value.get("message") or value
        usage = value.get("usage") if isinstance(value, dict) else None
        if not usage:
            continue
        if "prompt_tokens" in usage:
            found = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
        elif "input_tokens_details" in usage:
            found = usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
        elif "input_tokens" in usage and "cache_read_input_tokens" in usage:
            found = usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"]
    return found


def rows_of(exchanges):
    """Rows that were computed for each request, of so many."""
    used = [usage for *_, text in exchanges if (usage := usage_of(text))]
    return " ".join(f"{prompt - cached}/{prompt}" for prompt, cached in used)


# ---- the page for users ---------------------------------------------------------------------------


def settings(section, language):
    """A block of the page for users: what stands there is what is tried here."""
    page = (ROOT / "client/http/clients.md").read_text()
    _, _, text = page.partition(f"\n## {section}")
    _, found, text = text.partition(f"\n```{language}\n")
    assert found, f"client/http/clients.md: {section} has no block in {language}"
    return text.partition("\n```\n")[0] + "\n"


# ---- the clients ----------------------------------------------------------------------------------


@dataclasses.dataclass
class Client:
    name: str
    packages: str  # requirements-NAME.txt; "": none
    command: typing.Callable  # run in the work folder
    answers: typing.Callable  # of the model
    files: dict  # in the work folder before
    after: dict  # and then
    says: str  # in the output
    environment: dict = dataclasses.field(default_factory=dict)
    home: dict = dataclasses.field(default_factory=dict)  # files there
    folders: tuple = ("one",)  # a session in each
    go_on: typing.Callable = None  # the command that goes on with the last of these
    told: str = ""  # by a tool: in what the client sends
    context: int = 131072  # of the daemon
    fails: bool = False  # it is to end with an error
    lacks: typing.Callable = lambda: ""  # why it cannot run here
    infill: str = ""  # what the model gives between a prefix and a suffix

    def programs(self):
        """The folders of its packages' programs."""
        return [environment(self.packages)] if self.packages else []

    def script(self):
        return {"answers": self.answers(), **({"infill": self.infill} if self.infill else {})}


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


def task_answers():
    """Of task.py."""
    return [
        {"text": "I read both.", "calls": [call("read_file", path="a.txt"), call("read_file", path="b.txt")]},
        None,
        {"calls": [call("write_file", path="out.txt", text='hello "world"\n')]},
        "It is done.",
    ]


def of_task(name, script, *way):
    """A script of this folder that does the task of task.py."""
    return Client(
        name=name,
        packages="sdks",
        command=lambda: [environment("sdks") / "python", HERE / script, *way],
        answers=task_answers,
        files={"a.txt": "hello\n", "b.txt": "world\n"},
        after={"out.txt": 'hello "world"\n'},
        says="It is done.",
    )


def claude_answers():
    return [
        {"text": "I read the file first.", "calls": [call("Read", file_path="in.txt")]},
        {"thought": "Two lines, then.", "calls": [call("Write", file_path="out.txt", content="one\ntwo\n")]},
        {"calls": [call("Edit", file_path="in.txt", old_string="first", new_string="second")]},
        {"calls": [call("Bash", command="cat in.txt out.txt > all.txt", description="Join both")]},
        "All of it is done.",
    ]


PATCH = """apply_patch <<'EOF'
*** Begin Patch
*** Update File: in.txt
@@
-first
+second
*** Add File: out.txt
+one
+two
*** End Patch
EOF
"""


def codex_answers():
    return [
        {"text": "I look first.", "calls": [call("exec_command", cmd="cat in.txt")]},
        {"calls": [call("multi_agent_v1__close_agent", target="nobody")]},  # of a namespace
        {"thought": "One patch does both.", "calls": [call("exec_command", cmd=PATCH)]},
        {"calls": [call("exec_command", cmd="cat in.txt out.txt > all.txt")]},
        "All of it is done.",
    ]


AGENT_FILES = {"in.txt": "first\n"}
AGENT_AFTER = {"in.txt": "second\n", "out.txt": "one\ntwo\n", "all.txt": "second\none\ntwo\n"}

AIDER_EDIT = """in.txt
```
<<<<<<< SEARCH
first
=======
second
>>>>>>> REPLACE
```
"""



def claude(*words):
    return [
        *("bash", "-c", settings("Claude Code", "sh") + 'exec "$@"', "-"),
        *(bundled("agents", "claude_agent_sdk", "_bundled", "claude"), "-p", *words),
        *("--allowedTools", "Read,Write,Edit,Bash", "--output-format", "stream-json", "--verbose"),
    ]


def codex(*words):
    return [
        *(bundled("agents", "codex_cli_bin", "bin", "codex"), *words, "--json", "--skip-git-repo-check"),
        "--dangerously-bypass-approvals-and-sandbox",
    ]


def llama_vscode_lacks():
    if not LLAMA_VSCODE:
        return "HEARTH_LLAMA_VSCODE is not set: a folder with its sources"
    if not shutil.which("node"):
        return "node is not installed"
    find = "['typescript', 'axios'].forEach((name) => require.resolve(name, {paths: [process.argv[1]]}))"
    command = ["node", "-e", find, LLAMA_VSCODE]
    if subprocess.run(command, env={**os.environ, **NODE}, capture_output=True).returncode:
        return "typescript and axios are missing (in Debian node-typescript, node-axios)"
    return ""


def llama_vscode_answers():
    return [
        {"calls": [call("read_file", first_line=1, last_line_inclusive=9, file_path="in.txt")]},
        {"text": "One edit.", "calls": [call("edit_file", file_path="in.txt", search="first", replace="second")]},
        "All of it is done.",
    ]


CLAUDE = Client(
    name="claude",
    packages="agents",
    command=lambda: claude("Change the file"),
    go_on=lambda: claude("Is it done?", "--continue"),
    answers=claude_answers,
    files=AGENT_FILES,
    after=AGENT_AFTER,
    says="All of it is done.",
    environment={"IS_SANDBOX": "1"},
    folders=("one", "one", "two"),
    told="Two lines, then.",  # its own thought
)
CODEX = Client(
    name="codex",
    packages="agents",
    command=lambda: [*codex("exec"), "Change the file"],
    go_on=lambda: [*codex("exec", "resume", "--last"), "Is it done?"],
    answers=codex_answers,
    files=AGENT_FILES,
    after=AGENT_AFTER,
    says="All of it is done.",
    home={".codex/config.toml": settings("Codex", "toml")},
    folders=("one", "one", "two"),
    told="invalid agent id nobody",
)


def overflowing(client, says):
    """The same where its first prompt does not fit: what it then says to its user."""
    return dataclasses.replace(
        client,
        name=f"{client.name} overflow",
        context=16384,
        says=says,
        fails=True,
        told="",
        after={},
        folders=("one",),
        go_on=None,
    )


CLIENTS = [
    CLAUDE,
    overflowing(CLAUDE, "Prompt is too long"),
    CODEX,
    overflowing(CODEX, "ran out of room in the model's context window"),
    Client(
        name="aider",
        packages="aider",
        command=lambda: [
            *(environment("aider") / "aider", "--no-git", "--yes-always", "--no-check-update"),
            *("--analytics-disable", "--message", "Change the word", "in.txt"),
        ],
        answers=lambda: [AIDER_EDIT],
        files=AGENT_FILES,
        after={"in.txt": "second\n"},
        says="Applied edit to in.txt",
        home={
            ".aider.conf.yml": settings("aider", "yaml"),
            ".aider.model.metadata.json": settings("aider", "json"),
        },
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    ),
    *(of_task(f"openai {way}", "with_openai.py", way) for way in ("chat", "stream", "responses", "responses-stream")),
    *(of_task(f"anthropic {way}", "with_anthropic.py", way) for way in ("messages", "stream")),
    *(of_task(f"openai-agents {way}", "with_agents.py", way) for way in ("chat", "responses")),
    *(of_task(f"pydantic-ai {way}", "with_pydantic_ai.py", way) for way in ("chat", "responses", "messages")),
    *(of_task(f"litellm {way}", "with_litellm.py", way) for way in ("openai", "anthropic", "ollama_chat")),
    *(of_task(f"ollama {way}", "with_ollama.py", way) for way in ("chat", "stream")),
    dataclasses.replace(
        of_task("llm", ""),
        command=lambda: ["bash", HERE / "with_llm.sh", environment("sdks") / "llm"],
        files={"a.txt": "hello\n", "b.txt": "world\n", "llm.yaml": settings("llm", "yaml")},
    ),
    Client(
        name="llama.vscode",
        packages="",
        command=lambda: [shutil.which("node"), HERE / "with_llama_vscode.js", LLAMA_VSCODE],
        lacks=llama_vscode_lacks,
        answers=llama_vscode_answers,
        infill="import os\nimport sys",
        files={"in.txt": "first\n", "main.py": "# shows both\n\nprint(os.getcwd(), sys.argv)\n"},
        after={"in.txt": "second\n", "main.py": "# shows both\nimport os\nimport sys\nprint(os.getcwd(), sys.argv)\n"},
        says="All of it is done.",
        home={"settings.json": "{%s}" % settings("llama.vscode", "json")},
        environment=NODE,
        folders=("one", "one", "two"),
        told="updated.",
    ),
]


def check_session(client, work, output, exchanges):
    for name, text in client.after.items():
        path = work / name
        if not path.exists() or path.read_text() != text:
            raise Failed(f"{name} is {path.read_text()!r}" if path.exists() else f"there is no {name}")
    if client.says not in output:
        raise Failed(f"it does not say {client.says!r}: {output[-2000:]}")
    if not any(client.told in json.dumps(asked) for _, asked, *_ in exchanges):
        raise Failed(f"no request holds {client.told!r}")
    wrong = [f"{line}: {status} {text[:300]}" for line, _, status, text in exchanges if status != 200]
    if wrong and not client.fails:
        raise Failed("\n".join(wrong))


def run_client(client, folder):
    """What its sessions sent."""
    lines = []
    sessions = [(client, name) for name in client.folders]
    if client.go_on:
        sessions.append((dataclasses.replace(client, command=client.go_on, files={}), client.folders[-1]))
    with Served(folder, client.script(), client.context) as served:
        for n, (client, name) in enumerate(sessions):
            work = folder / "work" / name
            if client.files:
                shutil.rmtree(work, ignore_errors=True)
            before = served.computed()
            output, exchanges = run_session(client, served, folder / f"session-{n}", work)
            check_session(client, work, output, exchanges)
            computed = rows_of(exchanges) or f"{served.computed() - before} in all"
            rows = client.says if client.fails else f"rows computed {computed}"
            lines.append(f"{len(exchanges)} requests, {rows}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--keep", action="store_true", help="the folder with logs and all requests")
    options = parser.parse_args()
    chosen = [c for c in CLIENTS if not options.names or c.name.startswith(tuple(options.names))]
    top = pathlib.Path(tempfile.mkdtemp(prefix="hearth-clients-", dir="/var/tmp"))
    passed = failed = skipped = 0
    for client in chosen:
        if why := client.lacks():
            skipped += 1
            print(f"skipped {client.name}: {why}", flush=True)
            continue
        folder = top / client.name.replace(" ", "-")
        folder.mkdir()
        try:
            lines = run_client(client, folder)
            passed += 1
            print(f"ok      {client.name}: " + f"\n        {' ' * len(client.name)}  ".join(lines), flush=True)
        except (Failed, subprocess.SubprocessError) as error:
            failed += 1
            print(f"FAILED  {client.name}: {error}", flush=True)
    if options.keep:
        print(f"kept: {top}")
    else:
        shutil.rmtree(top)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed + skipped else 0


if __name__ == "__main__":
    sys.exit(main())
