/* served: the daemons behind the gateway, one for each model, and which of them a request is for.
 *
 * With --socket, or HEARTH_SOCKET set, there is one. Else the default daemon comes first, and each
 * other one of this user or of the machine (client/lib/daemons.h) follows when its socket is there:
 * it is looked for when a request names a model that is not known, and when models are listed. A
 * daemon that cannot be reached and whose socket is gone is forgotten. To the others there is a
 * connection, but for those at whose sockets the service manager listens, which starts the daemon: a
 * request for it does that. A request is for the daemon that its `model` names, by the name of the
 * socket, else by the model's own; else for the first that is there.
 *
 * On the loop's thread. */
#ifndef HEARTH_CLIENT_HTTP_SERVED_H
#define HEARTH_CLIENT_HTTP_SERVED_H

#include "client/http/disk.h"
#include "client/http/pool.h"
#include "client/http/worker.h"
#include "client/lib/daemons.h"

#include <jansson.h>
#include <stdbool.h>

struct server;

/* The workers, one for each kind of work that would block the loop. */
enum {
    WORKER_INFILL, /* tokenizes for /infill: its handle caches tokens */
    WORKER_TEXT,   /* tokenizes other large bodies */
    WORKER_CHAT,   /* renders small ones: a file's template may take long */
    WORKER_STATUS, /* asks the daemon for its status */
    SERVED_WORKERS
};

enum { SERVED_MAX = 32 };

/* A daemon is asked for its status. */
struct survey {
    struct task task; /* first */
    struct served *served;
    json_t *status;
};

struct served {
    struct server *server;
    char instance[DAEMONS_NAME_BYTES]; /* of its socket; "" for the default one */
    char path[HELLO_PATH_BYTES];       /* of its socket; "" for the default one */
    struct pool pool;
    struct worker workers[SERVED_WORKERS];
    uint32_t n_exchanges; /* requests that are for it */
    bool is_asleep;       /* see served_is_asleep(), which knows more */

    /* The launcher's. */
    struct survey survey;
    bool is_asked; /* a survey is under way */
    bool is_ours;  /* this gateway started the daemon, for `file` */
    char file[DISK_NAME_BYTES];
    bool is_active; /* it had requests when it was last asked, or did not answer */
    bool gives_way; /* new requests wait, so that it can be stopped */
    bool has_keep;  /* a request said how long it stays without one: keep_ns */
    uint64_t keep_ns;
    uint64_t bytes;    /* that it declared */
    uint64_t n_others; /* requests of other programs, when it was last asked */
    uint64_t since_ns, used_ns;
    uint64_t stop_ns; /* it did not stop: when it may be asked again */

    struct served *next;
};

/* Starts with the default daemon. Returns 0 or -errno. */
int served_open(struct server *s);
void served_close(struct server *s);

/* Looks which daemons there are now: as often as requests want it, since folders are listed only
 * after they have changed, and once in a second. */
void served_look(struct server *s);

/* Is a daemon there, or a socket whose listener may start one? */
bool served_is_there(struct served *d);

/* Would a connection start it, as far as is known? */
bool served_is_asleep(struct served *d);

/* Are these the same name, as those of sockets are written, and without Ollama's tag `latest`? */
bool served_is_same(const char *one, const char *other);

/* Is this the name of its socket or of its model? */
bool served_is_named(const struct served *d, const char *model);

/* The name of its model for clients; the default daemon's socket's where none was there yet. */
const char *served_name(const struct served *d);

/* The daemon for a model: the one that is called so (*ret_named), else the first that is there. */
struct served *served_choose(struct server *s, const char *model, bool *ret_named);

/* The one that is called so, or NULL. */
struct served *served_find(struct server *s, const char *model);

/* Does a daemon that is there serve a model of that name? */
bool served_is_known(const struct server *s, const char *model);

/* Can one be listed now, without a connection to it? */
bool served_has_any(struct server *s);

/* Was it there, or would a request start it? */
bool served_is_listed(struct served *d);

/* Sums over all. */
uint32_t served_running(const struct server *s);
uint32_t served_connected(const struct server *s);
uint32_t served_queued(const struct server *s);

#endif
