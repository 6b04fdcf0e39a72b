/* The pick: bias and penalties, stages, draw, log-probabilities. kernels/NUMERICS.md, "Picks", line by line. */
#include "kernels/pick.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/philox.h"
#include "kernels/pick_impl.h"

/* What one call was given; the logits' length is the scratch's n_vocab. */
struct pick_input {
    const struct pick_params *p;
    float *logits;          /* [n_vocab] */
    const uint32_t *tokens; /* [position] */
    uint32_t position, prompt_length;
};

/* ---- scratch ---------------------------------------------------------------------------------- */

int pick_scratch_open(uint32_t n_vocab, struct pick_scratch **ret) {
    if (n_vocab == 0 || n_vocab > PICK_VOCAB_MAX) { return -EINVAL; }
    struct pick_scratch *s = calloc(1, sizeof *s);
    if (s == NULL) { return -ENOMEM; }
    s->n_vocab = n_vocab;
    s->lanes = pick_lanes_portable;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) { s->lanes = pick_lanes_avx2; }
#endif
    s->l = calloc(n_vocab, sizeof *s->l);
    s->id = calloc(n_vocab, sizeof *s->id);
    s->w = calloc(n_vocab, sizeof *s->w);
    s->rank = calloc(n_vocab, sizeof *s->rank);
    s->key = calloc(n_vocab, sizeof *s->key);
    s->key_w = calloc(n_vocab, sizeof *s->key_w);
    s->seen = calloc(n_vocab, sizeof *s->seen);
    s->touched = calloc(n_vocab, sizeof *s->touched);
    s->block = calloc(n_vocab / PICK_BLOCK + 1, sizeof *s->block);
    if (s->l == NULL || s->id == NULL || s->w == NULL || s->rank == NULL || s->key == NULL ||
        s->key_w == NULL || s->seen == NULL || s->touched == NULL ||
        s->block == NULL) {
        pick_scratch_close(s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}

void pick_scratch_close(struct pick_scratch *s) {
    if (s == NULL) { return; }
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

/* ---- bias and penalties ----------------------------------------------------------------------- */

/* Remembers the model's logit of a token before it is changed. Each id once. */
static void save(struct pick_scratch *s, const float *logits, uint32_t id) {
    if ((s->seen[id] & PICK_SAVED) != 0) { return; }
    s->seen[id] |= PICK_SAVED;
    s->touched[s->n_touched++] = (struct pick_touched){.id = id, .raw = logits[id]};
}

static void restore(struct pick_scratch *s, float *logits) {
    for (uint32_t i = 0; i < s->n_touched; i++) {
        logits[s->touched[i].id] = s->touched[i].raw;
        s->seen[s->touched[i].id] = 0;
    }
    s->n_touched = 0;
}

static int add_bias(struct pick_scratch *s, const struct pick_input *in) {
    for (uint32_t i = 0; i < in->p->n_bias; i++) {
        const uint32_t id = in->p->bias[i].id;
        if (id >= s->n_vocab) { return -EINVAL; }
        save(s, in->logits, id);
        in->logits[id] += in->p->bias[i].value;
    }
    return 0;
}

static bool penalties_on(const struct pick_params *p) {
    bool listed = false;
    for (uint32_t i = 0; i < p->n_order; i++) { listed |= p->order[i] == PICK_PENALTIES; }
    return listed && p->penalty_last_n != 0 &&
           (p->repeat_penalty != 1.0f || p->frequency_penalty != 0.0f || p->presence_penalty != 0.0f);
}

/* Counts how often each token stands in the window. Every counted token is in touched[]. */
static int count_seen(struct pick_scratch *s, const struct pick_input *in) {
    if (!penalties_on(in->p)) { return 0; }
    const int32_t last_n = in->p->penalty_last_n;
    uint32_t begin = 0;
    if (last_n > 0 && (uint32_t)last_n < in->position) { begin = in->position - (uint32_t)last_n; }
    if (in->p->penalty_answer_only && begin < in->prompt_length) { begin = in->prompt_length; }
    for (uint32_t i = begin; i < in->position; i++) {
        if (in->tokens[i] >= s->n_vocab) { return -EINVAL; }
        save(s, in->logits, in->tokens[i]);
        s->seen[in->tokens[i]]++;
    }
    return 0;
}

static float penalized(const struct pick_params *p, float l, uint32_t count) {
    l = l <= 0.0f ? l * p->repeat_penalty : l / p->repeat_penalty;
    return l - fmaf((float)count, p->frequency_penalty, p->presence_penalty);
}

/* The stage: on the whole vocabulary through touched[], on candidates one by one. */
static void penalize_logits(struct pick_scratch *s, const struct pick_input *in) {
    for (uint32_t i = 0; i < s->n_touched; i++) {
        const uint32_t id = s->touched[i].id;
        const uint32_t count = s->seen[id] & ~PICK_SAVED;
        if (count != 0) { in->logits[id] = penalized(in->p, in->logits[id], count); }
    }
}

static int penalize_candidates(struct pick_scratch *s, const struct pick_input *in) {
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t count = s->seen[s->id[i]] & ~PICK_SAVED;
        if (count != 0) { s->l[i] = penalized(in->p, s->l[i], count); }
    }
    s->weighed = false;
    return 0;
}

/* ---- stages ----------------------------------------------------------------------------------- */

static int weigh(struct pick_scratch *s) {
    if (s->weighed) { return 0; }
    float max;
    uint32_t index;
    const int rc = s->lanes.scan(s->l, s->n, &max, &index);
    if (rc != 0) { return rc; }
    s->total = s->lanes.weigh(s->l, s->n, max, s->w);
    s->weighed = true;
    return 0;
}

/* floor(total * p) for 0 <= p < 1, p taken to 2^-40 */
static uint64_t share(uint64_t total, float p, bool round_up) {
    const unsigned __int128 product = (unsigned __int128)total * (uint64_t)(p * PICK_ONE);
    return (uint64_t)((product + (round_up ? ((uint64_t)1 << 40) - 1 : 0)) >> 40);
}

static int stage_top_k(struct pick_scratch *s, const struct pick_params *p) {
    if (p->top_k >= s->n) { return 0; }
    const uint32_t differ = s->lanes.rank(s->l, s->n, s->rank);
    pick_keep(s, pick_select(s, differ, NULL, p->top_k));
    return 0;
}

static int stage_top_p(struct pick_scratch *s, const struct pick_params *p) {
    const int rc = weigh(s);
    if (rc != 0) { return rc; }
    const uint64_t reach = p->top_p > 0.0f ? share(s->total, p->top_p, true) : 0;
    const uint32_t differ = s->lanes.rank(s->l, s->n, s->rank);
    pick_keep(s, pick_select(s, differ, s->w, reach > 0 ? reach : 1));
    return 0;
}

/* In logits: p >= min_p * p_max is l >= max + log(min_p). */
static float min_p_bound(const struct pick_params *p, float max) {
    return p->min_p < 1.0f ? max + num_log(p->min_p) : max;
}

static int stage_min_p(struct pick_scratch *s, const struct pick_params *p) {
    float max;
    uint32_t index;
    const int rc = s->lanes.scan(s->l, s->n, &max, &index);
    if (rc != 0) { return rc; }
    (void)s->lanes.rank(s->l, s->n, s->rank);
    pick_keep(s, pick_key(pick_rank(min_p_bound(p, max)), UINT32_MAX));
    return 0;
}

/* Surprise is -log p = d + log Z with d = max - l, and its expectation is E[d] + log Z: log Z drops out of the
 * difference. E[d] is exact integers up to one division: d in units of 2^-23, w * d < 2^62. */
static int stage_typical_p(struct pick_scratch *s, const struct pick_params *p) {
    float max;
    uint32_t index;
    int rc = s->lanes.scan(s->l, s->n, &max, &index);
    if (rc == 0) { rc = weigh(s); }
    if (rc != 0) { return rc; }
    unsigned __int128 sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->w[i] != 0) { sum += s->w[i] * (uint64_t)((max - s->l[i]) * 0x1p23f); }
    }
    const float expected = (float)(uint64_t)(sum / s->total) * 0x1p-23f;
    uint32_t differ = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        s->rank[i] = num_bits((max - s->l[i]) - expected) & 0x7fffffffu;
        differ |= s->rank[i] ^ s->rank[0];
    }
    const uint64_t above = p->typical_p > 0.0f ? share(s->total, p->typical_p, false) : 0;
    pick_keep(s, pick_select(s, differ, s->w, above + 1));
    s->weighed = false; /* the most likely token may be gone */
    return 0;
}

static int stage_temperature(struct pick_scratch *s, const struct pick_params *p) {
    float max;
    uint32_t index;
    const int rc = s->lanes.scan(s->l, s->n, &max, &index);
    if (rc != 0) { return rc; }
    s->lanes.temper(s->l, s->n, max, p->temperature);
    s->weighed = false;
    return 0;
}

static bool stage_on(const struct pick_params *p, enum pick_stage stage) {
    switch (stage) {
    case PICK_PENALTIES: return penalties_on(p);
    case PICK_TOP_K: return p->top_k != 0;
    case PICK_TYPICAL_P: return p->typical_p < 1.0f;
    case PICK_TOP_P: return p->top_p < 1.0f;
    case PICK_MIN_P: return p->min_p > 0.0f;
    case PICK_TEMPERATURE: return p->temperature != 1.0f;
    }
    return false;
}

/* Runs one stage that is on. */
static int run_stage(struct pick_scratch *s, const struct pick_input *in, enum pick_stage stage) {
    switch (stage) {
    case PICK_PENALTIES: return penalize_candidates(s, in);
    case PICK_TOP_K: return stage_top_k(s, in->p);
    case PICK_TYPICAL_P: return stage_typical_p(s, in->p);
    case PICK_TOP_P: return stage_top_p(s, in->p);
    case PICK_MIN_P: return stage_min_p(s, in->p);
    case PICK_TEMPERATURE: return stage_temperature(s, in->p);
    }
    return -EINVAL;
}

/* What the first stage will cut anyway need not become a candidate: the bound that the others reach. */
static float admission_bound(struct pick_scratch *s, const struct pick_input *in, enum pick_stage first, float max) {
    if (first == PICK_TOP_K) { return pick_bound_top_k(s, in->logits, in->p->top_k); }
    if (first == PICK_MIN_P) { return min_p_bound(in->p, max); }
    return -INFINITY;
}

static int run_stages(struct pick_scratch *s, const struct pick_input *in) {
    const struct pick_params *p = in->p;
    enum pick_stage stages[PICK_STAGES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_order; i++) {
        const enum pick_stage stage = (enum pick_stage)p->order[i];
        if (stage_on(p, stage)) { stages[n++] = stage; }
    }
    uint32_t next = 0;
    if (n > 0 && stages[0] == PICK_PENALTIES) {
        penalize_logits(s, in);
        next = 1;
    }
    float max; /* NaN and +inf are refused before any stage, whether it would see them or not */
    uint32_t index;
    int rc = s->lanes.scan(in->logits, s->n_vocab, &max, &index);
    if (rc != 0) { return rc; }
    pick_admit(s, in->logits, next < n ? admission_bound(s, in, stages[next], max) : -INFINITY);
    for (; next < n && rc == 0; next++) { rc = run_stage(s, in, stages[next]); }
    return rc != 0 ? rc : weigh(s);
}

static int run_greedy(struct pick_scratch *s, const struct pick_input *in) {
    penalize_logits(s, in); /* does nothing where order[] lacks the stage: then nothing was counted */
    float max;
    uint32_t index;
    const int rc = s->lanes.scan(in->logits, s->n_vocab, &max, &index);
    if (rc != 0) { return rc; }
    s->n = 1;
    s->id[0] = index;
    s->w[0] = (uint64_t)PICK_ONE;
    s->total = s->w[0];
    return 0;
}

static int check_input(const struct pick_input *in) {
    uint32_t present = 0;
    if (in->prompt_length > in->position || in->p->n_order > PICK_STAGES) { return -EINVAL; }
    for (uint32_t i = 0; i < in->p->n_order; i++) {
        const uint32_t stage = in->p->order[i];
        if (stage < PICK_PENALTIES || stage > PICK_TEMPERATURE || (present >> stage & 1) != 0) { return -EINVAL; }
        present |= 1u << stage;
    }
    return 0;
}

/* Fills the candidates and restores the logits, whatever happens. */
static int distribute(struct pick_scratch *s, const struct pick_input *in) {
    int rc = check_input(in);
    if (rc != 0) { return rc; }
    rc = add_bias(s, in);
    if (rc == 0) { rc = count_seen(s, in); }
    if (rc == 0) { rc = in->p->temperature > 0.0f ? run_stages(s, in) : run_greedy(s, in); }
    restore(s, in->logits);
    return rc;
}

/* ---- log-probabilities ------------------------------------------------------------------------ */

/* log p = (l - max) - log(sum of weights / 2^40), of the model's own logits */
struct normalizer {
    float max, log_sum;
};

static float logprob(const struct normalizer *z, float l) {
    return (l - z->max) - z->log_sum;
}

static int normalize(const struct pick_scratch *s, const float *logits, struct normalizer *ret) {
    uint32_t index;
    const int rc = s->lanes.scan(logits, s->n_vocab, &ret->max, &index);
    if (rc != 0) { return rc; }
    const uint64_t sum = s->lanes.weigh(logits, s->n_vocab, ret->max, NULL);
    ret->log_sum = num_log((float)sum * 0x1p-40f);
    return 0;
}

/* The n best by (logit descending, id ascending): ids come ascending, so an equal one goes behind. */
static void find_top(const struct normalizer *z, const float *logits, uint32_t n_vocab, uint32_t n,
                     struct pick *ret) {
    float best[PICK_TOP_MAX];
    uint32_t found = 0;
    float least = -INFINITY; /* what a token must be above */
    for (uint32_t id = 0; id < n_vocab; id++) {
        if (!(logits[id] > least)) { continue; }
        uint32_t at = found < n ? found++ : n - 1;
        for (; at > 0 && best[at - 1] < logits[id]; at--) {
            best[at] = best[at - 1];
            ret->top[at].id = ret->top[at - 1].id;
        }
        best[at] = logits[id];
        ret->top[at].id = id;
        if (found == n) { least = best[n - 1]; }
    }
    ret->n_top = found;
    for (uint32_t i = 0; i < found; i++) { ret->top[i].logprob = logprob(z, best[i]); }
}

/* ---- entry points ----------------------------------------------------------------------------- */

/* Walks the candidates by id: the first whose running sum is above mulhi(random, total). */
static uint32_t draw(const struct pick_scratch *s, uint64_t random) {
    uint64_t left = (uint64_t)((unsigned __int128)random * s->total >> 64);
    uint32_t i = 0;
    while (left >= s->w[i]) {
        left -= s->w[i++];
        assert(i < s->n);
    }
    return s->id[i];
}

int pick_distribution(const struct pick_params *p, float *logits, uint32_t n_vocab, const uint32_t *tokens,
                      uint32_t position, uint32_t prompt_length, struct pick_scratch *s,
                      struct pick_kept *ret) {
    assert(n_vocab == s->n_vocab);
    const struct pick_input in = {p, logits, tokens, position, prompt_length};
    const int rc = distribute(s, &in);
    if (rc != 0) { return rc; }
    *ret = (struct pick_kept){.n = s->n, .ids = s->id, .weights = s->w, .total = s->total};
    return 0;
}

int pick_token(const struct pick_params *p, float *logits, uint32_t n_vocab, const uint32_t *tokens,
               uint32_t position, uint32_t prompt_length, struct pick_scratch *s, struct pick *ret) {
    assert(n_vocab == s->n_vocab);
    const struct pick_input in = {p, logits, tokens, position, prompt_length};
    const int rc = distribute(s, &in);
    if (rc != 0) { return rc; }
    *ret = (struct pick){.token = draw(s, philox_pick(p->seed, position))};
    if (!p->logprobs) { return 0; }
    struct normalizer z;
    const int bad = normalize(s, logits, &z);
    if (bad != 0) { return bad; }
    ret->logprob = logprob(&z, logits[ret->token]);
    if (p->n_top > 0) {
        find_top(&z, logits, n_vocab, p->n_top < PICK_TOP_MAX ? p->n_top : PICK_TOP_MAX, ret);
    }
    return 0;
}
