/*
 * ops: the operations of a pass as jobs: what a kernel, or a phase of one, is given. C and C++; plain data by value.
 * Which item is what, and the size of a job in items, stands with each; a block of 256 threads computes an item.
 */
#ifndef HEARTH_KERNELS_CUDA_OPS_H
#define HEARTH_KERNELS_CUDA_OPS_H

#include "kernels/cuda/layout.h"
#include "kernels/cuda/sampling.h"

/* Blocks that a norm is divided into where it has fewer rows. */
enum { NORM_BLOCKS = 256 };

/* What a job writes of its output, a bit each (cuda_input): as f32, as blocks, as f16, as bf16. */
enum { FORM_FLOATS = 1, FORM_BLOCKS = 2, FORM_F16 = 4, FORM_BF16 = 8 };

/* Embedding rows, or those of another table, times a factor; with `kv` new pages zeroed. Items: row, part of 256 values. */
struct embed_job {
    struct cuda_pass pass;
    struct cuda_matrix embedding;
    uint8_t *kv[CUDA_PAGE_CLASSES]; /* [pages][page_bytes], or NULL */
    uint64_t page_bytes[CUDA_PAGE_CLASSES];
    float *x; /* [rows][stride] */
    uint32_t stride;
    float scale;
};
LAYOUT_INLINE uint32_t embed_parts(const struct embed_job job)
{
    return (job.embedding.cols + CUDA_THREADS - 1) / CUDA_THREADS;
}

/* OP_ADD, computed by the norm after it: to = (factor * rmsnorm(x + bias, weight) + residual) * scale[0],
 * without what is NULL; x is the output of a part of a layer. With check, a row where it is not
 * finite is bad in `layer`. */
struct norm_added {
    const float *bias;     /* [n], or NULL */
    const float *weight;   /* [n], or NULL */
    const float *residual; /* [rows][stride], of before the part, or NULL */
    const float *scale;    /* [1], or NULL */
    float *to;             /* [rows][stride]; NULL: no such operation, x is the residual itself */
    float factor;
    uint32_t check, layer;
};

/* out = factor * rmsnorm(x, weight), each group of values by itself, or of what x adds to; without a weight that itself.
 * Items: row (those with wants where `wanted` is set), part. */
struct norm_job {
    struct cuda_pass pass;
    struct norm_added added;
    const float *x;      /* [rows][stride] */
    const float *weight; /* [n], or NULL */
    struct cuda_input out;
    uint32_t stride, n, forms, wanted;
    uint32_t group; /* values of a group: n, or, where nothing is added, a part of it */
    float factor, eps;
};

/* Into how many parts each of `rows` rows of n values is divided: as many as keep the device busy, since every part reads its
 * whole row. */
LAYOUT_INLINE uint32_t norm_parts(uint32_t n, uint32_t rows)
{
    const uint32_t most = (n + CUDA_THREADS - 1) / CUDA_THREADS, some = NORM_BLOCKS / rows;
    return some < 1 ? 1 : some < most ? some : most;
}

/* One matrix of a matmul: y = W x, + residual where there is one. y, residual [rows][stride], stride a multiple of
 * 32. With check, a row whose y is not finite is bad in `layer` of the job. */
struct matmul_part {
    struct cuda_matrix matrix;
    float *y;
    const float *residual;
    uint32_t stride, check;
};

/* A norm that a matmul of one row computes itself, as norm_job has it: of n values at x. */
struct row_norm {
    const float *x;      /* NULL: none */
    const float *weight; /* [n] */
    uint32_t n;
    float factor, eps;
};

/* Up to three matmuls of one input. Items: group of 32 outputs (those of part 0 first), run of 8 * tiles rows.
 * With a gate, parts 0 and 1 are gate and up, an item makes a group of both, and what is written is f(gate) * up, as
 * the forms of `out`: a group is a block of activations. */
struct matmul_job {
    struct cuda_pass pass;
    struct matmul_part part[3];
    struct cuda_input x;
    struct cuda_input out; /* of a gate */
    uint32_t gate;         /* enum cuda_gate */
    uint32_t forms;
    uint32_t groups; /* of all parts; with a gate: of one */
    uint32_t wanted; /* rows are those with wants */
    uint32_t layer;
    uint32_t native;      /* all but F32 by tensor cores */
    struct row_norm norm; /* then nothing else makes x */
};

/* Blocks of many rows in native numerics: groups and rows, and how many such blocks a part's groups make. */
enum { HALF_SLOTS = 4, HALF_ROWS = 128 };
LAYOUT_INLINE uint32_t half_tiles(uint32_t groups)
{
    return (groups + HALF_SLOTS - 1) / HALF_SLOTS;
}

/* out = f(from) * by, [n] of each row: a gate that no matmul computes. Items: row, part of 256 values. */
struct gate_job {
    struct cuda_pass pass;
    const float *from; /* [rows][from_stride] */
    const float *by;   /* [rows][stride] */
    struct cuda_input out;
    uint32_t from_stride, stride, n, gate, forms; /* gate: enum cuda_gate */
};

/* Inputs of layers, in place: x = (rmsnorm(factor * x, weight) + looked_up) / sqrt(2), n values of each of n_layer. Items:
 * layer, row. */
struct inputs_job {
    struct cuda_pass pass;
    const float *looked_up, *weight; /* [rows][stride], [n] */
    float *x;                        /* [rows][stride] */
    uint32_t stride, n, n_layer;
    float factor, eps;
};

/* Chooses the experts of rows by their scores, weighs them, and orders the pairs: the block that is done last does. Items: eight rows. */
struct route_job {
    struct cuda_pass pass;
    struct cuda_experts experts;
    float *score;          /* [rows][stride] */
    const float *own_bias; /* [n_expert], added to the scores first, or NULL */
    const float *bias;     /* [n_expert] of the choice, or NULL */
    const float *factors;  /* [n_expert] of weights, or NULL */
    uint32_t stride, layer;
    uint32_t sigmoid, normed; /* model_router's */
    float scale;
    uint32_t most; /* pairs of a run */
};

/* Matrices of experts: part p is [n_expert] of part[p].matrix, one after the other. With a gate, x is of the rows and
 * `out` of the pairs; without, x and y are of the pairs. Items: run, group of 32 outputs. */
struct expert_job {
    struct matmul_job matmul;
    struct cuda_experts experts;
    const float *bias[2]; /* of the parts, [n_expert][rows of one matrix], or NULL */
    uint32_t gathered;    /* x is of the rows */
};

/* The most tiles of rows that a run has in a pass of `rows` rows: many where experts have more than
 * one on average. And the most runs that there are. */
LAYOUT_INLINE uint32_t expert_tiles(const struct cuda_experts x, uint32_t rows)
{
    return (uint64_t)rows * x.n_used > (uint64_t)CUDA_TILE * x.n_expert ? CUDA_EXPERT_TILES : 1;
}
LAYOUT_INLINE uint32_t expert_runs(const struct cuda_experts x, uint32_t rows, uint32_t most)
{
    const uint32_t pairs = rows * x.n_used, used = pairs < x.n_expert ? pairs : x.n_expert;
    return (pairs + used * (most - 1)) / most;
}

/* to = sum of weight * y over a row's experts, ascending, + the shared expert's and residual where there are these. With
 * n_used 0 y are the sums, [rows][stride]. Items: row, part of 256 values. */
struct expert_sum_job {
    struct cuda_pass pass;
    struct cuda_experts experts;
    const float *y;           /* [pairs][stride] */
    const float *shared;      /* [rows][stride], or NULL */
    const float *shared_gate; /* [rows][gate_stride] scores, or NULL: 1 */
    const float *residual;    /* [rows][stride], or NULL */
    float *to;                /* [rows][stride] */
    uint32_t gate_stride;
    uint32_t stride, n, check, layer; /* with check: a row whose sums are not finite is bad */
};

/* What follows the sums of a matmul that cuBLAS computed, as matmul_job has it, of one part or gated. Items: group of
 * 32 outputs, run of eight rows. */
struct sums_job {
    struct matmul_job matmul;
    const float *sums; /* [rows][stride]: the part's; gated: gate's, then up's, groups * 32 each */
    uint32_t stride;
};

/* q, k, v: bias, norm of heads, rotation, check, append. Items: row, eight of its n_head + 2 n_head_kv heads; n_head_kv 0:
 * the layer has no KV of its own; n_head 0: nothing reads its queries. */
struct qkv_finish_job {
    struct cuda_pass pass;
    struct cuda_kv kv;
    float *values[3];           /* q, k, v: [rows][stride]; v may be k's */
    const float *bias[3];       /* or NULL */
    const float *norm[2];       /* [k_dim], of q and k, or NULL */
    const float *rope;          /* the layer's table, kernels/cpu/rope.h, or NULL: no rope */
    const float *query_factors; /* of q, by position / query_period, or NULL */
    uint32_t stride[3];
    uint32_t q_dim; /* from a head of q to the next: k_dim, or with what gates the head more */
    uint32_t n_head, n_rot, halves, layer, query_period;
    uint32_t check;      /* a row with a head that is not good is bad in `layer` */
    uint32_t native;     /* queries have to fit f16 */
    uint32_t value_norm; /* heads of v are normed, without weights */
    float eps;
};

/* The first position that a row sees; `end` is the one after its last. */
LAYOUT_INLINE uint32_t seen_from(uint32_t end, uint32_t sliding_window)
{
    return end < sliding_window ? 0 : end - sliding_window;
}

/* Attention of rows over a run of splits, one KV head. Items: cuda_item, KV head. Partial results: part_ml [parts]
 * [n_head][2], part_o [parts][n_head][v_dim]. */
struct attend_job {
    struct cuda_pass pass;
    struct cuda_kv kv;
    const float *q; /* [rows][stride] */
    float *part_ml, *part_o;
    uint32_t sliding_window; /* positions that a row sees, its own the last, or MODEL_NO_WINDOW */
    uint32_t local;          /* there is one: items are those that it leaves */
    uint32_t stride, n_head;
    uint32_t q_dim; /* from a head of q to the next */
    float scale;
    uint32_t native; /* by tensor cores */
};

/* The parts of a row merged, but those left of its window, and the sinks; and gated, where heads have gates. Items: row, share
 * of 256 values. */
struct combine_job {
    struct cuda_pass pass;
    const float *part_ml, *part_o;
    const float *sinks; /* [n_head], or NULL */
    const float *gate;  /* [rows][gate_stride] of head 0, that of the next q_dim later; or NULL */
    uint32_t gate_stride, q_dim;
    struct cuda_input out; /* [rows][n_head * v_dim] */
    uint32_t sliding_window, n_head, v_dim, forms;
};

/* The convolution of a recurrent layer, heads of q and k scaled to a length; beta and decay of what matmuls made, which are the
 * same buffers, or one for both. Items: row, eight heads
 * of q, k and v, after which comes one more, that of beta and decay. */
struct convolve_job {
    struct cuda_pass pass;
    struct cuda_states states;
    const float *mixed;           /* [rows][stride] */
    float *convolved;             /* [rows][stride] */
    const float *from[2];         /* beta and decay are made of: [rows][from_stride] */
    float *beta, *decay;          /* [rows][head_stride] */
    const float *taps, *a, *bias; /* [channels][4], [n_head_v] each */
    const float *added;           /* [channels] what the convolution begins with, or NULL: 0 */
    uint32_t stride, head_stride, from_stride;
    uint32_t joined; /* both are in from[0] */
};
LAYOUT_INLINE uint32_t convolve_heads(const struct cuda_states x)
{
    return x.unit + x.n_part + 1;
}
LAYOUT_INLINE uint32_t convolve_parts(const struct cuda_states x)
{
    return (convolve_heads(x) + CUDA_WARPS - 1) / CUDA_WARPS;
}

/* The gated delta rule, or Mamba-2. Items: state of the pass, 32 columns of a V head. A row's v becomes its d. After it, in settle_item's
 * items (state, 256 values of a record), the last inputs and the records of the layer are those of after the pass. */
struct delta_job {
    struct cuda_pass pass;
    struct cuda_states states;
    const float *mixed; /* [rows][stride] */
    float *convolved;   /* [rows][stride] */
    const float *added; /* [n_head_v] how much of v is added to an output, or NULL */
    const float *beta, *decay;
    float *to; /* [rows][to_stride] */
    uint32_t stride, head_stride, to_stride;
};

LAYOUT_INLINE uint32_t delta_parts(const struct cuda_states x)
{
    return x.n_head_v * x.blocks;
}
LAYOUT_INLINE uint32_t settle_parts(const struct cuda_states x)
{
    return (uint32_t)((x.end - x.input + CUDA_THREADS - 1) / CUDA_THREADS);
}

/* The next-token layer's input: out = rmsnorm(embedding row of the token, weight[0]), then rmsnorm(hidden row before it,
 * weight[1]), n values each. To the pass's states the hidden rows are inputs of a convolution of two taps: `states` has them in
 * place of a layer's, and settle_item keeps them. Items: row, part. */
struct join_job {
    struct cuda_pass pass;
    struct cuda_states states;
    struct cuda_matrix embedding;
    const float *mixed; /* the hidden rows of the pass: [rows][stride] */
    const float *weight[2];
    struct cuda_input out;
    uint32_t stride, n, forms;
    float eps;
};

/* out = rmsnorm(head of x, weight) * silu(gate), of heads of n values. Items: row, head_gate_heads of its heads. */
struct head_gate_job {
    struct cuda_pass pass;
    const float *x, *gate; /* [rows][out.stride], [rows][gate_stride] */
    const float *weight;   /* [n] */
    struct cuda_input out;
    uint32_t gate_stride, n_head, n, forms;
    float eps;
};

/* Heads of an item: whole blocks of activations. */
LAYOUT_INLINE uint32_t head_gate_heads(const struct head_gate_job job)
{
    return job.n % 4 == 0 ? CUDA_WARPS : CUDA_BLOCK;
}

LAYOUT_INLINE uint32_t head_gate_parts(const struct head_gate_job job)
{
    const uint32_t heads = head_gate_heads(job);
    return (job.n_head + heads - 1) / heads;
}

/* One job of a layer: an operation of kernels/model/layer_ops.h, several that are computed together, or a part of one. SETTLE
 * is delta_job's second half. */
enum cuda_job_kind {
    CUDA_JOB_EMBED, /* of another table than the embedding, which comes before all layers */
    CUDA_JOB_INPUTS,
    CUDA_JOB_GATE,
    CUDA_JOB_NORM,
    CUDA_JOB_MATMUL,
    CUDA_JOB_QKV_FINISH,
    CUDA_JOB_ATTEND,
    CUDA_JOB_ROUTE,
    CUDA_JOB_EXPERT,
    CUDA_JOB_EXPERT_SUM,
    CUDA_JOB_CONVOLVE,
    CUDA_JOB_DELTA,
    CUDA_JOB_HEAD_GATE,
    CUDA_JOB_SETTLE,
    CUDA_JOB_JOIN,
};
struct attention_job {
    struct attend_job attend;
    struct combine_job combine;
};
struct cuda_job {
    uint32_t kind; /* enum cuda_job_kind */
    union {
        struct embed_job embed;
        struct inputs_job inputs;
        struct gate_job gate;
        struct norm_job norm;
        struct matmul_job matmul;
        struct qkv_finish_job qkv_finish;
        struct attention_job attention;
        struct route_job route;
        struct expert_job expert;
        struct expert_sum_job expert_sum;
        struct convolve_job convolve;
        struct delta_job delta;
        struct head_gate_job head_gate;
        struct join_job join;
    } of;
};

/* The jobs of a layer, or of the head, in their order. The last layer may end with a norm without output, for the residual
 * and its check. */
enum { CUDA_LAYER_JOBS = 24 };
struct layer_jobs {
    uint32_t n;
    struct cuda_job job[CUDA_LAYER_JOBS];
};

/* The first in the order of tokens: the largest logit, the lower id among equals. */
struct cuda_best {
    uint32_t id;
    uint32_t bad; /* CUDA_BAD_* of any */
    float max;
};
enum {
    CUDA_BAD_LOGIT = 1,    /* the model's own logit is not finite */
    CUDA_BAD_ADJUSTED = 2, /* mask, bias and penalties made it a NaN or +inf */
};

/* What CUDA_SAMPLE_PART logits of a row give. Sums of weights, where they are needed: of all; in
 * bins, by how far a logit lies below the largest; and of weight times that distance (NUMERICS.md,
 * E), in two halves. */
enum { CUDA_SAMPLE_BINS = 16 };
struct cuda_sample_part {
    struct cuda_best best; /* of what the sample begins with */
    float raw_max;         /* of the model's own */
    unsigned long long sum, raw_sum, low, high;
    unsigned long long bins[CUDA_SAMPLE_BINS];
};

/*
 * Samples, in three jobs. Items of the first two: row with wants, part of CUDA_SAMPLE_PART logits; of the third: rows with
 * wants. The first makes logits canonical and finds the largest, with mask, bias and the first penalties; the second
 * adds up weights, for those that are `summed`: what a stage that begins with all tokens has to know of all of them; the
 * third runs the stages, draws, and gives the results to the host.
 */
enum { CUDA_SAMPLE_PART = 4096, CUDA_SAMPLE_BLOCK = 32 };
struct sample_job {
    struct cuda_pass pass;
    struct cuda_results results;
    float *logits; /* [wanted][stride] the model's own */
    float *work;   /* [wanted][stride] what stages change */
    uint32_t *ids; /* [wanted][stride] candidates */
    float *blocks,
        *raw_blocks; /* [wanted][sample_blocks] the largest of CUDA_SAMPLE_BLOCK of work, of logits */
    struct cuda_sample_part *parts; /* [wanted][sample_parts] */
    uint32_t stride, n_vocab;
    float cap; /* of logits; 0: none */
};
LAYOUT_INLINE int sample_summed(const struct cuda_sampling *s)
{
    return s->tempered || s->weighed || s->logprobs;
}
LAYOUT_INLINE uint32_t sample_parts(uint32_t n_vocab)
{
    return (n_vocab + CUDA_SAMPLE_PART - 1) / CUDA_SAMPLE_PART;
}
LAYOUT_INLINE uint32_t sample_blocks(uint32_t n_vocab)
{
    return (n_vocab + CUDA_SAMPLE_BLOCK - 1) / CUDA_SAMPLE_BLOCK;
}

/* The end of a pass without samples: its results to the host. One item. */
struct end_job {
    struct cuda_pass pass;
    struct cuda_results results;
};

#endif
