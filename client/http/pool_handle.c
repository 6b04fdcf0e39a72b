/* pool_handle: see pool_handle.h. */
#include "client/http/pool_handle.h"

#include "ipc/bell.h"

#include <errno.h>

enum { AWAIT_MS = 1 };

static void lose_job(struct pool_handle *s, const struct fail *why)
{
    struct job *job = s->job;
    if (!job)
        return;
    s->job = NULL;
    job->at = JOB_NOWHERE;
    job->on_lost(job, why);
}

void pool_handle_close(struct pool_handle *s)
{
    struct fail f;
    if (!s->h)
        return;
    fail_library(&f, -ECONNRESET, hearth_error(s->h));
    reactor_unwatch(s->loop, &s->watch);
    hearth_close(s->h);
    s->h = NULL;
    s->tokens.n = 0;
    s->n_lost++;
    lose_job(s, &f);
}

bool pool_handle_is_away(struct pool_handle *s)
{
    struct hearth_info info = {.size = sizeof(info)};
    return hearth_info(s->h, &info) < 0 || info.is_away;
}

int pool_handle_open(struct pool_handle *s, struct hearth *h,
                     void (*on)(struct watch *w, uint32_t events))
{
    s->watch = (struct watch){.fd = hearth_fd(h), .on = on};
    if (s->watch.fd < 0 || reactor_watch(s->loop, &s->watch, EPOLLIN) < 0) {
        hearth_close(h);
        return -1;
    }
    s->h = h;
    return 0;
}

/* ---- what it remembers ----------------------------------------------------------------------- */

void pool_handle_set_tokens(struct pool_handle *s, const struct hearth_request *r)
{
    s->tokens.n = 0;
    (void)token_list_append(&s->tokens, r->tokens, r->n_tokens); /* or it remembers none */
}

uint32_t pool_handle_common(const struct pool_handle *s, const struct hearth_request *r)
{
    uint32_t n = 0;
    while (n < s->tokens.n && n < r->n_tokens && s->tokens.ids[n] == r->tokens[n])
        n++;
    return n;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void deliver(struct pool_handle *s, const struct hearth_event *e)
{
    struct job *job = s->job;
    if (!job || e->cookie != job->id)
        return; /* the end of one that was cancelled */
    if (e->kind == HEARTH_DONE) {
        if (s->tokens.n) /* so the next turn of a chat finds this handle */
            (void)token_list_append(&s->tokens, e->result->ids, e->result->n_ids);
        s->job = NULL;
        s->used_ns = bell_now_ns();
        job->at = JOB_NOWHERE;
    }
    job->on_event(job, e);
}

void pool_handle_drain(struct pool_handle *s)
{
    const struct hearth_event *e;
    bool has_ended = false;
    int rc = 0;
    if (s->draining || !s->h)
        return;
    s->draining = true;
    while (s->h && !has_ended && !(s->job && s->job->paused) &&
           (rc = hearth_next(s->h, 0, &e, 0)) == 1) {
        const struct job *job = s->job;
        deliver(s, e);
        has_ended = job && !s->job;
    }
    s->draining = false;
    /* After its end nothing more comes, and the answer is to be sent: no look at the daemon now. */
    if (!s->h || has_ended || (s->job && s->job->paused))
        return;
    if (rc < 0 || (!s->job && pool_handle_is_away(s)))
        pool_handle_close(s);
}

void pool_handle_await(struct pool_handle *s)
{
    const uint64_t until_ns = bell_now_ns() + AWAIT_MS * 1000000u;
    const struct hearth_event *e;
    if (s->draining)
        return;
    s->draining = true;
    while (s->h && s->job && !s->job->paused && bell_now_ns() < until_ns &&
           hearth_next(s->h, 0, &e, AWAIT_MS) == 1)
        deliver(s, e);
    s->draining = false;
    if (s->job) /* after its end nothing more comes */
        pool_handle_drain(s);
}
