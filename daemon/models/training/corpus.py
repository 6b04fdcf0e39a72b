#!/usr/bin/env python3
"""Build the training data: texts -> tokenizer.json, train_*.npy rows, heldout.json.

  corpus.py --stdlib LIB/python3.13 --wheels WHEELS --out OUT

WHEELS holds the wheels of packages.txt (`pip download --no-deps -r packages.txt`).
A row is length + 1 ids: samples laid end to end, the rest PAD. Samples:
  plain           BOS text [EOS at the file's end]
  prefix first    BOS PRE prefix SUF suffix MID middle EOS
  suffix first    BOS SUF suffix PRE prefix MID middle EOS
The parts of one sample are encoded each on its own, as an editor has to.
"""
import argparse
import ast
import hashlib
import json
import pathlib
import random
import re
import warnings
import zipfile

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIALS = ["<|pad|>", "<|begin|>", "<|end|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
PAD, BOS, EOS, PRE, SUF, MID = range(6)
N_VOCAB = 4096
HELDOUT = 5  # of 256 files
# Tests, tables, generated text, and third-party code under other licences.
SKIP = re.compile(r"(^|/)(tests?|testing|idle_test|_vendor|_vendored|vendored?|vendor|_distutils|"
                  r"thirdparty|typeshed|third_party|encodings|pydoc_data|turtledemo|lib2to3|"
                  r"site-packages|locale|lexers|styles|ext_data|certifi)/|(^|/)(test_|_test)|_pb2|"
                  r"mysql/reserved|unistring")


def texts_of(stdlib, wheels):
    """Yield (source, path, bytes) of every Python file, in a fixed order."""
    root = pathlib.Path(stdlib)
    for path in sorted(root.rglob("*.py")):
        yield "stdlib", str(path.relative_to(root)), path.read_bytes()
    for wheel in sorted(pathlib.Path(wheels).glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".py"):
                    yield wheel.name.split("-")[0].lower(), name, archive.read(name)


def good(text):
    """Is this a source file a person wrote, and not a table?"""
    lines = text.splitlines()
    if not 200 < len(text) < 150_000 or len(text) / len(lines) > 60 or max(map(len, lines)) > 400:
        return False
    if sum(c.isdigit() for c in text) > 0.12 * len(text):
        return False
    if sum(c > "\x7f" for c in text) > 0.05 * len(text):
        return False
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def collect(stdlib, wheels, names):
    """Return (train, held out), lists of (source, path, text) without near copies."""
    heldout, train, hashes, lines_seen = [], [], set(), set()
    for source, path, data in texts_of(stdlib, wheels):
        if SKIP.search("/" + path) or (source != "stdlib" and source not in names):
            continue
        digest = hashlib.sha256(data).digest()
        try:
            text = data.decode("utf-8").replace("\r\n", "\n").replace("\t", "    ")
        except UnicodeDecodeError:
            continue
        if digest in hashes or not good(text):
            continue
        hashes.add(digest)
        (heldout if digest[0] < HELDOUT else train).append((source, path, text))
    kept = ([], [])
    # Held out first: no copy of it is trained on.
    for docs, out in ((heldout, kept[0]), (train, kept[1])):
        for doc in docs:
            lines = {hash(line) for line in doc[2].splitlines() if len(line.strip()) >= 20}
            if not lines or len(lines & lines_seen) <= 0.5 * len(lines):
                lines_seen |= lines
                out.append(doc)
    return kept[1], kept[0]


def train_tokenizer(docs):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator((text for _, _, text in docs), trainers.BpeTrainer(
        vocab_size=N_VOCAB, special_tokens=SPECIALS, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    assert tokenizer.get_vocab_size() == N_VOCAB
    return tokenizer


def cut(text, rng):
    """Two cuts of a text for a fill-in sample: mostly whole line ends, else a free span."""
    starts = [m.start() for m in re.finditer(r"^.*\S", text, re.M)]
    if starts and rng.random() < 0.6:
        begin = rng.choice(starts)
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        line = text[begin:end]
        indent = len(line) - len(line.lstrip())
        begin += indent if rng.random() < 0.5 else rng.randrange(len(line))
        for _ in range(rng.choice((0, 0, 0, 1, 2, 4))):
            after = text.find("\n", end + 1)
            if after < 0:
                break
            end = after
        return begin, end
    begin = rng.randrange(len(text))
    return begin, min(len(text), begin + rng.randrange(1, 400))


def shortened(text, n):
    """The first n characters, cut after a line's end where there is one."""
    if len(text) <= n:
        return text
    newline = text.rfind("\n", 1, n)
    return text[:newline + 1 if newline > 0 else n]


def sample(tokenizer, text, at_end, room, rng):
    """One sample of at most room ids, and how many characters of text it used up."""
    def encode(part):
        return tokenizer.encode(part, add_special_tokens=False).ids
    kind = rng.random()
    if kind < 0.5 or len(text) < 40:
        return ([BOS] + encode(text) + ([EOS] if at_end else []))[:room], len(text)
    # A middle is a few dozen tokens however long its sample: short samples hold more of them.
    room = min(room, rng.randrange(96, 320))
    text = shortened(text, 3 * room)
    begin, end = cut(text, rng)
    prefix, middle, suffix = encode(text[:begin]), encode(text[begin:end]), encode(text[end:])
    over = 5 + len(prefix) + len(middle) + len(suffix) - room
    if over > 0:  # take from the far ends, as an editor does
        n = min(over, len(suffix))
        suffix, over = suffix[:len(suffix) - n], over - n
        prefix = prefix[over:]
    if kind < 0.75:
        ids = [BOS, PRE] + prefix + [SUF] + suffix + [MID] + middle + [EOS]
    else:
        ids = [BOS, SUF] + suffix + [PRE] + prefix + [MID] + middle + [EOS]
    return ids[:room], len(text)


def rows_of(tokenizer, docs, length, seed, max_rows):
    """Pack the documents, in an order drawn from seed, into shuffled rows of length + 1 ids."""
    rng = random.Random(seed)
    docs = list(docs)
    rng.shuffle(docs)
    rows, row = [], []
    for _, _, text in docs:
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        at, token = 0, 0
        while at < len(text) and len(rows) < max_rows:
            room = length + 1 - len(row)
            if room < 64:
                rows.append(row + [PAD] * room)
                row = []
                continue
            last = min(token + room - 6, len(offsets))
            end = offsets[last - 1][1] if last < len(offsets) else len(text)
            if end < len(text):  # cut after a line's end where there is one
                newline = text.rfind("\n", at + 1, end)
                end = newline + 1 if newline > at else end
            ids, used = sample(tokenizer, text[at:end], end == len(text), room, rng)
            row += ids
            at += used
            while token < len(offsets) and offsets[token][0] < at:
                token += 1
    rng.shuffle(rows)
    return np.array(rows, dtype=np.uint16)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stdlib", required=True)
    parser.add_argument("--wheels", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    here = pathlib.Path(__file__).parent
    names = {re.sub(r"[-.]", "_", line.split("==")[0]).lower()
             for line in (here / "packages.txt").read_text().splitlines()}
    train, heldout = collect(args.stdlib, args.wheels, names)
    sizes = {}
    for source, _, text in train:
        sizes[source] = sizes.get(source, 0) + len(text)
    print(f"train {len(train)} files, {sum(sizes.values())} characters; "
          f"held out {len(heldout)} files")
    print(sorted(sizes.items(), key=lambda item: -item[1]))
    out = pathlib.Path(args.out)
    (out / "heldout.json").write_text(json.dumps(heldout))
    tokenizer = train_tokenizer(train)
    tokenizer.save(str(out / "tokenizer.json"))
    stdlib = [doc for doc in train if doc[0] == "stdlib"]
    weighted = train + stdlib + stdlib  # the standard library counts three times
    for length, seed, n in ((512, 3, 60_000), (1024, 4, 8_000)):
        rows = rows_of(tokenizer, weighted, length, seed, n)
        print(f"rows of {length}: {rows.shape[0]}, {(rows != PAD).mean():.3f} filled")
        np.save(out / f"train_{length}.npy", rows)


if __name__ == "__main__":
    main()
