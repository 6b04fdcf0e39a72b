/*
 * model_arch: the table of architectures. It tells model_open what a file must hold, and
 * hearth-mkmodel what to write. README.md, "An architecture", says how to add one.
 *
 * Any thread. Owns nothing.
 */
#ifndef HEARTH_KERNELS_MODEL_MODEL_ARCH_H
#define HEARTH_KERNELS_MODEL_MODEL_ARCH_H

#include "kernels/model/model.h"

/* All that tells one architecture from another; the backends read it from struct model. */
struct model_arch {
    const char *name; /* general.architecture, and what its keys begin with */
    enum model_rope rope;
    enum model_gate gate;
    bool embedding_scaled; /* the embedding times sqrt(n_embd) */
    uint32_t
        local_period; /* 0, or: layers are local but every n-th, where the file says no other n */
    uint32_t no_rope_period; /* 0, or: every n-th layer has no rope */
    bool local_rope;         /* local layers turn without scaling, by a base of their own: */
    float local_base;        /* where no key says another one; 0: the others' */
    bool local_optional;     /* no layer is local where the file gives no window */
    bool local_rope_alone;   /* where layers are local, the others have no rope */
    bool local_given;        /* the file must say which layers are local, */
    bool local_heads;        /* and the sizes of their heads; the others have rope_freqs.weight */
    bool unit_scores;        /* attention scores have no factor */
    bool value_norm;         /* heads of V are normed, without weights */
    bool whole_norms;        /* all heads of Q, and of K, are normed together */
    bool shared_kv;          /* the last layers may read the KV of earlier ones */
    bool beside;             /* experts, where the file has any, are beside a dense part */
    bool logit_cap;          /* the file may cap logits */
    bool per_layer;          /* layers may have inputs of their own */
    bool yarn_untruncated;   /* YaRN's blended pairs begin and end between whole numbers */
    bool scales;             /* the file has factors of embedding, attention, residual and logits */
    bool fused;              /* gate and up are rows of ffn_up.weight */
    bool experts;            /* a router chooses among feed-forward parts */
    enum model_gating gating; /* the router's, and whether weights are normalised, */
    bool unnormed;            /* where the file does not say */
    bool untied;              /* output.weight must be there */
    const char *ffn_norm;     /* the file's name of FFN_NORM; NULL: the usual one */
    const char *output_norm;  /* and of the head's norm */
    uint64_t tensors;  /* bits 1 << model_layer_tensor: what a layer holds, and nothing else; those
                          of experts where it has them, else those of a dense part */
    uint64_t optional; /* of these, what a layer may lack */
    bool head_gate;    /* a head's rows of attn_q.weight are followed by those of its gate */
    uint32_t
        recurrent_period; /* 0, or: layers are recurrent but every n-th, where no key says it */
    bool short_conv;      /* layers without KV heads are recurrent: a convolution and two gates */
    bool mamba;           /* or Mamba-2; the file may say that attention has no rope */
    bool v_runs;          /* V heads that share a K head follow each other, else each K head
                                   has one in turn */
    uint64_t recurrent_tensors; /* as `tensors`, of recurrent layers */
    uint64_t mtp_tensors; /* what the next-token layer has beside `tensors`; 0: it is not read */
};

/* The architecture of that name, or NULL. */
const struct model_arch *model_arch_find(struct gguf_string name);

/* "llama, qwen2", for an error line. Static text. */
const char *model_arch_names(void);

#endif
