/*
 * layer_ops: a model as a list of operations over named buffers, made once by model_open. It is the
 * one place that says what a transformer layer is; the CPU pass, the CUDA jobs and the
 * double-precision model of the tests walk it. NUMERICS.md, "One pass", has the arithmetic of each
 * operation.
 *
 * A pass runs ops[0, head) on all of its rows, layer after layer, then ops[head, n) on the rows
 * with wants: operation i + 1 may begin when all rows have finished operation i. A backend may fuse
 * neighbours (CUDA computes OP_GATE inside of the matmul before it), as long as no bit changes.
 *
 * A model with a next-token layer has further lists over the same buffers: ops[n, draft) follow on
 * all rows of such a pass, for that layer's KV; ops[draft, draft_head) and, on rows with wants,
 * ops[draft_head, end) are a pass of that layer alone (PASS_MTP).
 *
 * Read-only after model_open; any thread.
 */
#ifndef HEARTH_KERNELS_MODEL_LAYER_OPS_H
#define HEARTH_KERNELS_MODEL_LAYER_OPS_H

#include <stdbool.h>
#include <stdint.h>

struct model;
struct layer_geometry;

/* What operations read and write: f32 [rows][layer_ops.width], a row for each row of the pass, for
 * operations of the head a row for each row with wants; of EXPERTS one for each expert that a row
 * uses (layer_ops_rows). */
enum op_buffer {
    BUFFER_NONE,
    BUFFER_X,     /* [n_embd] the residual before and after a layer */
    BUFFER_H,     /* [n_embd] the residual between attention and the feed-forward part */
    BUFFER_FED,   /* [n_embd] the residual between it and a layer's own input, where it has one */
    BUFFER_ADDED, /* [n_embd] what a part adds to the residual, where OP_ADD does that */
    BUFFER_NORM,  /* [n_embd] the output of a norm */
    BUFFER_Q,     /* [n_head][q_dim]: a head's k_dim values of Q, then its gate if any */
    BUFFER_K,     /* [n_head_kv][k_dim] */
    BUFFER_V,     /* [n_head_kv][v_dim] */
    BUFFER_ATTENTION, /* [n_head][v_dim] the output of attention */
    BUFFER_RAW_Q,     /* [n_head][k_dim] where all heads are normed together: before it */
    BUFFER_RAW_K,     /* [n_head_kv][k_dim] */
    BUFFER_FFN,       /* [n_ff] gate, then f(gate) * up */
    BUFFER_UP,        /* [n_ff] */
    BUFFER_EXPERTS,   /* [n_ff] f(gate) * up of an expert */
    BUFFER_ROUTER,    /* [n_expert] the scores of a layer's experts */
    BUFFER_SHARED, /* [n_embd] the output of the shared expert, or of the dense part beside experts */
    BUFFER_SHARED_GATE, /* [1] the score of the shared expert */
    BUFFER_SHORT, /* [3][n_embd] of a short convolution: two gates, and what they gate the third */
    BUFFER_MIXED, /* [channels] of a recurrent layer: heads of q, k, v (delta_geometry) */
    BUFFER_CONVOLVED,  /* [channels] the same after the convolution */
    BUFFER_Z,          /* [n_head_v][v_dim] gates of the output */
    BUFFER_BETA_ALPHA, /* [2 * n_head_v] what these two are made of, where one matrix has both */
    BUFFER_BETA,       /* [n_head_v] how much of a value is written */
    BUFFER_DECAY,      /* [n_head_v] how much of the state is kept */
    BUFFER_EXPERT_SUM, /* [n_embd] what experts add, where it is normed before it is added */
    BUFFER_LOOKED_UP,  /* [n_layer][n_per_layer] a token's inputs of layers */
    BUFFER_INPUTS,     /* [n_layer][n_per_layer] the same with the projected embedding */
    BUFFER_INPUT_GATE, /* [n_per_layer] gate of a layer's own input, then f(gate) * input */
    BUFFER_HIDDEN, /* [n_embd] a row's input of the head, which the layer of the next token reads */
    BUFFER_JOINED, /* [2 * n_embd] that layer's input: the normed token, the normed hidden row */
    BUFFER_LOGITS, /* [n_vocab] */
    N_BUFFERS
};

enum layer_op_kind {
    OP_EMBED,  /* to = factor * row of the embedding */
    OP_LOOKUP, /* to = factor * row of another table */
    OP_INPUTS, /* of each layer's n_per_layer values: to = (rmsnorm(factor * from[0], tensor) +
                      from[1]) / sqrt(2) */
    OP_NORM,   /* to = factor * rmsnorm(from, tensor), each of its groups by itself; or without the
                      tensor from as it is */
    OP_MATMUL, /* to[i] = tensor[i] from, for each of n_parts; + residual where there is one */
    OP_QKV_FINISH, /* Q, K, V in place: bias, norm of each head of Q and K, and of V where the layer
                      norms it, rope; K and V appended. V may come from K as its matmul left it
                      (from[2]), and a layer may have neither (to[1], to[2] BUFFER_NONE) */
    OP_ATTEND, /* to = softmax(from K^T * model.score_scale) V over the positions that a row sees;
                  tensor: the sinks of its heads */
    OP_GATE,   /* to = f(from[0]) * from[1], by gate; from[1] from its value from_at on */
    OP_HEAD_GATE, /* to = from[0] * sigmoid(gate of the same head in from[1]); with tensor
                     rmsnorm(head of from[0], tensor) * silu(from[1]) */
    OP_CONVOLVE, /* to[0] = the convolution by tensor[0], and bias[0], of from[0] over the row and those before it, or
                    silu of it where a recurrence follows; for the gated delta rule heads of q and k are scaled to a
                    length. to[1] and to[2] of from[1] and from[2] in place, or of both of these in one, delta_beta_at;
                    of Mamba-2 both of the same */
    OP_DELTA, /* to = q of from[0] by the state that the row has moved, by the gated delta rule, or by Mamba-2: + v times
                 tensor[0] */
    OP_SETTLE, /* what a recurrent layer leaves to later passes: the inputs of its convolution go to states and
                  records, and to records k, d and decay, if it has a delta rule (from[0], from[2]) */
    OP_ROUTE, /* chooses each row's experts, and their weights, by from, model.router, the bias that
                  tensor[0] is and the factors of weights that tensor[1] is, if there are these; a
                  backend keeps both */
    OP_EXPERT_GATE, /* to[e] = f(tensor[0][e] from) * (tensor[1][e] from), e the row's experts */
    OP_EXPERT_SUM, /* to = sum of weight[e] * (tensor[0][e] from[0][e]), e ascending, + from[1], the
                       shared expert's, * sigmoid(from[2]), where there are these, + residual */
    OP_ADD, /* to = (factor * rmsnorm(from + tensor[1], tensor[0]) + residual) * tensor[2], less what
               is absent */
    OP_CAP,  /* to = cap * tanh(to / cap), cap the factor */
    OP_JOIN, /* to = rmsnorm(embedding of the row's token, tensor[0]), then rmsnorm(from of the row
                before it, tensor[1]): of one before the pass as it was remembered */
    OP_REMEMBER, /* from, for rows that follow the pass: to state and records */
    N_OP_KINDS
};

/* What an operation is cut into; pieces are independent of each other. */
enum op_domain {
    OP_EACH_ROW,      /* rows */
    OP_OUTPUT_GROUPS, /* groups of a matrix's output rows, times rows */
    OP_QUERIES,       /* (sequence, KV head, rows of the sequence) */
    OP_STATES,        /* (sequence, V head, columns of its state); rows of a sequence in order */
    OP_SEQUENCES,     /* sequences */
    OP_EXPERTS,       /* (expert, the rows that use it); of a sum: groups of its output rows */
};

/* Memory of a sequence: which of its kinds, and which of the layers that have that kind. */
enum memory_class {
    MEMORY_NONE,
    MEMORY_PAGES, /* KV pages: kv.h, whose `layer` is the index, and says of which class */
    MEMORY_STATE, /* a recurrent state: state.h, whose `layer` is the index */
};
struct op_memory {
    enum memory_class class;
    uint32_t index;
};

enum { OP_READERS = 4 };

struct layer_op {
    enum layer_op_kind kind;
    enum op_domain domain;
    uint32_t layer; /* n_layer: of none; its tensors are then enum model_global's; n_layer + 1: the
                       next-token layer */
    const struct layer_geometry *geometry;   /* of the layer; NULL: of none */
    enum op_buffer from[3], to[3], residual; /* OP_QKV_FINISH: without Q to[0] is BUFFER_NONE */
    uint32_t n;       /* values of a row that it writes, of each part alike but for OP_QKV_FINISH */
    uint32_t n_parts; /* OP_MATMUL, OP_EXPERT_*: matrices that read the same input */
    uint32_t
        tensor[3]; /* enum model_layer_tensor: matrices, a norm's weights; OP_QKV_FINISH: biases;
                      a vector that the layer lacks has data NULL */
    uint32_t head_norm[2]; /* OP_QKV_FINISH: of Q and of K */
    uint32_t bias[2];      /* OP_ROUTE: of the scores; OP_EXPERT_*, OP_CONVOLVE: of the outputs */
    uint32_t from_at;      /* OP_GATE */
    uint32_t groups;       /* OP_NORM: equal parts of n; 1 but for Mamba-2 */
    uint32_t gate;         /* OP_GATE, of a matmul's or of experts: enum model_gate */
    float factor;          /* 1: none */
    bool wanted;           /* runs on rows with wants; reads their rows of BUFFER_X */
    bool check; /* then rows whose values are not finite are poisoned at this layer (backend.h) */
    struct op_memory append, read;
    const struct layer_op *readers[OP_READERS]; /* whose matrices read what it writes; then NULL */
};

struct layer_ops {
    struct layer_op *op; /* [end] */
    uint32_t n, head;
    uint32_t draft, draft_head, end; /* all are n where the model has no next-token layer */
    uint32_t width[N_BUFFERS];       /* values of a row, the most of all operations; 0: not used */
    bool input[N_BUFFERS];           /* some matmul reads it */
    uint32_t n_expert;               /* the most experts of a layer; 0: no layer has any */
    uint32_t n_expert_used;          /* the most that a row uses in a layer */
};

/* Rows of a buffer in a pass of n rows. */
static inline uint32_t layer_ops_rows(const struct layer_ops *ops, enum op_buffer buffer,
                                      uint32_t n)
{
    return buffer == BUFFER_EXPERTS ? n * ops->n_expert_used : n;
}

/* Fills the list of a model whose layers are set. Returns 0, or -ENOMEM. */
int layer_ops_make(const struct model *model, struct layer_ops *ret);

void layer_ops_free(struct layer_ops *ops);

#endif
