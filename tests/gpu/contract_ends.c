/* The pass contract on the CUDA backend, what a pass ends with: poison, refusals, a device that fails. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/contract.h"

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
