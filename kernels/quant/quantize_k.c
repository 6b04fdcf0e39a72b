/* quantize_k.c: super-blocks of 256 weights with two levels of scales. */
#include "kernels/quant/quantize_k.h"

#include "kernels/quant/quantize_fit.h"
#include "kernels/quant/quantize_grid.h"

#include <errno.h>
#include <string.h>

enum { SUBS = 8, SUB = 32, GROUPS = 16, GROUP = 16 };

static const float F16_MAX = 65504.0f;

static void put_f16(float v, uint8_t *to)
{
    const uint16_t half = num_f16_from_f32(v);
    memcpy(to, &half, sizeof(half));
}

/* rint(v) as an integer, clamped. */
static int nearest(float v, int low, int high)
{
    v = v < (float)low ? (float)low : v;
    v = v > (float)high ? (float)high : v;
    return (int)((v + NUM_ROUND) - NUM_ROUND);
}

/* ---- Q2_K, Q4_K, Q5_K ------------------------------------------------------------------------ */

/* What a type has: groups of 4 * vectors values; the largest scale and minimum, the largest integer. */
struct shape_k {
    int groups, vectors, most;
    float high;
};

/* The contents of the block being made. */
struct block_k {
    float d, dmin; /* as f16 */
    uint8_t scale[GROUPS], min[GROUPS];
    uint8_t q[SUBS][SUB];
};

/* Finds the best integers of a group; scale and minimum may each move by one from those given. */
static void fit_sub(const v4f *x, const struct shape_k *k, struct block_k *b, int sub)
{
    const int scale = b->scale[sub], min = b->min[sub], n = k->vectors;
    uint8_t *to = &b->q[0][0] + (size_t)4 * (size_t)(n * sub);
    static const int STEPS[] = {0, -1, 1};
    v4f q[FIT_MOST], best[FIT_MOST] = {{0}};
    float least = 0.0f;
    for (int i = 0; i < 9; i++) {
        const int sc = scale + STEPS[i / 3], mn = min + STEPS[i % 3];
        if (sc < 0 || sc > k->most || mn < 0 || mn > k->most)
            continue;
        const float d = b->d * (float)sc, m = -(b->dmin * (float)mn);
        fit_round(x, n, fit_inverse(d), m, 0.0f, k->high, q);
        const float error = fit_error(x, q, n, d, m);
        if (i == 0 || error < least) {
            least = error;
            b->scale[sub] = (uint8_t)sc;
            b->min[sub] = (uint8_t)mn;
            memcpy(best, q, sizeof(best));
        }
    }
    for (int i = 0; i < 4 * n; i++)
        to[i] = (uint8_t)best[i / 4][i % 4];
}

static int fit_block(const float *x, const struct shape_k *k, struct block_k *b)
{
    v4f values[SUBS * FIT_MOST];
    float d[GROUPS], min[GROUPS], most_d = 0.0f, most_min = 0.0f;
    memcpy(values, x, sizeof(values));
    for (int s = 0; s < k->groups; s++) {
        struct fit_affine fit;
        fit_unsigned(values + s * k->vectors, k->vectors, k->high, true, fit_hold_f32, &fit);
        d[s] = fit.d;
        min[s] = -fit.m;
        most_d = d[s] > most_d ? d[s] : most_d;
        most_min = min[s] > most_min ? min[s] : most_min;
    }
    b->d = fit_hold_f16(most_d / (float)k->most);
    b->dmin = fit_hold_f16(most_min / (float)k->most);
    if (!(b->d <= F16_MAX && b->dmin <= F16_MAX))
        return -ERANGE;
    for (int s = 0; s < k->groups; s++) {
        b->scale[s] = (uint8_t)nearest(d[s] * fit_inverse(b->d), 0, k->most);
        b->min[s] = (uint8_t)nearest(min[s] * fit_inverse(b->dmin), 0, k->most);
        fit_sub(values + s * k->vectors, k, b, s);
    }
    return 0;
}

/* The low two bits of each integer: a half of the block has 32 bytes for its four sub-blocks. */
static void put_pairs(const uint8_t (*q)[SUB], uint8_t *out)
{
    memset(out, 0, 2 * SUB);
    for (int s = 0; s < SUBS; s++)
        for (int i = 0; i < SUB; i++)
            out[SUB * (s / 4) + i] |= (uint8_t)((q[s][i] & 3) << 2 * (s % 4));
}

int quantize_q2_k(const float *x, uint8_t *out)
{
    static const struct shape_k shape = {GROUPS, GROUP / 4, 15, 3.0f};
    struct block_k b;
    const int rc = fit_block(x, &shape, &b);
    if (rc)
        return rc;
    for (int g = 0; g < GROUPS; g++)
        out[g] = (uint8_t)(b.scale[g] | b.min[g] << 4);
    put_pairs((const uint8_t(*)[SUB])b.q, out + 16);
    put_f16(b.d, out + 80);
    put_f16(b.dmin, out + 82);
    return 0;
}

static const struct shape_k q4_k = {SUBS, FIT_MOST, 63, 15.0f}, q5_k = {SUBS, FIT_MOST, 63, 31.0f};

/* d, dmin, the twelve bytes of scales and minima (quant_block.c, quant_scale_min). */
static void put_factors(const struct block_k *b, uint8_t *out)
{
    uint8_t *packed = out + 4;
    put_f16(b->d, out);
    put_f16(b->dmin, out + 2);
    for (int s = 0; s < 4; s++) {
        packed[s] = (uint8_t)(b->scale[s] | b->scale[s + 4] >> 4 << 6);
        packed[s + 4] = (uint8_t)(b->min[s] | b->min[s + 4] >> 4 << 6);
        packed[s + 8] = (uint8_t)((b->scale[s + 4] & 15) | (b->min[s + 4] & 15) << 4);
    }
}

static void put_nibbles(const struct block_k *b, uint8_t *out)
{
    for (int s = 0; s < SUBS; s += 2) {
        for (int i = 0; i < SUB; i++)
            *out++ = (uint8_t)((b->q[s][i] & 15) | (b->q[s + 1][i] & 15) << 4);
    }
}

int quantize_q4_k(const float *x, uint8_t *out)
{
    struct block_k b;
    const int rc = fit_block(x, &q4_k, &b);
    if (rc)
        return rc;
    put_factors(&b, out);
    put_nibbles(&b, out + 16);
    return 0;
}

int quantize_q5_k(const float *x, uint8_t *out)
{
    struct block_k b;
    const int rc = fit_block(x, &q5_k, &b);
    if (rc)
        return rc;
    put_factors(&b, out);
    memset(out + 16, 0, SUB);
    for (int s = 0; s < SUBS; s++) {
        for (int i = 0; i < SUB; i++)
            out[16 + i] = (uint8_t)(out[16 + i] | b.q[s][i] >> 4 << s);
    }
    put_nibbles(&b, out + 48);
    return 0;
}

/* ---- Q6_K ------------------------------------------------------------------------------------ */

/* Finds the best scale of a group, the given one or a neighbour, and its integers plus 32. */
static int8_t fit_group(const v4f *x, float d, int scale, uint8_t *ret_q)
{
    static const int STEPS[] = {0, -1, 1};
    v4f q[GROUP / 4], best[GROUP / 4] = {{0}};
    float least = 0.0f;
    int chosen = scale;
    for (int i = 0; i < 3; i++) {
        const int sc = scale + STEPS[i];
        if (sc < -128 || sc > 127)
            continue;
        const float w = d * (float)sc;
        fit_round(x, GROUP / 4, fit_inverse(w), 0.0f, -32.0f, 31.0f, q);
        const float error = fit_error(x, q, GROUP / 4, w, 0.0f);
        if (i == 0 || error < least) {
            least = error;
            chosen = sc;
            memcpy(best, q, sizeof(best));
        }
    }
    for (int i = 0; i < GROUP; i++)
        ret_q[i] = (uint8_t)((int)best[i / 4][i % 4] + 32);
    return (int8_t)chosen;
}

int quantize_q6_k(const float *x, uint8_t *out)
{
    v4f values[GROUPS][GROUP / 4], unused[GROUP / 4];
    float scale[GROUPS], most = 0.0f;
    uint8_t q[SUBS][SUB];
    memcpy(values, x, sizeof(values));
    for (int g = 0; g < GROUPS; g++) {
        scale[g] = fit_signed(values[g], GROUP / 4, -32.0f, fit_hold_f32, unused);
        const float size = scale[g] < 0 ? -scale[g] : scale[g];
        most = size > (most < 0 ? -most : most) ? scale[g] : most;
    }
    const float d = fit_hold_f16(most / -128.0f);
    if (!(d <= F16_MAX && d >= -F16_MAX))
        return -ERANGE;
    put_f16(d, out + 208);
    for (int g = 0; g < GROUPS; g++) {
        const int first = nearest(scale[g] * fit_inverse(d), -128, 127);
        out[192 + g] = (uint8_t)fit_group(values[g], d, first, &q[g / 2][g % 2 * GROUP]);
    }
    /* as in load_q6_k, quant_block.c */
    for (size_t half = 0; half < 2; half++) {
        const uint8_t(*s)[SUB] = q + 4 * half;
        for (size_t i = 0; i < SUB; i++) {
            out[64 * half + i] = (uint8_t)((s[0][i] & 15) | (s[2][i] & 15) << 4);
            out[64 * half + SUB + i] = (uint8_t)((s[1][i] & 15) | (s[3][i] & 15) << 4);
            out[128 + SUB * half + i] =
                (uint8_t)(s[0][i] >> 4 | s[1][i] >> 4 << 2 | s[2][i] >> 4 << 4 | s[3][i] >> 4 << 6);
        }
    }
    return 0;
}

/* ---- Q3_K, IQ4_XS ---------------------------------------------------------------------------- */

/* D and scales (-32 .. 31) of a block's groups of n vectors, and the places of its weights in the
 * grid. A scale is that of the group's best fit, or a neighbour of it. */
static int fit_grid_block(const float *x, const struct fit_grid *grid, int n, float *ret_d,
                          int8_t *ret_scale, uint8_t *ret_index)
{
    static const int STEPS[] = {0, -1, 1};
    v4f values[SUBS * FIT_MOST], q[FIT_MOST];
    v4i index[FIT_MOST];
    float scale[GROUPS], most = 0.0f;
    const int groups = SUBS * FIT_MOST / n;
    memcpy(values, x, sizeof(values));
    for (int g = 0; g < groups; g++) {
        scale[g] = fit_scale(values + g * n, n, grid, fit_hold_f32, q);
        const float size = scale[g] < 0 ? -scale[g] : scale[g];
        most = size > (most < 0 ? -most : most) ? scale[g] : most;
    }
    const float d = *ret_d = fit_hold_f16(most / -32.0f);
    if (!(d <= F16_MAX && d >= -F16_MAX))
        return -ERANGE;
    for (int g = 0; g < groups; g++) {
        const v4f *v = values + g * n;
        const int first = nearest(scale[g] * fit_inverse(d), -32, 31);
        float least = 0.0f;
        for (int i = 0; i < 3; i++) {
            const int sc = first + STEPS[i];
            const float w = d * (float)sc;
            if (sc < -32 || sc > 31)
                continue;
            fit_nearest(grid, v, n, fit_inverse(w), q, index);
            const float error = fit_error(v, q, n, w, 0.0f);
            if (i > 0 && !(error < least))
                continue;
            least = error;
            ret_scale[g] = (int8_t)sc;
            for (int k = 0; k < 4 * n; k++)
                ret_index[4 * n * g + k] = (uint8_t)index[k / 4][k % 4];
        }
    }
    return 0;
}

int quantize_q3_k(const float *x, uint8_t *out)
{
    float d;
    int8_t scale[GROUPS];
    uint8_t q[SUBS][SUB];
    const int rc = fit_grid_block(x, &fit_three_bits, GROUP / 4, &d, scale, &q[0][0]);
    if (rc)
        return rc;
    memset(out, 0, SUB);
    for (int s = 0; s < SUBS; s++)
        for (int i = 0; i < SUB; i++)
            out[i] |= (uint8_t)(q[s][i] >> 2 << s);
    put_pairs((const uint8_t(*)[SUB])q, out + 32);
    memset(out + 96, 0, 12);
    for (int g = 0; g < GROUPS; g++) { /* as in quant_q3_k_scales, quant_block.c */
        const int sc = scale[g] + 32;
        out[96 + g % 8] |= (uint8_t)((sc & 15) << g / 8 * 4);
        out[104 + g % 4] |= (uint8_t)(sc >> 4 << g / 4 * 2);
    }
    put_f16(d, out + 108);
    return 0;
}

int quantize_iq4_xs(const float *x, uint8_t *out)
{
    float d;
    int8_t scale[GROUPS];
    uint8_t n[SUBS][SUB];
    const int rc = fit_grid_block(x, &fit_iq4, FIT_MOST, &d, scale, &n[0][0]);
    if (rc)
        return rc;
    put_f16(d, out);
    memset(out + 2, 0, 6);
    for (int s = 0; s < SUBS; s++) { /* as in quant_byte_scale, quant_block.c */
        const int sc = scale[s] + 32;
        out[2 + s / 4] |= (uint8_t)(sc >> 4 << s % 4 * 2);
        out[4 + s / 2] |= (uint8_t)((sc & 15) << s % 2 * 4);
        for (int i = 0; i < SUB / 2; i++)
            out[8 + SUB / 2 * s + i] = (uint8_t)(n[s][i] | n[s][i + SUB / 2] << 4);
    }
    return 0;
}
