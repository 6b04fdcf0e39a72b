/* Loading: every row is where a pass reads it, every tensor is hashed, weights are in memory once,
 * and the file's pages are not mapped in. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/load.h"
#include "kernels/cpu/repack.h"
#include "kernels/cpu/weights.h"
#include "kernels/gguf/gguf.h"
#include "kernels/quant/quant_block.h"
#include "kernels/quant/quant_types.h"
#include "tests/run_suite.h"
#include "tests/rig/tiny_model.h"

static const char BUNDLED[] = "daemon/models/hearth-code-5m-f16.gguf"; /* some huge pages long */

static struct gguf *gguf;
static struct model *model;
static char err[256];

static void setup(void)
{
    ck_assert_int_eq(gguf_open(BUNDLED, &gguf, err, sizeof(err)), 0);
    ck_assert_int_eq(model_open(gguf, &model, err, sizeof(err)), 0);
}

static void teardown(void)
{
    model_close(model);
    gguf_close(gguf);
}

static _Atomic uint64_t loaded_bytes; /* by the last open */

static struct backend *open_backend_of(const struct model *of, uint32_t threads, const char *isa)
{
    const struct backend_limits limits = {.rows = 4,
                                          .samples = 1,
                                          .pages = 2,
                                          .context = 64,
                                          .threads = threads,
                                          .isa = isa,
                                          .loaded = &loaded_bytes};
    loaded_bytes = 0;
    struct backend *b = NULL;
    ck_assert_int_eq(backend_cpu.open(of, &limits, &b, err, sizeof(err)), 0);
    return b;
}

static struct backend *open_backend(uint32_t threads, const char *isa)
{
    return open_backend_of(model, threads, isa);
}

static void check_matrix(const struct cpu_matrix *m)
{
    const struct model_tensor *t = &m->file;
    float *want = malloc(t->cols * sizeof(float)), *got = malloc(t->cols * sizeof(float));
    ck_assert(want && got);
    for (uint32_t row = 0; row < t->rows; row++) {
        quant_row_values(t->type, t->data + row * t->row_bytes, t->cols, want);
        repack_row(m, row, got);
        ck_assert_mem_eq(got, want, t->cols * sizeof(float));
    }
    free(want);
    free(got);
}

START_TEST(every_row_is_packed_by_any_thread)
{
    struct backend *b = open_backend((uint32_t)_i, NULL);
    struct cpu_matrix *m;
    uint32_t n = 0;
    for (; b->isa->packed && (m = weights_matrix(&b->weights[PASS_CANONICAL], model, n)) != NULL;
         n++)
        check_matrix(m);
    ck_assert_uint_eq(n, b->isa->packed ? model->n_layer * 7 + 1 : 0);
    backend_cpu.close(b);
}
END_TEST

/* Quantized models several huge pages long: units of the load end inside matrices, and last groups
 * and segments are partial. */
static const struct tiny_model odd[] = {
    {.n_embd = 1056, .n_ff = 1312, .n_head = 16, .n_head_kv = 1, .head_dim = 34, .n_vocab = 2081},
    {.n_embd = 2080, .n_ff = 480, .n_head = 16, .n_head_kv = 1, .head_dim = 26, .n_vocab = 263},
    {.n_embd = 288, .n_ff = 2336, .n_head = 9, .n_head_kv = 9, .head_dim = 32, .n_vocab = 5003},
};
static const uint32_t odd_types[] = {QUANT_Q8_0, QUANT_Q4_0, QUANT_Q5_0,
                                     QUANT_Q5_1, TINY_MIXED, QUANT_MXFP4};
static const struct tiny_model odd_k[] = {
    {.n_embd = 1280, .n_ff = 1792, .n_head = 16, .n_head_kv = 16, .head_dim = 80, .n_vocab = 2081},
    {.n_embd = 768, .n_ff = 2816, .n_head = 6, .n_head_kv = 3, .head_dim = 128, .n_vocab = 1031},
};
static const uint32_t odd_k_types[] = {QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K, TINY_MIXED_K,
                                       TINY_MIXED_SMALL};

enum {
    N_ODD = sizeof(odd) / sizeof(odd[0]) * (sizeof(odd_types) / sizeof(odd_types[0])),
    N_ODD_K = sizeof(odd_k) / sizeof(odd_k[0]) * (sizeof(odd_k_types) / sizeof(odd_k_types[0])),
    UNIT = 2 << 20 /* UNIT_BYTES of load.c */
};

static struct tiny_model odd_shape(uint32_t i)
{
    const bool k = i >= N_ODD;
    const uint32_t n = k ? sizeof(odd_k) / sizeof(odd_k[0]) : sizeof(odd) / sizeof(odd[0]),
                   at = k ? i - N_ODD : i;
    struct tiny_model shape = k ? odd_k[at % n] : odd[at % n];
    shape.type = k ? odd_k_types[at / n] : odd_types[at / n];
    shape.n_layer = 1;
    shape.n_context = 64;
    shape.untied = i % 2;
    shape.seed = 900 + i;
    shape.scale = 1;
    return shape;
}

/* The loaded matrix equals one packed group by group on one thread, and one that all threads pack
 * from memory with its first group across a unit boundary. */
static void check_packed(const struct cpu_matrix *m, struct thread_pool *pool)
{
    const size_t bytes = repack_bytes(m), before = UNIT - m->group_bytes / 128 * 64;
    struct cpu_matrix alone = *m, shared = *m;
    alone.packed = calloc(1, bytes);
    uint8_t *units = aligned_alloc(UNIT, (before + bytes + UNIT - 1) / UNIT * UNIT);
    ck_assert(alone.packed && units);
    for (uint32_t g = 0; g < m->groups; g++)
        repack_group(&alone, g, m->file.data + g * repack_file_bytes(m));
    ck_assert_mem_eq(m->packed, alone.packed, bytes);
    shared.packed = memset(units + before, 0, bytes);
    load_from_memory(pool, &shared);
    ck_assert_mem_eq(shared.packed, alone.packed, bytes);
    free(alone.packed);
    free(units);
}

static void check_fingerprint(const struct model *loaded, const struct gguf *file)
{
    uint8_t want[MODEL_FINGERPRINT_BYTES], got[MODEL_FINGERPRINT_BYTES];
    struct model *untouched;
    ck_assert_msg(model_open(file, &untouched, err, sizeof(err)) == 0, "%s", err);
    ck_assert_int_eq(model_fingerprint(untouched, 2, want), 0);
    ck_assert_int_eq(model_fingerprint(loaded, 2, got), 0);
    ck_assert_mem_eq(got, want, sizeof(want));
    model_close(untouched);
}

/* All but rope's divisors, which are not copied. */
static void check_hashes_noted(const struct model *loaded)
{
    for (uint64_t i = 0; i < gguf_n_tensors(loaded->gguf); i++) {
        const struct gguf_string name = gguf_tensor_at(loaded->gguf, i)->name;
        const bool copied = !gguf_string_equal(name, "rope_freqs.weight");
        ck_assert_msg(loaded->hashes[i].known == copied, "%.*s", GGUF_SHOW(name));
    }
}

START_TEST(a_load_packs_and_hashes_every_byte_with_any_number_of_threads)
{
    static const uint32_t threads[] = {1, 2, 7};
    const struct tiny_model shape = odd_shape((uint32_t)_i);
    struct gguf *file;
    struct model *random;
    size_t bytes;
    uint8_t *memory = tiny_model_file(&shape, &bytes);
    ck_assert_msg(gguf_open_memory(memory, bytes, &file, err, sizeof(err)) == 0, "%s", err);
    for (uint32_t t = 0; t < sizeof(threads) / sizeof(threads[0]); t++) {
        ck_assert_msg(model_open(file, &random, err, sizeof(err)) == 0, "%s", err);
        struct backend *b = open_backend_of(random, threads[t], NULL);
        struct cpu_matrix *m;
        uint64_t packed = 0;
        uint32_t n = 0;
        for (;
             b->isa->packed && (m = weights_matrix(&b->weights[PASS_CANONICAL], random, n)) != NULL;
             n++)
            check_packed(m, b->pool), packed += m->file.bytes;
        if (b->isa->packed) {
            const uint64_t stays = random->tied ? 0 : random->global[MODEL_TOKEN_EMBD].bytes;
            ck_assert_uint_eq(loaded_bytes, packed + stays);
            ck_assert_uint_eq(n, shape.n_layer * 7 + 1);
            check_hashes_noted(random);
        }
        check_fingerprint(random, file);
        backend_cpu.close(b);
        model_close(random);
    }
    gguf_close(file);
    free(memory);
}
END_TEST

START_TEST(a_file_is_hashed_while_it_is_loaded)
{
    struct backend *b = open_backend((uint32_t)_i, NULL);
    if (b->isa->packed)
        check_hashes_noted(model);
    check_fingerprint(model, gguf);
    backend_cpu.close(b);
}
END_TEST

START_TEST(weights_are_in_memory_once)
{
    static const char *const isas[] = {"ref", NULL};
    struct backend *b = open_backend(2, isas[_i]);
    struct backend_info info;
    backend_cpu.describe(b, &info);
    ck_assert(model->tied);
    ck_assert_uint_lt(info.weight_bytes, model->tensor_bytes + model->tensor_bytes / 20);
    if (b->isa->packed)
        ck_assert_uint_ge(info.weight_bytes, model->tensor_bytes);
    backend_cpu.close(b);
}
END_TEST

/* A second instance, given the first one's weights, reads none of the file, and has equal ones. */
START_TEST(an_instance_can_be_given_the_weights_of_another)
{
    struct backend *first = open_backend(2, NULL), *second = NULL;
    struct backend_limits limits = first->limits;
    struct backend_info info;
    backend_cpu.describe(first, &info);
    limits.image = info.image;
    limits.image_bytes = info.image_bytes;
    loaded_bytes = 0;
    ck_assert_int_eq(backend_cpu.open(model, &limits, &second, err, sizeof(err)), 0);
    struct cpu_weights *w = &second->weights[PASS_CANONICAL];
    if (info.image)
        ck_assert_uint_eq(loaded_bytes, 0);
    for (uint32_t i = 0; info.image && i < model->n_layer * 7 + 1; i++)
        check_matrix(weights_matrix(w, model, i));
    for (uint32_t i = 0; i < model->n_layer; i++) {
        const struct model_tensor *norm = &model->layers[i].tensor[MODEL_ATTN_NORM];
        ck_assert_mem_eq(w->layers[i].vector[MODEL_ATTN_NORM], norm->data, norm->bytes);
    }
    backend_cpu.close(second);
    limits.image_bytes -= 64;
    if (info.image)
        ck_assert_int_eq(backend_cpu.open(model, &limits, &second, err, sizeof(err)), -EINVAL);
    backend_cpu.close(first);
}
END_TEST

START_TEST(weights_that_stay_in_the_file_are_given_to_none)
{
    struct backend *b = open_backend(1, "ref");
    struct backend_info info;
    backend_cpu.describe(b, &info);
    ck_assert_ptr_null(info.image);
    backend_cpu.close(b);
}
END_TEST

/* Pages of the tensors' data that this process has mapped. */
static size_t mapped_pages(void)
{
    const size_t page = 4096;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    ck_assert_int_ge(fd, 0);
    for (uint64_t i = 0; i < gguf_n_tensors(gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(gguf, i);
        uintptr_t begin = (uintptr_t)t->data / page, end = ((uintptr_t)t->data + t->bytes) / page;
        for (uintptr_t p = begin; p < end; p++) {
            uint64_t entry;
            ck_assert_int_eq(pread(fd, &entry, 8, (off_t)(p * 8)), 8);
            n += entry >> 63;
        }
    }
    close(fd);
    return n;
}

static uint32_t touch(void)
{
    uint32_t sum = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(gguf); i++)
        for (uint64_t at = 0; at < gguf_tensor_at(gguf, i)->bytes; at += 4096)
            sum += *(const volatile uint8_t *)(gguf_tensor_at(gguf, i)->data + at);
    return sum;
}

START_TEST(a_load_maps_no_page_of_the_file)
{
    gguf_drop_pages(gguf); /* pages that parsing has touched */
    struct backend *b = open_backend(1, NULL);
    ck_assert_uint_eq(mapped_pages(), 0);
    uint32_t sum = touch();
    ck_assert_uint_ge(mapped_pages() * 4096, model->tensor_bytes * 9 / 10);
    gguf_drop_pages(gguf);
    ck_assert_uint_eq(mapped_pages(), 0);
    ck_assert_uint_eq(touch(), sum); /* and are mapped again when they are read */
    backend_cpu.close(b);
}
END_TEST

/* The file loses its last `less` bytes after it was opened. */
START_TEST(a_truncated_file_is_reported_as_unreadable)
{
    static const long less[] = {1, 5000000, 11000000};
    const struct backend_limits limits = {
        .rows = 4, .samples = 1, .pages = 2, .context = 64, .threads = 3};
    char path[] = "/tmp/hearth-short-XXXXXX";
    struct gguf *file;
    struct model *shorter;
    struct backend *b = open_backend(1, NULL);
    const bool packed = b->isa->packed;
    backend_cpu.close(b);
    if (!packed) {
        fprintf(stderr, "skip: weights stay in the file\n");
        return;
    }
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, gguf->data, gguf->bytes), (ssize_t)gguf->bytes);
    ck_assert_int_eq(gguf_open(path, &file, err, sizeof(err)), 0);
    unlink(path);
    ck_assert_int_eq(model_open(file, &shorter, err, sizeof(err)), 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)gguf->bytes - less[_i]), 0);
    ck_assert_int_eq(backend_cpu.open(shorter, &limits, &b, err, sizeof(err)), -EIO);
    ck_assert_msg(strstr(err, "cannot read the model's file") != NULL, "%s", err);
    model_close(shorter);
    gguf_close(file);
    close(fd);
}
END_TEST

START_TEST(only_whole_pages_within_a_range_are_dropped)
{
    const struct gguf_tensor *t = gguf_find_tensor(gguf, "token_embd.weight");
    const uint8_t *page = t->data + (4096 - (uintptr_t)t->data % 4096);
    touch();
    size_t all = mapped_pages();
    gguf_drop_range(gguf, page + 1, 3 * 4096 - 2);
    ck_assert_uint_eq(mapped_pages(), all - 1);
    gguf_drop_range(gguf, page + 8 * 4096, 2 * 4096);
    ck_assert_uint_eq(mapped_pages(), all - 3);
    gguf_drop_range(gguf, page + 1, 4094); /* contains no whole page */
    gguf_drop_range(gguf, &all, 1 << 20);  /* not in the file */
    gguf_drop_range(gguf, gguf->data + gguf->bytes - 4096, 1 << 20);
    ck_assert_uint_eq(mapped_pages(), all - 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_weights");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_loop_test(core, every_row_is_packed_by_any_thread, 1, 4);
    tcase_add_loop_test(core, a_load_packs_and_hashes_every_byte_with_any_number_of_threads, 0,
                        N_ODD + N_ODD_K);
    tcase_add_loop_test(core, a_file_is_hashed_while_it_is_loaded, 1, 4);
    tcase_add_loop_test(core, weights_are_in_memory_once, 0, 2);
    tcase_add_test(core, an_instance_can_be_given_the_weights_of_another);
    tcase_add_test(core, weights_that_stay_in_the_file_are_given_to_none);
    tcase_add_test(core, a_load_maps_no_page_of_the_file);
    tcase_add_loop_test(core, a_truncated_file_is_reported_as_unreadable, 0, 3);
    tcase_add_test(core, only_whole_pages_within_a_range_are_dropped);
    suite_add_tcase(suite, core);
    return run_suite(suite);
}
