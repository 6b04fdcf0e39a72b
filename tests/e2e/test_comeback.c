/* A client that hangs up and comes back at once for its named slot gets it, even when the daemon
 * reads the new HELLO before it notices the old hang-up. */
#include "daemon/loop/loop.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/raw_client.h"
#include "tests/run_suite.h"

#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMES = 20 };

static const char *const loops[] = {"epoll", "io_uring"};

/* A connection that the daemon has accepted, with nothing sent yet. */
static int connect_silently(const struct harness *d)
{
    char err[256];
    int fd = hello_connect(d->socket, -1, err, sizeof(err));

    ck_assert_msg(fd >= 0, "%s", err);
    harness_counter(d, "clients"); /* replied to after our connection was accepted */
    return fd;
}

static void say_hello(int fd)
{
    struct hello hello;

    ck_assert_int_eq(hello_prep_hello(&hello, 1, 0, "home"), 0);
    ck_assert_int_eq(hello_send(fd, &hello, sizeof(hello), NULL, 0), 0);
}

static void expect_welcome(int fd)
{
    struct hello_welcome welcome;
    int fds[HELLO_FDS];
    char err[256] = "";
    int rc = hello_recv_answer(fd, &welcome, fds, 60000, err, sizeof(err));

    ck_assert_msg(rc == 0, "%d %s", rc, err);
    for (int i = 0; i < HELLO_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void stop_and_wait(pid_t pid)
{
    int status;

    kill(pid, SIGSTOP);
    ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
    ck_assert(WIFSTOPPED(status));
}

/* The daemon is stopped meanwhile: the HELLO arrives first, then the hang-up, and it finds them in
 * that order. */
START_TEST(a_hello_read_before_the_old_hang_up_gets_its_slot)
{
    struct harness d = {0};

    harness_start(&d, harness_tiny_model(),
                  (const char *const[]){"--event-loop", loops[_i], "--threads", "1", NULL});
    int held = connect_silently(&d);
    say_hello(held);
    expect_welcome(held);
    for (int i = 0; i < TIMES; i++) {
        int next = connect_silently(&d);
        stop_and_wait(d.pid);
        say_hello(next);
        close(held);
        kill(d.pid, SIGCONT);
        expect_welcome(next);
        held = next;
    }
    /* While the slot is held, another client is refused. */
    struct hello_welcome welcome;
    int other = connect_silently(&d), fds[HELLO_FDS];
    char err[256];
    say_hello(other);
    ck_assert_int_lt(hello_recv_answer(other, &welcome, fds, 60000, err, sizeof(err)), 0);
    close(other);
    close(held);
    ck_assert_int_eq(harness_wait_counter(&d, "slots_used", 0), 0);
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

static bool has_uring(void)
{
    struct loop *loop;

    if (loop_open(&loop, LOOP_URING) < 0)
        return false;
    loop_close(loop);
    return true;
}

int main(void)
{
    Suite *suite = suite_create("comeback");
    TCase *tcase = tcase_create("comeback");
    int n_loops = has_uring() ? 2 : 1;

    if (n_loops == 1)
        puts("skip: this system refuses io_uring");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, a_hello_read_before_the_old_hang_up_gets_its_slot, 0, n_loops);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
