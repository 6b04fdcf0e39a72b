/* kernels/quant/quant_block.h: blocks decode to the values that other readers give. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/num.h"
#include "kernels/quant/quant_block.h"
#include "tests/run_suite.h"
#include "tests/rig/quant_vectors.h"

enum { N_VECTORS = sizeof(quant_vectors) / sizeof(quant_vectors[0]) };

START_TEST(values_equal_those_of_another_reader)
{
    const struct quant_vector *v = &quant_vectors[_i];
    float *x = calloc(v->n, sizeof(*x));
    ck_assert(x && quant_readable(v->type));
    quant_row_values(v->type, v->bytes, v->n, x);
    for (uint32_t i = 0; i < v->n; i++)
        ck_assert_msg(num_bits(x[i]) == v->values[i], "%s [%u] is %a, not %a", quant_name(v->type),
                      i, (double)x[i], (double)num_float(v->values[i]));
    free(x);
}
END_TEST

/* Every block's exponent, from a denormal to the largest: the format has no NaN. */
START_TEST(an_exponent_is_a_power_of_two)
{
    for (int e = 0; e < 256; e++)
        ck_assert(quant_e8m0((uint8_t)e) == ldexpf(1, e - 128));
}
END_TEST

/* The integers of a sub-block stay small enough that the sums of a matmul are exact in f32. */
START_TEST(integers_stay_within_their_range)
{
    static const struct {
        uint32_t type;
        int low, high;
    } ranges[] = {{QUANT_Q8_0, -128, 127},  {QUANT_Q4_0, -8, 7},    {QUANT_Q5_0, -16, 15},
                  {QUANT_Q5_1, 0, 31},      {QUANT_Q4_K, 0, 15},    {QUANT_Q5_K, 0, 31},
                  {QUANT_Q6_K, -32, 31},    {QUANT_Q4_1, 0, 15},    {QUANT_Q2_K, 0, 3},
                  {QUANT_Q3_K, -4, 3},      {QUANT_MXFP4, -12, 12}, {QUANT_IQ4_NL, -127, 113},
                  {QUANT_IQ4_XS, -127, 113}};
    uint8_t bytes[256];
    for (size_t t = 0; t < sizeof(ranges) / sizeof(ranges[0]); t++) {
        const struct quant_info *info = quant_find(ranges[t].type);
        int low = 1000, high = -1000;
        for (unsigned fill = 0; fill < 256; fill++) {
            memset(bytes, (int)fill, sizeof(bytes));
            for (uint32_t index = 0; index < info->block / QUANT_SUB; index++) {
                struct quant_sub s;
                quant_sub_load(info->type, bytes, index, &s);
                for (uint32_t i = 0; i < QUANT_SUB; i++) {
                    low = s.q[i] < low ? s.q[i] : low;
                    high = s.q[i] > high ? s.q[i] : high;
                }
            }
        }
        ck_assert_msg(low == ranges[t].low && high == ranges[t].high, "%s: %d to %d", info->name,
                      low, high);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("quant_block");
    TCase *tcase = tcase_create("quant_block");
    tcase_add_loop_test(tcase, values_equal_those_of_another_reader, 0, N_VECTORS);
    tcase_add_test(tcase, an_exponent_is_a_power_of_two);
    tcase_add_test(tcase, integers_stay_within_their_range);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
