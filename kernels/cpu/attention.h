/*
 * attention: the attention of a pass: which rows, heads and positions go together, and on which thread.
 * Called by the thread that runs the pass; how work is cut never changes a bit.
 */
#ifndef HEARTH_KERNELS_CPU_ATTENTION_H
#define HEARTH_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/cpu.h"

/* What buffers.parts has to hold, by the instance's limits. */
size_t attention_parts_floats(const struct backend *b);

/* Once a pass, before its first layer: cuts b->pass's rows in tiles. */
void attention_begin(struct backend *b);

/* buffers.q and the pages -> buffers.attention.f, all rows of the pass. */
void attention(struct backend *b, uint32_t layer);

#endif
