/* shape.h: the sizes of real models by name, for random models with the same cost, and two small
 * ones. Facts from the published configurations. Pure; any thread. */
#ifndef HEARTH_KERNELS_TOOLS_SHAPE_H
#define HEARTH_KERNELS_TOOLS_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which special tokens a vocabulary ends with, and how its words are formed. */
enum shape_vocabulary { VOCABULARY_QWEN, VOCABULARY_LLAMA, VOCABULARY_GEMMA, VOCABULARY_HARMONY };

struct model_shape {
    const char *name, *arch; /* arch: that of the real model; any other can be requested */
    uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim;
    uint32_t n_vocab, n_words; /* tokens in total; the first n_words are text, the others special */
    uint32_t n_context;
    float rope_base, rms_eps;
    bool tied;
    enum shape_vocabulary vocabulary;
    uint32_t window;                               /* of local layers; 0: the real model has none */
    uint32_t n_expert, n_expert_used, n_ff_expert; /* 0: the real model has no experts */
};

/* Recurrent layers: heads of K and of V, and values of a head. */
struct shape_delta {
    uint32_t k_heads, v_heads, k_dim, v_dim;
};

/* Layers of two kinds: of gemma4, or as many of one. */
struct shape_kinds {
    uint32_t period;                   /* every n-th layer is global */
    uint32_t local_head_dim, local_kv; /* of local layers: values of a head, KV heads */
    uint32_t n_shared_kv,
        n_per_layer;      /* layers without KV of their own; values of a layer's input */
    bool no_v, double_ff; /* global layers have V from K; the former twice the width */
};

extern const struct model_shape shapes[];
extern const uint32_t n_shapes;

const struct model_shape *shape_find(const char *name); /* or NULL */

/* Sizes of recurrent layers; where the real model has none, derived from its attention. */
struct shape_delta shape_delta(const struct model_shape *shape);

/* Of a shape whose real model is another's: heads of one size, every sixth layer global. */
struct shape_kinds shape_kinds(const struct model_shape *shape);

/* Writes "a, b, c" of all names. */
void shape_names(char *text, size_t text_bytes);

#endif
