/* every_type.h: the types that matrices can have, for tests that go through all of them, and where
 * their blocks keep f16 numbers: random bytes there would make weights that are not finite. */
#ifndef HEARTH_TESTS_RIG_EVERY_TYPE_H
#define HEARTH_TESTS_RIG_EVERY_TYPE_H

#include "kernels/quant/quant_types.h"

#include <stdint.h>

#define FLOAT_TYPES QUANT_F32, QUANT_F16, QUANT_BF16
/* Types that quantize_row writes, and those that are only read. */
#define WRITTEN_TYPES                                                                              \
    QUANT_Q8_0, QUANT_Q4_0, QUANT_Q5_0, QUANT_Q5_1, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K,            \
        QUANT_Q4_1, QUANT_Q2_K, QUANT_Q3_K, QUANT_IQ4_NL, QUANT_IQ4_XS, QUANT_MXFP4
#define READ_TYPES QUANT_IQ3_XXS, QUANT_IQ3_S

static const uint32_t every_written[] = {WRITTEN_TYPES};
static const uint32_t every_quantized[] = {WRITTEN_TYPES, READ_TYPES};
static const uint32_t every_type[] = {FLOAT_TYPES, WRITTEN_TYPES, READ_TYPES};

enum {
    EVERY_WRITTEN = sizeof(every_written) / sizeof(every_written[0]),
    EVERY_QUANTIZED = sizeof(every_quantized) / sizeof(every_quantized[0]),
    EVERY_TYPE = sizeof(every_type) / sizeof(every_type[0]),
};

/* Offsets of the f16 numbers of a block of a quantized type; returns how many: 0 for MXFP4, whose
 * first byte is an exponent. */
static inline uint32_t every_halves(uint32_t type, uint32_t ret[2])
{
    ret[0] = type == QUANT_Q6_K ? 208 : type == QUANT_Q3_K ? 108 : type == QUANT_Q2_K ? 80 : 0;
    ret[1] = ret[0] + 2;
    switch (type) {
    case QUANT_MXFP4:
        return 0;
    case QUANT_Q4_1:
    case QUANT_Q5_1:
    case QUANT_Q2_K:
    case QUANT_Q4_K:
    case QUANT_Q5_K:
        return 2;
    default:
        return 1;
    }
}

#endif
