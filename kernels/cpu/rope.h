/* rope.h: the tables of the rotary embedding and the rotation for one position (NUMERICS.md,
 * "Rotary embedding"). Tables are built once at open, in f64 with only + - * / and fma, so that
 * every machine builds the same bits; no libm. Any thread; the caller owns the memory. */
#ifndef HEARTH_KERNELS_CPU_ROPE_H
#define HEARTH_KERNELS_CPU_ROPE_H
#include "kernels/model/model.h"

#include <stddef.h>
#include <stdint.h>

enum { ROPE_LOW = 256 };

/* Floats of the tables for positions below context: cos and sin, 256 low and the high entries. */
size_t rope_table_floats(const struct model_rope_table *rope, uint32_t context);

/* Fills table [rope_table_floats]. */
void rope_build(float *table, const struct model_rope_table *rope, uint32_t context);

/* The rotation of one position for cpu_isa.rope: at both places of a pair cs [n] holds its c, at
 * the first sn [n] holds -s, at the second s; n the table's. */
void rope_row(const float *table, uint32_t n, uint32_t position, enum model_rope kind, float *cs,
              float *sn);

/* Where q grows with its position (model.temperature_scale): the factor of position p is entry
 * p / model.temperature_period. The number of entries for positions below context, else 0. */
uint32_t rope_query_factors_n(const struct model *m, uint32_t context);
void rope_query_factors(float *factors, const struct model *m, uint32_t context);

#endif
