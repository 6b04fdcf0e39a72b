/* The control thread with a clock that the test moves: which connections are refused for their
 * time. The engine's part is a thread that lets go of clients when the test says so. */
#include "daemon/control/control.h"

#include "daemon/control/clients.h"
#include "daemon/control/handshake.h"
#include "ipc/hello.h"
#include "ipc/listen.h"
#include "ipc/segment.h"
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
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000 };

static const uint64_t LATE_NS = 6000000000; /* more than a connection has for its HELLO */

static char directory[64], path[96], text[HELLO_STATUS_MAX];
static struct config config = {.slots = 1, .client_slots = 1, .clients = 8};
static struct model model;
static struct loaded_model loaded;
static struct mailbox to_engine, to_control;
static struct control_options options;
static pthread_t control_thread, engine_thread;
static int control_rc;
static struct hello greeting; /* sent by late_fd ... */
static int leaving_fd = -1;   /* ... after this one has hung up */
static _Atomic uint64_t clock_ns;
static _Atomic int late_fd;
static _Atomic uint32_t wild;    /* a random state: the clock is set back and forth; 0: it is not */
static _Atomic bool holds, held; /* the engine keeps clients that left; it has one */

/* The control thread reads the clock between taking its events and looking for connections whose
 * time is over: what comes now has no event yet. */
static uint64_t now_ns(void)
{
    int fd = atomic_exchange(&late_fd, -1);

    if (fd >= 0) {
        if (leaving_fd >= 0)
            close(leaving_fd);
        ck_assert_int_eq(hello_send(fd, &greeting, sizeof(greeting), NULL, 0), 0);
        atomic_fetch_add(&clock_ns, LATE_NS);
    }
    if (wild) {
        uint32_t random = wild;
        uint64_t hours_ns = (uint64_t)random_below(&random, 3600) * 1000000000;
        if (random_below(&random, 4) == 0)
            atomic_store(&clock_ns, hours_ns);
        wild = random;
    }
    return atomic_fetch_add(&clock_ns, 1000);
}

static void *run_engine(void *arg)
{
    struct pollfd p = {.fd = to_engine.event_fd, .events = POLLIN};
    struct mail mail = {0};
    uint64_t count;

    while (mail.kind != MAIL_STOP) {
        if (!mailbox_take(&to_engine, &mail)) {
            poll(&p, 1, -1);
            ck_assert_int_eq((int)read(to_engine.event_fd, &count, sizeof(count)), sizeof(count));
            continue;
        }
        if (mail.kind == MAIL_ATTACH)
            continue;
        atomic_store(&held, mail.kind == MAIL_DETACH);
        while (mail.kind == MAIL_DETACH && atomic_load(&holds))
            usleep(1000);
        struct mail answer = {.kind = mail.kind == MAIL_STOP ? MAIL_STOPPED : MAIL_DETACHED,
                              .clients = {mail.clients[0]}};
        ck_assert(mailbox_post(&to_control, &answer));
        mailbox_ring(&to_control);
    }
    return arg;
}

static void *run_control(void *arg)
{
    control_rc = control_run(&options);
    return arg;
}

static void start(enum loop_backend loop)
{
    char err[256];

    strcpy(directory, "/tmp/hearth-control-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/hearth.sock", directory);
    config.socket = path;
    loaded.model = &model;
    model.n_vocab = 1;
    loaded.limits.context = 64;
    loaded.vocab_bytes = 4096;
    loaded.info.numerics = "portable-1";
    strcpy(loaded.name, "model");
    atomic_store(&clock_ns, 1000000000);
    atomic_store(&late_fd, -1);
    ck_assert_int_eq(mailbox_init(&to_engine, 1024), 0);
    ck_assert_int_eq(mailbox_init(&to_control, 1024), 0);
    options = (struct control_options){
        .config = &config,
        .loaded = &loaded,
        .vocab_fd = memfd_create("vocab", MFD_CLOEXEC),
        .listen_fd = listen_open(path, SOCK_SEQPACKET, "--socket", err, sizeof(err)),
        .signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        .inbox = &to_control,
        .outbox = &to_engine,
        .loop = loop,
        .params_bytes = LIMIT_PARAMS_MIN,
        .now_ns = now_ns,
    };
    options.ctl_fd = segment_ctl_open(&options.ctl, err, sizeof(err));
    ck_assert_int_ge(options.ctl_fd, 0);
    ck_assert_int_ge(options.listen_fd, 0);
    ck_assert_int_eq(pthread_create(&engine_thread, NULL, run_engine, NULL), 0);
    ck_assert_int_eq(pthread_create(&control_thread, NULL, run_control, NULL), 0);
}

static void stop(void)
{
    uint64_t one = 1;

    ck_assert_int_eq((int)write(options.signal_fd, &one, sizeof(one)), sizeof(one));
    pthread_join(control_thread, NULL);
    pthread_join(engine_thread, NULL);
    ck_assert_int_eq(control_rc, 0);
    listen_close(path, SOCK_SEQPACKET, options.listen_fd);
    rmdir(directory);
}

static int open_socket(void)
{
    int fd = hello_connect(path, PATIENCE_MS, text, sizeof(text));

    ck_assert_msg(fd >= 0, "%s", text);
    return fd;
}

/* The answer to a HELLO; text: why not. */
static int answer_of(int fd)
{
    struct hello_welcome welcome;
    int fds[HELLO_FDS];
    int rc = hello_recv_answer(fd, &welcome, fds, PATIENCE_MS, text, sizeof(text));

    for (int i = 0; i < HELLO_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return rc;
}

/* An answer means that all connections that came before were accepted. */
static void ask_status(int fd)
{
    int n = hello_status(fd, 1, text, sizeof(text), PATIENCE_MS);

    ck_assert_msg(n > 0, "%d", n);
}

START_TEST(a_hello_that_has_come_is_read_after_its_time)
{
    start(_i ? LOOP_EPOLL : LOOP_AUTO);
    ck_assert_int_eq(hello_prep_hello(&greeting, 0, 0, NULL), 0);
    int late = open_socket(), silent = open_socket(), asker = open_socket();

    ask_status(asker);
    atomic_store(&late_fd, late);
    open_socket(); /* so that the thread wakes, if it sleeps */
    ck_assert_msg(answer_of(late) == 0, "%s", text);
    ck_assert_int_eq(answer_of(silent), -ETIMEDOUT);
    stop();
}
END_TEST

START_TEST(a_late_hello_waits_for_a_slot_from_then_on)
{
    struct hello mine;

    start(_i ? LOOP_EPOLL : LOOP_AUTO);
    ck_assert_int_eq(hello_prep_hello(&greeting, 1, 0, NULL), 0);
    ck_assert_int_eq(hello_prep_hello(&mine, 1, 0, NULL), 0);
    int before = open_socket(), late = open_socket(), asker = open_socket();
    ck_assert_int_eq(hello_send(before, &mine, sizeof(mine), NULL, 0), 0);
    ck_assert_msg(answer_of(before) == 0, "%s", text);
    ask_status(asker);
    atomic_store(&holds, true);
    close(before);
    while (!atomic_load(&held))
        usleep(1000);
    atomic_store(&late_fd, late);
    open_socket(); /* so that the thread wakes, if it sleeps */
    atomic_store(&holds, false);
    ck_assert_msg(answer_of(late) == 0, "%s", text);
    stop();
}
END_TEST

/* A client that left holds the only slot: the event of its hang-up comes after the HELLO. */
START_TEST(a_slot_is_free_once_its_client_has_hung_up)
{
    struct hello mine;

    start(_i ? LOOP_EPOLL : LOOP_AUTO);
    ck_assert_int_eq(hello_prep_hello(&greeting, 1, 0, NULL), 0);
    ck_assert_int_eq(hello_prep_hello(&mine, 1, 0, NULL), 0);
    int late = open_socket(), asker = open_socket();
    leaving_fd = open_socket();
    ck_assert_int_eq(hello_send(leaving_fd, &mine, sizeof(mine), NULL, 0), 0);
    ck_assert_msg(answer_of(leaving_fd) == 0, "%s", text);
    ask_status(asker);
    atomic_store(&late_fd, late);
    open_socket(); /* so that the thread wakes, if it sleeps */
    ck_assert_msg(answer_of(late) == 0, "%s", text);
    stop();
}
END_TEST

/* By up to an hour, at one look in four: each question and each HELLO has an answer, or is told to
 * try again. */
START_TEST(whatever_the_clock_does_every_message_is_answered)
{
    uint32_t told = 0, welcomed = 0;
    struct hello mine;

    wild = 17;
    start(_i ? LOOP_EPOLL : LOOP_AUTO);
    ck_assert_int_eq(hello_prep_hello(&mine, 1, 0, NULL), 0);
    while (told < 200 || welcomed < 20) {
        int fd = open_socket(), n = 1;
        for (uint32_t number = 1; number <= 2 && n > 0; number++)
            n = hello_status(fd, number, text, sizeof(text), PATIENCE_MS);
        ck_assert_int_ne(n, -ETIMEDOUT);
        told += n > 0;
        (void)hello_send(fd, &mine, sizeof(mine), NULL, 0); /* refused meanwhile, perhaps */
        int rc = n > 0 ? answer_of(fd) : n;
        ck_assert_msg(rc == 0 || n <= 0 || strstr(text, ": try again"), "%d: %s", rc, text);
        welcomed += rc == 0;
        close(fd);
    }
    stop();
}
END_TEST

static _Atomic uint32_t n_looks; /* at the hang-ups of several clients at once */

/* In place of the C library's. */
int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    atomic_fetch_add(&n_looks, n >= 2);
    return (int)syscall(SYS_poll, fds, n, timeout_ms);
}

/* A connection of another user. */
static int connect_as(uid_t uid)
{
    ck_assert_int_eq((int)syscall(SYS_setresuid, -1, uid, -1), 0); /* of this thread */
    int fd = open_socket();
    ck_assert_int_eq((int)syscall(SYS_setresuid, -1, 0, -1), 0);
    return fd;
}

static int greet_as(uid_t uid, const struct hello *hello)
{
    int fd = connect_as(uid);
    ck_assert_int_eq(hello_send(fd, hello, sizeof(*hello), NULL, 0), 0);
    return answer_of(fd);
}

static bool start_for_all(void)
{
    if (geteuid() != 0) {
        fprintf(stderr, "skip: only root has connections of other users\n");
        return false;
    }
    start(LOOP_AUTO);
    ck_assert_int_eq(chmod(directory, 0755), 0);
    ck_assert_int_eq(chmod(path, 0666), 0);
    return true;
}

START_TEST(hang_ups_are_looked_for_once_however_many_wait)
{
    enum { WAITING = 40 };
    int asker, other, leaving, waiting[WAITING];
    struct hello mine;

    config.slots = 3;
    start(LOOP_AUTO);
    ck_assert_int_eq(hello_prep_hello(&mine, 1, 0, NULL), 0);
    int *const let_in[] = {&asker, &other, &leaving};
    for (int i = 0; i < 3; i++) {
        *let_in[i] = open_socket();
        ck_assert_int_eq(hello_send(*let_in[i], &mine, sizeof(mine), NULL, 0), 0);
        ck_assert_msg(answer_of(*let_in[i]) == 0, "%s", text);
    }
    atomic_store(&holds, true);
    close(leaving);
    while (!atomic_load(&held))
        usleep(1000);
    for (int i = 0; i < WAITING; i++) {
        waiting[i] = open_socket();
        ck_assert_int_eq(hello_send(waiting[i], &mine, sizeof(mine), NULL, 0), 0);
    }
    for (int i = 0; i < 3; i++) /* all were read */
        ask_status(asker);
    atomic_store(&n_looks, 0);
    atomic_store(&holds, false);
    for (int i = WAITING; i-- > 0;) /* the newest gets the slot */
        ck_assert_int_eq(answer_of(waiting[i]), i == WAITING - 1 ? 0 : -EBUSY);
    const uint32_t looks = atomic_load(&n_looks);
    ck_assert_uint_eq(looks, 1);
    stop();
}
END_TEST

/* All places are taken, most of them by those that wait for the slot of one that is leaving. */
START_TEST(connections_that_wait_for_a_slot_give_way)
{
    enum { ROOM = 64 }; /* beyond --clients */
    struct hello mine;

    config.slots = 2;
    if (!start_for_all())
        return;
    ck_assert_int_eq(hello_prep_hello(&mine, 1, 0, NULL), 0);
    int asker = open_socket(), leaving = open_socket();
    ck_assert_int_eq(hello_send(asker, &mine, sizeof(mine), NULL, 0), 0);
    ck_assert_msg(answer_of(asker) == 0, "%s", text);
    ck_assert_int_eq(hello_send(leaving, &mine, sizeof(mine), NULL, 0), 0);
    ck_assert_msg(answer_of(leaving) == 0, "%s", text);
    atomic_store(&holds, true);
    close(leaving);
    while (!atomic_load(&held))
        usleep(1000);
    for (uint64_t i = 2; i < config.clients + ROOM; i++)
        ck_assert_int_eq(hello_send(connect_as(1000), &mine, sizeof(mine), NULL, 0), 0);
    for (int i = 0; i < 3; i++) /* all were read */
        ask_status(asker);
    ask_status(connect_as(1001));
    atomic_store(&holds, false);
    stop();
}
END_TEST

START_TEST(one_user_has_not_all_connections)
{
    const uint32_t slots = (uint32_t)_i; /* with a slot, or without */
    struct hello mine;

    config.slots = 16;
    config.user_slots = 8; /* as many as there are connections */
    if (!start_for_all())
        return;
    ck_assert_int_eq(hello_prep_hello(&mine, slots, 0, NULL), 0);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_msg(greet_as(1000, &mine) == 0, "%s", text);
    ck_assert_int_eq(greet_as(1000, &mine), -EBUSY);
    ck_assert_str_eq(text, "this user has 4 connections, as many as one may: try again, or raise "
                           "--clients");
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_msg(greet_as(1001, &mine) == 0, "%s", text);
    stop();
}
END_TEST

START_TEST(a_name_is_held_until_its_client_has_left)
{
    static const char *const names[] = {"a", "b", "c"};
    struct hello named[3];
    int fds[3];

    config.slots = 4;
    start(LOOP_AUTO);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(hello_prep_hello(&named[i], 1, 0, names[i]), 0);
        fds[i] = open_socket();
        ck_assert_int_eq(hello_send(fds[i], &named[i], sizeof(named[i]), NULL, 0), 0);
        ck_assert_msg(answer_of(fds[i]) == 0, "%s", text);
    }
    for (int left = 0; left < 3; left++) { /* the middle one first */
        const int leaving = (left + 1) % 3;
        close(fds[leaving]);
        for (int i = 0; i < 3; i++) {
            int fd = open_socket();
            ck_assert_int_eq(hello_send(fd, &named[i], sizeof(named[i]), NULL, 0), 0);
            ck_assert_int_eq(answer_of(fd), i == leaving ? 0 : -EBUSY);
            if (i == leaving)
                fds[i] = fd;
            else
                close(fd);
        }
    }
    stop();
}
END_TEST

/* ---- how many clients are looked at: each lies alone, and one at a time can be read ---------- */

enum { PLACE_BYTES = (sizeof(struct client) + 4095) / 4096 * 4096 };

static char *places, *open_place;
static size_t places_bytes;
static uint32_t n_clients_read;

static void on_look(int sig, siginfo_t *info, void *context)
{
    const size_t at = (size_t)((char *)info->si_addr - places);

    (void)context;
    if (at >= places_bytes) {
        signal(sig, SIG_DFL); /* a fault of another kind */
        return;
    }
    if (open_place)
        mprotect(open_place, PLACE_BYTES, PROT_NONE);
    open_place = places + at / PLACE_BYTES * PLACE_BYTES;
    mprotect(open_place, PLACE_BYTES, PROT_READ | PROT_WRITE);
    n_clients_read++;
}

/* Fills all places with one user's connections that wait for a slot while another client leaves;
 * `named`: each for one with a name. */
static void fill(struct control *control, uint32_t n, bool named)
{
    const struct sigaction action = {.sa_sigaction = on_look, .sa_flags = SA_SIGINFO};
    struct control_user *user = clients_user(control, 1000);

    config.clients = n - 64;
    control->options.config = &config;
    control->n_clients = control->n_greeting = user->n_clients = user->n_greeting = n;
    control->n_detaching = 1;
    places_bytes = n * (size_t)PLACE_BYTES;
    places = mmap(NULL, places_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(places, MAP_FAILED);
    for (uint32_t i = 0; i < n; i++) {
        struct client *client = (struct client *)(void *)(places + i * (size_t)PLACE_BYTES);
        client->state = CLIENT_GREETING;
        client->waiting = true;
        client->hello.slots = 1;
        if (named)
            snprintf(client->hello.name, sizeof(client->hello.name), "slot-%u", i);
        client->uid = 1000;
        client->owner = user;
        client->next = control->clients;
        control->clients = client;
    }
    ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
    ck_assert_int_eq(mprotect(places, places_bytes, PROT_NONE), 0);
}

START_TEST(each_connection_is_looked_at_once)
{
    enum { N = 200 };
    static struct control control;

    fill(&control, N, _i != 0);
    ck_assert(!handshake_room(&control, clients_user(&control, 1000)));
    ck_assert_uint_ge(n_clients_read, N);
    ck_assert_uint_le(n_clients_read, 2 * N);
    n_clients_read = 0;
    handshake_retry(&control);
    ck_assert_uint_ge(n_clients_read, N);
    ck_assert_uint_le(n_clients_read, 3 * N); /* for a hang-up, and for what it waits for */
    ck_assert_uint_eq(control.n_greeting, N); /* which they go on to do */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("control");
    TCase *tcase = tcase_create("control");

    tcase_add_loop_test(tcase, a_hello_that_has_come_is_read_after_its_time, 0, 2);
    tcase_add_loop_test(tcase, a_late_hello_waits_for_a_slot_from_then_on, 0, 2);
    tcase_add_loop_test(tcase, a_slot_is_free_once_its_client_has_hung_up, 0, 2);
    tcase_add_loop_test(tcase, whatever_the_clock_does_every_message_is_answered, 0, 2);
    tcase_add_test(tcase, hang_ups_are_looked_for_once_however_many_wait);
    tcase_add_test(tcase, connections_that_wait_for_a_slot_give_way);
    tcase_add_loop_test(tcase, one_user_has_not_all_connections, 0, 2);
    tcase_add_test(tcase, a_name_is_held_until_its_client_has_left);
    tcase_add_loop_test(tcase, each_connection_is_looked_at_once, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
