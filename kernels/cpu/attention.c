#include "kernels/cpu/attention.h"

#include "kernels/cpu/pool.h"
#include "kernels/cpu/share.h"

/* Tiles: enough for all threads. */
enum { TILES_PER_THREAD = 4 };

static uint32_t window_of(const struct model *m, uint32_t layer)
{
    return m->layers[layer].local ? m->local_window : CPU_NO_WINDOW;
}

/* A tile is a run of rows of one sequence; with the heads of one KV head it is one item. */
static void attend_item(struct backend *b, uint32_t layer, uint32_t item, uint32_t worker)
{
    struct cpu_buffers *u = &b->buffers;
    const struct model *m = b->model;
    uint32_t tile = item / m->n_head_kv, head_kv = item % m->n_head_kv;
    uint32_t begin = u->tile[tile], end = u->tile[tile + 1], share = m->n_head / m->n_head_kv;
    struct cpu_attend a = {
        .kv = &b->kv,
        .memory = b->kv_memory,
        .pages = b->pass->sequences[b->pass->rows[begin].sequence].pages,
        .layer = layer,
        .head_kv = head_kv,
        .scale = b->scale,
        .window = window_of(m, layer),
        .scratch = u->attend_scratch + (size_t)worker * CPU_ATTEND_SCRATCH,
    };
    for (uint32_t r = begin; r < end; r++) {
        for (uint32_t h = head_kv * share; h < (head_kv + 1) * share; h++) {
            size_t at = (size_t)r * u->heads + (size_t)h * m->head_dim;
            a.position[a.n] = b->pass->rows[r].position;
            a.q[a.n] = u->q + at;
            a.out[a.n++] = u->attention.f + at;
            if (a.n == CPU_QUERIES) {
                b->isa->attend(&a);
                a.n = 0;
            }
        }
    }
    if (a.n > 0)
        b->isa->attend(&a);
}

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

void attention(struct backend *b, uint32_t layer)
{
    const struct model *m = b->model;
    uint64_t positions = 0;
    uint32_t window = window_of(m, layer);
    for (uint32_t r = 0; r < b->pass->n_rows; r++) {
        uint32_t position = b->pass->rows[r].position;
        positions += position < window ? position + 1 : window;
    }
    uint32_t n = b->n_tiles * m->n_head_kv;
    uint64_t values = positions * m->n_head * m->head_dim / 4 / n + 1;
    share_items(b, attend_item, layer, n, values);
}
