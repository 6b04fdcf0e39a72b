/* sample_adjust.c: bias and penalties: logits are changed in place and the model's values are
 * saved. Only the tokens concerned are visited, never the whole vocabulary. */
#include "kernels/sample/sample_impl.h"

#include <errno.h>
#include <math.h>

/* Saves the model's logit of a token before it is changed. Each id once. */
static void save(struct sampler_scratch *s, const float *logits, uint32_t id)
{
    if ((s->seen[id] & SAMPLE_SAVED) != 0) {
        return;
    }
    s->seen[id] |= SAMPLE_SAVED;
    s->touched[s->n_touched++] = (struct sample_touched){.id = id, .raw = logits[id]};
}

void sample_restore(struct sampler_scratch *s, float *logits)
{
    for (uint32_t i = 0; i < s->n_touched; i++) {
        logits[s->touched[i].id] = s->touched[i].raw;
        s->seen[s->touched[i].id] = 0;
    }
    s->n_touched = 0;
}

int sample_add_bias(struct sampler_scratch *s, const struct sample_input *in)
{
    for (uint32_t i = 0; i < in->p->n_bias; i++) {
        const uint32_t id = in->p->bias[i].id;
        if (id >= s->n_vocab) {
            return -EINVAL;
        }
        save(s, in->logits, id);
        in->logits[id] += in->p->bias[i].value;
    }
    return 0;
}

bool sample_penalties_on(const struct sampler_params *p)
{
    bool listed = false;
    for (uint32_t i = 0; i < p->n_order; i++) {
        listed |= p->order[i] == SAMPLE_PENALTIES;
    }
    return listed && p->penalty_last_n != 0 &&
           (p->repeat_penalty != 1.0f || p->frequency_penalty != 0.0f ||
            p->presence_penalty != 0.0f);
}

uint32_t sample_seen_from(const struct sampler_params *p, uint32_t position, uint32_t prompt_length)
{
    const int32_t last_n = p->penalty_last_n;
    uint32_t begin = 0;
    if (last_n > 0 && (uint32_t)last_n < position) {
        begin = position - (uint32_t)last_n;
    }
    return p->penalty_answer_only && begin < prompt_length ? prompt_length : begin;
}

int sample_count_seen(struct sampler_scratch *s, const struct sample_input *in)
{
    if (!sample_penalties_on(in->p)) {
        return 0;
    }
    for (uint32_t i = sample_seen_from(in->p, in->position, in->prompt_length); i < in->position;
         i++) {
        if (in->tokens[i] >= s->n_vocab) {
            return -EINVAL;
        }
        save(s, in->logits, in->tokens[i]);
        s->seen[in->tokens[i]]++;
    }
    return 0;
}

static float penalized(const struct sampler_params *p, float l, uint32_t count)
{
    l = l <= 0.0f ? l * p->repeat_penalty : l / p->repeat_penalty;
    return l - fmaf((float)count, p->frequency_penalty, p->presence_penalty);
}

void sample_penalize_logits(struct sampler_scratch *s, const struct sample_input *in)
{
    for (uint32_t i = 0; i < s->n_touched; i++) {
        const uint32_t id = s->touched[i].id;
        const uint32_t count = s->seen[id] & ~SAMPLE_SAVED;
        if (count != 0) {
            in->logits[id] = penalized(in->p, in->logits[id], count);
        }
    }
}

int sample_penalize_candidates(struct sampler_scratch *s, const struct sample_input *in)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t count = s->seen[s->id[i]] & ~SAMPLE_SAVED;
        if (count != 0) {
            s->l[i] = penalized(in->p, s->l[i], count);
        }
    }
    s->weighed = false;
    return 0;
}
