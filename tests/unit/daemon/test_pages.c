/* The pool of page ids: each page is in one place, and none is ever lost. */
#include "daemon/cache/pages.h"
#include "tests/run_suite.h"

#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

enum { TOTAL = 100 };

static struct pages pool;

static void setup(void)
{
    ck_assert_int_eq(pages_init(&pool, TOTAL), 0);
}

static void teardown(void)
{
    pages_fini(&pool);
}

START_TEST(every_page_is_handed_out_once)
{
    bool seen[TOTAL] = {false};

    for (uint32_t i = 0; i < TOTAL; i++) {
        uint32_t page = pages_take(&pool);
        ck_assert_uint_lt(page, TOTAL);
        ck_assert(!seen[page]);
        seen[page] = true;
    }
    ck_assert_uint_eq(pool.n_free, 0);
    ck_assert_uint_eq(pages_take(&pool), PAGE_NONE);
    ck_assert_uint_eq(pages_take(&pool), PAGE_NONE);
}
END_TEST

START_TEST(low_ids_first_so_that_little_memory_is_touched)
{
    for (uint32_t i = 0; i < TOTAL; i++)
        ck_assert_uint_eq(pages_take(&pool), i);
}
END_TEST

START_TEST(the_last_returned_is_the_next_taken)
{
    uint32_t a = pages_take(&pool), b = pages_take(&pool);

    pages_return(&pool, a);
    pages_return(&pool, b);
    ck_assert_uint_eq(pages_take(&pool), b);
    ck_assert_uint_eq(pages_take(&pool), a);
}
END_TEST

START_TEST(only_pages_that_were_used_are_cleaned)
{
    uint32_t a = pages_take(&pool), b = pages_take(&pool);

    ck_assert_uint_eq(pages_clean(&pool), PAGE_NONE);
    pages_return(&pool, a);
    pages_return(&pool, b);
    ck_assert_uint_eq(pages_clean(&pool), a);
    ck_assert_uint_eq(pages_take(&pool), b);
    ck_assert_uint_eq(pages_clean(&pool), PAGE_NONE); /* b is in use */
    pages_return(&pool, b);
    ck_assert_uint_eq(pages_clean(&pool), b);
    ck_assert_uint_eq(pages_clean(&pool), PAGE_NONE);
}
END_TEST

START_TEST(random_use_loses_nothing)
{
    bool held[TOTAL] = {false};
    uint32_t n_held = 0;
    uint64_t state = 1;

    for (int i = 0; i < 20000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t page = (uint32_t)(state >> 40) % TOTAL;
        if (held[page]) {
            pages_return(&pool, page);
            held[page] = false;
            n_held--;
        } else if ((page = pages_take(&pool)) != PAGE_NONE) {
            ck_assert(!held[page]);
            held[page] = true;
            n_held++;
        }
        ck_assert_uint_eq(pool.n_free, TOTAL - n_held);
    }
}
END_TEST

START_TEST(a_page_too_many_is_our_mistake)
{
    pages_return(&pool, 3);
}
END_TEST

START_TEST(a_page_that_is_none_is_our_mistake)
{
    pages_take(&pool);
    pages_return(&pool, TOTAL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pages");
    TCase *t = tcase_create("pages");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, every_page_is_handed_out_once);
    tcase_add_test(t, low_ids_first_so_that_little_memory_is_touched);
    tcase_add_test(t, the_last_returned_is_the_next_taken);
    tcase_add_test(t, only_pages_that_were_used_are_cleaned);
    tcase_add_test(t, random_use_loses_nothing);
    tcase_add_test_raise_signal(t, a_page_too_many_is_our_mistake, SIGABRT);
    tcase_add_test_raise_signal(t, a_page_that_is_none_is_our_mistake, SIGABRT);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
