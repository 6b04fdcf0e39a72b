/* harness: see harness.h. */
#include "tests/e2e/harness.h"

#include "kernels/quant/quant_types.h"
#include "tests/rig/tiny_model.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_MS = 300000, COUNTER_MS = 60000, STOP_MS = 60000, RUN_MS = 120000 };
enum { SMALL_PIPE = 4096 };

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

const char *harness_program(const char *name)
{
    static char path[512];
    const char *build = getenv("BUILD");
    snprintf(path, sizeof(path), "%s/bin/%s", build && *build ? build : "build", name);
    return path;
}

const char *harness_data(const char *name)
{
    static char path[512];
    const char *data = getenv("HEARTH_TESTDATA");
    if (!data || !*data)
        return NULL;
    snprintf(path, sizeof(path), "%s/%s", data, name);
    return path;
}

const char *harness_model(void)
{
    const char *real = harness_data("models/stories260K-f32.gguf");
    const char *bundled = "daemon/models/hearth-code-5m-f16.gguf";
    return real ? real : access(bundled, R_OK) == 0 ? bundled : NULL;
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static void show_log(const struct harness *d)
{
    char line[512];
    FILE *f = fopen(d->log, "r");
    while (f && fgets(line, sizeof(line), f))
        fprintf(stderr, "    %s", line);
    if (f)
        fclose(f);
}

static void exec_daemon(const struct harness *d, const char *model, const char *const *more)
{
    const char *argv[64] = {harness_program("hearthd"), "--model", model, "--socket", d->socket};
    const char *device = getenv("HEARTH_TEST_DEVICE");
    size_t n = 5;
    if (device) { /* suites that support it, on another device */
        argv[n++] = "--device";
        argv[n++] = device;
    }
    while (more && *more && n < 63)
        argv[n++] = *more++;
    int log = open(d->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    setenv("XDG_CONFIG_HOME", d->directory, 1); /* no user's configuration */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (d->traced && ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
        _exit(77);
    execv(argv[0], (char **)(uintptr_t)argv);
    _exit(127);
}

static void wait_until_ready(struct harness *d)
{
    struct hearth_options o;
    char err[256] = "";
    hearth_options_init(&o, sizeof(o));
    for (uint64_t start = now_ms(); now_ms() - start < START_MS; usleep(5000)) {
        struct hearth *h;
        if (hearth_connect(d->socket, &o, &h, err, sizeof(err)) == 0) {
            hearth_close(h);
            harness_wait_counter(d, "clients", 0);
            return;
        }
        if (waitpid(d->pid, NULL, WNOHANG) == d->pid)
            break;
    }
    show_log(d);
    ck_abort_msg("hearthd did not start: %s", err);
}

const char *harness_tiny_model(void)
{
    return harness_tiny_model_of(NULL, QUANT_Q8_0);
}

const char *harness_tiny_model_of(const char *arch, uint32_t type)
{
    static char path[512];
    char mine[600];
    const char *build = getenv("BUILD");
    struct tiny_model shape = tiny_model_default(type);

    if (arch)
        tiny_model_as(&shape, arch);
    shape.n_draft = arch && (strncmp(arch, "qwen35", 6) == 0 || strcmp(arch, "qwen3next") == 0);
    snprintf(path, sizeof(path), "%s/tests/tiny-%s-%u.gguf", build ? build : "build",
             arch ? arch : "llama", type);
    snprintf(mine, sizeof(mine), "%s.%ld", path, (long)getpid()); /* tests may run side by side */
    ck_assert_int_eq(tiny_model_write(&shape, mine), 0);
    ck_assert_int_eq(rename(mine, path), 0);
    return path;
}

bool harness_has_faults(void)
{
    char command[600];

    snprintf(command, sizeof(command), "%s --help | grep -q -- --fault",
             harness_program("hearthd"));
    return system(command) == 0;
}

void harness_start(struct harness *d, const char *model, const char *const *arguments)
{
    if (!d->directory[0]) {
        strcpy(d->directory, "/tmp/hearth-e2e-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(d->directory));
        snprintf(d->socket, sizeof(d->socket), "%s/hearth.sock", d->directory);
        snprintf(d->log, sizeof(d->log), "%s/log", d->directory);
    }
    harness_restart(d, model, arguments);
    wait_until_ready(d);
}

void harness_restart(struct harness *d, const char *model, const char *const *arguments)
{
    ck_assert_int_eq(syscall(SYS_gettid), getpid()); /* PR_SET_PDEATHSIG is about the thread */
    d->pid = fork();
    ck_assert_int_ge(d->pid, 0);
    if (d->pid == 0)
        exec_daemon(d, model, arguments);
}

/* Reaps pid within ms. Returns its wait status, -1 when it did not end. */
static int reap(pid_t pid, uint64_t ms)
{
    int status;
    for (uint64_t start = now_ms(); now_ms() - start < ms; usleep(2000))
        if (waitpid(pid, &status, WNOHANG) == pid)
            return status;
    return -1;
}

int harness_stop(struct harness *d)
{
    if (!d->pid)
        return 0;
    kill(d->pid, SIGTERM);
    int status = reap(d->pid, STOP_MS);
    if (status < 0) {
        show_log(d);
        harness_kill(d);
    }
    d->pid = 0;
    unlink(d->socket);
    unlink(d->log);
    rmdir(d->directory);
    d->directory[0] = 0;
    return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void harness_kill(struct harness *d)
{
    kill(d->pid, SIGKILL);
    waitpid(d->pid, NULL, 0);
    d->pid = 0;
}

int64_t harness_counter(const struct harness *d, const char *name)
{
    static char json[65536];
    char key[80], err[256];
    struct hearth_options o;
    struct hearth *h;
    hearth_options_init(&o, sizeof(o));
    o.slots = 0; /* asks without counting as a client */
    int rc = hearth_connect(d->socket, &o, &h, err, sizeof(err));
    ck_assert_msg(rc == 0, "%s", err);
    int64_t n = hearth_status(h, json, sizeof(json));
    ck_assert_msg(n > 0, "%s", hearth_error(h));
    hearth_close(h);
    snprintf(key, sizeof(key), "\"%s\":", name);
    const char *at = strstr(json, key);
    return at ? strtoll(at + strlen(key), NULL, 10) : -1;
}

int64_t harness_wait_counter(const struct harness *d, const char *name, int64_t value)
{
    int64_t last = -1;
    for (uint64_t start = now_ms(); now_ms() - start < COUNTER_MS; usleep(5000)) {
        last = harness_counter(d, name);
        if (last == value)
            break;
    }
    return last;
}

void harness_check_drafts(const struct harness *d)
{
    ck_assert_int_eq(harness_wait_counter(d, "slots_active", 0), 0);
    int64_t accepted = harness_counter(d, "accepted_drafts");
    ck_assert_int_eq(harness_counter(d, "drafted"), accepted +
                                                        harness_counter(d, "rejected_drafts") +
                                                        harness_counter(d, "unused_drafts"));
    ck_assert_int_eq(harness_counter(d, "output_tokens"),
                     accepted + harness_counter(d, "own_picks"));
}

void harness_check_pages(const struct harness *d)
{
    int64_t total = harness_counter(d, "pages_total");
    ck_assert_int_eq(harness_wait_counter(d, "pages_free", total), total);
}

struct hearth *harness_connect(const struct harness *d, uint32_t slots, const char *slot_name)
{
    struct hearth_options o;
    struct hearth *h;
    char err[256];
    hearth_options_init(&o, sizeof(o));
    o.slots = slots;
    o.slot_name = slot_name;
    o.resume_ms = 0; /* do not wait for a daemon that the test stopped */
    int rc = hearth_connect(d->socket, &o, &h, err, sizeof(err));
    ck_assert_msg(rc == 0, "%s", err);
    return h;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* In the child: becomes the program, with these descriptors as stdin, stdout and stderr. */
static void exec_program(const char *name, const struct harness *d, const int fds[3],
                         const char *const *arguments)
{
    const char *argv[128] = {harness_program(name)};
    for (size_t n = 1; *arguments; n++) {
        if (n == sizeof(argv) / sizeof(argv[0]) - 1)
            _exit(127); /* too many */
        argv[n] = *arguments++;
    }
    for (int i = 0; i < 3; i++)
        dup2(fds[i], i);
    setenv("HEARTH_SOCKET", d ? d->socket : "/nonexistent/hearth.sock", 1);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(argv[0], (char **)(uintptr_t)argv);
    _exit(127);
}

int harness_wait(pid_t pid)
{
    int status = reap(pid, RUN_MS);
    if (status < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void append(char **text, size_t *bytes, int *fd)
{
    *text = realloc(*text, *bytes + 65536 + 1);
    ck_assert_ptr_nonnull(*text);
    ssize_t n = read(*fd, *text + *bytes, 65536);
    if (n > 0) {
        *bytes += (size_t)n;
    } else if (n == 0 || errno != EINTR) {
        close(*fd);
        *fd = -1;
    }
    (*text)[*bytes] = 0;
}

/* Feeds input and collects both outputs until they end. */
static void communicate(int in, const char *input, int out, int error, struct harness_output *o)
{
    size_t left = input ? strlen(input) : 0;
    uint64_t start = now_ms();
    while ((out >= 0 || error >= 0) && now_ms() - start < RUN_MS) {
        if (in >= 0 && !left) {
            close(in);
            in = -1;
        }
        struct pollfd p[3] = {{.fd = in, .events = POLLOUT},
                              {.fd = out, .events = POLLIN},
                              {.fd = error, .events = POLLIN}};
        poll(p, 3, 100);
        if (p[0].revents) {
            ssize_t n = write(in, input, left < 65536 ? left : 65536);
            left = n > 0 ? left - (size_t)n : errno == EAGAIN ? left : 0;
            input += n > 0 ? n : 0;
        }
        if (p[1].revents)
            append(&o->out, &o->out_bytes, &out);
        if (p[2].revents)
            append(&o->error, &o->error_bytes, &error);
    }
    const int fds[] = {in, out, error};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static struct harness_output run_program(const char *name, const struct harness *d,
                                         const char *input, const char *const *arguments)
{
    struct harness_output o = {.out = calloc(1, 1), .error = calloc(1, 1)};
    int in[2], out[2], error[2];
    ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(error, O_CLOEXEC), 0);
    signal(SIGPIPE, SIG_IGN); /* a program may ignore its stdin */
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        exec_program(name, d, (const int[]){in[0], out[1], error[1]}, arguments);
    close(in[0]);
    close(out[1]);
    close(error[1]);
    communicate(in[1], input, out[0], error[0], &o);
    o.code = harness_wait(pid);
    return o;
}

struct harness_output harness_run(const struct harness *d, const char *input,
                                  const char *const *arguments)
{
    return run_program("hearth", d, input, arguments);
}

struct harness_output harness_run_hearthd(const char *const *arguments)
{
    return run_program("hearthd", NULL, NULL, arguments);
}

void harness_output_fini(struct harness_output *o)
{
    free(o->out);
    free(o->error);
    memset(o, 0, sizeof(*o));
}

pid_t harness_spawn(const struct harness *d, int *ret_fd, const char *const *arguments)
{
    int out[2] = {-1, -1};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (ret_fd)
        ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        exec_program("hearth", d, (const int[]){null, ret_fd ? out[1] : null, null}, arguments);
    close(null);
    if (ret_fd) {
        close(out[1]);
        *ret_fd = out[0];
    }
    return pid;
}

pid_t harness_activate(const char *const *argv, int listen_fd, int n)
{
    char pid_text[16], n_text[16];
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(pid_text, sizeof(pid_text), "%d", (int)getpid());
    snprintf(n_text, sizeof(n_text), "%d", n);
    setenv("LISTEN_FDS", n_text, 1);
    setenv("LISTEN_PID", pid_text, 1);
    listen_fd = fcntl(listen_fd, F_DUPFD, 3 + n);
    for (int i = 0; i < n; i++)
        dup2(listen_fd, 3 + i);
    execv(argv[0], (char **)(uintptr_t)argv);
    _exit(127);
}

/* ---- a command during its answer ------------------------------------------------------------- */

void harness_begin(struct harness_running *r, const struct harness *d, const char *const *arguments)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), out[2], error[2];
    *r = (struct harness_running){.output = {.out = calloc(1, 1), .error = calloc(1, 1)}};
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(error, O_CLOEXEC), 0);
    ck_assert_int_ge(fcntl(out[0], F_SETPIPE_SZ, SMALL_PIPE), 0);
    r->pid = fork();
    ck_assert_int_ge(r->pid, 0);
    if (r->pid == 0)
        exec_program("hearth", d, (const int[]){null, out[1], error[1]}, arguments);
    close(null);
    close(out[1]);
    close(error[1]);
    r->out = out[0];
    r->error = error[0];
    struct pollfd p = {.fd = r->out, .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, RUN_MS), 1);
}

void harness_await(struct harness_running *r, const char *said)
{
    struct harness_output *o = &r->output;
    uint64_t start = now_ms();
    while ((r->out >= 0 || r->error >= 0) && !(said && strstr(o->error, said))) {
        ck_assert_msg(now_ms() - start < RUN_MS, "not said: %s: %s", said ? said : "", o->error);
        struct pollfd p[2] = {{.fd = r->out, .events = POLLIN}, {.fd = r->error, .events = POLLIN}};
        poll(p, 2, 100);
        if (p[0].revents)
            append(&o->out, &o->out_bytes, &r->out);
        if (p[1].revents)
            append(&o->error, &o->error_bytes, &r->error);
    }
}

struct harness_output harness_finish(struct harness_running *r)
{
    harness_await(r, NULL);
    r->output.code = harness_wait(r->pid);
    return r->output;
}

void harness_join_ids(const json_t *ids, char *ret_text, size_t text_bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < json_array_size(ids); i++)
        n += (size_t)snprintf(ret_text + n, text_bytes - n, "%s%lld", i ? "," : "",
                              (long long)json_integer_value(json_array_get(ids, i)));
    ck_assert_uint_lt(n, text_bytes);
}
