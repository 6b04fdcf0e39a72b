/* One step of UTF-8, classes of characters, a text as letters. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/unicode.h"
#include "client/base/utf8.h"
#include "tests/run_suite.h"

/* The encoder by the definition, for every code point. Returns its length. */
static size_t encode(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(0xf00 >> n | c);
    return n;
}

/* Compared by hand: a ck_assert for each of a million steps takes seconds. */
static bool decodes(uint32_t c)
{
    char s[4];
    uint32_t code = UINT32_MAX;
    size_t n = encode(c, s);
    if (c >= 0xd800 && c <= 0xdfff) /* surrogates are not characters */
        return utf8_step(s, n, &code) == -1;
    for (size_t part = 1; part < n; part++)
        if (utf8_step(s, part, &code) != 0)
            return false;
    return utf8_step(s, n, &code) == (int)n && code == c;
}

START_TEST(every_character_decodes)
{
    for (uint32_t c = 0; c <= 0x10ffff; c++)
        if (!decodes(c))
            ck_abort_msg("U+%04X", c);
}
END_TEST

START_TEST(broken_sequences_give_their_longest_beginning)
{
    static const struct {
        const char *bytes;
        size_t n;
        int want;
    } cases[] = {
        {"\x80", 1, -1},     /* a continuation alone */
        {"\xc0\x80", 2, -1}, /* overlong */
        {"\xc1\xbf", 2, -1},
        {"\xc2", 1, 0},
        {"\xc2 ", 2, -1},
        {"\xe0\x9f\x80", 3, -1}, /* overlong: the second byte is already wrong */
        {"\xe0\xa0", 2, 0},
        {"\xe2\x82", 2, 0},
        {"\xe2\x82 ", 3, -2},
        {"\xe2\x82\xc2", 3, -2},
        {"\xed\xa0\x80", 3, -1},     /* a surrogate */
        {"\xf0\x8f\xbf\xbf", 4, -1}, /* overlong */
        {"\xf0\x9f\x98", 3, 0},
        {"\xf0\x9f\x98 ", 4, -3},
        {"\xf4\x90\x80\x80", 4, -1}, /* beyond U+10FFFF */
        {"\xf5\x80", 2, -1},
        {"\xff", 1, -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t code;
        ck_assert_msg(utf8_step(cases[i].bytes, cases[i].n, &code) == cases[i].want, "case %zu", i);
    }
}
END_TEST

START_TEST(classes_are_unicodes)
{
    static const struct {
        uint32_t code;
        enum unicode_class class;
    } cases[] = {
        {'A', UNICODE_LU},         {'z', UNICODE_LL},         {'0', UNICODE_N},
        {' ', UNICODE_SPACE},      {'\t', UNICODE_SPACE},     {'\n', UNICODE_SPACE},
        {0x0b, UNICODE_SPACE},     {0x1c, UNICODE_OTHER},     {0x1f, UNICODE_OTHER},
        {0x7f, UNICODE_OTHER},     {0x85, UNICODE_SPACE},     {0xa0, UNICODE_SPACE},
        {'!', UNICODE_P},          {'_', UNICODE_P},          {'$', UNICODE_S},
        {'`', UNICODE_S},          {'~', UNICODE_S},          {0xaa, UNICODE_LO},
        {0xb2, UNICODE_N},         {0xb5, UNICODE_LL},        {0xdf, UNICODE_LL},
        {0x1c5, UNICODE_LT},       {0x2b0, UNICODE_LM},       {0x301, UNICODE_M},
        {0x416, UNICODE_LU},       {0x5d0, UNICODE_LO},       {0x660, UNICODE_N},
        {0x93f, UNICODE_M},        {0x200b, UNICODE_OTHER},   {0x2028, UNICODE_SPACE},
        {0x2160, UNICODE_N},       {0x3000, UNICODE_SPACE},   {0x3001, UNICODE_P},
        {0x4e00, UNICODE_LO},      {0x9fff, UNICODE_LO},      {0xac00, UNICODE_LO},
        {0xd7a3, UNICODE_LO},      {0xd7a4, UNICODE_OTHER},   {0xe000, UNICODE_OTHER},
        {0xfffd, UNICODE_S},       {0x1f600, UNICODE_S},      {0x1e4d0, UNICODE_LO},
        {0x2ebf0, UNICODE_LO},     {0xe0001, UNICODE_OTHER},  {0xe0100, UNICODE_M},
        {0x10ffff, UNICODE_OTHER}, {0x110000, UNICODE_OTHER}, {UINT32_MAX, UNICODE_OTHER},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_msg(unicode_class_of(cases[i].code) == cases[i].class, "U+%04X is %d",
                      cases[i].code, unicode_class_of(cases[i].code));
}
END_TEST

START_TEST(letters_carry_codes_classes_and_offsets)
{
    static const char text[] = "a\0\xc3\xa9\xe2\x82"
                               "b\xff\xf0\x9f\x98\x80";
    static const uint32_t codes[] = {'a', 0, 0xe9, 0xfffd, 0xfffd, 'b', 0xfffd, 0x1f600};
    static const uint32_t at[] = {0, 1, 2, 4, 5, 6, 7, 8, 12};
    struct letters l;
    ck_assert_int_eq(letters_open(&l, text, sizeof(text) - 1), 0);
    ck_assert_uint_eq(l.n, 8);
    for (size_t i = 0; i < l.n; i++) {
        ck_assert_uint_eq(letter_code(l.letter[i]), codes[i]);
        ck_assert(letter_in(l.letter[i], 1u << unicode_class_of(codes[i])));
    }
    ck_assert_mem_eq(l.at, at, sizeof(at));
    letters_close(&l);
    ck_assert_int_eq(letters_open(&l, "", 0), 0);
    ck_assert_uint_eq(l.n, 0);
    ck_assert_uint_eq(l.at[0], 0);
    letters_close(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("unicode");
    TCase *c = tcase_create("unicode");
    tcase_add_test(c, every_character_decodes);
    tcase_add_test(c, broken_sequences_give_their_longest_beginning);
    tcase_add_test(c, classes_are_unicodes);
    tcase_add_test(c, letters_carry_codes_classes_and_offsets);
    suite_add_tcase(s, c);
    return run_suite(s);
}
