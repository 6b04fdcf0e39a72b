/* Clients that pass files which do not close stop no one but their own user. Such a file is a TCP
 * socket with SO_LINGER and data that its other end does not read. */
#include "tests/e2e/harness.h"
#include "tests/e2e/raw_client.h"

#include "ipc/bell.h"
#include "tests/run_suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

enum { ATTACKERS = 6, THREADS_MOST = 4, LINGER_S = 3600, OTHER_USER = 12345 };

static struct harness daemon_;
static int readers[ATTACKERS]; /* the TCP sockets' other ends */

static void sleep_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};

    nanosleep(&t, NULL);
}

static bool kernel_refuses_rights(void)
{
    int pair[2], off = 0;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    bool can = setsockopt(pair[0], SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) == 0;
    close(pair[0]);
    close(pair[1]);
    return can;
}

/* Returns a TCP socket whose last close waits until *ret_reader is closed. */
static int lingering(int *ret_reader)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
    static const char bytes[65536];
    socklen_t n = sizeof(address);
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(bind(listening, (struct sockaddr *)&address, n), 0);
    ck_assert_int_eq(listen(listening, 1), 0);
    ck_assert_int_eq(getsockname(listening, (struct sockaddr *)&address, &n), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, n), 0);
    *ret_reader = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(*ret_reader, 0);
    close(listening);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
    return fd;
}

/* Sends a lingering socket along with the message and keeps no copy. */
static int pass(int socket_fd, const void *message, size_t bytes, int *ret_reader)
{
    int fd = lingering(ret_reader);
    int rc = hello_send(socket_fd, message, bytes, &fd, 1);

    if (rc < 0) {
        close(*ret_reader); /* or our own close would wait */
        *ret_reader = -1;
    }
    close(fd);
    return rc;
}

static int connect_raw(void)
{
    char err[256];
    int fd = hello_connect(daemon_.socket, -1, err, sizeof(err));

    ck_assert_msg(fd >= 0, "%s", err);
    return fd;
}

/* The handshake of a client with one slot and a notify socket. */
static int greet(int socket_fd, int *ret_fds)
{
    struct hello_welcome welcome;
    struct hello hello;
    char err[256];

    ck_assert_int_eq(hello_prep_hello(&hello, 1, HELLO_NOTIFY, NULL), 0);
    int rc = hello_send(socket_fd, &hello, sizeof(hello), NULL, 0);
    for (int i = 0; i < HELLO_FDS; i++)
        ret_fds[i] = -1;
    if (rc == 0 || rc == -EPIPE) /* refused before it said a word */
        rc = hello_recv_answer(socket_fd, &welcome, ret_fds, 60000, err, sizeof(err));
    return rc;
}

static void close_all(const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

START_TEST(the_sockets_take_no_descriptors_where_the_kernel_can_refuse_them)
{
    int fds[HELLO_FDS], reader, fd;

    if (!kernel_refuses_rights()) {
        printf("skip: this kernel has no SO_PASSRIGHTS\n");
        return;
    }
    harness_start(&daemon_, harness_tiny_model(), NULL);
    fd = connect_raw();
    ck_assert_int_eq(pass(fd, "x", 1, &reader), -EPERM);
    ck_assert_int_eq(greet(fd, fds), 0); /* nothing has happened */
    ck_assert_int_eq(pass(fd, "x", 1, &reader), -EPERM);
    ck_assert_int_eq(pass(fds[HELLO_FD_NOTIFY], "x", 1, &reader), -EPERM);
    close_all(fds, HELLO_FDS);
    close(fd);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

/* ---- where it cannot ---------------------------------------------------------------------------
 */

static int daemon_threads(void)
{
    char path[64];
    int n = 0;

    snprintf(path, sizeof(path), "/proc/%ld/task", (long)daemon_.pid);
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    while (readdir(directory))
        n++;
    closedir(directory);
    return n - 2;
}

static void start_open(void)
{
    setenv("HEARTH_TEST_PASSRIGHTS", "1", 1);
    harness_start(&daemon_, harness_tiny_model(), NULL);
}

/* Descriptors in every place where hearthd comes by them, then a hang-up. It is stopped meanwhile,
 * or our own close could be the last one. */
static void attack(int *sockets)
{
    int fds[HELLO_FDS];
    struct hello hello;

    ck_assert_int_eq(greet(sockets[0], fds), 0);
    ck_assert_int_eq(kill(daemon_.pid, SIGSTOP), 0);
    ck_assert_int_eq(pass(fds[HELLO_FD_NOTIFY], "x", 1, &readers[0]), 0);
    ck_assert_int_eq(hello_prep_hello(&hello, 1, 0, NULL), 0);
    ck_assert_int_eq(pass(sockets[1], &hello, sizeof(hello), &readers[1]), 0);
    ck_assert_int_eq(pass(sockets[2], "garbage", 7, &readers[2]), 0);
    for (int i = 3; i < ATTACKERS; i++) {
        ck_assert_int_eq((int)send(sockets[i], "", 0, MSG_NOSIGNAL), 0); /* reads as an end */
        ck_assert_int_eq(pass(sockets[i], "x", 1, &readers[i]), 0);
    }
    close_all(fds, HELLO_FDS);
    close_all(sockets, ATTACKERS);
    ck_assert_int_eq(kill(daemon_.pid, SIGCONT), 0);
}

static int64_t ask(int socket_fd, const char *counter)
{
    static char text[HELLO_STATUS_MAX];
    static uint32_t number;

    int n = hello_status(socket_fd, ++number, text, sizeof(text), 60000);
    ck_assert_msg(n > 0, "status: %d", n);
    json_t *status = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(status);
    json_t *value = json_object_get(status, counter);
    ck_assert_msg(json_is_integer(value), "no %s in %s", counter, text);
    int64_t found = json_integer_value(value);
    json_decref(status);
    return found;
}

/* True if another user gets in. */
static bool other_user_gets_in(void)
{
    int fds[HELLO_FDS], status;
    pid_t pid = fork();

    if (pid == 0) {
        char err[256];
        if (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0)
            _exit(2);
        int fd = hello_connect(daemon_.socket, -1, err, sizeof(err));
        _exit(fd < 0 || greet(fd, fds) != 0);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void check_only_this_user_waits(int before)
{
    int fds[HELLO_FDS], fd = connect_raw();

    ck_assert_int_eq(greet(fd, fds), -EBUSY);
    close(fd);
    ck_assert_int_eq(daemon_threads(), before + THREADS_MOST);
    if (getuid() != 0) {
        printf("skip: only root can run as a second user\n");
        return;
    }
    ck_assert_int_eq(chmod(daemon_.directory, 0755), 0);
    ck_assert_int_eq(chmod(daemon_.socket, 0666), 0);
    ck_assert(other_user_gets_in());
}

START_TEST(elsewhere_they_hang_four_threads_and_their_own_user)
{
    int sockets[ATTACKERS], fds[HELLO_FDS], fd, rc = -EBUSY;

    start_open();
    int watcher = connect_raw();
    ck_assert_int_ge(ask(watcher, "clients"), 0);
    int64_t open_before = ask(watcher, "fds_open");
    int before = daemon_threads();
    for (int i = 0; i < ATTACKERS; i++)
        sockets[i] = connect_raw();
    while (ask(watcher, "fds_open") < open_before + ATTACKERS)
        sleep_ms(5);
    attack(sockets);
    for (int i = 0; i < 4000 && daemon_threads() < before + THREADS_MOST; i++)
        ask(watcher, "clients"); /* answered all the while */
    check_only_this_user_waits(before);

    close_all(readers, ATTACKERS);
    for (int i = 0; i < 4000 && rc == -EBUSY; i++) {
        sleep_ms(5);
        fd = connect_raw();
        rc = greet(fd, fds);
        close_all(fds, HELLO_FDS);
        close(fd);
    }
    ck_assert_int_eq(rc, 0);
    for (int i = 0; i < 4000 && daemon_threads() > before; i++)
        sleep_ms(5);
    ck_assert_int_eq(daemon_threads(), before);
    for (int i = 0; i < 4000 && ask(watcher, "fds_open") > open_before; i++)
        sleep_ms(5);
    ck_assert_int_eq(ask(watcher, "fds_open"), open_before);
    close(watcher);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
}
END_TEST

START_TEST(they_do_not_hold_up_a_stop)
{
    int sockets[ATTACKERS], late;

    start_open();
    for (int i = 0; i < ATTACKERS; i++)
        sockets[i] = connect_raw();
    attack(sockets);
    ck_assert_int_eq(kill(daemon_.pid, SIGSTOP), 0);
    late = connect_raw(); /* perhaps never accepted */
    ck_assert_int_eq(pass(late, "x", 1, &readers[0]), 0);
    ck_assert_int_eq(kill(daemon_.pid, SIGTERM), 0);
    ck_assert_int_eq(kill(daemon_.pid, SIGCONT), 0);
    ck_assert_int_eq(harness_stop(&daemon_), 0);
    close(late);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("descriptors");
    TCase *t = tcase_create("descriptors");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, the_sockets_take_no_descriptors_where_the_kernel_can_refuse_them);
    tcase_add_test(t, elsewhere_they_hang_four_threads_and_their_own_user);
    tcase_add_test(t, they_do_not_hold_up_a_stop);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
