/* The pass contract on the CPU: a row's bits depend on its token, its position and the KV before
 * it, and on nothing else; poisoned rows stay alone; bad passes are refused. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/num.h"
#include "tests/run_suite.h"
#include "tests/unit/cpu_help.h"

enum { TOKENS = 300, PAGES = 64 };

static const char *const isas[] = {"ref", "avx2", "avx512"};

static bool has_isa(const char *name)
{
    const struct cpu_isa *have[2];
    int n = help_isas(have);
    for (int i = 0; i < n; i++) {
        if (strcmp(have[i]->name, name) == 0)
            return true;
    }
    return strcmp(name, "ref") == 0;
}

static void random_tokens(uint64_t seed, const struct model *m, uint32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (uint32_t)(help_random(&seed) % m->n_vocab);
}

static void page_ids(uint64_t seed, uint32_t *pages)
{
    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    for (uint32_t i = PAGES - 1; i > 0 && seed > 0; i--) {
        uint32_t j = (uint32_t)(help_random(&seed) % (i + 1)), page = pages[i];
        pages[i] = pages[j];
        pages[j] = page;
    }
}

/* A model, a sequence, and its logits from the reference, all rows in one pass. */
struct expected {
    struct help_model m;
    uint32_t tokens[TOKENS], pages[PAGES];
    float *logits;
    uint32_t n;
};

static void expected_open(struct expected *e, const struct tiny_model *shape, const char *isa,
                          uint32_t n)
{
    help_model_tiny(&e->m, shape);
    random_tokens(shape->seed, e->m.model, e->tokens, n);
    page_ids(0, e->pages);
    e->n = n;
    e->logits = help_memory((size_t)n * shape->n_vocab * sizeof(float));
    struct backend *b = help_backend(&e->m, isa, 1, n, PAGES);
    help_logits(b, e->m.model, e->tokens, n, 0, e->pages, e->logits);
    backend_cpu.close(b);
}

static void expected_close(struct expected *e)
{
    help_model_close(&e->m);
    free(e->logits);
}

static void expect_same(const struct expected *e, const float *got, const char *what)
{
    size_t n = (size_t)e->n * e->m.model->n_vocab, at = help_differs(e->logits, got, n);
    ck_assert_msg(at == n, "%s: row %zu differs at token %zu: %a for %a", what,
                  at / e->m.model->n_vocab, at % e->m.model->n_vocab, (double)got[at],
                  (double)e->logits[at]);
}

static void check_engine(const struct expected *e, const char *isa, uint32_t threads,
                         uint32_t chunk, uint64_t page_seed)
{
    uint32_t pages[PAGES];
    char what[128];
    float *got = help_memory((size_t)e->n * e->m.model->n_vocab * sizeof(float));
    struct backend *b = help_backend(&e->m, isa, threads, e->n, PAGES);
    page_ids(page_seed, pages);
    help_logits(b, e->m.model, e->tokens, e->n, chunk, pages, got);
    snprintf(what, sizeof what, "%s, %u threads, chunks of %u", isa, threads, chunk);
    expect_same(e, got, what);
    backend_cpu.close(b);
    free(got);
}

static const uint32_t types[] = {QUANT_F32,  QUANT_F16,  QUANT_BF16,  QUANT_Q8_0,
                                 QUANT_Q4_0, TINY_MIXED, TINY_MIXED_K};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* Test i: the types with their own KV, then all with KV in q8_0. */
static uint32_t type_of(int i)
{
    return types[i % N_TYPES];
}
static bool q8_0_of(int i)
{
    return i >= N_TYPES;
}

/* The reference computes all rows at once; everything else must agree with it. */
START_TEST(every_engine_and_chunking_gives_the_same_bits)
{
    struct tiny_model shape = tiny_model_default(type_of(_i));
    struct expected e;
    shape.kv_q8_0 = q8_0_of(_i);
    shape.untied = _i % 2;
    shape.seed = 100 + (uint64_t)_i;
    expected_open(&e, &shape, "ref", 70);
    check_engine(&e, "ref", 1, 3, 7);
    for (int i = 1; i < 3; i++) {
        if (!has_isa(isas[i]))
            continue;
        const uint32_t chunks[] = {1, 3, 32, 0, 7};
        for (uint32_t c = 0; c < 5; c++)
            check_engine(&e, isas[i], 1 + c % 4, chunks[c], c);
    }
    expected_close(&e);
}
END_TEST

/* Every architecture, with and without divisors of its frequencies, in a float and two quantized
 * types. */
static const char *const archs[] = {"llama", "qwen2", "qwen3"};
enum { N_ARCHS = sizeof archs / sizeof archs[0] };

START_TEST(every_architecture_gives_the_same_bits)
{
    const uint32_t arch_types[] = {QUANT_F32, QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0};
    for (int t = 0; t < 4; t++) {
        struct tiny_model shape = tiny_model_default(arch_types[t]);
        struct expected e;
        shape.arch = archs[_i];
        shape.freqs = t % 2 == 0;
        shape.head_dim = t < 2 ? 0 : 24;
        shape.seed = 400 + (uint64_t)(10 * _i + t);
        expected_open(&e, &shape, "ref", 70);
        for (int i = 1; i < 3; i++) {
            if (!has_isa(isas[i]))
                continue;
            const uint32_t chunks[] = {1, 0, 7};
            for (uint32_t c = 0; c < 3; c++)
                check_engine(&e, isas[i], 1 + c, chunks[c], c);
        }
        expected_close(&e);
    }
}
END_TEST

/* Sizes that fill no register, no group and no block; head sizes of all kinds; several splits. */
enum { N_SHAPES = 10 };

START_TEST(odd_shapes_give_the_same_bits)
{
    const struct tiny_model shapes[N_SHAPES] = {
        {.n_layer = 1, .n_embd = 36, .n_ff = 50, .n_head = 6, .n_head_kv = 3, .n_vocab = 261},
        {.n_layer = 2, .n_embd = 40, .n_ff = 33, .n_head = 2, .n_head_kv = 1, .n_vocab = 300},
        {.n_layer = 1,
         .n_embd = 64,
         .n_ff = 172,
         .n_head = 12,
         .n_head_kv = 1,
         .head_dim = 24,
         .n_vocab = 277},
        {.n_layer = 1,
         .n_embd = 288,
         .n_ff = 520,
         .n_head = 3,
         .n_head_kv = 3,
         .head_dim = 80,
         .n_vocab = 259,
         .untied = true},
        {.n_layer = 1,
         .n_embd = 32,
         .n_ff = 544,
         .n_head = 7,
         .n_head_kv = 7,
         .head_dim = 2,
         .n_vocab = 1000},
        {.arch = "qwen2",
         .n_layer = 2,
         .n_embd = 42,
         .n_ff = 35,
         .n_head = 3,
         .n_head_kv = 1,
         .n_vocab = 263},
        {.arch = "qwen3",
         .n_layer = 2,
         .n_embd = 33,
         .n_ff = 70,
         .n_head = 6,
         .n_head_kv = 2,
         .head_dim = 22,
         .n_vocab = 270,
         .untied = true},
        {.arch = "qwen3",
         .n_layer = 1,
         .n_embd = 50,
         .n_ff = 41,
         .n_head = 2,
         .n_head_kv = 2,
         .head_dim = 130,
         .freqs = true,
         .n_vocab = 259},
        {.arch = "qwen2",
         .n_layer = 1,
         .n_embd = 30,
         .n_ff = 17,
         .n_head = 5,
         .n_head_kv = 5,
         .freqs = true,
         .n_vocab = 301},
        {.n_layer = 40, /* matrices of one row, many times what a group is larger than that */
         .n_embd = 512,
         .n_ff = 1,
         .n_head = 2,
         .n_head_kv = 2,
         .head_dim = 2,
         .n_vocab = 259},
    };
    struct tiny_model shape = shapes[_i % N_SHAPES];
    shape.kv_q8_0 = _i >= N_SHAPES;
    shape.type = QUANT_F32;
    shape.n_context = 512;
    shape.seed = 200 + (uint64_t)_i;
    shape.scale = 1;
    struct expected e;
    expected_open(&e, &shape, "ref",
                  _i % N_SHAPES == 1 ? 270 : 50); /* 270: two splits of attention */
    for (int i = 1; i < 3; i++) {
        if (has_isa(isas[i])) {
            check_engine(&e, isas[i], 1 + (uint32_t)i, 40, 3);
            check_engine(&e, isas[i], 1, 1, 4);
        }
    }
    expected_close(&e);
}
END_TEST

/* Other numbers, named by another id, in 36 bytes for every 64. */
START_TEST(kv_in_q8_0_is_another_numerics)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct backend_info info[2];
    struct expected e[2];
    shape.n_head = shape.n_head_kv = 2; /* heads of 32: whole blocks */
    for (int i = 0; i < 2; i++) {
        shape.kv_q8_0 = i == 1;
        expected_open(&e[i], &shape, NULL, 40);
        struct backend *b = help_backend(&e[i].m, NULL, 1, 4, PAGES);
        backend_cpu.describe(b, &info[i]);
        backend_cpu.close(b);
    }
    ck_assert_str_eq(info[0].numerics, "portable-1");
    ck_assert_str_eq(info[1].numerics, "portable-1-kvq8");
    ck_assert_uint_eq(info[1].page_bytes * 64, info[0].page_bytes * 36);
    size_t n = (size_t)40 * e[0].m.model->n_vocab;
    ck_assert_uint_lt(help_differs(e[0].logits, e[1].logits, n), n);
    expected_close(&e[0]);
    expected_close(&e[1]);
}
END_TEST

/* Big enough that products, rows and attention are really shared out. */
START_TEST(threads_never_change_a_bit)
{
    struct tiny_model shape = {.n_layer = 2,
                               .n_embd = 256,
                               .n_ff = 768,
                               .n_head = 8,
                               .n_head_kv = 2,
                               .n_vocab = 2000,
                               .n_context = 512,
                               .type = type_of(_i),
                               .seed = 300,
                               .scale = 1,
                               .kv_q8_0 = q8_0_of(_i)};
    struct expected e;
    expected_open(&e, &shape, NULL, 96);
    for (uint32_t threads = 2; threads <= 4; threads++)
        check_engine(&e, has_isa("avx2") ? "avx2" : "ref", threads, 48, threads);
    if (has_isa("avx512"))
        check_engine(&e, "avx512", 3, 7, 9);
    expected_close(&e);
}
END_TEST

/* ---- rows of several sequences ----------------------------------------------------------------
 */

enum { OTHERS = 3 };

struct mixed {
    struct row rows[256];
    struct row_result results[256];
    struct pass_sequence sequences[1 + OTHERS];
    uint32_t n;
};

/* Adds `count` rows of sequence s from `position` on. */
static void add_rows(struct mixed *x, uint32_t s, const uint32_t *tokens, uint32_t position,
                     uint32_t count, uint32_t wants)
{
    for (uint32_t i = 0; i < count; i++)
        x->rows[x->n++] = (struct row){s, position + i, tokens[position + i], wants, NULL};
}

/* The sequence is watched while others decode and prefill around it in the same passes, before,
 * after and between its rows. */
START_TEST(other_sequences_never_change_a_bit)
{
    struct tiny_model shape = tiny_model_default(type_of(_i));
    struct expected e;
    shape.kv_q8_0 = q8_0_of(_i);
    expected_open(&e, &shape, NULL, 90);
    uint32_t tokens[OTHERS][TOKENS], pages[PAGES], n_vocab = e.m.model->n_vocab;
    uint64_t seed = 5;
    page_ids(11, pages);
    for (uint32_t i = 0; i < OTHERS; i++)
        random_tokens(40 + i, e.m.model, tokens[i], TOKENS);
    float *got = help_memory((size_t)e.n * n_vocab * sizeof(float));
    struct backend *b = help_backend(&e.m, NULL, 2, 256, PAGES);
    uint32_t done[OTHERS] = {0}, position = 0;
    while (position < e.n) {
        struct mixed x = {.n = 0};
        uint32_t mine = 1 + (uint32_t)(help_random(&seed) % 9);
        mine = mine < e.n - position ? mine : e.n - position;
        for (uint32_t s = 0; s <= OTHERS; s++)
            x.sequences[s].pages = pages + 10 * s;
        uint32_t first = (uint32_t)(help_random(&seed) % (OTHERS + 1));
        for (uint32_t turn = 0; turn <= OTHERS; turn++) {
            uint32_t s = (first + turn) % (OTHERS + 1);
            if (s == 0) {
                /* Cut in two by a row of another sequence, when there are two. */
                add_rows(&x, 0, e.tokens, position, mine, ROW_LOGITS);
                continue;
            }
            uint32_t count = (uint32_t)(help_random(&seed) % 8);
            add_rows(&x, s, tokens[s - 1], done[s - 1], count, 0);
            done[s - 1] += count;
        }
        for (uint32_t r = 0; r < x.n; r++) {
            if (x.rows[r].sequence == 0)
                x.results[r].logits = got + (size_t)x.rows[r].position * n_vocab;
        }
        struct pass pass = {PASS_CANONICAL, x.n, x.rows, x.sequences, x.results, 1 + OTHERS};
        help_pass(b, &pass);
        position += mine;
    }
    expect_same(&e, got, "with other sequences around");
    backend_cpu.close(b);
    free(got);
    expected_close(&e);
}
END_TEST

/* Rows of two sequences lie alternately in the pass. */
START_TEST(interleaved_rows_give_the_same_bits)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct expected e;
    expected_open(&e, &shape, NULL, 64);
    uint32_t n_vocab = e.m.model->n_vocab;
    float *got = help_memory((size_t)e.n * n_vocab * sizeof(float));
    struct backend *b = help_backend(&e.m, NULL, 2, 256, PAGES);
    struct mixed x = {.n = 0};
    x.sequences[0].pages = e.pages;
    x.sequences[1].pages = e.pages + 20;
    for (uint32_t i = 0; i < e.n; i++) {
        x.results[x.n].logits = got + (size_t)i * n_vocab;
        add_rows(&x, 0, e.tokens, i, 1, ROW_LOGITS);
        add_rows(&x, 1, e.tokens, i, 1, 0);
    }
    struct pass pass = {PASS_CANONICAL, x.n, x.rows, x.sequences, x.results, 2};
    help_pass(b, &pass);
    expect_same(&e, got, "interleaved");
    backend_cpu.close(b);
    free(got);
    expected_close(&e);
}
END_TEST

/* Verification writes positions again, with other tokens before: only the last writing counts. */
START_TEST(rewritten_positions_leave_no_trace)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct expected e;
    expected_open(&e, &shape, NULL, 80);
    uint32_t n_vocab = e.m.model->n_vocab, wrong[TOKENS];
    float *got = help_memory((size_t)e.n * n_vocab * sizeof(float));
    struct backend *b = help_backend(&e.m, NULL, 1, 128, PAGES);
    random_tokens(77, e.m.model, wrong, TOKENS);
    struct pass_sequence sequence = {.pages = e.pages};
    for (uint32_t position = 0; position < e.n; position += 4) {
        struct mixed x = {.n = 0};
        add_rows(&x, 0, wrong, position, 11, 0); /* drafts, all rejected */
        struct pass pass = {PASS_FAST, x.n, x.rows, &sequence, x.results, 1};
        help_pass(b, &pass);
        x = (struct mixed){.n = 0};
        add_rows(&x, 0, e.tokens, position, 4, ROW_LOGITS);
        for (uint32_t i = 0; i < 4; i++)
            x.results[i].logits = got + (size_t)(position + i) * n_vocab;
        pass = (struct pass){PASS_CANONICAL, x.n, x.rows, &sequence, x.results, 1};
        help_pass(b, &pass);
    }
    expect_same(&e, got, "after rejected drafts");
    backend_cpu.close(b);
    free(got);
    expected_close(&e);
}
END_TEST

START_TEST(two_instances_do_not_disturb_each_other)
{
    struct tiny_model one = tiny_model_default(QUANT_Q4_0), two = tiny_model_default(QUANT_F32);
    struct expected a, b;
    two.n_layer = 3;
    expected_open(&a, &one, NULL, 40);
    expected_open(&b, &two, NULL, 40);
    struct backend *ba = help_backend(&a.m, NULL, 2, 64, PAGES);
    struct backend *bb = help_backend(&b.m, NULL, 1, 64, PAGES);
    float *got = help_memory((size_t)40 * 320 * sizeof(float));
    for (int i = 0; i < 3; i++) {
        help_logits(ba, a.m.model, a.tokens, 40, 5, a.pages, got);
        expect_same(&a, got, "first instance");
        help_logits(bb, b.m.model, b.tokens, 40, 9, b.pages, got);
        expect_same(&b, got, "second instance");
    }
    backend_cpu.close(ba);
    backend_cpu.close(bb);
    free(got);
    expected_close(&a);
    expected_close(&b);
}
END_TEST

START_TEST(a_released_page_can_be_used_again)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct expected e;
    expected_open(&e, &shape, NULL, 80);
    struct backend *b = help_backend(&e.m, NULL, 1, 80, PAGES);
    float *got = help_memory((size_t)80 * 320 * sizeof(float));
    for (int i = 0; i < 2; i++) {
        help_logits(b, e.m.model, e.tokens, 80, 32, e.pages, got);
        expect_same(&e, got, "after release");
        for (uint32_t p = 0; p < 3; p++)
            backend_cpu.release_page(b, e.pages[p]);
    }
    backend_cpu.close(b);
    free(got);
    expected_close(&e);
}
END_TEST

/* ---- picks ------------------------------------------------------------------------------------
 */

START_TEST(a_pick_is_that_of_its_logits)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct expected e;
    expected_open(&e, &shape, NULL, 40);
    struct backend *b = help_backend(&e.m, NULL, 2, 40, PAGES);
    struct pick_params params;
    pick_params_init(&params);
    params.logprobs = true;
    params.n_top = 3;
    struct mixed x = {.n = 0};
    x.sequences[0] = (struct pass_sequence){e.pages, e.tokens, 10, &params};
    add_rows(&x, 0, e.tokens, 0, 40, ROW_PICK);
    x.rows[7].wants = 0;
    struct pass pass = {PASS_CANONICAL, x.n, x.rows, x.sequences, x.results, 1};
    help_pass(b, &pass);
    for (uint32_t r = 10; r < 40; r++) {
        uint32_t best = 0;
        const float *logits = e.logits + (size_t)r * 320;
        for (uint32_t i = 1; i < 320; i++)
            best = logits[i] > logits[best] ? i : best;
        ck_assert_int_eq(x.results[r].status, 0);
        ck_assert_uint_eq(x.results[r].pick.token, best);
        ck_assert_uint_eq(x.results[r].pick.n_top, 3);
        ck_assert_uint_eq(x.results[r].pick.top[0].id, best);
    }
    backend_cpu.close(b);
    expected_close(&e);
}
END_TEST

/* ---- poison -----------------------------------------------------------------------------------
 */

/* Replaces the embedding row of a token in an F32 model. */
static void set_embedding(struct help_model *m, uint32_t token, float value)
{
    const struct model_tensor *t = &m->model->global[MODEL_TOKEN_EMBD];
    float *row = (float *)(void *)(m->file + (t->data - m->file) + token * t->row_bytes);
    for (uint32_t i = 0; i < t->cols; i++)
        row[i] = value;
}

/* Scales K of a layer, so that an ordinary row overflows there. F32 and BF16. */
static void scale_keys(struct help_model *m, uint32_t layer, float factor)
{
    const struct model_tensor *t = &m->model->layers[layer].tensor[MODEL_ATTN_K];
    uint8_t *w = m->file + (t->data - m->file);
    for (uint64_t at = 0; at < t->bytes; at += t->type == QUANT_F32 ? 4 : 2) {
        /* BF16 is the upper half of an f32. */
        uint32_t bits = 0;
        memcpy(t->type == QUANT_F32 ? (uint8_t *)&bits : (uint8_t *)&bits + 2, w + at,
               t->type == QUANT_F32 ? 4 : 2);
        bits = num_bits(num_float(bits) * factor);
        memcpy(w + at, t->type == QUANT_F32 ? (uint8_t *)&bits : (uint8_t *)&bits + 2,
               t->type == QUANT_F32 ? 4 : 2);
    }
}

/* Two sequences; token 5 in the first one is poisoned at row 20 of 40. */
static void check_poison(struct help_model *m, const char *isa, uint32_t threads, float bad)
{
    struct backend *b = help_backend(m, isa, threads, 128, PAGES);
    uint32_t tokens[2][40], pages[PAGES], n_vocab = m->model->n_vocab;
    float *clean = help_memory((size_t)40 * n_vocab * sizeof(float));
    float *got = help_memory((size_t)80 * n_vocab * sizeof(float));
    struct pick_params params;
    pick_params_init(&params);
    page_ids(0, pages);
    for (uint32_t i = 0; i < 40; i++)
        tokens[0][i] = tokens[1][i] = 10 + i * 3 % 200;
    help_logits(b, m->model, tokens[1], 40, 0, pages, clean);

    set_embedding(m, 5, bad);
    backend_cpu.close(b);
    b = help_backend(m, isa, threads, 128, PAGES);
    tokens[0][20] = 5;
    struct mixed x = {.n = 0};
    for (uint32_t s = 0; s < 2; s++)
        x.sequences[s] = (struct pass_sequence){pages + 8 * s, tokens[s], 1, &params};
    for (uint32_t i = 0; i < 40; i++) {
        for (uint32_t s = 0; s < 2; s++) {
            x.results[x.n].logits = got + (size_t)x.n * n_vocab;
            add_rows(&x, s, tokens[s], i, 1, ROW_LOGITS | ROW_PICK);
        }
    }
    struct pass pass = {PASS_CANONICAL, x.n, x.rows, x.sequences, x.results, 2};
    help_pass(b, &pass);
    for (uint32_t r = 0; r < x.n; r++) {
        bool poisoned = x.rows[r].sequence == 0 && x.rows[r].position >= 20;
        ck_assert_msg(x.results[r].status == (poisoned ? -EDOM : 0),
                      "%s: row %u status %d layer %u", isa, r, x.results[r].status,
                      x.results[r].layer);
        const float *want = clean + (size_t)x.rows[r].position * n_vocab;
        if (!poisoned)
            ck_assert_uint_eq(help_differs(want, got + (size_t)r * n_vocab, n_vocab), n_vocab);
        else
            ck_assert_uint_eq(x.results[r].layer, 0);
    }
    /* The next pass over the same pages knows nothing of it. */
    help_logits(b, m->model, tokens[1], 40, 0, pages, got);
    ck_assert_uint_eq(help_differs(clean, got, (size_t)40 * n_vocab), (size_t)40 * n_vocab);
    backend_cpu.close(b);
    free(clean);
    free(got);
}

START_TEST(a_residual_that_is_not_finite_poisons_its_row_alone)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        if (!has_isa(isas[i]))
            continue;
        for (int j = 0; j < 3; j++) {
            struct tiny_model shape = tiny_model_default(QUANT_F32);
            struct help_model m;
            shape.untied = true; /* the head shall not see the bad embedding */
            help_model_tiny(&m, &shape);
            check_poison(&m, isas[i], 1 + (uint32_t)j, bad[j]);
            help_model_close(&m);
        }
    }
}
END_TEST

/* F16 KV ends at 65504; F32 KV of an F32 model where f32 does. */
START_TEST(a_key_beyond_the_kv_type_poisons_its_sequence)
{
    for (int i = 0; i < 3; i++) {
        if (!has_isa(isas[i]))
            continue;
        struct tiny_model shape = tiny_model_default(_i ? QUANT_F32 : QUANT_BF16);
        struct help_model m;
        help_model_tiny(&m, &shape);
        scale_keys(&m, 1, _i ? 0x1p127f : 0x1p20f);
        struct backend *b = help_backend(&m, isas[i], 1, 8, PAGES);
        uint32_t pages[PAGES];
        struct mixed x = {.n = 0};
        uint32_t tokens[4] = {1, 2, 3, 4};
        page_ids(0, pages);
        x.sequences[0].pages = pages;
        add_rows(&x, 0, tokens, 0, 4, 0);
        struct pass pass = {PASS_CANONICAL, x.n, x.rows, x.sequences, x.results, 1};
        help_pass(b, &pass);
        for (uint32_t r = 0; r < 4; r++) {
            ck_assert_int_eq(x.results[r].status, -EDOM);
            ck_assert_uint_eq(x.results[r].layer, 1);
        }
        backend_cpu.close(b);
        help_model_close(&m);
    }
}
END_TEST

/* Weights of every type with infinite scales: all rows are poisoned, nothing crashes. */
START_TEST(weights_that_are_not_finite_poison_every_row)
{
    for (int i = 0; i < 3; i++) {
        if (!has_isa(isas[i]))
            continue;
        for (int t = 0; t < N_TYPES - 1; t++) {
            struct tiny_model shape = tiny_model_default(types[t]);
            struct help_model m;
            help_model_tiny(&m, &shape);
            const struct model_tensor *v = &m.model->layers[0].tensor[MODEL_ATTN_V];
            memset(m.file + (v->data - m.file), 0x7c, v->bytes); /* f16 infinities, large floats */
            if (types[t] == QUANT_F32 || types[t] == QUANT_BF16)
                memset(m.file + (v->data - m.file), 0x7f, v->bytes);
            struct backend *b = help_backend(&m, isas[i], 1, 8, PAGES);
            uint32_t pages[PAGES], tokens[3] = {7, 8, 9};
            struct mixed x = {.n = 0};
            page_ids(0, pages);
            x.sequences[0].pages = pages;
            add_rows(&x, 0, tokens, 0, 3, 0);
            struct pass pass = {PASS_CANONICAL, x.n, x.rows, x.sequences, x.results, 1};
            help_pass(b, &pass);
            for (uint32_t r = 0; r < 3; r++)
                ck_assert_msg(x.results[r].status == -EDOM && x.results[r].layer == 0, "%s %s",
                              isas[i], quant_name(types[t]));
            backend_cpu.close(b);
            help_model_close(&m);
        }
    }
}
END_TEST

/* A value in a bias or in the norm of a head makes its layer's queries, keys or values not finite;
 * infinite queries stay so through a norm of heads. */
START_TEST(what_stands_before_rope_poisons_its_layer)
{
    const struct {
        const char *arch;
        enum model_layer_tensor tensor;
        float value;
    } cases[] = {
        {"qwen2", MODEL_ATTN_Q_BIAS, NAN},       {"qwen2", MODEL_ATTN_K_BIAS, INFINITY},
        {"qwen2", MODEL_ATTN_V_BIAS, -INFINITY}, {"qwen2", MODEL_ATTN_V_BIAS, NAN},
        {"qwen3", MODEL_ATTN_Q_NORM, NAN},       {"qwen3", MODEL_ATTN_K_NORM, INFINITY},
        {"qwen3", MODEL_ATTN_Q, INFINITY},       {"qwen3", MODEL_ATTN_K, NAN},
    };
    for (int i = 0; i < 3; i++) {
        if (!has_isa(isas[i]))
            continue;
        struct tiny_model shape = tiny_model_default(QUANT_F32);
        struct help_model m;
        shape.arch = cases[_i].arch;
        help_model_tiny(&m, &shape);
        const struct model_tensor *t = &m.model->layers[1].tensor[cases[_i].tensor];
        memcpy(m.file + (t->data - m.file) + 4, &cases[_i].value, 4);
        struct backend *b = help_backend(&m, isas[i], 1, 8, PAGES);
        uint32_t pages[PAGES], tokens[3] = {7, 8, 9};
        struct mixed x = {.n = 0};
        page_ids(0, pages);
        x.sequences[0].pages = pages;
        add_rows(&x, 0, tokens, 0, 3, 0);
        struct pass pass = {PASS_CANONICAL, x.n, x.rows, x.sequences, x.results, 1};
        help_pass(b, &pass);
        for (uint32_t r = 0; r < 3; r++) {
            ck_assert_int_eq(x.results[r].status, -EDOM);
            ck_assert_uint_eq(x.results[r].layer, 1);
        }
        backend_cpu.close(b);
        help_model_close(&m);
    }
}
END_TEST

/* ---- refusals ---------------------------------------------------------------------------------
 */

START_TEST(a_pass_outside_the_limits_is_refused_and_does_nothing)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct help_model m;
    help_model_tiny(&m, &shape);
    struct backend *b = help_backend(&m, NULL, 1, 4, 8);
    uint32_t pages[PAGES], tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    page_ids(0, pages);
    const struct row good[2] = {{0, 0, 1, 0, NULL}, {0, 1, 2, 0, NULL}};
    const struct row bad[] = {{1, 1, 2, 0, NULL},         {0, 512, 2, 0, NULL},
                              {0, 1, 320, 0, NULL},       {0, 2, 2, 0, NULL},
                              {0, 0, 2, 0, NULL},         {0, 1, 2, ROW_PICK, NULL},
                              {0, 1, 2, ROW_LOGITS, NULL}};
    struct row rows[8];
    struct row_result results[8] = {{0}};
    struct pass_sequence sequence = {.pages = pages, .tokens = tokens};
    struct pass pass = {PASS_CANONICAL, 2, rows, &sequence, results, 1};
    memcpy(rows, good, sizeof good);
    help_pass(b, &pass);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rows[1] = bad[i];
        results[0].status = 99;
        ck_assert_int_eq(backend_cpu.start(b, &pass), -EINVAL);
        ck_assert_msg(strncmp(backend_cpu.error(b), "pass refused: ", 14) == 0, "%zu", i);
        ck_assert_int_eq(results[0].status, 99);
    }
    memcpy(rows, good, sizeof good);
    pages[0] = 8;
    ck_assert_int_eq(backend_cpu.start(b, &pass), -EINVAL);
    pages[0] = 0;
    pass.n_rows = 5;
    ck_assert_int_eq(backend_cpu.start(b, &pass), -EINVAL);
    pass.n_rows = 0;
    ck_assert_int_eq(backend_cpu.start(b, &pass), -EINVAL);
    pass.n_rows = 2;
    help_pass(b, &pass);
    backend_cpu.close(b);
    help_model_close(&m);
}
END_TEST

START_TEST(open_refuses_with_one_line)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct help_model m;
    help_model_tiny(&m, &shape);
    const struct backend_limits good = {
        .rows = 4, .picks = 2, .pages = 4, .context = 64, .threads = 1};
    struct backend *b;
    char err[256];
    struct backend_limits l[7];
    for (int i = 0; i < 7; i++)
        l[i] = good;
    l[0].rows = 0;
    l[1].picks = 5;
    l[2].pages = 0;
    l[3].context = 0;
    l[4].threads = 0;
    l[5].threads = 100000;
    l[6].isa = "sse9";
    for (int i = 0; i < 7; i++) {
        err[0] = 0;
        ck_assert_int_lt(backend_cpu.open(m.model, &l[i], &b, err, sizeof err), 0);
        ck_assert(strlen(err) > 10 && !strchr(err, '\n'));
    }
    ck_assert_int_eq(backend_cpu.open(m.model, &good, &b, err, sizeof err), 0);
    struct backend_info info;
    backend_cpu.describe(b, &info);
    ck_assert_str_eq(info.name, "cpu");
    ck_assert_int_eq(strncmp(info.numerics, "cpu-float-1-kvf32", 18), 0);
    ck_assert_uint_eq(info.threads, 1);
    ck_assert_uint_eq(info.page_bytes, (size_t)2 * 2 * 2 * 16 * 32 * 4);
    ck_assert_uint_eq(info.kv_bytes, 4 * info.page_bytes);
    ck_assert(info.weight_bytes > 0 && info.scratch_bytes > 0);
    backend_cpu.close(b);
    backend_cpu.close(NULL);
    ck_assert_int_eq(backend_cpu.probe(err, sizeof err), 0);
    help_model_close(&m);
}
END_TEST

/* Below its window a model attends to all; beyond it, it is not served. */
START_TEST(a_context_beyond_the_sliding_window_is_refused)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct help_model m;
    help_model_tiny(&m, &shape);
    m.model->n_window = 64;
    struct backend_limits l = {.rows = 4, .picks = 2, .pages = 4, .context = 65, .threads = 1};
    struct backend *b;
    char err[256] = "";
    ck_assert_int_eq(backend_cpu.open(m.model, &l, &b, err, sizeof err), -ENOTSUP);
    ck_assert_msg(strstr(err, "sliding window of 64 positions") != NULL, "%s", err);
    l.context = 64;
    ck_assert_int_eq(backend_cpu.open(m.model, &l, &b, err, sizeof err), 0);
    backend_cpu.close(b);
    help_model_close(&m);
}
END_TEST

static TCase *contract(void)
{
    TCase *tcase = tcase_create("contract");
    tcase_add_loop_test(tcase, every_engine_and_chunking_gives_the_same_bits, 0, 2 * N_TYPES);
    tcase_add_loop_test(tcase, every_architecture_gives_the_same_bits, 0, N_ARCHS);
    tcase_add_loop_test(tcase, odd_shapes_give_the_same_bits, 0, 2 * N_SHAPES);
    tcase_add_test(tcase, kv_in_q8_0_is_another_numerics);
    tcase_add_loop_test(tcase, threads_never_change_a_bit, 0, 2 * N_TYPES);
    tcase_add_loop_test(tcase, other_sequences_never_change_a_bit, 0, 2 * N_TYPES);
    tcase_add_test(tcase, interleaved_rows_give_the_same_bits);
    tcase_add_test(tcase, rewritten_positions_leave_no_trace);
    tcase_add_test(tcase, two_instances_do_not_disturb_each_other);
    tcase_add_test(tcase, a_released_page_can_be_used_again);
    tcase_add_test(tcase, a_pick_is_that_of_its_logits);
    return tcase;
}

int main(void)
{
    Suite *suite = suite_create("cpu_pass");
    TCase *same = contract(), *bad = tcase_create("bad");
    tcase_add_test(bad, a_residual_that_is_not_finite_poisons_its_row_alone);
    tcase_add_loop_test(bad, a_key_beyond_the_kv_type_poisons_its_sequence, 0, 2);
    tcase_add_test(bad, weights_that_are_not_finite_poison_every_row);
    tcase_add_test(bad, a_pass_outside_the_limits_is_refused_and_does_nothing);
    tcase_add_loop_test(bad, what_stands_before_rope_poisons_its_layer, 0, 8);
    tcase_add_test(bad, a_context_beyond_the_sliding_window_is_refused);
    tcase_add_test(bad, open_refuses_with_one_line);
    tcase_set_timeout(same, 120);
    tcase_set_timeout(bad, 60);
    suite_add_tcase(suite, same);
    suite_add_tcase(suite, bad);
    return run_suite(suite);
}
