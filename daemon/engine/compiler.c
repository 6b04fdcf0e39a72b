/* A job changes hands by `state`: the store-release of each thread pairs with the other one's
 * load-acquire, so that a thread that sees the state sees the job. */
#include "daemon/engine/compiler.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

void compiler_init(struct compiler *compiler, const struct grammar_vocab *vocab,
                   uint64_t (*cpu_ns)(void))
{
    *compiler = (struct compiler){.vocab = vocab, .cpu_ns = cpu_ns};
    sem_init(&compiler->wake, 0, 0); /* fails for values that are too large only */
}

void compiler_fini(struct compiler *compiler)
{
    sem_destroy(&compiler->wake);
}

static uint32_t look(const struct compiler *compiler)
{
    return atomic_load_explicit(&compiler->state, memory_order_acquire);
}

static void give(struct compiler *compiler, enum compiler_state state)
{
    atomic_store_explicit(&compiler->state, state, memory_order_release);
}

bool compiler_done(const struct compiler *compiler)
{
    return look(compiler) == COMPILER_DONE;
}

void compiler_start(struct compiler *compiler, struct compiler_job *job)
{
    assert(look(compiler) == COMPILER_IDLE);
    compiler->job = job;
    give(compiler, COMPILER_STARTED);
    sem_post(&compiler->wake);
}

bool compiler_finish(struct compiler *compiler)
{
    if (!compiler_done(compiler))
        return false;
    give(compiler, COMPILER_IDLE);
    return true;
}

/* ---- its thread ------------------------------------------------------------------------------ */

bool compiler_step(struct compiler *compiler)
{
    if (look(compiler) != COMPILER_STARTED)
        return false;
    struct compiler_job *job = compiler->job;
    uint64_t start_ns = compiler->cpu_ns();
    job->error = grammar_open(compiler->vocab, (const char *)job->text, job->bytes, &job->grammar,
                              job->line, sizeof(job->line));
    if (job->error == -ENOMEM)
        snprintf(job->line, sizeof(job->line),
                 "not enough memory for the grammar: try again later");
    job->took_ns = compiler->cpu_ns() - start_ns;
    give(compiler, COMPILER_DONE);
    return true;
}

static void *run(void *arg)
{
    struct compiler *compiler = arg;
    for (;;) {
        while (sem_wait(&compiler->wake) < 0)
            ; /* a signal */
        if (atomic_load_explicit(&compiler->stop, memory_order_relaxed))
            return NULL;
        if (compiler_step(compiler))
            mailbox_ring(compiler->engine);
    }
}

int compiler_open(struct compiler *compiler, struct mailbox *engine)
{
    compiler->engine = engine;
    compiler->stop = false;
    int rc = -pthread_create(&compiler->thread, NULL, run, compiler);

    compiler->runs = rc == 0;
    return rc;
}

void compiler_close(struct compiler *compiler)
{
    if (!compiler->runs)
        return;
    atomic_store_explicit(&compiler->stop, true, memory_order_relaxed);
    sem_post(&compiler->wake);
    pthread_join(compiler->thread, NULL);
    compiler->runs = false;
}
