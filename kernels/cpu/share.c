/* share.c: how large chunks are. See share.h. */
#include "kernels/cpu/share.h"

#include "kernels/base/pool.h"

/* With less work than this, handing a chunk to another thread costs more than computing it, and
 * sharing out a matmul costs more than finishing it: waking a thread takes tens of microseconds,
 * and on a busy machine a preempted worker delays its chunk by milliseconds. Never changes a
 * bit. */
enum {
    CHUNK_MACS = 1 << 18,
    SHARED_MACS = 3 << 18,
    CHUNK_BYTES = 1 << 20,        /* bytes of weights, if many rows read them repeatedly */
    WINDOW_ROWS = 16,             /* up to this many rows, weights are read once */
    WINDOW_CHUNK_BYTES = 1 << 22, /* limits the delay by a thread that is preempted */
    CHUNK_ROWS = 48,
    CHUNK_GROUPS = 28, /* fewer only if there are few rows */
    MAX_CHUNKS = 512,
    CHUNK_VALUES = 1 << 13,
    CHUNKS_PER_THREAD = 8,
};

/* ---- items ----------------------------------------------------------------------------------- */

struct items {
    struct backend *b;
    share_item *run;
    const struct layer_op *op;
    uint32_t n, per_chunk;
};

static void run_items(void *arg, uint32_t chunk, uint32_t worker)
{
    const struct items *items = arg;
    uint32_t begin = chunk * items->per_chunk;
    uint32_t end = items->n - begin < items->per_chunk ? items->n : begin + items->per_chunk;
    for (uint32_t i = begin; i < end; i++)
        items->run(items->b, items->op, i, worker);
}

void share_items(struct backend *b, share_item *run, const struct layer_op *op, uint32_t n,
                 uint64_t values)
{
    struct items items = {b, run, op, n, n};
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

/* ---- matmuls -------------------------------------------------------------------------------- */

struct matmuls {
    struct backend *b;
    const struct cpu_matmul *part;
    share_follow *follow; /* of a pair; else NULL */
    const struct layer_op *op;
    struct matmul_chunk {
        uint32_t part, row0, row1, group0, group1;
    } chunk[MAX_CHUNKS];
    uint32_t chunks;
};

static void run_part(const struct matmuls *job, uint32_t i, const struct matmul_chunk *c)
{
    struct cpu_matmul part = job->part[i];
    part.row0 = c->row0;
    part.row1 = c->row1;
    part.group0 = c->group0;
    part.group1 = c->group1;
    job->b->isa->matmul(&part);
}

static void run_matmul_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    (void)worker;
    const struct matmuls *job = arg;
    const struct matmul_chunk *c = &job->chunk[chunk];
    run_part(job, c->part, c);
    if (!job->follow)
        return;
    run_part(job, c->part + 1, c);
    const uint32_t begin = c->group0 * CPU_LANES, end = c->group1 * CPU_LANES, n = job->op->n;
    job->follow(job->b, job->op, c->row0, c->row1, begin, (end < n ? end : n) - begin);
}

/* Multiply-adds of one group of a matmul. */
static uint64_t group_macs(const struct cpu_matmul *part)
{
    return (uint64_t)CPU_LANES * part->matrix->file.cols * part->row1;
}

/* Multiply-adds of the next chunk, when `left` of `total` are left. Large chunks first, because
 * every chunk starts by waiting for memory; small ones last, so that threads finish together. */
static uint64_t chunk_macs(const struct cpu_matmul *part, uint64_t left, uint64_t total,
                           uint32_t threads)
{
    uint64_t share = left / threads / 2;
    uint64_t least = total / (MAX_CHUNKS / 2 - SHARE_MATMULS) > CHUNK_MACS
                         ? total / (MAX_CHUNKS / 2 - SHARE_MATMULS)
                         : CHUNK_MACS;
    uint64_t most = part->row1 > WINDOW_ROWS ? CHUNK_BYTES : WINDOW_CHUNK_BYTES;
    most = most / part->matrix->group_bytes * group_macs(part);
    uint64_t want = share > most ? most : share;
    return want > least ? want : least;
}

/* Groups for about `macs`: a multiple of four, or all that are left. With many rows not too few:
 * the work that a matmul does once per row block is shared by its groups. */
static uint32_t chunk_groups(const struct cpu_matmul *part, uint32_t left, uint64_t macs)
{
    uint32_t groups = (uint32_t)(macs / group_macs(part) + 4) / 4 * 4;
    uint32_t least = part->row1 < 2 * CHUNK_ROWS ? 0 : CHUNK_GROUPS;
    groups = groups < least ? least : groups;
    return groups < left ? groups : left;
}

/* Rows for about `macs` with this many groups: a multiple of CHUNK_ROWS, or all that are left,
 * which are not fewer. */
static uint32_t chunk_rows(const struct cpu_matmul *part, uint32_t left, uint32_t groups,
                           uint64_t macs)
{
    uint64_t row_macs = group_macs(part) / part->row1 * groups;
    uint64_t rows = (macs / row_macs + CHUNK_ROWS) / CHUNK_ROWS * CHUNK_ROWS;
    return rows + CHUNK_ROWS <= left ? (uint32_t)rows : left;
}

/* Makes at most MAX_CHUNKS: every chunk has at least the minimal size, except the last of a part
 * and of groups whose rows are split. */
static void cut(struct matmuls *job, uint32_t n, uint64_t total, uint32_t threads)
{
    uint64_t left = total;
    job->chunks = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct cpu_matmul *part = &job->part[i];
        for (uint32_t g = 0, groups; g < part->group1; g += groups) {
            groups = chunk_groups(part, part->group1 - g, chunk_macs(part, left, total, threads));
            for (uint32_t row = 0, rows; row < part->row1; row += rows) {
                uint64_t macs = chunk_macs(part, left, total, threads);
                rows = chunk_rows(part, part->row1 - row, groups, macs);
                job->chunk[job->chunks++] =
                    (struct matmul_chunk){i, row, row + rows, g, g + groups};
                left -= group_macs(part) / part->row1 * rows * groups;
            }
        }
    }
}

/* Shares out the first n parts, each in one piece where they are too small. */
static void share_parts(struct matmuls *job, uint32_t n)
{
    const uint32_t threads = pool_threads(job->b->pool);
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += group_macs(&job->part[i]) * job->part[i].group1;
    if (threads > 1 && total >= SHARED_MACS) {
        cut(job, n, total, threads);
        pool_run(job->b->pool, run_matmul_chunk, job, job->chunks);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        job->chunk[0] = (struct matmul_chunk){i, 0, job->part[i].row1, 0, job->part[i].group1};
        run_matmul_chunk(job, 0, 0);
    }
}

void share_matmuls(struct backend *b, const struct cpu_matmul *part, uint32_t n)
{
    struct matmuls job; /* not cleared: the array of chunks is large */
    job.b = b;
    job.part = part;
    job.follow = NULL;
    share_parts(&job, n);
}

void share_pair(struct backend *b, const struct cpu_matmul part[2], share_follow *follow,
                const struct layer_op *op)
{
    struct matmuls job; /* the same */
    job.b = b;
    job.part = part;
    job.follow = follow;
    job.op = op;
    share_parts(&job, 1);
}
