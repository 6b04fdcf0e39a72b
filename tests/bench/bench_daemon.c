/* bench_daemon: what a client measures of a real hearthd: echoes through the rings, tokens per
 * second, and a whole `hearth run` from process start to exit. Floors are measured in the same run.
 *
 *   bench_daemon BIN_FOLDER NOOP_PROGRAM MODEL...
 */
#include "ipc/bell.h"
#include "ipc/event.h"
#include "ipc/hello.h"
#include "ipc/segment.h"
#include "tests/bench/bench.h"
#include "tests/bench/served.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ECHOES = 20000, SLEEPS = 2000, RUNS = 60, REPEATS = 5, IDLE_US = 100 };

extern char **environ;

static const char *noop_program;

static void start_daemon(const char *model, const char *linger_us, const char *threads)
{
    served_start(model,
                 (const char *const[]){"--linger-us", linger_us, "--threads", threads, NULL});
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
        served_fail("no memory");
    for (uint32_t i = 0; i < rounds; i++) {
        if (sleeps)
            usleep(IDLE_US); /* as long as the echo below idles: an idle core wakes slower */
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

/* ---- echoes: SUBMIT_NOP through a client's own rings ----------------------------------------- */

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

    raw->socket_fd = hello_connect(served_socket(), -1, err, sizeof(err));
    if (raw->socket_fd < 0 || hello_prep_hello(&hello, 1, 0, NULL) < 0 ||
        hello_send(raw->socket_fd, &hello, sizeof(hello), NULL, 0) < 0 ||
        hello_recv_answer(raw->socket_fd, &welcome, raw->fds, 10000, err, sizeof(err)) < 0 ||
        segment_map(&raw->segment, raw->fds[HELLO_FD_UP], raw->fds[HELLO_FD_DOWN], &welcome.limits,
                    err, sizeof(err)) < 0 ||
        segment_map_sealed(raw->fds[HELLO_FD_CTL], sizeof(struct ctl), &raw->ctl, err,
                           sizeof(err)) < 0)
        served_fail("handshake failed");
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
        served_fail("the submit ring is full");
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
        served_fail("no memory");
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
    served_stop();
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* One request to its end; returns the daemon's own times. */
static struct hearth_result ask(struct hearth *h, const uint32_t *tokens, uint32_t n,
                                uint32_t max_tokens)
{
    struct hearth_request request;

    hearth_request_init(&request, sizeof(request));
    request.tokens = tokens;
    request.n_tokens = n;
    request.max_tokens = max_tokens;
    return served_ask(h, 0, &request);
}

static void bench_tokens(const char *model, const char *threads)
{
    struct hearth_info info = {.size = sizeof(info)};
    double decode[REPEATS], prefill[REPEATS];

    start_daemon(model, "200", threads);
    struct hearth *h = served_connect(1);
    if (hearth_info(h, &info) < 0)
        served_fail(hearth_error(h));
    uint32_t n = info.context / 2, answer = info.context / 2 - 1, rows = 0, tokens = 0;
    uint32_t *prompt = calloc(n, sizeof(*prompt));
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (uint32_t i = 0; i < n; i++) /* another prompt each time: nothing is cached */
            prompt[i] = (i * 7919u + (uint32_t)repeat * 104729u + 11) % (info.n_vocab - 8) + 4;
        struct hearth_result r = ask(h, prompt, n, 1);
        prefill[repeat] =
            (double)(rows = r.prompt_tokens - r.cached_tokens) * 1e9 / (double)r.prefill_ns;
        r = ask(h, prompt, 4, answer);
        tokens = r.output_tokens;
        decode[repeat] = (double)(tokens - 1) * 1e9 / (double)r.decode_ns;
    }
    const char *name = info.model;
    printf("{\"bench\":\"daemon\",\"what\":\"decode\",\"model\":\"%s\",\"threads\":%s,\"slots\":1,"
           "\"tokens\":%u,\"tok_s\":%.0f}\n",
           name, threads, tokens, served_median(decode, REPEATS));
    printf("{\"bench\":\"daemon\",\"what\":\"prefill\",\"model\":\"%s\",\"threads\":%s,\"slots\":1,"
           "\"tokens\":%u,\"tok_s\":%.0f}\n",
           name, threads, rows, served_median(prefill, REPEATS));
    fflush(stdout);
    free(prompt);
    hearth_close(h);
    served_stop();
}

/* ---- processes ------------------------------------------------------------------------------- */

static uint64_t run_program(const char *const *arguments)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    uint64_t start = bench_ticks();
    if (posix_spawn(&pid, arguments[0], &actions, NULL, (char **)(uintptr_t)arguments, environ) !=
        0)
        served_fail("cannot start a program");
    waitpid(pid, &status, 0);
    uint64_t took = bench_ticks() - start;
    posix_spawn_file_actions_destroy(&actions);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        served_fail("hearth run failed");
    return took;
}

static void bench_process(const char *model)
{
    const char *run[] = {NULL,           "run", "--socket", served_socket(), "--tokens", "1",
                         "--max-tokens", "1",   NULL};
    const char *noop[] = {noop_program, NULL};
    struct bench_samples runs, floors;

    start_daemon(model, "200", "1");
    run[0] = served_program("hearth");
    if (bench_samples_open(&runs, RUNS) < 0 || bench_samples_open(&floors, RUNS) < 0)
        served_fail("no memory");
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
    served_stop();
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: bench_daemon BIN_FOLDER NOOP_PROGRAM MODEL...\n");
        return 64;
    }
    served_init(argv[1]);
    noop_program = argv[2];
    bench_echo(argv[3], 0);
    bench_echo(argv[3], 1);
    bench_process(argv[3]);
    for (int i = 3; i < argc; i++) {
        bench_tokens(argv[i], "1");
        bench_tokens(argv[i], "2");
    }
    served_fini();
    return 0;
}
