#include "tests/gpu/subject.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/num.h"
#include "kernels/cuda/layout.h"

const struct backend_ops *subject_device;
uint32_t subject_cut;

static void must(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "contract: %s\n", what);
    abort();
}

uint64_t subject_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void subject_random_tokens(uint64_t seed, const struct model *m, uint32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (uint32_t)(subject_random(&seed) % m->n_vocab);
}

void subject_pages(uint64_t seed, uint32_t *pages)
{
    for (uint32_t i = 0; i < SUBJECT_PAGES; i++)
        pages[i] = i;
    for (uint32_t i = SUBJECT_PAGES - 1; i > 0 && seed > 0; i--) {
        const uint32_t j = (uint32_t)(subject_random(&seed) % (i + 1)), page = pages[i];
        pages[i] = pages[j];
        pages[j] = page;
    }
}

float *subject_floats(const struct subject *s, uint32_t rows)
{
    float *memory = calloc((size_t)rows * s->model->n_vocab, sizeof(*memory));
    must(memory != NULL, "no memory");
    return memory;
}

/* Bytes of a layer's experts on the device. */
static uint64_t expert_bytes(const struct model_layer *layer)
{
    uint64_t bytes = 0;
    for (uint32_t t = MODEL_FFN_GATE_EXPS; t <= MODEL_FFN_DOWN_EXPS; t++) {
        const struct model_tensor *x = &layer->tensor[t];
        bytes += !x->data ? 0
                          : x->n_matrices * ((x->rows + CUDA_GROUP - 1) / CUDA_GROUP) *
                                layout_group_bytes(x->type, x->cols);
    }
    return bytes;
}

/* The limit of memory with which subject_cut layers' experts do not fit: half of the first of them would. */
static uint64_t cut_bytes(const struct subject *s, const struct backend_ops *ops,
                          const struct backend_limits *limits)
{
    struct backend *b = NULL;
    struct backend_info info;
    char err[256] = "";
    must(ops->open(s->model, limits, &b, err, sizeof(err)) == 0, err);
    ops->describe(b, &info);
    ops->close(b);
    uint64_t bytes = info.weight_bytes + info.scratch_bytes + info.kv_bytes +
                     limits->states * (info.state_bytes + info.record_bytes);
    for (uint32_t i = s->model->n_layer, n = subject_cut; i > 0 && n > 0; i--) {
        const uint64_t of_layer = expert_bytes(&s->model->layers[i - 1]);
        n -= of_layer > 0;
        bytes -= n > 0 ? of_layer : of_layer / 2;
    }
    return bytes;
}

struct backend *subject_open(const struct subject *s, const struct backend_ops *ops, uint32_t rows,
                             uint32_t pages)
{
    struct backend_limits limits = {.rows = rows,
                                    .samples = rows,
                                    .pages = pages,
                                    .states = s->model->n_recurrent > 0 ? SUBJECT_STATES : 0,
                                    .context = s->model->n_context,
                                    .threads = 2,
                                    .kv_q8_0 = s->kv_q8_0,
                                    .native = s->native && ops != &backend_cpu,
                                    .drafts = s->drafts && ops != &backend_cpu};
    struct backend *b = NULL;
    char err[256] = "";
    if (subject_cut > 0 && ops != &backend_cpu)
        limits.gpu_bytes = cut_bytes(s, ops, &limits);
    must(ops->open(s->model, &limits, &b, err, sizeof(err)) == 0, err);
    return b;
}

void subject_logits(const struct subject *s, const struct backend_ops *ops, struct backend *b,
                    const uint32_t *tokens, uint32_t n, const uint32_t *sizes,
                    const uint32_t *pages, float *logits)
{
    const uint32_t *next = sizes;
    struct pass_sequence sequence = {.pages = pages};
    struct row *rows = calloc(n, sizeof(*rows));
    struct row_result *results = calloc(n, sizeof(*results));
    must(rows && results, "no memory");
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = (struct row){.position = i, .token = tokens[i], .wants = ROW_LOGITS};
        results[i].logits = logits + (size_t)i * s->model->n_vocab;
    }
    for (uint32_t i = 0, size; i < n; i += size) {
        size = n - i < *next ? n - i : *next;
        next = next[1] > 0 ? next + 1 : sizes;
        struct pass pass = {PASS_CANONICAL, size, rows + i, &sequence, results + i, 1};
        sequence.state =
            (struct pass_state){.from = i == 0 ? BACKEND_STATE_ZERO : 0, .commit = size};
        must(ops->start(b, &pass) == 0, ops->error(b));
        must(ops->finish(b) == 0, ops->error(b));
    }
    for (uint32_t i = 0; i < n; i++)
        must(results[i].status == 0, "a row of an ordinary model is poisoned");
    free(rows);
    free(results);
}

void subject_expect(struct subject *s)
{
    uint32_t pages[SUBJECT_PAGES];
    struct backend *b = subject_open(s, &backend_cpu, s->n, SUBJECT_PAGES);
    subject_pages(0, pages);
    subject_logits(s, &backend_cpu, b, s->tokens, s->n, (uint32_t[]){s->n, 0}, pages, s->logits);
    backend_cpu.close(b);
}

float subject_go_native(struct subject *s, uint32_t chunk)
{
    const size_t n = (size_t)s->n * s->model->n_vocab;
    uint32_t pages[SUBJECT_PAGES];
    float *own = subject_floats(s, s->n), most = 0;
    s->native = true;
    subject_pages(0, pages);
    subject_logits(s, &s->device, subject_backend(s), s->tokens, s->n, (uint32_t[]){chunk, 0},
                   pages, own);
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(own[i] - s->logits[i]));
    free(s->logits);
    s->logits = own;
    return most;
}

void subject_init(struct subject *s, const struct tiny_model *shape, uint32_t n)
{
    size_t bytes;
    char err[256] = "";
    *s = (struct subject){.device = *subject_device, .kv_q8_0 = shape->kv_q8_0, .n = n};
    s->file = tiny_model_file(shape, &bytes);
    must(gguf_open_memory(s->file, bytes, &s->gguf, err, sizeof(err)) == 0, err);
    must(model_open(s->gguf, &s->model, err, sizeof(err)) == 0, err);
    s->sinks = shape->sinks ? tiny_model_sinks(s->model, shape->seed) : NULL;
    subject_random_tokens(shape->seed, s->model, s->tokens, n);
    s->logits = subject_floats(s, n);
    subject_expect(s);
}

struct backend *subject_backend(struct subject *s)
{
    if (!s->opened)
        s->opened = subject_open(s, &s->device, s->n, SUBJECT_PAGES);
    return s->opened;
}

void subject_fini(struct subject *s)
{
    s->device.close(s->opened);
    free(s->logits);
    model_close(s->model);
    gguf_close(s->gguf);
    free(s->sinks);
    free(s->file);
}

static uint8_t *bytes_of(struct subject *s, const struct model_tensor *t)
{
    return s->file + (t->data - s->file);
}

uint8_t *subject_bytes(struct subject *s, uint32_t layer, uint32_t tensor)
{
    return bytes_of(s, &s->model->layers[layer].tensor[tensor]);
}

static float weight_of(uint32_t type, const uint8_t *at)
{
    uint16_t half;
    float x;
    memcpy(&half, at, sizeof(half));
    memcpy(&x, at, type == QUANT_F32 ? sizeof(x) : sizeof(half));
    return type == QUANT_F16    ? num_f32_from_f16(half)
           : type == QUANT_BF16 ? num_f32_from_bf16(half)
                                : x;
}

static void set_weight(uint32_t type, uint8_t *at, float x)
{
    const uint16_t half = type == QUANT_F16 ? num_f16_from_f32(x) : num_bf16_from_f32(x);
    if (type == QUANT_F32)
        memcpy(at, &x, sizeof(x));
    else
        memcpy(at, &half, sizeof(half));
}

void subject_set_embedding(struct subject *s, uint32_t token, float value)
{
    const struct model_tensor *t = &s->model->global[MODEL_TOKEN_EMBD];
    const size_t size = t->type == QUANT_F32 ? 4 : 2;
    for (uint64_t at = 0; at < t->row_bytes; at += size)
        set_weight(t->type, bytes_of(s, t) + token * t->row_bytes + at, value);
}

float *subject_head(struct subject *s)
{
    return (float *)(void *)bytes_of(s, &s->model->global[MODEL_OUTPUT]);
}

void subject_scale(struct subject *s, uint32_t layer, uint32_t tensor, float factor)
{
    const struct model_tensor *t = &s->model->layers[layer].tensor[tensor];
    const size_t size = t->type == QUANT_F32 ? 4 : 2;
    for (uint64_t at = 0; at < t->bytes; at += size) {
        uint8_t *w = bytes_of(s, t) + at;
        set_weight(t->type, w, weight_of(t->type, w) * factor);
    }
}

void subject_scale_input(struct subject *s, const struct model_tensor *t, uint32_t column,
                         float factor)
{
    const size_t size = t->type == QUANT_F32 ? 4 : 2;
    for (uint32_t r = 0; r < t->rows; r++) {
        uint8_t *w = bytes_of(s, t) + r * t->row_bytes + column * size;
        set_weight(t->type, w, weight_of(t->type, w) * factor);
    }
}

size_t subject_differs(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (num_bits(a[i]) != num_bits(b[i]))
            return i;
    }
    return n;
}
