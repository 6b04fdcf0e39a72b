"""An agent's conversation of 40 turns with 30 tools, in each family's chat template: how much of each prompt has to be
computed. Called by turns.sh.

The model's answer is what the template writes for it, read back by the library, and handed back as a client does. A
turn's new rows are what follows in its prompt after the prompt and the answer before it; what the two do not have in
common before that place is computed again. An answer by itself is the last thing that the template renders; if the
template writes the beginning of a thought at the end of a prompt and leaves thoughts out of the conversation, the thought
is put in its place.

    turns.py TEMPLATE...     files of chat templates, *.jinja, or of vectors (JSON)
"""

import json
import pathlib
import sys

import hearth

TOOLS, PAGE = 30, 32
# Of a template, by the way to think: the most rows computed again after calls, and after a question: None where it
# leaves out thoughts that came before the question.
EXPECTED = {
    "Qwen/Qwen2.5-7B-Instruct": {"no": (0, 0)},
    "Qwen/Qwen3-0.6B": {"yes": (0, None)},
    "Qwen/Qwen3.5-4B": {"yes": (0, None)},
    "meta-llama/Llama-3.1-8B-Instruct": {"no": (0, 0)},
    "zai-org/GLM-5.1": {"yes": (0, None), "kept": (0, 0)},
}
# What makes templates keep thoughts.
KEEP = {
    **dict.fromkeys(("preserve_thinking", "preserved_thinking", "keep_past_thinking"), True),
    **dict.fromkeys(("clear_thinking", "truncate_history_thinking", "drop_thinking"), False),
}
# Tokens that end a turn.
ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|call|>", "<|return|>", "<|end|>", "<|end_of_text|>", "</s>"),
    *("<turn|>", "<end_of_turn>", "<|endoftext|>", "<|eot|>", "<|tool_response>", "<｜end▁of▁sentence｜>"),
)


def tool(n):
    words = ("reads", "writes", "finds", "lists", "moves", "counts")
    properties = {
        f"{what}_{n}": {"type": kind, "description": f"The {what} that number {n} {words[n % 6]}."}
        for what, kind in (("path", "string"), ("lines", "integer"), ("all", "boolean"))
    }
    return {
        "type": "function",
        "function": {
            "name": f"tool_{n}",
            "description": f"Number {n} {words[n % 6]} files of the project, and says what it {words[n % 6]}. " * 4,
            "parameters": {"type": "object", "properties": properties, "required": [f"path_{n}"]},
        },
    }


def call(turn, n):
    arguments = {f"path_{n}": f"src/part_{turn}/file_{n}.c", f"lines_{n}": 100 + turn, f"all_{n}": turn % 2 == 0}
    return {
        "id": f"call{turn:02}{n:03}"[:9],
        "type": "function",
        "function": {"name": f"tool_{n}", "arguments": json.dumps(arguments)},
    }


def answer_of(turn, thinks, calls, beside):
    """The model's answer: calls, at times with a text `beside` them, or each tenth time a text alone."""
    message = {"role": "assistant", "content": f"Step {turn}: I look at the next file." if beside and turn % 3 == 0 else ""}
    if is_last(turn):
        message["content"] = f"After step {turn} it is done: nothing is left to change."
    else:
        message["tool_calls"] = [call(turn, (turn + i) % TOOLS) for i in range(calls if turn % 5 == 0 else 1)]
    if thinks:
        message["reasoning_content"] = f"At step {turn} I think about file {turn}."
    return message


def is_last(turn):
    """The answer to a question, after which the user asks another one."""
    return turn % 10 == 9


def results_of(turn, message):
    if not message.get("tool_calls"):
        return [{"role": "user", "content": f"Then go on with part {turn}."}]
    end = f"This was result {turn}."
    return [
        {"role": "tool", "tool_call_id": c["id"], "name": c["function"]["name"], "content": f"line {turn} of it\n" * 20 + end}
        for c in message["tool_calls"]
    ]


def common(a, b):
    """How long the common beginning is."""
    if b.startswith(a):
        return len(a)
    return next(i for i, (x, y) in enumerate(zip(a + "\0", b + "\1")) if x != y)


class Unreadable(Exception):
    pass


class Conversation:
    def __init__(self, client, template, thinks, variables, calls, beside):
        self.client, self.template, self.thinks = client, template, thinks
        self.variables, self.calls, self.beside = variables, calls, beside
        self.tools = [tool(n) for n in range(TOOLS)]
        self.messages = [
            {"role": "system", "content": "You change files of a project. " * 20},
            {"role": "user", "content": "Change all of them."},
        ]
        self.new = 0
        self.again = [0, 0]  # the most of a turn after calls, of one after a question
        self.broken = ""

    def render(self, messages, answers):
        return self.client.chat_text(
            messages, self.tools, template=self.template, variables=self.variables, answers=answers
        )

    def count(self, text):
        return len(self.client.tokenize(text, bos=False))

    def written(self, prompt, message):
        """What the model writes, given that prompt: without the end of its turn, which is a token of its own."""
        told = self.render([*self.messages, message], False)
        n = common(prompt, told)
        while n < len(prompt) and prompt[n - 1] in "<[|/":
            n -= 1
        last = self.messages[-1]["content"].split("\n")[-1]
        if n < prompt.rfind(last):  # the answer changes how those before it are told
            n = told.rfind(last) + len(prompt) - prompt.rfind(last)
        text = told[n:].rstrip()
        for end in ENDS:
            text = text.removesuffix(end)
        if n < len(prompt):  # which ends with a thought, begun or empty
            text = text.split("</think>")[-1]
            if prompt.rstrip().endswith("<think>"):
                text = f"{message.get('reasoning_content', '')}</think>{text}"
        return text

    def read(self, text, wanted):
        """The message that a client gets."""
        reader = self.client.chat_reader(
            self.messages, self.tools, template=self.template, variables=self.variables
        )
        message, calls = {"role": "assistant", "content": ""}, []
        for event in reader.feed(text) + reader.finish():
            if event.kind == "content":
                message["content"] += event.text
            elif event.kind == "reasoning":
                message["reasoning_content"] = message.get("reasoning_content", "") + event.text
            elif event.kind == "call":
                calls.append({"name": event.text, "arguments": ""})
            elif event.kind == "arguments":
                calls[-1]["arguments"] += event.text
        given = wanted.get("tool_calls", [])
        if [c["name"] for c in calls] != [c["function"]["name"] for c in given]:
            raise Unreadable(text[-200:])
        if calls:
            message["tool_calls"] = [{**old, "function": new} for old, new in zip(given, calls)]
        return message

    def turn(self, n):
        prompt = self.render(self.messages, True)
        wanted = answer_of(n, self.thinks, self.calls, self.beside)
        text = self.written(prompt, wanted)
        message = self.read(text, wanted)
        self.messages += [message, *results_of(n, message)]
        known, following = prompt + text, self.render(self.messages, True)
        same = common(known, following)
        again = self.count(known[same:]) if same < len(known) else 0
        self.new += self.count(following[same:]) - again
        if again > max(PAGE, *self.again):
            self.broken = f"turn {n}: {known[same - 20 : same]!r}, {known[same : same + 20]!r} became {following[same : same + 20]!r}"
        self.again[is_last(n)] = max(again, self.again[is_last(n)])

    def run(self, turns):
        """(tokens of the first prompt, of the last, of those new after the first)"""
        first = self.count(self.render(self.messages, True))
        for n in range(turns):
            self.turn(n)
        return first, self.count(self.render(self.messages, True)), self.new


def templates(paths):
    for path in map(pathlib.Path, paths):
        if path.suffix == ".jinja":
            yield path.stem, path.read_text()
            continue
        for case in json.loads(path.read_text())["cases"]:
            name, text = case["name"], case.get("chat_template") or case.get("template")
            if "tool" in text:
                yield name, text


def converse(client, template, thinks, variables, turns):
    """With two calls in an answer, and a text beside calls, where the template writes these in one message."""
    for calls, beside in ((2, True), (1, True), (2, False), (1, False)):
        try:
            c = Conversation(client, template, thinks, variables, calls, beside)
            return c, c.run(turns)
        except (hearth.Error, Unreadable) as error:
            why = error
    raise why


def ways(template):
    """(name, whether the model thinks, variables)"""
    yield "no", False, {"enable_thinking": False, "thinking": False}
    thinking = {"enable_thinking": True, "thinking": True}
    if "think" in template.lower() or "reasoning" in template:
        yield "yes", True, thinking
    if any(name in template for name in KEEP):
        yield "kept", True, {**thinking, **KEEP}


def table(client, paths):
    print(f"{'template':44} thinks  first   last    new  again: after calls, after a question")
    for name, template in templates(paths):
        for way, thinks, variables in ways(template):
            try:
                c, sizes = converse(client, template, thinks, variables, 40)
                print(f"{name:44} {way:5}", *(f"{n:6}" for n in (*sizes, *c.again)), flush=True)
                if c.broken:
                    print("    ", c.broken)
            except (hearth.Error, Unreadable) as error:
                print(f"{name:44} {way:5} {str(error)[:150]!r}", flush=True)


def check(client, path):
    seen = 0
    for name, template in templates([path]):
        for way, thinks, variables in ways(template):
            wanted = EXPECTED.get(name, {}).get(way)
            if not wanted:
                continue
            c, (first, last, new) = converse(client, template, thinks, variables, 20)
            assert all(w is None or n <= w for n, w in zip(c.again, wanted)), (name, way, c.again, c.broken)
            assert None not in wanted or c.again[1] > PAGE, (name, way, c.again)  # or the table is wrong
            assert new > 2000 and last > first, (name, way, first, last, new)
            seen += 1
    assert seen == sum(map(len, EXPECTED.values())), seen
    print(f"ok: prompts of {seen} conversations of 20 turns with {TOOLS} tools compute what is new")


with hearth.Client() as the_client:
    if sys.argv[1] == "--check":
        check(the_client, sys.argv[2])
    else:
        table(the_client, sys.argv[1:])
