/* What is drafted, and how much: lookup, guess, window. */
#include "daemon/policy/proposer.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct proposer proposer;

static void close_proposer(void)
{
    proposer_close(&proposer);
}

static uint32_t draft(const uint32_t *tokens, uint32_t n, uint32_t most, uint32_t *drafts)
{
    return proposer_draft(&proposer, tokens, n, most, drafts);
}

START_TEST(lookup_finds_what_followed_the_same_tokens)
{
    uint32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 9, 9, 2, 3, 4}, drafts[3];

    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_LOOKUP, 0, 12, NULL, 0), 0);
    ck_assert_uint_eq(draft(tokens, 12, 3, drafts), 3);
    ck_assert_uint_eq(drafts[0], 5);
    ck_assert_uint_eq(drafts[1], 6);
    ck_assert_uint_eq(drafts[2], 7);
}
END_TEST

START_TEST(lookup_prefers_the_longer_match_and_the_newer_place)
{
    /* 3 4 5 is followed by 50 late, but 1 2 3 4 5 was followed by 6. */
    uint32_t tokens[] = {1, 2, 3, 4, 5, 6, 8, 3, 4, 5, 50, 1, 2, 3, 4, 5}, drafts[1];

    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_LOOKUP, 0, 16, NULL, 0), 0);
    ck_assert_uint_eq(draft(tokens, 16, 1, drafts), 1);
    ck_assert_uint_eq(drafts[0], 6);
    uint32_t newer[] = {3, 4, 5, 6, 7, 3, 4, 5, 8, 7, 3, 4, 5};
    proposer_close(&proposer);
    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_LOOKUP, 0, 13, NULL, 0), 0);
    ck_assert_uint_eq(draft(newer, 13, 1, drafts), 1);
    ck_assert_uint_eq(drafts[0], 8);
}
END_TEST

START_TEST(lookup_goes_on_with_a_repetition_that_reaches_the_end)
{
    uint32_t tokens[] = {7, 8, 9, 7, 8, 9}, drafts[7];

    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_LOOKUP, 0, 6, NULL, 0), 0);
    ck_assert_uint_eq(draft(tokens, 6, 7, drafts), 7);
    for (uint32_t i = 0; i < 7; i++)
        ck_assert_uint_eq(drafts[i], 7 + i % 3);
}
END_TEST

START_TEST(lookup_says_nothing_where_nothing_repeats)
{
    uint32_t tokens[300], drafts[4];

    for (uint32_t i = 0; i < 300; i++)
        tokens[i] = i;
    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_LOOKUP, 0, 300, NULL, 0), 0);
    for (uint32_t n = 1; n <= 300; n++)
        ck_assert_uint_eq(draft(tokens, n, 4, drafts), 0);
}
END_TEST

/* A long text that was in the cache is indexed in parts, so that no step of others waits for it. */
START_TEST(lookup_indexes_a_long_text_in_parts)
{
    enum { N = 3 * LOOKUP_FEED + 3 };
    static uint32_t tokens[N];
    uint32_t drafts[2];

    for (uint32_t i = 0; i < N; i++)
        tokens[i] = i;
    for (uint32_t i = N - 3; i < N; i++)
        tokens[i] = 2 * LOOKUP_FEED + 8 + i - (N - 3); /* again what is in the third part */
    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_LOOKUP, 0, N, NULL, 0), 0);
    for (uint32_t part = 1; part <= 2; part++) {
        ck_assert_uint_eq(draft(tokens, N, 2, drafts), 0);
        ck_assert_uint_eq(proposer.lookup.indexed, part * LOOKUP_FEED);
    }
    ck_assert_uint_eq(draft(tokens, N, 2, drafts), 2);
    ck_assert_uint_eq(drafts[0], 2 * LOOKUP_FEED + 11);
    ck_assert_uint_eq(drafts[1], 2 * LOOKUP_FEED + 12);
}
END_TEST

/* A sequence that changed after its common part: old entries must never give drafts of what is gone. */
START_TEST(lookup_survives_a_changed_sequence)
{
    uint32_t state = 9, drafts[8], tokens[400];

    for (uint32_t round = 0; round < 200; round++) {
        uint32_t common = round == 0 ? 0 : state % 400;
        for (uint32_t i = common; i < 400; i++) {
            state = state * 1664525u + 1013904223u;
            tokens[i] = state >> 30; /* four tokens: everything repeats */
        }
        ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_LOOKUP, common, 400, NULL, 0), 0);
        uint32_t n = draft(tokens, 400, 8, drafts);
        if (n == 0)
            continue;
        /* What is drafted did follow the last three tokens somewhere in this very sequence. */
        uint32_t found = 0;
        for (uint32_t at = 3; at < 400 && !found; at++)
            found = tokens[at - 1] == tokens[399] && tokens[at - 2] == tokens[398] &&
                    tokens[at - 3] == tokens[397] && tokens[at] == drafts[0];
        ck_assert_uint_eq(found, 1);
    }
}
END_TEST

/* What is drafted after `answer` [n], which follows a prompt of two tokens. */
static uint32_t guessed(const uint32_t *answer, uint32_t n, uint32_t *drafts)
{
    uint32_t tokens[32] = {1, 2};

    memcpy(tokens + 2, answer, n * sizeof(*answer));
    return draft(tokens, 2 + n, 8, drafts);
}

START_TEST(a_guess_is_read_on_from_where_the_answer_agrees)
{
    uint32_t guess[] = {10, 11, 12, 13, 14, 15, 16}, drafts[8];
    uint32_t answer[] = {10, 11, 13, 14, 99, 98, 15, 16};

    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_CLIENT, 0, 2, guess, 7), 0);
    ck_assert_uint_eq(guessed(answer, 0, drafts), 7);
    ck_assert_uint_eq(drafts[0], 10);
    ck_assert_uint_eq(guessed(answer, 2, drafts), 5);
    ck_assert_uint_eq(drafts[0], 12);
    ck_assert_uint_eq(guessed(answer, 3, drafts), 0); /* 12 was left out: */
    ck_assert_uint_eq(guessed(answer, 4, drafts), 2); /* two tokens tell that */
    ck_assert_uint_eq(drafts[0], 15);
    ck_assert_uint_eq(guessed(answer, 5, drafts), 0); /* inserted */
    ck_assert_uint_eq(guessed(answer, 6, drafts), 0);
    ck_assert_uint_eq(guessed(answer, 7, drafts), 0);
    ck_assert_uint_eq(guessed(answer, 8, drafts), 0); /* used up */
}
END_TEST

START_TEST(a_wrong_token_after_an_inserted_one_does_not_lose_the_guess)
{
    uint32_t guess[] = {10, 11, 12, 13, 14, 15, 16}, drafts[8];
    uint32_t answer[] = {99, 10, 11, 98, 13}; /* 99 inserted, 98 for 12 */

    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_CLIENT, 0, 2, guess, 7), 0);
    ck_assert_uint_eq(guessed(answer, 3, drafts), 5);
    ck_assert_uint_eq(guessed(answer, 4, drafts), 0);
    ck_assert_uint_eq(guessed(answer, 5, drafts), 3);
    ck_assert_uint_eq(drafts[0], 14);
}
END_TEST

START_TEST(one_wrong_token_does_not_lose_the_guess)
{
    uint32_t guess[] = {10, 11, 12, 13, 14, 10, 16}, drafts[8];
    uint32_t answer[] = {10, 11, 14, 13, 14}; /* 14 for 12; it stands in the guess elsewhere */

    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_CLIENT, 0, 2, guess, 7), 0);
    ck_assert_uint_eq(guessed(answer, 2, drafts), 5);
    ck_assert_uint_eq(guessed(answer, 3, drafts), 0);
    ck_assert_uint_eq(guessed(answer, 4, drafts), 3);
    ck_assert_uint_eq(drafts[0], 14);
}
END_TEST

START_TEST(kinds_use_what_they_are_named_for)
{
    uint32_t guess[] = {50, 51}, tokens[] = {1, 2, 3, 4, 1, 2, 3}, drafts[2];

    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_NONE, 0, 7, guess, 2), 0);
    ck_assert(!proposer_active(&proposer));
    ck_assert_uint_eq(draft(tokens, 7, 2, drafts), 0);
    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_LOOKUP, 0, 7, guess, 2), 0);
    ck_assert_uint_eq(draft(tokens, 7, 2, drafts), 2);
    ck_assert_uint_eq(drafts[0], 4);
    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_AUTO, 0, 7, guess, 2), 0);
    ck_assert_uint_eq(draft(tokens, 7, 2, drafts), 2);
    ck_assert_uint_eq(drafts[0], 50);
    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_CLIENT, 0, 7, NULL, 0), 0);
    ck_assert(!proposer_active(&proposer));
}
END_TEST

static uint32_t choose(float acceptance, float pass_ns, float row_ns, uint32_t slots, bool always)
{
    struct window window = {.acceptance = acceptance};
    struct window_cost cost = {.pass_ns = pass_ns, .row_ns = row_ns};

    return window_choose(&window, &cost, slots, WINDOW_MAX, always);
}

START_TEST(a_window_is_as_long_as_it_pays)
{
    ck_assert_uint_eq(choose(0.95f, 1000, 20, 1, false),
                      WINDOW_MAX);                            /* rows cost next to nothing */
    ck_assert_uint_eq(choose(0.5f, 1000, 1000, 1, false), 0); /* rows cost a pass each */
    ck_assert_uint_eq(choose(0.0f, 1000, 20, 1, false), 0);   /* nothing ever holds */
    uint32_t some = choose(0.6f, 1000, 150, 1, false);
    ck_assert_uint_gt(some, 0);
    ck_assert_uint_lt(some, WINDOW_MAX);
    /* Others wait for the rows of a window as well. */
    ck_assert_uint_le(choose(0.6f, 1000, 150, 16, false), some);
    /* Asked for by name, the cost is not looked at. */
    ck_assert_uint_gt(choose(0.5f, 1000, 1000, 1, true), 0);
}
END_TEST

START_TEST(a_proposer_that_fails_is_tried_again_now_and_then)
{
    struct window window;
    struct window_cost cost = {.pass_ns = 1000, .row_ns = 300};
    uint32_t drafts = 0;

    window_init(&window);
    for (int i = 0; i < 40; i++)
        window_verified(&window, 4, 0);
    for (int i = 0; i < 10 * WINDOW_PROBE; i++) {
        uint32_t n = window_choose(&window, &cost, 1, 8, false);
        ck_assert_uint_le(n, 1);
        drafts += n;
    }
    ck_assert_uint_eq(drafts, 10);
    for (int i = 0; i < 40; i++)
        window_verified(&window, 4, 4);
    ck_assert_uint_gt(window_choose(&window, &cost, 1, 8, false), 1);
}
END_TEST

START_TEST(costs_follow_what_was_measured)
{
    struct window_cost cost = {0};

    for (int i = 0; i < 200; i++) {
        window_measured(&cost, 2, 2, 1000);
        window_measured(&cost, 2, 8, 1600);
    }
    ck_assert(cost.pass_ns > 990 && cost.pass_ns < 1010);
    ck_assert(cost.row_ns > 95 && cost.row_ns < 105);
    window_measured(&cost, 2, 2, 1000000); /* preempted: it must not count for much */
    ck_assert(cost.pass_ns < 1400);
}
END_TEST

/* ---- windows that a model fills -------------------------------------------------------------- */

/* What `n` slots of acceptance p get: the drafts of the first. D and S as shares of T = 1000. */
static uint32_t share(float p, uint32_t n, uint32_t others, float draft, float row, bool always)
{
    struct window_cost cost = {.pass_ns = 1000, .row_ns = row * 1000};
    struct window_drafter drafter = {.cost.pass_ns = draft * 1000};
    struct window_share slots[8];

    for (uint32_t i = 0; i < n; i++)
        slots[i] = (struct window_share){.acceptance = p, .most = WINDOW_MAX, .always = always};
    window_share(slots, n, others, &cost, &drafter);
    for (uint32_t i = 1; i < n; i++)
        ck_assert_uint_eq(slots[i].drafts, slots[0].drafts);
    return slots[0].drafts;
}

START_TEST(a_model_drafts_as_far_as_it_pays)
{
    ck_assert_uint_gt(share(0.95f, 1, 0, 0.3f, 0.1f, false), 2);
    ck_assert_uint_eq(share(1.0f, 1, 0, 0.05f, 0.02f, false), WINDOW_MAX);
    ck_assert_uint_eq(share(0.95f, 1, 0, 1.0f, 0.1f, false), 0); /* a draft costs a token */
    ck_assert_uint_eq(share(0.2f, 1, 0, 0.3f, 0.1f, false), 0);  /* drafts do not hold */
    ck_assert_uint_eq(share(0.0f, 1, 0, 0.0f, 0.02f, false), 0);
    /* the dearer, the shorter */
    ck_assert_uint_ge(share(0.9f, 1, 0, 0.1f, 0.1f, false), share(0.9f, 1, 0, 0.3f, 0.1f, false));
    /* eight share each drafting pass, but every one has rows of its own */
    ck_assert_uint_gt(share(0.95f, 8, 0, 0.3f, 0.02f, false), 2);
    ck_assert_uint_eq(share(0.7f, 8, 0, 0.3f, 0.2f, false), 0);
    /* asked for by name it drafts in any case */
    ck_assert_uint_ge(share(0.0f, 1, 0, 5.0f, 1.0f, true), 1);
    ck_assert_uint_gt(share(0.99f, 1, 0, 5.0f, 0.02f, true), 2);
}
END_TEST

/* Beside a slot that gets a token in every step a window has one draft, if any. */
START_TEST(beside_others_there_is_one_draft_a_step)
{
    ck_assert_uint_eq(share(0.95f, 1, 1, 0.3f, 0.05f, false), 1);
    ck_assert_uint_eq(share(0.95f, 1, 7, 0.3f, 0.05f, false), 0); /* eight would pay for one */
    ck_assert_uint_eq(share(0.95f, 7, 1, 0.3f, 0.05f, false), 1);
    ck_assert_uint_eq(share(0.5f, 1, 7, 9.0f, 0.9f, true), 1);
}
END_TEST

/* One whose drafts do not hold is not slowed down for the others. */
START_TEST(no_slot_is_slower_for_others)
{
    struct window_cost cost = {.pass_ns = 1000, .row_ns = 20};
    struct window_drafter drafter = {.cost.pass_ns = 300};
    struct window_share slots[3] = {{.acceptance = 0.95f, .most = 12},
                                    {.acceptance = 0.01f, .most = 12},
                                    {.acceptance = 0.95f, .most = 12}};

    window_share(slots, 3, 0, &cost, &drafter);
    ck_assert_uint_eq(slots[0].drafts, 1);
    ck_assert_uint_eq(slots[1].drafts, 0);
    ck_assert_uint_eq(slots[2].drafts, 1);
    /* room for few: no slot gets more than that */
    slots[1] = (struct window_share){.acceptance = 0.95f, .most = 2};
    window_share(slots, 3, 0, &cost, &drafter);
    ck_assert_uint_eq(slots[0].drafts, 2);
    ck_assert_uint_eq(slots[1].drafts, 2);
}
END_TEST

/* 1 draft in WINDOW_PROBE rounds where it does not pay, and 1 round without where it does, so that
 * both costs stay known. */
START_TEST(what_is_not_used_is_tried_now_and_then)
{
    struct window_cost cost = {.pass_ns = 1000, .row_ns = 100};
    struct window_drafter drafter = {.cost.pass_ns = 900};
    struct window_share slot = {.most = 8};
    uint32_t drafts = 0, without = 0;

    for (int i = 0; i < 10 * WINDOW_PROBE; i++) {
        slot.acceptance = 0.3f;
        window_share(&slot, 1, 0, &cost, &drafter);
        ck_assert_uint_le(slot.drafts, 1);
        drafts += slot.drafts;
    }
    ck_assert_uint_eq(drafts, 10);
    drafter.cost.pass_ns = 100;
    for (int i = 0; i < 10 * (WINDOW_PROBE + 1); i++) {
        slot.acceptance = 0.9f;
        window_share(&slot, 1, 0, &cost, &drafter);
        without += slot.drafts == 0;
    }
    ck_assert_uint_eq(without, 10);
    /* nothing was measured yet: one round without */
    cost.pass_ns = 0;
    window_share(&slot, 1, 0, &cost, &drafter);
    ck_assert_uint_eq(slot.drafts, 0);
    window_share(NULL, 0, 3, &cost, &drafter);
}
END_TEST

START_TEST(a_long_lag_is_caught_up_with_where_it_pays)
{
    struct window_cost cost = {.pass_ns = 1000, .row_ns = 50};
    struct window_drafter drafter = {.cost = {.pass_ns = 100, .row_ns = 10}};

    ck_assert(window_lag_pays(&cost, &drafter, 0.9f, 1000, 200));
    ck_assert(!window_lag_pays(&cost, &drafter, 0.9f, 1000, 10));  /* a short answer */
    ck_assert(!window_lag_pays(&cost, &drafter, 0.1f, 100, 1000)); /* drafts do not hold */
    ck_assert(!window_lag_pays(&cost, &drafter, 0.9f, 1u << 20, 200));
}
END_TEST

START_TEST(requests_begin_with_what_their_users_others_saw)
{
    struct window_past past = {0};

    float before = window_past_acceptance(&past);
    window_past_verified(&past, 6, 6);
    ck_assert(window_past_acceptance(&past) > before);
    for (int i = 0; i < 400; i++)
        window_past_verified(&past, 6, 0);
    ck_assert(window_past_acceptance(&past) < 0.01f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proposer");
    TCase *tcase = tcase_create("proposer");
    tcase_add_checked_fixture(tcase, NULL, close_proposer);
    tcase_add_test(tcase, lookup_finds_what_followed_the_same_tokens);
    tcase_add_test(tcase, lookup_prefers_the_longer_match_and_the_newer_place);
    tcase_add_test(tcase, lookup_goes_on_with_a_repetition_that_reaches_the_end);
    tcase_add_test(tcase, lookup_says_nothing_where_nothing_repeats);
    tcase_add_test(tcase, lookup_indexes_a_long_text_in_parts);
    tcase_add_test(tcase, lookup_survives_a_changed_sequence);
    tcase_add_test(tcase, a_guess_is_read_on_from_where_the_answer_agrees);
    tcase_add_test(tcase, a_wrong_token_after_an_inserted_one_does_not_lose_the_guess);
    tcase_add_test(tcase, one_wrong_token_does_not_lose_the_guess);
    tcase_add_test(tcase, kinds_use_what_they_are_named_for);
    tcase_add_test(tcase, a_window_is_as_long_as_it_pays);
    tcase_add_test(tcase, a_proposer_that_fails_is_tried_again_now_and_then);
    tcase_add_test(tcase, costs_follow_what_was_measured);
    tcase_add_test(tcase, a_model_drafts_as_far_as_it_pays);
    tcase_add_test(tcase, beside_others_there_is_one_draft_a_step);
    tcase_add_test(tcase, no_slot_is_slower_for_others);
    tcase_add_test(tcase, what_is_not_used_is_tried_now_and_then);
    tcase_add_test(tcase, a_long_lag_is_caught_up_with_where_it_pays);
    tcase_add_test(tcase, requests_begin_with_what_their_users_others_saw);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
