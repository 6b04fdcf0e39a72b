/* The first passes of an instance, before any request. Every kernel runs once before graphs are captured, so that what a
 * driver does on first use (load code, reserve memory for it) and what goes wrong there happens at open, outside of a
 * capture. And the self-test: no result depends on how many rows a pass has, or on which of them a row is. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/backend_cuda.h"
#include "kernels/base/fail.h"

/* Sequences of 2 positions with a page each, all of the same tokens; a pass of one row for each position is what the
 * others are compared with: 1, 2, 3, 5, 9, 17 and 33 rows, the fewest that each graph is there for, and in one kernel
 * rows with and without others of their sequence. Native numerics, whose
 * sums are the tensor cores' own, have 32 positions, so that rows share tiles of attention, and two passes without a graph
 * more: 80 rows of sequences one after the other, then of sequences in turn, the last one first. A GPU needs some
 * milliseconds for that. A slow one is let off with those that it gets done in a second of the processor's, so that a busy
 * machine tests as many; a simulated one, which may need a minute, in a tenth of that: its tests open hundreds of instances. */
enum {
    POSITIONS = 2,
    NATIVE_POSITIONS = 32,
    NATIVE_ROWS = 80,
    TURNED = 5, /* sequences in turn */
    MOST_ROWS = NATIVE_ROWS,
#ifdef HEARTH_CUDASIM
    ENOUGH_MS = 100
#else
    ENOUGH_MS = 1000
#endif
};

/* Then rows beyond one split and one page, of one sequence: one by one, and together in a graph, where the
 * device was so quick with the others; or with HEARTH_CUDA_SELF_TEST=all, which the simulator's tests set. */
enum {
    DEEP = CUDA_SPLIT + CUDA_PAGE - 4,
    DEEP_ROWS = 10,
    DEEP_PAGES = (DEEP + DEEP_ROWS + CUDA_PAGE - 1) / CUDA_PAGE,
    QUICK_MS = 100
};
_Static_assert(DEEP_ROWS <= (int)BACKEND_STATE_RECORDS && DEEP_ROWS < (int)NATIVE_POSITIONS &&
                   DEEP_ROWS > (int)CUDA_TILE,
               "the rows are recorded, and more than a tile");

struct self_test {
    struct backend *b;
    uint32_t positions;               /* of a sequence, as many as want has */
    float *want, *got;                /* [NATIVE_POSITIONS], [MOST_ROWS], each [n_vocab] */
    int32_t status[NATIVE_POSITIONS]; /* of want: a model may have numbers that are not finite */
    struct timespec begin;
    uint32_t
        deep; /* 0, or DEEP: rows before it stay, those from it on are computed again and again */
    bool all; /* whatever it takes */
    uint32_t pages[MOST_ROWS], deep_pages[DEEP_PAGES];
    struct row rows[MOST_ROWS];
    struct row_result results[MOST_ROWS];
    struct pass_sequence sequences[MOST_ROWS];
};

/* Sequences that there is memory for: pages of the class that has fewer, and states. */
static uint32_t sequences_of(const struct backend *b)
{
    const uint32_t pages = b->limits.pages, windows = b->limits.window_pages,
                   states = b->limits.states;
    const uint32_t fewer = windows > 0 && windows < pages ? windows : pages;
    return states > 0 && states < fewer ? states : fewer;
}

/* One row through every kernel, launched one by one. */
static void run_kind(struct backend *b, enum pass_kind kind)
{
    if (!cuda_has(b, kind))
        return;
    const uint32_t page = 0, token = 0, launched = CUDA_GRAPH_ROWS + 1;
    struct sampler_params params;
    sampler_params_init(&params);
    const struct row row = {.wants = ROW_SAMPLE};
    const bool drafts = kind == PASS_MTP; /* from the state that a canonical pass left */
    const struct pass_sequence sequence = {
        .pages = &page,
        .tokens = &token,
        .prompt_length = 1,
        .sampler = &params,
        .window_pages = &page,
        .state = {.from = drafts ? 0 : BACKEND_STATE_ZERO, .commit = drafts ? 0 : 1}};
    const struct pass pass = {kind, 1, &row, &sequence, NULL, 1};
    const uint32_t all = (1u << CUDA_ITEM_KINDS) - 1,
                   kinds = cuda_has_large_tiles(b) ? all : all & ~(1u << CUDA_ITEM_LARGE);
    b->next_position[0] = 1;
    b->pass = &pass;
    b->tensors = cuda_tensors(b, kind);
    cuda_plan_pass(b);
    if (!b->broken)
        cuda_upload_pass(b);
    for (uint32_t i = 0;
         i <= cuda_last_piece(b, kind) && !b->broken && (i == 0 || cuda_cut_cross(b, i)); i++)
        cuda_run_jobs(b,
                      (struct cuda_grid){kind,
                                         b->limits.rows < launched ? b->limits.rows : launched, 1,
                                         b->n_items, kinds, 1},
                      i);
    cuda_ok(b, (int)cudaStreamSynchronize(b->queue.stream), "the first pass");
    b->pass = NULL;
}

bool cuda_run_once(struct backend *b)
{
    run_kind(b, PASS_CANONICAL);
    run_kind(b, PASS_FAST);
    run_kind(b, PASS_MTP);
    return !b->broken;
}

/* ---- the self-test --------------------------------------------------------------------------- */

static struct row_result *row_of(struct self_test *t, uint32_t r, uint32_t sequence,
                                 uint32_t position)
{
    const struct model *m = t->b->model;
    t->rows[r] = (struct row){sequence, position, (m->n_vocab - 1) / (position + 1),
                              r < t->b->limits.samples ? ROW_LOGITS : 0, NULL};
    struct pass_sequence *s = &t->sequences[sequence];
    t->pages[sequence] = sequence;
    s->pages = s->window_pages = t->deep > 0 ? t->deep_pages : &t->pages[sequence];
    s->state.own = (int32_t)sequence;
    return &t->results[r];
}

static int run_rows(struct self_test *t, uint32_t n, uint32_t sequences)
{
    const enum pass_kind kind = t->b->limits.drafts ? PASS_FAST : PASS_CANONICAL;
    const struct pass pass = {kind, n, t->rows, t->sequences, t->results, sequences};
    for (uint32_t i = 0; i < sequences; i++)
        t->sequences[i].state.commit = 0;
    for (uint32_t r = 0; r < n; r++) {
        struct pass_state *state = &t->sequences[t->rows[r].sequence].state;
        if (state->commit++ == 0)
            state->from = t->rows[r].position == 0 ? BACKEND_STATE_ZERO : state->own;
    }
    const uint32_t first = t->rows[0].position;
    t->sequences[0].state.replay = t->deep > 0 && first > t->deep ? first - t->deep : 0;
    if (t->deep > 0 && first >= t->deep)
        t->sequences[0].state.commit = 0;
    const int rc = cuda_start(t->b, &pass);
    return rc ? rc : cuda_finish(t->b);
}

static bool took_less(const struct self_test *t, long ms)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (now.tv_sec - t->begin.tv_sec) * 1000 + (now.tv_nsec - t->begin.tv_nsec) / 1000000 < ms;
}

static bool is_quick(const struct self_test *t)
{
    return t->all || took_less(t, ENOUGH_MS);
}

/* One row after the other; as many as are quick, but at least two. */
static int expect(struct self_test *t)
{
    const uint32_t most = t->positions;
    int rc = 0;
    for (uint32_t p = 0; p < most && !rc && (p < POSITIONS || is_quick(t)); p++) {
        row_of(t, 0, 0, p)->logits = t->want + (size_t)p * t->b->model->n_vocab;
        rc = run_rows(t, 1, 1);
        t->status[p] = t->results[0].status;
        t->positions = p + 1;
    }
    return rc;
}

/* Is what row r gave what the same row alone gave? */
static bool same(const struct self_test *t, uint32_t r)
{
    const size_t vocab = t->b->model->n_vocab;
    const uint32_t position = t->rows[r].position - t->deep;
    const struct row_result *got = &t->results[r];
    if (got->status != t->status[position])
        return false;
    return got->status != 0 || t->rows[r].wants == 0 ||
           memcmp(t->want + position * vocab, got->logits, vocab * sizeof(float)) == 0;
}

static int run_and_compare(struct self_test *t, uint32_t n, uint32_t sequences)
{
    for (uint32_t r = 0; r < n; r++)
        t->results[r].logits = t->got + (size_t)r * t->b->model->n_vocab;
    int rc = run_rows(t, n, sequences);
    for (uint32_t r = 0; r < n && !rc; r++)
        rc = same(t, r) ? 0 : -EDOM;
    return rc;
}

/* Compares one pass of n rows, `first` in the first sequence and `whole` in each other one. Returns
 * 0, an error of the device, or -EDOM: the bits differ. */
static int compare(struct self_test *t, uint32_t n, uint32_t first, uint32_t whole)
{
    assert(whole > 0); /* a context has one position at least (contract.c) */
    for (uint32_t r = 0; r < n; r++) {
        const uint32_t behind = r - first;
        row_of(t, r, r < first ? 0 : behind / whole + 1, r < first ? r : behind % whole);
    }
    return run_and_compare(t, n, t->rows[n - 1].sequence + 1);
}

/* One pass of about n rows, of sequences in turn; none where there are too few. */
static int compare_turned(struct self_test *t, uint32_t n)
{
    const uint32_t most = n / TURNED, m = most < t->positions ? most : t->positions;
    for (uint32_t r = 0; r < m * TURNED; r++) {
        row_of(t, r, TURNED - 1 - r % TURNED, r / TURNED);
        t->rows[r].wants = r + t->b->limits.samples < m * TURNED ? 0 : ROW_LOGITS; /* the last */
    }
    return m == 0 || sequences_of(t->b) < TURNED ? 0 : run_and_compare(t, m * TURNED, TURNED);
}

/* Rows that a pass may have: of the limits, and as many as there are sequences for, `whole` rows each. */
static uint32_t rows_possible(const struct self_test *t, uint32_t n, uint32_t whole)
{
    const uint32_t sequences = sequences_of(t->b), rows = t->b->limits.rows;
    const uint32_t held = sequences > MOST_ROWS ? MOST_ROWS : (sequences - 1) * whole + 1;
    n = n < rows ? n : rows;
    return n < held ? n : held;
}

static int test_failed(const struct self_test *t, int rc, uint32_t n, const char *what, char *err,
                       size_t err_bytes)
{
    if (rc != -EDOM)
        return cuda_open_failed(t->b, err, err_bytes);
    return fail(err, err_bytes, -EIO,
                "the self-test failed: %u rows in %s give other numbers than one by one: the GPU "
                "is broken, or hearth-cuda.so is; use --device cpu",
                n, what);
}

static int test_graphs(struct self_test *t, char *err, size_t err_bytes)
{
    struct backend *b = t->b;
    int rc = 0;
    for (uint32_t i = 0; i < CUDA_GRAPH_BUCKETS && cuda_graph_exists(b, PASS_CANONICAL, i) && !rc &&
                         (i == 0 || is_quick(t));
         i++) {
        const uint32_t fewest = i == 0 ? 1 : (1u << (i - 1)) + 1,
                       n = rows_possible(t, fewest, t->positions);
        char what[32];
        snprintf(what, sizeof(what), "the graph for %u", 1u << i);
        b->least_bucket = i;
        rc = compare(t, n, i % t->positions + 1, t->positions);
        if (rc)
            return test_failed(t, rc, n, what, err, err_bytes);
    }
    b->least_bucket = 0;
    return 0;
}

/* Tiles of all kinds: as the pass has them, then every matmul in the blocks that it has in passes of
 * very many rows. */
static int compare_tiles(struct self_test *t, uint32_t n)
{
    const uint32_t processors = t->b->queue.processors;
    int rc = 0;
    for (uint32_t large = 0; large < 2 && !rc; large++) {
        t->b->queue.processors = large ? 1 : processors;
        rc = compare(t, n, n < 3 ? n : 3, t->positions);
        rc = rc ? rc : compare_turned(t, n);
    }
    t->b->queue.processors = processors;
    return rc;
}

/* Without wgmma, if that is what gives other bits. */
static int test_native(struct self_test *t, char *err, size_t err_bytes)
{
    const uint32_t n = rows_possible(t, NATIVE_ROWS, t->positions);
    struct backend *b = t->b;
    if (!b->native || !is_quick(t))
        return 0;
    int rc = compare_tiles(t, n);
    if (rc == -EDOM && b->queue.warpgroups) {
        const size_t at = strlen(b->note);
        b->queue.warpgroups = false;
        rc = compare_tiles(t, n);
        snprintf(b->note + at, sizeof(b->note) - at,
                 "%slarge matmuls are slower: this GPU's wgmma adds otherwise than its mma",
                 at > 0 ? "; " : "");
    }
    return rc ? test_failed(t, rc, n, "native numerics", err, err_bytes) : 0;
}

/* Rows before those, in passes of as many as there may be; their results are not asked for. */
static int fill_deep(struct self_test *t)
{
    const uint32_t rows = t->b->limits.rows, most = rows < MOST_ROWS ? rows : MOST_ROWS;
    int rc = 0;
    for (uint32_t at = 0, n; at < DEEP && !rc; at += n) {
        n = DEEP - at < most ? DEEP - at : most;
        for (uint32_t r = 0; r < n; r++) {
            row_of(t, r, 0, at + r);
            t->rows[r].wants = 0;
        }
        rc = run_rows(t, n, 1);
    }
    return rc;
}

static int compare_deep(struct self_test *t, uint32_t first, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        row_of(t, r, 0, DEEP + first + r);
    return run_and_compare(t, n, 1);
}

static int test_deep(struct self_test *t, char *err, size_t err_bytes)
{
    struct backend *b = t->b;
    if (b->limits.rows < DEEP_ROWS || b->limits.context < DEEP + DEEP_ROWS ||
        b->limits.pages < DEEP_PAGES ||
        (b->limits.window_pages > 0 && b->limits.window_pages < DEEP_PAGES) ||
        !(t->all || took_less(t, QUICK_MS)))
        return 0;
    t->deep = DEEP;
    for (uint32_t i = 0; i < DEEP_PAGES; i++)
        t->deep_pages[i] = DEEP_PAGES - 1 - i;
    int rc = fill_deep(t);
    for (uint32_t r = 0; r < DEEP_ROWS && !rc; r++) {
        row_of(t, 0, 0, DEEP + r)->logits = t->want + (size_t)r * b->model->n_vocab;
        rc = run_rows(t, 1, 1);
        t->status[r] = t->results[0].status;
    }
    if (rc)
        return cuda_open_failed(b, err, err_bytes);
    rc = rc ? rc : compare_deep(t, 0, DEEP_ROWS);
    rc = rc ? rc : compare_deep(t, DEEP_ROWS - 1, 1);
    return rc ? test_failed(t, rc, DEEP_ROWS, "positions beyond a split", err, err_bytes) : 0;
}

static int run_self_test(struct self_test *t, char *err, size_t err_bytes)
{
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t->begin);
    int rc = expect(t);
    if (rc)
        return cuda_open_failed(t->b, err, err_bytes);
    rc = test_graphs(t, err, err_bytes);
    rc = rc ? rc : test_native(t, err, err_bytes);
    return rc ? rc : test_deep(t, err, err_bytes);
}

int cuda_self_test(struct backend *b, char *err, size_t err_bytes)
{
    if (!cuda_has(b, PASS_CANONICAL))
        return 0;
    struct self_test *t = calloc(1, sizeof(*t));
    if (!t)
        return fail(err, err_bytes, -ENOMEM, "no memory");
    const char *whole = getenv("HEARTH_CUDA_SELF_TEST");
    t->b = b;
    t->all = whole && strcmp(whole, "all") == 0;
    t->positions = b->native ? NATIVE_POSITIONS : POSITIONS;
    t->positions = b->limits.context < t->positions ? b->limits.context : t->positions;
    t->want = malloc((size_t)NATIVE_POSITIONS * b->model->n_vocab * sizeof(*t->want));
    t->got = malloc((size_t)MOST_ROWS * b->model->n_vocab * sizeof(*t->got));
    int rc = t->want && t->got ? run_self_test(t, err, err_bytes)
                               : fail(err, err_bytes, -ENOMEM, "no memory");
    free(t->want);
    free(t->got);
    free(t);
    return rc;
}
