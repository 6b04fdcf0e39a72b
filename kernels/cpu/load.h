/* load.h: fills allocated memory with the tensors of a model.
 *
 * The file is read once: a piece that fits L2 is read with read(2) into a buffer, hashed there for
 * the fingerprint and packed from there. This avoids faulting in and dropping pages of the file's
 * mapping, which costs other cores an interrupt each time, and never holds file and copy in memory
 * together but for the page cache (gguf_drop_reads).
 *
 * A hash takes a tensor's bytes in order, so a matrix is one thread's work. Threads share runs of
 * matrices that are adjacent in memory, the largest run first. Called by open, from one thread.
 * Owns nothing. */
#ifndef HEARTH_KERNELS_CPU_LOAD_H
#define HEARTH_KERNELS_CPU_LOAD_H

#include "kernels/cpu/cpu.h"
#include "kernels/base/pool.h"

/* Packs n matrices of the model's file into their memory, in ascending order; records their hashes.
 * A last one without memory, which stays in the file, is hashed only. Adds the bytes that were read
 * to *loaded, if that is not NULL. Returns 0, -ENOMEM, or the error of gguf_read. */
int load_from_file(struct thread_pool *pool, const struct model *model,
                   const struct cpu_matrix **matrix, uint32_t n, _Atomic uint64_t *loaded);

/* to [bytes] = a tensor as in the model's file; records its hash. Returns the result of
 * gguf_read. */
int load_vector_data(const struct model *model, const struct model_tensor *tensor, void *to);

/* Packs a matrix whose tensor is in memory instead of in a file. */
void load_from_memory(struct thread_pool *pool, const struct cpu_matrix *matrix);

#endif
