/* quant_grids.h: the tables of the types whose integers are looked up: what a nibble stands for, and
 * the points of IQ3_XXS and IQ3_S. Constants, any thread. */
#ifndef HEARTH_KERNELS_QUANT_QUANT_GRIDS_H
#define HEARTH_KERNELS_QUANT_QUANT_GRIDS_H
#include "kernels/quant/quant_types.h"

#include <stddef.h>
#include <stdint.h>

/* Points of four weights, three bits each: the index of a magnitude in the first half of the table. */
extern const uint16_t quant_grid_iq3_xxs[256], quant_grid_iq3_s[512];

extern const int8_t quant_table_fp4[16], quant_table_iq4[16], quant_table_iq3_xxs[16],
    quant_table_iq3_s[16];

/* [16] what a nibble stands for; NULL for types whose integers are numbers. */
static inline const int8_t *quant_table(uint32_t type)
{
    switch (type) {
    case QUANT_MXFP4:
        return quant_table_fp4;
    case QUANT_IQ4_NL:
    case QUANT_IQ4_XS:
        return quant_table_iq4;
    case QUANT_IQ3_XXS:
        return quant_table_iq3_xxs;
    case QUANT_IQ3_S:
        return quant_table_iq3_s;
    default:
        return NULL;
    }
}

#endif
