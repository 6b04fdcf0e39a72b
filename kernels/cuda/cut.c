/* Experts that do not fit the device: those of the last layers lie in the host's memory, and the CPU backend's own operations
 * compute them (kernels/cpu/host_experts.h). A pass is cut before each of these layers' experts: what is captured or launched
 * is a piece, and between two of them rows and their choices go to the host, and the sums come back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/fail.h"
#include "kernels/cuda/backend_cuda.h"

static bool starts_piece(const struct backend *b, const struct layer_op *op)
{
    return op->kind == OP_EXPERT_GATE && cuda_on_host(b, op->layer);
}

/* Layers with experts, from `first` on. */
static uint32_t expert_layers(const struct backend *b, uint32_t first)
{
    uint32_t n = 0;
    for (uint32_t i = first; i < b->model->n_layer; i++)
        n += b->model->layers[i].geometry.n_expert > 0;
    return n;
}

uint32_t cuda_cut_layers(const struct backend *b)
{
    return expert_layers(b, b->cut.first_layer);
}

static void find_pieces(struct backend *b)
{
    const struct layer_ops *ops = &b->model->ops;
    b->cut.n_pieces = 1;
    for (uint32_t i = 0; i < ops->head; i++)
        if (starts_piece(b, &ops->op[i]))
            b->cut.begin[b->cut.n_pieces++] = i;
}

static int take_pinned(struct backend *b)
{
    struct host_rows *h = &b->cut.rows;
    const size_t rows = b->limits.rows, pairs = rows * b->model->ops.n_expert_used,
                 bytes = rows * b->buffers.of[BUFFER_NORM].stride * sizeof(float);
    if (cudaMallocHost((void **)&h->x, bytes) != cudaSuccess ||
        cudaMallocHost((void **)&h->sum, bytes) != cudaSuccess ||
        cudaMallocHost((void **)&h->chosen, pairs * sizeof(*h->chosen)) != cudaSuccess ||
        cudaMallocHost((void **)&h->weight, pairs * sizeof(*h->weight)) != cudaSuccess)
        return -ENOMEM;
    memset(h->sum, 0, bytes); /* what no expert writes after a row travels, too */
    return 0;
}

static void take_note(struct backend *b)
{
    const size_t at = strlen(b->note);
    snprintf(
        b->note + at, sizeof(b->note) - at,
        "%sexperts of %u of %u layers do not fit the GPU: the CPU computes them, with the same "
        "bits (%zu MiB)",
        at > 0 ? "; " : "", cuda_cut_layers(b), expert_layers(b, 0),
        host_experts_bytes(b->cut.experts) >> 20);
}

int cuda_cut_open(struct backend *b, char *err, size_t err_bytes)
{
    b->cut.begin = calloc(b->model->n_layer + 1, sizeof(*b->cut.begin));
    if (!b->cut.begin)
        return fail(err, err_bytes, -ENOMEM, "no memory");
    find_pieces(b);
    if (b->cut.n_pieces == 1)
        return 0;
    if (take_pinned(b))
        return fail(err, err_bytes, -ENOMEM, "no pinned memory for %u rows a pass", b->limits.rows);
    const int rc = host_experts_open(b->model, &b->limits, b->cut.first_layer, &b->cut.rows,
                                     b->pool, &b->cut.experts, err, err_bytes);
    if (!rc)
        take_note(b);
    return rc;
}

void cuda_cut_close(struct backend *b)
{
    host_experts_close(b->cut.experts);
    cudaFreeHost(b->cut.rows.x);
    cudaFreeHost(b->cut.rows.sum);
    cudaFreeHost(b->cut.rows.chosen);
    cudaFreeHost(b->cut.rows.weight);
    free(b->cut.begin);
}

static void copy(struct backend *b, void *to, const void *from, size_t bytes,
                 enum cudaMemcpyKind kind)
{
    if (!b->broken)
        cuda_ok(b, (int)cudaMemcpyAsync(to, from, bytes, kind, b->queue.stream),
                "the copy of rows of experts");
}

/* What lies after a row's values is not written, and stays. */
static void fetch_rows(struct backend *b, const struct cuda_input *from)
{
    const uint32_t n = b->model->n_embd, rows = b->pass->n_rows,
                   runs = n == from->stride ? 1 : rows;
    for (uint32_t r = 0; r < runs; r++)
        copy(b, b->cut.rows.x + (size_t)r * from->stride, from->f + (size_t)r * from->stride,
             (size_t)rows / runs * n * sizeof(float), cudaMemcpyDeviceToHost);
}

bool cuda_cut_cross(struct backend *b, uint32_t piece)
{
    const struct layer_op *op = &b->model->ops.op[b->cut.begin[piece]];
    const struct cuda_experts *x = &b->buffers.experts;
    const struct host_rows *h = &b->cut.rows;
    const size_t rows = b->pass->n_rows, pairs = rows * op->geometry->n_expert_used;
    fetch_rows(b, &b->buffers.of[op->from[0]]);
    copy(b, h->chosen, x->chosen, pairs * sizeof(*h->chosen), cudaMemcpyDeviceToHost);
    copy(b, h->weight, x->weight, pairs * sizeof(*h->weight), cudaMemcpyDeviceToHost);
    if (b->broken || !cuda_ok(b, (int)cudaStreamSynchronize(b->queue.stream), "a pass"))
        return false;
    host_experts_run(b->cut.experts, op, (uint32_t)rows);
    copy(b, b->buffers.expert_y, h->sum, rows * b->buffers.of[BUFFER_X].stride * sizeof(float),
         cudaMemcpyHostToDevice);
    return !b->broken;
}
