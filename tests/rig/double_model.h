/*
 * double_model: the transformer in double precision with libm, from the same model view, no
 * rounding of activations and, as asked, none of KV or to f16 as in NUMERICS.md: what the page
 * approximates. For tests only.
 */
#ifndef HEARTH_TESTS_RIG_DOUBLE_MODEL_H
#define HEARTH_TESTS_RIG_DOUBLE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/model/model.h"

struct double_model;

struct double_model *double_model_open(const struct model *model, uint32_t context, bool kv_f16);
void double_model_close(struct double_model *d);

/* Takes the next token of the sequence; returns its logits [n_vocab], valid until the next call. */
const double *double_model_step(struct double_model *d, uint32_t token);

/* What the next-token layer says of the token after `token`, which the sequence has not taken yet;
 * called again, after the one before: logits [n_vocab], valid until the next call. */
const double *double_model_draft(struct double_model *d, uint32_t token);

#endif
