/* child: a program that the gateway runs, one at a time, while its loop turns.
 *
 * It has no input, its output is dropped, and of its errors the last line is kept. What a service
 * manager gave the gateway is not passed on. On the loop's thread. */
#ifndef HEARTH_CLIENT_HTTP_CHILD_H
#define HEARTH_CLIENT_HTTP_CHILD_H

#include "client/http/reactor.h"

#include <sys/types.h>

enum { CHILD_LINE_BYTES = 400 };

struct child {
    struct watch watch; /* readable when it ended */
    struct reactor *loop;
    pid_t pid; /* 0: none runs */
    int errors;
    /* It ended: with this exit code (of a death by a signal -1), and this last line of its errors,
     * without what stands before the first ": "; "" where it said nothing. */
    void (*done)(struct child *c, int code, const char *line);
};

/* Starts argv, NULL-ended; argv[0] is its path. c->done is called later, unless this fails. Returns
 * 0 or -errno. */
int child_run(struct child *c, struct reactor *loop, const char *const *argv);

/* Asks it to end (SIGTERM) and waits until it has; done is not called. Returns its exit code, which is
 * 0 where it had done its work before; -1 where none runs, or for a death by a signal. */
int child_end(struct child *c);

/* Runs argv to its end. Returns its exit code, -1 for a death by a signal, or -errno. */
int child_call(const char *const *argv);

#endif
