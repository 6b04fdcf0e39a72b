/* quantize_fit.h: finds the scale, or scale and offset, with which small integers approximate some
 * floats best. Shared by all quantized types of quantize.c and quantize_k.c.
 *
 * Values are vectors of four floats, with the compiler's vector type: so the source fixes the lanes
 * and the order of every sum, not an optimizer, and quantizing is fast enough to do while a model
 * loads. A group is 16 or 32 values, `n` 4 or 8 vectors. All + - * /, each rounded once. */
#ifndef HEARTH_KERNELS_QUANT_QUANTIZE_FIT_H
#define HEARTH_KERNELS_QUANT_QUANTIZE_FIT_H
#include "kernels/base/num.h"

#include <stdbool.h>
#include <stdint.h>

typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

enum { FIT_MOST = 8 }; /* vectors of the largest group */

/* Rounds a factor to what its block can hold. */
typedef float (*fit_hold)(float);

static inline float fit_hold_f16(float d) /* infinite where f16 has no such number */
{
    return num_f32_from_f16(num_f16_from_f32(d));
}

static inline float fit_hold_f32(float d)
{
    return d;
}

static inline v4f fit_choose(v4i mask, v4f yes, v4f no)
{
    return (v4f)((mask & (v4i)yes) | (~mask & (v4i)no));
}

/* 1 / d; 0 if d is 0, or too small for any block to hold: then the integers become 0. */
static inline float fit_inverse(float d)
{
    return d < 0x1p-100f && d > -0x1p-100f ? 0.0f : 1.0f / d;
}

/* q = rint((x - m) * inverse) clamped to low .. high. Clamping before rounding gives the same
 * result, since the bounds are integers. The addition rounds. */
static inline void fit_round(const v4f *x, int n, float inverse, float m, float low, float high,
                             v4f *q)
{
    const v4f lows = (v4f){0} + low, highs = (v4f){0} + high;
    for (int i = 0; i < n; i++) {
        v4f v = (x[i] - m) * inverse;
        v = fit_choose(v < lows, lows, v);
        v = fit_choose(v > highs, highs, v);
        q[i] = (v + NUM_ROUND) - NUM_ROUND;
    }
}

/* A sum has eight partials: those of even vectors, then those of odd ones. */
static inline float fit_tree(v4f even, v4f odd)
{
    const v4f p = even + odd;
    const float a = p[0] + p[2], b = p[1] + p[3];
    return a + b;
}

static inline float fit_sum(const v4f *a, int n)
{
    v4f even = {0}, odd = {0};
    for (int i = 0; i < n; i += 2) {
        even = even + a[i];
        odd = odd + a[i + 1];
    }
    return fit_tree(even, odd);
}

static inline float fit_dot(const v4f *a, const v4f *b, int n)
{
    v4f even = {0}, odd = {0};
    for (int i = 0; i < n; i += 2) {
        even = even + a[i] * b[i];
        odd = odd + a[i + 1] * b[i + 1];
    }
    return fit_tree(even, odd);
}

/* Sum of ((x - m) - d q)^2. */
static inline float fit_error(const v4f *x, const v4f *q, int n, float d, float m)
{
    v4f even = {0}, odd = {0};
    for (int i = 0; i < n; i += 2) {
        const v4f e = (x[i] - m) - q[i] * d, o = (x[i + 1] - m) - q[i + 1] * d;
        even = even + e * e;
        odd = odd + o * o;
    }
    return fit_tree(even, odd);
}

static inline void fit_range(const v4f *x, int n, float *ret_least, float *ret_most)
{
    v4f high = x[0], low = x[0];
    for (int i = 1; i < n; i++) {
        high = fit_choose(x[i] > high, x[i], high);
        low = fit_choose(x[i] < low, x[i], low);
    }
    float most = high[0], least = low[0];
    for (int j = 1; j < 4; j++) {
        most = high[j] > most ? high[j] : most;
        least = low[j] < least ? low[j] : least;
    }
    *ret_most = most;
    *ret_least = least;
}

/* The value with the largest magnitude; the positive one if both signs have it. */
static inline float fit_extreme(const v4f *x, int n)
{
    float least, most;
    fit_range(x, n, &least, &most);
    return most >= -least ? most : least;
}

/* x = d q, q in low .. high, low = -(high + 1). d0 maps the extreme value to `low`, the end without
 * a counterpart; d1 is the least-squares scale of d0's integers. Returns the one of the two with
 * the smaller error after rounding by `hold`, d0 if they are equal, and its q. Infinite if not even
 * d0 can be held. */
static inline float fit_signed(const v4f *x, int n, float low, fit_hold hold, v4f *q)
{
    const float high = -low - 1.0f;
    const float d0 = hold(fit_extreme(x, n) / low);
    fit_round(x, n, fit_inverse(d0), 0.0f, low, high, q);
    const float qq = fit_dot(q, q, n);
    if (qq == 0.0f)
        return d0;
    v4f q1[FIT_MOST];
    const float d1 = hold(fit_dot(x, q, n) / qq);
    fit_round(x, n, fit_inverse(d1), 0.0f, low, high, q1);
    if (!(fit_error(x, q1, n, d1, 0.0f) < fit_error(x, q, n, d0, 0.0f)))
        return d0;
    for (int i = 0; i < n; i++)
        q[i] = q1[i];
    return d1;
}

/* d, m and the integers they give, with their error. */
struct fit_affine {
    float d, m, error;
    v4f q[FIT_MOST];
};

static inline void fit_try(const v4f *x, int n, float d, float m, float high, fit_hold hold,
                           struct fit_affine *t)
{
    t->d = hold(d);
    t->m = hold(m);
    fit_round(x, n, fit_inverse(t->d), t->m, 0.0f, high, t->q);
    t->error = fit_error(x, t->q, n, t->d, t->m);
}

/* The least-squares d and m of a trial's integers; with `below`, m <= 0. False if there is none. */
static inline bool fit_solve(const v4f *x, int n, const struct fit_affine *t, bool below,
                             float *ret_d, float *ret_m)
{
    const float count = (float)(4 * n), q = fit_sum(t->q, n), qq = fit_dot(t->q, t->q, n);
    const float sx = fit_sum(x, n), xq = fit_dot(x, t->q, n);
    const float det = count * qq - q * q; /* integers, exact */
    if (det == 0.0f)
        return false;
    *ret_d = (count * xq - sx * q) / det;
    *ret_m = (sx - *ret_d * q) / count;
    if (below && *ret_m > 0.0f) {
        *ret_m = 0.0f;
        *ret_d = xq / qq;
    }
    return true;
}

enum { FIT_TRIALS = 5 };

/* x = d q + m, q in 0 .. high; with `below`, m <= 0. Trials: the range of x (including 0 if
 * `below`) spread over `high` steps, then over high - 1, high - 1/2 .. high + 1, each followed by
 * the least-squares solution of its integers. *best is the one with the smallest error after
 * rounding by `hold`, the first of equals; its d is infinite if the range cannot be held. */
static inline void fit_unsigned(const v4f *x, int n, float high, bool below, fit_hold hold,
                                struct fit_affine *best)
{
    float least, most;
    struct fit_affine t;
    fit_range(x, n, &least, &most);
    least = below && least > 0.0f ? 0.0f : least;
    fit_try(x, n, (most - least) / high, least, high, hold, best);
    for (int i = 0; i < FIT_TRIALS; i++) {
        float d, m;
        fit_try(x, n, (most - least) / (high + 0.5f * (float)(i - 2)), least, high, hold, &t);
        if (t.error < best->error)
            *best = t;
        if (!fit_solve(x, n, &t, below, &d, &m))
            continue;
        fit_try(x, n, d, m, high, hold, &t);
        if (t.error < best->error)
            *best = t;
    }
}

#endif
