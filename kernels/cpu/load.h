/*
 * load: fills memory that is placed with the tensors of a model.
 *
 * The file is read once: a piece of it that fits a core's cache goes through read(2) into a buffer, is
 * hashed there for the fingerprint and packed from there. So no page of the file's mapping is faulted in
 * and given back, which costs other cores an interrupt each time, and file and copy are never in memory
 * both.
 *
 * A hash takes a tensor's bytes in their order, so a matrix is one thread's work. Threads share out runs of
 * matrices that lie side by side, the largest run first. Called by open, from one thread. Owns nothing.
 */
#ifndef HEARTH_KERNELS_CPU_LOAD_H
#define HEARTH_KERNELS_CPU_LOAD_H

#include "kernels/cpu/cpu.h"
#include "kernels/base/pool.h"

/* Packs n matrices of the model's file, which have their memory, ascending; notes their hashes. Returns 0,
 * -ENOMEM, or what gguf_read says. */
int load_from_file(struct pool *pool, const struct model *model, const struct cpu_matrix **matrix,
                   uint32_t n);

/* to [bytes] = a tensor of the model's file as it is there; notes its hash. Returns what gguf_read says. */
int load_vector_data(const struct model *model, const struct model_tensor *tensor, void *to);

/* Packs a matrix whose tensor is in memory and no file's. */
void load_from_memory(struct pool *pool, const struct cpu_matrix *matrix);

#endif
