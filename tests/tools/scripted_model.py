#!/usr/bin/env python3
"""Builds a model that gives scripted answers: a GGUF file that hearthd serves like any other.

    scripted_model.py SCRIPT.json OUT.gguf [--template FILE] [--context N]

SCRIPT.json is {"answers": [...], "without_tools": ..., "infill": ..., "end": ..., "control": [...], "alone": [...]}:
  answers        answer k is given where the conversation has k messages of role "tool"; the last one also where
                 it has more. null: is not reached (the answer before it makes two calls)
  without_tools  the answer to a request without tools; left out: as with tools
  infill         what belongs between a prefix and a suffix; left out: the model knows no fill-in-the-middle
  end            the token that ends an answer; default "<|im_end|>"
  control        more texts that are control tokens; those of the form <|...|> in the template are
  alone          texts that occur once in all answers, and are a token each there: the mark of a call
An answer is a text, as the model would write it, or {"thought": ..., "text": ..., "calls": [{"name": ...,
"arguments": {...}}, ...]}, which is written as Qwen3's template writes it. No answer may be a part of another one.

How it works. The model has one layer of zeros, so the vector that reaches its head is the last token's embedding:
signs drawn by a fixed seed, nearly orthogonal to each other. The head's row of a token is the sum of the embeddings of
its predecessors, so greedy decoding walks from each token to its successor, and sampling does too: any other token is
30 nats or more away, which is checked here for every token. Answers are cut into pieces that occur once in all of
them, each a user-defined token, so that a piece has one successor and the text of an answer becomes the same tokens
again in the next prompt. The template ends the prompt, and begins each answer in it, with a control token <|turn_k|>,
whose successor is the first piece of answer k. A token without a successor is followed by the end.

--template takes another chat template: <|turn_k|> then stands at the end of the prompt alone, and each turn computes
the answer before it again. Everything else is real: any text becomes tokens (bytes, and pairs of letters), the context is
131072 tokens.
"""

import argparse
import itertools
import json
import random
import re
import string
import struct
import sys

SHARED, SIGNS = 32, 224  # of an embedding: equal in all tokens; drawn
WIDTH = SHARED + SIGNS
HEAD, FEED_FORWARD = 32, 32
LEAST_MARGIN = 30  # nats
PIECE_BYTES = 6  # at least
MAX_PIECE_BYTES = 4096
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4

# Of Qwen3's form. `{turn}` is where an answer begins.
TEMPLATE = """\
{%- set ns = namespace(tools=0) %}
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- if tools %}
    {{- '<|im_start|>system\\n' + (system + '\\n\\n' if system else '') + '# Tools\\n\\n<tools>' }}
    {%- for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}
    {{- '\\n</tools>\\n\\nFor each call, return a json object with name and arguments within tags:\\n<tool_call>\\n' }}
    {{- '{"name": <name>, "arguments": <arguments>}\\n</tool_call><|im_end|>\\n' }}
{%- elif system %}
    {{- '<|im_start|>system\\n' + system + '<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}{turn}
        {%- if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}
        {{- m.content or '' }}
        {%- for call in m.tool_calls or [] %}
            {{- '\\n' if m.content or not loop.first else '' }}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif m.role == 'tool' %}
        {%- set ns.tools = ns.tools + 1 %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif not loop.first or m.role != 'system' %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{turn}{% endif %}
"""
COUNT_TOOLS = (
    "{%- set ns = namespace(tools=messages | selectattr('role', 'equalto', 'tool') | list | length) %}"
)


def fail(line):
    sys.exit(f"scripted_model.py: {line}")


def text_of(answer):
    """As Qwen3's template writes it."""
    if isinstance(answer, str):
        return answer
    text = answer.get("text", "")
    calls = [
        "<tool_call>\n"
        + json.dumps({"name": c["name"], "arguments": c["arguments"]}, ensure_ascii=False)
        + "\n</tool_call>"
        for c in answer.get("calls", [])
    ]
    thought = f"<think>\n{answer['thought']}\n</think>\n\n" if "thought" in answer else ""
    return thought + "\n".join(([text] if text else []) + calls)


def occurrences(piece, texts):
    """Overlapping ones count; two are enough to know."""
    n = 0
    for text in texts:
        at = text.find(piece)
        while at >= 0 and n < 2:
            n, at = n + 1, text.find(piece, at + 1)
    return n


def cut(text, texts):
    """Pieces that occur once in all texts; the last one takes what could not be one."""
    pieces, begin = [], 0
    while begin < len(text):
        end = begin + PIECE_BYTES
        while end < len(text) and occurrences(text[begin:end], texts) > 1:
            end += 1
        if occurrences(text[begin:end], texts) > 1:
            if not pieces:
                fail(f"this answer is part of another one: {text!r}")
            pieces[-1] += text[begin:]
            break
        pieces.append(text[begin:end])
        begin = end
    for piece in pieces:
        if len(piece.encode()) > MAX_PIECE_BYTES:
            fail(f"two answers have more than {MAX_PIECE_BYTES} bytes in common: {piece[:40]!r}...")
    return pieces


# ---- the vocabulary -------------------------------------------------------------------------------


def byte_letters():
    """The letter by which byte-level BPE writes each byte."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = itertools.count(0x100)
    return [chr(b) if b in visible else chr(next(others)) for b in range(256)]


class Vocabulary:
    """Tokens by id; edges from a token to its successor."""

    def __init__(self):
        letters = byte_letters()
        blank = letters[ord(" ")]
        pairs = list(itertools.product(string.ascii_lowercase, repeat=2))
        words = [(blank, c) for c in string.ascii_lowercase] + pairs + [(blank + a, b) for a, b in pairs]
        self.texts = letters + [a + b for a, b in words]
        self.merges = [f"{a} {b}" for a, b in words]
        self.types = [NORMAL] * len(self.texts)
        self.successor = {}

    def add(self, text, kind):
        self.texts.append(text)
        self.types.append(kind)
        return len(self.texts) - 1


def cut_around(text, texts, alone):
    """The same, and these are pieces of their own."""
    parts = re.split("(" + "|".join(map(re.escape, alone)) + ")", text) if alone else [text]
    return [piece for part in parts if part for piece in ([part] if part in alone else cut(part, texts))]


def add_answers(vocabulary, starts, alone):
    """starts: (turn token's text, answer or None)."""
    texts = list(dict.fromkeys(text for _, text in starts if text))
    ids = {}
    for text in texts:
        ids[text] = [vocabulary.add(piece, USER_DEFINED) for piece in cut_around(text, texts, alone)]
        vocabulary.successor.update(zip(ids[text], ids[text][1:]))
    for token, text in starts:
        at = vocabulary.add(token, CONTROL)
        if text:
            vocabulary.successor[at] = ids[text][0]


# ---- the weights ----------------------------------------------------------------------------------


def check_margins(signs, successor):
    """The logits of every token, in units of 1: agreeing signs less the others."""
    predecessors = {}
    for token, following in successor.items():
        predecessors.setdefault(following, []).append(signs[token])
    end = SIGNS // 2
    for token, own in enumerate(signs):
        logits = {
            v: sum(SIGNS - 2 * bin(own ^ p).count("1") for p in before) for v, before in predecessors.items()
        }
        want = logits.pop(successor[token]) if token in successor else end
        others = max([*logits.values(), end if token in successor else 0, 0])
        if want - others < LEAST_MARGIN:
            return False
    return True


def draw_signs(n, successor):
    for seed in range(100):
        draw = random.Random(seed)
        signs = [draw.getrandbits(SIGNS) for _ in range(n)]
        if check_margins(signs, successor):
            return signs
    fail("too many answers: signs that tell all pieces apart were not found")


ONE, MINUS_ONE = struct.pack("<e", 1), struct.pack("<e", -1)


def row_of(signs):
    return b"".join(ONE if signs >> i & 1 else MINUS_ONE for i in range(SIGNS))


def sum_of(rows):
    values = [struct.unpack(f"<{SIGNS}e", row) for row in rows]
    return struct.pack(f"<{SIGNS}e", *(sum(column) for column in zip(*values)))


def matrices(vocabulary, end):
    n = len(vocabulary.texts)
    signs = draw_signs(n, vocabulary.successor)
    rows = [row_of(s) for s in signs]
    before = {}
    for token, following in vocabulary.successor.items():
        before.setdefault(following, []).append(rows[token])
    nothing = bytes(2 * SHARED)
    ends = struct.pack("<e", SIGNS / 2 / SHARED) * SHARED + bytes(2 * SIGNS)
    head = [nothing + (sum_of(before[v]) if v in before else bytes(2 * SIGNS)) for v in range(n)]
    head[end] = ends
    return b"".join(ONE * SHARED + row for row in rows), b"".join(head)


# ---- the file -------------------------------------------------------------------------------------

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
FORMS = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}
TENSOR_F32, TENSOR_F16, ALIGNMENT = 0, 1, 32


def packed(kind, value):
    if kind == STRING:
        data = value.encode()
        return struct.pack("<Q", len(data)) + data
    return struct.pack(FORMS[kind], value)


def key(name, kind, value):
    if not isinstance(value, list):
        return packed(STRING, name) + struct.pack("<I", kind) + packed(kind, value)
    head = struct.pack("<IIQ", ARRAY, kind, len(value))
    return packed(STRING, name) + head + b"".join(packed(kind, v) for v in value)


def padded(data):
    return data + bytes(-len(data) % ALIGNMENT)


def keys_of(vocabulary, end, template, context):
    return [
        key("general.architecture", STRING, "llama"),
        key("general.name", STRING, "scripted"),
        key("llama.block_count", U32, 1),
        key("llama.context_length", U32, context),
        key("llama.embedding_length", U32, WIDTH),
        key("llama.feed_forward_length", U32, FEED_FORWARD),
        key("llama.attention.head_count", U32, 1),
        key("llama.attention.head_count_kv", U32, 1),
        key("llama.attention.key_length", U32, HEAD),
        key("llama.attention.value_length", U32, HEAD),
        key("llama.rope.dimension_count", U32, HEAD),
        key("llama.attention.layer_norm_rms_epsilon", F32, 1e-6),
        key("llama.vocab_size", U32, len(vocabulary.texts)),
        key("tokenizer.ggml.model", STRING, "gpt2"),
        key("tokenizer.ggml.pre", STRING, "qwen2"),
        key("tokenizer.ggml.tokens", STRING, vocabulary.texts),
        key("tokenizer.ggml.token_type", I32, vocabulary.types),
        key("tokenizer.ggml.merges", STRING, vocabulary.merges),
        key("tokenizer.ggml.eos_token_id", U32, end),
        key("tokenizer.ggml.add_bos_token", BOOL, False),
        key("tokenizer.chat_template", STRING, template),
    ]


def tensors_of(embedding, head, n):
    """(name, columns, rows or None, type, data)"""

    def zeros(columns, rows):
        return columns, rows, TENSOR_F16, bytes(2 * columns * rows)

    ones = (WIDTH, None, TENSOR_F32, struct.pack("<f", 1) * WIDTH)
    return [
        ("token_embd.weight", WIDTH, n, TENSOR_F16, embedding),
        ("blk.0.attn_norm.weight", *ones),
        ("blk.0.attn_q.weight", *zeros(WIDTH, HEAD)),
        ("blk.0.attn_k.weight", *zeros(WIDTH, HEAD)),
        ("blk.0.attn_v.weight", *zeros(WIDTH, HEAD)),
        ("blk.0.attn_output.weight", *zeros(HEAD, WIDTH)),
        ("blk.0.ffn_norm.weight", *ones),
        ("blk.0.ffn_gate.weight", *zeros(WIDTH, FEED_FORWARD)),
        ("blk.0.ffn_up.weight", *zeros(WIDTH, FEED_FORWARD)),
        ("blk.0.ffn_down.weight", *zeros(FEED_FORWARD, WIDTH)),
        ("output_norm.weight", *ones),
        ("output.weight", WIDTH, n, TENSOR_F16, head),
    ]


def write_file(path, keys, tensors):
    infos, body = [], b""
    for name, columns, rows, kind, data in tensors:
        shape = [columns] if rows is None else [columns, rows]
        infos.append(
            packed(STRING, name)
            + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(body))
        )
        body += padded(data)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    with open(path, "wb") as out:
        out.write(padded(head + b"".join(keys + infos)) + body)


# ---- all of it ------------------------------------------------------------------------------------


def template_of(given, n_answers, plain):
    """The template with the turn's token in it; `plain`: there is one for requests without tools."""
    turn = "{{ '<|turn_' + ([ns.tools, %d] | min) | string + '|>' }}" % (n_answers - 1)
    if plain:
        turn = "{% if tools %}" + turn + "{% else %}{{ '<|turn_plain|>' }}{% endif %}"
    if given is None:
        return TEMPLATE.replace("{turn}", turn)
    return given + "{% if add_generation_prompt %}" + COUNT_TOOLS + turn + "{% endif %}"


def build(script, given, context):
    answers = [a if a is None else text_of(a) for a in script["answers"]]
    starts = [(f"<|turn_{k}|>", a) for k, a in enumerate(answers)]
    if "without_tools" in script:
        starts.append(("<|turn_plain|>", text_of(script["without_tools"])))
    if "infill" in script:
        starts += [("<|fim_prefix|>", None), ("<|fim_suffix|>", None), ("<|fim_middle|>", script["infill"])]
    template = template_of(given, len(answers), "without_tools" in script)
    vocabulary = Vocabulary()
    add_answers(vocabulary, starts, script.get("alone", []))
    end_text = script.get("end", "<|im_end|>")
    found = re.findall(r"<\|[^|<>{}'\" ]+\|>", template)
    control = dict.fromkeys([end_text, *script.get("control", []), *found])
    ids = {text: vocabulary.add(text, CONTROL) for text in control if text not in dict(starts)}
    embedding, head = matrices(vocabulary, ids[end_text])
    n = len(vocabulary.texts)
    return keys_of(vocabulary, ids[end_text], template, context), tensors_of(embedding, head, n)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("script")
    parser.add_argument("out")
    parser.add_argument("--template", help="a file with another chat template")
    parser.add_argument("--context", type=int, default=131072)
    options = parser.parse_args()
    with open(options.script, encoding="utf-8") as file:
        script = json.load(file)
    given = None
    if options.template:
        with open(options.template, encoding="utf-8") as file:
            given = file.read()
    write_file(options.out, *build(script, given, options.context))


if __name__ == "__main__":
    main()
