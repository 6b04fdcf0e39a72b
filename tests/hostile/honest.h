/* honest: users who ask the same requests over and over beside an attack, each on a user id of its
 * own. Every answer is compared with the undisturbed one, and its times are kept. */
#ifndef HEARTH_TESTS_HOSTILE_HONEST_H
#define HEARTH_TESTS_HOSTILE_HONEST_H

#include "client/hearth.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { HONEST_USERS = 2, HONEST_KINDS = 10, HONEST_TIMES = 1 << 15 };

/* Waits of one kind, in microseconds; the newest HONEST_TIMES of them. */
struct honest_times {
    uint32_t n;
    uint32_t us[HONEST_TIMES];
};

/* Shared with the users. */
struct honest {
    const char *socket;
    bool is_rough; /* a daemon that is gone, or out of something, is asked again for ten minutes;
                      its socket is its user's: all are that one */
    uint64_t alone[HONEST_KINDS]; /* hashes of the undisturbed answers */
    _Atomic uint32_t stop;
    pid_t pids[HONEST_USERS];
    struct honest_user {
        _Atomic uint32_t answers;
        struct honest_times first, between; /* tokens; read them after the user's end */
    } users[HONEST_USERS];
};

/* Zeroed memory, shared with later children. */
void *honest_share(size_t bytes);

/* Fills in the undisturbed answers. */
void honest_alone(struct honest *h);

/* A connection (NULL: refused, with a line on stderr); the hash of an answer, 0 without one, with its
 * times in `user` (may be NULL). In any process. */
struct hearth *honest_connect(const struct honest *h);
uint64_t honest_ask(const struct honest *h, struct hearth *handle, uint32_t kind,
                    struct honest_user *user);

/* One user in a process, until h->stop: exits with 0. */
pid_t honest_spawn(struct honest *h, uint32_t number);

/* Starts the users, each with times of its own from now on; ends them, and fails the test when one
 * got a wrong answer, or none. */
void honest_start(struct honest *h);
void honest_stop(struct honest *h);

/* Waits until each user has got so many answers. */
void honest_await(const struct honest *h, uint32_t answers);

/* The value that a hundredth of both users' times exceed. */
enum honest_time { HONEST_FIRST, HONEST_BETWEEN };
uint32_t honest_p99(const struct honest *h, enum honest_time which);

#endif
