/* Loading: every row is where a pass looks for it, weights are in memory once, and the file's pages are
 * given back. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/repack.h"
#include "kernels/cpu/weights.h"
#include "kernels/gguf.h"
#include "kernels/quant_block.h"
#include "tests/run_suite.h"

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

static struct backend *open_backend(uint32_t threads, const char *isa)
{
    const struct backend_limits limits = {
        .rows = 4, .picks = 1, .pages = 2, .context = 64, .threads = threads, .isa = isa};
    struct backend *b = NULL;
    ck_assert_int_eq(backend_cpu.open(model, &limits, &b, err, sizeof(err)), 0);
    return b;
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

/* Chunks of loading end inside matrices, matrices inside chunks. */
START_TEST(every_row_is_packed_whoever_packs_it)
{
    struct backend *b = open_backend((uint32_t)_i, NULL);
    struct cpu_matrix *m;
    uint32_t n = 0;
    for (; b->isa->packed &&
           (m = weights_matrix(&b->weights[PASS_CANONICAL], model->n_layer, n)) != NULL;
         n++)
        check_matrix(m);
    ck_assert_uint_eq(n, b->isa->packed ? model->n_layer * 7 + 1 : 0);
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

/* Not all: small tensors share a page with their neighbours, and a fault brings in some around it. */
START_TEST(the_pages_of_the_file_are_given_back_while_loading)
{
    uint32_t sum = touch();
    size_t before = mapped_pages();
    ck_assert_uint_ge(before * 4096, model->tensor_bytes * 9 / 10);
    struct backend *b = open_backend(1, NULL);
    if (b->isa->packed)
        ck_assert_uint_lt(mapped_pages(), before / 10);
    ck_assert_uint_eq(touch(), sum); /* and are there again when somebody reads them */
    gguf_drop_pages(gguf);
    ck_assert_uint_eq(mapped_pages(), 0);
    backend_cpu.close(b);
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
    gguf_drop_range(gguf, page + 1, 4094); /* holds none */
    gguf_drop_range(gguf, &all, 1 << 20);  /* not the file's */
    gguf_drop_range(gguf, gguf->data + gguf->bytes - 4096, 1 << 20);
    ck_assert_uint_eq(mapped_pages(), all - 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_weights");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_loop_test(core, every_row_is_packed_whoever_packs_it, 1, 4);
    tcase_add_loop_test(core, weights_are_in_memory_once, 0, 2);
    tcase_add_test(core, the_pages_of_the_file_are_given_back_while_loading);
    tcase_add_test(core, only_whole_pages_within_a_range_are_dropped);
    suite_add_tcase(suite, core);
    return run_suite(suite);
}
