/* read_rate: rates of buffers of any size, passes over memory of any alignment. */
#include <check.h>
#include <stdlib.h>

#include "kernels/tools/read_rate.h"
#include "tests/run_suite.h"

START_TEST(rates_are_positive)
{
    static const size_t sizes[] = {0, 1, 5000, 3 << 20};
    static const uint32_t threads[] = {1, 3};
    struct read_rate *r;
    ck_assert_int_eq(read_rate_open(sizes[_i % 4], threads[_i / 4], &r), 0);
    double first = read_rate_run(r), second = read_rate_run(r);
    ck_assert(first > 0 && first < 1e6);
    ck_assert(second > 0 && second < 1e6);
    const double again = read_rate_again(r);
    ck_assert(again > 0 && again < 1e6);
    read_rate_close(r);
}
END_TEST

/* Under a sanitizer this checks that no read leaves the buffer. */
START_TEST(passes_read_inside_their_buffer)
{
    struct read_rate *r;
    ck_assert_int_eq(read_rate_open(4096, 2, &r), 0);
    for (size_t bytes = 1; bytes < 400000; bytes = bytes * 3 + 1) {
        uint8_t *memory = calloc(1, bytes);
        for (size_t skip = 0; skip < 3 && skip < bytes; skip++)
            ck_assert_uint_lt(read_rate_pass_ns(r, memory + skip, bytes - skip),
                              UINT64_C(60000000000));
        free(memory);
    }
    read_rate_close(r);
    read_rate_close(NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("read_rate");
    TCase *t = tcase_create("read_rate");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, rates_are_positive, 0, 8);
    tcase_add_test(t, passes_read_inside_their_buffer);
    suite_add_tcase(s, t);
    return run_suite(s);
}
