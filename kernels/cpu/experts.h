/* experts.h: mixtures of experts: each row chooses some feed-forward parts of many. NUMERICS.md,
 * "Experts".
 *
 * Pairs of a row and an expert that it chose are ordered by expert, so that an expert's weights are
 * read once for all of its rows. Work is divided into (expert, output groups), and for the sum into
 * output groups, each with all experts ascending. A pair's bits do not depend on other pairs. */
#ifndef HEARTH_KERNELS_CPU_EXPERTS_H
#define HEARTH_KERNELS_CPU_EXPERTS_H

#include "kernels/cpu/cpu.h"

enum { EXPERTS_ROWS = 96, EXPERTS_COLS = 512, EXPERTS_SCRATCH = 2 * EXPERTS_ROWS * EXPERTS_COLS };

/* OP_ROUTE of row r. bad[r]: its scores are not finite, its experts the first ones. */
void experts_route_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker);

/* OP_EXPERT_GATE, OP_EXPERT_SUM of all rows. */
void experts_gate(struct backend *b, const struct layer_op *op);
void experts_sum(struct backend *b, const struct layer_op *op);

#endif
