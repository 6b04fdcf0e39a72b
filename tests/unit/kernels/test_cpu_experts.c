/* Mixtures of experts on the CPU: which experts a row takes and how they are weighed, and that a
 * row's bits depend neither on the rows that share its experts nor on how these are spread: all rows
 * on one expert, one row on each, experts without rows. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/num.h"
#include "kernels/cpu/experts.h"
#include "tests/run_suite.h"
#include "tests/rig/double_model.h"
#include "tests/rig/expected.h"

static const char *const isas[] = {"ref", "avx2", "avxvnni", "avx512"};
enum { N_ISAS = sizeof(isas) / sizeof(isas[0]) };

/* ---- the router ------------------------------------------------------------------------------ */

enum { MOST_EXPERTS = 64, MOST_USED = 8 };

struct routed {
    uint32_t chosen[MOST_USED];
    float weight[MOST_USED];
    uint8_t bad;
};

/* The routers of qwen3moe, qwen2moe and glm4moe. */
static const struct model_router plain = {MODEL_GATING_SOFTMAX, true, 1},
                                 unnormed = {MODEL_GATING_SOFTMAX, false, 1},
                                 sigmoid = {MODEL_GATING_SIGMOID, true, 2.5f};

static struct routed route(struct model_router router, const float *bias, const float *score,
                           uint32_t n_expert, uint32_t n_used)
{
    static float scratch[EXPERTS_SCRATCH];
    struct routed r = {.bad = 0};
    const struct layer_geometry g = {.n_expert = n_expert, .n_expert_used = n_used};
    const struct layer_op op = {
        .n = n_expert, .geometry = &g, .from = {BUFFER_ROUTER}, .tensor = {MODEL_FFN_CHOICE_BIAS}};
    struct cpu_layer layer = {.vector[MODEL_FFN_CHOICE_BIAS] = bias};
    const struct cpu_weights weights = {&layer};
    const struct model model = {.router = router};
    struct backend b = {.isa = &cpu_isa_ref, .model = &model, .use = &weights};
    b.buffers.experts.scratch = scratch;
    b.buffers.of[BUFFER_ROUTER] =
        (struct cpu_input){.f = (float *)(uintptr_t)score, .stride = n_expert};
    b.buffers.experts.chosen = r.chosen;
    b.buffers.experts.weight = r.weight;
    b.buffers.bad = &r.bad;
    experts_route_row(&b, &op, 0, 0);
    return r;
}

/* The experts of a row are the first by a number of each, of equal ones the lower id. */
static void check_chosen(const struct routed *r, const float *by, uint32_t n_expert,
                         uint32_t n_used)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < n_expert; e++) {
        uint32_t before = 0;
        for (uint32_t i = 0; i < n_expert; i++)
            before += by[i] > by[e] || (by[i] == by[e] && i < e);
        if (before < n_used)
            ck_assert_uint_eq(r->chosen[n++], e);
    }
    ck_assert_uint_eq(n, n_used);
    ck_assert_uint_eq(r->bad, 0);
}

/* Scores of few values, zeros of both signs among them, so that most are tied. */
START_TEST(a_row_takes_the_best_experts_and_of_equal_ones_the_first)
{
    static const float values[] = {-1.5f, -0.0f, 0.0f, 0.25f, 3.0f};
    uint64_t seed = 3;
    for (int round = 0; round < 2000; round++) {
        const uint32_t n_expert = 1 + (uint32_t)(help_random(&seed) % MOST_EXPERTS);
        const uint32_t most = n_expert < MOST_USED ? n_expert : MOST_USED;
        const uint32_t n_used = 1 + (uint32_t)(help_random(&seed) % most);
        float score[MOST_EXPERTS];
        for (uint32_t e = 0; e < n_expert; e++)
            score[e] = round % 2 ? values[help_random(&seed) % 5] : help_normal(&seed);
        const struct model_router router = round % 3 ? plain : round % 6 ? sigmoid : unnormed;
        const struct routed r = route(router, NULL, score, n_expert, n_used);
        check_chosen(&r, score, n_expert, n_used);
    }
}
END_TEST

/* Whatever the scores are: one of -40 has no probability beside one of 60. */
START_TEST(a_bias_overturns_the_choice_and_no_weight)
{
    const float score[] = {60, -40, 1, 2, 1.5f, 1}, bias[] = {-2, 2, 0.5f, 0.5f, 0, 0.5f},
                even[] = {1, 1, 1, 1, 1, 1}, p[] = {num_sigmoid(-40), num_sigmoid(2)};
    const float probability[] = {1, 0, 0, 0, 0, 0}, sum = (0.0f + p[0]) + p[1];
    const struct routed r = route(sigmoid, bias, score, 6, 2);
    ck_assert(r.chosen[0] == 1 && r.chosen[1] == 3 && r.bad == 0);
    for (int i = 0; i < 2; i++)
        ck_assert_uint_eq(num_bits(r.weight[i]), num_bits(p[i] / sum * sigmoid.scale));
    float by[6];
    for (int i = 0; i < 6; i++)
        by[i] = probability[i] + bias[i];
    const struct routed s = route(plain, bias, score, 6, 3);
    check_chosen(&s, by, 6, 3); /* 2, 3 and 5 are tied */
    ck_assert_float_eq_tol(s.weight[2], 0.731058579f, 1e-6f);
    const struct routed t = route(plain, bias, even, 6, 4);
    ck_assert(t.chosen[0] == 1 && t.chosen[1] == 2 && t.chosen[2] == 3 && t.chosen[3] == 5);
    ck_assert(t.weight[0] == 0.25f && t.weight[3] == 0.25f);
}
END_TEST

/* Of 70 experts, so that some partials have three terms. */
START_TEST(unnormed_weights_are_probabilities_among_all)
{
    enum { N = 70 };
    float score[N], part[32] = {0}, max = -INFINITY;
    double exact = 0;
    uint64_t seed = 9;
    for (int e = 0; e < N; e++) {
        score[e] = help_normal(&seed);
        max = fmaxf(max, score[e]);
    }
    for (int e = 0; e < N; e++) {
        part[e % 32] += num_exp(score[e] - max);
        exact += exp((double)score[e]);
    }
    for (int stride = 16; stride > 0; stride /= 2)
        for (int i = 0; i < stride; i++)
            part[i] += part[i + stride];
    struct model_router router = unnormed;
    for (int scaled = 0; scaled < 2; scaled++) {
        router.scale = scaled ? 3.0f : 1.0f;
        const struct routed r = route(router, NULL, score, N, 8);
        for (int i = 0; i < 8; i++) {
            const float s = score[r.chosen[i]];
            ck_assert_uint_eq(num_bits(r.weight[i]),
                              num_bits(num_exp(s - max) / part[0] * router.scale));
            ck_assert_double_eq_tol((double)r.weight[i],
                                    (double)router.scale * exp((double)s) / exact, 1e-6);
        }
    }
}
END_TEST

START_TEST(weights_of_sigmoid_need_not_be_normed)
{
    const float score[] = {-3, 0.5f, 90, -90};
    struct model_router router = sigmoid;
    router.normed = false;
    const struct routed r = route(router, NULL, score, 4, 4);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(num_bits(r.weight[i]), num_bits(num_sigmoid(score[i]) * 2.5f));
}
END_TEST

/* In the order of NUMERICS.md, and close to what a softmax is. */
START_TEST(weights_are_the_softmax_of_the_chosen)
{
    const float score[] = {1.0f, 7.5f, -3.0f, 7.0f, 2.0f, 6.25f};
    const uint32_t chosen[] = {1, 3, 5};
    const struct routed r = route(plain, NULL, score, 6, 3);
    const float e[] = {num_exp(7.5f - 7.5f), num_exp(7.0f - 7.5f), num_exp(6.25f - 7.5f)};
    const float sum = ((0.0f + e[0]) + e[1]) + e[2];
    const double exact = 1 + exp(-0.5) + exp(-1.25), want[] = {1, exp(-0.5), exp(-1.25)};
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(r.chosen[i], chosen[i]);
        ck_assert_uint_eq(num_bits(r.weight[i]), num_bits(e[i] / sum));
        ck_assert_double_eq_tol((double)r.weight[i], want[i] / exact, 1e-6);
    }
}
END_TEST

START_TEST(scores_that_are_not_finite_take_the_first_experts)
{
    const float values[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        float score[] = {1, 2, 3, 4, 5};
        score[1 + i] = values[i];
        float bias[] = {0, 0, 0, 0, 1};
        const float fine[] = {1, 2, 3, 4, 5};
        const struct model_router routers[] = {plain, unnormed, sigmoid};
        for (int j = 0; j < 6; j++) {
            const struct routed r = route(routers[j % 3], j < 3 ? NULL : bias, score, 5, 2);
            ck_assert_uint_eq(r.bad, 1);
            ck_assert(r.chosen[0] == 0 && r.chosen[1] == 1);
        }
        bias[3] = values[i];
        const struct routed r = route(sigmoid, bias, fine, 5, 2);
        ck_assert(r.bad == 1 && r.chosen[0] == 0 && r.chosen[1] == 1);
    }
}
END_TEST

/* ---- passes ---------------------------------------------------------------------------------- */

static void check_instance(const struct expected *e, const char *isa, uint32_t threads,
                           uint32_t chunk)
{
    char what[128];
    float *got = help_memory((size_t)e->n * e->m.model->n_vocab * sizeof(float));
    struct backend *b = help_backend(&e->m, isa, threads, e->n, EXPECTED_PAGES);
    help_logits(b, e->m.model, e->tokens, e->n, chunk, e->pages, got);
    snprintf(what, sizeof(what), "%s, %u threads, chunks of %u", isa, threads, chunk);
    expected_same(e, got, what);
    backend_cpu.close(b);
    free(got);
}

static void check_all(const struct expected *e)
{
    const uint32_t chunks[] = {1, 0, 7};
    for (int i = 0; i < N_ISAS; i++)
        for (uint32_t c = 0; c < 3 && help_has_isa(isas[i]); c++)
            if (i > 0 || c > 1)
                check_instance(e, isas[i], 1 + c, chunks[c]);
}

/* Logits are those of the model in double precision, too: its routers take the same experts. */
static void check_exact(const struct expected *e)
{
    const uint32_t n_vocab = e->m.model->n_vocab;
    struct double_model *d = double_model_open(e->m.model, e->n, false);
    for (uint32_t r = 0; r < e->n; r++) {
        const double *want = double_model_step(d, e->tokens[r]);
        for (uint32_t i = 0; i < n_vocab; i++) {
            const double got = (double)e->logits[(size_t)r * n_vocab + i];
            ck_assert_msg(fabs(got - want[i]) < 1e-4, "row %u, token %u: %g for %g", r, i, got,
                          want[i]);
        }
    }
    double_model_close(d);
}

/* Architectures with experts. */
static const char *const archs[] = {"qwen3moe",     "qwen2moe", "glm4moe", "granitemoe",
                                    "ernie4_5-moe", "llama",    "gpt-oss"};
enum { N_ARCHS = sizeof(archs) / sizeof(archs[0]) };

static struct tiny_model shape_of(uint32_t type, uint32_t n_expert, uint32_t n_used)
{
    struct tiny_model shape = tiny_model_default(type);
    shape.arch = "qwen3moe";
    shape.n_expert = n_expert;
    shape.n_expert_used = n_used;
    shape.untied = true;
    return shape;
}

START_TEST(every_type_gives_the_same_bits)
{
    struct tiny_model shape = shape_of(expected_type(_i), 20, 4);
    struct expected e;
    shape.arch = archs[_i % N_ARCHS];
    shape.kv_q8_0 = expected_q8_0(_i);
    shape.seed = 700 + (uint64_t)_i;
    expected_open(&e, &shape, "ref", 40);
    check_all(&e);
    expected_close(&e);
}
END_TEST

/* Matrices whose rows fill no group, one group, and several chunks. */
enum { N_ODD = 4 };
START_TEST(odd_shapes_give_the_same_bits)
{
    static const struct tiny_model shapes[] = {
        {.n_embd = 34, .n_ff = 19, .n_expert = 5, .n_expert_used = 2},
        {.n_embd = 48, .n_ff = 16, .n_expert = 3, .n_expert_used = 3},
        {.n_embd = 66, .n_ff = 8, .n_expert = 130, .n_expert_used = 9},
        {.n_embd = 1300, .n_ff = 1100, .n_expert = 2, .n_expert_used = 1},
    };
    struct tiny_model shape = shapes[_i % N_ODD];
    struct expected e;
    shape.arch = archs[_i / N_ODD];
    shape.n_layer = 2;
    shape.n_head = shape.n_head_kv = 2;
    shape.head_dim = 12;
    shape.n_vocab = 259;
    shape.n_context = 512;
    shape.type = QUANT_F32;
    shape.scale = 1;
    shape.seed = 720 + (uint64_t)_i;
    expected_open(&e, &shape, "ref", 20);
    check_all(&e);
    if (shape.n_embd < 1000) /* else sums are long, and logits large */
        check_exact(&e);
    expected_close(&e);
}
END_TEST

/* Gate and up of an expert are rows of one matrix, between those of other experts. */
START_TEST(experts_with_gate_and_up_in_one_tensor_are_those_apart)
{
    struct tiny_model shape = shape_of(_i ? QUANT_Q8_0 : QUANT_F32, 9, 3);
    struct expected apart, merged;
    shape.arch = _i ? "glm4moe" : "qwen3moe";
    expected_open(&apart, &shape, "ref", 40);
    shape.merged = true;
    expected_open(&merged, &shape, "ref", 40);
    ck_assert_uint_eq(merged.m.model->n_params, apart.m.model->n_params);
    expected_same(&apart, merged.logits, "merged");
    check_all(&merged);
    expected_close(&merged);
    expected_close(&apart);
}
END_TEST

/* The bytes of a layer's tensor in the file, which is in memory. */
static uint8_t *bytes_of(const struct help_model *m, uint32_t layer, enum model_layer_tensor t)
{
    return m->file + (m->model->layers[layer].tensor[t].data - m->file);
}

/* Rewrites a model's logits after its file was changed. */
static void compute_again(struct expected *e)
{
    struct backend *b = help_backend(&e->m, "ref", 1, e->n, EXPECTED_PAGES);
    help_logits(b, e->m.model, e->tokens, e->n, 0, e->pages, e->logits);
    backend_cpu.close(b);
}

/* Zeros in a layer's tensor, if it has it. */
static void clear(const struct help_model *m, uint32_t layer, enum model_layer_tensor t)
{
    const struct model_tensor *tensor = &m->model->layers[layer].tensor[t];
    if (tensor->data)
        memset(bytes_of(m, layer, t), 0, tensor->bytes);
}

/* Equal rows in the router: all scores are tied, all rows use the first experts. */
static void tie_routers(struct help_model *m)
{
    for (uint32_t l = 0; l < m->model->n_layer; l++) {
        const struct model_tensor *t = &m->model->layers[l].tensor[MODEL_FFN_ROUTER];
        if (!t->data)
            continue;
        clear(m, l, MODEL_FFN_ROUTER_BIAS);
        uint8_t *router = bytes_of(m, l, MODEL_FFN_ROUTER);
        for (uint32_t e = 1; e < t->rows; e++)
            memcpy(router + e * t->row_bytes, router, t->row_bytes);
    }
}

/* A pass counts an expert's bytes once for all of its rows, and no others. */
static void check_bytes(const struct expected *e, uint32_t n_used)
{
    struct backend *b = help_backend(&e->m, NULL, 1, e->n, EXPECTED_PAGES);
    struct backend_info info;
    uint64_t bytes = 0;
    help_logits(b, e->m.model, e->tokens, e->n, 0, e->pages, e->logits);
    backend_cpu.describe(b, &info);
    for (uint32_t l = 0; l < e->m.model->n_layer; l++)
        for (uint32_t t = MODEL_FFN_GATE_EXPS; t <= MODEL_FFN_DOWN_EXPS; t++)
            bytes += e->m.model->layers[l].tensor[t].bytes / e->m.model->n_expert * n_used;
    ck_assert_uint_eq(info.expert_bytes, bytes);
    backend_cpu.close(b);
}

/* More rows than are multiplied together; experts that no row uses are not read. */
START_TEST(rows_of_one_expert_and_experts_without_rows)
{
    const uint32_t n_used = _i % 2 ? 3 : 1;
    struct tiny_model shape = shape_of(_i % 4 < 2 ? QUANT_F32 : QUANT_Q8_0, 6, n_used);
    struct expected e;
    shape.arch = _i < 4 ? "qwen3moe" : "gpt-oss";
    expected_open(&e, &shape, "ref", EXPERTS_ROWS + 9);
    tie_routers(&e.m);
    for (uint32_t l = 0; l < e.m.model->n_layer; l++)
        for (uint32_t t = MODEL_FFN_GATE_EXPS; t <= MODEL_FFN_DOWN_EXPS_BIAS; t++) {
            const struct model_tensor *x = &e.m.model->layers[l].tensor[t];
            const uint64_t one = x->bytes / 6;
            if (x->data && t != MODEL_FFN_ROUTER_BIAS)
                memset(bytes_of(&e.m, l, t) + n_used * one, 0x7f, x->bytes - n_used * one);
        }
    compute_again(&e);
    for (size_t i = 0; i < (size_t)e.n * e.m.model->n_vocab; i++)
        ck_assert(isfinite(e.logits[i]));
    check_bytes(&e, n_used);
    check_all(&e);
    expected_close(&e);
}
END_TEST

START_TEST(tied_experts_are_those_of_the_exact_model)
{
    struct tiny_model shape = shape_of(QUANT_F32, 9, 2);
    struct expected e;
    shape.arch = archs[_i];
    expected_open(&e, &shape, "ref", 30);
    tie_routers(&e.m);
    compute_again(&e);
    check_exact(&e);
    expected_close(&e);
}
END_TEST

/* Attention adds nothing, and the router's row e is the embedding of token e. */
START_TEST(one_row_on_each_expert)
{
    enum { ROWS = 50 };
    struct tiny_model shape = shape_of(QUANT_F32, ROWS, 1);
    struct expected e;
    shape.arch = _i ? "gpt-oss" : "qwen3moe";
    shape.n_layer = 1;
    expected_open(&e, &shape, "ref", ROWS);
    const struct model_tensor *embd = &e.m.model->global[MODEL_TOKEN_EMBD];
    clear(&e.m, 0, MODEL_ATTN_OUTPUT);
    clear(&e.m, 0, MODEL_ATTN_OUT_BIAS);
    clear(&e.m, 0, MODEL_FFN_ROUTER_BIAS);
    memcpy(bytes_of(&e.m, 0, MODEL_FFN_ROUTER), embd->data, ROWS * embd->row_bytes);
    for (uint32_t i = 0; i < ROWS; i++)
        e.tokens[i] = ROWS - 1 - i;
    compute_again(&e);
    struct backend *b = help_backend(&e.m, NULL, 2, ROWS, EXPECTED_PAGES);
    float *got = help_memory((size_t)ROWS * e.m.model->n_vocab * sizeof(float));
    help_logits(b, e.m.model, e.tokens, ROWS, 0, e.pages, got);
    ck_assert_uint_eq(b->buffers.experts.n_active, ROWS);
    struct backend_info info;
    backend_cpu.describe(b, &info);
    ck_assert_uint_eq(info.expert_bytes, (uint64_t)ROWS * 3 * 64 * 96 * sizeof(float));
    for (uint32_t p = 0; p < ROWS; p++)
        ck_assert_uint_eq(b->buffers.experts.pair_row[p], ROWS - 1 - p);
    backend_cpu.close(b);
    free(got);
    check_all(&e);
    check_exact(&e);
    expected_close(&e);
}
END_TEST

/* Large enough that experts, and the sum's columns, are really divided among threads. */
START_TEST(threads_never_change_a_bit)
{
    struct tiny_model shape = shape_of(_i ? QUANT_Q4_K : QUANT_F16, 12, 3);
    struct expected e;
    shape.n_embd = 1024;
    shape.n_ff = 768;
    expected_open(&e, &shape, NULL, 150);
    for (uint32_t threads = 2; threads <= 4; threads++)
        check_instance(&e, help_has_isa("avx2") ? "avx2" : "ref", threads,
                       threads == 3 ? 0 : 1 + 40 * (threads - 2));
    expected_close(&e);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_experts");
    TCase *tcase = tcase_create("experts");
    tcase_add_test(tcase, a_row_takes_the_best_experts_and_of_equal_ones_the_first);
    tcase_add_test(tcase, a_bias_overturns_the_choice_and_no_weight);
    tcase_add_test(tcase, weights_are_the_softmax_of_the_chosen);
    tcase_add_test(tcase, unnormed_weights_are_probabilities_among_all);
    tcase_add_test(tcase, weights_of_sigmoid_need_not_be_normed);
    tcase_add_test(tcase, scores_that_are_not_finite_take_the_first_experts);
    tcase_add_loop_test(tcase, every_type_gives_the_same_bits, 0, 2 * EXPECTED_TYPES);
    tcase_add_loop_test(tcase, odd_shapes_give_the_same_bits, 0, N_ODD * N_ARCHS);
    tcase_add_loop_test(tcase, experts_with_gate_and_up_in_one_tensor_are_those_apart, 0, 2);
    tcase_add_loop_test(tcase, rows_of_one_expert_and_experts_without_rows, 0, 8);
    tcase_add_loop_test(tcase, tied_experts_are_those_of_the_exact_model, 0, N_ARCHS);
    tcase_add_loop_test(tcase, one_row_on_each_expert, 0, 2);
    tcase_add_loop_test(tcase, threads_never_change_a_bit, 0, 2);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    help_say_missing_isas();
    return run_suite(suite);
}
