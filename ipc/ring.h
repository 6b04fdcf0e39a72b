/* ring.h: one ring of 64-byte cells with one writer and one reader.
 *
 * Knows nothing of owners, the meaning of cells, or sleeping. Either side may be hostile to the
 * other: a wrong progress word or sequence number is reported as -EPROTO, never followed.
 * Positions are private to each side. Called by the thread that owns that side; allocates nothing,
 * makes no system call. Hot functions are inline.
 *
 * MEMORY ORDERING of all of ipc/, in C11 atomics. The operations are in ring.h, ring.c, bell.h
 * and bell.c alone.
 *
 *   label  where                            operation                                   pairs with
 *   R1     writer, after filling a cell     store-release the cell's sequence number    A1
 *   A1     reader, before copying a cell    load-acquire the sequence number            R1
 *            so that a reader that sees the number also sees the cell
 *   R2     reader, after copying a cell     store-release its progress word             A2
 *   A2     writer, before reusing a cell    load-acquire the progress word              R2
 *            so that a cell is reused only after it was read
 *   S1     going to sleep (bell.h)          read the wake word (acquire); set waiting   S2
 *                                           or sleeping; seq_cst fence; look again;
 *                                           futex wait on the value read
 *   S2     after R1 and after R2 (bell.h)   one seq_cst fence a step; look at the word  S1
 *            so that one of the two sees the other: no lost wake-up
 *   G1     client, new request              store the generation; seq_cst fence; then   G2
 *                                           write arena and parameters
 *   G2     daemon, after copying these      acquire fence; read the generation again;   G1
 *                                           discard the copy if it moved
 *            so that a copy torn by a newer request is noticed
 *
 * Writer:                                   Reader:
 *   n = ring_space(w);     free cells, A2     n = ring_peek(r, &cell);   1: copied, 0: none yet, A1
 *   if (n > 0)                                if (n == 1)
 *       ring_push(w, &cell);           R1         ring_release(r, 1);                            R2
 */
#ifndef HEARTH_IPC_RING_H
#define HEARTH_IPC_RING_H
#include "ipc/layout.h"

#include <errno.h>
#include <string.h>

/* gcc warns that its thread sanitizer does not model fences. No fence here is the only thing that
 * orders plain data, except G1/G2, whose copies are atomic in such builds (segment.c). */
#if defined(__SANITIZE_THREAD__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

struct ring_cell {
    _Alignas(IPC_LINE) _Atomic uint32_t seq;
    uint8_t body[IPC_LINE - 4];
};
_Static_assert(sizeof(struct ring_cell) == IPC_LINE, "a cell is a cache line");

struct ring_writer {
    struct ring_cell *cells;          /* [mask + 1], shared */
    const _Atomic uint32_t *progress; /* the reader's word */
    uint32_t mask;
    uint32_t next;     /* cells written so far (mod 2^32) */
    uint32_t released; /* the reader's progress when last looked at */
};

struct ring_reader {
    const struct ring_cell *cells; /* [mask + 1], shared */
    _Atomic uint32_t *progress;    /* our word */
    uint32_t mask;
    uint32_t next;   /* cells consumed so far (mod 2^32) */
    uint32_t lapped; /* 0 in the first lap, whose unwritten cells carry 0 */
};

/* `cells` is a power of two. The memory is all zero at the start, or both sides start together. */
void ring_writer_init(struct ring_writer *w, struct ring_cell *memory, uint32_t cells,
                      const _Atomic uint32_t *progress);
void ring_reader_init(struct ring_reader *r, const struct ring_cell *memory, uint32_t cells,
                      _Atomic uint32_t *progress);

/* Reads the other side's progress (A2). Returns the number of free cells, or -EPROTO when the word
 * is outside [last seen, written], which no correct reader writes. */
int ring_space(struct ring_writer *w);

/* Cells known to be free without looking at the reader's word: a lower bound. */
static inline uint32_t ring_space_known(const struct ring_writer *w)
{
    return w->mask + 1u - (w->next - w->released);
}

/* True if the reader has released anything since ring_space() looked. For waiting on space. */
static inline int ring_space_changed(const struct ring_writer *w)
{
    return atomic_load_explicit(w->progress, memory_order_relaxed) != w->released;
}

/* The memory of the next cell, to be filled in place except for its first word, which
 * ring_publish() writes. It must not be read back. PRECOND: ring_space_known() > 0. */
static inline void *ring_prep(struct ring_writer *w)
{
    return &w->cells[w->next & w->mask];
}

/* Publishes the cell that was filled. Our position is stored last: between the stores to the cell
 * it would keep them from leaving together (64 rings in a row, on two cores: 2.4 instead of 1.5
 * us). */
static inline void ring_publish(struct ring_writer *w)
{
    uint32_t next = w->next + 1u;
    atomic_store_explicit(&w->cells[w->next & w->mask].seq, next,
                          memory_order_release); /* R1 -> A1 */
    w->next = next;
}

/* Publishes the 64 bytes at `cell`; the first word is overwritten. PRECOND as above. */
static inline void ring_push(struct ring_writer *w, const void *cell)
{
    memcpy((uint8_t *)ring_prep(w) + 4, (const uint8_t *)cell + 4, IPC_LINE - 4);
    ring_publish(w);
}

/* The number that the next cell carries while it is unwritten: the previous lap's, or 0. */
static inline uint32_t ring_stale(const struct ring_reader *r)
{
    return r->lapped ? r->next - r->mask : 0;
}

/* Copies memory that the other side may change at any time. The fence makes the copy the only one:
 * without it a compiler that sees the copy and its uses, at link time at the latest, may read the
 * original again where the copy is used, after it was checked. */
static inline void ring_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    atomic_signal_fence(memory_order_seq_cst);
}

/* True when the next cell is there or the ring is broken: when ring_peek() will not return 0. For
 * spinning. */
static inline int ring_ready(const struct ring_reader *r)
{
    const struct ring_cell *c = &r->cells[r->next & r->mask];
    return atomic_load_explicit(&c->seq, memory_order_relaxed) != ring_stale(r);
}

/* Copies the cell `ahead` of the next one (0: the next) to the 64 bytes at `ret_cell`, without
 * consuming it. PRECOND: ahead < cells. Returns 1; 0 when it is not written yet; -EPROTO when its
 * number is neither the expected one nor that of the previous lap (0 in the first lap). */
int ring_peek_ahead(const struct ring_reader *r, uint32_t ahead, void *ret_cell);

static inline int ring_peek(const struct ring_reader *r, void *ret_cell)
{
    const struct ring_cell *c = &r->cells[r->next & r->mask];
    if (atomic_load_explicit(&c->seq, memory_order_acquire) != r->next + 1u) /* A1 <- R1 */
        return ring_ready(r) ? ring_peek_ahead(r, 0, ret_cell) : 0;
    ring_copy(ret_cell, c, sizeof(*c));
    return 1;
}

/* Gives the next `cells` cells back to the writer (R2). Publish the answer to a cell before
 * releasing it: the writer may be polling this word, and a store to it would delay the answer's
 * stores. */
void ring_release(struct ring_reader *r, uint32_t cells);

/* G1. Makes every request of the slot with another generation void, before its arena is touched. */
void ring_generation_start(_Atomic uint32_t *word, uint32_t generation);

/* G2. After copying arena and parameters: true when `generation` is still the word, so the copy is
 * whole. */
int ring_generation_live(const _Atomic uint32_t *word, uint32_t generation);

/* Reads the generation without the fence: at ingest, before planning, before publishing. */
static inline uint32_t ring_generation(const _Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

#endif
