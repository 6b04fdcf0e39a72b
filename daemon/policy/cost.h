/*
 * cost: what passes and their rows cost lately, and what long prompts may take beside answers.
 *
 * Pure: no clock, the caller brings the times. Engine thread; one for all slots. Nothing here
 * changes an answer: only how soon it is there. */
#ifndef HEARTH_DAEMON_POLICY_COST_H
#define HEARTH_DAEMON_POLICY_COST_H

#include "daemon/policy/plan.h"
#include "daemon/policy/window.h"

#include <stdbool.h>
#include <stdint.h>

struct cost {
    uint64_t limit_ns;         /* what prefills may take of a pass when they are alone */
    struct window_cost decode; /* canonical passes that only decode, and rows of windows */
    struct curve pass;         /* passes by their rows */
    uint64_t step_ns;          /* smoothed time between passes that sample */
    uint64_t drafting_ns;      /* time of fast passes since the last step that was measured */
    uint64_t answered_ns;      /* when an answer was last being read; 0: never */
    int64_t credit_ns;         /* token bucket of long prompts beside answers (plan_credit) */
};

/* What a step computes, beside the rows of long prompts. */
struct cost_step {
    uint64_t now_ns;
    bool unverified;      /* a fast pass answers an interactive request in this step ... */
    uint64_t fast_ns;     /* ... and takes so long */
    uint32_t decode_rows; /* of slots that decode in its canonical pass; 0: none do */
};

/* The canonical pass of a step, after it was run. */
struct cost_pass {
    uint64_t took_ns;
    uint32_t slots, rows;           /* no rows: there was none */
    uint32_t decode_rows;           /* of slots that decode: a row and its drafts each */
    uint32_t short_rows, long_rows; /* of prompts (plan_is_long) */
    bool answering;                 /* an answer is being read meanwhile (plan_budget) */
};

/* What a plan has to know of it. */
struct plan_cost cost_plan(const struct cost *cost, const struct cost_step *step);

/* What the rows of short prompts are thought to add to a pass. */
uint64_t cost_short_ns(const struct cost *cost, const struct cost_pass *pass);

/* A step is over that sampled: takes what it cost off the credit of long prompts, and learns. */
void cost_measured(struct cost *cost, const struct cost_step *step, const struct cost_pass *pass);

#endif
