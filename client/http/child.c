/* child: see child.h. */
#include "client/http/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Is it between the service manager and the gateway alone? */
static bool is_private(const char *variable)
{
    static const char *const names[] = {"NOTIFY_SOCKET=",  "LISTEN_FDS=",    "LISTEN_PID=",
                                        "LISTEN_FDNAMES=", "WATCHDOG_USEC=", "WATCHDOG_PID="};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* The environment without those; the caller frees the list. */
static char **make_environment(void)
{
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **list = calloc(n + 1, sizeof(*list));
    for (size_t i = 0; list && i < n; i++)
        if (!is_private(environ[i]))
            list[kept++] = environ[i];
    return list;
}

/* With no signal blocked or ignored. errors < 0: they are dropped. */
static int spawn(pid_t *ret_pid, const char *const *argv, int errors)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, pipe;
    char **environment = make_environment();
    if (!environment)
        return -ENOMEM;
    sigemptyset(&none);
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &pipe);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (errors >= 0)
        posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
    else
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int rc = -posix_spawn(ret_pid, argv[0], &actions, &attributes, (char **)(uintptr_t)argv,
                          environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    return rc;
}

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void read_line(int errors, char line[CHILD_LINE_BYTES])
{
    char text[4096];
    struct stat st;
    off_t from = fstat(errors, &st) == 0 && st.st_size >= (off_t)sizeof(text)
                     ? st.st_size - (off_t)sizeof(text) + 1
                     : 0;
    ssize_t n = pread(errors, text, sizeof(text) - 1, from);
    while (n > 0 && text[n - 1] == '\n')
        n--;
    text[n > 0 ? n : 0] = 0;
    const char *newline = strrchr(text, '\n'), *last = newline ? newline + 1 : text;
    const char *colon = strstr(last, ": ");
    snprintf(line, CHILD_LINE_BYTES, "%.*s", CHILD_LINE_BYTES - 1, colon ? colon + 2 : last);
}

static void forget(struct child *c)
{
    reactor_unwatch(c->loop, &c->watch);
    close(c->watch.fd);
    close(c->errors);
    c->pid = 0;
}

static void on_end(struct watch *w, uint32_t events)
{
    struct child *c = (struct child *)w; /* its first member */
    char line[CHILD_LINE_BYTES];
    (void)events;
    int code = wait_for(c->pid);
    read_line(c->errors, line);
    forget(c);
    c->done(c, code, line);
}

int child_run(struct child *c, struct reactor *loop, const char *const *argv)
{
    c->loop = loop;
    c->errors = memfd_create("errors", MFD_CLOEXEC);
    int rc = c->errors < 0 ? -errno : spawn(&c->pid, argv, c->errors);
    if (rc) {
        if (c->errors >= 0)
            close(c->errors);
        c->pid = 0;
        return rc;
    }
    c->watch = (struct watch){.fd = (int)syscall(SYS_pidfd_open, c->pid, 0), .on = on_end};
    rc = c->watch.fd < 0 ? -errno : reactor_watch(loop, &c->watch, EPOLLIN);
    if (rc) {
        kill(c->pid, SIGTERM);
        (void)wait_for(c->pid);
        if (c->watch.fd >= 0)
            close(c->watch.fd);
        close(c->errors);
        c->pid = 0;
    }
    return rc;
}

int child_end(struct child *c)
{
    if (!c->pid)
        return -1;
    kill(c->pid, SIGTERM);
    int code = wait_for(c->pid);
    forget(c);
    return code;
}

int child_call(const char *const *argv)
{
    pid_t pid;
    int rc = spawn(&pid, argv, -1);
    return rc ? rc : wait_for(pid);
}
