/* host_experts.c: an instance of the CPU backend that has weights and buffers of experts alone. */
#include "kernels/cpu/host_experts.h"

#include "kernels/base/arena.h"
#include "kernels/base/fail.h"
#include "kernels/base/pool.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/share.h"
#include "kernels/cpu/weights.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct host_experts {
    struct backend cpu;
    struct pass pass; /* n_rows of it is read */
};

static int load_vector(struct backend *b, const struct model_tensor *file, const float **ret)
{
    float *to = arena_alloc(b->arena, file->bytes); /* in the file it may be unaligned */
    if (!to)
        return -ENOMEM;
    memcpy(to, file->data, file->bytes);
    b->weight_bytes += file->bytes;
    *ret = to;
    return 0;
}

/* The matrices of an operation, and their biases. */
static int load_operation(struct backend *b, const struct layer_op *op)
{
    struct cpu_layer *l = &b->weights[PASS_CANONICAL].layers[op->layer];
    const struct model_tensor *file = b->model->layers[op->layer].tensor;
    int rc = 0;
    for (uint32_t i = 0; i < op->n_parts && !rc; i++) {
        const uint32_t matrix = op->tensor[i], bias = op->bias[i];
        rc = weights_load_matrix(b, &file[matrix], &l->matrix[matrix]);
        if (!rc && file[bias].data)
            rc = load_vector(b, &file[bias], &l->vector[bias]);
        if (b->limits.loaded)
            *b->limits.loaded += file[matrix].bytes;
    }
    return rc;
}

static int load_weights(struct backend *b, uint32_t first_layer)
{
    const struct layer_ops *ops = &b->model->ops;
    int rc = 0;
    b->weights[PASS_CANONICAL].layers =
        arena_alloc(b->arena, b->model->n_layer * sizeof(struct cpu_layer));
    if (!b->weights[PASS_CANONICAL].layers)
        return -ENOMEM;
    for (uint32_t i = 0; i < ops->head && !rc; i++)
        if (ops->op[i].domain == OP_EXPERTS && ops->op[i].layer >= first_layer)
            rc = load_operation(b, &ops->op[i]);
    b->use = &b->weights[PASS_CANONICAL];
    return rc;
}

/* Their rows are the caller's. */
static int open_buffers(struct backend *b, const struct host_rows *rows)
{
    struct cpu_buffers *u = &b->buffers;
    bool failed = false;
    u->of[BUFFER_NORM].f = rows->x;
    u->of[BUFFER_EXPERT_SUM].f = rows->sum;
    u->experts.chosen = rows->chosen;
    u->experts.weight = rows->weight;
    cpu_buffer_scratch(b, BUFFER_NORM, &failed);
    cpu_buffer_scratch(b, BUFFER_EXPERTS, &failed);
    cpu_experts_scratch(b, &failed);
    u->of[BUFFER_EXPERT_SUM].stride = u->of[BUFFER_NORM].stride; /* both n_embd wide */
    return failed ? -ENOMEM : 0;
}

int host_experts_open(const struct model *model, const struct backend_limits *limits,
                      uint32_t first_layer, const struct host_rows *rows, struct thread_pool *pool,
                      struct host_experts **ret, char *err, size_t err_bytes)
{
    struct host_experts *h = calloc(1, sizeof(*h));
    if (!h)
        return fail(err, err_bytes, -ENOMEM, "no memory");
    struct backend *b = &h->cpu;
    b->model = model;
    b->limits = *limits;
    b->pool = pool;
    b->pass = &h->pass;
    b->arena = arena_open();
    int rc = cpu_choose_isa(NULL, &b->isa, err, err_bytes);
    if (!rc && (!b->arena || load_weights(b, first_layer) || open_buffers(b, rows)))
        rc = fail(err, err_bytes, -ENOMEM,
                  "no memory for the experts of %u layers that do not fit the GPU: use a smaller "
                  "model",
                  model->n_layer - first_layer);
    if (rc)
        host_experts_close(h);
    else
        *ret = h;
    return rc;
}

static void quantize_row(struct backend *b, const struct layer_op *op, uint32_t r, uint32_t worker)
{
    (void)worker;
    cpu_quantize_row(b, op->from[0], b->model->n_embd, r);
}

void host_experts_run(struct host_experts *h, const struct layer_op *op, uint32_t n)
{
    struct backend *b = &h->cpu;
    struct layer_op sum = op[1]; /* the shared expert and the residual are the caller's */
    const uint32_t mode = pool_float_mode();
    sum.to[0] = BUFFER_EXPERT_SUM;
    sum.from[1] = sum.from[2] = sum.residual = BUFFER_NONE;
    h->pass.n_rows = n;
    bool quantized = false;
    for (uint32_t i = 0; i < op->n_parts; i++)
        quantized |= quant_find(cpu_matrix_of(b, op, i)->file.type)->quantized;
    if (quantized)
        share_items(b, quantize_row, op, n, b->model->n_embd);
    experts_gate(b, op);
    experts_sum(b, &sum);
    pool_float_restore(mode);
}

size_t host_experts_bytes(const struct host_experts *h)
{
    return h->cpu.weight_bytes;
}

void host_experts_close(struct host_experts *h)
{
    if (!h)
        return;
    arena_close(h->cpu.arena);
    free(h);
}
