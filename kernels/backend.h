/* The pass contract: what the daemon asks of a device, and nothing else.
 *
 * A backend computes passes. A pass is a list of rows of any sequences; a row is one token at one
 * position: it writes the KV of that position and attends over [0, position] of its own sequence.
 * In a canonical pass the bits of a row depend on its token, its position and the canonical KV
 * before it alone (kernels/NUMERICS.md): not on the other rows, their order, the chunking, the page
 * ids or the number of threads.
 *
 * Threads: one thread at a time calls start, finish and release_page of an instance; two instances
 * are independent.
 * Owns: the repacked weights, the KV memory and all scratch, allocated by open from the limits. The
 * daemon owns the page *ids* (0 .. limits.pages - 1) and says with every pass which page holds
 * which positions.
 * Never: allocates in a pass, prints, exits, keeps global state. */
#ifndef HEARTH_KERNELS_BACKEND_H
#define HEARTH_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/sample/sample.h"

struct model;   /* kernels/model/model.h; must outlive every backend opened on it */
struct backend; /* opaque: one opened instance */

/* Positions of one KV page; kernels/kv.h has the layout inside. */
enum { BACKEND_PAGE_POSITIONS = 32 };

/* What a row wants back; 0 for a row that only fills KV. Log-probabilities are asked in
 * sampler_params. */
enum {
    ROW_SAMPLE = 1, /* results[i].sample by the sequence's sampler_params */
    ROW_LOGITS = 4, /* results[i].logits, a buffer of the caller, [n_vocab] */
};

enum pass_kind {
    PASS_CANONICAL, /* NUMERICS.md to the letter */
    PASS_FAST,      /* any numerics; its KV and samples are proposals (enum backend_fast) */
};

/* What a fast pass of an instance is. */
enum backend_fast {
    BACKEND_FAST_NONE,   /* a canonical one */
    BACKEND_FAST_SHADOW, /* computed with a low-bit copy of the weights: for drafts only */
    BACKEND_FAST_NATIVE, /* the same weights in numerics that are faster here */
};

struct row {
    uint32_t sequence; /* index into pass.sequences */
    uint32_t position; /* absolute, below limits.context */
    uint32_t token;    /* below n_vocab */
    uint32_t wants;    /* ROW_* */
    /* With ROW_SAMPLE: sampler_params.allowed of this row, in place of its sequence's. */
    const uint64_t *allowed;
};

/* One sequence of a pass. Its rows come in ascending consecutive positions (other sequences' rows
 * may lie between); a sequence appears under one index only, so no two rows of a pass write the
 * same page and position. */
struct pass_sequence {
    const uint32_t *pages;  /* [last position / 32 + 1] page ids */
    const uint32_t *tokens; /* [last position + 1] the sequence, drafts of the window included;
                             * read for rows with ROW_SAMPLE only */
    uint32_t prompt_length; /* tokens from here on are answer (penalties) */
    const struct sampler_params *sampler; /* read for rows with ROW_SAMPLE only */
};

/* Per row. A poisoned row has a residual that is not finite after a layer, or queries, keys or
 * values that are not finite or overflow the KV type: from that layer on it writes no KV, it samples
 * nothing, and later rows of its sequence in this pass are poisoned with it. Rows of other
 * sequences keep their bits. The KV of its position, and behind it, is not canonical. */
struct row_result {
    int32_t status;       /* 0, -EDOM: poisoned, or what sample_token said: -EDOM, -EINVAL */
    uint32_t layer;       /* poisoned only: the first bad layer; n_layers: the logits themselves */
    struct sample sample; /* with ROW_SAMPLE and status 0: the token of position row.position + 1 */
    float *logits; /* in: where to put them, [n_vocab]; with ROW_LOGITS only, else may be NULL */
};

struct pass {
    enum pass_kind kind;
    uint32_t n_rows; /* at least 1, at most limits.rows; those with wants at most limits.samples */
    const struct row *rows;
    const struct pass_sequence *sequences;
    struct row_result *results; /* [n_rows] */
    uint32_t n_sequences;       /* at most limits.rows */
};

/* Everything that open allocates follows from these. */
struct backend_limits {
    uint32_t rows;    /* most rows of one pass */
    uint32_t samples; /* most rows with wants of one pass */
    uint32_t pages;   /* KV pages of 32 positions; memory is committed when a page is first used */
    uint32_t context; /* positions are below this; bounds the rope tables */
    uint32_t threads; /* the caller included, at least 1 */
    bool kv_q8_0; /* KV in blocks of int8, not in f16 (or f32): other numerics, 0.56 x the memory
                      of f16 where head_dim is a multiple of 32 */
    bool native;  /* the device's own arithmetic, as reproducible, where it has some that is faster:
                      other numerics, under an id of their own */
    bool shadow;  /* make one (BACKEND_FAST_SHADOW), where the instance has that */
    bool drafts;  /* every pass is a fast one, a canonical one is refused: a draft model */
    const char *isa; /* NULL: the best of this machine; one of backend_info's forces it */
};

/* What describe says. Texts live as long as the instance. */
struct backend_info {
    const char *name;     /* "cpu" */
    const char *isa;      /* "ref", "avx2", "avxvnni", "avx512" */
    const char *numerics; /* the numerics id, e.g. "portable-1" */
    uint32_t threads;
    enum backend_fast fast;
    size_t weight_bytes;  /* repacked weights and tables resident in this instance */
    size_t shadow_bytes;  /* the shadow's weights, on top of them */
    size_t scratch_bytes; /* activations, logits, sample scratch */
    size_t page_bytes;    /* memory of one KV page, all layers */
    size_t kv_bytes;      /* page_bytes * limits.pages: reserved, committed as used */
    const char *note;     /* one line of this instance that its user should know, or NULL */
};

struct backend_ops {
    const char *name;

    /* Is the device there? Returns 0, or -ENODEV with one line in err. Never aborts or prints. */
    int (*probe)(char *err, size_t err_bytes);

    /* Returns 0 with *ret_backend, or -errno with one line in err: -EINVAL limits, -ENOTSUP a model,
     * an isa or KV that this backend cannot run, or a shadow that it cannot make, -ENOMEM. */
    int (*open)(const struct model *model, const struct backend_limits *limits,
                struct backend **ret_backend, char *err, size_t err_bytes);

    /* Begins a pass; the pass and all it points to stay untouched until finish returns. Returns 0,
     * or -EINVAL for a pass outside the limits, which then computes nothing (error() says what).
     * One pass at a time. */
    int (*start)(struct backend *backend, const struct pass *pass);

    /* Waits for the pass begun by start. Returns 0 with every result filled, or -EIO: the instance
     * is broken. */
    int (*finish)(struct backend *backend);

    /* Optional (may be NULL): the page holds nothing wanted; its memory may go back to the system
     * until it is written again from its first position on. Never between start and finish. */
    void (*release_page)(struct backend *backend, uint32_t page);

    void (*describe)(const struct backend *backend, struct backend_info *ret_info);

    /* The last error of start or finish, one line; "" when there was none. */
    const char *(*error)(const struct backend *backend);

    /* Frees everything. NULL is allowed. */
    void (*close)(struct backend *backend);
};

/* The CPU backend, always there. */
extern const struct backend_ops backend_cpu;

#endif
