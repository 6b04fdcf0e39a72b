/* Correct kernels give the results of a plain model in any order of threads: each intrinsic, warps,
 * barriers of blocks and grids, matrix instructions, asynchronous copies. Loop tests run in several
 * orders: _i is the order. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/num.h"
#include "tests/cudasim/help.h"
#include "tests/run_suite.h"

/* Before the first call of the simulator in this (forked) process. */
static void use_order(int i)
{
    static const char *const orders[] = {"up", "down", "1", "2", "3"};

    (void)setenv("HEARTH_CUDASIM_ORDER", orders[i], 1);
}
enum { ORDERS = 5 };

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8 ^ *state << 13;
}

START_TEST(a_sum_through_warps_and_shared_memory)
{
    enum { BLOCKS = 7, N = 1000 };
    static int in[BLOCKS * N];
    int want[BLOCKS] = {0}, got[BLOCKS];
    uint32_t state = 1;

    use_order(_i);
    for (unsigned i = 0; i < BLOCKS * N; i++) {
        in[i] = (int)(next_random(&state) % 2001) - 1000;
        want[i / N] += in[i];
    }
    struct toy toy = {.blocks = BLOCKS, .threads = 256, .shared_bytes = 32, .n = N};
    toy.in = help_device(in, BLOCKS * N);
    toy.out = help_device(NULL, BLOCKS);
    OK(toy_sum(&toy));
    help_read(got, toy.out, BLOCKS);
    ck_assert_mem_eq(got, want, sizeof(want));
}
END_TEST

START_TEST(a_dot_product_of_bytes)
{
    enum { N = 4096 };
    static int8_t bytes[2 * N];
    int want = 0, got;
    uint32_t state = 2;

    use_order(_i);
    for (unsigned i = 0; i < 2 * N; i++)
        bytes[i] = (int8_t)next_random(&state);
    for (unsigned i = 0; i < N; i++)
        want += bytes[i] * bytes[N + i];
    struct toy toy = {.blocks = 1, .threads = 32, .n = N};
    int words[2 * N / 4];
    memcpy(words, bytes, sizeof(bytes));
    toy.in = help_device(words, 2 * N / 4);
    toy.out = help_device(NULL, 1);
    OK(toy_dot(&toy));
    help_read(&got, toy.out, 1);
    ck_assert_int_eq(got, want);
}
END_TEST

START_TEST(the_last_block_reads_what_all_have_written)
{
    enum { BLOCKS = 6 };
    const int in[BLOCKS] = {1, 20, 300, 4000, 50000, 600000}, zeros[BLOCKS + 2] = {0};
    int got[BLOCKS + 2];

    use_order(_i);
    struct toy toy = {.blocks = BLOCKS, .threads = 64};
    toy.in = help_device(in, BLOCKS);
    toy.out = help_device(zeros, BLOCKS + 2);
    OK(toy_last_block(&toy));
    help_read(got, toy.out, BLOCKS + 2);
    ck_assert_int_eq(got[BLOCKS + 1], 654321);
}
END_TEST

START_TEST(every_thread_of_every_block_runs_once)
{
    enum { BLOCKS = 33, THREADS = 100 };
    static int got[BLOCKS * THREADS];

    use_order(_i);
    struct toy toy = {.blocks = BLOCKS, .threads = THREADS};
    toy.out = help_device(NULL, BLOCKS * THREADS);
    OK(toy_identity(&toy));
    help_read(got, toy.out, BLOCKS * THREADS);
    for (int i = 0; i < BLOCKS * THREADS; i++)
        ck_assert_int_eq(got[i], i / THREADS * 1000 + i % THREADS);
}
END_TEST

/* What lane `lane` gets from operation `op` of toy_warp according to CUDA's manual. */
static int warp_model(int op, int lane, const int *v)
{
    int sum = 0, least = v[0];
    unsigned most = 0, exclusive = 0, ballot = 0, same = 0;

    for (int i = 0; i < 32; i++) {
        sum = (int)((unsigned)sum + (unsigned)v[i]);
        least = v[i] < least ? v[i] : least;
        most = (unsigned)v[i] > most ? (unsigned)v[i] : most;
        exclusive ^= (unsigned)v[i];
        ballot |= (unsigned)(v[i] & 1) << i;
        same |= (unsigned)((v[i] & 3) == (v[lane] & 3)) << i;
    }
    const int results[] = {v[lane * 7 % 32],
                           v[lane < 3 ? lane : lane - 3],
                           v[lane > 26 ? lane : lane + 5],
                           v[lane ^ 9],
                           v[lane / 8 * 8 + 2],
                           v[lane % 8 > 4 ? lane : lane + 3],
                           (int)ballot,
                           1,
                           1,
                           sum,
                           least,
                           (int)most,
                           (int)exclusive,
                           v[lane < 16 ? lane ^ 1 : lane ^ 2],
                           (int)same,
                           v[lane % 8 < 3 ? lane : lane - 3],
                           v[(lane ^ 9) > (lane | 7) ? lane : lane ^ 9]};
    return results[op];
}

START_TEST(shuffles_votes_and_reductions)
{
    enum { OPS = 17 };
    int v[32], got[OPS * 32];
    uint32_t state = 3;

    use_order(_i);
    for (int i = 0; i < 32; i++)
        v[i] = (int)(next_random(&state) % 100000) - 50000;
    struct toy toy = {.blocks = 1, .threads = 32};
    toy.in = help_device(v, 32);
    toy.out = help_device(NULL, OPS * 32);
    OK(toy_warp(&toy));
    help_read(got, toy.out, OPS * 32);
    for (int op = 0; op < OPS; op++) {
        for (int lane = 0; lane < 32; lane++)
            ck_assert_msg(got[op * 32 + lane] == warp_model(op, lane, v), "operation %d, lane %d",
                          op, lane);
    }
}
END_TEST

START_TEST(atomics_and_a_lock)
{
    enum { THREADS = 96 };
    int got[9] = {0, -100, 100, 0, 0, 0, 0, 0, 0};

    use_order(_i);
    struct toy toy = {.blocks = 1, .threads = THREADS};
    toy.out = help_device(got, 9);
    OK(toy_atomics(&toy));
    help_read(got, toy.out, 9);
    ck_assert_int_eq(got[0], THREADS * (THREADS - 1) / 2);
    ck_assert_int_eq(got[1], THREADS - 51);
    ck_assert_int_eq(got[2], 21 - THREADS);
    ck_assert_uint_eq((unsigned)got[3], 0xffffffffu);
    ck_assert_int_eq(got[4], -THREADS);
    ck_assert_int_eq(got[6], 0);
    ck_assert_int_eq(got[7], 2 * THREADS);
    ck_assert_int_eq(got[8], THREADS);
}
END_TEST

START_TEST(mma_of_bytes_equals_the_plain_product)
{
    int8_t a[16][32], b[32][8];
    int c[16][8], in[320], got[16][8];
    uint32_t state = 4;

    use_order(_i);
    for (int i = 0; i < 512; i++)
        a[i / 32][i % 32] = (int8_t)next_random(&state);
    for (int i = 0; i < 256; i++)
        b[i / 8][i % 8] = (int8_t)next_random(&state);
    for (int i = 0; i < 128; i++)
        c[i / 8][i % 8] = (int)next_random(&state) % 1000;
    memcpy(in, a, 512);
    memcpy(in + 128, b, 256);
    memcpy(in + 192, c, 512);
    struct toy toy = {.blocks = 1, .threads = 32};
    toy.in = help_device(in, 320);
    toy.out = help_device(NULL, 128);
    OK(toy_mma_i8(&toy));
    help_read(got[0], toy.out, 128);
    for (int row = 0; row < 16; row++) {
        for (int column = 0; column < 8; column++) {
            for (int k = 0; k < 32; k++)
                c[row][column] += a[row][k] * b[k][column];
            ck_assert_int_eq(got[row][column], c[row][column]);
        }
    }
}
END_TEST

/* Operands of a matmul of 16-bit floats as the toy kernels read them. */
struct halves {
    uint16_t a[16][16], b[16][8];
    float c[16][8];
};

static void run_halves(const struct halves *in, bool bf16, float got[16][8])
{
    struct toy toy = {.blocks = 1, .threads = 32};

    toy.in = help_device((const int *)(const void *)in, sizeof(*in) / 4);
    toy.out = help_device(NULL, 128);
    if (bf16)
        OK(toy_mma_bf16(&toy));
    else
        OK(toy_mma_f16(&toy));
    help_read((int *)(void *)got, toy.out, 128);
}

static uint16_t half_of(float x, bool bf16)
{
    return bf16 ? num_bf16_from_f32(x) : num_f16_from_f32(x);
}

static double double_of(uint16_t half, bool bf16)
{
    return (double)(bf16 ? num_f32_from_bf16(half) : num_f32_from_f16(half));
}

/* Near the double-precision result, and equal under any permutation of rows, columns and k. */
START_TEST(mma_of_halves_is_near_the_double_product)
{
    const bool bf16 = _i == 1;
    struct halves in, turned;
    float got[16][8], other[16][8];
    uint32_t state = 5;

    for (int i = 0; i < 256; i++)
        in.a[i / 16][i % 16] = half_of((float)(int)(next_random(&state) % 2000) / 700 - 1, bf16);
    for (int i = 0; i < 128; i++)
        in.b[i / 8][i % 8] = half_of((float)(int)(next_random(&state) % 2000) / 700 - 1, bf16);
    for (int i = 0; i < 128; i++)
        in.c[i / 8][i % 8] = (float)(next_random(&state) % 1000) / 300;
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++)
            turned.a[15 - row][(k * 5 + 3) % 16] = in.a[row][k];
    for (int column = 0; column < 8; column++) {
        for (int k = 0; k < 16; k++)
            turned.b[(k * 5 + 3) % 16][7 - column] = in.b[k][column];
        for (int row = 0; row < 16; row++)
            turned.c[15 - row][7 - column] = in.c[row][column];
    }
    run_halves(&in, bf16, got);
    run_halves(&turned, bf16, other);
    for (int row = 0; row < 16; row++) {
        for (int column = 0; column < 8; column++) {
            double want = (double)in.c[row][column];
            for (int k = 0; k < 16; k++)
                want += double_of(in.a[row][k], bf16) * double_of(in.b[k][column], bf16);
            ck_assert_double_le(fabs((double)got[row][column] - want), 17 * 0x1p-22);
            ck_assert_mem_eq(&got[row][column], &other[15 - row][7 - column], sizeof(float));
        }
    }
}
END_TEST

/* Terms are truncated 25 bits below the largest exponent, and a product with 0 counts too: 2^-14
 * times 2^15. */
START_TEST(mma_aligns_terms_to_the_largest_exponent)
{
    struct halves in;
    float got[16][8];

    memset(&in, 0, sizeof(in));
    in.a[2][3] = num_f16_from_f32(0x1.004p-10f);
    in.b[3][1] = num_f16_from_f32(0x1p-10f);
    in.c[4][5] = 1;
    in.a[4][0] = num_f16_from_f32(0x1p-13f);
    in.b[0][5] = num_f16_from_f32(0x1.8p-13f);
    run_halves(&in, false, got);
    ck_assert(got[2][1] == 0x1.004p-20f);
    ck_assert(got[4][5] == 1); /* 1.5 * 2^-26 is truncated */
    in.b[9][1] = num_f16_from_f32(0x1p15f);
    run_halves(&in, false, got);
    ck_assert(got[2][1] == 0x1p-20f);
    in.a[0][0] = num_f16_from_f32(INFINITY);
    run_halves(&in, false, got);
    ck_assert(isinf(got[0][5]) && isnan(got[0][0]) && got[4][5] == 1);
}
END_TEST

START_TEST(matrices_loaded_and_transposed)
{
    uint16_t matrix[4][8][8];
    int in[128], got[256];

    for (unsigned i = 0; i < 256; i++)
        matrix[i / 64][i / 8 % 8][i % 8] = (uint16_t)(i * 257);
    memcpy(in, matrix, sizeof(in));
    struct toy toy = {.blocks = 1, .threads = 32, .shared_bytes = 512};
    toy.in = help_device(in, 128);
    toy.out = help_device(NULL, 256);
    OK(toy_load_matrix(&toy));
    help_read(got, toy.out, 256);
    for (int m = 0; m < 4; m++) {
        for (int lane = 0; lane < 32; lane++) {
            const int row = lane / 4, column = lane % 4 * 2;
            ck_assert_uint_eq((unsigned)got[64 * m + lane],
                              (unsigned)matrix[m][row][column + 1] << 16 | matrix[m][row][column]);
            ck_assert_uint_eq((unsigned)got[64 * m + 32 + lane],
                              (unsigned)matrix[m][column + 1][row] << 16 | matrix[m][column][row]);
        }
    }
}
END_TEST

START_TEST(wgmma_adds_as_mma_does)
{
    struct toy toy = {.blocks = 1, .threads = 128, .shared_bytes = 4096};
    uint16_t in[3072];
    int got[128];
    uint32_t state = 7;

    use_order(_i);
    for (int i = 0; i < 3072; i++)
        in[i] = num_bf16_from_f32((float)(int)(next_random(&state) % 2000) / 700 - 1);
    toy.in = help_device((const int *)(const void *)in, 1536);
    toy.out = help_device(NULL, 128);
    OK(toy_wgmma(&toy));
    help_read(got, toy.out, 128);
    for (int i = 0; i < 128; i++)
        ck_assert_int_eq(got[i], 0);
}
END_TEST

START_TEST(asynchronous_copies_arrive_at_their_wait)
{
    enum { N = 101 };
    int in[N], got[N + 1];

    use_order(_i);
    for (int i = 0; i < N; i++)
        in[i] = i * i;
    struct toy toy = {.blocks = 1, .threads = 32, .shared_bytes = 512, .n = N};
    toy.in = help_device(in, N);
    toy.out = help_device(NULL, N + 1);
    OK(toy_copy_async(&toy));
    help_read(got, toy.out, N + 1);
    ck_assert_mem_eq(got, in, sizeof(in));
    ck_assert_int_eq(got[N], 0);
}
END_TEST

START_TEST(bytes_of_one_word_and_words_after_barriers_do_not_race)
{
    int got[64];

    use_order(_i);
    struct toy toy = {.blocks = 1, .threads = 64, .shared_bytes = 256};
    toy.out = help_device(NULL, 64);
    OK(toy_no_race(&toy));
    help_read(got, toy.out, 64);
    for (int t = 0; t < 64; t++)
        ck_assert_int_eq(got[t], 63 - t + (t ^ 1) + 65);
}
END_TEST

/* ---- arithmetic ---- */

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return value != value ? 0x7fc00000u : bits;
}

static void check_arithmetic(const uint32_t *in, const int *got)
{
    const uint32_t a = in[0], b = in[1];
    const float x = float_of(in[2]), y = float_of(in[3]), z = float_of(in[4]);
    const volatile float product = x * y;
    int dot = 7;
    unsigned udot = 7, popc = 0, reversed = 0, clz = 0, ffs = 0;

    for (unsigned i = 0; i < 4; i++) {
        dot += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
        udot += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    }
    for (unsigned i = 0; i < 32; i++) {
        popc += a >> i & 1;
        reversed |= (a >> i & 1) << (31 - i);
        clz += (a >> i) == 0;
        ffs = ffs == 0 && (a >> i & 1) ? i + 1 : ffs;
    }
    ck_assert_int_eq(got[0], dot);
    ck_assert_uint_eq((unsigned)got[1], udot);
    ck_assert_uint_eq((unsigned)got[2], (unsigned)((uint64_t)a * b >> 32));
    ck_assert_int_eq(got[3], (int)((int64_t)(int32_t)a * (int32_t)b >> 32));
    ck_assert_uint_eq((unsigned)got[4], popc);
    ck_assert_uint_eq((unsigned)got[5], clz);
    ck_assert_uint_eq((unsigned)got[6], ffs);
    ck_assert_uint_eq((unsigned)got[7], reversed);
    ck_assert_uint_eq((unsigned)got[8],
                      (a >> 8 & 255) | (a >> 24) << 8 | (b >> 8 & 255) << 16 | (b >> 24) << 24);
    ck_assert_uint_eq((unsigned)got[9], b << 5 | a >> 27);
    ck_assert_uint_eq(bits_of(float_of((uint32_t)got[10])), bits_of(fmaf(x, y, z)));
    ck_assert_uint_eq(bits_of(float_of((uint32_t)got[11])), bits_of(product));
    ck_assert_uint_eq(bits_of(float_of((uint32_t)got[12])), bits_of(x + y));
    ck_assert_uint_eq(bits_of(float_of((uint32_t)got[13])), bits_of(x / y));
    ck_assert_uint_eq(bits_of(float_of((uint32_t)got[14])), bits_of(sqrtf(x)));
    if (x == x)
        ck_assert_uint_eq((unsigned)got[15], num_f16_from_f32(x));
    ck_assert_uint_eq(bits_of(float_of((uint32_t)got[16])), bits_of(num_f32_from_f16((uint16_t)a)));
    ck_assert_uint_eq((unsigned)got[17], (unsigned)((uint64_t)a * b));
    if (fabsf(x) < 1e9f)
        ck_assert_int_eq(got[18], (int)rintf(x));
    ck_assert_uint_eq(bits_of(float_of((uint32_t)got[19])), bits_of(x - y));
}

/* Random words and floats, and around the limits of f16: denormals, ties, its largest number. */
START_TEST(arithmetic_equals_the_reference)
{
    static const uint32_t edges[] = {0x00000000, 0x80000000, 0x33000000, 0x33000001, 0x33800000,
                                     0x387fe000, 0x387ff000, 0x38800000, 0x3f802000, 0x3f801000,
                                     0x3f803000, 0x477fe000, 0x477fefff, 0x477ff000, 0x47800000,
                                     0x7f800000, 0xff800000, 0x7fc00000, 0x00000001, 0x3f800000};
    enum { EDGES = sizeof(edges) / sizeof(edges[0]), CASES = 400 };
    uint32_t state = 6, in[5];
    int got[20];
    struct toy toy = {.blocks = 1, .threads = 1};

    toy.out = help_device(NULL, 20);
    int *device = help_device(NULL, 5);
    toy.in = device;
    for (unsigned i = 0; i < CASES; i++) {
        for (unsigned k = 0; k < 5; k++)
            in[k] = next_random(&state);
        if (i % 2 == 0)
            in[2] = edges[i / 2 % EDGES];
        else if (i % 4 == 1) /* in the range of f16 */
            in[2] = (in[2] & 0x8fffffff) | 0x30000000;
        OK(cudaMemcpy(device, in, sizeof(in), cudaMemcpyHostToDevice));
        OK(toy_byte(&toy));
        help_read(got, toy.out, 20);
        check_arithmetic(in, got);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels");
    TCase *tests = tcase_create("kernels");

    tcase_add_loop_test(tests, a_sum_through_warps_and_shared_memory, 0, ORDERS);
    tcase_add_loop_test(tests, a_dot_product_of_bytes, 0, ORDERS);
    tcase_add_loop_test(tests, the_last_block_reads_what_all_have_written, 0, ORDERS);
    tcase_add_loop_test(tests, every_thread_of_every_block_runs_once, 0, ORDERS);
    tcase_add_loop_test(tests, shuffles_votes_and_reductions, 0, ORDERS);
    tcase_add_loop_test(tests, atomics_and_a_lock, 0, ORDERS);
    tcase_add_loop_test(tests, mma_of_bytes_equals_the_plain_product, 0, ORDERS);
    tcase_add_loop_test(tests, mma_of_halves_is_near_the_double_product, 0, 2);
    tcase_add_test(tests, mma_aligns_terms_to_the_largest_exponent);
    tcase_add_test(tests, matrices_loaded_and_transposed);
    tcase_add_loop_test(tests, wgmma_adds_as_mma_does, 0, ORDERS);
    tcase_add_loop_test(tests, asynchronous_copies_arrive_at_their_wait, 0, ORDERS);
    tcase_add_loop_test(tests, bytes_of_one_word_and_words_after_barriers_do_not_race, 0, ORDERS);
    tcase_add_test(tests, arithmetic_equals_the_reference);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
