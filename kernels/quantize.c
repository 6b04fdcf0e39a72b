/* quantize.h. A block is eight vectors of four floats, with the compiler's vector type: lanes and
 * order of every sum are then written here, not found by an optimizer. Fast enough to quantize a
 * model while it loads. */
#include "kernels/quantize.h"

#include <errno.h>
#include <string.h>

#include "kernels/num.h"

enum { BLOCK = 32, VECTORS = BLOCK / 4 };

typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

static const float F16_MAX = 65504.0f;

/* A block's scale as it will stand in the file, and the factor that turns values into integers. */
struct scale {
    uint16_t half;
    float d, inverse; /* inverse is 0 where d is */
};

/* False where f16 cannot hold d. */
static bool scale_of(float d, struct scale *ret)
{
    ret->half = num_f16_from_f32(d);
    ret->d = num_f32_from_f16(ret->half);
    ret->inverse = ret->d == 0.0f ? 0.0f : 1.0f / ret->d;
    return ret->d <= F16_MAX && ret->d >= -F16_MAX;
}

static inline v4f choose(v4i mask, v4f yes, v4f no)
{
    return (v4f)((mask & (v4i)yes) | (~mask & (v4i)no));
}

/* q = rint(x * inverse) clamped to low .. high, whole numbers: clamping first comes to the same. The
 * addition rounds. */
static void round_block(const v4f *x, float inverse, float low, float high, v4f *q)
{
    for (int i = 0; i < VECTORS; i++) {
        v4f v = x[i] * inverse;
        const v4f lows = (v4f){0} + low, highs = (v4f){0} + high;
        v = choose(v < lows, lows, v);
        v = choose(v > highs, highs, v);
        q[i] = (v + NUM_ROUND) - NUM_ROUND;
    }
}

/* Eight partials (even and odd vectors), then the tree. */
static float tree(v4f even, v4f odd)
{
    const v4f p = even + odd;
    const float a = p[0] + p[2], b = p[1] + p[3];
    return a + b;
}

static float dot(const v4f *a, const v4f *b)
{
    v4f even = {0}, odd = {0};
    for (int i = 0; i < VECTORS; i += 2) {
        even = even + a[i] * b[i];
        odd = odd + a[i + 1] * b[i + 1];
    }
    return tree(even, odd);
}

static float squared_error(const v4f *x, const v4f *q, float d)
{
    v4f even = {0}, odd = {0};
    for (int i = 0; i < VECTORS; i += 2) {
        const v4f e = x[i] - q[i] * d, o = x[i + 1] - q[i + 1] * d;
        even = even + e * e;
        odd = odd + o * o;
    }
    return tree(even, odd);
}

/* The value whose magnitude is largest; the positive one where both signs have it. */
static float extreme(const v4f *x)
{
    v4f high = x[0], low = x[0];
    for (int i = 1; i < VECTORS; i++) {
        high = choose(x[i] > high, x[i], high);
        low = choose(x[i] < low, x[i], low);
    }
    float most = high[0], least = low[0];
    for (int j = 1; j < 4; j++) {
        most = high[j] > most ? high[j] : most;
        least = low[j] < least ? low[j] : least;
    }
    return most >= -least ? most : least;
}

/* ---- one block ------------------------------------------------------------------------------- */

static int write_q8_0(const v4f *x, uint8_t *out)
{
    struct scale s;
    v4f q[VECTORS];
    const float e = extreme(x);
    if (!scale_of((e < 0 ? -e : e) / 127.0f, &s))
        return -ERANGE;
    round_block(x, s.inverse, -127.0f, 127.0f, q);
    memcpy(out, &s.half, 2);
    for (int i = 0; i < VECTORS; i++) {
        const v4i bits = (v4i)(q[i] + NUM_ROUND);
        for (int j = 0; j < 4; j++)
            out[2 + 4 * i + j] = (uint8_t)bits[j];
    }
    return 0;
}

static void put_q4_0(uint16_t half, const v4f *q, uint8_t *out)
{
    memcpy(out, &half, 2);
    for (int i = 0; i < VECTORS / 2; i++) {
        /* (low + 8) + 16 * (high + 8), in the low bits of the sum's pattern */
        const v4f byte = q[i] + q[i + VECTORS / 2] * 16.0f + 136.0f;
        const v4i bits = (v4i)(byte + NUM_ROUND);
        for (int j = 0; j < 4; j++)
            out[2 + 4 * i + j] = (uint8_t)bits[j];
    }
}

static int write_q4_0(const v4f *x, uint8_t *out)
{
    struct scale s0, s1;
    v4f q0[VECTORS], q1[VECTORS];
    if (!scale_of(extreme(x) / -8.0f, &s0))
        return -ERANGE;
    round_block(x, s0.inverse, -8.0f, 7.0f, q0);
    const float qq = dot(q0, q0);
    if (qq == 0.0f || !scale_of(dot(x, q0) / qq, &s1)) {
        put_q4_0(s0.half, q0, out);
        return 0;
    }
    round_block(x, s1.inverse, -8.0f, 7.0f, q1);
    if (squared_error(x, q1, s1.d) < squared_error(x, q0, s0.d))
        put_q4_0(s1.half, q1, out);
    else
        put_q4_0(s0.half, q0, out);
    return 0;
}

/* ---- a row ----------------------------------------------------------------------------------- */

static int write_halves(uint32_t type, const float *x, uint64_t n, uint8_t *out)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint16_t h = type == QUANT_F16 ? num_f16_from_f32(x[i]) : num_bf16_from_f32(x[i]);
        const uint16_t inf = type == QUANT_F16 ? 0x7c00u : 0x7f80u;
        if ((h & inf) == inf)
            return -ERANGE;
        memcpy(out + 2 * i, &h, 2);
    }
    return 0;
}

static bool all_finite(const float *x, uint64_t n)
{
    v4i bad = {0};
    uint64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        v4i v;
        memcpy(&v, x + i, sizeof v);
        bad |= (v & 0x7f800000) == 0x7f800000;
    }
    for (; i < n; i++)
        bad[0] |= (num_bits(x[i]) & 0x7f800000u) == 0x7f800000u;
    return (bad[0] | bad[1] | bad[2] | bad[3]) == 0;
}

bool quantize_writes(uint32_t type)
{
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16 || type == QUANT_Q8_0 ||
           type == QUANT_Q4_0;
}

int quantize_row(uint32_t type, const float *x, uint64_t n, uint8_t *out)
{
    if (!quantize_writes(type))
        return -ENOTSUP;
    const struct quant_info *info = quant_find(type);
    if (n % info->block != 0)
        return -EINVAL;
    if (!all_finite(x, n))
        return -EDOM;
    if (type == QUANT_F32) {
        memcpy(out, x, 4 * n);
        return 0;
    }
    if (!info->quantized)
        return write_halves(type, x, n, out);
    int rc = 0;
    for (uint64_t b = 0; b < n / info->block && !rc; b++) {
        uint8_t *block = out + b * info->block_bytes;
        v4f at[VECTORS];
        memcpy(at, x + b * BLOCK, sizeof at);
        rc = type == QUANT_Q8_0 ? write_q8_0(at, block) : write_q4_0(at, block);
    }
    return rc;
}
