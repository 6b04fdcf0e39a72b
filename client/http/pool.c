/* gate.c - see gate.h. Slots are in gate_slot.c. */
#include "client/http/pool.h"

#include "client/http/pool_handle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FULL_AGAIN_NS = 1000000000,
    CONNECT_MS = 300000 /* the service manager may load a model meanwhile */
};

static void join(struct gate *g);

/* ---- the queue ------------------------------------------------------------------------------- */

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
        uint32_t n = gate_slot_common(s, &job->request);
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
    gate_slot_set_tokens(s, &job->request);
    int rc = hearth_submit(s->h, 0, &job->request);
    if (rc) {
        job->slot = JOB_NOWHERE;
        (void)refusal(g, job, rc, hearth_error(s->h), &f);
        if (rc == -ECONNRESET)
            gate_slot_close(s);
        job->on_lost(job, &f);
        return;
    }
    job->slot = job->ran_at = (int)(s - g->slots);
    s->job = job;
    s->n_requests++;
    g->n_running++;
    gate_slot_drain(s);
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

void gate_kick(struct gate *g)
{
    if (g->kicking)
        return;
    g->kicking = true;
    while (g->first) {
        struct slot *s = choose(g, g->first);
        if (s && gate_slot_is_away(s)) {
            gate_slot_close(s);
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
        gate_slot_open(g, h);
        gate_kick(g);
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
    gate_kick(g);
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
        gate_slot_drain(s);
        gate_kick(g);
    }
}

void gate_stop(struct gate *g, struct job *job)
{
    if (job->slot < 0)
        return;
    struct slot *s = &g->slots[job->slot];
    (void)hearth_cancel(s->h, 0);
    gate_slot_drain(s);
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
    gate_slot_drain(s);
    gate_kick(g);
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
        gate_slot_close(s);
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
        if (g->slots[i].h && !gate_slot_is_away(&g->slots[i]))
            return true;
    return false;
}

void gate_connect(struct gate *g)
{
    if (!gate_is_up(g))
        join(g);
}
