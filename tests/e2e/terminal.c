/* terminal: see terminal.h. */
#include "tests/e2e/terminal.h"

#include "tests/e2e/harness.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void terminal_open(struct terminal *t, const char *socket, const char *const *arguments)
{
    const char *argv[24] = {harness_program("hearth")};
    int pipes[2];
    memset(t, 0, sizeof(*t));
    for (int i = 0; arguments[i]; i++)
        argv[i + 1] = arguments[i];
    ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
    /* A small pipe: a long answer cannot finish before it is read. */
    ck_assert_int_ge(fcntl(pipes[0], F_SETPIPE_SZ, 4096), 0);
    t->pid = forkpty(&t->keys, NULL, NULL, NULL);
    ck_assert_int_ge(t->pid, 0);
    if (t->pid == 0) {
        setenv("HEARTH_SOCKET", socket, 1);
        setenv("TERM", "dumb", 1);
        setenv("INPUTRC", "/dev/null", 1);
        dup2(pipes[1], STDOUT_FILENO);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(pipes[1]);
    t->out = pipes[0];
}

void terminal_type(struct terminal *t, const char *keys)
{
    ck_assert_int_eq(write(t->keys, keys, strlen(keys)), (ssize_t)strlen(keys));
}

int terminal_look(struct terminal *t)
{
    struct pollfd p[2] = {{.fd = t->out, .events = POLLIN}, {.fd = t->keys, .events = POLLIN}};
    (void)poll(p, 2, 100);
    if (p[1].revents & POLLIN) {
        ssize_t n = read(t->keys, t->shown + t->n_shown, sizeof(t->shown) - t->n_shown - 1);
        t->n_shown += n > 0 ? (size_t)n : 0;
    }
    if (!(p[0].revents & (POLLIN | POLLHUP)))
        return 1;
    ck_assert_msg(t->n_seen < sizeof(t->seen) - 1, "more on stdout than a test can hold");
    ssize_t n = read(t->out, t->seen + t->n_seen, sizeof(t->seen) - t->n_seen - 1);
    t->n_seen += n > 0 ? (size_t)n : 0;
    return n > 0;
}

/* Looks once. Returns 1 if nothing came. */
static int look_in_vain(struct terminal *t)
{
    const size_t before = t->n_seen + t->n_shown;
    (void)terminal_look(t);
    return before == t->n_seen + t->n_shown;
}

void terminal_wait_prompts(struct terminal *t, int wanted)
{
    for (int silent = 0; silent < 1200; silent += look_in_vain(t)) {
        int n = 0;
        t->shown[t->n_shown] = 0;
        for (const char *at = t->shown; (at = strstr(at, "> ")); at += 2)
            n++;
        if (n >= wanted)
            return;
    }
    ck_assert_msg(0, "no prompt %d: %s", wanted, t->shown);
}

json_t *terminal_next_line(struct terminal *t)
{
    for (int turn = 0; turn < 1200; turn++) {
        char *end = t->n_seen ? memchr(t->seen, '\n', t->n_seen) : NULL;
        if (end) {
            json_t *j = json_loadb(t->seen, (size_t)(end - t->seen), 0, NULL);
            size_t used = (size_t)(end - t->seen) + 1;
            memmove(t->seen, end + 1, t->n_seen - used);
            t->n_seen -= used;
            ck_assert_ptr_nonnull(j);
            return j;
        }
        ck_assert_msg(terminal_look(t), "the program ended: %s", t->shown);
    }
    ck_assert_msg(0, "no answer: %s", t->shown);
    return NULL;
}

json_t *terminal_next_done(struct terminal *t)
{
    for (;;) {
        json_t *j = terminal_next_line(t);
        if (strcmp(json_string_value(json_object_get(j, "event")), "done") == 0)
            return j;
        json_decref(j);
    }
}

int terminal_close(struct terminal *t)
{
    int code = harness_wait(t->pid);
    close(t->keys);
    close(t->out);
    return code;
}

/* Discards whole lines of stdout. Returns whether one of them ended an answer. */
static int drop_lines(struct terminal *t)
{
    char *end = t->n_seen ? memrchr(t->seen, '\n', t->n_seen) : NULL;
    size_t used = end ? (size_t)(end - t->seen) + 1 : 0;
    int ended = used && memmem(t->seen, used, "\"event\":\"done\"", 14);
    memmove(t->seen, t->seen + used, t->n_seen - used);
    t->n_seen -= used;
    return ended;
}

int terminal_wait_shown(struct terminal *t, const char *text)
{
    for (int turn = 0; turn < 1200; turn++) {
        int goes_on = terminal_look(t);
        ssize_t n = 1;
        while (!goes_on && n > 0) { /* the last output of a program that has ended */
            n = read(t->keys, t->shown + t->n_shown, sizeof(t->shown) - t->n_shown - 1);
            t->n_shown += n > 0 ? (size_t)n : 0;
        }
        t->shown[t->n_shown] = 0;
        if (strstr(t->shown, text))
            return 1;
        ck_assert_msg(goes_on, "the program ended: %s", t->shown);
        if (drop_lines(t))
            return 0;
    }
    ck_assert_msg(0, "never shown: %s, but: %s", text, t->shown);
    return 0;
}
