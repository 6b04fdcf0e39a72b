/* The shadow of a model: a fast pass computes with the model's weights in Q4_0, bit for bit on
 * every instruction set; canonical passes ignore it; they overwrite the KV that a fast pass
 * left. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kv.h"
#include "kernels/quant/quant_block.h"
#include "kernels/quant/quantize.h"
#include "tests/run_suite.h"
#include "tests/rig/cpu_help.h"

enum { TOKENS = 70, PAGES = 4 };

static const char *const isas[] = {"ref", "avx2", "avxvnni", "avx512"};
enum { N_ISAS = sizeof(isas) / sizeof(isas[0]) };

static int open_shadow(const struct model *m, const char *isa, bool shadow, struct backend **ret,
                       char *err, size_t err_bytes)
{
    struct backend_limits limits = {.rows = TOKENS,
                                    .samples = TOKENS,
                                    .pages = PAGES,
                                    .context = m->n_context,
                                    .threads = 2,
                                    .shadow = shadow,
                                    .isa = isa};

    return backend_cpu.open(m, &limits, ret, err, err_bytes);
}

static struct backend *shadowed(const struct model *m, const char *isa, bool shadow)
{
    struct backend *b;
    char err[256] = "";
    int rc = open_shadow(m, isa, shadow, &b, err, sizeof(err));

    ck_assert_msg(rc == 0, "%s", err);
    return b;
}

/* Logits of rows [from, to) of a sequence, in one pass of a kind. */
static void run(struct backend *b, enum pass_kind kind, const struct model *m, uint32_t from,
                uint32_t to, float *logits)
{
    static const uint32_t pages[PAGES] = {2, 0, 3, 1};
    struct pass_sequence sequence = {.pages = pages};
    struct row rows[TOKENS];
    struct row_result results[TOKENS];

    for (uint32_t p = from; p < to; p++) {
        rows[p - from] =
            (struct row){.position = p, .token = (p * 7919 + 5) % m->n_vocab, .wants = ROW_LOGITS};
        results[p - from] = (struct row_result){.logits = logits + (size_t)p * m->n_vocab};
    }
    struct pass pass = {kind, to - from, rows, &sequence, results, 1};
    help_pass(b, &pass);
    for (uint32_t i = 0; i < to - from; i++)
        ck_assert_int_eq(results[i].status, 0);
}

static float *all_logits(const struct model *m)
{
    return help_memory((size_t)TOKENS * m->n_vocab * sizeof(float));
}

static void expect_same(const float *a, const float *b, const struct model *m, const char *what)
{
    size_t n = (size_t)TOKENS * m->n_vocab, at = help_differs(a, b, n);

    ck_assert_msg(at == n, "%s: row %zu, token %zu", what, at / m->n_vocab, at % m->n_vocab);
}

static struct tiny_model shape_of(uint32_t type, uint64_t seed)
{
    struct tiny_model shape = tiny_model_default(type);

    shape.seed = seed;
    shape.untied = seed % 2;
    return shape;
}

/* ---- what it computes ------------------------------------------------------------------------ */

/* The tensor in Q4_0, by quantize_row. */
static void to_q4(struct model_tensor *t)
{
    const struct quant_info *q4 = quant_find(QUANT_Q4_0);
    uint64_t row_bytes = (uint64_t)t->cols / q4->block * q4->block_bytes;
    uint8_t *data = malloc(model_tensor_rows(t) * row_bytes);
    float *x = malloc(t->cols * sizeof(*x));

    for (uint64_t r = 0; r < model_tensor_rows(t); r++) {
        quant_row_values(t->type, model_tensor_row(t, r), t->cols, x);
        ck_assert_int_eq(quantize_row(QUANT_Q4_0, x, t->cols, data + r * row_bytes), 0);
    }
    free(x);
    t->type = QUANT_Q4_0;
    t->data = data;
    t->row_bytes = row_bytes;
    t->matrix_bytes = t->rows * row_bytes;
    t->bytes = model_tensor_rows(t) * row_bytes;
}

/* The model with its layers' matrices and its output matrix in Q4_0, as if loaded from such a
 * file. */
static struct model q4_model(const struct model *m)
{
    struct model q4 = *m;

    q4.layers = malloc(m->n_layer * sizeof(*q4.layers));
    memcpy(q4.layers, m->layers, m->n_layer * sizeof(*q4.layers));
    for (uint32_t l = 0; l < m->n_layer; l++)
        for (uint32_t i = 0; i < MODEL_N_LAYER_TENSORS; i++)
            if (q4.layers[l].tensor[i].data && !model_layer_vector(i) && !model_layer_small(i))
                to_q4(&q4.layers[l].tensor[i]);
    to_q4(&q4.global[MODEL_OUTPUT]);
    q4.tied = false; /* the embedding keeps its type */
    return q4;
}

static void q4_close(struct model *q4)
{
    for (uint32_t l = 0; l < q4->n_layer; l++)
        for (int i = 0; i < MODEL_N_LAYER_TENSORS; i++)
            if (q4->layers[l].tensor[i].type == QUANT_Q4_0 && q4->layers[l].tensor[i].data)
                free((void *)(uintptr_t)q4->layers[l].tensor[i].data);
    free((void *)(uintptr_t)q4->global[MODEL_OUTPUT].data);
    free(q4->layers);
}

START_TEST(a_fast_pass_equals_the_model_in_q4_0)
{
    static const uint32_t types[] = {QUANT_F16, QUANT_BF16, QUANT_Q8_0};
    static const char *const archs[] = {"llama",    "qwen2",    "qwen3",  "gemma3",
                                        "qwen3moe", "qwen2moe", "gpt-oss"};
    struct tiny_model shape = shape_of(types[_i % 3], 40 + (uint64_t)_i);
    shape.arch = archs[_i / 3 % 7];
    shape.merged = _i % 2;
    struct help_model m;
    help_model_tiny(&m, &shape);
    struct model q4 = q4_model(m.model);
    float *want = all_logits(m.model), *got = all_logits(m.model);
    struct backend *b = shadowed(&q4, "ref", false);
    run(b, PASS_CANONICAL, m.model, 0, TOKENS, want);
    backend_cpu.close(b);
    for (int i = 0; i < N_ISAS; i++) {
        if (!help_has_isa(isas[i]))
            continue;
        b = shadowed(m.model, isas[i], true);
        run(b, PASS_FAST, m.model, 0, 33, got);
        run(b, PASS_FAST, m.model, 33, 34, got);
        run(b, PASS_FAST, m.model, 34, TOKENS, got);
        expect_same(want, got, m.model, isas[i]);
        backend_cpu.close(b);
    }
    free(want);
    free(got);
    q4_close(&q4);
    help_model_close(&m);
}
END_TEST

/* With fast passes before and between, a canonical pass over canonical KV gives the bits of an
 * instance without a shadow. */
START_TEST(canonical_passes_ignore_the_shadow)
{
    static const uint32_t types[] = {QUANT_F32, QUANT_F16, QUANT_Q8_0, TINY_MIXED};
    struct tiny_model shape = shape_of(types[_i % 4], 60 + (uint64_t)_i);
    struct help_model m;
    help_model_tiny(&m, &shape);
    float *want = all_logits(m.model), *got = all_logits(m.model), *fast = all_logits(m.model);
    struct backend *b = shadowed(m.model, NULL, false);
    run(b, PASS_CANONICAL, m.model, 0, TOKENS, want);
    backend_cpu.close(b);
    b = shadowed(m.model, NULL, true);
    run(b, PASS_FAST, m.model, 0, 20, fast);
    run(b, PASS_CANONICAL, m.model, 0, 30, got);
    for (uint32_t p = 30; p < TOKENS; p += 5) { /* windows of 5 drafts across page boundaries */
        uint32_t end = p + 5 < TOKENS ? p + 5 : TOKENS;
        for (uint32_t q = p; q < end; q++)
            run(b, PASS_FAST, m.model, q, q + 1, fast);
        run(b, PASS_CANONICAL, m.model, p, end, got);
    }
    expect_same(want, got, m.model, "after fast passes");
    ck_assert_uint_lt(help_differs(want, fast, (size_t)TOKENS * m.model->n_vocab),
                      (size_t)TOKENS * m.model->n_vocab); /* and the shadow's logits differ */
    backend_cpu.close(b);
    free(want);
    free(got);
    free(fast);
    help_model_close(&m);
}
END_TEST

/* ---- what it says ---------------------------------------------------------------------------- */

START_TEST(describe_names_the_shadow)
{
    struct tiny_model shape = shape_of(QUANT_F16, 1);
    struct backend_info plain, with;
    struct help_model m;
    help_model_tiny(&m, &shape);
    struct backend *b = shadowed(m.model, NULL, false);
    backend_cpu.describe(b, &plain);
    backend_cpu.close(b);
    b = shadowed(m.model, NULL, true);
    backend_cpu.describe(b, &with);
    backend_cpu.close(b);
    ck_assert_int_eq(plain.fast, BACKEND_FAST_NONE);
    ck_assert_uint_eq(plain.shadow_bytes, 0);
    ck_assert_int_eq(with.fast, BACKEND_FAST_SHADOW);
    ck_assert_uint_eq(with.weight_bytes, plain.weight_bytes);
    ck_assert_uint_gt(with.shadow_bytes, plain.weight_bytes / 8);
    ck_assert_uint_lt(with.shadow_bytes, plain.weight_bytes / 3);
    ck_assert_str_eq(with.numerics, plain.numerics);
    help_model_close(&m);
}
END_TEST

START_TEST(a_model_of_few_bits_gets_no_shadow)
{
    struct tiny_model shape = shape_of(QUANT_Q4_0, 2);
    struct help_model m;
    struct backend *b;
    char err[256] = "";
    help_model_tiny(&m, &shape);
    ck_assert_int_eq(open_shadow(m.model, NULL, true, &b, err, sizeof(err)), -ENOTSUP);
    ck_assert_ptr_nonnull(strstr(err, "a shadow of this Q4_0 model"));
    help_model_close(&m);
}
END_TEST

/* Rows that are not whole blocks of 32 keep their type. */
START_TEST(odd_shapes_keep_their_matrices)
{
    struct tiny_model shape = shape_of(QUANT_F16, 3);
    struct help_model m;
    shape.n_ff = 100;
    help_model_tiny(&m, &shape);
    float *want = all_logits(m.model), *got = all_logits(m.model);
    for (int i = 0; i < N_ISAS; i++) {
        if (!help_has_isa(isas[i]))
            continue;
        struct backend *b = shadowed(m.model, isas[i], true);
        run(b, PASS_FAST, m.model, 0, TOKENS, i ? got : want);
        if (i > 0)
            expect_same(want, got, m.model, isas[i]);
        backend_cpu.close(b);
    }
    free(want);
    free(got);
    help_model_close(&m);
}
END_TEST

/* A weight that Q4_0 cannot represent gives an error line, not a shadow of zeros. */
START_TEST(nonfinite_weights_get_no_shadow)
{
    struct tiny_model shape = shape_of(QUANT_F32, 4);
    struct help_model m;
    struct backend *b;
    char err[256] = "";
    float bad = _i ? 1e30f : (float)strtod("nan", NULL);
    help_model_tiny(&m, &shape);
    memcpy((void *)(uintptr_t)m.model->layers[1].tensor[MODEL_FFN_UP].data, &bad, sizeof(bad));
    ck_assert_int_eq(open_shadow(m.model, NULL, true, &b, err, sizeof(err)), -ENOTSUP);
    ck_assert_ptr_nonnull(strstr(err, "cannot make a shadow of this model"));
    help_model_close(&m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_shadow");
    TCase *t = tcase_create("shadow");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_fast_pass_equals_the_model_in_q4_0, 0, 42);
    tcase_add_loop_test(t, canonical_passes_ignore_the_shadow, 0, 8);
    tcase_add_test(t, describe_names_the_shadow);
    tcase_add_test(t, a_model_of_few_bits_gets_no_shadow);
    tcase_add_test(t, odd_shapes_keep_their_matrices);
    tcase_add_loop_test(t, nonfinite_weights_get_no_shadow, 0, 2);
    suite_add_tcase(suite, t);
    help_say_missing_isas();
    return run_suite(suite);
}
