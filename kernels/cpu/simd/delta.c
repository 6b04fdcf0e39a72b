/* delta.c: recurrent layers, over vec.h; compiled for AVX2 and AVX-512 (VARIANTS_delta.c in the
 * Makefile). Lanes are channels, and columns of a state. See cpu.h for what each does. */
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/vec.h"

/* Two vectors of columns at a time: the chains of both, of o and of p hide the latency of an
 * fma. */
enum { PART = 2 * VEC };

ALWAYS_INLINE vf silu(vf x)
{
    return v_div(x, v_add(v_set1(1.0f), v_exp(v_neg(x))));
}

ALWAYS_INLINE void convolve(const struct cpu_convolution *a, uint32_t n_taps, bool with_silu)
{
    const uint32_t n = a->n;
    uint32_t c = 0;
    for (; c + VEC <= n; c += VEC) {
        vf acc = a->bias ? v_load(a->bias + c) : v_zero();
        UNROLL
        for (uint32_t j = 0; j < n_taps; j++)
            acc = v_fma(v_load(a->taps + (size_t)j * n + c), v_load(a->x[j] + c), acc);
        v_store(a->y + c, with_silu ? silu(acc) : acc);
    }
    if (c == n)
        return;
    vf acc = a->bias ? v_load_part(a->bias + c, n - c) : v_zero();
    for (uint32_t j = 0; j < n_taps; j++)
        acc = v_fma(v_load_part(a->taps + (size_t)j * n + c, n - c),
                    v_load_part(a->x[j] + c, n - c), acc);
    v_store_part(a->y + c, with_silu ? silu(acc) : acc, n - c);
}

void SIMD(simd_convolve)(const struct cpu_convolution *a)
{
    if (a->n_taps == MODEL_TAPS && a->silu)
        convolve(a, MODEL_TAPS, true);
    else
        convolve(a, a->n_taps, a->silu);
}

void SIMD(simd_delta_read)(const float *state, const float *k, uint32_t n, float *p)
{
    for (uint32_t c = 0; c < STATE_COLUMNS; c += PART) {
        vf p0 = v_zero(), p1 = v_zero();
        const float *s = state + c;
        for (uint32_t i = 0; i < n; i++, s += STATE_COLUMNS) {
            p0 = v_fma(v_load(s), v_set1(k[i]), p0);
            p1 = v_fma(v_load(s + VEC), v_set1(k[i]), p1);
        }
        v_store(p + c, p0);
        v_store(p + c + VEC, p1);
    }
}

/* Columns [c, c + PART) of an update; what is not wanted is left out when it is compiled. */
ALWAYS_INLINE void step(const struct cpu_delta *a, uint32_t c, bool to, bool q, bool next_k)
{
    const vf d0 = v_load(a->d + c), d1 = v_load(a->d + c + VEC), decay = v_set1(a->decay);
    vf o0 = v_zero(), o1 = v_zero(), p0 = v_zero(), p1 = v_zero();
    for (uint32_t i = 0; i < a->n; i++) {
        const size_t at = (size_t)i * STATE_COLUMNS + c;
        const vf k = v_set1(a->k[i]);
        const vf s0 = v_fma(k, d0, v_mul(v_load(a->from + at), decay));
        const vf s1 = v_fma(k, d1, v_mul(v_load(a->from + at + VEC), decay));
        if (to) {
            v_store(a->to + at, s0);
            v_store(a->to + at + VEC, s1);
        }
        if (q) {
            o0 = v_fma(s0, v_set1(a->q[i]), o0);
            o1 = v_fma(s1, v_set1(a->q[i]), o1);
        }
        if (next_k) {
            p0 = v_fma(s0, v_set1(a->next_k[i]), p0);
            p1 = v_fma(s1, v_set1(a->next_k[i]), p1);
        }
    }
    if (q) {
        v_store(a->o + c, o0);
        v_store(a->o + c + VEC, o1);
    }
    if (next_k) {
        v_store(a->p + c, p0);
        v_store(a->p + c + VEC, p1);
    }
}

void SIMD(simd_delta_step)(const struct cpu_delta *a)
{
    for (uint32_t c = 0; c < STATE_COLUMNS; c += PART) {
        if (a->q && a->next_k && a->to)
            step(a, c, true, true, true);
        else if (a->q && a->to)
            step(a, c, true, true, false);
        else if (a->q && !a->next_k)
            step(a, c, false, true, false);
        else
            step(a, c, a->to != NULL, a->q != NULL, a->next_k != NULL);
    }
}
