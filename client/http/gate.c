/* gate.c - see gate.h. */
#include "client/http/gate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    FULL_AGAIN_NS = 1000000000,
    CONNECT_MS = 300000 /* the service manager may load a model meanwhile */
};

static void kick(struct gate *g);
static void join(struct gate *g);
static void drain(struct slot *s);

/* ---- slots ----------------------------------------------------------------------------------- */

static void lose_job(struct slot *s, const struct fail *why)
{
    struct job *job = s->job;
    if (!job)
        return;
    s->job = NULL;
    s->gate->n_running--;
    job->slot = JOB_NOWHERE;
    job->on_lost(job, why);
}

static void close_slot(struct slot *s)
{
    struct gate *g = s->gate;
    struct fail f;
    if (!s->h)
        return;
    fail_library(&f, -ECONNRESET, hearth_error(s->h));
    reactor_unwatch(g->loop, &s->watch);
    hearth_close(s->h);
    s->h = NULL;
    s->n_tokens = 0;
    g->n_connected--;
    g->n_lost++;
    lose_job(s, &f);
}

static bool is_away(struct slot *s)
{
    struct hearth_info info = {.size = sizeof info};
    return hearth_info(s->h, &info) < 0 || info.is_away;
}

static void on_readable(struct watch *w, uint32_t events)
{
    struct slot *s = (struct slot *)w; /* its first member */
    (void)events;
    drain(s);
    kick(s->gate);
}

static void learn_model(struct gate *g, struct hearth *h)
{
    struct hearth_info info = {.size = sizeof info};
    if (hearth_info(h, &info) < 0)
        return;
    struct gate_model *m = &g->model;
    snprintf(m->name, sizeof m->name, "%s", info.model);
    snprintf(m->numerics, sizeof m->numerics, "%s", info.numerics);
    snprintf(m->fingerprint, sizeof m->fingerprint, "%s", info.fingerprint);
    snprintf(m->version, sizeof m->version, "%s", info.server_version);
    snprintf(m->socket, sizeof m->socket, "%s", info.socket_path);
    m->context = info.context;
    m->n_vocab = info.n_vocab;
    m->bos = info.bos;
    m->eos = info.eos;
    if (!m->since)
        m->since = (uint64_t)time(NULL);
}

/* A connected handle becomes the first slot that has none. */
static void open_slot(struct gate *g, struct hearth *h)
{
    uint32_t i = 0;
    while (i < g->n_slots && g->slots[i].h)
        i++;
    struct slot *s = &g->slots[i];
    if (i == g->n_slots) {
        hearth_close(h);
        return;
    }
    s->h = h;
    s->watch = (struct watch){.fd = hearth_fd(h), .on = on_readable};
    if (s->watch.fd < 0 || reactor_watch(g->loop, &s->watch, EPOLLIN) < 0) {
        s->h = NULL;
        hearth_close(h);
        return;
    }
    g->n_connected++;
    g->n_connects++;
    learn_model(g, h);
    drain(s);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void set_tokens(struct slot *s, const struct hearth_request *r)
{
    s->n_tokens = 0;
    if (r->n_tokens > s->room) {
        uint32_t *more = realloc(s->tokens, r->n_tokens * sizeof *more);
        if (!more)
            return;
        s->tokens = more;
        s->room = r->n_tokens;
    }
    memcpy(s->tokens, r->tokens, r->n_tokens * sizeof *s->tokens);
    s->n_tokens = r->n_tokens;
}

/* The answer follows its prompt: so the next turn of a chat finds this slot. */
static void add_tokens(struct slot *s, const struct hearth_result *r)
{
    size_t n = (size_t)s->n_tokens + r->n_ids;
    if (!s->n_tokens || !r->n_ids)
        return;
    if (n > s->room) {
        uint32_t *more = realloc(s->tokens, n * sizeof *more);
        if (!more)
            return;
        s->tokens = more;
        s->room = (uint32_t)n;
    }
    memcpy(s->tokens + s->n_tokens, r->ids, r->n_ids * sizeof *s->tokens);
    s->n_tokens = (uint32_t)n;
}

static void deliver(struct slot *s, const struct hearth_event *e)
{
    struct job *job = s->job;
    if (!job || e->cookie != job->id)
        return; /* the end of one that was cancelled */
    if (e->kind == HEARTH_DONE) {
        add_tokens(s, e->result);
        s->job = NULL;
        s->used_ns = reactor_now_ns();
        s->gate->n_running--;
        job->slot = JOB_NOWHERE;
    }
    job->on_event(job, e);
}

/* Takes what is there, until hearth_fd() says when there is more. */
static void drain(struct slot *s)
{
    const struct hearth_event *e;
    int rc = 0;
    if (s->draining || !s->h)
        return;
    s->draining = true;
    while (s->h && !(s->job && s->job->paused) && (rc = hearth_next(s->h, 0, &e, 0)) == 1)
        deliver(s, e);
    s->draining = false;
    if (!s->h || (s->job && s->job->paused))
        return;
    if (rc < 0 || (!s->job && is_away(s)))
        close_slot(s);
}

/* ---- the queue ------------------------------------------------------------------------------- */

static uint32_t common(const struct slot *s, const struct hearth_request *r)
{
    uint32_t n = 0, most = s->n_tokens < r->n_tokens ? s->n_tokens : r->n_tokens;
    while (n < most && s->tokens[n] == r->tokens[n])
        n++;
    return n;
}

/* The free slot for a request: see gate.h. Among equals the one that rested for longest. */
static struct slot *choose(struct gate *g, const struct job *job)
{
    struct slot *best = NULL;
    uint32_t best_common = 0;
    if (job->id_slot >= 0) {
        struct slot *s = &g->slots[(uint32_t)job->id_slot % g->n_slots];
        if (s->h && !s->job)
            return s;
    }
    for (uint32_t i = 0; i < g->n_slots; i++) {
        struct slot *s = &g->slots[i];
        if (!s->h || s->job)
            continue;
        uint32_t n = common(s, &job->request);
        if (!best || n > best_common || (n == best_common && s->used_ns < best->used_ns)) {
            best = s;
            best_common = n;
        }
    }
    return best;
}

/* The library's refusal of a job. What is too much of one that the context holds is no prompt: a
 * shorter one would not help. Returns -1. */
static int refusal(const struct gate *g, const struct job *job, int rc, const char *what,
                   struct fail *f)
{
    fail_library(f, rc, what);
    if (rc == -E2BIG && job->request.n_tokens <= g->model.context)
        f->type = FAIL_INVALID;
    return -1;
}

static void dispatch(struct slot *s, struct job *job)
{
    struct gate *g = s->gate;
    struct fail f;
    job->request.cookie = job->id;
    set_tokens(s, &job->request);
    int rc = hearth_submit(s->h, 0, &job->request);
    if (rc) {
        job->slot = JOB_NOWHERE;
        (void)refusal(g, job, rc, hearth_error(s->h), &f);
        if (rc == -ECONNRESET)
            close_slot(s);
        job->on_lost(job, &f);
        return;
    }
    job->slot = job->ran_at = (int)(s - g->slots);
    s->job = job;
    s->n_requests++;
    g->n_running++;
    drain(s);
}

static struct job *pop(struct gate *g)
{
    struct job *job = g->first;
    g->first = job->next;
    if (!g->first)
        g->last = &g->first;
    job->next = NULL;
    g->n_queued--;
    return job;
}

/* Gives free slots to who waits, and has one more made where none is free. */
static void kick(struct gate *g)
{
    if (g->kicking)
        return;
    g->kicking = true;
    while (g->first) {
        struct slot *s = choose(g, g->first);
        if (s && is_away(s)) {
            close_slot(s);
            continue;
        }
        if (!s)
            break;
        dispatch(s, pop(g));
    }
    g->kicking = false;
    if (g->first && g->n_connected < g->n_slots &&
        (!g->n_connected || reactor_now_ns() - g->full_ns > FULL_AGAIN_NS))
        join(g);
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* Is it for now that there are no more slots, because the daemon's are taken, or this process may open
 * no more descriptors? */
static bool is_scarce(int rc)
{
    return rc == -EBUSY || rc == -EAGAIN || rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM;
}

/* An attempt to connect ended: with a handle, or -errno and a line. */
static void joined(struct gate *g, struct hearth *h, int rc, const char *err)
{
    struct fail f;
    if (h) {
        open_slot(g, h);
        kick(g);
        g->on_connect(g->owner, NULL);
        return;
    }
    bool scarce = is_scarce(rc);
    if (scarce)
        g->full_ns = reactor_now_ns();
    fail_library(&f, rc, err);
    f.status = 503;
    f.type = FAIL_UNAVAILABLE;
    /* Those that we have serve them when one is free. */
    while (g->first && (!scarce || !g->n_connected)) {
        struct job *job = pop(g);
        job->slot = JOB_NOWHERE;
        job->on_lost(job, &f);
    }
    g->on_connect(g->owner, &f);
}

static void on_answer(struct watch *w, uint32_t events)
{
    struct gate *g = (struct gate *)((char *)w - offsetof(struct gate, joining_watch));
    struct hearth *h = g->joining;
    char err[256];
    (void)events;
    int rc = hearth_ready(h);
    if (!rc)
        return;
    reactor_unwatch(g->loop, w);
    g->joining = NULL;
    if (rc < 0) {
        snprintf(err, sizeof err, "%s", hearth_error(h));
        hearth_close(h);
        h = NULL;
    }
    joined(g, h, rc, err);
}

/* Connects one more slot, unless that is going on. A daemon that is only being started (a socket of
 * the service manager) answers when it can. */
static void join(struct gate *g)
{
    struct hearth_options o;
    char err[256] = "";
    if (g->joining)
        return;
    hearth_options_init(&o, sizeof o);
    o.flags = HEARTH_POLLABLE | HEARTH_NONBLOCK;
    o.connect_timeout_ms = CONNECT_MS;
    o.resume_ms = g->resume_ms;
    int rc = hearth_connect(g->path, &o, &g->joining, err, sizeof err);
    if (!rc) {
        g->joining_watch = (struct watch){.fd = hearth_fd(g->joining), .on = on_answer};
        rc = reactor_watch(g->loop, &g->joining_watch, EPOLLIN);
    }
    if (!rc)
        return;
    hearth_close(g->joining);
    g->joining = NULL;
    joined(g, NULL, rc, *err ? err : strerror(-rc));
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* A request that would be refused in its turn is refused now: waiting makes it no better. Without a
 * daemon nobody knows yet. */
static int check(struct gate *g, const struct job *job, struct fail *f)
{
    struct hearth *h = gate_handle(g);
    int rc = h ? hearth_check(h, &job->request) : 0;
    return rc && rc != -ECONNRESET ? refusal(g, job, rc, hearth_error(h), f) : 0;
}

int gate_submit(struct gate *g, struct job *job, struct fail *f)
{
    job->id = ++g->last_id;
    job->slot = job->ran_at = JOB_NOWHERE;
    if (check(g, job, f) < 0)
        return -1;
    if (g->n_queued >= g->queue_max)
        return fail_set(f, 503, FAIL_UNAVAILABLE,
                        "all %u slots are busy and %u requests wait already: try again in a moment",
                        g->n_slots, g->n_queued);
    job->slot = JOB_QUEUED;
    job->next = NULL;
    *g->last = job;
    g->last = &job->next;
    g->n_queued++;
    kick(g);
    return 0;
}

static void unqueue(struct gate *g, struct job *job)
{
    struct job **at = &g->first;
    while (*at && *at != job)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = job->next;
    if (!*at)
        g->last = at;
    g->n_queued--;
}

void gate_cancel(struct gate *g, struct job *job)
{
    int at = job->slot;
    job->slot = JOB_NOWHERE; /* before anything calls back, and finds it here once more */
    if (at == JOB_QUEUED) {
        unqueue(g, job);
    } else if (at >= 0) {
        struct slot *s = &g->slots[at];
        if (job->paused)
            reactor_change(g->loop, &s->watch, EPOLLIN);
        s->job = NULL;
        s->used_ns = reactor_now_ns();
        g->n_running--;
        (void)hearth_cancel(s->h, 0);
        drain(s);
        kick(g);
    }
}

void gate_stop(struct gate *g, struct job *job)
{
    if (job->slot < 0)
        return;
    struct slot *s = &g->slots[job->slot];
    (void)hearth_cancel(s->h, 0);
    drain(s);
}

void gate_pause(struct gate *g, struct job *job)
{
    if (job->slot < 0 || job->paused)
        return;
    job->paused = true;
    reactor_change(g->loop, &g->slots[job->slot].watch, 0);
}

void gate_unpause(struct gate *g, struct job *job)
{
    if (!job->paused)
        return;
    job->paused = false;
    if (job->slot < 0)
        return;
    struct slot *s = &g->slots[job->slot];
    reactor_change(g->loop, &s->watch, EPOLLIN);
    drain(s);
    kick(g);
}

/* ---- the rest -------------------------------------------------------------------------------- */

void gate_open(struct gate *g)
{
    g->last = &g->first;
    for (uint32_t i = 0; i < g->n_slots; i++)
        g->slots[i].gate = g;
    join(g);
}

void gate_close(struct gate *g)
{
    hearth_close(g->joining);
    g->joining = NULL;
    for (uint32_t i = 0; i < g->n_slots; i++) {
        struct slot *s = &g->slots[i];
        s->job = NULL;
        close_slot(s);
        free(s->tokens);
    }
}

struct hearth *gate_handle(struct gate *g)
{
    for (uint32_t i = 0; i < g->n_slots; i++)
        if (g->slots[i].h)
            return g->slots[i].h;
    return NULL;
}

bool gate_is_up(struct gate *g)
{
    for (uint32_t i = 0; i < g->n_slots; i++)
        if (g->slots[i].h && !is_away(&g->slots[i]))
            return true;
    return false;
}

void gate_connect(struct gate *g)
{
    if (!gate_is_up(g))
        join(g);
}
