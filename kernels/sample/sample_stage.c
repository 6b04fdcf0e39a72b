/* sample_stage.c: the stages: each takes the set that the one before it left, and truncates it or
 * changes its logits. kernels/NUMERICS.md, "Samples", line by line. */
#include "kernels/sample/sample_impl.h"

#include <errno.h>
#include <math.h>

static int weigh(struct sampler_scratch *s)
{
    if (s->weighed) {
        return 0;
    }
    float max;
    uint32_t index;
    const int rc = s->lanes.scan(s->l, s->n, &max, &index);
    if (rc != 0) {
        return rc;
    }
    s->total = s->lanes.weigh(s->l, s->n, max, s->w);
    s->weighed = true;
    return 0;
}

/* floor(total * p) for 0 <= p < 1, p taken to 2^-40 */
static uint64_t share(uint64_t total, float p, bool round_up)
{
    const unsigned __int128 product = (unsigned __int128)total * (uint64_t)(p * SAMPLE_ONE);
    return (uint64_t)((product + (round_up ? ((uint64_t)1 << 40) - 1 : 0)) >> 40);
}

static int stage_top_k(struct sampler_scratch *s, const struct sampler_params *p)
{
    if (p->top_k >= s->n) {
        return 0;
    }
    const uint32_t differ = s->lanes.rank(s->l, s->n, s->rank);
    sample_keep(s, sample_select(s, differ, NULL, p->top_k));
    return 0;
}

static int stage_top_p(struct sampler_scratch *s, const struct sampler_params *p)
{
    const int rc = weigh(s);
    if (rc != 0) {
        return rc;
    }
    const uint64_t reach = p->top_p > 0.0f ? share(s->total, p->top_p, true) : 0;
    const uint32_t differ = s->lanes.rank(s->l, s->n, s->rank);
    sample_keep(s, sample_select(s, differ, s->w, reach > 0 ? reach : 1));
    return 0;
}

/* In logits: p >= min_p * p_max is l >= max + log(min_p). */
static float min_p_bound(const struct sampler_params *p, float max)
{
    return p->min_p < 1.0f ? max + num_log(p->min_p) : max;
}

static int stage_min_p(struct sampler_scratch *s, const struct sampler_params *p)
{
    float max;
    uint32_t index;
    const int rc = s->lanes.scan(s->l, s->n, &max, &index);
    if (rc != 0) {
        return rc;
    }
    (void)s->lanes.rank(s->l, s->n, s->rank);
    sample_keep(s, sample_key(sample_rank(min_p_bound(p, max)), UINT32_MAX));
    return 0;
}

/* Surprise is -log p = d + log Z with d = max - l, and its expectation is E[d] + log Z: log Z drops
 * out of the difference. E[d] is exact integers up to one division: d in units of 2^-23, w * d <
 * 2^62. */
static int stage_typical_p(struct sampler_scratch *s, const struct sampler_params *p)
{
    float max;
    uint32_t index;
    int rc = s->lanes.scan(s->l, s->n, &max, &index);
    if (rc == 0) {
        rc = weigh(s);
    }
    if (rc != 0) {
        return rc;
    }
    unsigned __int128 sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->w[i] != 0) {
            sum += s->w[i] * (uint64_t)((max - s->l[i]) * 0x1p23f);
        }
    }
    const float expected = (float)(uint64_t)(sum / s->total) * 0x1p-23f;
    uint32_t differ = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        s->rank[i] = num_bits((max - s->l[i]) - expected) & 0x7fffffffu;
        differ |= s->rank[i] ^ s->rank[0];
    }
    const uint64_t above = p->typical_p > 0.0f ? share(s->total, p->typical_p, false) : 0;
    sample_keep(s, sample_select(s, differ, s->w, above + 1));
    s->weighed = false; /* the most likely token may have been removed */
    return 0;
}

static int stage_temperature(struct sampler_scratch *s, const struct sampler_params *p)
{
    float max;
    uint32_t index;
    const int rc = s->lanes.scan(s->l, s->n, &max, &index);
    if (rc != 0) {
        return rc;
    }
    s->lanes.temper(s->l, s->n, max, p->temperature);
    s->weighed = false;
    return 0;
}

static bool stage_on(const struct sampler_params *p, enum sample_stage stage)
{
    switch (stage) {
    case SAMPLE_PENALTIES:
        return sample_penalties_on(p);
    case SAMPLE_TOP_K:
        return p->top_k != 0;
    case SAMPLE_TYPICAL_P:
        return p->typical_p < 1.0f;
    case SAMPLE_TOP_P:
        return p->top_p < 1.0f;
    case SAMPLE_MIN_P:
        return p->min_p > 0.0f;
    case SAMPLE_TEMPERATURE:
        return p->temperature != 1.0f;
    }
    return false;
}

uint32_t sample_stages(const struct sampler_params *p, enum sample_stage ret[SAMPLE_STAGES])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_order; i++) {
        const enum sample_stage stage = (enum sample_stage)p->order[i];
        if (stage_on(p, stage)) {
            ret[n++] = stage;
        }
    }
    return n;
}

/* Runs one stage that is on. */
static int run_stage(struct sampler_scratch *s, const struct sample_input *in,
                     enum sample_stage stage)
{
    switch (stage) {
    case SAMPLE_PENALTIES:
        return sample_penalize_candidates(s, in);
    case SAMPLE_TOP_K:
        return stage_top_k(s, in->p);
    case SAMPLE_TYPICAL_P:
        return stage_typical_p(s, in->p);
    case SAMPLE_TOP_P:
        return stage_top_p(s, in->p);
    case SAMPLE_MIN_P:
        return stage_min_p(s, in->p);
    case SAMPLE_TEMPERATURE:
        return stage_temperature(s, in->p);
    }
    return -EINVAL;
}

/* A lower bound for candidates: tokens below it would be removed by the first stage anyway. */
static float admission_bound(struct sampler_scratch *s, const struct sample_input *in,
                             enum sample_stage first, float max)
{
    if (first == SAMPLE_TOP_K) {
        return sample_bound_top_k(s, in->logits, in->p->top_k);
    }
    if (first == SAMPLE_MIN_P) {
        return min_p_bound(in->p, max);
    }
    return -INFINITY;
}

int sample_run_stages(struct sampler_scratch *s, const struct sample_input *in)
{
    const struct sampler_params *p = in->p;
    enum sample_stage stages[SAMPLE_STAGES];
    const uint32_t n = sample_stages(p, stages);
    uint32_t next = 0;
    if (n > 0 && stages[0] == SAMPLE_PENALTIES) {
        sample_penalize_logits(s, in);
        next = 1;
    }
    float max; /* refused before any stage, whether or not a stage would see it */
    uint32_t index;
    int rc = s->lanes.scan(in->logits, s->n_vocab, &max, &index);
    if (rc != 0) {
        return rc;
    }
    sample_admit(s, in->logits, next < n ? admission_bound(s, in, stages[next], max) : -INFINITY);
    for (; next < n && rc == 0; next++) {
        rc = run_stage(s, in, stages[next]);
    }
    return rc != 0 ? rc : weigh(s);
}
