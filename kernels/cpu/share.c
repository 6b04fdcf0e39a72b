#include "kernels/cpu/share.h"

#include "kernels/cpu/pool.h"

/* Below this much work a chunk costs more to hand over than to compute, and a product more to share
 * out than to finish: waking a thread takes tens of microseconds, and where the machine is busy a
 * worker that lost its core holds its chunk for milliseconds. Never changes a bit. */
enum {
    CHUNK_MACS = 1 << 18,
    SHARED_MACS = 3 << 18,
    CHUNK_BYTES = 1 << 20,        /* of weights, where many rows read them again and again */
    WINDOW_ROWS = 16,             /* up to these, weights are read once */
    WINDOW_CHUNK_BYTES = 1 << 22, /* bounds what a thread that loses its core holds up */
    MAX_CHUNKS = 512,
    CHUNK_VALUES = 1 << 13,
    CHUNKS_PER_THREAD = 8,
};

/* ---- items ----------------------------------------------------------------------------------- */

struct items {
    struct backend *b;
    share_item *run;
    uint32_t layer, n, per_chunk;
};

static void run_items(void *arg, uint32_t chunk, uint32_t worker)
{
    const struct items *items = arg;
    uint32_t begin = chunk * items->per_chunk;
    uint32_t end = items->n - begin < items->per_chunk ? items->n : begin + items->per_chunk;
    for (uint32_t i = begin; i < end; i++)
        items->run(items->b, items->layer, i, worker);
}

void share_items(struct backend *b, share_item *run, uint32_t layer, uint32_t n, uint64_t values)
{
    struct items items = {b, run, layer, n, n};
    uint32_t threads = pool_threads(b->pool);
    if (n == 0)
        return;
    if (threads > 1 && n > 1 && values * n >= 2 * CHUNK_VALUES) {
        uint64_t least = (CHUNK_VALUES + values - 1) / values;
        uint64_t even = (n + threads * CHUNKS_PER_THREAD - 1) / (threads * CHUNKS_PER_THREAD);
        uint64_t per = least > even ? least : even;
        items.per_chunk = per < n ? (uint32_t)per : n;
    }
    pool_run(b->pool, run_items, &items, (n - 1) / items.per_chunk + 1);
}

/* ---- products -------------------------------------------------------------------------------- */

struct products {
    const struct cpu_isa *isa;
    const struct cpu_product *part;
    struct {
        uint32_t part, group0, group1;
    } chunk[MAX_CHUNKS];
    uint32_t chunks;
};

static void run_product_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    (void)worker;
    const struct products *job = arg;
    struct cpu_product part = job->part[job->chunk[chunk].part];
    part.group0 = job->chunk[chunk].group0;
    part.group1 = job->chunk[chunk].group1;
    job->isa->product(&part);
}

/* Multiply-adds of one group of a product. */
static uint64_t group_macs(const struct cpu_product *part)
{
    return (uint64_t)CPU_LANES * part->matrix->file.cols * part->row1;
}

/* Groups of a chunk while `left` multiply-adds are to do, of `total`. Large ones first: every chunk
 * begins with waiting for memory; small ones last: threads should end together. */
static uint32_t chunk_groups(const struct cpu_product *part, uint64_t left, uint64_t total,
                             uint32_t threads)
{
    uint64_t macs = group_macs(part), share = left / threads / 2;
    uint64_t least = total / (MAX_CHUNKS - SHARE_PRODUCTS) > CHUNK_MACS
                         ? total / (MAX_CHUNKS - SHARE_PRODUCTS)
                         : CHUNK_MACS;
    uint64_t most = part->row1 > WINDOW_ROWS ? CHUNK_BYTES : WINDOW_CHUNK_BYTES;
    most = most / part->matrix->group_bytes * macs;
    uint64_t want = share > most ? most : share;
    want = want > least ? want : least;
    return (uint32_t)(want / macs + 4) / 4 * 4;
}

/* At most MAX_CHUNKS: all but the last of a part have the least that there may be, or more. */
static void cut(struct products *job, uint32_t n, uint64_t total, uint32_t threads)
{
    uint64_t left = total;
    job->chunks = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct cpu_product *part = &job->part[i];
        for (uint32_t g = 0, next; g < part->group1; g = next) {
            uint32_t groups = chunk_groups(part, left, total, threads);
            next = part->group1 - g < groups ? part->group1 : g + groups;
            job->chunk[job->chunks].part = i;
            job->chunk[job->chunks].group0 = g;
            job->chunk[job->chunks++].group1 = next;
            left -= (next - g) * group_macs(part);
        }
    }
}

void share_products(struct backend *b, const struct cpu_product *part, uint32_t n)
{
    struct products job; /* not cleared: chunks are many */
    uint32_t threads = pool_threads(b->pool);
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += group_macs(&part[i]) * part[i].group1;
    if (threads == 1 || total < SHARED_MACS) {
        for (uint32_t i = 0; i < n; i++)
            b->isa->product(&part[i]);
        return;
    }
    job.isa = b->isa;
    job.part = part;
    cut(&job, n, total, threads);
    pool_run(b->pool, run_product_chunk, &job, job.chunks);
}
