/*
 * plan: which slots get how many rows of the next pass. Pure: no clock, no slots, no pages.
 *
 * Engine thread. The rules, in order:
 *  - a pass has at most `rows` rows and `picks` rows that want something back;
 *  - interactive before batch, but batch keeps at least 1/8 of rows and picks while it has work;
 *  - inside a class, slots that decode (one row, or one verification window) before prefills, and
 *    of these the short ones first where all of them fit: a keystroke is one pass;
 *  - prefills of a class share what is left evenly, and not in crumbs below PLAN_CHUNK_MIN
 *    where there is more than that;
 *  - who comes first rotates from pass to pass, so nobody starves.
 * What one class leaves over goes to the other.
 */
#ifndef HEARTH_DAEMON_PLAN_H
#define HEARTH_DAEMON_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum { PLAN_CHUNK_MIN = 16, PLAN_SHORT = 64 };

struct plan_slot {
    uint32_t rows;   /* in: rows until its next pick (spec_rows), at least 1 */
    uint32_t window; /* in: of these, the last ones that want a pick: drafts + 1 */
    bool batch;      /* in: its class */
    uint32_t take;   /* out: rows in this pass; rows: the pick comes with it */
};

struct plan_limits {
    uint32_t rows;  /* at least 1 */
    uint32_t picks; /* at least 1 */
};

/* What rows cost lately, in ns; 0: not known yet. */
struct plan_cost {
    uint64_t pass_ns;   /* a limit: what prefills may take of a pass when they are alone */
    uint64_t decode_ns; /* a pass that only decodes */
    uint64_t row_ns;    /* what one more row of a prefill adds */
};

/* How many rows the next pass may have, at most `most`. A keystroke comes in the middle of a pass,
 * so prefills take the time of some decode passes, however fast the model is, and pass_ns at most.
 * While somebody reads an answer, or waits for one behind a short prompt, they make each of its
 * passes half as long again. A floor keeps them going; who decodes has all his rows, and short
 * prompts theirs, two of the longest in a pass: nobody waits for another one's prefill or window. */
uint32_t plan_budget(const struct plan_slot *slots, uint32_t n, const struct plan_cost *cost,
                     uint32_t most);

/* Fills `take` of each slot. `turn` grows by one each pass and rotates who is first. Returns the
 * rows planned; 0 only when n is 0, or when no window fits into the limits. */
uint32_t plan_pass(struct plan_slot *slots, uint32_t n, const struct plan_limits *limits,
                   uint32_t turn);

#endif
