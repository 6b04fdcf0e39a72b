/*
 * Sharing out the rows of a pass: the rules of plan.h one by one, then thousands of random crowds
 * in which the rules must hold in every pass and every slot must come to an end.
 */
#include "daemon/policy/plan.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdlib.h>

enum { CROWD = 40 };

static struct plan_slot slots[CROWD];
static uint32_t state;

/* What must hold of every plan. Returns the rows. */
static uint32_t check_next_plan(uint32_t n, const struct plan_limits *limits,
                                struct plan_turn *turn)
{
    uint32_t rows = plan_pass(slots, n, limits, turn), sum = 0, samples = 0, batch = 0;
    uint32_t widest = 1, interactive_left = 0, long_left = 0, prefilled = 0;
    bool fine = true;

    for (uint32_t i = 0; i < n; i++) {
        const struct plan_slot *slot = &slots[i];
        uint32_t before = slot->rows > slot->window ? slot->rows - slot->window : 0;
        /* all of the window with its sample, or none of it */
        fine &= slot->take == slot->rows || slot->take <= before;
        sum += slot->take;
        samples += slot->take == slot->rows ? slot->window : 0;
        prefilled += plan_is_long(slot) ? slot->take : 0;
        if (slot->batch)
            batch += slot->take;
        else
            *(plan_is_long(slot) ? &long_left : &interactive_left) += slot->rows - slot->take;
        widest = slot->window > widest ? slot->window : widest;
    }
    ck_assert(fine);
    ck_assert_uint_eq(sum, rows);
    ck_assert_uint_le(rows, limits->rows);
    ck_assert_uint_le(samples, limits->samples);
    ck_assert_uint_le(prefilled, limits->prefill);
    if (prefilled < limits->prefill)
        interactive_left += long_left;
    /* While interactive requests want more, batch has its share and no more; but for the rows into
     * which none of their windows fits. */
    uint32_t share = limits->rows / 8 ? limits->rows / 8 : 1;
    if (interactive_left > 0 && samples + widest <= limits->samples - limits->samples / 8)
        ck_assert_uint_lt(batch, share + widest);
    return rows;
}

static uint32_t check_plan(uint32_t n, const struct plan_limits *limits, uint32_t turn)
{
    struct plan_turn turns = {turn, turn};

    return check_next_plan(n, limits, &turns);
}

/* Passes in which each row costs the same. */
#define ROWS_COST(row)                                                                             \
    {                                                                                              \
        .ns = { [0] = (row), [12] = 4096 * (uint64_t)(row) }                                       \
    }

static const struct plan_cost known = {.pass_ns = 40000, .decode_ns = 1000, .pass = ROWS_COST(100)};

enum { ROW_NS = 100 }; /* of `known` */

static void rows_cost(struct plan_cost *cost, uint64_t ns)
{
    cost->pass = (struct curve)ROWS_COST(ns);
}

static struct plan_limits limits_of(uint32_t n, const struct plan_cost *cost, uint32_t most)
{
    struct plan_limits limits = {.samples = 256};

    plan_budget(slots, n, cost, most, &limits);
    return limits;
}

/* ---- the rules ------------------------------------------------------------------------------- */

START_TEST(no_slots_need_no_rows)
{
    struct plan_limits limits = {.rows = 64, .samples = 16, .prefill = 64};

    struct plan_turn turn = {0};

    ck_assert_uint_eq(plan_pass(slots, 0, &limits, &turn), 0);
    ck_assert_uint_eq(turn.passes, 0);
}
END_TEST

START_TEST(one_prefill_gets_all_rows)
{
    struct plan_limits limits = {.rows = 64, .samples = 16, .prefill = 64};

    slots[0] = (struct plan_slot){.rows = 100, .window = 1};
    ck_assert_uint_eq(check_plan(1, &limits, 0), 64);
    slots[0] = (struct plan_slot){.rows = 64, .window = 1};
    ck_assert_uint_eq(check_plan(1, &limits, 0), 64);
    slots[0] = (struct plan_slot){.rows = 100, .window = 1, .batch = true};
    ck_assert_uint_eq(check_plan(1, &limits, 0), 64);
}
END_TEST

START_TEST(decoding_goes_before_prefills)
{
    struct plan_limits limits = {.rows = 64, .samples = 16, .prefill = 64};

    for (uint32_t turn = 0; turn < 8; turn++) {
        for (uint32_t i = 0; i < 8; i++)
            slots[i] = (struct plan_slot){.rows = i < 4 ? 500 : 1, .window = 1};
        ck_assert_uint_eq(check_plan(8, &limits, turn), 64);
        for (uint32_t i = 4; i < 8; i++)
            ck_assert_uint_eq(slots[i].take, 1);
    }
}
END_TEST

START_TEST(prefills_share_and_never_in_crumbs)
{
    struct plan_limits limits = {.rows = 64, .samples = 16, .prefill = 64};

    for (uint32_t i = 0; i < 2; i++)
        slots[i] = (struct plan_slot){.rows = 500, .window = 1};
    check_plan(2, &limits, 0);
    ck_assert_uint_eq(slots[0].take, 32);
    ck_assert_uint_eq(slots[1].take, 32);
    for (uint32_t i = 0; i < 20; i++)
        slots[i] = (struct plan_slot){.rows = 500, .window = 1};
    check_plan(20, &limits, 3);
    for (uint32_t i = 0; i < 20; i++)
        ck_assert(slots[i].take == 0 || slots[i].take >= PLAN_CHUNK_MIN);
    ck_assert_uint_eq(slots[3].take, PLAN_CHUNK_MIN);
    /* What a short one leaves over goes to the others. */
    slots[0] = (struct plan_slot){.rows = 20, .window = 1};
    slots[1] = (struct plan_slot){.rows = 500, .window = 1};
    check_plan(2, &limits, 0);
    ck_assert_uint_eq(slots[0].take, 20);
    ck_assert_uint_eq(slots[1].take, 44);
}
END_TEST

START_TEST(batch_keeps_an_eighth_and_gets_what_is_left)
{
    struct plan_limits limits = {.rows = 64, .samples = 16, .prefill = 64};

    slots[0] = (struct plan_slot){.rows = 500, .window = 1};
    slots[1] = (struct plan_slot){.rows = 500, .window = 1, .batch = true};
    check_plan(2, &limits, 0);
    ck_assert_uint_eq(slots[0].take, 56);
    ck_assert_uint_eq(slots[1].take, 8);
    slots[0].rows = 10;
    check_plan(2, &limits, 1);
    ck_assert_uint_eq(slots[0].take, 10);
    ck_assert_uint_eq(slots[1].take, 54);
    slots[0].rows = 500;
    slots[1].rows = 3;
    check_plan(2, &limits, 1); /* and gives back what it does not need */
    ck_assert_uint_eq(slots[0].take, 61);
    ck_assert_uint_eq(slots[1].take, 3);
}
END_TEST

/* Interactive requests that decode take every sample they can get: batch still comes to its own. */
START_TEST(batch_decodes_beside_a_crowd_that_takes_all_samples)
{
    struct plan_limits limits = {.rows = 64, .samples = 16, .prefill = 64};
    uint32_t taken = 0;

    for (uint32_t turn = 0; turn < 100; turn++) {
        for (uint32_t i = 0; i < CROWD; i++)
            slots[i] = (struct plan_slot){.rows = 1, .window = 1, .batch = i == 7};
        check_plan(CROWD, &limits, turn);
        taken += slots[7].take;
    }
    ck_assert_uint_eq(taken, 100);
}
END_TEST

START_TEST(a_window_comes_whole_or_not_at_all)
{
    for (uint32_t window = 1; window <= 9; window++)
        for (uint32_t samples = 1; samples <= 9; samples++)
            for (uint32_t rows = 1; rows <= 40; rows++)
                for (uint32_t budget = 1; budget <= 40; budget += 3) {
                    struct plan_limits limits = {
                        .rows = budget, .samples = samples, .prefill = budget};
                    slots[0] =
                        (struct plan_slot){.rows = rows > window ? rows : window, .window = window};
                    uint32_t before = slots[0].rows - window;
                    uint32_t got = check_plan(1, &limits, 0);
                    bool fits = slots[0].rows <= budget && window <= samples;
                    ck_assert_uint_eq(got, fits              ? slots[0].rows
                                           : before < budget ? before
                                                             : budget);
                }
}
END_TEST

START_TEST(rotation_is_fair)
{
    struct plan_limits limits = {.rows = 16, .samples = 4};
    uint32_t got[10] = {0};

    for (uint32_t turn = 0; turn < 100; turn++) {
        for (uint32_t i = 0; i < 10; i++)
            slots[i] = (struct plan_slot){.rows = 1, .window = 1};
        ck_assert_uint_eq(check_plan(10, &limits, turn), 4);
        for (uint32_t i = 0; i < 10; i++)
            got[i] += slots[i].take;
    }
    for (uint32_t i = 0; i < 10; i++)
        ck_assert_uint_eq(got[i], 40);
}
END_TEST

/* ---- users ----------------------------------------------------------------------------------- */

/* Slot 0 is a user's only one, the others are another user's. */
static void two_users(uint32_t n, uint32_t rows, uint32_t window, bool batch)
{
    for (uint32_t i = 0; i < n; i++)
        slots[i] = (struct plan_slot){
            .rows = rows, .window = window, .user = i > 0 ? 2000 : 1000, .batch = batch};
}

START_TEST(a_user_with_one_slot_decodes_beside_one_with_many)
{
    struct plan_limits limits = {.rows = 16, .samples = 4};
    uint32_t got[10] = {0};

    for (uint32_t turn = 0; turn < 180; turn++) {
        two_users(10, 1, 1, _i);
        ck_assert_uint_eq(check_plan(10, &limits, turn), 4);
        ck_assert_uint_eq(slots[0].take, 1); /* in every pass */
        for (uint32_t i = 0; i < 10; i++)
            got[i] += slots[i].take;
    }
    for (uint32_t i = 1; i < 10; i++)
        ck_assert_uint_eq(got[i], 60); /* and the other user's in turn */
}
END_TEST

/* Where there is room for one slot only, users have it in turn, and each user's slots in theirs. */
START_TEST(users_take_turns_then_their_slots)
{
    struct plan_limits limits = {.rows = 1, .samples = 1};
    uint32_t got[6] = {0};

    for (uint32_t turn = 0; turn < 300; turn++) {
        for (uint32_t i = 0; i < 6; i++)
            slots[i] = (struct plan_slot){.rows = 1,
                                          .window = 1,
                                          .user = i < 1   ? 7
                                                  : i < 3 ? 8
                                                          : 9};
        ck_assert_uint_eq(check_plan(6, &limits, turn), 1);
        for (uint32_t i = 0; i < 6; i++)
            got[i] += slots[i].take;
    }
    ck_assert_uint_eq(got[0], 100);
    for (uint32_t i = 1; i < 3; i++)
        ck_assert_uint_eq(got[i], 50);
    for (uint32_t i = 3; i < 6; i++)
        ck_assert(got[i] == 33 || got[i] == 34);
}
END_TEST

START_TEST(prefills_share_between_users_first)
{
    struct plan_limits limits = {.rows = 256, .samples = 16, .prefill = 256};
    uint32_t others = 0;

    for (uint32_t turn = 0; turn < 20; turn++) {
        two_users(20, 5000, 1, _i);
        ck_assert_uint_eq(check_plan(20, &limits, turn), 256);
        ck_assert_uint_eq(slots[0].take, 128);
        for (uint32_t i = 1; i < 20; i++) {
            ck_assert(slots[i].take == 0 || slots[i].take == PLAN_CHUNK_MIN);
            others += slots[i].take > 0;
        }
    }
    ck_assert_uint_eq(others, 20 * 128 / PLAN_CHUNK_MIN);
    slots[0].rows = 10; /* what a user does not need goes to the others */
    check_plan(20, &limits, 0);
    ck_assert_uint_eq(slots[0].take, 10);
}
END_TEST

/* The credit beside an answer buys a chunk every some passes: every other one is the user's with one
 * prompt. */
START_TEST(beside_an_answer_chunks_go_round_between_users)
{
    struct plan_cost cost = known;
    struct plan_turn turn = {0};
    uint64_t got[CROWD] = {0}, sum = 0;

    for (uint32_t pass = 0; pass < 1200; pass++) {
        two_users(CROWD, 500, 1, _i);
        slots[CROWD / 2].rows = 1;
        slots[CROWD / 2].batch = false;
        struct plan_limits limits = limits_of(CROWD, &cost, 256);
        uint32_t rows = check_next_plan(CROWD, &limits, &turn) - 1;
        for (uint32_t i = 0; i < CROWD; i++)
            got[i] += slots[i].take;
        sum += rows;
        cost.credit_ns = plan_credit(&cost, rows * ROW_NS);
    }
    ck_assert_uint_ge(got[0] + PLAN_CHUNK_MIN, sum / 2);
    ck_assert_uint_le(got[0], sum / 2 + PLAN_CHUNK_MIN);
}
END_TEST

/* ---- crowds ---------------------------------------------------------------------------------- */

/* Every slot prefills and then decodes some windows; new ones take the places of those that ended.
 * With rows for at least one chunk no slot waits longer than the whole crowd needs. */
static void run_crowd(uint32_t n, const struct plan_limits *limits, uint32_t window_max)
{
    uint32_t windows[CROWD], waits[CROWD] = {0}, finished = 0, bound = 60 + 30 * n;
    struct plan_turn turn = {random_below(&state, 1000), random_below(&state, 1000)};

    for (uint32_t i = 0; i < n; i++) {
        slots[i] = (struct plan_slot){.window = 1 + random_below(&state, window_max),
                                      .user = random_below(&state, 5),
                                      .batch = random_below(&state, 3) == 0};
        slots[i].rows = slots[i].window + random_below(&state, 300);
        windows[i] = 1 + random_below(&state, 10);
    }
    for (uint32_t pass = 0; finished < 3 * n; pass++) {
        ck_assert_uint_lt(pass, 200000);
        ck_assert_uint_gt(check_next_plan(n, limits, &turn), 0);
        for (uint32_t i = 0; i < n; i++) {
            struct plan_slot *slot = &slots[i];
            waits[i] = slot->take ? 0 : waits[i] + 1;
            if (waits[i] >= bound)
                ck_abort_msg("slot %u of %u waited %u passes", i, n, waits[i]);
            bool sampled = slot->take == slot->rows;
            slot->rows -= slot->take;
            if (sampled && --windows[i] > 0) {
                slot->window = 1 + random_below(&state, window_max);
                slot->rows = slot->window;
            } else if (sampled) {
                finished++;
                slot->window = 1 + random_below(&state, window_max);
                slot->batch = random_below(&state, 3) == 0;
                slot->rows = slot->window + random_below(&state, 300);
                windows[i] = 1 + random_below(&state, 10);
            }
        }
    }
}

START_TEST(every_crowd_comes_to_an_end)
{
    state = (uint32_t)_i + 1;
    for (int crowd = 0; crowd < 12; crowd++) {
        struct plan_limits limits = {.rows = 8 + random_below(&state, 300)};
        limits.samples = 8 + random_below(&state, limits.rows);
        limits.prefill = limits.rows;
        run_crowd(1 + random_below(&state, CROWD), &limits, 1);
    }
}
END_TEST

/* Windows of a batch request must fit its eighth, or a crowd could keep them out for ever. */
START_TEST(every_crowd_with_drafts_comes_to_an_end)
{
    state = (uint32_t)_i + 100;
    for (int crowd = 0; crowd < 12; crowd++) {
        struct plan_limits limits = {.rows = 128 + random_below(&state, 300)};
        limits.samples = 64 + random_below(&state, limits.rows);
        limits.prefill = limits.rows;
        run_crowd(1 + random_below(&state, CROWD), &limits, 8);
    }
}
END_TEST

/* ---- the budget ------------------------------------------------------------------------------ */

START_TEST(unknown_costs_allow_a_short_prompts_rows)
{
    struct plan_cost cost = {.pass_ns = 40000};

    slots[0] = (struct plan_slot){.rows = 500, .window = 1};
    ck_assert_uint_eq(limits_of(1, &cost, 256).rows, PLAN_SHORT);
    ck_assert_uint_eq(limits_of(1, &cost, 256).prefill, PLAN_SHORT);
    ck_assert_uint_eq(limits_of(1, &cost, 10).rows, 10);
    for (uint32_t i = 1; i < 9;
         i++) /* slots that decode have all their rows, short prompts those of two */
        slots[i] = (struct plan_slot){.rows = i % 2 ? 5 : 60, .window = 5};
    ck_assert_uint_eq(limits_of(9, &cost, 256).rows, 4 * 5 + 3 * PLAN_SHORT);
    rows_cost(&cost, 100); /* no pass has decoded yet: pass_ns alone counts */
    ck_assert_uint_eq(limits_of(1, &cost, 256).rows, 256);
    ck_assert_uint_eq(limits_of(1, &cost, 1000).rows, 400);
}
END_TEST

START_TEST(prefills_alone_take_some_decode_passes)
{
    struct plan_cost cost = known;

    slots[0] = (struct plan_slot){.rows = 500, .window = 1};
    ck_assert_uint_eq(limits_of(1, &cost, 256).rows, 80);
    cost.lately = true; /* and fewer while a user types */
    ck_assert_uint_eq(limits_of(1, &cost, 256).rows, 40);
    cost.lately = false;
    cost.pass_ns = 5000;
    ck_assert_uint_eq(limits_of(1, &cost, 256).rows, 50);
    rows_cost(&cost, 1000000);
    ck_assert_uint_eq(limits_of(1, &cost, 256).rows, 3 * PLAN_CHUNK_MIN / 2);
}
END_TEST

START_TEST(beside_an_answer_prefills_have_what_their_credit_buys)
{
    struct plan_cost cost = known;
    struct plan_limits limits = {.samples = 256};

    slots[0] = (struct plan_slot){.rows = 500, .window = 1, .batch = true};
    slots[1] = (struct plan_slot){.rows = 3, .window = 3};
    ck_assert(plan_budget(slots, 2, &cost, 256, &limits));
    ck_assert_uint_eq(limits.rows, 3);
    check_plan(2, &limits, 0);
    ck_assert_uint_eq(slots[0].take, 0);
    ck_assert_uint_eq(slots[1].take, 3);
    cost.credit_ns = 1599; /* a chunk of 16 rows, and not in crumbs */
    ck_assert_uint_eq(limits_of(2, &cost, 256).rows, 3);
    cost.credit_ns = 1600;
    ck_assert_uint_eq(limits_of(2, &cost, 256).rows, 3 + 16);
    rows_cost(&cost, 400); /* but no pass longer than three */
    cost.credit_ns = 2000;
    ck_assert_uint_eq(limits_of(2, &cost, 256).rows, 3 + 5);
    rows_cost(&cost, 1000000); /* one row at least */
    ck_assert_uint_eq(limits_of(2, &cost, 256).rows, 3 + 1);
    slots[1].batch = true; /* no user is looking at that one */
    ck_assert(!plan_budget(slots, 2, &known, 256, &limits));
    ck_assert_uint_eq(limits.rows, 3 + 80);
    cost = known; /* but an answer of fast passes, of which this plan knows nothing else */
    cost.unverified = true;
    ck_assert(plan_budget(slots, 2, &cost, 256, &limits));
    ck_assert_uint_eq(limits.rows, 3);
    cost.decode_ns = 0;
    ck_assert(!plan_budget(slots, 2, &cost, 256, &limits));
}
END_TEST

START_TEST(without_prompts_a_pass_has_the_rows_that_decode)
{
    struct plan_cost cost = known;
    struct plan_limits limits = {.samples = 256};

    cost.credit_ns = 100000;
    for (uint32_t i = 0; i < 3; i++)
        slots[i] = (struct plan_slot){.rows = i + 1, .window = i + 1, .batch = i == 2};
    ck_assert(plan_budget(slots, 3, &cost, 256, &limits));
    ck_assert_uint_eq(limits.rows, 6);
    ck_assert_uint_eq(limits.samples, 256);
    ck_assert_uint_eq(limits.brief + limits.prefill, 0);
    ck_assert_uint_eq(check_plan(3, &limits, 0), 6);
    ck_assert(!plan_budget(slots + 2, 1, &cost, 256, &limits)); /* batch: no user looks at it */
    ck_assert_uint_eq(limits_of(3, &cost, 4).rows, 4);
}
END_TEST

/* Over many passes an answer's are half as long again, whatever a prefill's rows really cost. */
START_TEST(beside_an_answer_prefills_take_a_third_of_the_time)
{
    static const uint64_t real[] = {20, 100, 350, 1500};
    struct plan_cost cost = known;
    uint64_t spent = 0, longest = 0, computed = 0;
    enum { PASSES = 1000 };

    slots[0] = (struct plan_slot){.rows = 500, .window = 1, .batch = _i % 2};
    slots[1] = (struct plan_slot){.rows = 1, .window = 1};
    for (uint32_t pass = 0; pass < PASSES; pass++) {
        struct plan_limits limits = limits_of(2, &cost, 256);
        check_plan(2, &limits, pass);
        ck_assert_uint_eq(slots[1].take, 1);
        uint64_t took = slots[0].take * real[_i / 2];
        cost.credit_ns = plan_credit(&cost, took);
        spent += took;
        computed += slots[0].take;
        longest = took > longest ? took : longest;
    }
    ck_assert_uint_gt(computed, PASSES / 4);
    uint64_t earned = PASSES * cost.decode_ns / 2;
    /* Rows that are much dearer than they were thought to be are forgiven a part. */
    ck_assert_uint_le(spent, real[_i / 2] <= 400 ? earned + longest : 4 * earned);
    ck_assert_uint_ge(spent, earned / 2 - longest);
}
END_TEST

/* A chunk comes every some passes: whose it is must not hang on that number. */
START_TEST(beside_an_answer_chunks_go_round)
{
    uint64_t got[CROWD] = {0};
    struct plan_cost cost = known;
    struct plan_turn turn = {0};

    for (uint32_t pass = 0; pass < 1200; pass++) {
        for (uint32_t i = 0; i < 6; i++)
            slots[i] = (struct plan_slot){.rows = _i >> i & 1 ? 500 : 1, .window = 1};
        struct plan_limits limits = limits_of(6, &cost, 256);
        plan_pass(slots, 6, &limits, &turn);
        uint64_t took = 0;
        for (uint32_t i = 0; i < 6; i++) {
            bool is_long = _i >> i & 1;
            got[i] += slots[i].take;
            took += is_long ? slots[i].take * 100 : 0;
            ck_assert(is_long || slots[i].take == 1);
        }
        cost.credit_ns = plan_credit(&cost, took);
    }
    uint64_t most = 0, least = UINT64_MAX;
    for (uint32_t i = 0; i < 6; i++) {
        if (!(_i >> i & 1))
            continue;
        most = got[i] > most ? got[i] : most;
        least = got[i] < least ? got[i] : least;
    }
    ck_assert_uint_gt(least, 0);
    ck_assert_uint_le(most, least + 2 * PLAN_CHUNK_MIN);
}
END_TEST

START_TEST(credit_is_for_one_chunk_and_debt_has_an_end)
{
    struct plan_cost cost = known;

    for (int i = 0; i < 10; i++)
        cost.credit_ns = plan_credit(&cost, 0);
    ck_assert_int_eq(cost.credit_ns, 1600);
    cost.credit_ns = plan_credit(&cost, 1000000000); /* preempted */
    ck_assert_int_eq(cost.credit_ns, 1600 + 500 - 4 * 1600);
}
END_TEST

START_TEST(a_keystroke_is_one_pass_beside_a_long_prompt)
{
    struct plan_cost cost = known;

    for (int i = 0; i < 4; i++) {
        cost.credit_ns = i / 2 ? 1600 : 0;
        slots[0] = (struct plan_slot){.rows = 5000, .window = 1, .batch = i % 2};
        slots[1] = (struct plan_slot){.rows = PLAN_SHORT, .window = 1};
        struct plan_limits limits = limits_of(2, &cost, 512);
        for (uint32_t turn = 0; turn < 2; turn++) {
            check_plan(2, &limits, turn);
            ck_assert_uint_eq(slots[1].take, PLAN_SHORT);
            ck_assert_uint_eq(slots[0].take, i / 2 ? 16 : 0);
        }
    }
    slots[1].rows = PLAN_SHORT + 1; /* no keystroke */
    ck_assert_uint_eq(limits_of(2, &known, 512).rows, 80);
}
END_TEST

/* As on a machine where a decode pass takes 20 ms and a row of a prompt 2 ms. */
enum { SLOW_NS = 2000000 };
static const struct plan_cost slow = {
    .pass_ns = 40000000, .decode_ns = 20000000, .pass = ROWS_COST(SLOW_NS)};

/* A reader beside `n` prompts of `length` rows, as long as these last: its longest and mean interval
 * in ms. */
static void read_beside(uint32_t n, uint32_t length, bool batch, uint32_t *ret_longest,
                        uint32_t *ret_mean)
{
    struct plan_cost cost = slow;
    struct plan_turn turn = {0};
    uint64_t total_ns = 0, longest_ns = 0;
    uint32_t passes = 0;

    slots[0] = (struct plan_slot){.rows = 1, .window = 1};
    for (uint32_t i = 1; i <= n; i++)
        slots[i] = (struct plan_slot){.rows = length, .whole = length, .window = 1, .batch = batch};
    for (; n > 0; passes++) {
        struct plan_limits limits = limits_of(n + 1, &cost, 512);
        uint64_t took_ns = cost.decode_ns, long_ns = 0;
        ck_assert_uint_lt(passes, 10000);
        check_next_plan(n + 1, &limits, &turn);
        ck_assert_uint_eq(slots[0].take, 1);
        for (uint32_t i = 1; i <= n; i++) {
            struct plan_slot *slot = &slots[i];
            took_ns += slot->take * SLOW_NS;
            long_ns += plan_is_long(slot) ? slot->take * SLOW_NS : 0;
            slot->rows -= slot->take;
            if (slot->rows == 0) /* it ends */
                slots[i--] = slots[n--];
        }
        cost.credit_ns = plan_credit(&cost, long_ns);
        total_ns += took_ns;
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
    }
    *ret_longest = (uint32_t)(longest_ns / 1000000);
    *ret_mean = (uint32_t)(total_ns / passes / 1000000);
}

/* A batch prompt is never short while an answer is being read: however many there are, and on which side of
 * PLAN_SHORT, they are paid from the credit, and the reader's interval is half as long again. */
START_TEST(a_reader_beside_batch_prompts_has_half_as_long_again)
{
    static const uint32_t many[] = {1, 17}, lengths[] = {10, 64, 65, 200};
    uint32_t longest, mean;

    read_beside(many[_i % 2], lengths[_i / 2], true, &longest, &mean);
    ck_assert_uint_le(mean, 31); /* the last pass of the last chunk may come early */
    ck_assert_uint_le(longest, 20 + PLAN_CHUNK_MIN * 2);
}
END_TEST

/* Interactive ones may be short, in the time of four decode passes all together. */
START_TEST(a_readers_interval_is_bounded_whatever_others_type)
{
    static const uint32_t many[] = {1, 2, 17, 39}, lengths[] = {1, 10, 40, 41, 64, 65, 200};
    uint32_t longest, mean;

    read_beside(many[_i % 4], lengths[_i / 4], false, &longest, &mean);
    ck_assert_uint_le(longest, 20 + 4 * 20 + PLAN_CHUNK_MIN * 2);
}
END_TEST

START_TEST(a_keystroke_beside_a_reader_is_short_by_its_time)
{
    for (uint32_t rows = 2; rows <= PLAN_SHORT; rows++) {
        slots[0] = (struct plan_slot){.rows = 1, .window = 1};
        slots[1] = (struct plan_slot){.rows = rows, .window = 1};
        struct plan_limits limits = limits_of(2, &slow, 512);
        check_plan(2, &limits, 0);
        ck_assert_uint_eq(slots[1].take, rows <= 40 ? rows : 0); /* 40 rows: four decode passes */
        slots[0].batch = true; /* nothing is read: a keystroke is one pass */
        limits = limits_of(2, &slow, 512);
        check_plan(2, &limits, 0);
        ck_assert_uint_eq(slots[1].take, rows);
    }
}
END_TEST

/* What is left of a long prompt waits for its turn, though it is less than a short one's. */
START_TEST(the_tail_of_a_long_prompt_is_not_short)
{
    slots[0] = (struct plan_slot){.rows = PLAN_SHORT, .window = 1};
    slots[1] = (struct plan_slot){.rows = 30, .whole = PLAN_SHORT + 1, .window = 1};
    struct plan_limits limits = limits_of(2, &known, 512);
    check_plan(2, &limits, 0);
    ck_assert_uint_eq(slots[0].take, PLAN_SHORT);
    ck_assert_uint_eq(slots[1].take, 0);
    ck_assert(plan_is_long(&slots[1]) && !plan_is_long(&slots[0]));
    slots[1].rows = slots[1].window = 3; /* it decodes: nothing counts but that */
    limits = limits_of(2, &known, 512);
    check_plan(2, &limits, 0);
    ck_assert_uint_eq(slots[1].take, 3);
}
END_TEST

START_TEST(many_short_prompts_do_not_make_a_long_pass)
{
    for (uint32_t i = 0; i < CROWD; i++)
        slots[i] = (struct plan_slot){.rows = PLAN_SHORT, .window = 1};
    ck_assert_uint_eq(limits_of(CROWD, &known, 4096).rows, 2 * PLAN_SHORT);
}
END_TEST

START_TEST(every_slot_that_decodes_has_its_rows)
{
    struct plan_cost cost = known;

    rows_cost(&cost, 1000000);
    for (uint32_t i = 0; i < CROWD; i++)
        slots[i] = (struct plan_slot){.rows = 2, .window = 2, .batch = i % 2};
    slots[0] =
        (struct plan_slot){.rows = 5000, .window = 1}; /* a long prompt takes no row of them */
    for (int answering = 0; answering < 2; answering++) {
        for (uint32_t i = 1; i < CROWD; i++)
            slots[i].batch = i % 2 || !answering;
        struct plan_limits limits = limits_of(CROWD, &cost, 256);
        check_plan(CROWD, &limits, 0);
        for (uint32_t i = 1; i < CROWD; i++)
            ck_assert_uint_eq(slots[i].take, 2);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *t = tcase_create("plan");

    tcase_add_test(t, no_slots_need_no_rows);
    tcase_add_test(t, one_prefill_gets_all_rows);
    tcase_add_test(t, decoding_goes_before_prefills);
    tcase_add_test(t, prefills_share_and_never_in_crumbs);
    tcase_add_test(t, batch_keeps_an_eighth_and_gets_what_is_left);
    tcase_add_test(t, batch_decodes_beside_a_crowd_that_takes_all_samples);
    tcase_add_test(t, a_window_comes_whole_or_not_at_all);
    tcase_add_test(t, rotation_is_fair);
    tcase_add_loop_test(t, a_user_with_one_slot_decodes_beside_one_with_many, 0, 2);
    tcase_add_test(t, users_take_turns_then_their_slots);
    tcase_add_loop_test(t, prefills_share_between_users_first, 0, 2);
    tcase_add_loop_test(t, beside_an_answer_chunks_go_round_between_users, 0, 2);
    tcase_add_test(t, unknown_costs_allow_a_short_prompts_rows);
    tcase_add_test(t, prefills_alone_take_some_decode_passes);
    tcase_add_test(t, without_prompts_a_pass_has_the_rows_that_decode);
    tcase_add_test(t, beside_an_answer_prefills_have_what_their_credit_buys);
    tcase_add_loop_test(t, beside_an_answer_prefills_take_a_third_of_the_time, 0, 8);
    tcase_add_loop_test(t, beside_an_answer_chunks_go_round, 1, 63);
    tcase_add_test(t, credit_is_for_one_chunk_and_debt_has_an_end);
    tcase_add_test(t, a_keystroke_is_one_pass_beside_a_long_prompt);
    tcase_add_loop_test(t, a_reader_beside_batch_prompts_has_half_as_long_again, 0, 8);
    tcase_add_loop_test(t, a_readers_interval_is_bounded_whatever_others_type, 0, 28);
    tcase_add_test(t, a_keystroke_beside_a_reader_is_short_by_its_time);
    tcase_add_test(t, the_tail_of_a_long_prompt_is_not_short);
    tcase_add_test(t, many_short_prompts_do_not_make_a_long_pass);
    tcase_add_test(t, every_slot_that_decodes_has_its_rows);
    tcase_add_loop_test(t, every_crowd_comes_to_an_end, 0, 24);
    tcase_add_loop_test(t, every_crowd_with_drafts_comes_to_an_end, 0, 24);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
