/* Who drafts what, and how much: lookup, guess, window. */
#include "daemon/proposer.h"

#include <check.h>
#include <stdlib.h>

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

/* A sequence that changed behind its common part: old entries must never give drafts of what is gone. */
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

START_TEST(a_guess_is_read_on_from_where_the_answer_agrees)
{
    uint32_t guess[] = {10, 11, 12, 13, 14, 15}, tokens[16] = {1, 2}, drafts[8];

    ck_assert_int_eq(proposer_begin(&proposer, PROPOSER_CLIENT, 0, 2, guess, 6), 0);
    ck_assert_uint_eq(draft(tokens, 2, 3, drafts), 3);
    ck_assert_uint_eq(drafts[0], 10);
    tokens[2] = 10;
    tokens[3] = 11;
    ck_assert_uint_eq(draft(tokens, 4, 8, drafts), 4);
    ck_assert_uint_eq(drafts[0], 12);
    tokens[4] = 13; /* 12 was left out */
    ck_assert_uint_eq(draft(tokens, 5, 8, drafts), 2);
    ck_assert_uint_eq(drafts[0], 14);
    tokens[5] = 99; /* not in the guess */
    ck_assert_uint_eq(draft(tokens, 6, 8, drafts), 0);
    tokens[6] = 14; /* back in it */
    ck_assert_uint_eq(draft(tokens, 7, 8, drafts), 1);
    ck_assert_uint_eq(drafts[0], 15);
    tokens[7] = 15;
    ck_assert_uint_eq(draft(tokens, 8, 8, drafts), 0); /* used up */
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
    ck_assert_uint_eq(choose(0.95f, 1000, 20, 1, false), WINDOW_MAX); /* rows cost next to nothing */
    ck_assert_uint_eq(choose(0.5f, 1000, 1000, 1, false), 0);         /* rows cost a pass each */
    ck_assert_uint_eq(choose(0.0f, 1000, 20, 1, false), 0);           /* nothing ever holds */
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

int main(void)
{
    Suite *suite = suite_create("proposer");
    TCase *tcase = tcase_create("proposer");
    tcase_add_checked_fixture(tcase, NULL, close_proposer);
    tcase_add_test(tcase, lookup_finds_what_followed_the_same_tokens);
    tcase_add_test(tcase, lookup_prefers_the_longer_match_and_the_newer_place);
    tcase_add_test(tcase, lookup_goes_on_with_a_repetition_that_reaches_the_end);
    tcase_add_test(tcase, lookup_says_nothing_where_nothing_repeats);
    tcase_add_test(tcase, lookup_survives_a_changed_sequence);
    tcase_add_test(tcase, a_guess_is_read_on_from_where_the_answer_agrees);
    tcase_add_test(tcase, kinds_use_what_they_are_named_for);
    tcase_add_test(tcase, a_window_is_as_long_as_it_pays);
    tcase_add_test(tcase, a_proposer_that_fails_is_tried_again_now_and_then);
    tcase_add_test(tcase, costs_follow_what_was_measured);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
