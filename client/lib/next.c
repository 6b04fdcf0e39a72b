/* next: events out of shared memory: what hearth_next() does.
 *
 * What several cells hold already (runs.c) is given out as one event. */
#include "client/lib/handle.h"

#include <errno.h>
#include <poll.h>

enum {
    GUARD_NS = 100000, /* a timer fires up to this late, so stop sleeping this early and spin */
    FIRST_SPIN_NS =
        20000, /* while the daemon is awake and the first token may come at any moment */
    LOOP_SPIN_NS = 200000,   /* the same, of a caller that could have gone back to its event loop */
    WAKE_NS = 30000,         /* within which the daemon is awake, if it has a core */
    PROGRESS_NS = 250000000, /* between two looks at the progress of a prefill */
    SOCKET_LOOK_NS = 100000000, /* between two hang-up checks of a caller that never waits */
};

/* ---- events ---------------------------------------------------------------------------------- */

static struct hearth_event *event_new(struct hearth *h, uint32_t slot, uint32_t kind)
{
    const struct client_slot *s = &h->slots[slot];
    h->event = (struct hearth_event){.kind = kind, .slot = slot, .cookie = s->cookie, .text = ""};
    h->event.position = s->prompt + s->delivered;
    return &h->event;
}

static void tokens_event(struct hearth *h, uint32_t slot)
{
    struct client_slot *s = &h->slots[slot];
    struct hearth_event *e = event_new(h, slot, HEARTH_TOKENS);
    e->n_tokens = (uint32_t)s->ids.n - s->delivered;
    e->tokens = s->ids.ids + s->delivered;
    if (s->answer.text.bytes) {
        e->text = s->answer.text.data;
        e->text_bytes = s->answer.text.bytes;
    }
    if (s->wants_logprobs && s->n_logprobs == e->n_tokens && e->n_tokens) {
        const struct hearth_logprob *top = s->tops;
        for (size_t i = 0; i < s->n_logprobs; i++) {
            s->logprobs[i].top = top;
            top += s->logprobs[i].n_top;
        }
        e->logprobs = s->logprobs;
    }
    s->delivered = (uint32_t)s->ids.n;
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

/* Makes the slot's next event in h->event. Returns 1, 0 when there is none, -EPROTO. */
static int take_event(struct hearth *h, uint32_t slot)
{
    struct client_slot *s = &h->slots[slot];
    answer_take(&s->answer);
    s->n_logprobs = s->n_tops = 0;
    if (s->state == CLIENT_IDLE)
        return 0;
    int rc = h->dead == -EPROTO ? 0 : events_take(h, s);
    for (; rc == -ESHUTDOWN; rc = events_take(h, s))
        resume_daemon_gone(h, -EPIPE);
    if (rc)
        return rc;
    if ((h->dead || s->lost) && s->delivered == s->ids.n && s->state != CLIENT_ENDED)
        events_end_without_daemon(h, s);
    if (s->delivered < s->ids.n || s->answer.text.bytes) {
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

/* Is there a whole run, or garbage? A daemon that was killed may leave the beginning of one: it
 * does not end a wait, which would otherwise never check whether the daemon lives. */
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

/* Is the run at the head of the ring void, or the ring broken? */
static int head_is_void(const struct client_slot *s)
{
    struct event_run run;
    int n = has_run(s, &run);
    return n < 0 || (n && events_is_void(s, run.generation, run.kind));
}

/* Is there something to do: an event of the span, or void runs in any other ring? */
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
 * and the daemon leaves a cell in it while its slot's event ring has no room: so a slot that is not
 * read must not keep the others' requests from being taken. */
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

/* Was the request sent just now, so that the daemon may be waking up? */
static bool is_new(const struct span *span, uint64_t now)
{
    const struct client_slot *s = span_slot(span, 0);
    return span->n == 1 && s->state == CLIENT_RUNNING && now - s->progress_ns < WAKE_NS;
}

/* Spins only while the daemon is awake, and only shortly before or after the moment when a token is
 * due. A caller with an event loop waits for what comes at once: it spins longer, and also while
 * the daemon is being woken, because to sleep and be woken can take as long as a small model's
 * answer. */
static struct bell_patience patience(const struct span *span, uint64_t now, uint64_t deadline)
{
    struct hearth *h = span->h;
    struct bell_patience p = {.deadline_ns = now + PROGRESS_NS};
    if (deadline && deadline < p.deadline_ns)
        p.deadline_ns = deadline;
    if (!next_may_spin(h))
        return p;
    bool has_loop = h->notify_fd >= 0;
    if (atomic_load_explicit(&h->ctl->sleeping, memory_order_relaxed)) {
        if (has_loop && is_new(span, now)) {
            p.spin_ns = WAKE_NS;
            p.deadline_ns = now + WAKE_NS; /* then it looks again */
        }
        return p;
    }
    int decodes = 0;
    for (uint32_t i = 0; i < span->n; i++)
        decodes |= span_slot(span, i)->ids.n > 0 && span_slot(span, i)->state == CLIENT_RUNNING;
    uint64_t step = atomic_load_explicit(&h->ctl->step_ns, memory_order_relaxed);
    uint64_t at = atomic_load_explicit(&h->ctl->step_at_ns, memory_order_relaxed);
    if (decodes && step && at + step + GUARD_NS > now && at <= now) {
        p.expect_ns = at + step;
        p.guard_ns = GUARD_NS;
    } else
        p.spin_ns = has_loop ? LOOP_SPIN_NS : FIRST_SPIN_NS;
    return p;
}

/* Did the daemon hang up? For callers that never wait: others learn it from bell_wait(). */
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
