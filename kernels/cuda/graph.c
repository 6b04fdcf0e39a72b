/* Graphs: the launches of a pass captured once, for passes of up to 1, 2, 4 .. 64 rows, with and without a head. A pass
 * runs the smallest one that covers it: no launch of the host but one. Larger passes launch their kernels one by one. */
#include "kernels/cuda/backend_cuda.h"

static struct cuda_grid grid_of(const struct backend *b, uint32_t bucket, bool head)
{
    const uint32_t rows = 1u << bucket;
    return (struct cuda_grid){
        .rows = rows,
        .wanted = !head                      ? 0
                  : rows < b->limits.samples ? rows
                                             : b->limits.samples,
        .items = b->queue.processors * CUDA_ATTEND_BLOCKS / b->model->n_head_kv + 1,
        .kinds = 1u << CUDA_ITEM_ROW | 1u << CUDA_ITEM_TILE,
        .states = rows,
    };
}

static int capture(struct backend *b, struct cuda_grid grid, cudaGraphExec_t *ret_exec)
{
    cudaGraph_t graph = NULL;
    cudaError_t code = cudaStreamBeginCapture(b->queue.stream, cudaStreamCaptureModeThreadLocal);
    if (code != cudaSuccess)
        return (int)code;
    cuda_run_jobs(b, grid);
    code = cudaStreamEndCapture(b->queue.stream, &graph);
    if (code == cudaSuccess && !b->broken)
        code = cudaGraphInstantiate(ret_exec, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    if (code == cudaSuccess && !b->broken)
        code = cudaGraphUpload(*ret_exec, b->queue.stream);
    return (int)code;
}

static bool open_kind(struct backend *b, enum pass_kind kind)
{
    if (!cuda_has(b, kind))
        return true;
    b->tensors = cuda_tensors(b, kind);
    for (uint32_t bucket = 0; bucket < CUDA_GRAPH_BUCKETS; bucket++) {
        if (bucket > 0 && 1u << (bucket - 1) >= b->limits.rows)
            break;
        for (int head = 0; head < 2; head++) {
            if (!cuda_ok(b, capture(b, grid_of(b, bucket, head), &b->graphs[kind][bucket][head]),
                         "the capture of a graph"))
                return false;
        }
    }
    return true;
}

bool cuda_graph_open(struct backend *b)
{
    return open_kind(b, PASS_CANONICAL) && open_kind(b, PASS_FAST);
}

void cuda_graph_close(struct backend *b)
{
    for (uint32_t i = 0; i < 2 * CUDA_GRAPH_BUCKETS * 2; i++) {
        cudaGraphExec_t graph =
            b->graphs[i / (CUDA_GRAPH_BUCKETS * 2)][i / 2 % CUDA_GRAPH_BUCKETS][i % 2];
        if (graph)
            cudaGraphExecDestroy(graph);
    }
}

bool cuda_graph_run(struct backend *b)
{
    uint32_t bucket = b->least_bucket;
    while (bucket < CUDA_GRAPH_BUCKETS && 1u << bucket < b->pass->n_rows)
        bucket++;
    if (bucket == CUDA_GRAPH_BUCKETS)
        return false;
    const enum pass_kind kind = b->fast ? b->pass->kind : PASS_CANONICAL;
    cudaGraphExec_t graph = b->graphs[kind][bucket][b->n_wanted > 0];
    return cuda_ok(b, (int)cudaGraphLaunch(graph, b->queue.stream), "the launch of a graph");
}
