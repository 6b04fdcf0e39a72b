/* Graphs: the launches of a pass captured once, for passes of up to 1, 2, 4 .. 64 rows, with and without a head. A pass
 * runs the smallest one that covers it: no launch of the host but one, or one for each of its pieces (cut.c). Larger passes
 * launch their kernels one by one. */
#include <stdlib.h>

#include "kernels/cuda/backend_cuda.h"

static struct cuda_grid grid_of(const struct backend *b, enum pass_kind kind, uint32_t bucket,
                                bool head)
{
    const uint32_t rows = 1u << bucket;
    return (struct cuda_grid){
        .kind = kind,
        .rows = rows,
        .wanted = !head                      ? 0
                  : rows < b->limits.samples ? rows
                                             : b->limits.samples,
        .items = b->queue.processors * CUDA_ATTEND_BLOCKS / b->model->n_head_kv + 1,
        .kinds = 1u << CUDA_ITEM_ROW | 1u << CUDA_ITEM_TILE,
        .states = rows,
    };
}

/* The graphs of a bucket: a piece each, and the last piece with a head. */
static cudaGraphExec_t *graphs_of(const struct backend *b, enum pass_kind kind, uint32_t bucket)
{
    return b->graphs + (kind * CUDA_GRAPH_BUCKETS + bucket) * (b->cut.n_pieces + 1);
}

static int capture(struct backend *b, struct cuda_grid grid, uint32_t piece,
                   cudaGraphExec_t *ret_exec)
{
    cudaGraph_t graph = NULL;
    cudaError_t code = cudaStreamBeginCapture(b->queue.stream, cudaStreamCaptureModeThreadLocal);
    if (code != cudaSuccess)
        return (int)code;
    cuda_run_jobs(b, grid, piece);
    code = cudaStreamEndCapture(b->queue.stream, &graph);
    if (code == cudaSuccess && !b->broken)
        code = cudaGraphInstantiate(ret_exec, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    if (code == cudaSuccess && !b->broken)
        code = cudaGraphUpload(*ret_exec, b->queue.stream);
    return (int)code;
}

static bool open_bucket(struct backend *b, enum pass_kind kind, uint32_t bucket)
{
    const uint32_t last = cuda_last_piece(b, kind);
    for (uint32_t i = 0; i <= last + 1; i++)
        if (!cuda_ok(b,
                     capture(b, grid_of(b, kind, bucket, i > last), i < last ? i : last,
                             &graphs_of(b, kind, bucket)[i]),
                     "the capture of a graph"))
            return false;
    return true;
}

static bool open_kind(struct backend *b, enum pass_kind kind)
{
    if (!cuda_has(b, kind))
        return true;
    b->tensors = cuda_tensors(b, kind);
    for (uint32_t bucket = 0; bucket < CUDA_GRAPH_BUCKETS; bucket++) {
        if (bucket > 0 && 1u << (bucket - 1) >= b->limits.rows)
            break;
        if (!open_bucket(b, kind, bucket))
            return false;
    }
    return true;
}

bool cuda_graph_open(struct backend *b)
{
    b->graphs = calloc((size_t)CUDA_PASS_KINDS * CUDA_GRAPH_BUCKETS * (b->cut.n_pieces + 1),
                       sizeof(cudaGraphExec_t));
    return cuda_ok(b, b->graphs ? cudaSuccess : cudaErrorMemoryAllocation, "opening graphs") &&
           open_kind(b, PASS_CANONICAL) && open_kind(b, PASS_FAST) && open_kind(b, PASS_MTP);
}

bool cuda_graph_exists(const struct backend *b, enum pass_kind kind, uint32_t bucket)
{
    return graphs_of(b, kind, bucket)[0] != NULL;
}

void cuda_graph_close(struct backend *b)
{
    const uint32_t n = b->graphs ? CUDA_PASS_KINDS * CUDA_GRAPH_BUCKETS * (b->cut.n_pieces + 1) : 0;
    for (uint32_t i = 0; i < n; i++)
        if (b->graphs[i])
            cudaGraphExecDestroy(b->graphs[i]);
    free(b->graphs);
}

bool cuda_graph_run(struct backend *b, uint32_t piece)
{
    uint32_t bucket = b->least_bucket;
    while (bucket < CUDA_GRAPH_BUCKETS && 1u << bucket < b->pass->n_rows)
        bucket++;
    if (bucket == CUDA_GRAPH_BUCKETS)
        return false;
    const enum pass_kind kind =
        b->pass->kind == PASS_FAST && !b->fast ? PASS_CANONICAL : b->pass->kind;
    const bool head = piece == cuda_last_piece(b, kind) && b->n_wanted > 0;
    cudaGraphExec_t graph = graphs_of(b, kind, bucket)[piece + head];
    return cuda_ok(b, (int)cudaGraphLaunch(graph, b->queue.stream), "the launch of a graph");
}
