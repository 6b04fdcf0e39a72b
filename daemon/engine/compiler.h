/*
 * compiler: a thread that compiles grammars one at a time, so that the engine thread never does.
 *
 * The engine thread gives it a job with compiler_start, and asks in each step whether that is over;
 * in between the job is the compiler's. Neither thread waits for the other, but for compiler_close,
 * which waits for the job in hand. Tests have no thread: they call compiler_step themselves.
 */
#ifndef HEARTH_DAEMON_ENGINE_COMPILER_H
#define HEARTH_DAEMON_ENGINE_COMPILER_H

#include "daemon/engine/mailbox.h"
#include "daemon/grammar/grammar.h"

#include <pthread.h>
#include <semaphore.h>

struct compiler_job {
    uint8_t *text; /* [bytes] */
    uint32_t bytes;
    struct grammar *grammar; /* the result; NULL: */
    int error;               /* -EINVAL or -ENOMEM ... */
    char line[256];          /* ... in words */
    uint64_t took_ns;        /* of the compiler's CPU time */
};

enum compiler_state { COMPILER_IDLE, COMPILER_STARTED, COMPILER_DONE };

struct compiler {
    const struct grammar_vocab *vocab;
    uint64_t (*cpu_ns)(void); /* CPU time of the calling thread */
    struct compiler_job *job;
    _Atomic uint32_t state; /* enum compiler_state */
    _Atomic bool stop;
    bool runs; /* there is a thread */
    pthread_t thread;
    sem_t wake;
    struct mailbox *engine; /* rung when a job is over */
};

void compiler_init(struct compiler *compiler, const struct grammar_vocab *vocab,
                   uint64_t (*cpu_ns)(void));
void compiler_fini(struct compiler *compiler);

/* Starts and ends the thread. Returns 0 or -errno. */
int compiler_open(struct compiler *compiler, struct mailbox *engine);
void compiler_close(struct compiler *compiler);

/* The engine thread's: gives an idle compiler a job; is it over? compiler_finish takes it back. */
void compiler_start(struct compiler *compiler, struct compiler_job *job);
bool compiler_done(const struct compiler *compiler);
bool compiler_finish(struct compiler *compiler);

/* One turn of the compiler's thread. Returns whether there was a job. */
bool compiler_step(struct compiler *compiler);

#endif
