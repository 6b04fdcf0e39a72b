/* NUMERICS.md, "Attention", one query at a time. */
#include "kernels/cpu/ref.h"

#include <math.h>

#include "kernels/num.h"

/* Value i of the K or V of a page and head, its block's scale the `scale`-th. */
static float value(const struct cpu_attend *a, const uint8_t *values, uint32_t i, uint32_t scale)
{
    const float *scales = (const float *)(const void *)(values + kv_scales_offset(a->kv));
    switch (a->kv->type) {
    case KV_F32:
        return ((const float *)(const void *)values)[i];
    case KV_Q8_0:
        return (float)((const int8_t *)values)[i] * scales[scale];
    default:
        return num_f32_from_f16(((const uint16_t *)(const void *)values)[i]);
    }
}

static const uint8_t *page_at(const struct cpu_attend *a, uint32_t t)
{
    return a->memory + a->pages[t / KV_PAGE_POSITIONS] * a->kv->page_bytes;
}

static float key(const struct cpu_attend *a, uint32_t t, uint32_t d)
{
    return value(a, page_at(a, t) + kv_k_offset(a->kv, a->layer, a->head_kv),
                 d * KV_PAGE_POSITIONS + t % KV_PAGE_POSITIONS,
                 d / KV_BLOCK * KV_PAGE_POSITIONS + t % KV_PAGE_POSITIONS);
}

static float val(const struct cpu_attend *a, uint32_t t, uint32_t d)
{
    return value(a, page_at(a, t) + kv_v_offset(a->kv, a->layer, a->head_kv),
                 t % KV_PAGE_POSITIONS * a->kv->head_dim + d,
                 t % KV_PAGE_POSITIONS * a->kv->n_block + d / KV_BLOCK);
}

static float score(const struct cpu_attend *a, const float *q, uint32_t t)
{
    float acc = 0.0f;
    for (uint32_t d = 0; d < a->kv->head_dim; d++)
        acc = fmaf(q[d], key(a, t, d), acc);
    return acc * a->scale;
}

/* One split, positions [begin, end): its m, l and o [head_dim]. e [256] is scratch. */
static void split(const struct cpu_attend *a, const float *q, uint32_t begin, uint32_t end,
                  float *e, float *ret_m, float *ret_l, float *o)
{
    float m = -INFINITY;
    for (uint32_t t = begin; t < end; t++) {
        e[t - begin] = score(a, q, t);
        m = e[t - begin] > m ? e[t - begin] : m;
    }
    float l[32] = {0};
    for (uint32_t d = 0; d < a->kv->head_dim; d++)
        o[d] = 0.0f;
    for (uint32_t t = begin; t < end; t++) {
        float w = num_exp(e[t - begin] - m);
        l[t % 32] = l[t % 32] + w;
        for (uint32_t d = 0; d < a->kv->head_dim; d++)
            o[d] = fmaf(w, val(a, t, d), o[d]);
    }
    for (uint32_t stride = 16; stride > 0; stride /= 2) {
        for (uint32_t j = 0; j < stride; j++)
            l[j] = l[j] + l[j + stride];
    }
    *ret_m = m;
    *ret_l = l[0];
}

static void query(const struct cpu_attend *a, uint32_t i)
{
    uint32_t n = a->position[i] + 1, from = cpu_attend_from(a, a->position[i]);
    uint32_t next = (from / CPU_SPLIT + 1) * CPU_SPLIT, head_dim = a->kv->head_dim;
    float *scores = a->scratch, *o = scores + CPU_SPLIT, *part = o + CPU_MAX_HEAD;
    float big_m, big_l, m, l;
    split(a, a->q[i], from, n < next ? n : next, scores, &big_m, &big_l, o);
    for (uint32_t begin = next; begin < n; begin += CPU_SPLIT) {
        uint32_t end = n - begin < CPU_SPLIT ? n : begin + CPU_SPLIT;
        split(a, a->q[i], begin, end, scores, &m, &l, part);
        float max = big_m > m ? big_m : m;
        float ea = num_exp(big_m - max);
        float eb = num_exp(m - max);
        big_l = fmaf(big_l, ea, l * eb);
        for (uint32_t d = 0; d < head_dim; d++)
            o[d] = fmaf(o[d], ea, part[d] * eb);
        big_m = max;
    }
    float r = 1.0f / big_l;
    for (uint32_t d = 0; d < head_dim; d++)
        a->out[i][d] = o[d] * r;
}

void ref_attend(const struct cpu_attend *a)
{
    for (uint32_t i = 0; i < a->n; i++)
        query(a, i);
}
