#!/usr/bin/env python3
"""Writes tests/rig/quant_vectors.h: random blocks of every quantized type and the floats that the
Python package `gguf` (PyPI, numpy) reads from them. Run it from the root, only when a type is added:

    tests/tools/quant_vectors.py > tests/rig/quant_vectors.h
"""
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

# Where a block keeps its f16 numbers: they are made finite.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
          "Q4_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "IQ3_XXS": [0], "IQ3_S": [0], "IQ4_NL": [0], "IQ4_XS": [0],
          "MXFP4": []}
HEAD = """/* Bytes of random blocks and the values that the Python package `gguf` (version %s) reads from
 * them, as bits of f32. Made by tests/tools/quant_vectors.py. */
#ifndef HEARTH_TESTS_RIG_QUANT_VECTORS_H
#define HEARTH_TESTS_RIG_QUANT_VECTORS_H

#include <stdint.h>

#include "kernels/quant/quant_types.h"

/* clang-format off */"""


def lines(numbers, digits, per_line):
    text = [f"0x{n:0{digits}x}" for n in numbers]
    return ",\n    ".join(", ".join(text[i : i + per_line]) for i in range(0, len(text), per_line))


def main():
    from importlib.metadata import version

    print(HEAD % version("gguf"))
    random = np.random.default_rng(7)
    for name, halves in HALVES.items():
        kind = GGMLQuantizationType[name]
        block, size = GGML_QUANT_SIZES[kind]
        count = 64 // block or 1
        data = random.integers(0, 256, (count, size), dtype=np.uint8)
        for at in halves:
            half = random.normal(0, 1, count).astype(np.float16)
            data[:, at : at + 2] = half.view(np.uint8).reshape(count, 2)
        if name == "MXFP4":  # denormal weights, and ordinary ones
            data[:, 0] = [1, 120]
        values = quants.dequantize(data.reshape(1, -1), kind).astype(np.float32).ravel()
        print(f"\nstatic const uint8_t {name}_bytes[] = {{\n    {lines(data.ravel(), 2, 16)}}};")
        print(f"static const uint32_t {name}_values[] = {{\n    {lines(values.view(np.uint32), 8, 8)}}};")
    print("\nstatic const struct quant_vector {\n    uint32_t type, n;\n    const uint8_t *bytes;")
    print("    const uint32_t *values; /* [n] */\n} quant_vectors[] = {")
    for name in HALVES:
        print(f"    {{QUANT_{name}, sizeof {name}_values / 4, {name}_bytes, {name}_values}},")
    print("};\n/* clang-format on */\n\n#endif")
    return 0


if __name__ == "__main__":
    sys.exit(main())
