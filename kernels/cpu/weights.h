/*
 * weights: the model's tensors as an instance holds them: vectors copied, matrices repacked where the
 * instruction set reads them so, in the order in which a pass comes to them.
 *
 * Called by open, from one thread; load.h does the work on all. Owns nothing: memory is the instance's
 * arena.
 */
#ifndef HEARTH_KERNELS_CPU_WEIGHTS_H
#define HEARTH_KERNELS_CPU_WEIGHTS_H

#include "kernels/cpu/cpu.h"

/* Fills weights of both kinds, the embedding and the output norm. Returns 0, -ENOMEM, or what gguf_read
 * says. */
int weights_load(struct backend *b);

/* One matrix of a tensor in memory, packed if the isa wants it. Returns 0 or -ENOMEM. */
int weights_load_matrix(struct backend *b, const struct model_tensor *tensor, struct cpu_matrix *m);

/* Matrix `index` of these weights, layer by layer, the head last; NULL: there are no more. */
struct cpu_matrix *weights_matrix(struct cpu_weights *w, uint32_t n_layer, uint32_t index);

#endif
