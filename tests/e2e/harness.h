/* harness: spawns a private hearthd and runs hearth, for the end-to-end tests.
 *
 * Each daemon has a directory of its own under /tmp with its socket and log, and dies with the
 * process that started it. Start it in an unchecked fixture to share it among the tests of a case,
 * or inside a test. A failure in here fails the test, and shows the daemon's log.
 */
#ifndef HEARTH_TESTS_E2E_HARNESS_H
#define HEARTH_TESTS_E2E_HARNESS_H

#include "client/hearth.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct harness {
    pid_t pid; /* 0: not running */
    char directory[64];
    char socket[128];
    char log[128];
    bool
        traced; /* by this thread, from its beginning (PTRACE_TRACEME); ends with 77 where it may not be */
};

/* Paths: $BUILD/bin/NAME; $HEARTH_TESTDATA/NAME, NULL when that is not set. Static memory. */
const char *harness_program(const char *name);
const char *harness_data(const char *name);

/* A trained model: stories260K of the test data, else the bundled one, else NULL. */
const char *harness_model(void);

/* A small random model (Q8_0), made once into the build folder: for tests about load, not text. */
const char *harness_tiny_model(void);
/* The same with matrices of another type (tests/rig/tiny_model.h). Valid until the next call. */
const char *harness_tiny_model_of(const char *arch, uint32_t type); /* arch NULL: llama */

/* Does this build's hearthd take --fault (make determinism)? */
bool harness_has_faults(void);

/* Starts hearthd --model MODEL --socket ... with more arguments (NULL-ended, or NULL) and waits
 * until it answers. */
void harness_start(struct harness *d, const char *model, const char *const *arguments);

/* Starts it again on the same socket after harness_kill(), without waiting. Only from the main
 * thread, like harness_start(): a daemon dies with the thread that started it. */
void harness_restart(struct harness *d, const char *model, const char *const *arguments);

/* SIGTERM, and waits. Returns the exit code, -1 when it had to be killed. Removes the directory. */
int harness_stop(struct harness *d);

/* SIGKILL, and waits. Keeps the directory, so that it can be restarted there. */
void harness_kill(struct harness *d);

/* A counter of hearth_status(), -1 when there is no counter of that name. */
int64_t harness_counter(const struct harness *d, const char *name);

/* Waits up to a minute (sanitizers are slow) until the counter has this value. Returns its last
 * value. */
int64_t harness_wait_counter(const struct harness *d, const char *name, int64_t value);

/* For an idle daemon: every draft was accepted, rejected or unused, and every published token was
 * an accepted draft or the verifier's own sample. */
void harness_check_drafts(const struct harness *d);

/* For a daemon without used slots: all pages become free within a minute. */
void harness_check_pages(const struct harness *d);

/* Connects with `slots` slots. */
struct hearth *harness_connect(const struct harness *d, uint32_t slots, const char *slot_name);

/* A program's exit code and output. */
struct harness_output {
    int code;  /* exit code; 128 + N when signal N ended it */
    char *out; /* [out_bytes] and a 0 */
    size_t out_bytes;
    char *error; /* [error_bytes] and a 0 */
    size_t error_bytes;
};

/* Runs build/bin/hearth with these arguments (without the program's name, NULL-ended) and
 * $HEARTH_SOCKET of the daemon (d NULL: a socket that does not exist). input: its stdin, NULL for
 * none. */
struct harness_output harness_run(const struct harness *d, const char *input,
                                  const char *const *arguments);
/* The same with build/bin/hearthd, for starts that end by themselves. */
struct harness_output harness_run_hearthd(const char *const *arguments);
void harness_output_fini(struct harness_output *o);

#define HARNESS_RUN(d, input, ...) harness_run(d, input, (const char *const[]){__VA_ARGS__, NULL})

/* Starts the same program and does not wait. *ret_fd is its stdout (NULL: dropped); its stdin is
 * empty, its stderr dropped. */
pid_t harness_spawn(const struct harness *d, int *ret_fd, const char *const *arguments);

/* Starts a program as a service manager does: it has this listening socket n times. From a thread
 * that outlives it. */
pid_t harness_activate(const char *const *argv, int listen_fd, int n);

/* Waits for a process. Returns as harness_output.code; kills it after two minutes. */
int harness_wait(pid_t pid);

/* The same program during its answer. Its stdout is a pipe of 4096 bytes, so an answer that exceeds
 * this and the 1024 cells of an event ring cannot finish before the test reads on. */
struct harness_running {
    pid_t pid;
    int out, error; /* -1: it ended */
    struct harness_output output;
};

/* Starts it and returns when the answer has begun. */
void harness_begin(struct harness_running *r, const struct harness *d,
                   const char *const *arguments);
/* Reads on until stderr contains this. */
void harness_await(struct harness_running *r, const char *said);
/* Reads to the end, and waits. */
struct harness_output harness_finish(struct harness_running *r);

/* Writes the ids of a JSON array as "1,2,3". */
void harness_join_ids(const json_t *ids, char *ret_text, size_t text_bytes);

#endif
