/* The canonical order is accurate: against the transformer in double precision, and, with
 * HEARTH_TESTDATA, against reference logits and greedy ids of real models. Where a number is
 * measured it is printed with -v (CK_VERBOSE). */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/cpu_help.h"
#include "tests/rig/double_model.h"
#include "tests/rig/every_type.h"
#include "tests/rig/requantize.h"

enum { PAGES = 32, MOST = 512 };

static bool verbose(void)
{
    const char *v = getenv("CK_VERBOSITY");
    return v && strcmp(v, "verbose") == 0;
}

/* Greedy: tokens[0, n_prompt) given, filled up to n; one pass for the prompt, then one per token.
 */
static void greedy(const struct help_model *m, const char *isa, uint32_t *tokens, uint32_t n_prompt,
                   uint32_t n)
{
    struct backend *b = help_backend(m, isa, 1, MOST, PAGES);
    uint32_t pages[PAGES], position = 0;
    struct sampler_params params;
    struct row rows[MOST];
    struct row_result results[MOST] = {{0}};
    sampler_params_init(&params);
    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    struct pass_sequence sequence = {
        .pages = pages, .tokens = tokens, .prompt_length = n_prompt, .sampler = &params};
    while (position < n - 1) {
        uint32_t count = position == 0 ? n_prompt : 1;
        for (uint32_t i = 0; i < count; i++)
            rows[i] = (struct row){0, position + i, tokens[position + i], 0, NULL};
        rows[count - 1].wants = ROW_SAMPLE;
        struct pass pass = {PASS_CANONICAL, count, rows, &sequence, results, 1};
        help_pass(b, &pass);
        ck_assert_int_eq(results[count - 1].status, 0);
        position += count;
        tokens[position] = results[count - 1].sample.token;
    }
    backend_cpu.close(b);
}

static double largest_difference(const float *a, const double *b, uint32_t n)
{
    double most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - b[i]));
    return most;
}

/* ---- without data -----------------------------------------------------------------------------
 */

static double run_double(const struct help_model *m, const uint32_t *tokens, uint32_t n,
                         bool kv_f16, const float *logits)
{
    struct double_model *d = double_model_open(m->model, n, kv_f16);
    uint32_t n_vocab = m->model->n_vocab;
    double most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, largest_difference(logits + (size_t)i * n_vocab,
                                             double_model_step(d, tokens[i]), n_vocab));
    double_model_close(d);
    return most;
}

/* F32, with its KV in f32, stays as close as f32 can; f16 KV and int8 activations cost more. */
START_TEST(logits_are_close_to_double_precision)
{
    static const struct {
        const char *arch;
        uint32_t type;
        double bound, bound_f16;
    } cases[] = {
        {"llama", QUANT_F32, 1e-4, 1},         {"llama", QUANT_F16, 0.04, 5e-3},
        {"llama", QUANT_BF16, 0.04, 5e-3},     {"llama", QUANT_Q8_0, 1, 1},
        {"llama", QUANT_Q4_0, 1, 1},           {"llama", QUANT_Q5_0, 1, 1},
        {"llama", QUANT_Q5_1, 1, 1},           {"llama", QUANT_Q4_K, 2, 2},
        {"llama", QUANT_Q5_K, 2, 2},           {"llama", QUANT_Q6_K, 2, 2},
        {"qwen2", QUANT_F32, 1e-4, 1},         {"qwen3", QUANT_F32, 1e-4, 1},
        {"gemma3", QUANT_F32, 1e-4, 1},        {"gemma3", QUANT_Q8_0, 1, 1},
        {"granite", QUANT_F32, 1e-4, 1},       {"smollm3", QUANT_F32, 1e-4, 1},
        {"phi3", QUANT_F32, 1e-4, 1},          {"mistral3", QUANT_F32, 1e-4, 1},
        {"unequal", QUANT_F32, 1e-4, 1},       {"qwen3moe", QUANT_F32, 1e-4, 1},
        {"qwen2moe", QUANT_F32, 1e-4, 1},      {"glm4moe", QUANT_F32, 1e-4, 1},
        {"granitemoe", QUANT_F32, 1e-4, 1},    {"ernie4_5-moe", QUANT_F32, 1e-4, 1},
        {"sinks", QUANT_F32, 1e-4, 1},         {"qwen35", QUANT_F32, 1e-4, 1},
        {"qwen35", QUANT_Q8_0, 2, 2},          {"qwen35moe", QUANT_F32, 1e-4, 1},
        {"gpt-oss", QUANT_F32, 1e-4, 3},       {"gemma4", QUANT_F32, 1e-4, 1},
        {"gemma4", QUANT_Q4_0, 1, 1},          {"gemma4-experts", QUANT_F32, 1e-4, 3},
        {"gemma4-inputs", QUANT_F32, 1e-4, 1}, {"gemma4-inputs", QUANT_Q4_0, 2, 2},
        {"gemma4-all", QUANT_F32, 1e-4, 3},    {"qwen3next", QUANT_F32, 1e-4, 1},
        {"lfm2", QUANT_F32, 1e-4, 1},          {"lfm2moe", QUANT_F32, 1e-4, 1},
        {"seed_oss", QUANT_F32, 1e-4, 1},      {"ernie4_5", QUANT_F32, 1e-4, 1},
        {"glm4", QUANT_F32, 1e-4, 1},          {"dots1", QUANT_F32, 1e-4, 1},
        {"granitehybrid", QUANT_F32, 1e-4, 1}, {"granite-h-moe", QUANT_F32, 1e-4, 1},
        {"granitehybrid", QUANT_Q8_0, 2, 2},   {"exaone4", QUANT_F32, 1e-4, 1},
        {"olmo2", QUANT_F32, 1e-4, 1},
    };
    const bool unequal = strcmp(cases[_i].arch, "unequal") == 0,
               sinks = strcmp(cases[_i].arch, "sinks") == 0;
    struct tiny_model shape = tiny_model_default(cases[_i].type);
    struct help_model m;
    uint32_t tokens[300], pages[PAGES];
    uint64_t seed = 50;
    shape.untied = true;
    shape.sinks = sinks;
    shape.v_dim = unequal ? 24 : 0;
    shape.odd_head_kv = unequal ? 4 : 0;
    tiny_model_as(&shape, unequal || sinks ? "gemma3" : cases[_i].arch);
    if (strcmp(shape.arch, "smollm3") == 0)
        shape.n_layer = 4; /* the fourth has no rope */
    shape.freqs = _i >= 10;
    help_model_tiny(&m, &shape);
    for (uint32_t i = 0; i < 300; i++)
        tokens[i] = (uint32_t)(help_random(&seed) % 320);
    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    float *logits = help_memory((size_t)300 * 320 * sizeof(float));
    struct backend *b = help_backend(&m, NULL, 1, 300, PAGES);
    help_logits(b, m.model, tokens, 300, 0, pages, logits);
    double most = run_double(&m, tokens, 300, false, logits);
    double most_f16 = run_double(&m, tokens, 300, true, logits);
    if (verbose())
        printf("tiny %s %s: largest difference to double %.2e, with KV in f16 %.2e\n",
               cases[_i].arch, quant_name(cases[_i].type), most, most_f16);
    ck_assert_msg(most < cases[_i].bound && most_f16 < cases[_i].bound_f16, "%s %s: %g, KV f16 %g",
                  cases[_i].arch, quant_name(cases[_i].type), most, most_f16);
    backend_cpu.close(b);
    help_model_close(&m);
    free(logits);
}
END_TEST

enum { DRIFT_PARTS = 8 };

/* The largest differences to double precision of each eighth of a text. */
static void drift_of(const struct help_model *m, const uint32_t *tokens, uint32_t n,
                     double most[DRIFT_PARTS])
{
    uint32_t *pages = help_memory(n / 32 * sizeof(*pages));
    float *logits = help_memory((size_t)n * 320 * sizeof(float));
    struct backend *b = help_backend(m, NULL, 1, 512, n / 32);
    struct double_model *d = double_model_open(m->model, n, false);
    for (uint32_t i = 0; i < n / 32; i++)
        pages[i] = i;
    help_logits(b, m->model, tokens, n, 512, pages, logits);
    for (uint32_t i = 0; i < n; i++) {
        double *part = &most[i / (n / DRIFT_PARTS)];
        *part = fmax(*part, largest_difference(logits + (size_t)i * 320,
                                               double_model_step(d, tokens[i]), 320));
    }
    double_model_close(d);
    backend_cpu.close(b);
    free(logits);
    free(pages);
}

/* A state that forgets little, decays near 1, is as close to double precision after thousands of
 * rows as after a few. HEARTH_DRIFT_ROWS: so many, a multiple of 256. */
START_TEST(a_recurrent_state_does_not_drift)
{
    static const struct {
        const char *arch;
        enum model_layer_tensor a;
        uint32_t n_layer; /* the second, of Mamba-2, has attention: small heads */
    } cases[] = {{"qwen35", MODEL_DELTA_A, 1}, {"granitehybrid", MODEL_MAMBA_A, 2}};
    const char *rows = getenv("HEARTH_DRIFT_ROWS");
    const uint32_t n = rows ? (uint32_t)strtoul(rows, NULL, 10) : 4096;
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    struct help_model m;
    uint32_t *tokens = help_memory(n * sizeof(*tokens));
    double most[DRIFT_PARTS] = {0};
    uint64_t seed = 51;
    shape.arch = cases[_i].arch;
    shape.n_layer = cases[_i].n_layer;
    shape.head_dim = shape.n_layer > 1 ? 2 : 0;
    shape.n_context = n;
    shape.untied = true;
    help_model_tiny(&m, &shape);
    const struct model_tensor *t = &m.model->layers[0].tensor[cases[_i].a];
    float *a = (float *)(void *)(m.file + (t->data - m.file));
    for (uint32_t i = 0; i < t->rows * t->cols; i++)
        a[i] = a[i] * 1e-3f;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (uint32_t)(help_random(&seed) % 320);
    drift_of(&m, tokens, n, most);
    for (uint32_t i = 0; i < DRIFT_PARTS; i++) {
        if (verbose())
            printf("%s, rows %u to %u: largest difference to double %.2e\n", shape.arch,
                   i * (n / DRIFT_PARTS), (i + 1) * (n / DRIFT_PARTS), most[i]);
        ck_assert_msg(most[i] < 1e-4, "%s, part %u: %g", shape.arch, i, most[i]);
    }
    help_model_close(&m);
    free(tokens);
}
END_TEST

/* KL divergence of softmax(b) from softmax(a). */
static double divergence(const double *a, const float *b, uint32_t n)
{
    double max_a = -INFINITY, max_b = -INFINITY, sum_a = 0, sum_b = 0, kl = 0;
    for (uint32_t i = 0; i < n; i++) {
        max_a = fmax(max_a, a[i]);
        max_b = fmax(max_b, (double)b[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        sum_a += exp(a[i] - max_a);
        sum_b += exp((double)b[i] - max_b);
    }
    for (uint32_t i = 0; i < n; i++) {
        double log_a = a[i] - max_a - log(sum_a);
        kl += exp(log_a) * (log_a - ((double)b[i] - max_b - log(sum_b)));
    }
    return kl;
}

/* Tokens of a prompt and the bundled model's answer to it. */
static uint32_t load_text(uint32_t *tokens, uint32_t most)
{
    static const char *const parts[] = {"prompt", "ids"};
    json_error_t error;
    uint32_t n = 0;
    json_t *root = json_load_file("daemon/models/training/reference.json", 0, &error);
    ck_assert_msg(root != NULL, "%s", error.text);
    json_t *run = json_array_get(json_object_get(root, "runs"), 0);
    for (int p = 0; p < 2; p++) {
        json_t *list = json_object_get(run, parts[p]);
        for (size_t i = 0; i < json_array_size(list) && n < most; i++)
            tokens[n++] = (uint32_t)json_integer_value(json_array_get(list, i));
    }
    json_decref(root);
    return n;
}

/* A trained model in every quantized type: the roundings of NUMERICS.md (activations to int8, KV to
 * f16) change its predictions little against the same weights in double precision. */
START_TEST(a_quantized_model_keeps_its_predictions)
{
    uint32_t tokens[80], pages[PAGES], n = load_text(tokens, 80);
    struct help_model plain, m = {0};
    size_t bytes;
    char err[256] = "";
    help_model_file(&plain, "daemon/models/hearth-code-5m-f16.gguf");
    m.file = requantize_file(plain.gguf, every_written[_i], &bytes);
    ck_assert_int_eq(gguf_open_memory(m.file, bytes, &m.gguf, err, sizeof(err)), 0);
    ck_assert_msg(model_open(m.gguf, &m.model, err, sizeof(err)) == 0, "%s", err);
    uint32_t n_vocab = m.model->n_vocab;
    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    float *logits = help_memory((size_t)n * n_vocab * sizeof(float));
    struct backend *b = help_backend(&m, NULL, 1, n, PAGES);
    help_logits(b, m.model, tokens, n, 0, pages, logits);
    struct double_model *d = double_model_open(m.model, n, false);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += divergence(double_model_step(d, tokens[i]), logits + (size_t)i * n_vocab, n_vocab);
    if (verbose())
        printf("bundled model as %s, %u tokens: mean KL divergence from double %.2e\n",
               quant_name(every_written[_i]), n, sum / n);
    ck_assert_msg(sum / n < 5e-4, "%s: %g", quant_name(every_written[_i]), sum / n);
    double_model_close(d);
    backend_cpu.close(b);
    help_model_close(&m);
    help_model_close(&plain);
    free(logits);
}
END_TEST

/* ---- with data --------------------------------------------------------------------------------
 */

struct reference_case {
    const char *name, *model;
};

static const struct reference_case references[] = {
    {"stories260K.bos", "stories260K-f32"},   {"stories260K.once", "stories260K-f32"},
    {"stories260K.utf8", "stories260K-f32"},  {"stories260K.bos", "stories260K-ff192-f32"},
    {"babyllama105.bos", "babyllama105-f32"}, {"babyllama105.lily", "babyllama105-f32"},
};
enum { N_REFERENCES = sizeof(references) / sizeof(references[0]) };

static uint32_t load_ids(const char *name, uint32_t *ids, uint32_t *ret_prompt)
{
    char file[128];
    json_error_t error;
    snprintf(file, sizeof(file), "reference/%s.json", name);
    json_t *root = json_load_file(help_testdata(file), 0, &error);
    ck_assert_msg(root != NULL, "%s: %s", file, error.text);
    json_t *list = json_object_get(root, "ids");
    uint32_t n = (uint32_t)json_array_size(list);
    ck_assert(n > 0 && n <= MOST);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    *ret_prompt = (uint32_t)json_integer_value(json_object_get(root, "n_prompt"));
    json_decref(root);
    return n;
}

static void open_reference_model(struct help_model *m, const char *name)
{
    char file[128];
    snprintf(file, sizeof(file), "models/%s.gguf", name);
    help_model_file(m, help_testdata(file));
}

START_TEST(greedy_ids_equal_the_reference)
{
    const char *const isas[] = {NULL, "avx2", "ref"};
    uint32_t ids[MOST], got[MOST], n_prompt, n = load_ids(references[_i].name, ids, &n_prompt);
    struct help_model m;
    open_reference_model(&m, references[_i].model);
    for (int i = 0; i < (_i < 2 ? 3 : 1); i++) {
#if !defined(__x86_64__)
        if (i == 1)
            continue;
#endif
        memcpy(got, ids, n_prompt * sizeof(got[0]));
        greedy(&m, isas[i], got, n_prompt, n);
        for (uint32_t t = 0; t < n; t++)
            ck_assert_msg(got[t] == ids[t], "%s: id %u is %u, not %u", references[_i].name, t,
                          got[t], ids[t]);
    }
    help_model_close(&m);
}
END_TEST

START_TEST(logits_equal_the_reference)
{
    uint32_t ids[MOST], pages[PAGES], n_prompt, n = load_ids(references[_i].name, ids, &n_prompt);
    struct help_model m;
    char file[128];
    open_reference_model(&m, references[_i].model);
    uint32_t n_vocab = m.model->n_vocab, rows = n - 1;
    size_t size = (size_t)rows * n_vocab;
    float *want = help_memory(size * sizeof(float)), *got = help_memory(size * sizeof(float));
    snprintf(file, sizeof(file), "reference/%s.f32", references[_i].name);
    FILE *in = fopen(help_testdata(file), "rb");
    ck_assert_ptr_nonnull(in);
    ck_assert_uint_eq(fread(want, sizeof(float), size, in), size);
    fclose(in);
    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    struct backend *b = help_backend(&m, NULL, 2, rows, PAGES);
    help_logits(b, m.model, ids, rows, 0, pages, got);
    double most = 0;
    for (size_t i = 0; i < size; i++)
        most = fmax(most, fabs((double)want[i] - (double)got[i]));
    if (verbose())
        printf("%s: largest difference of a logit %.2e\n", references[_i].name, most);
    ck_assert_msg(most < 1e-4, "%s: %g", references[_i].name, most);
    backend_cpu.close(b);
    help_model_close(&m);
    free(want);
    free(got);
}
END_TEST

/* Argmax of row t. */
static uint32_t best_of(const float *logits, uint32_t n_vocab)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n_vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* Along a text that the model wrote: the next token hardly ever changes. */
START_TEST(kv_in_q8_0_samples_the_tokens_of_f32)
{
    uint32_t ids[MOST], pages[PAGES], n_prompt, n = load_ids(references[_i].name, ids, &n_prompt);
    struct help_model m;
    open_reference_model(&m, references[_i].model);
    m.kv_q8_0 = true;
    uint32_t n_vocab = m.model->n_vocab, rows = n - 1, same = 0, all = n - n_prompt;
    float *logits = help_memory((size_t)rows * n_vocab * sizeof(float));
    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    struct backend *b = help_backend(&m, NULL, 2, rows, PAGES);
    help_logits(b, m.model, ids, rows, 0, pages, logits);
    for (uint32_t t = n_prompt; t < n; t++)
        same += best_of(logits + (size_t)(t - 1) * n_vocab, n_vocab) == ids[t];
    if (verbose())
        printf("%s: %u of %u ids with KV in q8_0\n", references[_i].name, same, all);
    ck_assert_msg(same * 100 >= all * 95, "%u of %u", same, all);
    backend_cpu.close(b);
    help_model_close(&m);
    free(logits);
}
END_TEST

/* The largest logit of a double-precision run of the model after tokens[0, n), and its lead. */
static uint32_t best_after(const struct help_model *m, const uint32_t *tokens, uint32_t n,
                           double *ret_gap)
{
    struct double_model *d = double_model_open(m->model, n, false);
    const double *logits = NULL;
    uint32_t best = 0;
    for (uint32_t i = 0; i < n; i++)
        logits = double_model_step(d, tokens[i]);
    for (uint32_t i = 0; i < m->model->n_vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    *ret_gap = INFINITY;
    for (uint32_t i = 0; i < m->model->n_vocab; i++)
        *ret_gap = i != best ? fmin(*ret_gap, logits[best] - logits[i]) : *ret_gap;
    double_model_close(d);
    return best;
}

static const struct {
    const char *file, *reference;
    double gap;
} rounded[] = {
    {"stories260K-ff192-f16", "stories260K.bos", 1e-3},
    {"stories260K-ff192-bf16", "stories260K.bos", 1e-3},
    {"stories260K-ff192-q8_0", "stories260K.bos", 0.05},
    {"stories260K-ff192-f16", "stories260K.once", 1e-3},
    {"stories260K-ff192-bf16", "stories260K.once", 1e-3},
    {"stories260K-ff192-q8_0", "stories260K.once", 0.05},
    {"stories260K-ff192-f16", "stories260K.utf8", 1e-3},
    {"stories260K-ff192-bf16", "stories260K.utf8", 1e-3},
    {"stories260K-ff192-q8_0", "stories260K.utf8", 0.05},
    {"babyllama105-f16", "babyllama105.bos", 1e-3},
    {"babyllama105-bf16", "babyllama105.bos", 1e-3},
    {"babyllama105-q8_0", "babyllama105.bos", 0.05},
};
enum { N_ROUNDED = sizeof(rounded) / sizeof(rounded[0]) };

/* The ids of F32 up to the first difference, which this file's weights must explain: a
 * double-precision run samples that token too, or its two best logits are close. */
START_TEST(other_types_differ_only_at_near_ties)
{
    uint32_t ids[MOST], got[MOST], n_prompt, n = load_ids(rounded[_i].reference, ids, &n_prompt);
    struct help_model m;
    open_reference_model(&m, rounded[_i].file);
    memcpy(got, ids, n_prompt * sizeof(got[0]));
    greedy(&m, NULL, got, n_prompt, n);
    uint32_t at = 0;
    while (at < n && got[at] == ids[at])
        at++;
    double gap = 0;
    uint32_t best = at < n ? best_after(&m, got, at, &gap) : 0;
    if (verbose())
        printf("%s, %s: %u of %u ids as F32, then a gap of %.2e, double samples %s\n",
               rounded[_i].file, rounded[_i].reference, at, n, gap,
               at == n           ? "-"
               : best == got[at] ? "the same"
                                 : "another");
    ck_assert_msg(at == n || best == got[at] || gap < rounded[_i].gap,
                  "%s, %s: id %u is %u, not %u, and the gap is %g", rounded[_i].file,
                  rounded[_i].reference, at, got[at], ids[at], gap);
    help_model_close(&m);
}
END_TEST

/* Too coarse for so small a model, but it runs. */
START_TEST(q4_0_runs)
{
    const char *const files[] = {"stories260K-ff192-q4_0", "babyllama105-q4_0"};
    struct help_model m;
    uint32_t tokens[100] = {1};
    open_reference_model(&m, files[_i]);
    greedy(&m, NULL, tokens, 1, 100);
    help_model_close(&m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_reference");
    TCase *doubles = tcase_create("double");
    tcase_add_loop_test(doubles, logits_are_close_to_double_precision, 0, 47);
    tcase_add_loop_test(doubles, a_recurrent_state_does_not_drift, 0, 2);
    tcase_add_loop_test(doubles, a_quantized_model_keeps_its_predictions, 0, EVERY_WRITTEN);
    tcase_set_timeout(doubles, 600);
    suite_add_tcase(suite, doubles);
    if (help_testdata("")) {
        TCase *data = tcase_create("data");
        tcase_add_loop_test(data, greedy_ids_equal_the_reference, 0, N_REFERENCES);
        tcase_add_loop_test(data, kv_in_q8_0_samples_the_tokens_of_f32, 0, N_REFERENCES);
        tcase_add_loop_test(data, logits_equal_the_reference, 0, N_REFERENCES);
        tcase_add_loop_test(data, other_types_differ_only_at_near_ties, 0, N_ROUNDED);
        tcase_add_loop_test(data, q4_0_runs, 0, 2);
        tcase_set_timeout(data, 60);
        suite_add_tcase(suite, data);
    } else {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set\n");
    }
    return run_suite(suite);
}
