/* launcher: see launcher.h. */
#include "client/http/launcher.h"

#include "client/http/exchange.h"
#include "client/http/residency.h"
#include "client/http/dispatch.h"
#include "client/http/say.h"
#include "client/http/state.h"
#include "client/http/status.h"
#include "client/models/describe.h"
#include "ipc/bell.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    LAUNCHES_MAX = 16,
    TICK_S = 5,        /* while a request waits */
    TICK_MOST_S = 60,  /* else: other programs start daemons, too */
    STOP_AGAIN_S = 30, /* after a daemon that did not stop */
};

static void consider(struct launcher *l);

/* ---- which daemons count --------------------------------------------------------------------- */

/* Is it one of this user's? */
static bool is_own(const struct served *d)
{
    const char *path = d->path[0] ? d->path : d->pool.model.socket;
    char folder[HELLO_PATH_BYTES];
    size_t n = daemons_folder(folder) == 0 ? strlen(folder) : 0;
    return n && strncmp(path, folder, n) == 0 && path[n] == '/';
}

static bool is_resident(struct served *d)
{
    return is_own(d) && (pool_is_up(&d->pool) || (d->is_ours && d->pool.joining));
}

/* Was it started for a file of another name, which is only alike or that of its model? */
static bool is_another(const struct served *d, const char *model)
{
    return d->is_ours && strcasecmp(d->file, model) != 0;
}

/* Can a request go there? Not where that would start one of this user's: first there has to be room. */
static bool is_there(struct served *d)
{
    return served_is_there(d) && !(is_own(d) && served_is_asleep(d));
}

/* The default daemon, and those of --pin. */
static bool is_pinned(const struct server *s, const struct served *d)
{
    const struct option_texts *pins = &s->config->pins;
    if (!d->path[0])
        return true;
    for (uint32_t i = 0; i < pins->n; i++)
        if (served_is_named(d, pins->items[i]))
            return true;
    return false;
}

/* How long it stays without a request. */
static uint64_t idle_ns(const struct server *s, const struct served *d)
{
    if (d->has_keep)
        return d->keep_ns;
    return s->config->idle_stop ? s->config->idle_stop * 1000000000ull : UINT64_MAX;
}

/* Fills all[SERVED_MAX] and of[SERVED_MAX], whose daemons these are. */
static struct residency describe(struct server *s, struct resident *all, struct served **of)
{
    const uint64_t now = bell_now_ns();
    struct residency r = {
        .all = all, .budget_bytes = s->config->budget, .stay_ns = s->config->stay * 1000000000ull};
    for (struct served *d = s->served; d && r.n < SERVED_MAX; d = d->next) {
        if (!is_resident(d))
            continue;
        all[r.n] = (struct resident){.bytes = d->bytes,
                                     .since_ns = d->since_ns,
                                     .used_ns = d->used_ns,
                                     .idle_ns = idle_ns(s, d),
                                     .is_busy = d->n_exchanges || d->is_active || d->stop_ns > now,
                                     .is_pinned = is_pinned(s, d)};
        of[r.n++] = d;
    }
    return r;
}

/* ---- asking the daemons ---------------------------------------------------------------------- */

static void ask_daemon(struct task *t, struct hearth *h, int rc, const char *err)
{
    struct survey *q = (struct survey *)t; /* its first member */
    (void)rc, (void)err;
    q->status = h ? status_ask(h) : NULL;
    t->drop = !q->status;
}

/* How many requests the daemon had from other programs than this gateway, but for a constant. */
static uint64_t others_requests(const struct served *d, const json_t *status)
{
    uint64_t n = (uint64_t)json_integer_value(json_object_get(status, "requests_started"));
    for (uint32_t i = 0; i < d->pool.n_handles; i++)
        n -= d->pool.handles[i].n_requests;
    return n;
}

/* One that does not answer is taken for busy: it is not stopped. */
static void daemon_told(struct task *t)
{
    struct survey *q = (struct survey *)t; /* its first member */
    struct served *d = q->served;
    struct launcher *l = &d->server->launcher;
    d->is_asked = false;
    l->n_asked--;
    d->is_active = !q->status || json_integer_value(json_object_get(q->status, "slots_active")) > 0;
    if (q->status) {
        const uint64_t others = others_requests(d, q->status);
        d->bytes = status_bytes(q->status);
        if (others != d->n_others || d->is_active)
            d->used_ns = bell_now_ns();
        d->n_others = others;
    }
    json_decref(q->status);
    q->status = NULL;
    if (!l->n_asked)
        consider(l);
}

static void survey(struct launcher *l)
{
    struct server *s = l->server;
    l->is_stale = false;
    served_look(s);
    for (struct served *d = s->served; d; d = d->next) {
        if (!is_resident(d))
            continue;
        if (!d->since_ns)
            d->since_ns = d->used_ns = bell_now_ns();
        d->survey = (struct survey){.task = {.work = ask_daemon,
                                             .done = daemon_told,
                                             .epoch = pool_lost(&d->pool),
                                             .connect_ms = STATUS_CONNECT_MS},
                                    .served = d};
        d->is_asked = true;
        l->n_asked++;
        worker_give(&d->workers[WORKER_STATUS], &d->survey.task);
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

static bool is_awaited(const struct server *s, const struct launch *one)
{
    for (const struct exchange *x = s->exchanges; x; x = x->next)
        if (x->launch == one && !x->is_gone)
            return true;
    return one->is_pinned;
}

/* The first launch ended: its requests go on, or fail. */
static void finish(struct launcher *l, const struct fail *why)
{
    struct server *s = l->server;
    struct launch *one = l->first;
    l->first = one->next;
    l->n--;
    l->due_ns = 0;
    for (struct served *d = s->served; d; d = d->next)
        d->gives_way = false;
    if (why)
        say(4, why->message);
    for (struct exchange *x = s->exchanges, *next; x; x = next) {
        next = x->next;
        if (x->launch != one)
            continue;
        x->launch = NULL;
        dispatch_launched(x, why);
    }
    free(one);
}

static void fail_start(struct launcher *l, const char *line)
{
    struct fail f;
    fail_set(&f, 503, FAIL_UNAVAILABLE, "cannot start a daemon for %.100s: %.300s",
             l->first->needs.name, line);
    finish(l, &f);
}

/* hearth serve has started the first launch's daemon. NULL: it is not found. */
static struct served *take_started(struct launcher *l)
{
    served_look(l->server);
    struct served *d = served_find(l->server, l->first->needs.name);
    if (d) {
        d->is_ours = true;
        snprintf(d->file, sizeof(d->file), "%s", l->first->needs.name);
    }
    return d;
}

static void started(struct child *c, int code, const char *line)
{
    struct launcher *l = (struct launcher *)((char *)c - offsetof(struct launcher, child));
    const struct launch *one = l->first;
    struct served *d = code == 0 ? take_started(l) : NULL;
    if (!d) {
        fail_start(l, code == 0 ? "it does not listen where this gateway looks" : line);
    } else {
        d->has_keep = false;
        d->bytes = one->needs.bytes;
        d->since_ns = d->used_ns = bell_now_ns();
        pool_connect(&d->pool);
        finish(l, NULL);
    }
    consider(l);
}

static void start(struct launcher *l)
{
    char kv[32];
    const struct launch *one = l->first;
    snprintf(kv, sizeof(kv), "%" PRIu64, one->needs.kv_bytes);
    const char *const argv[] = {l->program, "serve", "--kv-bytes", kv, "--", one->needs.name, NULL};
    l->child.done = started;
    int rc = child_run(&l->child, &l->server->loop, argv);
    if (rc)
        fail_start(l, strerror(-rc));
}

/* It is asked again after a while. */
static void not_stopped(struct served *d, const char *why)
{
    char text[CHILD_LINE_BYTES + 128];
    d->stop_ns = bell_now_ns() + STOP_AGAIN_S * 1000000000ull;
    snprintf(text, sizeof(text), "%s does not stop: %s", served_name(d), why);
    say(4, text);
}

static void stopped(struct child *c, int code, const char *line)
{
    struct launcher *l = (struct launcher *)((char *)c - offsetof(struct launcher, child));
    struct served *d = l->stopping;
    l->stopping = NULL;
    if (code == 0) {
        d->is_ours = d->has_keep = false;
        d->since_ns = 0;
    } else {
        not_stopped(d, line);
    }
    consider(l);
}

/* By its socket: had it just ended, its name could be the beginning of another one's, or the name of
 * another one's model. */
static void stop(struct launcher *l, struct served *d)
{
    const char *const argv[] = {l->program, "stop", "--socket", d->path, NULL};
    l->child.done = stopped;
    int rc = child_run(&l->child, &l->server->loop, argv);
    if (rc)
        not_stopped(d, strerror(-rc));
    else
        l->stopping = d;
}

/* ---- what is to be done ---------------------------------------------------------------------- */

static void never_fits(struct launcher *l)
{
    const struct launch *one = l->first;
    struct fail f;
    fail_set(&f, 503, FAIL_UNAVAILABLE,
             "%.120s needs %" PRIu64 " MiB; the default daemon and pinned models leave less of "
             "--budget, %" PRIu64 " MiB: give a larger one, or take a smaller model",
             one->needs.name, (one->needs.bytes >> 20) + 1, l->server->config->budget >> 20);
    finish(l, &f);
}

/* Room for the first launch. Returns true where another one may be looked at. */
static bool make_room(struct launcher *l)
{
    struct resident all[SERVED_MAX];
    struct served *of[SERVED_MAX];
    struct launch *one = l->first;
    struct residency r = describe(l->server, all, of);
    const uint64_t now = bell_now_ns();
    if (!one->since_ns)
        one->since_ns = now;
    enum residency_verdict verdict = residency_plan(&r, one->needs.bytes, now);
    if (verdict == RESIDENCY_NEVER) {
        never_fits(l);
        return true;
    }
    if (verdict == RESIDENCY_FITS) {
        start(l);
        return !l->child.pid;
    }
    /* Requests that follow each other without a gap keep a model busy for ever: after a while new
     * ones wait their turn. */
    bool is_long = now - one->since_ns >= r.stay_ns;
    l->due_ns = residency_due(&r);
    for (size_t i = 0; i < r.n; i++) {
        of[i]->gives_way = all[i].gives_way && is_long;
        if (all[i].gives_way && verdict == RESIDENCY_STOP && !l->child.pid)
            stop(l, of[i]);
    }
    return false;
}

static void stop_idle(struct launcher *l)
{
    struct resident all[SERVED_MAX];
    struct served *of[SERVED_MAX];
    struct residency r = describe(l->server, all, of);
    size_t i = residency_idle(&r, bell_now_ns());
    if (i < r.n)
        stop(l, of[i]);
}

static void measured(struct task *t)
{
    struct launch *one = (struct launch *)t; /* its first member's first member */
    one->is_measured = true;
    consider(one->launcher);
}

/* Takes the first launch further. Returns true where another one may be looked at. */
static bool go_on(struct launcher *l)
{
    struct launch *one = l->first;
    struct served *d = served_find(l->server, one->needs.name);
    const bool goes_there = d && is_there(d) && d != l->stopping && !is_another(d, one->needs.name);
    if (!is_awaited(l->server, one) || goes_there) {
        finish(l, NULL);
        return true;
    }
    if (one->needs.fail.status) {
        finish(l, &one->needs.fail);
        return true;
    }
    return make_room(l);
}

/* When the first one that is idle is to be stopped. */
static uint64_t idle_due(const struct launcher *l)
{
    struct resident all[SERVED_MAX];
    struct served *of[SERVED_MAX];
    const struct residency r = describe(l->server, all, of);
    return residency_idle_due(&r);
}

static void set_timer(const struct launcher *l)
{
    const uint64_t now = bell_now_ns(), due_ns = l->first ? l->due_ns : idle_due(l);
    uint64_t at_ns = l->first ? l->tell_ns : now + TICK_MOST_S * 1000000000ull;
    if (due_ns > now && due_ns < at_ns)
        at_ns = due_ns;
    const uint64_t ns = at_ns > now ? at_ns - now : 1;
    const struct itimerspec at = {.it_value = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)}};
    (void)timerfd_settime(l->timer.fd, 0, &at, NULL);
}

/* Requests that wait are told so, each TICK_S. */
static void tell_waiting(struct launcher *l)
{
    const uint64_t now = bell_now_ns();
    if (now < l->tell_ns)
        return;
    l->tell_ns = now + TICK_S * 1000000000ull;
    for (struct exchange *x = l->server->exchanges; x; x = x->next)
        if (x->launch)
            dispatch_tell_launching(x);
}

/* Something changed: looks what can be done now. Daemons are asked first, where what they said is
 * older than the change. */
static void consider(struct launcher *l)
{
    struct launch *one = l->first;
    if (l->is_closing || l->child.pid || l->n_asked)
        return;
    if (one && !one->is_measured) {
        if (!one->needs.task.done) {
            one->needs.task.done = measured;
            disk_measure(&l->disk, &one->needs);
        }
        return;
    }
    if (l->is_stale)
        survey(l);
    if (l->n_asked)
        return;
    if (!l->first)
        stop_idle(l);
    else if (go_on(l)) {
        l->is_stale = true;
        consider(l);
    }
    set_timer(l);
}

static void on_tick(struct watch *w, uint32_t events)
{
    struct launcher *l = (struct launcher *)((char *)w - offsetof(struct launcher, timer));
    uint64_t n;
    (void)events;
    (void)!read(w->fd, &n, sizeof(n));
    tell_waiting(l);
    l->is_stale = true;
    set_timer(l);
    consider(l);
}

/* ---- the gateway's side ---------------------------------------------------------------------- */

bool launcher_wants(struct server *s, const char *model)
{
    if (!s->launcher.server || !model || !*model || strlen(model) >= DISK_NAME_BYTES)
        return false;
    struct served *d = served_find(s, model);
    return !d || d->gives_way || d == s->launcher.stopping || !is_there(d) || is_another(d, model);
}

static struct launch *add(struct launcher *l, const char *name)
{
    struct launch *one = calloc(1, sizeof(*one)), **end = &l->first;
    if (!one)
        return NULL;
    one->launcher = l;
    one->needs.budget_bytes = l->server->config->budget;
    snprintf(one->needs.name, sizeof(one->needs.name), "%s", name);
    if (!l->first)
        l->tell_ns = bell_now_ns() + TICK_S * 1000000000ull;
    while (*end)
        end = &(*end)->next;
    *end = one;
    l->n++;
    return one;
}

int launcher_join(struct exchange *x, struct fail *f)
{
    struct launcher *l = &x->server->launcher;
    struct launch *one = l->first;
    while (one && strcmp(one->needs.name, x->wanted) != 0)
        one = one->next;
    if (!one && l->n >= LAUNCHES_MAX)
        return fail_set(f, 503, FAIL_UNAVAILABLE,
                        "%d other models are to be started before: try again in a moment",
                        LAUNCHES_MAX);
    if (!one)
        one = add(l, x->wanted);
    if (!one)
        return fail_set(f, 500, FAIL_SERVER, "out of memory: try again in a moment");
    x->launch = one;
    l->is_stale = true;
    set_timer(l);
    consider(l);
    return 0;
}

void launcher_left(struct server *s)
{
    struct launcher *l = &s->launcher;
    if (!l->server || !l->first)
        return;
    l->is_stale = true;
    consider(l);
}

/* One that waits may begin; one that is to be stopped may be. */
void launcher_released(struct exchange *x)
{
    struct served *d = x->served;
    struct launcher *l = &d->server->launcher;
    const bool keeps = x->has_keep && x->is_named;
    if (!x->n_choices && !keeps)
        return;
    d->used_ns = bell_now_ns();
    if (keeps) {
        d->has_keep = true;
        d->keep_ns = x->keep_ns;
    }
    if (!l->server || l->is_closing)
        return;
    set_timer(l);
    if (!l->first && !(d->has_keep && d->keep_ns == 0))
        return;
    l->is_stale = true;
    consider(l);
}

uint64_t launcher_ends_s(const struct served *d)
{
    const struct server *s = d->server;
    const uint64_t idle = idle_ns(s, d), now = bell_now_ns();
    const bool ends = s->launcher.server && is_own(d) && !is_pinned(s, d) && idle < UINT64_MAX / 4;
    if (!ends)
        return 0;
    const uint64_t ns = (d->used_ns ? d->used_ns : now) + idle;
    return (uint64_t)time(NULL) + (ns > now ? (ns - now) / 1000000000 : 0);
}

int launcher_open(struct server *s, char *err, size_t err_bytes)
{
    struct launcher *l = &s->launcher;
    if (!s->config->budget)
        return 0;
    if (describe_find_own("hearth", l->program) < 0) {
        snprintf(err, err_bytes,
                 "--budget: hearth is neither in the folder of hearth-http nor in $PATH: install "
                 "it");
        return -ENOPKG;
    }
    l->timer = (struct watch){.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
                              .on = on_tick};
    int rc = l->timer.fd < 0 ? -errno : reactor_watch(&s->loop, &l->timer, EPOLLIN);
    if (!rc)
        rc = disk_open(&l->disk, &s->loop);
    if (rc)
        return rc;
    l->server = s;
    for (uint32_t i = 0; i < s->config->pins.n; i++) {
        struct launch *one = add(l, s->config->pins.items[i]);
        if (!one)
            return -ENOMEM;
        one->is_pinned = true;
    }
    l->is_stale = true;
    set_timer(l);
    consider(l);
    return 0;
}

void launcher_close(struct server *s)
{
    struct launcher *l = &s->launcher;
    if (!l->server)
        return;
    l->is_closing = true;
    if (child_end(&l->child) == 0 && !l->stopping) /* it was started all the same */
        (void)take_started(l);
    disk_close(&l->disk);
    for (struct served *d = s->served; d; d = d->next) {
        const char *const argv[] = {l->program, "stop", "--socket", d->path, NULL};
        if (d->is_ours && d->path[0])
            (void)child_call(argv);
    }
    for (struct launch *one = l->first, *next; one; one = next) {
        next = one->next;
        free(one);
    }
    l->first = NULL;
    reactor_unwatch(&s->loop, &l->timer);
    close(l->timer.fd);
}
