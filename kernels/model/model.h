/*
 * model: what a GGUF file means as a transformer: hyperparameters and one view per tensor, all
 * checked.
 *
 * One table (model_arch.c) says for each architecture which tensors it has and how its rope pairs
 * dimensions. After model_open every tensor that the table requires is there, with the shape the
 * hyperparameters ask for, a type that hearth computes with, whole blocks in every row, and data
 * aligned for its type; no tensor of the file is left unused, but those of layers that only draft (MTP)
 * and K and V of layers that share another one's. So a backend checks nothing again; an optional
 * tensor that is absent has data NULL.
 *
 * Threads: open and close in one thread, reading in any. Owns the array of layers; the data belongs
 * to the gguf, which must outlive the model. Never prints.
 */
#ifndef HEARTH_KERNELS_MODEL_MODEL_H
#define HEARTH_KERNELS_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/gguf/gguf.h"
#include "kernels/model/layer_ops.h"
#include "kernels/quant/quant_types.h"

enum {
    MODEL_MAX_LAYERS = 512,
    MODEL_MAX_EMBD = 65536,
    MODEL_MAX_FF = 1 << 18,
    MODEL_MAX_EXPERTS = 1024,
    MODEL_MAX_EXPERTS_USED = 32,
    MODEL_MAX_HEADS = 1024,
    MODEL_MAX_HEAD_DIM = 512,
    MODEL_MAX_STATE_DIM = 256, /* of a head of a recurrent layer */
    MODEL_MAX_PER_LAYER = 1 << 12,
    MODEL_MAX_ROPES = 2,
    MODEL_TAPS = 4, /* of the convolution of recurrent layers, at most */
    MODEL_MAX_CONTEXT = 1 << 24,
    MODEL_MAX_VOCAB = 1 << 20,
    MODEL_FINGERPRINT_BYTES = 16,
    MODEL_FINGERPRINT_TEXT = 33, /* 32 hex digits and the 0 */
};

#define MODEL_MAX_ROPE_BASE 1e12
#define MODEL_MIN_ROPE_DIVISOR 0.5
#define MODEL_MAX_ROPE_SCALE 1e6
#define MODEL_MAX_ROPE_DIVISOR 1e31 /* gemma4 has 1e30 for pairs that hardly turn */

/* How rope pairs the dimensions of a head. */
enum model_rope {
    MODEL_ROPE_ADJACENT, /* (2i, 2i + 1): llama, granite, smollm3, mistral3; the converter permuted
                            the rows of Q and K for it */
    MODEL_ROPE_HALVES,   /* (i, i + n / 2): the others */
    MODEL_N_ROPE
};

/* How a feed-forward part joins gate and up (num.h). */
enum model_gate {
    MODEL_GATE_SILU,    /* silu(gate) * up */
    MODEL_GATE_GELU,    /* gelu(gate) * up: gemma3, gemma4 */
    MODEL_GATE_SWIGLU,  /* swiglu(gate, up), clamped: gpt-oss */
    MODEL_GATE_PRODUCT, /* gate * up: lfm2 */
    MODEL_GATE_SIGMOID, /* sigmoid(gate) * head: qwen35 */
    MODEL_N_GATE
};

/* What a router makes of scores (NUMERICS.md, "Experts"). */
enum model_gating {
    MODEL_GATING_SOFTMAX,
    MODEL_GATING_SIGMOID, /* glm4moe */
};

struct model_router {
    enum model_gating gating;
    bool normed; /* weights of the chosen are divided by their sum, and then */
    float scale; /* multiplied by this */
};

enum model_global {
    MODEL_TOKEN_EMBD,     /* [n_vocab][n_embd] */
    MODEL_OUTPUT_NORM,    /* [n_embd] F32 */
    MODEL_OUTPUT,         /* [n_vocab][n_embd], optional */
    MODEL_ROPE_FREQS,     /* [n / 2] F32, optional: divisors of rope's frequencies, llama 3 */
    MODEL_ROPE_LONG,      /* [n / 2] F32, both or none: LongRoPE's divisors, beyond the */
    MODEL_ROPE_SHORT,     /* context that the model was first trained for, and within it */
    MODEL_PER_LAYER_EMBD, /* [n_vocab][n_layer * n_per_layer], where layers have inputs: gemma4 */
    MODEL_PER_LAYER_PROJ, /* [n_layer * n_per_layer][n_embd] F32, F16 or BF16 */
    MODEL_PER_LAYER_NORM, /* [n_per_layer] F32, of each layer's */
    MODEL_N_GLOBAL
};

/* Tensors of a layer. The shape is [rows][cols]: cols inputs, contiguous, rows outputs; vectors
 * have rows 1, those of experts n_expert. */
enum model_layer_tensor {
    MODEL_NO_TENSOR,       /* of an operation that has none here; data is NULL in every layer */
    MODEL_ATTN_NORM,       /* [n_embd] F32 */
    MODEL_ATTN_Q,          /* [n_head * q_dim][n_embd] */
    MODEL_ATTN_K,          /* [n_head_kv * head_dim][n_embd], its KV heads the layer's */
    MODEL_ATTN_V,          /* [n_head_kv * v_dim][n_embd] */
    MODEL_ATTN_OUTPUT,     /* [n_embd][n_head * v_dim] */
    MODEL_ATTN_Q_BIAS,     /* [n_head * head_dim] F32, where the architecture has it: qwen2 */
    MODEL_ATTN_K_BIAS,     /* [n_head_kv * head_dim] F32 */
    MODEL_ATTN_V_BIAS,     /* [n_head_kv * v_dim] F32 */
    MODEL_ATTN_SINKS,      /* [n_head] F32 */
    MODEL_ATTN_OUT_BIAS,   /* [n_embd] F32 */
    MODEL_ATTN_Q_NORM,     /* [head_dim] F32, where the architecture has it: qwen3, gemma3; of
                              whole_norms [n_head * head_dim] */
    MODEL_ATTN_K_NORM,     /* [head_dim] F32; of whole_norms [n_head_kv * head_dim] */
    MODEL_ATTN_POST_NORM,  /* [n_embd] F32, of what attention adds: gemma3 */
    MODEL_FFN_NORM,        /* [n_embd] F32 */
    MODEL_FFN_GATE,        /* [n_ff][n_embd] */
    MODEL_FFN_UP,          /* [n_ff][n_embd] */
    MODEL_FFN_DOWN,        /* [n_embd][n_ff] */
    MODEL_FFN_POST_NORM,   /* [n_embd] F32, of what the feed-forward part adds: gemma3 */
    MODEL_FFN_ROUTER,      /* [n_expert][n_embd] F32, where the layer has experts: qwen3moe */
    MODEL_FFN_CHOICE_BIAS, /* [n_expert] F32, added to probabilities for the choice alone: glm4moe */
    MODEL_FFN_SHARED_ROUTER,   /* [1][n_embd] F32, of the shared expert: qwen2moe */
    MODEL_FFN_GATE_SHARED,     /* [n_ff_shared][n_embd], where an expert is always used: glm4moe */
    MODEL_FFN_UP_SHARED,       /* [n_ff_shared][n_embd] */
    MODEL_FFN_DOWN_SHARED,     /* [n_embd][n_ff_shared] */
    MODEL_FFN_GATE_EXPS,       /* n_expert matrices [n_ff][n_embd] */
    MODEL_FFN_UP_EXPS,         /* n_expert matrices [n_ff][n_embd] */
    MODEL_FFN_DOWN_EXPS,       /* n_expert matrices [n_embd][n_ff] */
    MODEL_FFN_ROUTER_BIAS,     /* [n_expert] F32, where the architecture has these: gpt-oss */
    MODEL_FFN_GATE_EXPS_BIAS,  /* [n_expert][n_ff] F32 */
    MODEL_FFN_UP_EXPS_BIAS,    /* [n_expert][n_ff] F32 */
    MODEL_FFN_DOWN_EXPS_BIAS,  /* [n_expert][n_embd] F32 */
    MODEL_DELTA_Z,             /* [n_head_v * v_dim][n_embd] the gate of the output, of recurrent
                                  layers, as those below: qwen35 */
    MODEL_DELTA_QKV,           /* [channels][n_embd] */
    MODEL_DELTA_ALPHA,         /* [n_head_v][n_embd]; in granitehybrid these three are one */
    MODEL_DELTA_BETA,          /* [n_head_v][n_embd] */
    MODEL_DELTA_BETA_ALPHA,    /* [2 * n_head_v][n_embd] both, delta_beta_at: qwen3next */
    MODEL_DELTA_CONV,          /* [channels][taps] F32, the oldest position first */
    MODEL_DELTA_A,             /* [n_head_v] F32, below 0 */
    MODEL_DELTA_DT,            /* [n_head_v] F32 */
    MODEL_DELTA_NORM,          /* [v_dim] F32 */
    MODEL_DELTA_OUT,           /* [n_embd][n_head_v * v_dim] */
    MODEL_MAMBA_CONV_BIAS,     /* [channels] F32, of Mamba-2, as those below: granitehybrid */
    MODEL_MAMBA_A,             /* [n_head_v][1] F32, below 0 */
    MODEL_MAMBA_D,             /* [n_head_v][1] F32, how much of a value is added to its output */
    MODEL_MAMBA_NORM,          /* [n_head_k][n_head_v / n_head_k * v_dim] F32, of each group */
    MODEL_SHORT_IN,            /* [3 * n_embd][n_embd], of recurrent layers, as those below: lfm2 */
    MODEL_SHORT_CONV,          /* [n_embd][taps] F32, the oldest position first */
    MODEL_SHORT_OUT,           /* [n_embd][n_embd] */
    MODEL_FFN_ROUTER_NORM,     /* [n_embd] F32, of the router's input, those below too: gemma4 */
    MODEL_FFN_EXPERT_NORM,     /* [n_embd] F32, of the experts' input */
    MODEL_FFN_EXPERT_SCALE,    /* [n_expert] F32, factors of their weights */
    MODEL_FFN_DENSE_POST_NORM, /* [n_embd] F32, of what the dense part beside experts gives */
    MODEL_FFN_EXPERT_POST_NORM, /* [n_embd] F32, of what the experts give */
    MODEL_PER_LAYER_GATE,       /* [n_per_layer][n_embd] */
    MODEL_PER_LAYER_OUT,        /* [n_embd][n_per_layer] */
    MODEL_PER_LAYER_POST_NORM,  /* [n_embd] F32 */
    MODEL_LAYER_SCALE,          /* [1] F32, factor of the residual after the layer */
    MODEL_MTP_JOIN,             /* [n_embd][2 * n_embd], of the next-token layer, as those below */
    MODEL_MTP_TOKEN_NORM,       /* [n_embd] F32, of the token's embedding */
    MODEL_MTP_HIDDEN_NORM,      /* [n_embd] F32, of the hidden row before it */
    MODEL_MTP_OUTPUT_NORM,      /* [n_embd] F32, in place of OUTPUT_NORM where the file has it */
    MODEL_N_LAYER_TENSORS
};

struct model_tensor {
    const uint8_t *
        data; /* [n_matrices][matrix_bytes], of each [rows][row_bytes], in the mapping; NULL: this model has no such
                            tensor. May be some rows of the file's tensor alone */
    uint32_t type; /* quant_type: F32, F16, BF16 or a quant_readable one; vectors always F32 */
    uint32_t n_matrices; /* of experts; 1 for all other tensors */
    uint32_t rows;       /* outputs of one of them; 1 for a vector */
    uint32_t cols;       /* inputs: a multiple of the type's block */
    uint64_t row_bytes;
    uint64_t matrix_bytes; /* from one matrix to the next: their rows' bytes, or more in a view */
    uint64_t bytes;        /* n_matrices * rows * row_bytes */
    uint32_t index;        /* in gguf->tensors */
};

struct model_hash {
    uint8_t bytes[16];
    bool known, unused; /* unused: no answer depends on the tensor */
};

/* YaRN: pairs that turn often within the original context keep their frequency, those that turn
 * seldom are divided by the table's scale, those between are blended (rope.c). */
struct model_yarn {
    uint32_t original;    /* positions of that context; 0: no YaRN */
    float fast, slow;     /* turns within it: fast > slow > 0 */
    float log_multiplier; /* attention is divided by 1 + 0.1 * this * ln(scale) */
    bool truncated;       /* the blended pairs begin and end at whole numbers */
};

/* A table of rope: pair i of the first n values of a head turns by position * base^(-2i / n) /
 * (scale * divisors[i]). */
struct model_rope_table {
    uint32_t n;            /* even; a head's other values stay */
    float base;            /* 1 to MODEL_MAX_ROPE_BASE */
    float scale;           /* divisor of all frequencies (linear scaling), 1 without; see yarn */
    const float *divisors; /* [n / 2], or NULL: 1 (MODEL_ROPE_FREQS, _LONG or _SHORT) */
    float attention;       /* factor of cos and sin, 1 without */
    struct model_yarn yarn;
};

#define MODEL_NO_ROPE UINT32_MAX
#define MODEL_NO_WINDOW UINT32_MAX

/* The sizes of a recurrent layer's convolution, and of the gated delta rule or the Mamba-2 recurrence
 * after it: C, B and x of the latter are q, k and v here. */
struct delta_geometry {
    bool mamba;                  /* Mamba-2, else the gated delta rule */
    uint32_t taps;               /* of the convolution: a row's own and those before it */
    uint32_t n_head_k, n_head_v; /* n_head_v a multiple of n_head_k; 0: a convolution alone */
    uint32_t k_dim, v_dim;       /* values of a head of Q and K, of V */
    uint32_t channels;           /* of the convolution: all heads of Q, of K, of V, */
    uint32_t q_at, k_at, v_at;   /* which begin at these channels */
    uint32_t run;                /* V heads that follow each other and share a K head */
};

/* The K head that V head h goes with. */
static inline uint32_t delta_k_head(const struct delta_geometry *g, uint32_t h)
{
    return h / g->run % g->n_head_k;
}

/* Where beta of V head h is among the outputs of MODEL_DELTA_BETA_ALPHA, which are those of a run, then
 * alphas of the run, and so on. */
static inline uint32_t delta_beta_at(const struct delta_geometry *g, uint32_t h)
{
    return h + h / g->run * g->run;
}

/* The sizes of a layer. */
struct layer_geometry {
    uint32_t n_head, n_head_kv; /* n_head a multiple of n_head_kv */
    uint32_t k_dim, v_dim;      /* values of a head of Q and K, of V */
    uint32_t q_dim;             /* k_dim, or with v_dim more that gate a head's output */
    bool recurrent;             /* has a state in place of KV */
    struct delta_geometry delta;
    uint32_t memory;  /* which of the layers that have KV of their own, or of those with a state */
    bool shares_kv;   /* reads KV of an earlier layer, that of `memory`, and makes none */
    bool value_norm;  /* heads of V are normed, without weights */
    bool whole_norms; /* all heads of Q, and of K, are normed together */
    uint32_t n_ff;    /* with experts that of one of them */
    uint32_t n_ff_beside;             /* of the dense part beside experts; 0: none */
    uint32_t n_expert, n_expert_used; /* 0: one feed-forward part for all rows */
    uint32_t n_ff_shared;             /* of the shared expert; 0: none */
    uint32_t rope;                    /* its table in model.ropes, or MODEL_NO_ROPE */
    uint32_t sliding_window; /* positions that a row sees, its own the last, or MODEL_NO_WINDOW */
};

struct model_layer {
    struct model_tensor tensor[MODEL_N_LAYER_TENSORS];
    struct layer_geometry geometry;
};

/* A model's own next-token layer (MTP): attention and a feed-forward part, on the hidden row of a
 * position and the token after it, whose successor it drafts. Answers do not depend on it. */
struct model_mtp {
    struct model_layer layer; /* operations know it as layer n_layer + 1 */
    uint64_t bytes;           /* of its tensors */
};

struct model {
    const struct gguf *gguf;
    const char *arch;        /* "llama", static */
    struct gguf_string name; /* general.name, 0 bytes when absent */

    uint32_t n_layer;                 /* 1..MODEL_MAX_LAYERS; without layers that only draft */
    uint32_t n_recurrent;             /* of them have a state in place of KV */
    uint32_t n_embd;                  /* width of the residual */
    uint32_t n_ff;                    /* of the widest layer; with experts that of one of them */
    uint32_t n_expert, n_expert_used; /* 0: no experts; else a row uses some of them, at least 1 */
    struct model_router router;       /* of the layers with experts */
    uint32_t n_head;                  /* a multiple of every layer's KV heads */
    uint32_t n_head_kv;               /* of the layer with the fewest */
    uint32_t head_dim;  /* of Q and K: even, at most MODEL_MAX_HEAD_DIM; n_head * head_dim need not
                           be n_embd */
    uint32_t v_dim;     /* the same of V */
    uint32_t n_vocab;   /* rows of the embedding, and logits */
    uint32_t n_context; /* positions the model was trained for, at most sliding_window if set */
    uint32_t
        sliding_window; /* 0, or: below it attention sees all; a context beyond it is not served */
    float rms_eps;      /* 0 to 1 */
    enum model_rope rope;
    enum model_gate gate;

    struct model_rope_table ropes[MODEL_MAX_ROPES]; /* [n_ropes]; the second: of local layers */
    uint32_t n_ropes;
    bool no_rope; /* no layer turns q and k: granitehybrid */

    struct delta_geometry delta;   /* of recurrent layers */
    uint32_t n_shared_kv;          /* the last layers, which read the KV of earlier ones */
    uint32_t n_per_layer;          /* values of a layer's own input; 0: layers have none */
    uint32_t local_period;         /* 0, or: layers are local but every n-th */
    uint32_t local_sliding_window; /* the sliding window of local layers; 0: no layer is local */
    uint32_t local_head_dim; /* where they have head sizes of their own, as head_dim; else 0 */
    uint32_t local_v_dim;
    float embd_scale;     /* factor of the embedding, not of the head; 1 without */
    float residual_scale; /* factor of what a part of a layer adds to the residual; 1 without */
    float logit_scale;    /* divisor of the logits; 1 without */
    float logit_cap;      /* logits are cap * tanh(logit / cap); 0: no cap */
    float score_scale;    /* factor of attention scores: 1 / sqrt(head_dim) but where the file, or
                              the architecture, has another */
    float temperature_scale;     /* 0, or: q after rope grows by 1 + this * ln(1 + p / period): */
    uint32_t temperature_period; /* mistral3, p / period rounded down */
    bool scales_given;           /* the file says these four: granite */

    struct model_tensor global[MODEL_N_GLOBAL]; /* tied: OUTPUT is TOKEN_EMBD's view again */
    struct model_layer *layers;                 /* [n_layer] */
    struct model_mtp *mtp;                      /* NULL: none, or none that hearth drafts by */
    struct layer_ops ops;                       /* what a pass computes */
    bool tied;                                  /* no output.weight: the head is the embedding */

    uint64_t n_params;     /* elements of all tensors that passes read, a tied head counted once */
    uint64_t tensor_bytes; /* their bytes; both without the next-token layer's */

    struct model_hash *hashes; /* [tensors of the file] model_note_hash */
};

/*
 * Returns 0 and *ret_model, or -EBADMSG (inconsistent file), -ENOTSUP (an architecture, type or
 * feature that hearth does not have), -ENOMEM, with the line. A valid GGUF file that holds no model
 * gives -ENOTSUP.
 */
int model_open(const struct gguf *gguf, struct model **ret_model, char *err, size_t err_bytes);

/*
 * The same with another scaling of rope than the file's: "none", "linear:FACTOR" or "yarn:FACTOR",
 * the last two with ":CONTEXT" where the file does not say what context the model was trained for
 * without scaling. The model's context becomes that times the factor. NULL: the file's own.
 * -EINVAL: the text is none of these.
 */
int model_open_scaled(const struct gguf *gguf, const char *rope_scaling, struct model **ret_model,
                      char *err, size_t err_bytes);

void model_close(struct model *model); /* NULL is fine */

/* Is that tensor of a layer, or of none, a vector, or one for each expert? Else it is a matrix,
 * which may have one row. */
bool model_layer_vector(enum model_layer_tensor tensor);
bool model_global_vector(enum model_global tensor);

/* A router, the gate of a shared expert, or alpha and beta of a recurrent layer: small, and F32 in
 * files that are quantized else (the last two may be quantized, too). */
bool model_layer_small(enum model_layer_tensor tensor);

/*
 * True when every matrix of every layer is quantized, so that canonical results are the same bits
 * on every backend (NUMERICS.md). Embedding and head may be of any type; of small matrices in F32
 * backends keep the order of their sums.
 */
bool model_portable(const struct model *model);

/* The rows of all matrices of a tensor. */
static inline uint64_t model_tensor_rows(const struct model_tensor *tensor)
{
    return (uint64_t)tensor->n_matrices * tensor->rows;
}

/* Row r of all of them. */
static inline const uint8_t *model_tensor_row(const struct model_tensor *tensor, uint64_t r)
{
    return tensor->data + r / tensor->rows * tensor->matrix_bytes +
           r % tensor->rows * tensor->row_bytes;
}

/* True when every tensor of every layer is F32: then KV is f32 as well, else f16. Weights
 * are kept in F32 for exactness, and f16 KV would cost most of it (NUMERICS.md). */
bool model_kv_f32(const struct model *model);

/* "portable-1" for quantized layers, "cpu-float-1" for float ones, both with KV in f16;
 * "cpu-float-1-kvf32" with KV in f32; "-kvq8" after the first two with KV_Q8_0. Static text. */
const char *model_numerics_id(const struct model *model, bool kv_q8_0);

/* The type most of the layers' matrix bytes have: "Q4_0". Static text. */
const char *model_type_name(const struct model *model);

/*
 * One line about the model, for a log and --check: "llama, F32, 0.26 M parameters, 1.0 MiB,
 * 5 layers, width 64, 8 heads (4 kv) of 8, vocabulary 512, context 512".
 */
void model_describe(const struct model *model, char *text, size_t text_bytes);

/*
 * The fingerprint of what answers depend on. Equal for two files exactly when architecture,
 * hyperparameters, tokenizer.ggml.* keys and the tensors that passes read (name, type, shape,
 * data) are equal, whatever the path, the order of keys and tensors, padding, and other keys (general.name, chat
 * templates). Not a defence against forgery.
 *
 * It is hash128 (kernels/base/hash128.h) of a text of '\n'-terminated lines, in this order; numbers are
 * decimal, BITS the 8 hex digits of a float, H(x) the 32 hex digits of hash128 over the bytes x:
 *
 *   hearth-model 1
 *   arch llama
 *   layers N
 *   embd N
 *   ff N
 *   heads N
 *   heads_kv N
 *   head_dim N
 *   rope_dim N
 *   v_dim N                   only where it is not head_dim
 *   layer_heads_kv N N ..     only where layers differ; heads_kv is then the fewest
 *   layer_ff N N ..           only where dense layers differ; ff is then the widest's
 *   vocab N
 *   context N
 *   experts N                these two only where the layers have experts; ff is then one's
 *   experts_used N
 *   router_sigmoid            these three only where they are so
 *   router_unnormed
 *   router_scale BITS
 *   rope_base BITS
 *   no_rope                   only where no layer turns q and k: granitehybrid
 *   rms_eps BITS
 *   rope_scale BITS           only where it is not 1
 *   rope_attention BITS       only where it is not 1
 *   rope_factors long         only where LongRoPE's long divisors are in use
 *   yarn_original N           these four only with YaRN
 *   yarn_fast BITS
 *   yarn_slow BITS
 *   yarn_log_multiplier BITS
 *   temperature_scale BITS    these two only where q grows with its position: mistral3
 *   temperature_period N
 *   layer_recurrent B B ..    these two only where layers are recurrent: 0 or 1 for each; the sizes
 *   delta HK HV DK DV         of the delta rule: heads of K, of V, values of a head of K, of V
 *   local_period N            these two only where layers are local; where the file says which,
 *   local_window N            `layer_local B B ..`, 0 or 1 for each, in place of the first
 *   local_rope_base BITS      only where local layers have a rope of their own
 *   local_heads K V R         only where local layers have sizes of their own: values of a head of
 *                             Q and K, of V, and how many of them rope turns
 *   embd_scale BITS           these four only where the file says them: granite
 *   score_scale BITS
 *   residual_scale BITS
 *   logit_scale BITS
 *   shared_kv N               the last layers that have no KV of their own, where there are such
 *   per_layer N               values of a layer's own input, where there is one
 *   logit_cap BITS            only where there is one
 *   (of the names that follow, a line break is written as \n, and a backslash as two)
 *   key NAME TYPE H(raw)      per key `tokenizer.ggml.*`, sorted by the bytes of its name; TYPE and
 *                             raw, with its length or array header, as in the file
 *   tensor NAME TYPE NE0 NE1 NE2 NE3 H(data)    per tensor that passes read, sorted by the bytes of its name
 *
 * Reads every byte of the tensors without a noted hash, these shared out among `threads` (at least
 * 1; the caller is one). Returns 0, -ENOMEM, or -EAGAIN when there are no threads to be had.
 */
int model_fingerprint(const struct model *model, uint32_t threads,
                      uint8_t ret[MODEL_FINGERPRINT_BYTES]);

/* Notes the hash of a tensor's data (hash128), so that model_fingerprint does not read it again: for a
 * backend that reads whole tensors anyway. Not for a view of some rows. Any thread, each tensor by
 * one, before model_fingerprint. */
void model_note_hash(const struct model *model, const struct model_tensor *tensor,
                     const uint8_t hash[16]);

/* Hex of a fingerprint, in byte order, with the terminating 0. */
void model_fingerprint_text(const uint8_t fingerprint[MODEL_FINGERPRINT_BYTES],
                            char text[MODEL_FINGERPRINT_TEXT]);

#endif
