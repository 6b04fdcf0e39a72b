/* attack_socket: hostile messages, floods of connections, and ways to leave. */
#include "tests/hostile/attack.h"

#include "tests/e2e/raw_client.h"
#include "tests/random.h"

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FLOOD = 100, SILENT = 40, MESSAGE = 600, HAUNT = 120000 };

static int connect_raw(const struct attack_state *a)
{
    return hello_connect(a->socket, -1, NULL, 0);
}

static size_t prep_message(uint32_t *random, uint8_t *message)
{
    struct hello hello;

    hello_prep_hello(&hello, random_below(random, 4), 0, NULL);
    if (hello.slots)
        hello.flags = random_below(random, 2);
    if (hello.slots && random_below(random, 2))
        hello.name[0] = (char)('a' + random_below(random, 26));
    memset(message, 0, MESSAGE);
    memcpy(message, &hello, sizeof(hello));
    if (random_below(random, 3))
        return sizeof(hello);
    hello.head.kind = HELLO_STATUS_ASK;
    hello.head.bytes = sizeof(hello.head);
    memcpy(message, &hello.head, sizeof(hello.head));
    return sizeof(hello.head);
}

/* One mistake of a message: in its words, its bytes or its size. */
static size_t mutate(uint32_t *random, uint8_t *message, size_t bytes)
{
    uint32_t word;

    switch (random_below(random, 5)) {
    case 0:
        return random_below(random, (uint32_t)bytes + 1);
    case 1:
        return bytes + random_below(random, (uint32_t)(MESSAGE - bytes));
    case 2:
        word = next_random(random) << 8;
        memcpy(message + random_below(random, (uint32_t)bytes / 4) * 4ul, &word, sizeof(word));
        return bytes;
    case 3:
        message[random_below(random, (uint32_t)bytes)] ^= (uint8_t)(1 + random_below(random, 255));
        return bytes;
    default:
        return bytes;
    }
}

/* Up to eight messages, right and wrong, in any order, none of whose answers is read; and an end in
 * one of three ways. */
void attack_messages(struct attack_state *a)
{
    uint8_t message[MESSAGE];
    int fd = connect_raw(a);

    for (uint32_t i = random_below(&a->random, 9); fd >= 0 && i > 0; i--) {
        size_t bytes = prep_message(&a->random, message);
        bytes = mutate(&a->random, message, bytes);
        send(fd, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        atomic_fetch_add(&a->done, 1);
    }
    if (random_below(&a->random, 3) == 0)
        shutdown(fd, (int)random_below(&a->random, 3));
    if (random_below(&a->random, 4) == 0)
        attack_sleep_us(300);
    close(fd);
}

/* Handshakes as fast as they go. Half of them hang up before the answer. */
void attack_floods(struct attack_state *a)
{
    struct raw_client raw;
    struct hello hello;

    for (int i = 0; i < FLOOD; i++) {
        if (i % 2) {
            if (raw_open(&raw, a->socket, 1) == 0)
                raw_close(&raw);
        } else {
            int fd = connect_raw(a);
            hello_prep_hello(&hello, random_below(&a->random, 3), 0, NULL);
            if (fd >= 0)
                hello_send(fd, &hello, sizeof(hello), NULL, 0);
            close(fd);
        }
        atomic_fetch_add(&a->done, 1);
    }
}

/* Connections that say nothing, and others that ask for the status and do not read it. */
void attack_silence(struct attack_state *a)
{
    int fds[SILENT];
    struct hello hello;

    for (int i = 0; i < SILENT; i++) {
        fds[i] = connect_raw(a);
        if (i % 2 || fds[i] < 0)
            continue;
        hello_prep_hello(&hello, 0, 0, NULL);
        hello_send(fds[i], &hello, sizeof(hello), NULL, 0);
        hello.head.kind = HELLO_STATUS_ASK;
        hello.head.bytes = sizeof(hello.head);
        while (hello_send(fds[i], &hello.head, sizeof(hello.head), NULL, 0) == 0 &&
               random_below(&a->random, 64))
            ;
    }
    attack_sleep_us(200000);
    for (int i = 0; i < SILENT; i++)
        close(fds[i]);
    atomic_fetch_add(&a->done, SILENT);
}

/* Goes on writing and ringing. The mapping is not there in a child; its descriptor is. */
static _Noreturn void haunt(struct attack_state *a, const struct raw_client *raw, uint32_t over)
{
    for (int i = 0; i < HAUNT && atomic_load(&a->over) == over; i++) {
        uint32_t value = next_random(&a->random);
        uint64_t at = value % (raw->segment.plan.up_bytes / 4) * 4;
        if (pwrite(raw->fds[HELLO_FD_UP], &value, sizeof(value), (off_t)at) < 0)
            break;
        raw_ring(raw);
        attack_sleep_us(1000);
    }
    _exit(0);
}

/* The process that greeted ends: the daemon lets go of the client, though a child has all of its
 * descriptors and lives until the account is taken. */
void attack_forks(struct attack_state *a)
{
    uint32_t over = atomic_load(&a->over);
    struct raw_client raw;
    pid_t pid = fork();

    if (pid > 0) {
        waitpid(pid, NULL, 0);
        atomic_fetch_add(&a->done, 1);
        return;
    }
    if (raw_open(&raw, a->socket, 2) == 0 && fork() == 0)
        haunt(a, &raw, over);
    _exit(0);
}
