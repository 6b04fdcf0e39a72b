#!/usr/bin/env python3
"""Writes client/base/unicode_tables.h to stdout: the character classes that pre-tokenizers need.

Uses the module unicodedata2 where it is installed (pip install unicodedata2==15.1.0: the version that
the committed table was made with), else Python's own unicodedata.
"""
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

CLASSES = {"Lu": 1, "Ll": 2, "Lt": 3, "Lm": 4, "Lo": 5, "N": 6, "M": 7, "P": 8, "S": 9, "Z": 10}
CASED = 11  # letters in turn upper and lower case, from an upper one on
PER_LINE = 8


def char_class(code):
    if code in (0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85):
        return CLASSES["Z"]
    category = unicodedata.category(chr(code))
    return CLASSES.get(category, CLASSES.get(category[0], 0))


def find_runs(classes):
    """The [first code point, class] of each run."""
    starts = []
    code = 0
    while code < len(classes):
        first = code
        while classes[code:code + 2] == [1, 2]:
            code += 2
        cased = code - first >= 4
        if not cased:
            code = first
            while code < len(classes) and classes[code] == classes[first]:
                code += 1
        starts.append((first, CASED if cased else classes[first]))
    return starts


def main():
    starts = [first << 4 | kind for first, kind in find_runs([char_class(c) for c in range(0x110000)])]
    print("/* Made by tests/tools/unicode_tables.py; do not edit.")
    print(" * Unicode %s. Each entry: the first code point of a run << 4 | its class (unicode.h), or %d\n"
          " * for letters that are in turn LU and LL. */" % (unicodedata.unidata_version, CASED))
    print("#ifndef HEARTH_CLIENT_BASE_UNICODE_TABLES_H")
    print("#define HEARTH_CLIENT_BASE_UNICODE_TABLES_H\n")
    print("#include <stdint.h>\n")
    print("static const uint32_t unicode_runs[%d] = {" % len(starts))
    for i in range(0, len(starts), PER_LINE):
        print("    " + " ".join("0x%07x," % s for s in starts[i:i + PER_LINE]))
    print("};\n\n#endif")


if __name__ == "__main__":
    sys.exit(main())
