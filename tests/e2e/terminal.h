/* terminal: `hearth` on a pseudo-terminal, for the end-to-end tests. Output that does not come
 * within two minutes fails the test. */
#ifndef HEARTH_TESTS_E2E_TERMINAL_H
#define HEARTH_TESTS_E2E_TERMINAL_H

#include <jansson.h>
#include <sys/types.h>

struct terminal {
    pid_t pid;
    int keys;           /* the terminal's master side */
    int out;            /* stdout of the program */
    char seen[1 << 18]; /* [n_seen] of stdout, not consumed yet */
    size_t n_seen;
    char shown[1 << 16]; /* [n_shown] on the terminal: prompts, echo, errors */
    size_t n_shown;
};

/* Runs it on its own terminal except for its stdout. `arguments` end with NULL. */
void terminal_open(struct terminal *t, const char *socket, const char *const *arguments);
void terminal_type(struct terminal *t, const char *keys);
/* Waits for the program's end. Returns its exit code. */
int terminal_close(struct terminal *t);

/* Reads from both for up to 100 ms. Returns 0 when stdout has ended. */
int terminal_look(struct terminal *t);
/* Waits until the terminal shows the prompt for the n-th time. */
void terminal_wait_prompts(struct terminal *t, int wanted);
/* Waits until the terminal shows this. Returns 0 when the answer ends before that. */
int terminal_wait_shown(struct terminal *t, const char *text);
/* The next line of JSON from stdout. */
json_t *terminal_next_line(struct terminal *t);
/* The event `done` of the current answer. */
json_t *terminal_next_done(struct terminal *t);

#endif
