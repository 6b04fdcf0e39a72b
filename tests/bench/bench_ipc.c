/* bench_ipc: the rows of the IPC table that need no model: rings and bells between two threads on
 * two cores, one in the daemon's place and one in the clients'. Each row's floor is measured just
 * before it by the plainest thing that could do the same: one cache line, one futex, one stream of
 * stores.
 *
 *   bench_ipc [WORD]     only rows whose name contains WORD
 */
#include "ipc/bell.h"
#include "ipc/event.h"
#include "ipc/segment.h"
#include "tests/bench/bench.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLIENTS_MAX 256
#define ROUNDS 5      /* of each row: samples of all are taken together */
#define SAMPLES 10000 /* per round */

static const struct ipc_limits limits = {
    .slots = 2, .context = 1024, .submit_cells = 16, .event_cells = 128, .params_bytes = 256};

/* Clients as the daemon keeps them: what a scan touches lies side by side. */
static struct segment daemon_segments[CLIENTS_MAX];
static struct ring_reader submit_in[CLIENTS_MAX];
static struct ring_writer events_out[CLIENTS_MAX];
static struct bell_waker wakers[CLIENTS_MAX];

/* One client as its library keeps it. */
struct client {
    _Alignas(128) struct segment s;
    struct ring_writer submit_out;
    struct ring_reader events_in;
    struct bell_sleeper sleeper;
};
static struct client clients[CLIENTS_MAX];

static struct ctl *ctl;
static int bell_fd, bell_epoll;
static const char *only = "";

/* A word that only one thread writes, on a line of its own. */
struct word {
    _Alignas(128) _Atomic uint64_t value;
};
static struct word ping, pong, stop;

static void start_at(struct word *w, uint64_t value)
{
    atomic_store(&w->value, value);
}

static uint64_t load(struct word *w)
{
    return atomic_load_explicit(&w->value, memory_order_acquire);
}

static void store(struct word *w, uint64_t value)
{
    atomic_store_explicit(&w->value, value, memory_order_release);
}

/* The clients' thread runs beside the calling one, which is the daemon's. */
static void beside(void *(*other)(void *), void *arg, void (*daemon)(void *))
{
    pthread_t thread;

    start_at(&ping, 0);
    start_at(&pong, 0);
    start_at(&stop, 0);
    if (pthread_create(&thread, NULL, other, arg) != 0)
        abort();
    daemon(arg);
    pthread_join(thread, NULL);
}

struct job {
    struct bench_samples samples;
    int clients;
    uint64_t rounds;
    uint64_t period_us; /* 0: as fast as it goes */
};

/* A pause of 0.2 to 1 us, so that the other side is back at its first look. */
static void breathe(uint64_t i)
{
    uint64_t until = bench_ticks() + (uint64_t)((double)(200 + i * 37 % 800) / bench_tick_ns());

    while (bench_ticks() < until)
        bench_pause();
}

/* Between two events: a breath, or the period +-1 %, at work meanwhile, as a daemon in a pass is.
 */
static void idle(const struct job *j, uint64_t i)
{
    uint64_t ns = j->period_us * (990 + i * 7 % 21);
    uint64_t until = bench_ticks() + (uint64_t)((double)ns / bench_tick_ns());

    if (j->period_us == 0) {
        breathe(i);
        return;
    }
    while (bench_ticks() < until)
        bench_pause();
}

/* ---- floors ------------------------------------------------------------------------------------
 */

/* One line, one way: the time it was written goes over in it. */
static void *line_writer(void *arg)
{
    struct job *j = arg;

    bench_pin(1);
    for (uint64_t i = 0; i < j->rounds; i++) {
        idle(j, i);
        store(&ping, bench_ticks());
        while (load(&pong) != i + 1)
            bench_pause();
    }
    return NULL;
}

static void line_reader(void *arg)
{
    struct job *j = arg;
    uint64_t last = 0, now;

    for (uint64_t i = 0; i < j->rounds; i++) {
        while ((now = load(&ping)) == last)
            bench_pause();
        bench_add(&j->samples, bench_ticks() - now);
        last = now;
        store(&pong, i + 1);
    }
}

/* Two lines there and back, both sides spinning. */
static void *echo_lines(void *arg)
{
    struct job *j = arg;

    bench_pin(1);
    for (uint64_t i = 1; i <= j->rounds; i++) {
        while (load(&ping) != i)
            bench_pause();
        store(&pong, i);
    }
    return NULL;
}

static void call_lines(void *arg)
{
    struct job *j = arg;

    for (uint64_t i = 1; i <= j->rounds; i++) {
        uint64_t start = bench_ticks();

        store(&ping, i);
        while (load(&pong) != i)
            bench_pause();
        bench_add(&j->samples, bench_ticks() - start);
    }
}

/* A futex there and back, both sides asleep. */
static _Atomic uint32_t futex_there, futex_back;

static void futex_await(_Atomic uint32_t *word, uint32_t value)
{
    uint32_t now;

    while ((now = atomic_load(word)) != value)
        syscall(SYS_futex, word, FUTEX_WAIT, now, NULL, NULL, 0);
}

static void futex_set(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void *echo_futex(void *arg)
{
    struct job *j = arg;

    bench_pin(1);
    for (uint32_t i = 1; i <= j->rounds; i++) {
        futex_await(&futex_there, i);
        futex_set(&futex_back, i);
    }
    return NULL;
}

static void call_futex(void *arg)
{
    struct job *j = arg;

    atomic_store(&futex_there, 0);
    atomic_store(&futex_back, 0);
    for (uint32_t i = 1; i <= j->rounds; i++) {
        usleep(200); /* the other side is asleep */
        uint64_t start = bench_ticks();

        futex_set(&futex_there, i);
        futex_await(&futex_back, i);
        bench_add(&j->samples, bench_ticks() - start);
    }
}

/* ---- submit seen by a spinning daemon
 * ------------------------------------------------------------ */

static void *submit_client(void *arg)
{
    struct job *j = arg;
    uint32_t random = 1;

    bench_pin(1);
    for (uint64_t i = 0; i < j->rounds; i++) {
        random = random * 1664525u + 1013904223u;
        struct client *e = &clients[(random >> 8) % (uint32_t)j->clients];
        struct submit_cell cell = {.opcode = SUBMIT_NOP};

        breathe(i);
        cell.cookie = bench_ticks();
        ring_push(&e->submit_out, &cell);
        bell_ring(ctl, bell_fd);
        while (ring_space(&e->submit_out) != (int)limits.submit_cells)
            bench_pause();
    }
    store(&stop, 1);
    return NULL;
}

static void submit_daemon(void *arg)
{
    struct job *j = arg;
    struct submit_cell cell;

    while (load(&stop) == 0)
        for (int i = 0; i < j->clients; i++)
            if (ring_peek(&submit_in[i], &cell) == 1) {
                bench_add(&j->samples, bench_ticks() - cell.cookie);
                ring_release(&submit_in[i], 1);
            }
}

/* ---- events seen by a client
 * --------------------------------------------------------------------- */

static int client_ready(const void *arg)
{
    return ring_ready(&((const struct client *)arg)->events_in);
}

/* Without a period the client spins; with one it waits as the library does, by prediction. */
struct event_job {
    struct job job;
    uint64_t guard_us;
    double cpu_share;
};

static void *event_client(void *arg)
{
    struct event_job *j = arg;
    struct client *e = &clients[0];
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
        expect = bell_now_ns() + atomic_load_explicit(&ctl->step_ns, memory_order_relaxed);
        store(&pong, i + 1);
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
        idle(&j->job, i);
        if (event_put_nop(&events_out[0], 1, bench_ticks()) != 0)
            abort();
        bell_fence();
        if (bell_due(&wakers[0]) == BELL_FUTEX)
            bell_wake(wakers[0].wake);
        bell_daemon_pulse(ctl, bell_now_ns(), j->job.period_us * 1000u);
        while (load(&pong) != i + 1)
            bench_pause();
    }
}

/* ---- no-op round trips
 * --------------------------------------------------------------------------- */

static void noop_answer(int i)
{
    struct submit_cell cell;

    if (ring_peek(&submit_in[i], &cell) != 1)
        return;
    if (event_put_nop(&events_out[i], cell.generation, cell.cookie) != 0)
        abort();
    ring_release(&submit_in[i], 1); /* behind the answer: its line may be with the client */
    bell_fence();
    if (bell_due(&wakers[i]) == BELL_FUTEX)
        bell_wake(wakers[i].wake);
}

static void noop_daemon_spinning(void *arg)
{
    struct job *j = arg;

    while (load(&stop) == 0)
        for (int i = 0; i < j->clients; i++)
            noop_answer(i);
}

static void noop_daemon_sleeping(void *arg)
{
    struct epoll_event event;

    (void)arg;
    while (load(&stop) == 0) {
        bell_daemon_sleep(ctl);
        if (!ring_ready(&submit_in[0]))
            epoll_wait(bell_epoll, &event, 1, 250);
        bell_daemon_awake(ctl);
        noop_answer(0);
    }
}

static void noop_calls(struct job *j, uint32_t spin_ns, int pause_us)
{
    struct client *e = &clients[0];

    bench_pin(1);
    for (uint64_t i = 0; i < j->rounds; i++) {
        struct bell_patience p = {.spin_ns = spin_ns};
        struct submit_cell cell = {.opcode = SUBMIT_NOP, .cookie = i};
        struct event_run run;

        if (pause_us > 0)
            usleep((useconds_t)pause_us);
        uint64_t start = bench_ticks();

        ring_push(&e->submit_out, &cell);
        bell_ring(ctl, bell_fd);
        if (bell_wait(&e->sleeper, client_ready, e, &p) != 0 ||
            event_next(&e->events_in, &run) != 1)
            abort();
        bench_add(&j->samples, bench_ticks() - start);
        ring_release(&e->events_in, run.cells);
        if (ring_space_known(&e->submit_out) == 0 && ring_space(&e->submit_out) < 1)
            abort();
    }
    store(&stop, 1);
    bell_ring(ctl, bell_fd);
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

/* ---- throughput of one event ring
 * ---------------------------------------------------------------- */

#define STREAM_TOKENS 24000000u
static uint32_t stream_batch; /* tokens per put */

static void *stream_client(void *arg)
{
    struct ring_reader *r = &clients[0].events_in;
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
    store(&stop, sum + 1);
    return NULL;
}

static void stream_daemon(void *arg)
{
    struct job *j = arg;
    uint32_t tokens[48], sent = 0;
    uint64_t start = bench_ticks();

    for (uint32_t i = 0; i < 48; i++)
        tokens[i] = i;
    while (sent < STREAM_TOKENS) {
        if (event_put_tokens(&events_out[0], 1, sent, tokens, stream_batch) == 0)
            sent += stream_batch;
        else
            bench_pause();
    }
    while (load(&stop) == 0)
        bench_pause();
    bench_add(&j->samples, bench_ticks() - start);
}

/* The floor: the same bytes as plain cells, no records, no checks of room but the ring's own. */
static void *cells_client(void *arg)
{
    struct ring_reader *r = &clients[0].events_in;
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
    store(&stop, sum + 1);
    return NULL;
}

static void cells_daemon(void *arg)
{
    struct job *j = arg;
    struct event_cell cell = {.kind = EVENT_TOKENS};
    uint64_t start = bench_ticks();

    for (uint32_t i = 0; i < STREAM_TOKENS / EVENT_TOKENS_MAX; i++) {
        while (ring_space_known(&events_out[0]) == 0 && ring_space(&events_out[0]) == 0)
            bench_pause();
        ring_push(&events_out[0], &cell);
    }
    while (load(&stop) == 0)
        bench_pause();
    bench_add(&j->samples, bench_ticks() - start);
}

/* ---- publishing a step
 * ----------------------------------------------------------------------------- */

/* Consumes what every client gets, one ring after the other right behind the daemon, then says that
 * the step is over. */
static void *publish_clients(void *arg)
{
    struct job *j = arg;
    struct event_run run;

    bench_pin(1);
    for (uint64_t step = 1; step <= j->rounds; step++) {
        for (int i = 0; i < j->clients; i++) {
            while (event_next(&clients[i].events_in, &run) != 1)
                bench_pause();
            ring_release(&clients[i].events_in, run.cells);
        }
        store(&pong, step);
    }
    return NULL;
}

static void publish_daemon(void *arg)
{
    struct job *j = arg;
    uint32_t token = 5;

    for (uint64_t step = 1; step <= j->rounds; step++) {
        breathe(step);
        uint64_t start = bench_ticks();

        for (int i = 0; i < j->clients; i++) {
            if (event_put_tokens(&events_out[i], 1, (uint32_t)step, &token, 1) != 0)
                abort();
        }
        bell_fence();
        for (int i = 0; i < j->clients; i++)
            if (bell_due(&wakers[i]) != BELL_NONE)
                abort();
        bench_add(&j->samples, bench_ticks() - start);
        while (load(&pong) != step)
            bench_pause();
    }
}

/* The floor: one store to a line of each client that the other core has, and one fence. */
static void *lines_clients(void *arg)
{
    struct job *j = arg;

    bench_pin(1);
    for (uint32_t step = 1; step <= j->rounds; step++) {
        for (int i = 0; i < j->clients; i++)
            while (atomic_load_explicit(&segment_down_slot(&clients[i].s, 0)->state,
                                        memory_order_acquire) != step)
                bench_pause();
        store(&pong, step);
    }
    return NULL;
}

static void lines_daemon(void *arg)
{
    struct job *j = arg;

    for (int i = 0; i < j->clients; i++)
        atomic_store(&segment_down_slot(&daemon_segments[i], 0)->state, 0);
    for (uint32_t step = 1; step <= j->rounds; step++) {
        breathe(step);
        uint64_t start = bench_ticks();

        for (int i = 0; i < j->clients; i++)
            atomic_store_explicit(&segment_down_slot(&daemon_segments[i], 0)->state, step,
                                  memory_order_release);
        bell_fence();
        bench_add(&j->samples, bench_ticks() - start);
        while (load(&pong) != step)
            bench_pause();
    }
}

/* ---- rows
 * ------------------------------------------------------------------------------------------ */

static int wanted(const char *what)
{
    return strstr(what, only) != NULL;
}

/* Measures in rounds, each after its floor, and prints one row. */
static void row(struct bench_row r, int samples, void *(*other)(void *), void (*daemon)(void *),
                void *(*floor_other)(void *), void (*floor_daemon)(void *))
{
    struct job j = {.clients = r.clients > 0 ? r.clients : 1, .rounds = (uint64_t)samples};
    struct job f = j;

    if (!wanted(r.what))
        return;
    bench_samples_open(&j.samples, (size_t)samples * ROUNDS);
    bench_samples_open(&f.samples, (size_t)samples * ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        beside(floor_other, &f, floor_daemon);
        beside(other, &j, daemon);
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
            SAMPLES, submit_client, submit_daemon, line_writer, line_reader);
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
    struct job f = j.job;
    char note[64];

    if (!wanted(what))
        return;
    bench_samples_open(&j.job.samples, (size_t)samples * ROUNDS);
    bench_samples_open(&f.samples, (size_t)samples * ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        beside(line_writer, &f, line_reader);
        beside(event_client, &j, event_daemon);
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
    struct job j = {0}, f = {0};

    if (!wanted(what))
        return;
    stream_batch = batch;
    bench_samples_open(&j.samples, ROUNDS);
    bench_samples_open(&f.samples, ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        beside(cells_client, &f, cells_daemon);
        beside(stream_client, &j, stream_daemon);
    }
    r.m_per_s = STREAM_TOKENS / bench_percentile_us(&j.samples, 50);
    r.floor_m_per_s = STREAM_TOKENS / bench_percentile_us(&f.samples, 50);
    bench_print(&r);
    bench_samples_close(&j.samples);
    bench_samples_close(&f.samples);
}

static int client_open(int i, char *err, size_t err_bytes)
{
    struct segment *d = &daemon_segments[i];
    struct client *c = &clients[i];

    if (segment_open(d, &limits, err, err_bytes) < 0 ||
        segment_map(&c->s, d->up_fd, d->down_fd, &limits, err, err_bytes) < 0)
        return -1;
    segment_close_fds(d);
    segment_submit_reader(d, &submit_in[i]);
    segment_event_writer(d, 0, &events_out[i]);
    bell_waker_init(&wakers[i], &segment_up_head(d)->waiting, &segment_down_head(d)->wake, -1);
    segment_submit_writer(&c->s, &c->submit_out);
    segment_event_reader(&c->s, 0, &c->events_in);
    bell_sleeper_init(&c->sleeper, &segment_down_head(&c->s)->wake,
                      &segment_up_head(&c->s)->waiting, -1, -1);
    return 0;
}

static int all_open(char *err, size_t err_bytes)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLET};

    bell_fd = bell_open();
    bell_epoll = epoll_create1(EPOLL_CLOEXEC);
    if (segment_guard_init() < 0 || segment_ctl_open(&ctl, err, err_bytes) < 0 ||
        epoll_ctl(bell_epoll, EPOLL_CTL_ADD, bell_fd, &e) < 0)
        return -1;
    for (int i = 0; i < CLIENTS_MAX; i++)
        if (client_open(i, err, err_bytes) < 0)
            return -1;
    return 0;
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
    if (all_open(err, sizeof(err)) < 0) {
        fprintf(stderr, "bench_ipc: cannot make %d clients: %s\n", CLIENTS_MAX, err);
        return 71;
    }
    submit_rows();
    event_row("event_seen_spinning", 0, SAMPLES);
    event_row("event_seen_predicted_5ms", 5000, 100);
    row(noop, SAMPLES, noop_client_spinning, noop_daemon_spinning, echo_lines, call_lines);
    row(asleep, 1000, noop_client_sleeping, noop_daemon_sleeping, echo_futex, call_futex);
    stream_row("tokens_one_ring", 12, 100);
    stream_row("tokens_one_ring_one_a_cell", 1, 0);
    row(few, SAMPLES / 4, publish_clients, publish_daemon, lines_clients, lines_daemon);
    row(many, SAMPLES / 4, publish_clients, publish_daemon, lines_clients, lines_daemon);
    return 0;
}
