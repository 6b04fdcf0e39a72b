/* KV and attention: AVX2 (and AVX-VNNI) and AVX-512 equal the reference bit for bit, whole and
 * split. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/run_suite.h"
#include "tests/rig/cpu_help.h"

struct cache {
    struct kv_geometry kv;
    const struct kv_layer *layer; /* that is looked at; the one before it has other sizes */
    uint8_t *memory;
    uint32_t pages[64];
};

static void cache_open(struct cache *c, uint32_t n_head_kv, uint32_t k_dim, uint32_t v_dim,
                       int type)
{
    c->kv = (struct kv_geometry){.type = (enum kv_type)type};
    kv_geometry_add(&c->kv, PAGES_FULL, 1, 6, 34);
    kv_geometry_add(&c->kv, PAGES_FULL, n_head_kv, k_dim, v_dim);
    c->layer = &c->kv.layer[1];
    c->memory = help_memory(64 * c->kv.page_bytes[PAGES_FULL] + 64);
    for (uint32_t i = 0; i < 64; i++)
        c->pages[i] = (i * 37 + 5) % 64; /* any order */
}

START_TEST(append_equals_reference)
{
    uint64_t seed = 5;
    const uint32_t dims[] = {2, 6, 8, 12, 16, 20, 64, 128};
    FOR_ISAS(isa)
    {
        for (size_t s = 0; s < sizeof(dims) / sizeof(dims[0]); s++) {
            struct cache a, b;
            const uint32_t v_dim = dims[(s + 3) % 8];
            cache_open(&a, 3, dims[s], v_dim, _i);
            cache_open(&b, 3, dims[s], v_dim, _i);
            float k[3 * 128], v[3 * 128];
            for (uint32_t slot = 0; slot < 32; slot++) {
                help_fill(&seed, slot % 2 ? HELP_NORMAL : HELP_DENORMAL, k, 3 * dims[s]);
                help_fill(&seed, HELP_SPIKE, v, 3 * v_dim);
                for (uint32_t i = 0; i < 3 * dims[s]; i += 2)
                    k[i] = ldexpf(k[i], -(int)(help_random(&seed) % 30)); /* f16 denormals too */
                ref_append(a.layer, a.memory, slot, k, v);
                isa->append(b.layer, b.memory, slot, k, v);
            }
            ck_assert_mem_eq(a.memory, b.memory, a.kv.page_bytes[PAGES_FULL]);
            free(a.memory), free(b.memory);
        }
    }
}
END_TEST

static void fill_cache(struct cache *c, uint64_t *seed, uint32_t positions, float size)
{
    float k[CPU_MAX_HEAD * 4], v[CPU_MAX_HEAD * 4];
    for (uint32_t t = 0; t < positions; t++) {
        for (const struct kv_layer *l = c->kv.layer; l <= c->layer; l++) {
            help_fill(seed, HELP_NORMAL, k, l->n_head_kv * l->k_dim);
            help_fill(seed, HELP_NORMAL, v, l->n_head_kv * l->v_dim);
            for (uint32_t i = 0; i < l->n_head_kv * l->k_dim; i++)
                k[i] = k[i] * size;
            ref_append(l, c->memory + c->pages[t / 32] * c->kv.page_bytes[PAGES_FULL], t % 32, k,
                       v);
        }
    }
}

/* Each split by itself, the last one first, then combined. */
static void attend_in_pieces(const struct cpu_isa *isa, const struct cpu_attend *job)
{
    uint32_t first = cpu_attend_from(job, job->position[0]) / CPU_SPLIT;
    uint32_t splits = job->position[job->n - 1] / CPU_SPLIT - first + 1;
    size_t floats = job->n * cpu_partial_floats(job->kv->v_dim);
    float *parts = help_exact(NULL, splits * floats);
    for (uint32_t i = splits; i-- > 0;)
        isa->attend_split(job, first + i, parts + i * floats);
    isa->attend_combine(job, parts);
    free(parts);
}

/* out [n][v_dim] */
static void attend(const struct cpu_isa *isa, struct cpu_attend *job, bool in_pieces, float *out)
{
    for (uint32_t i = 0; i < job->n; i++)
        job->out[i] = out + i * job->kv->v_dim;
    if (in_pieces)
        attend_in_pieces(isa, job);
    else
        isa->attend(job);
}

/* Every instruction set, and the reference in splits, against the whole reference. sinks [n], or
 * NULL; with them the scores of every fifth query are zeros. */
static void attend_with(struct cache *c, uint64_t *seed, uint32_t window, const float *sinks,
                        uint32_t n, const uint32_t *positions)
{
    const struct cpu_isa *isas[HELP_ISAS + 1] = {&cpu_isa_ref};
    int n_isas = 1 + help_isas(isas + 1);
    const uint32_t k_dim = c->layer->k_dim, dim = c->layer->v_dim;
    float *q = help_exact(NULL, n * k_dim), *want = help_exact(NULL, n * dim);
    struct cpu_attend job = {.kv = c->layer,
                             .memory = c->memory,
                             .page_bytes = c->kv.page_bytes[PAGES_FULL],
                             .pages = c->pages,
                             .head_kv = c->layer->n_head_kv - 1,
                             .scale = 1.0f / sqrtf((float)k_dim),
                             .sliding_window = window,
                             .sinks = sinks != NULL,
                             .n = n,
                             .scratch = help_memory(CPU_ATTEND_SCRATCH * sizeof(float))};
    help_fill(seed, HELP_NORMAL, q, n * k_dim);
    for (uint32_t i = 0; i < n; i++) {
        job.position[i] = positions[i];
        job.q[i] = q + i * k_dim;
        job.sink[i] = sinks ? sinks[i] : 0;
        if (sinks && i % 5 == 0)
            memset(q + i * k_dim, 0, k_dim * sizeof(*q));
    }
    attend(&cpu_isa_ref, &job, false, want);
    for (int way = 1; way < 2 * n_isas; way++) {
        float *got = help_exact(NULL, n * dim);
        attend(isas[way / 2], &job, way % 2 == 1, got);
        size_t at = help_differs(want, got, n * dim), i = at / dim < n ? at / dim : 0;
        ck_assert_msg(
            at == n * dim,
            "%s%s, heads of %u and %u, window %u, %u queries, query %zu at %u, [%zu]: %a for %a",
            isas[way / 2]->name, way % 2 == 1 ? " in pieces" : "", k_dim, dim, window, n, i,
            positions[i], at % dim, (double)got[at], (double)want[at]);
        free(got);
    }
    free(q), free(want), free(job.scratch);
}

static void attend_all(struct cache *c, uint64_t *seed, uint32_t window, uint32_t n,
                       const uint32_t *positions)
{
    attend_with(c, seed, window, NULL, n, positions);
}

/* Positions around page and split boundaries, queries at one position or at several. */
START_TEST(attention_equals_reference)
{
    uint64_t seed = 6;
    const uint32_t dims[] = {2, 8, 10, 16, 24, 32, 48, 64, 80, 96, 128, 256, 330, 512};
    const uint32_t bases[] = {0, 1, 30, 31, 32, 63, 200, 250, 255, 256, 257, 511, 512, 600};
    for (size_t s = 0; s < sizeof(dims) / sizeof(dims[0]); s++) {
        struct cache c;
        cache_open(&c, 2, dims[s], dims[s % 2 ? s : (s + 3) % 14], _i);
        fill_cache(&c, &seed, 640, s % 3 == 0 ? 8.0f : 1.0f);
        for (size_t p = 0; p < sizeof(bases) / sizeof(bases[0]); p++) {
            uint32_t n = 1 + (uint32_t)((p + s) % CPU_QUERIES), same[CPU_QUERIES], up[CPU_QUERIES];
            for (uint32_t i = 0; i < n; i++) {
                same[i] = bases[p];
                up[i] = bases[p] + i / (1 + (uint32_t)s % 3);
            }
            attend_all(&c, &seed, MODEL_NO_WINDOW, n, same);
            attend_all(&c, &seed, MODEL_NO_WINDOW, n, up);
        }
        free(c.memory);
    }
}
END_TEST

/* Every number of queries: groups of every size, also where only some rows reach a split, and where
 * each query has its own position. */
START_TEST(attention_of_any_number_of_queries_equals_reference)
{
    uint64_t seed = 8;
    const uint32_t dims[] = {10, 64, 112}, bases[] = {0, 27, 253, 500}, heads[] = {1, 2, 7, 64};
    for (size_t s = 0; s < sizeof(dims) / sizeof(dims[0]); s++) {
        struct cache c;
        cache_open(&c, 1, dims[s], dims[(s + 1) % 3], _i);
        fill_cache(&c, &seed, 576, 2.0f);
        for (uint32_t n = 1; n <= CPU_QUERIES; n++) {
            uint32_t base = bases[(n + s) % 4], up[CPU_QUERIES];
            for (uint32_t i = 0; i < n; i++)
                up[i] = base + i / heads[n / 4 % 4];
            attend_all(&c, &seed, MODEL_NO_WINDOW, n, up);
        }
        free(c.memory);
    }
}
END_TEST

/* Windows smaller than a page, smaller than the queries' positions, around a split, longer than the
 * text. */
START_TEST(attention_in_a_window_equals_reference)
{
    uint64_t seed = 9;
    const uint32_t dims[] = {10, 64, 256}, heads[] = {1, 3, 64};
    const uint32_t bases[] = {0, 31, 255, 256, 300, 511, 570};
    const uint32_t windows[] = {1, 2, 31, 32, 33, 64, 200, 255, 256, 257, 300, 512, 5000};
    for (size_t s = 0; s < sizeof(dims) / sizeof(dims[0]); s++) {
        struct cache c;
        cache_open(&c, 1, dims[s], dims[(s + 1) % 3], _i);
        fill_cache(&c, &seed, 640, 2.0f);
        for (size_t w = 0; w < sizeof(windows) / sizeof(windows[0]); w++) {
            for (size_t p = 0; p < sizeof(bases) / sizeof(bases[0]); p++) {
                uint32_t n = 1 + (uint32_t)(w * 11 + p * 7 + s) % CPU_QUERIES, up[CPU_QUERIES];
                for (uint32_t i = 0; i < n; i++)
                    up[i] = bases[p] + i / heads[(w + p) % 3];
                attend_all(&c, &seed, windows[w], n, up);
            }
        }
        const uint32_t apart[] = {3, 5, 600}; /* a split outside every window */
        attend_all(&c, &seed, 7, 3, apart);
        free(c.memory);
    }
}
END_TEST

/* Sinks of all sizes, a query beside another's: none, so small that its exp is 0, as large as the
 * largest score, so large that the weights vanish. One split and many, in windows and without. */
START_TEST(attention_with_sinks_equals_reference)
{
    uint64_t seed = 11;
    const float sizes[] = {-INFINITY, -3e38f, -90, 0, -0.0f, 1, 9, 1e4f, 3e38f};
    const uint32_t dims[] = {10, 64}, windows[] = {1, 128, 300, MODEL_NO_WINDOW};
    const uint32_t bases[] = {0, 31, 127, 128, 255, 256, 383, 600, 1980};
    for (size_t s = 0; s < sizeof(dims) / sizeof(dims[0]); s++) {
        struct cache c;
        cache_open(&c, 2, dims[s], dims[1 - s], _i);
        fill_cache(&c, &seed, 2048, 2.0f);
        for (size_t w = 0; w < sizeof(windows) / sizeof(windows[0]); w++) {
            for (size_t p = 0; p < sizeof(bases) / sizeof(bases[0]); p++) {
                uint32_t n = 1 + (uint32_t)(w * 29 + p * 7) % CPU_QUERIES, up[CPU_QUERIES];
                float sinks[CPU_QUERIES];
                for (uint32_t i = 0; i < n; i++) {
                    up[i] = bases[p] + i / (1 + (uint32_t)p % 3);
                    sinks[i] = sizes[(i + p) % 9];
                }
                attend_with(&c, &seed, windows[w], sinks, n, up);
            }
        }
        free(c.memory);
    }
}
END_TEST

/* ---- the reference against double precision ----------------------------------------------------
 */

enum { DIM = 16, POSITION = 300 };

/* One query at POSITION and its KV, in f32. */
struct single {
    struct cache c;
    float q[DIM], out[DIM];
    struct cpu_attend job;
};

static void single_open(struct single *x)
{
    uint64_t seed = 10;
    cache_open(&x->c, 1, DIM, DIM, KV_F32);
    fill_cache(&x->c, &seed, POSITION + 1, 1.0f);
    help_fill(&seed, HELP_NORMAL, x->q, DIM);
    x->job = (struct cpu_attend){.kv = x->c.layer,
                                 .memory = x->c.memory,
                                 .page_bytes = x->c.kv.page_bytes[PAGES_FULL],
                                 .pages = x->c.pages,
                                 .scale = 0.25f,
                                 .sliding_window = MODEL_NO_WINDOW,
                                 .n = 1,
                                 .position = {POSITION},
                                 .q = {x->q},
                                 .out = {x->out},
                                 .scratch = help_memory(CPU_ATTEND_SCRATCH * sizeof(float))};
    ref_attend(&x->job);
}

static void single_close(struct single *x)
{
    free(x->job.scratch);
    free(x->c.memory);
}

/* x->out is that of the last `window` positions and a sink. */
static void check_single(const struct single *x, uint32_t window, double sink)
{
    double sum = exp(sink), want[DIM] = {0};
    for (uint32_t t = POSITION + 1 - window; t <= POSITION; t++) {
        const uint8_t *page = x->c.memory + x->c.pages[t / 32] * x->c.kv.page_bytes[PAGES_FULL];
        const float *k = (const float *)(const void *)(page + kv_k_offset(x->c.layer, 0));
        const float *v = (const float *)(const void *)(page + kv_v_offset(x->c.layer, 0));
        double s = 0;
        for (uint32_t d = 0; d < DIM; d++)
            s += (double)x->q[d] * (double)k[d * 32 + t % 32];
        s = exp(0.25 * s);
        sum += s;
        for (uint32_t d = 0; d < DIM; d++)
            want[d] += s * (double)v[t % 32 * DIM + d];
    }
    for (uint32_t d = 0; d < DIM; d++)
        ck_assert_double_eq_tol((double)x->out[d], want[d] / sum, 1e-5);
}

/* A window longer than the text keeps every bit. */
START_TEST(a_window_covers_the_last_positions)
{
    const uint32_t windows[] = {1, 40, 256, 299, 300, 301};
    struct single x;
    float all[DIM];
    single_open(&x);
    memcpy(all, x.out, sizeof(all));
    for (size_t w = 0; w < sizeof(windows) / sizeof(windows[0]); w++) {
        x.job.sliding_window = windows[w];
        ref_attend(&x.job);
        check_single(&x, windows[w], -INFINITY);
        ck_assert_int_eq(memcmp(x.out, all, sizeof(all)) == 0, windows[w] > POSITION);
    }
    single_close(&x);
}
END_TEST

/* A sink of -inf keeps every bit, one far above the scores leaves nothing, one of NaN or +inf leaves
 * no number. */
START_TEST(a_sink_takes_its_share_of_the_weights)
{
    const float sinks[] = {-INFINITY, -1, 0, 2, 5, 9, 200};
    const uint32_t windows[] = {1, 40, 128, POSITION + 1};
    struct single x;
    float all[DIM];
    single_open(&x);
    memcpy(all, x.out, sizeof(all));
    x.job.sinks = true;
    for (size_t i = 0; i < 7 * 4; i++) {
        x.job.sink[0] = sinks[i / 4];
        x.job.sliding_window = windows[i % 4];
        ref_attend(&x.job);
        check_single(&x, windows[i % 4], (double)sinks[i / 4]);
        ck_assert_int_eq(memcmp(x.out, all, sizeof(all)) == 0, i == 3);
        for (uint32_t d = 0; d < DIM; d++)
            ck_assert_int_eq(x.out[d] == 0, sinks[i / 4] == 200);
    }
    for (int i = 0; i < 2; i++) {
        x.job.sink[0] = i ? NAN : INFINITY;
        ref_attend(&x.job);
        for (uint32_t d = 0; d < DIM; d++)
            ck_assert(isnan(x.out[d]));
    }
    single_close(&x);
}
END_TEST

/* One position has nearly all the weight: exp of the others is 0 or tiny. */
START_TEST(attention_equals_reference_when_peaked)
{
    uint64_t seed = 7;
    struct cache c;
    cache_open(&c, 1, 64, 64, _i);
    fill_cache(&c, &seed, 640, 60.0f);
    for (uint32_t t = 0; t < 640; t += 13)
        attend_all(&c, &seed, MODEL_NO_WINDOW, 1, &t);
    free(c.memory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_attend");
    TCase *kv = tcase_create("kv");
    tcase_add_loop_test(kv, append_equals_reference, 0, 3); /* by kv_type */
    tcase_add_loop_test(kv, attention_equals_reference, 0, 3);
    tcase_add_loop_test(kv, attention_of_any_number_of_queries_equals_reference, 0, 3);
    tcase_add_loop_test(kv, attention_in_a_window_equals_reference, 0, 3);
    tcase_add_loop_test(kv, attention_with_sinks_equals_reference, 0, 3);
    tcase_add_test(kv, a_window_covers_the_last_positions);
    tcase_add_test(kv, a_sink_takes_its_share_of_the_weights);
    tcase_add_loop_test(kv, attention_equals_reference_when_peaked, 0, 3);
    tcase_set_timeout(kv, 120);
    suite_add_tcase(suite, kv);
    help_say_missing_isas();
    return run_suite(suite);
}
