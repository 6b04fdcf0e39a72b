/* Messages to the service manager, and the socket it passes. */
#include "ipc/service.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[] = "/tmp/hearth-notify-XXXXXX";
static char line[256];
static int fd_flags, file_flags; /* of descriptor 3, as service_listen_fd left it */
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
    ck_assert_int_eq(service_notify("READY=1\nSTATUS=serving"), 0);
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
    ck_assert_int_eq(service_notify("WATCHDOG=1"), 0);
    ck_assert_int_eq(recv(manager_fd, text, sizeof(text), 0), 10);
}
END_TEST

/* Such as one that was stopped: whoever feeds the watchdog also serves clients. */
START_TEST(a_manager_that_reads_nothing_holds_nobody_up)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];
    int rc = 0, n = 0;

    snprintf(name, sizeof(name), "@hearth-full-%ld", (long)getpid());
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    listen_at(&address, (socklen_t)(sizeof(sa_family_t) + strlen(name)));
    setenv("NOTIFY_SOCKET", name, 1);
    while (rc == 0 && n++ < 100000)
        rc = service_notify("WATCHDOG=1");
    ck_assert_int_eq(rc, -EAGAIN);
    ck_assert_int_eq(service_notify("STATUS=x"), -EAGAIN);
    ck_assert_int_eq(service_notify("STOPPING=1"), -EAGAIN);
}
END_TEST

START_TEST(the_limit_of_files_is_raised_as_far_as_it_may_be)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max - 1;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    service_raise_file_limit();
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_uint_eq(limit.rlim_cur, limit.rlim_max);
}
END_TEST

START_TEST(without_a_manager_nothing_happens)
{
    unsetenv("NOTIFY_SOCKET");
    ck_assert_int_eq(service_notify("READY=1"), 0);
    setenv("NOTIFY_SOCKET", "no-path", 1);
    ck_assert_int_lt(service_notify("READY=1"), 0);
    setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
    ck_assert_int_lt(service_notify("READY=1"), 0);
}
END_TEST

START_TEST(the_watchdog_is_fed_at_half_its_time_by_the_named_process_only)
{
    char pid[32];

    unsetenv("WATCHDOG_USEC");
    ck_assert_uint_eq(service_watchdog_ns(), 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    unsetenv("WATCHDOG_PID");
    ck_assert_uint_eq(service_watchdog_ns(), 15000000000u);
    setenv("WATCHDOG_PID", "1", 1);
    ck_assert_uint_eq(service_watchdog_ns(), 0);
    snprintf(pid, sizeof(pid), "%ld", (long)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    ck_assert_uint_eq(service_watchdog_ns(), 15000000000u);
}
END_TEST

/* As the service manager does it: `fd` (-1: none) becomes descriptor 3, one of `count` for process
 * `pid`. Check's own descriptor 3, which every assertion writes to, is restored afterwards. */
static int pass(int fd, const char *count, pid_t pid)
{
    int kept = fcntl(3, F_DUPFD_CLOEXEC, 10), rc;
    char text[32];

    snprintf(text, sizeof(text), "%ld", (long)pid);
    setenv("LISTEN_FDS", count, 1);
    setenv("LISTEN_PID", text, 1);
    *line = 0;
    close(3);
    if (fd >= 0)
        dup2(fd, 3);
    rc = service_listen_fd(line, sizeof(line));
    fd_flags = fcntl(3, F_GETFD);
    file_flags = fcntl(3, F_GETFL);
    close(3);
    if (kept >= 0) {
        dup2(kept, 3);
        close(kept);
    }
    return rc;
}

/* Moves a descriptor to a number out of the way. */
static int put_away(int low)
{
    int fd = fcntl(low, F_DUPFD_CLOEXEC, 10);

    ck_assert_int_ge(fd, 0);
    close(low);
    return fd;
}

/* A socket of this type at an address that the kernel chooses. */
static int make_socket(int domain, int type, bool listens)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = put_away(socket(domain, type, 0));

    if (domain == AF_UNIX)
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)), 0);
    ck_assert(!listens || listen(fd, 1) == 0);
    return fd;
}

START_TEST(a_passed_socket_is_taken_over)
{
    unsetenv("LISTEN_FDS");
    ck_assert_int_eq(service_listen_fd(line, sizeof(line)), -ENOENT);
    int fd = make_socket(AF_UNIX, SOCK_SEQPACKET, true);
    ck_assert_int_eq(pass(fd, "1", 1), -ENOENT);
    ck_assert_int_eq(pass(fd, "0", getpid()), -ENOENT);
    ck_assert_int_eq(pass(fd, "1", getpid()), 3);
    ck_assert_int_ne(fd_flags & FD_CLOEXEC, 0);
    ck_assert_int_ne(file_flags & O_NONBLOCK, 0);
}
END_TEST

/* Clients could not connect, or not with hearth's messages: such a socket is an error. */
START_TEST(an_unsuitable_descriptor_is_refused)
{
    const int wrong[] = {
        make_socket(AF_UNIX, SOCK_STREAM, true), make_socket(AF_UNIX, SOCK_DGRAM, false),
        make_socket(AF_UNIX, SOCK_SEQPACKET, false), make_socket(AF_INET, SOCK_STREAM, true),
        put_away(open("/dev/null", O_RDWR))};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        ck_assert_int_eq(pass(wrong[i], "1", getpid()), -ENOTSOCK);
        ck_assert_ptr_nonnull(strstr(line, "ListenSequentialPacket="));
    }
    ck_assert_int_eq(pass(make_socket(AF_UNIX, SOCK_SEQPACKET, true), "2", getpid()), -ENOTSOCK);
    ck_assert_ptr_nonnull(strstr(line, "2 descriptors"));
    ck_assert_int_eq(pass(-1, "1", getpid()), -ENOTSOCK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("service");
    TCase *tcase = tcase_create("notify");
    tcase_add_test(tcase, a_state_reaches_a_manager_at_a_path);
    tcase_add_test(tcase, a_state_reaches_a_manager_in_the_abstract_namespace);
    tcase_add_test(tcase, a_manager_that_reads_nothing_holds_nobody_up);
    tcase_add_test(tcase, the_limit_of_files_is_raised_as_far_as_it_may_be);
    tcase_add_test(tcase, without_a_manager_nothing_happens);
    tcase_add_test(tcase, the_watchdog_is_fed_at_half_its_time_by_the_named_process_only);
    tcase_add_test(tcase, a_passed_socket_is_taken_over);
    tcase_add_test(tcase, an_unsuitable_descriptor_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
