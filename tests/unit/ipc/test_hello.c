/* The handshake: messages, versions, every field, descriptors, and hostile packets. */
#include "ipc/hello.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char err[HELLO_LINE_BYTES];
static int pair[2];

static void setup(void)
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    err[0] = 0;
}

static void teardown(void)
{
    close(pair[0]);
    close(pair[1]);
}

static struct hello good_hello(void)
{
    struct hello h;

    ck_assert_int_eq(hello_prep_hello(&h, 4, HELLO_NOTIFY, "editor:main.c"), 0);
    return h;
}

static struct hello_welcome good_welcome(uint32_t n_fds)
{
    struct hello_welcome w = {.limits = {4, 100, 16, 64, 1024},
                              .n_fds = n_fds,
                              .n_vocab = 512,
                              .daemon_pid = 1,
                              .vocab_bytes = 9000,
                              .numerics = "portable-1",
                              .model = "stories",
                              .daemon = "hearthd 0.1.0"};

    hello_prep_welcome(&w);
    return w;
}

static int open_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* ---- messages -------------------------------------------------------------------------------- */

START_TEST(a_good_hello_passes)
{
    struct hello h = good_hello(), got;

    ck_assert_int_eq(hello_kind(&h, sizeof(h)), HELLO_HELLO);
    ck_assert_int_eq(hello_check_hello(&h, sizeof(h), &got, err, sizeof(err)), 0);
    ck_assert_uint_eq(got.slots, 4);
    ck_assert_uint_eq(got.flags, HELLO_NOTIFY);
    ck_assert_str_eq(got.name, "editor:main.c");
    ck_assert_int_eq(hello_prep_hello(&h, 1, 0, NULL), 0);
    ck_assert_int_eq(hello_check_hello(&h, sizeof(h), &got, err, sizeof(err)), 0);
    ck_assert_str_eq(got.name, "");
}
END_TEST

START_TEST(a_version_mismatch_names_both_versions)
{
    static const uint16_t versions[] = {0, IPC_VERSION + 1, 999};
    struct hello h = good_hello(), got;

    for (size_t i = 0; i < 3; i++) {
        char number[16];

        h.head.version = versions[i];
        ck_assert_int_eq(hello_check_hello(&h, sizeof(h), &got, err, sizeof(err)),
                         -EPROTONOSUPPORT);
        snprintf(number, sizeof(number), "version %u", versions[i]);
        ck_assert_ptr_nonnull(strstr(err, number));
        snprintf(number, sizeof(number), "to %u", IPC_VERSION);
        ck_assert_ptr_nonnull(strstr(err, number));
        ck_assert_ptr_nonnull(strstr(err, versions[i] == 0 ? "too old" : "too new"));
    }
}
END_TEST

START_TEST(a_hello_of_another_version_may_have_another_size)
{
    uint8_t bytes[300] = {0};
    struct hello h = good_hello(), got;

    h.head.version = IPC_VERSION + 1;
    h.head.bytes = sizeof(bytes);
    memcpy(bytes, &h, sizeof(h));
    ck_assert_int_eq(hello_check_hello(bytes, sizeof(bytes), &got, err, sizeof(err)),
                     -EPROTONOSUPPORT);
    h.head.version = IPC_VERSION;
    memcpy(bytes, &h, sizeof(h));
    ck_assert_int_eq(hello_check_hello(bytes, sizeof(bytes), &got, err, sizeof(err)), -EPROTO);
}
END_TEST

#define HELLO_REFUSED(change, code)                                                                \
    do {                                                                                           \
        struct hello h = good_hello(), got;                                                        \
        change;                                                                                    \
        err[0] = 0;                                                                                \
        ck_assert_int_eq(hello_check_hello(&h, sizeof(h), &got, err, sizeof(err)), code);          \
        ck_assert_uint_gt(strlen(err), 0);                                                         \
    } while (0)

START_TEST(every_bad_field_of_hello_is_refused)
{
    HELLO_REFUSED(h.head.magic ^= 1, -EPROTO);
    HELLO_REFUSED(h.head.kind = HELLO_WELCOME, -EPROTO);
    HELLO_REFUSED(h.head.kind = 0, -EPROTO);
    HELLO_REFUSED(h.head.bytes--, -EPROTO);
    HELLO_REFUSED(h.head.number = 1, -EPROTO);
    HELLO_REFUSED(h.slots = 0, -EINVAL); /* a name, but no slot to carry it */
    HELLO_REFUSED(h.slots = LIMIT_SLOTS_MAX + 1, -EINVAL);
    HELLO_REFUSED(h.slots = UINT32_MAX, -EINVAL);
    HELLO_REFUSED(h.flags = 2, -EINVAL);
    HELLO_REFUSED(h.flags = 0x80000000u, -EINVAL);
    HELLO_REFUSED(h.zeroes[0] = 1, -EINVAL);
    HELLO_REFUSED(h.zeroes[1] = 1, -EINVAL);
    HELLO_REFUSED(h.name[0] = ' ', -EINVAL);
    HELLO_REFUSED(h.name[3] = '\n', -EINVAL);
    HELLO_REFUSED(h.name[3] = 0x7f, -EINVAL);
    HELLO_REFUSED(h.name[3] = (char)0xc3, -EINVAL);
    HELLO_REFUSED(h.name[63] = 'x', -EINVAL);
    HELLO_REFUSED(h.name[40] = 'x', -EINVAL);
    HELLO_REFUSED(memset(h.name, 'x', 64), -EINVAL);
}
END_TEST

START_TEST(every_truncation_of_hello_is_refused)
{
    struct hello h = good_hello(), got;

    for (size_t n = 0; n < sizeof(h); n++) {
        ck_assert_int_eq(hello_check_hello(&h, n, &got, err, sizeof(err)), -EPROTO);
        ck_assert_int_eq(hello_kind(&h, n), -EPROTO);
    }
}
END_TEST

START_TEST(names_that_would_be_refused_are_not_sent)
{
    struct hello h;
    char name[80];

    ck_assert_int_eq(hello_prep_hello(&h, 1, 0, ""), -EINVAL);
    ck_assert_int_eq(hello_prep_hello(&h, 1, 0, "two words"), -EINVAL);
    ck_assert_int_eq(hello_prep_hello(&h, 1, 0, "caf\xc3\xa9"), -EINVAL);
    memset(name, 'a', sizeof(name));
    name[64] = 0;
    ck_assert_int_eq(hello_prep_hello(&h, 1, 0, name), -EINVAL);
    name[63] = 0;
    ck_assert_int_eq(hello_prep_hello(&h, 1, 0, name), 0);
}
END_TEST

START_TEST(a_client_may_ask_for_no_slots)
{
    struct hello_welcome w = good_welcome(HELLO_FDS_SHARED), got_welcome;
    struct hello h, got;

    ck_assert_int_eq(hello_prep_hello(&h, 0, 0, NULL), 0);
    ck_assert_int_eq(hello_check_hello(&h, sizeof(h), &got, err, sizeof(err)), 0);
    h.flags = HELLO_NOTIFY;
    ck_assert_int_eq(hello_check_hello(&h, sizeof(h), &got, err, sizeof(err)), -EINVAL);
    w.limits.slots = 0;
    ck_assert_int_eq(hello_check_welcome(&w, sizeof(w), &got_welcome, err, sizeof(err)), 0);
}
END_TEST

#define WELCOME_REFUSED(change)                                                                    \
    do {                                                                                           \
        struct hello_welcome w = good_welcome(HELLO_FDS), got;                                     \
        change;                                                                                    \
        ck_assert_int_eq(hello_check_welcome(&w, sizeof(w), &got, err, sizeof(err)), -EPROTO);     \
    } while (0)

START_TEST(a_good_welcome_passes)
{
    struct hello_welcome w = good_welcome(HELLO_FDS), got;

    ck_assert_int_eq(hello_check_welcome(&w, sizeof(w), &got, err, sizeof(err)), 0);
    ck_assert_mem_eq(&got, &w, sizeof(w));
    ck_assert_int_eq(hello_check_welcome(&w, sizeof(w) - 1, &got, err, sizeof(err)), -EPROTO);
}
END_TEST

START_TEST(a_malformed_welcome_is_refused)
{
    WELCOME_REFUSED(w.n_fds = 0);
    WELCOME_REFUSED(w.n_fds = HELLO_FDS + 1);
    WELCOME_REFUSED(w.limits.slots = 0); /* no slots, yet the segments' descriptors */
    WELCOME_REFUSED(w.n_fds = HELLO_FDS_SHARED);
    WELCOME_REFUSED(w.n_vocab = 0);
    WELCOME_REFUSED(w.vocab_bytes = 0);
    WELCOME_REFUSED(memset(w.numerics, 'x', sizeof(w.numerics)));
    WELCOME_REFUSED(w.model[0] = '\033');
    WELCOME_REFUSED(memset(w.daemon, 'x', sizeof(w.daemon)));
}
END_TEST

START_TEST(a_refusal_is_readable_in_every_version)
{
    struct hello_refuse m, got;
    char line[400];

    memset(line, 'z', sizeof(line));
    line[5] = '\n';
    line[399] = 0;
    hello_prep_refuse(&m, -EBUSY, line);
    m.head.version = 77;
    ck_assert_int_eq(hello_check_refuse(&m, sizeof(m), &got), 0);
    ck_assert_int_eq(got.code, -EBUSY);
    ck_assert_uint_eq(strlen(got.line), HELLO_LINE_BYTES - 1);
    ck_assert_int_eq(got.line[5], '?');
    m.code = 5;
    ck_assert_int_eq(hello_check_refuse(&m, sizeof(m), &got), -EPROTO);
    m.code = -EBUSY;
    m.line[2] = 7;
    ck_assert_int_eq(hello_check_refuse(&m, sizeof(m), &got), -EPROTO);
}
END_TEST

/* ---- paths ----------------------------------------------------------------------------------- */

START_TEST(the_socket_path_follows_the_environment)
{
    char path[HELLO_PATH_BYTES], longer[200];

    setenv("HEARTH_SOCKET", "/a/b.sock", 1);
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    ck_assert_int_eq(hello_socket_path(path, err, sizeof(err)), 0);
    ck_assert_str_eq(path, "/a/b.sock");
    setenv("HEARTH_SOCKET", "", 1);
    ck_assert_int_eq(hello_socket_path(path, err, sizeof(err)), 0);
    ck_assert_str_eq(path, "/run/user/7/hearth/hearth.sock");
    unsetenv("HEARTH_SOCKET");
    unsetenv("XDG_RUNTIME_DIR");
    ck_assert_int_eq(hello_socket_path(path, err, sizeof(err)), 0);
    ck_assert_str_eq(path, "/run/hearth/hearth.sock");
    memset(longer, 'p', sizeof(longer));
    longer[108] = 0;
    setenv("HEARTH_SOCKET", longer, 1);
    ck_assert_int_eq(hello_socket_path(path, err, sizeof(err)), -ENAMETOOLONG);
    longer[107] = 0;
    setenv("HEARTH_SOCKET", longer, 1);
    ck_assert_int_eq(hello_socket_path(path, err, sizeof(err)), 0);
}
END_TEST

START_TEST(the_path_falls_back_to_the_system_daemon)
{
    char folder[] = "/tmp/hearth-hello-XXXXXX", path[HELLO_PATH_BYTES], own[64], machine[64];

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(own, sizeof(own), "%s/hearth/hearth.sock", folder);
    snprintf(machine, sizeof(machine), "%s/machine", folder);
    unsetenv("HEARTH_SOCKET");
    setenv("XDG_RUNTIME_DIR", folder, 1);
    ck_assert_int_eq(hello_find_socket(machine, path, err, sizeof(err)), 0);
    ck_assert_str_eq(path, own); /* neither exists: the user's own path is the default */
    close(open(machine, O_CREAT | O_WRONLY, 0600));
    ck_assert_int_eq(hello_find_socket(machine, path, err, sizeof(err)), 0);
    ck_assert_str_eq(path, machine);
    *strrchr(own, '/') = 0;
    ck_assert_int_eq(mkdir(own, 0700), 0);
    own[strlen(own)] = '/';
    close(open(own, O_CREAT | O_WRONLY, 0600));
    ck_assert_int_eq(hello_find_socket(machine, path, err, sizeof(err)), 0);
    ck_assert_str_eq(path, own);
    unlink(own);
    setenv("HEARTH_SOCKET", own, 1); /* an explicit path always wins */
    ck_assert_int_eq(hello_find_socket(machine, path, err, sizeof(err)), 0);
    ck_assert_str_eq(path, own);
    unlink(machine);
    *strrchr(own, '/') = 0;
    rmdir(own);
    rmdir(folder);
}
END_TEST

START_TEST(a_missing_daemon_is_one_line_with_the_path)
{
    char longer[200];

    ck_assert_int_eq(hello_connect("/nonexistent/x.sock", -1, err, sizeof(err)), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err, "/nonexistent/x.sock"));
    ck_assert_ptr_nonnull(strstr(err, "hearthd"));
    memset(longer, 'p', sizeof(longer));
    longer[199] = 0;
    ck_assert_int_eq(hello_connect(longer, -1, err, sizeof(err)), -ENAMETOOLONG);
}
END_TEST

START_TEST(a_connection_carries_packets)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), client, served;
    struct hello h = good_hello(), got;
    char path[64];

    snprintf(path, sizeof(path), "/tmp/hearth-test-hello-%d", (int)getpid());
    memcpy(a.sun_path, path, strlen(path));
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    client = hello_connect(path, -1, err, sizeof(err));
    ck_assert_int_ge(client, 0);
    served = accept(listener, NULL, NULL);
    ck_assert_int_eq(hello_send(client, &h, sizeof(h), NULL, 0), 0);
    ck_assert_int_eq(hello_recv(served, &got, sizeof(got), NULL, 0, NULL, 0), sizeof(h));
    ck_assert_mem_eq(&got, &h, sizeof(h));
    close(client);
    ck_assert_int_eq(hello_recv(served, &got, sizeof(got), NULL, 0, NULL, 0), 0);
    close(served);
    close(listener);
    unlink(path);
}
END_TEST

/* ---- descriptors ----------------------------------------------------------------------------- */

static void send_welcome(uint32_t claimed, uint32_t sent)
{
    struct hello_welcome w = good_welcome(claimed);
    int fds[HELLO_FDS] = {0, 0, 0, 0, 0, 0};

    ck_assert_int_eq(hello_send(pair[1], &w, sizeof(w), fds, sent), 0);
}

START_TEST(welcome_hands_over_its_descriptors)
{
    struct hello_welcome w;
    int fds[HELLO_FDS], before = open_descriptors();

    for (uint32_t n = HELLO_FDS - 1; n <= HELLO_FDS; n++) {
        send_welcome(n, n);
        ck_assert_msg(hello_recv_answer(pair[0], &w, fds, 1000, err, sizeof(err)) == 0, "%s", err);
        ck_assert_uint_eq(w.n_fds, n);
        for (uint32_t i = 0; i < n; i++)
            ck_assert_int_eq(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
        for (uint32_t i = n; i < HELLO_FDS; i++)
            ck_assert_int_eq(fds[i], -1);
        for (uint32_t i = 0; i < n; i++)
            close(fds[i]);
    }
    ck_assert_int_eq(open_descriptors(), before);
}
END_TEST

START_TEST(a_wrong_number_of_descriptors_is_refused_and_closed)
{
    struct hello_welcome w;
    int fds[HELLO_FDS], before = open_descriptors();

    for (uint32_t n = 0; n < HELLO_FDS; n++) {
        send_welcome(HELLO_FDS, n);
        ck_assert_int_eq(hello_recv_answer(pair[0], &w, fds, 1000, err, sizeof(err)), -EPROTO);
        for (uint32_t i = 0; i < HELLO_FDS; i++)
            ck_assert_int_eq(fds[i], -1);
    }
    ck_assert_int_eq(open_descriptors(), before);
}
END_TEST

/* A packet with `n` descriptors, more than hello_send() would send. */
static void send_with_fds(void *message, size_t bytes, uint32_t n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(200 * sizeof(int))];
    } control = {0};
    struct iovec iov = {message, bytes};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(n * sizeof(int)); /* descriptor 0, n times */
    ck_assert_int_eq((int)sendmsg(pair[1], &m, 0), (int)bytes);
}

static void send_fds(uint32_t n)
{
    struct hello h = good_hello();

    send_with_fds(&h, sizeof(h), n);
}

/* The numbers must not be left in fds: the caller closes those, and another thread of its process may
 * have got them meanwhile. */
START_TEST(a_newer_daemons_longer_welcome_names_the_version_and_leaves_no_descriptor)
{
    static const struct {
        size_t bytes;
        uint32_t n_fds;
        uint16_t version;
        int code;
    } cases[] = {
        {600, HELLO_FDS, IPC_VERSION + 1, -EPROTONOSUPPORT},
        {sizeof(struct hello_welcome), HELLO_FDS + 1, IPC_VERSION + 1, -EPROTONOSUPPORT},
        {600, HELLO_FDS, IPC_VERSION, -EPROTO},
        {sizeof(struct hello_welcome), HELLO_FDS + 1, IPC_VERSION, -EPROTO},
    };
    struct hello_welcome w;
    int fds[HELLO_FDS], before = open_descriptors();

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t message[600] = {0};
        w = good_welcome(HELLO_FDS);
        w.head.version = cases[i].version;
        w.head.bytes = (uint32_t)cases[i].bytes;
        memcpy(message, &w, sizeof(w));
        send_with_fds(message, cases[i].bytes, cases[i].n_fds);
        int rc = hello_recv_answer(pair[0], &w, fds, 1000, err, sizeof(err));
        ck_assert_msg(rc == cases[i].code, "%zu: %d %s", i, rc, err);
        ck_assert_ptr_nonnull(strstr(err, rc == -EPROTO ? "malformed" : "is too new"));
        for (uint32_t k = 0; k < HELLO_FDS; k++)
            ck_assert_int_eq(fds[k], -1);
        ck_assert_int_eq(open_descriptors(), before);
    }
}
END_TEST

START_TEST(descriptors_from_a_client_are_refused_and_not_taken)
{
    static const uint32_t counts[] = {1, 2, 6, 12, 13, 100};
    struct hello h;
    int before = open_descriptors(), taken[2];
    uint32_t n;

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        send_fds(counts[i]);
        for (int again = 0; again < 2; again++) { /* it stays where it is */
            ck_assert_int_eq(hello_recv(pair[0], &h, sizeof(h), NULL, 0, NULL, MSG_DONTWAIT),
                             -EPROTO);
            ck_assert_int_eq(open_descriptors(), before);
        }
        ck_assert_int_gt((int)recv(pair[0], &h, sizeof(h), MSG_DONTWAIT), 0);
    }
    send_fds(3); /* two are allowed */
    ck_assert_int_eq(hello_recv(pair[0], &h, sizeof(h), taken, 2, &n, MSG_DONTWAIT), -EPROTO);
    ck_assert_int_eq(open_descriptors(), before);
}
END_TEST

START_TEST(a_packet_that_is_too_long_is_refused)
{
    uint8_t bytes[4096] = {0}, small[512];

    ck_assert_int_eq((int)send(pair[1], bytes, sizeof(bytes), 0), sizeof(bytes));
    ck_assert_int_eq(hello_recv(pair[0], small, sizeof(small), NULL, 0, NULL, 0), -EPROTO);
    ck_assert_int_eq(hello_recv(pair[0], small, sizeof(small), NULL, 0, NULL, MSG_DONTWAIT),
                     -EPROTO);
}
END_TEST

START_TEST(a_wrong_reply_to_hello_is_one_line)
{
    struct hello_welcome w;
    int fds[HELLO_FDS];

    ck_assert_int_eq(hello_recv_answer(pair[0], &w, fds, 10, err, sizeof(err)), -ETIMEDOUT);
    ck_assert_uint_gt(strlen(err), 0);
    ck_assert_int_eq(hello_send_refuse(pair[1], -EBUSY, "no slot free, try again"), 0);
    ck_assert_int_eq(hello_recv_answer(pair[0], &w, fds, 1000, err, sizeof(err)), -EBUSY);
    ck_assert_str_eq(err, "no slot free, try again");
    ck_assert_int_eq((int)send(pair[1], "HTTP/1.1 200 OK", 15, 0), 15);
    ck_assert_int_eq(hello_recv_answer(pair[0], &w, fds, 1000, err, sizeof(err)), -EPROTO);
    shutdown(pair[1], SHUT_RDWR);
    ck_assert_int_eq(hello_recv_answer(pair[0], &w, fds, 1000, err, sizeof(err)), -ECONNRESET);
}
END_TEST

/* ---- status ---------------------------------------------------------------------------------- */

START_TEST(status_round_trips_up_to_its_limit)
{
    static char text[HELLO_STATUS_MAX], got[HELLO_STATUS_MAX];
    size_t most = HELLO_STATUS_MAX - sizeof(struct hello_head);
    struct hello_head ask;

    memset(text, 's', sizeof(text));
    for (size_t n = 0; n <= most; n = n == 0 ? 1 : n < most && n * 9 > most ? most : n * 9) {
        ck_assert_int_eq(hello_send_status(pair[1], 0, text, n), 0);
        ck_assert_int_eq(hello_status(pair[0], 0, got, sizeof(got), 1000), (int)n);
        ck_assert_uint_eq(strlen(got), n);
        ck_assert_int_eq(hello_recv(pair[1], &ask, sizeof(ask), NULL, 0, NULL, 0), sizeof(ask));
        ck_assert_int_eq(hello_kind(&ask, sizeof(ask)), HELLO_STATUS_ASK);
        if (n == most)
            break;
    }
    ck_assert_int_eq(hello_send_status(pair[1], 0, text, most + 1), -EMSGSIZE);
}
END_TEST

START_TEST(a_late_status_is_not_taken_for_the_next)
{
    char got[64];

    ck_assert_int_eq(hello_status(pair[0], 7, got, sizeof(got), 10), -ETIMEDOUT);
    ck_assert_int_eq(hello_send_status(pair[1], 7, "late", 4), 0);
    ck_assert_int_eq(hello_status(pair[0], 8, got, sizeof(got), 10), -ETIMEDOUT);
    ck_assert_int_eq(hello_send_status(pair[1], 8, "late, too", 9), 0);
    ck_assert_int_eq(hello_send_status(pair[1], 9, "now", 3), 0);
    ck_assert_int_eq(hello_status(pair[0], 9, got, sizeof(got), 1000), 3);
    ck_assert_str_eq(got, "now");
}
END_TEST

/* A daemon that sends answers to other questions without end. */
START_TEST(late_answers_do_not_hold_a_question_up)
{
    char got[64];
    int n_sent = 0, n_left = 0;

    while (hello_send_status(pair[1], 7, "late", 4) == 0)
        n_sent++;
    ck_assert_int_gt(n_sent, 2);
    ck_assert_int_eq(hello_status(pair[0], 8, got, sizeof(got), 0), -ETIMEDOUT);
    while (recv(pair[0], got, sizeof(got), MSG_DONTWAIT) > 0)
        n_left++;
    ck_assert_int_eq(n_left, n_sent - 1);
}
END_TEST

START_TEST(a_malformed_status_is_refused)
{
    struct hello h = good_hello();
    char got[64];

    ck_assert_int_eq(hello_status(pair[0], 0, got, sizeof(got), 10), -ETIMEDOUT);
    ck_assert_int_eq(hello_send(pair[1], &h, sizeof(h), NULL, 0), 0);
    ck_assert_int_eq(hello_status(pair[0], 0, got, sizeof(got), 1000), -EPROTO);
    ck_assert_int_eq((int)send(pair[1], "x", 1, 0), 1);
    ck_assert_int_eq(hello_status(pair[0], 0, got, sizeof(got), 1000), -EPROTO);
    ck_assert_int_eq(hello_send_status(pair[1], 0,
                                       "more than fits into the 64 bytes of the buffer, "
                                       "which is an error",
                                       65),
                     0);
    ck_assert_int_eq(hello_status(pair[0], 0, got, sizeof(got), 1000), -EPROTO);
}
END_TEST

START_TEST(a_stuck_reader_does_not_block_the_sender)
{
    int r = 0;

    for (int i = 0; i < 10000 && r == 0; i++)
        r = hello_send_refuse(pair[1], -EBUSY, "again");
    ck_assert_int_eq(r, -EAGAIN);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hello");
    TCase *messages = tcase_create("messages"), *sockets = tcase_create("sockets");

    tcase_add_test(messages, a_good_hello_passes);
    tcase_add_test(messages, a_version_mismatch_names_both_versions);
    tcase_add_test(messages, a_hello_of_another_version_may_have_another_size);
    tcase_add_test(messages, every_bad_field_of_hello_is_refused);
    tcase_add_test(messages, every_truncation_of_hello_is_refused);
    tcase_add_test(messages, names_that_would_be_refused_are_not_sent);
    tcase_add_test(messages, a_client_may_ask_for_no_slots);
    tcase_add_test(messages, a_good_welcome_passes);
    tcase_add_test(messages, a_malformed_welcome_is_refused);
    tcase_add_test(messages, a_refusal_is_readable_in_every_version);
    tcase_add_test(messages, the_socket_path_follows_the_environment);
    tcase_add_test(messages, the_path_falls_back_to_the_system_daemon);
    tcase_add_test(messages, a_missing_daemon_is_one_line_with_the_path);
    suite_add_tcase(s, messages);
    tcase_add_checked_fixture(sockets, setup, teardown);
    tcase_add_test(sockets, a_connection_carries_packets);
    tcase_add_test(sockets, welcome_hands_over_its_descriptors);
    tcase_add_test(sockets, a_wrong_number_of_descriptors_is_refused_and_closed);
    tcase_add_test(sockets,
                   a_newer_daemons_longer_welcome_names_the_version_and_leaves_no_descriptor);
    tcase_add_test(sockets, descriptors_from_a_client_are_refused_and_not_taken);
    tcase_add_test(sockets, a_packet_that_is_too_long_is_refused);
    tcase_add_test(sockets, a_wrong_reply_to_hello_is_one_line);
    tcase_add_test(sockets, status_round_trips_up_to_its_limit);
    tcase_add_test(sockets, a_late_status_is_not_taken_for_the_next);
    tcase_add_test(sockets, late_answers_do_not_hold_a_question_up);
    tcase_add_test(sockets, a_malformed_status_is_refused);
    tcase_add_test(sockets, a_stuck_reader_does_not_block_the_sender);
    suite_add_tcase(s, sockets);
    return run_suite(s);
}
