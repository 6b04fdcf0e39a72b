/* Fast passes: near the canonical ones, which overwrite their KV; and draft models, whose passes
 * are all fast. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/contract.h"

/* Logits of the sequence in fast passes of `chunk` rows. Returns the largest distance from the
 * CPU's, INFINITY when a pass failed. */
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

/* For types with slow canonical float chains, fast passes use native numerics: near the canonical
 * logits, and canonical passes over their KV still give the CPU's bits. */
void fast_passes_are_near_and_leave_canonical_bits(void)
{
    static const uint32_t types[] = {QUANT_F16, QUANT_BF16, TINY_MIXED, QUANT_Q4_0, QUANT_F32};
    for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        const struct tiny_model shape = tiny_model_default(types[i]);
        const bool want = i < 3;
        struct backend_info info;
        struct subject s;
        char what[32];
        snprintf(what, sizeof(what), "fast, type %u", types[i]);
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

/* Fast logits on a new instance, for a draft model or not. Returns the largest distance from the
 * CPU's. */
static float own_logits(struct subject *s, bool drafts, uint32_t chunk, float *got)
{
    s->drafts = drafts;
    struct backend *b = subject_open(s, &s->device, s->n, SUBJECT_PAGES);
    const float far = fast_logits(s, b, chunk, got);
    s->device.close(b);
    return far;
}

/* A draft model gets the bits of a normal instance's fast passes, in portable and in native
 * numerics; it refuses canonical passes. */
void a_draft_model_runs_fast_passes(void)
{
    static const struct {
        uint32_t type;
        bool native;
    } kinds[] = {{QUANT_F16, false}, {QUANT_BF16, true}, {TINY_MIXED, false}, {QUANT_Q4_0, false}};
    for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
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

/* ---- cuBLAS ---------------------------------------------------------------------------------- */

enum { FEW = 32 }; /* up to so many rows hearth's own kernels run */

static bool is_loaded(void)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps))
        found = found || strstr(line, "/libcublas.so");
    if (maps)
        fclose(maps);
    return found;
}

/* Opens a draft model's instance with this cuBLAS; NULL: the default one. */
static struct backend *open_with(struct subject *s, const char *library, uint32_t rows)
{
    s->drafts = true;
    if (library)
        setenv("HEARTH_CUBLAS", library, 1);
    struct backend *b = subject_open(s, &s->device, rows, SUBJECT_PAGES);
    unsetenv("HEARTH_CUBLAS");
    return b;
}

static const char *note_of(const struct subject *s, const struct backend *b)
{
    struct backend_info info;
    s->device.describe(b, &info);
    return info.note ? info.note : "";
}

/* Whether an instance uses cuBLAS; prints a skip where this machine lacks it. */
static bool has_cublas(const struct subject *s, const struct backend *b)
{
    const bool has = strstr(note_of(s, b), "by cuBLAS") != NULL;
    if (!has)
        printf("skip: %s: %s\n", test_name, note_of(s, b));
    return has;
}

/* Runs before any other test that opens a draft model with many rows. */
void cublas_is_opened_only_where_needed(void)
{
    static const struct {
        uint32_t type, rows;
        bool drafts;
    } others[] = {{QUANT_F16, 70, false},
                  {QUANT_Q4_0, 70, true},
                  {QUANT_F32, 70, true},
                  {TINY_MIXED, 70, true},
                  {QUANT_F16, FEW, true}};
    struct tiny_model shape = tiny_model_default(QUANT_F16);
    struct subject s;
    for (uint32_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        shape = tiny_model_default(others[i].type);
        shape.n_layer = 1;
        subject_init(&s, &shape, 2);
        s.drafts = others[i].drafts;
        struct backend *b = subject_open(&s, &s.device, others[i].rows, SUBJECT_PAGES);
        const bool said = note_of(&s, b)[0];
        s.device.close(b);
        subject_fini(&s);
        EXPECT(!said && !is_loaded(), "kind %u: cuBLAS is opened (%d), or reported as opened", i,
               is_loaded());
    }
    shape = tiny_model_default(QUANT_F16);
    subject_init(&s, &shape, 2);
    struct backend *b = open_with(&s, NULL, FEW + 1);
    const bool has = has_cublas(&s, b), loaded = is_loaded();
    s.device.close(b);
    subject_fini(&s);
    EXPECT(!has || loaded, "cuBLAS is not opened");
}

/* Passes of many rows, in the graph for 64 and in plain launches, alternating on one instance, are
 * near the CPU's and differ from hearth's own kernels; passes of a few rows equal those kernels,
 * which read the other layout there. */
static void check_matmuls(const struct tiny_model *shape, const char *what)
{
    static const uint32_t chunks[] = {40, 9, 100, 33, FEW, 64, 100};
    struct subject s;
    subject_init(&s, shape, 100);
    const size_t n = (size_t)s.n * s.model->n_vocab;
    float *want = subject_floats(&s, s.n), *got = subject_floats(&s, s.n), far = 0;
    struct backend *own = open_with(&s, "0", 100), *b = open_with(&s, NULL, 100);
    const bool has = has_cublas(&s, b), said = strstr(note_of(&s, own), "HEARTH_CUBLAS=0") != NULL;
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]) && has; i++) {
        fast_logits(&s, own, chunks[i], want);
        far = fmaxf(far, fast_logits(&s, b, chunks[i], got));
        wrong += (subject_differs(want, got, n) == n) != (chunks[i] <= FEW);
    }
    s.device.close(own);
    s.device.close(b);
    free(want);
    free(got);
    subject_fini(&s);
    EXPECT(said, "%s: HEARTH_CUBLAS=0 is not reported", what);
    EXPECT(wrong == 0, "%s: %u chunk sizes ran on the wrong kernels", what, wrong);
    if (has)
        check_near(far, bound_of(shape->type), what);
}

void matmuls_of_many_rows_use_cublas(void)
{
    struct tiny_model shape;
    for (uint32_t at = 0, i = 0; next_odd_shape(ODD_CUBLAS, &at, &shape); i++) {
        char what[32];
        snprintf(what, sizeof(what), "cuBLAS, shape %u", i);
        shape.seed = 1300 + i;
        check_matmuls(&shape, what);
    }
    struct tiny_model usual = tiny_model_default(QUANT_F16);
    check_matmuls(&usual, "cuBLAS, F16");
    usual.arch = "gemma3"; /* no norm after output and down: written in place */
    check_matmuls(&usual, "cuBLAS, gemma3");
}

/* The checks after a matmul also run after one by cuBLAS: a nonfinite row is poisoned in its
 * layer. */
void rows_are_poisoned_after_cublas_too(void)
{
    enum { ROWS = FEW + 8, LAYER = 1 };
    const struct tiny_model shape = tiny_model_default(QUANT_F16);
    struct mixed x = {.n = 0};
    struct subject s;
    uint32_t pages[SUBJECT_PAGES], poisoned = 0;
    subject_init(&s, &shape, ROWS);
    subject_scale(&s, LAYER, MODEL_FFN_UP, 0x1p16f);
    struct backend *b = open_with(&s, NULL, ROWS);
    subject_pages(0, pages);
    for (uint32_t i = 0; i <= OTHERS; i++)
        x.sequences[i].pages = pages;
    add_rows(&x, 0, s.tokens, 0, ROWS, 0);
    const int rc = run_mixed(&s, b, &x, PASS_FAST);
    for (uint32_t r = 0; r < ROWS && rc == 0; r++)
        poisoned += x.results[r].status == -EDOM && x.results[r].layer == LAYER;
    s.device.close(b);
    subject_fini(&s);
    EXPECT(rc == 0 && poisoned == ROWS, "%u of %u rows (%d)", poisoned, ROWS, rc);
}

/* Without the library, or when it fails to start, hearth's own kernels give the usual bits. */
void a_missing_cublas_is_reported(void)
{
    enum { ROWS = 70 };
    static const char none[] = "libcublas-nowhere.so.1";
    struct tiny_model shape = tiny_model_default(QUANT_F16);
    struct subject s;
    shape.n_layer = 1;
    subject_init(&s, &shape, ROWS);
    const size_t n = (size_t)s.n * s.model->n_vocab;
    float *want = subject_floats(&s, s.n), *got = subject_floats(&s, s.n);
    own_logits(&s, false, ROWS, want);
    struct backend *b = open_with(&s, none, ROWS);
    const bool missing = strstr(note_of(&s, b), none) != NULL;
    fast_logits(&s, b, ROWS, got);
    const size_t at = subject_differs(want, got, n);
    s.device.close(b);
    setenv("HEARTH_CUDASIM_CUBLAS", "0", 1); /* only the simulator reads it */
    b = open_with(&s, NULL, ROWS);
    unsetenv("HEARTH_CUDASIM_CUBLAS");
    const bool silent = strstr(note_of(&s, b), "not initialized") == NULL &&
                        strstr(note_of(&s, b), "by cuBLAS") == NULL &&
                        strstr(note_of(&s, b), "libcublas.so") == NULL;
    s.device.close(b);
    free(want);
    free(got);
    subject_fini(&s);
    EXPECT(missing && !silent, "it is not reported (%d, %d)", missing, silent);
    EXPECT(at == n, "row %zu differs", at / shape.n_vocab);
}
