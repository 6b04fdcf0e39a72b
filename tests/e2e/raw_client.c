/* raw_client: see raw_client.h. */
#include "tests/e2e/raw_client.h"

#include <unistd.h>

static void close_fds(struct raw_client *raw)
{
    for (int i = 0; i < HELLO_FDS; i++)
        if (raw->fds[i] >= 0)
            close(raw->fds[i]);
    if (raw->socket_fd >= 0)
        close(raw->socket_fd);
}

static int open_with(struct raw_client *raw, const char *socket_path, uint32_t slots,
                     uint32_t flags)
{
    struct hello hello;
    struct hello_welcome welcome;
    char err[256];

    for (int i = 0; i < HELLO_FDS; i++)
        raw->fds[i] = -1;
    raw->socket_fd = hello_connect(socket_path, -1, err, sizeof(err));
    if (raw->socket_fd >= 0 && hello_prep_hello(&hello, slots, flags, NULL) == 0 &&
        hello_send(raw->socket_fd, &hello, sizeof(hello), NULL, 0) == 0 &&
        hello_recv_answer(raw->socket_fd, &welcome, raw->fds, 60000, err, sizeof(err)) == 0 &&
        segment_map(&raw->segment, raw->fds[HELLO_FD_UP], raw->fds[HELLO_FD_DOWN], &welcome.limits,
                    err, sizeof(err)) == 0) {
        raw->daemon_pid = welcome.daemon_pid;
        return 0;
    }
    close_fds(raw);
    return -1;
}

int raw_open(struct raw_client *raw, const char *socket_path, uint32_t slots)
{
    return open_with(raw, socket_path, slots, 0);
}

int raw_open_notify(struct raw_client *raw, const char *socket_path, uint32_t slots)
{
    return open_with(raw, socket_path, slots, HELLO_NOTIFY);
}

void raw_close(struct raw_client *raw)
{
    segment_close(&raw->segment);
    close_fds(raw);
}

void raw_ring(const struct raw_client *raw)
{
    uint64_t one = 1;

    if (write(raw->fds[HELLO_FD_BELL], &one, sizeof(one)) < 0)
        return; /* a full counter counts as rung */
}
