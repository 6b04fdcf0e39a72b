/* next.c - events out of shared memory: what hearth_next() does.
 *
 * Cells of another generation than the slot's are dropped unseen, so a caller never gets a token of
 * a request that it has superseded or cancelled. What several cells hold already is given out as
 * one event.
 */
#include "client/handle.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVENT_TOKENS_AT_ONCE = 256,
    GUARD_NS = 100000, /* a timer fires up to this late, so stop sleeping this early and spin */
    FIRST_SPIN_NS =
        20000, /* while the daemon is awake and the first token may come at any moment */
    PROGRESS_NS = 250000000,    /* between two looks at the progress of a prefill */
    SOCKET_LOOK_NS = 100000000, /* between two looks for a hang-up by a caller who never waits */
};

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

/* Would a run of this generation and kind be delivered to nobody? */
static int is_void(const struct client_slot *s, uint32_t generation, uint32_t kind)
{
    if (s->state == CLIENT_RUNNING)
        return generation != s->generation;
    return s->state != CLIENT_CANCELLED || generation != s->ending || kind != EVENT_DONE;
}

int events_drop_void(struct client_slot *s)
{
    struct event_run run;
    int rc, dropped = 0;
    while ((rc = event_next(&s->events, &run)) > 0 && is_void(s, run.generation, run.kind)) {
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
                struct event_run *more = realloc(s->backlog, room * sizeof *more);
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
            ring_release(&s->events, s->backlog[s->backlog_n].cells);
            if (!events_is_shutdown(h, s, &s->backlog[s->backlog_n]))
                s->backlog_n++;
        }
    }
    return 0;
}

/* ---- what a run brings ----------------------------------------------------------------------- */

static int is_stop_token(const struct client_slot *s, uint32_t id)
{
    for (uint32_t i = 0; i < s->n_stop_tokens; i++)
        if (s->stop_tokens[i] == id)
            return 1;
    return 0;
}

/* One accepted token: its id, and its bytes unless they are no text. */
static int add_token(struct hearth *h, struct client_slot *s, uint32_t id)
{
    if (token_list_push(&s->ids, id))
        return -ENOMEM;
    if (vocab_is_control(&h->vocab, id) || is_stop_token(s, id))
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
    int rc = grow(&list, &s->logprobs_room, s->n_logprobs + 1, sizeof *s->logprobs);
    s->logprobs = list;
    if (!rc)
        rc = grow(&tops, &s->tops_room, s->n_tops + head->n_top + 1, sizeof *s->tops);
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
        int rc = add_logprob(s, &head, top);
        if (!rc)
            rc = add_token(h, s, head.token);
        if (rc)
            return rc;
    }
    return more;
}

static char *put_hex(char *to, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
    *to = 0;
    return to;
}

/* hearth1:MODEL:NUMERICS:REQUEST:ANSWER, the hashes in hex. */
static void make_receipt(struct client_slot *s)
{
    char model[33], request[33], answer[33];
    put_hex(model, s->done.model, 16);
    put_hex(request, s->done.request_hash, 16);
    put_hex(answer, s->done.output_hash, 16);
    snprintf(s->receipt, sizeof s->receipt, "hearth1:%s:%s:%s:%s", model, s->done.numerics, request,
             answer);
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
    };
}

/* The end of the slot's request: what was held back becomes text, unless the caller cancelled. */
static int end_slot(struct hearth *h, struct client_slot *s)
{
    int rc = s->state == CLIENT_RUNNING ? answer_finish(&s->answer) : 0;
    make_result(h, s);
    s->state = CLIENT_ENDED;
    return rc;
}

static int take_done(struct hearth *h, struct client_slot *s, const struct event_run *run)
{
    int rc = event_done(run, &s->done);
    if (rc)
        return rc;
    /* A cell that the daemon finds void was superseded for it; here nothing newer was sent. And an
     * answer that was whole by then did not reach the caller whole. */
    if (s->state == CLIENT_CANCELLED && s->done.reason != DONE_ERROR)
        s->done.reason = DONE_CANCELLED;
    make_receipt(s);
    return end_slot(h, s);
}

int events_is_shutdown(const struct hearth *h, const struct client_slot *s,
                       const struct event_run *run)
{
    struct event_done done;
    return h->resume.ms && s->state == CLIENT_RUNNING && run->kind == EVENT_DONE &&
           run->generation == s->generation && !(s->cell.flags & SUBMIT_FAST) &&
           event_done(run, &done) == 0 && done.error == -ESHUTDOWN;
}

/* Takes the slot's runs until an event is full or there is no more. Returns 0, -EPROTO or -ENOMEM.
 */
static int take_runs(struct hearth *h, struct client_slot *s)
{
    struct event_run run;
    int rc = 0, taken = 0;
    while (!rc && s->ids.n - s->told < EVENT_TOKENS_AT_ONCE && s->state != CLIENT_ENDED) {
        int found = run_next(s, &run);
        if (found <= 0) {
            rc = found;
            break;
        }
        run_release(s, &run);
        taken = 1;
        if (is_void(s, run.generation, run.kind))
            continue;
        if (events_is_shutdown(h, s, &run))
            resume_daemon_gone(h, -EPIPE);
        else if (run.kind == EVENT_TOKENS)
            rc = take_tokens(h, s, &run);
        else if (run.kind == EVENT_LOGPROBS)
            rc = take_logprobs(h, s, &run);
        else if (run.kind == EVENT_DONE)
            rc = take_done(h, s, &run);
    }
    if (taken)
        bell_ring(h->ctl, h->bell_fd); /* the daemon may have waited for room (R2, S2) */
    return rc;
}

/* The daemon is dead for good, or for this request, and the slot's ring is read to its end. */
static int end_without_daemon(struct hearth *h, struct client_slot *s)
{
    int is_error = s->state == CLIENT_RUNNING;
    memset(&s->done, 0, sizeof s->done);
    s->done.reason = is_error ? DONE_ERROR : DONE_CANCELLED;
    s->done.error = is_error ? -ECONNRESET : 0;
    s->done.prompt = s->prompt;
    s->done.output = (uint32_t)s->ids.n;
    if (is_error)
        snprintf(s->done.text, sizeof s->done.text, "%.240s", s->lost ? s->lost : h->error);
    memcpy(s->done.numerics, h->welcome.numerics, sizeof s->done.numerics);
    s->receipt[0] = 0; /* nobody vouches for a part of an answer */
    return end_slot(h, s);
}

/* ---- events ---------------------------------------------------------------------------------- */

static struct hearth_event *event_new(struct hearth *h, uint32_t slot, uint32_t kind)
{
    const struct client_slot *s = &h->slots[slot];
    h->event = (struct hearth_event){.kind = kind, .slot = slot, .cookie = s->cookie, .text = ""};
    h->event.position = s->prompt + s->told;
    return &h->event;
}

static void tokens_event(struct hearth *h, uint32_t slot)
{
    struct client_slot *s = &h->slots[slot];
    struct hearth_event *e = event_new(h, slot, HEARTH_TOKENS);
    e->n_tokens = (uint32_t)s->ids.n - s->told;
    e->tokens = s->ids.ids + s->told;
    if (s->answer.text_bytes) {
        e->text = s->answer.text;
        e->text_bytes = s->answer.text_bytes;
    }
    if (s->wants_logprobs && s->n_logprobs == e->n_tokens && e->n_tokens) {
        const struct hearth_logprob *top = s->tops;
        for (size_t i = 0; i < s->n_logprobs; i++) {
            s->logprobs[i].top = top;
            top += s->logprobs[i].n_top;
        }
        e->logprobs = s->logprobs;
    }
    s->told = (uint32_t)s->ids.n;
}

static void done_event(struct hearth *h, uint32_t slot)
{
    struct client_slot *s = &h->slots[slot];
    struct hearth_event *e = event_new(h, slot, HEARTH_DONE);
    s->result.n_ids = (uint32_t)s->ids.n;
    s->result.ids = s->ids.ids;
    e->result = &s->result;
    s->state = CLIENT_IDLE;
}

/* How far the prefill is, when that is worth an event. */
static int progress_event(struct hearth *h, uint32_t slot)
{
    struct client_slot *s = &h->slots[slot];
    if (s->state != CLIENT_RUNNING || s->ids.n)
        return 0;
    uint64_t now = bell_now_ns();
    if (now - s->progress_ns < PROGRESS_NS)
        return 0;
    s->progress_ns = now;
    const struct down_slot *line = segment_down_slot(&h->segment, slot);
    uint32_t generation = atomic_load_explicit(&line->generation, memory_order_relaxed);
    uint32_t done = atomic_load_explicit(&line->prefill_done, memory_order_relaxed);
    uint32_t total = atomic_load_explicit(&line->prefill_total, memory_order_relaxed);
    if (generation != s->generation || !total || done > total || done == s->progress_done)
        return 0;
    s->progress_done = done;
    struct hearth_event *e = event_new(h, slot, HEARTH_PROGRESS);
    e->done = done;
    e->total = total;
    return 1;
}

/* Makes the slot's next event in h->event. Returns 1, 0 when there is none, -EPROTO, -ENOMEM. */
static int take_event(struct hearth *h, uint32_t slot)
{
    struct client_slot *s = &h->slots[slot];
    answer_take(&s->answer);
    s->n_logprobs = s->n_tops = 0;
    if (s->state == CLIENT_IDLE)
        return 0;
    int rc = h->dead == -EPROTO ? 0 : take_runs(h, s);
    if (!rc && (h->dead || s->lost) && s->told == s->ids.n && s->state != CLIENT_ENDED)
        rc = end_without_daemon(h, s);
    if (rc)
        return rc;
    if (s->told < s->ids.n || s->answer.text_bytes) {
        tokens_event(h, slot);
        return 1;
    }
    if (s->state == CLIENT_ENDED) {
        done_event(h, slot);
        return 1;
    }
    return progress_event(h, slot);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* The slots that a call is about: [first, first + n), mod the handle's slots. */
struct span {
    struct hearth *h;
    uint32_t first, n;
};

static struct client_slot *span_slot(const struct span *span, uint32_t i)
{
    return &span->h->slots[(span->first + i) % span->h->n_slots];
}

/* Is there a whole run, or nonsense? A daemon that was killed may leave the beginning of one: that
 * is nothing to wake for, or the wait would never come to look whether the daemon lives. */
static int has_run(const struct client_slot *s, struct event_run *ret)
{
    return ring_ready(&s->events) ? event_next(&s->events, ret) : 0;
}

static int is_busy(const struct span *span)
{
    for (uint32_t i = 0; i < span->n; i++)
        if (span_slot(span, i)->state != CLIENT_IDLE)
            return 1;
    return 0;
}

/* Does the ring begin with a run for nobody, or is it broken? */
static int head_is_void(const struct client_slot *s)
{
    struct event_run run;
    int n = has_run(s, &run);
    return n < 0 || (n && is_void(s, run.generation, run.kind));
}

/* Is there something to do: an event of the span, or runs for nobody in any other ring? */
static int is_ready(const void *arg)
{
    const struct span *span = arg;
    struct event_run run;
    for (uint32_t i = 0; i < span->n; i++) {
        const struct client_slot *s = span_slot(span, i);
        if (s->state != CLIENT_IDLE && (s->backlog_at < s->backlog_n || has_run(s, &run)))
            return 1;
    }
    for (uint32_t i = span->n; i < span->h->n_slots; i++)
        if (head_is_void(span_slot(span, i)))
            return 1;
    return 0;
}

/* Gives back what is void in the rings that the call is not about. All slots share one submit ring,
 * and the daemon leaves a cell in it while its slot's event ring has no room: so a slot that nobody
 * reads must not keep the others' requests from being taken. */
static void drop_elsewhere(const struct span *span)
{
    struct hearth *h = span->h;
    int dropped = 0;
    for (uint32_t i = span->n; i < h->n_slots && !h->dead; i++) {
        int rc = head_is_void(span_slot(span, i)) ? events_drop_void(span_slot(span, i)) : 0;
        if (rc < 0)
            resume_daemon_gone(h, rc);
        else
            dropped |= rc;
    }
    if (dropped)
        bell_ring(h->ctl, h->bell_fd);
}

/* A client that spins where the daemon computes on every processor makes its own token late. */
int next_may_spin(const struct hearth *h)
{
    return h->processors > 1 && h->processors > h->ctl->threads;
}

/* Spins only while the daemon is awake, and only shortly before or after the moment when a token is
 * due. */
static struct bell_patience patience(const struct span *span, uint64_t now, uint64_t deadline)
{
    struct hearth *h = span->h;
    struct bell_patience p = {.deadline_ns = now + PROGRESS_NS};
    if (deadline && deadline < p.deadline_ns)
        p.deadline_ns = deadline;
    if (!next_may_spin(h) || atomic_load_explicit(&h->ctl->sleeping, memory_order_relaxed))
        return p;
    int decodes = 0;
    for (uint32_t i = 0; i < span->n; i++)
        decodes |= span_slot(span, i)->ids.n > 0 && span_slot(span, i)->state == CLIENT_RUNNING;
    uint64_t step = atomic_load_explicit(&h->ctl->step_ns, memory_order_relaxed);
    uint64_t at = atomic_load_explicit(&h->ctl->step_at_ns, memory_order_relaxed);
    if (decodes && step && at + step + GUARD_NS > now && at <= now) {
        p.expect_ns = at + step;
        p.guard_ns = GUARD_NS;
    } else
        p.spin_ns = FIRST_SPIN_NS;
    return p;
}

/* Did the daemon hang up? For callers who never wait, and so never get it told by bell_wait(). */
static int socket_is_gone(struct hearth *h)
{
    uint64_t now = bell_now_ns();
    if (h->notify_fd < 0 && now - h->socket_look_ns < SOCKET_LOOK_NS)
        return 0;
    h->socket_look_ns = now;
    struct pollfd p = {.fd = h->socket_fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* Nothing is there and the caller does not wait. Returns 0: go back to the caller; 1: look again.
 */
static int leave(struct span *span)
{
    struct hearth *h = span->h;
    if (!h->dead && socket_is_gone(h)) {
        resume_daemon_gone(h, -EPIPE);
        return 1;
    }
    if (h->notify_fd < 0)
        return 0;
    if (!bell_arm(&h->sleeper, is_ready, span))
        return 1;
    h->armed = 1;
    return 0;
}

/* One event of the span into h->event, or 0, or -errno. */
static int take_any(struct span *span)
{
    struct hearth *h = span->h;
    for (uint32_t i = 0; i < span->n; i++) {
        uint32_t slot = (span->first + i) % h->n_slots;
        int rc = take_event(h, slot);
        if (rc == -EPROTO) {
            resume_daemon_gone(h, rc);
            rc = take_event(h, slot);
        }
        if (rc == -ENOMEM)
            return handle_fail(h, rc, "out of memory: free some and try again");
        if (rc) {
            h->next_slot = slot + 1;
            return rc;
        }
    }
    return 0;
}

static int next_event(struct span *span, int timeout_ms)
{
    struct hearth *h = span->h;
    uint64_t deadline = timeout_ms > 0 ? bell_now_ns() + (uint64_t)timeout_ms * 1000000u : 0;
    for (;;) {
        resume_push(h);
        drop_elsewhere(span);
        int rc = take_any(span);
        if (rc)
            return rc;
        int idle = !is_busy(span);
        if (idle && h->dead)
            return handle_fail(h, -ECONNRESET, "the daemon at %s is gone: connect again", h->path);
        if (idle && (timeout_ms || h->notify_fd < 0))
            return 0;
        if (h->resume.away) {
            rc = resume_wait(h, timeout_ms, deadline);
            if (rc == 1)
                continue;
            return rc ? handle_fail(h, rc, "interrupted by a signal: call again") : 0;
        }
        if (timeout_ms == 0) {
            if (leave(span))
                continue;
            return 0;
        }
        uint64_t now = bell_now_ns();
        if (deadline && now >= deadline)
            return 0;
        const struct bell_patience p = patience(span, now, deadline);
        rc = bell_wait(&h->sleeper, is_ready, span, &p);
        if (rc == -EINTR)
            return handle_fail(h, rc, "interrupted by a signal: call again");
        if (rc == -EPIPE)
            resume_daemon_gone(h, rc);
    }
}

int hearth_next(struct hearth *h, uint32_t slot, const struct hearth_event **ret_event,
                int timeout_ms)
{
    *ret_event = NULL;
    int any = slot == HEARTH_ANY_SLOT;
    int rc = handle_check_slot(h, any ? 0 : slot);
    if (rc)
        return rc;
    if (h->armed) {
        bell_drain(&h->sleeper);
        h->armed = 0;
    }
    struct span span = {
        .h = h, .first = any ? h->next_slot % h->n_slots : slot, .n = any ? h->n_slots : 1};
    rc = next_event(&span, timeout_ms);
    if (rc == 1)
        *ret_event = &h->event;
    return rc;
}
