/* kernels/quant/quantize.h: exact on representable rows, within the stated errors otherwise, the
 * same bytes on every machine, and clear refusals. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/num.h"
#include "kernels/quant/quant_block.h"
#include "kernels/quant/quant_grids.h"
#include "kernels/quant/quantize.h"
#include "tests/run_suite.h"
#include "tests/rig/cpu_help.h"
#include "tests/rig/every_type.h"

enum { N = 4096 };

static uint64_t row_bytes(uint32_t type, uint64_t n)
{
    return n / quant_find(type)->block * quant_find(type)->block_bytes;
}

static void there_and_back(uint32_t type, const float *x, float *y, uint64_t n)
{
    uint8_t *bytes = help_memory(row_bytes(type, n));
    int rc = quantize_row(type, x, n, bytes);
    ck_assert_msg(rc == 0, "%s: %d", quant_name(type), rc);
    quant_row_values(type, bytes, n, y);
    free(bytes);
}

static uint16_t f16_between(uint64_t *seed, uint16_t low, uint16_t high)
{
    return (uint16_t)(low + help_random(seed) % (uint64_t)(high - low));
}

/* ---- exact ----------------------------------------------------------------------------------- */

/* Turns random bytes into a block that quantize.h reproduces exactly: normal scales, and the
 * extreme integers and sub-block scales from which all others are derived. */
static void make_reachable(uint32_t type, uint64_t *seed, uint8_t *block)
{
    const uint16_t d = f16_between(seed, 0x2000, 0x2bff), m = f16_between(seed, 0x2000, 0x2bff);
    const uint16_t wide = f16_between(seed, 0x0400, 0x7bff);
    const uint16_t sign = help_random(seed) % 2 ? 0x8000 : 0;
    const uint16_t any = wide | (type == QUANT_Q8_0 ? 0 : sign);
    uint32_t at[2];
    if (every_halves(type, at) > 0)
        memcpy(block + at[0], &any, 2);
    switch (type) {
    case QUANT_MXFP4: /* weight 0 is -8, weight 16 is 12: the exponent follows from them */
        block[0] = (uint8_t)(64 + block[0] % 128);
        block[1] = 0x7e;
        return;
    case QUANT_IQ4_NL: /* weight 0 is -127 */
        block[2] &= 0xf0;
        return;
    case QUANT_IQ4_XS: /* in every sub-block weight 0 is -127; the first one's scale is -32 */
        block[2] &= 0xfc;
        block[4] &= 0xf0;
        for (size_t s = 0; s < 8; s++)
            block[8 + 16 * s] &= 0xf0;
        return;
    case QUANT_Q3_K: /* the first weight of every group is -4, the first group's scale is -32 */
        for (size_t i = 0; i < 32; i += 16)
            block[i] = block[32 + i] = block[64 + i] = 0;
        block[96] &= 0xf0;
        block[104] &= 0xfc;
        return;
    case QUANT_Q2_K: /* in every group weight 0 is 0, weight 1 is 3; no scale is 0, one is 15 */
        memcpy(block + 80, &d, 2);
        memcpy(block + 82, &m, 2);
        for (size_t g = 0; g < 16; g++)
            block[g] |= 0x11;
        block[3] = 0xff;
        for (size_t i = 16; i < 80; i += 16) {
            block[i] = 0;
            block[i + 1] = 0xff;
        }
        return;
    case QUANT_Q4_1: /* weight 0 is 0, weight 16 is 15 */
        memcpy(block, &d, 2);
        memcpy(block + 2, &(uint16_t){m | sign}, 2);
        block[4] = 0xf0;
        return;
    case QUANT_Q8_0:
        for (int i = 0; i < 32; i++)
            block[2 + i] = block[2 + i] == 0x80 ? 0 : block[2 + i];
        block[2 + help_random(seed) % 32] = 0x81; /* -127 */
        return;
    case QUANT_Q4_0:
        block[2 + help_random(seed) % 16] &= 0xf0; /* -8 */
        return;
    case QUANT_Q5_0: /* weight 0 is -16 */
        block[2] &= 0xfe;
        block[6] &= 0xf0;
        return;
    case QUANT_Q5_1: /* weight 0 is 0, weight 16 is 31 */
        memcpy(block, &d, 2);
        memcpy(block + 2, &(uint16_t){m | sign}, 2);
        block[4] &= 0xfe;
        block[6] |= 1;
        block[8] = 0xf0;
        return;
    case QUANT_Q4_K:
    case QUANT_Q5_K: /* in every sub-block weight 0 is 0, weight 1 the largest */
        memcpy(block, &d, 2);
        memcpy(block + 2, &m, 2);
        for (int i = 0; i < 12; i++)
            block[4 + i] |= 0x11; /* no scale is 0 */
        block[4] |= 63;
        block[8] |= 63;
        for (size_t c = 0; c < 4; c++) {
            uint8_t *quants = block + (type == QUANT_Q4_K ? 16 : 48) + 32 * c;
            quants[0] = 0;
            quants[1] = 0xff;
        }
        if (type == QUANT_Q5_K) {
            block[16] = 0;
            block[17] = 0xff;
        }
        return;
    default: /* Q6_K: the first weight of every group is -32, one group's scale is -128 */
        for (int half = 0; half < 2; half++) {
            for (int i = 0; i < 64; i += 16)
                block[64 * half + i] = 0;
            block[128 + 32 * half] = block[128 + 32 * half + 16] = 0;
        }
        block[192 + help_random(seed) % 16] = 0x80;
    }
}

/* Rows of such blocks round trip bit for bit. */
START_TEST(representable_rows_round_trip)
{
    const struct quant_info *info = quant_find(every_written[_i]);
    uint64_t seed = 1;
    float x[N], y[N];
    uint8_t *bytes = help_memory(row_bytes(info->type, N));
    for (int round = 0; round < 20; round++) {
        for (uint32_t b = 0; b < N / info->block; b++) {
            uint8_t *block = bytes + (size_t)b * info->block_bytes;
            for (uint32_t i = 0; i < info->block_bytes; i++)
                block[i] = (uint8_t)help_random(&seed);
            make_reachable(info->type, &seed, block);
        }
        quant_row_values(info->type, bytes, N, x);
        there_and_back(info->type, x, y, N);
        for (uint32_t i = 0; i < N; i++)
            ck_assert_msg(x[i] == y[i], "%s [%u] %a for %a", info->name, i, (double)y[i],
                          (double)x[i]);
    }
    free(bytes);
}
END_TEST

START_TEST(floats_round_to_the_nearest_value)
{
    uint64_t seed = 2;
    float x[N], y[N];
    for (uint32_t i = 0; i < N; i++)
        x[i] = ldexpf(help_normal(&seed), (int)(help_random(&seed) % 36) - 24);
    there_and_back(QUANT_F32, x, y, N);
    ck_assert_mem_eq(x, y, sizeof(x));
    there_and_back(QUANT_BF16, x, y, N);
    for (uint32_t i = 0; i < N; i++)
        ck_assert(fabsf(x[i] - y[i]) <= fabsf(x[i]) * 0x1p-8f);
    there_and_back(QUANT_F16, x, y, N);
    for (uint32_t i = 0; i < N; i++)
        ck_assert(fabsf(x[i] - y[i]) <= fmaxf(fabsf(x[i]) * 0x1p-11f, 0x1p-25f));
    for (uint32_t h = 0; h < 0x7f80; h++) { /* every finite bf16, and the middle to the next one */
        float at = num_f32_from_bf16((uint16_t)h);
        ck_assert_uint_eq(num_bf16_from_f32(at), h);
        ck_assert_uint_eq(num_bf16_from_f32(-at), h | 0x8000u);
        ck_assert_uint_eq(num_bf16_from_f32(num_float((h << 16) + 0x8000u)), h + (h & 1u));
        ck_assert_uint_eq(num_bf16_from_f32(num_float((h << 16) + 0x8001u)), h + 1);
    }
    ck_assert_uint_eq(num_bf16_from_f32(num_float(0x7f800001u)), 0x7fc0u);
    ck_assert_uint_eq(num_bf16_from_f32(-INFINITY), 0xff80u);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

/* Squared error of integers in low .. -low - 1 with the extreme value on low. */
static double error_from_extreme(const float *x, int low)
{
    double sum = 0;
    float most = 0;
    for (uint32_t k = 0; k < 32; k++)
        most = fabsf(x[k]) > fabsf(most) ? x[k] : most;
    const double d = (double)num_f32_from_f16(num_f16_from_f32(most / (float)low));
    for (uint32_t k = 0; k < 32; k++) {
        const double q = d == 0 ? 0 : fmax(low, fmin(-low - 1, rint((double)x[k] / d)));
        sum += pow((double)x[k] - d * q, 2);
    }
    return sum;
}

/* Squared error of the range of 32 values, 0 included, in equal steps, with room for a scale and an
 * offset rounded to f16. */
static double error_from_range(const float *x, int high)
{
    double sum = 0, least = 0, most = 0;
    for (uint32_t k = 0; k < 32; k++) {
        least = fmin(least, (double)x[k]);
        most = fmax(most, (double)x[k]);
    }
    const double d = (most - least) / high;
    for (uint32_t k = 0; k < 32; k++) {
        const double q = d == 0 ? 0 : rint(((double)x[k] - least) / d);
        sum += pow((double)x[k] - (d * q + least), 2);
    }
    return sum + 32 * pow((most - least) * 0x1p-10, 2);
}

/* Squared error of the nearest of a table's values, by the scale that maps the extreme value to the
 * table's first; of MXFP4 by the exponent that brings it to 8 .. 16. */
static double error_from_table(uint32_t type, const float *x)
{
    double sum = 0, most = 0;
    for (uint32_t k = 0; k < 32; k++)
        most = fabs((double)x[k]) > fabs(most) ? (double)x[k] : most;
    const double d = type == QUANT_MXFP4
                         ? ldexp(1, most == 0 ? -128 : (int)fmax(ilogb(most) - 3, -128))
                         : (double)num_f32_from_f16(num_f16_from_f32((float)(most / -127)));
    for (uint32_t k = 0; k < 32; k++) {
        double least = INFINITY;
        for (int n = 0; n < 16; n++)
            least = fmin(least, fabs((double)x[k] - d * quant_table(type)[n]));
        sum += least * least;
    }
    return sum;
}

/* The header's bounds, for the 32 values of one sub-block. */
static void check_bound(uint32_t type, const float *x, const float *y, const struct quant_sub *s)
{
    double squares = 0, most = 0, bound = INFINITY;
    for (uint32_t k = 0; k < 32; k++) {
        const double error = fabs((double)x[k] - (double)y[k]);
        squares += error * error;
        most = fmax(most, error);
    }
    if (type == QUANT_Q8_0 && fabs((double)s->d) >= 0x1p-14)
        ck_assert_msg(most <= fabs((double)s->d) * 0.5001, "%g of %g", most, (double)s->d);
    if (type == QUANT_Q4_0 || type == QUANT_Q5_0)
        bound = error_from_extreme(x, type == QUANT_Q4_0 ? -8 : -16);
    if ((type == QUANT_Q5_1 || type == QUANT_Q4_1) && fabs((double)s->d) >= 0x1p-14)
        bound = error_from_range(x, type == QUANT_Q5_1 ? 31 : 15);
    if (type == QUANT_MXFP4 || type == QUANT_IQ4_NL)
        bound = error_from_table(type, x);
    ck_assert_msg(squares <= bound * 1.01 + 1e-30, "%s: %g, simpler %g", quant_name(type), squares,
                  bound);
}

START_TEST(errors_stay_within_the_bounds)
{
    const uint32_t type = every_written[_i];
    uint64_t seed = 3;
    float x[N], y[N];
    uint8_t *bytes = help_memory(row_bytes(type, N));
    for (int kind = 0; kind < HELP_KINDS; kind++) {
        help_fill(&seed, (enum help_kind)kind, x, N);
        for (uint32_t i = 0; i < N && kind == HELP_WIDE; i++)
            x[i] = ldexpf(help_normal(&seed), (int)(i / 32 % 40) - 26);
        ck_assert_int_eq(quantize_row(type, x, N, bytes), 0);
        quant_row_values(type, bytes, N, y);
        for (uint32_t i = 0; i < N; i += 32) {
            struct quant_sub s;
            quant_sub_load(type, bytes, i / 32, &s);
            check_bound(type, x + i, y + i, &s);
        }
    }
    free(bytes);
}
END_TEST

/* Root of the mean squared error of normal numbers, in their standard deviation. */
START_TEST(normal_weights_lose_little)
{
    static const double most[] = {0.006, 0.085, 0.043, 0.035, 0.072, 0.036, 0.019,
                                  0.075, 0.3,   0.155, 0.08,  0.08,  0.12};
    uint64_t seed = 4;
    float x[N], y[N];
    double sum = 0;
    for (uint32_t i = 0; i < N; i++)
        x[i] = help_normal(&seed) * 0.02f;
    there_and_back(every_written[_i], x, y, N);
    for (uint32_t i = 0; i < N; i++)
        sum += pow((double)x[i] - (double)y[i], 2);
    const double rms = sqrt(sum / N) / 0.02;
    ck_assert_msg(rms < most[_i] && rms > most[_i] / 3, "%s: %g", quant_name(every_written[_i]),
                  rms);
}
END_TEST

/* ---- the same on every machine --------------------------------------------------------------- */

/* Pinned hashes of the bytes: every compiler, machine and set of flags must write the same. */
START_TEST(bytes_are_pinned)
{
    static const uint64_t want[EVERY_WRITTEN] = {
        0x4e8e00af5ca74b44u, 0x7fab5bc376f15207u, 0xfa24f57e02a49db3u, 0xe8a486c1d23ac1beu,
        0x1b2d1f70bde215bbu, 0xf1419086eb88f757u, 0xaaad06447c28233du, 0x0a2e25a6fbef0c4au,
        0xc5fcc954ef95260bu, 0x28a5376c917a81acu, 0xfc97778edf1eb0adu, 0x67e167c52cc9d87bu,
        0x7fa6de1d78b6a90du};
    uint64_t seed = 5, hash = 0xcbf29ce484222325u;
    float x[N];
    uint8_t *bytes = help_memory(row_bytes(every_written[_i], N));
    for (int kind = 0; kind < HELP_KINDS; kind++) {
        help_fill(&seed, (enum help_kind)(kind == HELP_WIDE ? HELP_NORMAL : kind), x, N);
        ck_assert_int_eq(quantize_row(every_written[_i], x, N, bytes), 0);
        for (uint64_t i = 0; i < row_bytes(every_written[_i], N); i++)
            hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    ck_assert_msg(hash == want[_i], "%s hashes to 0x%016llx", quant_name(every_written[_i]),
                  (unsigned long long)hash);
    free(bytes);
}
END_TEST

/* A block's bytes depend on its own values only. */
START_TEST(blocks_do_not_depend_on_each_other)
{
    const uint32_t type = every_written[_i], block = quant_find(type)->block;
    uint64_t seed = 6;
    float x[N];
    help_fill(&seed, HELP_SPIKE, x, N);
    uint8_t *whole = help_memory(row_bytes(type, N)), *one = help_memory(row_bytes(type, block));
    ck_assert_int_eq(quantize_row(type, x, N, whole), 0);
    for (uint32_t i = 0; i < N; i += block) {
        ck_assert_int_eq(quantize_row(type, x + i, block, one), 0);
        ck_assert_mem_eq(one, whole + row_bytes(type, i), row_bytes(type, block));
    }
    free(whole);
    free(one);
}
END_TEST

/* ---- refusals -------------------------------------------------------------------------------- */

START_TEST(unsupported_types_and_values_are_refused)
{
    static const uint32_t all[] = {FLOAT_TYPES, WRITTEN_TYPES};
    float x[256] = {0};
    uint8_t out[1024];
    for (size_t t = 0; t < sizeof(all) / sizeof(all[0]); t++) {
        const uint32_t type = all[t];
        const bool quantized = quant_find(type)->quantized;
        ck_assert(quantize_writes(type) && quant_readable(type) == quantized);
        for (uint32_t at = 0; at < 256; at += 51) {
            const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
            for (int b = 0; b < 4; b++) {
                x[at] = bad[b];
                ck_assert_int_eq(quantize_row(type, x, 256, out), -EDOM);
            }
            x[at] = 0;
        }
        x[7] = 3e38f;
        ck_assert_int_eq(quantize_row(type, x, 256, out),
                         type == QUANT_F32 || type == QUANT_BF16 || type == QUANT_MXFP4 ? 0
                                                                                        : -ERANGE);
        x[7] = num_float(0x7f7fffffu); /* FLT_MAX: rounds up in bf16 */
        ck_assert_int_eq(quantize_row(type, x, 256, out),
                         type == QUANT_F32 || type == QUANT_MXFP4 ? 0 : -ERANGE);
        x[7] = 0;
        if (quantized)
            ck_assert_int_eq(quantize_row(type, x, 16, out), -EINVAL);
        ck_assert_int_eq(quantize_row(type, x, 0, out), 0);
    }
    ck_assert_int_eq(quantize_row(9, x, 32, out), -ENOTSUP); /* Q8_1 */
    ck_assert_int_eq(quantize_row(QUANT_IQ3_S, x, 256, out), -ENOTSUP);
    ck_assert_int_eq(quantize_row(999, x, 32, out), -ENOTSUP);
    ck_assert(!quantize_writes(9) && !quant_readable(9) && !quant_readable(999));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("quantize");
    TCase *tcase = tcase_create("quantize");
    tcase_add_loop_test(tcase, representable_rows_round_trip, 0, EVERY_WRITTEN);
    tcase_add_test(tcase, floats_round_to_the_nearest_value);
    tcase_add_loop_test(tcase, errors_stay_within_the_bounds, 0, EVERY_WRITTEN);
    tcase_add_loop_test(tcase, normal_weights_lose_little, 0, EVERY_WRITTEN);
    tcase_add_loop_test(tcase, bytes_are_pinned, 0, EVERY_WRITTEN);
    tcase_add_loop_test(tcase, blocks_do_not_depend_on_each_other, 0, EVERY_WRITTEN);
    tcase_add_test(tcase, unsupported_types_and_values_are_refused);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
