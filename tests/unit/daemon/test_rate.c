/* Token buckets. */
#include "daemon/rate.h"
#include "tests/run_suite.h"

#include <check.h>

static const struct rate rate = {.every_ns = 100, .burst = 3};

static int take_all(uint64_t *due_ns, uint64_t now_ns)
{
    int n = 0;

    while (rate_take(due_ns, &rate, now_ns))
        n++;
    return n;
}

START_TEST(a_bucket_gives_its_burst_then_one_token_at_a_time)
{
    uint64_t due_ns = 0;

    ck_assert_int_eq(take_all(&due_ns, 5000), 3);
    ck_assert_int_eq(take_all(&due_ns, 5099), 0);
    ck_assert_int_eq(take_all(&due_ns, 5100), 1);
    ck_assert_int_eq(take_all(&due_ns, 5250), 1);
    ck_assert_int_eq(take_all(&due_ns, 5300), 1);
    ck_assert_int_eq(take_all(&due_ns, 90000), 3); /* full again, never fuller */
}
END_TEST

START_TEST(a_refusal_costs_nothing)
{
    uint64_t due_ns = 0;

    take_all(&due_ns, 5000);
    for (int i = 0; i < 1000; i++)
        ck_assert(!rate_take(&due_ns, &rate, 5099));
    ck_assert(rate_take(&due_ns, &rate, 5100));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rate");
    TCase *t = tcase_create("rate");
    tcase_add_test(t, a_bucket_gives_its_burst_then_one_token_at_a_time);
    tcase_add_test(t, a_refusal_costs_nothing);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
