/* Which models give way to one that is asked for. */
#include "client/http/residency.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>

enum { SECOND = 1000000000 };

static struct resident all[8];
static struct residency r;
static const uint64_t now = 1000ull * SECOND;

static void setup(void)
{
    r = (struct residency){.all = all, .n = 3, .budget_bytes = 100, .stay_ns = 30ull * SECOND};
    for (size_t i = 0; i < 8; i++)
        all[i] = (struct resident){
            .bytes = 30, .since_ns = now - 100ull * SECOND, .used_ns = now - (i + 1) * SECOND};
}

START_TEST(one_that_fits_stops_none)
{
    ck_assert_int_eq(residency_plan(&r, 10, now), RESIDENCY_FITS);
    for (size_t i = 0; i < r.n; i++)
        ck_assert(!all[i].gives_way);
}
END_TEST

START_TEST(the_one_longest_without_a_request_gives_way)
{
    ck_assert_int_eq(residency_plan(&r, 11, now), RESIDENCY_STOP);
    ck_assert(!all[0].gives_way && !all[1].gives_way && all[2].gives_way);
    ck_assert_int_eq(residency_plan(&r, 70, now), RESIDENCY_STOP);
    ck_assert(!all[0].gives_way && all[1].gives_way && all[2].gives_way);
}
END_TEST

START_TEST(one_that_is_busy_or_new_is_waited_for)
{
    all[2].is_busy = true;
    all[1].since_ns = now - 29ull * SECOND;
    ck_assert_int_eq(residency_plan(&r, 11, now), RESIDENCY_STOP);
    ck_assert(all[0].gives_way && !all[1].gives_way && !all[2].gives_way);
    all[0].is_busy = true;
    ck_assert_int_eq(residency_plan(&r, 11, now), RESIDENCY_WAIT);
    all[2].is_busy = false;
    ck_assert_int_eq(residency_plan(&r, 11, now), RESIDENCY_STOP);
    ck_assert(!all[0].gives_way && !all[1].gives_way && all[2].gives_way);
    all[2].since_ns = now - 30ull * SECOND;
    ck_assert_int_eq(residency_plan(&r, 11, now), RESIDENCY_STOP);
    all[2].since_ns++;
    ck_assert_int_eq(residency_plan(&r, 11, now), RESIDENCY_WAIT);
    all[0].is_pinned = all[1].is_pinned = true;
    ck_assert_int_eq(residency_plan(&r, 11, now), RESIDENCY_WAIT);
    ck_assert_uint_eq(residency_due(&r), now + 1);
}
END_TEST

START_TEST(pinned_ones_never_give_way)
{
    all[2].is_pinned = true;
    ck_assert_int_eq(residency_plan(&r, 70, now), RESIDENCY_STOP);
    ck_assert(all[0].gives_way && all[1].gives_way && !all[2].gives_way);
    ck_assert_int_eq(residency_plan(&r, 71, now), RESIDENCY_NEVER);
    ck_assert(!all[0].gives_way && !all[1].gives_way);
    ck_assert_int_eq(residency_plan(&r, UINT64_MAX, now), RESIDENCY_NEVER);
}
END_TEST

START_TEST(a_small_one_stays_where_a_large_one_is_enough)
{
    all[2].bytes = 5; /* longest without a request */
    all[1].bytes = 60;
    ck_assert_int_eq(residency_plan(&r, 40, now), RESIDENCY_STOP);
    ck_assert(!all[0].gives_way && all[1].gives_way && !all[2].gives_way);
}
END_TEST

START_TEST(idle_ones_are_found)
{
    all[0].is_pinned = all[1].is_busy = true;
    all[0].idle_ns = all[1].idle_ns = 1;
    all[2].idle_ns = 3ull * SECOND;
    ck_assert_uint_eq(residency_idle(&r, now), 2);
    ck_assert_uint_eq(residency_idle_due(&r), now);
    all[2].idle_ns++;
    ck_assert_uint_eq(residency_idle(&r, now), 3);
    ck_assert_uint_eq(residency_idle_due(&r), now + 1);
    all[2].idle_ns = UINT64_MAX;
    ck_assert_uint_eq(residency_idle(&r, UINT64_MAX - 1), 3);
    ck_assert_uint_eq(residency_idle_due(&r), UINT64_MAX);
    all[1].is_busy = false;
    ck_assert_uint_eq(residency_idle(&r, now), 1);
}
END_TEST

/* Whatever is there: what stays and the new one keep to the budget, no one pinned goes, none that may
 * not be stopped is among those of a stop, and none goes in vain. */
START_TEST(plans_keep_to_the_rules)
{
    uint32_t random = 7;
    for (int i = 0; i < 20000; i++) {
        r.n = random_below(&random, 9);
        r.budget_bytes = random_below(&random, 100);
        for (size_t k = 0; k < r.n; k++)
            all[k] = (struct resident){.bytes = random_below(&random, 40),
                                       .since_ns = now - random_below(&random, 60) * SECOND,
                                       .used_ns = now - random_below(&random, 60) * SECOND,
                                       .is_busy = random_below(&random, 4) == 0,
                                       .is_pinned = random_below(&random, 4) == 0};
        uint64_t bytes = random_below(&random, 100), kept = 0, pinned = 0;
        enum residency_verdict verdict = residency_plan(&r, bytes, now);
        for (size_t k = 0; k < r.n; k++) {
            kept += all[k].gives_way ? 0 : all[k].bytes;
            pinned += all[k].is_pinned ? all[k].bytes : 0;
        }
        bool ready = true;
        for (size_t k = 0; k < r.n; k++) {
            ck_assert(!all[k].gives_way || !all[k].is_pinned);
            ck_assert(!all[k].gives_way || kept + all[k].bytes + bytes > r.budget_bytes);
            ready &= !all[k].gives_way || (!all[k].is_busy && all[k].since_ns + r.stay_ns <= now);
        }
        ck_assert_int_eq(verdict == RESIDENCY_NEVER, pinned + bytes > r.budget_bytes);
        if (verdict == RESIDENCY_NEVER)
            continue;
        ck_assert_uint_le(kept + bytes, r.budget_bytes);
        ck_assert_int_eq(verdict == RESIDENCY_WAIT, !ready);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("http_residency");
    TCase *c = tcase_create("http_residency");
    tcase_add_checked_fixture(c, setup, NULL);
    tcase_add_test(c, one_that_fits_stops_none);
    tcase_add_test(c, the_one_longest_without_a_request_gives_way);
    tcase_add_test(c, one_that_is_busy_or_new_is_waited_for);
    tcase_add_test(c, pinned_ones_never_give_way);
    tcase_add_test(c, a_small_one_stays_where_a_large_one_is_enough);
    tcase_add_test(c, idle_ones_are_found);
    tcase_add_test(c, plans_keep_to_the_rules);
    suite_add_tcase(s, c);
    return run_suite(s);
}
