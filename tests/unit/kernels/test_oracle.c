/* Every architecture against another implementation: the models of tests/fixtures/oracle, whose
 * logits and ids were computed in double precision by tests/tools/make_oracle_models.py. Errors are
 * printed with CK_VERBOSITY=verbose. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/num.h"
#include "tests/run_suite.h"
#include "tests/rig/cpu_help.h"
#include "tests/rig/gguf_writer.h"

static const char *const names[] = {
    "llama",         "llama3",    "llama-linear", "mistral",       "qwen2",
    "qwen3",         "gemma3",    "granite",      "smollm3",       "phi3",
    "llama-yarn",    "phi3-long", "mistral3",     "qwen3moe",      "qwen2moe",
    "glm4moe",       "qwen35",    "qwen35moe",    "mixtral",       "granitemoe",
    "ernie4_5-moe",  "gpt-oss",   "qwen35-mtp",   "gemma4",        "gemma4-experts",
    "gemma4-inputs", "qwen3next", "lfm2",         "lfm2moe",       "seed_oss",
    "ernie4_5",      "glm4",      "dots1",        "granitehybrid", "granite-h-moe",
    "exaone4",       "olmo2",     "olmo3"};
enum { N_NAMES = sizeof(names) / sizeof(names[0]), PAGES = 4, MOST = 128 };

/* Logits reach 20 to 30. In F32 with KV in f32 only the rounding of f32 sums remains, at most 3e-5
 * as measured. In F16 the KV is f16, which moves a logit by up to 0.03. */
static const double BOUND_F32 = 1e-4, BOUND_F16 = 0.1;

struct oracle {
    struct help_model m;
    uint32_t tokens[MOST], argmax[MOST], n, n_columns, step;
    float *logits; /* [n][n_columns]: those of tokens 0, step, 2 * step ... */
};

static const char *fixture(const char *name, const char *ending)
{
    static char path[256];
    snprintf(path, sizeof(path), "tests/fixtures/oracle/%s.%s", name, ending);
    return path;
}

static void load_ids(const json_t *list, uint32_t *ids, uint32_t n)
{
    ck_assert_uint_eq(json_array_size(list), n);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (uint32_t)json_integer_value(json_array_get(list, i));
}

static void oracle_open(struct oracle *o, const char *name)
{
    json_error_t error;
    json_t *root = json_load_file(fixture(name, "json"), 0, &error);
    ck_assert_msg(root != NULL, "%s: %s", name, error.text);
    o->n = (uint32_t)json_array_size(json_object_get(root, "prompt"));
    o->step = (uint32_t)json_integer_value(json_object_get(root, "column_step"));
    ck_assert(o->n >= 40 && o->n <= MOST && o->step > 0);
    load_ids(json_object_get(root, "prompt"), o->tokens, o->n);
    load_ids(json_object_get(root, "argmax"), o->argmax, o->n);
    json_decref(root);
    help_model_file(&o->m, fixture(name, "gguf"));
    o->n_columns = (o->m.model->n_vocab - 1) / o->step + 1;
    size_t size = (size_t)o->n * o->n_columns;
    o->logits = help_memory(size * sizeof(float));
    FILE *in = fopen(fixture(name, "f32"), "rb");
    ck_assert_ptr_nonnull(in);
    ck_assert_uint_eq(fread(o->logits, sizeof(float), size, in), size);
    ck_assert_int_eq(fgetc(in), EOF);
    fclose(in);
}

static void oracle_close(struct oracle *o)
{
    help_model_close(&o->m);
    free(o->logits);
}

/* The same file with every tensor in F32: the same numbers, since each is an f16 number. */
static void widen(const struct gguf *from, struct help_model *to)
{
    struct gw w;
    size_t bytes;
    char name[GGUF_MAX_KEY + 1], err[256] = "";
    gw_init(&w);
    for (uint64_t i = 0; i < from->n_keys; i++) {
        const struct gguf_key *key = gguf_key_at(from, i);
        snprintf(name, sizeof(name), "%.*s", (int)key->name.bytes, key->name.data);
        gw_key(&w, name, key->type, key->raw, key->raw_bytes);
    }
    for (uint64_t i = 0; i < gguf_n_tensors(from); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(from, i);
        snprintf(name, sizeof(name), "%.*s", (int)t->name.bytes, t->name.data);
        gw_tensor_info(&w, name, QUANT_F32, t->n_dims, t->ne, w.data.bytes);
        for (uint64_t at = 0; at < t->ne[0] * t->ne[1] * t->ne[2]; at++) {
            uint16_t half = 0;
            float x = 0;
            if (t->type == QUANT_F32)
                memcpy(&x, t->data + 4 * at, sizeof(x));
            else
                memcpy(&half, t->data + 2 * at, sizeof(half));
            x = t->type == QUANT_F32 ? x : num_f32_from_f16(half);
            gw_put(&w.data, &x, sizeof(x));
        }
        gw_pad(&w.data, w.alignment);
    }
    to->file = gw_finish(&w, &bytes, NULL);
    int rc = gguf_open_memory(to->file, bytes, &to->gguf, err, sizeof(err));
    ck_assert_msg(rc == 0, "%s", err);
    rc = model_open(to->gguf, &to->model, err, sizeof(err));
    ck_assert_msg(rc == 0, "%s", err);
}

/* All logits of the prompt from `m` must be within `bound` of the oracle's and have the same
 * argmax. */
static void compare(const struct oracle *o, const struct help_model *m, const char *name,
                    const char *isa, double bound)
{
    uint32_t n_vocab = m->model->n_vocab, pages[PAGES] = {2, 0, 3, 1};
    float *got = help_memory((size_t)o->n * n_vocab * sizeof(float));
    struct backend *b = help_backend(m, isa, 1, o->n, PAGES);
    double most = 0;
    help_logits(b, m->model, o->tokens, o->n, 7, pages, got);
    for (uint32_t r = 0; r < o->n; r++) {
        const float *row = got + (size_t)r * n_vocab;
        uint32_t best = 0;
        for (uint32_t i = 0; i < n_vocab; i++)
            best = row[i] > row[best] ? i : best;
        for (uint32_t c = 0; c < o->n_columns; c++) {
            double want = (double)o->logits[(size_t)r * o->n_columns + c];
            most = fmax(most, fabs((double)row[c * o->step] - want));
        }
        ck_assert_msg(most < bound, "%s, %s: a logit at position %u is off by %g", name,
                      isa ? isa : "best isa", r, most);
        ck_assert_msg(best == o->argmax[r], "%s: the largest logit at %u is that of %u, not %u",
                      name, r, best, o->argmax[r]);
    }
    const char *verbose = getenv("CK_VERBOSITY");
    if (verbose && strcmp(verbose, "verbose") == 0)
        printf("%s, %s: largest difference of a logit %.2e\n", name, model_type_name(m->model),
               most);
    backend_cpu.close(b);
    free(got);
}

START_TEST(logits_in_f32_equal_the_oracles)
{
    struct oracle o;
    struct help_model wide = {0};
    oracle_open(&o, names[_i]);
    widen(o.m.gguf, &wide);
    ck_assert(model_kv_f32(wide.model));
    compare(&o, &wide, names[_i], "ref", BOUND_F32);
    compare(&o, &wide, names[_i], NULL, BOUND_F32);
    help_model_close(&wide);
    oracle_close(&o);
}
END_TEST

START_TEST(logits_in_f16_are_close_to_the_oracles)
{
    struct oracle o;
    oracle_open(&o, names[_i]);
    ck_assert(!model_kv_f32(o.m.model));
    compare(&o, &o.m, names[_i], NULL, BOUND_F16);
    oracle_close(&o);
}
END_TEST

/* One row: token `position`, with its logits. */
static void run_row(struct backend *b, const struct oracle *o, enum pass_kind kind,
                    uint32_t position, struct pass_state state, float *logits)
{
    static const uint32_t pages[PAGES] = {2, 0, 3, 1};
    const struct pass_sequence sequence = {.pages = pages, .state = state};
    const struct row row = {0, position, o->tokens[position], ROW_LOGITS, NULL};
    struct row_result result = {.logits = logits};
    help_pass(b, &(struct pass){kind, 1, &row, &sequence, &result, 1});
    ck_assert_int_eq(result.status, 0);
}

/* The next-token layer, given the text token by token. */
START_TEST(drafts_in_f32_equal_the_oracles)
{
    static const char name[] = "qwen35-mtp";
    struct oracle o;
    struct help_model wide = {0};
    double most = 0;
    oracle_open(&o, name);
    widen(o.m.gguf, &wide);
    const size_t size = (size_t)o.n * o.n_columns;
    float *want = help_memory(size * sizeof(float)),
          *got = help_memory(wide.model->n_vocab * sizeof(float));
    FILE *in = fopen(fixture(name, "next.f32"), "rb");
    ck_assert_ptr_nonnull(in);
    ck_assert_uint_eq(fread(want, sizeof(float), size, in), size);
    fclose(in);
    struct backend *b = help_backend(&wide, _i ? NULL : "ref", 1, 1, PAGES);
    for (uint32_t i = 0; i < o.n; i++) {
        if (i > 0)
            run_row(b, &o, PASS_MTP, i, (struct pass_state){.from = 0, .own = 0}, got);
        for (uint32_t c = 0; c < o.n_columns && i > 0; c++)
            most = fmax(most, fabs((double)got[c * o.step] - (double)want[i * o.n_columns + c]));
        run_row(b, &o, PASS_CANONICAL, i,
                (struct pass_state){.from = i ? 0 : BACKEND_STATE_ZERO, .commit = 1}, got);
    }
    ck_assert_msg(most < BOUND_F32, "a logit of a draft is off by %g", most);
    backend_cpu.close(b);
    free(want);
    free(got);
    help_model_close(&wide);
    oracle_close(&o);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("oracle");
    TCase *tcase = tcase_create("oracle");
    tcase_add_loop_test(tcase, logits_in_f32_equal_the_oracles, 0, N_NAMES);
    tcase_add_loop_test(tcase, drafts_in_f32_equal_the_oracles, 0, 2);
    tcase_add_loop_test(tcase, logits_in_f16_are_close_to_the_oracles, 0, N_NAMES);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
