/* served.c: see served.h. */
#include "tests/bench/served.h"

#include "ipc/hello.h"
#include "ipc/segment.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char folder[] = "/tmp/hearth-bench-XXXXXX";
static char socket_path[64];
static const char *bin_folder;
static pid_t daemon_pid;
static const struct ctl *ctl;

void served_fail(const char *what)
{
    fprintf(stderr, "bench: %s\n", what);
    if (daemon_pid > 0)
        kill(daemon_pid, SIGKILL);
    exit(1);
}

void served_init(const char *bin)
{
    bin_folder = bin;
    if (!mkdtemp(folder))
        served_fail("no temporary folder");
    snprintf(socket_path, sizeof(socket_path), "%s/s", folder);
}

void served_fini(void)
{
    rmdir(folder);
}

const char *served_socket(void)
{
    return socket_path;
}

const char *served_program(const char *name)
{
    static char program[4096];

    snprintf(program, sizeof(program), "%s/%s", bin_folder, name);
    return program;
}

const char *served_name(const char *model)
{
    return strrchr(model, '/') ? strrchr(model, '/') + 1 : model;
}

void served_start(const char *model, const char *const *more)
{
    const char *arguments[32] = {served_program("hearthd"),
                                 "--model",
                                 model,
                                 "--socket",
                                 socket_path,
                                 "--log-level",
                                 "error"};
    int n = 7;

    while (more && *more && n < 31)
        arguments[n++] = *more++;
    if (posix_spawn(&daemon_pid, arguments[0], NULL, NULL, (char **)(uintptr_t)arguments,
                    environ) != 0)
        served_fail("cannot start hearthd");
    char err[256];
    int fd = -1;
    for (int i = 0; i < 50000 && fd < 0; i++) {
        usleep(200);
        fd = hello_connect(socket_path, -1, err, sizeof(err));
    }
    if (fd < 0)
        served_fail("hearthd did not come up");
    close(fd);
}

void served_stop(void)
{
    int status;

    kill(daemon_pid, SIGTERM);
    waitpid(daemon_pid, &status, 0);
    daemon_pid = 0;
    if (ctl)
        munmap((void *)(uintptr_t)ctl, sizeof(*ctl));
    ctl = NULL;
}

int served_pid(void)
{
    return daemon_pid;
}

struct hearth *served_connect(uint32_t slots)
{
    struct hearth_options options;
    struct hearth *h;
    char err[256];

    hearth_options_init(&options, sizeof(options));
    options.slots = slots;
    if (hearth_connect(socket_path, &options, &h, err, sizeof(err)) < 0)
        served_fail(err);
    return h;
}

struct hearth_result served_answer(struct hearth *h, uint32_t slot)
{
    const struct hearth_event *event;

    while (hearth_next(h, slot, &event, 120000) > 0) {
        if (event->kind != HEARTH_DONE)
            continue;
        if (event->result->reason == HEARTH_ERROR)
            served_fail(event->result->error_text);
        return *event->result;
    }
    served_fail(hearth_error(h));
}

struct hearth_result served_ask(struct hearth *h, uint32_t slot,
                                const struct hearth_request *request)
{
    if (hearth_submit(h, slot, request) < 0)
        served_fail(hearth_error(h));
    return served_answer(h, slot);
}

double served_decode_rate(const struct hearth_result *r)
{
    return (double)(r->output_tokens - 1) * 1e9 / (double)r->decode_ns;
}

const struct ctl *served_ctl(void)
{
    struct hello hello;
    struct hello_welcome welcome;
    int fds[HELLO_FDS];
    const void *base = NULL;
    char err[256];

    if (ctl)
        return ctl;
    int fd = hello_connect(socket_path, -1, err, sizeof(err));
    if (fd < 0 || hello_prep_hello(&hello, 0, 0, NULL) < 0 ||
        hello_send(fd, &hello, sizeof(hello), NULL, 0) < 0 ||
        hello_recv_answer(fd, &welcome, fds, 10000, err, sizeof(err)) < 0 ||
        segment_map_sealed(fds[HELLO_FD_CTL], sizeof(struct ctl), &base, err, sizeof(err)) < 0)
        served_fail("the counters cannot be mapped");
    for (int i = 0; i < HELLO_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    close(fd);
    return ctl = base;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

double served_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare_double);
    return values[n / 2];
}
