/* Fast passes: near the canonical ones, which compute over what they leave; and the passes of a draft model, which are all
 * fast ones. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/contract.h"

/* Logits of the sequence in fast passes of `chunk` rows: near the canonical ones and not the same. */
static float fast_logits(struct subject *s, struct backend *b, uint32_t chunk, float *got)
{
    uint32_t pages[SUBJECT_PAGES];
    float most = 0;
    int rc = 0;
    subject_pages(0, pages);
    for (uint32_t at = 0; at < s->n && rc == 0; at += chunk) {
        const uint32_t n = s->n - at < chunk ? s->n - at : chunk;
        struct mixed x = {.n = 0};
        for (uint32_t i = 0; i <= OTHERS; i++)
            x.sequences[i].pages = pages;
        for (uint32_t r = 0; r < n; r++)
            x.results[r].logits = got + (size_t)(at + r) * s->model->n_vocab;
        add_rows(&x, 0, s->tokens, at, n, ROW_LOGITS);
        rc = run_mixed(s, b, &x, PASS_FAST);
    }
    for (size_t i = 0; i < (size_t)s->n * s->model->n_vocab; i++)
        most = fmaxf(most, fabsf(got[i] - s->logits[i]));
    return rc == 0 ? most : INFINITY;
}

/* Where float chains are slow, fast passes are native ones: proposals near the canonical numbers, which stay the CPU's
 * over the KV that they leave. */
void fast_passes_are_native_ones(void)
{
    static const uint32_t types[] = {QUANT_F16, QUANT_BF16, TINY_MIXED, QUANT_Q4_0, QUANT_F32};
    for (uint32_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const struct tiny_model shape = tiny_model_default(types[i]);
        const bool want = i < 3;
        struct backend_info info;
        struct subject s;
        char what[32];
        snprintf(what, sizeof what, "fast, type %u", types[i]);
        subject_init(&s, &shape, 70);
        float *got = subject_floats(&s, s.n);
        struct backend *b = subject_open(&s, &s.device, 70, SUBJECT_PAGES);
        s.device.describe(b, &info);
        const bool fast = info.fast == BACKEND_FAST_NATIVE;
        const float small = fast_logits(&s, b, 9, got), large = fast_logits(&s, b, 70, got);
        s.device.close(b);
        free(got);
        subject_fini(&s);
        EXPECT(fast == want, "%s: described as %d", what, fast);
        if (want)
            check_near(fmaxf(small, large), bound_of(types[i]), what);
        else
            EXPECT(small == 0 && large == 0, "%s: %g, %g from the canonical", what, (double)small,
                   (double)large);
        if (want)
            check_neighbours(&shape, false);
    }
}

/* Fast logits of an instance of its own, of a draft model or not. Returns how far from the CPU's. */
static float own_logits(struct subject *s, bool drafts, uint32_t chunk, float *got)
{
    s->drafts = drafts;
    struct backend *b = subject_open(s, &s->device, s->n, SUBJECT_PAGES);
    const float far = fast_logits(s, b, chunk, got);
    s->device.close(b);
    return far;
}

/* The same bits as fast passes of a model that others verify, in portable numerics and in native ones; no canonical pass. */
void a_draft_models_passes_are_the_fast_ones(void)
{
    static const struct {
        uint32_t type;
        bool native;
    } kinds[] = {{QUANT_F16, false}, {QUANT_BF16, true}, {TINY_MIXED, false}, {QUANT_Q4_0, false}};
    for (uint32_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct tiny_model shape = tiny_model_default(kinds[i].type);
        struct subject s;
        const uint32_t page = 0, token = 0;
        const struct row row = {0};
        const struct pass_sequence sequence = {.pages = &page, .tokens = &token};
        struct row_result result = {0};
        const struct pass canonical = {PASS_CANONICAL, 1, &row, &sequence, &result, 1};
        shape.n_layer = 1;
        subject_init(&s, &shape, 20);
        s.native = kinds[i].native;
        const size_t n = (size_t)s.n * s.model->n_vocab;
        float *want = subject_floats(&s, s.n), *got = subject_floats(&s, s.n);
        own_logits(&s, false, 9, want);
        own_logits(&s, true, 9, got);
        const size_t at = subject_differs(want, got, n);
        struct backend *b = subject_open(&s, &s.device, 1, SUBJECT_PAGES);
        const int rc = s.device.start(b, &canonical);
        s.device.close(b);
        free(want);
        free(got);
        subject_fini(&s);
        EXPECT(at == n, "kind %u: row %zu differs", i, at / shape.n_vocab);
        EXPECT(rc == -EINVAL, "kind %u: a canonical pass: %d", i, rc);
    }
}
