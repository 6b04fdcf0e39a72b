/* The uid of users without a number has one source. */
#include "daemon/overflow_uid.h"

#include "tests/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uid_t read_of(const char *text)
{
    char path[] = "/tmp/hearth-overflow-XXXXXX";
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_ge(dprintf(fd, "%s", text), 0);
    uid_t uid = overflow_uid_read(path);
    close(fd);
    unlink(path);
    return uid;
}

START_TEST(it_is_what_the_kernel_says_else_the_usual_one)
{
    ck_assert_uint_eq(read_of("1234\n"), 1234);
    ck_assert_uint_eq(read_of("x\n"), OVERFLOW_UID_USUAL);
    ck_assert_uint_eq(read_of(""), OVERFLOW_UID_USUAL);
    ck_assert_uint_eq(overflow_uid_read("/nonexistent"), OVERFLOW_UID_USUAL);
}
END_TEST

START_TEST(nothing_is_shared_within_it)
{
    ck_assert(!overflow_uid_shares(overflow_uid()));
    ck_assert(overflow_uid_shares(overflow_uid() - 1));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("overflow_uid");
    TCase *t = tcase_create("overflow_uid");
    tcase_add_test(t, it_is_what_the_kernel_says_else_the_usual_one);
    tcase_add_test(t, nothing_is_shared_within_it);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
