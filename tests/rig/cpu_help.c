#include "tests/rig/cpu_help.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/num.h"

uint64_t help_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

float help_normal(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)(help_random(state) >> 40) * 0x1p-24f - 0.5f;
    return sum * 1.7320508f;
}

static float one(uint64_t *state, enum help_kind kind)
{
    uint64_t r = help_random(state);
    float x = help_normal(state);
    switch (kind) {
    case HELP_WIDE:
        return ldexpf(x, (int)(r % 121) - 60);
    case HELP_DENORMAL:
        if (r % 4 == 0)
            return num_float((uint32_t)(r >> 32) & 0x80000000u);
        return r % 64 == 1 ? x : num_float((uint32_t)(r >> 32) & 0x807fffffu);
    case HELP_ZERO:
        return r % 2 ? 0.0f : -0.0f;
    case HELP_SPIKE:
        return r % 37 == 0 ? x * 1e4f : x * 1e-3f;
    default:
        return x;
    }
}

void help_fill(uint64_t *state, enum help_kind kind, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = one(state, kind);
}

void *help_memory(size_t bytes)
{
    bytes = (bytes + 127) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    ck_assert_ptr_nonnull(memory);
    memset(memory, 0, bytes);
    return memory;
}

#if defined(__x86_64__)
static const struct cpu_isa *const all_isas[HELP_ISAS] = {&cpu_isa_avx2, &cpu_isa_avxvnni,
                                                          &cpu_isa_avx512};

float *help_exact(const float *x, size_t n)
{
    float *copy = malloc(n * sizeof(float));
    ck_assert_ptr_nonnull(copy);
    if (x)
        memcpy(copy, x, n * sizeof(float));
    return copy;
}

int help_isas(const struct cpu_isa *isas[HELP_ISAS])
{
    int n = 0;
    for (int i = 0; i < HELP_ISAS; i++) {
        if (all_isas[i]->usable())
            isas[n++] = all_isas[i];
    }
    return n;
}

void help_say_missing_isas(void)
{
    for (int i = 0; i < HELP_ISAS; i++) {
        if (!all_isas[i]->usable())
            fprintf(stderr, "skip: this processor cannot run %s\n", all_isas[i]->name);
    }
}
#else
int help_isas(const struct cpu_isa *isas[HELP_ISAS])
{
    (void)isas;
    return 0;
}

void help_say_missing_isas(void)
{
    fprintf(stderr, "skip: this machine has the reference only\n");
}
#endif

bool help_has_isa(const char *name)
{
    const struct cpu_isa *have[HELP_ISAS];
    int n = help_isas(have);
    for (int i = 0; i < n; i++) {
        if (strcmp(have[i]->name, name) == 0)
            return true;
    }
    return strcmp(name, "ref") == 0;
}

size_t help_differs(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (num_bits(a[i]) != num_bits(b[i]))
            return i;
    }
    return n;
}

static void open_model(struct help_model *m, int rc, const char *err)
{
    char text[256] = "";
    ck_assert_msg(rc == 0, "%s", err);
    rc = model_open(m->gguf, &m->model, text, sizeof(text));
    ck_assert_msg(rc == 0, "%s", text);
}

void help_model_tiny(struct help_model *m, const struct tiny_model *shape)
{
    size_t bytes;
    char err[256] = "";
    m->file = tiny_model_file(shape, &bytes);
    m->kv_q8_0 = shape->kv_q8_0;
    open_model(m, gguf_open_memory(m->file, bytes, &m->gguf, err, sizeof(err)), err);
    m->sinks = shape->sinks ? tiny_model_sinks(m->model, shape->seed) : NULL;
}

void help_model_file(struct help_model *m, const char *path)
{
    char err[256] = "";
    m->file = NULL;
    m->sinks = NULL;
    m->kv_q8_0 = false;
    open_model(m, gguf_open_parts(path, &m->gguf, err, sizeof(err)), err);
}

void help_model_close(struct help_model *m)
{
    model_close(m->model);
    gguf_close(m->gguf);
    free(m->file);
    free(m->sinks);
}

struct backend *help_backend(const struct help_model *m, const char *isa, uint32_t threads,
                             uint32_t rows, uint32_t pages)
{
    struct backend_limits limits = {.rows = rows,
                                    .samples = rows,
                                    .pages = pages,
                                    .states = m->model->n_recurrent > 0 ? HELP_STATES : 0,
                                    .context = m->model->n_context,
                                    .threads = threads,
                                    .kv_q8_0 = m->kv_q8_0,
                                    .isa = isa};
    struct backend *b;
    char err[256] = "";
    int rc = backend_cpu.open(m->model, &limits, &b, err, sizeof(err));
    ck_assert_msg(rc == 0, "%s", err);
    return b;
}

const char *help_testdata(const char *name)
{
    static char path[4096];
    const char *folder = getenv("HEARTH_TESTDATA");
    if (!folder || !folder[0])
        return NULL;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

void help_pass(struct backend *b, const struct pass *pass)
{
    int rc = backend_cpu.start(b, pass);
    ck_assert_msg(rc == 0, "%s", backend_cpu.error(b));
    ck_assert_int_eq(backend_cpu.finish(b), 0);
}

void help_logits(struct backend *b, const struct model *m, const uint32_t *tokens, uint32_t n,
                 uint32_t chunk, const uint32_t *pages, float *logits)
{
    struct pass_sequence sequence = {.pages = pages};
    struct row *rows = calloc(n, sizeof(*rows));
    struct row_result *results = calloc(n, sizeof(*results));
    ck_assert(rows && results);
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = (struct row){.position = i, .token = tokens[i], .wants = ROW_LOGITS};
        results[i].logits = logits + (size_t)i * m->n_vocab;
    }
    chunk = chunk ? chunk : n;
    for (uint32_t i = 0; i < n; i += chunk) {
        uint32_t size = n - i < chunk ? n - i : chunk;
        sequence.state =
            (struct pass_state){.from = i == 0 ? BACKEND_STATE_ZERO : 0, .commit = size};
        struct pass pass = {PASS_CANONICAL, size, rows + i, &sequence, results + i, 1};
        help_pass(b, &pass);
        for (uint32_t r = i; r < i + size; r++)
            ck_assert_int_eq(results[r].status, 0);
    }
    free(rows);
    free(results);
}
