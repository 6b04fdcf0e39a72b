#!/usr/bin/env python3
"""Check the exported file with a float64 forward pass of its own, and write reference.json.

  reference.py --data OUT --gguf hearth-code-5m-f16.gguf --to reference.json

The pass reads nothing but the GGUF; the torch model, given the file's weights, must agree with it.
"""
import argparse
import hashlib
import json
import pathlib

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer

from corpus import BOS, MID, PRE, SUF
from model import CONFIG, Model

PLAIN = "def read_lines(path):\n    \"\"\"Return the lines of a file.\"\"\""
PREFIX = "import os\n\ndef size_of(path):\n    if not os.path."
SUFFIX = "\n        return 0\n    return os.path.getsize(path)\n"
N_TOKENS = 64


class Float64:
    """A llama forward pass in float64, one token at a time."""
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        def field(key):
            return reader.get_field("llama." + key).contents()
        self.layers, self.heads = field("block_count"), field("attention.head_count")
        self.kv_heads = field("attention.head_count_kv")
        self.eps = field("attention.layer_norm_rms_epsilon")
        self.rope_dim, self.base = field("rope.dimension_count"), field("rope.freq_base")
        self.w = {t.name: t.data.astype(np.float64).reshape([int(n) for n in t.shape[::-1]])
                  for t in reader.tensors}
        self.k = [[] for _ in range(self.layers)]
        self.v = [[] for _ in range(self.layers)]

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean() + self.eps) * self.w[name]

    def rotate(self, x, position):
        """x: [heads, head_dim]; the pair (2i, 2i + 1) turns by position * base^(-2i / dim)."""
        angle = position * self.base ** (-np.arange(0, self.rope_dim, 2) / self.rope_dim)
        a, b = x[:, 0::2], x[:, 1::2]
        out = np.empty_like(x)
        out[:, 0::2] = a * np.cos(angle) - b * np.sin(angle)
        out[:, 1::2] = a * np.sin(angle) + b * np.cos(angle)
        return out

    def step(self, token):
        """Append a token; return the logits [vocab] after it."""
        w = self.w
        x = w["token_embd.weight"][token]
        for i in range(self.layers):
            b = f"blk.{i}."
            h = self.norm(x, b + "attn_norm.weight")
            position = len(self.k[i])
            q = self.rotate((w[b + "attn_q.weight"] @ h).reshape(self.heads, -1), position)
            k = (w[b + "attn_k.weight"] @ h).reshape(self.kv_heads, -1)
            self.k[i].append(self.rotate(k, position))
            self.v[i].append((w[b + "attn_v.weight"] @ h).reshape(self.kv_heads, -1))
            k, v = np.array(self.k[i]), np.array(self.v[i])
            out = []
            for head in range(self.heads):
                kv = head * self.kv_heads // self.heads
                s = k[:, kv] @ q[head] / np.sqrt(q.shape[1])
                p = np.exp(s - s.max())
                out.append(p / p.sum() @ v[:, kv])
            x = x + w[b + "attn_output.weight"] @ np.concatenate(out)
            h = self.norm(x, b + "ffn_norm.weight")
            gate = w[b + "ffn_gate.weight"] @ h
            gate = gate / (1 + np.exp(-gate))
            x = x + w[b + "ffn_down.weight"] @ (gate * (w[b + "ffn_up.weight"] @ h))
        return w["token_embd.weight"] @ self.norm(x, "output_norm.weight")


def greedy(path, prompt):
    """The ids picked after prompt, each one's gap to the second best, and every step's logits."""
    model = Float64(path)
    logits = [model.step(token) for token in prompt]
    ids, gaps = [], []
    for _ in range(N_TOKENS):
        second, first = np.sort(logits[-1])[-2:]
        ids.append(int(logits[-1].argmax()))
        gaps.append(float(first - second))
        logits.append(model.step(ids[-1]))
    return ids, gaps, np.array(logits)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--to", required=True)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.data / "tokenizer.json"))
    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).ids
    prompts = {"plain": [BOS] + encode(PLAIN),
               "fim": [BOS, SUF] + encode(SUFFIX) + [PRE] + encode(PREFIX) + [MID]}

    torch_model = Model(**CONFIG)
    torch_model.load_state_dict({t.name: torch.tensor(np.array(t.data)).float()
                                 for t in gguf.GGUFReader(args.gguf).tensors})
    torch_model.double()
    torch_model.cos, torch_model.sin = torch_model.cos.float(), torch_model.sin.float()
    runs = []
    for name, prompt in prompts.items():
        ids, gaps, logits = greedy(args.gguf, prompt)
        with torch.no_grad():
            other = torch_model(torch.tensor([prompt + ids]))[0].numpy()
        difference = np.abs(other - logits).max()
        print(f"{name}: largest difference to torch {difference:.2e} of "
              f"{np.abs(logits).max():.1f}, smallest gap {min(gaps):.1e}")
        print(tokenizer.decode(ids, skip_special_tokens=False), "\n")
        assert difference < 1e-3
        runs.append({"name": name, "prompt": prompt, "ids": ids,
                     "gaps": [round(gap, 6) for gap in gaps]})
    digest = hashlib.sha256(pathlib.Path(args.gguf).read_bytes()).hexdigest()
    text = json.dumps({"sha256": digest, "runs": runs}, indent=1)
    pathlib.Path(args.to).write_text(text + "\n")


if __name__ == "__main__":
    main()
