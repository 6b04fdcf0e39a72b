/* quant_types.c: the table of tensor types. Sizes are facts of the format; missing numbers were
 * withdrawn from it. */
#include "kernels/quant/quant_types.h"

#include <stddef.h>

/* clang-format off */
static const struct quant_info QUANT_TABLE[] = {
    /* number, name, elements and bytes of a block, quantized */
    {  0, "F32",       1,   4, false },
    {  1, "F16",       1,   2, false },
    {  2, "Q4_0",     32,  18, true },
    {  3, "Q4_1",     32,  20, true },
    {  6, "Q5_0",     32,  22, true },
    {  7, "Q5_1",     32,  24, true },
    {  8, "Q8_0",     32,  34, true },
    {  9, "Q8_1",     32,  36, true },
    { 10, "Q2_K",    256,  84, true },
    { 11, "Q3_K",    256, 110, true },
    { 12, "Q4_K",    256, 144, true },
    { 13, "Q5_K",    256, 176, true },
    { 14, "Q6_K",    256, 210, true },
    { 15, "Q8_K",    256, 292, true },
    { 16, "IQ2_XXS", 256,  66, true },
    { 17, "IQ2_XS",  256,  74, true },
    { 18, "IQ3_XXS", 256,  98, true },
    { 19, "IQ1_S",   256,  50, true },
    { 20, "IQ4_NL",   32,  18, true },
    { 21, "IQ3_S",   256, 110, true },
    { 22, "IQ2_S",   256,  82, true },
    { 23, "IQ4_XS",  256, 136, true },
    { 24, "I8",        1,   1, false },
    { 25, "I16",       1,   2, false },
    { 26, "I32",       1,   4, false },
    { 27, "I64",       1,   8, false },
    { 28, "F64",       1,   8, false },
    { 29, "IQ1_M",   256,  56, true },
    { 30, "BF16",      1,   2, false },
    { 34, "TQ1_0",   256,  54, true },
    { 35, "TQ2_0",   256,  66, true },
    { 39, "MXFP4",    32,  17, true },
    { 40, "NVFP4",    64,  36, true },
    { 41, "Q1_0",    128,  18, true },
};
/* clang-format on */

const struct quant_info *quant_find(uint32_t type)
{
    for (size_t i = 0; i < sizeof(QUANT_TABLE) / sizeof(QUANT_TABLE[0]); i++)
        if (QUANT_TABLE[i].type == type)
            return &QUANT_TABLE[i];
    return NULL;
}

const char *quant_name(uint32_t type)
{
    const struct quant_info *info = quant_find(type);
    return info ? info->name : "unknown";
}
