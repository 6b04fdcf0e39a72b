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
    char folder[] = "/tmp/hearth-pool-XXXXXX", path[64];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), ends[2];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/s", folder);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(reactor_open(&loop), 0);
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
    reactor_close(&loop);
    close(ends[0]);
    close(ends[1]);
    close(listener);
    unlink(path);
    rmdir(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_pool");
    TCase *tcase = tcase_create("http_pool");
    tcase_add_test(tcase, a_pool_that_ended_is_called_no_more);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
