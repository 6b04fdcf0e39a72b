/* sample.h: the canonical sampler: which token follows, as a pure function.
 *
 * A sample depends on (logits, parameters, seed, tokens[0, position), prompt length, position) and
 * on nothing else: not on earlier samples, the scratch, the machine's vector units or the other
 * rows of the pass. kernels/NUMERICS.md, "Samples", is the definition; sums are sums of integers,
 * so their order cannot matter.
 *
 * Stages: disallowed tokens are masked first; then the logit bias is added; then come the stages of
 * `order`; then a draw. temperature <= 0 is greedy: bias, penalties (if in `order`), the largest
 * logit, the lower id among equals; the other stages have no effect.
 *
 * Log-probabilities are the log-softmax of the model's own logits, before bias, penalties,
 * temperature and truncation.
 *
 * Threads: any; a scratch serves one call at a time. Owns: nothing but the scratch. Never:
 * allocates while sampling, prints, calls libm (besides fmaf), keeps state between samples. */
#ifndef HEARTH_KERNELS_SAMPLE_SAMPLE_H
#define HEARTH_KERNELS_SAMPLE_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

enum { SAMPLE_TOP_MAX = 20 };              /* alternatives with log-probabilities */
enum { SAMPLE_VOCAB_MAX = (1 << 24) - 1 }; /* so that a sum of weights fits in 64 bits */

/* The stages; a stage whose parameter is off does nothing. The numbers are those of the parameter
 * block in ipc/params.h: never renumber. */
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
    float typical_p;   /* keep those nearest to the expected surprise, up to this mass; >= 1 off */
    float top_p;       /* keep the most likely tokens up to this mass, at least one; >= 1 off */
    float min_p;       /* keep tokens with p >= min_p * the largest p; <= 0 off */
    /* Penalties change the logits of tokens that occurred: positive ones are divided by
     * repeat_penalty, others multiplied; then frequency per occurrence and presence once are
     * subtracted. */
    float repeat_penalty;         /* above 0; 1 off */
    float frequency_penalty;      /* 0 off */
    float presence_penalty;       /* 0 off */
    int32_t penalty_last_n;       /* last tokens that count, with the prompt: 0 none, -1 all */
    bool penalty_answer_only;     /* tokens of the prompt do not count */
    bool logprobs;                /* fill logprob and top of struct sample */
    uint8_t n_top;                /* with logprobs: alternatives wanted, 0 .. SAMPLE_TOP_MAX */
    uint8_t n_order;              /* stages in order[]; each stage at most once */
    uint8_t order[SAMPLE_STAGES]; /* enum sample_stage */
    uint32_t n_bias;
    const struct sample_bias *bias; /* [n_bias]; biases of the same id add up, in this order */
    /* [n_vocab / 64, rounded up] bit `id`: the token may be sampled (a grammar); NULL: any may.
     * This holds for one position only; a pass has it per row (backend.h). */
    const uint64_t *allowed;
};

struct sample_top {
    uint32_t id;
    float logprob;
};

struct sample {
    uint32_t token;
    float logprob;  /* 0 unless params.logprobs */
    uint32_t n_top; /* less than params.n_top only if fewer tokens have a finite logit */
    struct sample_top top[SAMPLE_TOP_MAX]; /* [n_top], by logit descending, then id ascending */
};

/* The candidates after all stages: the probability of ids[i] is weights[i] / total, the largest
 * weight is 2^40. The arrays are in the scratch and valid until its next use. */
struct sample_kept {
    uint32_t n;              /* at least 1 */
    const uint32_t *ids;     /* [n], ascending */
    const uint64_t *weights; /* [n] */
    uint64_t total;          /* > 0 */
};

/* Working memory for one sample at a time, 52 bytes per token of the vocabulary. */
struct sampler_scratch;

/* Sets every parameter to off: greedy, seed 0, the default order: penalties, top-k, typical-p,
 * top-p, min-p, temperature. */
void sampler_params_init(struct sampler_params *p);

/* Returns 0 with the scratch, -EINVAL for n_vocab 0 or above SAMPLE_VOCAB_MAX, -ENOMEM. */
int sampler_scratch_open(uint32_t n_vocab, struct sampler_scratch **ret);
void sampler_scratch_close(struct sampler_scratch *s); /* NULL is allowed */

/* Samples the token at absolute position `position`.
 *
 * - logits: [n_vocab] of the row before it, -inf: impossible; changed during the call, then
 * restored
 * - n_vocab: as given to sampler_scratch_open
 * - tokens: [position] the sequence so far: accepted tokens and the drafts before this row
 * - prompt_length: tokens from there on are answer; used by penalty_answer_only only
 *
 * Returns 0 with *ret; -EDOM if a logit is NaN or +inf (by itself, or after bias and penalties), or
 * none is above -inf (also if none is allowed); -EINVAL for a token or a bias id outside the
 * vocabulary, or an unknown or repeated stage. Parameters of any value, including NaN, lead to one
 * of these. */
int sample_token(const struct sampler_params *p, float *logits, uint32_t n_vocab,
                 const uint32_t *tokens, uint32_t position, uint32_t prompt_length,
                 struct sampler_scratch *s, struct sample *ret);

/* The parts of sampling that do not depend on logits, for devices that sample by themselves.
 * sample_order_valid: false makes a sample -EINVAL. sample_stages: the stages that are on, in
 * their order; returns how many. sample_seen_from: penalties count tokens[sample_seen_from,
 * position), none if it is not below position. */
bool sample_order_valid(const struct sampler_params *p);
uint32_t sample_stages(const struct sampler_params *p, enum sample_stage ret[SAMPLE_STAGES]);
bool sample_penalties_on(const struct sampler_params *p);
uint32_t sample_seen_from(const struct sampler_params *p, uint32_t position,
                          uint32_t prompt_length);

/* The distribution that sample_token draws from (greedy: one token). Same arguments and errors; the
 * seed is not used. */
int sample_distribution(const struct sampler_params *p, float *logits, uint32_t n_vocab,
                        const uint32_t *tokens, uint32_t position, uint32_t prompt_length,
                        struct sampler_scratch *s, struct sample_kept *ret);

#endif
