/* ref_attend.c: NUMERICS.md, "Attention", one query at a time. */
#include "kernels/cpu/ref.h"

#include "kernels/base/num.h"

#include <math.h>
#include <string.h>

/* Value i of the K or V of a page and head of `dim` dimensions, with the `scale`-th scale. */
static float value(const struct cpu_attend *a, const uint8_t *values, uint32_t dim, uint32_t i,
                   uint32_t scale)
{
    const float *scales = (const float *)(const void *)(values + kv_scales_offset(dim));
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
    return a->memory + a->pages[t / KV_PAGE_POSITIONS] * a->page_bytes;
}

static float key(const struct cpu_attend *a, uint32_t t, uint32_t d)
{
    return value(a, page_at(a, t) + kv_k_offset(a->kv, a->head_kv), a->kv->k_dim,
                 d * KV_PAGE_POSITIONS + t % KV_PAGE_POSITIONS,
                 d / KV_BLOCK * KV_PAGE_POSITIONS + t % KV_PAGE_POSITIONS);
}

static float val(const struct cpu_attend *a, uint32_t t, uint32_t d)
{
    return value(a, page_at(a, t) + kv_v_offset(a->kv, a->head_kv), a->kv->v_dim,
                 t % KV_PAGE_POSITIONS * a->kv->v_dim + d,
                 t % KV_PAGE_POSITIONS * a->kv->v_blocks + d / KV_BLOCK);
}

static float score(const struct cpu_attend *a, const float *q, uint32_t t)
{
    float acc = 0.0f;
    for (uint32_t d = 0; d < a->kv->k_dim; d++)
        acc = fmaf(q[d], key(a, t, d), acc);
    return acc * a->scale;
}

/* One split, positions [begin, end): its m, l and o [v_dim]. e [256] is scratch. */
static void split(const struct cpu_attend *a, const float *q, uint32_t begin, uint32_t end,
                  float *e, float *ret_m, float *ret_l, float *o)
{
    float m = -INFINITY;
    for (uint32_t t = begin; t < end; t++) {
        e[t - begin] = score(a, q, t);
        m = e[t - begin] > m ? e[t - begin] : m;
    }
    float l[32] = {0};
    for (uint32_t d = 0; d < a->kv->v_dim; d++)
        o[d] = 0.0f;
    for (uint32_t t = begin; t < end; t++) {
        float w = num_exp(e[t - begin] - m);
        l[t % 32] = l[t % 32] + w;
        for (uint32_t d = 0; d < a->kv->v_dim; d++)
            o[d] = fmaf(w, val(a, t, d), o[d]);
    }
    for (uint32_t stride = 16; stride > 0; stride /= 2) {
        for (uint32_t j = 0; j < stride; j++)
            l[j] = l[j] + l[j + stride];
    }
    *ret_m = m;
    *ret_l = l[0];
}

/* The partial of query i over positions [number * 256, number * 256 + 256), if it sees any of
 * them. */
static void partial_of(const struct cpu_attend *a, uint32_t i, uint32_t number, float *partial)
{
    size_t m = cpu_partial_floats(a->kv->v_dim) - 16;
    uint32_t from = cpu_attend_from(a, a->position[i]), n = a->position[i] + 1;
    uint32_t begin = number * CPU_SPLIT, end = begin + CPU_SPLIT;
    begin = from > begin ? from : begin;
    end = n < end ? n : end;
    if (begin < end)
        split(a, a->q[i], begin, end, a->scratch, &partial[m], &partial[m + 1], partial);
}

/* Combines: all = all, then partial. */
static void combine(const struct cpu_attend *a, float *all, const float *partial)
{
    size_t m = cpu_partial_floats(a->kv->v_dim) - 16, l = m + 1;
    float max = all[m] > partial[m] ? all[m] : partial[m];
    float ea = num_exp(all[m] - max);
    float eb = num_exp(partial[m] - max);
    all[l] = fmaf(all[l], ea, partial[l] * eb);
    for (uint32_t d = 0; d < a->kv->v_dim; d++)
        all[d] = fmaf(all[d], ea, partial[d] * eb);
    all[m] = max;
}

/* all = all, then a sink. */
static void add_sink(const struct cpu_attend *a, float *all, float sink)
{
    size_t m = cpu_partial_floats(a->kv->v_dim) - 16, l = m + 1;
    float max = all[m] > sink ? all[m] : sink;
    float ea = num_exp(all[m] - max);
    all[l] = fmaf(all[l], ea, num_exp(sink - max));
    for (uint32_t d = 0; d < a->kv->v_dim; d++)
        all[d] = all[d] * ea;
}

/* partials as attend_combine has them, or NULL: computed here. */
static void query(const struct cpu_attend *a, uint32_t i, const float *partials)
{
    size_t floats = cpu_partial_floats(a->kv->v_dim), l = floats - 15;
    uint32_t first = cpu_attend_from(a, a->position[i]) / CPU_SPLIT;
    uint32_t earliest = cpu_attend_from(a, a->position[0]) / CPU_SPLIT;
    float *all = a->scratch + CPU_SPLIT, *partial = all + floats;
    for (uint32_t k = first; k <= a->position[i] / CPU_SPLIT; k++) {
        float *here = k == first ? all : partial;
        if (partials)
            memcpy(here, partials + ((k - earliest) * a->n + i) * floats, floats * sizeof(float));
        else
            partial_of(a, i, k, here);
        if (k > first)
            combine(a, all, partial);
    }
    if (a->sinks)
        add_sink(a, all, a->sink[i]);
    float r = 1.0f / all[l];
    for (uint32_t d = 0; d < a->kv->v_dim; d++)
        a->out[i][d] = all[d] * r;
}

void ref_attend(const struct cpu_attend *a)
{
    ref_attend_combine(a, NULL);
}

void ref_attend_split(const struct cpu_attend *a, uint32_t number, float *partials)
{
    for (uint32_t i = 0; i < a->n; i++)
        partial_of(a, i, number, partials + i * cpu_partial_floats(a->kv->v_dim));
}

void ref_attend_combine(const struct cpu_attend *a, const float *partials)
{
    for (uint32_t i = 0; i < a->n; i++)
        query(a, i, partials);
}
