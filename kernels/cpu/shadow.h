/* shadow.h: a Q4_0 copy of the weights that passes read, for drafts only (PASS_FAST).
 *
 * Made once at open, from the file's own numbers by quantize_row, so it is the same on every
 * machine and after every load. It shares the model's norms, biases and embedding, and those
 * matrices for which Q4_0 saves nothing or whose rows are not whole blocks. */
#ifndef HEARTH_KERNELS_CPU_SHADOW_H
#define HEARTH_KERNELS_CPU_SHADOW_H

#include "kernels/cpu/cpu.h"

/* Fills b->weights[PASS_FAST], so far equal to the model's, after all other weights. Returns 0;
 * with one line -ENOTSUP if it would hardly be smaller than the model, or cannot represent a
 * weight; -ENOMEM. */
int shadow_load(struct backend *b, char *err, size_t err_bytes);

#endif
