/* Clients handed to the thread that wakes apart: each is woken, once for many times that it was
 * handed over before its turn, and never after it was taken back. */
#include "daemon/engine/waker.h"
#include "tests/run_suite.h"

#include <check.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 20 };

static struct client clients[CLIENTS];
static int far[CLIENTS];

static void setup(void)
{
    for (int i = 0; i < CLIENTS; i++) {
        int pair[2];
        ck_assert_int_eq(bell_notify_open(pair), 0);
        clients[i] = (struct client){.uid = (uid_t)(1000 + i % 3), .notify_fd = pair[0]};
        far[i] = pair[1];
    }
}

static void teardown(void)
{
    for (int i = 0; i < CLIENTS; i++) {
        close(clients[i].notify_fd);
        close(far[i]);
    }
}

static void hand(struct client *client)
{
    while (!waker_hand(client, BELL_NOTIFY)) /* the thread has the lock at this moment */
        ;
}

static ssize_t bytes_at(int fd)
{
    char bytes[1024];
    return recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
}

START_TEST(every_client_is_woken)
{
    for (int i = 0; i < CLIENTS; i++)
        hand(&clients[i]);
    for (int i = 0; i < CLIENTS; i++) {
        struct pollfd end = {.fd = far[i], .events = POLLIN};
        ck_assert_int_eq(poll(&end, 1, 30000), 1);
        waker_forget(&clients[i]); /* the byte comes before the end of the call */
        ck_assert_int_eq(bytes_at(far[i]), 1);
    }
}
END_TEST

/* Handing over is faster than waking: most of these find the client waiting. */
START_TEST(a_client_waits_once)
{
    enum { TIMES = 200000 };
    ssize_t n = 0, got;
    for (int i = 0; i < TIMES; i++) {
        hand(&clients[0]);
        if (i % 500 == 0 && (got = bytes_at(far[0])) > 0)
            n += got;
    }
    struct pollfd end = {.fd = far[0], .events = POLLIN};
    ck_assert(n > 0 || poll(&end, 1, 30000) == 1); /* the thread may not have run yet */
    waker_forget(&clients[0]);
    while ((got = bytes_at(far[0])) > 0)
        n += got;
    ck_assert_int_ge(n, 1);
    ck_assert_int_lt(n, TIMES);
}
END_TEST

START_TEST(a_client_that_was_taken_back_is_not_touched)
{
    for (int round = 0; round < 2000; round++) {
        struct client *client = &clients[round % CLIENTS];
        int fd = client->notify_fd;
        hand(client);
        waker_forget(client);
        memset(client, 0xff, sizeof(*client)); /* its memory is another's now */
        *client = (struct client){.uid = 1000, .notify_fd = fd};
        bytes_at(far[round % CLIENTS]);
    }
    usleep(20000);
    for (int i = 0; i < CLIENTS; i++)
        ck_assert_int_eq(bytes_at(far[i]), -1);
}
END_TEST

/* The kernel goes through all watchers of a socket without a pause: such wakes have to be rare. */
START_TEST(a_long_wake_is_followed_by_a_longer_rest)
{
    static const struct {
        uint64_t took_us, part; /* of the thread's time that is spent with wakes, at most: 1/part */
    } cases[] = {{1, 8}, {50, 8}, {500, 16}, {3000, 64}, {8000, 120}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t took_ns = cases[i].took_us * 1000;
        ck_assert_uint_ge(waker_rest_ns(took_ns) + took_ns, cases[i].part * took_ns);
    }
    ck_assert_uint_eq(waker_rest_ns(20000000), 1000000000); /* time that a hypervisor took */
    ck_assert_uint_eq(waker_rest_ns(UINT64_MAX), 1000000000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("waker");
    TCase *tests = tcase_create("waker");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, every_client_is_woken);
    tcase_add_test(tests, a_client_waits_once);
    tcase_add_test(tests, a_client_that_was_taken_back_is_not_touched);
    tcase_add_test(tests, a_long_wake_is_followed_by_a_longer_rest);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
