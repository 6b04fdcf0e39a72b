/* attention.h: the attention of a pass: which rows, heads and positions are computed together, and
 * on which thread. Called by the thread that runs the pass; how the work is divided never changes a
 * bit. */
#ifndef HEARTH_KERNELS_CPU_ATTENTION_H
#define HEARTH_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/cpu.h"

/* What buffers.partials has to hold, by the instance's limits. */
size_t attention_partial_floats(const struct backend *b);

/* An OP_ATTEND: queries and pages -> its output, all rows of the pass. */
void attention(struct backend *b, const struct layer_op *op);

#endif
