/* process: which process is it that answers at a socket? */
#include "client/cli/cli.h"
#include "ipc/hello.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The process that sends the next answer on this socket, as the kernel says; 0: there is none. */
static pid_t sender_of_answer(int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct ucred sender = {0};
    char byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof(control.bytes)};
    if (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, CLI_ANSWER_MS) != 1 ||
        recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0)
        return 0;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
        memcpy(&sender, CMSG_DATA(c), sizeof(sender));
    return sender.pid;
}

pid_t cli_find_process(const char *path)
{
    struct hello hello;
    char err[256];
    pid_t pid = 0;
    int on = 1, fd = hello_connect(path, CLI_ANSWER_MS, err, sizeof(err));
    if (fd < 0)
        return 0;
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0 &&
        hello_prep_hello(&hello, 0, 0, NULL) == 0 &&
        hello_send(fd, &hello, sizeof(hello), NULL, 0) == 0)
        pid = sender_of_answer(fd);
    close(fd);
    return pid;
}
