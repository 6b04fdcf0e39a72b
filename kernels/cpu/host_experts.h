/* host_experts.h: the experts of a model's last layers for a backend that computes the rest of a pass
 * elsewhere: the CPU backend's own weights and operations (experts.h), so its bits, without its passes.
 *
 * Rows, choices and sums lie in memory of the caller, which may be pinned. One thread at a time, which
 * takes part in the pool's work. Allocates nothing after open. */
#ifndef HEARTH_KERNELS_CPU_HOST_EXPERTS_H
#define HEARTH_KERNELS_CPU_HOST_EXPERTS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "kernels/model/layer_ops.h"

struct host_experts;
struct thread_pool;

/* What goes from one to the other, of limits.rows rows; stride: n_embd, padded to 32. */
struct host_rows {
    float *x;         /* [rows][stride] the input of experts */
    uint32_t *chosen; /* [rows][n_used] ascending: OP_ROUTE's */
    float *weight;    /* [rows][n_used] */
    float *sum;       /* [rows][stride] sum of weight * expert, ascending */
};

/* Loads experts of layers [first_layer, n_layer); limits: rows, threads and loaded are read. Rows, model
 * and pool must outlive it. Returns 0, or -ENOMEM or -ENOTSUP with a line. */
int host_experts_open(const struct model *model, const struct backend_limits *limits,
                      uint32_t first_layer, const struct host_rows *rows, struct thread_pool *pool,
                      struct host_experts **ret, char *err, size_t err_bytes);

/* sum of the first n rows, from x, chosen and weight. op: the layer's OP_EXPERT_GATE. */
void host_experts_run(struct host_experts *h, const struct layer_op *op, uint32_t n);

/* Bytes of the weights. */
size_t host_experts_bytes(const struct host_experts *h);

void host_experts_close(struct host_experts *h); /* NULL is fine */

#endif
