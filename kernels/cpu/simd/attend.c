/* attend.c: attention of up to CPU_QUERIES queries of one KV head, over vec.h; compiled for AVX2
 * and AVX-512 (VARIANTS_attend.c in the Makefile). For the scores SIMD lanes are positions, for the
 * weighted sum they are dimensions; in both, one lane is one chain of NUMERICS.md.
 *
 * All queries go through a split together, as many at a time as registers hold: a page of K, and
 * then of V, stays in L1 for all groups of queries. A group is large enough to hide the cost of
 * widening f16.
 */
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/vec.h"

enum {
    PAGE_VECTORS = KV_PAGE_POSITIONS / VEC,
    SCORE_QUERIES = VEC == 16 ? 8 : 6, /* most queries per group: register pressure */
    SUM_QUERIES = 6,
    SUM_VECTORS = 4,
    /* From the scores of a query to those of the next one: they map to different cache sets. */
    SCORES = CPU_SPLIT + 16,
};

/* The scratch of one worker. */
struct attention {
    float q[CPU_QUERIES * CPU_MAX_HEAD]; /* [group][k_dim][queries of a group] */
    float e[CPU_QUERIES][SCORES];        /* scores, then softmax weights, of the split */
    /* o of the split (a partial of split-KV attention), and combined over the splits */
    float partial[CPU_QUERIES][CPU_MAX_HEAD + 16], total[CPU_QUERIES][CPU_MAX_HEAD + 16];
    float m[CPU_QUERIES], l[CPU_QUERIES]; /* running max and sum of the combined splits */
};
_Static_assert(sizeof(struct attention) <= CPU_ATTEND_SCRATCH * sizeof(float), "scratch");

/* A split for the queries [first, last): earlier queries end before it, the sliding windows of
 * later ones begin after it. Positions are relative to its begin. */
struct split {
    uint32_t begin, first, last;
    /* queries per group when computing scores; the last group may have fewer */
    uint32_t group;
    uint32_t page;              /* first position of the first page that any query sees */
    uint32_t from[CPU_QUERIES]; /* first position of each query; ascending */
    uint32_t to[CPU_QUERIES];   /* end (exclusive) of each query's positions; ascending */
};

static const uint8_t *page_at(const struct cpu_attend *a, uint32_t t)
{
    return a->memory + a->pages[t / KV_PAGE_POSITIONS] * a->page_bytes;
}

/* K and V of the head in the page of position t. */
static const uint8_t *k_at(const struct cpu_attend *a, uint32_t t)
{
    return page_at(a, t) + kv_k_offset(a->kv, a->head_kv);
}

static const uint8_t *v_at(const struct cpu_attend *a, uint32_t t)
{
    return page_at(a, t) + kv_v_offset(a->kv, a->head_kv);
}

/* VEC values of K or V from value i on; int8 values are not scaled yet. */
ALWAYS_INLINE vf load_kv(const uint8_t *values, size_t i, enum kv_type type)
{
    return type == KV_F32    ? v_load((const float *)(const void *)values + i)
           : type == KV_Q8_0 ? v_load_i8(values + i)
                             : v_load_f16(values + 2 * i);
}

/* VEC positions of dimension d of a page's K, from position `in_page` on. */
ALWAYS_INLINE vf load_k(const struct cpu_attend *a, const uint8_t *k, size_t d, size_t in_page,
                        enum kv_type type)
{
    const float *scales = (const float *)(const void *)(k + kv_scales_offset(a->kv->k_dim));
    vf values = load_kv(k, d * KV_PAGE_POSITIONS + in_page, type);
    if (type != KV_Q8_0)
        return values;
    return v_mul(values, v_load(scales + d / KV_BLOCK * KV_PAGE_POSITIONS + in_page));
}

/* VEC dimensions of position t of a page's V, from d on; i: index of the first one's value. */
ALWAYS_INLINE vf load_v(const struct cpu_attend *a, const uint8_t *v, size_t i, size_t t, size_t d,
                        enum kv_type type)
{
    const float *scales = (const float *)(const void *)(v + kv_scales_offset(a->kv->v_dim));
    vf values = load_kv(v, i, type);
    if (type != KV_Q8_0)
        return values;
    return v_mul(values, v_set1(scales[t * a->kv->v_blocks + d / KV_BLOCK]));
}

/* Queries per group when n are divided evenly into groups of at most `most`. */
static uint32_t group_size(uint32_t n, uint32_t most)
{
    uint32_t groups = (n + most - 1) / most;
    return (n + groups - 1) / groups;
}

/* How many of `most` vectors are taken at once with n queries. With AVX2 the sums of three queries by
 * four vectors leave no register for the rest; one query by two would be too few chains. */
ALWAYS_INLINE int vectors_with(int n, int most)
{
    return VEC == 16 || n <= 2 ? most : 2;
}

/* Computes the scores of `width` vectors of a page for queries [i, i + n) into e[at..]. */
ALWAYS_INLINE void score_part(const struct cpu_attend *a, const uint8_t *k, struct attention *s,
                              uint32_t i, uint32_t at, int n, int width, enum kv_type type)
{
    const float *q = s->q + (size_t)i * a->kv->k_dim;
    vf acc[SCORE_QUERIES * PAGE_VECTORS];
    UNROLL
    for (int j = 0; j < n * width; j++)
        acc[j] = v_zero();
    uint32_t k_dim = a->kv->k_dim;
    UNROLL_TWICE
    for (uint32_t d = 0; d < k_dim; d++) {
        vf key[PAGE_VECTORS];
        UNROLL
        for (int j = 0; j < width; j++)
            key[j] = load_k(a, k, d, at % KV_PAGE_POSITIONS + (size_t)j * VEC, type);
        UNROLL
        for (int c = 0; c < n; c++) {
            vf x = v_set1(q[c]);
            UNROLL
            for (int j = 0; j < width; j++)
                acc[c * width + j] = v_fma(x, key[j], acc[c * width + j]);
        }
        q += n;
    }
    vf scale = v_set1(a->scale);
    UNROLL
    for (int c = 0; c < n; c++) {
        UNROLL
        for (int j = 0; j < width; j++)
            v_store(s->e[i + (uint32_t)c] + at + j * VEC, v_mul(acc[c * width + j], scale));
    }
}

#define SCORE_CASE(n)                                                                              \
    case n:                                                                                        \
        for (int p = 0; p < PAGE_VECTORS; p += vectors_with(n, PAGE_VECTORS))                      \
            score_part(a, k, s, i, in_page + (uint32_t)(p * VEC), n,                               \
                       vectors_with(n, PAGE_VECTORS), type);                                       \
        break;

ALWAYS_INLINE void score_group(const struct cpu_attend *a, const uint8_t *k, struct attention *s,
                               uint32_t i, uint32_t in_page, uint32_t n, enum kv_type type)
{
    switch (n) {
        SCORE_CASE(1)
        SCORE_CASE(2)
        SCORE_CASE(3)
        SCORE_CASE(4)
        SCORE_CASE(5)
        SCORE_CASE(6)
#if defined(__AVX512F__)
        SCORE_CASE(7)
        SCORE_CASE(8)
#endif
    default:
        break;
    }
}

/* Asks for memory that is read soon: a head's part of a page is too short for the processor to do so
 * by itself. One of so many parts of it, as asking for much at once makes the processor wait. */
static void read_ahead(const uint8_t *memory, size_t bytes, uint32_t part, uint32_t parts)
{
    size_t each = (bytes / 64 + parts - 1) / parts * 64;
    for (size_t i = part * each; i < (part + 1) * each && i < bytes; i += 64)
        __builtin_prefetch(memory + i, 0, 2);
}

/* Computes the scores of whole pages, from the first to the last that a query needs. Meanwhile the
 * page's V and the next page's K are read into the cache. */
ALWAYS_INLINE void score(const struct cpu_attend *a, struct attention *s, const struct split *split,
                         enum kv_type type)
{
    uint32_t first = split->first / split->group,
             groups = (split->last - 1) / split->group - first + 1;
    for (uint32_t t = split->page; t < split->to[split->last - 1]; t += KV_PAGE_POSITIONS) {
        const uint32_t at = split->begin + t, next = at + KV_PAGE_POSITIONS;
        const uint8_t *k = k_at(a, at), *v = v_at(a, at);
        const uint8_t *next_k = next <= a->position[a->n - 1] ? k_at(a, next) : NULL;
        for (uint32_t g = 0; g < groups; g++) {
            uint32_t i = (first + g) * split->group;
            read_ahead(v, a->kv->v_bytes, g, groups);
            if (next_k)
                read_ahead(next_k, a->kv->k_bytes, g, groups);
            score_group(a, k, s, i, t, a->n - i < split->group ? a->n - i : split->group, type);
        }
    }
}

/* Interleaves the queries of each group. */
static void gather_queries(const struct cpu_attend *a, struct attention *s, uint32_t group)
{
    float *to = s->q;
    for (uint32_t i = 0; i < a->n; i += group) {
        uint32_t n = a->n - i < group ? a->n - i : group;
        for (uint32_t d = 0; d < a->kv->k_dim; d++) {
            for (uint32_t c = 0; c < n; c++)
                *to++ = a->q[i + c][d];
        }
    }
}

/* Softmax numerators: e [n] scores -> weights exp(s - m); returns m and the sum l. Lanes before
 * `from` and from n on get weight 0. */
static float softmax_weights(float *e, uint32_t from, uint32_t n, float *ret_l)
{
    uint32_t i = 0, pages = (n + KV_PAGE_POSITIONS - 1) / KV_PAGE_POSITIONS;
    vf m = v_set1(-__builtin_inff());
    for (; i < from; i++)
        e[i] = -__builtin_inff();
    i = 0;
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

/* Terms of the weighted sums of queries from i on: positions [from, to) of the split, which lie in
 * the page that begins at `page`. */
struct terms {
    const uint8_t *v; /* the page's V */
    uint32_t page, from, to, i;
};

/* o += e * V for `width` vectors of dimensions from d on. */
ALWAYS_INLINE void sum_part(const struct cpu_attend *a, struct attention *s,
                            const struct terms *terms, uint32_t d, int n, int width,
                            enum kv_type type)
{
    vf o[SUM_QUERIES * SUM_VECTORS];
    UNROLL
    for (int j = 0; j < n * width; j++)
        o[j] = v_load(s->partial[terms->i + (uint32_t)(j / width)] + d + j % width * VEC);
    const float *e = s->e[terms->i] + terms->from, *end = s->e[terms->i] + terms->to;
    size_t t = terms->from - terms->page, v_dim = a->kv->v_dim, first = t * v_dim + d;
    UNROLL_TWICE
    for (; e != end; e++) {
        vf value[SUM_VECTORS];
        UNROLL
        for (int j = 0; j < width; j++)
            value[j] = load_v(a, terms->v, first + (size_t)j * VEC, t, d + (size_t)j * VEC, type);
        UNROLL
        for (int c = 0; c < n; c++) {
            vf x = v_set1(e[c * SCORES]);
            UNROLL
            for (int j = 0; j < width; j++)
                o[c * width + j] = v_fma(x, value[j], o[c * width + j]);
        }
        first += v_dim;
        t++;
    }
    UNROLL
    for (int j = 0; j < n * width; j++)
        v_store(s->partial[terms->i + (uint32_t)(j / width)] + d + j % width * VEC, o[j]);
}

/* All dimensions. The last vector of a head may extend into what follows it; those lanes are not
 * used. */
ALWAYS_INLINE void sum_queries(const struct cpu_attend *a, struct attention *s,
                               const struct terms *terms, int n, enum kv_type type)
{
    uint32_t d = 0, v_dim = a->kv->v_dim;
    if (vectors_with(n, SUM_VECTORS) == 4)
        for (; d + 3 * VEC < v_dim; d += 4 * VEC)
            sum_part(a, s, terms, d, n, 4, type);
    for (; d + VEC < v_dim; d += 2 * VEC)
        sum_part(a, s, terms, d, n, 2, type);
    for (; d < v_dim; d += VEC)
        sum_part(a, s, terms, d, n, 1, type);
}

#define SUM_CASE(n)                                                                                \
    case n:                                                                                        \
        sum_queries(a, s, &terms, n, type);                                                        \
        break;

/* Terms of n queries; those of positions in other pages are left out. */
ALWAYS_INLINE void sum_group(const struct cpu_attend *a, struct attention *s, struct terms terms,
                             uint32_t n, enum kv_type type)
{
    const uint32_t end = terms.page + KV_PAGE_POSITIONS;
    terms.from = terms.from > terms.page ? terms.from : terms.page;
    terms.to = terms.to < end ? terms.to : end;
    if (terms.from >= terms.to)
        return;
    switch (n) {
        SUM_CASE(1)
        SUM_CASE(2)
        SUM_CASE(3)
        SUM_CASE(4)
        SUM_CASE(5)
        SUM_CASE(6)
    default:
        break;
    }
}

/* Weighted sums of a split, page by page: each group goes over the positions up to the end of its
 * first query, then each query over the rest of its own. Positions before a query's window have
 * weight 0, and adding 0 to a sum that is still +0 changes nothing. */
ALWAYS_INLINE void sum(const struct cpu_attend *a, struct attention *s, const struct split *split,
                       enum kv_type type)
{
    uint32_t per = group_size(split->last - split->first, SUM_QUERIES);
    for (uint32_t t = split->page; t < split->to[split->last - 1]; t += KV_PAGE_POSITIONS) {
        const uint8_t *v = v_at(a, split->begin + t);
        for (uint32_t i = split->first; i < split->last; i += per) {
            uint32_t n = split->last - i < per ? split->last - i : per, common = split->to[i];
            sum_group(a, s, (struct terms){v, t, split->from[i], common, i}, n, type);
            for (uint32_t j = i + 1; j < i + n; j++)
                sum_group(a, s, (struct terms){v, t, common, split->to[j], j}, 1, type);
        }
    }
}

/* Maxima and sums of a split, and the factors that it and the combined splits before it are
 * multiplied by when they are combined. */
struct factors {
    float m[CPU_QUERIES], l[CPU_QUERIES];
    float before[CPU_QUERIES], now[CPU_QUERIES];
};

/* For all n queries, even those that need no factor: computing exp for a whole vector is cheap. */
static void split_factors(const struct attention *s, struct factors *j, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += VEC) {
        vf before = v_load(s->m + i), now = v_load(j->m + i), max = v_max(before, now);
        v_store(j->before + i, v_exp(v_sub(before, max)));
        v_store(j->now + i, v_exp(v_sub(now, max)));
    }
}

/* Combines query i's split with those before (split-KV). */
static void combine_query(struct attention *s, uint32_t i, const struct factors *j, uint32_t v_dim)
{
    float before = j->before[i], now = j->now[i];
    s->l[i] = __builtin_fmaf(s->l[i], before, j->l[i] * now);
    s->m[i] = s->m[i] > j->m[i] ? s->m[i] : j->m[i];
    for (uint32_t d = 0; d < v_dim; d += VEC) {
        vf part = v_mul(v_load(s->partial[i] + d), v_set1(now));
        v_store(s->total[i] + d, v_fma(v_load(s->total[i] + d), v_set1(before), part));
    }
}

/* Finds which queries see which positions of this split; false if none do. */
static bool find_queries(const struct cpu_attend *a, struct split *split)
{
    uint32_t begin = split->begin;
    split->first = split->last = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t n = a->position[i] + 1, from = cpu_attend_from(a, a->position[i]);
        split->from[i] = from <= begin ? 0 : from - begin;
        split->to[i] = n <= begin ? 0 : n - begin < CPU_SPLIT ? n - begin : CPU_SPLIT;
        split->first += split->to[i] == 0;
        split->last += split->from[i] < CPU_SPLIT;
    }
    if (split->first == split->last)
        return false;
    split->page = split->from[split->first] / KV_PAGE_POSITIONS * KV_PAGE_POSITIONS;
    return true;
}

/* Partials of all queries that see some of the split; false if none do. */
ALWAYS_INLINE bool weigh(const struct cpu_attend *a, struct attention *s, struct split *split,
                         struct factors *j, enum kv_type type)
{
    uint32_t padded = (a->kv->v_dim + VEC - 1) / VEC * VEC;
    if (!find_queries(a, split))
        return false;
    score(a, s, split, type);
    for (uint32_t i = split->first; i < split->last; i++) {
        j->m[i] = softmax_weights(s->e[i] + split->page, split->from[i] - split->page,
                                  split->to[i] - split->page, &j->l[i]);
        memset(s->partial[i], 0, padded * sizeof(float));
    }
    sum(a, s, split, type);
    return true;
}

#define WEIGH(name, type)                                                                          \
    static bool name(const struct cpu_attend *a, struct attention *s, struct split *split,         \
                     struct factors *j)                                                            \
    {                                                                                              \
        return weigh(a, s, split, j, type);                                                        \
    }
WEIGH(weigh_f16, KV_F16)
WEIGH(weigh_f32, KV_F32)
WEIGH(weigh_q8_0, KV_Q8_0)

static bool weigh_split(const struct cpu_attend *a, struct attention *s, struct split *split,
                        struct factors *j)
{
    switch (a->kv->type) {
    case KV_F32:
        return weigh_f32(a, s, split, j);
    case KV_Q8_0:
        return weigh_q8_0(a, s, split, j);
    default:
        return weigh_f16(a, s, split, j);
    }
}

/* The first split that a query sees, with this many queries per group. */
static struct split first_split(const struct cpu_attend *a, uint32_t group)
{
    uint32_t from = cpu_attend_from(a, a->position[0]);
    return (struct split){.group = group, .begin = from / CPU_SPLIT * CPU_SPLIT};
}

/* Combines a split's partials with those of the splits before. */
static void combine(const struct cpu_attend *a, struct attention *s, const struct split *split,
                    struct factors *j)
{
    uint32_t begin = split->begin, padded = (a->kv->v_dim + VEC - 1) / VEC * VEC;
    if (begin > 0)
        split_factors(s, j, split->last);
    for (uint32_t i = split->first; i < split->last; i++) {
        if (cpu_attend_from(a, a->position[i]) < begin) {
            combine_query(s, i, j, a->kv->v_dim);
        } else {
            s->m[i] = j->m[i];
            s->l[i] = j->l[i];
            memcpy(s->total[i], s->partial[i], padded * sizeof(float));
        }
    }
}

/* A sink is one more split, of l 1 and without o. */
static void add_sinks(const struct cpu_attend *a, struct attention *s)
{
    struct factors j;
    memcpy(j.m, a->sink, sizeof(j.m));
    split_factors(s, &j, a->n);
    for (uint32_t i = 0; i < a->n; i++) {
        vf before = v_set1(j.before[i]);
        s->l[i] = __builtin_fmaf(s->l[i], j.before[i], j.now[i]);
        for (uint32_t d = 0; d < a->kv->v_dim; d += VEC)
            v_store(s->total[i] + d, v_mul(v_load(s->total[i] + d), before));
    }
}

static void write_out(const struct cpu_attend *a, struct attention *s)
{
    if (a->sinks)
        add_sinks(a, s);
    for (uint32_t i = 0; i < a->n; i++) {
        vf r = v_set1(1.0f / s->l[i]);
        for (uint32_t d = 0; d < a->kv->v_dim; d += VEC)
            v_store(s->total[i] + d, v_mul(v_load(s->total[i] + d), r));
        memcpy(a->out[i], s->total[i], a->kv->v_dim * sizeof(float));
    }
}

void SIMD(simd_attend)(const struct cpu_attend *a)
{
    struct attention *s = (struct attention *)(void *)a->scratch;
    struct split split = first_split(a, group_size(a->n, SCORE_QUERIES));
    gather_queries(a, s, split.group);
    for (; split.begin <= a->position[a->n - 1]; split.begin += CPU_SPLIT) {
        struct factors j = {0};
        if (weigh_split(a, s, &split, &j))
            combine(a, s, &split, &j);
    }
    write_out(a, s);
}

void SIMD(simd_attend_split)(const struct cpu_attend *a, uint32_t number, float *partials)
{
    struct attention *s = (struct attention *)(void *)a->scratch;
    size_t floats = cpu_partial_floats(a->kv->v_dim), o = floats - 16;
    struct split split = {.group = group_size(a->n, SCORE_QUERIES), .begin = number * CPU_SPLIT};
    struct factors j;
    gather_queries(a, s, split.group);
    if (!weigh_split(a, s, &split, &j))
        return;
    for (uint32_t i = split.first; i < split.last; i++) {
        float *partial = partials + i * floats;
        memcpy(partial, s->partial[i], o * sizeof(float));
        partial[o] = j.m[i];
        partial[o + 1] = j.l[i];
    }
}

void SIMD(simd_attend_combine)(const struct cpu_attend *a, const float *partials)
{
    struct attention *s = (struct attention *)(void *)a->scratch;
    size_t floats = cpu_partial_floats(a->kv->v_dim), o = floats - 16;
    struct split split = first_split(a, 1);
    for (; split.begin <= a->position[a->n - 1]; split.begin += CPU_SPLIT) {
        struct factors j = {0};
        bool seen = find_queries(a, &split);
        for (uint32_t i = split.first; i < split.last; i++) {
            const float *partial = partials + i * floats;
            memcpy(s->partial[i], partial, o * sizeof(float));
            j.m[i] = partial[o];
            j.l[i] = partial[o + 1];
        }
        if (seen)
            combine(a, s, &split, &j);
        partials += a->n * floats;
    }
    write_out(a, s);
}
