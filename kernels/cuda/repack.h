/*
 * repack: a tensor of the file in the layout of layout.h, group by group, on the host. Pure functions, any thread.
 */
#ifndef HEARTH_KERNELS_CUDA_REPACK_H
#define HEARTH_KERNELS_CUDA_REPACK_H

#include <stdint.h>

struct model_tensor;

/* Fills to [layout_group_bytes] with output rows 32 * group .. of the tensor, padding zeroed. Groups of experts are those
 * of each of its matrices. */
void cuda_repack_group(const struct model_tensor *t, uint32_t group, uint8_t *to);

/* The same by rows, F16 and BF16, of one matrix. */
void cuda_copy_group(const struct model_tensor *t, uint32_t group, uint8_t *to);

#endif
