/* States of recurrent layers on the CPU (backend.h, struct pass_state): however a text's rows are
 * divided into passes, into rows that are folded in and rows that are recorded first, whatever
 * drafts were rejected between them, logits and states have the bits of one pass over the whole
 * text. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/expected.h"
#include "tests/rig/state_walk.h"

static const char *const isas[] = {"ref", "avx2", "avxvnni", "avx512"};
enum { N_ISAS = sizeof(isas) / sizeof(isas[0]) };

enum { TOKENS = WALK_TOKENS, TEXTS = WALK_TEXTS };
_Static_assert((int)HELP_STATES == WALK_TEXTS * WALK_IDS, "states of all texts");

static struct tiny_model hybrid(uint32_t type)
{
    struct tiny_model shape = tiny_model_default(type);
    shape.arch = "qwen35";
    shape.n_layer = 4;
    return shape;
}

/* ---- a random walk --------------------------------------------------------------------------- */

/* A text on its way, and what one pass over all of it gave. */
struct text {
    struct walk_text way;
    uint32_t tokens[TOKENS];
    float *logits;            /* [TOKENS][n_vocab] */
    float *state[TOKENS + 1]; /* what a state of so many tokens holds; NULL: not known */
    float *drafts; /* [TOKENS][n_vocab] of the next-token layer, given the tokens before; NULL: the
                      model has none */
};

struct walk {
    struct expected e[TEXTS];
    struct text text[TEXTS];
    uint64_t random;
    uint32_t n_vocab;
};

static uint32_t below(struct walk *w, uint32_t n)
{
    return walk_below(&w->random, n);
}

static size_t state_floats(const struct backend *b)
{
    return b->states.geometry.state_bytes / sizeof(float);
}

static const float *state_at(const struct backend *b, int32_t id)
{
    return (const float *)(const void *)b->states.memory + (size_t)id * state_floats(b);
}

/* The same position's state is the same whenever it is met. */
static void check_state(struct backend *b, struct text *t, int32_t id, uint32_t position)
{
    const size_t n = state_floats(b);
    if (!t->state[position])
        t->state[position] = help_exact(state_at(b, id), n);
    ck_assert_uint_eq(help_differs(t->state[position], state_at(b, id), n), n);
}

static void check_plan(struct walk *w, struct backend *b, uint32_t index, const struct walk_plan *p)
{
    struct text *t = &w->text[index];
    walk_done(&t->way, p);
    for (uint32_t i = 0; i < p->state.n_keep; i++)
        check_state(b, t, p->state.keep[i].id, p->state.keep[i].position);
    check_state(b, t, p->state.own, p->first - p->state.replay + p->state.commit);
}

/* The next-token layer's row of the token after those that are held. */
static void draft_row(struct backend *b, struct text *t, int32_t id, uint32_t records,
                      uint32_t position, const uint32_t *pages, float *logits)
{
    struct expected_rows x = {.n = 0};
    x.sequences[0] =
        (struct pass_sequence){.pages = pages, .state = {.from = id, .own = id, .replay = records}};
    x.results[0].logits = logits;
    expected_add(&x, 0, t->tokens, position, 1, ROW_LOGITS);
    expected_run(b, PASS_MTP, &x, 1);
    ck_assert_int_eq(x.results[0].status, 0);
}

/* Token by token: what a draft is, whatever passes there were before it. */
static void expect_drafts(struct walk *w, struct text *t, struct backend *b, const uint32_t *pages)
{
    float *logits = help_memory(w->n_vocab * sizeof(float));
    t->drafts = help_memory((size_t)TOKENS * w->n_vocab * sizeof(float));
    for (uint32_t i = 0; i < TOKENS; i++) {
        struct expected_rows x = {.n = 0};
        if (i > 0)
            draft_row(b, t, 0, 0, i, pages, t->drafts + (size_t)i * w->n_vocab);
        x.sequences[0] = (struct pass_sequence){
            .pages = pages, .state = {.from = i ? 0 : BACKEND_STATE_ZERO, .commit = 1}};
        x.results[0].logits = logits;
        expected_add(&x, 0, t->tokens, i, 1, ROW_LOGITS);
        expected_run(b, PASS_CANONICAL, &x, 1);
    }
    free(logits);
}

static void check_draft(struct walk *w, struct backend *b, uint32_t index, const uint32_t *pages,
                        float *logits)
{
    struct text *t = &w->text[index];
    const struct walk_text *way = &t->way;
    const uint32_t records = way->records[way->at], position = way->base[way->at] + records;
    if (!t->drafts || !way->holds[way->at] || records == BACKEND_STATE_RECORDS ||
        position == TOKENS || position == 0) /* no token comes before the first */
        return;
    draft_row(b, t, (int32_t)(index * WALK_IDS + way->at), records, position,
              pages + (size_t)index * WALK_PAGES, logits);
    ck_assert_uint_eq(help_differs(t->drafts + (size_t)position * w->n_vocab, logits, w->n_vocab),
                      w->n_vocab);
}

/* A pass of some rows of each text, in turns; its own tokens must have the expected logits. */
static void walk_step(struct walk *w, struct backend *b, const uint32_t *pages, float *logits)
{
    struct expected_rows x = {.n = 0};
    struct walk_plan plan[TEXTS];
    uint32_t tokens[TEXTS][TOKENS], done[TEXTS] = {0}, left = 0;
    for (uint32_t s = 0; s < TEXTS; s++) {
        plan[s] = walk_choose(&w->random, &w->text[s].way);
        memcpy(tokens[s], w->text[s].tokens, sizeof(tokens[s]));
        for (uint32_t i = 0; i < plan[s].drafts; i++)
            tokens[s][plan[s].first + plan[s].good + i] = below(w, w->n_vocab);
        x.sequences[s] =
            (struct pass_sequence){.pages = pages + s * WALK_PAGES, .state = plan[s].state};
        left += plan[s].good + plan[s].drafts;
    }
    if (left == 0)
        return;
    while (left > 0) {
        const uint32_t s = below(w, TEXTS), n = plan[s].good + plan[s].drafts;
        if (done[s] == n)
            continue;
        x.results[x.n].logits = logits + (size_t)x.n * w->n_vocab;
        expected_add(&x, s, tokens[s], plan[s].first + done[s]++, 1, ROW_LOGITS);
        left--;
    }
    expected_run(b, below(w, 4) > 0 ? PASS_CANONICAL : PASS_FAST, &x, TEXTS);
    for (uint32_t r = 0; r < x.n; r++) {
        const uint32_t s = x.rows[r].sequence, position = x.rows[r].position;
        ck_assert_int_eq(x.results[r].status, 0);
        if (position < plan[s].first + plan[s].good)
            ck_assert_uint_eq(help_differs(w->text[s].logits + (size_t)position * w->n_vocab,
                                           x.results[r].logits, w->n_vocab),
                              w->n_vocab);
    }
    for (uint32_t s = 0; s < TEXTS; s++)
        if (done[s] > 0) {
            check_plan(w, b, s, &plan[s]);
            check_draft(w, b, s, pages, logits);
        }
}

static void random_walk(const struct tiny_model *shape, const char *isa, uint32_t threads,
                        uint64_t seed, uint32_t steps)
{
    struct walk w = {.random = seed, .n_vocab = shape->n_vocab};
    uint32_t pages[EXPECTED_PAGES];
    float *logits = help_memory((size_t)WALK_ROWS * w.n_vocab * sizeof(float));
    expected_page_ids(seed, pages);
    struct backend *b = NULL;
    for (uint32_t s = 0; s < TEXTS; s++) {
        struct tiny_model same = *shape;
        expected_open(&w.e[s], &same, "ref", TOKENS);
        expected_random_tokens(seed + s, w.e[s].m.model, w.text[s].tokens, TOKENS);
        w.text[s].way.index = s;
        w.text[s].logits = help_memory((size_t)TOKENS * w.n_vocab * sizeof(float));
        struct backend *one = help_backend(&w.e[s].m, "ref", 1, TOKENS, EXPECTED_PAGES);
        help_logits(one, w.e[s].m.model, w.text[s].tokens, TOKENS, 0, pages, w.text[s].logits);
        w.text[s].state[TOKENS] = help_exact(state_at(one, 0), state_floats(one));
        if (shape->n_draft)
            expect_drafts(&w, &w.text[s], one, pages);
        backend_cpu.close(one);
    }
    b = help_backend(&w.e[0].m, isa, threads, WALK_ROWS, EXPECTED_PAGES);
    for (uint32_t i = 0; i < steps; i++)
        walk_step(&w, b, pages, logits);
    for (uint32_t s = 0; s < TEXTS; s++) {
        for (uint32_t i = 0; i <= TOKENS; i++)
            free(w.text[s].state[i]);
        free(w.text[s].logits);
        free(w.text[s].drafts);
        expected_close(&w.e[s]);
    }
    backend_cpu.close(b);
    free(logits);
}

START_TEST(every_division_of_a_text_gives_the_same_bits)
{
    const uint32_t types[] = {QUANT_F32, QUANT_Q8_0, QUANT_BF16};
    struct tiny_model shape = hybrid(types[_i % 3]);
    shape.arch = _i >= 7 ? "granitehybrid" : _i == 6 ? "lfm2" : _i % 2 ? "qwen3next" : "qwen35";
    shape.delta_k = _i % 2 ? 16 : 0;
    shape.delta_v = _i % 2 ? 32 : 0;
    shape.n_draft = _i < 3;
    for (int i = 0; i < N_ISAS; i++)
        if (help_has_isa(isas[i]))
            random_walk(&shape, isas[i], 1 + (uint32_t)(_i + i) % 3, 700 + (uint64_t)(10 * _i + i),
                        400);
}
END_TEST

/* ---- what a state does ----------------------------------------------------------------------- */

/* A model with rows of one sequence, whose logits are kept. */
struct one {
    struct help_model m;
    struct backend *b;
    struct expected_rows x;
    uint32_t pages[EXPECTED_PAGES];
    float *logits; /* [rows][n_vocab] */
};

static void one_open(struct one *o, const struct tiny_model *shape)
{
    help_model_tiny(&o->m, shape);
    o->b = help_backend(&o->m, NULL, 2, 64, EXPECTED_PAGES);
    o->logits = help_memory((size_t)64 * shape->n_vocab * sizeof(float));
    expected_page_ids(0, o->pages);
}

static void one_close(struct one *o)
{
    backend_cpu.close(o->b);
    help_model_close(&o->m);
    free(o->logits);
}

/* Rows [position, position + n) of tokens. */
static void one_prepare(struct one *o, const uint32_t *tokens, uint32_t position, uint32_t n,
                        struct pass_state state)
{
    o->x = (struct expected_rows){.n = 0};
    o->x.sequences[0] = (struct pass_sequence){.pages = o->pages, .state = state};
    for (uint32_t i = 0; i < n; i++)
        o->x.results[i].logits = o->logits + (size_t)i * o->m.model->n_vocab;
    expected_add(&o->x, 0, tokens, position, n, ROW_LOGITS);
}

static void one_run(struct one *o, const uint32_t *tokens, uint32_t position, uint32_t n,
                    struct pass_state state)
{
    one_prepare(o, tokens, position, n, state);
    expected_run(o->b, PASS_CANONICAL, &o->x, 1);
}

/* The walk above would notice: a rejected draft's record that is folded in changes what follows. */
START_TEST(a_record_that_was_rejected_changes_what_follows)
{
    struct tiny_model shape = hybrid(QUANT_F32);
    const uint32_t tokens[] = {9, 8, 7, 6}, drafts[] = {9, 8, 5, 6};
    float good[320];
    struct one o;
    one_open(&o, &shape);
    for (uint32_t wrong = 0; wrong < 2; wrong++) {
        one_run(&o, tokens, 0, 2, (struct pass_state){.from = BACKEND_STATE_ZERO, .commit = 2});
        one_run(&o, wrong ? drafts : tokens, 2, 1, (struct pass_state){.from = 0});
        one_run(&o, tokens, 2, 1, (struct pass_state){.from = 0, .own = 1}); /* the KV is right */
        one_run(&o, tokens, 3, 1, (struct pass_state){.from = 0, .apply = 1});
        if (!wrong)
            memcpy(good, o.logits, sizeof(good));
    }
    ck_assert_uint_lt(help_differs(good, o.logits, 320), 320);
    one_close(&o);
}
END_TEST

START_TEST(a_released_state_is_written_anew)
{
    struct tiny_model shape = hybrid(QUANT_F32);
    const uint32_t tokens[] = {9, 8, 7, 6};
    struct backend_info info;
    float first[4 * 320];
    struct one o;
    one_open(&o, &shape);
    backend_cpu.describe(o.b, &info);
    /* two recurrent layers: 4 heads of 12 x 64 (two blocks), and three inputs of 208 channels;
     * records of these 208, k and d of 24 and 160, and decays, each part padded to 16 */
    ck_assert_uint_eq(info.state_bytes, 2 * (4 * 12 * 64 + 3 * 208) * sizeof(float));
    ck_assert_uint_eq(info.record_bytes,
                      BACKEND_STATE_RECORDS * 2 * (208 + 32 + 160 + 16) * sizeof(float));
    for (uint32_t i = 0; i < 2; i++) {
        one_run(&o, tokens, 0, 4,
                (struct pass_state){.from = BACKEND_STATE_ZERO, .own = 2, .commit = 3});
        if (i == 0)
            memcpy(first, o.logits, sizeof(first));
        backend_cpu.release_state(o.b, 2);
    }
    ck_assert_uint_eq(help_differs(first, o.logits, 4 * 320), 4 * 320);
    one_close(&o);
}
END_TEST

/* ---- poison ---------------------------------------------------------------------------------- */

/* Replaces the embedding of token 5: with ordinary numbers but one, which is not. */
static void poison_token(struct one *o)
{
    const struct model_tensor *t = &o->m.model->global[MODEL_TOKEN_EMBD];
    const float bad = INFINITY;
    memcpy(o->m.file + (t->data - o->m.file) + 5 * t->row_bytes, &bad, sizeof(bad));
    backend_cpu.close(o->b);
    o->b = help_backend(&o->m, NULL, 2, 64, EXPECTED_PAGES);
}

/* The second of three recorded rows is poisoned: the state and the first record are those of a text
 * without it. */
START_TEST(a_poisoned_row_that_is_recorded_leaves_the_state_alone)
{
    struct tiny_model shape = hybrid(QUANT_F32);
    const uint32_t tokens[] = {9, 8, 7, 5, 6}, clean[] = {9, 8, 7, 4, 6};
    float good[2 * 320];
    struct one o;
    shape.untied = true;
    one_open(&o, &shape);
    poison_token(&o);
    one_run(&o, clean, 0, 5,
            (struct pass_state){.from = BACKEND_STATE_ZERO, .own = 1, .commit = 5});
    memcpy(good, o.logits + 3 * (size_t)320, sizeof(good));
    one_run(&o, tokens, 0, 5, (struct pass_state){.from = BACKEND_STATE_ZERO, .commit = 2});
    for (uint32_t i = 0; i < 5; i++)
        ck_assert_int_eq(o.x.results[i].status, i < 3 ? 0 : -EDOM);
    one_run(&o, clean, 3, 2, (struct pass_state){.from = 0, .apply = 1, .commit = 2});
    ck_assert_uint_eq(help_differs(good, o.logits, 2 * 320), 2 * 320);
    one_close(&o);
}
END_TEST

/* The second of three rows that are folded in is poisoned: states from before it, `from` and one
 * that is kept, are good, and a text in another memory is not affected. */
START_TEST(a_poisoned_row_that_is_folded_in_spoils_its_own_state_alone)
{
    struct tiny_model shape = hybrid(QUANT_F32);
    const uint32_t tokens[] = {9, 8, 7, 5, 6}, clean[] = {9, 8, 7, 4, 6};
    float good[2 * 320];
    struct one o;
    shape.untied = true;
    one_open(&o, &shape);
    poison_token(&o);
    one_run(&o, clean, 0, 5,
            (struct pass_state){.from = BACKEND_STATE_ZERO, .own = 1, .commit = 5});
    memcpy(good, o.logits + 3 * (size_t)320, sizeof(good));
    one_run(&o, tokens, 0, 2,
            (struct pass_state){.from = BACKEND_STATE_ZERO, .own = 2, .commit = 2});
    one_run(&o, tokens, 2, 3,
            (struct pass_state){.from = 2, .own = 3, .commit = 3, .n_keep = 1, .keep = {{3, 4}}});
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_eq(o.x.results[i].status, i < 1 ? 0 : -EDOM);
    one_run(&o, clean, 3, 2, (struct pass_state){.from = 4, .commit = 1});
    ck_assert_uint_eq(help_differs(good, o.logits, 2 * 320), 2 * 320);
    one_run(&o, clean, 2, 3, (struct pass_state){.from = 2, .own = 2, .commit = 1});
    ck_assert_uint_eq(help_differs(good, o.logits + 320, 2 * 320), 2 * 320);
    one_close(&o);
}
END_TEST

/* A number of a recurrent layer's own tensors that is not finite poisons the rows at that layer. */
START_TEST(nonfinite_numbers_of_a_recurrent_layer_poison_it)
{
    static const enum model_layer_tensor tensors[] = {
        MODEL_DELTA_QKV,  MODEL_DELTA_Z,          MODEL_DELTA_BETA, MODEL_DELTA_ALPHA,
        MODEL_DELTA_CONV, MODEL_DELTA_A,          MODEL_DELTA_DT,   MODEL_DELTA_NORM,
        MODEL_DELTA_OUT,  MODEL_DELTA_BETA_ALPHA, MODEL_SHORT_IN,   MODEL_SHORT_CONV,
        MODEL_SHORT_OUT,  MODEL_MAMBA_CONV_BIAS,  MODEL_MAMBA_A,    MODEL_MAMBA_D,
        MODEL_MAMBA_NORM, MODEL_DELTA_QKV,        MODEL_DELTA_Z,    MODEL_DELTA_ALPHA,
        MODEL_DELTA_DT,   MODEL_DELTA_CONV,       MODEL_DELTA_OUT};
    const uint32_t tokens[] = {9, 8, 7};
    const float bad = NAN;
    struct tiny_model shape = hybrid(QUANT_F32);
    struct one o;
    const uint32_t layer = _i >= 13 ? 0 : 2;
    shape.arch = _i >= 13                                ? "granitehybrid"
                 : tensors[_i] == MODEL_DELTA_BETA_ALPHA ? "qwen3next"
                 : _i >= 10                              ? "lfm2"
                                                         : "qwen35";
    one_open(&o, &shape);
    const struct model_tensor *t = &o.m.model->layers[layer].tensor[tensors[_i]];
    memcpy(o.m.file + (t->data - o.m.file), &bad, sizeof(bad));
    for (int i = 0; i < N_ISAS; i++) {
        if (!help_has_isa(isas[i]))
            continue;
        backend_cpu.close(o.b);
        o.b = help_backend(&o.m, isas[i], 1, 64, EXPECTED_PAGES);
        one_run(&o, tokens, 0, 3, (struct pass_state){.from = BACKEND_STATE_ZERO, .commit = 1});
        for (uint32_t r = 0; r < 3; r++) {
            ck_assert_int_eq(o.x.results[r].status, -EDOM);
            ck_assert_uint_eq(o.x.results[r].layer, layer);
        }
    }
    one_close(&o);
}
END_TEST

/* ---- refusals -------------------------------------------------------------------------------- */

START_TEST(a_state_that_cannot_be_is_refused)
{
    const struct {
        struct pass_state state;
        uint32_t position, n;
        const char *part;
    } bad[] = {
        {{.from = 8}, 1, 1, "does not exist"},
        {{.from = -2}, 0, 1, "does not exist"},
        {{.from = 0, .own = -1}, 1, 1, "does not exist"},
        {{.from = BACKEND_STATE_ZERO}, 1, 1, "not the first row"},
        {{.from = 0, .apply = 14}, 20, 1, "more records or rows"},
        {{.from = 0, .apply = 8, .replay = 6}, 20, 1, "more records or rows"},
        {{.from = 0, .apply = 3}, 2, 1, "more records or rows"},
        {{.from = 0, .commit = 3}, 2, 2, "more records or rows"},
        {{.from = BACKEND_STATE_ZERO, .apply = 1}, 0, 1, "more records or rows"},
        {{.from = 0, .replay = 1, .commit = 1}, 2, 2, "records that stay"},
        {{.from = 0, .commit = 1}, 2, 15, "more rows to record"},
        {{.from = 0, .replay = 12}, 12, 2, "more rows to record"},
        {{.from = 0, .commit = 2, .n_keep = 1, .keep = {{1, 3}}}, 2, 2, "a state to keep"},
        {{.from = 0, .commit = 2, .n_keep = 1, .keep = {{5, 3}}}, 2, 2, "a state to keep"},
        {{.from = 0, .commit = 2, .n_keep = 1, .keep = {{3, 8}}}, 2, 2, "a state to keep"},
        {{.from = 0, .own = 1, .n_keep = 1, .keep = {{2, 0}}}, 2, 2, "a state to keep"},
        {{.from = 0, .own = 1, .n_keep = 1, .keep = {{2, 1}}}, 2, 2, "a state to keep"},
        {{.from = 0, .n_keep = 2, .keep = {{2, 3}, {2, 3}}}, 2, 2, "a state to keep"},
        {{.from = 0, .n_keep = 3, .keep = {{2, 3}, {2, 4}}}, 2, 2, "a state to keep"},
    };
    uint32_t tokens[64] = {0};
    struct tiny_model shape = hybrid(QUANT_F32);
    struct one o;
    one_open(&o, &shape);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        one_prepare(&o, tokens, bad[i].position, bad[i].n, bad[i].state);
        const struct pass pass = {PASS_CANONICAL, o.x.n, o.x.rows, o.x.sequences, o.x.results, 1};
        ck_assert_int_eq(backend_cpu.start(o.b, &pass), -EINVAL);
        ck_assert_msg(strstr(backend_cpu.error(o.b), bad[i].part) != NULL, "%zu: %s", i,
                      backend_cpu.error(o.b));
    }
    one_close(&o);
}
END_TEST

/* Two sequences may read the same state, but none may read or write what another one writes. */
START_TEST(a_state_of_another_sequence_is_refused)
{
    const struct {
        struct pass_state state[2];
        bool good;
    } cases[] = {
        {{{.from = 0, .own = 1}, {.from = 0, .own = 2}}, true},
        {{{.from = 0, .own = 0}, {.from = 0, .own = 2}}, false},
        {{{.from = 0, .own = 1}, {.from = 2, .own = 1}}, false},
        {{{.from = 0, .own = 1, .n_keep = 1, .keep = {{1, 3}}}, {.from = 3, .own = 2}}, false},
        {{{.from = 0, .own = 1, .n_keep = 1, .keep = {{1, 3}}}, {.from = 0, .own = 3}}, false},
    };
    const uint32_t tokens[] = {1, 2};
    struct tiny_model shape = hybrid(QUANT_F32);
    struct one o;
    one_open(&o, &shape);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct expected_rows x = {.n = 0};
        for (uint32_t s = 0; s < 2; s++) {
            x.sequences[s] = (struct pass_sequence){.pages = o.pages + 2 * (size_t)s,
                                                    .state = cases[i].state[s]};
            expected_add(&x, s, tokens, 1, 1, 0);
        }
        const struct pass pass = {PASS_CANONICAL, x.n, x.rows, x.sequences, x.results, 2};
        ck_assert_int_eq(backend_cpu.start(o.b, &pass), cases[i].good ? 0 : -EINVAL);
    }
    one_close(&o);
}
END_TEST

START_TEST(states_are_for_recurrent_layers)
{
    struct backend *b;
    char err[256];
    for (uint32_t recurrent = 0; recurrent < 2; recurrent++) {
        struct tiny_model shape = hybrid(QUANT_F32);
        struct help_model m;
        shape.arch = recurrent ? "qwen35" : "llama";
        help_model_tiny(&m, &shape);
        struct backend_limits limits = {
            .rows = 4, .samples = 2, .pages = 4, .context = 64, .threads = 1, .states = !recurrent};
        ck_assert_int_eq(backend_cpu.open(m.model, &limits, &b, err, sizeof(err)), -EINVAL);
        ck_assert_ptr_nonnull(strstr(err, "recurrent layers"));
        help_model_close(&m);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_states");
    TCase *tcase = tcase_create("states");
    tcase_add_loop_test(tcase, every_division_of_a_text_gives_the_same_bits, 0, 9);
    tcase_add_test(tcase, a_record_that_was_rejected_changes_what_follows);
    tcase_add_test(tcase, a_released_state_is_written_anew);
    tcase_add_test(tcase, a_poisoned_row_that_is_recorded_leaves_the_state_alone);
    tcase_add_test(tcase, a_poisoned_row_that_is_folded_in_spoils_its_own_state_alone);
    tcase_add_loop_test(tcase, nonfinite_numbers_of_a_recurrent_layer_poison_it, 0, 23);
    tcase_add_test(tcase, a_state_that_cannot_be_is_refused);
    tcase_add_test(tcase, a_state_of_another_sequence_is_refused);
    tcase_add_test(tcase, states_are_for_recurrent_layers);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    help_say_missing_isas();
    return run_suite(suite);
}
