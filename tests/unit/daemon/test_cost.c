/* The cost model: what each kind of pass teaches it, and the credit of long prompts. */
#include "daemon/policy/cost.h"

#include "tests/run_suite.h"

#include <check.h>
#include <stdlib.h>

enum { DECODE_NS = 8000, ROW_NS = 500 };

static struct cost cost;
static struct cost_step step;

static void setup(void)
{
    cost = (struct cost){.limit_ns = 1000000};
    step = (struct cost_step){.now_ns = 1000};
}

static struct cost_pass decoding(uint32_t slots, uint32_t rows, uint64_t took_ns)
{
    return (struct cost_pass){
        .took_ns = took_ns, .slots = slots, .rows = rows, .decode_rows = rows};
}

static uint64_t pass_ns(uint32_t rows)
{
    return DECODE_NS + (rows - 1) * ROW_NS;
}

static struct cost_pass prefill(uint32_t rows)
{
    return (struct cost_pass){
        .took_ns = pass_ns(rows) - 1, .slots = 1, .rows = rows, .long_rows = rows};
}

/* As after passes of each kind: a decode pass takes DECODE_NS, each row more ROW_NS. */
static void learn(void)
{
    struct cost_pass decode = decoding(1, 1, DECODE_NS);

    cost_measured(&cost, &step, &decode);
    for (uint32_t rows = 2; rows <= 128; rows *= 2) {
        struct cost_pass pass = prefill(rows);
        cost_measured(&cost, &step, &pass);
    }
    ck_assert_uint_eq((uint64_t)cost.decode.pass_ns, DECODE_NS);
    ck_assert_uint_eq(curve_ns(&cost.pass, 100), pass_ns(100));
}

static void assert_near(uint64_t value, uint64_t expected)
{
    ck_assert_uint_ge(value, expected - 4);
    ck_assert_uint_le(value, expected + 4);
}

START_TEST(a_decode_pass_gives_the_cost_of_decoding)
{
    struct cost_pass one = decoding(2, 2, DECODE_NS), windows = decoding(2, 6, DECODE_NS + 4000);

    cost_measured(&cost, &step, &one);
    ck_assert_uint_eq((uint64_t)cost.decode.pass_ns, DECODE_NS);
    cost_measured(&cost, &step, &windows);
    ck_assert_uint_eq((uint64_t)cost.decode.pass_ns, DECODE_NS);
    ck_assert_uint_eq((uint64_t)cost.decode.row_ns, 1000);
}
END_TEST

START_TEST(every_pass_gives_the_cost_of_its_rows)
{
    learn();
    /* Of a slot that decodes and a prompt beside it. Twice the cost moves the smoothed one by an eighth. */
    struct cost_pass mixed = {
        .took_ns = 2 * pass_ns(32), .slots = 2, .rows = 32, .decode_rows = 1, .long_rows = 31};
    cost_measured(&cost, &step, &mixed);
    assert_near(curve_ns(&cost.pass, 32), pass_ns(32) + pass_ns(32) / 8);
    ck_assert_uint_eq((uint64_t)cost.decode.pass_ns, DECODE_NS);
}
END_TEST

START_TEST(long_prompts_use_credit_only_while_an_answer_is_read)
{
    struct cost_pass pass = {.took_ns = DECODE_NS + 16 * ROW_NS,
                             .slots = 2,
                             .rows = 17,
                             .decode_rows = 1,
                             .long_rows = 16};

    learn();
    step.decode_rows = 1;
    cost_measured(&cost, &step, &pass);
    ck_assert_int_eq(cost.credit_ns, 0);
    ck_assert_uint_eq(cost.answered_ns, 0);
    pass.answering = true;
    cost_measured(&cost, &step, &pass);
    assert_near((uint64_t)(cost.credit_ns + DECODE_NS), DECODE_NS + DECODE_NS / 2 - 16 * ROW_NS);
    ck_assert_uint_eq(cost.answered_ns, 1000);
    /* A pass without them earns half a decode pass each time, up to the price of a chunk. */
    for (int i = 0; i < 10; i++) {
        struct cost_pass alone = decoding(1, 1, DECODE_NS);
        alone.answering = true;
        cost_measured(&cost, &step, &alone);
    }
    assert_near((uint64_t)cost.credit_ns, 16 * ROW_NS);
}
END_TEST

START_TEST(short_prompts_use_no_credit_of_long_ones)
{
    struct cost_pass pass = {.took_ns = DECODE_NS + 48 * ROW_NS,
                             .slots = 3,
                             .rows = 49,
                             .decode_rows = 1,
                             .short_rows = 32,
                             .long_rows = 16,
                             .answering = true};

    learn();
    step.decode_rows = 1;
    cost_measured(&cost, &step, &pass);
    assert_near((uint64_t)(cost.credit_ns + DECODE_NS), DECODE_NS + DECODE_NS / 2 - 16 * ROW_NS);
}
END_TEST

START_TEST(a_step_costs_its_fast_and_its_canonical_passes)
{
    struct cost_pass none = {.answering = true}, decode = decoding(1, 1, DECODE_NS);

    cost.drafting_ns = 700;
    cost_measured(&cost, &step, &none); /* only fast passes */
    ck_assert_uint_eq(cost.step_ns, 701);
    ck_assert_uint_eq(cost.drafting_ns, 0);
    ck_assert_uint_eq(cost.answered_ns, 1000);
    ck_assert_uint_eq((uint64_t)cost.decode.pass_ns, 0);
    cost.drafting_ns = 300;
    cost.step_ns = 0;
    cost_measured(&cost, &step, &decode);
    ck_assert_uint_eq(cost.step_ns, DECODE_NS + 301);
}
END_TEST

START_TEST(a_plan_gets_the_cost_of_unverified_answers)
{
    learn();
    step = (struct cost_step){.now_ns = 2000, .fast_ns = 900};
    struct plan_cost plan = cost_plan(&cost, &step);
    ck_assert_uint_eq(plan.decode_ns, DECODE_NS); /* nothing unverified: only canonical passes */
    ck_assert(!plan.unverified && !plan.lately);
    step.unverified = true;
    ck_assert_uint_eq(cost_plan(&cost, &step).decode_ns, 900);
    step.decode_rows = 1;
    ck_assert_uint_eq(cost_plan(&cost, &step).decode_ns, DECODE_NS + 900);
    cost.answered_ns = 1500;
    ck_assert(cost_plan(&cost, &step).lately);
    step.now_ns = 1500 + 500000000;
    ck_assert(!cost_plan(&cost, &step).lately);
}
END_TEST

/* A pass of 30B-A3B on two cores: 50 ms for a row, 2.2 s for 512, as rows bring experts that no row
 * before them read until all are read. */
static uint64_t experts_ns(uint32_t rows)
{
    double left = 390e6;

    for (uint32_t i = 0; i < rows; i++)
        left *= 15.0 / 16;
    return 22000000 + (uint64_t)(390e6 - left) + 3500000ull * rows;
}

/* Computes a prompt of `length` rows, beside a reader or alone. Returns how many rows a second. */
static double prefill_rate(uint32_t length, bool reader)
{
    uint64_t took_ns = 0;

    cost = (struct cost){.limit_ns = 40000000};
    for (int i = 0; i < 20; i++) {
        struct cost_pass decode = decoding(1, 1, experts_ns(1));
        cost_measured(&cost, &step, &decode);
    }
    for (uint32_t left = length; left > 0;) {
        struct plan_slot slots[] = {{.rows = left, .whole = length, .window = 1, .batch = reader},
                                    {.rows = 1, .whole = 1, .window = 1}};
        struct plan_limits limits = {.samples = 16};
        struct plan_turn turn = {0};
        step.decode_rows = reader;
        struct plan_cost plan = cost_plan(&cost, &step);
        bool answering = plan_budget(slots, 1 + reader, &plan, 512, &limits);
        uint32_t rows = plan_pass(slots, 1 + reader, &limits, &turn);
        struct cost_pass pass = {.took_ns = experts_ns(rows),
                                 .slots = 1 + (uint32_t)reader,
                                 .rows = rows,
                                 .decode_rows = reader,
                                 .long_rows = slots[0].take,
                                 .answering = answering};
        cost_measured(&cost, &step, &pass);
        left -= slots[0].take;
        took_ns += pass.took_ns;
    }
    return length / ((double)took_ns * 1e-9);
}

/* In small chunks each row would pay for experts that a larger chunk reads once: 64 rows/s in chunks
 * of 24, and 17 beside a reader. */
START_TEST(with_experts_chunks_grow_until_they_are_worthwhile)
{
    double best = 512 / ((double)experts_ns(512) * 1e-9);

    ck_assert_double_gt(prefill_rate(8000, false), 0.6 * best);
    ck_assert_double_gt(prefill_rate(8000, true), 0.15 * best);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cost");
    TCase *t = tcase_create("cost");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, a_decode_pass_gives_the_cost_of_decoding);
    tcase_add_test(t, every_pass_gives_the_cost_of_its_rows);
    tcase_add_test(t, long_prompts_use_credit_only_while_an_answer_is_read);
    tcase_add_test(t, short_prompts_use_no_credit_of_long_ones);
    tcase_add_test(t, a_step_costs_its_fast_and_its_canonical_passes);
    tcase_add_test(t, a_plan_gets_the_cost_of_unverified_answers);
    tcase_add_test(t, with_experts_chunks_grow_until_they_are_worthwhile);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
