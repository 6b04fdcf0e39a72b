/* gate_slot.c - see gate_slot.h. */
#include "client/http/pool_handle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

void gate_slot_close(struct slot *s)
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

bool gate_slot_is_away(struct slot *s)
{
    struct hearth_info info = {.size = sizeof info};
    return hearth_info(s->h, &info) < 0 || info.is_away;
}

static void on_readable(struct watch *w, uint32_t events)
{
    struct slot *s = (struct slot *)w; /* its first member */
    (void)events;
    gate_slot_drain(s);
    gate_kick(s->gate);
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

void gate_slot_open(struct gate *g, struct hearth *h)
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
    gate_slot_drain(s);
}

/* ---- what it remembers ----------------------------------------------------------------------- */

void gate_slot_set_tokens(struct slot *s, const struct hearth_request *r)
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

uint32_t gate_slot_common(const struct slot *s, const struct hearth_request *r)
{
    uint32_t n = 0, most = s->n_tokens < r->n_tokens ? s->n_tokens : r->n_tokens;
    while (n < most && s->tokens[n] == r->tokens[n])
        n++;
    return n;
}

/* ---- events ---------------------------------------------------------------------------------- */

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

void gate_slot_drain(struct slot *s)
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
    if (rc < 0 || (!s->job && gate_slot_is_away(s)))
        gate_slot_close(s);
}
