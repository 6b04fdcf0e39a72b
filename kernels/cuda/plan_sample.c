/* The samples of a pass as the device has them (sampling.h): parameters with everything worked out that does not depend on
 * logits, and the masks, biases and tokens that they read, after all else of the upload. What does
 * not fit there, or is certain to fail, is left to kernels/sample/sample.c on the host. */
#include <float.h>
#include <string.h>

#include "kernels/cuda/backend_cuda.h"
#include "kernels/base/num.h"
#include "kernels/sample/philox.h"

/* Biases of a pass that there is room for: several requests with as many as one may have. */
enum { BIASES = 4096 };

static uint32_t mask_words(const struct backend *b)
{
    return (b->model->n_vocab + 31) / 32;
}

/* Room for a mask per row, the tokens of all positions that the KV cache holds, and biases. */
size_t cuda_most_sample_words(const struct backend *b)
{
    return (size_t)b->limits.samples * mask_words(b) + (size_t)b->limits.pages * CUDA_PAGE +
           2 * BIASES;
}

/* ---- what a sequence's rows share --------------------------------------------------------------- */

static bool place_biases(struct backend *b, const struct sampler_params *p, uint32_t *ret_at)
{
    *ret_at = cuda_take_words(b, 2 * (size_t)p->n_bias);
    for (uint32_t i = 0; i < p->n_bias && *ret_at != CUDA_NOWHERE; i++) {
        uint32_t *to = b->upload.from.words + *ret_at + 2 * (size_t)i;
        to[0] = p->bias[i].id;
        to[1] = num_bits(p->bias[i].value);
        if (to[0] >= b->model->n_vocab)
            return false;
    }
    return *ret_at != CUDA_NOWHERE;
}

/* Tokens [begin, end) of a sequence. */
static bool place_tokens(struct backend *b, const uint32_t *tokens, uint32_t begin, uint32_t end,
                         uint32_t *ret_at)
{
    const uint32_t n = begin < end ? end - begin : 0;
    *ret_at = cuda_take_words(b, n);
    for (uint32_t i = 0; i < n && *ret_at != CUDA_NOWHERE; i++) {
        b->upload.from.words[*ret_at + i] = tokens[begin + i];
        if (tokens[begin + i] >= b->model->n_vocab)
            return false;
    }
    return *ret_at != CUDA_NOWHERE;
}

/* Nothing that the stages compute is a NaN then, but of a bias or logit that is none: the device refuses those. */
static bool is_ordinary(const struct sampler_params *p)
{
    const float most = 1e30f;
    const bool penalties = p->repeat_penalty > 0.0f && p->repeat_penalty <= most &&
                           p->frequency_penalty >= -most && p->frequency_penalty <= most &&
                           p->presence_penalty >= -most && p->presence_penalty <= most;
    return sample_order_valid(p) && !(p->temperature > FLT_MAX) &&
           (!sample_penalties_on(p) || penalties);
}

/* The first row of its sequence that samples places what all of them read: `position` is that of its token. */
static bool place_sequence(struct backend *b, uint32_t s, uint32_t position)
{
    const struct pass_sequence *sequence = &b->pass->sequences[s];
    const struct sampler_params *p = sequence->sampler;
    struct cuda_place *place = &b->places[s];
    place->known = true;
    place->first_token = sample_seen_from(p, position, sequence->prompt_length);
    place->here = is_ordinary(p) && place_biases(b, p, &place->bias) &&
                  (!sample_penalties_on(p) || place_tokens(b, sequence->tokens, place->first_token,
                                                           b->next_position[s], &place->tokens));
    return place->here;
}

/* ---- a row --------------------------------------------------------------------------------------- */

static uint64_t share_of(float p)
{
    return p > 0.0f && p < 1.0f ? (uint64_t)(p * 0x1p40f) : 0;
}

/* Where the order begins with penalties, then temperature, the kernels that sum weights apply them. */
static void sort_stages(const struct sampler_params *p, struct cuda_sampling *to)
{
    enum sample_stage stages[SAMPLE_STAGES];
    const uint32_t n = sample_stages(p, stages);
    uint32_t i = 0;
    to->penalized = n > 0 && stages[0] == SAMPLE_PENALTIES;
    i += to->penalized;
    to->tempered = i < n && stages[i] == SAMPLE_TEMPERATURE;
    i += to->tempered;
    to->weighed = i == n || stages[i] == SAMPLE_TOP_P || stages[i] == SAMPLE_TYPICAL_P;
    for (; i < n; i++)
        to->stages[to->n_stages++] = (uint8_t)stages[i];
}

static void set_numbers(const struct sampler_params *p, uint32_t position, struct cuda_sampling *to)
{
    to->random = philox_sample(p->seed, position);
    to->top_p = share_of(p->top_p);
    to->typical_p = share_of(p->typical_p);
    to->temperature = p->temperature;
    to->min_p = p->min_p > 0.0f && p->min_p < 1.0f ? num_log(p->min_p) : 0.0f;
    to->repeat = p->repeat_penalty;
    to->frequency = p->frequency_penalty;
    to->presence = p->presence_penalty;
    to->top_k = p->top_k;
    to->logprobs = p->logprobs;
    to->n_top = !p->logprobs ? 0 : p->n_top < SAMPLE_TOP_MAX ? p->n_top : SAMPLE_TOP_MAX;
}

/* What penalties of the row count, of what its sequence has placed. */
static void set_seen(const struct backend *b, const struct row *row, struct cuda_sampling *to)
{
    const struct pass_sequence *s = &b->pass->sequences[row->sequence];
    const struct cuda_place *place = &b->places[row->sequence];
    const uint32_t end = row->position + 1,
                   from = sample_seen_from(s->sampler, end, s->prompt_length);
    to->n_tokens = sample_penalties_on(s->sampler) && from < end ? end - from : 0;
    to->tokens = to->n_tokens ? place->tokens + (from - place->first_token) : 0;
}

static void plan_sample(struct backend *b, const struct row *row, struct cuda_sampling *to)
{
    const struct sampler_params *p = b->pass->sequences[row->sequence].sampler;
    const struct cuda_place *place = &b->places[row->sequence];
    const uint32_t position = row->position + 1;
    if (!place->known)
        place_sequence(b, row->sequence, position);
    const uint32_t mask = row->allowed ? cuda_take_words(b, mask_words(b)) : CUDA_NOWHERE;
    if (!place->here || (row->allowed && mask == CUDA_NOWHERE))
        return;
    if (row->allowed)
        memcpy(b->upload.from.words + mask, row->allowed, mask_words(b) * sizeof(uint32_t));
    to->mask = mask;
    to->bias = place->bias;
    to->n_bias = p->n_bias;
    set_numbers(p, position, to);
    set_seen(b, row, to);
    to->kind = p->temperature > 0.0f ? CUDA_SAMPLE_DRAW : CUDA_SAMPLE_GREEDY;
    if (to->kind == CUDA_SAMPLE_DRAW)
        sort_stages(p, to);
    else
        to->penalized = sample_penalties_on(p);
    to->adjusted = row->allowed || to->n_bias > 0 || (to->penalized && to->n_tokens > 0);
}

void cuda_plan_samples(struct backend *b)
{
    struct cuda_upload *u = &b->upload;
    uint32_t summed = 0;
    u->most_words = u->n_words + (uint32_t)cuda_most_sample_words(b);
    for (uint32_t w = 0; w < b->n_wanted; w++) {
        struct cuda_sampling *to = &u->sampling[w];
        const struct row *row = &b->pass->rows[to->row];
        if (row->wants & ROW_SAMPLE)
            plan_sample(b, row, to);
        summed += sample_summed(to) ? 1 : 0;
    }
    u->from.counts[CUDA_COUNT_SUMMED] = summed;
}
