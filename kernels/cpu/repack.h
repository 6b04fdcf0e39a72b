/*
 * repack: weights as the SIMD kernels read them: lanes are output rows.
 *
 * A matrix becomes groups of 16 output rows, the last one padded with zeros. In a group the inputs
 * follow one another, 16 rows side by side, so that the order in which an output is accumulated
 * does not depend on the width of a register (NUMERICS.md, "Products"):
 *
 *   F32, F16, BF16   [cols][16] values as in the file
 *   Q8_0             per segment of 8 blocks: quants [8][8][16][4] bytes q + 128 (8 times 4 inputs
 *                    of 16 rows), then scales [8][16] f16
 *   Q4_0             per segment of 8 blocks: quants [8][4][16][4] bytes, byte c holds input 4j + c
 *                    of the block in its low nibble and 16 + 4j + c in its high one, q + 8 each as
 *                    in the file; then scales [8][16] f16
 *
 * The last segment holds fewer blocks where cols is no multiple of 256. Groups start on a multiple
 * of 64 bytes. Pure functions, any thread.
 */
#ifndef HEARTH_KERNELS_CPU_REPACK_H
#define HEARTH_KERNELS_CPU_REPACK_H

#include "kernels/cpu/cpu.h"

enum {
    REPACK_Q8_BLOCK = 512, /* bytes of quants of a block of 16 rows */
    REPACK_Q4_BLOCK = 256,
    REPACK_SCALES = 32, /* bytes of scales of a block of 16 rows */
};

/* Sets groups and group_bytes of a matrix for `file`; packed stays NULL. */
void repack_init(struct cpu_matrix *matrix, const struct model_tensor *file);

size_t repack_bytes(const struct cpu_matrix *matrix);

/* Fills matrix->packed [repack_bytes] for one group; the memory was zero. */
void repack_group(const struct cpu_matrix *matrix, uint32_t group);

/* x [cols] = row `row`, from the packed weights (NUMERICS.md, "Embedding"). */
void repack_row(const struct cpu_matrix *matrix, uint32_t row, float *x);

#endif
