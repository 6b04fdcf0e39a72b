/* event.c: encodes records into cells and decodes them. */
#include "ipc/event.h"

#include "ipc/fail.h"

_Static_assert(sizeof(struct event_cell) == sizeof(struct ring_cell), "one cell, two views");
_Static_assert(sizeof(struct submit_cell) == sizeof(struct ring_cell), "one cell, two views");
_Static_assert(sizeof(struct event_logprob) + EVENT_TOP_MAX * sizeof(struct event_top) <=
                   EVENT_RUN_BYTES,
               "the longest log-probability record is a run");

int submit_check(const struct submit_cell *c, const struct ipc_limits *limits, char *err,
                 size_t err_bytes)
{
    if (c->slot >= limits->slots)
        return ipc_fail(err, err_bytes, -EPROTO, "the request names slot %u, but the client has %u",
                        c->slot, limits->slots);
    if (c->opcode != SUBMIT_REQUEST && c->opcode != SUBMIT_NOP)
        return ipc_fail(err, err_bytes, -ENOSYS,
                        "unknown opcode %u: is the client newer than the daemon?", c->opcode);
    if (c->zeroes[0] != 0 || c->zeroes[1] != 0)
        return ipc_fail(err, err_bytes, -EINVAL, "reserved bytes of the request are not zero");
    if (c->opcode == SUBMIT_NOP)
        return 0;
    if (c->priority > PRIORITY_BATCH)
        return ipc_fail(err, err_bytes, -EINVAL, "unknown priority %u", c->priority);
    if ((c->flags & ~(uint32_t)SUBMIT_FLAGS) != 0)
        return ipc_fail(err, err_bytes, -EINVAL, "unknown flags 0x%x", c->flags);
    if (c->proposer >= PROPOSER_COUNT)
        return ipc_fail(err, err_bytes, -EINVAL,
                        "unknown proposer %u: is the client newer than the daemon?", c->proposer);
    if (c->length == 0)
        return ipc_fail(err, err_bytes, -EINVAL, "the prompt is empty: it needs at least 1 token");
    if (c->length > limits->context)
        return ipc_fail(err, err_bytes, -E2BIG,
                        "a prompt of %u tokens is longer than the context of %u: shorten it",
                        c->length, limits->context);
    if (c->keep > c->length)
        return ipc_fail(err, err_bytes, -EINVAL, "keep %u is greater than the length %u", c->keep,
                        c->length);
    if (c->prompt_length == 0 || c->prompt_length > c->length)
        return ipc_fail(err, err_bytes, -EINVAL, "prompt length %u is outside 1..%u",
                        c->prompt_length, c->length);
    if (c->params_bytes > limits->params_bytes)
        return ipc_fail(err, err_bytes, -E2BIG,
                        "%u bytes of parameters do not fit %u: fewer biases, stops or guesses",
                        c->params_bytes, limits->params_bytes);
    return 0;
}

/* ---- daemon ---------------------------------------------------------------------------------- */

int event_room(struct ring_writer *w)
{
    int space = ring_space(w);
    if (space < 0)
        return space;
    return space > (int)EVENT_RUN_CELLS ? space - (int)EVENT_RUN_CELLS : 0;
}

/* Makes sure that `cells` cells are free beyond `reserve`; looks at the reader's word only if what
 * is known of it does not suffice. Returns 0, -EAGAIN or -EPROTO. */
static int event_claim(struct ring_writer *w, uint32_t cells, uint32_t reserve)
{
    if (ring_space_known(w) >= cells + reserve)
        return 0;
    int space = ring_space(w);
    if (space < 0)
        return space;
    return (uint32_t)space >= cells + reserve ? 0 : -EAGAIN;
}

int event_put_many(struct ring_writer *w, uint32_t generation, uint32_t position,
                   const uint32_t *tokens, uint32_t n)
{
    int rc = event_claim(w, (n + EVENT_TOKENS_MAX - 1) / EVENT_TOKENS_MAX, EVENT_RUN_CELLS);
    if (rc < 0)
        return rc;
    while (n > 0) {
        uint32_t here = n < EVENT_TOKENS_MAX ? n : EVENT_TOKENS_MAX;
        uint32_t bytes = here * (uint32_t)sizeof(*tokens);
        memcpy(event_prep(w, generation, position, EVENT_TOKENS, 0, bytes), tokens, bytes);
        ring_publish(w);
        tokens += here;
        position += here;
        n -= here;
    }
    return 0;
}

/* What a run's cells have in common. */
struct event_place {
    uint32_t generation, position;
    enum event_kind kind;
};

/* Publishes `bytes` at `payload` as one run and leaves `reserve` cells free. */
static int event_put_run(struct ring_writer *w, struct event_place place, const void *payload,
                         size_t bytes, uint32_t reserve)
{
    uint32_t cells = event_cells(bytes);
    const uint8_t *from = payload;
    int rc = event_claim(w, cells, reserve);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < cells; i++) {
        size_t here = bytes < EVENT_BYTES ? bytes : EVENT_BYTES;
        uint32_t flags = i + 1 < cells ? EVENT_MORE : 0;
        memcpy(event_prep(w, place.generation, place.position, place.kind, flags, (uint32_t)here),
               from, here);
        ring_publish(w);
        from += here;
        bytes -= here;
    }
    return 0;
}

int event_put_logprob(struct ring_writer *w, uint32_t generation, uint32_t position,
                      const struct event_logprob *head, const struct event_top *top)
{
    uint8_t record[sizeof(*head) + EVENT_TOP_MAX * sizeof(*top)];
    struct event_place place = {generation, position, EVENT_LOGPROBS};
    assert(head->n_top <= EVENT_TOP_MAX);
    memcpy(record, head, sizeof(*head));
    if (head->n_top > 0)
        memcpy(record + sizeof(*head), top, head->n_top * sizeof(*top));
    return event_put_run(w, place, record, sizeof(*head) + head->n_top * sizeof(*top),
                         EVENT_RUN_CELLS);
}

int event_put_done(struct ring_writer *w, uint32_t generation, uint32_t length,
                   const struct event_done *done)
{
    struct event_place place = {generation, length, EVENT_DONE};
    size_t bytes = sizeof(*done);
    if (done->stored == 0)
        bytes = offsetof(struct event_done, text) + strnlen(done->text, sizeof(done->text));
    return event_put_run(w, place, done, bytes, 0);
}

int event_put_nop(struct ring_writer *w, uint32_t generation, uint64_t cookie)
{
    int rc = event_claim(w, 1, EVENT_RUN_CELLS);
    if (rc < 0)
        return rc;
    memcpy(event_prep(w, generation, 0, EVENT_NOP, 0, sizeof(cookie)), &cookie, sizeof(cookie));
    ring_publish(w);
    return 0;
}

/* ---- client ---------------------------------------------------------------------------------- */

/* All cells of a run but the last are full, so each is copied whole to an offset known beforehand.
 */
int event_next(const struct ring_reader *r, struct event_run *run)
{
    struct event_cell cell;
    uint32_t ahead = 0;
    do {
        int n = ahead == 0 ? ring_peek(r, &cell) : ring_peek_ahead(r, ahead, &cell);
        if (n <= 0)
            return n;
        if (ahead == 0) {
            run->generation = cell.generation;
            run->position = cell.position;
            run->kind = cell.kind;
        }
        if (ahead == EVENT_RUN_CELLS || cell.bytes > EVENT_BYTES ||
            ((cell.flags & EVENT_MORE) != 0 && cell.bytes != EVENT_BYTES) ||
            cell.kind != run->kind || cell.generation != run->generation)
            return -EPROTO;
        memcpy(run->payload + ahead * EVENT_BYTES, cell.payload, EVENT_BYTES);
        ahead++;
    } while (cell.flags & EVENT_MORE);
    run->cells = ahead;
    run->bytes = (ahead - 1) * EVENT_BYTES + cell.bytes;
    return 1;
}

uint32_t event_tokens(const struct event_run *run, const uint32_t **ret_tokens)
{
    *ret_tokens = (const uint32_t *)(const void *)run->payload;
    return run->kind == EVENT_TOKENS ? run->bytes / 4u : 0;
}

int event_logprob_next(const struct event_run *run, uint32_t *offset, struct event_logprob *head,
                       struct event_top *ret_top)
{
    uint32_t left = run->bytes - *offset;
    if (run->kind != EVENT_LOGPROBS || left == 0)
        return 0;
    if (left < sizeof(*head))
        return -EPROTO;
    memcpy(head, run->payload + *offset, sizeof(*head));
    size_t top_bytes = head->n_top * sizeof(*ret_top);
    if (head->n_top > EVENT_TOP_MAX || left - sizeof(*head) < top_bytes)
        return -EPROTO;
    memcpy(ret_top, run->payload + *offset + sizeof(*head), top_bytes);
    *offset += (uint32_t)(sizeof(*head) + top_bytes);
    return 1;
}

int event_done(const struct event_run *run, struct event_done *done)
{
    if (run->kind != EVENT_DONE || run->bytes < offsetof(struct event_done, text))
        return -EPROTO;
    memset(done, 0, sizeof(*done));
    memcpy(done, run->payload, run->bytes);
    if (run->bytes < sizeof(*done))
        done->stored = 0;
    done->text[sizeof(done->text) - 1] = 0;
    done->numerics[sizeof(done->numerics) - 1] = 0;
    return done->reason >= DONE_EOS && done->reason <= DONE_ERROR ? 0 : -EPROTO;
}

int event_nop(const struct event_run *run, uint64_t *ret_cookie)
{
    if (run->kind != EVENT_NOP || run->bytes != sizeof(*ret_cookie))
        return -EPROTO;
    memcpy(ret_cookie, run->payload, sizeof(*ret_cookie));
    return 0;
}
