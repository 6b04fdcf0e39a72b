#!/usr/bin/env python3
"""Train the model on corpus.py's rows: Muon for the matrices, AdamW for the rest.

  train.py --data OUT --stop 14:50 [--resume]

Warm up, hold, and decay linearly towards the wall-clock time --stop (UTC). The process may be
stopped (SIGSTOP) and continued at any time: the decay takes at least MIN_DECAY steps whatever the
clock says. SIGTERM ends it with a checkpoint. OMP_WAIT_POLICY=passive keeps it quick on a machine
that has other work.
"""
import argparse
import datetime
import os
import pathlib
import signal
import time

import numpy as np
import torch
import torch.nn.functional as F

from corpus import EOS, MID, PAD
from model import CONFIG, Model

BATCH_TOKENS = 4096
WARMUP = 40
MIN_DECAY = 60
LR_MUON, LR_ADAM, WEIGHT_DECAY = 0.016, 0.0025, 0.02
EMA = 0.98
MIDDLE_WEIGHT = 2.0


def orthogonalized(g):
    """Newton-Schulz iteration towards the nearest orthogonal matrix (Muon)."""
    x = g.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.T if tall else x).float()


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.lerp_(p.grad, 0.05)
                update = orthogonalized(p.grad.lerp(m, 0.95))
                p.mul_(1 - group["lr"] * WEIGHT_DECAY)
                p.add_(update, alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)


class Rows:
    """The rows in file order, from a step on."""
    def __init__(self, path):
        self.rows = np.load(path)
        self.next = 0

    def batch(self):
        n = BATCH_TOKENS // (self.rows.shape[1] - 1)
        at = [(self.next + i) % len(self.rows) for i in range(n)]
        self.next += n
        return torch.from_numpy(self.rows[at].astype(np.int64))


def weights_of(ids):
    """The weight of each next token: middles, the smaller part of a sample, count more."""
    control = torch.where(ids <= MID, torch.arange(ids.shape[1]), 0).cummax(1).values
    return torch.where(ids.gather(1, control) == MID, MIDDLE_WEIGHT, 1.0)


def stop_time(text):
    hour, minute = map(int, text.split(":"))
    now = datetime.datetime.now(datetime.timezone.utc)
    return now.replace(hour=hour, minute=minute, second=0).timestamp()


def save(path, state):
    torch.save(state, str(path) + ".tmp")
    os.replace(str(path) + ".tmp", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--stop", required=True, help="HH:MM, UTC")
    parser.add_argument("--decay-minutes", type=float, default=30)
    parser.add_argument("--long-minutes", type=float, default=12, help="rows of 1024 from here on")
    parser.add_argument("--pid-file")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    if args.pid_file:
        pathlib.Path(args.pid_file).write_text(str(os.getpid()))
    stop = stop_time(args.stop)
    torch.manual_seed(1)
    torch.set_num_threads(2)
    model = Model(**CONFIG)
    print(sum(p.numel() for p in model.parameters()), "parameters", flush=True)
    matrices = [p for p in model.blk.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is m for m in matrices)]
    muon = Muon(matrices, LR_MUON)
    adam = torch.optim.AdamW(others, LR_ADAM, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    ema = {k: v.clone() for k, v in model.state_dict().items()}
    short, long = Rows(args.data / "train_512.npy"), Rows(args.data / "train_1024.npy")
    step, tokens, factor, begun = 0, 0, 1.0, 0
    path = args.data / "checkpoint.pt"
    if args.resume:
        c = torch.load(path)
        model.load_state_dict(c["model"])
        muon.load_state_dict(c["muon"])
        adam.load_state_dict(c["adam"])
        ema, step, tokens = c["ema"], c["step"], c["tokens"]
        # A run that was over goes on with a new schedule, and may be given new rows.
        factor, begun = (c["factor"], 0) if c["factor"] > 0 else (1.0, step)
        if not begun:
            short.next, long.next = c["short"], c["long"]
    forward = torch.compile(model)

    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    saved = logged = time.time()
    losses = []
    while factor > 0 and not ended:
        left = stop - time.time()
        wanted = min(1.0, left / (60 * args.decay_minutes))
        factor = max(0.0, wanted, factor - 1 / MIN_DECAY)
        warm = min(1.0, (step - begun + 1) / WARMUP)
        for group in muon.param_groups:
            group["lr"] = LR_MUON * factor * warm
        for group in adam.param_groups:
            group["lr"] = LR_ADAM * factor * warm
        rows = (long if left < 60 * args.long_minutes else short).batch()
        for part in rows.split(4096 // (rows.shape[1] - 1)):
            with torch.autocast("cpu", torch.bfloat16):
                logits = forward(part[:, :-1])
            targets = part[:, 1:]
            given = (targets <= MID) & (targets != EOS)  # never to be generated: never a target
            weights = weights_of(part[:, :-1]).masked_fill(given, 0)
            nats = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(),
                                   reduction="none").view_as(weights)
            loss = (nats * weights).sum() / weights.sum()
            (loss * len(part) / len(rows)).backward()
            losses.append(loss.item())
        muon.step()
        adam.step()
        model.zero_grad()
        with torch.no_grad():
            for k, v in model.state_dict().items():
                ema[k].lerp_(v, 1 - min(EMA, step / (step + 10)))
        step, tokens = step + 1, tokens + rows[:, 1:].numel()
        if step % 10 == 0:
            now = time.time()
            print(f"step {step} tokens {tokens} loss {sum(losses) / len(losses):.4f} "
                  f"lr {factor:.3f} {10 * BATCH_TOKENS / (now - logged):.0f} tokens/s", flush=True)
            logged, losses = now, []
        if time.time() - saved > 240 or factor <= 0 or ended:
            save(path, dict(model=model.state_dict(), ema=ema, muon=muon.state_dict(),
                            adam=adam.state_dict(), step=step, tokens=tokens, factor=factor,
                            short=short.next, long=long.next))
            saved = time.time()


if __name__ == "__main__":
    main()
