/* Rings, bells and generations under load: two threads, then two processes, exchange cells and
 * sleep whenever they can. Every cell must arrive once and in order, no sleeper may be missed,
 * and no torn prompt may be accepted.
 *
 * There are no timeouts here: client and daemon sleep without end, so one lost wake-up stops
 * everything and the alarm kills the test.
 *
 *   stress_ring [CELLS] [SECONDS]     per part; whichever is reached first ends it
 */
#include "ipc/bell.h"
#include "ipc/event.h"
#include "ipc/segment.h"
#include "tests/random.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define STALL_SECONDS 60
#define ARENA_TOKENS 16384u
#define FOREVER_NS (3600ull * 1000000000u)

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "failed: %s, line %d: %s\n", __FILE__, __LINE__, #condition);          \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static const struct ipc_limits limits = {.slots = 2,
                                         .context = ARENA_TOKENS,
                                         .submit_cells = 16,
                                         .event_cells = 32,
                                         .params_bytes = 256};

/* What both sides share besides the segments; each tally has one writer. */
struct both {
    struct ctl *ctl;
    int up_fd, down_fd, bell_fd, notify[2];
    uint64_t cells, end_ns;
    uint64_t client_waits, client_arms, bells; /* client's tallies */
    uint64_t daemon_sleeps, futex_wakes, notify_wakes, whole, torn;
};

/* ---- the client: cookies go out on slot 0, prompts on slot 1 --------------------------------- */

struct client {
    struct both *b;
    struct segment s;
    struct ring_writer submit;
    struct ring_reader events;
    struct bell_sleeper sleeper;
    uint64_t sent, got;
    uint32_t generation, random;
};

static int client_ready(const void *arg)
{
    const struct client *c = arg;

    return ring_ready(&c->events) || ring_space_changed(&c->submit);
}

static void client_sleep(struct client *c)
{
    struct bell_patience p = {0};
    struct pollfd fd = {.fd = c->b->notify[1], .events = POLLIN};

    switch (next_random(&c->random) % 4) {
    case 0: /* an event loop */
        c->b->client_arms++;
        if (bell_arm(&c->sleeper, client_ready, c))
            MUST(poll(&fd, 1, -1) == 1);
        bell_drain(&c->sleeper);
        return;
    case 1:
        p.spin_ns = next_random(&c->random) % 20000;
        break;
    case 2: /* expected about now: the sleep ends while the event comes */
        p.expect_ns = bell_now_ns() + next_random(&c->random) % 50000;
        p.guard_ns = next_random(&c->random) % 20000;
        break;
    default:
        break;
    }
    c->b->client_waits++;
    MUST(bell_wait(&c->sleeper, client_ready, c, &p) == 0);
}

/* A new request on slot 1: every word of its prompt is its generation. */
static void client_prompt(struct client *c, struct submit_cell *cell)
{
    static uint32_t tokens[ARENA_TOKENS];

    c->generation++;
    ring_generation_start(&segment_up_slot(&c->s, 1)->generation, c->generation);
    for (uint32_t i = 0; i < ARENA_TOKENS; i++)
        tokens[i] = c->generation;
    segment_copy_out(segment_arena(&c->s, 1), tokens, sizeof(tokens));
    cell->opcode = SUBMIT_REQUEST;
    cell->slot = 1;
    cell->generation = c->generation;
    cell->length = ARENA_TOKENS;
}

static int client_push(struct client *c)
{
    uint32_t batch = 1 + next_random(&c->random) % 24;
    int pushed = 0;

    while (batch-- > 0 && c->sent < c->b->cells && ring_space(&c->submit) > 0) {
        struct submit_cell cell = {.opcode = SUBMIT_NOP, .cookie = c->sent};

        if (c->sent % 64 < 2)
            client_prompt(c, &cell);
        ring_push(&c->submit, &cell);
        c->sent++;
        pushed = 1;
        if (bell_now_ns() > c->b->end_ns)
            c->b->cells = c->sent;
    }
    MUST(ring_space(&c->submit) >= 0);
    return pushed;
}

static int client_drain(struct client *c)
{
    struct event_run run;
    uint64_t cookie;
    int n, drained = 0;

    while ((n = event_next(&c->events, &run)) == 1) {
        MUST(event_nop(&run, &cookie) == 0);
        MUST(cookie == c->got);
        c->got++;
        ring_release(&c->events, run.cells);
        drained = 1;
    }
    MUST(n == 0);
    return drained;
}

static void *client_main(void *arg)
{
    static struct client c;
    struct both *b = arg;
    char err[200];

    c = (struct client){.b = b, .random = 12345};
    MUST(segment_map(&c.s, b->up_fd, b->down_fd, &limits, err, sizeof(err)) == 0);
    segment_submit_writer(&c.s, &c.submit);
    segment_event_reader(&c.s, 0, &c.events);
    bell_sleeper_init(&c.sleeper, &segment_down_head(&c.s)->wake, &segment_up_head(&c.s)->waiting,
                      -1, b->notify[1]);
    c.sleeper.look_ns = FOREVER_NS;
    while (c.got < b->cells) {
        int did = client_push(&c) | client_drain(&c);

        if (did)
            b->bells += (uint64_t)bell_ring(b->ctl, b->bell_fd);
        else
            client_sleep(&c);
    }
    struct submit_cell last = {.opcode = SUBMIT_NONE};

    while (ring_space(&c.submit) == 0)
        client_sleep(&c);
    ring_push(&c.submit, &last);
    bell_ring(b->ctl, b->bell_fd);
    segment_close(&c.s);
    return NULL;
}

/* ---- the daemon: echoes every cell ----------------------------------------------------------- */

struct daemon {
    struct both *b;
    struct segment *s;
    struct ring_reader submit;
    struct ring_writer events;
    struct bell_waker waker;
    uint64_t echoed;
    int epoll_fd, ended;
};

static void daemon_prompt(struct daemon *d, const struct submit_cell *cell)
{
    _Atomic uint32_t *word = &segment_up_slot(d->s, 1)->generation;
    static uint32_t tokens[ARENA_TOKENS];

    if (ring_generation(word) != cell->generation)
        return;
    MUST(segment_copy_in(d->s, tokens, segment_arena(d->s, 1), sizeof(tokens)) == 0);
    if (!ring_generation_live(word, cell->generation)) {
        d->b->torn++;
        return;
    }
    for (uint32_t i = 0; i < ARENA_TOKENS; i++)
        MUST(tokens[i] == cell->generation);
    d->b->whole++;
}

/* Answers one cell. Returns whether there was room for the answer; else the cell stays unread, and
 * the client's release will ring. */
static int daemon_answer(struct daemon *d, const struct submit_cell *cell)
{
    int room;

    if (cell->opcode == SUBMIT_NONE) {
        d->ended = 1;
        return 1;
    }
    room = event_put_nop(&d->events, 0, d->echoed);
    MUST(room == 0 || room == -EAGAIN);
    if (room == -EAGAIN)
        return 0;
    if (cell->opcode == SUBMIT_NOP)
        MUST(cell->cookie == d->echoed);
    else
        daemon_prompt(d, cell);
    d->echoed++;
    return 1;
}

/* One scan. Returns whether anything was done. */
static int daemon_scan(struct daemon *d)
{
    struct submit_cell cell;
    int n = 0, did = 0;

    while (!d->ended && (n = ring_peek(&d->submit, &cell)) == 1 && daemon_answer(d, &cell)) {
        ring_release(&d->submit, 1);
        did = 1;
    }
    MUST(n >= 0);
    return did;
}

static void daemon_wake(struct daemon *d)
{
    bell_fence();
    switch (bell_due(&d->waker)) {
    case BELL_FUTEX:
        d->b->futex_wakes++;
        MUST(bell_wake(d->waker.wake) == 0);
        break;
    case BELL_NOTIFY:
        d->b->notify_wakes++;
        MUST(bell_notify(d->waker.notify_fd) == 0);
        break;
    default:
        break;
    }
}

static void daemon_main(struct both *b, struct segment *s)
{
    struct daemon d = {.b = b, .s = s, .epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    struct epoll_event e = {.events = EPOLLIN | EPOLLET};

    MUST(epoll_ctl(d.epoll_fd, EPOLL_CTL_ADD, b->bell_fd, &e) == 0);
    segment_submit_reader(s, &d.submit);
    segment_event_writer(s, 0, &d.events);
    bell_waker_init(&d.waker, &segment_up_head(s)->waiting, &segment_down_head(s)->wake,
                    b->notify[0]);
    while (!d.ended) {
        if (daemon_scan(&d)) {
            daemon_wake(&d);
            continue;
        }
        bell_daemon_sleep(b->ctl);
        if (daemon_scan(&d)) {
            bell_daemon_awake(b->ctl);
            daemon_wake(&d);
            continue;
        }
        b->daemon_sleeps++;
        int n = epoll_wait(d.epoll_fd, &e, 1, -1);
        MUST(n == 1 || (n < 0 && errno == EINTR)); /* EINTR: stopped and continued */
        bell_daemon_awake(b->ctl);
    }
    close(d.epoll_fd);
}

/* ---- S1 against S2, one race after the other ------------------------------------------------- */

/* Both sides start together, again and again, at distances of a few instructions. One publishes and
 * looks for a sleeper, the other announces its sleep and looks for a cell. Both may see each other;
 * that neither does is the lost wake-up that the full fences exclude. */
struct race { /* NOLINT(clang-analyzer-optin.performance.Padding): a line each */
    struct ctl ctl;
    _Alignas(128) _Atomic uint64_t started;
    _Alignas(128) _Atomic uint64_t finished;
    _Alignas(128) struct ring_cell cells[4];
    _Alignas(128) _Atomic uint32_t progress;
    _Alignas(128) _Atomic uint32_t waiting;
    _Alignas(128) _Atomic uint32_t wake;
    _Alignas(128) struct ring_writer writer;
    struct ring_reader reader;
    struct bell_sleeper sleeper;
    struct bell_waker waker;
    _Atomic uint64_t rounds;
    int bell_fd, to_daemon;
    _Atomic int seen; /* set by the publisher: it saw a sleeper */
};

static void await(const _Atomic uint64_t *word, uint64_t value)
{
    for (uint32_t spins = 1; atomic_load(word) < value; spins++)
        if (spins % 4096 == 0)
            usleep(1); /* the other side may want this core */
}

static void stagger(uint32_t steps)
{
    for (volatile uint32_t i = steps; i > 0; i--)
        ;
}

static int race_ready(const void *arg)
{
    return ring_ready(&((const struct race *)arg)->reader);
}

static void *race_publisher(void *arg)
{
    struct race *r = arg;
    struct event_cell cell = {.kind = EVENT_NOP};
    uint32_t random = 99;

    for (uint64_t i = 1; i <= r->rounds; i++) {
        await(&r->started, i);
        stagger(next_random(&random) % 16);
        ring_push(&r->writer, &cell);
        if (r->to_daemon) {
            r->seen = bell_ring(&r->ctl, r->bell_fd);
        } else {
            bell_fence();
            r->seen = bell_due(&r->waker) != BELL_NONE;
        }
        atomic_store(&r->finished, i);
    }
    return NULL;
}

static int race_sleeper(struct race *r)
{
    if (!r->to_daemon)
        return bell_arm(&r->sleeper, race_ready, r);
    bell_daemon_sleep(&r->ctl);
    return !ring_ready(&r->reader);
}

static void race(const char *name, int to_daemon, uint64_t rounds)
{
    static struct race r;
    uint64_t both = 0, i, end = bell_now_ns() + 2000000000u;
    uint32_t random = 7, delay = 0;
    pthread_t thread;

    memset(&r, 0, sizeof(r));
    r.rounds = rounds;
    r.to_daemon = to_daemon;
    r.bell_fd = bell_open();
    ring_writer_init(&r.writer, r.cells, 4, &r.progress);
    ring_reader_init(&r.reader, r.cells, 4, &r.progress);
    bell_sleeper_init(&r.sleeper, &r.wake, &r.waiting, -1, -1);
    bell_waker_init(&r.waker, &r.waiting, &r.wake, -1);
    alarm(STALL_SECONDS);
    MUST(pthread_create(&thread, NULL, race_publisher, &r) == 0);
    for (i = 1; i <= rounds; i++) {
        int asleep;

        if (i == rounds || bell_now_ns() > end)
            r.rounds = i; /* seen by the publisher after `started` */
        atomic_store(&r.started, i);
        stagger(delay + next_random(&random) % 16);
        asleep = race_sleeper(&r);
        /* Keeps the race close: the side that came first waits longer next time. */
        delay = asleep ? delay + 1 : delay > 0 ? delay - 1 : 0;
        await(&r.finished, i);
        both += (uint64_t)(asleep && r.seen);
        MUST(!asleep || r.seen); /* otherwise a lost wake-up */
        MUST(ring_ready(&r.reader));
        ring_release(&r.reader, 1);
        MUST(ring_space(&r.writer) == 4);
        bell_daemon_awake(&r.ctl);
        atomic_store(&r.waiting, 0);
        if (r.rounds == i)
            break;
    }
    pthread_join(thread, NULL);
    alarm(0);
    close(r.bell_fd);
    printf("%s: %llu races, %llu ended asleep and rung for\n", name, (unsigned long long)i,
           (unsigned long long)both);
}

/* ---- both ways of running it ----------------------------------------------------------------- */

static void part(const char *name, int processes, uint64_t cells, uint64_t seconds)
{
    struct both *b =
        mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t start = bell_now_ns();
    static struct segment s;
    char err[200];
    int ctl_fd;

    MUST(b != MAP_FAILED);
    MUST(segment_open(&s, &limits, err, sizeof(err)) == 0);
    ctl_fd = segment_ctl_open(&b->ctl, err, sizeof(err));
    b->up_fd = s.up_fd;
    b->down_fd = s.down_fd;
    b->bell_fd = bell_open();
    b->cells = cells;
    b->end_ns = start + seconds * 1000000000u;
    MUST(bell_notify_open(b->notify) == 0);
    alarm((unsigned)seconds + STALL_SECONDS);
    if (processes) {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
            alarm((unsigned)seconds + STALL_SECONDS);
            client_main(b);
            _exit(0);
        }
        daemon_main(b, &s);
        MUST(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    } else {
        pthread_t thread;

        MUST(pthread_create(&thread, NULL, client_main, b) == 0);
        daemon_main(b, &s);
        pthread_join(thread, NULL);
    }
    alarm(0);
    printf("%s: %llu cells in %.1f s; client slept %llu + %llu times, daemon %llu; %llu bells, "
           "%llu futex and %llu socket wakes; %llu whole prompts, %llu torn ones noticed\n",
           name, (unsigned long long)b->cells, (double)(bell_now_ns() - start) * 1e-9,
           (unsigned long long)b->client_waits, (unsigned long long)b->client_arms,
           (unsigned long long)b->daemon_sleeps, (unsigned long long)b->bells,
           (unsigned long long)b->futex_wakes, (unsigned long long)b->notify_wakes,
           (unsigned long long)b->whole, (unsigned long long)b->torn);
    segment_ctl_close(b->ctl, ctl_fd);
    segment_close(&s);
    close(b->bell_fd);
    close(b->notify[0]);
    close(b->notify[1]);
    munmap(b, sizeof(*b));
}

int main(int argc, char **argv)
{
    uint64_t cells = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000000;
    uint64_t seconds = argc > 2 ? strtoull(argv[2], NULL, 10) : 4;

    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST(segment_guard_init() == 0);
    race("S1 of a client against S2", 0, cells / 4);
    race("S1 of the daemon against S2", 1, cells / 4);
    part("two threads", 0, cells, seconds);
    part("two processes", 1, cells, seconds);
    printf("ok: nothing lost, no sleeper forgotten\n");
    return 0;
}
