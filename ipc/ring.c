/* ring.c: the less hot parts of ring.h. */
#include "ipc/ring.h"

void ring_writer_init(struct ring_writer *w, struct ring_cell *memory, uint32_t cells,
                      const _Atomic uint32_t *progress)
{
    assert(cells > 0 && (cells & (cells - 1)) == 0);
    *w = (struct ring_writer){.cells = memory, .progress = progress, .mask = cells - 1};
}

void ring_reader_init(struct ring_reader *r, const struct ring_cell *memory, uint32_t cells,
                      _Atomic uint32_t *progress)
{
    assert(cells > 0 && (cells & (cells - 1)) == 0);
    *r = (struct ring_reader){.cells = memory, .progress = progress, .mask = cells - 1};
}

int ring_space(struct ring_writer *w)
{
    uint32_t progress = atomic_load_explicit(w->progress, memory_order_acquire); /* A2 <- R2 */
    /* Distances from the last progress seen: the comparison holds across 2^32. */
    if (progress - w->released > w->next - w->released)
        return -EPROTO;
    w->released = progress;
    return (int)ring_space_known(w);
}

int ring_peek_ahead(const struct ring_reader *r, uint32_t ahead, void *ret_cell)
{
    uint32_t n = r->next + ahead;
    const struct ring_cell *c = &r->cells[n & r->mask];
    uint32_t seq = atomic_load_explicit(&c->seq, memory_order_acquire); /* A1 <- R1 */
    if (seq == n + 1u) {
        ring_copy(ret_cell, c, sizeof(*c));
        return 1;
    }
    /* Not written yet: it still carries the previous lap's number, in the first lap 0. */
    uint32_t stale = r->lapped || n > r->mask ? n - r->mask : 0;
    return seq == stale ? 0 : -EPROTO;
}

void ring_release(struct ring_reader *r, uint32_t cells)
{
    r->next += cells;
    r->lapped |= r->next > r->mask;
    atomic_store_explicit(r->progress, r->next, memory_order_release); /* R2 -> A2 */
}

void ring_generation_start(_Atomic uint32_t *word, uint32_t generation)
{
    atomic_store_explicit(word, generation, memory_order_relaxed);
    /* G1 -> G2: a reader that sees any later byte of the arena also sees this generation. */
    atomic_thread_fence(memory_order_seq_cst);
}

int ring_generation_live(const _Atomic uint32_t *word, uint32_t generation)
{
    /* G2 <- G1: the copies before this fence are complete before the word is read again. */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(word, memory_order_relaxed) == generation;
}
