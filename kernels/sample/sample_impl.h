/* sample_impl.h: inside the sampler: its scratch, its lane loops, its selection. Included by
 * kernels/sample/ and its tests only.
 *
 * A stage treats the candidates as a set: they are always kept by ascending id, never sorted by
 * probability. A truncating stage gives each candidate a 32-bit rank (smaller is better), finds the
 * key `rank << 32 | id` of the last one to keep, and keeps all with keys up to it. Keys are
 * distinct, so neither the algorithm nor the order of work affects the result.
 *
 * The lane loops have a portable form (sample_lanes.c) and an AVX2 form (sample_avx2.c) with equal
 * results, bit for bit. */
#ifndef HEARTH_KERNELS_SAMPLE_SAMPLE_IMPL_H
#define HEARTH_KERNELS_SAMPLE_SAMPLE_IMPL_H

#include "kernels/base/num.h"
#include "kernels/sample/sample.h"

#define SAMPLE_ONE 0x1p40f /* the weight of the most likely token */

struct sample_lanes {
    /* The largest of l[n], n > 0, and the lowest index that has it. Returns 0, or -EDOM where an
     * element is NaN or +inf or all are -inf. */
    int (*scan)(const float *l, uint32_t n, float *ret_max, uint32_t *ret_index);

    /* w[i] = (uint64)(exp(l[i] - max) * 2^40), no l[i] above max. Returns the sum; w may be NULL.
     */
    uint64_t (*weigh)(const float *l, uint32_t n, float max, uint64_t *w);

    /* rank[i] = sample_rank(l[i]). Returns the bits in which the ranks differ among each other,
     * or'ed together. */
    uint32_t (*rank)(const float *l, uint32_t n, uint32_t *rank);

    /* l[i] = (l[i] - max) / t */
    void (*temper)(float *l, uint32_t n, float max, float t);

    /* block[b] = the largest of l[64 b, 64 b + 64) for the n / 64 whole blocks */
    void (*block_max)(const float *l, uint32_t n, float *block);

    /* The elements not below bound, in order: ret_l[k] = l[i], ret_id[k] = i. Returns how many. */
    uint32_t (*above)(const float *l, uint32_t n, float bound, float *ret_l, uint32_t *ret_id);

    /* ret[i] = l[i] where bit i is set, else -inf. */
    void (*allow)(const float *l, uint32_t n, const uint64_t *bits, float *ret);
};

enum { SAMPLE_BLOCK = 64 };

struct sample_touched {
    uint32_t id;
    float raw; /* the model's logit */
};

/* Four tables of buckets, so that consecutive elements in the same bucket do not wait for each
 * other's addition. */
enum { SAMPLE_BUCKETS_LOG2 = 11, SAMPLE_BUCKETS = 1 << SAMPLE_BUCKETS_LOG2, SAMPLE_TABLES = 4 };

struct sampler_scratch {
    uint32_t n_vocab;
    uint32_t n;   /* candidates, in ascending id */
    bool weighed; /* w and total are valid for l */
    uint64_t total;
    struct sample_lanes lanes;
    float *masked;   /* [n_vocab] logits, -inf where not allowed */
    float *l;        /* [n] logits */
    uint32_t *id;    /* [n] */
    uint64_t *w;     /* [n] */
    uint32_t *rank;  /* [n] ranks of the current stage */
    uint64_t *key;   /* [n_vocab] selection: the keys of the border's bucket */
    uint64_t *key_w; /* [n_vocab] and their weights */
    uint32_t *seen; /* [n_vocab] SAMPLE_SAVED and the count of occurrences; all 0 between samples */
    struct sample_touched *touched; /* [n_touched] logits to restore */
    uint32_t n_touched;
    float *block; /* [n_vocab / 64 + 1] */
    uint64_t buckets[SAMPLE_TABLES][SAMPLE_BUCKETS];
};

/* What one call was given; the logits' length is the scratch's n_vocab. */
struct sample_input {
    const struct sampler_params *p;
    float *logits;          /* [n_vocab] */
    const uint32_t *tokens; /* [position] */
    uint32_t position, prompt_length;
};

#define SAMPLE_SAVED 0x80000000u /* the token's logit is in touched[] */

extern const struct sample_lanes sample_lanes_portable;
#if defined(__x86_64__)
extern const struct sample_lanes sample_lanes_avx2; /* needs AVX2 and FMA */
#endif

/* Ascending rank = descending logit; -0 and +0 rank the same. */
static inline uint32_t sample_rank(float l)
{
    const uint32_t u = num_bits(l + 0.0f);
    return (u & 0x80000000u) != 0 ? u : u ^ 0x7fffffffu;
}

static inline uint64_t sample_key(uint32_t rank, uint32_t id)
{
    return (uint64_t)rank << 32 | id;
}

/* Makes candidates of the tokens whose logit is not below bound; -inf: all. */
void sample_admit(struct sampler_scratch *s, const float *logits, float bound);

/* A bound that at least k logits reach, near the k-th largest; -inf if k is too large to find one
 * cheaply. */
float sample_bound_top_k(struct sampler_scratch *s, const float *logits, uint32_t k);

/* The key of the last candidate of the shortest prefix, by ascending key of (s->rank, s->id), whose
 * weights sum to at least target: 1 <= target <= sum of the weights. w NULL: each weighs 1.
 * `differ` is the result of lanes.rank. */
uint64_t sample_select(struct sampler_scratch *s, uint32_t differ, const uint64_t *w,
                       uint64_t target);

/* Keeps the candidates whose key is at most `last`; their weights stay valid if the largest logit
 * is kept. */
void sample_keep(struct sampler_scratch *s, uint64_t last);

/* ---- sample_adjust.c: bias and penalties, with the model's logits kept to restore them ---- */

/* Adds the bias. Returns 0, or -EINVAL for an id outside the vocabulary. */
int sample_add_bias(struct sampler_scratch *s, const struct sample_input *in);

/* Counts how often each token occurs in the last penalty_last_n ones; nothing if the penalties are
 * off. Every counted token is in touched[]. Returns 0, or -EINVAL for a token outside the
 * vocabulary. */
int sample_count_seen(struct sampler_scratch *s, const struct sample_input *in);

/* The penalties stage: on the whole vocabulary through touched[], or on the candidates one by
 * one. */
void sample_penalize_logits(struct sampler_scratch *s, const struct sample_input *in);
int sample_penalize_candidates(struct sampler_scratch *s, const struct sample_input *in);

/* Restores the model's logits and resets the counts to 0. */
void sample_restore(struct sampler_scratch *s, float *logits);

/* ---- sample_stage.c ---- */

/* From the biased logits to the weighed candidates that a draw chooses from. Returns 0 or -EDOM. */
int sample_run_stages(struct sampler_scratch *s, const struct sample_input *in);

/* ---- sample_logprob.c ---- */

/* Fills logprob, n_top and top of *ret for ret->token from the model's logits. 0 or -EDOM. */
int sample_logprobs(const struct sampler_scratch *s, const float *logits, uint32_t n_top,
                    struct sample *ret);

#endif
