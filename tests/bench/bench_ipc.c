/* bench_ipc: the rows of the IPC table that need no model: rings and bells between two threads on
 * two cores, one in the daemon's place and one in the clients'. Each row's floor is measured just
 * before it by the plainest thing that could do the same: one cache line, one futex, one stream of
 * stores.
 *
 *   bench_ipc [WORD]     only rows whose name contains WORD
 */
#include "tests/bench/ipc_rig.h"
#include "tests/random.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 5      /* of each row: samples of all are taken together */
#define SAMPLES 10000 /* per round */

static const char *only = "";

/* ---- submit seen by a spinning daemon -------------------------------------------------------- */

static void *submit_client(void *arg)
{
    struct bench_job *j = arg;
    uint32_t random = 1;

    bench_pin(1);
    for (uint64_t i = 0; i < j->rounds; i++) {
        struct bench_client *e = &rig_clients[next_random(&random) % (uint32_t)j->clients];
        struct submit_cell cell = {.opcode = SUBMIT_NOP};

        rig_breathe(i);
        cell.cookie = bench_ticks();
        ring_push(&e->submit_out, &cell);
        bell_ring(rig_ctl, rig_bell);
        while (ring_space(&e->submit_out) != RIG_SUBMIT_CELLS)
            bench_pause();
    }
    rig_store(&rig_stop, 1);
    return NULL;
}

static void submit_daemon(void *arg)
{
    struct bench_job *j = arg;
    struct submit_cell cell;

    while (rig_load(&rig_stop) == 0)
        for (int i = 0; i < j->clients; i++)
            if (ring_peek(&rig_submit_in[i], &cell) == 1) {
                bench_add(&j->samples, bench_ticks() - cell.cookie);
                ring_release(&rig_submit_in[i], 1);
            }
}

/* ---- events seen by a client ----------------------------------------------------------------- */

static int client_ready(const void *arg)
{
    return ring_ready(&((const struct bench_client *)arg)->events_in);
}

/* Without a period the client spins; with one it predicts the event and sleeps like the library. */
struct event_job {
    struct bench_job job;
    uint64_t guard_us;
    double cpu_share;
};

static void *event_client(void *arg)
{
    struct event_job *j = arg;
    struct bench_client *e = &rig_clients[0];
    struct timespec cpu;
    uint64_t start = bell_now_ns(), expect = 0;

    bench_pin(1);
    for (uint64_t i = 0; i < j->job.rounds; i++) {
        struct bell_patience p = {.spin_ns = 1000000000u};
        struct event_run run;

        if (j->job.period_us != 0 && expect != 0)
            p = (struct bell_patience){.expect_ns = expect,
                                       .guard_ns = (uint32_t)j->guard_us * 1000u};
        if (bell_wait(&e->sleeper, client_ready, e, &p) != 0 ||
            event_next(&e->events_in, &run) != 1)
            abort();
        uint64_t now = bench_ticks(), cookie;

        event_nop(&run, &cookie);
        bench_add(&j->job.samples, now - cookie);
        ring_release(&e->events_in, run.cells);
        expect = bell_now_ns() + atomic_load_explicit(&rig_ctl->step_ns, memory_order_relaxed);
        rig_store(&rig_pong, i + 1);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    j->cpu_share =
        ((double)cpu.tv_sec * 1e9 + (double)cpu.tv_nsec) / (double)(bell_now_ns() - start);
    return NULL;
}

static void event_daemon(void *arg)
{
    struct event_job *j = arg;

    for (uint64_t i = 0; i < j->job.rounds; i++) {
        rig_idle(&j->job, i);
        if (event_put_nop(&rig_events_out[0], 1, bench_ticks()) != 0)
            abort();
        bell_fence();
        if (bell_due(&rig_wakers[0]) == BELL_FUTEX)
            bell_wake(rig_wakers[0].wake);
        bell_daemon_pulse(rig_ctl, bell_now_ns(), j->job.period_us * 1000u);
        while (rig_load(&rig_pong) != i + 1)
            bench_pause();
    }
}

/* ---- no-op round trips ----------------------------------------------------------------------- */

static void noop_answer(int i)
{
    struct submit_cell cell;

    if (ring_peek(&rig_submit_in[i], &cell) != 1)
        return;
    if (event_put_nop(&rig_events_out[i], cell.generation, cell.cookie) != 0)
        abort();
    ring_release(&rig_submit_in[i], 1); /* after the answer: the client may hold its cache line */
    bell_fence();
    if (bell_due(&rig_wakers[i]) == BELL_FUTEX)
        bell_wake(rig_wakers[i].wake);
}

static void noop_daemon_spinning(void *arg)
{
    struct bench_job *j = arg;

    while (rig_load(&rig_stop) == 0)
        for (int i = 0; i < j->clients; i++)
            noop_answer(i);
}

static void noop_daemon_sleeping(void *arg)
{
    struct epoll_event event;

    (void)arg;
    while (rig_load(&rig_stop) == 0) {
        bell_daemon_sleep(rig_ctl);
        if (!ring_ready(&rig_submit_in[0]))
            epoll_wait(rig_epoll, &event, 1, 250);
        bell_daemon_awake(rig_ctl);
        noop_answer(0);
    }
}

static void noop_calls(struct bench_job *j, uint32_t spin_ns, int pause_us)
{
    struct bench_client *e = &rig_clients[0];

    bench_pin(1);
    for (uint64_t i = 0; i < j->rounds; i++) {
        struct bell_patience p = {.spin_ns = spin_ns};
        struct submit_cell cell = {.opcode = SUBMIT_NOP, .cookie = i};
        struct event_run run;

        if (pause_us > 0)
            usleep((useconds_t)pause_us);
        uint64_t start = bench_ticks();

        ring_push(&e->submit_out, &cell);
        bell_ring(rig_ctl, rig_bell);
        if (bell_wait(&e->sleeper, client_ready, e, &p) != 0 ||
            event_next(&e->events_in, &run) != 1)
            abort();
        bench_add(&j->samples, bench_ticks() - start);
        ring_release(&e->events_in, run.cells);
        if (ring_space_known(&e->submit_out) == 0 && ring_space(&e->submit_out) < 1)
            abort();
    }
    rig_store(&rig_stop, 1);
    bell_ring(rig_ctl, rig_bell);
}

static void *noop_client_spinning(void *arg)
{
    noop_calls(arg, 1000000000u, 0);
    return NULL;
}

static void *noop_client_sleeping(void *arg)
{
    noop_calls(arg, 0, 200);
    return NULL;
}

/* ---- throughput of one event ring ------------------------------------------------------------ */

#define STREAM_TOKENS 24000000u
static uint32_t stream_batch; /* tokens per put */

static void *stream_client(void *arg)
{
    struct ring_reader *r = &rig_clients[0].events_in;
    uint64_t seen = 0, sum = 0;
    struct event_run run;

    (void)arg;
    bench_pin(1);
    while (seen < STREAM_TOKENS) {
        const uint32_t *tokens;

        if (event_next(r, &run) != 1) {
            bench_pause();
            continue;
        }
        uint32_t n = event_tokens(&run, &tokens);

        for (uint32_t i = 0; i < n; i++)
            sum += tokens[i];
        seen += n;
        ring_release(r, run.cells);
    }
    rig_store(&rig_stop, sum + 1);
    return NULL;
}

static void stream_daemon(void *arg)
{
    struct bench_job *j = arg;
    uint32_t tokens[48], sent = 0;
    uint64_t start = bench_ticks();

    for (uint32_t i = 0; i < 48; i++)
        tokens[i] = i;
    while (sent < STREAM_TOKENS) {
        if (event_put_tokens(&rig_events_out[0], 1, sent, tokens, stream_batch) == 0)
            sent += stream_batch;
        else
            bench_pause();
    }
    while (rig_load(&rig_stop) == 0)
        bench_pause();
    bench_add(&j->samples, bench_ticks() - start);
}

/* The floor: the same bytes as plain cells, without records, with only the ring's own space
 * check. */
static void *cells_client(void *arg)
{
    struct ring_reader *r = &rig_clients[0].events_in;
    uint64_t sum = 0;
    struct event_cell cell;

    (void)arg;
    bench_pin(1);
    for (uint32_t i = 0; i < STREAM_TOKENS / EVENT_TOKENS_MAX; i++) {
        while (ring_peek(r, &cell) != 1)
            bench_pause();
        sum += cell.position;
        ring_release(r, 1);
    }
    rig_store(&rig_stop, sum + 1);
    return NULL;
}

static void cells_daemon(void *arg)
{
    struct bench_job *j = arg;
    struct event_cell cell = {.kind = EVENT_TOKENS};
    uint64_t start = bench_ticks();

    for (uint32_t i = 0; i < STREAM_TOKENS / EVENT_TOKENS_MAX; i++) {
        while (ring_space_known(&rig_events_out[0]) == 0 && ring_space(&rig_events_out[0]) == 0)
            bench_pause();
        ring_push(&rig_events_out[0], &cell);
    }
    while (rig_load(&rig_stop) == 0)
        bench_pause();
    bench_add(&j->samples, bench_ticks() - start);
}

/* ---- publishing a step ----------------------------------------------------------------------- */

/* Consumes every client's events, following the daemon from ring to ring, then reports the end of
 * the step. */
static void *publish_clients(void *arg)
{
    struct bench_job *j = arg;
    struct event_run run;

    bench_pin(1);
    for (uint64_t step = 1; step <= j->rounds; step++) {
        for (int i = 0; i < j->clients; i++) {
            while (event_next(&rig_clients[i].events_in, &run) != 1)
                bench_pause();
            ring_release(&rig_clients[i].events_in, run.cells);
        }
        rig_store(&rig_pong, step);
    }
    return NULL;
}

static void publish_daemon(void *arg)
{
    struct bench_job *j = arg;
    uint32_t token = 5;

    for (uint64_t step = 1; step <= j->rounds; step++) {
        rig_breathe(step);
        uint64_t start = bench_ticks();

        for (int i = 0; i < j->clients; i++) {
            if (event_put_tokens(&rig_events_out[i], 1, (uint32_t)step, &token, 1) != 0)
                abort();
        }
        bell_fence();
        for (int i = 0; i < j->clients; i++)
            if (bell_due(&rig_wakers[i]) != BELL_NONE)
                abort();
        bench_add(&j->samples, bench_ticks() - start);
        while (rig_load(&rig_pong) != step)
            bench_pause();
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int wanted(const char *what)
{
    return strstr(what, only) != NULL;
}

/* Measures in rounds, each after its floor, and prints one row. */
static void row(struct bench_row r, int samples, void *(*other)(void *), void (*daemon)(void *),
                void *(*floor_other)(void *), void (*floor_daemon)(void *))
{
    struct bench_job j = {.clients = r.clients > 0 ? r.clients : 1, .rounds = (uint64_t)samples};
    struct bench_job f = j;

    if (!wanted(r.what))
        return;
    bench_samples_open(&j.samples, (size_t)samples * ROUNDS);
    bench_samples_open(&f.samples, (size_t)samples * ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        rig_beside(floor_other, &f, floor_daemon);
        rig_beside(other, &j, daemon);
    }
    r.bench = "ipc";
    r.floor_us = bench_percentile_us(&f.samples, 50);
    bench_print_samples(r, &j.samples);
    bench_samples_close(&j.samples);
    bench_samples_close(&f.samples);
}

static void submit_rows(void)
{
    static const int counts[] = {1, 64, 256};

    for (int i = 0; i < 3; i++)
        row((struct bench_row){.what = "submit_seen_spinning",
                               .clients = counts[i],
                               .target_p50_us = counts[i] <= 64 ? 0.25 : 0,
                               .target_x_floor = counts[i] <= 64 ? 0.25 / 0.15 : 0,
                               .target_p99_us = counts[i] <= 64 ? 0.5 : 0},
            SAMPLES, submit_client, submit_daemon, rig_line_writer, rig_line_reader);
}

static void event_row(const char *what, uint64_t period_us, int samples)
{
    struct bench_row r = {.bench = "ipc",
                          .what = what,
                          .target_p50_us = 0.35,
                          .target_p99_us = 7,
                          .target_x_floor = 0.35 / 0.2};
    struct event_job j = {.job = {.period_us = period_us, .rounds = (uint64_t)samples},
                          .guard_us = 200};
    struct bench_job f = j.job;
    char note[64];

    if (!wanted(what))
        return;
    bench_samples_open(&j.job.samples, (size_t)samples * ROUNDS);
    bench_samples_open(&f.samples, (size_t)samples * ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        rig_beside(rig_line_writer, &f, rig_line_reader);
        rig_beside(event_client, &j, event_daemon);
    }
    snprintf(note, sizeof(note), "client used %.1f %% of a core", 100 * j.cpu_share);
    r.note = note;
    r.floor_us = bench_percentile_us(&f.samples, 50);
    bench_print_samples(r, &j.job.samples);
    bench_samples_close(&j.job.samples);
    bench_samples_close(&f.samples);
}

static void stream_row(const char *what, uint32_t batch, double target)
{
    struct bench_row r = {.bench = "ipc", .what = what, .target_m_per_s = target};
    struct bench_job j = {0}, f = {0};

    if (!wanted(what))
        return;
    stream_batch = batch;
    bench_samples_open(&j.samples, ROUNDS);
    bench_samples_open(&f.samples, ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        rig_beside(cells_client, &f, cells_daemon);
        rig_beside(stream_client, &j, stream_daemon);
    }
    r.m_per_s = STREAM_TOKENS / bench_percentile_us(&j.samples, 50);
    r.floor_m_per_s = STREAM_TOKENS / bench_percentile_us(&f.samples, 50);
    bench_print(&r);
    bench_samples_close(&j.samples);
    bench_samples_close(&f.samples);
}

int main(int argc, char **argv)
{
    struct bench_row noop = {.what = "noop_rings_both_spinning",
                             .target_p50_us = 0.5,
                             .target_p99_us = 1,
                             .target_x_floor = 0.5 / 0.3};
    struct bench_row asleep = {.what = "noop_rings_both_asleep", .target_x_floor = 1.2};

    struct bench_row few = {
        .what = "publish_step", .clients = 64, .target_p50_us = 1, .target_x_floor = 2};
    struct bench_row many = {
        .what = "publish_step", .clients = 256, .target_p50_us = 3, .target_x_floor = 1.9};
    char err[200] = "";

    only = argc > 1 ? argv[1] : "";
    if (bench_pin(0) < 2) {
        printf("{\"bench\":\"ipc\",\"what\":\"skipped\",\"note\":\"needs two CPUs\"}\n");
        return 0;
    }
    bench_tick_ns();
    if (rig_open(err, sizeof(err)) < 0) {
        fprintf(stderr, "bench_ipc: cannot make %d clients: %s\n", CLIENTS_MAX, err);
        return 71;
    }
    submit_rows();
    event_row("event_seen_spinning", 0, SAMPLES);
    event_row("event_seen_predicted_5ms", 5000, 100);
    row(noop, SAMPLES, noop_client_spinning, noop_daemon_spinning, rig_echo_lines, rig_call_lines);
    row(asleep, 1000, noop_client_sleeping, noop_daemon_sleeping, rig_echo_futex, rig_call_futex);
    stream_row("tokens_one_ring", 12, 100);
    stream_row("tokens_one_ring_one_a_cell", 1, 0);
    row(few, SAMPLES / 4, publish_clients, publish_daemon, rig_lines_clients, rig_lines_daemon);
    row(many, SAMPLES / 4, publish_clients, publish_daemon, rig_lines_clients, rig_lines_daemon);
    return 0;
}
