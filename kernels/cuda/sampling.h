/*
 * samples: what the host tells the device of each sample, and what the device gives back. C and C++; plain data.
 *
 * NUMERICS.md, "Samples". What does not depend on logits is worked out on the host (plan_sample.c): the stages that are on,
 * shares as integers, the random number of the position.
 */
#ifndef HEARTH_KERNELS_CUDA_SAMPLING_H
#define HEARTH_KERNELS_CUDA_SAMPLING_H

#include <stdint.h>

#include "kernels/sample/sample.h"

/* What becomes of a row with wants. BARE: its logits are checked and canonical, no more. */
enum cuda_sample_kind { CUDA_SAMPLE_BARE, CUDA_SAMPLE_GREEDY, CUDA_SAMPLE_DRAW };

/* Words of cuda_pass.words where something begins; or nothing there. */
#define CUDA_NOWHERE UINT32_MAX

/* A row with wants. */
struct cuda_sampling {
    uint64_t random;           /* of the seed and the position */
    uint64_t top_p, typical_p; /* shares, in 2^-40 */
    uint32_t row;              /* of the pass */
    uint32_t kind;             /* enum cuda_sample_kind */
    uint32_t adjusted;         /* there is a mask, a bias, or penalties come first */
    uint32_t penalized;        /* penalties come first, or the sample is greedy */
    uint32_t tempered;         /* temperature is first (after penalties) */
    uint32_t weighed;          /* then comes the draw, typical-p or top-p: all tokens' weights */
    uint32_t n_stages;
    uint8_t stages[8]; /* enum sample_stage, those after these two */
    float temperature, min_p /* its logarithm */, repeat, frequency, presence;
    uint32_t top_k;
    uint32_t mask;             /* at words: bits of tokens that are allowed */
    uint32_t bias, n_bias;     /* at words: pairs of an id and a float */
    uint32_t tokens, n_tokens; /* at words: what penalties count */
    uint32_t logprobs, n_top;
};

/* In the host's memory, mapped. */
struct cuda_sample {
    uint32_t bad;    /* a logit is not finite: the row is poisoned */
    uint32_t failed; /* nothing may be sampled: -EDOM */
    uint32_t token;
    float logprob;
    uint32_t n_top;
    struct sample_top top[SAMPLE_TOP_MAX];
};

/* What a pass gives the host, the number of the pass last: a reader that sees it sees the rest. */
struct cuda_results {
    uint32_t *done;              /* cuda_pass.counts[CUDA_COUNT_PASS] of the last pass that ended */
    uint32_t *bad;               /* [rows] copy of cuda_pass.bad */
    struct cuda_sample *samples; /* [wanted] */
};

#endif
