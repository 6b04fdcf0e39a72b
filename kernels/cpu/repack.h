/*
 * repack: weights as the SIMD kernels read them: lanes are output rows.
 *
 * A matrix becomes groups of 16 output rows, the last one padded with zeros. In a group the inputs
 * follow one another, 16 rows side by side, so that the order in which an output is accumulated
 * does not depend on the width of a register (NUMERICS.md, "Matmuls"):
 *
 *   F32, F16, BF16   [cols][16] values as in the file
 *   quantized        per segment of 8 sub-blocks of 32 inputs: its factors, then integers
 *                    [8][words][16] of 32 bits (pack.h). The factors are:
 *
 *     Q8_0, Q4_0, Q5_0   [8][16] f16 scales
 *     Q5_1               [8][2][16] f16: scales, then minus the file's minima
 *     Q4_K, Q5_K         [3][16] words (a row's twelve bytes of scales and minima), [16] f16 D, [16]
 *                        f16 Dmin
 *     Q6_K               [8][2][16] int8 scales, [16] f16 D, 32 bytes unused
 *
 * So a group is read from its first byte to its last, once, as prefetchers like it. The last segment
 * holds fewer blocks where cols is no multiple of 256. Groups start on a multiple of 64 bytes. Pure
 * functions, any thread.
 */
#ifndef HEARTH_KERNELS_CPU_REPACK_H
#define HEARTH_KERNELS_CPU_REPACK_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pack.h"
#include "kernels/base/hash128.h"

/* Bytes of integers and of factors that a quantized type has for a sub-block of 16 rows. */
static inline size_t repack_integers(uint32_t type)
{
    return (size_t)pack_words(type) * CPU_LANES * 4;
}
static inline size_t repack_factors(uint32_t type)
{
    return type == QUANT_Q5_1 ? 64 : type == QUANT_Q6_K ? 40 : 32;
}

/* Sets groups and group_bytes of a matrix for `file`; packed stays NULL. */
void repack_init(struct cpu_matrix *matrix, const struct model_tensor *file);

size_t repack_bytes(const struct cpu_matrix *matrix);

/* Bytes of a group in the file, but for a last one that lacks rows. */
static inline size_t repack_file_bytes(const struct cpu_matrix *matrix)
{
    return CPU_LANES * matrix->file.row_bytes;
}

/* Fills matrix->packed [repack_bytes] for one group, whose rows lie at `from` as in the file; the memory
 * was zero. `from` had better be in a cache: sixteen streams are more than a processor foresees. hash, unless
 * NULL, takes the group's bytes of the file meanwhile. */
void repack_group(const struct cpu_matrix *matrix, uint32_t group, const uint8_t *from,
                  struct hash128 *hash);

/* The same by the machine's plain instructions, and by those of the name: equal bytes. */
void pack_group_any(const struct cpu_matrix *matrix, uint32_t group, const uint8_t *from,
                    struct hash128 *hash);
void pack_group_avx2(const struct cpu_matrix *matrix, uint32_t group, const uint8_t *from,
                     struct hash128 *hash);
void pack_group_avx512(const struct cpu_matrix *matrix, uint32_t group, const uint8_t *from,
                       struct hash128 *hash);

/* x [cols] = row `row`, from the packed weights (NUMERICS.md, "Embedding"). */
void repack_row(const struct cpu_matrix *matrix, uint32_t row, float *x);

#endif
