/* state_walk: texts of recurrent models on a random walk (backend.h, struct pass_state): in each pass a text goes on from one of
 * its states, some of its rows are folded in, some recorded, drafts are rejected, states are kept. What a pass does is chosen
 * here; tests run it on a backend, and compare. Needs no test library. */
#ifndef HEARTH_TESTS_RIG_STATE_WALK_H
#define HEARTH_TESTS_RIG_STATE_WALK_H

#include <stdbool.h>

#include "kernels/backend.h"

/* Tokens of a text; its states: ids [index * WALK_IDS, (index + 1) * WALK_IDS); its pages; the most rows of a pass. */
enum { WALK_TOKENS = 90, WALK_TEXTS = 2, WALK_IDS = 4, WALK_PAGES = 3, WALK_ROWS = 2 * (90 + 13) };

/* A text on its way: the states that hold some of it. */
struct walk_text {
    uint32_t index;
    uint32_t base[WALK_IDS], records[WALK_IDS]; /* of each id; records of the text's own tokens */
    bool holds[WALK_IDS];
    uint32_t at; /* the id that goes on */
};

/* What one pass does with a text: rows of its own tokens [first, first + good), then drafts, which are rejected. */
struct walk_plan {
    struct pass_state state;
    uint32_t from, own; /* of the text's ids; from WALK_IDS: the empty text */
    uint32_t first, good, drafts;
};

struct walk_plan walk_choose(uint64_t *random, const struct walk_text *t);

/* After the pass: the tokens that each id holds. */
void walk_done(struct walk_text *t, const struct walk_plan *p);

/* 0 .. n - 1 */
uint32_t walk_below(uint64_t *random, uint32_t n);

#endif
