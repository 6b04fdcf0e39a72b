/* backend.h: the pass contract: what the daemon asks of a device, and nothing else.
 *
 * A backend computes forward passes. A pass is a list of rows from any number of sequences; a row
 * is one token at one position: it writes the KV of that position and attends over [0, position] of
 * its own sequence, in layers with a window over the last positions of these. In a canonical pass the bits of a row depend only on its token, its position
 * and the canonical KV before it (kernels/NUMERICS.md): not on the other rows, their order, the
 * chunking, the page ids or the number of threads.
 *
 * Threads: one thread at a time calls start, finish, release_page, read_page and write_page of an
 * instance; two instances are independent. Owns: the repacked weights, the KV memory and all scratch, allocated by open
 * from the limits. The daemon owns the page *ids* (0 .. limits.pages - 1) and says in every pass
 * which page holds which positions. Never: allocates in a pass, prints, exits, keeps global state.
 */
#ifndef HEARTH_KERNELS_BACKEND_H
#define HEARTH_KERNELS_BACKEND_H
#include "kernels/sample/sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model;   /* kernels/model/model.h; must outlive every backend opened on it */
struct backend; /* opaque: one opened instance */

/* Positions of one KV page; kernels/kv.h has the layout inside. */
enum { BACKEND_PAGE_POSITIONS = 32 };

/* What a KV page holds: the layers that see all positions before a row, or, where they have pages
 * of their own (backend_limits.window_pages), those that see a window of them. Ids of the classes
 * have nothing to do with each other. */
enum page_class { PAGES_FULL, PAGES_WINDOW, PAGE_CLASSES };

/* What can be copied out of an instance, and into one: a page of either class, or a state. */
enum copy_class {
    COPY_PAGE = PAGES_FULL,
    COPY_WINDOW_PAGE = PAGES_WINDOW,
    COPY_STATE,
    COPY_CLASSES
};

/* Recurrent layers keep a state in place of a list of positions: what follows from tokens [0, base)
 * of a text, in one of the state memories 0 .. limits.states - 1. Beside it a memory holds up to
 * BACKEND_STATE_RECORDS update records, of rows base, base + 1, ..: what these rows change in the
 * state. A state is never rolled back: rows that may still be rejected leave records only, and a
 * record is folded in when its row is accepted. However rows are divided into those that are folded
 * in as they run and those that are recorded first, states and results have the same bits. */
enum {
    BACKEND_STATE_RECORDS = 13,
    BACKEND_STATE_KEEPS = 2,
    BACKEND_STATE_ZERO = -1, /* pass_state.from: the state of the empty text, whose base is 0 */
};

/* What a row must return; 0 for a row that only fills KV. Log-probabilities are requested in
 * sampler_params. */
enum {
    ROW_SAMPLE = 1, /* results[i].sample, by the sequence's sampler_params */
    ROW_LOGITS = 4, /* results[i].logits, into a buffer of the caller, [n_vocab] */
};

enum pass_kind {
    PASS_CANONICAL, /* exactly as NUMERICS.md specifies */
    PASS_FAST,      /* any numerics; its KV and samples are proposals (enum backend_fast) */
    PASS_MTP,       /* the next-token layer alone: drafts (backend_info.mtp) */
};

/* What the fast passes of an instance are. */
enum backend_fast {
    BACKEND_FAST_NONE,   /* the same as a canonical one */
    BACKEND_FAST_SHADOW, /* computed with a low-bit copy of the weights: for drafts only */
    BACKEND_FAST_NATIVE, /* the same weights in numerics that are faster on this device */
};

/* A model's own next-token layer (MTP) drafts by PASS_MTP, if the backend runs it. Its row of a
 * position takes the token there and the hidden row before it, and its sample is a draft of the token
 * after it. Its KV lies in the same pages: every other pass computes it, too, for all of its rows,
 * and remembers their hidden rows with the state: that of the last token that a state holds, and one
 * in each record.
 *
 * A pass of this kind has one row of each sequence, at position base + replay; `own` equals `from`,
 * apply, commit and n_keep are 0. It reads the hidden row of the position before, writes its own in
 * its stead, as record `replay`, which has nothing else, and the layer's KV of its position. So the
 * next draft can follow, and a pass over the drafts writes over it all before it reads it. */

struct row {
    uint32_t sequence; /* index into pass.sequences */
    uint32_t position; /* absolute, below limits.context */
    uint32_t token;    /* below n_vocab */
    uint32_t wants;    /* ROW_* */
    /* With ROW_SAMPLE: replaces sampler_params.allowed for this row. */
    const uint64_t *allowed;
};

/* What a pass does with the state of a sequence; read only if limits.states > 0. With
 *
 *     base    tokens that the state of `from` holds, which the caller knows
 *     first = base + apply + replay    must be the position of its first row in the pass
 *     n       its rows in the pass
 *
 * the pass goes through records [0, apply + replay) of `from`, then through the rows. After it
 * `own` holds the state of base' = base + apply + commit tokens, and a record of every position
 * from base' to first + n - 1, at most BACKEND_STATE_RECORDS.
 *
 *                     base       base + apply    first       first + commit    first + n
 *     records of from  |-- apply --|--- replay ---|
 *     rows                                        |-- commit --|--- recorded ---|
 *
 * The caller folds in what is accepted and nothing else: drafts are replayed or recorded. So a
 * pass that drafts, on a text that others verify, has apply 0 and commit 0: the state stays as it
 * is, and the canonical pass that verifies writes the records from its `first` on over those of the
 * drafts. Nothing here depends on the kind of a pass: a text that only fast passes run on is
 * committed by them.
 *
 * `from` is only read, unless it is `own`, too; any number of sequences may read it. An id that a
 * pass writes (own, keep) is written once, and no other sequence of the pass reads it. */
struct pass_state {
    int32_t from;    /* an id, or BACKEND_STATE_ZERO, which has no records */
    int32_t own;     /* an id; may equal from */
    uint32_t apply;  /* records folded into the state before the rows */
    uint32_t replay; /* records after these that rows see, and that stay records; 0 if commit > 0 */
    uint32_t commit; /* rows folded in as they run, the first ones; the others leave records */
    /* States to keep: the state after `position` tokens is copied, without records, to `id` when
     * the pass gets there. base <= position <= base'; the id is neither `from` nor `own`. */
    uint32_t n_keep;
    struct {
        uint32_t position;
        int32_t id;
    } keep[BACKEND_STATE_KEEPS];
};

/* One sequence of a pass. Its rows have ascending consecutive positions (rows of other sequences
 * may come in between); a sequence appears under one index only, so no two rows of a pass write the
 * same page and position. */
struct pass_sequence {
    const uint32_t *pages; /* [last position / 32 + 1] page ids */
    /* [last position + 1] the sequence, including the drafts being verified; read for rows with
     * ROW_SAMPLE only */
    const uint32_t *tokens;
    uint32_t prompt_length;               /* tokens from here on belong to the answer (penalties) */
    const struct sampler_params *sampler; /* read for rows with ROW_SAMPLE only */
    /* As `pages`, of window pages, where there are any: read from the first one on that the windows
     * of its rows reach (kv_window_begin). */
    const uint32_t *window_pages;
    struct pass_state state;
};

/* One result per row. A row is poisoned if its residual is not finite after a layer, or if its
 * queries, keys or values are not finite or overflow the KV type: from that layer on it writes no
 * KV, it samples nothing, and later rows of its sequence in this pass are poisoned, too. Rows of
 * other sequences keep their bits. The KV of its position and of later ones is not canonical.
 * State: if the first poisoned row of a sequence is one of its `commit` rows, `own` holds no state
 * after the pass, nor does a `keep` id of a later position; `from`, if another one, is as it was.
 * If it is a recorded row, base' and the records of the rows before it are good, later ones not. */
struct row_result {
    int32_t status;       /* 0, -EDOM: poisoned, or the error of sample_token: -EDOM, -EINVAL */
    uint32_t layer;       /* if poisoned: the first bad layer; n_layers: the logits themselves */
    struct sample sample; /* with ROW_SAMPLE and status 0: the token of position row.position + 1 */
    float *logits; /* in: the caller's buffer, [n_vocab]; with ROW_LOGITS only, else may be NULL */
};

struct pass {
    enum pass_kind kind;
    /* at least 1, at most limits.rows; at most limits.samples of them with wants */
    uint32_t n_rows;
    const struct row *rows;
    const struct pass_sequence *sequences;
    struct row_result *results; /* [n_rows] */
    uint32_t n_sequences;       /* at most limits.rows */
};

/* Everything that open allocates follows from these. */
struct backend_limits {
    uint32_t rows;    /* max rows per pass */
    uint32_t samples; /* max rows with wants per pass */
    uint32_t pages;   /* KV pages of 32 positions; memory is committed when a page is first used */
    uint32_t window_pages; /* 0, or so many pages more: those of layers that attend in a window,
                              which then have no part in the others */
    uint32_t states;       /* state memories, at least 1 for a model with recurrent layers, 0 for
                              any other; memory is committed when one is first written */
    uint32_t context;      /* positions are below this; bounds the rope tables */
    uint32_t threads;      /* including the caller, at least 1 */
    /* 0, or the most of a device's memory that the instance may take. Weights of experts that do
     * not fit are kept, and computed, by the host: with the same bits, those of the last layers
     * first. For the CPU it has no meaning. */
    uint64_t gpu_bytes;
    bool kv_q8_0;    /* KV in blocks of int8 instead of f16 (or f32): other numerics, 0.56 x the
                      memory of f16 if head_dim is a multiple of 32 */
    bool native;     /* use the device's own, faster arithmetic, if it has any: as reproducible, but
                      other numerics under an id of their own */
    bool shadow;     /* make a shadow (BACKEND_FAST_SHADOW), if the backend supports it */
    bool drafts;     /* a draft model: all passes are fast ones, canonical ones are refused */
    const char *isa; /* NULL: the best of this machine; a value of backend_info.isa forces it */
    /* NULL, or what backend_info.image was of an instance of this model, of a backend with this layout:
     * open takes the weights from there, not from the file. It must outlive the instance. */
    const void *image;
    size_t image_bytes;
    /* NULL, or: open adds the bytes of the file's tensors that it has loaded, as it goes. Any
     * thread may read it; not used after open. */
    _Atomic uint64_t *loaded;
};

/* The result of describe. Texts live as long as the instance. */
struct backend_info {
    const char *name;     /* "cpu" */
    const char *isa;      /* "ref", "avx2", "avxvnni", "avx512" */
    const char *numerics; /* the numerics id, e.g. "portable-1" */
    uint32_t threads;
    enum backend_fast fast;
    size_t weight_bytes;      /* repacked weights and tables resident in this instance */
    size_t shadow_bytes;      /* the shadow's weights, in addition */
    size_t scratch_bytes;     /* activations, logits, sample scratch */
    size_t page_bytes;        /* memory of one KV page */
    size_t window_page_bytes; /* of one window page; 0: there are none */
    size_t kv_bytes;          /* of all pages: reserved, committed as used */
    size_t state_bytes;       /* of one state memory; 0: the model has no recurrent layers */
    size_t record_bytes;   /* of its BACKEND_STATE_RECORDS records, in addition: committed when one
                                 is first written, so a state that was only kept has none */
    uint64_t expert_bytes; /* of weights of experts that passes have read so far, as in the file: an
                              expert once for all rows of a pass that use it; 0: not counted */
    uint32_t host_layers;  /* of a device: layers whose experts the host computes (gpu_bytes) */
    size_t host_bytes;     /* of their weights, which are not in weight_bytes */
    bool mtp; /* PASS_MTP: the model has a next-token layer, and this backend runs it */
    const void
        *image; /* [image_bytes] the weights, ready for another instance; NULL: there is none */
    size_t image_bytes;
    const char *note; /* one line about this instance for its user, or NULL */
};

struct backend_ops {
    const char *name;
    const char *layout; /* of images: to be changed with what they hold. NULL: it has none */

    /* Tests whether the device exists. Returns 0, or -ENODEV with one line in err. Never aborts or
     * prints. */
    int (*probe)(char *err, size_t err_bytes);

    /* Optional (may be NULL: none): bytes that the weights take in an instance beyond those of the
     * file's tensors. */
    uint64_t (*added_bytes)(const struct model *model, const struct backend_limits *limits);

    /* Returns 0 with *ret_backend, or -errno with one line in err: -EINVAL for the limits, -ENOTSUP
     * for a model, isa, KV type or shadow that this backend does not support, -ENOMEM. */
    int (*open)(const struct model *model, const struct backend_limits *limits,
                struct backend **ret_backend, char *err, size_t err_bytes);

    /* Begins a pass; the pass and everything it points to must not change until finish returns.
     * Returns 0, or -EINVAL for a pass outside the limits, which computes nothing (error() says
     * why). One pass at a time. */
    int (*start)(struct backend *backend, const struct pass *pass);

    /* Waits for the pass begun by start. Returns 0 with every result filled, or -EIO: the instance
     * is broken. */
    int (*finish)(struct backend *backend);

    /* Optional (may be NULL): the contents of the page are not needed any more; its memory may go
     * back to the system until it is written again from its first position on. Never between start
     * and finish. */
    void (*release_page)(struct backend *backend, enum page_class class, uint32_t page);

    /* Optional (may be NULL): the same for a state memory and its records. */
    void (*release_state)(struct backend *backend, uint32_t state);

    /* Copies a page whose first `positions` positions, 1 to 32, were computed, with zeros for the others;
     * or a state without its records, of which `positions` says nothing; out of the instance:
     * backend_copy_bytes. write_page makes any page or state one that passes computed from
     * the same tokens: rows that read it get the same bits, in this instance or in another one, of any
     * backend, of the same model with the same numerics id, with window pages if that one had them.
     * Never between start and finish. Return 0, or -EIO: the instance is broken. */
    int (*read_page)(struct backend *backend, enum copy_class class, uint32_t id,
                     uint32_t positions, void *ret);
    int (*write_page)(struct backend *backend, enum copy_class class, uint32_t id,
                      const void *bytes);

    /* Optional (may be NULL): the address of those bytes, if they are contiguous and any thread may write
     * to them; else NULL. Filling them is what write_page does, without a copy, if it is done before a
     * pass uses the id. No other thread touches them until then. Never between start and finish. */
    void *(*page_memory)(struct backend *backend, enum copy_class class, uint32_t id);

    void (*describe)(const struct backend *backend, struct backend_info *ret_info);

    /* The last error of start or finish, one line; "" when there was none. */
    const char *(*error)(const struct backend *backend);

    /* Frees everything. NULL is allowed. */
    void (*close)(struct backend *backend);
};

/* Bytes of what read_page copies; 0: the instance has none of that class. */
static inline size_t backend_copy_bytes(const struct backend_info *info, enum copy_class class)
{
    return class == COPY_STATE         ? info->state_bytes
           : class == COPY_WINDOW_PAGE ? info->window_page_bytes
                                       : info->page_bytes;
}

/* The page ids of a sequence of one class. */
static inline const uint32_t *backend_pages(const struct pass_sequence *sequence,
                                            enum page_class class)
{
    return class == PAGES_WINDOW ? sequence->window_pages : sequence->pages;
}

/* The CPU backend, always available. */
extern const struct backend_ops backend_cpu;

#endif
