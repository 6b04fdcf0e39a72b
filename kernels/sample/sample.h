/* The canonical sample: which token follows, as a pure function.
 *
 * A sample depends on (logits, parameters, seed, tokens[0, position), prompt length, position) and on
 * nothing else: not on earlier samples, the scratch, the machine's vector units or the other rows of
 * the pass. kernels/NUMERICS.md, "Samples", is the definition; there it is integers wherever
 * something is summed, so no order of summation can show.
 *
 * Stages: what is not allowed is left out first; then the logit bias; then those of `order`; then a
 * draw. temperature <= 0 is greedy:
 * bias, penalties (where `order` has them), the largest logit, the lower id among equals; the other
 * stages do not matter then.
 *
 * Log-probabilities are the log-softmax of the model's own logits, before bias, penalties,
 * temperature and truncation: what the model thought, whatever was done to the draw.
 *
 * Threads: any; a scratch serves one call at a time. Owns: nothing but the scratch.
 * Never: allocates in a sample, prints, calls libm (besides fmaf), keeps state between samples. */
#ifndef HEARTH_KERNELS_SAMPLE_SAMPLE_H
#define HEARTH_KERNELS_SAMPLE_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

enum { SAMPLE_TOP_MAX = 20 };              /* alternatives with log-probabilities */
enum { SAMPLE_VOCAB_MAX = (1 << 24) - 1 }; /* so that a sum of weights fits 64 bits */

/* One stage each; a stage whose parameter is off does nothing. The numbers are those of the
 * parameter block on the wire: never renumber. */
enum sample_stage {
    SAMPLE_PENALTIES = 1,
    SAMPLE_TOP_K = 2,
    SAMPLE_TYPICAL_P = 3,
    SAMPLE_TOP_P = 4,
    SAMPLE_MIN_P = 5,
    SAMPLE_TEMPERATURE = 6,
};
enum { SAMPLE_STAGES = 6 };

struct sample_bias {
    uint32_t id; /* below n_vocab */
    float value; /* added to the logit; -inf forbids the token */
};

struct sampler_params {
    uint64_t seed;
    float temperature; /* <= 0: greedy */
    uint32_t top_k;    /* keep the k most likely; 0 off */
    float typical_p; /* keep what is nearest to the expected surprise, up to this mass; >= 1 off */
    float top_p;     /* keep the most likely up to this mass, at least one; >= 1 off */
    float min_p;     /* keep p >= min_p * the largest p; <= 0 off */
    /* Penalties change the logits of seen tokens: positive ones are divided by repeat_penalty,
     * others multiplied; then frequency per occurrence and presence once are subtracted. */
    float repeat_penalty;     /* above 0; 1 off */
    float frequency_penalty;  /* 0 off */
    float presence_penalty;   /* 0 off */
    int32_t penalty_last_n;   /* how many of the last tokens are seen, prompt too: 0 none, -1 all */
    bool penalty_answer_only; /* tokens of the prompt do not count as seen */
    bool logprobs;            /* fill logprob and top of struct sample */
    uint8_t n_top;            /* with logprobs: alternatives wanted, 0 .. SAMPLE_TOP_MAX */
    uint8_t n_order;          /* stages in order[]; each stage at most once */
    uint8_t order[SAMPLE_STAGES]; /* enum sample_stage */
    uint32_t n_bias;
    const struct sample_bias *bias; /* [n_bias]; several of one id add up, in this order */
    /* [n_vocab / 64, rounded up] bit `id`: the token may be sampled (a grammar); NULL: any may. Of
     * one position, unlike all else here: a pass has it by row (backend.h). */
    const uint64_t *allowed;
};

struct sample_top {
    uint32_t id;
    float logprob;
};

struct sample {
    uint32_t token;
    float logprob;  /* 0 unless params.logprobs */
    uint32_t n_top; /* below params.n_top only where fewer tokens have a finite logit */
    struct sample_top top[SAMPLE_TOP_MAX]; /* [n_top], by logit descending, then id ascending */
};

/* What is left after the stages: the probability of ids[i] is weights[i] / total, the largest
 * weight is 2^40. The arrays lie in the scratch, until its next use. */
struct sample_kept {
    uint32_t n;              /* at least 1 */
    const uint32_t *ids;     /* [n], ascending */
    const uint64_t *weights; /* [n] */
    uint64_t total;          /* > 0 */
};

/* Working memory for one sample at a time, 52 bytes per token of the vocabulary. */
struct sampler_scratch;

/* Every parameter off, greedy, seed 0, the default order: penalties, top-k, typical-p, top-p,
 * min-p, temperature. */
void sampler_params_init(struct sampler_params *p);

/* Returns 0 with the scratch, -EINVAL for n_vocab 0 or above SAMPLE_VOCAB_MAX, -ENOMEM. */
int sampler_scratch_open(uint32_t n_vocab, struct sampler_scratch **ret);
void sampler_scratch_close(struct sampler_scratch *s); /* NULL is allowed */

/* Samples the token of absolute position `position`.
 *
 * - logits: [n_vocab] of the row before it, -inf: impossible; changed, and restored by the end
 * - n_vocab: what the scratch was opened with
 * - tokens: [position] the sequence so far, accepted tokens and the window's drafts before the row
 * - prompt_length: tokens from there on are answer; only penalty_answer_only looks at it
 *
 * Returns 0 with *ret; -EDOM where a logit is NaN or +inf (by itself, or after bias and penalties),
 * or none is above -inf (none allowed, too); -EINVAL for a token or a bias id outside the vocabulary, or an unknown or
 * repeated stage. Parameters of any value, NaN too, lead to one of these. */
int sample_token(const struct sampler_params *p, float *logits, uint32_t n_vocab,
                 const uint32_t *tokens, uint32_t position, uint32_t prompt_length,
                 struct sampler_scratch *s, struct sample *ret);

/* What of a sample does not depend on logits, for devices that sample by themselves. Stages: whether
 * `order` is one (else a sample is -EINVAL); those that are on, in their order, returns how many.
 * Seen: penalties count tokens[sample_seen_from, position), none where it is not below position. */
bool sample_order_valid(const struct sampler_params *p);
uint32_t sample_stages(const struct sampler_params *p, enum sample_stage ret[SAMPLE_STAGES]);
bool sample_penalties_on(const struct sampler_params *p);
uint32_t sample_seen_from(const struct sampler_params *p, uint32_t position,
                          uint32_t prompt_length);

/* The distribution that sample_token draws from (greedy: one token). Same arguments, same errors; no
 * seed in it. */
int sample_distribution(const struct sampler_params *p, float *logits, uint32_t n_vocab,
                        const uint32_t *tokens, uint32_t position, uint32_t prompt_length,
                        struct sampler_scratch *s, struct sample_kept *ret);

#endif
