/* Operations on rows and attention: AVX2 (with it AVX-VNNI) and AVX-512 equal the reference bit for bit. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "kernels/cpu/rope.h"
#include "kernels/num.h"
#include "tests/run_suite.h"
#include "tests/unit/cpu_help.h"

static const uint32_t sizes[] = {1,  2,  7,   8,   9,   15,  16,  17,  31,  32,  33,  63,   64,
                                 65, 96, 100, 127, 128, 129, 172, 255, 256, 288, 576, 1000, 2048};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], MOST = 2048 };

/* Memory that ends right behind the array, so that a sanitizer sees what runs over. */
static float *exact(const float *x, size_t n)
{
    float *copy = malloc(n * sizeof(float));
    ck_assert_ptr_nonnull(copy);
    if (x)
        memcpy(copy, x, n * sizeof(float));
    return copy;
}

#define FOR_ISAS(isa)                                                                              \
    const struct cpu_isa *isas_[HELP_ISAS];                                                        \
    for (int n_ = help_isas(isas_), i_ = 0; i_ < n_; i_++)                                         \
        for (const struct cpu_isa *isa = isas_[i_]; isa; isa = NULL)

#define ASSERT_SAME(a, b, n, isa, kind)                                                            \
    do {                                                                                           \
        size_t at_ = help_differs(a, b, n);                                                        \
        ck_assert_msg(at_ == (n), "%s, kind %d, n %u: [%zu] %a, reference %a", (isa)->name, kind,  \
                      (unsigned)(n), at_, (double)(b)[at_ < (n) ? at_ : 0],                        \
                      (double)(a)[at_ < (n) ? at_ : 0]);                                           \
    } while (0)

START_TEST(norm_equals_reference)
{
    uint64_t seed = 1;
    float x[MOST], w[MOST];
    FOR_ISAS(isa)
    {
        for (int kind = 0; kind < HELP_KINDS; kind++) {
            for (int s = 0; s < N_SIZES; s++) {
                uint32_t n = sizes[s];
                help_fill(&seed, (enum help_kind)kind, x, n);
                help_fill(&seed, HELP_NORMAL, w, n);
                float *xe = exact(x, n), *we = exact(w, n), *a = exact(NULL, n),
                      *b = exact(NULL, n);
                float eps = s % 2 ? 1e-5f : 1e-30f;
                ref_norm(xe, we, n, eps, a);
                isa->norm(xe, we, n, eps, b);
                ASSERT_SAME(a, b, n, isa, kind);
                free(xe), free(we), free(a), free(b);
            }
        }
    }
}
END_TEST

START_TEST(quantize_equals_reference)
{
    uint64_t seed = 2;
    float x[MOST], d[2][MOST / 32];
    int8_t q[2][MOST];
    int32_t sum[2][MOST / 32];
    FOR_ISAS(isa)
    {
        for (int round = 0; round < 40; round++) {
            int kind = round % HELP_KINDS;
            uint32_t n = 32 * (1 + (uint32_t)round);
            help_fill(&seed, (enum help_kind)kind, x, n);
            ref_quantize(x, n, q[0], d[0], sum[0]);
            isa->quantize(x, n, q[1], d[1], sum[1]);
            ASSERT_SAME(d[0], d[1], n / 32, isa, kind);
            ck_assert_mem_eq(q[0], q[1], n);
            ck_assert_mem_eq(sum[0], sum[1], n / 32 * 4);
        }
    }
}
END_TEST

/* Halves round to even, and the ends of the range are reached, not passed. */
START_TEST(quantize_rounds_to_even_and_clamps)
{
    const struct cpu_isa *isas[1 + HELP_ISAS] = {&cpu_isa_ref};
    int n = 1 + help_isas(isas + 1);
    for (int i = 0; i < n; i++) {
        float x[32] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -127.0f, 126.5f};
        float d;
        int8_t q[32];
        int32_t sum;
        isas[i]->quantize(x, 32, q, &d, &sum);
        const int8_t want[8] = {127, 0, 2, 2, 0, -2, -127, 126};
        ck_assert_mem_eq(q, want, 8);
        ck_assert(d == 1.0f);
        ck_assert_int_eq(sum, 128);
    }
}
END_TEST

START_TEST(quantize_never_loses_a_value_that_is_not_finite)
{
    const struct cpu_isa *isas[1 + HELP_ISAS] = {&cpu_isa_ref};
    const float bad[] = {NAN, INFINITY, -INFINITY, -NAN};
    int n = 1 + help_isas(isas + 1);
    for (int i = 0; i < n; i++) {
        for (int at = 0; at < 4 * 32; at++) {
            float x[32] = {1, 2, 3}, d = 0;
            int8_t q[32];
            int32_t sum;
            x[at / 4] = bad[at % 4];
            isas[i]->quantize(x, 32, q, &d, &sum);
            ck_assert(!isfinite(d));
        }
    }
}
END_TEST

START_TEST(rotate_equals_reference)
{
    uint64_t seed = 3;
    const uint32_t dims[] = {2, 4, 6, 8, 10, 16, 18, 24, 30, 32, 34, 64, 66, 80, 100, 128, 256};
    enum model_rope rope = (enum model_rope)_i;
    float x[1024], cs[256], sn[256], table[256 * 260];
    FOR_ISAS(isa)
    {
        for (size_t s = 0; s < sizeof dims / sizeof dims[0]; s++) {
            uint32_t dim = dims[s], n = 4 * dim;
            rope_build(table, dim, 512, 10000, 1, NULL);
            rope_row(table, dim, 300 + (uint32_t)s, rope, cs, sn);
            for (int kind = 0; kind < HELP_KINDS; kind++) {
                help_fill(&seed, (enum help_kind)kind, x, n);
                float *a = exact(x, n), *b = exact(x, n);
                cpu_isa_ref.rotate[rope](a, 4, dim, cs, sn);
                isa->rotate[rope](b, 4, dim, cs, sn);
                ASSERT_SAME(a, b, n, isa, kind);
                free(a), free(b);
            }
        }
    }
}
END_TEST

/* A head in halves is a head in pairs with its values in another order. */
START_TEST(halves_are_pairs_permuted)
{
    enum { DIM = 48 };
    uint64_t seed = 8;
    float table[DIM * 258], cs[DIM], sn[DIM], pairs[DIM], halves[DIM];
    rope_build(table, DIM, 300, 10000, 1, NULL);
    for (uint32_t position = 0; position < 300; position += 23) {
        help_fill(&seed, HELP_NORMAL, pairs, DIM);
        for (int i = 0; i < DIM / 2; i++) {
            halves[i] = pairs[2 * i];
            halves[i + DIM / 2] = pairs[2 * i + 1];
        }
        rope_row(table, DIM, position, MODEL_ROPE_ADJACENT, cs, sn);
        ref_rotate(pairs, 1, DIM, cs, sn);
        rope_row(table, DIM, position, MODEL_ROPE_HALVES, cs, sn);
        ref_rotate_halves(halves, 1, DIM, cs, sn);
        for (int i = 0; i < DIM / 2; i++) {
            ck_assert_uint_eq(num_bits(halves[i]), num_bits(pairs[2 * i]));
            ck_assert_uint_eq(num_bits(halves[i + DIM / 2]), num_bits(pairs[2 * i + 1]));
        }
    }
}
END_TEST

START_TEST(add_equals_reference)
{
    uint64_t seed = 9;
    float x[MOST], bias[MOST];
    FOR_ISAS(isa)
    {
        for (int kind = 0; kind < HELP_KINDS; kind++) {
            for (int s = 0; s < N_SIZES; s++) {
                uint32_t n = sizes[s];
                help_fill(&seed, (enum help_kind)kind, x, n);
                help_fill(&seed, s % 2 ? HELP_NORMAL : (enum help_kind)kind, bias, n);
                float *a = exact(x, n), *b = exact(x, n), *be = exact(bias, n);
                ref_add(a, be, n);
                isa->add(b, be, n);
                ASSERT_SAME(a, b, n, isa, kind);
                free(a), free(b), free(be);
            }
        }
    }
}
END_TEST

/* Heads are normalized where they lie. */
START_TEST(norm_in_place_is_norm)
{
    uint64_t seed = 10;
    float w[256], x[256], y[256];
    const struct cpu_isa *isas[1 + HELP_ISAS] = {&cpu_isa_ref};
    int n_isas = 1 + help_isas(isas + 1);
    for (int i = 0; i < n_isas; i++) {
        for (uint32_t n = 2; n <= 256; n += 2) {
            help_fill(&seed, HELP_NORMAL, w, n);
            help_fill(&seed, HELP_SPIKE, x, n);
            ref_norm(x, w, n, 1e-6f, y);
            isas[i]->norm(x, w, n, 1e-6f, x);
            ASSERT_SAME(y, x, n, isas[i], 0);
        }
    }
}
END_TEST

struct scaling {
    float scale;  /* of all pairs */
    bool divided; /* and each by its own, 1 to 8 */
};

/* The tables are right to the last bits of f32, at any position. */
START_TEST(rope_is_accurate)
{
    const uint32_t positions[] = {0, 1, 2, 255, 256, 257, 511, 4095, 32767, 131071};
    const float bases[] = {10000.0f, 500000.0f, 1000000.0f, 1.0f, 123.456f};
    const struct scaling scalings[] = {{1, false}, {4, false}, {1, true}, {2.5f, true}};
    enum { DIM = 64, CONTEXT = 131072 };
    float *table = malloc(rope_table_floats(DIM, CONTEXT) * sizeof(float)), cs[DIM], sn[DIM];
    float divisors[DIM / 2];
    const struct scaling *scaling = &scalings[_i];
    for (int i = 0; i < DIM / 2; i++)
        divisors[i] = scaling->divided ? 1 + 7 * (float)(i * 11 % 32) / 31 : 1;
    ck_assert_ptr_nonnull(table);
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++) {
        rope_build(table, DIM, CONTEXT, bases[b], scaling->scale,
                   scaling->divided ? divisors : NULL);
        for (size_t p = 0; p < sizeof positions / sizeof positions[0]; p++) {
            rope_row(table, DIM, positions[p], MODEL_ROPE_ADJACENT, cs, sn);
            for (int i = 0; i < DIM; i += 2) {
                double a = positions[p] * pow((double)bases[b], -(double)i / DIM) /
                           ((double)scaling->scale * (double)divisors[i / 2]);
                ck_assert(fabs((double)cs[i] - cos(a)) < 2e-7);
                ck_assert(fabs((double)sn[i + 1] - sin(a)) < 2e-7);
                ck_assert(cs[i] == cs[i + 1] && sn[i] == -sn[i + 1]);
            }
        }
    }
    free(table);
}
END_TEST

START_TEST(divisors_of_one_change_no_bit)
{
    enum { DIM = 20, CONTEXT = 700 };
    float none[DIM * 259], ones[DIM * 259], divisors[DIM / 2];
    for (int i = 0; i < DIM / 2; i++)
        divisors[i] = 1;
    ck_assert_uint_le(rope_table_floats(DIM, CONTEXT), DIM * 259);
    rope_build(none, DIM, CONTEXT, 10000, 1, NULL);
    rope_build(ones, DIM, CONTEXT, 10000, 1, divisors);
    ck_assert_mem_eq(none, ones, rope_table_floats(DIM, CONTEXT) * sizeof(float));
}
END_TEST

START_TEST(limits_are_seen_in_every_lane)
{
    const struct cpu_isa *isas[1 + HELP_ISAS] = {&cpu_isa_ref};
    int n = 1 + help_isas(isas + 1);
    for (int i = 0; i < n; i++) {
        for (uint32_t size = 1; size < 70; size++) {
            for (uint32_t at = 0; at < size; at++) {
                float *x = calloc(size, sizeof(float));
                ck_assert_ptr_nonnull(x);
                x[at] = 65519.0f;
                ck_assert(isas[i]->finite(x, size) && isas[i]->fits_f16(x, size));
                ck_assert(isas[i]->canonical_logits(x, size));
                x[at] = -65520.0f;
                ck_assert(isas[i]->finite(x, size) && !isas[i]->fits_f16(x, size));
                x[at] = at % 2 ? NAN : -INFINITY;
                ck_assert(!isas[i]->finite(x, size) && !isas[i]->fits_f16(x, size));
                ck_assert(!isas[i]->canonical_logits(x, size));
                free(x);
            }
        }
    }
}
END_TEST

START_TEST(canonical_logits_have_no_negative_zero)
{
    const struct cpu_isa *isas[1 + HELP_ISAS] = {&cpu_isa_ref};
    int n = 1 + help_isas(isas + 1);
    for (int i = 0; i < n; i++) {
        float x[21];
        for (int j = 0; j < 21; j++)
            x[j] = j % 3 ? -0.0f : -1.5f;
        ck_assert(isas[i]->canonical_logits(x, 21));
        for (int j = 0; j < 21; j++)
            ck_assert_uint_eq(num_bits(x[j]), j % 3 ? 0 : num_bits(-1.5f));
    }
}
END_TEST

START_TEST(gates_equal_reference)
{
    uint64_t seed = 4;
    float g[MOST], u[MOST];
    FOR_ISAS(isa)
    {
        for (int kind = 0; kind < HELP_KINDS; kind++) {
            for (int s = 0; s < N_SIZES; s++) {
                uint32_t n = sizes[s];
                help_fill(&seed, (enum help_kind)kind, g, n);
                help_fill(&seed, s % 2 ? HELP_NORMAL : (enum help_kind)kind, u, n);
                for (uint32_t i = 0; i < n; i += 5)
                    g[i] = g[i] * 40.0f; /* both ends of exp */
                float *ge = exact(g, n), *ue = exact(u, n), *a = exact(NULL, n),
                      *b = exact(NULL, n);
                cpu_isa_ref.gate_mul[_i](ge, ue, n, a);
                isa->gate_mul[_i](ge, ue, n, b);
                isa->gate_mul[_i](ge, ue, n, ge);
                ck_assert_mem_eq(ge, b, n * sizeof(float));
                ASSERT_SAME(a, b, n, isa, kind);
                free(ge), free(ue), free(a), free(b);
            }
        }
    }
}
END_TEST

/* ---- KV and attention -------------------------------------------------------------------------
 */

struct cache {
    struct kv_geometry kv;
    uint8_t *memory;
    uint32_t pages[64];
};

static void cache_open(struct cache *c, uint32_t n_head_kv, uint32_t head_dim, int type)
{
    kv_geometry_set(&c->kv, 2, n_head_kv, head_dim, (enum kv_type)type);
    c->memory = help_memory(64 * c->kv.page_bytes + 64);
    for (uint32_t i = 0; i < 64; i++)
        c->pages[i] = (i * 37 + 5) % 64; /* any order */
}

START_TEST(append_equals_reference)
{
    uint64_t seed = 5;
    const uint32_t dims[] = {2, 6, 8, 12, 16, 20, 64, 128};
    FOR_ISAS(isa)
    {
        for (size_t s = 0; s < sizeof dims / sizeof dims[0]; s++) {
            struct cache a, b;
            cache_open(&a, 3, dims[s], _i);
            cache_open(&b, 3, dims[s], _i);
            float k[3 * 128], v[3 * 128];
            for (uint32_t slot = 0; slot < 32; slot++) {
                help_fill(&seed, slot % 2 ? HELP_NORMAL : HELP_DENORMAL, k, 3 * dims[s]);
                help_fill(&seed, HELP_SPIKE, v, 3 * dims[s]);
                for (uint32_t i = 0; i < 3 * dims[s]; i += 2)
                    k[i] = ldexpf(k[i], -(int)(help_random(&seed) % 30)); /* f16 denormals too */
                ref_append(&a.kv, a.memory, 1, slot, k, v);
                isa->append(&b.kv, b.memory, 1, slot, k, v);
            }
            ck_assert_mem_eq(a.memory, b.memory, a.kv.page_bytes);
            free(a.memory), free(b.memory);
        }
    }
}
END_TEST

static void fill_cache(struct cache *c, uint64_t *seed, uint32_t positions, float size)
{
    float k[256 * 4], v[256 * 4];
    uint32_t n = c->kv.n_head_kv * c->kv.head_dim;
    for (uint32_t t = 0; t < positions; t++) {
        for (uint32_t layer = 0; layer < 2; layer++) {
            help_fill(seed, HELP_NORMAL, k, n);
            help_fill(seed, HELP_NORMAL, v, n);
            for (uint32_t i = 0; i < n; i++)
                k[i] = k[i] * size;
            ref_append(&c->kv, c->memory + c->pages[t / 32] * c->kv.page_bytes, layer, t % 32, k,
                       v);
        }
    }
}

static void attend_both(const struct cpu_isa *isa, struct cache *c, uint64_t *seed, uint32_t window,
                        uint32_t n, const uint32_t *positions)
{
    uint32_t dim = c->kv.head_dim;
    float *q = exact(NULL, n * dim), *a = exact(NULL, n * dim), *b = exact(NULL, n * dim);
    float *scratch = help_memory(CPU_ATTEND_SCRATCH * sizeof(float));
    help_fill(seed, HELP_NORMAL, q, n * dim);
    struct cpu_attend job = {.kv = &c->kv,
                             .memory = c->memory,
                             .pages = c->pages,
                             .layer = 1,
                             .head_kv = c->kv.n_head_kv - 1,
                             .scale = 1.0f / sqrtf((float)dim),
                             .window = window,
                             .n = n,
                             .scratch = scratch};
    for (uint32_t i = 0; i < n; i++) {
        job.position[i] = positions[i];
        job.q[i] = q + i * dim;
        job.out[i] = a + i * dim;
    }
    ref_attend(&job);
    for (uint32_t i = 0; i < n; i++)
        job.out[i] = b + i * dim;
    isa->attend(&job);
    for (uint32_t i = 0; i < n; i++) {
        size_t at = help_differs(a + i * dim, b + i * dim, dim);
        ck_assert_msg(at == dim,
                      "%s, head_dim %u, window %u, %u queries, query %u at %u, [%zu]: %a for %a",
                      isa->name, dim, window, n, i, positions[i], at, (double)b[i * dim + at],
                      (double)a[i * dim + at]);
    }
    free(q), free(a), free(b), free(scratch);
}

/* Positions around page and split borders, queries at one position or at several. */
START_TEST(attention_equals_reference)
{
    uint64_t seed = 6;
    const uint32_t dims[] = {2, 8, 10, 16, 24, 32, 48, 64, 80, 96, 128, 256};
    const uint32_t bases[] = {0, 1, 30, 31, 32, 63, 200, 250, 255, 256, 257, 511, 512, 600};
    FOR_ISAS(isa)
    {
        for (size_t s = 0; s < sizeof dims / sizeof dims[0]; s++) {
            struct cache c;
            cache_open(&c, 2, dims[s], _i);
            fill_cache(&c, &seed, 640, s % 3 == 0 ? 8.0f : 1.0f);
            for (size_t p = 0; p < sizeof bases / sizeof bases[0]; p++) {
                uint32_t n = 1 + (uint32_t)((p + s) % CPU_QUERIES), same[CPU_QUERIES],
                         up[CPU_QUERIES];
                for (uint32_t i = 0; i < n; i++) {
                    same[i] = bases[p];
                    up[i] = bases[p] + i / (1 + (uint32_t)s % 3);
                }
                attend_both(isa, &c, &seed, CPU_NO_WINDOW, n, same);
                attend_both(isa, &c, &seed, CPU_NO_WINDOW, n, up);
            }
            free(c.memory);
        }
    }
}
END_TEST

/* Every number of queries: groups of every size, also where the first rows end before a split and the
 * others do not, and where each query has a position of its own. */
START_TEST(attention_of_any_number_of_queries)
{
    uint64_t seed = 8;
    const uint32_t dims[] = {10, 64, 112}, bases[] = {0, 27, 253, 500}, heads[] = {1, 2, 7, 64};
    FOR_ISAS(isa)
    {
        for (size_t s = 0; s < sizeof dims / sizeof dims[0]; s++) {
            struct cache c;
            cache_open(&c, 1, dims[s], _i);
            fill_cache(&c, &seed, 576, 2.0f);
            for (uint32_t n = 1; n <= CPU_QUERIES; n++) {
                uint32_t base = bases[(n + s) % 4], up[CPU_QUERIES];
                for (uint32_t i = 0; i < n; i++)
                    up[i] = base + i / heads[n / 4 % 4];
                attend_both(isa, &c, &seed, CPU_NO_WINDOW, n, up);
            }
            free(c.memory);
        }
    }
}
END_TEST

/* Windows smaller than a page, than the queries' positions, about a split, longer than the text. */
START_TEST(attention_in_a_window_equals_reference)
{
    uint64_t seed = 9;
    const uint32_t dims[] = {10, 64, 256}, heads[] = {1, 3, 64};
    const uint32_t bases[] = {0, 31, 255, 256, 300, 511, 570};
    const uint32_t windows[] = {1, 2, 31, 32, 33, 64, 200, 255, 256, 257, 300, 512, 5000};
    FOR_ISAS(isa)
    {
        for (size_t s = 0; s < sizeof dims / sizeof dims[0]; s++) {
            struct cache c;
            cache_open(&c, 1, dims[s], _i);
            fill_cache(&c, &seed, 640, 2.0f);
            for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
                for (size_t p = 0; p < sizeof bases / sizeof bases[0]; p++) {
                    uint32_t n = 1 + (uint32_t)(w * 11 + p * 7 + s) % CPU_QUERIES, up[CPU_QUERIES];
                    for (uint32_t i = 0; i < n; i++)
                        up[i] = bases[p] + i / heads[(w + p) % 3];
                    attend_both(isa, &c, &seed, windows[w], n, up);
                }
            }
            const uint32_t apart[] = {3, 5, 600}; /* a split that nobody sees */
            attend_both(isa, &c, &seed, 7, 3, apart);
            free(c.memory);
        }
    }
}
END_TEST

/* The reference against attention in double precision; a window that is long enough changes no bit. */
START_TEST(a_window_is_the_last_positions)
{
    enum { DIM = 16, POSITION = 300 };
    const uint32_t windows[] = {1, 40, 256, 299, 300, 301};
    uint64_t seed = 10;
    struct cache c;
    cache_open(&c, 1, DIM, KV_F32);
    fill_cache(&c, &seed, POSITION + 1, 1.0f);
    float q[DIM], out[DIM], all[DIM];
    help_fill(&seed, HELP_NORMAL, q, DIM);
    struct cpu_attend job = {.kv = &c.kv,
                             .memory = c.memory,
                             .pages = c.pages,
                             .scale = 0.25f,
                             .window = CPU_NO_WINDOW,
                             .n = 1,
                             .position = {POSITION},
                             .q = {q},
                             .out = {all},
                             .scratch = help_memory(CPU_ATTEND_SCRATCH * sizeof(float))};
    ref_attend(&job);
    job.out[0] = out;
    for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
        double sum = 0, want[DIM] = {0};
        for (uint32_t t = POSITION + 1 - windows[w]; t <= POSITION; t++) {
            const uint8_t *page = c.memory + c.pages[t / 32] * c.kv.page_bytes;
            const float *k = (const float *)(const void *)(page + kv_k_offset(&c.kv, 0, 0));
            const float *v = (const float *)(const void *)(page + kv_v_offset(&c.kv, 0, 0));
            double s = 0;
            for (uint32_t d = 0; d < DIM; d++)
                s += (double)q[d] * (double)k[d * 32 + t % 32];
            s = exp(0.25 * s);
            sum += s;
            for (uint32_t d = 0; d < DIM; d++)
                want[d] += s * (double)v[t % 32 * DIM + d];
        }
        job.window = windows[w];
        ref_attend(&job);
        for (uint32_t d = 0; d < DIM; d++)
            ck_assert_double_eq_tol((double)out[d], want[d] / sum, 1e-5);
        ck_assert_int_eq(memcmp(out, all, sizeof out) == 0, windows[w] > POSITION);
    }
    free(job.scratch);
    free(c.memory);
}
END_TEST

/* One position holds nearly all weight: exp of the others is 0 or tiny. */
START_TEST(attention_equals_reference_when_peaked)
{
    uint64_t seed = 7;
    FOR_ISAS(isa)
    {
        struct cache c;
        cache_open(&c, 1, 64, _i);
        fill_cache(&c, &seed, 640, 60.0f);
        for (uint32_t t = 0; t < 640; t += 13)
            attend_both(isa, &c, &seed, CPU_NO_WINDOW, 1, &t);
        free(c.memory);
    }
}
END_TEST

#if defined(__x86_64__)
/* Whether a line of /proc/cpuinfo's flags has all of these, " flag " each. */
static bool has_flags(const char *line, const char *const *flags)
{
    for (; *flags; flags++) {
        if (!strstr(line, *flags))
            return false;
    }
    return true;
}

/* Else the tests above would pass over kernels that users run. */
START_TEST(what_the_system_says_of_the_processor_is_used)
{
    static const struct {
        const struct cpu_isa *isa;
        const char *flags[9];
    } sets[] = {{&cpu_isa_avx2, {" avx2 ", " fma ", " f16c "}},
                {&cpu_isa_avxvnni, {" avx2 ", " fma ", " f16c ", " avx_vnni "}},
                {&cpu_isa_avx512,
                 {" avx2 ", " fma ", " f16c ", " avx512f ", " avx512bw ", " avx512vl ",
                  " avx512dq ", " avx512_vnni "}}};
    static char line[8192];
    FILE *f = fopen("/proc/cpuinfo", "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line - 1, f) && strncmp(line, "flags", 5) != 0)
        ;
    fclose(f);
    ck_assert_int_eq(strncmp(line, "flags", 5), 0);
    line[strcspn(line, "\n")] = ' ';
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        bool said = has_flags(line, sets[i].flags);
        ck_assert_msg(!said || sets[i].isa->usable(), "%s is not used", sets[i].isa->name);
    }
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("cpu_ops");
    TCase *rows = tcase_create("rows"), *kv = tcase_create("kv");
    tcase_add_test(rows, norm_equals_reference);
    tcase_add_test(rows, quantize_equals_reference);
    tcase_add_test(rows, quantize_rounds_to_even_and_clamps);
    tcase_add_test(rows, quantize_never_loses_a_value_that_is_not_finite);
    tcase_add_loop_test(rows, rotate_equals_reference, 0, MODEL_N_ROPE);
    tcase_add_test(rows, halves_are_pairs_permuted);
    tcase_add_test(rows, add_equals_reference);
    tcase_add_test(rows, norm_in_place_is_norm);
    tcase_add_loop_test(rows, rope_is_accurate, 0, 4);
    tcase_add_test(rows, divisors_of_one_change_no_bit);
    tcase_add_test(rows, limits_are_seen_in_every_lane);
    tcase_add_test(rows, canonical_logits_have_no_negative_zero);
    tcase_add_loop_test(rows, gates_equal_reference, 0, MODEL_N_GATE);
#if defined(__x86_64__)
    tcase_add_test(rows, what_the_system_says_of_the_processor_is_used);
#endif
    tcase_add_loop_test(kv, append_equals_reference, 0, 3); /* by kv_type */
    tcase_add_loop_test(kv, attention_equals_reference, 0, 3);
    tcase_add_loop_test(kv, attention_of_any_number_of_queries, 0, 3);
    tcase_add_loop_test(kv, attention_in_a_window_equals_reference, 0, 3);
    tcase_add_test(kv, a_window_is_the_last_positions);
    tcase_add_loop_test(kv, attention_equals_reference_when_peaked, 0, 3);
    tcase_set_timeout(rows, 60);
    tcase_set_timeout(kv, 60);
    suite_add_tcase(suite, rows);
    suite_add_tcase(suite, kv);
    help_say_missing_isas();
    return run_suite(suite);
}
