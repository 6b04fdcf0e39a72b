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

/* ln x for a normal positive f32: x = 2^e m, m in [2/3, 4/3), ln m = 2 atanh((m-1)/(m+1)). */
static double ln(float x)
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
static void turn(double a, float *ret_cos, float *ret_sin)
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
        *ret_cos = (float)c;
        *ret_sin = (float)s;
        break;
    case 1:
        *ret_cos = (float)-s;
        *ret_sin = (float)c;
        break;
    case 2:
        *ret_cos = (float)-c;
        *ret_sin = (float)-s;
        break;
    default:
        *ret_cos = (float)s;
        *ret_sin = (float)-c;
        break;
    }
}

static uint32_t high_entries(uint32_t context)
{
    return context / ROPE_LOW + 1;
}

size_t rope_table_floats(uint32_t rope_dim, uint32_t context)
{
    return (size_t)rope_dim * (ROPE_LOW + high_entries(context));
}

/* Entry e of the table: rope_dim / 2 pairs (cos, sin); low entries first, then the high ones. The
 * product of the divisors is exact, and a division by 1 changes nothing. */
void rope_build(float *table, uint32_t rope_dim, uint32_t context,
                const struct model_rope_table *rope)
{
    double ln_base = ln(rope->base);
    for (uint32_t i = 0; i < rope_dim / 2; i++) {
        double divisor = (double)rope->scale * (rope->divisors ? (double)rope->divisors[i] : 1.0);
        double theta = exponential(-(double)(2 * i) / (double)rope_dim * ln_base) / divisor;
        float *low = table + 2 * (size_t)i, *high = low + (size_t)ROPE_LOW * rope_dim;
        for (uint32_t p = 0; p < ROPE_LOW; p++, low += rope_dim)
            turn((double)p * theta, low, low + 1);
        for (uint32_t p = 0; p < high_entries(context); p++, high += rope_dim)
            turn((double)p * ROPE_LOW * theta, high, high + 1);
    }
}

void rope_row(const float *table, uint32_t rope_dim, uint32_t position, enum model_rope kind,
              float *cs, float *sn)
{
    bool halves = kind == MODEL_ROPE_HALVES;
    const float *low = table + (size_t)(position % ROPE_LOW) * rope_dim;
    const float *high = table + ((size_t)ROPE_LOW + position / ROPE_LOW) * rope_dim;
    for (uint32_t i = 0; i < rope_dim; i += 2) {
        float c = fmaf(high[i], low[i], -(high[i + 1] * low[i + 1]));
        float s = fmaf(high[i + 1], low[i], high[i] * low[i + 1]);
        uint32_t first = halves ? i / 2 : i, second = halves ? first + rope_dim / 2 : i + 1;
        cs[first] = cs[second] = c;
        sn[first] = -s;
        sn[second] = s;
    }
}
