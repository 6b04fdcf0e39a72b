/* Sockets that a client filled before it left (closer.h): what is in them without descriptors is taken out at
 * once, and no thread or user is held for it. */
#include "daemon/control/closer.h"
#include "tests/run_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { USER = 4711, PACKET = 8 };

static int ours, theirs;

static void open_pair(int type)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair), 0);
    ours = pair[0];
    theirs = pair[1];
}

/* Sends packets of so many bytes until no more fit. Returns how many bytes there are. */
static size_t fill(size_t packet)
{
    static const char bytes[1 << 16];
    size_t sent = 0;
    ssize_t n;

    while ((n = send(theirs, bytes, packet, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
        sent += (size_t)n;
    ck_assert_int_eq(errno, EAGAIN);
    return sent;
}

static const struct {
    int type;
    size_t packet;
} filled[] = {{SOCK_STREAM, PACKET},
              {SOCK_STREAM, 1 << 14},
              {SOCK_SEQPACKET, PACKET},
              {SOCK_SEQPACKET, 1 << 14}};

START_TEST(a_full_socket_holds_no_thread)
{
    char byte;

    open_pair(filled[_i].type);
    ck_assert_uint_gt(fill(filled[_i].packet), 1000);
    closer_close(ours, USER);
    ck_assert(!closer_holds(USER));
    ck_assert_int_eq(recv(theirs, &byte, 1, 0), 0); /* emptied, then closed: no reset */
    close(theirs);
}
END_TEST

START_TEST(empty_packets_are_taken_out)
{
    char byte;

    open_pair(SOCK_SEQPACKET);
    for (size_t i = 0; i < 20; i++)
        ck_assert_int_eq(send(theirs, "", i % 2, 0), (int)(i % 2));
    closer_close(ours, USER);
    ck_assert(!closer_holds(USER));
    ck_assert_int_eq(recv(theirs, &byte, 1, 0), 0);
    close(theirs);
}
END_TEST

static int send_descriptor(int fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    char byte = 0;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof(control.bytes)};

    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    return (int)sendmsg(theirs, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* One before and behind other bytes: a thread lets go of both. */
START_TEST(descriptors_between_bytes_are_let_go_by_a_thread)
{
    static const char bytes[5000];
    int ends[2];
    char byte;

    open_pair(_i ? SOCK_STREAM : SOCK_SEQPACKET);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(send(theirs, bytes, sizeof(bytes), 0), sizeof(bytes));
        ck_assert_int_eq(send_descriptor(ends[1]), 1);
    }
    close(ends[1]);
    closer_close(ours, USER);
    ck_assert_int_eq(read(ends[0], &byte, 1), 0); /* the last copy of its other end is closed */
    while (closer_holds(USER))
        usleep(1000);
    ck_assert_int_eq(recv(theirs, &byte, 1, 0), 0);
    close(theirs);
    close(ends[0]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("closer");
    TCase *t = tcase_create("closer");
    tcase_add_loop_test(t, a_full_socket_holds_no_thread, 0,
                        (int)(sizeof(filled) / sizeof(filled[0])));
    tcase_add_test(t, empty_packets_are_taken_out);
    tcase_add_loop_test(t, descriptors_between_bytes_are_let_go_by_a_thread, 0, 2);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
