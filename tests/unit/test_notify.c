/* What the service manager is told, and what it hands over. */
#include "daemon/notify.h"
#include "tests/run_suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[] = "/tmp/hearth-notify-XXXXXX";
static int manager_fd;

static void listen_at(struct sockaddr_un *address, socklen_t bytes)
{
    manager_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_ge(manager_fd, 0);
    ck_assert_int_eq(bind(manager_fd, (struct sockaddr *)address, bytes), 0);
}

START_TEST(a_state_reaches_a_manager_at_a_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char text[64];

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/n", folder);
    listen_at(&address, sizeof(address));
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    ck_assert_int_eq(notify_send("READY=1\nSTATUS=serving"), 0);
    ssize_t n = recv(manager_fd, text, sizeof(text), 0);
    ck_assert_int_eq(n, 22);
    ck_assert_int_eq(memcmp(text, "READY=1\nSTATUS=serving", 22), 0);
    unlink(address.sun_path);
    rmdir(folder);
}
END_TEST

START_TEST(a_state_reaches_a_manager_in_the_abstract_namespace)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64], text[64];

    snprintf(name, sizeof(name), "@hearth-notify-%ld", (long)getpid());
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    listen_at(&address, (socklen_t)(sizeof(sa_family_t) + strlen(name)));
    setenv("NOTIFY_SOCKET", name, 1);
    ck_assert_int_eq(notify_send("WATCHDOG=1"), 0);
    ck_assert_int_eq(recv(manager_fd, text, sizeof(text), 0), 10);
}
END_TEST

START_TEST(without_a_manager_nothing_happens)
{
    unsetenv("NOTIFY_SOCKET");
    ck_assert_int_eq(notify_send("READY=1"), 0);
    setenv("NOTIFY_SOCKET", "no-path", 1);
    ck_assert_int_lt(notify_send("READY=1"), 0);
    setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
    ck_assert_int_lt(notify_send("READY=1"), 0);
}
END_TEST

START_TEST(the_watchdog_is_fed_at_half_its_time_and_only_by_the_process_meant)
{
    char pid[32];

    unsetenv("WATCHDOG_USEC");
    ck_assert_uint_eq(notify_watchdog_ns(), 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    unsetenv("WATCHDOG_PID");
    ck_assert_uint_eq(notify_watchdog_ns(), 15000000000u);
    setenv("WATCHDOG_PID", "1", 1);
    ck_assert_uint_eq(notify_watchdog_ns(), 0);
    snprintf(pid, sizeof(pid), "%ld", (long)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    ck_assert_uint_eq(notify_watchdog_ns(), 15000000000u);
}
END_TEST

START_TEST(a_passed_socket_is_taken_over)
{
    char pid[32];

    unsetenv("LISTEN_FDS");
    ck_assert_int_eq(notify_listen_fd(), -1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(dup2(fd, 3), 3);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", "1", 1);
    ck_assert_int_eq(notify_listen_fd(), -1);
    snprintf(pid, sizeof(pid), "%ld", (long)getpid());
    setenv("LISTEN_PID", pid, 1);
    ck_assert_int_eq(notify_listen_fd(), 3);
    ck_assert_int_ne(fcntl(3, F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_ne(fcntl(3, F_GETFL) & O_NONBLOCK, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("notify");
    TCase *tcase = tcase_create("notify");
    tcase_add_test(tcase, a_state_reaches_a_manager_at_a_path);
    tcase_add_test(tcase, a_state_reaches_a_manager_in_the_abstract_namespace);
    tcase_add_test(tcase, without_a_manager_nothing_happens);
    tcase_add_test(tcase, the_watchdog_is_fed_at_half_its_time_and_only_by_the_process_meant);
    tcase_add_test(tcase, a_passed_socket_is_taken_over);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
