/*
 * contract: the pass contract of kernels/backend.h on the CUDA backend, as equality with the
 * CPU: every type, number of rows, chunking, page id and neighbour; poison, refusals, samples.
 * Runs on a GPU, and on the simulator of tests/cudasim (HEARTH_PLUGINS names the folder with the
 * plugin to test). Needs no test library: a GPU machine may have none.
 *
 * The simulator takes passes of several sizes in turn instead of one size after the other (check_sizes); a GPU takes
 * everything.
 *
 * Usage:
 *
 *     contract [NAME...]     the tests whose names begin so; all without a name
 *     contract --part NAME   the tests of a part
 *     contract --list [PART] names of tests, to run each in its own process, since a failing kernel
 *                            takes its process down
 *     contract --parts       names of parts
 *
 * HEARTH_CONTRACT_FIRST=1    the first failure ends it
 *
 * Prints a line for each test; exits with 1 when one failed, with 77 when there is no device.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/device.h"
#include "kernels/kv.h"
#include "tests/gpu/contract.h"
#include "tests/rig/every_type.h"

uint32_t failures;
const char *test_name;
bool first_alone;

bool simulated(void)
{
    const char *plugins = getenv("HEARTH_PLUGINS");
    return plugins && strstr(plugins, "cudasim");
}

/* ---- one sequence, many ways ----------------------------------------------------------------- */

static void check_turns(struct subject *s, const uint32_t *sizes, uint64_t page_seed,
                        const char *what)
{
    uint32_t pages[SUBJECT_PAGES];
    float *got = subject_floats(s, s->n);
    subject_pages(page_seed, pages);
    subject_logits(s, &s->device, subject_backend(s), s->tokens, s->n, sizes, pages, got);
    const size_t n = (size_t)s->n * s->model->n_vocab, at = subject_differs(s->logits, got, n);
    const double have = at < n ? (double)got[at] : 0, want = at < n ? (double)s->logits[at] : 0;
    free(got);
    EXPECT(at == n, "%s, chunks of %u: row %zu differs at token %zu: %a for %a", what, sizes[0],
           at / s->model->n_vocab, at % s->model->n_vocab, have, want);
}

void check_chunks(struct subject *s, uint32_t chunk, uint64_t page_seed, const char *what)
{
    check_turns(s, (uint32_t[]){chunk, 0}, page_seed, what);
}

void check_sizes(struct subject *s, const uint32_t *sizes, uint64_t page_seed, const char *what)
{
    if (simulated()) {
        check_turns(s, sizes, page_seed, what);
        return;
    }
    for (uint32_t i = 0; sizes[i] > 0; i++)
        check_chunks(s, sizes[i], page_seed + i, what);
}

static void every_type_gives_the_same_bits(void)
{
    static const uint32_t types[] = {WRITTEN_TYPES, FLOAT_TYPES, TINY_MIXED,
                                     TINY_MIXED_K,  READ_TYPES,  TINY_MIXED_SMALL};
    for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct tiny_model shape = tiny_model_default(types[i]);
        struct subject s;
        char what[32];
        snprintf(what, sizeof(what), "type %u", types[i]);
        shape.arch = i % 3 == 2 ? "gemma3" : "llama";
        shape.untied = i % 2;
        shape.seed = 100 + i;
        subject_init(&s, &shape, 50);
        check_sizes(&s, (uint32_t[]){i % 2 ? 13 : 7, 1, 40, 0}, i, what);
        subject_fini(&s);
    }
}

/* More rows than a graph holds: matmuls in blocks of 256 outputs and 64 or 32 rows, the last ones
 * with fewer (on a device of three SMs; one with more uses them for larger models). */
static void many_rows_of_every_type_give_the_same_bits(void)
{
    static const uint32_t types[] = {WRITTEN_TYPES, QUANT_BF16, TINY_MIXED,
                                     TINY_MIXED_K,  READ_TYPES, TINY_MIXED_SMALL};
    for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct tiny_model shape = tiny_model_default(types[i]);
        struct subject s;
        char what[32];
        snprintf(what, sizeof(what), "type %u", types[i]);
        shape.arch = i % 3 == 1 ? "gemma3" : "llama";
        shape.n_layer = 1;
        shape.untied = i % 2;
        shape.seed = 900 + i;
        if (types[i] == QUANT_Q5_1) { /* partial segments */
            shape.n_embd = 288;
            shape.n_ff = 544;
        }
        subject_init(&s, &shape, 139);
        check_sizes(&s, (uint32_t[]){i % 2 ? 67 : 77, i % 2 ? 139 : 137, 0}, i, what);
        subject_fini(&s);
    }
}

/* The same where a real device uses those blocks: a layer so wide that every SM gets one. A GPU
 * needs a second for all types; the simulator stops after those it finishes in time. */
static void wide_layers_give_the_same_bits(void)
{
    static const uint32_t types[] = {QUANT_Q4_0, QUANT_Q8_0,  QUANT_Q6_K,   QUANT_Q4_K,
                                     QUANT_Q5_1, QUANT_MXFP4, QUANT_IQ4_XS, QUANT_Q2_K,
                                     QUANT_Q3_K, QUANT_Q5_K,  QUANT_Q5_0};
    const time_t begin = time(NULL);
    for (uint32_t i = 0; i < 22 && time(NULL) - begin < 5; i++) {
        struct tiny_model shape = tiny_model_default(types[i / 2]);
        struct subject s;
        char what[32];
        snprintf(what, sizeof(what), "wide, type %u", types[i / 2]);
        shape.n_layer = 1;
        shape.n_ff = i % 2 ? 8192 : 4096; /* 64 rows a block, or 32 */
        shape.n_vocab = TINY_MIN_VOCAB;
        shape.seed = 950 + i;
        subject_init(&s, &shape, 270);
        check_chunks(&s, 270, i, what);
        subject_fini(&s);
    }
}

static void every_number_of_rows_gives_the_same_bits(void)
{
    static const uint32_t rows[] = {1,  2,  3,  5,  8,  9,  12, 16, 17, 24,
                                    31, 32, 33, 48, 63, 64, 65, 72, 0};
    struct tiny_model shape = tiny_model_default(QUANT_Q4_0);
    struct subject s;
    subject_init(&s, &shape, simulated() ? 505 : 72); /* the sum of all sizes */
    check_sizes(&s, rows, 1, "Q4_0");
    subject_fini(&s);
}

static void every_architecture_gives_the_same_bits(void)
{
    static const char *const archs[] = {
        "llama",        "qwen2",    "qwen3",    "gemma3",         "granite",       "smollm3",
        "phi3",         "mistral3", "qwen3moe", "qwen2moe",       "glm4moe",       "granitemoe",
        "ernie4_5-moe", "gpt-oss",  "gemma4",   "gemma4-experts", "gemma4-inputs", "gemma4-all",
        "seed_oss",     "ernie4_5", "glm4",     "dots1",          "exaone4",       "olmo2"};
    enum { N = sizeof(archs) / sizeof(archs[0]) };
    static const uint32_t types[] = {QUANT_Q8_0, QUANT_BF16};
    for (uint32_t i = 0; i < 2 * N; i++) {
        struct tiny_model shape = tiny_model_default(types[i / N]);
        struct subject s;
        shape.n_layer = i % N == 5 ? 4 : 2; /* the fourth of smollm3 has no rope */
        tiny_model_as(&shape, archs[i % N]);
        shape.freqs = i % 3 == 0;
        shape.head_dim = i < N ? 0 : strcmp(shape.arch, "gemma4") == 0 ? 48 : 24;
        shape.seed = 400 + i;
        subject_init(&s, &shape, 40);
        if (i == N + 3) { /* as in the largest gemma3, too large for a test */
            s.model->score_scale = 1.0f / sqrtf(20.0f);
            subject_expect(&s);
        }
        check_chunks(&s, 9, i, archs[i % N]);
        subject_fini(&s);
    }
}

static void odd_shapes_give_the_same_bits(void)
{
    struct tiny_model shape;
    for (uint32_t at = 0, i = 0; next_odd_shape(ODD_PORTABLE, &at, &shape); i++) {
        struct subject s;
        char what[32];
        snprintf(what, sizeof(what), "shape %u", i);
        shape.seed = 200 + i;
        subject_init(&s, &shape, 11);
        check_chunks(&s, i % 2 ? 1 : 4, i, what);
        subject_fini(&s);
    }
}

/* Several splits of attention: in one pass, in passes of few rows, then single rows; in windows
 * that begin after splits, and within them. */
static void long_contexts_give_the_same_bits(void)
{
    static const struct {
        uint32_t type;
        const char *arch;
        uint32_t window;
        bool sinks;
    } kinds[] = {{QUANT_Q8_0, "llama", 0, false},
                 {QUANT_F32, "llama", 0, true},
                 {QUANT_Q8_0, "gemma3", 20, false},
                 {QUANT_F32, "gemma3", 300, false},
                 {QUANT_Q8_0, "gemma3", 128, true}};
    for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct tiny_model shape = tiny_model_default(kinds[i].type);
        struct subject s;
        shape.arch = kinds[i].arch;
        shape.window = kinds[i].window;
        shape.sinks = kinds[i].sinks;
        shape.n_layer = 1;
        shape.n_context = 1024;
        subject_init(&s, &shape, 530);
        check_sizes(&s, (uint32_t[]){248, 265, 16, 1, 0}, 3, "long");
        subject_fini(&s);
    }
}

/* Heads of whole blocks, of less than one, of some and a remainder, of the largest size; models of
 * every KV type. */
static void q8_0_kv_gives_the_same_bits(void)
{
    static const struct {
        uint32_t type, head_dim;
        const char *arch;
    } kinds[] = {{QUANT_Q8_0, 0, "llama"},  {QUANT_Q4_0, 64, "qwen2"}, {QUANT_F32, 40, "qwen3"},
                 {QUANT_BF16, 80, "llama"}, {QUANT_F16, 2, "llama"},   {QUANT_F32, 256, "qwen3"}};
    for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct tiny_model shape = tiny_model_default(kinds[i].type);
        struct subject s;
        char what[32];
        snprintf(what, sizeof(what), "q8_0 KV, kind %u", i);
        shape.arch = kinds[i].arch;
        shape.head_dim = kinds[i].head_dim;
        shape.kv_q8_0 = true;
        shape.seed = 700 + i;
        subject_init(&s, &shape, 40);
        check_sizes(&s, (uint32_t[]){i % 2 ? 5 : 11, i % 2 ? 40 : 33, 0}, i, what);
        subject_fini(&s);
    }
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct subject s;
    shape.n_layer = 1;
    shape.n_context = 1024;
    shape.kv_q8_0 = true;
    subject_init(&s, &shape, 530);
    check_sizes(&s, (uint32_t[]){265, 16, 0}, 3, "long, q8_0 KV");
    subject_fini(&s);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Heads of every kind: from 1 query per KV head to more than a tile holds, sizes that fill no lane
 * and no page's share, every KV type, with sinks and without. context: the context that the instance
 * and its splits are sized for. window: that of gemma3's first layer, which is local; 0: a layer of
 * qwen3. */
static const struct {
    uint32_t type, n_head, n_head_kv, head_dim, context;
    bool kv_q8_0;
    uint32_t window;
    uint32_t v_dim; /* 0: head_dim */
    bool sinks;
} head_kinds[HEAD_KINDS] = {
    {QUANT_F16, 4, 1, 64, 4096, false, 0, 0, true},
    {QUANT_F16, 4, 2, 24, 512, true, 3, 0, false},
    {QUANT_F32, 6, 2, 130, 512, false, 0, 0, false},
    {QUANT_BF16, 40, 1, 2, 4096, false, 0, 0, false},
    {QUANT_F16, 2, 2, 256, 512, false, 250, 0, false},
    {QUANT_F32, 7, 1, 130, 2048, true, 33, 0, true},
    {QUANT_F16, 8, 1, 80, 512, true, 0, 0, false},
    {QUANT_F32, 1, 1, 256, 4096, true, 0, 0, false},
    {QUANT_Q8_0, 4, 4, 24, 512, false, 40, 0, true},
    {QUANT_F16, 4, 2, 64, 512, false, 40, 140, false},
    {QUANT_F16, 6, 2, 192, 512, true, 0, 26, true},
};

void subject_of_heads(uint32_t kind, uint32_t n, struct subject *s)
{
    struct tiny_model shape = tiny_model_default(head_kinds[kind].type);
    shape.window = head_kinds[kind].window;
    shape.arch = shape.window ? "gemma3" : "qwen3";
    shape.n_layer = 1;
    shape.n_embd = shape.n_ff = 32;
    shape.n_vocab = TINY_MIN_VOCAB;
    shape.n_head = head_kinds[kind].n_head;
    shape.n_head_kv = head_kinds[kind].n_head_kv;
    shape.head_dim = head_kinds[kind].head_dim;
    shape.v_dim = head_kinds[kind].v_dim;
    shape.sinks = head_kinds[kind].sinks;
    shape.n_context = head_kinds[kind].context;
    shape.kv_q8_0 = head_kinds[kind].kv_q8_0;
    shape.seed = 800 + kind;
    subject_init(s, &shape, n);
}

/* Two sequences of the same tokens in windows of all sizes in one pass, past the end of a split; on the simulator one of
 * them ends sooner. */
void check_windows(struct subject *s, struct backend *b, uint32_t kind)
{
    static const uint32_t sizes[] = {70, 1, 33, 9, 2, 5, 16, 64, 3, 13, 24};
    struct mixed *x = calloc(1, sizeof(*x));
    float *got = subject_floats(s, 2 * s->n);
    const uint32_t ends[] = {s->n, simulated() ? s->n / 3 : s->n};
    uint32_t pages[SUBJECT_PAGES], done[2] = {0}, turn = kind;
    int rc = x ? 0 : -ENOMEM;
    subject_pages(kind, pages);
    while (rc == 0 && done[0] + done[1] < ends[0] + ends[1]) {
        x->n = 0;
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t n = sizes[turn++ % (sizeof(sizes) / sizeof(sizes[0]))];
            n = n < ends[i] - done[i] ? n : ends[i] - done[i];
            n = n < MOST_ROWS - x->n ? n : MOST_ROWS - x->n;
            x->sequences[i].pages = pages + 10 * i;
            for (uint32_t r = 0; r < n; r++)
                x->results[x->n + r].logits =
                    got + ((size_t)i * s->n + done[i] + r) * s->model->n_vocab;
            add_rows(x, i, s->tokens, done[i], n, ROW_LOGITS);
            done[i] += n;
        }
        rc = run_mixed(s, b, x, PASS_CANONICAL);
    }
    const size_t vocab = s->model->n_vocab;
    size_t at = 0;
    uint32_t i = 0;
    for (; i < 2 && rc == 0; i++) {
        at = subject_differs(s->logits, got + i * s->n * vocab, ends[i] * vocab);
        if (at < ends[i] * vocab)
            break;
    }
    free(got);
    free(x);
    EXPECT(rc == 0, "heads %u: a pass failed: %d", kind, rc);
    EXPECT(i == 2, "heads %u: row %zu of sequence %u differs at token %zu", kind, at / vocab, i,
           at % vocab);
}

static void windows_of_every_head_give_the_same_bits(void)
{
    for (uint32_t i = 0; i < HEAD_KINDS; i++) {
        struct subject s;
        subject_of_heads(i, 277, &s);
        struct backend *b = subject_open(&s, &s.device, MOST_ROWS, SUBJECT_PAGES);
        check_windows(&s, b, i);
        s.device.close(b);
        subject_fini(&s);
    }
}

/* More factors of queries than the tables of rope have numbers: one for twelve positions, beside
 * two values of a head that turn. */
static void queries_that_grow_often_give_the_same_bits(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct subject s;
    shape.arch = "mistral3";
    shape.n_layer = 1;
    shape.n_embd = shape.n_ff = 32;
    shape.n_head = shape.n_head_kv = 16;
    shape.head_dim = 2;
    shape.n_vocab = TINY_MIN_VOCAB;
    shape.n_context = 1 << 17;
    shape.seed = 870;
    subject_init(&s, &shape, 40);
    check_chunks(&s, 20, 0, "mistral3");
    subject_fini(&s);
}

/* Layers with heads of two sizes, of which the larger have no large tiles, with windows in every second layer; with layers
 * that read the KV of others, too. */
static void windows_of_gemma4_give_the_same_bits(void)
{
    static const char *const archs[] = {"gemma4", "gemma4-all"};
    for (uint32_t i = 0; i < 2; i++) {
        struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
        struct subject s;
        tiny_model_as(&shape, archs[i]);
        shape.n_embd = shape.n_ff = 32;
        shape.n_vocab = TINY_MIN_VOCAB;
        shape.head_dim = i == 0 ? 272 : 48;
        shape.kv_q8_0 = i == 1;
        shape.seed = 860 + i;
        subject_init(&s, &shape, 277);
        struct backend *b = subject_open(&s, &s.device, MOST_ROWS, SUBJECT_PAGES);
        check_windows(&s, b, i);
        s.device.close(b);
        subject_fini(&s);
    }
}

/* Positions [from, s->n) in passes of n rows, of which the simulator takes 8, continuing what the pages hold, with another
 * first page. */
static void check_other_page(struct subject *s, struct backend *b, uint32_t *pages, uint32_t from,
                             uint32_t n)
{
    struct mixed x = {.n = 0};
    uint32_t wrong = 0;
    int rc = 0;
    const size_t vocab = s->model->n_vocab;
    float *got = subject_floats(s, n);
    for (uint32_t i = 0; i <= OTHERS; i++)
        x.sequences[i].pages = pages;
    add_rows(&x, 0, s->tokens, 0, from, 0);
    rc = run_mixed(s, b, &x, PASS_CANONICAL);
    const uint32_t own = pages[0];
    pages[0] = SUBJECT_PAGES - 1; /* never written */
    for (uint32_t at = from; at < s->n && rc == 0; at += n) {
        if (simulated() && at == from + 8 * n)
            break;
        x.n = 0;
        for (uint32_t r = 0; r < n && at + r < s->n; r++)
            x.results[r].logits = got + r * vocab;
        add_rows(&x, 0, s->tokens, at, s->n - at < n ? s->n - at : n, ROW_LOGITS);
        rc = run_mixed(s, b, &x, PASS_CANONICAL);
        wrong += subject_differs(s->logits + at * vocab, got, x.n * vocab) != x.n * vocab;
    }
    pages[0] = own;
    free(got);
    EXPECT(rc == 0 && wrong == 0, "%u of the passes of %u rows are wrong (%d)", wrong, n, rc);
}

/* A page before every row's window is not read: an unwritten one in its place changes nothing, and
 * the simulator would report a read of it. */
static void pages_before_a_window_are_not_read(void)
{
    static const uint32_t types[] = {QUANT_Q8_0, QUANT_F32}, rows[] = {1, 6, 20, 70};
    for (uint32_t i = 0; i < 2; i++) {
        struct tiny_model shape = tiny_model_default(types[i]);
        struct subject s;
        uint32_t pages[SUBJECT_PAGES];
        shape.arch = "gemma3";
        shape.n_layer = 1;
        subject_init(&s, &shape, 122);
        struct backend *b = subject_open(&s, &s.device, MOST_ROWS, SUBJECT_PAGES);
        subject_pages(0, pages);
        for (uint32_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
            check_other_page(&s, b, pages, 52, rows[k]);
        s.device.close(b);
        subject_fini(&s);
    }
}

/* The instance's window pages are as many as one pass of `chunk` rows needs, and are used again as soon as no window
 * reaches them. */
static void check_window_pages(struct subject *s, uint32_t chunk, const char *what)
{
    const uint32_t window = kv_window(s->model), n_windows = kv_pages(window + chunk) + 1;
    const struct backend_limits limits = {.rows = chunk,
                                          .samples = chunk,
                                          .pages = SUBJECT_PAGES,
                                          .window_pages = n_windows,
                                          .context = s->model->n_context,
                                          .threads = 2,
                                          .kv_q8_0 = s->kv_q8_0,
                                          .native = s->native};
    uint32_t pages[SUBJECT_PAGES], windows[SUBJECT_PAGES];
    float *got = subject_floats(s, s->n);
    struct backend *b = NULL;
    char err[256] = "";
    int rc = s->device.open(s->model, &limits, &b, err, sizeof(err));
    EXPECT(rc == 0, "%s", err);
    subject_pages(7, pages);
    for (uint32_t at = 0; at < s->n && rc == 0; at += chunk) {
        const uint32_t n = s->n - at < chunk ? s->n - at : chunk;
        struct row rows[MOST_ROWS];
        struct row_result results[MOST_ROWS];
        const struct pass_sequence sequence = {.pages = pages, .window_pages = windows};
        const struct pass pass = {PASS_CANONICAL, n, rows, &sequence, results, 1};
        for (uint32_t i = 0; i < SUBJECT_PAGES; i++)
            windows[i] = i < kv_window_begin(window, at) ? UINT32_MAX : i % n_windows;
        for (uint32_t r = 0; r < n; r++) {
            rows[r] = (struct row){0, at + r, s->tokens[at + r], ROW_LOGITS, NULL};
            results[r].logits = got + (size_t)(at + r) * s->model->n_vocab;
        }
        rc = s->device.start(b, &pass);
        rc = rc ? rc : s->device.finish(b);
    }
    const size_t all = (size_t)s->n * s->model->n_vocab, at = subject_differs(s->logits, got, all);
    s->device.close(b);
    free(got);
    EXPECT(rc == 0 && at == all, "%s, passes of %u: row %zu differs at token %zu", what, chunk,
           at / s->model->n_vocab, at % s->model->n_vocab);
}

static void window_pages_give_the_same_bits(void)
{
    static const uint32_t types[] = {QUANT_Q8_0, QUANT_F32, QUANT_F16}, rows[] = {1, 7, 40},
                          windows[] = {20, 33, 64};
    for (uint32_t i = 0; i < 3; i++) {
        struct tiny_model shape = tiny_model_default(types[i]);
        struct subject s;
        shape.arch = "gemma3";
        shape.window = windows[i];
        shape.kv_q8_0 = i == 2;
        subject_init(&s, &shape, simulated() && i == 0 ? 90 : 150);
        for (uint32_t k = 0; k < 3; k++)
            if (k == i || !simulated())
                check_window_pages(&s, rows[k], "window pages");
        subject_fini(&s);
    }
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* `count` sequences of the same tokens, a row of each in a pass: each row reads its own keys. The
 * first of two goes past the end of a split. */
enum { MOST_DECODING = 16, DECODED = 7, DECODED_SIMULATED = 4 };

struct decoding {
    struct row rows[MOST_ROWS];
    struct row_result results[MOST_ROWS];
    struct pass_sequence sequences[MOST_DECODING];
};

static uint32_t decoding_from(uint32_t count, uint32_t sequence)
{
    return count == 2 ? 253 - 240 * sequence : 3 * sequence;
}

/* Prefills each sequence by itself, up to MOST_ROWS rows at once. */
static int fill_before(struct subject *s, struct backend *b, struct decoding *x, uint32_t count)
{
    int rc = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t end = decoding_from(count, i);
        for (uint32_t at = 0; at < end && rc == 0; at += MOST_ROWS) {
            const uint32_t n = end - at < MOST_ROWS ? end - at : MOST_ROWS;
            for (uint32_t r = 0; r < n; r++)
                x->rows[r] = (struct row){i, at + r, s->tokens[at + r], 0, NULL};
            struct pass pass = {PASS_CANONICAL, n, x->rows, x->sequences, x->results, count};
            rc = s->device.start(b, &pass);
            rc = rc ? rc : s->device.finish(b);
        }
    }
    return rc;
}

static void check_decoding(struct subject *s, struct backend *b, uint32_t count, uint32_t kind)
{
    struct decoding *x = calloc(1, sizeof(*x));
    float *got = subject_floats(s, count);
    uint32_t pages[SUBJECT_PAGES], wrong = 0;
    const size_t n = s->model->n_vocab;
    const uint32_t steps = simulated() ? DECODED_SIMULATED : DECODED;
    if (!x)
        abort();
    subject_pages(kind, pages);
    for (uint32_t i = 0; i < count; i++)
        x->sequences[i].pages = pages + SUBJECT_PAGES / count * i;
    int rc = fill_before(s, b, x, count);
    for (uint32_t step = 0; step < steps && rc == 0; step++) {
        for (uint32_t r = 0; r < count; r++) { /* the last sequence first */
            const uint32_t i = count - 1 - r, position = decoding_from(count, i) + step;
            x->rows[r] = (struct row){i, position, s->tokens[position], ROW_LOGITS, NULL};
            x->results[r].logits = got + r * n;
        }
        struct pass pass = {PASS_CANONICAL, count, x->rows, x->sequences, x->results, count};
        rc = s->device.start(b, &pass);
        rc = rc ? rc : s->device.finish(b);
        for (uint32_t r = 0; r < count; r++)
            wrong += subject_differs(s->logits + x->rows[r].position * n, got + r * n, n) != n;
    }
    free(got);
    free(x);
    EXPECT(rc == 0, "heads %u: a pass failed: %d", kind, rc);
    EXPECT(wrong == 0, "heads %u: %u of %u rows differ in passes of %u", kind, wrong, count * steps,
           count);
}

static void decoding_side_by_side_gives_the_same_bits(void)
{
    static const uint32_t counts[] = {2, 16, 7, 9};
    for (uint32_t i = 0; i < HEAD_KINDS; i++) {
        struct subject s;
        subject_of_heads(i, 277, &s);
        struct backend *b = subject_open(&s, &s.device, MOST_ROWS, SUBJECT_PAGES);
        check_decoding(&s, b, 2, i);
        check_decoding(&s, b, counts[i % 4], i);
        s.device.close(b);
        subject_fini(&s);
    }
}

/* ---- rows of several sequences --------------------------------------------------------------- */

void add_rows(struct mixed *x, uint32_t sequence, const uint32_t *tokens, uint32_t position,
              uint32_t count, uint32_t wants)
{
    for (uint32_t i = 0; i < count; i++)
        x->rows[x->n++] = (struct row){sequence, position + i, tokens[position + i], wants, NULL};
}

int run_mixed(struct subject *s, struct backend *b, struct mixed *x, enum pass_kind kind)
{
    struct pass pass = {kind, x->n, x->rows, x->sequences, x->results, 1 + OTHERS};
    int rc = s->device.start(b, &pass);
    return rc ? rc : s->device.finish(b);
}

/* A sequence is checked while others decode and prefill in the same passes, their rows interleaved;
 * each position was first written by rejected drafts. */
void check_neighbours(const struct tiny_model *shape, bool native)
{
    struct subject s;
    uint32_t tokens[OTHERS][SUBJECT_TOKENS], pages[SUBJECT_PAGES], done[OTHERS] = {0}, position = 0;
    uint64_t seed = 5;
    subject_init(&s, shape, 70);
    if (native)
        subject_go_native(&s, 7);
    subject_pages(11, pages);
    for (uint32_t i = 0; i < OTHERS; i++)
        subject_random_tokens(40 + i, s.model, tokens[i], SUBJECT_TOKENS);
    float *got = subject_floats(&s, s.n);
    struct backend *b = subject_open(&s, &s.device, MOST_ROWS, SUBJECT_PAGES);
    struct mixed x = {.n = 0};
    for (uint32_t i = 0; i <= OTHERS; i++)
        x.sequences[i].pages = pages + 8 * i;
    int rc = 0;
    while (position < s.n && rc == 0) {
        uint32_t mine = 1 + (uint32_t)(subject_random(&seed) % 9);
        mine = mine < s.n - position ? mine : s.n - position;
        x.n = 0;
        add_rows(&x, 0, tokens[1], position, mine, 0); /* drafts, all rejected */
        rc = run_mixed(&s, b, &x, PASS_FAST);
        x.n = 0;
        for (uint32_t i = 0; i < mine; i++) {
            const uint32_t other = (uint32_t)(subject_random(&seed) % OTHERS);
            const uint32_t count = (uint32_t)(subject_random(&seed) % 5);
            if (i == 0 || x.rows[x.n - 1].sequence == 0) {
                add_rows(&x, 1 + other, tokens[other], done[other], count, 0);
                done[other] += count;
            }
            x.results[x.n].logits = got + (size_t)(position + i) * s.model->n_vocab;
            add_rows(&x, 0, s.tokens, position + i, 1, ROW_LOGITS);
        }
        rc = rc ? rc : run_mixed(&s, b, &x, PASS_CANONICAL);
        position += mine;
    }
    const size_t n = (size_t)s.n * s.model->n_vocab, at = subject_differs(s.logits, got, n);
    s.device.close(b);
    free(got);
    subject_fini(&s);
    EXPECT(rc == 0, "a pass failed: %d", rc);
    EXPECT(at == n, "row %zu differs", at / shape->n_vocab);
}

/* With local and global layers, and sinks. */
static void other_sequences_never_change_a_bit(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q4_0);
    shape.arch = "gemma3";
    shape.sinks = true;
    check_neighbours(&shape, false);
}

static void two_instances_do_not_disturb_each_other(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q4_0), other = tiny_model_default(QUANT_F32);
    struct subject a, c;
    other.head_dim = 256; /* its kernels use more shared memory than the other's */
    subject_init(&a, &shape, 20);
    subject_init(&c, &other, 20);
    struct backend *b = subject_open(&c, &c.device, 20, SUBJECT_PAGES);
    float *got = subject_floats(&c, c.n);
    uint32_t pages[SUBJECT_PAGES];
    subject_pages(2, pages);
    subject_logits(&c, &c.device, b, c.tokens, 10, (uint32_t[]){5, 0}, pages, got);
    check_chunks(&a, 5, 1, "beside another");
    subject_logits(&c, &c.device, b, c.tokens, 20, (uint32_t[]){5, 0}, pages, got);
    const size_t n = (size_t)c.n * c.model->n_vocab, at = subject_differs(c.logits, got, n);
    c.device.close(b);
    free(got);
    subject_fini(&a);
    subject_fini(&c);
    EXPECT(at == n, "row %zu differs", at / other.n_vocab);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* The part that a test belongs to, whose tests tests/run.sh runs in a process of their own. */
#define TEST(part, name)                                                                           \
    {                                                                                              \
#part, #name, name                                                                         \
    }
static const struct test {
    const char *part, *name;
    void (*run)(void);
} tests[] = {
    TEST(types, every_type_gives_the_same_bits),
    TEST(types, many_rows_of_every_type_give_the_same_bits),
    TEST(types, wide_layers_give_the_same_bits),
    TEST(shapes, every_number_of_rows_gives_the_same_bits),
    TEST(shapes, every_architecture_gives_the_same_bits),
    TEST(shapes, odd_shapes_give_the_same_bits),
    TEST(shapes, long_contexts_give_the_same_bits),
    TEST(heads, q8_0_kv_gives_the_same_bits),
    TEST(heads, windows_of_every_head_give_the_same_bits),
    TEST(heads, windows_of_gemma4_give_the_same_bits),
    TEST(heads, queries_that_grow_often_give_the_same_bits),
    TEST(heads, pages_before_a_window_are_not_read),
    TEST(heads, window_pages_give_the_same_bits),
    TEST(heads, decoding_side_by_side_gives_the_same_bits),
    TEST(heads, other_sequences_never_change_a_bit),
    TEST(heads, two_instances_do_not_disturb_each_other),
    TEST(pages, pages_are_those_of_the_cpu),
    TEST(pages, released_pages_are_given_back),
    TEST(pages, released_states_are_given_back),
    TEST(pages, pages_stay_where_memory_cannot_be_given_back),
    TEST(pages, a_page_without_memory_breaks_its_instance),
    TEST(experts, experts_of_every_type_give_the_same_bits),
    TEST(experts, experts_of_odd_shapes_give_the_same_bits),
    TEST(experts, tied_experts_are_the_first),
    TEST(experts, a_graph_serves_every_routing),
    TEST(experts, rows_that_share_experts_never_change_a_bit),
    TEST(experts, a_nonfinite_score_poisons_at_its_layer),
    TEST(cut, experts_on_the_cpu_give_the_same_bits),
    TEST(cut, experts_of_odd_shapes_on_the_cpu_give_the_same_bits),
    TEST(cut, neighbours_of_experts_on_the_cpu_never_change_a_bit),
    TEST(cut, native_passes_take_experts_of_the_cpu),
    TEST(cut, a_nonfinite_expert_on_the_cpu_poisons_at_its_layer),
    TEST(cut, a_cut_pass_that_fails_breaks_its_instance),
    TEST(cut, a_model_that_does_not_fit_is_refused_in_one_line),
    TEST(states, recurrent_layers_of_every_type_give_the_same_bits),
    TEST(states, recurrent_layers_of_odd_shapes_give_the_same_bits),
    TEST(states, short_convolutions_give_the_same_bits),
    TEST(states, mamba_layers_give_the_same_bits),
    TEST(states, every_division_of_a_text_gives_the_same_bits),
    TEST(states, texts_that_share_a_state_give_the_same_bits),
    TEST(states, states_are_described),
    TEST(states, a_poisoned_row_spoils_its_own_state_alone),
    TEST(states, a_nonfinite_number_of_a_recurrent_layer_poisons_it),
    TEST(mtp, drafts_of_the_next_token_layer_are_the_cpus),
    TEST(mtp, native_drafts_of_the_next_token_layer_are_always_the_same),
    TEST(mtp, a_poisoned_draft_poisons_no_other_row),
    TEST(mtp, a_draft_model_has_no_next_token_layer),
    TEST(native, native_rows_do_not_depend_on_their_pass),
    TEST(native, native_rows_of_every_type_do_not_depend_on_their_pass),
    TEST(native, native_rows_of_odd_shapes_do_not_depend_on_their_pass),
    TEST(native, native_windows_of_every_head_do_not_depend_on_their_pass),
    TEST(native, native_long_contexts_do_not_depend_on_their_pass),
    TEST(native, native_rows_do_not_depend_on_their_neighbours),
    TEST(native, native_rows_do_not_read_later_positions),
    TEST(native, native_rows_do_not_read_before_their_window),
    TEST(native, native_experts_do_not_depend_on_their_pass),
    TEST(native, native_recurrent_layers_do_not_depend_on_their_pass),
    TEST(native, a_wgmma_that_adds_otherwise_is_not_used),
    TEST(native, native_numerics_have_their_own_id),
    TEST(native, native_rows_are_poisoned_beyond_f16),
    TEST(fast, fast_passes_are_near_and_leave_canonical_bits),
    TEST(fast, a_draft_model_runs_fast_passes),
    TEST(fast, cublas_is_opened_only_where_needed),
    TEST(fast, matmuls_of_many_rows_use_cublas),
    TEST(fast, rows_are_poisoned_after_cublas_too),
    TEST(fast, a_missing_cublas_is_reported),
    TEST(samples, a_row_samples_from_its_own_logits),
    TEST(samples, a_pass_may_sample_some_of_its_rows),
    TEST(samples, samples_of_every_kind_equal_the_cpus),
    TEST(samples, samples_of_a_large_vocabulary_equal_the_cpus),
    TEST(samples, samples_cut_first_by_a_share_equal_the_cpus),
    TEST(samples, top_p_rounds_its_share_up),
    TEST(samples, invalid_parameters_are_answered_as_by_the_cpu),
    TEST(samples, a_nonfinite_logit_poisons_its_row),
    TEST(ends, a_bad_row_poisons_its_sequence_only),
    TEST(ends, a_key_beyond_f16_poisons_at_its_layer),
    TEST(ends, a_nonfinite_normed_part_poisons_at_its_layer),
    TEST(ends, a_nonfinite_sink_or_bias_poisons_at_its_layer),
    TEST(ends, bad_passes_and_limits_are_refused),
    TEST(ends, a_pass_uploads_only_its_own_rows),
    TEST(ends, a_pass_of_few_rows_is_one_launch),
    TEST(ends, the_self_test_goes_beyond_a_split),
    TEST(ends, a_broken_instance_stays_broken),
    TEST(ends, a_lost_device_lets_every_call_return),
};
enum { TESTS = sizeof(tests) / sizeof(tests[0]) };

/* Names of tests, of a part or all (NULL). */
static int list_tests(const char *part)
{
    for (uint32_t i = 0; i < TESTS; i++)
        if (!part || strcmp(tests[i].part, part) == 0)
            puts(tests[i].name);
    return 0;
}

static int list_parts(void)
{
    for (uint32_t i = 0; i < TESTS; i++)
        if (i == 0 || strcmp(tests[i].part, tests[i - 1].part) != 0)
            puts(tests[i].part);
    return 0;
}

static bool wanted(const struct test *test, int argc, char **argv)
{
    bool any = argc < 2;
    if (argc == 3 && strcmp(argv[1], "--part") == 0)
        return strcmp(test->part, argv[2]) == 0;
    for (int i = 1; i < argc; i++)
        any = any || strncmp(test->name, argv[i], strlen(argv[i])) == 0;
    return any;
}

static void run_test(const struct test *test)
{
    const uint32_t before = failures;
    test_name = test->name;
    test->run();
    printf("%s %s\n", failures == before ? "pass" : "FAIL", test->name);
}

int main(int argc, char **argv)
{
    struct device device;
    char err[512];
    uint32_t n = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    first_alone = getenv("HEARTH_CONTRACT_FIRST") != NULL;
    if (argc > 1 && strcmp(argv[1], "--list") == 0)
        return list_tests(argv[2]);
    if (argc == 2 && strcmp(argv[1], "--parts") == 0)
        return list_parts();
    if (device_choose(DEVICE_CUDA, &device, err, sizeof(err))) {
        printf("skip: %s\n", err);
        return 77;
    }
    subject_device = device.ops;
    for (const struct test *test = tests; test < tests + TESTS; test++) {
        if (!wanted(test, argc, argv))
            continue;
        n++;
        run_test(test);
    }
    if (failures == 0 && n > 0)
        printf("ok: %u tests of the pass contract\n", n);
    return failures != 0 || n == 0;
}
