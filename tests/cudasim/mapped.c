/* Host memory that kernels write: the host reads it while they run, and a GPU's stores arrive in
 * any order. A store that signals others to the host, a volatile or atomic one, needs a system
 * fence of its own thread before it. The fence orders what that thread wrote, and what other
 * threads of its block wrote before a barrier that it has passed. Other blocks need such a fence
 * after their stores, followed by the atomic that signals them. So a volatile store while any other
 * store of its grid is unordered is an error, whatever the host happens to see here. */
#include "tests/cudasim/sim.h"

#include <stdio.h>
#include <stdlib.h>

/* The last store of a thread. */
struct stored {
    uint64_t block, epoch; /* number of the block, its barriers so far */
    unsigned thread, fencer;
    bool fenced, signalled; /* signalled: by an atomic after the fence */
};

static struct stored *all; /* [n] of the grid that runs */
static unsigned n, room;

void sim_mapped_begin(void)
{
    n = 0;
}

static struct stored *find(const struct sim_thread *thread)
{
    for (unsigned i = 0; i < n; i++) {
        if (all[i].block == thread->block->number && all[i].thread == thread->index)
            return &all[i];
    }
    if (n == room) {
        room = 2 * room + 256;
        all = realloc(all, room * sizeof(*all));
        if (all == NULL) {
            fprintf(stderr, "cudasim: out of memory\n");
            abort();
        }
    }
    return &all[n++];
}

/* A signalling store: reports other stores that are not ordered before it. */
static void check(const struct sim_thread *thread, const void *caller)
{
    for (unsigned i = 0; i < n; i++) {
        const struct stored *s = &all[i];
        const bool here = s->block == thread->block->number;

        if (here ? s->fenced && s->fencer == thread->index : s->signalled)
            continue;
        sim_report(NULL, 0, caller,
                   "signals to the host what thread %u of %s wrote to its memory, with no system "
                   "fence of %s in between",
                   s->thread, here ? "its block" : "another block", here ? "its own" : "that one");
    }
}

void sim_mapped_write(bool signals, const void *caller)
{
    const struct sim_thread *thread = sim_current;

    if (signals)
        check(thread, caller);
    else
        *find(thread) = (struct stored){
            .block = thread->block->number, .epoch = thread->block->epoch, .thread = thread->index};
}

void sim_mapped_fence(void)
{
    const struct sim_thread *thread = sim_current;
    const struct sim_block *block = thread->block;

    for (unsigned i = 0; i < n; i++) {
        struct stored *s = &all[i];

        if (s->block != block->number || (s->thread != thread->index && s->epoch == block->epoch))
            continue;
        s->fenced = true;
        s->fencer = thread->index;
    }
}

void sim_mapped_atomic(void)
{
    const struct sim_thread *thread = sim_current;

    for (unsigned i = 0; i < n; i++) {
        if (all[i].block == thread->block->number &&
            (!all[i].fenced || all[i].fencer == thread->index))
            all[i].signalled = all[i].fenced;
    }
}
