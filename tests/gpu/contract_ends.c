/* The pass contract on the CUDA backend, what a pass ends with: picks, poison, refusals, a device that fails. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/num.h"
#include "tests/gpu/contract.h"

/* ---- picks ------------------------------------------------------------------------------------ */

/* Parameters of many kinds; what the device picks is what pick_token picks of the CPU's logits. */
static struct pick_params some_params(uint32_t i)
{
    struct pick_params p;
    pick_params_init(&p);
    p.seed = 77 + i;
    p.temperature = i % 4 == 0 ? 0.0f : 0.7f;
    p.top_k = i % 3 == 1 ? 40 : 0;
    p.top_p = i % 4 == 2 ? 0.9f : 1.0f;
    p.min_p = i % 4 == 3 ? 0.05f : 0.0f;
    p.repeat_penalty = i % 5 == 4 ? 1.3f : 1.0f;
    p.logprobs = i % 2 == 1;
    p.n_top = i % 2 == 1 ? 3 : 0;
    return p;
}

static bool same_pick(const struct pick *a, const struct pick *b)
{
    if (a->token != b->token || num_bits(a->logprob) != num_bits(b->logprob) ||
        a->n_top != b->n_top)
        return false;
    for (uint32_t i = 0; i < a->n_top; i++) {
        if (a->top[i].id != b->top[i].id ||
            num_bits(a->top[i].logprob) != num_bits(b->top[i].logprob))
            return false;
    }
    return true;
}

void a_pick_is_that_of_its_logits(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct subject s;
    struct pick_scratch *scratch;
    struct pick picks[24];
    uint32_t pages[SUBJECT_PAGES], wrong = 0;
    shape.n_vocab = 9001; /* three parts on the device */
    subject_init(&s, &shape, 24);
    subject_pages(1, pages);
    if (pick_scratch_open(s.model->n_vocab, &scratch))
        abort();
    struct backend *b = subject_open(&s, &s.device, 24, SUBJECT_PAGES);
    for (uint32_t i = 0; i < 24; i++) {
        struct pick_params params = some_params(i);
        struct pass_sequence sequence = {pages, s.tokens, 2, &params};
        struct row row = {0, i, s.tokens[i], ROW_PICK, NULL};
        struct row_result result = {0};
        struct pass pass = {PASS_CANONICAL, 1, &row, &sequence, &result, 1};
        int rc = s.device.start(b, &pass);
        rc = rc ? rc : s.device.finish(b);
        pick_token(&params, s.logits + (size_t)i * s.model->n_vocab, s.model->n_vocab, s.tokens,
                   i + 1, 2, scratch, &picks[i]);
        wrong += rc || result.status || !same_pick(&picks[i], &result.pick);
    }
    pick_scratch_close(scratch);
    s.device.close(b);
    subject_fini(&s);
    EXPECT(wrong == 0, "%u of 24 picks are wrong", wrong);
}

enum { PICK_ROWS = 24, PICKS = 10, PICK_SEQUENCES = 3 };

/* Rows of three sequences in one pass, of which some want: picks of all kinds with log-probabilities and the largest
 * ones, logits, or both. */
static uint32_t wants_of(uint32_t r)
{
    static const uint32_t wants[] = {ROW_PICK, 0, ROW_PICK | ROW_LOGITS, 0, ROW_LOGITS, 0};
    return r < 2 * PICKS ? wants[r % 6] : 0;
}

/* Results that are not those of the same row alone: its pick is pick_token's of the CPU's logits. */
static uint32_t wrong_results(const struct subject *s, const struct mixed *x,
                              const struct pick_params *params, struct pick_scratch *scratch)
{
    const size_t n = s->model->n_vocab;
    float *logits = subject_floats(s, 1); /* pick_token changes them */
    uint32_t wrong = 0;
    for (uint32_t r = 0; r < x->n; r++) {
        const uint32_t position = x->rows[r].position, wants = x->rows[r].wants;
        struct pick want;
        memcpy(logits, s->logits + position * n, n * sizeof *logits);
        wrong += x->results[r].status != 0;
        if (wants & ROW_LOGITS)
            wrong += subject_differs(logits, x->results[r].logits, n) != n;
        if (!(wants & ROW_PICK))
            continue;
        pick_token(&params[x->rows[r].sequence], logits, (uint32_t)n, s->tokens, position + 1, 2,
                   scratch, &want);
        wrong += !same_pick(&want, &x->results[r].pick);
    }
    free(logits);
    return wrong;
}

void a_pass_may_have_several_picks_and_fewer_than_rows(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q4_0);
    struct subject s;
    struct backend *b = NULL;
    struct pick_scratch *scratch;
    struct pick_params params[4 * PICK_SEQUENCES];
    uint32_t pages[SUBJECT_PAGES], wrong = 0;
    char err[256] = "";
    shape.n_vocab = 5003;
    subject_init(&s, &shape, PICK_ROWS);
    subject_pages(7, pages);
    if (pick_scratch_open(s.model->n_vocab, &scratch))
        abort();
    const struct backend_limits limits = {.rows = PICK_ROWS,
                                          .picks = PICKS,
                                          .pages = SUBJECT_PAGES,
                                          .context = s.model->n_context,
                                          .threads = 2};
    int rc = s.device.open(s.model, &limits, &b, err, sizeof err);
    float *got = subject_floats(&s, PICK_ROWS);
    for (uint32_t i = 0; i < 4 * PICK_SEQUENCES; i++) {
        params[i] = some_params(i);
        params[i].n_top = i % 3 == 0 ? 0 : 5;
        params[i].logprobs = i % 3 != 0;
    }
    for (uint32_t turn = 0; turn < 4 && rc == 0; turn++) { /* other parameters in each */
        const struct pick_params *mine = params + turn * PICK_SEQUENCES;
        struct mixed x = {.n = 0};
        for (uint32_t i = 0; i <= OTHERS; i++)
            x.sequences[i] =
                (struct pass_sequence){pages + 8 * i, s.tokens, 2, &mine[i % PICK_SEQUENCES]};
        for (uint32_t r = 0; r < PICK_ROWS; r++) {
            x.results[r].logits = got + (size_t)r * s.model->n_vocab;
            add_rows(&x, r % PICK_SEQUENCES, s.tokens, r / PICK_SEQUENCES, 1, wants_of(r));
        }
        rc = run_mixed(&s, b, &x, PASS_CANONICAL);
        wrong += rc ? 0 : wrong_results(&s, &x, mine, scratch);
    }
    pick_scratch_close(scratch);
    s.device.close(b);
    free(got);
    subject_fini(&s);
    EXPECT(rc == 0, "a pass failed: %d %s", rc, err);
    EXPECT(wrong == 0, "%u results are wrong", wrong);
}

/* ---- poison ----------------------------------------------------------------------------------- */

/* Token 5's embedding is not finite: from its row on its sequence is poisoned, the other one is not. */
void a_bad_row_poisons_its_sequence_alone(void)
{
    static const float values[] = {__builtin_nanf(""), __builtin_inff()};
    for (uint32_t v = 0; v < 2; v++) {
        struct tiny_model shape = tiny_model_default(QUANT_F32);
        struct subject s;
        uint32_t pages[SUBJECT_PAGES], bad[40];
        shape.untied = true; /* the head shall not see it */
        subject_init(&s, &shape, 40);
        for (uint32_t i = 0; i < s.n; i++) /* token 5 is the bad one's alone */
            s.tokens[i] = s.tokens[i] == 5 ? 6 : s.tokens[i];
        subject_expect(&s);
        memcpy(bad, s.tokens, sizeof bad);
        bad[20] = 5;
        subject_set_embedding(&s, 5, values[v]);
        subject_pages(3, pages);
        float *got = subject_floats(&s, 80);
        struct backend *b = subject_open(&s, &s.device, 80, SUBJECT_PAGES);
        struct mixed x = {.n = 0};
        for (uint32_t i = 0; i <= OTHERS; i++)
            x.sequences[i].pages = pages + 8 * i;
        uint32_t wrong = 0;
        for (uint32_t i = 0; i < 40; i++) {
            for (uint32_t q = 0; q < 2; q++) {
                x.results[x.n].logits = got + (size_t)x.n * s.model->n_vocab;
                add_rows(&x, q, q ? s.tokens : bad, i, 1, ROW_LOGITS);
            }
        }
        int rc = run_mixed(&s, b, &x, PASS_CANONICAL);
        for (uint32_t r = 0; r < x.n && rc == 0; r++) {
            const bool poisoned = x.rows[r].sequence == 0 && x.rows[r].position >= 20;
            const size_t n = s.model->n_vocab;
            wrong += x.results[r].status != (poisoned ? -EDOM : 0) ||
                     (poisoned && x.results[r].layer != 0);
            wrong += !poisoned && subject_differs(s.logits + (size_t)x.rows[r].position * n,
                                                  got + (size_t)r * n, n) != n;
        }
        s.device.close(b);
        free(got);
        /* And the next pass over the same pages knows nothing of it: another instance, the same memory. */
        check_chunks(&s, 40, 3, "behind a poisoned pass");
        subject_fini(&s);
        EXPECT(rc == 0 && wrong == 0, "%u rows are wrong (%d)", wrong, rc);
    }
}

/* A key of layer 1 that f16 cannot hold. */
static void check_key_beyond_f16(uint32_t type, bool kv_q8_0)
{
    struct tiny_model shape = tiny_model_default(type);
    struct subject s;
    uint32_t pages[SUBJECT_PAGES], wrong = 0;
    shape.kv_q8_0 = kv_q8_0;
    subject_init(&s, &shape, 4);
    subject_scale_keys(&s, 1, 0x1p20f);
    subject_pages(0, pages);
    struct backend *b = subject_open(&s, &s.device, 8, SUBJECT_PAGES);
    struct mixed x = {.n = 0};
    for (uint32_t i = 0; i <= OTHERS; i++)
        x.sequences[i].pages = pages;
    add_rows(&x, 0, s.tokens, 0, 4, 0);
    int rc = run_mixed(&s, b, &x, PASS_CANONICAL);
    for (uint32_t r = 0; r < 4; r++)
        wrong += x.results[r].status != -EDOM || x.results[r].layer != 1;
    s.device.close(b);
    subject_fini(&s);
    EXPECT(rc == 0 && wrong == 0, "%u rows are wrong (%d)", wrong, rc);
}

void a_key_beyond_f16_poisons_at_its_layer(void)
{
    check_key_beyond_f16(QUANT_BF16, false);
    check_key_beyond_f16(QUANT_BF16, true);
    check_key_beyond_f16(QUANT_F32, true); /* though f32 KV would hold it */
}

/* ---- refusals --------------------------------------------------------------------------------- */

/* One line instead of another model's numbers. */
void an_architecture_that_is_not_there_is_refused(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct subject s;
    struct backend *none = NULL;
    char err[256] = "";
    shape.arch = "gemma3";
    subject_init(&s, &shape, 4);
    struct backend_limits limits = {
        .rows = 4, .picks = 4, .pages = SUBJECT_PAGES, .context = 64, .threads = 1};
    int rc = s.device.open(s.model, &limits, &none, err, sizeof err);
    EXPECT(rc == -ENOTSUP && strstr(err, "architecture gemma3"), "gemma3: %d %s", rc, err);
    subject_fini(&s);
}

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
        .rows = 8, .picks = 8, .pages = 8, .context = 64, .threads = 1, .isa = "avx2"};
    accepted += s.device.open(s.model, &limits, &none, err, sizeof err) != -ENOTSUP || !err[0];
    limits.isa = NULL;
    limits.picks = 9;
    accepted += s.device.open(s.model, &limits, &none, err, sizeof err) != -EINVAL;
    limits.picks = 8;
    limits.rows = 65536;
    accepted += s.device.open(s.model, &limits, &none, err, sizeof err) != -ENOTSUP;
    limits.rows = 8;
    limits.pages = UINT32_MAX / 32;
    accepted += s.device.open(s.model, &limits, &none, err, sizeof err) != -ENOMEM;
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

/* ---- a device that fails ----------------------------------------------------------------------- */

/* The simulator fails on command; a GPU does not. */
static bool may_fail(void)
{
    const char *plugins = getenv("HEARTH_PLUGINS");
    if (plugins && strstr(plugins, "cudasim"))
        return true;
    printf("skip: %s: only the simulator fails on command\n", test_name);
    return false;
}

/* A pass on an instance that broke: it returns, with -EIO and a line. */
static bool is_broken(struct subject *s, struct backend *b)
{
    const uint32_t pages[] = {0};
    struct backend_info info;
    struct pick_params params;
    pick_params_init(&params);
    struct pass_sequence sequence = {pages, s->tokens, 1, &params};
    struct row row = {0, 0, s->tokens[0], ROW_PICK, NULL};
    struct row_result result = {0};
    struct pass pass = {PASS_CANONICAL, 1, &row, &sequence, &result, 1};
    const int rc = s->device.start(b, &pass);
    if (rc != 0 || s->device.finish(b) != -EIO)
        return false;
    s->device.describe(b, &info);
    return strlen(s->device.error(b)) > 0 && strchr(s->device.error(b), '\n') == NULL &&
           info.page_bytes > 0;
}

/* With an error of one call: another instance does not mind. */
void an_instance_that_broke_stays_broken(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct subject s;
    uint32_t broken = 0;
    if (!may_fail())
        return;
    subject_init(&s, &shape, 8);
    struct backend *b = subject_open(&s, &s.device, 8, SUBJECT_PAGES);
    setenv("HEARTH_CUDASIM_FAIL", "graph@0=701", 1);
    broken += is_broken(&s, b);
    unsetenv("HEARTH_CUDASIM_FAIL");
    for (int i = 0; i < 3; i++)
        broken += is_broken(&s, b);
    check_chunks(&s, 3, 1, "beside a broken one");
    s.device.close(b);
    subject_fini(&s);
    EXPECT(broken == 4, "%u of 4 passes said so", broken);
}

/* With one that takes the device away. The last test: there is none after it. */
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
    setenv("HEARTH_CUDASIM_FAIL", "graph@0=700", 1);
    broken += is_broken(&s, b);
    unsetenv("HEARTH_CUDASIM_FAIL");
    broken += is_broken(&s, b);
    broken += is_broken(&s, other);
    const struct backend_limits limits = {
        .rows = 8, .picks = 8, .pages = 8, .context = 64, .threads = 1};
    const int rc = s.device.open(s.model, &limits, &none, err, sizeof err);
    s.device.close(b);
    s.device.close(other);
    subject_fini(&s);
    EXPECT(broken == 3, "%u of 3 passes said so", broken);
    EXPECT(rc == -EIO && none == NULL && err[0], "opened on a lost device: %d", rc);
}
