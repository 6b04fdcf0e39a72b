#!/usr/bin/env python3
"""The numbers of README.md, from an exported GGUF and the held-out files.

  evaluate.py --data OUT --gguf hearth-code-5m-f16.gguf [--infilling SingleLineInfilling.jsonl.gz]
"""
import argparse
import ast
import gzip
import json
import math
import pathlib
import random
import warnings

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from corpus import BOS, EOS, MID, PRE, SUF
from model import CONFIG, Model

WINDOW = 512


class Evaluation:
    def __init__(self, args):
        self.tokenizer = Tokenizer.from_file(str(args.data / "tokenizer.json"))
        self.heldout = json.loads((args.data / "heldout.json").read_text())
        self.model = Model(**CONFIG)
        self.model.load_state_dict({t.name: torch.tensor(np.array(t.data)).float()
                                    for t in gguf.GGUFReader(args.gguf).tensors})

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def greedy(self, prompt, n, done):
        """Up to n greedy ids after prompt, until done(ids)."""
        ids, past, new = [], [[] for _ in self.model.blk], prompt
        while len(ids) < n and not done(ids):
            logits = self.model(torch.tensor([new]), past)[0, -1]
            ids.append(int(logits.argmax()))
            new = ids[-1:]
        return ids

    def bits_per_byte(self):
        """Every held-out file in windows of BOS + WINDOW ids; none sees the one before it."""
        nats, n_bytes, n_tokens = 0.0, 0, 0
        for _, _, text in self.heldout:
            ids = self.encode(text)
            n_bytes += len(text.encode())
            n_tokens += len(ids)
            for at in range(0, len(ids), WINDOW):
                window = torch.tensor([[BOS] + ids[at:at + WINDOW]])
                logits = self.model(window[:, :-1])
                nats += F.cross_entropy(logits[0], window[0, 1:], reduction="sum").item()
        return nats / math.log(2) / n_bytes, nats / n_tokens, n_bytes

    def heads(self):
        """Signature and docstring, up to its last quote, of the held-out functions at column 0."""
        for _, _, text in self.heldout:
            lines = text.splitlines(keepends=True)
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef) and node.col_offset == 0 \
                        and ast.get_docstring(node) and len(node.body) > 1:
                    yield "".join(lines[node.lineno - 1:node.body[0].end_lineno]).rstrip()

    def parsing(self, n):
        """Complete the body of n held-out functions; how many does ast.parse accept?

        The answer ends where a line starts at column 0, or, after 160 tokens, with its last
        whole line. An empty one does not count.
        """
        def done(ids):
            return EOS in ids or any(line[:1].strip() for line in self.decode(ids).splitlines())
        prompts = list(self.heads())
        random.Random(3).shuffle(prompts)
        accepted, shown = 0, []
        for prompt in prompts[:n]:
            ids = self.greedy([BOS] + self.encode(prompt), 160, done)
            text = self.decode([i for i in ids if i != EOS])
            body = []
            for line in text.splitlines(keepends=True):
                if line[:1].strip() or not (line.endswith("\n") or EOS in ids):
                    break
                body.append(line)
            body = "".join(body)
            shown.append(prompt + body)
            try:
                ast.parse(prompt + body)
                accepted += bool(body.strip())
            except (SyntaxError, ValueError):
                pass
        return accepted, len(shown), shown

    def line(self, prefix, suffix, order):
        """One line filled in greedily: the first line of the answer that is not blank.

        Without the suffix the prompt is plain text and ends before the white space: there, a line
        break and the indentation after it are one token.
        """
        if order == "none":
            prompt = [BOS] + self.encode(prefix.rstrip())[-256:]
        else:
            before, behind = [PRE] + self.encode(prefix)[-256:], [SUF] + self.encode(suffix)[:160]
            parts = before + behind if order == "prefix first" else behind + before
            prompt = [BOS] + parts + [MID]
        ids = self.greedy(prompt, 40, lambda ids: EOS in ids or "\n" in self.decode(ids).lstrip())
        return self.decode([i for i in ids if i != EOS]).lstrip().split("\n")[0].rstrip()

    def heldout_lines(self, n):
        """Lines of held-out files: (before, line, after), cut after the line's indentation."""
        rng, cases = random.Random(4), []
        while len(cases) < n:
            _, _, text = rng.choice(self.heldout)
            lines = text.splitlines(keepends=True)
            i = rng.randrange(len(lines))
            line = lines[i].strip()
            if len(line) < 8 or line[0] in "#\"'" or i == 0 or i == len(lines) - 1:
                continue
            indent = lines[i][:len(lines[i]) - len(lines[i].lstrip())]
            before, after = "".join(lines[max(0, i - 60):i]), "".join(lines[i + 1:i + 40])
            cases.append((before + indent, line, "\n" + after))
        return cases

    def exact_match(self, cases, orders=("suffix first", "prefix first", "none")):
        return {order: sum(self.line(prefix, suffix, order) == line.strip()
                           for prefix, line, suffix in cases) for order in orders}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--infilling")
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--functions", type=int, default=50)
    parser.add_argument("--show", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    evaluation = Evaluation(args)
    with torch.inference_mode():
        bpb, loss, n_bytes = evaluation.bits_per_byte()
        print(f"held-out bits per byte {bpb:.3f} ({loss:.3f} nats per token, {n_bytes} bytes, "
              f"{len(evaluation.heldout)} files)", flush=True)
        accepted, n, shown = evaluation.parsing(args.functions)
        print(f"ast.parse accepts {accepted} of {n} completions", flush=True)
        for code in shown[:args.show]:
            print("-" * 40 + "\n" + code)
        print(f"exact line, {args.lines} held-out lines:",
              evaluation.exact_match(evaluation.heldout_lines(args.lines)), flush=True)
        if args.infilling:
            with gzip.open(args.infilling, "rt") as file:
                tasks = [json.loads(line) for line in file][::4]
            cases = [(t["prompt"], t["canonical_solution"], t["suffix"]) for t in tasks]
            print(f"exact line, {len(cases)} of HumanEval's single lines:",
                  evaluation.exact_match(cases))


if __name__ == "__main__":
    main()
