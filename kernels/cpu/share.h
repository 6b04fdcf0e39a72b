/* share.h: divides row-wise operations and matmuls into chunks for the thread pool of an instance.
 * The division depends on the size and the number of threads; the result of a chunk does not.
 * Called by the thread that runs the pass; returns when everything is done. */
#ifndef HEARTH_KERNELS_CPU_SHARE_H
#define HEARTH_KERNELS_CPU_SHARE_H

#include "kernels/cpu/cpu.h"

typedef void share_item(struct backend *b, const struct layer_op *op, uint32_t item,
                        uint32_t worker);

/* Runs items (rows, tiles) 0 .. n - 1; `values`: floats that one reads, an estimate of its cost. */
void share_items(struct backend *b, share_item *run, const struct layer_op *op, uint32_t n,
                 uint64_t values);

/* Runs n matmuls that read the same input, at most SHARE_MATMULS, with all groups of each. */
enum { SHARE_MATMULS = 3 };
void share_matmuls(struct backend *b, const struct cpu_matmul *part, uint32_t n);

/* Two of these with as many groups, of which a chunk takes the same groups of both, and then calls
 * `follow` for its rows [row0, row1) and outputs [begin, begin + n): whole blocks of 32, but for the
 * last. */
typedef void share_follow(struct backend *b, const struct layer_op *op, uint32_t row0,
                          uint32_t row1, uint32_t begin, uint32_t n);
void share_pair(struct backend *b, const struct cpu_matmul part[2], share_follow *follow,
                const struct layer_op *op);

#endif
