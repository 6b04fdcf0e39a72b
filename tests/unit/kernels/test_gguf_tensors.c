/* The tensors of a GGUF file: shapes, types, names, offsets and alignments; impossible ones are
 * refused. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/gguf_opened.h"

START_TEST(tensors_read_back)
{
    struct gw w;
    struct gguf *g;
    uint8_t *file;
    gw_init(&w);
    gw_tensor(&w, "vector", QUANT_F32, 5, 0);
    gw_tensor(&w, "matrix", QUANT_Q8_0, 64, 3);
    ck_assert_int_eq(open_writer(&w, &g, &file), 0);
    ck_assert_uint_eq(gguf_n_tensors(g), 2);
    ck_assert(gguf_has_data(g));
    const struct gguf_tensor *vector = gguf_tensor_at(g, 0);
    const struct gguf_tensor *matrix = gguf_find_tensor(g, "matrix");
    ck_assert(gguf_string_equal(vector->name, "vector"));
    ck_assert_ptr_eq(vector, gguf_find_tensor(g, "vector"));
    ck_assert_ptr_eq(matrix, gguf_tensor_at(g, 1));
    ck_assert_ptr_null(gguf_find_tensor(g, "matri"));
    ck_assert_ptr_null(gguf_find_tensor(g, "matrix2"));
    ck_assert_uint_eq(vector->bytes, 20);
    ck_assert_uint_eq(vector->n_dims, 1);
    ck_assert_uint_eq(vector->ne[1], 1);
    ck_assert_uint_eq(matrix->bytes, 3 * 2 * 34);
    ck_assert_uint_eq(matrix->ne[0], 64);
    ck_assert_uint_eq(matrix->ne[1], 3);
    ck_assert_uint_eq(matrix->ne[3], 1);
    ck_assert_uint_eq(matrix->offset, 32);
    ck_assert_ptr_eq(matrix->data, vector->data + 32);
    ck_assert_uint_eq((uintptr_t)vector->data % 32, 0);
    gguf_close(g);
    free(file);
}
END_TEST

/* One tensor with this description and `data` bytes after it. */
static void one_tensor(struct gw *w, uint32_t type, uint32_t n_dims, const uint64_t *ne,
                       uint64_t offset, size_t data)
{
    gw_init(w);
    gw_tensor_info(w, "t", type, n_dims, ne, offset);
    for (size_t i = 0; i < data; i++)
        gw_put(&w->data, "", 1);
}

START_TEST(impossible_shapes_are_refused)
{
    struct gw w;
    one_tensor(&w, QUANT_F32, 0, NULL, 0, 64);
    check_refused(&w, -EBADMSG, "0 dimensions");
    one_tensor(&w, QUANT_F32, 5, (const uint64_t[]){1, 1, 1, 1, 1}, 0, 64);
    check_refused(&w, -EBADMSG, "5 dimensions");
    one_tensor(&w, QUANT_F32, 4, (const uint64_t[]){1, 1, 1, 1}, 0, 32);
    check_opens(&w);
    static const uint64_t BAD[][2] = {
        {0, 1},
        {1, 0},
        {UINT64_MAX, 1},
        {(uint64_t)1 << 32, (uint64_t)1 << 32},
        {8589934588, 8589934588},
        {(uint64_t)1 << 63, 2},
        {3, UINT64_MAX / 3 + 1},
    };
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        one_tensor(&w, QUANT_F32, 2, BAD[i], 0, 64);
        check_refused(&w, -EBADMSG, "impossible shape");
    }
    one_tensor(&w, QUANT_F32, 2, (const uint64_t[]){INT64_MAX, 1}, 0, 64);
    check_refused(&w, -EBADMSG, "too large");
    one_tensor(&w, 28, 2, (const uint64_t[]){(uint64_t)1 << 61, 1}, 0, 64);
    check_refused(&w, -EBADMSG, "too large");
    one_tensor(&w, QUANT_Q4_0, 2, (const uint64_t[]){48, 2}, 0, 64);
    check_refused(&w, -EBADMSG, "not a multiple of 32");
    one_tensor(&w, QUANT_Q6_K, 1, (const uint64_t[]){32}, 0, 64);
    check_refused(&w, -EBADMSG, "not a multiple of 256");
}
END_TEST

START_TEST(unknown_types_are_refused)
{
    static const uint32_t TYPES[] = {4, 5, 31, 32, 33, 36, 37, 38, 42, UINT32_MAX};
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) {
        struct gw w;
        one_tensor(&w, TYPES[i], 1, (const uint64_t[]){256}, 0, 4096);
        check_refused(&w, -EBADMSG, "unknown type");
    }
}
END_TEST

/* So that such a file is refused as unsupported, not as malformed. */
START_TEST(types_without_kernels_have_their_size)
{
    static const struct {
        uint32_t type;
        uint64_t bytes; /* of 256 elements */
    } TYPES[] = {{3, 160}, {10, 84}, {23, 136}, {35, 66}, {39, 136}, {40, 144}, {41, 36}};
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) {
        struct gw w;
        const uint64_t padded = (TYPES[i].bytes + 31) / 32 * 32;
        one_tensor(&w, TYPES[i].type, 1, (const uint64_t[]){256}, 0, padded);
        check_opens(&w);
        one_tensor(&w, TYPES[i].type, 1, (const uint64_t[]){256}, 0, padded - 32);
        check_refused(&w, -EBADMSG, "ends inside tensor");
    }
}
END_TEST

START_TEST(names_of_tensors_are_checked)
{
    struct gw w;
    static const uint64_t NE[] = {8};
    char name[GGUF_MAX_NAME + 2];
    memset(name, 'x', sizeof(name));
    name[GGUF_MAX_NAME + 1] = 0;
    gw_init(&w);
    gw_tensor_info(&w, name, QUANT_F32, 1, NE, 0);
    check_refused(&w, -EBADMSG, "64 bytes");
    name[GGUF_MAX_NAME] = 0;
    gw_init(&w);
    gw_tensor_info(&w, name, QUANT_F32, 1, NE, 0);
    check_opens(&w);
    gw_init(&w);
    gw_tensor(&w, "", QUANT_F32, 8, 0);
    check_refused(&w, -EBADMSG, "0 bytes");
    gw_init(&w);
    gw_tensor(&w, "a", QUANT_F32, 8, 0);
    gw_tensor(&w, "b", QUANT_F32, 8, 0);
    gw_tensor(&w, "a", QUANT_F32, 8, 0);
    check_refused(&w, -EBADMSG, "duplicate tensor a");
}
END_TEST

START_TEST(offsets_are_checked)
{
    struct gw w;
    static const uint64_t NE[] = {8}; /* 32 bytes */
    one_tensor(&w, QUANT_F32, 1, NE, 32, 64);
    check_opens(&w); /* a gap before it is allowed */
    one_tensor(&w, QUANT_F32, 1, NE, 4, 64);
    check_refused(&w, -EBADMSG, "not a multiple of the alignment");
    one_tensor(&w, QUANT_F32, 1, NE, 64, 64);
    check_refused(&w, -EBADMSG, "ends inside tensor t");
    one_tensor(&w, QUANT_F32, 1, NE, UINT64_MAX - 31, 64);
    check_refused(&w, -EBADMSG, "impossible offset");
    one_tensor(&w, QUANT_F32, 1, NE, UINT64_MAX, 64);
    check_refused(&w, -EBADMSG, "alignment");
    one_tensor(&w, QUANT_F32, 1, NE, (uint64_t)1 << 63, 64);
    check_refused(&w, -EBADMSG, "ends inside");
    gw_init(&w);
    gw_tensor_info(&w, "second", QUANT_F32, 1, NE, 32);
    gw_tensor_info(&w, "first", QUANT_F32, 1, NE, 0);
    gw_put(&w.data, (const uint8_t[64]){0}, 64);
    check_opens(&w); /* any order */
    gw_init(&w);
    gw_tensor_info(&w, "one", QUANT_F32, 2, (const uint64_t[]){8, 2}, 0);
    gw_tensor_info(&w, "two", QUANT_F32, 1, NE, 32);
    gw_put(&w.data, (const uint8_t[64]){0}, 64);
    check_refused(&w, -EBADMSG, "overlaps");
}
END_TEST

START_TEST(data_must_be_whole_or_absent)
{
    struct gw w;
    struct gguf *g;
    uint8_t *file;
    static const uint64_t NE[] = {9}; /* 36 bytes, 64 with padding */
    one_tensor(&w, QUANT_F32, 1, NE, 0, 64);
    check_opens(&w);
    one_tensor(&w, QUANT_F32, 1, NE, 0, 100); /* more data after it */
    check_opens(&w);
    for (size_t data = 1; data < 64; data++) {
        one_tensor(&w, QUANT_F32, 1, NE, 0, data);
        check_refused(&w, -EBADMSG, "ends inside tensor t");
    }
    one_tensor(&w, QUANT_F32, 1, NE, 0, 0);
    ck_assert_int_eq(open_writer(&w, &g, &file), 0);
    ck_assert(!gguf_has_data(g));
    ck_assert_ptr_null(gguf_tensor_at(g, 0)->data);
    gguf_close(g);
    free(file);
}
END_TEST

START_TEST(alignments_are_checked)
{
    static const struct {
        uint32_t alignment;
        bool good;
    } CASES[] = {{1, true},       {2, true},         {8, true},          {64, true},  {4096, true},
                 {65536, true},   {0, false},        {3, false},         {13, false}, {48, false},
                 {131072, false}, {1u << 31, false}, {UINT32_MAX, false}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct gw w;
        gw_init(&w);
        gw_key_u32(&w, "general.alignment", CASES[i].alignment);
        w.alignment = CASES[i].good ? CASES[i].alignment : 32;
        gw_tensor(&w, "a", QUANT_F32, 3, 0);
        gw_tensor(&w, "b", QUANT_F32, 3, 0);
        if (CASES[i].good)
            check_opens(&w);
        else
            check_refused(&w, -EBADMSG, "general.alignment");
    }
    struct gw w;
    gw_init(&w);
    gw_key_string(&w, "general.alignment", "32");
    check_refused(&w, -EBADMSG, "not u32");
}
END_TEST

/* ---- test data ------------------------------------------------------------------------------- */

/* With an alignment of 1 each tensor begins where the previous one ends, which checks the table of
 * types. */
START_TEST(sizes_of_types_match_a_packed_file)
{
    char path[1024];
    struct gguf *g = NULL;
    snprintf(path, sizeof(path), "%s/gguf-malformed/ok_TENSORS_CUSTOM_ALIGN_s1.gguf",
             getenv("HEARTH_TESTDATA"));
    ck_assert_int_eq(gguf_open(path, &g, err, sizeof(err)), 0);
    ck_assert(!gguf_has_data(g));
    uint64_t seen = 0;
    for (uint64_t i = 0; i + 1 < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        seen |= (uint64_t)1 << t->type;
        ck_assert_uint_eq(gguf_tensor_at(g, i + 1)->offset, t->offset + t->bytes);
    }
    ck_assert_int_ge(__builtin_popcountll(seen), 20);
    gguf_close(g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_tensors");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_test(core, tensors_read_back);
    tcase_add_test(core, impossible_shapes_are_refused);
    tcase_add_test(core, unknown_types_are_refused);
    tcase_add_test(core, types_without_kernels_have_their_size);
    tcase_add_test(core, names_of_tensors_are_checked);
    tcase_add_test(core, offsets_are_checked);
    tcase_add_test(core, data_must_be_whole_or_absent);
    tcase_add_test(core, alignments_are_checked);
    suite_add_tcase(suite, core);
    TCase *data = add_testdata_case(suite, 60);
    if (data)
        tcase_add_test(data, sizes_of_types_match_a_packed_file);
    return run_suite(suite);
}
