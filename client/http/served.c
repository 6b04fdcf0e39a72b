/* served: see served.h. */
#include "client/http/served.h"

#include "client/http/dispatch.h"
#include "client/http/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void on_pool_connect(void *owner, const struct fail *why)
{
    struct served *d = owner;
    for (struct exchange *x = d->server->exchanges, *next; x; x = next) {
        next = x->next;
        if (x->waits_for_connect && x->served == d)
            dispatch_connected(x, why);
    }
}

static void close_one(struct served *d)
{
    for (int i = 0; i < SERVED_WORKERS; i++)
        worker_close(&d->workers[i]);
    if (d->pool.n_handles)
        pool_fini(&d->pool);
    free(d);
}

/* Adds a daemon after the others; `path` NULL: the library's default. */
static int add(struct server *s, const char *instance, const char *path)
{
    struct served *d = calloc(1, sizeof(*d)), **end = &s->served;
    int rc = d ? 0 : -ENOMEM;
    if (rc)
        return rc;
    d->server = s;
    strcpy(d->instance, instance);
    strcpy(d->path, path ? path : "");
    const char *socket = path ? d->path : s->config->daemon;
    for (int i = 0; i < SERVED_WORKERS && !rc; i++)
        rc = worker_open(&d->workers[i], &s->loop, socket);
    if (rc) {
        close_one(d);
        return rc;
    }
    d->pool.loop = &s->loop;
    d->pool.path = socket;
    d->pool.n_handles = s->config->slots;
    d->pool.queue_max = s->config->queue;
    d->pool.resume_ms = (int)s->config->resume_ms;
    d->pool.on_connect = on_pool_connect;
    d->pool.owner = d;
    pool_init(&d->pool);
    d->is_asleep = true; /* until it was looked for */
    while (*end)
        end = &(*end)->next;
    *end = d;
    s->n_served++;
    return 0;
}

void served_close(struct server *s)
{
    while (s->served) {
        struct served *d = s->served;
        s->served = d->next;
        close_one(d);
    }
}

/* ---- which ones there are -------------------------------------------------------------------- */

/* Is one daemon named for this gateway? */
static bool is_one(const struct server *s)
{
    const char *named = getenv("HEARTH_SOCKET");
    return s->config->daemon || (named && *named);
}

static bool is_known(const struct server *s, const char *path)
{
    for (const struct served *d = s->served; d; d = d->next)
        if (strcmp(d->path, path) == 0 || strcmp(d->pool.model.socket, path) == 0)
            return true;
    return false;
}

/* Forgets daemons that went for good. */
static void forget_gone(struct server *s)
{
    for (struct served **at = &s->served->next; *at;) {
        struct served *d = *at;
        if (d->n_exchanges || d->is_asked || d == s->launcher.stopping || pool_is_up(&d->pool) ||
            access(d->path, F_OK) == 0) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        s->n_served--;
        close_one(d);
    }
}

/* The path of the default daemon's socket. */
static bool find_default(char path[HELLO_PATH_BYTES])
{
    char err[256];
    return hello_find_socket(HELLO_MACHINE_SOCKET, path, err, sizeof(err)) == 0;
}

/* Is it time to list the folders? Clients can name models that are not there as often as they like,
 * and a large folder takes long: so after a change, or after a second, for a link in a folder to a
 * socket elsewhere. A time of change is that of a clock tick. */
static bool is_look_due(struct server *s)
{
    enum { SECOND_NS = 1000000000, TICK_NS = 20000000 };
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec, last = s->looked_ns;
    if (now >= last && now - last < SECOND_NS && daemons_changed_ns() + TICK_NS < last)
        return false;
    s->looked_ns = now;
    return true;
}

/* The path of its socket. */
static bool find_path(const struct served *d, char path[HELLO_PATH_BYTES])
{
    const char *own = d->path[0] ? d->path : d->server->config->daemon;
    if (!own)
        return find_default(path);
    return snprintf(path, HELLO_PATH_BYTES, "%s", own) < (int)HELLO_PATH_BYTES;
}

/* Connects to those that were started, and finds out which ones a connection would start. */
static void look_who_sleeps(struct server *s)
{
    struct daemon_socket sockets[SERVED_MAX] = {0};
    struct served *of[SERVED_MAX];
    struct daemons daemons = {.sockets = sockets};
    for (struct served *d = s->served; d; d = d->next)
        if (!pool_is_up(&d->pool) && !d->pool.joining && find_path(d, sockets[daemons.n].path))
            of[daemons.n++] = d;
    if (daemons.n > 0)
        daemons_look(&daemons);
    for (size_t i = 0; i < daemons.n; i++) {
        const bool was_asleep = of[i]->is_asleep;
        of[i]->is_asleep = sockets[i].is_open && !sockets[i].is_running;
        if (was_asleep && !of[i]->is_asleep)
            pool_connect(&of[i]->pool);
    }
}

static void look_for_others(struct server *s)
{
    char usual[HELLO_PATH_BYTES] = "";
    struct daemons daemons;
    (void)find_default(usual);
    if (daemons_list(&daemons) < 0)
        return; /* out of memory: those that are known */
    for (size_t i = 0; i < daemons.n && s->n_served < SERVED_MAX; i++)
        if (strcmp(daemons.sockets[i].path, usual) != 0 && !is_known(s, daemons.sockets[i].path))
            (void)add(s, daemons.sockets[i].instance, daemons.sockets[i].path);
    free(daemons.sockets);
}

void served_look(struct server *s)
{
    if (!is_one(s))
        forget_gone(s);
    if (!is_look_due(s))
        return;
    if (!is_one(s))
        look_for_others(s);
    look_who_sleeps(s);
}

bool served_is_there(struct served *d)
{
    char usual[HELLO_PATH_BYTES];
    if (pool_is_up(&d->pool) || d->pool.joining)
        return true;
    if (!d->path[0])
        return is_one(d->server) || (find_default(usual) && access(usual, F_OK) == 0);
    return !d->is_ours && access(d->path, F_OK) == 0;
}

bool served_is_asleep(struct served *d)
{
    return d->is_asleep && !d->pool.joining && !pool_is_up(&d->pool) && served_is_there(d);
}

int served_open(struct server *s)
{
    int rc = add(s, "", NULL);
    if (rc == 0)
        served_look(s);
    return rc;
}

/* ---- which one a request is for -------------------------------------------------------------- */

const char *served_name(const struct served *d)
{
    if (d->instance[0])
        return d->instance;
    return d->pool.model.name[0] ? d->pool.model.name : "hearth";
}

/* Ollama's clients add a tag to names without one. */
static void drop_tag(char *instance)
{
    static const char tag[] = "-latest";
    size_t n = strlen(instance);
    if (n >= sizeof(tag) && strcasecmp(instance + n - sizeof(tag) + 1, tag) == 0)
        instance[n - sizeof(tag) + 1] = 0;
}

bool served_is_same(const char *one, const char *other)
{
    char a[DAEMONS_NAME_BYTES], b[DAEMONS_NAME_BYTES];
    daemons_instance(one, a);
    daemons_instance(other, b);
    drop_tag(a);
    drop_tag(b);
    return *a && strcasecmp(a, b) == 0;
}

bool served_is_named(const struct served *d, const char *model)
{
    return served_is_same(served_name(d), model) || served_is_same(d->pool.model.name, model);
}

static struct served *find_known(struct server *s, const char *model)
{
    const char *own = s->served->pool.model.name;
    if (*own && http_config_names(s->config, own, model))
        return s->served;
    for (struct served *d = s->served; d; d = d->next) /* before one whose model is called so */
        if (d->instance[0] && served_is_same(d->instance, model))
            return d;
    for (struct served *d = s->served; d; d = d->next)
        if (served_is_named(d, model))
            return d;
    return NULL;
}

struct served *served_find(struct server *s, const char *model)
{
    struct served *d = find_known(s, model);
    if (d || is_one(s))
        return d;
    served_look(s);
    return find_known(s, model);
}

/* The first that is there; of those that may be, the first whose socket is. */
static struct served *find_usual(struct server *s)
{
    char path[HELLO_PATH_BYTES];
    for (struct served *d = s->served; d; d = d->next)
        if (pool_is_up(&d->pool) && d != s->launcher.stopping)
            return d;
    if (is_one(s) || (find_default(path) && access(path, F_OK) == 0))
        return s->served;
    served_look(s);
    return s->served->next ? s->served->next : s->served;
}

struct served *served_choose(struct server *s, const char *model, bool *ret_named)
{
    struct served *d = model && *model ? served_find(s, model) : NULL;
    *ret_named = d != NULL;
    return d ? d : find_usual(s);
}

bool served_is_listed(struct served *d)
{
    return d->pool.model.name[0] || served_is_asleep(d);
}

bool served_has_any(struct server *s)
{
    served_look(s);
    for (struct served *d = s->served; d; d = d->next)
        if (pool_is_up(&d->pool) || served_is_asleep(d))
            return true;
    return false;
}

bool served_is_known(const struct server *s, const char *model)
{
    for (struct served *d = s->served; d; d = d->next)
        if (served_is_listed(d) && served_is_named(d, model))
            return true;
    return false;
}

/* ---- sums ------------------------------------------------------------------------------------ */

uint32_t served_running(const struct server *s)
{
    uint32_t n = 0;
    for (const struct served *d = s->served; d; d = d->next)
        n += pool_running(&d->pool);
    return n;
}

uint32_t served_connected(const struct server *s)
{
    uint32_t n = 0;
    for (const struct served *d = s->served; d; d = d->next)
        n += pool_connected(&d->pool);
    return n;
}

uint32_t served_queued(const struct server *s)
{
    uint32_t n = 0;
    for (const struct served *d = s->served; d; d = d->next)
        n += d->pool.n_queued;
    return n;
}
