/* sample.c: the sampler's entry points: scratch, checks, greedy, draw. The parts: sample_adjust.c
 * (bias, penalties), sample_stage.c (stages), sample_select.c (truncation), sample_logprob.c. */
#include "kernels/sample/sample.h"

#include "kernels/sample/philox.h"
#include "kernels/sample/sample_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

void sampler_params_init(struct sampler_params *p)
{
    *p = (struct sampler_params){
        .typical_p = 1.0f,
        .top_p = 1.0f,
        .repeat_penalty = 1.0f,
        .penalty_last_n = 64,
        .n_order = SAMPLE_STAGES,
        .order = {SAMPLE_PENALTIES, SAMPLE_TOP_K, SAMPLE_TYPICAL_P, SAMPLE_TOP_P, SAMPLE_MIN_P,
                  SAMPLE_TEMPERATURE},
    };
}

int sampler_scratch_open(uint32_t n_vocab, struct sampler_scratch **ret)
{
    if (n_vocab == 0 || n_vocab > SAMPLE_VOCAB_MAX) {
        return -EINVAL;
    }
    struct sampler_scratch *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return -ENOMEM;
    }
    s->n_vocab = n_vocab;
    s->lanes = sample_lanes_portable;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        s->lanes = sample_lanes_avx2;
    }
#endif
    s->masked = calloc(n_vocab, sizeof(*s->masked));
    s->l = calloc(n_vocab, sizeof(*s->l));
    s->id = calloc(n_vocab, sizeof(*s->id));
    s->w = calloc(n_vocab, sizeof(*s->w));
    s->rank = calloc(n_vocab, sizeof(*s->rank));
    s->key = calloc(n_vocab, sizeof(*s->key));
    s->key_w = calloc(n_vocab, sizeof(*s->key_w));
    s->seen = calloc(n_vocab, sizeof(*s->seen));
    s->touched = calloc(n_vocab, sizeof(*s->touched));
    s->block = calloc(n_vocab / SAMPLE_BLOCK + 1, sizeof(*s->block));
    if (s->masked == NULL || s->l == NULL || s->id == NULL || s->w == NULL || s->rank == NULL ||
        s->key == NULL || s->key_w == NULL || s->seen == NULL || s->touched == NULL ||
        s->block == NULL) {
        sampler_scratch_close(s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}

void sampler_scratch_close(struct sampler_scratch *s)
{
    if (s == NULL) {
        return;
    }
    free(s->masked);
    free(s->l);
    free(s->id);
    free(s->w);
    free(s->rank);
    free(s->key);
    free(s->key_w);
    free(s->seen);
    free(s->touched);
    free(s->block);
    free(s);
}

static int run_greedy(struct sampler_scratch *s, const struct sample_input *in)
{
    sample_penalize_logits(s, in); /* counted nothing if order[] lacks the stage */
    float max;
    uint32_t index;
    const int rc = s->lanes.scan(in->logits, s->n_vocab, &max, &index);
    if (rc != 0) {
        return rc;
    }
    s->n = 1;
    s->id[0] = index;
    s->w[0] = (uint64_t)SAMPLE_ONE;
    s->total = s->w[0];
    return 0;
}

bool sample_order_valid(const struct sampler_params *p)
{
    uint32_t present = 0;
    if (p->n_order > SAMPLE_STAGES) {
        return false;
    }
    for (uint32_t i = 0; i < p->n_order; i++) {
        const uint32_t stage = p->order[i];
        if (stage < SAMPLE_PENALTIES || stage > SAMPLE_TEMPERATURE || (present >> stage & 1) != 0) {
            return false;
        }
        present |= 1u << stage;
    }
    return true;
}

/* Computes the candidates; restores the logits in any case. */
static int distribute(struct sampler_scratch *s, const struct sample_input *in)
{
    if (!sample_order_valid(in->p)) {
        return -EINVAL;
    }
    int rc = sample_add_bias(s, in);
    if (rc == 0) {
        rc = sample_count_seen(s, in);
    }
    if (rc == 0) {
        rc = in->p->temperature > 0.0f ? sample_run_stages(s, in) : run_greedy(s, in);
    }
    sample_restore(s, in->logits);
    return rc;
}

/* The logits that sampling starts from: the model's own, or a copy with the disallowed tokens
 * masked. */
static float *allowed_logits(const struct sampler_scratch *s, const struct sampler_params *p,
                             float *logits)
{
    if (p->allowed == NULL) {
        return logits;
    }
    s->lanes.allow(logits, s->n_vocab, p->allowed, s->masked);
    return s->masked;
}

/* Walks the candidates by id: returns the first whose running sum exceeds mulhi(random, total). */
static uint32_t draw(const struct sampler_scratch *s, uint64_t random)
{
    uint64_t left = (uint64_t)((unsigned __int128)random * s->total >> 64);
    uint32_t i = 0;
    while (left >= s->w[i]) {
        left -= s->w[i++];
        assert(i < s->n);
    }
    return s->id[i];
}

int sample_distribution(const struct sampler_params *p, float *logits, uint32_t n_vocab,
                        const uint32_t *tokens, uint32_t position, uint32_t prompt_length,
                        struct sampler_scratch *s, struct sample_kept *ret)
{
    assert(n_vocab == s->n_vocab);
    const struct sample_input in = {p, allowed_logits(s, p, logits), tokens, position,
                                    prompt_length};
    const int rc = distribute(s, &in);
    if (rc != 0) {
        return rc;
    }
    *ret = (struct sample_kept){.n = s->n, .ids = s->id, .weights = s->w, .total = s->total};
    return 0;
}

int sample_token(const struct sampler_params *p, float *logits, uint32_t n_vocab,
                 const uint32_t *tokens, uint32_t position, uint32_t prompt_length,
                 struct sampler_scratch *s, struct sample *ret)
{
    assert(n_vocab == s->n_vocab);
    const struct sample_input in = {p, allowed_logits(s, p, logits), tokens, position,
                                    prompt_length};
    const int rc = distribute(s, &in);
    if (rc != 0) {
        return rc;
    }
    *ret = (struct sample){.token = draw(s, philox_sample(p->seed, position))};
    return p->logprobs ? sample_logprobs(s, logits, p->n_top, ret) : 0;
}
