/*
 * slot: one sequence of a client: its tokens, its speculation record, its KV pages, its running
 * request.
 *
 * Engine thread only. A slot owns its token array (reserved for the whole context, committed as
 * used) and the pages in its table. Tokens stay when pages are taken back: they are computed again
 * when needed.
 *
 *   free     no client                          tokens nothing
 *   parked   no client, has a name: it waits for the next client of the same user that asks for it
 *   held     a client, no request               pages kept: the next request starts warm
 *   active   a request runs
 */
#ifndef HEARTH_DAEMON_SLOT_H
#define HEARTH_DAEMON_SLOT_H

#include "daemon/pages.h"
#include "daemon/proposer.h"
#include "daemon/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { SLOT_NAME_BYTES = 64 };

struct client;
struct request;

struct slot {
    struct client *client; /* NULL: free or parked */
    uint32_t ring;         /* which of the client's event rings and arenas */
    uid_t uid;             /* whose tokens these are */
    char name[SLOT_NAME_BYTES];

    uint32_t *tokens; /* [context + 1]: accepted, then drafted */
    uint32_t same;    /* tokens [0, same) equal the client's arena as of its last cell */
    struct spec spec;
    struct proposer proposer;

    uint32_t *pages; /* [n_pages_max] ids, page i holds positions 32i .. 32i + 31 */
    uint32_t n_pages;
    uint32_t n_pages_max;
    uint64_t last_used; /* serial of its last request: the smallest goes first under pressure */

    struct request *request; /* never NULL: one per slot, reused */
    bool active;
    bool paused;   /* its reader leaves no room for an answer */
    bool waiting;  /* found no pages in the last pass, and nobody to take them from */
    bool planned;  /* has rows in the pass being built: its pages are in use */
    uint32_t take; /* rows in that pass */
};

/* Takes memory for a context of `context` tokens. Returns 0 or -ENOMEM. */
int slot_init(struct slot *slot, uint32_t context);
void slot_fini(struct slot *slot, uint32_t context);

/* Gives all pages back to the pool. Tokens stay. */
void slot_evict(struct slot *slot, struct pages *pool);

/* Forgets everything: tokens, name, pages. */
void slot_clear(struct slot *slot, struct pages *pool, uint32_t context);

/* Makes pages for positions [0, n_positions). Returns false when the pool is empty; what was taken
 * so far is kept. */
bool slot_reserve(struct slot *slot, struct pages *pool, uint32_t n_positions);

/* Gives back pages behind the last position that can still be read: after a shorter request began.
 */
void slot_trim(struct slot *slot, struct pages *pool);

/* Who must give its pages so that `needy` can go on: idle slots, the longest unused first; then
 * paused ones (old ones too, or a reader that stops would decide over everybody's pages); then
 * batch, then interactive requests that began after it, the newest first. Never a slot of this
 * pass. So nobody takes from the oldest interactive request that can go on, and it gets all that it
 * needs: the pool progresses. NULL: nobody, `needy` waits. */
struct slot *slot_victim(struct slot *slots, uint32_t n_slots, const struct slot *needy);

#endif
