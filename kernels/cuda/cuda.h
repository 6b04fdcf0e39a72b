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
    CUDA_SEGMENT = 256,      /* inputs of one chain of a product */
    CUDA_BLOCK = 32,         /* inputs of a quantized block */
    CUDA_SEGMENT_BLOCKS = 8, /* blocks of a segment */
    CUDA_TILE = 8,           /* rows of activations that one mma takes */
    CUDA_SPLIT = 256,        /* positions of an attention split */
    CUDA_PAGE = 32,          /* positions of a KV page */
    CUDA_THREADS = 256,      /* of every block of every kernel */
    CUDA_WARPS = CUDA_THREADS / 32,
    CUDA_MAX_HEAD = 256,
    CUDA_LINE = 128,    /* that a prefetch brings */
    CUDA_MAX_TILES = 8, /* most tiles of rows that a block of a product takes at once */
};

/* What a gate is to the product that computes it: enum model_gate of kernels/model.h behind NONE. */
enum cuda_gate { CUDA_GATE_NONE, CUDA_GATE_SILU, CUDA_GATE_GELU };

/* The window of a layer that attends to all positions. */
#define CUDA_NO_WINDOW UINT32_MAX

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
    uint16_t *half[2]; /* native: as f16, as bf16, [rows][stride], +0 behind the row's values */
    uint32_t stride;   /* a multiple of 32 */
};

struct cuda_sampling; /* picks.h */

struct cuda_row {
    uint32_t sequence, position, token;
    uint32_t pages; /* index of its sequence's first page in cuda_pass.pages */
};

/* How a block computes an item of attention: one row, or a tile of rows, in its small or its large form. */
enum cuda_item_kind { CUDA_ITEM_ROW, CUDA_ITEM_TILE, CUDA_ITEM_LARGE, CUDA_ITEM_KINDS };

/* Queries, rows times heads of a KV head, of a tile of each kind; of a large one in native numerics, of heads of up to 128
 * values. */
enum { CUDA_TILE_QUERIES = 16, CUDA_LARGE_QUERIES = 32, CUDA_NATIVE_QUERIES = 64 };

/* Rows [row, row + n_rows) of a pass, of one sequence and one behind the other, against a run of splits: all of theirs,
 * or one. Row r keeps the results at row_parts[r] + part. */
struct cuda_item {
    uint32_t kind; /* enum cuda_item_kind */
    uint32_t row, n_rows;
    uint32_t split0, split1; /* splits [split0, split1); a row that has fewer ends there */
    uint32_t part;
};

/*
 * A pass in device memory, written by the host before it; the pointers are constant, so that kernels launched from a
 * graph find every pass in the same place.
 */
struct cuda_pass {
    uint32_t *counts;              /* CUDA_COUNT_* */
    struct cuda_row *rows;         /* [n_rows] */
    uint32_t *wanted;              /* [n_wanted] rows with wants */
    struct cuda_item *items;       /* [n_items] of attention to all positions */
    struct cuda_item *local_items; /* [n_local_items] those that are left of them in a window */
    uint32_t *row_parts;           /* [n_rows + 1] where a row's partial results begin */
    uint32_t *pages;               /* page ids of all sequences, one behind the other */
    uint32_t *words; /* the same memory: masks, biases, tokens of picks lie behind the page ids */
    struct cuda_sampling *sampling; /* [n_wanted] */
    uint32_t *
        bad; /* [rows] 0: sound; else CUDA_SOUND - the first layer at which the row was bad itself */
    uint32_t *mark;    /* [sequences] 0, or CUDA_SOUND - the first bad row of a sequence */
    uint32_t *arrived; /* [step_words] 0: what blocks of a whole pass count in (step.h) */
};

/* SUMMED: rows with wants whose pick takes the second job of picks (ops.h); PASS: its number; PICKED: the device counts the
 * rows with wants that are done. */
enum {
    CUDA_COUNT_ROWS,
    CUDA_COUNT_WANTED,
    CUDA_COUNT_ITEMS,
    CUDA_COUNT_LOCAL_ITEMS,
    CUDA_COUNT_SUMMED,
    CUDA_COUNT_PASS,
    CUDA_COUNT_PICKED,
    CUDA_COUNTS
};

#define CUDA_SOUND UINT32_MAX

/* enum kv_type of kernels/kv.h. */
enum cuda_kv_type { CUDA_KV_F16, CUDA_KV_F32, CUDA_KV_Q8_0 };

/* Where a key or value lies: kernels/kv.h, in numbers that a kernel can take. */
struct cuda_kv {
    uint8_t *memory; /* [pages][page_bytes] */
    uint64_t page_bytes, layer_bytes, head_bytes;
    uint32_t n_head_kv, head_dim;
    uint32_t type;    /* enum cuda_kv_type */
    uint32_t n_block; /* CUDA_KV_Q8_0: scales of a position in K or V of a head */
};

#endif
