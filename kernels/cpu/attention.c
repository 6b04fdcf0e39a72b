/* attention.c: divides the attention of a pass into tiles and splits for the thread pool. */
#include "kernels/cpu/attention.h"

#include <assert.h>

#include "kernels/base/pool.h"
#include "kernels/cpu/share.h"

/* Tiles: enough for all threads. */
enum { TILES_PER_THREAD = 4 };

/* Heads of a KV head. */
static uint32_t share_of(const struct layer_geometry *g)
{
    return g->n_head / g->n_head_kv;
}

/* Finds the tile of an item: up to CPU_QUERIES queries from `first` on, which are consecutive rows
 * of one sequence by the heads of one KV head. False: there are none. */
static bool find_item(struct backend *b, const struct layer_op *op, uint32_t item, uint32_t worker,
                      uint32_t first, struct cpu_attend *a)
{
    struct cpu_buffers *u = &b->buffers;
    const struct cpu_input *q = &u->of[op->from[0]], *out = &u->of[op->to[0]];
    const struct layer_geometry *g = op->geometry;
    const struct kv_layer *kv = &b->kv.layer[op->read.index];
    const float *sinks = b->use->layers[op->layer].vector[op->tensor[0]];
    uint32_t tile = item / g->n_head_kv, head_kv = item % g->n_head_kv, share = share_of(g);
    uint32_t row = u->tile[tile], n = (u->tile[tile + 1] - row) * share;
    *a = (struct cpu_attend){
        .kv = kv,
        .memory = b->kv_memory[kv->class],
        .page_bytes = b->kv.page_bytes[kv->class],
        .pages = backend_pages(&b->pass->sequences[b->pass->rows[row].sequence], kv->class),
        .head_kv = head_kv,
        .scale = b->model->score_scale,
        .sliding_window = g->sliding_window,
        .sinks = sinks != NULL,
        .scratch = u->attend_scratch + (size_t)worker * CPU_ATTEND_SCRATCH,
    };
    for (uint32_t i = first; i < n && a->n < CPU_QUERIES; i++) {
        size_t r = row + i / share, h = head_kv * share + i % share;
        a->position[a->n] = b->pass->rows[r].position;
        a->q[a->n] = q->f + r * q->stride + h * g->q_dim;
        a->sink[a->n] = sinks ? sinks[h] : 0.0f;
        a->out[a->n++] = out->f + r * out->stride + h * g->v_dim;
    }
    return a->n > 0;
}

static void attend_item(struct backend *b, const struct layer_op *op, uint32_t item,
                        uint32_t worker)
{
    struct cpu_attend a;
    for (uint32_t i = 0; find_item(b, op, item, worker, i, &a); i += CPU_QUERIES)
        b->isa->attend(&a);
}

/* ---- few rows, many positions ----------------------------------------------------------------
 *
 * Few rows with few KV heads are fewer items than threads, or not evenly as many, while each reads a
 * long context. Then each split of an item is a task of its own, and their partial results are combined afterwards. */

/* Floats of the partial results of an item. */
static size_t item_floats(const struct backend *b, const struct layer_op *op)
{
    return b->n_splits * share_of(op->geometry) * cpu_partial_floats(op->geometry->v_dim);
}

static void split_task(struct backend *b, const struct layer_op *op, uint32_t task, uint32_t worker)
{
    struct cpu_attend a;
    uint32_t item = task / b->n_splits, i = task % b->n_splits;
    find_item(b, op, item, worker, 0, &a);
    uint32_t number = cpu_attend_from(&a, a.position[0]) / CPU_SPLIT + i;
    float *partials = b->buffers.partials + item * item_floats(b, op);
    if (number <= a.position[a.n - 1] / CPU_SPLIT)
        b->isa->attend_split(&a, number,
                             partials + i * a.n * cpu_partial_floats(op->geometry->v_dim));
}

static void combine_item(struct backend *b, const struct layer_op *op, uint32_t item,
                         uint32_t worker)
{
    struct cpu_attend a;
    find_item(b, op, item, worker, 0, &a);
    b->isa->attend_combine(&a, b->buffers.partials + item * item_floats(b, op));
}

/* A pass with fewer rows may be divided by splits; a tile is then one row (tile_rows). */
static uint32_t few_rows(const struct backend *b, const struct layer_geometry *g)
{
    uint32_t tasks = pool_threads(b->pool) * TILES_PER_THREAD;
    return (tasks + g->n_head_kv - 1) / g->n_head_kv;
}

size_t attention_partial_floats(const struct backend *b)
{
    const struct layer_ops *ops = &b->model->ops;
    size_t splits = (b->limits.context + CPU_SPLIT - 1) / CPU_SPLIT, most = 0;
    for (uint32_t i = 0; i < ops->end; i++) { /* those of the next-token layer, too */
        const struct layer_geometry *g = ops->op[i].geometry;
        if (ops->op[i].kind != OP_ATTEND || g->n_head_kv % pool_threads(b->pool) == 0)
            continue; /* no attention, or its items are even */
        size_t rows = few_rows(b, g) < b->limits.rows ? few_rows(b, g) : b->limits.rows;
        size_t floats = rows * g->n_head * splits * cpu_partial_floats(g->v_dim);
        most = floats > most ? floats : most;
    }
    return most;
}

/* True if whole items would leave threads idle for more than an eighth of the time. */
static bool cut_in_splits(const struct backend *b, const struct layer_geometry *g, uint32_t items)
{
    uint32_t threads = pool_threads(b->pool), idle = (threads - items % threads) % threads;
    return b->n_splits > 1 && b->pass->n_rows < few_rows(b, g) && idle * 8 > items + idle &&
           share_of(g) <= CPU_QUERIES;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Rows of a tile: as many as attention takes at once, but so that there are enough tiles for all
 * threads. */
static uint32_t tile_rows(const struct backend *b, const struct layer_geometry *g)
{
    uint32_t share = share_of(g), threads = pool_threads(b->pool);
    uint32_t most = share < CPU_QUERIES ? CPU_QUERIES / share : 1;
    uint32_t even = b->pass->n_rows * g->n_head_kv / (threads * TILES_PER_THREAD);
    return even == 0 ? 1 : even < most ? even : most;
}

/* Tiles are runs of rows of one sequence. */
static void cut_tiles(struct backend *b, const struct layer_geometry *g)
{
    const struct pass *pass = b->pass;
    uint32_t *tile = b->buffers.tile, n = 0, most = tile_rows(b, g);
    for (uint32_t r = 0; r < pass->n_rows; r++) {
        if (n == 0 || pass->rows[r].sequence != pass->rows[r - 1].sequence ||
            r - tile[n - 1] == most)
            tile[n++] = r;
    }
    tile[n] = pass->n_rows;
    b->n_tiles = n;
}

/* Positions that all rows see in total; b->n_splits: the most splits that any row sees. */
static uint64_t count_positions(struct backend *b, const struct layer_geometry *g)
{
    struct cpu_attend a = {.sliding_window = g->sliding_window};
    uint64_t positions = 0;
    b->n_splits = 0;
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        uint32_t position = b->pass->rows[r].position, from = cpu_attend_from(&a, position);
        uint32_t splits = position / CPU_SPLIT - from / CPU_SPLIT + 1;
        positions += position - from + 1;
        b->n_splits = splits > b->n_splits ? splits : b->n_splits;
    }
    return positions;
}

void attention(struct backend *b, const struct layer_op *op)
{
    const struct layer_geometry *g = op->geometry;
    uint64_t values = count_positions(b, g) * g->n_head * g->k_dim / 4;
    cut_tiles(b, g);
    uint32_t n = b->n_tiles * g->n_head_kv;
    assert(n > 0 && b->n_splits > 0);
    if (!cut_in_splits(b, g, n)) {
        share_items(b, attend_item, op, n, values / n + 1);
        return;
    }
    share_items(b, split_task, op, n * b->n_splits, values / n / b->n_splits + 1);
    share_items(b, combine_item, op, n, item_floats(b, op));
}
