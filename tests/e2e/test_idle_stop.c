/* --idle-stop under a service manager that holds the socket, played by the test as systemd does it:
 * a client that connects while the daemon stops, or while none runs, gets an answer. */
#include "tests/e2e/harness.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS = 3, ROUNDS = 8 };

static char folder[] = "/tmp/hearth-idle-XXXXXX", path[64];
static int socket_fd;
static _Atomic uint32_t starts, ends, failures;
static _Atomic int stop;
static pthread_barrier_t together;

static pid_t start_daemon(const char *const *more)
{
    const char *argv[16] = {harness_program("hearthd"),
                            "--model",
                            harness_tiny_model(),
                            "--threads",
                            "1",
                            "--log-level",
                            "error"};

    for (int i = 0; more[i]; i++)
        argv[7 + i] = more[i];
    return harness_activate(argv, socket_fd, 1);
}

/* Starts a daemon whenever a client waits at the socket and none runs. */
static void *manage(void *arg)
{
    struct pollfd waiting = {.fd = socket_fd, .events = POLLIN};

    (void)harness_tiny_model(); /* created here, not in every child */
    while (!atomic_load(&stop)) {
        if (poll(&waiting, 1, 100) <= 0)
            continue;
        pid_t pid = start_daemon(arg);
        int status = 0;
        atomic_fetch_add(&starts, 1);
        waitpid(pid, &status, 0);
        atomic_fetch_add(&ends, 1);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            atomic_fetch_add(&failures, 1);
    }
    return NULL;
}

static void open_manager(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/s", folder);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    socket_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(socket_fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(socket_fd, 128), 0);
}

static void close_manager(void)
{
    close(socket_fd);
    unlink(path);
    rmdir(folder);
}

/* Connects and requests one token. Returns 0 or an error. */
static int ask(char *err, size_t err_bytes)
{
    static const uint32_t prompt[] = {1, 70, 80};
    const struct hearth_event *e;
    struct hearth_request r;
    struct hearth *h;
    int rc = hearth_connect(path, NULL, &h, err, err_bytes);

    if (rc)
        return rc;
    hearth_request_init(&r, sizeof(r));
    r.tokens = prompt;
    r.n_tokens = 3;
    r.max_tokens = 1;
    rc = hearth_submit(h, 0, &r);
    while (rc >= 0 && (rc = hearth_next(h, 0, &e, 60000)) > 0)
        if (e->kind == HEARTH_DONE)
            break;
    rc = rc <= 0 ? rc - 1 : e->result->reason == HEARTH_ERROR ? e->result->error : 0;
    if (rc)
        snprintf(err, err_bytes, "%d: %s", rc, hearth_error(h));
    hearth_close(h);
    return rc;
}

/* All clients connect around the end of the idle second, from 1 ms before to 19 ms after. */
static void *come_late(void *arg)
{
    uint32_t state = *(uint32_t *)arg;

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 3; i++) {
            char err[256];
            int rc = ask(err, sizeof(err));
            if (rc) {
                fprintf(stderr, "client %u, round %d: %s\n", *(uint32_t *)arg, round, err);
                atomic_fetch_add(&failures, 1);
            }
        }
        pthread_barrier_wait(&together);
        usleep(999000 + next_random(&state) % 20000);
    }
    return NULL;
}

START_TEST(clients_that_connect_during_the_stop_are_served)
{
    static const char *const options[][5] = {{"--idle-stop", "1", "--event-loop", "auto", NULL},
                                             {"--idle-stop", "1", "--event-loop", "epoll", NULL}};
    pthread_t manager, clients[CLIENTS];
    uint32_t seeds[CLIENTS];
    char err[256];

    open_manager();
    pthread_barrier_init(&together, NULL, CLIENTS);
    ck_assert_int_eq(pthread_create(&manager, NULL, manage, (void *)(uintptr_t)options[_i]), 0);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        seeds[i] = i + 1;
        ck_assert_int_eq(pthread_create(&clients[i], NULL, come_late, &seeds[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(clients[i], NULL);
    /* In case all came too early or too late: one client that surely comes while no daemon runs. */
    while (atomic_load(&ends) < atomic_load(&starts))
        usleep(1000);
    ck_assert_msg(ask(err, sizeof(err)) == 0, "%s", err);
    atomic_store(&stop, 1);
    pthread_join(manager, NULL); /* the last daemon has stopped by itself */
    fprintf(stderr, "%u starts in %d rounds\n", atomic_load(&starts), ROUNDS);
    ck_assert_uint_gt(atomic_load(&starts), 1);
    ck_assert_uint_eq(atomic_load(&failures), 0);
    close_manager();
}
END_TEST

START_TEST(a_connected_client_keeps_the_daemon_alive)
{
    static const char *const options[] = {"--idle-stop", "1", NULL};
    char err[256];
    pthread_t manager;
    struct hearth_options o;
    struct hearth *h;

    open_manager();
    ck_assert_int_eq(pthread_create(&manager, NULL, manage, (void *)(uintptr_t)options), 0);
    hearth_options_init(&o, sizeof(o));
    o.slots = 0; /* even a client without slots */
    ck_assert_msg(hearth_connect(path, &o, &h, err, sizeof(err)) == 0, "%s", err);
    usleep(2500000);
    ck_assert_int_gt((int)hearth_status(h, err, sizeof(err)), 0);
    ck_assert_uint_eq(atomic_load(&starts), 1);
    atomic_store(&stop, 1);
    hearth_close(h);
    pthread_join(manager, NULL);
    ck_assert_uint_eq(atomic_load(&failures), 0);
    close_manager();
}
END_TEST

/* As hearth@NAME, for which the configuration says nothing: a user has half of the slots where other
 * users may connect, else all. */
START_TEST(where_others_may_connect_a_user_has_half_of_the_slots)
{
    static const char *const options[] = {"--idle-stop", "1", "--slots", "3", NULL};
    const uint32_t most = _i ? 2 : 3;
    char err[256];
    pthread_t manager;
    struct hearth_options o;
    struct hearth *h, *more;
    struct hearth_info info;

    open_manager();
    ck_assert_int_eq(chmod(path, _i ? 0660 : 0600), 0);
    ck_assert_int_eq(pthread_create(&manager, NULL, manage, (void *)(uintptr_t)options), 0);
    hearth_options_init(&o, sizeof(o));
    o.slots = 3;
    ck_assert_msg(hearth_connect(path, &o, &h, err, sizeof(err)) == 0, "%s", err);
    info.size = sizeof(info);
    ck_assert_int_eq(hearth_info(h, &info), 0);
    ck_assert_uint_eq(info.slots, most);
    o.slots = 1;
    ck_assert_int_eq(hearth_connect(path, &o, &more, err, sizeof(err)), -EBUSY);
    ck_assert_msg(strstr(err, _i ? "all of its 2 slots" : "0 of 3 are free") != NULL, "%s", err);
    atomic_store(&stop, 1);
    hearth_close(h);
    pthread_join(manager, NULL);
    ck_assert_uint_eq(atomic_load(&failures), 0);
    close_manager();
}
END_TEST

START_TEST(without_socket_activation_it_does_not_stop)
{
    static const char *const arguments[] = {"--idle-stop", "1", NULL};
    struct harness d;
    char line[256];
    int logged = 0;

    memset(&d, 0, sizeof(d));
    harness_start(&d, harness_tiny_model(), arguments);
    usleep(1500000);
    ck_assert_int_eq((int)harness_counter(&d, "slots_used"), 0);
    FILE *log = fopen(d.log, "r");
    while (fgets(line, sizeof(line), log))
        logged += strstr(line, "idle-stop") != NULL;
    fclose(log);
    ck_assert_int_eq(logged, 1);
    ck_assert_int_eq(harness_stop(&d), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("idle_stop");
    TCase *t = tcase_create("idle_stop");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, clients_that_connect_during_the_stop_are_served, 0, 2);
    tcase_add_test(t, a_connected_client_keeps_the_daemon_alive);
    tcase_add_loop_test(t, where_others_may_connect_a_user_has_half_of_the_slots, 0, 2);
    tcase_add_test(t, without_socket_activation_it_does_not_stop);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
