/* pool: see pool.h. */
#include "client/http/pool.h"

#include "client/http/prefix_break.h"
#include "ipc/bell.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    FULL_AGAIN_NS = 1000000000,
    CONNECT_MS = 300000 /* the service manager may load a model meanwhile */
};

static void join(struct pool *p);

/* ---- the queue ------------------------------------------------------------------------------- */

/* The free handle for a request: see pool.h. Among equals the least recently used. */
static struct pool_handle *choose(struct pool *p, const struct job *job)
{
    struct pool_handle *best = NULL;
    uint32_t best_common = 0;
    if (job->id_slot >= 0) {
        struct pool_handle *s = &p->handles[(uint32_t)job->id_slot % p->n_handles];
        if (s->h && !s->job)
            return s;
    }
    for (uint32_t i = 0; i < p->n_handles; i++) {
        struct pool_handle *s = &p->handles[i];
        if (!s->h || s->job)
            continue;
        uint32_t n = pool_handle_common(s, &job->request);
        if (!best || n > best_common || (n == best_common && s->used_ns < best->used_ns)) {
            best = s;
            best_common = n;
        }
    }
    return best;
}

/* The library's refusal of a job. Where the prompt fits the context, -E2BIG is about something
 * else, and a shorter prompt would not help. Returns -1. */
static int refusal(const struct pool *p, const struct job *job, int rc, const char *what,
                   struct fail *f)
{
    fail_library(f, rc, what);
    if (rc == -E2BIG && job->request.n_tokens <= p->model.context)
        f->type = FAIL_INVALID;
    return -1;
}

static void dispatch(struct pool *p, struct pool_handle *s, struct job *job)
{
    struct fail f;
    job->request.cookie = job->id;
    if (job->tells_break)
        prefix_break_tell(s->h, (int)(s - p->handles), &s->tokens, &job->request,
                          pool_handle_common(s, &job->request));
    pool_handle_set_tokens(s, &job->request);
    int rc = hearth_submit(s->h, 0, &job->request);
    if (rc) {
        job->at = JOB_NOWHERE;
        (void)refusal(p, job, rc, hearth_error(s->h), &f);
        if (rc == -ECONNRESET)
            pool_handle_close(s);
        job->on_lost(job, &f);
        return;
    }
    job->at = job->ran_at = (int)(s - p->handles);
    s->job = job;
    s->n_requests++;
    job->on_running(job);
    if (job->is_alone && !p->first && pool_running(p) == 1) /* nobody else waits meanwhile */
        pool_handle_await(s);
    else
        pool_handle_drain(s);
}

/* Start-time fair queueing (Goyal, Vin, Cheng 1996), where each job costs the same. */
static void push(struct pool *p, struct job *job)
{
    struct job **at = &p->first;
    job->turn = p->turn + 1 + job->nth;
    while (*at && (*at)->turn <= job->turn)
        at = &(*at)->next;
    job->next = *at;
    *at = job;
    p->n_queued++;
}

static struct job *pop(struct pool *p)
{
    struct job *job = p->first;
    p->turn = job->turn;
    p->first = job->next;
    job->next = NULL;
    p->n_queued--;
    return job;
}

/* Gives free handles to queued jobs, and connects one more where none is free. */
static void kick(struct pool *p)
{
    if (p->kicking)
        return;
    p->kicking = true;
    while (p->first) {
        struct pool_handle *s = choose(p, p->first);
        if (s && pool_handle_is_away(s)) {
            pool_handle_close(s);
            continue;
        }
        if (!s)
            break;
        dispatch(p, s, pop(p));
    }
    p->kicking = false;
    if (p->first && pool_connected(p) < p->n_handles &&
        (!pool_connected(p) || bell_now_ns() - p->full_ns > FULL_AGAIN_NS))
        join(p);
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* Is the failure temporary: all slots of the daemon are taken, or this process is out of
 * descriptors? */
static bool is_scarce(int rc)
{
    return rc == -EBUSY || rc == -EAGAIN || rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM;
}

static void on_readable(struct watch *w, uint32_t events)
{
    struct pool_handle *s = (struct pool_handle *)w; /* its first member */
    (void)events;
    pool_handle_drain(s);
    kick(s->pool);
}

static void learn_model(struct pool *p, struct hearth *h)
{
    struct hearth_info info = {.size = sizeof(info)};
    if (hearth_info(h, &info) < 0)
        return;
    struct pool_model *m = &p->model;
    snprintf(m->name, sizeof(m->name), "%s", info.model);
    snprintf(m->numerics, sizeof(m->numerics), "%s", info.numerics);
    snprintf(m->fingerprint, sizeof(m->fingerprint), "%s", info.fingerprint);
    snprintf(m->version, sizeof(m->version), "%s", info.server_version);
    snprintf(m->socket, sizeof(m->socket), "%s", info.socket_path);
    m->context = info.context;
    m->n_vocab = info.n_vocab;
    m->bos = info.bos;
    m->eos = info.eos;
    if (!m->since)
        m->since = (uint64_t)time(NULL);
}

/* A connection becomes the first handle that has none. */
static void add_handle(struct pool *p, struct hearth *h)
{
    uint32_t i = 0;
    while (i < p->n_handles && p->handles[i].h)
        i++;
    if (i == p->n_handles) {
        hearth_close(h);
        return;
    }
    if (pool_handle_open(&p->handles[i], h, on_readable) < 0)
        return;
    learn_model(p, h);
    pool_handle_drain(&p->handles[i]);
}

/* An attempt to connect ended: with a handle, or -errno and a line. */
static void joined(struct pool *p, struct hearth *h, int rc, const char *err)
{
    struct fail f;
    if (h) {
        add_handle(p, h);
        kick(p);
        p->on_connect(p->owner, NULL);
        return;
    }
    bool scarce = is_scarce(rc);
    if (scarce)
        p->full_ns = bell_now_ns();
    fail_library(&f, rc, err);
    f.status = 503;
    f.type = FAIL_UNAVAILABLE;
    /* Where a resource is short, queued jobs wait for the handles that there are. */
    while (p->first && (!scarce || !pool_connected(p))) {
        struct job *job = pop(p);
        job->at = JOB_NOWHERE;
        job->on_lost(job, &f);
    }
    p->on_connect(p->owner, &f);
}

static void on_answer(struct watch *w, uint32_t events)
{
    struct pool *p = (struct pool *)((char *)w - offsetof(struct pool, joining_watch));
    struct hearth *h = p->joining;
    char err[256];
    (void)events;
    int rc = hearth_ready(h);
    if (!rc)
        return;
    reactor_unwatch(p->loop, w);
    p->joining = NULL;
    if (rc < 0) {
        snprintf(err, sizeof(err), "%s", hearth_error(h));
        hearth_close(h);
        h = NULL;
    }
    joined(p, h, rc, err);
}

/* Connects one more handle, unless one is connecting. A socket-activated daemon answers when it has
 * loaded its model. */
static void join(struct pool *p)
{
    struct hearth_options o;
    char err[256] = "";
    if (p->joining)
        return;
    hearth_options_init(&o, sizeof(o));
    o.flags = HEARTH_POLLABLE | HEARTH_NONBLOCK;
    o.connect_timeout_ms = CONNECT_MS;
    o.resume_ms = p->resume_ms;
    int rc = hearth_connect(p->path, &o, &p->joining, err, sizeof(err));
    if (!rc) {
        p->joining_watch = (struct watch){.fd = hearth_fd(p->joining), .on = on_answer};
        rc = reactor_watch(p->loop, &p->joining_watch, EPOLLIN);
    }
    if (!rc)
        return;
    hearth_close(p->joining);
    p->joining = NULL;
    joined(p, NULL, rc, *err ? err : strerror(-rc));
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Refuses at once what the library would refuse when the job's turn comes. Without a daemon this is
 * not known yet. */
static int check(struct pool *p, const struct job *job, struct fail *f)
{
    struct hearth *h = pool_any(p);
    int rc = h ? hearth_check(h, &job->request) : 0;
    return rc && rc != -ECONNRESET ? refusal(p, job, rc, hearth_error(h), f) : 0;
}

int pool_submit(struct pool *p, struct job *job, struct fail *f)
{
    job->id = ++p->last_id;
    job->at = job->ran_at = JOB_NOWHERE;
    if (check(p, job, f) < 0)
        return -1;
    if (p->n_queued >= p->queue_max)
        return fail_set(f, 503, FAIL_UNAVAILABLE,
                        "all %u slots are busy and %u requests wait already: try again in a moment",
                        p->n_handles, p->n_queued);
    job->at = JOB_QUEUED;
    push(p, job);
    kick(p);
    return 0;
}

static void unqueue(struct pool *p, struct job *job)
{
    struct job **at = &p->first;
    while (*at && *at != job)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = job->next;
    p->n_queued--;
}

void pool_cancel(struct pool *p, struct job *job)
{
    int at = job->at;
    job->at = JOB_NOWHERE; /* first: what follows may call back */
    if (at == JOB_QUEUED) {
        unqueue(p, job);
    } else if (at >= 0) {
        struct pool_handle *s = &p->handles[at];
        if (job->paused)
            reactor_change(p->loop, &s->watch, EPOLLIN);
        s->job = NULL;
        s->used_ns = bell_now_ns();
        (void)hearth_cancel(s->h, 0);
        pool_handle_drain(s);
        kick(p);
    }
}

void pool_stop(struct pool *p, struct job *job)
{
    if (job->at < 0)
        return;
    struct pool_handle *s = &p->handles[job->at];
    (void)hearth_cancel(s->h, 0);
    pool_handle_drain(s);
}

void pool_pause(struct pool *p, struct job *job)
{
    if (job->at < 0 || job->paused)
        return;
    job->paused = true;
    reactor_change(p->loop, &p->handles[job->at].watch, 0);
}

void pool_unpause(struct pool *p, struct job *job)
{
    if (!job->paused)
        return;
    job->paused = false;
    if (job->at < 0)
        return;
    struct pool_handle *s = &p->handles[job->at];
    reactor_change(p->loop, &s->watch, EPOLLIN);
    pool_handle_drain(s);
    kick(p);
}

/* ---- the rest -------------------------------------------------------------------------------- */

void pool_init(struct pool *p)
{
    for (uint32_t i = 0; i < p->n_handles; i++)
        p->handles[i].loop = p->loop, p->handles[i].pool = p;
}

void pool_fini(struct pool *p)
{
    if (p->joining)
        reactor_unwatch(p->loop, &p->joining_watch);
    hearth_close(p->joining);
    p->joining = NULL;
    for (uint32_t i = 0; i < p->n_handles; i++) {
        struct pool_handle *s = &p->handles[i];
        s->job = NULL;
        pool_handle_close(s);
        token_list_fini(&s->tokens);
    }
}

uint32_t pool_running(const struct pool *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_handles; i++)
        n += p->handles[i].job != NULL;
    return n;
}

uint32_t pool_connected(const struct pool *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_handles; i++)
        n += p->handles[i].h != NULL;
    return n;
}

uint64_t pool_lost(const struct pool *p)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_handles; i++)
        n += p->handles[i].n_lost;
    return n;
}

struct hearth *pool_any(struct pool *p)
{
    for (uint32_t i = 0; i < p->n_handles; i++)
        if (p->handles[i].h)
            return p->handles[i].h;
    return NULL;
}

bool pool_is_up(struct pool *p)
{
    for (uint32_t i = 0; i < p->n_handles; i++)
        if (p->handles[i].h && !pool_handle_is_away(&p->handles[i]))
            return true;
    return false;
}

void pool_connect(struct pool *p)
{
    if (!pool_is_up(p))
        join(p);
}
