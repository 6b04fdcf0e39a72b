/* attack: what a client can do that means harm, as a table. Every attack is a function that does
 * its worst once, on connections of its own; attack_start() repeats it in a child process of another
 * user. Nothing in here uses the library: the handshake and the
 * shared memory are ipc's own, raw.
 */
#ifndef HEARTH_TESTS_HOSTILE_ATTACK_H
#define HEARTH_TESTS_HOSTILE_ATTACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Users of the tests; only root can be them. */
enum { ATTACK_USER = 12345, HONEST_USER = 12346 };

/* Shared with the child. */
struct attack_state {
    const char *socket;
    uint32_t random;       /* next_random() */
    _Atomic uint32_t stop; /* set by the parent: end after this time */
    _Atomic uint32_t over; /* raised by the parent: processes that an attack left end, too */
    _Atomic uint64_t done; /* what was done so far, in the attack's unit */
};

struct attack {
    const char *name;
    const char *unit;
    uint32_t times; /* of the short form */
    void (*once)(struct attack_state *a);
    void (*prepare)(void); /* NULL, or what it needs root for: called in the child before */
};

enum { ATTACKS = 14 };
extern const struct attack attacks[ATTACKS];

/* Becomes this user where that is possible, and dies with the parent. For children. */
void attack_become(uid_t uid);

/* Repeats an attack `times` times, or until a->stop, in a child. It exits with 3 when something
 * succeeded that must not. */
pid_t attack_start(const struct attack *attack, struct attack_state *a, uint64_t times);

/* Is this attack in this run? All are, or the one that HEARTH_ATTACK names. */
bool attack_chosen(const struct attack *attack);

/* ---- in the child ---------------------------------------------------------------------------- */

void attack_sleep_us(long us);

/* Ends the child when something succeeded that must not. */
void attack_forbidden(int succeeded, const char *what);

/* attack_memory.c: what is written to the shared memory. */
void attack_words(struct attack_state *a);
void attack_cells(struct attack_state *a);
void attack_holes(struct attack_state *a);
void attack_generations(struct attack_state *a);
void attack_grammars(struct attack_state *a);

/* attack_socket.c: what is sent, and how one connects and leaves. */
void attack_messages(struct attack_state *a);
void attack_floods(struct attack_state *a);
void attack_silence(struct attack_state *a);
void attack_forks(struct attack_state *a);

/* attack_descriptors.c: descriptors, sent and received. */
void attack_passed(struct attack_state *a);
void attack_bells(struct attack_state *a);
void attack_dups(struct attack_state *a);
void attack_seals(struct attack_state *a);

/* Sends a descriptor n times along with a message. Returns what sendmsg() returns. */
enum { ATTACK_PASSED_MAX = 253 };
int attack_send_fds(int socket_fd, const void *message, size_t bytes, int fd, uint32_t n);

/* attack_fuse.c: descriptors whose close() waits for a file system of the attacker's. */
void attack_fuse_prepare(void);
void attack_fuse(struct attack_state *a);

#endif
