/* The sample's sets against a second implementation of kernels/NUMERICS.md, "Samples", that sorts:
 * random vocabularies with ties and impossible tokens, random parameters and orders, both forms of
 * the lane loops. Ids and weights must be equal, not close. A double-precision softmax checks that
 * the specification itself is accurate. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sample/philox.h"
#include "kernels/sample/sample_impl.h"
#include "tests/run_suite.h"

/* ---- a source of test data: the n-th word of a stream, so that a failure can be repeated  */

struct random_stream {
    uint64_t seed;
    uint32_t n;
};

static uint32_t below(struct random_stream *r, uint32_t limit)
{
    return (uint32_t)((philox_sample(r->seed, r->n++) >> 32) * limit >> 32);
}

static float uniform(struct random_stream *r)
{
    return (float)below(r, 1u << 24) * 0x1p-24f;
}

enum shape { SPREAD, TIES, FEW_LEVELS, ALL_EQUAL, HUGE_VALUES, SHAPES };

static void fill_logits(struct random_stream *r, float *l, uint32_t n, enum shape shape)
{
    for (uint32_t i = 0; i < n; i++) {
        const float u = uniform(r) + uniform(r) + uniform(r) + uniform(r) - 2.0f; /* bell-shaped */
        l[i] = u * 12.0f;
        if (shape == TIES) {
            l[i] = rintf(u * 16.0f) * 0.25f;
        }
        if (shape == FEW_LEVELS) {
            l[i] = (float)below(r, 3) - 1.0f;
        }
        if (shape == ALL_EQUAL) {
            l[i] = -2.5f;
        }
        if (shape == HUGE_VALUES) {
            l[i] = u * 1.5e38f;
        }
        if (l[i] == 0.0f && below(r, 2) == 0) {
            l[i] = -0.0f;
        }
        if (shape != ALL_EQUAL && below(r, 50) == 0) {
            l[i] = -INFINITY;
        }
    }
    l[below(r, n)] = 3.0f; /* at least one is possible */
}

/* ---- the second implementation ---------------------------------------------------------- */

struct candidate {
    float l;
    float score; /* typical's */
    uint32_t id;
    uint64_t w;
};

struct set {
    uint32_t n;
    uint64_t total;
    struct candidate *c; /* [n] */
};

static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->l != y->l) {
        return x->l > y->l ? -1 : 1;
    }
    return x->id < y->id ? -1 : 1;
}

static int by_score(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->score != y->score) {
        return x->score < y->score ? -1 : 1;
    }
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->id < y->id ? -1 : 1;
}

/* Sorts, takes the weights anew; returns the largest logit. */
static float sort_and_weigh(struct set *s)
{
    qsort(s->c, s->n, sizeof(*s->c), by_logit);
    s->total = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        s->c[i].w = (uint64_t)((double)num_exp(s->c[i].l - s->c[0].l) * 0x1p40);
        s->total += s->c[i].w;
    }
    return s->c[0].l;
}

static void cut_to(struct set *s, uint64_t target)
{
    uint64_t sum = 0;
    uint32_t i = 0;
    while (sum < target) {
        sum += s->c[i++].w;
    }
    s->n = i;
}

static uint64_t floor_share(uint64_t total, float p)
{
    return (uint64_t)((unsigned __int128)total * (uint64_t)((double)p * 0x1p40) >> 40);
}

static void slow_typical(struct set *s, float p)
{
    const float max = sort_and_weigh(s);
    unsigned __int128 sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->c[i].w > 0) {
            sum += (unsigned __int128)s->c[i].w * (uint64_t)((double)(max - s->c[i].l) * 0x1p23);
        }
    }
    const float expected = (float)(uint64_t)(sum / s->total) * 0x1p-23f;
    for (uint32_t i = 0; i < s->n; i++) {
        s->c[i].score = fabsf((max - s->c[i].l) - expected);
    }
    const uint64_t target = floor_share(s->total, p) + 1;
    qsort(s->c, s->n, sizeof(*s->c), by_score);
    cut_to(s, target);
}

static void slow_top_p(struct set *s, float p)
{
    (void)sort_and_weigh(s);
    const unsigned __int128 exact = (unsigned __int128)s->total * (uint64_t)((double)p * 0x1p40);
    const uint64_t target = floor_share(s->total, p) + ((exact & (((uint64_t)1 << 40) - 1)) != 0);
    cut_to(s, target > 0 ? target : 1);
}

static void slow_stage(struct set *s, const struct sampler_params *p, uint8_t stage)
{
    const float max = sort_and_weigh(s);
    if (stage == SAMPLE_TOP_K && p->top_k > 0 && p->top_k < s->n) {
        s->n = p->top_k;
    }
    if (stage == SAMPLE_TOP_P && p->top_p < 1.0f) {
        slow_top_p(s, p->top_p);
    }
    if (stage == SAMPLE_TYPICAL_P && p->typical_p < 1.0f) {
        slow_typical(s, p->typical_p);
    }
    if (stage == SAMPLE_MIN_P && p->min_p > 0.0f) {
        const float least = p->min_p < 1.0f ? max + num_log(p->min_p) : max;
        uint32_t n = 0;
        while (n < s->n && s->c[n].l >= least) {
            n++;
        }
        s->n = n;
    }
    if (stage == SAMPLE_TEMPERATURE && p->temperature != 1.0f) {
        for (uint32_t i = 0; i < s->n; i++) {
            s->c[i].l = (s->c[i].l - max) / p->temperature;
        }
    }
}

static void slow_distribution(struct set *s, const struct sampler_params *p, const float *logits,
                              uint32_t n)
{
    s->n = n;
    for (uint32_t i = 0; i < n; i++) {
        s->c[i] = (struct candidate){.l = logits[i], .id = i};
    }
    for (uint32_t i = 0; i < p->n_order; i++) {
        slow_stage(s, p, p->order[i]);
    }
    (void)sort_and_weigh(s);
    qsort(s->c, s->n, sizeof(*s->c), by_id);
}

/* ---- comparisons ------------------------------------------------------------------------ */

static void random_params(struct random_stream *r, uint32_t n, struct sampler_params *p)
{
    static const float shares[] = {0.0f, 1e-7f, 0.05f, 0.3f, 0.5f, 0.9f, 0.999f, 0.9999999f, 1.0f};
    static const float temperatures[] = {1e-30f, 0.01f, 0.7f, 1.0f, 1.3f, 100.0f, 1e30f};
    sampler_params_init(p);
    p->temperature = temperatures[below(r, 7)];
    p->top_k = below(r, 3) == 0 ? 0 : 1 + below(r, n + n / 4 + 2);
    if (below(r, 2) == 0) {
        p->top_k = 1 + below(r, 40);
    }
    p->top_p = shares[below(r, 9)];
    p->typical_p = below(r, 2) == 0 ? 1.0f : shares[below(r, 9)];
    p->min_p = below(r, 2) == 0 ? 0.0f : shares[below(r, 9)];
    for (uint32_t i = SAMPLE_STAGES; i-- > 1;) { /* shuffle, then forget some */
        const uint32_t j = below(r, i + 1);
        const uint8_t t = p->order[i];
        p->order[i] = p->order[j];
        p->order[j] = t;
    }
    p->n_order = (uint8_t)(1 + below(r, SAMPLE_STAGES));
}

static bool equal_sets(const struct sample_kept *kept, const struct set *want)
{
    bool equal = kept->n == want->n && kept->total == want->total;
    for (uint32_t i = 0; equal && i < kept->n; i++) {
        equal = kept->ids[i] == want->c[i].id && kept->weights[i] == want->c[i].w;
    }
    return equal;
}

/* One random case; both lane forms against the slow set. */
static void compare_once(uint64_t seed, uint32_t n, enum shape shape)
{
    struct random_stream r = {seed, 0};
    float *l = malloc(n * sizeof(*l));
    struct set want = {.c = malloc(n * sizeof(*want.c))};
    struct sampler_scratch *s;
    struct sampler_params p;
    ck_assert(l != NULL && want.c != NULL && sampler_scratch_open(n, &s) == 0);
    fill_logits(&r, l, n, shape);
    random_params(&r, n, &p);
    slow_distribution(&want, &p, l, n);
    const struct sample_lanes native = s->lanes;
    for (int form = 0; form < 2; form++) {
        s->lanes = form == 0 ? native : sample_lanes_portable;
        struct sample_kept kept;
        const int rc = sample_distribution(&p, l, n, NULL, 0, 0, s, &kept);
        ck_assert_msg(rc == 0 && equal_sets(&kept, &want),
                      "seed %llu, %u tokens, shape %d, form %d: returned %d, %u kept, expected %u",
                      (unsigned long long)seed, n, (int)shape, form, rc, rc == 0 ? kept.n : 0,
                      want.n);
    }
    sampler_scratch_close(s);
    free(want.c);
    free(l);
}

START_TEST(small_vocabularies_equal_the_sorted_definition)
{
    for (uint64_t seed = 1; seed <= 2500; seed++) {
        struct random_stream r = {seed, 1u << 31};
        compare_once(seed, 1 + below(&r, seed % 3 == 0 ? 12 : 400), (enum shape)(seed % SHAPES));
    }
}
END_TEST

START_TEST(large_vocabularies_equal_the_sorted_definition)
{
    /* Large enough for the bound of top-k and several radix steps. */
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct random_stream r = {seed, 1u << 31};
        compare_once(seed, 5000 + below(&r, 30000), (enum shape)(seed % SHAPES));
    }
}
END_TEST

START_TEST(top_k_of_150000_tokens_is_exact_at_every_k)
{
    const uint32_t n = 150001;
    struct random_stream r = {7, 0};
    float *l = malloc(n * sizeof(*l));
    struct set want = {.n = n, .c = malloc(n * sizeof(*want.c))};
    struct sampler_scratch *s;
    ck_assert(l != NULL && want.c != NULL && sampler_scratch_open(n, &s) == 0);
    fill_logits(&r, l, n, TIES); /* about a hundred levels: the cut always falls among ties */
    for (uint32_t i = 0; i < n; i++) {
        want.c[i] = (struct candidate){.l = l[i], .id = i};
    }
    qsort(want.c, n, sizeof(*want.c), by_logit);
    static const uint32_t ks[] = {1,   2,   39,   40,     64,     500,    585,
                                  586, 587, 5000, 149999, 150000, 150001, 200000};
    for (size_t i = 0; i < sizeof(ks) / sizeof(ks[0]); i++) {
        struct sampler_params p;
        struct sample_kept kept;
        sampler_params_init(&p);
        p.temperature = 1.0f;
        p.top_k = ks[i];
        ck_assert_int_eq(sample_distribution(&p, l, n, NULL, 0, 0, s, &kept), 0);
        const uint32_t k = ks[i] < n ? ks[i] : n;
        ck_assert_uint_eq(kept.n, k);
        uint8_t *in = calloc(n, 1);
        ck_assert_ptr_nonnull(in);
        for (uint32_t j = 0; j < k; j++) {
            in[kept.ids[j]] = 1;
        }
        uint32_t missing = 0;
        for (uint32_t j = 0; j < k; j++) {
            missing += in[want.c[j].id] == 0;
        }
        ck_assert_uint_eq(missing, 0);
        free(in);
    }
    sampler_scratch_close(s);
    free(want.c);
    free(l);
}
END_TEST

/* Two tokens, of weights 2^40 and 65537, and p = 1 - 2^-24: the first one's weight lies between
 * floor(S p) and S p. Only rounding up sees that it does not reach p. */
START_TEST(top_p_is_exact_to_one_unit_of_weight)
{
    float l[2] = {0.0f, -16.6f};
    while ((uint64_t)(num_exp(l[1]) * SAMPLE_ONE) > 65537) {
        l[1] = nextafterf(l[1], -INFINITY);
    }
    ck_assert((uint64_t)(num_exp(l[1]) * SAMPLE_ONE) == 65537);
    struct sampler_scratch *s;
    struct sampler_params p;
    struct sample_kept kept;
    ck_assert_int_eq(sampler_scratch_open(2, &s), 0);
    sampler_params_init(&p);
    p.temperature = 1.0f;
    p.top_p = 0x1.fffffep-1f;
    ck_assert_int_eq(sample_distribution(&p, l, 2, NULL, 0, 0, s, &kept), 0);
    ck_assert_uint_eq(kept.n, 2);
    while ((uint64_t)(num_exp(l[1]) * SAMPLE_ONE) > 65536) { /* one unit less, and p is reached */
        l[1] = nextafterf(l[1], -INFINITY);
    }
    ck_assert_int_eq(sample_distribution(&p, l, 2, NULL, 0, 0, s, &kept), 0);
    ck_assert_uint_eq(kept.n, 1);
    sampler_scratch_close(s);
}
END_TEST

START_TEST(defaults_keep_the_distribution)
{
    struct sampler_params p;
    struct sampler_scratch *s;
    struct sample_kept kept;
    float logits[1000];
    const uint32_t tokens[3] = {0, 1, 2};
    for (uint32_t i = 0; i < 1000; i++) {
        logits[i] = (float)(i % 100) * 0.05f;
    }
    ck_assert_int_eq(sampler_scratch_open(1000, &s), 0);
    sampler_params_init(&p);
    ck_assert(p.temperature == 0.0f && p.seed == 0 && !p.logprobs && p.n_order == SAMPLE_STAGES);
    p.temperature = 1.0f; /* the only default that is not neutral */
    ck_assert_int_eq(sample_distribution(&p, logits, 1000, tokens, 3, 3, s, &kept), 0);
    ck_assert_uint_eq(kept.n, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        ck_assert(fabs((double)kept.weights[i] * 0x1p-40 -
                       exp((double)logits[i] - (double)logits[99])) < 1e-6);
    }
    sampler_scratch_close(s);
}
END_TEST

/* Any bits in the parameters: refused or sampled, never a crash, and the logits are restored. */
START_TEST(any_bits_in_the_parameters_are_survived)
{
    static const uint32_t special[] = {0x7fc00000u, 0x7f800000u, 0xff800000u, 0x80000000u, 1};
    float l[300], before[300];
    uint32_t tokens[20];
    struct sampler_scratch *s;
    uint32_t sampled = 0, refused = 0;
    ck_assert_int_eq(sampler_scratch_open(300, &s), 0);
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        struct random_stream r = {seed, 0};
        struct sampler_params p;
        struct sample sample = {0};
        fill_logits(&r, l, 300, (enum shape)(seed % SHAPES));
        memcpy(before, l, sizeof(l));
        for (uint32_t i = 0; i < 20; i++) {
            tokens[i] = below(&r, 300);
        }
        random_params(&r, 300, &p);
        float *const fields[] = {&p.temperature,     &p.typical_p,      &p.top_p,
                                 &p.min_p,           &p.repeat_penalty, &p.frequency_penalty,
                                 &p.presence_penalty};
        for (int i = 0; i < 3; i++) {
            const uint32_t bits = (uint32_t)philox_sample(seed, (1u << 30) + (uint32_t)i);
            *fields[below(&r, 7)] = num_float(below(&r, 2) == 0 ? bits : special[below(&r, 5)]);
        }
        p.penalty_last_n = (int32_t)philox_sample(seed, 1u << 29);
        p.logprobs = true;
        p.n_top = (uint8_t)below(&r, 256);
        const int rc = sample_token(&p, l, 300, tokens, 20, 5, s, &sample);
        sampled += rc == 0 && sample.token < 300 && before[sample.token] > -INFINITY;
        refused += rc == -EDOM;
        ck_assert_msg(memcmp(before, l, sizeof(l)) == 0, "seed %llu", (unsigned long long)seed);
    }
    ck_assert_uint_eq(sampled + refused, 4000);
    ck_assert(sampled > 1000 && refused > 100);
    sampler_scratch_close(s);
}
END_TEST

START_TEST(weights_are_accurate)
{
    const uint32_t n = 20000;
    struct random_stream r = {11, 0};
    float *l = malloc(n * sizeof(*l));
    struct sampler_scratch *s;
    ck_assert(l != NULL && sampler_scratch_open(n, &s) == 0);
    fill_logits(&r, l, n, SPREAD);
    struct sampler_params p;
    struct sample_kept kept;
    sampler_params_init(&p);
    p.temperature = 1.0f;
    ck_assert_int_eq(sample_distribution(&p, l, n, NULL, 0, 0, s, &kept), 0);
    ck_assert_uint_eq(kept.n, n);
    double sum = 0.0, worst = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)l[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        worst = fmax(worst,
                     fabs((double)kept.weights[i] / (double)kept.total - exp((double)l[i]) / sum));
    }
    ck_assert_msg(worst < 1e-7, "%g", worst);
    sampler_scratch_close(s);
    free(l);
}
END_TEST

/* ---- lane loops ------------------------------------------------------------------------- */

#if defined(__x86_64__)
enum { LANES_MAX = 700 };

static void compare_lanes(uint64_t seed, uint32_t n)
{
    const struct sample_lanes *a = &sample_lanes_portable, *b = &sample_lanes_avx2;
    struct random_stream r = {seed, 0};
    float l[LANES_MAX], la[LANES_MAX], lb[LANES_MAX], max_a = 0, max_b = 0;
    uint32_t index_a = 0, index_b = 0, ua[LANES_MAX] = {0}, ub[LANES_MAX] = {0};
    uint64_t wa[LANES_MAX], wb[LANES_MAX];
    fill_logits(&r, l, n, (enum shape)(seed % SHAPES));
    ck_assert(a->scan(l, n, &max_a, &index_a) == 0 && b->scan(l, n, &max_b, &index_b) == 0);
    ck_assert(num_bits(max_a) == num_bits(max_b) && index_a == index_b);
    ck_assert(a->weigh(l, n, max_a, wa) == b->weigh(l, n, max_a, wb));
    ck_assert(memcmp(wa, wb, n * sizeof(wa[0])) == 0);
    ck_assert(a->weigh(l, n, max_a, NULL) == b->weigh(l, n, max_a, NULL));
    ck_assert(a->rank(l, n, ua) == b->rank(l, n, ub) && memcmp(ua, ub, n * sizeof(ua[0])) == 0);
    memcpy(la, l, sizeof(l));
    memcpy(lb, l, sizeof(l));
    uint64_t bits[LANES_MAX / 64 + 1];
    for (uint32_t i = 0; i <= LANES_MAX / 64; i++) {
        bits[i] = i % 3 == 0 ? UINT64_MAX * (i & 1) : (seed + i) * 0x9e3779b97f4a7c15u;
    }
    a->allow(l, n, bits, la);
    b->allow(l, n, bits, lb);
    ck_assert(memcmp(la, lb, n * sizeof(la[0])) == 0);
    memcpy(la, l, sizeof(l));
    memcpy(lb, l, sizeof(l));
    a->temper(la, n, max_a, 0.7f);
    b->temper(lb, n, max_a, 0.7f);
    ck_assert(memcmp(la, lb, n * sizeof(la[0])) == 0);
    a->block_max(l, n, la);
    b->block_max(l, n, lb);
    for (uint32_t i = 0; i < n / SAMPLE_BLOCK; i++) {
        ck_assert(la[i] == lb[i]);
    }
    const uint32_t k = a->above(l, n, 1.0f, la, ua);
    ck_assert_uint_eq(b->above(l, n, 1.0f, lb, ub), k);
    ck_assert(memcmp(la, lb, k * sizeof(la[0])) == 0 && memcmp(ua, ub, k * sizeof(ua[0])) == 0);
}

START_TEST(avx2_loops_equal_the_portable_ones)
{
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        compare_lanes(seed, 1 + (uint32_t)(seed * 7 % LANES_MAX));
    }
}
END_TEST

START_TEST(both_scans_refuse_the_same_logits)
{
    static const uint32_t bad[] = {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0x7f800000u};
    float l[37], max;
    uint32_t index;
    for (uint32_t at = 0; at < 37; at++) {
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < 37; j++) {
                l[j] = (float)j;
            }
            l[at] = num_float(bad[i]);
            ck_assert_int_eq(sample_lanes_portable.scan(l, 37, &max, &index), -EDOM);
            ck_assert_int_eq(sample_lanes_avx2.scan(l, 37, &max, &index), -EDOM);
        }
    }
    for (int j = 0; j < 37; j++) {
        l[j] = -INFINITY;
    }
    ck_assert_int_eq(sample_lanes_portable.scan(l, 37, &max, &index), -EDOM);
    ck_assert_int_eq(sample_lanes_avx2.scan(l, 37, &max, &index), -EDOM);
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("sample_stages");
    TCase *sets = tcase_create("sets");
    tcase_add_test(sets, small_vocabularies_equal_the_sorted_definition);
    tcase_add_test(sets, large_vocabularies_equal_the_sorted_definition);
    tcase_add_test(sets, top_k_of_150000_tokens_is_exact_at_every_k);
    tcase_add_test(sets, top_p_is_exact_to_one_unit_of_weight);
    tcase_add_test(sets, defaults_keep_the_distribution);
    tcase_add_test(sets, any_bits_in_the_parameters_are_survived);
    tcase_add_test(sets, weights_are_accurate);
    tcase_set_timeout(sets, 120);
    suite_add_tcase(suite, sets);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        TCase *lanes = tcase_create("lanes");
        tcase_add_test(lanes, avx2_loops_equal_the_portable_ones);
        tcase_add_test(lanes, both_scans_refuse_the_same_logits);
        suite_add_tcase(suite, lanes);
    } else {
        fprintf(stderr, "skip: this machine has no AVX2 and FMA\n");
    }
#endif
    return run_suite(suite);
}
