/*
 * plan: which slots get how many rows of the next pass. Pure: no clock, no slots, no pages.
 *
 * Engine thread. The rules, in order:
 *  - a pass has at most `rows` rows and `samples` rows that want something back;
 *  - interactive before batch, but batch keeps at least 1/8 of rows and samples while it has work;
 *  - inside a class, slots that decode (one row, or one verification window) before prefills, and
 *    of these the short ones first where all of them fit: a keystroke is one pass. Short is what
 *    the whole request had to compute when it began, not what is left of it; while an interactive
 *    answer is being read, only interactive prompts are short, and only by the time they take,
 *    and those of a user that owes time are not;
 *  - prefills of a class share what is left evenly: first between users, then between a user's
 *    slots, and not in pieces below PLAN_CHUNK_MIN where there is more than that; all long ones
 *    together have at most `prefill` rows;
 *  - where not all have a place, each user has one before any has a second. Which user comes first
 *    rotates from pass to pass, and which of its slots, so none starves, and a user with many slots
 *    takes nothing from one with few.
 * What one class leaves over goes to the other. */
#ifndef HEARTH_DAEMON_POLICY_PLAN_H
#define HEARTH_DAEMON_POLICY_PLAN_H

#include "daemon/policy/curve.h"

#include <stdbool.h>
#include <stdint.h>

enum { PLAN_CHUNK_MIN = 16, PLAN_SHORT = 64, PLAN_SLOTS_MAX = 1024 };

struct plan_slot {
    uint32_t rows;   /* in: rows until its next sample (spec_rows), at least 1 */
    uint32_t window; /* in: of these, the last ones that want a sample: drafts + 1 */
    uint32_t whole;  /* in: the most rows that its request has needed; less than rows: rows */
    uint32_t user;   /* in: whose it is */
    bool batch;      /* in: its class */
    bool owes;       /* in: its user's short prompts had their share beside others' answers */
    bool brief;      /* of plan_budget: its prompt is short, and does not wait for credit */
    uint32_t take;   /* out: rows in this pass; rows: the sample comes with it */
};

struct plan_limits {
    uint32_t rows;    /* at least 1 */
    uint32_t samples; /* at least 1 */
    uint32_t brief;   /* of the rows, what short prompts may have together */
    uint32_t prefill; /* ... and what the other prompts may */
};

/* What passes cost lately, in ns; 0: not known yet. */
struct plan_cost {
    uint64_t pass_ns;     /* a limit: what prefills may take of a pass when they are alone */
    uint64_t decode_ns;   /* a pass that only decodes */
    uint32_t decode_rows; /* rows of the slots that decode in this pass */
    struct curve pass;    /* passes by their rows */
    int64_t credit_ns;    /* what long prompts may take now beside answers (plan_credit) */
    bool unverified;      /* fast passes answer an interactive request; decode_ns is theirs */
    bool lately;          /* an answer was read a moment ago: the next keystroke is near */
};

/* Is the slot's prompt a long one (plan_budget), whose next rows may wait? */
bool plan_is_long(const struct plan_slot *slot);

/* How many rows the next pass may have: fills rows, at most `most`, brief and prefill, and says of
 * each slot whether its prompt is short. Where no slot has a prompt, brief and prefill are 0.
 *
 * Decoding slots always get all their rows; so do short prompts (at most two of maximum length per
 * pass). So no slot waits for another one's prefill or window. While an interactive answer is being
 * read, a prompt is short if it is interactive and takes the time of four decode passes at most,
 * and all short ones together take no more in a pass: the reader's next token comes after five
 * decode passes and a chunk at most, however many others type. Long prompts alone take the time of
 * some decode passes, as a keystroke comes in the middle of a pass: of fewer when an answer was
 * read a moment ago, and pass_ns at most; but as many rows as are worthwhile (curve_worthwhile), if
 * these take no more than twice what 32 rows take. While an answer is being read, or waits after a
 * short prompt, they have what their credit buys, often nothing. While it is not known what a row
 * costs they have as many as a short prompt: a large model on a slow machine may take seconds for
 * those, and for a whole pass longer than the watchdog waits. Returns whether an answer is being
 * read, or waits so. */
bool plan_budget(struct plan_slot *slots, uint32_t n, const struct plan_cost *cost, uint32_t most,
                 struct plan_limits *limits);

/* A token bucket, in ns: the credit after a pass beside an answer in which long prompts took
 * `prefill_ns`, 0 when they were not in it. Each such pass earns half a decode pass, so all of them
 * together make an answer half as long again; they pay by the clock, whatever their rows were
 * thought to cost. A chunk is bought when there is enough for PLAN_CHUNK_MIN rows or two decode
 * passes: smaller pieces cost more a row, and a reader does not notice a pass of that length. Where
 * so few rows cost far more a row than many do, as with experts, it is the least worthwhile
 * chunk. */
int64_t plan_credit(const struct plan_cost *cost, uint64_t prefill_ns);

/* Which slot is first rotates: passes so far, and of these the ones in which prompts shared what
 * was left (if chunks come every fourth pass, every fourth slot would have them all). */
struct plan_turn {
    uint32_t passes;
    uint32_t shares;
};

/* The widest window that a slot of the class has a place for in a pass of `rows` rows, however much the
 * other class could use: with a wider one it could wait for as long as the other class has work. */
uint32_t plan_widest(uint32_t rows, bool batch);

/* Fills `take` of each slot, PLAN_SLOTS_MAX at most, and lets `turn` go on. Returns the rows
 * planned; 0 only when n is 0, or when no window fits into the limits. */
uint32_t plan_pass(struct plan_slot *slots, uint32_t n, const struct plan_limits *limits,
                   struct plan_turn *turn);

#endif
