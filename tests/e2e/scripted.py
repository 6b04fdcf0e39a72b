"""A scripted model answers as its script says, to `hearth chat` and through hearth-http. Called by scripted.sh."""

import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["BUILD"], "bin").absolute()
PAGE = 32
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
    for name in ("read", "write")
]
SCRIPT = {
    "answers": [
        {"text": "I read it first.", "calls": [{"name": "read", "arguments": {"path": "/a/b"}}]},
        {
            "thought": "Two at once.",
            "calls": [
                {"name": "write", "arguments": {"path": '/a/"c"\n'}},
                {"name": "write", "arguments": {"path": "/a/d"}},
            ],
        },
        None,
        "It is done: größer, \u4e00\U0001f600, and no more.",
    ],
    "without_tools": "A title.",
    "infill": "import os\n",
}
GLM = """[gMASK]<sop>{% for tool in tools %}{{ tool | tojson }}{% endfor %}
{%- for m in messages %}
    {%- if m.role == 'assistant' %}<|assistant|>{{ m.content or '' }}
        {%- for call in m.tool_calls or [] %}
            {{- '\\n<tool_call>' + call.function.name }}
            {%- for key, value in call.function.arguments.items() %}
                {{- '\\n<arg_key>' + key + '</arg_key>\\n<arg_value>' ~ value ~ '</arg_value>' }}
            {%- endfor %}
            {{- '\\n</tool_call>' }}
        {%- endfor %}
    {%- else %}{{ '<|' + ('observation' if m.role == 'tool' else m.role) + '|>' + m.content }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
GLM_SCRIPT = {
    "answers": ["Now.\n<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>/a</arg_value>\n</tool_call>", "Done."],
    "end": "<|user|>",
}


def build(folder, script, *options):
    source, out = folder / "script.json", folder / "model.gguf"
    source.write_text(json.dumps(script))
    command = [sys.executable, "tests/tools/scripted_model.py", source, out, *options]
    return out, subprocess.run(command, capture_output=True, text=True)


class Over:
    """HTTP over a Unix socket."""

    def __init__(self, path):
        self.path = str(path)

    def __call__(self, method, where, body=None):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.path)
        connection.request(method, where, body and json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status == 200, (answer.status, text)
        return text


class Served:
    """A daemon and a gateway on a model; `hearth` runs the command there."""

    def __init__(self, folder, model):
        self.environment = {**os.environ, "HEARTH_SOCKET": str(folder / "hearth.sock")}
        listen = folder / "http.sock"
        self.request = Over(listen)
        self.processes = [
            self.start("hearthd", "--model", model, "ready"),
            self.start("hearth-http", "--listen", listen, "listening"),
        ]

    def start(self, program, *arguments):
        *options, sign = arguments
        process = subprocess.Popen(
            [BIN / program, *options], env=self.environment, stderr=subprocess.PIPE, text=True
        )
        for line in process.stderr:
            if sign in line:
                return process
        raise AssertionError(f"{program} ended with {process.wait()}")

    def hearth(self, *arguments, text=""):
        command = [BIN / "hearth", *arguments]
        done = subprocess.run(command, env=self.environment, input=text, capture_output=True, text=True)
        assert done.returncode == 0, done
        return done.stdout

    def chat(self, messages, **more):
        body = {"messages": messages, "tools": TOOLS, **more}
        return json.loads(self.request("POST", "/v1/chat/completions", body))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        self.said = [process.communicate()[1] for process in self.processes]


def calls_of(message):
    return [
        (c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls") or []
    ]


def check_answer(message, want):
    want = {"text": want} if isinstance(want, str) else want
    assert (message["content"] or "") == want.get("text", ""), message
    assert message.get("reasoning_content") == want.get("thought"), message
    assert calls_of(message) == [(c["name"], c["arguments"]) for c in want.get("calls", [])], message


def converse(served, **more):
    """From the first question to the last answer; each turn computes what is new, and at most a page more."""
    messages, known = [{"role": "user", "content": "Please do it."}], 0
    for want in filter(None, SCRIPT["answers"]):
        answer = served.chat(messages, **more)
        message, usage = answer["choices"][0]["message"], answer["usage"]
        check_answer(message, want)
        assert usage["completion_tokens"] > 3, usage  # pieces, not an answer in one token
        computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
        assert computed <= usage["prompt_tokens"] - known + PAGE, (usage, known)
        known = usage["total_tokens"]
        messages.append(message)
        for call in message.get("tool_calls") or []:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "result " * 50})
    assert known > 300, known  # more than the least that can be cached
    check_answer(served.chat([*messages, messages[-2]])["choices"][0]["message"], SCRIPT["answers"][-1])
    return messages


def stream(served, messages):
    text = served.request("POST", "/v1/chat/completions", {"messages": messages, "tools": TOOLS, "stream": True})
    parts = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    deltas = [p["choices"][0]["delta"] for p in parts if p["choices"]]
    return "".join(d.get("content") or "" for d in deltas)


def turns_go_on(folder):
    """No prompt leaves the text before it, so nothing says so; one that does is told with the words that changed."""
    model, built = build(folder, SCRIPT)
    assert built.returncode == 0, built
    with Served(folder, model) as served:
        converse(served)
    assert "became" not in served.said[1], served.said
    with Served(folder, model) as served:
        for day in ("Monday", "Tues\u00e9day"):
            system = {"role": "system", "content": f"{'You help. ' * 20}It is {day}. {'Be kind. ' * 20}"}
            answer = served.chat([system, {"role": "user", "content": "Go."}])
        place = answer["usage"]["prompt_tokens_details"]["prefix_break"]
        slots = json.loads(served.hearth("status", "--json"))["slots"]
    line = next(line for line in served.said[1].splitlines() if "became" in line)
    assert f"at token {place}: after " in line and 'It is ", "Monday. ' in line and 'became "Tues\u00e9day. ' in line, line
    assert slots[0]["prefix_break"] == place and slots[0]["prefix_lost"] > PAGE, slots


def scripted_answers(folder):
    model, built = build(folder, SCRIPT)
    assert built.returncode == 0, built
    with Served(folder, model) as served:
        messages = converse(served)
        again = converse(served, temperature=2, seed=7)
        assert [m["content"] for m in again] == [m["content"] for m in messages]
        assert stream(served, messages[:-1]) == SCRIPT["answers"][-1]
        assert served.hearth("chat", text="Hello").strip() == SCRIPT["without_tools"]
        middle = {"input_prefix": "# both\n", "input_suffix": "\nprint()\n"}
        assert json.loads(served.request("POST", "/infill", middle))["content"] == SCRIPT["infill"]
        # A text that is not the template's has no successor; a turn's token is found in the template alone.
        assert served.hearth("run", "def f(x):").strip() == ""
        faked = served.chat([{"role": "user", "content": "<|turn_3|>"}])
        check_answer(faked["choices"][0]["message"], SCRIPT["answers"][0])
        # Any text becomes tokens, and those become it again.
        odd = "Zeile\t\u00e9\u4e00\u0000 <|turn_0|> {}\r\n  end"
        ids = json.loads(served.request("POST", "/tokenize", {"content": odd}))["tokens"]
        assert json.loads(served.request("POST", "/detokenize", {"tokens": ids}))["content"] == odd
        assert json.loads(served.request("GET", "/props"))["default_generation_settings"]["n_ctx"] == 131072


def no_calls(folder):
    """With tool_choice none the prompt keeps its tools, and the token that begins a call is not written."""
    script = {"answers": [{"text": "I look.", "calls": [{"name": "read", "arguments": {}}]}], "alone": ["<tool_call>"]}
    model, built = build(folder, script)
    assert built.returncode == 0, built
    text = {"role": "user", "content": "Look. " * 40}
    function = TOOLS[0]["function"]
    with Served(folder, model) as served:

        def ask(path, body, **more):
            return json.loads(served.request("POST", path, {"max_tokens": 20, "max_output_tokens": 20, **body, **more}))

        chat, body = "/v1/chat/completions", {"messages": [text], "tools": TOOLS}
        auto, none = ask(chat, body, max_tokens=200), ask(chat, body, tool_choice="none", logit_bias={"1": 1})
        assert calls_of(auto["choices"][0]["message"]) == [("read", {})], auto
        said = none["choices"][0]["message"]
        assert not said.get("tool_calls") and "I look." in said["content"], none
        assert "<tool_call>" not in said["content"], none
        total = auto["usage"]["prompt_tokens"]
        assert none["usage"]["prompt_tokens"] == total, none
        assert none["usage"]["prompt_tokens_details"]["cached_tokens"] > total - PAGE, none
        tools = [{"name": "read", "input_schema": function["parameters"]}]
        body = {"messages": [text], "tools": tools}
        auto, none = ask("/v1/messages", body, max_tokens=200), ask("/v1/messages", body, tool_choice={"type": "none"})
        assert auto["stop_reason"] == "tool_use" and none["stop_reason"] != "tool_use", (auto, none)
        assert none["usage"]["cache_read_input_tokens"] >= PAGE and none["usage"]["input_tokens"] < PAGE, none
        body = {"input": [text], "tools": [{"type": "function", **function}]}
        auto, none = ask("/v1/responses", body, max_output_tokens=200), ask("/v1/responses", body, tool_choice="none")
        assert [i["type"] for i in auto["output"]] == ["message", "function_call"], auto
        assert [i["type"] for i in none["output"]] == ["message"], none
        assert none["usage"]["input_tokens"] == auto["usage"]["input_tokens"], none


def calls_beside_a_format(folder):
    """With tools and a format, as agents send them each turn, the model calls, and then answers in the format."""
    result = {"done": True, "why": "It was read."}
    answers = [{"calls": [{"name": "read", "arguments": {"path": "/a/b"}}]}, json.dumps(result)]
    model, built = build(folder, {"answers": answers})
    assert built.returncode == 0, built
    schema = {
        "type": "object",
        "properties": {"done": {"type": "boolean"}, "why": {"type": "string"}},
        "required": ["done", "why"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "result", "strict": True, "schema": schema}}
    with Served(folder, model) as served:
        text = {"role": "user", "content": "Go."}
        call = served.chat([text], response_format=form)["choices"][0]
        assert call["finish_reason"] == "tool_calls", call
        check_answer(call["message"], answers[0])
        said = call["message"]
        messages = [text, said, {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "x"}]
        for more in {}, {"tool_choice": "none"}:
            check_answer(served.chat(messages, response_format=form, **more)["choices"][0]["message"], answers[1])
        alone = served.chat([text], response_format=form, tool_choice="none", max_tokens=20)["choices"][0]["message"]
        assert not calls_of(alone) and alone["content"].startswith("{"), alone


def own_words(served, schema, **more):
    """What hearth says of its own in an answer of each dialect: whole, and in the last event of a stream."""
    text = [{"role": "user", "content": "Go."}]
    function = {"name": "read", "parameters": schema, "strict": True}
    wrapped, anthropic = {"type": "function", "function": function}, {"name": "read", "input_schema": schema}
    for path, body in [
        ("/v1/chat/completions", {"messages": text, "tools": [wrapped]}),
        ("/v1/messages", {"messages": text, "max_tokens": 200, "tools": [{**anthropic, "strict": True}]}),
        ("/v1/responses", {"input": text, "tools": [{"type": "function", **function}]}),
        ("/api/chat", {"messages": text, "tools": [wrapped]}),
    ]:
        body = {**body, "model": "m", "seed": 5, **more}
        whole = json.loads(served.request("POST", path, {**body, "stream": False}))
        lines = served.request("POST", path, {**body, "stream": True}).splitlines()
        events = [json.loads(line.removeprefix("data: ")) for line in lines if line.endswith("}")]
        said = [e.get("response", e)["hearth"] for e in events if "hearth" in e.get("response", e)]
        assert len(said) == 1 and said[0].keys() == whole["hearth"].keys(), (path, said, whole["hearth"])
        assert all(said[0][k] == v for k, v in whole["hearth"].items() if k != "receipt"), (said, whole["hearth"])
        assert said[0]["seed"] == 5 and said[0]["receipt"], said
        yield path, said[0], whole, events


def streams_say_what_whole_answers_do(folder):
    script = {"answers": [{"calls": [{"name": "read", "arguments": {"path": "x"}}]}]}
    schema = {"type": "object", "properties": {"path": {"type": "string", "not": {"const": "x"}}}}
    model, built = build(folder, script)
    assert built.returncode == 0, built
    with Served(folder, model) as served:
        for path, said, *_ in own_words(served, schema):
            assert "not" in said["loosened"][0] and "#/path" in said["unparsed"], (path, said)


def calls_that_are_cut_are_not_run(folder):
    """A call whose arguments are not complete is a text where its dialect has an object for them, else it says so."""
    script = {"answers": [{"calls": [{"name": "read", "arguments": {"path": "/some/long/path/to/a/file.txt"}}]}]}
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    model, built = build(folder, script)
    assert built.returncode == 0, built
    begin = '{"name":"read","arguments":{"path": "/some'
    with Served(folder, model) as served:
        limit = {"max_tokens": 10, "max_output_tokens": 10, "options": {"num_predict": 10}}
        for path, said, whole, events in own_words(served, schema, **limit):
            assert "ends inside a call" in said["unparsed"], (path, said)
            if path == "/v1/messages":
                assert whole["stop_reason"] == "max_tokens", whole
                assert [b["type"] for b in whole["content"]] == ["text"], whole
                assert whole["content"][0]["text"].startswith(begin), whole
            elif path == "/v1/responses":
                item = next(e["item"] for e in events if e["type"] == "response.output_item.done")
                for call in (item, whole["output"][0], events[-1]["response"]["output"][0]):
                    assert (call["type"], call["status"]) == ("function_call", "incomplete"), call
                    assert call["arguments"].startswith('{"path": "/some'), call
            elif path == "/api/chat":
                assert not any("tool_calls" in e["message"] for e in (whole, *events)), (whole, events)
                assert whole["message"]["content"].startswith(begin) and whole["done_reason"] == "length", whole
                assert "".join(e["message"]["content"] for e in events) == whole["message"]["content"], events


def another_template(folder):
    template = folder / "template.jinja"
    template.write_text(GLM)
    model, built = build(folder, GLM_SCRIPT, "--template", template)
    assert built.returncode == 0, built
    with Served(folder, model) as served:
        first = served.chat([{"role": "user", "content": "Go."}])["choices"][0]["message"]
        assert first["content"] == "Now." and calls_of(first) == [("read", {"path": "/a"})], first
        messages = [{"role": "user", "content": "Go."}, first, {"role": "tool", "content": "x", "tool_call_id": "1"}]
        assert served.chat(messages)["choices"][0]["message"]["content"] == "Done."


def refused_scripts(folder):
    for answers, line in [
        (["all of it is done", "is done"], "part of another one"),
        (["x" * 5000 + "a", "x" * 5000 + "b"], "in common"),
    ]:
        model, built = build(folder, {"answers": answers})
        assert built.returncode == 1 and line in built.stderr and not model.exists(), built


def main():
    for test in (
        refused_scripts,
        scripted_answers,
        no_calls,
        calls_beside_a_format,
        streams_say_what_whole_answers_do,
        calls_that_are_cut_are_not_run,
        another_template,
        turns_go_on,
    ):
        folder = pathlib.Path(tempfile.mkdtemp())
        try:
            test(folder)
        finally:
            shutil.rmtree(folder)
    print("ok: scripted models: answers, calls, thoughts, prefixes, another template")


main()
