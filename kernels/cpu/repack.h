/*
 * repack.h: weights in the layout of the SIMD kernels: lanes are output rows.
 *
 * A matrix becomes groups of 16 output rows, the last one padded with zeros. In a group the inputs
 * follow one another, each with its 16 rows, so that the order in which an output is accumulated
 * does not depend on the register width (NUMERICS.md, "Matmuls"):
 *
 *   F32, F16, BF16   [cols][16] values as in the file
 *   quantized        per segment of 8 sub-blocks of 32 inputs: its factors, then integers
 *                    [8][words][16] of 32 bits (pack.h). The factors are:
 *
 *     Q8_0, Q4_0, Q5_0, IQ4_NL
 *                        [8][16] f16 scales
 *     MXFP4              [8][16] bytes e
 *     Q4_1, Q5_1         [8][2][16] f16: scales, then minus the file's minima
 *     Q4_K, Q5_K         [3][16] words (a row's twelve bytes of scales and minima), [16] f16 D, [16]
 *                        f16 Dmin
 *     Q2_K               [8][2][16] bytes: scales in the low, minima in the high nibbles; [16] f16 D,
 *                        [16] f16 Dmin
 *     Q3_K, Q6_K         [8][2][16] int8 scales, [16] f16 D, 32 bytes unused
 *     IQ4_XS, IQ3_XXS, IQ3_S
 *                        [8][16] int8 scales (quant_byte_scale), [16] f16 D, 32 bytes unused
 *
 * So a group is read sequentially and once, which suits hardware prefetchers. The last segment has
 * fewer blocks if cols is not a multiple of 256. Groups start at multiples of 64 bytes. Pure
 * functions, any thread. */
#ifndef HEARTH_KERNELS_CPU_REPACK_H
#define HEARTH_KERNELS_CPU_REPACK_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pack.h"

/* Bytes of integers, and of factors, of a quantized type for a sub-block of 16 rows. */
static inline size_t repack_integers(uint32_t type)
{
    return (size_t)pack_words(type) * CPU_LANES * 4;
}
static inline size_t repack_factors(uint32_t type)
{
    switch (type) {
    case QUANT_Q4_1:
    case QUANT_Q5_1:
        return 64;
    case QUANT_Q2_K:
    case QUANT_Q3_K:
    case QUANT_Q6_K:
        return 40;
    case QUANT_IQ4_XS:
    case QUANT_IQ3_XXS:
    case QUANT_IQ3_S:
        return 24;
    case QUANT_MXFP4:
        return 16;
    default:
        return 32;
    }
}

/* Sets groups and group_bytes of a matrix for `file`; packed stays NULL. */
void repack_init(struct cpu_matrix *matrix, const struct model_tensor *file);

/* Bytes of all matrices. */
size_t repack_bytes(const struct cpu_matrix *matrix);

/* Matrix `index` of those of experts, its output rows from group `group` on. */
struct cpu_matrix repack_part(const struct cpu_matrix *matrix, uint32_t index, uint32_t group);

/* Bytes of a group in the file, except a last one with fewer rows. */
static inline size_t repack_file_bytes(const struct cpu_matrix *matrix)
{
    return CPU_LANES * matrix->file.row_bytes;
}

/* Fills matrix->packed [repack_bytes] for one group, whose rows are at `from` as in the file; the
 * memory must be zero. `from` should be in a cache: sixteen streams are too many for a hardware
 * prefetcher. */
void repack_group(const struct cpu_matrix *matrix, uint32_t group, const uint8_t *from);

/* The same with the baseline instructions, and with those named: equal bytes. */
void pack_group_any(const struct cpu_matrix *matrix, uint32_t group, const uint8_t *from);
void pack_group_avx2(const struct cpu_matrix *matrix, uint32_t group, const uint8_t *from);
void pack_group_avx512(const struct cpu_matrix *matrix, uint32_t group, const uint8_t *from);

/* x [cols] = row `row`, from the packed weights (NUMERICS.md, "Embedding"). */
void repack_row(const struct cpu_matrix *matrix, uint32_t row, float *x);

#endif
