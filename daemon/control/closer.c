/* closer.c: see closer.h. */
#include "daemon/control/closer.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Missing from the headers of some systems that we build on. */
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

enum {
    DRAIN_MOST = 512, /* looks of closer_close itself; some 280 packets fit into a socket */
    /* Of a look: a client fills a stream by one call, and it must not be taken out byte by byte. */
    LOOK_BYTES = 32 << 10,
};

struct held {
    struct held *next;
    int fd;
    uid_t uid;
    bool taken; /* by a thread */
};

static pthread_mutex_t closer_lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *closer_held; /* list, oldest first */
static uint32_t closer_threads;

void closer_refuse(int socket_fd)
{
    int off = 0;
    if (!getenv("HEARTH_TEST_PASSRIGHTS"))
        setsockopt(socket_fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
}

/* Looks at what comes next in a socket that is shut down, and takes nothing. Returns 0: there is
 * nothing, and nothing will come; 1: something without descriptors; 2: with; *ret_bytes: how much was
 * looked at, which in a stream may be several packets. An empty packet reads as an end, too, but brings
 * its sender's credentials (closer_close asks for them), for which there is just room. A stream has no
 * empty packets, and credentials at its end. */
static int closer_peek(int fd, size_t *ret_bytes)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    int type = SOCK_STREAM;
    socklen_t type_bytes = sizeof(type);
    char bytes[LOOK_BYTES];
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof(control.bytes)};
    ssize_t n = recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes);
    if (n < 0 || (n == 0 && (type == SOCK_STREAM || m.msg_controllen == 0)))
        return 0;
    *ret_bytes = (size_t)n;
    return m.msg_flags & MSG_CTRUNC ? 2 : 1;
}

/* Takes the n bytes, or the empty packet, that were looked at. Without a control buffer the kernel drops
 * the descriptors in them: the thread waits for their closing here. */
static void closer_drop(int fd, size_t n)
{
    char bytes[LOOK_BYTES];
    if (recv(fd, bytes, n > 0 ? n : 1, MSG_DONTWAIT) < 0)
        return; /* the next look says that nothing is left */
}

/* Empties the sockets before it closes them: a poll of the loop may hold the last reference to one,
 * and then the control thread is the one that closes what is in it. */
static void *closer_thread(void *arg)
{
    struct held **link, *held;
    size_t n;
    (void)arg;
    pthread_mutex_lock(&closer_lock);
    for (;;) {
        for (held = closer_held; held && held->taken; held = held->next)
            ;
        if (!held)
            break;
        held->taken = true;
        pthread_mutex_unlock(&closer_lock);
        while (closer_peek(held->fd, &n))
            closer_drop(held->fd, n);
        close(held->fd);
        pthread_mutex_lock(&closer_lock);
        for (link = &closer_held; *link != held; link = &(*link)->next)
            ;
        *link = held->next;
        free(held);
    }
    closer_threads--;
    pthread_mutex_unlock(&closer_lock);
    return NULL;
}

/* One more thread for what no thread has taken. PRECOND: the lock is held. */
static void closer_start(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (closer_threads == CLOSER_THREADS || pthread_attr_init(&attributes) != 0)
        return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    closer_threads += pthread_create(&thread, &attributes, closer_thread, NULL) == 0;
    pthread_attr_destroy(&attributes);
}

void closer_close(int socket_fd, uid_t uid)
{
    struct held *held, **end = &closer_held;
    int on = 1, found = 1;
    size_t n;
    shutdown(socket_fd, SHUT_RDWR); /* from here on nothing more gets in */
    setsockopt(socket_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    for (int i = 0; i < DRAIN_MOST && (found = closer_peek(socket_fd, &n)) == 1; i++)
        closer_drop(socket_fd, n);
    if (found == 0) {
        close(socket_fd);
        return;
    }
    held = malloc(sizeof(*held));
    if (!held)
        return; /* better that it stays open than that we wait here */
    *held = (struct held){.fd = socket_fd, .uid = uid};
    pthread_mutex_lock(&closer_lock);
    while (*end)
        end = &(*end)->next;
    *end = held;
    closer_start();
    pthread_mutex_unlock(&closer_lock);
}

bool closer_holds(uid_t uid)
{
    bool holds = false, waiting = false;
    pthread_mutex_lock(&closer_lock);
    for (const struct held *held = closer_held; held; held = held->next) {
        holds |= held->uid == uid;
        waiting |= !held->taken;
    }
    if (waiting) /* a thread may have been refused before */
        closer_start();
    pthread_mutex_unlock(&closer_lock);
    return holds;
}
