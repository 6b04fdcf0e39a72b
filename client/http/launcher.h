/* launcher: starts daemons for models that are asked for, and stops those that are not, under one
 * budget of memory (--budget).
 *
 * A request that names a model which lies on the disk and is not served waits: `hearth serve` is run
 * for it, and where the budget asks for that `hearth stop` for others before. Models are started one
 * at a time, in the order in which they were asked for. Which ones give way: residency.h. Those of this
 * user count, whatever started them; those of the machine (/run/hearth) do not. The default daemon
 * (hearth.sock) and pinned models never stop. Whether one is in use is asked of the daemon itself
 * before it is stopped: other programs than this gateway may use it.
 *
 * While a request waits its stream has a comment each 5 s. One whose client hung up starts nothing.
 * On the loop's thread. */
#ifndef HEARTH_CLIENT_HTTP_LAUNCHER_H
#define HEARTH_CLIENT_HTTP_LAUNCHER_H

#include "client/http/child.h"
#include "client/http/disk.h"

#include <limits.h>

struct exchange;
struct server;
struct served;

/* A model that is to be started. */
struct launch {
    struct disk_needs needs; /* first: its task */
    struct launcher *launcher;
    struct launch *next;
    bool is_pinned, is_measured;
    uint64_t since_ns; /* when it came to its turn; 0: others are before it */
};

struct launcher {
    struct server *server; /* NULL: no models are started */
    struct disk disk;
    struct launch *first; /* a list: in turn */
    uint32_t n;
    struct child child;      /* hearth serve or hearth stop */
    struct served *stopping; /* whose daemon that stops, or NULL */
    char program[PATH_MAX];  /* hearth */
    struct watch timer;
    uint64_t due_ns;  /* when the first one may begin, as far as that is known; else 0 */
    uint64_t tell_ns; /* when requests that wait are told so next */
    uint32_t n_asked; /* daemons that have not said yet whether they are in use */
    bool is_stale;    /* they have to be asked (again) before something is decided */
    bool is_closing;
};

/* Where config has a budget. Returns 0, or -errno with one line. */
int launcher_open(struct server *s, char *err, size_t err_bytes);

/* Stops the daemons that it started. */
void launcher_close(struct server *s);

/* May a model of this name have to be started? */
bool launcher_wants(struct server *s, const char *model);

/* x waits for the model x->wanted, which lies on the disk: dispatch_launched() is called when it is
 * served, or cannot be. Returns 0, or -1 with *f: too many others are waited for. */
int launcher_join(struct exchange *x, struct fail *f);

/* The client of one that waits hung up. */
void launcher_left(struct server *s);

/* A request that was for a daemon ended. */
void launcher_released(struct exchange *x);

/* When the daemon is stopped if it has no further request [s since 1970]; 0: not as far as is known. */
uint64_t launcher_ends_s(const struct served *d);

#endif
