/* Packing: every instruction set packs a group into the same bytes at any destination. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/repack.h"
#include "kernels/quant/quant_types.h"
#include "tests/random.h"
#include "tests/rig/every_type.h"
#include "tests/run_suite.h"

typedef void packer(const struct cpu_matrix *m, uint32_t group, const uint8_t *from);

enum { GUARD = 64 };

/* Columns, in blocks of the type or in sevens: partial last segments and cache lines. */
static const uint32_t columns[] = {1, 3, 8, 19};
static const uint32_t rows[] = {1, 15, 16, 37};

static uint32_t find_packers(packer *ret[3])
{
    uint32_t n = 0;
    ret[n++] = repack_group;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        ret[n++] = pack_group_avx2;
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        ret[n++] = pack_group_avx512;
#endif
    return n;
}

/* Packs all groups into zeroed memory [bytes + GUARD], which begins `off` a line. */
static void pack_all(struct cpu_matrix *m, packer *pack, uint8_t *memory)
{
    memset(memory, 0, repack_bytes(m) + GUARD);
    m->packed = memory;
    for (uint32_t g = 0; g < m->groups; g++)
        pack(m, g, m->file.data + g * repack_file_bytes(m));
}

static void check_shape(uint32_t type, uint32_t n_rows, uint32_t n_cols, uint32_t *seed)
{
    const struct quant_info *info = quant_find(type);
    const uint32_t cols = n_cols * (info->quantized ? info->block : 7);
    const size_t row_bytes = (size_t)cols / info->block * info->block_bytes,
                 bytes = n_rows * row_bytes;
    uint8_t *file = malloc(bytes);
    ck_assert_ptr_nonnull(file);
    for (size_t i = 0; i < bytes; i++)
        file[i] = (uint8_t)next_random(seed);
    const struct model_tensor tensor = {.data = file,
                                        .type = type,
                                        .n_matrices = 1,
                                        .rows = n_rows,
                                        .cols = cols,
                                        .row_bytes = row_bytes,
                                        .bytes = bytes};
    struct cpu_matrix m;
    repack_init(&m, &tensor);
    const size_t room = (repack_bytes(&m) + 2 * GUARD + 63) / 64 * 64;
    uint8_t *plain = aligned_alloc(64, room), *other = aligned_alloc(64, room);
    packer *packers[3];
    const uint32_t n = find_packers(packers);
    ck_assert(plain && other);
    pack_all(&m, pack_group_any, plain);
    for (uint32_t i = 0; i < n; i++) {
        for (size_t off = 0; off <= 32; off += 16) {
            pack_all(&m, packers[i], other + off);
            ck_assert_mem_eq(other + off, plain, repack_bytes(&m) + GUARD);
        }
    }
    free(plain);
    free(other);
    free(file);
}

START_TEST(every_instruction_set_packs_the_same_bytes)
{
    uint32_t seed = 77 + (uint32_t)_i;
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
        for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); c++)
            check_shape(every_type[_i], rows[r], columns[c], &seed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_pack");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_loop_test(core, every_instruction_set_packs_the_same_bytes, 0, EVERY_TYPE);
    suite_add_tcase(suite, core);
    return run_suite(suite);
}
