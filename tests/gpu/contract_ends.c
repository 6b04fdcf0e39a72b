/* The pass contract on the CUDA backend, how passes end: poison, refusals, a failing device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/contract.h"

/* ---- poison ---------------------------------------------------------------------------------- */

/* Rows of `n` sequences, `each` positions a pass. Sequence 0 has a bad row at BAD_AT: that row and
 * the later ones of its sequence in the same pass are poisoned, no others. (Later passes of the
 * sequence are not run: its keys are missing.) */
enum { BAD_ROWS = 40, BAD_AT = 20 };

static uint32_t wrong_beside_bad(struct subject *s, const uint32_t *bad, uint32_t n, uint32_t each)
{
    uint32_t pages[SUBJECT_PAGES], wrong = 0;
    const size_t vocab = s->model->n_vocab;
    float *got = subject_floats(s, MOST_ROWS);
    struct backend *b = subject_open(s, &s->device, 2 * BAD_ROWS, SUBJECT_PAGES);
    struct mixed x = {.n = 0};
    subject_pages(3, pages);
    for (uint32_t i = 0; i <= OTHERS; i++)
        x.sequences[i].pages = pages + 8 * i;
    for (uint32_t at = 0; at < BAD_ROWS; at += each) {
        x.n = 0;
        for (uint32_t i = at; i < at + each && i < BAD_ROWS; i++) {
            for (uint32_t q = at >= BAD_AT + 1 ? 1 : 0; q < n; q++) {
                x.results[x.n].logits = got + x.n * vocab;
                add_rows(&x, q, q ? s->tokens : bad, i, 1, ROW_LOGITS);
            }
        }
        if (x.n == 0)
            break;
        wrong += run_mixed(s, b, &x, PASS_CANONICAL) != 0;
        for (uint32_t r = 0; r < x.n; r++) {
            const bool poisoned = x.rows[r].sequence == 0 && x.rows[r].position >= BAD_AT;
            wrong += x.results[r].status != (poisoned ? -EDOM : 0) ||
                     (poisoned && x.results[r].layer != 0);
            wrong += !poisoned && subject_differs(s->logits + x.rows[r].position * vocab,
                                                  got + r * vocab, vocab) != vocab;
        }
    }
    s->device.close(b);
    free(got);
    return wrong;
}

/* Token 5's embedding is not finite: its sequence is poisoned from that row on, the other one is
 * not. In one pass, in passes of a few rows of both, of one row of each, and alone. */
void a_bad_row_poisons_its_sequence_only(void)
{
    static const float values[] = {__builtin_nanf(""), __builtin_inff()};
    for (uint32_t v = 0; v < 2; v++) {
        struct tiny_model shape = tiny_model_default(QUANT_F32);
        struct subject s;
        uint32_t bad[BAD_ROWS];
        shape.untied = true; /* the output matrix must not contain it */
        subject_init(&s, &shape, BAD_ROWS);
        for (uint32_t i = 0; i < s.n; i++) /* only the bad row has token 5 */
            s.tokens[i] = s.tokens[i] == 5 ? 6 : s.tokens[i];
        subject_expect(&s);
        memcpy(bad, s.tokens, sizeof(bad));
        bad[BAD_AT] = 5;
        subject_set_embedding(&s, 5, values[v]);
        const uint32_t wrong[] = {wrong_beside_bad(&s, bad, 2, BAD_ROWS),
                                  wrong_beside_bad(&s, bad, 2, 7), wrong_beside_bad(&s, bad, 2, 1),
                                  wrong_beside_bad(&s, bad, 1, 1)};
        /* Nothing of it stays: another instance in the same memory gives the right
         * bits. */
        check_chunks(&s, BAD_ROWS, 3, "after a poisoned pass");
        subject_fini(&s);
        EXPECT(wrong[0] + wrong[1] + wrong[2] + wrong[3] == 0,
               "%u, %u, %u, %u rows are wrong together, in few, side by side, alone", wrong[0],
               wrong[1], wrong[2], wrong[3]);
    }
}

void check_poisoned_at(const struct tiny_model *shape, uint32_t layer, uint32_t tensor,
                       float factor, uint32_t n, bool alone)
{
    struct subject s;
    uint32_t pages[SUBJECT_PAGES], wrong = 0;
    subject_init(&s, shape, 4);
    subject_scale(&s, layer, tensor, factor);
    subject_pages(0, pages);
    struct backend *b = subject_open(&s, &s.device, 8, SUBJECT_PAGES);
    struct mixed x = {.n = 0};
    for (uint32_t i = 0; i <= OTHERS; i++)
        x.sequences[i].pages = pages + 8 * i;
    for (uint32_t r = 0; r < n; r++)
        add_rows(&x, alone ? r : 0, s.tokens, alone ? 0 : r, 1, 0);
    int rc = run_mixed(&s, b, &x, PASS_CANONICAL);
    for (uint32_t r = 0; r < n; r++)
        wrong += x.results[r].status != -EDOM || x.results[r].layer != layer;
    s.device.close(b);
    subject_fini(&s);
    EXPECT(rc == 0 && wrong == 0, "%u of %u rows are wrong (%d)", wrong, n, rc);
}

/* A key of layer 1 that f16 cannot hold. */
static void check_key_beyond_f16(uint32_t type, bool kv_q8_0)
{
    struct tiny_model shape = tiny_model_default(type);
    shape.kv_q8_0 = kv_q8_0;
    check_poisoned_at(&shape, 1, MODEL_ATTN_K, 0x1p20f, 4, false);
}

void a_key_beyond_f16_poisons_at_its_layer(void)
{
    check_key_beyond_f16(QUANT_BF16, false);
    check_key_beyond_f16(QUANT_BF16, true);
    check_key_beyond_f16(QUANT_F32, true); /* though f32 KV would hold it */
}

/* The residual is not finite after the norm of a layer's output: in every layer, for one row,
 * several, and several sequences. No row asks for results, so that no other check looks at the last
 * layer. */
void a_nonfinite_normed_part_poisons_at_its_layer(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    shape.arch = "gemma3";
    for (uint32_t layer = 0; layer < shape.n_layer; layer++) {
        check_poisoned_at(&shape, layer, MODEL_FFN_POST_NORM, 0x1p126f, 4, false);
        check_poisoned_at(&shape, layer, MODEL_FFN_POST_NORM, 0x1p126f, 4, true);
        check_poisoned_at(&shape, layer, MODEL_FFN_POST_NORM, 0x1p126f, 1, false);
    }
}

/* What a layer adds is not finite: of every head, since its sink is not, or by its bias. */
void a_nonfinite_sink_or_bias_poisons_at_its_layer(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.sinks = true;
    for (uint32_t layer = 0; layer < shape.n_layer; layer++) {
        check_poisoned_at(&shape, layer, MODEL_ATTN_SINKS, __builtin_nanf(""), 4, false);
        check_poisoned_at(&shape, layer, MODEL_ATTN_OUT_BIAS, __builtin_inff(), 4, true);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

void bad_passes_and_limits_are_refused(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct subject s;
    uint32_t pages[SUBJECT_PAGES], accepted = 0;
    struct backend *none = NULL;
    char err[256] = "";
    subject_init(&s, &shape, 4);
    subject_pages(0, pages);
    struct backend_limits limits = {
        .rows = 8, .samples = 8, .pages = 8, .context = 64, .threads = 1, .isa = "avx2"};
    accepted += s.device.open(s.model, &limits, &none, err, sizeof(err)) != -ENOTSUP || !err[0];
    limits.isa = NULL;
    limits.samples = 9;
    accepted += s.device.open(s.model, &limits, &none, err, sizeof(err)) != -EINVAL;
    limits.samples = 8;
    limits.rows = 65536;
    accepted += s.device.open(s.model, &limits, &none, err, sizeof(err)) != -ENOTSUP;
    limits.rows = 8;
    limits.pages = UINT32_MAX / 32;
    accepted += s.device.open(s.model, &limits, &none, err, sizeof(err)) != -ENOMEM;
    struct backend *b = subject_open(&s, &s.device, 8, 8);
    struct pass_sequence sequence = {.pages = pages};
    struct row_result result = {0};
    const struct row rows[] = {{1, 0, 0, 0, NULL},
                               {0, 1 << 20, 0, 0, NULL},
                               {0, 0, 1 << 20, 0, NULL},
                               {0, 0, 0, ROW_LOGITS, NULL}};
    pages[0] = 8;
    for (uint32_t i = 0; i < 4; i++) {
        struct pass pass = {PASS_CANONICAL, 1, &rows[i], &sequence, &result, 1};
        accepted += s.device.start(b, &pass) != -EINVAL || !s.device.error(b)[0];
    }
    s.device.close(b);
    subject_fini(&s);
    EXPECT(accepted == 0, "%u of 8 were not refused as they should be", accepted);
}

/* ---- a device that fails --------------------------------------------------------------------- */

bool may_fail(void)
{
    if (simulated())
        return true;
    printf("skip: %s: only the simulator fails on command\n", test_name);
    return false;
}

/* True when a pass on a broken instance returns -EIO with an error line. */
static bool is_broken(struct subject *s, struct backend *b)
{
    const uint32_t pages[] = {0};
    struct backend_info info;
    struct sampler_params params;
    sampler_params_init(&params);
    struct pass_sequence sequence = {
        .pages = pages, .tokens = s->tokens, .prompt_length = 1, .sampler = &params};
    struct row row = {0, 0, s->tokens[0], ROW_SAMPLE, NULL};
    struct row_result result = {0};
    struct pass pass = {PASS_CANONICAL, 1, &row, &sequence, &result, 1};
    const int rc = s->device.start(b, &pass);
    if (rc != 0 || s->device.finish(b) != -EIO)
        return false;
    s->device.describe(b, &info);
    return strlen(s->device.error(b)) > 0 && strchr(s->device.error(b), '\n') == NULL &&
           info.page_bytes > 0;
}

/* ---- graphs --------------------------------------------------------------------------------- */

/* Samplers: greedy, a draw from all tokens, from a few, after stages that take all of them, with
 * log-probabilities and penalties. */
static struct sampler_params sample_of_kind(uint32_t kind)
{
    struct sampler_params p;
    sampler_params_init(&p);
    p.temperature = kind == 0 ? 0.0f : 0.8f;
    p.top_k = kind == 2 ? 5 : 0;
    p.min_p = kind == 2 ? 0.05f : 0.0f;
    p.top_p = kind == 3 ? 0.9f : 1.0f;
    p.typical_p = kind == 3 ? 0.9f : 1.0f;
    p.logprobs = kind == 4;
    p.n_top = kind == 4 ? 3 : 0;
    p.repeat_penalty = kind == 4 ? 1.3f : 1.0f;
    return p;
}

/* Passes of one row and of 16 whose rows ask for nothing, logits, or samples: each is one graph.
 * The graph after the last of them is made to fail. Returns how many passes failed, and how the
 * next one ends. */
enum { SAMPLE_KINDS = 5, ONE_LAUNCH = 2 * (2 + SAMPLE_KINDS) };
static uint32_t failed_of_one_launch(struct subject *s, struct backend *b, int *ret_next)
{
    const uint32_t page = 0;
    struct sampler_params params = sample_of_kind(0);
    struct mixed x = {.n = 0};
    uint32_t failed = 0;
    float *got = subject_floats(s, 16);
    char text[64];
    for (uint32_t i = 0; i <= OTHERS; i++)
        x.sequences[i] = (struct pass_sequence){
            .pages = &page, .tokens = s->tokens, .prompt_length = 1, .sampler = &params};
    for (uint32_t r = 0; r < 16; r++)
        x.results[r].logits = got + (size_t)r * s->model->n_vocab;
    snprintf(text, sizeof(text), "launch@0=701,graph@%d=701", ONE_LAUNCH + 1);
    setenv("HEARTH_CUDASIM_FAIL", text, 1);
    for (uint32_t i = 0; i < ONE_LAUNCH; i++) {
        const uint32_t kind = i / 2;
        x.n = 0;
        params = sample_of_kind(kind < 2 ? 0 : kind - 2);
        add_rows(&x, 0, s->tokens, 0, i % 2 ? 16 : 1,
                 kind == 0   ? 0
                 : kind == 1 ? ROW_LOGITS
                             : ROW_SAMPLE);
        failed += run_mixed(s, b, &x, PASS_CANONICAL) != 0;
    }
    *ret_next = run_mixed(s, b, &x, PASS_CANONICAL);
    unsetenv("HEARTH_CUDASIM_FAIL");
    free(got);
    return failed;
}

void a_pass_of_few_rows_is_one_launch(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct subject s;
    int next = 0;
    if (!may_fail())
        return;
    shape.n_vocab = 4097; /* two parts of a sample */
    subject_init(&s, &shape, 16);
    struct backend *b = subject_open(&s, &s.device, 16, SUBJECT_PAGES);
    const uint32_t failed = failed_of_one_launch(&s, b, &next);
    s.device.close(b);
    subject_fini(&s);
    EXPECT(failed == 0, "%u of %d passes needed a launch more", failed, ONE_LAUNCH);
    EXPECT(next == -EIO, "fewer launches than passes: %d", next);
}

/* ---- the self-test ---------------------------------------------------------------------------- */

/* Three threads: an array of them fills its piece of the heap, so one more would be noticed at the
 * end. */
static int open_with(const struct subject *s, uint32_t pages, const char *fault, char *err,
                     size_t err_bytes)
{
    struct backend *b = NULL;
    const struct backend_limits limits = {.rows = 16,
                                          .samples = 16,
                                          .pages = pages,
                                          .states = s->model->n_recurrent > 0,
                                          .context = 512,
                                          .threads = 3};
    setenv("HEARTH_CUDA_SELF_TEST", "all", 1);
    setenv("HEARTH_CUDASIM_FAIL", fault, 1);
    const int rc = s->device.open(s->model, &limits, &b, err, err_bytes);
    unsetenv("HEARTH_CUDASIM_FAIL");
    unsetenv("HEARTH_CUDA_SELF_TEST");
    s->device.close(b);
    return rc;
}

/* The logits of 22 rows, or of one with a single state, come to the host first, then those of ten rows one by one; a bit of a
 * later row, which is compared, is another. An instance of
 * ten pages, as many as the test takes, opens too. */
void the_self_test_goes_beyond_a_split(void)
{
    static const char *const archs[] = {"gemma3", "qwen35"};
    static const char *const faults[] = {"bit@35=3", "bit@14=3"};
    if (!may_fail())
        return;
    for (uint32_t i = 0; i < 2; i++) {
        struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
        struct subject s;
        char err[256] = "", failed[256] = "";
        shape.arch = archs[i];
        subject_init(&s, &shape, 8);
        const int least = open_with(&s, 10, "", err, sizeof(err)),
                  good = least ? least : open_with(&s, SUBJECT_PAGES, "", err, sizeof(err)),
                  bad = open_with(&s, SUBJECT_PAGES, faults[i], failed, sizeof(failed));
        subject_fini(&s);
        EXPECT(good == 0, "%s: %s", archs[i], err);
        EXPECT(bad == -EIO && strstr(failed, "beyond a split"), "%s: %d %s", archs[i], bad, failed);
    }
}

/* ---- a broken instance ----------------------------------------------------------------------- */

/* One call fails: another instance is not affected. */
void a_broken_instance_stays_broken(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct subject s;
    uint32_t broken = 0;
    if (!may_fail())
        return;
    subject_init(&s, &shape, 8);
    struct backend *b = subject_open(&s, &s.device, 8, SUBJECT_PAGES);
    setenv("HEARTH_CUDASIM_FAIL", "graph@0=701,launch@0=701", 1);
    broken += is_broken(&s, b);
    unsetenv("HEARTH_CUDASIM_FAIL");
    for (int i = 0; i < 3; i++)
        broken += is_broken(&s, b);
    check_chunks(&s, 3, 1, "beside a broken one");
    s.device.close(b);
    subject_fini(&s);
    EXPECT(broken == 4, "%u of 4 passes said so", broken);
}

/* The device is lost. This is the last test: none can run after it. */
void a_lost_device_lets_every_call_return(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct subject s;
    struct backend *b, *other, *none = NULL;
    uint32_t broken = 0;
    char err[256] = "";
    if (!may_fail())
        return;
    subject_init(&s, &shape, 8);
    b = subject_open(&s, &s.device, 8, SUBJECT_PAGES);
    other = subject_open(&s, &s.device, 8, SUBJECT_PAGES);
    setenv("HEARTH_CUDASIM_FAIL", "graph@0=700,launch@0=700", 1);
    broken += is_broken(&s, b);
    unsetenv("HEARTH_CUDASIM_FAIL");
    broken += is_broken(&s, b);
    broken += is_broken(&s, other);
    const struct backend_limits limits = {
        .rows = 8, .samples = 8, .pages = 8, .context = 64, .threads = 1};
    const int rc = s.device.open(s.model, &limits, &none, err, sizeof(err));
    s.device.close(b);
    s.device.close(other);
    subject_fini(&s);
    EXPECT(broken == 3, "%u of 3 passes said so", broken);
    EXPECT(rc == -EIO && none == NULL && err[0], "opened on a lost device: %d", rc);
}
