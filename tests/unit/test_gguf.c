/* The GGUF reader: what is valid opens and reads back, what is not gives one line, and nothing
 * crashes. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/gguf.h"
#include "tests/run_suite.h"
#include "tests/unit/gguf_writer.h"

static char err[256];

/* One line of printable ASCII that is not empty. */
static void check_line(void)
{
    ck_assert_uint_gt(strlen(err), 0);
    ck_assert_uint_lt(strlen(err), sizeof(err));
    for (const char *p = err; *p; p++)
        ck_assert_msg(*p >= 0x20 && *p <= 0x7e, "byte %02x in the line", (unsigned char)*p);
}

/* Finishes the writer and opens the result. *ret_file is to be freed after the gguf. */
static int open_writer(struct gw *w, struct gguf **ret_gguf, uint8_t **ret_file)
{
    size_t bytes;
    *ret_file = gw_finish(w, &bytes, NULL);
    err[0] = 0;
    *ret_gguf = NULL;
    return gguf_open_memory(*ret_file, bytes, ret_gguf, err, sizeof(err));
}

static void check_opens(struct gw *w)
{
    struct gguf *g;
    uint8_t *file;
    int rc = open_writer(w, &g, &file);
    ck_assert_msg(rc == 0, "%d: %s", rc, err);
    gguf_close(g);
    free(file);
}

static void check_refused(struct gw *w, int code, const char *part)
{
    struct gguf *g;
    uint8_t *file;
    int rc = open_writer(w, &g, &file);
    ck_assert_msg(rc == code, "returned %d, not %d, for \"%s\": %s", rc, code, part, err);
    ck_assert_msg(strstr(err, part) != NULL, "\"%s\" is not in: %s", part, err);
    ck_assert_ptr_null(g);
    check_line();
    free(file);
}

/* ---- header ---------------------------------------------------------------------------------- */

START_TEST(empty_files_of_both_versions_open)
{
    for (uint32_t version = 2; version <= 3; version++) {
        struct gw w;
        struct gguf *g;
        uint8_t *file;
        gw_init(&w);
        w.version = version;
        ck_assert_int_eq(open_writer(&w, &g, &file), 0);
        ck_assert_uint_eq(gguf_version(g), version);
        ck_assert_uint_eq(gguf_n_keys(g), 0);
        ck_assert_uint_eq(gguf_n_tensors(g), 0);
        ck_assert_uint_eq(gguf_alignment(g), 32);
        ck_assert_uint_eq(gguf_file_bytes(g), 24);
        ck_assert(!gguf_has_data(g));
        ck_assert_ptr_null(gguf_find_key(g, "general.name"));
        ck_assert_ptr_null(gguf_find_tensor(g, "output.weight"));
        gguf_close(g);
        free(file);
    }
}
END_TEST

START_TEST(other_versions_are_refused)
{
    static const struct {
        uint32_t version;
        const char *part;
    } CASES[] = {{0, "version 0"},        {1, "version 1"},           {4, "version 4"},
                 {0xffffffff, "version"}, {0x03000000, "big-endian"}, {0x02000000, "big-endian"}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct gw w;
        gw_init(&w);
        w.version = CASES[i].version;
        check_refused(&w, -ENOTSUP, CASES[i].part);
    }
}
END_TEST

START_TEST(counts_beyond_the_file_are_refused)
{
    static const uint64_t COUNTS[] = {1, 2, 1 << 20, UINT32_MAX, INT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof(COUNTS) / sizeof(COUNTS[0]); i++) {
        struct gw w;
        gw_init(&w);
        w.n_keys = COUNTS[i];
        check_refused(&w, -EBADMSG, "keys");
        gw_init(&w);
        w.n_tensors = COUNTS[i];
        check_refused(&w, -EBADMSG, "tensors");
    }
}
END_TEST

START_TEST(other_files_are_refused)
{
    struct gguf *g = NULL;
    static const char PNG[64] = "\x89PNG\r\n\x1a\n";
    ck_assert_int_eq(gguf_open_memory(PNG, sizeof(PNG), &g, err, sizeof(err)), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(err, "not a GGUF file"));
    check_line();
    ck_assert_int_eq(gguf_open_memory("GG", 2, &g, err, sizeof(err)), -EBADMSG);
    check_line();
    ck_assert_int_eq(gguf_open_memory("GGUF\3\0\0", 7, &g, err, sizeof(err)), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(err, "cut off"));
    ck_assert_int_eq(gguf_open_memory("", 0, &g, err, sizeof(err)), -EBADMSG);
    check_line();
    ck_assert_int_eq(gguf_open_memory("", 0, &g, NULL, 0), -EBADMSG);
    ck_assert_ptr_null(g);
}
END_TEST

/* ---- values ---------------------------------------------------------------------------------- */

static void put_integers(struct gw *w)
{
    static const struct {
        const char *name;
        uint32_t type;
        uint64_t bits;
        size_t bytes;
    } VALUES[] = {
        {"u8", GGUF_U8, 200, 1},           {"i8", GGUF_I8, 100, 1},
        {"i8-", GGUF_I8, 0xff, 1},         {"u16", GGUF_U16, 0xffff, 2},
        {"i16", GGUF_I16, 0x7fff, 2},      {"i16-", GGUF_I16, 0x8000, 2},
        {"u32", GGUF_U32, 0xffffffff, 4},  {"i32", GGUF_I32, 0x7fffffff, 4},
        {"i32-", GGUF_I32, 0x80000000, 4}, {"u64", GGUF_U64, UINT64_MAX, 8},
        {"u64 small", GGUF_U64, 7, 8},     {"i64", GGUF_I64, INT64_MAX, 8},
        {"i64-", GGUF_I64, UINT64_MAX, 8},
    };
    for (size_t i = 0; i < sizeof(VALUES) / sizeof(VALUES[0]); i++)
        gw_key(w, VALUES[i].name, VALUES[i].type, &VALUES[i].bits, VALUES[i].bytes);
}

START_TEST(integers_convert_or_say_why_not)
{
    static const struct {
        const char *name;
        int rc64, rc32;
        uint64_t value;
    } WANT[] = {
        {"u8", 0, 0, 200},
        {"i8", 0, 0, 100},
        {"i8-", -ERANGE, -ERANGE, 0},
        {"u16", 0, 0, 0xffff},
        {"i16", 0, 0, 0x7fff},
        {"i16-", -ERANGE, -ERANGE, 0},
        {"u32", 0, 0, 0xffffffff},
        {"i32", 0, 0, 0x7fffffff},
        {"i32-", -ERANGE, -ERANGE, 0},
        {"u64", 0, -ERANGE, UINT64_MAX},
        {"u64 small", 0, 0, 7},
        {"i64", 0, -ERANGE, INT64_MAX},
        {"i64-", -ERANGE, -ERANGE, 0},
        {"absent", -ENOENT, -ENOENT, 0},
        {"u", -ENOENT, -ENOENT, 0},
        {"", -ENOENT, -ENOENT, 0},
        {"f32", -EINVAL, -EINVAL, 0},
        {"bool", -EINVAL, -EINVAL, 0},
        {"string", -EINVAL, -EINVAL, 0},
        {"array", -EINVAL, -EINVAL, 0},
    };
    struct gw w;
    struct gguf *g;
    uint8_t *file;
    gw_init(&w);
    put_integers(&w);
    gw_key_f32(&w, "f32", 1);
    gw_key_bool(&w, "bool", 1);
    gw_key_string(&w, "string", "12");
    gw_key_array(&w, "array", GGUF_U32, 0, NULL, 0);
    ck_assert_int_eq(open_writer(&w, &g, &file), 0);
    for (size_t i = 0; i < sizeof(WANT) / sizeof(WANT[0]); i++) {
        uint64_t value64 = 4711;
        uint32_t value32 = 4712;
        ck_assert_msg(gguf_u64(g, WANT[i].name, &value64) == WANT[i].rc64, "%s", WANT[i].name);
        ck_assert_msg(gguf_u32(g, WANT[i].name, &value32) == WANT[i].rc32, "%s", WANT[i].name);
        ck_assert_uint_eq(value64, WANT[i].rc64 ? 4711 : WANT[i].value);
        ck_assert_uint_eq(value32, WANT[i].rc32 ? 4712 : WANT[i].value);
    }
    gguf_close(g);
    free(file);
}
END_TEST

START_TEST(floats_bools_and_strings_read_back)
{
    struct gw w;
    struct gguf *g;
    uint8_t *file;
    const double third = 1.0 / 3;
    float f = 5;
    bool b = false;
    struct gguf_string s = {0};
    struct gguf_array a;
    gw_init(&w);
    gw_key_f32(&w, "f32", -0.25f);
    gw_key(&w, "f64", GGUF_F64, &third, 8);
    gw_key_bool(&w, "true", 1);
    gw_key_bool(&w, "also true", 0x80);
    gw_key_bool(&w, "false", 0);
    gw_key_string(&w, "string", "text");
    gw_key_string(&w, "empty", "");
    ck_assert_int_eq(open_writer(&w, &g, &file), 0);
    ck_assert_int_eq(gguf_f32(g, "f32", &f), 0);
    ck_assert(f == -0.25f);
    ck_assert_int_eq(gguf_f32(g, "f64", &f), 0);
    ck_assert(f == (float)third);
    ck_assert_int_eq(gguf_f32(g, "true", &f), -EINVAL);
    ck_assert_int_eq(gguf_f32(g, "no", &f), -ENOENT);
    ck_assert(f == (float)third);
    ck_assert_int_eq(gguf_bool(g, "true", &b), 0);
    ck_assert(b);
    ck_assert_int_eq(gguf_bool(g, "false", &b), 0);
    ck_assert(!b);
    ck_assert_int_eq(gguf_bool(g, "also true", &b), 0);
    ck_assert(b);
    ck_assert_int_eq(gguf_bool(g, "f32", &b), -EINVAL);
    ck_assert_int_eq(gguf_bool(g, "no", &b), -ENOENT);
    ck_assert_int_eq(gguf_string(g, "string", &s), 0);
    ck_assert(gguf_string_equal(s, "text"));
    ck_assert(!gguf_string_equal(s, "tex"));
    ck_assert(!gguf_string_equal(s, "texts"));
    ck_assert_int_eq(gguf_string(g, "empty", &s), 0);
    ck_assert_uint_eq(s.bytes, 0);
    ck_assert_int_eq(gguf_string(g, "f32", &s), -EINVAL);
    ck_assert_int_eq(gguf_array(g, "f32", &a), -EINVAL);
    ck_assert_int_eq(gguf_array(g, "no", &a), -ENOENT);
    ck_assert_str_eq(gguf_value_type_name(gguf_find_key(g, "f64")->type), "f64");
    ck_assert_str_eq(gguf_value_type_name(13), "unknown");
    gguf_close(g);
    free(file);
}
END_TEST

START_TEST(arrays_read_back)
{
    struct gw w;
    struct gguf *g;
    uint8_t *file;
    static const int16_t SHORTS[] = {-5, 0, 32767};
    static const uint64_t LONGS[] = {0, UINT64_MAX};
    static const double DOUBLES[] = {0.5, -1e300};
    static const char *const TEXTS[] = {"one", "", "three"};
    struct gguf_array a;
    struct gguf_string s;
    uint64_t at = 0;
    gw_init(&w);
    gw_key_array(&w, "i16", GGUF_I16, 3, SHORTS, sizeof(SHORTS));
    gw_key_array(&w, "u64", GGUF_U64, 2, LONGS, sizeof(LONGS));
    gw_key_array(&w, "f64", GGUF_F64, 2, DOUBLES, sizeof(DOUBLES));
    gw_key_strings(&w, "strings", 3, TEXTS);
    gw_key_array(&w, "none", GGUF_STRING, 0, NULL, 0);
    ck_assert_int_eq(open_writer(&w, &g, &file), 0);
    ck_assert_int_eq(gguf_array(g, "i16", &a), 0);
    ck_assert_uint_eq(a.count, 3);
    for (uint64_t i = 0; i < 3; i++)
        ck_assert_int_eq(gguf_array_i64(&a, i), SHORTS[i]);
    ck_assert_int_eq(gguf_array(g, "u64", &a), 0);
    ck_assert_int_eq(gguf_array_i64(&a, 1), INT64_MAX);
    ck_assert_int_eq(gguf_array(g, "f64", &a), 0);
    ck_assert(gguf_array_f32(&a, 0) == 0.5f);
    ck_assert(isinf(gguf_array_f32(&a, 1)));
    ck_assert_int_eq(gguf_array(g, "strings", &a), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert(gguf_array_next_string(&a, &at, &s));
        ck_assert(gguf_string_equal(s, TEXTS[i]));
    }
    ck_assert(!gguf_array_next_string(&a, &at, &s));
    ck_assert(!gguf_array_next_string(&a, &at, &s));
    at = 0;
    ck_assert_int_eq(gguf_array(g, "none", &a), 0);
    ck_assert(!gguf_array_next_string(&a, &at, &s));
    gguf_close(g);
    free(file);
}
END_TEST

START_TEST(malformed_keys_are_refused)
{
    struct gw w;
    static const uint8_t SOME[16] = {1};
    for (uint32_t type = 13; type < 16; type++) {
        gw_init(&w);
        gw_key(&w, "key", type, SOME, sizeof(SOME));
        check_refused(&w, -EBADMSG, "unknown value type");
        gw_init(&w);
        gw_key_array(&w, "key", type, 1, SOME, sizeof(SOME));
        check_refused(&w, -EBADMSG, "unknown type");
    }
    gw_init(&w);
    gw_key_array(&w, "key", GGUF_ARRAY, 1, SOME, sizeof(SOME));
    check_refused(&w, -EBADMSG, "array of arrays");
    gw_init(&w);
    gw_key_u32(&w, "", 1);
    check_refused(&w, -EBADMSG, "0 bytes");
    gw_init(&w);
    gw_key_u32(&w, "twice", 1);
    gw_key_u32(&w, "between", 1);
    gw_key_f32(&w, "twice", 1);
    check_refused(&w, -EBADMSG, "key twice is there twice");
}
END_TEST

START_TEST(lengths_beyond_the_file_are_refused)
{
    static const uint64_t LENGTHS[] = {11,
                                       100,
                                       INT64_MAX - 1,
                                       INT64_MAX,
                                       UINT64_MAX / 8,
                                       UINT64_MAX / 4,
                                       (uint64_t)1 << 61, /* times 8 it is 0 */
                                       (uint64_t)1 << 62,
                                       (uint64_t)1 << 63,
                                       UINT64_MAX - 8,
                                       UINT64_MAX};
    for (size_t i = 0; i < sizeof(LENGTHS) / sizeof(LENGTHS[0]); i++) {
        struct gw w;
        gw_init(&w);
        gw_key(&w, "string", GGUF_STRING, &LENGTHS[i], 8);
        check_refused(&w, -EBADMSG, "cut off");
        for (uint32_t type = 0; type <= GGUF_F64; type++) {
            if (type == GGUF_ARRAY)
                continue;
            gw_init(&w);
            gw_key_array(&w, "array", type, LENGTHS[i], "12345678", 8);
            check_refused(&w, -EBADMSG, "key array");
        }
        gw_init(&w); /* a name of that length */
        gw_put_u64(&w.keys, LENGTHS[i]);
        gw_put(&w.keys, "1234567890", 10);
        w.n_keys = 1;
        check_refused(&w, -EBADMSG, "name of a key");
    }
}
END_TEST

START_TEST(a_value_may_end_with_the_file_and_no_later)
{
    struct gw w;
    uint64_t one = 1;
    gw_init(&w);
    gw_key(&w, "string", GGUF_STRING, &one, 8);
    check_refused(&w, -EBADMSG, "cut off");
    gw_init(&w);
    gw_key(&w, "string", GGUF_STRING, &one, 8);
    gw_put(&w.keys, "x", 1);
    check_opens(&w);
    gw_init(&w);
    gw_key(&w, "number", GGUF_U64, &one, 7);
    check_refused(&w, -EBADMSG, "cut off");
    gw_init(&w);
    gw_key_array(&w, "array", GGUF_U16, 2, &one, 3);
    check_refused(&w, -EBADMSG, "array of 2 elements");
    gw_init(&w);
    gw_key_array(&w, "array", GGUF_U16, 2, &one, 4);
    check_opens(&w);
}
END_TEST

START_TEST(a_hostile_name_stays_one_short_line)
{
    struct gw w;
    char name[5000];
    memset(name, '\n', sizeof(name));
    memcpy(name, "\x1b[2J\xff", 5);
    name[sizeof(name) - 1] = 0;
    gw_init(&w);
    gw_key(&w, name, 99, "12345678", 8);
    check_refused(&w, -EBADMSG, "unknown value type 99");
}
END_TEST

START_TEST(many_keys_and_strings_take_no_quadratic_time)
{
    enum { KEYS = 60000, STRINGS = 150000 };
    struct gw w;
    struct gguf *g;
    uint8_t *file;
    struct gguf_array a;
    uint32_t value;
    char name[32];
    for (int twice = 0; twice < 2; twice++) {
        gw_init(&w);
        for (uint32_t i = 0; i < KEYS; i++) {
            snprintf(name, sizeof(name), "key.%u", i * 7919 % KEYS);
            gw_key_u32(&w, name, i * 7919 % KEYS);
        }
        gw_key_array(&w, "strings", GGUF_STRING, STRINGS, NULL, 0);
        for (uint32_t i = 0; i < STRINGS; i++)
            gw_put_string(&w.keys, "some text", i % 10);
        if (twice) {
            gw_key_u32(&w, "key.4711", 1);
            check_refused(&w, -EBADMSG, "key.4711 is there twice");
            continue;
        }
        ck_assert_int_eq(open_writer(&w, &g, &file), 0);
        for (uint32_t i = 0; i < KEYS; i += 997) {
            snprintf(name, sizeof(name), "key.%u", i);
            ck_assert_int_eq(gguf_u32(g, name, &value), 0);
            ck_assert_uint_eq(value, i);
        }
        ck_assert_int_eq(gguf_array(g, "strings", &a), 0);
        struct gguf_string s;
        uint64_t at = 0;
        uint32_t n = 0;
        while (gguf_array_next_string(&a, &at, &s))
            ck_assert_uint_eq(s.bytes, n++ % 10);
        ck_assert_uint_eq(n, STRINGS);
        gguf_close(g);
        free(file);
    }
}
END_TEST

/* ---- tensors --------------------------------------------------------------------------------- */

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

/* A tensor alone, as described, with `data` bytes behind it. */
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
    check_refused(&w, -EBADMSG, "no multiple of 32");
    one_tensor(&w, QUANT_Q6_K, 1, (const uint64_t[]){32}, 0, 64);
    check_refused(&w, -EBADMSG, "no multiple of 256");
}
END_TEST

START_TEST(unknown_types_are_refused)
{
    static const uint32_t TYPES[] = {4, 5, 31, 32, 33, 36, 39, 40, UINT32_MAX};
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) {
        struct gw w;
        one_tensor(&w, TYPES[i], 1, (const uint64_t[]){256}, 0, 4096);
        check_refused(&w, -EBADMSG, "unknown type");
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
    check_refused(&w, -EBADMSG, "tensor a is there twice");
}
END_TEST

START_TEST(offsets_are_checked)
{
    struct gw w;
    static const uint64_t NE[] = {8}; /* 32 bytes */
    one_tensor(&w, QUANT_F32, 1, NE, 32, 64);
    check_opens(&w); /* a gap before it does no harm */
    one_tensor(&w, QUANT_F32, 1, NE, 4, 64);
    check_refused(&w, -EBADMSG, "no multiple of the alignment");
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
    one_tensor(&w, QUANT_F32, 1, NE, 0, 100); /* more behind it */
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

START_TEST(every_truncation_of_the_head_is_refused)
{
    size_t bytes;
    size_t data_at;
    struct gw_llama spec = gw_llama_small(QUANT_Q4_0);
    uint8_t *file = gw_llama_file(&spec, &bytes, &data_at);
    size_t head = data_at - 31; /* the padding may be cut: then only the data is missing */
    for (size_t n = 0; n < head; n++) {
        uint8_t *part = malloc(n + 1);
        struct gguf *g = NULL;
        memcpy(part, file, n);
        ck_assert_msg(gguf_open_memory(part, n, &g, err, sizeof(err)) == -EBADMSG, "%zu", n);
        check_line();
        free(part);
    }
    free(file);
}
END_TEST

/* ---- files ----------------------------------------------------------------------------------- */

START_TEST(a_file_opens_from_its_path)
{
    char path[] = "/tmp/hearth-test-gguf-XXXXXX";
    int fd = mkstemp(path);
    size_t bytes;
    struct gw_llama spec = gw_llama_small(QUANT_F16);
    uint8_t *file = gw_llama_file(&spec, &bytes, NULL);
    struct gguf *g = NULL;
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(gguf_open(path, &g, err, sizeof(err)), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(err, "empty"));
    ck_assert_int_eq(write(fd, file, bytes), (int)bytes);
    ck_assert_int_eq(gguf_open(path, &g, err, sizeof(err)), 0);
    ck_assert_uint_eq(gguf_file_bytes(g), bytes);
    ck_assert_int_eq(memcmp(g->data, file, bytes), 0);
    gguf_close(g);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes - 1), 0);
    ck_assert_int_eq(gguf_open(path, &g, err, sizeof(err)), -EBADMSG);
    check_line();
    close(fd);
    unlink(path);
    free(file);
    gguf_close(NULL);
}
END_TEST

START_TEST(paths_that_are_no_file_are_refused)
{
    struct gguf *g = NULL;
    char path[64];
    ck_assert_int_eq(gguf_open("/nonexistent/model.gguf", &g, err, sizeof(err)), -ENOENT);
    check_line();
    ck_assert_int_eq(gguf_open("/tmp", &g, err, sizeof(err)), -EINVAL);
    check_line();
    snprintf(path, sizeof(path), "/tmp/hearth-test-fifo-%d", (int)getpid());
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    int rc = gguf_open(path, &g, err, sizeof(err)); /* must not wait for a writer */
    unlink(path);
    ck_assert_int_eq(rc, -EINVAL);
    ck_assert_ptr_null(g);
}
END_TEST

/* ---- test data ------------------------------------------------------------------------------- */

START_TEST(malformed_files_get_the_right_verdict)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/gguf-malformed", getenv("HEARTH_TESTDATA"));
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    int n = 0;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        bool good = strncmp(entry->d_name, "ok_", 3) == 0;
        if (!good && strncmp(entry->d_name, "bad_", 4) != 0)
            continue;
        struct gguf *g = NULL;
        snprintf(path, sizeof(path), "%s/gguf-malformed/%s", getenv("HEARTH_TESTDATA"),
                 entry->d_name);
        int rc = gguf_open(path, &g, err, sizeof(err));
        ck_assert_msg((rc == 0) == good, "%s: %d", entry->d_name, rc);
        if (!good)
            check_line();
        gguf_close(g);
        n++;
    }
    closedir(dir);
    ck_assert_int_eq(n, 27);
}
END_TEST

/* With an alignment of 1 each tensor begins where the one before ends: this checks the table of
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

static Suite *make_suite(void)
{
    Suite *suite = suite_create("gguf");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_test(core, empty_files_of_both_versions_open);
    tcase_add_test(core, other_versions_are_refused);
    tcase_add_test(core, counts_beyond_the_file_are_refused);
    tcase_add_test(core, other_files_are_refused);
    tcase_add_test(core, integers_convert_or_say_why_not);
    tcase_add_test(core, floats_bools_and_strings_read_back);
    tcase_add_test(core, arrays_read_back);
    tcase_add_test(core, malformed_keys_are_refused);
    tcase_add_test(core, lengths_beyond_the_file_are_refused);
    tcase_add_test(core, a_value_may_end_with_the_file_and_no_later);
    tcase_add_test(core, a_hostile_name_stays_one_short_line);
    tcase_add_test(core, many_keys_and_strings_take_no_quadratic_time);
    tcase_add_test(core, tensors_read_back);
    tcase_add_test(core, impossible_shapes_are_refused);
    tcase_add_test(core, unknown_types_are_refused);
    tcase_add_test(core, names_of_tensors_are_checked);
    tcase_add_test(core, offsets_are_checked);
    tcase_add_test(core, data_must_be_whole_or_absent);
    tcase_add_test(core, alignments_are_checked);
    tcase_add_test(core, every_truncation_of_the_head_is_refused);
    tcase_add_test(core, a_file_opens_from_its_path);
    tcase_add_test(core, paths_that_are_no_file_are_refused);
    suite_add_tcase(suite, core);
    if (getenv("HEARTH_TESTDATA")) {
        TCase *data = tcase_create("test data");
        tcase_add_test(data, malformed_files_get_the_right_verdict);
        tcase_add_test(data, sizes_of_types_match_a_packed_file);
        suite_add_tcase(suite, data);
    } else {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set\n");
    }
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
