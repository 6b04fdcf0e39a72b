/*
 * shadow: a Q4_0 copy of the weights that passes read, for drafts only (PASS_FAST).
 *
 * Made once at open, from the file's own numbers by quantize_row, so it is the same on every machine
 * and after every load. Norms, biases and the embedding stay those of the model, and so does a
 * matrix for which Q4_0 saves nothing or whose rows are no whole blocks.
 */
#ifndef HEARTH_KERNELS_CPU_SHADOW_H
#define HEARTH_KERNELS_CPU_SHADOW_H

#include "kernels/cpu/cpu.h"

/* Fills b->weights[PASS_FAST], which are those of the model so far, after all other weights. Returns 0; with one line -ENOTSUP where it would hardly
 * be smaller than the model, or a weight has no place in it; -ENOMEM. */
int shadow_load(struct backend *b, char *err, size_t err_bytes);

#endif
