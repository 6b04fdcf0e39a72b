/* The pass contract on the CPU: a row's bits depend only on its token, its position and the KV
 * before it: not on the instruction set, chunks, threads or pages. Passes of several sequences are
 * in test_cpu_sequences.c, nonfinite numbers in test_cpu_poison.c, invalid passes in
 * test_cpu_refusals.c. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/expected.h"

static const char *const isas[] = {"ref", "avx2", "avxvnni", "avx512"};
enum { N_ISAS = sizeof(isas) / sizeof(isas[0]) };

static void check_instance(const struct expected *e, const char *isa, uint32_t threads,
                           uint32_t chunk, uint64_t page_seed)
{
    uint32_t pages[EXPECTED_PAGES];
    char what[128];
    float *got = help_memory((size_t)e->n * e->m.model->n_vocab * sizeof(float));
    struct backend *b = help_backend(&e->m, isa, threads, e->n, EXPECTED_PAGES);
    expected_page_ids(page_seed, pages);
    help_logits(b, e->m.model, e->tokens, e->n, chunk, pages, got);
    snprintf(what, sizeof(what), "%s, %u threads, chunks of %u", isa, threads, chunk);
    expected_same(e, got, what);
    backend_cpu.close(b);
    free(got);
}

/* The reference computes all rows at once; all other ways must equal it. */
START_TEST(every_instruction_set_and_chunking_gives_the_same_bits)
{
    struct tiny_model shape = tiny_model_default(expected_type(_i));
    struct expected e;
    shape.kv_q8_0 = expected_q8_0(_i);
    shape.untied = _i % 2;
    shape.seed = 100 + (uint64_t)_i;
    expected_open(&e, &shape, "ref", 70);
    check_instance(&e, "ref", 1, 3, 7);
    for (int i = 1; i < N_ISAS; i++) {
        if (!help_has_isa(isas[i]))
            continue;
        const uint32_t chunks[] = {1, 3, 32, 0, 7};
        for (uint32_t c = 0; c < 5; c++)
            check_instance(&e, isas[i], 1 + c % 4, chunks[c], c);
    }
    expected_close(&e);
}
END_TEST

/* Every architecture, with and without divisors of its frequencies, in a float and two quantized
 * types. */
static const char *const archs[] = {
    "llama",     "qwen2",  "qwen3",          "gemma3",        "granite",
    "smollm3",   "phi3",   "mistral3",       "qwen3moe",      "qwen2moe",
    "glm4moe",   "qwen35", "qwen35moe",      "granitemoe",    "ernie4_5-moe",
    "gpt-oss",   "gemma4", "gemma4-experts", "gemma4-inputs", "gemma4-all",
    "qwen3next", "lfm2",   "lfm2moe",        "seed_oss",      "ernie4_5",
    "glm4",      "dots1",  "granitehybrid",  "granite-h-moe", "exaone4",
    "olmo2"};
enum { N_ARCHS = sizeof(archs) / sizeof(archs[0]) };

START_TEST(every_architecture_gives_the_same_bits)
{
    const uint32_t arch_types[] = {QUANT_F32, QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0};
    for (int t = 0; t < 4; t++) {
        struct tiny_model shape = tiny_model_default(arch_types[t]);
        struct expected e;
        shape.n_layer = 4; /* the fourth of smollm3 has no rope */
        tiny_model_as(&shape, archs[_i]);
        shape.freqs = t % 2 == 0;
        shape.head_dim = t < 2 ? 0 : strcmp(shape.arch, "gemma4") == 0 ? 48 : 24;
        shape.seed = 400 + (uint64_t)(10 * _i + t);
        expected_open(&e, &shape, "ref", 70);
        for (int i = 1; i < N_ISAS; i++) {
            if (!help_has_isa(isas[i]))
                continue;
            const uint32_t chunks[] = {1, 0, 7};
            for (uint32_t c = 0; c < 3; c++)
                check_instance(&e, isas[i], 1 + c, chunks[c], c);
        }
        expected_close(&e);
    }
}
END_TEST

/* Sizes that fill no register, group or block; head sizes of all kinds; several splits. */
enum { N_SHAPES = 16 };

START_TEST(odd_shapes_give_the_same_bits)
{
    const struct tiny_model shapes[N_SHAPES] = {
        {.n_layer = 1, .n_embd = 36, .n_ff = 50, .n_head = 6, .n_head_kv = 3, .n_vocab = 261},
        {.n_layer = 2, .n_embd = 40, .n_ff = 33, .n_head = 2, .n_head_kv = 1, .n_vocab = 300},
        {.n_layer = 1,
         .n_embd = 64,
         .n_ff = 172,
         .n_head = 12,
         .n_head_kv = 1,
         .head_dim = 24,
         .n_vocab = 277},
        {.n_layer = 1,
         .n_embd = 288,
         .n_ff = 520,
         .n_head = 3,
         .n_head_kv = 3,
         .head_dim = 80,
         .n_vocab = 259,
         .untied = true},
        {.n_layer = 1,
         .n_embd = 32,
         .n_ff = 544,
         .n_head = 7,
         .n_head_kv = 7,
         .head_dim = 2,
         .n_vocab = 1000},
        {.arch = "qwen2",
         .n_layer = 2,
         .n_embd = 42,
         .n_ff = 35,
         .n_head = 3,
         .n_head_kv = 1,
         .n_vocab = 263},
        {.arch = "qwen3",
         .n_layer = 2,
         .n_embd = 33,
         .n_ff = 70,
         .n_head = 6,
         .n_head_kv = 2,
         .head_dim = 22,
         .n_vocab = 270,
         .untied = true},
        {.arch = "qwen3",
         .n_layer = 1,
         .n_embd = 50,
         .n_ff = 41,
         .n_head = 2,
         .n_head_kv = 2,
         .head_dim = 130,
         .freqs = true,
         .n_vocab = 259},
        {.arch = "qwen2",
         .n_layer = 1,
         .n_embd = 30,
         .n_ff = 17,
         .n_head = 5,
         .n_head_kv = 5,
         .freqs = true,
         .n_vocab = 301},
        {.n_layer = 40, /* many matrices of one row, each padded to a group */
         .n_embd = 512,
         .n_ff = 1,
         .n_head = 2,
         .n_head_kv = 2,
         .head_dim = 2,
         .n_vocab = 259},
        {.arch = "gemma3", /* a window from a split into the next one */
         .n_layer = 3,
         .n_embd = 34,
         .n_ff = 50,
         .n_head = 4,
         .n_head_kv = 1,
         .head_dim = 26,
         .window = 100,
         .n_vocab = 265},
        {.arch = "gemma3", /* one that begins after the first split */
         .n_layer = 2,
         .n_embd = 32,
         .n_ff = 36,
         .n_head = 6,
         .n_head_kv = 2,
         .head_dim = 16,
         .window = 3,
         .n_vocab = 259},
        {.arch = "qwen3", /* V's heads larger than K's, KV heads by layer */
         .n_layer = 3,
         .n_embd = 36,
         .n_ff = 50,
         .n_head = 6,
         .n_head_kv = 6,
         .head_dim = 10,
         .v_dim = 42,
         .odd_head_kv = 2,
         .n_vocab = 270},
        {.arch = "gemma3", /* smaller ones */
         .n_layer = 4,
         .n_embd = 32,
         .n_ff = 36,
         .n_head = 4,
         .n_head_kv = 1,
         .head_dim = 140,
         .v_dim = 22,
         .odd_head_kv = 4,
         .window = 40,
         .n_vocab = 259},
        {.arch = "gemma3", /* sinks, in a window and in all positions */
         .n_layer = 2,
         .n_embd = 32,
         .n_ff = 36,
         .n_head = 6,
         .n_head_kv = 2,
         .head_dim = 16,
         .window = 128,
         .sinks = true,
         .n_vocab = 259},
        {.arch = "qwen2", /* more heads than are attended to together */
         .n_layer = 1,
         .n_embd = 36,
         .n_ff = 40,
         .n_head = 70,
         .n_head_kv = 1,
         .head_dim = 6,
         .sinks = true,
         .n_vocab = 259},
    };
    struct tiny_model shape = shapes[_i % N_SHAPES];
    shape.kv_q8_0 = _i >= N_SHAPES;
    shape.type = QUANT_F32;
    shape.n_context = 512;
    shape.seed = 200 + (uint64_t)_i;
    shape.scale = 1;
    struct expected e;
    expected_open(&e, &shape, "ref",
                  _i % N_SHAPES == 1 || shape.window > 0 ? 270 : 50); /* 270: two splits */
    for (int i = 1; i < N_ISAS; i++) {
        if (help_has_isa(isas[i])) {
            check_instance(&e, isas[i], 1 + (uint32_t)i, 40, 3);
            check_instance(&e, isas[i], 1, 1, 4);
        }
    }
    /* two rows and one or two KV heads: each split runs on its own thread */
    for (int i = 0; i < N_ISAS && e.n > CPU_SPLIT; i++) {
        if (help_has_isa(isas[i]))
            check_instance(&e, isas[i], 3, 2, 5);
    }
    expected_close(&e);
}
END_TEST

/* Different logits, another numerics id, and 36 bytes instead of 64. */
START_TEST(kv_in_q8_0_has_another_numerics_id)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct backend_info info[2];
    struct expected e[2];
    shape.n_head = shape.n_head_kv = 2; /* heads of 32: whole blocks */
    for (int i = 0; i < 2; i++) {
        shape.kv_q8_0 = i == 1;
        expected_open(&e[i], &shape, NULL, 40);
        struct backend *b = help_backend(&e[i].m, NULL, 1, 4, EXPECTED_PAGES);
        backend_cpu.describe(b, &info[i]);
        backend_cpu.close(b);
    }
    ck_assert_str_eq(info[0].numerics, "portable-1");
    ck_assert_str_eq(info[1].numerics, "portable-1-kvq8");
    ck_assert_uint_eq(info[1].page_bytes * 64, info[0].page_bytes * 36);
    size_t n = (size_t)40 * e[0].m.model->n_vocab;
    ck_assert_uint_lt(help_differs(e[0].logits, e[1].logits, n), n);
    expected_close(&e[0]);
    expected_close(&e[1]);
}
END_TEST

/* Large enough that matmuls (by groups and by rows) and attention are really divided among
 * threads. */
START_TEST(threads_never_change_a_bit)
{
    struct tiny_model shape = {.n_layer = 2,
                               .n_embd = 256,
                               .n_ff = 768,
                               .n_head = 8,
                               .n_head_kv = 2,
                               .n_vocab = 2000,
                               .n_context = 512,
                               .type = expected_type(_i),
                               .seed = 300,
                               .scale = 1,
                               .kv_q8_0 = expected_q8_0(_i)};
    struct expected e;
    expected_open(&e, &shape, NULL, 200);
    for (uint32_t threads = 2; threads <= 4; threads++)
        check_instance(&e, help_has_isa("avx2") ? "avx2" : "ref", threads, threads == 3 ? 0 : 48,
                       threads);
    for (int i = 2; i < N_ISAS; i++) {
        if (help_has_isa(isas[i]))
            check_instance(&e, isas[i], 3, 7, 9);
    }
    expected_close(&e);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_pass");
    TCase *tcase = tcase_create("same bits");
    tcase_add_loop_test(tcase, every_instruction_set_and_chunking_gives_the_same_bits, 0,
                        2 * EXPECTED_TYPES);
    tcase_add_loop_test(tcase, every_architecture_gives_the_same_bits, 0, N_ARCHS);
    tcase_add_loop_test(tcase, odd_shapes_give_the_same_bits, 0, 2 * N_SHAPES);
    tcase_add_test(tcase, kv_in_q8_0_has_another_numerics_id);
    tcase_add_loop_test(tcase, threads_never_change_a_bit, 0, 2 * EXPECTED_TYPES);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    help_say_missing_isas();
    return run_suite(suite);
}
