/* The keys of a GGUF file: values of every type read back, convert or say why not; malformed ones
 * are refused. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/gguf_opened.h"

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

START_TEST(integers_convert_or_fail_with_a_reason)
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
    check_refused(&w, -EBADMSG, "duplicate key twice");
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
        check_refused(&w, -EBADMSG, "truncated");
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
    check_refused(&w, -EBADMSG, "truncated");
    gw_init(&w);
    gw_key(&w, "string", GGUF_STRING, &one, 8);
    gw_put(&w.keys, "x", 1);
    check_opens(&w);
    gw_init(&w);
    gw_key(&w, "number", GGUF_U64, &one, 7);
    check_refused(&w, -EBADMSG, "truncated");
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

START_TEST(many_keys_and_strings_take_linear_time)
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
            check_refused(&w, -EBADMSG, "duplicate key key.4711");
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

int main(void)
{
    Suite *suite = suite_create("gguf_values");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_test(core, integers_convert_or_fail_with_a_reason);
    tcase_add_test(core, floats_bools_and_strings_read_back);
    tcase_add_test(core, arrays_read_back);
    tcase_add_test(core, malformed_keys_are_refused);
    tcase_add_test(core, lengths_beyond_the_file_are_refused);
    tcase_add_test(core, a_value_may_end_with_the_file_and_no_later);
    tcase_add_test(core, a_hostile_name_stays_one_short_line);
    tcase_add_test(core, many_keys_and_strings_take_linear_time);
    suite_add_tcase(suite, core);
    return run_suite(suite);
}
