/*
 * simd_attend: attention of up to CPU_QUERIES queries of one KV head, over vec.h. The body of
 * attend_avx2.c and attend_avx512.c. Scores have positions in the lanes, the weighted sum has
 * dimensions; in both, one lane is one chain of NUMERICS.md. Queries share the loads of K and V.
 */
#include "kernels/cpu/simd.h"
#include "kernels/cpu/vec.h"

enum {
    PAGE_VECTORS = KV_PAGE_POSITIONS / VEC,
    SCORE_QUERIES = VEC == 16 ? 4 : 2, /* queries taken together, as registers allow */
    SUM_QUERIES = VEC == 16 ? 4 : 2,
    SUM_VECTORS = 4,
};

/* A query's scratch. */
struct query {
    float e[CPU_SPLIT];        /* scores, then weights, of the split */
    float part[CPU_MAX_HEAD];  /* o of the split */
    float total[CPU_MAX_HEAD]; /* merged */
};
_Static_assert(sizeof(struct query) * CPU_QUERIES == CPU_ATTEND_SCRATCH * sizeof(float), "scratch");

/* M and L of the merged splits. */
struct running {
    float m[CPU_QUERIES], l[CPU_QUERIES];
};

static const uint8_t *page_at(const struct cpu_attend *a, uint32_t t)
{
    return a->memory + a->pages[t / KV_PAGE_POSITIONS] * a->kv->page_bytes;
}

/* VEC values of K or V from value i on; of int8 without their scale. */
ALWAYS_INLINE vf load_kv(const uint8_t *values, size_t i, enum kv_type type)
{
    return type == KV_F32    ? v_load((const float *)(const void *)values + i)
           : type == KV_Q8_0 ? v_load_i8(values + i)
                             : v_load_f16(values + 2 * i);
}

/* VEC positions of dimension d of a page's K, from position `slot` on. */
ALWAYS_INLINE vf load_k(const struct cpu_attend *a, const uint8_t *k, size_t d, size_t slot,
                        enum kv_type type)
{
    const float *scales = (const float *)(const void *)(k + kv_scales_offset(a->kv));
    vf values = load_kv(k, d * KV_PAGE_POSITIONS + slot, type);
    if (type != KV_Q8_0)
        return values;
    return v_mul(values, v_load(scales + d / KV_BLOCK * KV_PAGE_POSITIONS + slot));
}

/* VEC dimensions from d on of position t of a page's V. */
ALWAYS_INLINE vf load_v(const struct cpu_attend *a, const uint8_t *v, size_t t, size_t d,
                        enum kv_type type)
{
    const float *scales = (const float *)(const void *)(v + kv_scales_offset(a->kv));
    vf values = load_kv(v, t * a->kv->head_dim + d, type);
    if (type != KV_Q8_0)
        return values;
    return v_mul(values, v_set1(scales[t * a->kv->n_block + d / KV_BLOCK]));
}

/* Scores of a page for queries [i, i + n) into e[slot..]. */
ALWAYS_INLINE void score_page(const struct cpu_attend *a, const uint8_t *k, struct query *query,
                              uint32_t i, uint32_t slot, int n, enum kv_type type)
{
    vf acc[SCORE_QUERIES * PAGE_VECTORS];
    UNROLL
    for (int j = 0; j < n * PAGE_VECTORS; j++)
        acc[j] = v_zero();
    uint32_t head_dim = a->kv->head_dim;
    for (uint32_t d = 0; d < head_dim; d++) {
        vf key[PAGE_VECTORS];
        UNROLL
        for (int j = 0; j < PAGE_VECTORS; j++)
            key[j] = load_k(a, k, d, (size_t)j * VEC, type);
        UNROLL
        for (int c = 0; c < n; c++) {
            vf q = v_set1(a->q[i + (uint32_t)c][d]);
            UNROLL
            for (int j = 0; j < PAGE_VECTORS; j++)
                acc[c * PAGE_VECTORS + j] = v_fma(q, key[j], acc[c * PAGE_VECTORS + j]);
        }
    }
    vf scale = v_set1(a->scale);
    UNROLL
    for (int c = 0; c < n; c++) {
        UNROLL
        for (int j = 0; j < PAGE_VECTORS; j++)
            v_store(query[i + (uint32_t)c].e + slot + j * VEC,
                    v_mul(acc[c * PAGE_VECTORS + j], scale));
    }
}

/* Scores of positions [begin, end), whole pages, for queries from `first` on. */
ALWAYS_INLINE void score(const struct cpu_attend *a, struct query *query, uint32_t first,
                         uint32_t begin, uint32_t end, enum kv_type type)
{
    for (uint32_t t = begin; t < end; t += KV_PAGE_POSITIONS) {
        const uint8_t *k = page_at(a, t) + kv_k_offset(a->kv, a->layer, a->head_kv);
        uint32_t i = first;
#if defined(__AVX512F__)
        for (; i + 4 <= a->n; i += 4)
            score_page(a, k, query, i, t - begin, 4, type);
#endif
        for (; i + 2 <= a->n; i += 2)
            score_page(a, k, query, i, t - begin, 2, type);
        for (; i < a->n; i++)
            score_page(a, k, query, i, t - begin, 1, type);
    }
}

/* e [n] scores -> weights exp(s - m); returns m and l. Lanes past n weigh 0. */
static float soften(float *e, uint32_t n, float *ret_l)
{
    uint32_t i = 0, pages = (n + KV_PAGE_POSITIONS - 1) / KV_PAGE_POSITIONS;
    vf m = v_set1(-__builtin_inff());
    for (; i + VEC <= n; i += VEC)
        m = v_max(m, v_load(e + i));
    if (i < n) {
        vf v = v_keep(v_load(e + i), n - i);
        v_store(e + i, v);
        m = v_max(m, v);
        i += VEC;
    }
    for (; i < pages * KV_PAGE_POSITIONS; i += VEC)
        v_store(e + i, v_set1(-__builtin_inff()));
    float max = v_reduce_max(m);
    vf l[PAGE_VECTORS];
    UNROLL
    for (int j = 0; j < PAGE_VECTORS; j++)
        l[j] = v_zero();
    for (uint32_t p = 0; p < pages; p++, e += KV_PAGE_POSITIONS) {
        UNROLL
        for (int j = 0; j < PAGE_VECTORS; j++) {
            vf w = v_exp(v_sub(v_load(e + j * VEC), v_set1(max)));
            v_store(e + j * VEC, w);
            l[j] = v_add(l[j], w);
        }
    }
    *ret_l = v_tree32(l);
    return max;
}

/* o += e * V over positions [t, end) of a split that begins at `begin`, for `n` queries and `width`
 * vectors of dimensions from d on. */
ALWAYS_INLINE void sum_part(const struct cpu_attend *a, struct query *query, uint32_t begin,
                            uint32_t t, uint32_t end, uint32_t d, int n, int width,
                            enum kv_type type)
{
    vf o[SUM_QUERIES * SUM_VECTORS];
    UNROLL
    for (int j = 0; j < n * width; j++)
        o[j] = v_load(query[j / width].part + d + j % width * VEC);
    while (t < end) {
        uint32_t stop = (t / KV_PAGE_POSITIONS + 1) * KV_PAGE_POSITIONS;
        stop = stop < end ? stop : end;
        const uint8_t *v = page_at(a, t) + kv_v_offset(a->kv, a->layer, a->head_kv);
        for (; t < stop; t++) {
            vf value[SUM_VECTORS];
            UNROLL
            for (int j = 0; j < width; j++)
                value[j] = load_v(a, v, t % KV_PAGE_POSITIONS, d + (size_t)j * VEC, type);
            UNROLL
            for (int c = 0; c < n; c++) {
                vf e = v_set1(query[c].e[t - begin]);
                UNROLL
                for (int j = 0; j < width; j++)
                    o[c * width + j] = v_fma(e, value[j], o[c * width + j]);
            }
        }
    }
    UNROLL
    for (int j = 0; j < n * width; j++)
        v_store(query[j / width].part + d + j % width * VEC, o[j]);
}

/* All dimensions. The last vector of a head may reach into what follows it: lanes nobody reads. */
ALWAYS_INLINE void sum_queries(const struct cpu_attend *a, struct query *query, uint32_t begin,
                               uint32_t t, uint32_t end, int n, enum kv_type type)
{
    uint32_t d = 0, head_dim = a->kv->head_dim;
    for (; d + 3 * VEC < head_dim; d += 4 * VEC)
        sum_part(a, query, begin, t, end, d, n, 4, type);
    for (; d + VEC < head_dim; d += 2 * VEC)
        sum_part(a, query, begin, t, end, d, n, 2, type);
    for (; d < head_dim; d += VEC)
        sum_part(a, query, begin, t, end, d, n, 1, type);
}

/* Weighted sums of a split for queries from `first` on, query i over its own `terms[i]` positions:
 * the positions that all have in common first, then each one's rest. */
ALWAYS_INLINE void sum(const struct cpu_attend *a, struct query *query, uint32_t first,
                       uint32_t begin, const uint32_t *terms, enum kv_type type)
{
    uint32_t common = begin + terms[first], i = first; /* positions ascend: the first has least */
    for (uint32_t j = first; j < a->n; j++)
        memset(query[j].part, 0, sizeof query[j].part);
#if defined(__AVX512F__)
    for (; i + 4 <= a->n; i += 4)
        sum_queries(a, query + i, begin, begin, common, 4, type);
#endif
    for (; i + 2 <= a->n; i += 2)
        sum_queries(a, query + i, begin, begin, common, 2, type);
    for (; i < a->n; i++)
        sum_queries(a, query + i, begin, begin, common, 1, type);
    for (i = first; i < a->n; i++) {
        if (terms[i] > terms[first])
            sum_queries(a, query + i, begin, common, begin + terms[i], 1, type);
    }
}

static void merge(struct query *query, struct running *run, uint32_t i, float m, float l,
                  uint32_t head_dim)
{
    float max = run->m[i] > m ? run->m[i] : m;
    float ea = num_exp(run->m[i] - max);
    float eb = num_exp(m - max);
    run->l[i] = __builtin_fmaf(run->l[i], ea, l * eb);
    run->m[i] = max;
    for (uint32_t d = 0; d < head_dim; d += VEC) {
        vf part = v_mul(v_load(query->part + d), v_set1(eb));
        v_store(query->total + d, v_fma(v_load(query->total + d), v_set1(ea), part));
    }
}

ALWAYS_INLINE void attend_split(const struct cpu_attend *a, struct query *query,
                                struct running *run, uint32_t begin, enum kv_type type)
{
    uint32_t terms[CPU_QUERIES] = {0}, first = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t n = a->position[i] + 1;
        terms[i] = n <= begin ? 0 : n - begin < CPU_SPLIT ? n - begin : CPU_SPLIT;
        first += terms[i] == 0;
    }
    uint32_t most = terms[a->n - 1];
    score(a, query, first, begin, begin + most, type);
    float m[CPU_QUERIES], l[CPU_QUERIES];
    for (uint32_t i = first; i < a->n; i++)
        m[i] = soften(query[i].e, terms[i], &l[i]);
    sum(a, query, first, begin, terms, type);
    for (uint32_t i = first; i < a->n; i++) {
        if (begin > 0) {
            merge(&query[i], run, i, m[i], l[i], a->kv->head_dim);
        } else {
            run->m[i] = m[i];
            run->l[i] = l[i];
            memcpy(query[i].total, query[i].part, sizeof query[i].total);
        }
    }
}

#define SPLITS(name, type)                                                                         \
    static void name(const struct cpu_attend *a, struct query *query, struct running *run)         \
    {                                                                                              \
        for (uint32_t begin = 0; begin <= a->position[a->n - 1]; begin += CPU_SPLIT)               \
            attend_split(a, query, run, begin, type);                                              \
    }
SPLITS(splits_f16, KV_F16)
SPLITS(splits_f32, KV_F32)
SPLITS(splits_q8_0, KV_Q8_0)

void SIMD(simd_attend)(const struct cpu_attend *a)
{
    struct query *query = (struct query *)(void *)a->scratch;
    struct running run;
    if (a->kv->type == KV_F32)
        splits_f32(a, query, &run);
    else if (a->kv->type == KV_Q8_0)
        splits_q8_0(a, query, &run);
    else
        splits_f16(a, query, &run);
    for (uint32_t i = 0; i < a->n; i++) {
        vf r = v_set1(1.0f / run.l[i]);
        for (uint32_t d = 0; d < a->kv->head_dim; d += VEC)
            v_store(query[i].total + d, v_mul(v_load(query[i].total + d), r));
        memcpy(a->out[i], query[i].total, a->kv->head_dim * sizeof(float));
    }
}
