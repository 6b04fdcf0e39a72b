/* bench_daemon: what a client sees of a real hearthd: echoes through the rings, tokens a second,
 * and a whole `hearth run` from process start to exit. Floors are measured beside, in the same run.
 *
 *   bench_daemon BIN_FOLDER NOOP_PROGRAM MODEL...
 */
#include "client/hearth.h"
#include "ipc/bell.h"
#include "ipc/event.h"
#include "ipc/hello.h"
#include "ipc/segment.h"
#include "tests/bench/bench.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ECHOES = 20000, SLEEPS = 2000, RUNS = 60, REPEATS = 5, IDLE_US = 100 };

extern char **environ;

static char folder[] = "/tmp/hearth-bench-XXXXXX";
static char socket_path[64];
static const char *bin_folder, *noop_program;
static pid_t daemon_pid;

static void fail(const char *what)
{
    fprintf(stderr, "bench_daemon: %s\n", what);
    if (daemon_pid > 0)
        kill(daemon_pid, SIGKILL);
    exit(1);
}

/* ---- a daemon of our own -----------------------------------------------------------------------
 */

static void start_daemon(const char *model, const char *linger_us, const char *threads)
{
    char program[4096];
    char *arguments[] = {program,         "--model",     (char *)model,     "--socket",
                         socket_path,     "--linger-us", (char *)linger_us, "--threads",
                         (char *)threads, "--log-level", "error",           NULL};

    snprintf(program, sizeof(program), "%s/hearthd", bin_folder);
    if (posix_spawn(&daemon_pid, program, NULL, NULL, arguments, environ) != 0)
        fail("cannot start hearthd");
    for (int i = 0; i < 2000 && access(socket_path, F_OK) < 0; i++)
        usleep(5000);
    if (access(socket_path, F_OK) < 0)
        fail("hearthd did not come up");
}

static void stop_daemon(void)
{
    int status;

    kill(daemon_pid, SIGTERM);
    waitpid(daemon_pid, &status, 0);
    daemon_pid = 0;
}

/* ---- floors -------------------------------------------------------------------------------------
 */

/* Two threads and one word each; plain spinning, or a futex. */
struct pair {
    _Alignas(128) _Atomic uint32_t there;
    _Alignas(128) _Atomic uint32_t back;
    uint32_t rounds;
    int sleeps;
};

static long futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    return syscall(SYS_futex, (void *)word, operation, value, NULL, NULL, 0);
}

static void pair_wait(struct pair *pair, _Atomic uint32_t *word, uint32_t old)
{
    while (atomic_load_explicit(word, memory_order_acquire) == old) {
        if (pair->sleeps)
            futex(word, FUTEX_WAIT, old);
        else
            bench_pause();
    }
}

static void pair_set(struct pair *pair, _Atomic uint32_t *word, uint32_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
    if (pair->sleeps)
        futex(word, FUTEX_WAKE, 1);
}

static void *pair_answer(void *arg)
{
    struct pair *pair = arg;

    for (uint32_t i = 0; i < pair->rounds; i++) {
        pair_wait(pair, &pair->there, i);
        pair_set(pair, &pair->back, i + 1);
    }
    return NULL;
}

static double floor_us(uint32_t rounds, int sleeps)
{
    static struct pair pair;
    struct bench_samples samples;
    pthread_t thread;

    pair = (struct pair){.rounds = rounds, .sleeps = sleeps};
    if (bench_samples_open(&samples, rounds) < 0 ||
        pthread_create(&thread, NULL, pair_answer, &pair) != 0)
        fail("no memory");
    for (uint32_t i = 0; i < rounds; i++) {
        if (sleeps)
            usleep(IDLE_US); /* as long as the echo below idles: a core that rests wakes slower */
        uint64_t start = bench_ticks();
        pair_set(&pair, &pair.there, i + 1);
        pair_wait(&pair, &pair.back, i);
        bench_add(&samples, bench_ticks() - start);
    }
    pthread_join(thread, NULL);
    double us = bench_percentile_us(&samples, 50);
    bench_samples_close(&samples);
    return us;
}

/* ---- echoes: SUBMIT_NOP through a client's own rings
 * ---------------------------------------------- */

struct raw {
    int socket_fd;
    int fds[HELLO_FDS];
    struct segment segment;
    const void *ctl;
    struct ring_writer submit;
    struct ring_reader events;
    struct bell_sleeper sleeper;
};

static void raw_open(struct raw *raw)
{
    struct hello hello;
    struct hello_welcome welcome;
    char err[256];

    raw->socket_fd = hello_connect(socket_path, err, sizeof(err));
    if (raw->socket_fd < 0 || hello_prep_hello(&hello, 1, 0, NULL) < 0 ||
        hello_send(raw->socket_fd, &hello, sizeof(hello), NULL, 0) < 0 ||
        hello_recv_answer(raw->socket_fd, &welcome, raw->fds, 10000, err, sizeof(err)) < 0 ||
        segment_map(&raw->segment, raw->fds[HELLO_FD_UP], raw->fds[HELLO_FD_DOWN], &welcome.limits,
                    err, sizeof(err)) < 0 ||
        segment_map_sealed(raw->fds[HELLO_FD_CTL], sizeof(struct ctl), &raw->ctl, err,
                           sizeof(err)) < 0)
        fail("handshake failed");
    segment_submit_writer(&raw->segment, &raw->submit);
    segment_event_reader(&raw->segment, 0, &raw->events);
    bell_sleeper_init(&raw->sleeper, &segment_down_head(&raw->segment)->wake,
                      &segment_up_head(&raw->segment)->waiting, raw->socket_fd, -1);
}

static void raw_close(struct raw *raw)
{
    munmap((void *)(uintptr_t)raw->ctl, sizeof(struct ctl));
    segment_close(&raw->segment);
    for (int i = 0; i < HELLO_FDS; i++)
        if (raw->fds[i] >= 0)
            close(raw->fds[i]);
    close(raw->socket_fd);
}

static int raw_ready(const void *arg)
{
    return ring_ready(arg);
}

static void raw_echo(struct raw *raw, int sleeps)
{
    struct submit_cell cell = {.opcode = SUBMIT_NOP, .cookie = 1};
    struct bell_patience patience = {0};
    struct event_cell event;

    if (ring_space_known(&raw->submit) == 0 && ring_space(&raw->submit) <= 0)
        fail("the submit ring is full");
    ring_push(&raw->submit, &cell);
    bell_ring(raw->ctl, raw->fds[HELLO_FD_BELL]);
    while (ring_peek(&raw->events, &event) == 0) {
        if (sleeps)
            bell_wait(&raw->sleeper, raw_ready, &raw->events, &patience);
        else
            bench_pause();
    }
    ring_release(&raw->events, 1);
}

static void bench_echo(const char *model, int sleeps)
{
    uint32_t n = sleeps ? SLEEPS : ECHOES;
    struct bench_samples samples;
    struct raw raw;
    struct bench_row row = {
        .bench = "ipc",
        .what = sleeps ? "noop_round_trip_asleep" : "noop_round_trip_spinning",
        .clients = 1,
        .target_p50_us = sleeps ? 0 : 0.5,
        .target_p99_us = sleeps ? 0 : 1,
        .target_x_floor =
            sleeps ? 1.2 : 0.5 / 0.30, /* the target over the floor it was set beside */
        .note = "through a real hearthd",
    };

    start_daemon(model, sleeps ? "0" : "1000000", "1");
    raw_open(&raw);
    row.floor_us = floor_us(n, sleeps);
    if (bench_samples_open(&samples, (size_t)n * REPEATS) < 0)
        fail("no memory");
    for (uint32_t i = 0; i < n / 10; i++)
        raw_echo(&raw, sleeps);
    for (uint32_t i = 0; i < n * REPEATS; i++) {
        if (sleeps)
            usleep(IDLE_US); /* both fall asleep */
        uint64_t start = bench_ticks();
        raw_echo(&raw, sleeps);
        bench_add(&samples, bench_ticks() - start);
    }
    bench_print_samples(row, &samples);
    bench_samples_close(&samples);
    raw_close(&raw);
    stop_daemon();
}

/* ---- tokens
 * -------------------------------------------------------------------------------------- */

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare_double);
    return values[n / 2];
}

/* One request to its end; the daemon's own times of it. */
static struct hearth_result ask(struct hearth *h, uint32_t slot, const uint32_t *tokens, uint32_t n,
                                uint32_t max_tokens)
{
    const struct hearth_event *event;
    struct hearth_request request;

    hearth_request_init(&request, sizeof(request));
    request.tokens = tokens;
    request.n_tokens = n;
    request.max_tokens = max_tokens;
    if (hearth_submit(h, slot, &request) < 0)
        fail(hearth_error(h));
    while (hearth_next(h, slot, &event, 60000) > 0)
        if (event->kind == HEARTH_DONE)
            return *event->result;
    fail(hearth_error(h));
    return (struct hearth_result){0};
}

/* Text that repeats: what drafting saves. Both sides in one run, taken in turns. */
static void bench_repeat(const char *model)
{
    static const char text[] = "def get_name(self):\n    return self._name\n\n"
                               "def get_path(self):\n    return self._path\n\n"
                               "def get_size(self):\n    return self._size\n\n";
    double none[REPEATS], with[REPEATS], passes = 0;
    const struct hearth_event *event;
    struct hearth *h;
    char err[256];

    start_daemon(model, "200", "1");
    if (hearth_connect(socket_path, NULL, &h, err, sizeof(err)) < 0)
        fail(err);
    for (int i = 0; i < 2 * REPEATS; i++) {
        struct hearth_request request;
        hearth_request_init(&request, sizeof(request));
        request.text = text;
        request.text_bytes = sizeof(text) - 1;
        request.max_tokens = 200;
        request.proposer = i % 2 ? "auto" : "none";
        if (hearth_submit(h, 0, &request) < 0)
            fail(hearth_error(h));
        while (hearth_next(h, 0, &event, 60000) > 0 && event->kind != HEARTH_DONE)
            ;
        double tok_s =
            (double)(event->result->output_tokens - 1) * 1e9 / (double)event->result->decode_ns;
        (i % 2 ? with : none)[i / 2] = tok_s;
        passes = (double)event->result->passes;
    }
    const char *name = strrchr(model, '/') ? strrchr(model, '/') + 1 : model;
    double plain = median(none, REPEATS), drafted = median(with, REPEATS);
    printf("{\"bench\":\"speculation\",\"what\":\"auto_on_repetitive_text\",\"model\":\"%s\","
           "\"threads\":1,"
           "\"tokens\":200,\"passes\":%.0f,\"none_tok_s\":%.0f,\"tok_s\":%.0f,\"x_none\":%.2f}\n",
           name, passes, plain, drafted, drafted / plain);
    fflush(stdout);
    hearth_close(h);
    stop_daemon();
}

static void bench_tokens(const char *model, const char *threads)
{
    struct hearth_info info = {.size = sizeof(info)};
    double decode[REPEATS], prefill[REPEATS];
    struct hearth *h;
    char err[256];

    start_daemon(model, "200", threads);
    if (hearth_connect(socket_path, NULL, &h, err, sizeof(err)) < 0 || hearth_info(h, &info) < 0)
        fail(err);
    uint32_t n = info.context / 2, answer = info.context / 2 - 1, rows = 0, tokens = 0;
    uint32_t *prompt = calloc(n, sizeof(*prompt));
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (uint32_t i = 0; i < n; i++) /* another prompt each time: nothing of it is warm */
            prompt[i] = (i * 7919u + (uint32_t)repeat * 104729u + 11) % (info.n_vocab - 8) + 4;
        struct hearth_result r = ask(h, 0, prompt, n, 1);
        prefill[repeat] =
            (double)(rows = r.prompt_tokens - r.cached_tokens) * 1e9 / (double)r.prefill_ns;
        r = ask(h, 0, prompt, 4, answer);
        tokens = r.output_tokens;
        decode[repeat] = (double)(tokens - 1) * 1e9 / (double)r.decode_ns;
    }
    const char *name = info.model;
    printf("{\"bench\":\"daemon\",\"what\":\"decode\",\"model\":\"%s\",\"threads\":%s,\"slots\":1,"
           "\"tokens\":%u,\"tok_s\":%.0f}\n",
           name, threads, tokens, median(decode, REPEATS));
    printf("{\"bench\":\"daemon\",\"what\":\"prefill\",\"model\":\"%s\",\"threads\":%s,\"slots\":1,"
           "\"tokens\":%u,\"tok_s\":%.0f}\n",
           name, threads, rows, median(prefill, REPEATS));
    fflush(stdout);
    free(prompt);
    hearth_close(h);
    stop_daemon();
}

/* ---- processes
 * ------------------------------------------------------------------------------------- */

static uint64_t run_program(char *const *arguments)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    uint64_t start = bench_ticks();
    if (posix_spawn(&pid, arguments[0], &actions, NULL, arguments, environ) != 0)
        fail("cannot start a program");
    waitpid(pid, &status, 0);
    uint64_t took = bench_ticks() - start;
    posix_spawn_file_actions_destroy(&actions);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("hearth run failed");
    return took;
}

static void bench_process(const char *model)
{
    char program[4096];
    char *run[] = {program, "run",          "--socket", socket_path, "--tokens",
                   "1",     "--max-tokens", "1",        NULL};
    char *noop[] = {(char *)noop_program, NULL};
    struct bench_samples runs, floors;

    snprintf(program, sizeof(program), "%s/hearth", bin_folder);
    start_daemon(model, "200", "1");
    if (bench_samples_open(&runs, RUNS) < 0 || bench_samples_open(&floors, RUNS) < 0)
        fail("no memory");
    run_program(run);
    for (int i = 0; i < RUNS; i++) {
        bench_add(&floors, run_program(noop));
        bench_add(&runs, run_program(run));
    }
    struct bench_row row = {
        .bench = "ipc",
        .what = "hearth_run_one_token",
        .clients = 1,
        .floor_us = bench_percentile_us(&floors, 50),
        .note = "target: floor (fork and exec of a static no-op) + 2000 us",
    };
    row.target_p50_us = row.floor_us + 2000;
    bench_print_samples(row, &runs);
    bench_samples_close(&runs);
    bench_samples_close(&floors);
    stop_daemon();
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: bench_daemon BIN_FOLDER NOOP_PROGRAM MODEL...\n");
        return 64;
    }
    bin_folder = argv[1];
    noop_program = argv[2];
    if (!mkdtemp(folder))
        fail("no temporary folder");
    snprintf(socket_path, sizeof(socket_path), "%s/s", folder);
    bench_echo(argv[3], 0);
    bench_echo(argv[3], 1);
    bench_process(argv[3]);
    for (int i = 3; i < argc; i++) {
        bench_tokens(argv[i], "1");
        bench_tokens(argv[i], "2");
        bench_repeat(argv[i]);
    }
    rmdir(folder);
    return 0;
}
