/* resume: the daemon went away in the middle of answers: wait for the next one, and go on there.
 *
 * Answers are reproducible, so the next daemon (same model, same numerics) continues a request from
 * its prompt and the tokens that were accepted so far. The segments of the dead daemon stay mapped
 * until then: their rings are read to the end, and a prompt and its parameters lie in `up`, where
 * also a request that is made meanwhile goes. A slot keeps its generation, and so its state: what
 * the old ring still held and what the new one brings is one stream. */
#include "client/lib/handle.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { RETRY_NS = 50000000, LATE_NS = 1000000000 };

static const char lost_fast[] =
    "the daemon went away in the middle of the answer, and one that is not deterministic cannot go "
    "on: repeat the request";
static const char lost_context[] =
    "the daemon came back with another --context, where the answer may end elsewhere: repeat the "
    "request";
static const char lost_params[] =
    "the daemon came back with less room for parameters: give fewer stop texts, biases or guessed "
    "tokens";

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int resume_watch(struct hearth *h, int old, int fd)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP};
    if (old >= 0)
        (void)epoll_ctl(h->poll_fd, EPOLL_CTL_DEL, old, NULL);
    return epoll_ctl(h->poll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

/* ---- going away ------------------------------------------------------------------------------ */

/* Makes the descriptor that an event loop polls readable for each attempt. Without a timer the old
 * socket stays in it, which is readable from now on. */
static void tick(struct hearth *h)
{
    const struct itimerspec every = {.it_interval = {.tv_nsec = RETRY_NS}, .it_value.tv_nsec = 1};
    if (h->notify_fd < 0)
        return;
    if (h->timer_fd < 0)
        h->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (h->timer_fd >= 0 && timerfd_settime(h->timer_fd, 0, &every, NULL) == 0)
        (void)resume_watch(h, h->notify_fd, h->timer_fd);
}

static void tick_off(struct hearth *h)
{
    if (h->timer_fd >= 0)
        (void)resume_watch(h, h->timer_fd, h->notify_fd);
    close_fd(&h->timer_fd);
}

/* For good. */
__attribute__((format(printf, 3, 4))) static void die(struct hearth *h, int why, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(h->error, sizeof(h->error), format, args);
    va_end(args);
    h->dead = why;
    h->resume.away = 0;
    close_fd(&h->resume.fd);
    if (h->notify_fd < 0)
        return;
    (void)shutdown(h->notify_fd, SHUT_RD); /* it becomes readable: an event loop notices */
    tick_off(h);
}

static void go_away(struct hearth *h)
{
    uint64_t now = bell_now_ns(), patience_ns = (uint64_t)h->resume.ms * 1000000u;
    h->resume.away = 1;
    h->resume.tried_ns = 0;
    h->resume.looked_ns = now;
    /* A daemon that dies of the same request again and again is waited for once, not for ever. */
    if (h->resume.progressed || now - h->resume.since_ns >= patience_ns) {
        h->resume.deadline_ns = now + patience_ns;
        h->resume.late = 0;
    }
    h->resume.progressed = 0;
    close_fd(&h->socket_fd); /* a daemon that is stopping need not serve us */
    h->sleeper.socket_fd = -1;
    for (uint32_t i = 0; i < h->n_slots; i++) {
        struct client_slot *s = &h->slots[i];
        if (s->state == CLIENT_RUNNING && s->cell.flags & SUBMIT_FAST)
            s->lost = lost_fast;
        else if (s->state == CLIENT_CANCELLED)
            s->lost = "";
    }
    tick(h);
}

void resume_daemon_gone(struct hearth *h, int why)
{
    if (h->dead || (h->resume.away && why != -EPROTO))
        return;
    if (why == -EPROTO)
        die(h, why,
            "the daemon at %s sent what this version does not understand: use hearth and hearthd "
            "of "
            "the same version",
            h->path);
    else if (h->resume.ms && h->n_slots)
        go_away(h);
    else
        die(h, why,
            "the daemon at %s went away in the middle of the answer: start it again and repeat",
            h->path);
}

/* ---- what is taken along --------------------------------------------------------------------- */

static int has_end(const struct client_slot *s)
{
    for (size_t i = s->backlog_at; i < s->backlog_n; i++)
        if (s->backlog[i].kind == EVENT_DONE && s->backlog[i].generation == s->generation)
            return 1;
    return 0;
}

/* Appends what the backlog holds of the answer to tokens[n]. Returns the new n. */
static uint32_t add_backlog(const struct client_slot *s, uint32_t *tokens, uint32_t n, uint32_t max)
{
    for (size_t i = s->backlog_at; i < s->backlog_n; i++) {
        const struct event_run *run = &s->backlog[i];
        const uint32_t *more;
        struct event_logprob head;
        struct event_top top[EVENT_TOP_MAX];
        uint32_t offset = 0, n_more = 0;
        if (run->generation != s->generation)
            continue;
        if (run->kind == EVENT_TOKENS)
            n_more = event_tokens(run, &more);
        for (uint32_t k = 0; k < n_more && n < max; k++)
            tokens[n++] = more[k];
        while (run->kind == EVENT_LOGPROBS && n < max &&
               event_logprob_next(run, &offset, &head, top) > 0)
            tokens[n++] = head.token;
    }
    return n;
}

static uint64_t end_of(const struct submit_cell *cell, uint32_t context)
{
    uint64_t end = (uint64_t)cell->prompt_length + cell->max_tokens;
    return end < context ? end : context;
}

/* Copies the slot's request into the new segment, except for its cell. */
static void carry(struct hearth *h, const struct segment *to, uint32_t slot)
{
    struct client_slot *s = &h->slots[slot];
    struct submit_cell *cell = &s->cell;
    uint32_t context = to->limits.context;
    s->sent = 0;
    s->resubmit = 0;
    if (s->state != CLIENT_RUNNING || s->lost || has_end(s))
        return;
    if (cell->params_bytes > to->limits.params_bytes)
        s->lost = lost_params;
    else if (s->prompt + s->ids.n > context ||
             end_of(cell, context) != end_of(cell, h->segment.limits.context))
        s->lost = lost_context;
    if (s->lost)
        return;
    uint32_t *arena = segment_arena(to, slot), n = s->prompt;
    segment_copy_out(arena, segment_arena(&h->segment, slot), (size_t)n * sizeof(*arena));
    if (s->ids.n)
        segment_copy_out(arena + n, s->ids.ids, s->ids.n * sizeof(*arena));
    n = add_backlog(s, arena, n + (uint32_t)s->ids.n, context);
    segment_copy_out(segment_params(to, slot), segment_params(&h->segment, slot),
                     cell->params_bytes);
    ring_generation_start(&segment_up_slot(to, slot)->generation, s->generation);
    cell->generation = s->generation;
    cell->keep = 0;
    cell->length = s->sent = n;
    s->progress_done = 0;
    s->resubmit = h->resume.pending = 1;
}

void resume_push(struct hearth *h)
{
    if (!h->resume.pending || h->resume.away || h->dead)
        return;
    h->resume.pending = 0;
    for (uint32_t i = 0; i < h->n_slots; i++) {
        struct client_slot *s = &h->slots[i];
        if (!s->resubmit)
            continue;
        int n = ring_space(&h->submit);
        if (n < 0)
            resume_daemon_gone(h, n);
        if (n <= 0) {
            h->resume.pending = 1;
            break;
        }
        ring_push(&h->submit, &s->cell);
        s->resubmit = 0;
    }
    bell_ring(h->ctl, h->bell_fd);
}

/* ---- the next daemon ------------------------------------------------------------------------- */

/* Would this daemon continue with the same tokens? If not, the handle ends, with a line that names
 * what differs. */
static int is_same(struct hearth *h, const struct hello_welcome *w)
{
    char other[33];
    handle_hex(w->fingerprint, other);
    if (memcmp(w->fingerprint, h->welcome.fingerprint, sizeof(w->fingerprint)) != 0 ||
        w->n_vocab != h->welcome.n_vocab)
        die(h, -EPIPE,
            "the daemon at %s came back with another model (fingerprint %.16s, was %.16s): repeat "
            "the request",
            h->path, other, h->fingerprint);
    else if (strncmp(w->numerics, h->welcome.numerics, sizeof(w->numerics)) != 0)
        die(h, -EPIPE,
            "the daemon at %s came back with other numerics (%.24s, was %.24s): repeat the request",
            h->path, w->numerics, h->welcome.numerics);
    return !h->dead;
}

/* The new daemon's memory takes the place of the old one's. Takes all of fds but the vocabulary's,
 * which has not changed. */
static void replace(struct hearth *h, const struct hello_welcome *w, const struct segment *segment,
                    const struct ctl *ctl, int *fds)
{
    h->resume.away = h->resume.pending = h->resume.progressed = 0;
    h->resume.since_ns = bell_now_ns();
    for (uint32_t i = 0; i < h->n_slots; i++)
        carry(h, segment, i);
    segment_close(&h->segment);
    munmap((void *)h->ctl, sizeof(*h->ctl));
    uint64_t vocab_bytes = h->welcome.vocab_bytes; /* of what is mapped */
    memcpy(&h->segment, segment, sizeof(*segment));
    h->ctl = ctl;
    h->welcome = *w;
    h->welcome.vocab_bytes = vocab_bytes;
    close_fd(&h->bell_fd);
    h->bell_fd = fds[HELLO_FD_BELL];
    h->socket_fd = h->resume.fd;
    h->resume.fd = -1;
    fds[HELLO_FD_BELL] = -1;
    if (h->notify_fd >= 0) {
        if (h->timer_fd < 0)
            (void)epoll_ctl(h->poll_fd, EPOLL_CTL_DEL, h->notify_fd, NULL);
        close_fd(&h->notify_fd);
        h->notify_fd = fds[HELLO_FD_NOTIFY];
        fds[HELLO_FD_NOTIFY] = -1;
        if (h->timer_fd < 0)
            (void)resume_watch(h, -1, h->notify_fd);
        else
            tick_off(h);
    }
    for (uint32_t i = 0; i < h->n_slots; i++)
        segment_event_reader(&h->segment, i, &h->slots[i].events);
    segment_submit_writer(&h->segment, &h->submit);
    bell_sleeper_init(&h->sleeper, &segment_down_head(&h->segment)->wake,
                      &segment_up_head(&h->segment)->waiting, h->socket_fd, h->notify_fd);
    h->armed = 0;
    h->resume.times++;
}

/* Maps what the new daemon handed over, and goes on with it. Returns 0, or -errno: try again. */
static int take_over(struct hearth *h, const struct hello_welcome *w, int *fds)
{
    char err[256];
    struct segment segment;
    const void *ctl = NULL;
    if (w->limits.slots != h->n_slots)
        return -EBUSY; /* others were faster: one of them may leave */
    int rc =
        segment_map(&segment, fds[HELLO_FD_UP], fds[HELLO_FD_DOWN], &w->limits, err, sizeof(err));
    if (rc)
        return rc;
    rc = segment_map_sealed(fds[HELLO_FD_CTL], sizeof(struct ctl), &ctl, err, sizeof(err));
    if (!rc) {
        rc = events_drain(h);
        if (rc)
            munmap((void *)ctl, sizeof(struct ctl));
    }
    if (rc) {
        segment_close(&segment);
        return rc;
    }
    replace(h, w, &segment, ctl, fds);
    return 0;
}

/* The answer to our hello, when it is there. */
static void take_answer(struct hearth *h)
{
    char err[256];
    struct hello_welcome w;
    int fds[HELLO_FDS];
    int rc = hello_recv_answer(h->resume.fd, &w, fds, 0, err, sizeof(err));
    if (rc == -ETIMEDOUT)
        return;
    if (rc == -EPROTONOSUPPORT)
        die(h, -EPIPE, "the daemon at %s came back as another version: %s", h->path, err);
    if (!rc && is_same(h, &w))
        rc = take_over(h, &w, fds);
    for (int i = 0; i < HELLO_FDS; i++)
        close_fd(&fds[i]);
    close_fd(&h->resume.fd);
    if (rc == -EPROTO && h->resume.away)
        resume_daemon_gone(h, rc);
}

/* Does the new listener belong to the user of the one before, to ours, or to root? In a folder that
 * everybody may write to, anybody can take the place of a daemon that is gone; the prompt would go to
 * them. */
static bool is_trusted(const struct hearth *h)
{
    const uid_t uid = handle_peer(h->resume.fd);
    return uid == h->daemon_uid || uid == geteuid() || uid == 0;
}

/* Has the program looked away until the time was up, and finds a daemon that may have been there for
 * long? That one gets a moment to answer, once. */
static bool is_late(const struct hearth *h, uint64_t now)
{
    return !h->resume.late && h->resume.fd >= 0 && h->resume.tried_ns == now &&
           now >= h->resume.deadline_ns && now - h->resume.looked_ns >= LATE_NS;
}

static void try(struct hearth *h, uint64_t now)
{
    char err[256];
    if (h->resume.fd < 0 && now - h->resume.tried_ns >= RETRY_NS) {
        h->resume.tried_ns = now;
        h->hello.slots = h->n_slots;
        h->resume.fd = hello_connect_now(h->path, err, sizeof(err));
        if (h->resume.fd >= 0 && !is_trusted(h))
            close_fd(&h->resume.fd);
        if (h->resume.fd >= 0 &&
            hello_send(h->resume.fd, &h->hello, sizeof(h->hello), NULL, 0) != 0)
            close_fd(&h->resume.fd);
    }
    if (h->resume.away && is_late(h, now)) {
        h->resume.late = 1;
        h->resume.deadline_ns = now + LATE_NS;
    }
    h->resume.looked_ns = now;
    if (h->resume.fd >= 0)
        take_answer(h);
    if (h->resume.away && now >= h->resume.deadline_ns)
        die(h, -EPIPE,
            "the daemon at %s went away in the middle of the answer and did not come back within "
            "%d ms: start it again and repeat",
            h->path, h->resume.ms);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int resume_wait(struct hearth *h, int timeout_ms, uint64_t deadline_ns)
{
    uint64_t ticks, now = bell_now_ns();
    if (h->timer_fd >= 0 && read(h->timer_fd, &ticks, sizeof(ticks)) < 0 && errno != EAGAIN)
        return -errno;
    try(h, now);
    if (!h->resume.away)
        return 1;
    if (timeout_ms == 0 || (deadline_ns && now >= deadline_ns))
        return 0;
    uint64_t until = least(now + RETRY_NS, h->resume.deadline_ns);
    if (deadline_ns)
        until = least(until, deadline_ns);
    struct pollfd p = {.fd = h->resume.fd, .events = POLLIN};
    int ms = until > now ? (int)((until - now) / 1000000u) + 1 : 1;
    return poll(&p, 1, ms) < 0 && errno == EINTR ? -EINTR : 1;
}
