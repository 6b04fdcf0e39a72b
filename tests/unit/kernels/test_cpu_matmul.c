/* Matmuls: for every type, shape and number of rows the SIMD tiles give the reference's bits. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "kernels/cpu/repack.h"
#include "kernels/base/num.h"
#include "kernels/quant/quant_block.h"
#include "tests/run_suite.h"
#include "tests/rig/cpu_help.h"
#include "tests/rig/every_type.h"

enum { MOST_ROWS = 64 };

struct problem {
    struct cpu_matrix matrix;
    struct cpu_input x;
    float *residual, *want, *got; /* [rows][stride] */
    uint32_t stride, rows;
    uint8_t *file;
};

static void put_scale(uint64_t *seed, uint8_t *to, uint32_t n)
{
    uint16_t half = num_f16_from_f32(ldexpf(help_normal(seed), 14 - (int)n % 39));
    memcpy(to, &half, 2);
}

/* Random bytes; where the type has f16 numbers they are finite, of every magnitude, denormal and
 * negative ones included. */
static void fill_block(const struct quant_info *info, uint64_t *seed, uint8_t *block, uint32_t n)
{
    uint32_t at[2], halves = every_halves(info->type, at);
    for (uint32_t i = 0; i < info->block_bytes; i++)
        block[i] = (uint8_t)help_random(seed);
    for (uint32_t i = 0; i < halves; i++)
        put_scale(seed, block + at[i], n + 3 * i);
    if (info->type == QUANT_MXFP4) /* 2^14 and less; sometimes the smallest */
        block[0] = (uint8_t)(n % 5 == 0 ? n / 5 % 3 : 142 - n % 39);
}

/* Weights of the requested kind as bytes of the type; blocks contain every integer. */
static void fill_weights(struct problem *p, uint64_t *seed, enum help_kind kind)
{
    const struct model_tensor *t = &p->matrix.file;
    const struct quant_info *info = quant_find(t->type);
    float *row = help_memory(t->cols * sizeof(float));
    for (uint32_t r = 0; r < t->rows; r++) {
        uint8_t *to = p->file + r * t->row_bytes;
        if (info->quantized) {
            for (uint32_t b = 0; kind != HELP_ZERO && b < t->cols / info->block; b++)
                fill_block(info, seed, to + b * info->block_bytes, r * 7 + b);
            continue;
        }
        help_fill(seed, kind, row, t->cols);
        tiny_encode(t->type, row, t->cols, to);
        /* f16 and bf16 weights stay finite. */
        for (uint32_t i = 0; t->type == QUANT_F16 && i < t->cols; i++) {
            if ((to[2 * i + 1] & 0x7c) == 0x7c)
                to[2 * i + 1] &= 0xbf;
        }
    }
    free(row);
}

static void problem_open(struct problem *p, uint64_t *seed, uint32_t type, uint32_t cols,
                         uint32_t outputs, uint32_t rows, enum help_kind kind)
{
    const struct quant_info *info = quant_find(type);
    uint64_t row_bytes = (uint64_t)cols / info->block * info->block_bytes;
    p->file = help_memory(outputs * row_bytes);
    struct model_tensor file = {.data = p->file,
                                .type = type,
                                .n_matrices = 1,
                                .rows = outputs,
                                .cols = cols,
                                .row_bytes = row_bytes,
                                .bytes = outputs * row_bytes};
    repack_init(&p->matrix, &file);
    fill_weights(p, seed, kind);
    p->matrix.packed = help_memory(repack_bytes(&p->matrix));
    for (uint32_t g = 0; g < p->matrix.groups; g++)
        repack_group(&p->matrix, g, p->file + g * repack_file_bytes(&p->matrix));

    p->rows = rows;
    uint32_t in = p->x.stride = (cols + 31) / 32 * 32 + 32;
    p->x.f = help_memory((size_t)rows * in * sizeof(float));
    p->x.q = help_memory((size_t)rows * in);
    p->x.d = help_memory((size_t)rows * in / 32 * sizeof(float));
    p->x.sum = help_memory((size_t)rows * in / 32 * sizeof(int32_t));
    for (uint32_t r = 0; r < rows; r++) {
        size_t at = (size_t)r * in;
        help_fill(seed, (enum help_kind)((kind + r) % HELP_KINDS), p->x.f + at, cols);
        ref_quantize(p->x.f + at, cols, p->x.q + at, p->x.d + at / 32, p->x.sum + at / 32);
    }
    p->stride = p->matrix.groups * CPU_LANES + 32;
    size_t outs = (size_t)rows * p->stride;
    p->residual = help_memory(outs * sizeof(float));
    p->want = help_memory(outs * sizeof(float));
    p->got = help_memory(outs * sizeof(float));
    help_fill(seed, HELP_NORMAL, p->residual, outs);
}

static void problem_close(struct problem *p)
{
    void *parts[] = {p->file,  p->matrix.packed, p->x.f,  p->x.q, p->x.d,
                     p->x.sum, p->residual,      p->want, p->got};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        free(parts[i]);
}

static struct cpu_matmul job_of(const struct problem *p, float *y, uint32_t row0, uint32_t row1,
                                bool residual)
{
    return (struct cpu_matmul){.matrix = &p->matrix,
                               .x = &p->x,
                               .y = y,
                               .residual = residual ? p->residual : NULL,
                               .stride = p->stride,
                               .row0 = row0,
                               .row1 = row1,
                               .group1 = p->matrix.groups};
}

static void check_rows(const struct problem *p, const struct cpu_isa *isa, uint32_t row0,
                       uint32_t row1)
{
    const struct model_tensor *t = &p->matrix.file;
    for (uint32_t r = row0; r < row1; r++) {
        const float *want = p->want + (size_t)r * p->stride, *got = p->got + (size_t)r * p->stride;
        size_t at = help_differs(want, got, t->rows);
        ck_assert_msg(at == t->rows, "%s %s %u x %u, rows %u to %u: row %u [%zu] %a for %a",
                      isa->name, quant_name(t->type), t->rows, t->cols, row0, row1, r, at,
                      (double)got[at], (double)want[at]);
    }
}

static void check_problem(struct problem *p, const struct cpu_isa *isa, bool residual)
{
    struct cpu_matmul job = job_of(p, p->want, 0, p->rows, residual);
    ref_matmul(&job);
    const uint32_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 31, 64};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        uint32_t row0 = (uint32_t)i % (MOST_ROWS - counts[i] + 1);
        memset(p->got, 0xff, (size_t)p->rows * p->stride * sizeof(float));
        job = job_of(p, p->got, row0, row0 + counts[i], residual);
        isa->matmul(&job);
        check_rows(p, isa, row0, row0 + counts[i]);
    }
    /* Split by groups, as threads do. */
    memset(p->got, 0xff, (size_t)p->rows * p->stride * sizeof(float));
    for (uint32_t g = 0; g < p->matrix.groups; g += 3) {
        job = job_of(p, p->got, 0, 10, residual);
        job.group0 = g;
        job.group1 = g + 3 < p->matrix.groups ? g + 3 : p->matrix.groups;
        isa->matmul(&job);
    }
    check_rows(p, isa, 0, 10);
}

/* Rows of the input in any order, some twice. */
static void check_gathered(struct problem *p, const struct cpu_isa *isa, uint64_t *seed)
{
    uint32_t from[2 * MOST_ROWS];
    float *y = help_memory(2 * (size_t)MOST_ROWS * p->stride * sizeof(float));
    for (uint32_t r = 0; r < 2 * MOST_ROWS; r++)
        from[r] = (uint32_t)(help_random(seed) % p->rows);
    struct cpu_matmul job = job_of(p, p->want, 0, p->rows, false);
    ref_matmul(&job);
    const uint32_t counts[] = {1, 2, 5, 7, 2 * MOST_ROWS};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        job = job_of(p, y, 0, counts[i], false);
        job.gather = from;
        isa->matmul(&job);
        for (uint32_t r = 0; r < counts[i]; r++)
            ck_assert_mem_eq(y + (size_t)r * p->stride, p->want + (size_t)from[r] * p->stride,
                             p->matrix.file.rows * sizeof(float));
    }
    free(y);
}

START_TEST(matmul_equals_reference)
{
    const uint32_t shapes[][2] = {{64, 64},  {172, 64}, {64, 172},  {1, 1},   {7, 33},   {255, 16},
                                  {256, 17}, {257, 40}, {512, 100}, {545, 5}, {800, 130}};
    uint32_t type = every_type[_i];
    uint64_t seed = 10 + (uint64_t)_i;
    const struct cpu_isa *isas[HELP_ISAS];
    int n_isas = help_isas(isas);
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        uint32_t cols = shapes[s][0];
        uint32_t block = quant_find(type)->block;
        cols = (cols + block - 1) / block * block;
        struct problem p;
        problem_open(&p, &seed, type, cols, shapes[s][1], MOST_ROWS,
                     (enum help_kind)(s % HELP_KINDS));
        for (int i = 0; i < n_isas; i++)
            check_problem(&p, isas[i], s % 2);
        check_gathered(&p, &cpu_isa_ref, &seed);
        for (int i = 0; i < n_isas; i++)
            check_gathered(&p, isas[i], &seed);
        problem_close(&p);
    }
}
END_TEST

/* More rows than the tile loop takes at once, so many inputs that it takes fewer, and remainders of
 * every size after a full block. */
START_TEST(matmul_equals_reference_in_blocks_of_rows)
{
    const uint32_t shapes[][3] = {{288, 50, 215}, {3072, 33, 100}, {12288, 17, 67}};
    uint32_t type = every_type[_i];
    uint64_t seed = 50 + (uint64_t)_i;
    const struct cpu_isa *isas[HELP_ISAS];
    int n_isas = help_isas(isas);
    for (uint32_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        uint32_t block = quant_find(type)->block, most = shapes[s][2];
        uint32_t cols = (shapes[s][0] + block - 1) / block * block;
        struct problem p;
        problem_open(&p, &seed, type, cols, shapes[s][1], most, HELP_NORMAL);
        struct cpu_matmul job = job_of(&p, p.want, 0, most, s % 2);
        ref_matmul(&job);
        for (uint32_t rows = most; rows > most - 13; rows -= 1 + s) {
            for (int i = 0; i < n_isas; i++) {
                memset(p.got, 0xff, (size_t)most * p.stride * sizeof(float));
                job = job_of(&p, p.got, most - rows, most, s % 2);
                isas[i]->matmul(&job);
                check_rows(&p, isas[i], most - rows, most);
            }
        }
        problem_close(&p);
    }
}
END_TEST

/* Rows so long that two or three of them fill a block, and a row is left over. */
START_TEST(matmul_equals_reference_in_blocks_of_few_rows)
{
    const struct {
        uint32_t type, cols, most;
        bool gathered; /* floats are copied to a block only then */
    } shapes[] = {{QUANT_Q8_0, 174784, 5, false},
                  {QUANT_Q4_K, 174848, 3, false},
                  {QUANT_Q4_0, 131104, 7, false},
                  {QUANT_F16, 65536, 5, true},
                  {QUANT_F32, 40000, 7, true}};
    const uint32_t type = shapes[_i].type, most = shapes[_i].most;
    uint64_t seed = 60 + (uint64_t)_i;
    const struct cpu_isa *isas[HELP_ISAS];
    uint32_t from[7];
    int n_isas = help_isas(isas);
    struct problem p;
    problem_open(&p, &seed, type, shapes[_i].cols, 70, most, HELP_NORMAL);
    for (uint32_t r = 0; r < most; r++)
        from[r] = r;
    struct cpu_matmul job = job_of(&p, p.want, 0, most, true);
    ref_matmul(&job);
    for (uint32_t rows = 1; rows <= most; rows++)
        for (int i = 0; i < n_isas; i++) {
            memset(p.got, 0xff, (size_t)most * p.stride * sizeof(float));
            job = job_of(&p, p.got, 0, rows, true);
            job.gather = shapes[_i].gathered ? from : NULL;
            isas[i]->matmul(&job);
            check_rows(&p, isas[i], 0, rows);
        }
    problem_close(&p);
}
END_TEST

/* Sets the largest or smallest integers and the largest sub-block scales that a block can hold; keeps
 * its f16 numbers. */
static void fill_extreme(const struct quant_info *info, uint8_t *block, bool smallest)
{
    const int q8 = smallest ? 0x80 : 0x7f, other = smallest ? 0x00 : 0xff;
    uint32_t at[2], halves = every_halves(info->type, at);
    uint8_t kept[2][2];
    for (uint32_t i = 0; i < halves; i++)
        memcpy(kept[i], block + at[i], 2);
    const uint8_t e = block[0];
    memset(block, info->type == QUANT_Q8_0 ? q8 : other, info->block_bytes);
    if (info->type == QUANT_Q6_K)
        memset(block + 192, q8, 16);
    if (info->type == QUANT_Q4_K || info->type == QUANT_Q5_K)
        memset(block + 4, 0xff, 12);
    if (info->type == QUANT_Q2_K)
        memset(block, 0xff, 16);
    if (info->type == QUANT_MXFP4) { /* 12 and -12 */
        memset(block, smallest ? 0xff : 0x77, info->block_bytes);
        block[0] = e;
    }
    for (uint32_t i = 0; i < halves; i++)
        memcpy(block + at[i], kept[i], 2);
}

/* The largest integers of a block: 32 * 128 * 127, where a saturating kernel would be wrong. */
START_TEST(matmul_does_not_saturate)
{
    uint64_t seed = 20;
    const struct cpu_isa *isas[HELP_ISAS];
    int n_isas = help_isas(isas);
    for (int t = 0; t < EVERY_QUANTIZED; t++) {
        for (int sign = 0; sign < 4; sign++) {
            struct problem p;
            problem_open(&p, &seed, every_quantized[t], 512, 32, MOST_ROWS, HELP_NORMAL);
            const struct quant_info *info = quant_find(every_quantized[t]);
            for (uint64_t at = 0; at < p.matrix.file.bytes; at += info->block_bytes)
                fill_extreme(info, p.file + at, sign & 1);
            memset(p.matrix.packed, 0, repack_bytes(&p.matrix));
            for (uint32_t g = 0; g < p.matrix.groups; g++)
                repack_group(&p.matrix, g, p.file + g * repack_file_bytes(&p.matrix));
            for (size_t i = 0; i < (size_t)MOST_ROWS * p.x.stride; i++)
                p.x.q[i] = sign & 2 ? -127 : 127;
            for (size_t i = 0; i < (size_t)MOST_ROWS * p.x.stride / 32; i++)
                p.x.sum[i] = 32 * (sign & 2 ? -127 : 127);
            for (int i = 0; i < n_isas; i++)
                check_problem(&p, isas[i], false);
            problem_close(&p);
        }
    }
}
END_TEST

/* NUMERICS.md computed by hand: segments of 256, then the residual. */
START_TEST(reference_sums_in_segments)
{
    uint64_t seed = 30;
    struct problem p;
    problem_open(&p, &seed, QUANT_F32, 600, 3, 2, HELP_NORMAL);
    struct cpu_matmul job = job_of(&p, p.want, 0, 2, true);
    ref_matmul(&job);
    for (uint32_t r = 0; r < 2; r++) {
        const float *x = p.x.f + (size_t)r * p.x.stride;
        for (uint32_t o = 0; o < 3; o++) {
            const float *w = (const float *)(const void *)p.file + (size_t)o * 600;
            float seg[3] = {0, 0, 0};
            for (uint32_t i = 0; i < 600; i++)
                seg[i / 256] = fmaf(w[i], x[i], seg[i / 256]);
            float y = ((seg[0] + seg[1]) + seg[2]) + p.residual[(size_t)r * p.stride + o];
            ck_assert_uint_eq(num_bits(y), num_bits(p.want[(size_t)r * p.stride + o]));
        }
    }
    problem_close(&p);
}
END_TEST

/* The formulas of NUMERICS.md, computed here from a sub-block's numbers. */
START_TEST(reference_multiplies_blocks)
{
    uint64_t seed = 31;
    struct problem p;
    problem_open(&p, &seed, every_quantized[_i], 512, 2, 1, HELP_NORMAL);
    struct cpu_matmul job = job_of(&p, p.want, 0, 1, false);
    ref_matmul(&job);
    for (uint32_t o = 0; o < 2; o++) {
        const uint8_t *row = p.file + o * p.matrix.file.row_bytes;
        float seg[2] = {0, 0};
        for (uint32_t b = 0; b < 16; b++) {
            struct quant_sub w;
            int isum[2] = {0, 0}, asum[2] = {0, 0};
            quant_sub_load(every_quantized[_i], row, b, &w);
            for (uint32_t i = 0; i < 32; i++) {
                isum[i / 16] += w.q[i] * p.x.q[b * 32 + i];
                asum[i / 16] += p.x.q[b * 32 + i];
            }
            float both = (float)(w.scale[0] * isum[0] + w.scale[1] * isum[1]);
            seg[b / 8] = fmaf(both, w.d * p.x.d[b], seg[b / 8]);
            if (w.has_min)
                seg[b / 8] = fmaf((float)(w.min_scale[0] * asum[0] + w.min_scale[1] * asum[1]),
                                  -(w.min * p.x.d[b]), seg[b / 8]);
        }
        ck_assert_uint_eq(num_bits(seg[0] + seg[1]), num_bits(p.want[o]));
    }
    problem_close(&p);
}
END_TEST

/* The result is near the dot product of the row's values and the rounded activations in double. */
START_TEST(reference_is_near_the_exact_matmul)
{
    uint64_t seed = 32;
    struct problem p;
    problem_open(&p, &seed, every_quantized[_i], 768, 20, 8, HELP_NORMAL);
    struct cpu_matmul job = job_of(&p, p.want, 0, 8, false);
    ref_matmul(&job);
    float row[768];
    for (uint32_t o = 0; o < 20; o++) {
        quant_row_values(every_quantized[_i], p.file + o * p.matrix.file.row_bytes, 768, row);
        for (uint32_t r = 0; r < 8; r++) {
            double sum = 0, size = 0;
            for (uint32_t i = 0; i < 768; i++) {
                size_t at = (size_t)r * p.x.stride + i;
                double term = (double)row[i] * p.x.q[at] * (double)p.x.d[at / 32];
                sum += term;
                size += fabs(term);
            }
            double error = fabs(sum - (double)p.want[(size_t)r * p.stride + o]);
            ck_assert_msg(error <= size * 1e-6, "%s: %g off of %g", quant_name(every_quantized[_i]),
                          error, size);
        }
    }
    problem_close(&p);
}
END_TEST

START_TEST(a_packed_row_unpacks_to_the_row_of_the_file)
{
    uint64_t seed = 40 + (uint64_t)_i;
    struct problem p;
    uint32_t cols = quant_find(every_type[_i])->block == 256 ? 512 : 288;
    problem_open(&p, &seed, every_type[_i], cols, 37, 1, HELP_WIDE);
    float want[512], got[512];
    for (uint32_t r = 0; r < 37; r++) {
        ref_matrix_row(&p.matrix.file, r, want);
        repack_row(&p.matrix, r, got);
        ck_assert_uint_eq(help_differs(want, got, cols), cols);
    }
    problem_close(&p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_matmul");
    TCase *tcase = tcase_create("matmul");
    tcase_add_loop_test(tcase, matmul_equals_reference, 0, EVERY_TYPE);
    tcase_add_loop_test(tcase, matmul_equals_reference_in_blocks_of_rows, 0, EVERY_TYPE);
    tcase_add_loop_test(tcase, matmul_equals_reference_in_blocks_of_few_rows, 0, 5);
    tcase_add_test(tcase, matmul_does_not_saturate);
    tcase_add_test(tcase, reference_sums_in_segments);
    tcase_add_loop_test(tcase, reference_multiplies_blocks, 0, EVERY_QUANTIZED);
    tcase_add_loop_test(tcase, reference_is_near_the_exact_matmul, 0, EVERY_QUANTIZED);
    tcase_add_loop_test(tcase, a_packed_row_unpacks_to_the_row_of_the_file, 0, EVERY_TYPE);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    help_say_missing_isas();
    return run_suite(suite);
}
