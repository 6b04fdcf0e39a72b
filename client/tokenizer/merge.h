/* merge: the loop that SPM and BPE share. A text is a chain of links; the best pair of neighbours
 * that a rule knows is joined, again and again, until no pair is left. Pairs wait in a heap, so a
 * text of n links costs O(n log n). Any thread; merge_reserve allocates, the rest does not. */
#ifndef HEARTH_CLIENT_TOKENIZER_MERGE_H
#define HEARTH_CLIENT_TOKENIZER_MERGE_H

#include "ipc/vocab.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MERGE_NO_LINK UINT32_MAX

struct merge_link {
    uint32_t at;    /* byte offset in the text */
    uint32_t bytes; /* 0: joined into a link before it */
    uint32_t prev, next;
    uint32_t id; /* its token, VOCAB_NONE where it is none */
};

struct merge_pair {
    uint64_t key; /* order << 32 | left: the lowest goes first, of equals the leftmost */
    uint32_t bytes;
    uint32_t right;
    uint32_t id;
};

struct merge {
    const struct vocab *vocab;
    const char *text;
    /* Says whether two neighbours join, into which token, and in which order (lowest first). */
    bool (*rule)(const struct merge *m, const struct merge_link *left,
                 const struct merge_link *right, uint32_t *ret_order, uint32_t *ret_id);
    struct merge_link *links; /* [capacity], n in use; link 0 is the first of the chain */
    struct merge_pair *pairs; /* [2 * capacity], a heap of n_pairs */
    uint32_t n, n_pairs;
    size_t capacity;
};

/* Makes room for chains of n links. 0 or -ENOMEM. */
int merge_reserve(struct merge *m, size_t n);
void merge_fini(struct merge *m);

/* Begins a new, empty chain; merge_push puts a link at its end (never beyond the room reserved). */
void merge_reset(struct merge *m);
void merge_push(struct merge *m, uint32_t at, uint32_t bytes, uint32_t id);

/* Joins what can be joined. Afterwards links[0], links[links[0].next].. are the result. */
void merge_run(struct merge *m);

#endif
