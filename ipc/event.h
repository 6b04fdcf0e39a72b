/* event.h: the records in a slot's event ring and in the submit ring.
 *
 * The daemon's engine thread writes events, the client reads them. Everything here is bounded and
 * allocates nothing. A run of cells is published only when all of it fits, and room for one
 * EVENT_DONE run stays free as long as a request is running, so that its end can always be
 * published. Memory ordering is ring.c's.
 *
 * Daemon, per slot:
 *   event_room(&writer) >= 1           before a request starts; >= the cells of window + 1 tokens
 *                                      before a pass is planned for it
 *   event_put_tokens(&writer, ...)     -EAGAIN: pause the slot
 *   event_put_done(&writer, ...)       always fits, once
 * Client, per slot:
 *   while ((n = event_next(&reader, &run)) > 0) {
 *       if (run.generation == mine) ... event_tokens(&run, &tokens) ...
 *       ring_release(&reader, run.cells);                                      R2
 *   }
 *   bell_ring(ctl, bell_fd);           once, if something was released         S2
 */
#ifndef HEARTH_IPC_EVENT_H
#define HEARTH_IPC_EVENT_H

#include "ipc/ring.h"

/* ---- submit ---------------------------------------------------------------------------------- */

/* Daemon, on a private copy: checks every field of a cell against the limits (not against model or
 * arena). Returns 0, or -EINVAL / -E2BIG / -ENOSYS with one line for the client's EVENT_DONE;
 * -EPROTO when the cell names no valid slot: no slot's ring can carry the error, so the client is
 * closed. */
int submit_check(const struct submit_cell *cell, const struct ipc_limits *limits, char *err,
                 size_t err_bytes);

/* ---- events: daemon -------------------------------------------------------------------------- */

/* Free cells beyond the reserve for EVENT_DONE (looks at the reader's progress: A2). -EPROTO: close
 * the client. */
int event_room(struct ring_writer *w);

/* Cells that a run with `bytes` of payload takes. */
static inline uint32_t event_cells(size_t bytes)
{
    return bytes == 0 ? 1u : (uint32_t)((bytes + EVENT_BYTES - 1) / EVENT_BYTES);
}

/* Fills the header of the next cell in place, with as few stores as possible. A step publishes to
 * many rings whose cache lines are on other cores, and the core can only hold back a limited number
 * of stores to such lines, so each store less counts (copying a local cell was three times slower).
 */
static inline uint8_t *event_prep(struct ring_writer *w, uint32_t generation, uint32_t position,
                                  uint32_t kind, uint32_t flags, uint32_t bytes)
{
    uint8_t *cell = ring_prep(w);
    uint64_t which = (uint64_t)position << 32 | generation;
    uint32_t what = bytes << 16 | flags << 8 | kind;
    memcpy(cell + offsetof(struct event_cell, generation), &which, sizeof(which));
    memcpy(cell + offsetof(struct event_cell, kind), &what, sizeof(what));
    return cell + offsetof(struct event_cell, payload);
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "event_prep joins fields as x86 and ARM do");

/* Publishes n tokens at position, position + 1, ..., 12 to a cell; all or nothing. Returns 0,
 * -EAGAIN (no room beyond the reserve: nothing was written) or -EPROTO. tokens: [n], n >= 1. */
int event_put_many(struct ring_writer *w, uint32_t generation, uint32_t position,
                   const uint32_t *tokens, uint32_t n);
static inline int event_put_tokens(struct ring_writer *w, uint32_t generation, uint32_t position,
                                   const uint32_t *tokens, uint32_t n)
{
    if (n != 1 || ring_space_known(w) <= EVENT_RUN_CELLS)
        return event_put_many(w, generation, position, tokens, n);
    memcpy(event_prep(w, generation, position, EVENT_TOKENS, 0, sizeof(*tokens)), tokens,
           sizeof(*tokens));
    ring_publish(w);
    return 0;
}

/* Publishes one token with its log-probability and n_top alternatives. top: [head->n_top]. Returns
 * as above. */
int event_put_logprob(struct ring_writer *w, uint32_t generation, uint32_t position,
                      const struct event_logprob *head, const struct event_top *top);

/* Publishes the end, if necessary from the reserve. `length`: the sequence's length. Returns 0;
 * -EAGAIN when not even the reserve is free (possible only when no request was running: its refusal
 * must wait); -EPROTO. */
int event_put_done(struct ring_writer *w, uint32_t generation, uint32_t length,
                   const struct event_done *done);

/* Publishes the answer to a SUBMIT_NOP. Returns as event_put_tokens(). */
int event_put_nop(struct ring_writer *w, uint32_t generation, uint64_t cookie);

/* ---- events: client -------------------------------------------------------------------------- */

struct event_run {
    uint32_t generation;
    uint32_t position;
    uint32_t kind;  /* enum event_kind */
    uint32_t cells; /* to release after use */
    uint32_t bytes; /* payload */
    _Alignas(8) uint8_t payload[EVENT_RUN_BYTES];
};

/* Copies the next whole run without consuming it. Returns 1, 0 when there is none yet, -EPROTO when
 * the ring is malformed (an unknown kind is not an error: skip it, the daemon is newer). */
int event_next(const struct ring_reader *r, struct event_run *ret_run);

/* EVENT_TOKENS: returns the number of tokens; *ret_tokens points into the run. */
uint32_t event_tokens(const struct event_run *run, const uint32_t **ret_tokens);

/* EVENT_LOGPROBS: the record at *offset (start with 0), which is advanced past it. ret_top:
 * [EVENT_TOP_MAX]. Returns 1, 0 at the end, -EPROTO. */
int event_logprob_next(const struct event_run *run, uint32_t *offset,
                       struct event_logprob *ret_head, struct event_top *ret_top);

/* EVENT_DONE (its text is zero-terminated) and EVENT_NOP. Return 0 or -EPROTO. */
int event_done(const struct event_run *run, struct event_done *ret_done);
int event_nop(const struct event_run *run, uint64_t *ret_cookie);

#endif
