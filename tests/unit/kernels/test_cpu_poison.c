/* Poison on the CPU: a row whose numbers are not finite reports the layer and poisons the later
 * rows of its sequence, and nothing else. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/num.h"
#include "tests/run_suite.h"
#include "tests/rig/expected.h"

static const char *const isas[] = {"ref", "avx2", "avxvnni", "avx512"};
enum { N_ISAS = sizeof(isas) / sizeof(isas[0]) };

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
    struct backend *b = help_backend(m, isa, threads, 128, EXPECTED_PAGES);
    uint32_t tokens[2][40], pages[EXPECTED_PAGES], n_vocab = m->model->n_vocab;
    float *clean = help_memory((size_t)40 * n_vocab * sizeof(float));
    float *got = help_memory((size_t)80 * n_vocab * sizeof(float));
    struct sampler_params params;
    sampler_params_init(&params);
    expected_page_ids(0, pages);
    for (uint32_t i = 0; i < 40; i++)
        tokens[0][i] = tokens[1][i] = 10 + i * 3 % 200;
    help_logits(b, m->model, tokens[1], 40, 0, pages, clean);

    set_embedding(m, 5, bad);
    backend_cpu.close(b);
    b = help_backend(m, isa, threads, 128, EXPECTED_PAGES);
    tokens[0][20] = 5;
    struct expected_rows x = {.n = 0};
    for (uint32_t s = 0; s < 2; s++)
        x.sequences[s] = (struct pass_sequence){
            .pages = pages + 8 * s, .tokens = tokens[s], .prompt_length = 1, .sampler = &params};
    for (uint32_t i = 0; i < 40; i++) {
        for (uint32_t s = 0; s < 2; s++) {
            x.results[x.n].logits = got + (size_t)x.n * n_vocab;
            expected_add(&x, s, tokens[s], i, 1, ROW_LOGITS | ROW_SAMPLE);
        }
    }
    expected_run(b, PASS_CANONICAL, &x, 2);
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
    /* The next pass over the same pages is not affected. */
    help_logits(b, m->model, tokens[1], 40, 0, pages, got);
    ck_assert_uint_eq(help_differs(clean, got, (size_t)40 * n_vocab), (size_t)40 * n_vocab);
    backend_cpu.close(b);
    free(clean);
    free(got);
}

START_TEST(a_nonfinite_residual_poisons_its_row_only)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < N_ISAS; i++) {
        if (!help_has_isa(isas[i]))
            continue;
        for (int j = 0; j < 3; j++) {
            struct tiny_model shape = tiny_model_default(QUANT_F32);
            struct help_model m;
            shape.untied = true; /* the output matrix must not contain the bad embedding */
            help_model_tiny(&m, &shape);
            check_poison(&m, isas[i], 1 + (uint32_t)j, bad[j]);
            help_model_close(&m);
        }
    }
}
END_TEST

/* Runs a few rows; all must be poisoned in that layer. */
static void expect_all_poisoned(const struct help_model *m, const char *isa, uint32_t layer)
{
    static const uint32_t tokens[] = {7, 8, 9};
    struct backend *b = help_backend(m, isa, 1, 8, EXPECTED_PAGES);
    uint32_t pages[EXPECTED_PAGES];
    struct expected_rows x = {.n = 0};
    expected_page_ids(0, pages);
    x.sequences[0].pages = pages;
    expected_add(&x, 0, tokens, 0, 3, 0);
    expected_run(b, PASS_CANONICAL, &x, 1);
    for (uint32_t r = 0; r < x.n; r++)
        ck_assert_msg(x.results[r].status == -EDOM && x.results[r].layer == layer,
                      "%s, %s: row %u status %d layer %u", isa, model_type_name(m->model), r,
                      x.results[r].status, x.results[r].layer);
    backend_cpu.close(b);
}

/* The f16 KV of other models overflows above 65504, the f32 KV of an F32 model where f32 does. */
START_TEST(a_key_beyond_the_kv_type_poisons_its_sequence)
{
    for (int i = 0; i < N_ISAS; i++) {
        if (!help_has_isa(isas[i]))
            continue;
        struct tiny_model shape = tiny_model_default(_i ? QUANT_F32 : QUANT_BF16);
        struct help_model m;
        help_model_tiny(&m, &shape);
        scale_keys(&m, 1, _i ? 0x1p127f : 0x1p20f);
        expect_all_poisoned(&m, isas[i], 1);
        help_model_close(&m);
    }
}
END_TEST

/* Weights of every type with infinite scales poison all rows without a crash. */
START_TEST(nonfinite_weights_poison_every_row)
{
    for (int i = 0; i < N_ISAS; i++) {
        if (!help_has_isa(isas[i]))
            continue;
        for (int t = 0; t < EXPECTED_TYPES - 1; t++) {
            struct tiny_model shape = tiny_model_default(expected_types[t]);
            struct help_model m;
            help_model_tiny(&m, &shape);
            const struct model_tensor *v = &m.model->layers[0].tensor[MODEL_ATTN_V];
            memset(m.file + (v->data - m.file), 0x7c, v->bytes); /* f16 infinities, large floats */
            if (expected_types[t] == QUANT_F32 || expected_types[t] == QUANT_BF16)
                memset(m.file + (v->data - m.file), 0x7f, v->bytes);
            expect_all_poisoned(&m, isas[i], 0);
            help_model_close(&m);
        }
    }
}
END_TEST

/* A value in a bias or in a head norm makes its layer's queries, keys or values nonfinite; a head
 * norm keeps infinite queries infinite; a value in a sink, in the bias of attention's output or in
 * the norm after a sub-layer makes the residual nonfinite, one in a router its scores. */
START_TEST(nonfinite_biases_and_norms_poison_their_layer)
{
    const struct {
        const char *arch;
        enum model_layer_tensor tensor;
        float value;
    } cases[] = {
        {"qwen2", MODEL_ATTN_Q_BIAS, NAN},
        {"qwen2", MODEL_ATTN_K_BIAS, INFINITY},
        {"qwen2", MODEL_ATTN_V_BIAS, -INFINITY},
        {"qwen2", MODEL_ATTN_V_BIAS, NAN},
        {"qwen3", MODEL_ATTN_Q_NORM, NAN},
        {"qwen3", MODEL_ATTN_K_NORM, INFINITY},
        {"qwen3", MODEL_ATTN_Q, INFINITY},
        {"qwen3", MODEL_ATTN_K, NAN},
        {"gemma3", MODEL_ATTN_POST_NORM, NAN},
        {"gemma3", MODEL_FFN_POST_NORM, INFINITY},
        {"qwen3moe", MODEL_FFN_ROUTER, NAN},
        {"qwen3moe", MODEL_FFN_ROUTER, INFINITY},
        {"glm4moe", MODEL_FFN_CHOICE_BIAS, NAN},
        {"glm4moe", MODEL_FFN_DOWN_SHARED, NAN},
        {"qwen2moe", MODEL_FFN_SHARED_ROUTER, NAN},
        {"qwen2", MODEL_ATTN_SINKS, NAN},
        {"qwen2", MODEL_ATTN_SINKS, INFINITY},
        {"gemma3", MODEL_ATTN_OUT_BIAS, NAN},
        {"gpt-oss", MODEL_FFN_ROUTER_BIAS, NAN},
        {"gpt-oss", MODEL_FFN_ROUTER_BIAS, -INFINITY},
        {"gemma4", MODEL_ATTN_K, NAN},
        {"gemma4-all", MODEL_FFN_ROUTER_NORM, NAN},
        {"gemma4-all", MODEL_FFN_EXPERT_POST_NORM, NAN},
        {"gemma4-all", MODEL_FFN_DENSE_POST_NORM, INFINITY},
        {"gemma4-all", MODEL_PER_LAYER_GATE, NAN},
        {"gemma4-all", MODEL_PER_LAYER_POST_NORM, NAN},
    };
    for (int i = 0; i < N_ISAS; i++) {
        if (!help_has_isa(isas[i]))
            continue;
        struct tiny_model shape = tiny_model_default(QUANT_F32);
        struct help_model m;
        tiny_model_as(&shape, cases[_i].arch);
        shape.sinks = true;
        help_model_tiny(&m, &shape);
        const struct model_tensor *t = &m.model->layers[1].tensor[cases[_i].tensor];
        memcpy(m.file + (t->data - m.file) + 4, &cases[_i].value, 4);
        expect_all_poisoned(&m, isas[i], 1);
        help_model_close(&m);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_poison");
    TCase *tcase = tcase_create("poison");
    tcase_add_test(tcase, a_nonfinite_residual_poisons_its_row_only);
    tcase_add_loop_test(tcase, a_key_beyond_the_kv_type_poisons_its_sequence, 0, 2);
    tcase_add_test(tcase, nonfinite_weights_poison_every_row);
    tcase_add_loop_test(tcase, nonfinite_biases_and_norms_poison_their_layer, 0, 26);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    help_say_missing_isas();
    return run_suite(suite);
}
