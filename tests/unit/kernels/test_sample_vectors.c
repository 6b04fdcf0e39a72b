/* The sample's stages against the sampling vectors of another engine (HEARTH_TESTDATA,
 * vectors/sampling.llama.cpp.json): probabilities before and after one sampler, and chains of
 * samplers on logits = ln(id). Samplers that hearth does not have (xtc, dry, top_n_sigma, dynamic
 * temperature) are counted and named, not checked. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sample/sample.h"
#include "tests/run_suite.h"

enum { N_MAX = 16 };

static double number(const json_t *c, const char *name)
{
    const json_t *v = json_object_get(c, name);
    ck_assert_msg(json_is_number(v), "the case has no number \"%s\"", name);
    return json_number_value(v);
}

static const char *function_of(const json_t *c)
{
    return json_string_value(json_object_get(c, "fn"));
}

static json_t *load_cases(void)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/vectors/sampling.llama.cpp.json", getenv("HEARTH_TESTDATA"));
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    ck_assert_msg(root != NULL, "%s: %s", path, error.text);
    json_t *cases = json_incref(json_object_get(root, "cases"));
    json_decref(root);
    ck_assert_uint_gt(json_array_size(cases), 0);
    return cases;
}

/* Parameters of a case with one sampler. Returns false for one that hearth does not have. */
static bool params_of(const json_t *c, uint32_t n_last, struct sampler_params *p)
{
    const char *fn = function_of(c);
    sampler_params_init(p);
    p->temperature = 1.0f;
    p->n_order = 1;
    if (strcmp(fn, "temp") == 0 || (strcmp(fn, "temp_ext") == 0 && number(c, "delta") == 0.0)) {
        p->order[0] = SAMPLE_TEMPERATURE;
        p->temperature = (float)number(c, "temp");
    } else if (strcmp(fn, "top_k") == 0) {
        p->order[0] = SAMPLE_TOP_K;
        p->top_k = (uint32_t)number(c, "k");
    } else if (strcmp(fn, "top_p") == 0) {
        p->order[0] = SAMPLE_TOP_P;
        p->top_p = (float)number(c, "p");
    } else if (strcmp(fn, "min_p") == 0) {
        p->order[0] = SAMPLE_MIN_P;
        p->min_p = (float)number(c, "p");
    } else if (strcmp(fn, "typical") == 0) {
        p->order[0] = SAMPLE_TYPICAL_P;
        p->typical_p = (float)number(c, "p");
    } else if (strcmp(fn, "penalties") == 0) {
        p->order[0] = SAMPLE_PENALTIES;
        p->penalty_last_n = (int32_t)n_last;
        p->repeat_penalty = (float)number(c, "repeat");
        p->frequency_penalty = (float)number(c, "frequency");
        p->presence_penalty = (float)number(c, "presence");
    } else {
        return false;
    }
    return true;
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Expected probabilities are sorted, most likely first. The typical cases keep the probabilities
 * from before the cut; all others are normalised after it. Tokens that greedy cuts are listed with
 * probability 0. */
static void check_case(const json_t *c, size_t index)
{
    const json_t *probs = json_object_get(c, "probs"), *expected = json_object_get(c, "expected");
    const json_t *last = json_object_get(c, "last_tokens");
    const uint32_t n = (uint32_t)json_array_size(probs), n_last = (uint32_t)json_array_size(last);
    ck_assert(n <= N_MAX && n_last <= N_MAX);
    float logits[N_MAX];
    uint32_t tokens[N_MAX];
    for (uint32_t i = 0; i < n; i++) {
        logits[i] = logf((float)json_number_value(json_array_get(probs, i)));
    }
    for (uint32_t i = 0; i < n_last; i++) {
        tokens[i] = (uint32_t)json_integer_value(json_array_get(last, i));
    }
    struct sampler_params p;
    ck_assert(params_of(c, n_last, &p));
    struct sampler_scratch *s;
    ck_assert_int_eq(sampler_scratch_open(n, &s), 0);
    struct sample_kept kept;
    ck_assert_int_eq(sample_distribution(&p, logits, n, tokens, n_last, 0, s, &kept), 0);

    const bool typical = strcmp(function_of(c), "typical") == 0;
    double got[N_MAX] = {0};
    for (uint32_t i = 0; i < kept.n; i++) {
        got[i] = typical ? json_number_value(json_array_get(probs, kept.ids[i]))
                         : (double)kept.weights[i] / (double)kept.total;
    }
    qsort(got, kept.n, sizeof(got[0]), descending);
    ck_assert_uint_le(kept.n, json_array_size(expected));
    for (uint32_t i = 0; i < json_array_size(expected); i++) {
        const double want = json_number_value(json_array_get(expected, i));
        if (i >= kept.n) {
            ck_assert_msg(want == 0.0, "case %zu: %u kept, %g is missing", index, kept.n, want);
        }
        ck_assert_msg(fabs(got[i] - want) < 1e-5, "case %zu (%s), place %u: %.9g, expected %.9g",
                      index, function_of(c), i, got[i], want);
    }
    sampler_scratch_close(s);
}

START_TEST(one_sampler_gives_the_expected_probabilities)
{
    json_t *cases = load_cases();
    uint32_t checked = 0, skipped = 0;
    char names[256] = "";
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        struct sampler_params p;
        if (strcmp(function_of(c), "queue") == 0) {
            continue;
        }
        if (!params_of(c, 0, &p)) {
            skipped++;
            if (strstr(names, function_of(c)) == NULL) {
                strncat(strncat(names, " ", 2), function_of(c), 32);
            }
            continue;
        }
        check_case(c, i);
        checked++;
    }
    printf("sampling vectors: %u cases of one sampler hold; skip: %u of samplers that hearth does "
           "not have:%s\n",
           checked, skipped, names);
    ck_assert_uint_gt(checked, 0);
    json_decref(cases);
}
END_TEST

/* ---- chains ------------------------------------------------------------------------------------
 * logits = ln(id), so token id has probability id / sum of the ids left, token 0 has none, and
 * every cut leaves the ids [least, n_vocab). After each sampler of a chain the number left and the
 * least id follow from arithmetic. */
struct expectation {
    int size, least;
};

static struct expectation after_top_k(int size, int least, int n, int k)
{
    const int from = n - k;
    return (struct expectation){size < k ? size : k, least > from ? least : from};
}

static struct expectation after_top_p(int least, int n, float top_p)
{
    const int sum = n * (n - 1) / 2 - least * (least - 1) / 2;
    const int target = (int)ceilf(top_p * (float)sum);
    struct expectation e = {0, n};
    int running = 0;
    do {
        e.least--;
        e.size++;
        running += e.least;
    } while (running < target);
    if (e.least == 1) { /* top_p 1 keeps all, token 0 too, which adds nothing */
        e.least--;
        e.size++;
    }
    return e;
}

/* Token 0 never survives a min_p above 0. */
static struct expectation after_min_p(int least, int n, float min_p)
{
    const int from = (int)ceil((double)min_p * (n - 1));
    struct expectation e = {0, least > 1 ? least : 1};
    if (e.least < from) {
        e.least = from;
    }
    e.size = n - e.least;
    return e;
}

static void check_chain(const json_t *c, size_t index)
{
    const char *chain = json_string_value(json_object_get(c, "seq"));
    const uint32_t n = (uint32_t)number(c, "n_vocab");
    float *logits = malloc(n * sizeof(*logits));
    ck_assert_ptr_nonnull(logits);
    for (uint32_t i = 0; i < n; i++) {
        logits[i] = logf((float)i);
    }
    struct sampler_scratch *s;
    ck_assert_int_eq(sampler_scratch_open(n, &s), 0);
    struct sampler_params p;
    sampler_params_init(&p);
    p.temperature = 1.0f;
    p.n_order = 0;
    p.top_k = (uint32_t)number(c, "top_k");
    p.top_p = (float)number(c, "top_p");
    p.min_p = (float)number(c, "min_p");
    struct sample_kept kept;
    struct expectation e = {(int)n, 0};
    for (const char *stage = chain; *stage != 0; stage++) {
        /* Each prefix of the chain is checked. */
        p.order[p.n_order++] = *stage == 'k'   ? SAMPLE_TOP_K
                               : *stage == 'p' ? SAMPLE_TOP_P
                                               : SAMPLE_MIN_P;
        ck_assert_int_eq(sample_distribution(&p, logits, n, NULL, 0, 0, s, &kept), 0);
        if (*stage == 'k') {
            e = after_top_k(e.size, e.least, (int)n, (int)p.top_k);
        }
        if (*stage == 'p') {
            e = after_top_p(e.least, (int)n, p.top_p);
        }
        if (*stage == 'm') {
            e = after_min_p(e.least, (int)n, p.min_p);
        }
        ck_assert_msg(
            (int)kept.n == e.size && kept.ids[kept.n - 1] == n - 1 && (int)kept.ids[0] == e.least,
            "case %zu, chain %s at %c: %u left, ids %u..%u; expected %d, %d..%u", index, chain,
            *stage, kept.n, kept.ids[0], kept.ids[kept.n - 1], e.size, e.least, n - 1);
    }
    sampler_scratch_close(s);
    free(logits);
}

START_TEST(chains_of_samplers_leave_the_expected_tokens)
{
    json_t *cases = load_cases();
    uint32_t checked = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        if (strcmp(function_of(c), "queue") != 0) {
            continue;
        }
        check_chain(c, i);
        checked++;
    }
    printf("sampling vectors: %u chains hold\n", checked);
    ck_assert_uint_gt(checked, 0);
    json_decref(cases);
}
END_TEST

/* ---- logits of real models ------------------------------------------------------------------ */

static void read_floats(const char *name, float *x, size_t n)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/reference/%s.f32", getenv("HEARTH_TESTDATA"), name);
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s: cannot open", path);
    ck_assert_msg(fread(x, sizeof(*x), n, f) == n, "%s: shorter than %zu floats", path, n);
    fclose(f);
}

/* For each row: the greedy token, its log-probability, the second best and the gap to it. */
static void check_rows(const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/reference/%s.json", getenv("HEARTH_TESTDATA"), name);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    ck_assert_msg(root != NULL, "%s: %s", path, error.text);
    const json_t *rows = json_object_get(root, "top");
    const uint32_t n = (uint32_t)number(root, "n_vocab");
    const size_t n_rows = json_array_size(rows);
    float *logits = malloc(n_rows * n * sizeof(*logits));
    struct sampler_scratch *s;
    ck_assert(n_rows > 0 && logits != NULL && sampler_scratch_open(n, &s) == 0);
    read_floats(name, logits, n_rows * n);
    struct sampler_params p;
    sampler_params_init(&p);
    p.logprobs = true;
    p.n_top = 2;
    for (size_t i = 0; i < n_rows; i++) {
        const json_t *row = json_array_get(rows, i);
        struct sample sample;
        ck_assert(sample_token(&p, logits + i * n, n, NULL, (uint32_t)i, 0, s, &sample) == 0);
        const double gap = (double)sample.top[0].logprob - (double)sample.top[1].logprob;
        ck_assert_msg(sample.token == (uint32_t)number(row, "argmax") &&
                          sample.top[1].id == (uint32_t)number(row, "second") &&
                          fabs((double)sample.logprob - number(row, "logprob")) < 1e-5 &&
                          fabs(gap - number(row, "gap")) < 1e-5,
                      "%s, row %zu: token %u, log-probability %g, gap %g", name, i, sample.token,
                      (double)sample.logprob, gap);
    }
    sampler_scratch_close(s);
    free(logits);
    json_decref(root);
}

START_TEST(greedy_samples_and_logprobs_of_real_models_agree)
{
    static const char *const names[] = {"stories260K.bos", "stories260K.once", "stories260K.utf8",
                                        "babyllama105.bos", "babyllama105.lily"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        check_rows(names[i]);
    }
}
END_TEST

int main(void)
{
    if (getenv("HEARTH_TESTDATA") == NULL) {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set\n");
        return 0;
    }
    Suite *suite = suite_create("sample_vectors");
    TCase *vectors = tcase_create("vectors");
    tcase_add_test(vectors, one_sampler_gives_the_expected_probabilities);
    tcase_add_test(vectors, chains_of_samplers_leave_the_expected_tokens);
    tcase_add_test(vectors, greedy_samples_and_logprobs_of_real_models_agree);
    suite_add_tcase(suite, vectors);
    return run_suite(suite);
}
