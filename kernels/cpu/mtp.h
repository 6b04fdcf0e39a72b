/* mtp.h: the next-token layer: what joins a token with the hidden row before it, and where a
 * sequence's hidden rows are kept between passes: as a recurrent layer's inputs are, in its state
 * and in its records (state.h). */
#ifndef HEARTH_KERNELS_CPU_MTP_H
#define HEARTH_KERNELS_CPU_MTP_H

#include "kernels/cpu/cpu.h"

/* OP_JOIN of row r, whose token's embedding is in `to` [n_embd] already. */
void mtp_join_row(struct backend *b, const struct layer_op *op, uint32_t r);

/* OP_REMEMBER of a sequence. */
void mtp_remember(struct backend *b, const struct layer_op *op, uint32_t sequence, uint32_t worker);

#endif
