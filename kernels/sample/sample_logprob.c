/* sample_logprob.c: log-probabilities of the model's own logits, and the most likely tokens. */
#include "kernels/sample/sample_impl.h"

#include <math.h>

/* log p = (l - max) - log(sum of weights / 2^40), of the model's own logits */
struct normalizer {
    float max, log_sum;
};

static float logprob(const struct normalizer *z, float l)
{
    return (l - z->max) - z->log_sum;
}

static int normalize(const struct sampler_scratch *s, const float *logits, struct normalizer *ret)
{
    uint32_t index;
    const int rc = s->lanes.scan(logits, s->n_vocab, &ret->max, &index);
    if (rc != 0) {
        return rc;
    }
    const uint64_t sum = s->lanes.weigh(logits, s->n_vocab, ret->max, NULL);
    ret->log_sum = num_log((float)sum * 0x1p-40f);
    return 0;
}

/* Finds the n best by (logit descending, id ascending): ids come ascending, so a tie goes after. */
static void find_top(const struct normalizer *z, const float *logits, uint32_t n_vocab, uint32_t n,
                     struct sample *ret)
{
    float best[SAMPLE_TOP_MAX];
    uint32_t found = 0;
    float least = -INFINITY; /* a token must exceed this */
    for (uint32_t id = 0; id < n_vocab; id++) {
        if (!(logits[id] > least)) {
            continue;
        }
        uint32_t at = found < n ? found++ : n - 1;
        for (; at > 0 && best[at - 1] < logits[id]; at--) {
            best[at] = best[at - 1];
            ret->top[at].id = ret->top[at - 1].id;
        }
        best[at] = logits[id];
        ret->top[at].id = id;
        if (found == n) {
            least = best[n - 1];
        }
    }
    ret->n_top = found;
    for (uint32_t i = 0; i < found; i++) {
        ret->top[i].logprob = logprob(z, best[i]);
    }
}

int sample_logprobs(const struct sampler_scratch *s, const float *logits, uint32_t n_top,
                    struct sample *ret)
{
    struct normalizer z;
    const int rc = normalize(s, logits, &z);
    if (rc != 0) {
        return rc;
    }
    ret->logprob = logprob(&z, logits[ret->token]);
    if (n_top > 0) {
        find_top(&z, logits, s->n_vocab, n_top < SAMPLE_TOP_MAX ? n_top : SAMPLE_TOP_MAX, ret);
    }
    return 0;
}
