/* request: see request.h. */
#include "tests/gpu/request.h"

#include <math.h>

static float head_factor(enum head head, uint32_t v, uint64_t *seed)
{
    switch (head) {
    case HEAD_STEEP:
        return 40.0f;
    case HEAD_FLAT:
        return 1e-4f;
    case HEAD_HUGE:
        return ldexpf(1.0f, (int)(subject_random(seed) % 230) - 115);
    case HEAD_ZEROS:
        return v % 3 == 0 ? 1.0f : 0.0f;
    default:
        return 1.0f;
    }
}

static uint32_t head_source(enum head head, uint32_t v)
{
    return head == HEAD_TIES ? v % 7 : head == HEAD_EQUAL || head == HEAD_HUGE ? 0 : v;
}

void request_shape_head(struct subject *s, enum head head)
{
    const uint32_t n = s->model->n_embd;
    float *rows = subject_head(s);
    uint64_t seed = 3;
    for (uint32_t v = s->model->n_vocab; v-- > 0;) {
        const float factor = head_factor(head, v, &seed);
        for (uint32_t i = 0; i < n; i++)
            rows[(size_t)v * n + i] = rows[(size_t)head_source(head, v) * n + i] * factor;
    }
    subject_expect(s);
}

#define ONE_OF(seed, ...)                                                                          \
    one_of(seed, (const float[]){__VA_ARGS__},                                                     \
           (uint32_t)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)))

static float one_of(uint64_t *seed, const float *values, uint32_t n)
{
    return values[subject_random(seed) % n];
}

bool request_one_in(uint64_t *seed, uint32_t n)
{
    return subject_random(seed) % n == 0;
}

void request_biases(uint64_t *seed, uint32_t n_vocab, uint32_t n, struct sample_request *w)
{
    w->params.n_bias = n;
    w->params.bias = w->bias;
    for (uint32_t i = 0; i < n; i++) { /* some of one token, and at the ends */
        const uint32_t near = (uint32_t)(subject_random(seed) % 40) * (n_vocab / 40);
        w->bias[i].id = request_one_in(seed, 3) ? near : (uint32_t)(subject_random(seed) % n_vocab);
        w->bias[i].value = ONE_OF(seed, 0.5f, -0.5f, 3.0f, 1e-3f, -20.0f, -INFINITY, 0.25f);
    }
    if (n > 3 && request_one_in(seed, 2)) { /* in another order the logit is not lost */
        const uint32_t id = w->bias[3].id;
        w->bias[0] = (struct sample_bias){id, 1e8f};
        w->bias[1] = (struct sample_bias){id, -1e8f};
        w->bias[2] = (struct sample_bias){id, 2.0f};
    }
    if (n > 0 && request_one_in(seed, 12))
        w->bias[0].value = ONE_OF(seed, INFINITY, NAN);
}

/* Stages in any order, often temperature first, some left out. */
static void random_order(uint64_t *seed, struct sampler_params *p)
{
    uint8_t *order = p->order;
    for (uint32_t i = SAMPLE_STAGES - 1; i > 0; i--) {
        const uint32_t j = (uint32_t)(subject_random(seed) % (i + 1));
        const uint8_t stage = order[i];
        order[i] = order[j];
        order[j] = stage;
    }
    const bool first = request_one_in(seed, 2);
    for (uint32_t i = 0; i < SAMPLE_STAGES; i++) {
        if (first && order[i] == SAMPLE_TEMPERATURE) {
            order[i] = order[0];
            order[0] = SAMPLE_TEMPERATURE;
        }
    }
    p->n_order = (uint8_t)(request_one_in(seed, 3) ? subject_random(seed) % (SAMPLE_STAGES + 1)
                                                   : SAMPLE_STAGES);
}

void request_random(uint64_t *seed, uint32_t n_vocab, struct sample_request *w)
{
    struct sampler_params *p = &w->params;
    sampler_params_init(p);
    w->prompt_length = (uint32_t)(subject_random(seed) % 9);
    p->seed = subject_random(seed);
    p->temperature = request_one_in(seed, 4)
                         ? 0.0f
                         : ONE_OF(seed, 1.0f, 0.7f, 0.2f, 1.8f, 1e-30f, 1e30f, 1.0f, 0.9f);
    const uint32_t half = n_vocab / 2;
    if (request_one_in(seed, 3))
        p->top_k = (uint32_t)ONE_OF(seed, 1.0f, 3.0f, 5.0f, 40.0f, 500.0f, (float)half,
                                    (float)n_vocab, (float)(n_vocab + 5));
    if (request_one_in(seed, 5))
        p->typical_p = ONE_OF(seed, 0.9f, 0.3f, 0.999f, 0.0f, -1.0f);
    if (request_one_in(seed, 3))
        p->top_p = ONE_OF(seed, 0.95f, 0.5f, 0.999f, 0.1f, 0.0f, 0x1.fffffep-1f);
    if (request_one_in(seed, 4))
        p->min_p = ONE_OF(seed, 0.05f, 0.5f, 1e-6f, 1.0f, 2.0f);
    if (request_one_in(seed, 3)) {
        p->repeat_penalty = ONE_OF(seed, 1.3f, 0.6f, 1.0f, 100.0f);
        p->frequency_penalty = ONE_OF(seed, 0.0f, 0.4f, -0.3f);
        p->presence_penalty = ONE_OF(seed, 0.0f, 0.7f, -5.0f);
        p->penalty_last_n = (int32_t)ONE_OF(seed, -1.0f, 0.0f, 1.0f, 2.0f, 3.0f, 64.0f);
        p->penalty_answer_only = request_one_in(seed, 4);
    }
    if (request_one_in(seed, 2))
        random_order(seed, p);
    p->logprobs = request_one_in(seed, 3);
    p->n_top = (uint8_t)(subject_random(seed) % (SAMPLE_TOP_MAX + 1));
    request_biases(seed, n_vocab,
                   request_one_in(seed, 3) ? (uint32_t)(subject_random(seed) % 60) : 0, w);
}

void request_random_all_tokens(uint64_t *seed, uint32_t n_vocab, struct sample_request *w)
{
    struct sampler_params *p = &w->params;
    const bool typical = request_one_in(seed, 2);
    request_random(seed, n_vocab, w);
    p->temperature = ONE_OF(seed, 1.0f, 0.5f, 3.0f, 0.1f, 12.0f);
    p->top_k = request_one_in(seed, 3) ? 40 : 0;
    p->typical_p = typical ? ONE_OF(seed, 0.9f, 0.2f, 0.3f, 0.4f, 0.999f, 0.02f) : 1.0f;
    p->top_p = ONE_OF(seed, 0.95f, 0.5f, 0.999f, 0.1f, 0x1.fffffep-1f);
    const bool tempered = request_one_in(seed, 2);
    uint8_t *order = p->order;
    p->n_order = 0;
    order[p->n_order++] = SAMPLE_PENALTIES;
    if (tempered)
        order[p->n_order++] = SAMPLE_TEMPERATURE;
    order[p->n_order++] = SAMPLE_TYPICAL_P;
    order[p->n_order++] = SAMPLE_TOP_P;
    order[p->n_order++] = SAMPLE_TOP_K;
    order[p->n_order++] = SAMPLE_MIN_P;
    if (!tempered)
        order[p->n_order++] = SAMPLE_TEMPERATURE;
}

const uint64_t *request_mask(uint64_t *seed, uint32_t n_vocab, uint64_t *mask)
{
    const uint32_t kind = (uint32_t)(subject_random(seed) % 10);
    if (kind > 5)
        return NULL;
    for (uint32_t i = 0; i < REQUEST_MASK; i++) {
        mask[i] = kind == 0 ? subject_random(seed) | subject_random(seed) : 0;
        mask[i] |=
            kind == 1 ? subject_random(seed) & subject_random(seed) & subject_random(seed) : 0;
    }
    const uint32_t id = (uint32_t)(subject_random(seed) % n_vocab);
    if (kind == 2 || (kind == 3 && request_one_in(seed, 2)))
        mask[id / 64] |= UINT64_C(1) << id % 64;
    mask[0] |= kind > 3 ? 0x1f : 0;
    return mask;
}
