#include "kernels/cpu/attention.h"

#include "kernels/base/pool.h"
#include "kernels/cpu/share.h"

/* Tiles: enough for all threads. */
enum { TILES_PER_THREAD = 4 };

static uint32_t window_of(const struct model *m, uint32_t layer)
{
    return m->layers[layer].local ? m->local_window : CPU_NO_WINDOW;
}

/* Queries [first, first + CPU_QUERIES) of an item: a tile, which is a run of rows of one sequence, with
 * the heads of one KV head. False: there are none. */
static bool find_item(struct backend *b, uint32_t layer, uint32_t item, uint32_t worker,
                      uint32_t first, struct cpu_attend *a)
{
    struct cpu_buffers *u = &b->buffers;
    const struct model *m = b->model;
    uint32_t tile = item / m->n_head_kv, head_kv = item % m->n_head_kv;
    uint32_t share = m->n_head / m->n_head_kv;
    uint32_t row = u->tile[tile], n = (u->tile[tile + 1] - row) * share;
    *a = (struct cpu_attend){
        .kv = &b->kv,
        .memory = b->kv_memory,
        .pages = b->pass->sequences[b->pass->rows[row].sequence].pages,
        .layer = layer,
        .head_kv = head_kv,
        .scale = b->scale,
        .window = window_of(m, layer),
        .scratch = u->attend_scratch + (size_t)worker * CPU_ATTEND_SCRATCH,
    };
    for (uint32_t i = first; i < n && a->n < CPU_QUERIES; i++) {
        uint32_t r = row + i / share, h = head_kv * share + i % share;
        size_t at = (size_t)r * u->heads + (size_t)h * m->head_dim;
        a->position[a->n] = b->pass->rows[r].position;
        a->q[a->n] = u->q + at;
        a->out[a->n++] = u->attention.f + at;
    }
    return a->n > 0;
}

static void attend_item(struct backend *b, uint32_t layer, uint32_t item, uint32_t worker)
{
    struct cpu_attend a;
    for (uint32_t i = 0; find_item(b, layer, item, worker, i, &a); i += CPU_QUERIES)
        b->isa->attend(&a);
}

/* ---- few rows, many positions ----------------------------------------------------------------
 *
 * Few rows with few KV heads are fewer items than threads, or not evenly as many, while each reads a
 * long context. Then each split of an item is a task of its own, and its parts are joined afterwards. */

/* Floats of the parts of an item. */
static size_t item_parts(const struct backend *b)
{
    return b->n_splits * (b->model->n_head / b->model->n_head_kv) * cpu_part_floats(&b->kv);
}

static void split_task(struct backend *b, uint32_t layer, uint32_t task, uint32_t worker)
{
    struct cpu_attend a;
    uint32_t item = task / b->n_splits, i = task % b->n_splits;
    find_item(b, layer, item, worker, 0, &a);
    uint32_t number = cpu_attend_from(&a, a.position[0]) / CPU_SPLIT + i;
    float *parts = b->buffers.parts + item * item_parts(b) + i * a.n * cpu_part_floats(&b->kv);
    if (number <= a.position[a.n - 1] / CPU_SPLIT)
        b->isa->attend_split(&a, number, parts);
}

static void join_item(struct backend *b, uint32_t layer, uint32_t item, uint32_t worker)
{
    struct cpu_attend a;
    find_item(b, layer, item, worker, 0, &a);
    b->isa->attend_join(&a, b->buffers.parts + item * item_parts(b));
}

/* Rows below which a pass may be cut in splits; a tile is then one row (tile_rows). */
static uint32_t few_rows(const struct backend *b)
{
    uint32_t tasks = pool_threads(b->pool) * TILES_PER_THREAD;
    return (tasks + b->model->n_head_kv - 1) / b->model->n_head_kv;
}

size_t attention_parts_floats(const struct backend *b)
{
    if (b->model->n_head_kv % pool_threads(b->pool) == 0)
        return 0; /* items are even */
    size_t splits = (b->limits.context + CPU_SPLIT - 1) / CPU_SPLIT;
    size_t rows = few_rows(b) < b->limits.rows ? few_rows(b) : b->limits.rows;
    return rows * b->model->n_head * splits * cpu_part_floats(&b->kv);
}

/* Where whole items would leave threads idle for more than an eighth of their time. */
static bool cut_in_splits(const struct backend *b, uint32_t items)
{
    uint32_t threads = pool_threads(b->pool), idle = (threads - items % threads) % threads;
    return b->n_splits > 1 && b->pass->n_rows < few_rows(b) && idle * 8 > items + idle &&
           b->model->n_head / b->model->n_head_kv <= CPU_QUERIES;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Rows of a tile: as many as attention takes together, but enough tiles for all threads. */
static uint32_t tile_rows(const struct backend *b)
{
    uint32_t share = b->model->n_head / b->model->n_head_kv, threads = pool_threads(b->pool);
    uint32_t most = share < CPU_QUERIES ? CPU_QUERIES / share : 1;
    uint32_t even = b->pass->n_rows * b->model->n_head_kv / (threads * TILES_PER_THREAD);
    return even == 0 ? 1 : even < most ? even : most;
}

void attention_begin(struct backend *b)
{
    const struct pass *pass = b->pass;
    uint32_t *tile = b->buffers.tile, n = 0, most = tile_rows(b);
    for (uint32_t r = 0; r < pass->n_rows; r++) {
        if (n == 0 || pass->rows[r].sequence != pass->rows[r - 1].sequence ||
            r - tile[n - 1] == most)
            tile[n++] = r;
    }
    tile[n] = pass->n_rows;
    b->n_tiles = n;
}

/* Positions that all rows see; b->n_splits: those of the row that sees parts of the most. */
static uint64_t count_positions(struct backend *b, uint32_t layer)
{
    struct cpu_attend a = {.window = window_of(b->model, layer)};
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

void attention(struct backend *b, uint32_t layer)
{
    const struct model *m = b->model;
    uint64_t values = count_positions(b, layer) * m->n_head * m->head_dim / 4;
    uint32_t n = b->n_tiles * m->n_head_kv;
    if (!cut_in_splits(b, n)) {
        share_items(b, attend_item, layer, n, values / n + 1);
        return;
    }
    share_items(b, split_task, layer, n * b->n_splits, values / n / b->n_splits + 1);
    share_items(b, join_item, layer, n, item_parts(b));
}
