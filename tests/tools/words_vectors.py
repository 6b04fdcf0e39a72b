#!/usr/bin/env python3
"""Writes tests/rig/words_vectors.h to stdout: random texts as each pre-tokenizer cuts them.

The cuts are those of the package `tokenizers` (pip install tokenizers) with the expressions that the
families publish or llama.cpp lists, a Split for each stage. The texts come from a seeded generator:
many scripts, marks, digits, signs, contractions, blanks, newlines, emoji.

    words_vectors.py [TEXTS [SEED]]   texts for each pre-tokenizer (4 are committed), seed

To compare more, write a larger header, build and run test_words, and restore it.
"""
import random
import sys
import unicodedata

from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split

CUT = "\x1f"  # in no text; ends a word

SPACES = r"|\s+(?!\S)|\s+"
LINES = r"|\s*[\r\n]+" + SPACES
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+" + SPACES
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SIGNS = r"| ?[^\s\p{L}\p{N}]+"
LLAMA3 = SHORT + "|" + WORD + r"|\p{N}{1,3}" + SIGNS + r"[\r\n]*" + LINES
QWEN2 = SHORT + "|" + WORD + r"|\p{N}" + SIGNS + r"[\r\n]*" + LINES
DEEPSEEK_WORD = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
                 r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+")
DEEPSEEK = DEEPSEEK_WORD + r"[\r\n]*" + LINES
KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DIGIT = r"\p{N}"


def cased(tail, digits, slash="/", han=""):
    upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}%s]" % han
    lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}%s]" % han
    first = r"[^\r\n\p{L}\p{N}]?"
    return (first + upper + "*" + lower + "+" + tail + "|" + first + upper + "+" + lower + "*" + tail
            + "|" + digits + SIGNS + r"[\r\n" + slash + "]*" + LINES)


def letters_with_case():
    """The class that DeepSeek LLM's stage spells out, read from the matcher's table."""
    source = open("client/tokenizer/words_match.c", encoding="ascii").read()
    table = source.split("struct range cased[] = {")[1].split("};")[0]
    numbers = [int(n, 16) for n in table.replace("{", " ").replace("}", " ").replace(",", " ").split()]
    return "".join("%s-%s" % (chr(a), chr(b)) for a, b in zip(numbers[::2], numbers[1::2]))


def expressions():
    bloom = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
    return {
        "GPT2": [GPT2],
        "LLAMA3": [LLAMA3],
        "QWEN2": [QWEN2],
        "QWEN35": [SHORT + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
                   r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + LINES],
        "STARCODER": [DIGIT, GPT2],
        "DEEPSEEK_LLM": [r"[\r\n]", r"\s?[%s]+" % letters_with_case(),
                         "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", CJK, r"\p{N}+"],
        "DEEPSEEK_CODER": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, DIGIT],
        "DEEPSEEK_V3": [r"\p{N}{1,3}", KANA, DEEPSEEK],
        "FALCON": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
        "TEKKEN": [cased("", DIGIT)],
        "GPT4O": [cased(SHORT + "?", r"\p{N}{1,3}")],
        "DEFAULT": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        "SEED_CODER": [SHORT + "|" + WORD + r"|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+" + LINES],
        "MELLUM2": [DIGIT, GPT2],
        "LAGUNA": [r"[^\n]+|[\n]+", QWEN2],
        "MINICPM5": [r"\p{N}{1,3}", SHORT + "|" + WORD + r"|\p{N}+" + SIGNS + r"[\r\n]*" + LINES],
        "UFAKZEKA": [WORD + r"|\p{N}" + SIGNS + r"[\r\n]*" + LINES],
        "JAIS2": [SHORT + "|" + WORD + r"|\p{N}{1,3}" + SIGNS + r"[\r\n]*|\s*[\r\n]+|"
                  + "|".join(r"\s{%d}(?!\S)" % n for n in (512, 256, 128, 64, 32, 16, 8, 4))
                  + r"|\s{1,2}(?!\S)|\s{1}"],
        "EXAONE_MOE": [SHORT + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}" + SIGNS
                       + r"[\r\n/]?|\s*[\r\n]" + SPACES],
        "BLOOM": [bloom],
        "VIKING": [bloom, DIGIT],
        "YOUTU": ["[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
                  "\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|" + KANA, cased(SHORT + "?", DIGIT)],
        "SPARK": [r"\p{N}{1,3}", KANA, DEEPSEEK_WORD + r"|[\r\n]" + SPACES, DIGIT],
        "AFMOE": [r"\p{N}+", r"\p{N}{1,3}(?=(?:\p{N}{3})*\z)",
                  "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
                  "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\u1100-\u11ff]+", DEEPSEEK],
        "KIMI_K2": [r"\p{Han}+|" + cased(SHORT + "?", r"\p{N}{1,3}", "", r"&&[^\p{Han}]")],
    }


BITS = ["'s", "'T", "'re", "'VE", "'ll", "'\u017f", "I'm", "don't", "WE'LL", " ", "  ", "     ", "\n", "\r\n",
        "\n\n", "\t", " \n ", "\u00a0", "\u3000", "\u2028", "//", "/", "::", "();", "{}", "<=", "`", "$", "_", "|",
        "12", "345", "67890", "\u00bd", "\u0661\u0662\u0663\u0664", "\u2167", "e\u0301", "\u0301", "\u0938\u094d\u0924",
        "def f", "HTTPServer", "camelCase", "ABC", "\u01c5a", "\u02b0", "\u4f60\u597d", "\u3007", "\u3005", "\u2f00",
        "\u3072\u3089", "\u30ab", "\ud55c\uae00", "\u3105\u3106", "\uff01", "\uff0c", "\u2026", "\u3002", "\u201c",
        "\U0001f600", "\U0001f468\u200d\U0001f469", "\U00020000", "\ufe0f", "\u200b"]
RANGES = [(0x20, 0x7e), (0xa1, 0x17f), (0x370, 0x52f), (0x531, 0x5f4), (0x600, 0x6ff), (0x900, 0xdff), (0xe01, 0xeff),
          (0x1000, 0x11ff), (0x13a0, 0x13f5), (0x1780, 0x17ff), (0x1e00, 0x1fff), (0x2010, 0x23ff), (0x2e80, 0x33ff),
          (0x3400, 0x3420), (0x9f80, 0xabff), (0xac00, 0xac40), (0xf900, 0xffee), (0x10000, 0x10fff), (0x1d400, 0x1d7ff),
          (0x1f100, 0x1f6ff)]


def character(rng):
    while True:
        first, last = rng.choice(RANGES)
        c = chr(rng.randint(first, last))
        if unicodedata.category(c) not in ("Cn", "Co", "Cs"):
            return c


def text(rng):
    shape = rng.random()
    if shape < 0.1:  # long runs
        run = rng.choice([" ", "7", "\n", "\t"]) * int(2 ** rng.uniform(0, 10))
        return rng.choice(["a", "x "]) + run + rng.choice(["", "b", "\n"])
    return "".join(rng.choice(BITS) if rng.random() < shape else character(rng) for _ in range(rng.randint(4, 14)))


def literal(s):
    out = ""
    for byte in s.encode():
        c = chr(byte)
        out += "\\" + c if c in "\"\\" else c if 0x20 <= byte < 0x7f and c != "?" else "\\%03o" % byte
    return '"%s"' % out


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    print("/* Made by tests/tools/words_vectors.py; do not edit. Texts as the package tokenizers cuts them: a")
    print(" * word ends at each \\037. */")
    print("#ifndef HEARTH_TESTS_WORDS_VECTORS_H\n#define HEARTH_TESTS_WORDS_VECTORS_H\n")
    print('#include "ipc/vocab.h"\n\n/* clang-format off */')
    print("static const struct {\n    enum vocab_pre pre;\n    const char *want;\n} words_vectors[] = {")
    for name, stages in expressions().items():
        cutter = Sequence([Split(Regex(stage), "isolated") for stage in stages])
        for _ in range(count):
            words = [word for word, _ in cutter.pre_tokenize_str(text(rng))]
            print("    {VOCAB_PRE_%s, %s}," % (name, literal(CUT.join(words))))
    print("};\n/* clang-format on */\n\n#endif")


if __name__ == "__main__":
    sys.exit(main())
