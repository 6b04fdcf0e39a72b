/* quant_types.h: the tensor types a GGUF file can name, and the sizes of their blocks.
 *
 * A row of a tensor is cut into blocks of `block` elements, `block_bytes` bytes each; a row's
 * length is a multiple of `block`. Only sizes are here: quant_block.h decodes the bytes. Called
 * from any thread; owns nothing; accepts any number from a file (find returns NULL). */
#ifndef HEARTH_KERNELS_QUANT_QUANT_TYPES_H
#define HEARTH_KERNELS_QUANT_QUANT_TYPES_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers as in the file. Types that hearth computes with have a name here. */
enum quant_type {
    QUANT_F32 = 0,
    QUANT_F16 = 1,
    QUANT_Q4_0 =
        2, /* f16 d, 16 bytes: element i in the low, i + 16 in the high nibble of byte i, minus 8 */
    QUANT_Q4_1 = 3,
    QUANT_Q5_0 = 6,
    QUANT_Q5_1 = 7,
    QUANT_Q8_0 = 8, /* f16 d, 32 int8 */
    QUANT_Q2_K = 10,
    QUANT_Q3_K = 11,
    QUANT_Q4_K = 12,
    QUANT_Q5_K = 13,
    QUANT_Q6_K = 14,
    QUANT_IQ3_XXS = 18,
    QUANT_IQ4_NL = 20,
    QUANT_IQ3_S = 21,
    QUANT_IQ4_XS = 23,
    QUANT_BF16 = 30,
    QUANT_MXFP4 = 39,
    QUANT_TYPES /* above all of these */
};

struct quant_info {
    uint32_t type;
    const char *name;     /* as users write it: "Q4_K" */
    uint32_t block;       /* elements in a block, 1 for plain numbers */
    uint32_t block_bytes; /* bytes of a block */
    bool quantized;       /* block > 1: small integers with a scale */
};

/* Returns the entry of `type`, or NULL for a number that the format does not define. */
const struct quant_info *quant_find(uint32_t type);

/* Returns the type's name, or "unknown". Never NULL. */
const char *quant_name(uint32_t type);

#endif
