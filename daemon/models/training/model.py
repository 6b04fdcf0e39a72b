"""The bundled model: llama architecture, tied embeddings.

Rotary pairs are neighbours, (2i, 2i + 1), as GGUF's llama has them.
"""
import torch
import torch.nn.functional as F
from torch import nn

CONFIG = dict(vocab=4096, dim=256, ffn=768, layers=6, heads=8, kv_heads=4, eps=1e-5,
              rope_base=10000.0)


def rope_tables(length, head_dim, base):
    """cos and sin, [length, head_dim / 2]."""
    freq = base ** (-torch.arange(0, head_dim, 2).double() / head_dim)
    angle = torch.arange(length).double()[:, None] * freq
    return angle.cos().float(), angle.sin().float()


def rotate(x, cos, sin):
    """x: [batch, length, heads, head_dim]; pairs are neighbours."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


def attention(q, k, v, block=128):
    """Causal attention, [batch, heads, length, head_dim]; k may have a past before q.

    In blocks of queries, which skip most of what the mask hides: faster than torch's own here.
    """
    length, past = q.shape[2], k.shape[2] - q.shape[2]
    q = q * q.shape[-1] ** -0.5
    out = []
    for begin in range(0, length, block):
        end = min(length, begin + block)
        scores = q[:, :, begin:end] @ k[:, :, :past + end].transpose(-1, -2)
        key = torch.arange(past + end)
        scores = scores.masked_fill(key > key[past + begin:, None], -1e4)
        out.append(scores.float().softmax(-1).to(v.dtype) @ v[:, :, :past + end])
    return torch.cat(out, 2)


class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Block(nn.Module):
    def __init__(self, dim, ffn, heads, kv_heads, eps):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.attn_norm, self.ffn_norm = Norm(dim, eps), Norm(dim, eps)
        self.attn_q = nn.Linear(dim, dim, bias=False)
        self.attn_k = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.attn_v = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.attn_output = nn.Linear(dim, dim, bias=False)
        self.ffn_gate = nn.Linear(dim, ffn, bias=False)
        self.ffn_up = nn.Linear(dim, ffn, bias=False)
        self.ffn_down = nn.Linear(ffn, dim, bias=False)
        for linear in (self.attn_output, self.ffn_down):
            nn.init.zeros_(linear.weight)

    def forward(self, x, cos, sin, past=None):
        """past: this block's list of the keys and values so far, grown here."""
        h = self.attn_norm(x)
        q = rotate(self.attn_q(h).unflatten(-1, (self.heads, -1)), cos, sin)
        k = rotate(self.attn_k(h).unflatten(-1, (self.kv_heads, -1)), cos, sin)
        v = self.attn_v(h).unflatten(-1, (self.kv_heads, -1))
        if past is not None:
            k, v = (torch.cat((old, new), 1) for old, new in zip(past, (k, v))) if past else (k, v)
            past[:] = k, v
        group = self.heads // self.kv_heads
        k, v = (t.repeat_interleave(group, 2).transpose(1, 2) for t in (k, v))
        a = attention(q.transpose(1, 2), k, v)
        x = x + self.attn_output(a.transpose(1, 2).flatten(-2))
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Model(nn.Module):
    def __init__(self, vocab, dim, ffn, layers, heads, kv_heads, eps, rope_base):
        super().__init__()
        self.token_embd = nn.Embedding(vocab, dim)
        nn.init.normal_(self.token_embd.weight, std=0.02)
        self.blk = nn.ModuleList(Block(dim, ffn, heads, kv_heads, eps) for _ in range(layers))
        self.output_norm = Norm(dim, eps)
        cos, sin = rope_tables(2048, dim // heads, rope_base)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids, past=None):
        """Logits after every id. past: None, or a list for each block, empty at first."""
        x = self.token_embd(ids)
        begin = past[0][0].shape[1] if past and past[0] else 0
        cos, sin = (table[begin:begin + ids.shape[1]] for table in (self.cos, self.sin))
        for i, block in enumerate(self.blk):
            x = block(x, cos, sin, past[i] if past else None)
        return F.linear(self.output_norm(x), self.token_embd.weight)
