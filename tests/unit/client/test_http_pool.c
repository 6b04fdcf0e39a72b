/* The gateway's pool of handles, and the loop that it is on. */
#include "client/http/pool.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct reactor loop;
static struct pool pool;
static int n_late;

static char folder[64], path[80];
static int listener;

static void setup(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(folder, sizeof(folder), "/tmp/hearth-pool-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/s", folder);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(reactor_open(&loop), 0);
}

static void teardown(void)
{
    reactor_close(&loop);
    close(listener);
    unlink(path);
    rmdir(folder);
}

static void on_connect(void *owner, const struct fail *why)
{
    (void)owner, (void)why;
}

static void on_late(struct watch *w, uint32_t events)
{
    (void)w, (void)events;
    n_late++;
}

static void on_end(struct watch *w, uint32_t events)
{
    (void)events;
    reactor_unwatch(&loop, w);
    pool_fini(&pool);
    pool.joining_watch.on = on_late;
}

/* A daemon goes away while a connection to it is not answered, and the loop learns that together
 * with what ends the pool: its memory may be gone. */
START_TEST(a_pool_that_ended_is_called_no_more)
{
    int ends[2];
    pool = (struct pool){.loop = &loop, .path = path, .n_handles = 1, .on_connect = on_connect};
    pool_init(&pool);
    pool_connect(&pool);
    ck_assert_ptr_nonnull(pool.joining);
    ck_assert_int_eq(pipe(ends), 0);
    struct watch end = {.fd = ends[0], .on = on_end};
    ck_assert_int_eq(reactor_watch(&loop, &end, EPOLLIN), 0);
    ck_assert_int_eq(write(ends[1], "x", 1), 1); /* first */
    close(accept(listener, NULL, NULL));
    reactor_turn(&loop, 1000);
    ck_assert_ptr_null(pool.joining);
    ck_assert_int_eq(n_late, 0);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

static void on_lost(struct job *job, const struct fail *why)
{
    (void)job, (void)why;
}

/* One exchange asks for many answers, then others for one or two, while no handle is free. */
START_TEST(exchanges_take_turns_in_the_queue)
{
    static struct job many[6], one, two[2], late;
    const struct job *turns[] = {&many[0], &one,     &two[0],  &many[1], &two[1],
                                 &late,    &many[2], &many[3], &many[4], &many[5]};
    struct fail f;
    pool = (struct pool){
        .loop = &loop, .path = path, .n_handles = 1, .queue_max = 10, .on_connect = on_connect};
    pool_init(&pool);
    for (uint32_t i = 0; i < 6; i++) {
        many[i] = (struct job){.id_slot = -1, .nth = i, .on_lost = on_lost};
        ck_assert_int_eq(pool_submit(&pool, &many[i], &f), 0);
    }
    one = (struct job){.id_slot = -1, .on_lost = on_lost};
    ck_assert_int_eq(pool_submit(&pool, &one, &f), 0);
    for (uint32_t i = 0; i < 2; i++) {
        two[i] = (struct job){.id_slot = -1, .nth = i, .on_lost = on_lost};
        ck_assert_int_eq(pool_submit(&pool, &two[i], &f), 0);
    }
    pool.turn = many[0].turn; /* it is the next one's turn to leave the queue */
    late = (struct job){.id_slot = -1, .on_lost = on_lost};
    ck_assert_int_eq(pool_submit(&pool, &late, &f), 0);
    const struct job *job = pool.first;
    for (size_t i = 0; i < sizeof(turns) / sizeof(*turns); i++, job = job->next)
        ck_assert_ptr_eq(job, turns[i]);
    ck_assert_ptr_null(job);
    pool_fini(&pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_pool");
    TCase *tcase = tcase_create("http_pool");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_pool_that_ended_is_called_no_more);
    tcase_add_test(tcase, exchanges_take_turns_in_the_queue);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
