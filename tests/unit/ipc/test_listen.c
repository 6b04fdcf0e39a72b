/* The socket in the file system: private to its owner, a dead one is replaced, nothing else is ever
 * touched. */
#include "ipc/listen.h"
#include "ipc/hello.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[] = "/tmp/hearth-listen-XXXXXX", path[100], err[300];

static void setup(void)
{
    strcpy(directory + strlen(directory) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_int_eq(setenv("XDG_RUNTIME_DIR", directory, 1), 0);
    snprintf(path, sizeof(path), "%s/hearth/h.sock", directory);
    *err = 0;
}

static void teardown(void)
{
    char name[100];

    unlink(path);
    snprintf(name, sizeof(name), "%s/hearth", directory);
    rmdir(name);
    rmdir(directory);
}

static int open_at(const char *at)
{
    return listen_open(at, SOCK_SEQPACKET, "--socket", err, sizeof(err));
}

static int try_connect(int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    strcpy(address.sun_path, path);
    int rc = connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
    close(fd);
    return rc;
}

START_TEST(a_socket_is_private_to_its_owner)
{
    struct stat st;
    mode_t mask = umask(0);
    int fd = open_at(path);

    ck_assert_msg(fd >= 0, "%s", err);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert(S_ISSOCK(st.st_mode));
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(umask(mask), 0); /* the umask is restored */
    snprintf(path, sizeof(path), "%s/hearth", directory);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0700);
    ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
    ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    snprintf(path, sizeof(path), "%s/hearth/h.sock", directory);
    ck_assert_int_eq(try_connect(SOCK_SEQPACKET), 0);
    close(fd);
}
END_TEST

static int n_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

START_TEST(a_live_daemons_socket_is_not_replaced)
{
    int first = open_at(path);

    ck_assert_int_ge(first, 0);
    const int n = n_descriptors();
    ck_assert_int_eq(open_at(path), -EADDRINUSE);
    ck_assert_int_eq(n_descriptors(), n);
    ck_assert_ptr_nonnull(strstr(err, path));
    ck_assert_ptr_nonnull(strstr(err, "--socket"));
    ck_assert_int_eq(try_connect(SOCK_SEQPACKET), 0);
    close(first);
}
END_TEST

START_TEST(a_dead_daemons_socket_is_replaced)
{
    int first = open_at(path);

    close(first); /* as after SIGKILL: the file stays */
    ck_assert_int_eq(try_connect(SOCK_SEQPACKET), -ECONNREFUSED);
    int second = open_at(path);
    ck_assert_msg(second >= 0, "%s", err);
    ck_assert_int_eq(try_connect(SOCK_SEQPACKET), 0);
    close(second);
}
END_TEST

/* Listens in a process that is gone when this returns; the socket is still open, here. */
static int listen_and_die(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), status;

    strcpy(address.sun_path, path);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(listen(fd, 4));
    ck_assert(waitpid(pid, &status, 0) == pid && status == 0);
    return fd;
}

/* Closes the socket once a second connection waits at it. */
static void *outlive(void *arg)
{
    int fd = *(int *)arg, first = accept(fd, NULL, NULL), second = accept(fd, NULL, NULL);

    shutdown(fd, SHUT_RDWR);
    close(fd);
    close(first);
    close(second);
    return NULL;
}

START_TEST(a_socket_that_outlives_its_daemon_is_waited_for)
{
    pthread_t thread;

    close(open_at(path)); /* makes the folder */
    unlink(path);
    int old = listen_and_die();
    ck_assert_int_eq(pthread_create(&thread, NULL, outlive, &old), 0);
    int fd = open_at(path);
    ck_assert_msg(fd >= 0, "%s", err);
    ck_assert_int_eq(try_connect(SOCK_SEQPACKET), 0);
    pthread_join(thread, NULL);
    close(fd);
}
END_TEST

/* Waits until the other end of this pipe is closed everywhere. */
static void await_end(const int end[2])
{
    char byte;

    close(end[1]);
    while (read(end[0], &byte, 1) > 0)
        ;
}

/* One of several daemons, started when `go` is closed: writes to `report` 'y' when it listens, 'n'
 * when another one does, '?' for anything else, and runs until `stop` is closed. */
static void run_one(const int go[2], int report, const int stop[2])
{
    await_end(go);
    int fd = open_at(path);
    bool refused = fd == -EADDRINUSE && strstr(err, "(process ") && strstr(err, path);
    char byte = fd >= 0 ? 'y' : refused ? 'n' : '?';
    if (write(report, &byte, 1) == 1)
        await_end(stop);
    _exit(0);
}

/* All find the same dead socket and try to replace it: one succeeds, the others report that it
 * runs. */
START_TEST(of_several_concurrent_starts_one_listens)
{
    enum { STARTS = 6, ROUNDS = 12 };

    for (int round = 0; round < ROUNDS; round++) {
        int go[2], report[2], stop[2], listening = 0;
        char byte;

        close(open_at(path));
        ck_assert(pipe(go) == 0 && pipe(report) == 0 && pipe(stop) == 0);
        for (int i = 0; i < STARTS; i++)
            if (fork() == 0)
                run_one(go, report[1], stop);
        close(go[1]);
        for (int i = 0; i < STARTS; i++) {
            ck_assert_int_eq(read(report[0], &byte, 1), 1);
            ck_assert_int_ne(byte, '?');
            listening += byte == 'y';
        }
        ck_assert_int_eq(listening, 1);
        ck_assert_int_eq(try_connect(SOCK_SEQPACKET), 0);
        close(stop[1]);
        while (wait(NULL) > 0)
            ;
        close(go[0]);
        close(stop[0]);
        close(report[0]);
        close(report[1]);
    }
    snprintf(path, sizeof(path), "%s/hearth/h.sock.lock", directory);
    ck_assert_int_lt(access(path, F_OK), 0); /* the socket is removed */
}
END_TEST

/* A full daemon accepts, refuses and hangs up: it is alive. */
START_TEST(a_full_daemons_socket_is_not_replaced)
{
    int first = open_at(path);
    pid_t pid = fork();

    ck_assert_int_ge(first, 0);
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        for (;;) {
            struct pollfd connection = {.fd = first, .events = POLLIN};
            poll(&connection, 1, -1);
            int fd = accept(first, NULL, NULL);
            hello_send_refuse(fd, -EBUSY, "too many clients are connected: try again later");
            close(fd);
        }
    }
    ck_assert_int_eq(open_at(path), -EADDRINUSE);
    ck_assert_int_eq(try_connect(SOCK_SEQPACKET), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(first);
}
END_TEST

START_TEST(a_file_that_is_not_a_socket_is_never_removed)
{
    struct stat st;
    int fd;

    close(open_at(path)); /* creates the folder */
    unlink(path);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_eq(write(fd, "mine", 4), 4);
    close(fd);
    ck_assert_int_eq(open_at(path), -ENOTSOCK);
    ck_assert_ptr_nonnull(strstr(err, path));
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_size, 4);
}
END_TEST

START_TEST(another_programs_socket_is_left_alone)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    close(open_at(path));
    unlink(path);
    strcpy(address.sun_path, path);
    ck_assert_int_eq(bind(other, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(other, 1), 0);
    ck_assert_int_lt(open_at(path), 0);
    ck_assert_int_eq(try_connect(SOCK_STREAM), 0);
    close(other);
}
END_TEST

/* In a folder that all may write to, another user makes the lock file and holds its lock. */
START_TEST(another_users_lock_is_not_waited_for)
{
    char lock[110];

    if (geteuid() != 0)
        return; /* there is no other user to be */
    snprintf(path, sizeof(path), "%s/h.sock", directory);
    snprintf(lock, sizeof(lock), "%s.lock", path);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    ck_assert_int_eq(fchown(fd, 65534, 65534), 0);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    ck_assert_int_eq(open_at(path), -EPERM);
    ck_assert_msg(strstr(err, "cannot listen at") != NULL, "%s", err);
    ck_assert_int_eq(chown(directory, 65534, 65534), 0); /* whose folder it is may do so */
    close(fd);
    fd = open_at(path);
    ck_assert_msg(fd >= 0, "%s", err);
    listen_close(path, SOCK_SEQPACKET, fd);
}
END_TEST

START_TEST(an_impossible_path_is_refused_in_one_line)
{
    char longer[300];

    memset(longer, 'x', sizeof(longer));
    longer[0] = '/';
    longer[sizeof(longer) - 1] = 0;
    ck_assert_int_eq(open_at(longer), -ENAMETOOLONG);
    ck_assert_ptr_nonnull(strstr(err, "--socket"));
    snprintf(longer, sizeof(longer), "%s/other/h.sock", directory); /* not a default path */
    ck_assert_int_eq(open_at(longer), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err, longer));
    ck_assert_ptr_nonnull(strstr(err, "folder does not exist"));
    snprintf(longer, sizeof(longer), "%s/other", directory);
    ck_assert_int_lt(access(longer, F_OK), 0);
}
END_TEST

START_TEST(only_the_folder_of_a_default_path_is_created)
{
    char folder[100];

    snprintf(folder, sizeof(folder), "%s/hearth", directory);
    ck_assert_uint_eq(listen_folder_mode(folder), 0700);
    ck_assert_uint_eq(listen_folder_mode("/run/hearth"), 0755); /* other users may enter it */
    ck_assert_uint_eq(listen_folder_mode("/run"), 0);
    ck_assert_uint_eq(listen_folder_mode("/run/hearth2"), 0);
    ck_assert_uint_eq(listen_folder_mode(directory), 0);
    ck_assert_uint_eq(listen_folder_mode(""), 0);
    ck_assert_int_eq(unsetenv("XDG_RUNTIME_DIR"), 0);
    ck_assert_uint_eq(listen_folder_mode(folder), 0);
    ck_assert_uint_eq(listen_folder_mode("/hearth"), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("listen");
    TCase *t = tcase_create("listen");

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_socket_is_private_to_its_owner);
    tcase_add_test(t, a_live_daemons_socket_is_not_replaced);
    tcase_add_test(t, a_dead_daemons_socket_is_replaced);
    tcase_add_test(t, a_socket_that_outlives_its_daemon_is_waited_for);
    tcase_add_test(t, of_several_concurrent_starts_one_listens);
    tcase_add_test(t, a_full_daemons_socket_is_not_replaced);
    tcase_add_test(t, a_file_that_is_not_a_socket_is_never_removed);
    tcase_add_test(t, another_programs_socket_is_left_alone);
    tcase_add_test(t, another_users_lock_is_not_waited_for);
    tcase_add_test(t, an_impossible_path_is_refused_in_one_line);
    tcase_add_test(t, only_the_folder_of_a_default_path_is_created);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
