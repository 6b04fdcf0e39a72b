/* The next-token layer on the CPU (backend.h, PASS_MTP): what it drafts, and what it leaves alone.
 * That drafts do not depend on how a text was computed is test_cpu_states's walk. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/double_model.h"
#include "tests/rig/expected.h"

static const char *const isas[] = {"ref", "avx2", "avxvnni", "avx512"};
enum { N_ISAS = sizeof(isas) / sizeof(isas[0]) };

enum { TOKENS = 70, DRAFTS = 5, PAGES = 4 };

static struct tiny_model with_mtp(const char *arch, uint32_t type)
{
    struct tiny_model shape = tiny_model_default(type);
    shape.arch = arch;
    shape.n_layer = 4;
    shape.n_draft = 1;
    return shape;
}

/* A text in state 0, all but its last token folded in; and what follows it. */
struct one {
    struct help_model m;
    struct backend *b;
    uint32_t tokens[TOKENS + DRAFTS], pages[PAGES];
    struct expected_rows x;
    float *logits; /* [n_vocab] */
};

static void one_open(struct one *o, const struct tiny_model *shape, const char *isa)
{
    help_model_tiny(&o->m, shape);
    o->b = help_backend(&o->m, isa, 2, TOKENS, PAGES);
    o->logits = help_memory(shape->n_vocab * sizeof(float));
    expected_random_tokens(shape->seed, o->m.model, o->tokens, TOKENS + DRAFTS);
    for (uint32_t i = 0; i < PAGES; i++)
        o->pages[i] = PAGES - 1 - i;
}

static void one_close(struct one *o)
{
    backend_cpu.close(o->b);
    help_model_close(&o->m);
    free(o->logits);
}

static void prepare(struct one *o, uint32_t position, uint32_t n, struct pass_state state)
{
    o->x = (struct expected_rows){.n = 0};
    o->x.sequences[0] = (struct pass_sequence){.pages = o->pages, .state = state};
    expected_add(&o->x, 0, o->tokens, position, n, 0);
    o->x.rows[n - 1].wants = ROW_LOGITS;
    o->x.results[n - 1].logits = o->logits;
}

static void run(struct one *o, enum pass_kind kind, uint32_t position, uint32_t n,
                struct pass_state state)
{
    prepare(o, position, n, state);
    expected_run(o->b, kind, &o->x, 1);
    for (uint32_t r = 0; r < n; r++)
        ck_assert_int_eq(o->x.results[r].status, 0);
}

/* The text, whose last row is recorded. */
static void run_text(struct one *o)
{
    run(o, PASS_CANONICAL, 0, TOKENS,
        (struct pass_state){.from = BACKEND_STATE_ZERO, .commit = TOKENS - 1});
}

static void run_draft(struct one *o, uint32_t i)
{
    run(o, PASS_MTP, TOKENS + i, 1, (struct pass_state){.from = 0, .own = 0, .replay = 1 + i});
}

/* Each draft follows from the hidden row of the one before. */
START_TEST(drafts_are_those_of_a_model_in_double_precision)
{
    static const char *const archs[] = {"qwen35", "qwen35moe", "qwen3next"};
    struct tiny_model shape = with_mtp(archs[_i], QUANT_F32);
    for (int isa = 0; isa < N_ISAS; isa++) {
        struct one o;
        double most = 0;
        if (!help_has_isa(isas[isa]))
            continue;
        one_open(&o, &shape, isas[isa]);
        struct double_model *d = double_model_open(o.m.model, TOKENS + DRAFTS, false);
        run_text(&o);
        for (uint32_t i = 0; i < TOKENS; i++)
            double_model_step(d, o.tokens[i]);
        for (uint32_t i = 0; i < DRAFTS; i++) {
            const double *want = double_model_draft(d, o.tokens[TOKENS + i]);
            run_draft(&o, i);
            for (uint32_t t = 0; t < shape.n_vocab; t++)
                most = fmax(most, fabs((double)o.logits[t] - want[t]));
        }
        ck_assert_msg(most < 1e-4, "%s: a logit is off by %g", isas[isa], most);
        double_model_close(d);
        one_close(&o);
    }
}
END_TEST

START_TEST(every_instruction_set_drafts_the_same_bits)
{
    const uint32_t types[] = {QUANT_Q8_0, QUANT_Q4_0, TINY_MIXED};
    struct tiny_model shape = with_mtp(_i % 2 ? "qwen35moe" : "qwen35", types[_i / 2]);
    float *want = help_memory((size_t)DRAFTS * shape.n_vocab * sizeof(float));
    for (int isa = 0; isa < N_ISAS; isa++) {
        struct one o;
        if (!help_has_isa(isas[isa]))
            continue;
        one_open(&o, &shape, isas[isa]);
        run_text(&o);
        for (uint32_t i = 0; i < DRAFTS; i++) {
            float *expected = want + (size_t)i * shape.n_vocab;
            run_draft(&o, i);
            if (isa == 0)
                memcpy(expected, o.logits, shape.n_vocab * sizeof(float));
            ck_assert_uint_eq(help_differs(expected, o.logits, shape.n_vocab), shape.n_vocab);
        }
        one_close(&o);
    }
    free(want);
}
END_TEST

/* The rows that verify drafts have the logits that they have without any. */
START_TEST(a_draft_changes_no_row_of_another_pass)
{
    struct tiny_model shape = with_mtp("qwen35", QUANT_Q8_0);
    float want[2][320];
    for (uint32_t drafts = 0; drafts < 2; drafts++) {
        struct one o;
        one_open(&o, &shape, NULL);
        run_text(&o);
        for (uint32_t i = 0; i < DRAFTS && drafts; i++)
            run_draft(&o, i);
        run(&o, PASS_CANONICAL, TOKENS, DRAFTS, (struct pass_state){.from = 0, .apply = 1});
        memcpy(want[drafts], o.logits, sizeof(want[0]));
        one_close(&o);
    }
    ck_assert_uint_eq(help_differs(want[0], want[1], 320), 320);
}
END_TEST

/* A draft depends on the hidden row, not on its token alone: that of a record which is not the
 * text's changes it. */
START_TEST(a_draft_sees_the_hidden_row_before_it)
{
    struct tiny_model shape = with_mtp("qwen35", QUANT_F32);
    float want[320];
    struct one o;
    one_open(&o, &shape, NULL);
    run_text(&o);
    run_draft(&o, 0);
    memcpy(want, o.logits, sizeof(want));
    run(&o, PASS_MTP, TOKENS - 1, 1, (struct pass_state){.from = 0, .own = 0});
    run_draft(&o, 0);
    ck_assert_uint_lt(help_differs(want, o.logits, 320), 320);
    one_close(&o);
}
END_TEST

START_TEST(a_pass_that_is_more_than_a_draft_is_refused)
{
    const struct {
        struct pass_state state;
        uint32_t n;
        const char *part;
    } bad[] = {
        {{.from = 0, .own = 0}, 2, "more than one row"},
        {{.from = 0, .own = 1}, 1, "moves its state"},
        {{.from = 0, .own = 0, .apply = 1}, 1, "moves its state"},
        {{.from = 0, .own = 0, .commit = 1}, 1, "moves its state"},
        {{.from = 0, .own = 0, .n_keep = 1, .keep = {{TOKENS, 2}}}, 1, "moves its state"},
        {{.from = 0, .own = 0, .replay = 13}, 1, "more rows to record"},
        {{.from = BACKEND_STATE_ZERO, .own = 0}, 1, "the state of the empty text"},
    };
    struct tiny_model shape = with_mtp("qwen35", QUANT_F32);
    struct one o;
    one_open(&o, &shape, NULL);
    run_text(&o);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        prepare(&o, TOKENS, bad[i].n, bad[i].state);
        const struct pass pass = {PASS_MTP, o.x.n, o.x.rows, o.x.sequences, o.x.results, 1};
        ck_assert_int_eq(backend_cpu.start(o.b, &pass), -EINVAL);
        ck_assert_msg(strstr(backend_cpu.error(o.b), bad[i].part) != NULL, "%zu: %s", i,
                      backend_cpu.error(o.b));
    }
    one_close(&o);
}
END_TEST

START_TEST(a_model_without_the_layer_has_no_such_pass)
{
    struct tiny_model shape = with_mtp("qwen35", QUANT_F32);
    struct backend_info info;
    struct one o;
    shape.n_draft = 0;
    one_open(&o, &shape, NULL);
    run_text(&o);
    backend_cpu.describe(o.b, &info);
    ck_assert(!info.mtp);
    prepare(&o, TOKENS, 1, (struct pass_state){.from = 0, .own = 0, .replay = 1});
    const struct pass pass = {PASS_MTP, o.x.n, o.x.rows, o.x.sequences, o.x.results, 1};
    ck_assert_int_eq(backend_cpu.start(o.b, &pass), -EINVAL);
    ck_assert_ptr_nonnull(strstr(backend_cpu.error(o.b), "no next-token layer"));
    one_close(&o);
}
END_TEST

/* A weight of the layer that is not finite spoils drafts; the model's rows stay as they are. */
START_TEST(a_poisoned_draft_poisons_nothing_else)
{
    struct tiny_model shape = with_mtp("qwen35", QUANT_F32);
    const enum model_layer_tensor where[] = {MODEL_MTP_TOKEN_NORM, MODEL_ATTN_K, MODEL_FFN_DOWN};
    const float bad = NAN;
    struct one o;
    one_open(&o, &shape, NULL);
    const struct model_tensor *t = &o.m.model->mtp->layer.tensor[where[_i]];
    memcpy(o.m.file + (t->data - o.m.file), &bad, sizeof(bad));
    backend_cpu.close(o.b);
    o.b = help_backend(&o.m, NULL, 2, TOKENS, PAGES);
    run_text(&o);
    prepare(&o, TOKENS, 1, (struct pass_state){.from = 0, .own = 0, .replay = 1});
    expected_run(o.b, PASS_MTP, &o.x, 1);
    ck_assert_int_eq(o.x.results[0].status, -EDOM);
    run(&o, PASS_CANONICAL, TOKENS, DRAFTS, (struct pass_state){.from = 0, .apply = 1});
    one_close(&o);
}
END_TEST

/* The KV heads of the model's layers are shared out evenly among two threads, the one of the
 * next-token layer is not: its long context is cut in splits. */
START_TEST(a_layer_with_other_kv_heads_drafts_the_same_on_any_threads)
{
    enum { LONG = 400, CHUNK = 200 };
    struct tiny_model shape = with_mtp("qwen35", QUANT_Q8_0);
    uint32_t tokens[LONG + 1], pages[LONG / 32 + 1];
    float want[320], got[320];
    uint32_t want_token = 0;
    struct help_model m;
    shape.n_head_kv = 1;
    shape.odd_head_kv = 2;
    help_model_tiny(&m, &shape);
    expected_random_tokens(shape.seed, m.model, tokens, LONG + 1);
    for (uint32_t i = 0; i < LONG / 32 + 1; i++)
        pages[i] = i;
    for (uint32_t threads = 1; threads < 4; threads++) {
        struct backend *b = help_backend(&m, NULL, threads, CHUNK, LONG / 32 + 1);
        struct expected_rows x = {.n = 0};
        x.sequences[0] = (struct pass_sequence){
            .pages = pages, .state = {.from = BACKEND_STATE_ZERO, .commit = CHUNK}};
        expected_add(&x, 0, tokens, 0, CHUNK, 0);
        expected_run(b, PASS_CANONICAL, &x, 1);
        x.n = 0;
        x.sequences[0].state = (struct pass_state){.from = 0, .commit = CHUNK - 1};
        expected_add(&x, 0, tokens, CHUNK, CHUNK, 0);
        expected_run(b, PASS_CANONICAL, &x, 1);

        struct sampler_params greedy;
        sampler_params_init(&greedy);
        x.n = 0;
        x.sequences[0].state = (struct pass_state){.from = 0, .own = 0, .replay = 1};
        x.sequences[0].sampler = &greedy;
        x.sequences[0].tokens = tokens;
        expected_add(&x, 0, tokens, LONG, 1, ROW_SAMPLE | ROW_LOGITS);
        x.results[0].logits = threads == 1 ? want : got;
        expected_run(b, PASS_MTP, &x, 1);
        ck_assert_int_eq(x.results[0].status, 0);
        if (threads == 1)
            want_token = x.results[0].sample.token;
        else
            ck_assert_uint_eq(help_differs(want, got, 320), 320);
        ck_assert_uint_eq(x.results[0].sample.token, want_token);
        backend_cpu.close(b);
    }
    help_model_close(&m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_mtp");
    TCase *tcase = tcase_create("mtp");
    tcase_add_loop_test(tcase, drafts_are_those_of_a_model_in_double_precision, 0, 3);
    tcase_add_loop_test(tcase, every_instruction_set_drafts_the_same_bits, 0, 6);
    tcase_add_test(tcase, a_draft_changes_no_row_of_another_pass);
    tcase_add_test(tcase, a_layer_with_other_kv_heads_drafts_the_same_on_any_threads);
    tcase_add_test(tcase, a_draft_sees_the_hidden_row_before_it);
    tcase_add_test(tcase, a_pass_that_is_more_than_a_draft_is_refused);
    tcase_add_test(tcase, a_model_without_the_layer_has_no_such_pass);
    tcase_add_loop_test(tcase, a_poisoned_draft_poisons_nothing_else, 0, 3);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    help_say_missing_isas();
    return run_suite(suite);
}
