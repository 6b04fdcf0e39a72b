/* random_model.h: a model of a given shape with weights that are a function of the seed alone:
 * every value is derived by Philox (kernels/sample/philox.h) from (tensor, row, column), so rows
 * can be computed in any order, and any machine gives the same bytes (+ - * / and sqrt, all exact
 * in IEEE-754).
 *
 * Plain: normal-like weights, scaled so that activations stay near 1 from layer to layer and greedy
 * text wanders.
 *
 * Peaked: the next token is a function of the current one, by a wide margin, so that a low-bit copy
 * almost always agrees. A token's embedding holds its code in part A and its predecessor's code in
 * part B; the first attention attends to its own position only (queries repeat the keys'
 * rows) and copies A onto B; everything else is small noise; the head reads B. Greedy text walks
 * through all words of the vocabulary before it repeats one.
 *
 * A next-token layer of a peaked model turns the A of its token onto B as well, and so drafts what
 * the model will say; but for some of the words: these carry a mark in A's last dimension, which the
 * layer turns onto the code of one word, always the same. So its drafts are accepted as often as was
 * asked for, after any token.
 *
 * random_model_row: any thread. Owns nothing. */
#ifndef HEARTH_KERNELS_TOOLS_RANDOM_MODEL_H
#define HEARTH_KERNELS_TOOLS_RANDOM_MODEL_H

#include "kernels/tools/gguf_out.h"
#include "kernels/tools/shape.h"
#include "kernels/tools/type_mix.h"

struct random_model {
    const struct model_shape *shape;
    const char *arch; /* "llama", "qwen2", .. (model_arch.h) */
    const struct type_mix *mix;
    uint64_t seed;
    bool peaked;
    bool mtp;         /* with a next-token layer, if the architecture has one */
    float acceptance; /* of its drafts, 0 to 1; peaked models with that layer only */
};

/* Whether arch is one of those above; and may have a next-token layer. */
bool random_model_arch_valid(const char *arch);
bool random_model_arch_mtp(const char *arch);

/* Adds all keys and tensors to out. Returns 0, or -ENOMEM. */
int random_model_list(const struct random_model *model, struct gguf_out *out);

/* A gguf_out_row; arg is the struct random_model, tensor the number in the order of the list. */
int random_model_row(void *arg, uint32_t tensor, uint64_t row, float *x);

/* The word that follows `token` in a peaked model's greedy text. */
uint32_t random_model_next(const struct model_shape *shape, uint32_t token);

#endif
