/* fake_daemon.h - the daemon's side of one connection, played by a test.
 *
 * fake_start() listens and shakes hands in a thread; after fake_join() the test makes every step
 * itself through ipc's daemon-side calls, so that it controls their order. It computes nothing.
 */
#ifndef HEARTH_TESTS_RIG_FAKE_DAEMON_H
#define HEARTH_TESTS_RIG_FAKE_DAEMON_H

#include "ipc/bell.h"
#include "ipc/event.h"
#include "ipc/hello.h"
#include "ipc/params.h"
#include "ipc/segment.h"

#include <pthread.h>

enum {
    FAKE_SLOTS = 4,
    FAKE_CONTEXT = 512,
    FAKE_BOS = 1,
    FAKE_EOS = 2,
    FAKE_BYTE = 3,   /* token of byte b is FAKE_BYTE + b */
    FAKE_ONCE = 259, /* " Once" */
    FAKE_UPON,       /* " upon" */
    FAKE_A,          /* " a" */
    FAKE_B,          /* " b" */
    FAKE_RETURN,     /* "<|return|>", and the next two: answers in harmony */
    FAKE_CALL,
    FAKE_CHANNEL,
    FAKE_VOCAB
};

#define FAKE_TEMPLATE                                                                              \
    "{% for m in messages %}{{ m.role }}:{{ m.content }}</s>{% endfor %}"                          \
    "{% if add_generation_prompt %}assistant:{% endif %}"

struct fake_daemon {
    char directory[64], path[HELLO_PATH_BYTES];
    int listen_fd, socket_fd;
    int ctl_fd, vocab_fd, bell_fd, notify_fd;
    uint64_t vocab_bytes;
    struct ctl *ctl;
    struct segment segment;
    struct hello hello; /* what the client said */
    struct ring_reader submit;
    struct ring_writer events[FAKE_SLOTS];
    struct bell_waker waker;
    struct ipc_limits limits;
    pthread_t thread;
    int pid;    /* that it says it has, to a client without slots */
    int refuse; /* -errno: refuse with this code */
    const char *refuse_line;
    uint8_t fingerprint;  /* first byte of it */
    const char *numerics; /* id */
    int garbage;          /* answer with bytes that are not a message */
    int n_stopping;       /* first this many clients are told that it is stopping */
};

extern int fake_without_template; /* for fake_open(): the vocabulary brings no chat template */
extern const char *fake_tools_template; /* the same: one for chats with tools; NULL: none */

/* Makes the socket in a directory of its own; limits may be changed before fake_start(). */
void fake_open(struct fake_daemon *f);
void fake_close(struct fake_daemon *f);

/* Accepts one client and answers its hello, in a thread. */
void fake_start(struct fake_daemon *f);
void fake_join(struct fake_daemon *f);

/* Closes the socket, like a dying daemon. */
void fake_hang_up(struct fake_daemon *f);

/* Hangs up and unmaps its memory, like a dead daemon. fake_start() starts another one on the same
 * path. */
void fake_die(struct fake_daemon *f);

/* Answers STATUS_ASK with this text; blocks. Returns 0. */
int fake_answer_status(struct fake_daemon *f, const char *text);

/* Takes the next submit cell. Returns 1 or 0. */
int fake_take(struct fake_daemon *f, struct submit_cell *ret);

/* Publishes, without waking. fake_bytes: a token for each byte of text. */
void fake_tokens(struct fake_daemon *f, uint32_t slot, uint32_t generation, uint32_t position,
                 const uint32_t *tokens, uint32_t n);
void fake_bytes(struct fake_daemon *f, uint32_t slot, uint32_t generation, uint32_t position,
                const char *text);
void fake_done(struct fake_daemon *f, uint32_t slot, uint32_t generation, uint32_t reason,
               uint32_t output);

/* The end of a daemon's step: wakes the client if it sleeps. Returns how, BELL_NONE when it does
 * not sleep. */
int fake_wake(struct fake_daemon *f);

#endif
