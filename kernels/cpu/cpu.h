/*
 * cpu: what the parts of the CPU backend share: its matrices, its inputs, the table of operations
 * that each instruction set fills, and the instance.
 *
 * Four tables exist: "ref" (ref_*.c, plain C that follows NUMERICS.md line by line and reads the
 * weights as they lie in the file), "avx2", "avxvnni" and "avx512" (weights repacked once,
 * repack.h). All give the same bits. An operation is called from any thread of the pool on rows and
 * groups that no other thread writes; it allocates nothing and keeps nothing. */
#ifndef HEARTH_KERNELS_CPU_CPU_H
#define HEARTH_KERNELS_CPU_CPU_H
#include "kernels/backend.h"
#include "kernels/kv.h"
#include "kernels/model/model.h"
#include "kernels/state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thread_pool;

enum {
    CPU_LANES = 16,    /* output rows of a group; buffers of outputs are padded to it */
    CPU_SEGMENT = 256, /* inputs of one chain of a matmul */
    CPU_BLOCK = 32,    /* inputs of a quantized block */
    CPU_SPLIT = 256,   /* positions of an attention split */
    CPU_QUERIES = 64,  /* most queries (row, head) that attention takes together */
    CPU_MAX_HEAD = MODEL_MAX_HEAD_DIM,
};

/* y = W x. `file` is the tensor as it lies in the file; `packed` the same numbers as groups of 16
 * output rows (repack.h), NULL in "ref". Those of experts are file.n_matrices of this kind, one
 * after the other; a matmul takes one of them (repack_part). */
struct cpu_matrix {
    struct model_tensor file;
    uint32_t groups;    /* of 16 output rows, the last padded with zeros */
    size_t group_bytes; /* multiple of 64 */
    uint8_t *packed;    /* [file.n_matrices][groups][group_bytes] */
};

/* Activations of some rows, as float and, where a quantized matrix reads them, as blocks. */
struct cpu_input {
    float *f; /* [rows][stride] */
    uint32_t stride;
    int8_t *q;    /* [rows][stride] */
    float *d;     /* [rows][stride / 32] scale of a block */
    int32_t *sum; /* [rows][stride / 32] sum of a block's q */
};

/* One matmul: rows [row0, row1) of the input, groups [group0, group1) of the matrix. With `gather`
 * [row1] row r of the output comes from row gather[r] of the input; without, from row r.
 * y and residual are [rows][stride], stride a multiple of 16; lanes past the matrix' rows are
 * written too. residual may be NULL, never y. */
struct cpu_matmul {
    const struct cpu_matrix *matrix;
    const struct cpu_input *x;
    const uint32_t *gather;
    float *y;
    const float *residual;
    uint32_t stride;
    uint32_t row0, row1, group0, group1;
};

/* Up to CPU_QUERIES queries of one sequence and one KV head. */
struct cpu_attend {
    const struct kv_layer *kv;
    const uint8_t *memory; /* page 0 */
    size_t page_bytes;
    const uint32_t *pages; /* of the sequence */
    uint32_t head_kv;
    float scale;
    uint32_t sliding_window; /* layer_geometry's */
    uint32_t n;
    uint32_t position[CPU_QUERIES]; /* ascending */
    const float *q[CPU_QUERIES];    /* [k_dim] */
    bool sinks;                     /* each has one: */
    float sink[CPU_QUERIES];
    float *out[CPU_QUERIES]; /* [v_dim] */
    float *scratch;          /* CPU_ATTEND_SCRATCH floats of this worker, 64-byte aligned */
};

/* The first position that a query at `position` sees. */
static inline uint32_t cpu_attend_from(const struct cpu_attend *a, uint32_t position)
{
    return position < a->sliding_window ? 0 : position - a->sliding_window + 1;
}

/* What a split leaves of a query: o [v_dim, padded to 16], then m and l (NUMERICS.md). In
 * floats. */
static inline size_t cpu_partial_floats(uint32_t v_dim)
{
    return (size_t)(v_dim + 15) / 16 * 16 + 16;
}

/* Every query, its scores of a split and two sums: enough for any instruction set. */
enum { CPU_ATTEND_SCRATCH = CPU_QUERIES * (CPU_SPLIT + 3 * CPU_MAX_HEAD + 64) };

/* A row's update of columns of a recurrent state (NUMERICS.md, "Gated delta rule"): S = from, n x
 * 32, becomes fmaf(k, d, S * decay), written to `to` unless that is NULL; to may be from. */
struct cpu_delta {
    const float *from;
    float *to;
    uint32_t n;
    float decay;
    const float *k;      /* [n] */
    const float *d;      /* [32] */
    const float *q;      /* [n], or NULL: no o */
    const float *next_k; /* [n], or NULL: no p */
    float *o, *p;        /* [32] chains of the S after it: with q, with the next row's k */
};

/* Of a recurrent layer (NUMERICS.md): y = chain of taps[j] * x[j] from bias on, or silu of it. */
struct cpu_convolution {
    const float *const *x; /* [n_taps] of [n], the oldest first */
    const float *taps;     /* [n_taps][n] */
    const float *bias;     /* [n], or NULL: 0 */
    uint32_t n_taps, n;
    bool silu;
    float *y; /* [n] */
};

struct cpu_isa {
    const char *name;
    bool packed; /* reads cpu_matrix.packed */
    bool (*usable)(void);

    /* y = rmsnorm(x, w); x, w, y [n]; y may be x */
    void (*norm)(const float *x, const float *w, uint32_t n, float eps, float *y);

    /* x [n] -> q [n], d and sum [n / 32] */
    void (*quantize)(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum);

    void (*matmul)(const struct cpu_matmul *matmul);

    /* x = x + bias, [n] */
    void (*add)(float *x, const float *bias, uint32_t n);

    /* x = fmaf(factor, y, x), [n] */
    void (*add_scaled)(float *x, float factor, const float *y, uint32_t n);

    /* Turns the first n_rot values of heads of x [heads][head_dim] in place, by model_rope: pairs
     * (2i, 2i + 1), pairs (i, i + n_rot / 2). cs and sn [n_rot] are rope_row's. */
    void (*rope[MODEL_N_ROPE])(float *x, uint32_t heads, uint32_t head_dim, uint32_t n_rot,
                               const float *cs, const float *sn);

    /* True when all of x [n] is finite / finite and not infinite in f16. */
    bool (*finite)(const float *x, uint32_t n);
    bool (*fits_f16)(const float *x, uint32_t n);

    /* Writes k [n_head_kv][k_dim] and v [n_head_kv][v_dim] to position `in_page` (0..31) of a
     * page's layer. */
    void (*append)(const struct kv_layer *kv, uint8_t *page, uint32_t in_page, const float *k,
                   const float *v);

    void (*attend)(const struct cpu_attend *attend);

    /* The same in pieces, which may run side by side: positions [split * 256, split * 256 + 256)
     * alone -> partials [n][cpu_partial_floats]; then all splits from the first that a query sees,
     * ascending, partials [splits][n][cpu_partial_floats] -> out. Of a query that sees nothing of a
     * split, no part is written or read. */
    void (*attend_split)(const struct cpu_attend *attend, uint32_t split, float *partials);
    void (*attend_combine)(const struct cpu_attend *attend, const float *partials);

    /* m = silu(g) * u, gelu(g) * u, swiglu(g, u), g * u or sigmoid(g) * u, by model_gate, [n]; m may
     * be g or u */
    void (*gate_mul[MODEL_N_GATE])(const float *g, const float *u, uint32_t n, float *m);

    void (*convolve)(const struct cpu_convolution *convolution);

    /* x = (x / its length) * factor, [n] */
    void (*unit)(float *x, uint32_t n, float factor);

    /* p [32] = chain of k over S [n][32]; and an update. Rows of S begin at multiples of 64
     * bytes. */
    void (*delta_read)(const float *state, const float *k, uint32_t n, float *p);
    void (*delta_step)(const struct cpu_delta *delta);

    /* x = cap * tanh(x / cap), [n] */
    void (*cap)(float *x, float cap, uint32_t n);

    /* x = x + 0.0f, [n]; true when all of it is finite. */
    bool (*canonical_logits)(float *x, uint32_t n);
};

extern const struct cpu_isa cpu_isa_ref;
#if defined(__x86_64__)
extern const struct cpu_isa cpu_isa_avx2;
extern const struct cpu_isa cpu_isa_avxvnni;
extern const struct cpu_isa cpu_isa_avx512;
#endif

/* The tensors of a layer, by enum model_layer_tensor; those of none, by enum model_global. What the
 * model lacks is NULL: in a matrix file.data, or packed. */
struct cpu_layer {
    struct cpu_matrix matrix[MODEL_N_LAYER_TENSORS];
    const float *vector[MODEL_N_LAYER_TENSORS];
};

/* What the two kinds of pass read: the model's matrices, or their shadow (shadow.h). */
struct cpu_weights {
    struct cpu_layer *layers; /* [n_layer + 2] the last two: of no layer, the next-token layer's */
};

/* Which experts the rows of a pass use in a layer (experts.c). A pair is a row and one of its
 * experts. */
struct cpu_experts {
    uint32_t *chosen;           /* [rows][n_expert_used] ascending */
    float *weight;              /* [rows][n_expert_used] */
    uint32_t n_active, *active; /* [n_expert] experts that some row uses, ascending */
    uint32_t *first; /* [n_expert + 1] first pair of an expert: pairs are ordered by expert, row */
    uint32_t *pair_row;  /* [rows * n_expert_used] */
    float *pair_weight;  /* [rows * n_expert_used] */
    float *scratch;      /* [threads][EXPERTS_SCRATCH] experts.h */
    uint64_t read_bytes; /* backend_info.expert_bytes */
};

/* Memories of recurrent layers, and how a pass's rows follow each other (delta.c). */
struct cpu_states {
    struct state_geometry geometry;
    uint8_t *memory;  /* [states][geometry.state_bytes] committed on first touch */
    uint8_t *records; /* [states][geometry.record_bytes] the same */
    size_t memory_reserved, records_reserved;
    uint32_t *first, *last, *rows; /* [rows] by sequence index: its first row, its last, how many */
    uint32_t *before,
        *after;     /* [rows] the row of the same sequence before and after it, or CPU_OK */
    float *zero;    /* an input of the convolution, or a hidden row, before the text */
    float *scratch; /* [threads][block]: a piece of a state that is not kept */
    size_t block;   /* floats of the largest */
};

/* Scratch of one pass, rows = limits.rows, every stride padded to 32. */
struct cpu_buffers {
    struct cpu_input of[N_BUFFERS]; /* [rows][stride]; blocks only where a matmul reads it. EXPERTS:
                                       [pairs][stride] */
    struct cpu_experts experts;
    float *cs[MODEL_MAX_ROPES], *sn[MODEL_MAX_ROPES]; /* [rows][n] rotation of a row */
    uint8_t *bad;                    /* [rows] an operation found the row not finite */
    uint32_t *poisoned;              /* [rows] layer, or CPU_OK */
    uint32_t *first_poisoned;        /* [rows] by sequence index: a row, or CPU_OK */
    uint32_t *next_position;         /* [rows] by sequence index, check of a pass */
    uint32_t *wanted;                /* [samples] row of a sample */
    uint32_t *tile;                  /* [rows + 1] first row of an attention tile */
    float *attend_scratch;           /* [threads][CPU_ATTEND_SCRATCH] */
    float *partials;                 /* of attention in splits, attention.c */
    struct sampler_scratch **sample; /* [threads] */
};

#define CPU_OK UINT32_MAX

struct backend {
    const struct model *model;
    struct backend_limits limits;
    const struct cpu_isa *isa;
    struct thread_pool *pool;
    struct cpu_states states;
    struct kv_geometry kv;
    uint8_t *kv_memory[PAGE_CLASSES]; /* [pages][kv.page_bytes], committed on first touch */
    size_t kv_reserved[PAGE_CLASSES];
    struct cpu_weights weights[2]; /* the model's, and those of fast passes; without a shadow the
                                      same */
    const struct cpu_weights *use; /* of this pass */
    const float *ones;             /* [CPU_MAX_HEAD] weights of a norm that has none */
    float *query_factors;          /* rope_query_factors; NULL: none */
    float *rope[MODEL_MAX_ROPES];  /* tables of model.ropes, rope.h */
    struct cpu_buffers buffers;
    uint8_t *image; /* [image_bytes] the weights of canonical passes; read only if given */
    size_t image_bytes;
    bool image_given;    /* backend_limits.image */
    struct arena *arena; /* owns every buffer and every repacked weight that was not given */
    size_t weight_bytes, shadow_bytes, scratch_bytes;
    uint32_t n_wanted, n_tiles;
    uint32_t n_splits; /* of the layer's longest tile */
    const struct pass *pass;
    char error[192];
};

/* Matrix `part` of an operation, for the pass that runs. */
static inline const struct cpu_matrix *cpu_matrix_of(const struct backend *b,
                                                     const struct layer_op *op, uint32_t part)
{
    return &b->use->layers[op->layer].matrix[op->tensor[part]];
}

/* A vector of the operation's layer, or NULL. */
static inline const float *cpu_vector_of(const struct backend *b, const struct layer_op *op,
                                         uint32_t tensor)
{
    return b->use->layers[op->layer].vector[tensor];
}

/* pass.c: computes a pass that was checked. quantize_row: makes blocks of values [n] of row r of a
 * buffer. */
void cpu_pass_run(struct backend *b, const struct pass *pass);
void cpu_quantize_row(struct backend *b, enum op_buffer buffer, uint32_t n, uint32_t r);

/* backend_cpu.c. choose_isa: name NULL: the best of this machine; -ENOTSUP with a line.
 * buffer_scratch, experts_scratch: allocate what is NULL; *failed where memory is missing. */
int cpu_choose_isa(const char *name, const struct cpu_isa **ret, char *err, size_t err_bytes);
void cpu_buffer_scratch(struct backend *b, enum op_buffer buffer, bool *failed);
void cpu_experts_scratch(struct backend *b, bool *failed);

#endif
