"""llama.cpp's own cases of answers, from tests/test-chat.cpp of the sources that HEARTH_TEMPLATES is a folder
in (models/templates): template, tools, answer, and what llama.cpp reads in it. Its statements are compiled
with C++ that prints them. hearth reads the same, whole and in pieces, but for what compare() names."""

import collections
import json
import os
import pathlib
import random
import re
import shutil
import subprocess

import pytest

import hearth

FOLDER = os.environ.get("HEARTH_TEMPLATES")
COMPILER = shutil.which("c++")
ROOT = pathlib.Path(FOLDER or ".").resolve().parents[1]
pytestmark = pytest.mark.skipif(
    not FOLDER or not COMPILER or not (ROOT / "tests/test-chat.cpp").exists(),
    reason="HEARTH_TEMPLATES is not a folder in llama.cpp's sources, or c++ is not installed",
)

# ---- the cases, out of the C++ ---------------------------------------------------------------------------

BEFORE = """
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>
#define LOG_DBG(...)
"""
PRINT = r"""
static void text(const char *before, const std::string &s)
{
    printf("%s\"", before);
    for (unsigned char c : s)
        if (c < 0x20 || c == '"' || c == '\\') printf("\\u%04x", c);
        else putchar(c);
    putchar('"');
}
static void message(const char *before, const common_chat_msg &m)
{
    text(before, m.content);
    text(",", m.reasoning_content);
    printf(",[");
    for (size_t i = 0; i < m.tool_calls.size(); i++) {
        text(i ? ",[" : "[", m.tool_calls[i].name);
        text(",", m.tool_calls[i].arguments);
        printf("]");
    }
    printf("]]");
}
static void print(const std::string &path, const peg_test_case &t, int line)
{
    printf("{\"line\":%d,\"partial\":%d,\"raw\":%d,\"thinking\":%d,\"required\":%d,\"continues\":%d",
           line, t.is_partial, t.params.reasoning_format == COMMON_REASONING_FORMAT_NONE,
           t.params.enable_thinking, t.params.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED,
           (int)t.params.continue_final_message);
    text(",\"template\":", path);
    text(",\"answer\":", t.input);
    text(",\"schema\":", t.params.json_schema);
    message(",\"want\":[", t.expect);
    printf(",\"tools\":[");
    for (size_t i = 0; i < t.params.tools.size(); i++) {
        text(i ? ",[" : "[", t.params.tools[i].name);
        text(",", t.params.tools[i].parameters);
        printf("]");
    }
    puts("]}");
}
"""
STRUCTURES = (
    "struct common_chat_tool_call", "struct common_chat_msg_content_part", "struct common_chat_msg",
    "struct common_chat_tool", "enum common_chat_tool_choice", "enum common_chat_continuation",
    "struct common_chat_templates_inputs",
)  # fmt: skip


def structure(source, name):
    start = source.index(name + " {")
    return source[start : source.index("\n};", start) + 4]


def without_other_tests(lines):
    """Blocks that render a template themselves, and read no answer."""
    while any(re.match(r"\s+auto tmpls = ", line) for line in lines):
        start = next(i for i, line in enumerate(lines) if re.match(r"\s+auto tmpls = ", line))
        while lines[start].strip() != "{":
            start -= 1
        close = lines[start].replace("{", "}")
        end = next(i for i, line in enumerate(lines) if i > start and line.startswith(close))
        lines[start : end + 1] = [""] * (end + 1 - start)
    return lines


def read_cases(folder):
    lines = (ROOT / "tests/test-chat.cpp").read_text(encoding="utf-8").split("\n")

    def part(first, last):
        a, b = (next(i for i, line in enumerate(lines) if line.startswith(x)) for x in (first, last))
        return a, lines[a:b]

    _, given = part("static common_chat_tool special_function_tool{", "struct make_peg_parser {")
    _, builder = part("// Fluent builder for PEG", "static void test_msgs_oaicompat_json_conversion")
    at, calls = part("static void test_lfm2_parser", "static void test_template_generation_prompt")
    calls = without_other_tests(calls)
    calls = [re.sub(r"\brun\(\)", f"run({at + i + 1})", line) for i, line in enumerate(calls)]
    tester = "\n".join(builder)
    run, end = tester.index("    // Execute the test"), tester.index("};\n\npeg_test_builder peg_tester::test")
    tester = f"{tester[:run]}    void run(int n) {{ print(tester_.template_path(), tc_, n); }}\n{tester[end:]}"
    for gone in ("common_chat_templates_ptr tmpls_;", "tmpls_(read_templates(template_path)),"):
        tester = tester.replace(gone, "")
    common, chat = ((ROOT / "common" / x).read_text(encoding="utf-8") for x in ("common.h", "chat.h"))
    source = [BEFORE, structure(common, "enum common_reasoning_format")]
    source += [structure(chat, name).replace("common_json to_json", "int to_json") for name in STRUCTURES]
    source += [*given, PRINT, tester, *calls, "int main() { test_template_output_peg_parsers(false); }"]
    (folder / "cases.cpp").write_text("\n".join(source), encoding="utf-8")
    subprocess.run([COMPILER, "-std=c++17", "-w", "-o", "cases", "cases.cpp"], cwd=folder, check=True)
    out = subprocess.run([folder / "cases"], check=True, stdout=subprocess.PIPE).stdout.decode("utf-8")
    return [json.loads(line) for line in out.splitlines()]


# ---- what hearth reads -----------------------------------------------------------------------------------

# Templates whose calls or thoughts are of no form that hearth has, as client/README.md says.
UNREAD = ("Apertus", "c4ai-command-r-plus", "fireworks-ai", "functionary-medium-v3.2", "GigaChat3-10B", "Kimi-K3",
          "MiniMax-M3", "muse")  # fmt: skip
# Control tokens that are not marks: a daemon leaves them out of its answers.
NOT_SHOWN = re.compile(r"<\|(START|END)_(RESPONSE|TEXT)\|>|<\|role_end\|>")
MARKS = re.compile(
    r"</?think>|\[/?THINK\]|<\|channel>thought|<channel\|>|<\|(START|END)_THINKING\|>|"
    r"<\|channel\|>analysis<\|message\|>|<\|end\|>"
)
PASSES_TOOLS_OVER = ("DeepSeek-V3.1", "DeepSeek-R1-Distill")
OPENING = "Here are my reasoning steps:\n"  # in Apriel's prompt; llama.cpp has it in the thought


def describe(name, parameters):
    return {"type": "function", "function": {"name": name, "description": "x", "parameters": json.loads(parameters)}}


def read(client, case, answer, cut):
    source = (ROOT / case["template"]).read_text(encoding="utf-8")
    if any(name in case["template"] for name in PASSES_TOOLS_OVER):
        source = "{% if tools %}{{ tools | tojson }}{% endif %}" + source
    reader = client.chat_reader(
        [{"role": "user", "content": "Hey there!"}],
        [describe(*tool) for tool in case["tools"]] or None,
        template=source,
        variables={"enable_thinking": bool(case["thinking"])},
        tool_choice="required" if case["required"] else "auto",
    )
    events = [e for piece in cut(answer) for e in reader.feed(piece)] + reader.finish()
    said, calls = {"content": "", "reasoning": ""}, []
    for e in events:
        if e.kind in said:
            said[e.kind] += e.text
        elif e.kind == "call":
            calls.append([e.text, ""])
        elif e.kind == "arguments":
            calls[e.call][1] += e.text
    return said["content"], said["reasoning"], calls, reader.unparsed


def in_pieces(answer):
    at = sorted(random.Random(len(answer)).choices(range(len(answer) + 1), k=5))
    return [answer[a:b] for a, b in zip([0, *at], [*at, len(answer)])]


def plain(call, partial):
    name, arguments = call
    if partial:
        return name, "".join(arguments.split())
    return name, json.dumps(json.loads(arguments or "{}"))


def same_calls(case, calls):
    want = [plain(call, case["partial"]) for call in case["want"][2]]
    have = [plain(call, case["partial"]) for call in calls]
    if not case["partial"] or len(want) != len(have):
        return want == have
    return all(a[0] == b[0] and b[1].startswith(a[1]) for a, b in zip(want, have))


def compare(client, case):
    if case["continues"]:
        return "goes on after a thought: refused, here"
    answer = NOT_SHOWN.sub("", case["answer"])
    found = read(client, case, answer, lambda a: [a])
    if any(read(client, case, answer, cut) != found for cut in (list, in_pieces)):
        return "differs in pieces"
    content, reasoning, calls, unparsed = found
    want_content, want_reasoning, want_calls = case["want"]
    if not case["tools"] and " to=" in answer and "no tools" in (unparsed or "") and content:
        return "a call that was not asked for: content, here"
    if case["partial"] and want_calls and not want_calls[-1][1] and not calls and content:
        return "a call without its arguments: content, here"
    if case["partial"] and "LFM2" in case["template"] and "ends inside" in (unparsed or "") and content:
        return "a call that is cut off: content, here"
    if case["schema"] and "```" in answer:
        return "a fence that a schema does not allow"
    if not same_calls(case, calls):
        return f"differs: {calls}"
    if (content, reasoning) == (want_content, want_reasoning.replace(OPENING, "")):
        return "equal"
    if (content.strip(), reasoning.strip()) == (want_content.strip(), want_reasoning.strip()):
        return "equal but for white space at an end"
    if case["raw"] and MARKS.sub(" ", want_content).split() == (reasoning + " " + content).split():
        return "equal but for thoughts that stay content"
    return f"differs: {content!r}, {reasoning!r}"


def test_hearth_reads_what_llama_cpp_reads(client, tmp_path):
    cases = read_cases(tmp_path)
    kinds, wrong = collections.Counter(), []
    for case in cases:
        try:
            kind = compare(client, case)
        except hearth.NotSupported as e:
            kind = f"differs: {e}"
        if kind.startswith("differs:") and any(name in case["template"] for name in UNREAD):
            kind = "a form that is not read"
        elif kind.startswith("differs"):
            wrong.append((case["line"], case["template"], kind))
        kinds[kind.split(":")[0]] += 1
    print(len(cases), dict(kinds))
    assert cases and not wrong, wrong
