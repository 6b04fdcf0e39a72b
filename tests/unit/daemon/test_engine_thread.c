/*
 * The engine on its own thread, with real sleeping: every request rings only when the engine says
 * that it sleeps, every answer wakes only a client that said that it waits, the engine never rescans. A lost wake-up
 * hangs a test here. On both loops, with and without a linger. Clients are threads; so is the
 * control thread's part.
 */
#include "ipc/bell.h"
#include "ipc/params.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CLIENTS = 3, REQUESTS = 60, PATIENCE_S = 20 };

struct user {
    struct rig_client client;
    pthread_t thread;
    uint32_t number;
    _Atomic uint32_t detached;
    bool was_heard; /* the engine listened to its bell, in the end */
};

static struct rig rig;
static struct user users[CLIENTS];
static pthread_t engine_thread, control_thread;
static int engine_rc;
static _Atomic pid_t engine_tid;

static void *run_engine(void *arg)
{
    (void)arg;
    atomic_store(&engine_tid, gettid());
    engine_rc = engine_run(rig.engine);
    return NULL;
}

static struct user *user_of(const struct client *client)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (users[i].client.client == client)
            return &users[i];
    return NULL;
}

/* Delivers wakes until MAIL_STOPPED. */
static void *run_control(void *arg)
{
    struct pollfd p = {.fd = rig.outbox.event_fd, .events = POLLIN};
    bool stopped = false;
    struct mail mail;

    (void)arg;
    while (!stopped) {
        uint64_t count;
        poll(&p, 1, -1);
        if (read(rig.outbox.event_fd, &count, sizeof(count)) < 0)
            continue;
        while (mailbox_take(&rig.outbox, &mail)) {
            for (uint32_t i = 0; mail.kind == MAIL_WAKE && i < mail.n_wakes; i++)
                client_wake(mail.clients[i], (int)(mail.ways >> i & 1));
            if (mail.kind == MAIL_DETACHED)
                atomic_store(&user_of(mail.clients[0])->detached, 1);
            stopped |= mail.kind == MAIL_STOPPED;
            RIG_CHECK(mail.kind != MAIL_CLOSE, "a client was closed: %d", mail.error);
        }
    }
    return NULL;
}

static int event_ready(const void *arg)
{
    return ring_ready(&((const struct rig_client *)arg)->slots[0].events);
}

/* Every other user waits on the futex, as a blocking program does; bell_wait looks by itself now
 * and then. The others wait as an event loop does, for the socket alone: without its wake nothing
 * helps them. */
static void wait_for_event(struct user *user, struct bell_sleeper *sleeper)
{
    struct bell_patience patience = {.deadline_ns = bell_now_ns() + PATIENCE_S * 1000000000ull};
    struct pollfd p = {.fd = sleeper->notify_fd, .events = POLLIN};

    if (user->number % 2) {
        RIG_CHECK(bell_wait(sleeper, event_ready, &user->client, &patience) == 0,
                  "user %u waits in vain", user->number);
    } else if (bell_arm(sleeper, event_ready, &user->client)) {
        RIG_CHECK(poll(&p, 1, PATIENCE_S * 1000) == 1, "user %u was not woken", user->number);
        bell_drain(sleeper);
    }
}

static void *run_user(void *arg)
{
    struct user *user = arg;
    struct rig_client *c = &user->client;
    struct rig_slot *s = &c->slots[0];
    struct bell_sleeper sleeper;
    uint32_t prompt[RIG_TOKENS];
    uint64_t state = user->number;

    rig_tokens(prompt, RIG_TOKENS, user->number);
    bell_sleeper_init(&sleeper, &segment_down_head(&c->segment)->wake,
                      &segment_up_head(&c->segment)->waiting, -1, c->notify_fd);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        struct rig_request request = {.tokens = prompt,
                                      .n = 1 + (uint32_t)(state >> 40) % 100,
                                      .max_tokens = 1 + (uint32_t)(state >> 50) % 30};
        struct params params;
        char grammar[64];
        if (i % 4 == 1) { /* one that the compiler's thread has yet to compile, mostly */
            int n = snprintf(grammar, sizeof(grammar), "root ::= [a-h]{%u,%u}", i, i + 9);
            params_default(&params);
            params.grammar = (const uint8_t *)grammar;
            params.grammar_bytes = (uint32_t)n;
            request.params = &params;
        }
        bool cancel = i % 5 == 4;
        uint32_t generation = rig_submit(c, 0, &request);
        bell_ring(rig.ctl, c->client->bell_fd);
        while (s->last.generation != generation) {
            wait_for_event(user, &sleeper);
            rig_read(c, 0, UINT32_MAX);
            bell_ring(rig.ctl, c->client->bell_fd); /* freed cells: S2 */
            if (cancel && s->generation == generation && s->last.generation != generation) {
                rig_cancel(c, 0);
                bell_ring(rig.ctl, c->client->bell_fd);
            }
        }
        /* Void before its cell was taken: superseded; while it ran: cancelled. */
        bool ended = s->last.reason == DONE_CANCELLED || s->last.reason == DONE_SUPERSEDED;
        RIG_CHECK((cancel && ended) || rig_same(&rig, &request, &s->last), "user %u, request %u",
                  user->number, i);
        if (i % 7 == 0)
            usleep(1000); /* long enough for the engine to go to sleep */
    }
    return NULL;
}

static void start_with(enum loop_backend backend, uint64_t linger_ns, uint64_t (*cpu_ns)(void))
{
    struct rig_desc desc = {
        .threaded = true, .loop = backend, .linger_ns = linger_ns, .pages = 20, .cpu_ns = cpu_ns};

    rig_open(&rig, &desc);
    ck_assert_int_eq(pthread_create(&engine_thread, NULL, run_engine, NULL), 0);
    ck_assert_int_eq(pthread_create(&control_thread, NULL, run_control, NULL), 0);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        users[i].number = i;
        atomic_store(&users[i].detached, 0);
        rig_equip(&rig, &users[i].client, 1, 1000, "");
        rig_post(&rig, MAIL_ATTACH, users[i].client.client);
    }
}

static void start(enum loop_backend backend, uint64_t linger_ns)
{
    start_with(backend, linger_ns, NULL);
}

static void stop(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_post(&rig, MAIL_DETACH, users[i].client.client);
    for (uint32_t i = 0; i < CLIENTS; i++)
        for (int wait = 0; !atomic_load(&users[i].detached); wait++) {
            ck_assert_int_lt(wait, 60000);
            usleep(1000);
        }
    rig_post(&rig, MAIL_STOP, NULL);
    pthread_join(engine_thread, NULL);
    pthread_join(control_thread, NULL);
    ck_assert_int_eq(engine_rc, 0);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        users[i].was_heard = users[i].client.client->bell_polled;
        rig_strip(&users[i].client);
    }
    rig_check(&rig);
    ck_assert_uint_eq(prefix_spare(&rig.engine->slots.kv.prefix), rig.engine->slots.kv.pool.total);
    rig_close(&rig);
}

static const struct {
    enum loop_backend loop;
    uint64_t linger_ns;
} cases[] = {{LOOP_EPOLL, 0}, {LOOP_EPOLL, 200000}, {LOOP_URING, 0}, {LOOP_URING, 200000}};

START_TEST(no_wake_is_lost_in_either_direction)
{
    start(cases[_i].loop, cases[_i].linger_ns);
    for (uint32_t i = 0; i < CLIENTS; i++)
        ck_assert_int_eq(pthread_create(&users[i].thread, NULL, run_user, &users[i]), 0);
    for (uint32_t i = 0; i < CLIENTS; i++)
        pthread_join(users[i].thread, NULL);
    ck_assert_uint_gt(counters_get(rig.ctl, COUNTER_ENGINE_WAKEUPS), 0);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_RESCANS), 0);
    stop();
}
END_TEST

/* Each grammar takes 150 ms of the compiler's thread; the engine's takes none. */
static uint64_t compiler_cpu(void)
{
    static uint64_t ns; /* the compiler's alone */
    return gettid() == atomic_load(&engine_tid) ? 0 : (ns += 150000000);
}

/* The third grammar waits until its user has paid for those before. Nothing rings then: the engine wakes up by itself. */
START_TEST(a_grammar_that_waits_to_be_paid_for_is_compiled)
{
    struct rig_client *c = &users[0].client;
    struct bell_sleeper sleeper;
    uint32_t prompt[10];
    start_with(cases[_i].loop, cases[_i].linger_ns, compiler_cpu);
    rig_tokens(prompt, 10, 1);
    bell_sleeper_init(&sleeper, &segment_down_head(&c->segment)->wake,
                      &segment_up_head(&c->segment)->waiting, -1, c->notify_fd);
    for (uint32_t i = 1; i <= 3; i++) {
        struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 20};
        struct params params;
        char grammar[64];
        params_default(&params);
        params.grammar_bytes =
            (uint32_t)snprintf(grammar, sizeof(grammar), "root ::= [a-h]{%u}", i);
        params.grammar = (const uint8_t *)grammar;
        request.params = &params;
        uint32_t generation = rig_submit(c, 0, &request);
        bell_ring(rig.ctl, c->client->bell_fd);
        while (c->slots[0].last.generation != generation) {
            wait_for_event(&users[0], &sleeper);
            rig_read(c, 0, UINT32_MAX);
        }
        ck_assert(rig_same(&rig, &request, &c->slots[0].last));
    }
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_RESCANS), 0);
    stop();
}
END_TEST

/* ---- the moment before sleep ----------------------------------------------------------------- */

static int clock_calls, submit_at;
static uint32_t one_prompt[10];
static const struct rig_request one_request = {.tokens = one_prompt, .n = 10, .max_tokens = 5};

/* The engine looks at the clock when it has found nothing to do, before it announces its sleep, and
 * again between announcing and sleeping. The client is here, inside those looks. */
static uint64_t clock_with_a_client(void)
{
    static uint64_t now;
    struct rig_client *c = &users[0].client;

    if (++clock_calls == submit_at) {
        rig_submit(c, 0, &one_request);
        bell_ring(rig.ctl, c->client->bell_fd);
    }
    if (rig_read(c, 0, UINT32_MAX) && c->slots[0].n_ends == 1)
        rig_post(&rig, MAIL_STOP, NULL);
    return now += 1000000;
}

/* A request that comes between the last step and the sleep is seen, whether it could ring or not.
 */
START_TEST(a_request_in_the_moment_before_sleep_is_seen)
{
    struct rig_desc desc = {
        .threaded = true, .loop = cases[_i / 5].loop, .now_ns = clock_with_a_client};

    clock_calls = 0;
    submit_at = 1 + _i % 5; /* the first sleep ends at once: the attaching rang */
    rig_open(&rig, &desc);
    rig_tokens(one_prompt, 10, 1);
    rig_equip(&rig, &users[0].client, 1, 1000, "");
    rig_post(&rig, MAIL_ATTACH, users[0].client.client);
    ck_assert_int_eq(engine_run(rig.engine),
                     0); /* on this thread: if it sleeps, it sleeps for ever */
    ck_assert(rig_same(&rig, &one_request, &users[0].client.slots[0].last));
    engine_close(rig.engine);
    rig.engine = NULL;
    rig_strip(&users[0].client);
    rig_close(&rig);
}
END_TEST

static uint64_t slept_ns; /* the engine went to sleep then; 0: it did not */
static bool submitted;

/* The engine looks at the clock before it sleeps and again when the time for a rescan is over: the client
 * comes then, and where it is `unheard` has rung for nothing too often. When it has its answer the engine stops. */
static uint64_t clock_with_a_late_client(bool unheard)
{
    struct rig_client *c = &users[0].client;
    uint64_t now = bell_now_ns();

    if (slept_ns && now - slept_ns >= 1000000000 && !submitted) {
        if (unheard) {
            c->client->idle_rings = IDLE_RINGS_MAX;
            c->client->bell_polled = false;
            loop_remove(rig.engine->clients.loop, c->client->bell_fd, (uintptr_t)c->client);
        }
        rig_submit(c, 0, &one_request);
        bell_ring(rig.ctl, c->client->bell_fd);
        submitted = true;
    }
    slept_ns = atomic_load(&rig.ctl->sleeping) ? now : 0;
    if (rig_read(c, 0, UINT32_MAX) && c->slots[0].n_ends == 1)
        rig_post(&rig, MAIL_STOP, NULL);
    return now;
}

static uint64_t clock_with_a_heard_client(void)
{
    return clock_with_a_late_client(false);
}

static uint64_t clock_with_an_unheard_client(void)
{
    return clock_with_a_late_client(true);
}

static void check_nothing_was_missed(enum loop_backend loop, uint64_t (*now_ns)(void))
{
    struct rig_desc desc = {.threaded = true, .loop = loop, .now_ns = now_ns};

    slept_ns = 0;
    submitted = false;
    rig_open(&rig, &desc);
    rig.engine->options.rescan = true;
    rig_tokens(one_prompt, 10, 1);
    rig_equip(&rig, &users[0].client, 1, 1000, "");
    rig_post(&rig, MAIL_ATTACH, users[0].client.client);
    ck_assert_int_eq(engine_run(rig.engine), 0);
    ck_assert(rig_same(&rig, &one_request, &users[0].client.slots[0].last));
    ck_assert_uint_ge(counters_get(rig.ctl, COUNTER_RESCANS), 1);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_RESCANS_FOUND), 0);
    engine_close(rig.engine);
    rig.engine = NULL;
    rig_strip(&users[0].client);
    rig_close(&rig);
}

/* A request that comes when a rescan begins rings, or is found before the engine sleeps again: it was not
 * missed. */
START_TEST(a_request_in_the_moment_of_a_rescan_was_not_missed)
{
    check_nothing_was_missed(cases[_i].loop, clock_with_a_heard_client);
}
END_TEST

/* A client that has rung for nothing too often is served by scan: what the scan finds was not missed. */
START_TEST(a_client_that_is_served_by_scan_is_not_counted_as_missed)
{
    check_nothing_was_missed(cases[_i].loop, clock_with_an_unheard_client);
}
END_TEST

START_TEST(an_idle_engine_sleeps)
{
    start(cases[_i].loop, cases[_i].linger_ns);
    for (int i = 0; i < 60000 && !atomic_load(&rig.ctl->sleeping); i++)
        usleep(1000);
    ck_assert_uint_eq(atomic_load(&rig.ctl->sleeping), 1);
    /* It announces its sleep before it has looked at all that came with the start. */
    uint64_t woke = 2;
    for (int i = 0; i < 100 && woke > 1; i++) {
        uint64_t before = counters_get(rig.ctl, COUNTER_ENGINE_WAKEUPS);
        usleep(100000);
        woke = counters_get(rig.ctl, COUNTER_ENGINE_WAKEUPS) - before;
    }
    ck_assert_uint_le(woke, 1);
    stop();
}
END_TEST

/* Rings users[0]'s bell for nothing, and gives the engine a moment to wake up. */
static void ring_for_nothing(void)
{
    uint64_t one = 1, before = counters_get(rig.ctl, COUNTER_ENGINE_WAKEUPS);

    ck_assert_int_eq(write(users[0].client.client->bell_fd, &one, sizeof(one)), sizeof(one));
    for (int k = 0; k < 200 && counters_get(rig.ctl, COUNTER_ENGINE_WAKEUPS) == before; k++)
        usleep(10);
}

/* A bell that rings on and on and announces nothing is not listened to any more, and its client is
 * still served: here by the rings of another. */
START_TEST(a_bell_that_rings_for_nothing_is_not_heard_forever)
{
    start(LOOP_AUTO, 0);
    uint64_t first = counters_get(rig.ctl, COUNTER_ENGINE_WAKEUPS);
    while (counters_get(rig.ctl, COUNTER_ENGINE_WAKEUPS) - first < IDLE_RINGS_MAX)
        ring_for_nothing(); /* two may be heard as one */
    for (int i = 0; i < IDLE_RINGS_MAX / 5; i++)
        ring_for_nothing(); /* and the engine may have woken up for something else */
    ck_assert_int_eq(pthread_create(&users[1].thread, NULL, run_user, &users[1]), 0);
    pthread_join(users[1].thread, NULL);
    stop();
    ck_assert(!users[0].was_heard && users[1].was_heard);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_thread");
    TCase *t = tcase_create("thread");
    struct loop *loop;
    int n = 4;

    if (loop_open(&loop, LOOP_URING) < 0) {
        fprintf(stderr, "skip: this system refuses io_uring\n");
        n = 2;
    } else {
        loop_close(loop);
    }
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, no_wake_is_lost_in_either_direction, 0, n);
    tcase_add_loop_test(t, a_grammar_that_waits_to_be_paid_for_is_compiled, 0, n);
    tcase_add_loop_test(t, a_request_in_the_moment_before_sleep_is_seen, 0, 5 * n);
    tcase_add_loop_test(t, a_request_in_the_moment_of_a_rescan_was_not_missed, 0, n);
    tcase_add_loop_test(t, a_client_that_is_served_by_scan_is_not_counted_as_missed, 0, n);
    tcase_add_loop_test(t, an_idle_engine_sleeps, 0, n);
    tcase_add_test(t, a_bell_that_rings_for_nothing_is_not_heard_forever);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
