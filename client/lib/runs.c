/* runs: runs of cells become a slot's tokens, text and result.
 *
 * Cells of another generation than the slot's are dropped unseen, so a caller never gets a token of
 * a request that it has superseded or cancelled. */
#include "client/lib/handle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT_TOKENS_AT_ONCE = 256 };

/* ---- taking runs of cells -------------------------------------------------------------------- */

/* The slot's next run: 1, 0, or -EPROTO. From the backlog first: it is older than what the ring
 * holds. */
static int run_next(const struct client_slot *s, struct event_run *ret)
{
    if (s->backlog_at < s->backlog_n) {
        *ret = s->backlog[s->backlog_at];
        return 1;
    }
    return event_next(&s->events, ret);
}

static void run_release(struct client_slot *s, const struct event_run *run)
{
    if (s->backlog_at < s->backlog_n)
        s->backlog_at++;
    else
        ring_release(&s->events, run->cells);
}

int events_is_void(const struct client_slot *s, uint32_t generation, uint32_t kind)
{
    if (s->state == CLIENT_RUNNING)
        return generation != s->generation;
    return s->state != CLIENT_CANCELLED || generation != s->ending || kind != EVENT_DONE;
}

int events_drop_void(struct client_slot *s)
{
    struct event_run run;
    int rc, dropped = 0;
    while ((rc = event_next(&s->events, &run)) > 0 && events_is_void(s, run.generation, run.kind)) {
        ring_release(&s->events, run.cells);
        dropped = 1;
    }
    return rc < 0 ? rc : dropped;
}

int events_drain(struct hearth *h)
{
    for (uint32_t i = 0; i < h->n_slots; i++) {
        struct client_slot *s = &h->slots[i];
        if (s->backlog_at == s->backlog_n)
            s->backlog_at = s->backlog_n = 0;
        for (;;) {
            int dropped = events_drop_void(s);
            if (dropped < 0)
                return dropped;
            if (s->backlog_n == s->backlog_room) {
                size_t room = s->backlog_room ? 2 * s->backlog_room : 16;
                struct event_run *more = realloc(s->backlog, room * sizeof(*more));
                if (!more)
                    return -ENOMEM;
                s->backlog = more;
                s->backlog_room = room;
            }
            int rc = event_next(&s->events, &s->backlog[s->backlog_n]);
            if (rc < 0)
                return rc;
            if (!rc)
                break;
            if (s->backlog_n == s->context) /* more than any answer has, its end included */
                return -EPROTO;
            ring_release(&s->events, s->backlog[s->backlog_n].cells);
            if (!events_is_shutdown(h, s, &s->backlog[s->backlog_n]))
                s->backlog_n++;
        }
    }
    return 0;
}

/* ---- what a run brings ----------------------------------------------------------------------- */

static bool has(const uint32_t *list, uint32_t n, uint32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == id)
            return true;
    return false;
}

/* Are the bytes of this token part of the text? */
static bool is_text(const struct hearth *h, const struct client_slot *s, uint32_t id)
{
    if (has(s->stop_tokens, s->n_stop_tokens, id))
        return false;
    return vocab_is_text(&h->vocab, id) || has(s->shown_tokens, s->n_shown_tokens, id);
}

/* One accepted token: its id, and its bytes unless it has no text. A daemon that goes on past the
 * context would fill our memory. What came before another daemon took over may need more than that
 * one's. */
static int add_token(struct hearth *h, struct client_slot *s, uint32_t id)
{
    if (s->prompt + s->ids.n >= s->context)
        return -EPROTO;
    if (token_list_push(&s->ids, id))
        return -ENOMEM;
    if (!is_text(h, s, id))
        return 0;
    uint32_t n = 0;
    const char *bytes = vocab_bytes(&h->vocab, id, &n);
    return bytes ? answer_feed(&s->answer, bytes, n) : 0;
}

static int grow(void **items, size_t *room, size_t wanted, size_t item_bytes)
{
    if (wanted <= *room)
        return 0;
    size_t more = *room ? *room : 32;
    while (more < wanted)
        more *= 2;
    void *p = realloc(*items, more * item_bytes);
    if (!p)
        return -ENOMEM;
    *items = p;
    *room = more;
    return 0;
}

/* Keeps a token's log-probabilities; `top` is set when the event is made, as the array may move. */
static int add_logprob(struct client_slot *s, const struct event_logprob *head,
                       const struct event_top *top)
{
    void *list = s->logprobs, *tops = s->tops;
    int rc = grow(&list, &s->logprobs_room, s->n_logprobs + 1, sizeof(*s->logprobs));
    s->logprobs = list;
    if (!rc)
        rc = grow(&tops, &s->tops_room, s->n_tops + head->n_top + 1, sizeof(*s->tops));
    s->tops = tops;
    if (rc)
        return rc;
    s->logprobs[s->n_logprobs++] = (struct hearth_token_logprobs){
        .picked = {.token = head->token, .logprob = head->logprob},
        .n_top = head->n_top,
    };
    for (uint32_t i = 0; i < head->n_top; i++)
        s->tops[s->n_tops++] =
            (struct hearth_logprob){.token = top[i].token, .logprob = top[i].logprob};
    return 0;
}

static int take_tokens(struct hearth *h, struct client_slot *s, const struct event_run *run)
{
    const uint32_t *tokens;
    uint32_t n = event_tokens(run, &tokens);
    int rc = 0;
    h->resume.progressed = 1;
    for (uint32_t i = 0; i < n && !rc; i++)
        rc = add_token(h, s, tokens[i]);
    return rc;
}

static int take_logprobs(struct hearth *h, struct client_slot *s, const struct event_run *run)
{
    struct event_logprob head;
    struct event_top top[EVENT_TOP_MAX];
    uint32_t offset = 0;
    int more;
    while ((more = event_logprob_next(run, &offset, &head, top)) > 0) {
        int rc = add_token(h, s, head.token);
        if (!rc)
            rc = add_logprob(s, &head, top);
        if (rc)
            return rc;
    }
    return more;
}

/* hearth1:MODEL:NUMERICS:REQUEST:ANSWER, the hashes in hex. */
static void make_receipt(struct client_slot *s)
{
    char model[33], request[33], answer[33];
    handle_hex(s->done.model, model);
    handle_hex(s->done.request_hash, request);
    handle_hex(s->done.output_hash, answer);
    snprintf(s->receipt, sizeof(s->receipt), "hearth1:%s:%s:%s:%s", model, s->done.numerics,
             request, answer);
}

/* Everything about the end but its ids, which may still grow. */
static void make_result(struct hearth *h, struct client_slot *s)
{
    const struct event_done *d = &s->done;
    s->result = (struct hearth_result){
        .reason = d->reason,
        .error = d->error,
        .error_text = d->text,
        .prompt_tokens = d->prompt,
        .cached_tokens = d->cached,
        .output_tokens = d->output,
        .passes = d->passes,
        .drafted = d->drafted,
        .accepted_drafts = d->accepted_drafts,
        .rollbacks = d->rollbacks,
        .prefill_ns = d->prefill_ns,
        .decode_ns = d->decode_ns,
        .numerics = d->numerics,
        .receipt = s->receipt,
        .model = h->welcome.model,
        .prefix_break = d->prefix_break,
        .stored_tokens = d->stored,
    };
}

/* The end of a request that no daemon told, with the tokens that there are. error: 0 of one that
 * was cancelled. */
static void make_done(struct hearth *h, struct client_slot *s, int error, const char *text)
{
    memset(&s->done, 0, sizeof(s->done));
    s->done.reason = error ? DONE_ERROR : DONE_CANCELLED;
    s->done.error = error;
    s->done.prompt = s->prompt;
    s->done.output = (uint32_t)s->ids.n;
    snprintf(s->done.text, sizeof(s->done.text), "%.240s", text);
    memcpy(s->done.numerics, h->welcome.numerics, sizeof(s->done.numerics));
    s->receipt[0] = 0; /* a partial answer gets no receipt */
}

static const char no_memory[] =
    "out of memory in the middle of the answer: free some and repeat the request";

/* The end of the slot's request: what was held back becomes text, unless the caller cancelled. */
static void end_slot(struct hearth *h, struct client_slot *s)
{
    if (s->state == CLIENT_RUNNING && answer_finish(&s->answer))
        make_done(h, s, -ENOMEM, no_memory);
    make_result(h, s);
    s->state = CLIENT_ENDED;
}

/* A part of the answer was lost for want of memory, so it ends here, with what was given out. */
static void end_without_memory(struct hearth *h, struct client_slot *s)
{
    s->ids.n = s->delivered;
    s->n_logprobs = s->n_tops = 0;
    answer_take(&s->answer);
    submit_void(h, (uint32_t)(s - h->slots), CLIENT_ENDED);
    make_done(h, s, -ENOMEM, no_memory);
    make_result(h, s);
}

static int take_done(struct hearth *h, struct client_slot *s, const struct event_run *run)
{
    int rc = event_done(run, &s->done);
    if (rc)
        return rc;
    /* The daemon reports a void cell as superseded, but nothing newer was sent. And an answer that
     * was complete by then did not reach the caller whole. */
    if (s->state == CLIENT_CANCELLED && s->done.reason != DONE_ERROR)
        s->done.reason = DONE_CANCELLED;
    make_receipt(s);
    end_slot(h, s);
    return 0;
}

int events_is_shutdown(const struct hearth *h, const struct client_slot *s,
                       const struct event_run *run)
{
    struct event_done done;
    return h->resume.ms && s->state == CLIENT_RUNNING && run->kind == EVENT_DONE &&
           run->generation == s->generation && !(s->cell.flags & SUBMIT_FAST) &&
           event_done(run, &done) == 0 && done.error == -ESHUTDOWN;
}

int events_take(struct hearth *h, struct client_slot *s)
{
    struct event_run run;
    int rc = 0, taken = 0;
    while (!rc && s->ids.n - s->delivered < EVENT_TOKENS_AT_ONCE && s->state != CLIENT_ENDED) {
        int found = run_next(s, &run);
        if (found <= 0) {
            rc = found;
            break;
        }
        run_release(s, &run);
        taken = 1;
        if (events_is_void(s, run.generation, run.kind))
            continue;
        if (events_is_shutdown(h, s, &run))
            rc = -ESHUTDOWN;
        else if (run.kind == EVENT_TOKENS)
            rc = take_tokens(h, s, &run);
        else if (run.kind == EVENT_LOGPROBS)
            rc = take_logprobs(h, s, &run);
        else if (run.kind == EVENT_DONE)
            rc = take_done(h, s, &run);
    }
    if (rc == -ENOMEM) {
        end_without_memory(h, s);
        rc = 0;
    }
    if (taken)
        bell_ring(h->ctl, h->bell_fd); /* the daemon may have waited for room (R2, S2) */
    return rc;
}

void events_end_without_daemon(struct hearth *h, struct client_slot *s)
{
    int is_error = s->state == CLIENT_RUNNING;
    make_done(h, s, is_error ? -ECONNRESET : 0, !is_error ? "" : s->lost ? s->lost : h->error);
    end_slot(h, s);
}
