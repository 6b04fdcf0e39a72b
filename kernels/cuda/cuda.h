/*
 * cuda: what the parts of the CUDA backend share: matrices, activations and the pass as they lie in device memory.
 * C and C++; plain data, so that a struct can be a kernel's parameter. Pointers are device pointers unless a comment
 * says otherwise.
 *
 * Numbers of NUMERICS.md: a segment is 256 inputs, a block 32, a split 256 positions.
 */
#ifndef HEARTH_KERNELS_CUDA_CUDA_H
#define HEARTH_KERNELS_CUDA_CUDA_H

#include <stdint.h>

enum {
    CUDA_GROUP = 32,         /* output rows of a group: two tiles of the mma */
    CUDA_SEGMENT = 256,      /* inputs of one chain of a matmul */
    CUDA_BLOCK = 32,         /* inputs of a quantized block */
    CUDA_SEGMENT_BLOCKS = 8, /* blocks of a segment */
    CUDA_TILE = 8,           /* rows of activations that one mma takes */
    CUDA_SPLIT = 256,        /* positions of an attention split */
    CUDA_PAGE = 32,          /* positions of a KV page */
    CUDA_PAGE_CLASSES = 2,   /* enum page_class of kernels/backend.h */
    CUDA_THREADS = 256,      /* of a block, but of matmuls of few rows */
    CUDA_WARPS = CUDA_THREADS / 32,
    CUDA_MAX_HEAD = 512,
    CUDA_MAX_STATE = 256,   /* of a head of a recurrent layer */
    CUDA_MAX_GROUPS = 1024, /* of a norm */
    CUDA_LARGE_HEAD = 256,  /* of large tiles and native attention */
    CUDA_LINE = 128,        /* that a prefetch brings */
    CUDA_MAX_TILES = 8,     /* most tiles of rows that a block of a matmul takes at once */
};

/* What a gate is to the matmul that computes it: enum model_gate of kernels/model/model.h after NONE. */
enum cuda_gate {
    CUDA_GATE_NONE,
    CUDA_GATE_SILU,
    CUDA_GATE_GELU,
    CUDA_GATE_SWIGLU,
    CUDA_GATE_PRODUCT
};

/* y = W x. Layout of `data`: layout.h. */
struct cuda_matrix {
    const uint8_t *data; /* [groups][group_bytes] */
    uint64_t group_bytes;
    uint32_t type; /* enum quant_type */
    uint32_t rows, cols;
    uint32_t groups;  /* of 32 output rows, the last padded with zeros */
    uint32_t by_rows; /* layout.h; in all matrices of a model, or in none */
};

struct cuda_scale {
    float d;     /* of a block of activations */
    int32_t sum; /* of its integers */
};

/*
 * Activations of some rows: as f32, and where a quantized matrix reads them as blocks. Blocks lie in the order in
 * which mma_s8 (device.h) takes them: tile i is rows 8i .. 8i + 7, and lane 4g + t has two words of row 8i + g: inputs
 * 4t .. 4t + 3 and 16 + 4t .. 16 + 4t + 3 of the block.
 */
struct cuda_input {
    float *f;                 /* [rows][stride] */
    uint32_t *q;              /* [rows / 8][stride / 32][32 lanes][2] */
    struct cuda_scale *scale; /* [rows / 8][stride / 32][8 rows] */
    uint16_t *half[2]; /* native: as f16, as bf16, [rows][stride], +0 after the row's values */
    uint32_t stride;   /* a multiple of 32 */
};

struct cuda_row {
    uint32_t first; /* row of its sequence in the pass */
    uint32_t position, token;
    uint32_t pages[CUDA_PAGE_CLASSES]; /* of cuda_pass.words: its sequence's page ids, by class */
    uint32_t part; /* its first part of attention; the next row's comes after its last */
};

/* How a block computes an item of attention: one row, or a tile of rows, in its small or its large form. */
enum cuda_item_kind { CUDA_ITEM_ROW, CUDA_ITEM_TILE, CUDA_ITEM_LARGE, CUDA_ITEM_KINDS };

/* Queries, rows times heads of a KV head, of a tile of each kind; of a large one in native numerics, of heads of up to 128
 * values. */
enum { CUDA_TILE_QUERIES = 16, CUDA_LARGE_QUERIES = 32, CUDA_NATIVE_QUERIES = 64 };

/* Rows [row, row + n_rows) of a pass, of one sequence and consecutive, against a run of splits: all of theirs,
 * or one. Row r keeps the results at rows[r].part + part. */
struct cuda_item {
    uint32_t kind; /* enum cuda_item_kind */
    uint32_t row, n_rows;
    uint32_t split0, split1; /* splits [split0, split1); a row that has fewer ends there */
    uint32_t part;
};

/*
 * A pass in device memory. The pointers are constant, so that kernels launched from a graph find every pass in the same
 * place. The host copies as many words before it as this pass has: counts, rows; then, where the counts and the
 * rows say, one after the other: page ids of its sequences, items, what samples are given, and what those read.
 */
struct cuda_pass {
    uint32_t *words;       /* all of it */
    uint32_t *counts;      /* the first of them: CUDA_COUNT_* and CUDA_AT_* */
    struct cuda_row *rows; /* [n_rows + 1] the last one is a `part` alone */
    /* Not of the upload: device memory in which the end of a pass leaves zeros for the next one. */
    uint32_t *bad; /* [rows] 0: sound; else CUDA_ROW_OK - the layer at which it turned bad itself */
    uint32_t *mark; /* [rows] at a sequence's first row: 0, or CUDA_ROW_OK - its first bad row */
};

/* SUMMED: rows with wants whose sample takes the second job of samples (ops.h); STATES: sequences whose state moves; PASS: its number; SAMPLED: the device counts the
 * rows with wants that are done. AT: of words, where arrays begin: items of attention to all positions, those that are left
 * of them in a window, the samplings of rows with wants, what becomes of states, and which of them each row's is. */
enum {
    CUDA_COUNT_ROWS,
    CUDA_COUNT_WANTED,
    CUDA_COUNT_ITEMS,
    CUDA_COUNT_LOCAL_ITEMS,
    CUDA_COUNT_SUMMED,
    CUDA_COUNT_STATES,
    CUDA_COUNT_PASS,
    CUDA_COUNT_SAMPLED,
    CUDA_AT_ITEMS,
    CUDA_AT_LOCAL_ITEMS,
    CUDA_AT_SAMPLING,
    CUDA_AT_STATES,
    CUDA_AT_ROW_STATES,
    CUDA_COUNTS
};

/* Where the other arrays begin in the words. */
enum { CUDA_AT_ROWS = CUDA_LINE / 4 };

#define CUDA_ROW_OK UINT32_MAX

/* Pairs [first, first + n) of an expert, which a block computes together. */
struct cuda_run {
    uint32_t expert, first, n;
};

/*
 * Which experts the rows of a pass use in a layer, as the job of its router leaves it to those after it. A pair is a row
 * and one of its experts; pairs lie in the order of their experts. How many rows an expert has is known on the device
 * alone: grids cover the most runs that there can be.
 */
struct cuda_experts {
    uint32_t *chosen;   /* [rows][n_used] ascending */
    float *weight;      /* [rows][n_used] */
    uint32_t *pair;     /* [rows][n_used] */
    uint32_t *pair_row; /* [rows * n_used] */
    struct cuda_run *runs;
    uint32_t *n_runs;
    uint32_t *routed; /* blocks of the router's job that are done; 0 before and after it */
    uint32_t n_expert, n_used;
};
enum { CUDA_MAX_EXPERTS = 1024, CUDA_MAX_EXPERTS_USED = 32 };

/* Tiles of a run where experts have many rows. */
enum { CUDA_EXPERT_TILES = 4 };

/* What a pass does with the recurrent state of a sequence: struct pass_state of kernels/backend.h. Steps are counted from the
 * first record of `from`: records, then rows of the pass. */
enum { CUDA_STATE_KEEPS = 2, CUDA_STATE_ZERO = -1, CUDA_STATE_INPUTS = 3, CUDA_STATE_COLUMNS = 32 };
struct cuda_state {
    int32_t from, own;
    uint32_t base;           /* tokens that `from` holds */
    uint32_t apply, records; /* records that are folded in; all that are steps */
    uint32_t commit;         /* rows that are folded in */
    uint32_t rows, n_rows;   /* at words: the rows of the pass that are its sequence's, in order */
    uint32_t n_keep;
    uint32_t keep_at[CUDA_STATE_KEEPS]; /* steps after which a state is copied */
    int32_t keep[CUDA_STATE_KEEPS];     /* to these */
};

/* Where the states of a recurrent layer, and what records have of it, lie: kernels/state.h. Offsets in floats. */
struct cuda_states {
    uint8_t *memory, *records;                  /* [states][state_bytes], [states][record_bytes] */
    uint64_t state_bytes, record_bytes, record; /* record: floats of one */
    uint64_t scan, inputs;                      /* of a memory */
    uint64_t input, k, d, decay, end;           /* of a record; end: after the layer's */
    uint32_t n_head_k, n_head_v, k_dim, v_dim, channels;
    uint32_t taps;             /* of the convolution */
    uint32_t q_at, k_at, v_at; /* channels */
    uint32_t unit;             /* heads that it scales to a length: those of q and k, or none */
    uint32_t n_part, part;     /* parts of the other channels: V heads, if such heads are scaled */
    uint32_t mamba;            /* Mamba-2, else the gated delta rule */
    uint32_t run;              /* V heads that follow each other and share a K head */
    uint32_t blocks;           /* of 32 columns of a V head */
};

/* enum kv_type of kernels/kv.h. */
enum cuda_kv_type { CUDA_KV_F16, CUDA_KV_F32, CUDA_KV_Q8_0 };

/* Where a key or value of a layer lies: struct kv_layer of kernels/kv.h, in numbers that a kernel can take. */
struct cuda_kv {
    uint8_t *memory; /* [pages][page_bytes] */
    uint64_t page_bytes, offset;
    uint64_t k_bytes, v_bytes; /* of a head */
    uint32_t n_head_kv, k_dim, v_dim;
    uint32_t type;     /* enum cuda_kv_type */
    uint32_t pages;    /* the class of its pages: of cuda_row.pages */
    uint32_t v_blocks; /* CUDA_KV_Q8_0: scales of a position in V of a head */
};

#endif
