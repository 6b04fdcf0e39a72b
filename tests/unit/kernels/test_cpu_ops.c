/* Operations on rows: AVX2 (and AVX-VNNI) and AVX-512 equal the reference bit for bit. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "kernels/cpu/rope.h"
#include "kernels/base/num.h"
#include "tests/run_suite.h"
#include "tests/rig/cpu_help.h"

static const uint32_t sizes[] = {1,  2,  7,   8,   9,   15,  16,  17,  31,  32,  33,  63,   64,
                                 65, 96, 100, 127, 128, 129, 172, 255, 256, 288, 576, 1000, 2048};
enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]), MOST = 2048 };

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
                float *xe = help_exact(x, n), *we = help_exact(w, n), *a = help_exact(NULL, n),
                      *b = help_exact(NULL, n);
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

/* Ties round to even, and the ends of the range are reached but not exceeded. */
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

static struct model_rope_table plain_rope(uint32_t n)
{
    return (struct model_rope_table){.n = n, .base = 10000, .scale = 1, .attention = 1};
}

START_TEST(rope_equals_reference)
{
    uint64_t seed = 3;
    const uint32_t dims[] = {2, 4, 6, 8, 10, 16, 18, 24, 30, 32, 34, 64, 66, 80, 100, 128, 256};
    enum model_rope rope = (enum model_rope)_i;
    float x[1024], cs[256], sn[256], table[256 * 260];
    FOR_ISAS(isa)
    {
        for (size_t s = 0; s < sizeof(dims) / sizeof(dims[0]); s++) {
            uint32_t dim = dims[s], n = 4 * dim;
            const uint32_t n_rot = s % 2 == 0 ? dim : dim / 4 * 2; /* narrower than the head */
            const struct model_rope_table plain = plain_rope(n_rot);
            rope_build(table, &plain, 512);
            rope_row(table, n_rot, 300 + (uint32_t)s, rope, cs, sn);
            for (int kind = 0; kind < HELP_KINDS; kind++) {
                help_fill(&seed, (enum help_kind)kind, x, n);
                float *a = help_exact(x, n), *b = help_exact(x, n);
                cpu_isa_ref.rope[rope](a, 4, dim, n_rot, cs, sn);
                isa->rope[rope](b, 4, dim, n_rot, cs, sn);
                ASSERT_SAME(a, b, n, isa, kind);
                free(a), free(b);
            }
        }
    }
}
END_TEST

/* A head laid out in halves is one in pairs with its values permuted. */
START_TEST(rope_in_halves_is_rope_in_pairs_permuted)
{
    enum { DIM = 48 };
    uint64_t seed = 8;
    float table[DIM * 258], cs[DIM], sn[DIM], pairs[DIM], halves[DIM];
    const struct model_rope_table plain = plain_rope(DIM);
    rope_build(table, &plain, 300);
    for (uint32_t position = 0; position < 300; position += 23) {
        help_fill(&seed, HELP_NORMAL, pairs, DIM);
        for (int i = 0; i < DIM / 2; i++) {
            halves[i] = pairs[2 * i];
            halves[i + DIM / 2] = pairs[2 * i + 1];
        }
        rope_row(table, DIM, position, MODEL_ROPE_ADJACENT, cs, sn);
        ref_rope_interleaved(pairs, 1, DIM, DIM, cs, sn);
        rope_row(table, DIM, position, MODEL_ROPE_HALVES, cs, sn);
        ref_rope_neox(halves, 1, DIM, DIM, cs, sn);
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
                float *a = help_exact(x, n), *b = help_exact(x, n), *be = help_exact(bias, n);
                ref_add(a, be, n);
                isa->add(b, be, n);
                ASSERT_SAME(a, b, n, isa, kind);
                free(a), free(b), free(be);
            }
        }
    }
}
END_TEST

/* Heads are normalized in place. */
START_TEST(norm_in_place_equals_norm)
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
    bool divided; /* and each pair by its own, 1 to 8 */
};

/* The tables are right to the last bits of f32, at any position. */
START_TEST(rope_is_accurate)
{
    const uint32_t positions[] = {0, 1, 2, 255, 256, 257, 511, 4095, 32767, 131071};
    const float bases[] = {10000.0f, 500000.0f, 1000000.0f, 1.0f, 123.456f};
    const struct scaling scalings[] = {{1, false}, {4, false}, {1, true}, {2.5f, true}};
    enum { DIM = 64, CONTEXT = 131072 };
    const struct model_rope_table plain = plain_rope(DIM);
    float *table = malloc(rope_table_floats(&plain, CONTEXT) * sizeof(float)), cs[DIM], sn[DIM];
    float divisors[DIM / 2];
    const struct scaling *scaling = &scalings[_i];
    for (int i = 0; i < DIM / 2; i++)
        divisors[i] = scaling->divided ? 1 + 7 * (float)(i * 11 % 32) / 31 : 1;
    ck_assert_ptr_nonnull(table);
    for (size_t b = 0; b < sizeof(bases) / sizeof(bases[0]); b++) {
        const struct model_rope_table rope = {.n = DIM,
                                              .base = bases[b],
                                              .scale = scaling->scale,
                                              .divisors = scaling->divided ? divisors : NULL,
                                              .attention = 1};
        rope_build(table, &rope, CONTEXT);
        for (size_t p = 0; p < sizeof(positions) / sizeof(positions[0]); p++) {
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

/* lo and hi of the published gpt-oss: base 150,000, heads of 64, factor 32, 4,096 positions. */
static double yarn_theta(const struct model_rope_table *rope, int n, int i, double lo, double hi)
{
    const double share = fmin(fmax((i - lo) / (hi - lo), 0), 1);
    return pow((double)rope->base, -2.0 * i / n) * (1 - share + share / (double)rope->scale);
}

/* YaRN's frequencies and its factor, with whole numbers as borders and without. */
START_TEST(yarn_is_accurate)
{
    enum { DIM = 64, CONTEXT = 131072 };
    const uint32_t positions[] = {0, 1, 255, 256, 4097, 131071};
    float cs[DIM], sn[DIM];
    const bool truncated = _i % 2 == 0;
    const float log_multiplier = _i < 2 ? 0 : 0.5f;
    const struct model_rope_table rope = {.n = DIM,
                                          .base = 150000,
                                          .scale = 32,
                                          .attention = 1.25f,
                                          .yarn = {4096, 32, 1, log_multiplier, truncated}};
    const double m = 1.25 * (0.1 * log(32) + 1) / (0.1 * (double)log_multiplier * log(32) + 1);
    const double lo = truncated ? 8 : 8.092779115512402, hi = truncated ? 18 : 17.39802450158856;
    float *table = malloc(rope_table_floats(&rope, CONTEXT) * sizeof(float));
    ck_assert_ptr_nonnull(table);
    rope_build(table, &rope, CONTEXT);
    for (size_t p = 0; p < sizeof(positions) / sizeof(positions[0]); p++) {
        rope_row(table, DIM, positions[p], MODEL_ROPE_ADJACENT, cs, sn);
        for (int i = 0; i < DIM; i += 2) {
            double a = positions[p] * yarn_theta(&rope, DIM, i / 2, lo, hi);
            ck_assert_msg(fabs((double)cs[i] - m * cos(a)) < 6e-7, "%u: pair %d", positions[p], i);
            ck_assert_msg(fabs((double)sn[i + 1] - m * sin(a)) < 6e-7, "%u: pair %d", positions[p],
                          i);
        }
    }
    free(table);
}
END_TEST

START_TEST(rope_divisors_of_one_keep_every_bit)
{
    enum { DIM = 20, CONTEXT = 700 };
    float none[DIM * 259], ones[DIM * 259], divisors[DIM / 2];
    for (int i = 0; i < DIM / 2; i++)
        divisors[i] = 1;
    const struct model_rope_table plain = plain_rope(DIM);
    struct model_rope_table divided = plain;
    divided.divisors = divisors;
    ck_assert_uint_le(rope_table_floats(&plain, CONTEXT), DIM * 259);
    rope_build(none, &plain, CONTEXT);
    rope_build(ones, &divided, CONTEXT);
    ck_assert_mem_eq(none, ones, rope_table_floats(&plain, CONTEXT) * sizeof(float));
}
END_TEST

START_TEST(values_beyond_the_limit_are_found_in_every_lane)
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
                float *ge = help_exact(g, n), *ue = help_exact(u, n), *a = help_exact(NULL, n),
                      *b = help_exact(NULL, n);
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

START_TEST(convolutions_equal_reference)
{
    uint64_t seed = 5;
    float x[MODEL_TAPS][MOST], taps[MODEL_TAPS * MOST];
    FOR_ISAS(isa)
    {
        for (int kind = 0; kind < HELP_KINDS; kind++) {
            for (int s = 0; s < N_SIZES; s++) {
                const uint32_t n = sizes[s];
                const float *in[MODEL_TAPS];
                float *a = help_exact(NULL, n), *b = help_exact(NULL, n);
                for (uint32_t j = 0; j < MODEL_TAPS; j++) {
                    help_fill(&seed, (enum help_kind)kind, x[j], n);
                    in[j] = x[j];
                }
                help_fill(&seed, HELP_NORMAL, taps, (size_t)MODEL_TAPS * n);
                struct cpu_convolution convolution = {.x = in,
                                                      .taps = taps,
                                                      .bias = s / 2 % 2 ? x[0] : NULL,
                                                      .n_taps = MODEL_TAPS - (uint32_t)s % 2,
                                                      .n = n,
                                                      .silu = kind % 2};
                convolution.y = a;
                cpu_isa_ref.convolve(&convolution);
                convolution.y = b;
                isa->convolve(&convolution);
                ASSERT_SAME(a, b, n, isa, kind);
                memcpy(a, x[0], n * sizeof(float));
                memcpy(b, x[0], n * sizeof(float));
                cpu_isa_ref.unit(a, n, 0.3f);
                isa->unit(b, n, 0.3f);
                ASSERT_SAME(a, b, n, isa, kind);
                free(a), free(b);
            }
        }
    }
}
END_TEST

/* An update with and without what it may leave out; heads of one value to the most. */
START_TEST(updates_of_a_state_equal_reference)
{
    enum { MOST_STATE = CPU_MAX_HEAD * STATE_COLUMNS };
    const uint32_t heads[] = {1, 2, 12, 128, CPU_MAX_HEAD};
    float *state = help_memory(MOST_STATE * sizeof(float)),
          *to[2] = {help_memory(MOST_STATE * sizeof(float)),
                    help_memory(MOST_STATE * sizeof(float))};
    float x[3][CPU_MAX_HEAD], d[STATE_COLUMNS], out[2][2][STATE_COLUMNS];
    uint64_t seed = 6;
    FOR_ISAS(isa)
    {
        for (int kind = 0; kind < 5 * HELP_KINDS; kind++) {
            const uint32_t n = heads[kind % 5];
            help_fill(&seed, (enum help_kind)(kind / 5), state, MOST_STATE);
            for (int i = 0; i < 3; i++)
                help_fill(&seed, HELP_NORMAL, x[i], n);
            help_fill(&seed, (enum help_kind)(kind / 5), d, STATE_COLUMNS);
            cpu_isa_ref.delta_read(state, x[0], n, out[0][0]);
            isa->delta_read(state, x[0], n, out[1][0]);
            ASSERT_SAME(out[0][0], out[1][0], STATE_COLUMNS, isa, kind);
            for (uint32_t wanted = 0; wanted < 8; wanted++) {
                for (int i = 0; i < 2; i++) {
                    memset(out[i], 0, sizeof(out[i]));
                    memset(to[i], 0, MOST_STATE * sizeof(float));
                    (i ? isa : &cpu_isa_ref)
                        ->delta_step(&(struct cpu_delta){.from = state,
                                                         .to = wanted & 1 ? to[i] : NULL,
                                                         .n = n,
                                                         .decay = 0.9f,
                                                         .k = x[0],
                                                         .d = d,
                                                         .q = wanted & 2 ? x[1] : NULL,
                                                         .next_k = wanted & 4 ? x[2] : NULL,
                                                         .o = out[i][0],
                                                         .p = out[i][1]});
                }
                ASSERT_SAME(to[0], to[1], MOST_STATE, isa, kind);
                ASSERT_SAME(out[0][0], out[1][0], STATE_COLUMNS, isa, kind);
                ASSERT_SAME(out[0][1], out[1][1], STATE_COLUMNS, isa, kind);
            }
        }
    }
    free(state), free(to[0]), free(to[1]);
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

/* Otherwise the tests above would skip kernels that users run. */
START_TEST(every_instruction_set_of_the_processor_is_used)
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
    while (fgets(line, sizeof(line) - 1, f) && strncmp(line, "flags", 5) != 0)
        ;
    fclose(f);
    ck_assert_int_eq(strncmp(line, "flags", 5), 0);
    line[strcspn(line, "\n")] = ' ';
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        bool said = has_flags(line, sets[i].flags);
        ck_assert_msg(!said || sets[i].isa->usable(), "%s is not used", sets[i].isa->name);
    }
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("cpu_ops");
    TCase *rows = tcase_create("rows");
    tcase_add_test(rows, norm_equals_reference);
    tcase_add_test(rows, quantize_equals_reference);
    tcase_add_test(rows, quantize_rounds_to_even_and_clamps);
    tcase_add_test(rows, quantize_never_loses_a_value_that_is_not_finite);
    tcase_add_loop_test(rows, rope_equals_reference, 0, MODEL_N_ROPE);
    tcase_add_test(rows, rope_in_halves_is_rope_in_pairs_permuted);
    tcase_add_test(rows, add_equals_reference);
    tcase_add_test(rows, norm_in_place_equals_norm);
    tcase_add_loop_test(rows, rope_is_accurate, 0, 4);
    tcase_add_loop_test(rows, yarn_is_accurate, 0, 4);
    tcase_add_test(rows, rope_divisors_of_one_keep_every_bit);
    tcase_add_test(rows, values_beyond_the_limit_are_found_in_every_lane);
    tcase_add_test(rows, canonical_logits_have_no_negative_zero);
    tcase_add_loop_test(rows, gates_equal_reference, 0, MODEL_N_GATE);
    tcase_add_test(rows, convolutions_equal_reference);
    tcase_add_test(rows, updates_of_a_state_equal_reference);
#if defined(__x86_64__)
    tcase_add_test(rows, every_instruction_set_of_the_processor_is_used);
#endif
    tcase_set_timeout(rows, 60);
    suite_add_tcase(suite, rows);
    help_say_missing_isas();
    return run_suite(suite);
}
