/* The pick's parameters: defaults, and the one line that says what is wrong with them. */
#include <math.h>
#include <stdio.h>

#include "kernels/pick.h"

void pick_params_init(struct pick_params *p)
{
    *p = (struct pick_params){
        .typical_p = 1.0f,
        .top_p = 1.0f,
        .repeat_penalty = 1.0f,
        .penalty_last_n = 64,
        .n_order = PICK_STAGES,
        .order = {PICK_PENALTIES, PICK_TOP_K, PICK_TYPICAL_P, PICK_TOP_P, PICK_MIN_P,
                  PICK_TEMPERATURE},
    };
}

/* A number from min to max; a NaN is neither. Writes the line otherwise. */
static bool in_range(const char *name, float x, float min, float max, char *err, size_t err_bytes)
{
    if (x >= min && x <= max) {
        return true;
    }
    snprintf(err, err_bytes, "%s is %g: must be a number from %g to %g", name, (double)x,
             (double)min, (double)max);
    return false;
}

static bool order_valid(const struct pick_params *p, char *err, size_t err_bytes)
{
    uint32_t present = 0;
    if (p->n_order > PICK_STAGES) {
        snprintf(err, err_bytes, "order has %u stages: at most %d, each once", p->n_order,
                 PICK_STAGES);
        return false;
    }
    for (uint32_t i = 0; i < p->n_order; i++) {
        const uint32_t stage = p->order[i];
        if (stage < PICK_PENALTIES || stage > PICK_TEMPERATURE) {
            snprintf(err, err_bytes, "order has stage %u: must be 1 to %d", stage, PICK_STAGES);
            return false;
        }
        if ((present >> stage & 1) != 0) {
            snprintf(err, err_bytes, "order has stage %u twice: each at most once", stage);
            return false;
        }
        present |= 1u << stage;
    }
    return true;
}

static bool bias_valid(const struct pick_params *p, uint32_t n_vocab, char *err, size_t err_bytes)
{
    for (uint32_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id >= n_vocab) {
            snprintf(err, err_bytes, "logit bias of token %u: the vocabulary has %u tokens",
                     p->bias[i].id, n_vocab);
            return false;
        }
        if (!(p->bias[i].value <= 1e6f)) { /* -inf may pass, NaN may not */
            snprintf(err, err_bytes, "logit bias of token %u is %g: must be at most 1e6",
                     p->bias[i].id, (double)p->bias[i].value);
            return false;
        }
    }
    return true;
}

bool pick_params_valid(const struct pick_params *p, uint32_t n_vocab, char *err, size_t err_bytes)
{
    if (p->penalty_last_n < -1) {
        snprintf(err, err_bytes, "penalty_last_n is %d: must be -1 (all), 0 (none) or more",
                 p->penalty_last_n);
        return false;
    }
    if (p->n_top > PICK_TOP_MAX) {
        snprintf(err, err_bytes, "logprobs asks for %u alternatives: at most %d", p->n_top,
                 PICK_TOP_MAX);
        return false;
    }
    return in_range("temperature", p->temperature, -1e6f, 1e6f, err, err_bytes) &&
           in_range("top_p", p->top_p, 0.0f, 1.0f, err, err_bytes) &&
           in_range("min_p", p->min_p, 0.0f, 1.0f, err, err_bytes) &&
           in_range("typical_p", p->typical_p, 0.0f, 1.0f, err, err_bytes) &&
           in_range("repeat_penalty", p->repeat_penalty, 1e-6f, 1e6f, err, err_bytes) &&
           in_range("frequency_penalty", p->frequency_penalty, -1e6f, 1e6f, err, err_bytes) &&
           in_range("presence_penalty", p->presence_penalty, -1e6f, 1e6f, err, err_bytes) &&
           order_valid(p, err, err_bytes) && bias_valid(p, n_vocab, err, err_bytes);
}
