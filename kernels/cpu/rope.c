/* rope.c: builds the tables of the rotary embedding. See rope.h. */
#include "kernels/cpu/rope.h"

#include <math.h>

/* f64 constants: ln 2 and pi/2, each as a head with spare low bits and the rest. */
#define LN2_HI 0x1.62e42fefa3800p-1
#define LN2_LO 0x1.ef35793c76730p-45
#define HALF_PI_HI 0x1.921fb54400000p+0
#define HALF_PI_MID 0x1.0b4611a600000p-34
#define HALF_PI_LO 0x1.3198a2e037073p-69

/* Nearest integer of |x| < 2^51, ties to even, by the rounding of an addition. */
static double nearest(double x)
{
    return (x + 0x1.8p+52) - 0x1.8p+52;
}

/* ln x for a normal x > 0: x = 2^e m, m in [2/3, 4/3), ln m = 2 atanh((m-1)/(m+1)). */
static double ln(double x)
{
    double m = x, e = 0.0;
    while (m >= 4.0 / 3.0) {
        m = m * 0.5;
        e = e + 1.0;
    }
    while (m < 2.0 / 3.0) {
        m = m * 2.0;
        e = e - 1.0;
    }
    double t = (m - 1.0) / (m + 1.0), tt = t * t, sum = 0.0;
    for (int k = 41; k >= 1; k -= 2)
        sum = fma(sum, tt, 1.0 / (double)k);
    return fma(e, LN2_HI, fma(2.0 * t, sum, e * LN2_LO));
}

/* e^x, |x| < 700: x = n ln 2 + r, Taylor series of r to r^17. */
static double exponential(double x)
{
    double n = nearest(x / LN2_HI);
    double r = fma(n, -LN2_LO, fma(n, -LN2_HI, x)), sum = 1.0;
    for (int k = 17; k >= 1; k--)
        sum = fma(sum, r / (double)k, 1.0);
    double factor = n < 0.0 ? 0.5 : 2.0;
    for (int i = 0, steps = (int)(n < 0.0 ? -n : n); i < steps; i++)
        sum = sum * factor;
    return sum;
}

/* cos and sin of 0 <= a < 2^27: reduces by quarter turns, then Taylor series to r^19. */
static void turn(double a, double *ret_cos, double *ret_sin)
{
    double n = nearest(a / (HALF_PI_HI + HALF_PI_MID));
    double r = fma(n, -HALF_PI_LO, fma(n, -HALF_PI_MID, fma(n, -HALF_PI_HI, a)));
    double rr = r * r, c = 1.0, s = 1.0;
    for (int k = 18; k >= 2; k -= 2) {
        c = fma(c, -rr / (double)(k * (k - 1)), 1.0);
        s = fma(s, -rr / (double)(k * (k + 1)), 1.0);
    }
    s = s * r;
    switch ((int64_t)n & 3) {
    case 0:
        *ret_cos = c;
        *ret_sin = s;
        break;
    case 1:
        *ret_cos = -s;
        *ret_sin = c;
        break;
    case 2:
        *ret_cos = -c;
        *ret_sin = -s;
        break;
    default:
        *ret_cos = s;
        *ret_sin = -c;
        break;
    }
}

static uint32_t high_entries(uint32_t context)
{
    return context / ROPE_LOW + 1;
}

size_t rope_table_floats(const struct model_rope_table *rope, uint32_t context)
{
    return (size_t)rope->n * (ROPE_LOW + high_entries(context));
}

/* ---- YaRN ------------------------------------------------------------------------------------ */

#define TWO_PI (4.0 * (HALF_PI_HI + HALF_PI_MID))

/* 1 + 0.1 k ln(scale); scale 1 or less needs no correction. */
static double yarn_magnitude(float scale, float k)
{
    return scale <= 1.0f ? 1.0 : fma(0.1 * (double)k, ln((double)scale), 1.0);
}

/* The pair of n / 2, as a real number, that makes `turns` turns in the original context. */
static double yarn_pair(const struct model_rope_table *rope, float turns)
{
    const double least = (double)turns * TWO_PI;
    return (double)rope->n * ln((double)rope->yarn.original / least) /
           (2.0 * ln((double)rope->base));
}

/* The share of pair i's frequency that is divided by the scale: 0 up to pair lo, 1 from pair hi on. */
static double yarn_share(const struct model_rope_table *rope, uint32_t i)
{
    double lo = yarn_pair(rope, rope->yarn.fast), hi = yarn_pair(rope, rope->yarn.slow);
    if (rope->yarn.truncated) {
        lo = floor(lo);
        hi = ceil(hi);
    }
    lo = lo < 0.0 ? 0.0 : lo;
    hi = hi > (double)(rope->n - 1) ? (double)(rope->n - 1) : hi;
    const double width = hi - lo < 0.001 ? 0.001 : hi - lo, share = ((double)i - lo) / width;
    return share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* The product of the divisors is exact, and a division by 1 changes nothing. */
static double frequency(const struct model_rope_table *rope, uint32_t i)
{
    const double own = rope->divisors ? (double)rope->divisors[i] : 1.0;
    const double plain = exponential(-(double)(2 * i) / (double)rope->n * ln((double)rope->base));
    if (rope->yarn.original == 0)
        return plain / ((double)rope->scale * own);
    const double share = yarn_share(rope, i), kept = plain / own;
    return fma(kept / (double)rope->scale, share, kept * (1.0 - share));
}

/* What cos and sin are multiplied by. It is in the low table, so that a rotation has it once. */
static double magnitude(const struct model_rope_table *rope)
{
    if (rope->yarn.original == 0)
        return (double)rope->attention;
    const double all = yarn_magnitude(rope->scale, rope->yarn.log_multiplier);
    return (double)rope->attention * (yarn_magnitude(rope->scale, 1.0f) / all);
}

static void put(double angle, double factor, float *pair)
{
    double c, s;
    turn(angle, &c, &s);
    pair[0] = (float)(c * factor);
    pair[1] = (float)(s * factor);
}

/* Entry e of the table: n / 2 pairs (cos, sin); low entries first, then the high ones. */
void rope_build(float *table, const struct model_rope_table *rope, uint32_t context)
{
    const uint32_t n = rope->n;
    const double factor = magnitude(rope);
    for (uint32_t i = 0; i < n / 2; i++) {
        const double theta = frequency(rope, i);
        float *low = table + 2 * (size_t)i, *high = low + (size_t)ROPE_LOW * n;
        for (uint32_t p = 0; p < ROPE_LOW; p++, low += n)
            put((double)p * theta, factor, low);
        for (uint32_t p = 0; p < high_entries(context); p++, high += n)
            put((double)p * ROPE_LOW * theta, 1.0, high);
    }
}

void rope_row(const float *table, uint32_t n, uint32_t position, enum model_rope kind, float *cs,
              float *sn)
{
    bool halves = kind == MODEL_ROPE_HALVES;
    const float *low = table + (size_t)(position % ROPE_LOW) * n;
    const float *high = table + ((size_t)ROPE_LOW + position / ROPE_LOW) * n;
    for (uint32_t i = 0; i < n; i += 2) {
        float c = fmaf(high[i], low[i], -(high[i + 1] * low[i + 1]));
        float s = fmaf(high[i + 1], low[i], high[i] * low[i + 1]);
        uint32_t first = halves ? i / 2 : i, second = halves ? first + n / 2 : i + 1;
        cs[first] = cs[second] = c;
        sn[first] = -s;
        sn[second] = s;
    }
}

uint32_t rope_query_factors_n(const struct model *m, uint32_t context)
{
    return m->temperature_scale == 0 ? 0 : context / m->temperature_period + 1;
}

void rope_query_factors(float *factors, const struct model *m, uint32_t context)
{
    for (uint32_t i = 0; i < rope_query_factors_n(m, context); i++)
        factors[i] = (float)fma((double)m->temperature_scale, ln(1.0 + (double)i), 1.0);
}
