/* delta.h: recurrent layers: the convolution and the gated delta rule (NUMERICS.md), and what a
 * pass does with states and their records (backend.h, struct pass_state).
 *
 * A state is divided by (sequence, V head, 32 columns), and a piece goes through the records and
 * rows of its sequence in order while it is in the nearest cache. */
#ifndef HEARTH_KERNELS_CPU_DELTA_H
#define HEARTH_KERNELS_CPU_DELTA_H

#include "kernels/cpu/cpu.h"

/* Memory `state`, from its first layer on; and a record of it. */
float *delta_memory(const struct backend *b, int32_t state);
float *delta_record(const struct backend *b, int32_t state, uint32_t i);

/* Tokens that the state of a sequence holds before the pass. */
uint32_t delta_base(const struct backend *b, uint32_t sequence);

/* Which rows of the pass follow which. */
void delta_begin_pass(struct backend *b);

/* OP_CONVOLVE of row r. */
void delta_convolve_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker);

/* OP_DELTA of all rows. */
void delta_run(struct backend *b, const struct layer_op *op);

/* OP_SETTLE of a sequence. */
void delta_settle(struct backend *b, const struct layer_op *op, uint32_t sequence, uint32_t worker);

#endif
