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

/* As after passes of each kind: a decode pass takes DECODE_NS, a row of a prompt ROW_NS. */
static void learn(void)
{
    struct cost_pass decode = decoding(1, 1, DECODE_NS);
    struct cost_pass prefill = {
        .took_ns = 100 * ROW_NS - 100, .slots = 1, .rows = 100, .long_rows = 100};

    cost_measured(&cost, &step, &decode);
    cost_measured(&cost, &step, &prefill);
    ck_assert_uint_eq((uint64_t)cost.decode.pass_ns, DECODE_NS);
    ck_assert_uint_eq(cost.row_ns, ROW_NS);
}

START_TEST(a_decode_pass_gives_the_cost_of_decoding)
{
    struct cost_pass one = decoding(2, 2, DECODE_NS), windows = decoding(2, 6, DECODE_NS + 4000);

    cost_measured(&cost, &step, &one);
    ck_assert_uint_eq((uint64_t)cost.decode.pass_ns, DECODE_NS);
    ck_assert_uint_eq(cost.row_ns, 0);
    cost_measured(&cost, &step, &windows);
    ck_assert_uint_eq((uint64_t)cost.decode.pass_ns, DECODE_NS);
    ck_assert_uint_eq((uint64_t)cost.decode.row_ns, 1000);
}
END_TEST

START_TEST(a_prefill_gives_the_cost_of_a_row)
{
    learn();
    /* Beside a decoding slot: the cost of decoding is subtracted. A row of twice the cost moves the
     * smoothed cost by an eighth. */
    struct cost_pass mixed = {.took_ns = DECODE_NS + 32 * 2 * ROW_NS - 32,
                              .slots = 2,
                              .rows = 33,
                              .decode_rows = 1,
                              .long_rows = 32};
    cost_measured(&cost, &step, &mixed);
    ck_assert_uint_ge(cost.row_ns, ROW_NS + ROW_NS / 8 - 2);
    ck_assert_uint_le(cost.row_ns, ROW_NS + ROW_NS / 8 + 2);
    ck_assert_uint_eq((uint64_t)cost.decode.pass_ns, DECODE_NS);
}
END_TEST

START_TEST(a_few_rows_are_not_measured)
{
    struct cost_pass few = {.took_ns = 1000000, .slots = 1, .rows = 3, .short_rows = 3};

    learn();
    cost_measured(&cost, &step, &few);
    ck_assert_uint_eq(cost.row_ns, ROW_NS);
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
    step.decodes = true;
    cost_measured(&cost, &step, &pass);
    ck_assert_int_eq(cost.credit_ns, 0);
    ck_assert_uint_eq(cost.answered_ns, 0);
    pass.answering = true;
    cost_measured(&cost, &step, &pass);
    ck_assert_int_eq(cost.credit_ns, DECODE_NS / 2 - 16 * ROW_NS);
    ck_assert_uint_eq(cost.answered_ns, 1000);
    /* A pass without them earns half a decode pass each time, up to the price of a chunk. */
    for (int i = 0; i < 10; i++) {
        struct cost_pass alone = decoding(1, 1, DECODE_NS);
        alone.answering = true;
        cost_measured(&cost, &step, &alone);
    }
    ck_assert_int_eq(cost.credit_ns, 16 * (int64_t)cost.row_ns);
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
    step.decodes = true;
    cost_measured(&cost, &step, &pass);
    ck_assert_int_eq(cost.credit_ns, DECODE_NS / 2 - 16 * ROW_NS);
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
    step.decodes = true;
    ck_assert_uint_eq(cost_plan(&cost, &step).decode_ns, DECODE_NS + 900);
    cost.answered_ns = 1500;
    ck_assert(cost_plan(&cost, &step).lately);
    step.now_ns = 1500 + 500000000;
    ck_assert(!cost_plan(&cost, &step).lately);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cost");
    TCase *t = tcase_create("cost");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, a_decode_pass_gives_the_cost_of_decoding);
    tcase_add_test(t, a_prefill_gives_the_cost_of_a_row);
    tcase_add_test(t, a_few_rows_are_not_measured);
    tcase_add_test(t, long_prompts_use_credit_only_while_an_answer_is_read);
    tcase_add_test(t, short_prompts_use_no_credit_of_long_ones);
    tcase_add_test(t, a_step_costs_its_fast_and_its_canonical_passes);
    tcase_add_test(t, a_plan_gets_the_cost_of_unverified_answers);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
