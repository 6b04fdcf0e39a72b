/* The pass contract in native numerics: a row gets the same bits whatever shares its pass; they are
 * near the CPU's and have their own numerics id. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/contract.h"
#include "tests/rig/every_type.h"

/* ---- rows ------------------------------------------------------------------------------------ */

/* The bound on the distance from the CPU's logits, which reach 27. Activations are rounded to 8 or
 * 11 bits, queries and attention weights to 11; before a quantized matrix a small difference can
 * round to another integer. */
float bound_of(uint32_t type)
{
    return type == QUANT_F16 ? 0.1f : 1.5f;
}

void check_near(float far, float bound, const char *what)
{
    EXPECT(far > 0 && far < bound, "%s: %g from the CPU's logits, %g at most", what, (double)far,
           (double)bound);
}

/* sizes: the first one is that of the reference run's passes, which on the simulator is one pass. */
static void check_shape(const struct tiny_model *shape, uint32_t n, const uint32_t *sizes,
                        const char *what)
{
    struct subject s;
    subject_init(&s, shape, n);
    struct backend_info info;
    check_near(subject_go_native(&s, simulated() ? n : sizes[0]), bound_of(shape->type), what);
    s.device.describe(subject_backend(&s), &info);
    EXPECT(!info.note || !strstr(info.note, "large matmuls are slower"), "%s: %s", what, info.note);
    check_sizes(&s, simulated() ? sizes : sizes + 1, 1, what);
    subject_fini(&s);
}

/* Includes more rows than a graph holds: matmuls in blocks of 128 outputs and 128 rows. */
void native_rows_do_not_depend_on_their_pass(void)
{
    static const struct {
        uint32_t type;
        bool kv_q8_0;
    } kinds[] = {{QUANT_F16, false}, {QUANT_BF16, true}, {QUANT_Q4_0, false}, {TINY_MIXED_K, true}};
    static const uint32_t sizes[] = {1, 5, 31, 70, 139, 0};
    for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct tiny_model shape = tiny_model_default(kinds[i].type);
        char what[32];
        snprintf(what, sizeof(what), "native, kind %u", i);
        shape.n_layer = 1;
        shape.kv_q8_0 = kinds[i].kv_q8_0;
        shape.untied = i % 2;
        shape.seed = 1000 + i;
        check_shape(&shape, 139, sizes, what);
    }
}

/* Quantized weights become bf16; in passes of many rows by wgmma where there is one (of a device of three
 * processors, which HEARTH_CUDA_PROCESSORS makes of a larger one), elsewhere by mma. */
void native_rows_of_every_type_do_not_depend_on_their_pass(void)
{
    static const uint32_t sizes[] = {7, 1, 70, 0},
                          types[] = {WRITTEN_TYPES, TINY_MIXED, READ_TYPES, TINY_MIXED_SMALL};
    for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct tiny_model shape = tiny_model_default(types[i]);
        char what[32];
        snprintf(what, sizeof(what), "native, type %u", types[i]);
        shape.arch = i % 3 == 1 ? "gemma3" : "llama";
        shape.n_layer = 1;
        shape.untied = i % 2;
        shape.seed = 1100 + i;
        check_shape(&shape, 70, sizes, what);
    }
}

void native_rows_of_odd_shapes_do_not_depend_on_their_pass(void)
{
    static const uint32_t sizes[] = {1, 3, 11, 70, 0};
    struct tiny_model shape;
    for (uint32_t at = 0, i = 0; next_odd_shape(ODD_NATIVE, &at, &shape); i++) {
        char what[32];
        snprintf(what, sizeof(what), "native, shape %u", i);
        shape.seed = 1200 + i;
        check_shape(&shape, 70, sizes, what);
    }
}

/* Every case of the portable test of windows with KV in f16 or q8_0; F32 models with KV in f32 stay
 * portable. */
void native_windows_of_every_head_do_not_depend_on_their_pass(void)
{
    for (uint32_t i = 0; i < HEAD_KINDS; i++) {
        struct subject s;
        subject_of_heads(i, 277, &s);
        const float far = subject_go_native(&s, simulated() ? 70 : 9);
        struct backend_info info;
        s.device.describe(subject_backend(&s), &info);
        if (strncmp(info.numerics, "native", 6) == 0) {
            check_near(far, 1.5f, "windows");
            struct backend *b = subject_open(&s, &s.device, MOST_ROWS, SUBJECT_PAGES);
            check_windows(&s, b, i);
            s.device.close(b);
        } else if (far != 0) {
            check_near(far, 0, "KV in f32");
        }
        subject_fini(&s);
    }
}

void native_long_contexts_do_not_depend_on_their_pass(void)
{
    static const uint32_t sizes[] = {5, 16, 265, 0};
    struct tiny_model shape = tiny_model_default(QUANT_F16);
    shape.n_layer = 1;
    shape.n_context = 1024;
    check_shape(&shape, 530, sizes, "native, long");
}

void native_rows_do_not_depend_on_their_neighbours(void)
{
    static const uint32_t types[] = {QUANT_BF16, QUANT_Q4_0};
    for (uint32_t i = 0; i < 2; i++) {
        struct tiny_model shape = tiny_model_default(types[i]);
        shape.sinks = i == 0;
        check_neighbours(&shape, true);
    }
}

/* n tokens and one layer in native numerics, one row per pass. HUGE_TOKEN, which is not among them,
 * has V values 2^28 times as large as all others. */
enum { HUGE_TOKEN = 5 };

static void subject_with_huge(struct subject *s, const char *arch, uint32_t n)
{
    struct tiny_model shape = tiny_model_default(QUANT_BF16);
    shape.arch = arch;
    shape.n_layer = 1;
    shape.untied = true;
    subject_init(s, &shape, n);
    /* Only HUGE_TOKEN has a nonzero input 0 of V. */
    const struct model_tensor *embedding = &s->model->global[MODEL_TOKEN_EMBD],
                              *values = &s->model->layers[0].tensor[MODEL_ATTN_V];
    subject_scale_input(s, embedding, 0, 0);
    subject_set_embedding(s, HUGE_TOKEN, 1);
    subject_scale(s, 0, MODEL_ATTN_V, 0x1p-16f);
    subject_scale_input(s, values, 0, 0x1p28f);
    subject_scale(s, 0, MODEL_ATTN_OUTPUT, 0x1p12f);
    for (uint32_t i = 0; i < SUBJECT_TOKENS; i++)
        s->tokens[i] = s->tokens[i] == HUGE_TOKEN ? HUGE_TOKEN + 1 : s->tokens[i];
    subject_go_native(s, simulated() ? 20 : 1);
}

/* After each row lie V values 2^28 times as large as its own, left by rejected drafts. They must
 * not reach its sums, not even multiplied by zero. */
void native_rows_do_not_read_later_positions(void)
{
    enum { WINDOW = 8 };
    struct subject s;
    uint32_t pages[SUBJECT_PAGES], drafts[SUBJECT_TOKENS];
    subject_with_huge(&s, "llama", 40);
    for (uint32_t i = 0; i < SUBJECT_TOKENS; i++)
        drafts[i] = HUGE_TOKEN;
    subject_pages(0, pages);
    float *got = subject_floats(&s, s.n);
    struct backend *b = subject_open(&s, &s.device, WINDOW, SUBJECT_PAGES);
    int rc = 0;
    for (uint32_t position = 0; position < s.n && rc == 0; position++) {
        struct mixed x = {.n = 0};
        for (uint32_t i = 0; i <= OTHERS; i++)
            x.sequences[i].pages = pages;
        add_rows(&x, 0, drafts, position, WINDOW, 0);
        rc = run_mixed(&s, b, &x, PASS_FAST);
        x.n = 0;
        x.results[0].logits = got + (size_t)position * s.model->n_vocab;
        add_rows(&x, 0, s.tokens, position, 1, ROW_LOGITS);
        rc = rc ? rc : run_mixed(&s, b, &x, PASS_CANONICAL);
    }
    const size_t n = (size_t)s.n * s.model->n_vocab, at = subject_differs(s.logits, got, n);
    s.device.close(b);
    free(got);
    const size_t row = at / s.model->n_vocab;
    subject_fini(&s);
    EXPECT(rc == 0 && at == n, "row %zu differs (%d)", row, rc);
}

/* Other tokens before a local layer's window leave the row's bits unchanged. */
void native_rows_do_not_read_before_their_window(void)
{
    enum { HUGE_TOKENS = 30 };
    static const uint32_t sizes[][4] = {{1}, {7}, {70}, {7, 31, 1}};
    struct subject s;
    uint32_t pages[SUBJECT_PAGES], tokens[SUBJECT_TOKENS], wrong = 0;
    subject_with_huge(&s, "gemma3", 70);
    float *got = subject_floats(&s, s.n);
    memcpy(tokens, s.tokens, sizeof(tokens));
    for (uint32_t i = 0; i < HUGE_TOKENS; i++)
        tokens[i] = HUGE_TOKEN;
    subject_pages(0, pages);
    const size_t vocab = s.model->n_vocab, first = HUGE_TOKENS + s.model->local_sliding_window - 1,
                 n = (s.n - first) * vocab;
    for (uint32_t i = simulated() ? 3 : 0; i < 4; i++) {
        subject_logits(&s, &s.device, subject_backend(&s), tokens, s.n, sizes[i], pages, got);
        wrong += subject_differs(s.logits + first * vocab, got + first * vocab, n) != n;
    }
    free(got);
    subject_fini(&s);
    EXPECT(wrong == 0, "%u of 4 differ", wrong);
}

/* Then large matmuls are made by mma, and the instance says so. */
void a_wgmma_that_adds_otherwise_is_not_used(void)
{
    static const uint32_t sizes[] = {7, 1, 70, 0};
    struct tiny_model shape = tiny_model_default(QUANT_Q4_0);
    struct backend_info info;
    struct subject s;
    if (!simulated()) {
        printf("skip: %s: only the simulator has another wgmma\n", test_name);
        return;
    }
    setenv("HEARTH_CUDASIM_WGMMA", "20", 1);
    setenv("HEARTH_CUDA_SELF_TEST", "all", 1);
    shape.n_layer = 1;
    subject_init(&s, &shape, 70);
    subject_go_native(&s, 70);
    s.device.describe(subject_backend(&s), &info);
    EXPECT(info.note && strstr(info.note, "large matmuls are slower"), "%s",
           info.note ? info.note : "no note");
    check_sizes(&s, sizes, 1, "another wgmma");
    subject_fini(&s);
    unsetenv("HEARTH_CUDA_SELF_TEST");
    unsetenv("HEARTH_CUDASIM_WGMMA");
}

/* ---- names and refusals ---------------------------------------------------------------------- */

static void check_id(uint32_t type, bool kv_q8_0, bool own)
{
    struct tiny_model shape = tiny_model_default(type);
    struct backend_info info;
    struct subject s;
    shape.kv_q8_0 = kv_q8_0;
    subject_init(&s, &shape, 2);
    subject_go_native(&s, 1);
    s.device.describe(subject_backend(&s), &info);
    const char *portable = model_numerics_id(s.model, kv_q8_0);
    const bool named = strncmp(info.numerics, "native-2-sm", 11) == 0 &&
                       (strstr(info.numerics, "-kvq8") != NULL) == kv_q8_0 &&
                       strlen(info.numerics) < 24;
    const bool noted = info.note && strstr(info.note, "--kv-type q8_0");
    const bool right = own ? named && !noted : strcmp(info.numerics, portable) == 0 && noted;
    char id[32];
    snprintf(id, sizeof(id), "%s", info.numerics);
    subject_fini(&s);
    EXPECT(right, "type %u, q8_0 KV %d: %s", type, kv_q8_0, id);
}

void native_numerics_have_their_own_id(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_F16);
    struct subject s;
    struct backend *none = NULL;
    char err[256] = "";
    check_id(QUANT_F16, false, true);
    check_id(QUANT_Q8_0, true, true);
    check_id(QUANT_F32, true, true);
    check_id(QUANT_F32, false, false);
    subject_init(&s, &shape, 2);
    const struct backend_limits limits = {
        .rows = 8, .samples = 8, .pages = 8, .context = 64, .threads = 1, .native = true};
    const int rc = backend_cpu.open(s.model, &limits, &none, err, sizeof(err));
    subject_fini(&s);
    EXPECT(rc == -ENOTSUP && !none && strstr(err, "--numerics portable"), "the CPU: %d %s", rc,
           err);
}

/* ---- poison ---------------------------------------------------------------------------------- */

/* How many of four rows are poisoned in layer `layer`. */
static uint32_t poisoned_rows(struct subject *s, uint32_t layer)
{
    uint32_t pages[SUBJECT_PAGES], n = 0;
    struct mixed x = {.n = 0};
    struct backend *b = subject_open(s, &s->device, 8, SUBJECT_PAGES);
    subject_pages(0, pages);
    for (uint32_t i = 0; i <= OTHERS; i++)
        x.sequences[i].pages = pages;
    add_rows(&x, 0, s->tokens, 0, 4, 0);
    const int rc = run_mixed(s, b, &x, PASS_CANONICAL);
    for (uint32_t r = 0; r < 4 && rc == 0; r++)
        n += x.results[r].status == -EDOM && x.results[r].layer == layer;
    s->device.close(b);
    return n;
}

/* Scales a tensor of layer 1 until its outputs overflow f16. */
static void check_poison(uint32_t type, uint32_t tensor, float factor, uint32_t want)
{
    struct tiny_model shape = tiny_model_default(type);
    struct subject s;
    uint32_t got[2];
    subject_init(&s, &shape, 4);
    subject_scale(&s, 1, tensor, factor);
    for (uint32_t native = 0; native < 2; native++) {
        s.native = native;
        got[native] = poisoned_rows(&s, 1);
    }
    subject_fini(&s);
    EXPECT(got[0] == 0 && got[1] == want, "type %u, tensor %u: %u and %u rows, not 0 and %u", type,
           tensor, got[0], got[1], want);
}

/* Portable numerics keep all of it in f32, and bf16 has the range too; queries are always f16. */
void native_rows_are_poisoned_beyond_f16(void)
{
    check_poison(QUANT_F16, MODEL_FFN_UP, 0x1p16f, 4);
    check_poison(QUANT_BF16, MODEL_FFN_UP, 0x1p20f, 0);
    check_poison(QUANT_BF16, MODEL_ATTN_Q, 0x1p20f, 4);
}
