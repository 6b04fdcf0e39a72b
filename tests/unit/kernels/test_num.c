/* kernels/base/num.h: accuracy against libm in double, exact bits of some results, special values,
 * the 16-bit floats against an independent definition (and F16C where there is one), and the AVX2
 * lanes against the scalar functions. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/base/num.h"

/* Long loops note the first argument that fails and assert once: an assertion of Check costs a
 * system call. */
enum { STRIDE = 4093 }; /* through the bit patterns: prime, so no mantissa pattern is preferred */

static const uint32_t inf_bits = 0x7f800000u, nan_bits = 0x7fc00000u;

/* |got - want| in units of want's last place in binary32. */
static double ulps(double want, float got)
{
    if (want == 0.0) {
        return got == 0.0f ? 0.0 : INFINITY;
    }
    int exponent;
    (void)frexp(want, &exponent);
    const double unit = ldexp(1.0, exponent - 24 > -149 ? exponent - 24 : -149);
    return fabs((double)got - want) / unit;
}

/* ---- exp -------------------------------------------------------------------------------- */

START_TEST(exp_is_within_one_ulp)
{
    double worst = 0.0;
    for (uint32_t b = 0; b <= num_bits(88.0f); b += STRIDE) {
        const float x = num_float(b);
        const double up = ulps(exp((double)x), num_exp(x));
        const double down = x <= 87.0f ? ulps(exp(-(double)x), num_exp(-x)) : 0.0;
        worst = fmax(worst, fmax(up, down));
    }
    ck_assert_msg(worst <= 1.0, "%g ulp", worst);
}
END_TEST

START_TEST(exp_bits_are_pinned)
{
    static const struct {
        float x;
        uint32_t bits;
    } pinned[] = {
        {0.0f, 0x3f800000u},   {-0.0f, 0x3f800000u},          {1.0f, 0x402df854u},
        {-1.0f, 0x3ebc5ab2u},  {0x1.62e430p-1f, 0x40000000u}, {10.0f, 0x46ac14efu},
        {-10.0f, 0x383e6bceu}, {-27.5f, 0x2ba07089u},         {-87.0f, 0x00b33687u},
        {88.0f, 0x7ef882b7u},  {0x1p-30f, 0x3f800000u},       {-0x1p-24f, 0x3f7fffffu},
    };
    for (size_t i = 0; i < sizeof(pinned) / sizeof(pinned[0]); i++) {
        ck_assert_msg(num_bits(num_exp(pinned[i].x)) == pinned[i].bits,
                      "exp(%a) is %08x, pinned %08x", (double)pinned[i].x,
                      num_bits(num_exp(pinned[i].x)), pinned[i].bits);
    }
}
END_TEST

/* FNV-1a over the results where the polynomials matter, so densely that a change in the last bit of
 * a coefficient mostly shows. */
static uint64_t hash_of(float (*f)(float), float from, float to)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t b = num_bits(from); b <= num_bits(to); b += 17) {
        hash = (hash ^ num_bits(f(num_float(b)))) * 0x100000001b3u;
        hash = (hash ^ num_bits(f(-num_float(b)))) * 0x100000001b3u;
    }
    return hash;
}

static float swiglu_of_half(float g)
{
    return num_swiglu(g, 0.5f);
}

START_TEST(hashes_of_all_results_are_pinned)
{
    const uint64_t e = hash_of(num_exp, 0x1p-5f, 4.0f);
    const uint64_t l = hash_of(num_log, 0.6f, 1.5f);
    const uint64_t s = hash_of(num_silu, 0x1p-5f, 4.0f);
    const uint64_t g = hash_of(num_gelu, 0x1p-5f, 4.0f);
    const uint64_t w = hash_of(swiglu_of_half, 0x1p-5f, 4.0f);
    ck_assert_msg(e == 0x618099de9283f344u, "exp hashes to %016llx", (unsigned long long)e);
    ck_assert_msg(l == 0x4959900d9bfc4c32u, "log hashes to %016llx", (unsigned long long)l);
    ck_assert_msg(s == 0x336e5d21465fef89u, "silu hashes to %016llx", (unsigned long long)s);
    ck_assert_msg(w == 0x0186ac0e772b72dfu, "swiglu(., 0.5) hashes to %016llx",
                  (unsigned long long)w);
    ck_assert_msg(g == 0x4d6c7e36373d34f6u, "gelu hashes to %016llx", (unsigned long long)g);
}
END_TEST

START_TEST(exp_is_defined_everywhere)
{
    const float below = nextafterf(NUM_EXP_MIN, -INFINITY), top = num_exp(NUM_EXP_MAX);
    ck_assert_uint_eq(num_bits(num_exp(below)), 0);
    ck_assert_uint_eq(num_bits(num_exp(-1e30f)), 0);
    ck_assert_uint_eq(num_bits(num_exp(-INFINITY)), 0);
    ck_assert(num_exp(NUM_EXP_MIN) >= 0x1p-126f); /* never a denormal */
    ck_assert(num_exp(nextafterf(NUM_EXP_MAX, INFINITY)) == top && isfinite(top));
    ck_assert(num_exp(1e30f) == top && num_exp(INFINITY) == top);
    ck_assert(isnan(num_exp(num_float(nan_bits))));
    ck_assert(isnan(num_exp(num_float(0xffc00000u))));
    ck_assert(isnan(num_exp(num_float(0x7f800001u)))); /* signalling, payload in the shifted bits */
    ck_assert(isnan(num_exp(num_float(0x7fffffffu))));
}
END_TEST

START_TEST(exp_is_monotonic)
{
    float before = 0.0f;
    int wrong = 0;
    for (int i = -87 * 512; i <= 88 * 512; i++) {
        const float y = num_exp((float)i / 512.0f);
        wrong += !(y > before);
        before = y;
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

/* ---- log -------------------------------------------------------------------------------- */

START_TEST(log_is_within_one_ulp)
{
    double worst = 0.0;
    for (uint32_t b = 1; b < inf_bits; b += STRIDE) { /* denormals included */
        worst = fmax(worst, ulps(log((double)num_float(b)), num_log(num_float(b))));
    }
    for (uint32_t b = num_bits(0.98f); b < num_bits(1.02f); b += 7) {
        /* Where the result is small. */
        worst = fmax(worst, ulps(log((double)num_float(b)), num_log(num_float(b))));
    }
    ck_assert_msg(worst <= 1.0, "%g ulp", worst);
}
END_TEST

START_TEST(log_bits_are_pinned)
{
    static const struct {
        float x;
        uint32_t bits;
    } pinned[] = {
        {1.0f, 0},
        {2.0f, 0x3f317218u},
        {0.5f, 0xbf317218u},
        {10.0f, 0x40135d8eu},
        {0.1f, 0xc0135d8eu},
        {0x1p-149f, 0xc2ce8ed0u},
        {0x1p-126f, 0xc2aeac50u},
        {3e38f, 0x42b13196u},
        {0.7f, 0xbeb69e1au},
        {1.41f, 0x3eafeafdu},
    };
    for (size_t i = 0; i < sizeof(pinned) / sizeof(pinned[0]); i++) {
        ck_assert_msg(num_bits(num_log(pinned[i].x)) == pinned[i].bits,
                      "log(%a) is %08x, pinned %08x", (double)pinned[i].x,
                      num_bits(num_log(pinned[i].x)), pinned[i].bits);
    }
}
END_TEST

START_TEST(log_is_defined_everywhere)
{
    ck_assert_uint_eq(num_bits(num_log(0.0f)), 0xff800000u);
    ck_assert_uint_eq(num_bits(num_log(-0.0f)), 0xff800000u);
    ck_assert_uint_eq(num_bits(num_log(INFINITY)), inf_bits);
    ck_assert(isnan(num_log(-1.0f)) && isnan(num_log(-INFINITY)) && isnan(num_log(-0x1p-149f)));
    ck_assert(isnan(num_log(num_float(nan_bits))) && isnan(num_log(num_float(0xffc00000u))));
}
END_TEST

START_TEST(log_inverts_exp)
{
    for (int i = -80; i <= 80; i++) {
        const float x = (float)i;
        ck_assert(fabsf(num_log(num_exp(x)) - x) <= 2e-7f * fmaxf(1.0f, fabsf(x)));
    }
}
END_TEST

/* ---- silu ------------------------------------------------------------------------------- */

START_TEST(silu_is_close_and_defined_everywhere)
{
    double worst = 0.0;
    for (uint32_t b = 0; b <= num_bits(87.0f); b += STRIDE) {
        for (int sign = 0; sign < 2; sign++) {
            const float x = sign != 0 ? -num_float(b) : num_float(b);
            const double want = (double)x / (1.0 + exp(-(double)x));
            worst = fmax(worst, ulps(want, num_silu(x)));
        }
    }
    ck_assert_msg(worst <= 3.0, "%g ulp", worst);
    ck_assert_uint_eq(num_bits(num_silu(0.0f)), 0);
    ck_assert_uint_eq(num_bits(num_silu(-0.0f)), 0x80000000u);
    ck_assert(num_silu(1000.0f) == 1000.0f);
    ck_assert(num_silu(-1000.0f) < 0.0f && num_silu(-1000.0f) > -1e-34f);
    ck_assert(isnan(num_silu(num_float(nan_bits))));
}
END_TEST

/* Results above 1e-3 are within a few ulp; below, exp magnifies the rounding of its argument, and
 * the absolute error counts, since gates are summed. */
START_TEST(gelu_is_close_and_defined_everywhere)
{
    double worst = 0.0, farthest = 0.0;
    for (uint32_t b = 0; b <= num_bits(87.0f); b += STRIDE) {
        for (int sign = 0; sign < 2; sign++) {
            const float x = sign != 0 ? -num_float(b) : num_float(b);
            const double d = (double)x, u = sqrt(2.0 / acos(-1.0)) * (d + 0.044715 * d * d * d);
            const double want = d / (1.0 + exp(-2.0 * u));
            if (x > -2.0f)
                worst = fmax(worst, ulps(want, num_gelu(x)));
            farthest = fmax(farthest, fabs(want - (double)num_gelu(x)) / fmax(1.0, fabs(d)));
        }
    }
    ck_assert_msg(worst <= 8.0, "%g ulp", worst);
    ck_assert_msg(farthest <= 2e-7, "%g off", farthest);
    ck_assert_uint_eq(num_bits(num_gelu(0.0f)), 0);
    ck_assert_uint_eq(num_bits(num_gelu(-0.0f)), 0x80000000u);
    ck_assert(num_gelu(1000.0f) == 1000.0f && num_gelu(1e30f) == 1e30f);
    ck_assert(num_gelu(-1000.0f) < 0.0f && num_gelu(-1000.0f) > -1e-34f);
    ck_assert(isnan(num_gelu(num_float(nan_bits))));
}
END_TEST

/* u from -9 to 9, beyond both limits. Near u = -1 the rounding of u + 1 counts. */
START_TEST(swiglu_is_close_and_defined_everywhere)
{
    double worst = 0.0;
    for (uint32_t b = 0; b <= num_bits(50.0f); b += STRIDE) {
        for (int i = 0; i < 38; i++) {
            const float g = i % 2 ? -num_float(b) : num_float(b), u = (float)(i / 2) - 9.0f;
            const double a = fmin((double)g, 7.0), c = fmin(fmax((double)u, -7.0), 7.0);
            const double want = a / (1.0 + exp(-1.702 * a)) * (c + 1.0);
            const double off = fabs(want - (double)num_swiglu(g, u));
            worst = fmax(worst, off / fmax(1.0, fabs(want)));
        }
    }
    ck_assert_msg(worst <= 5e-7, "%g off", worst);
    ck_assert(num_swiglu(7.0f, 7.0f) == num_swiglu(INFINITY, INFINITY));
    ck_assert(num_swiglu(1.0f, -7.0f) == num_swiglu(1.0f, -INFINITY));
    ck_assert(num_swiglu(1.0f, 7.0f) == num_swiglu(1.0f, 1e30f));
    ck_assert_uint_eq(num_bits(num_swiglu(5.0f, -1.0f)), 0);
    ck_assert(isinf(num_swiglu(-INFINITY, 0.0f)));
    ck_assert(isnan(num_swiglu(num_float(nan_bits), 1.0f)));
    ck_assert(isnan(num_swiglu(1.0f, num_float(nan_bits))));
}
END_TEST

/* ---- 16-bit floats ---------------------------------------------------------------------- */

/* The value of a finite binary16 pattern, by its definition. */
static double f16_value(uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const double m = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return (h & 0x8000) != 0 ? -m : m;
}

START_TEST(sigmoid_and_softplus_are_close_and_defined_everywhere)
{
    double most = 0;
    for (uint64_t b = 0; b < (uint64_t)1 << 32; b += 911) {
        const float x = num_float((uint32_t)b);
        if (isnan(x) || fabsf(x) > 80)
            continue;
        const double e = exp(-(double)x), s = 1 / (1 + e), p = log1p(exp((double)x));
        most = fmax(most, fabs((double)num_sigmoid(x) - s) / s);
        most = fmax(most, fabs((double)num_softplus(x) - p) / fmax(p, 1));
    }
    ck_assert_msg(most < 3e-7, "%g", most);
    ck_assert(num_sigmoid(0) == 0.5f && num_sigmoid(INFINITY) == 1);
    ck_assert(num_sigmoid(-INFINITY) > 0 && num_sigmoid(-INFINITY) < 1e-37f);
    ck_assert(num_softplus(20) == num_log(1 + num_exp(20)) && num_softplus(21) == 21);
    ck_assert(num_softplus(INFINITY) == INFINITY && num_softplus(-INFINITY) == 0);
    ck_assert(isnan(num_sigmoid(NAN)) && isnan(num_softplus(NAN)));
}
END_TEST

START_TEST(every_f16_widens_exactly_and_comes_back)
{
    uint32_t wrong = 0, first = 0;
    for (uint32_t h = 65536; h-- > 0;) {
        const float x = num_f32_from_f16((uint16_t)h);
        uint32_t back = h;
        bool good = (signbit(x) != 0) == (h >> 15 != 0);
        if ((h & 0x7c00) != 0x7c00) {
            good &= (double)x == f16_value((uint16_t)h);
        } else if ((h & 0x3ff) == 0) {
            good &= isinf(x) != 0;
        } else {
            good &= isnan(x) != 0;
            back |= 0x200u; /* quiet, the rest of the payload kept */
        }
        if (!good || num_f16_from_f32(x) != back) {
            wrong++;
            first = h;
        }
    }
    ck_assert_msg(wrong == 0, "%u patterns, the first %04x", wrong, first);
}
END_TEST

START_TEST(f16_rounds_to_nearest_even)
{
    uint32_t wrong = 0, first = 0;
    for (uint32_t h = 0x7c00; h-- > 0;) { /* each value, its upper neighbour, and the middle */
        const double low = f16_value((uint16_t)h);
        const double high = h == 0x7bff ? 65536.0 : f16_value((uint16_t)(h + 1));
        const float middle = (float)((low + high) / 2.0); /* exact: one bit more than binary16 */
        const uint32_t even = (h & 1) == 0 ? h : h + 1;
        if (num_f16_from_f32(middle) != even || num_f16_from_f32(-middle) != (even | 0x8000u) ||
            num_f16_from_f32(nextafterf(middle, 0.0f)) != h ||
            num_f16_from_f32(nextafterf(middle, INFINITY)) != h + 1) {
            wrong++;
            first = h;
        }
    }
    ck_assert_msg(wrong == 0, "%u places, the first above %04x", wrong, first);
    ck_assert_uint_eq(num_f16_from_f32(3e38f), 0x7c00);
    ck_assert_uint_eq(num_f16_from_f32(-INFINITY), 0xfc00);
    ck_assert_uint_eq(num_f16_from_f32(0x1p-149f), 0);
}
END_TEST

START_TEST(bf16_is_the_upper_half)
{
    ck_assert(num_f32_from_bf16(0x3f80) == 1.0f);
    ck_assert(num_f32_from_bf16(0xc040) == -3.0f);
    ck_assert(num_f32_from_bf16(0x0001) == 0x1p-133f);
    ck_assert_uint_eq(num_bits(num_f32_from_bf16(0xff81)), 0xff810000u); /* a NaN's payload stays */
}
END_TEST

/* ---- lanes ------------------------------------------------------------------------------ */

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#include "kernels/base/num_avx2.h"
#include "tests/run_suite.h"

static void exp8(const float *x, float *y)
{
    _mm256_storeu_ps(y, num_exp_avx2(_mm256_loadu_ps(x)));
}
static uint16_t f16c_narrow(float x)
{
    return (uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}
static float f16c_widen(uint16_t h)
{
    return _cvtsh_ss(h);
}
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

static bool same(float a, float b)
{
    return num_bits(a) == num_bits(b) || (isnan(a) && isnan(b));
}

/* Eight arguments from b on. Returns false and names the argument where a lane differs. */
static bool lanes_equal(const float x[8], float *ret_wrong)
{
    float e[8];
    exp8(x, e);
    for (int i = 0; i < 8; i++) {
        if (!same(e[i], num_exp(x[i]))) {
            *ret_wrong = x[i];
            return false;
        }
    }
    return true;
}

START_TEST(avx2_lanes_equal_the_scalar_functions)
{
    float x[8], wrong = 0.0f;
    bool equal = true;
    for (uint64_t b = 0; b < (uint64_t)1 << 32 && equal; b += 8 * STRIDE) {
        /* Every sign and exponent, many NaN. */
        for (uint32_t i = 0; i < 8; i++) {
            x[i] = num_float((uint32_t)b + i * STRIDE);
        }
        equal = lanes_equal(x, &wrong);
    }
    ck_assert_msg(equal, "exp of %a", (double)wrong);
    static const uint32_t special[8] = {0,           0x80000000u, 0x7f800000u, 0xff800000u,
                                        0x7fc00000u, 0xffc00000u, 0x7f800001u, 1};
    for (int i = 0; i < 8; i++) {
        x[i] = num_float(special[i]);
    }
    ck_assert_msg(lanes_equal(x, &wrong), "exp of %a", (double)wrong);
}
END_TEST

START_TEST(f16_conversions_equal_f16c)
{
    uint32_t wrong = 0;
    for (uint32_t h = 0; h < 65536; h++) { /* compared as bits: quiet NaNs and their payloads too */
        wrong += num_bits(num_f32_from_f16((uint16_t)h)) != num_bits(f16c_widen((uint16_t)h));
    }
    ck_assert_msg(wrong == 0, "%u widened differently", wrong);
    for (uint64_t b = 0; b < (uint64_t)1 << 32; b += 911) {
        const float x = num_float((uint32_t)b);
        wrong += num_f16_from_f32(x) != f16c_narrow(x);
    }
    ck_assert_msg(wrong == 0, "%u narrowed differently", wrong);
}
END_TEST

static bool machine_has_lanes(void)
{
    return __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma"); /* F16C came before AVX2 */
}
#endif

int main(void)
{
    Suite *suite = suite_create("num");
    TCase *scalar = tcase_create("scalar");
    tcase_add_test(scalar, exp_is_within_one_ulp);
    tcase_add_test(scalar, exp_bits_are_pinned);
    tcase_add_test(scalar, hashes_of_all_results_are_pinned);
    tcase_add_test(scalar, exp_is_defined_everywhere);
    tcase_add_test(scalar, exp_is_monotonic);
    tcase_add_test(scalar, log_is_within_one_ulp);
    tcase_add_test(scalar, log_bits_are_pinned);
    tcase_add_test(scalar, log_is_defined_everywhere);
    tcase_add_test(scalar, log_inverts_exp);
    tcase_add_test(scalar, silu_is_close_and_defined_everywhere);
    tcase_add_test(scalar, gelu_is_close_and_defined_everywhere);
    tcase_add_test(scalar, swiglu_is_close_and_defined_everywhere);
    tcase_add_test(scalar, sigmoid_and_softplus_are_close_and_defined_everywhere);
    tcase_add_test(scalar, every_f16_widens_exactly_and_comes_back);
    tcase_add_test(scalar, f16_rounds_to_nearest_even);
    tcase_add_test(scalar, bf16_is_the_upper_half);
    tcase_set_timeout(scalar, 60);
    suite_add_tcase(suite, scalar);
#if defined(__x86_64__)
    if (machine_has_lanes()) {
        TCase *lanes = tcase_create("lanes");
        tcase_add_test(lanes, avx2_lanes_equal_the_scalar_functions);
        tcase_add_test(lanes, f16_conversions_equal_f16c);
        tcase_set_timeout(lanes, 60);
        suite_add_tcase(suite, lanes);
    } else {
        fprintf(stderr, "skip: this machine has no AVX2 and FMA\n");
    }
#endif
    return run_suite(suite);
}
