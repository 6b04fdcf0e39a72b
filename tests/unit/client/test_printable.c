/* Texts of others, for terminals and lines of a log. */
#include "client/base/printable.h"
#include "tests/run_suite.h"

#include <check.h>
#include <string.h>

static const char hostile[] = "a\x1b[2J\n\x7f \xc3\xa9 \xc2\x9b \xe2\x80\xae \xe2\x81\xa6 "
                              "\xe2\x80\xa6 \x9b \xe2\x80";

START_TEST(what_controls_a_terminal_is_shown_escaped)
{
    struct buffer out = {0};
    printable_add(&out, hostile, sizeof(hostile) - 1, "");
    ck_assert_str_eq(out.data, "a\\x1b[2J\\x0a\\x7f \xc3\xa9 \\u009b \\u202e \\u2066 "
                               "\xe2\x80\xa6 \\x9b \\xe2\\x80");
    buffer_fini(&out);
    printable_add(&out, "a\tb\nc\rd", 7, "\n\t");
    ck_assert_str_eq(out.data, "a\tb\nc\\x0dd");
    buffer_fini(&out);
}
END_TEST

START_TEST(a_masked_text_is_as_long_as_before)
{
    char text[] = "\x1b[2J\n\xc3\xa9\xc2\x9b\xe2\x80\xae\xff!";
    printable_mask(text);
    ck_assert_str_eq(text, "?[2J?\xc3\xa9?\?\?\?\?\?!");
}
END_TEST

/* Each hides something: two names look alike, or the rest of a line stands elsewhere. */
START_TEST(what_is_not_seen_is_shown)
{
    static const struct {
        const char *text, *shown;
    } hides[] = {
        {"\xc2\xad", "\\u00ad"},          {"\xd8\x9c", "\\u061c"},
        {"\xe1\xa0\x8e", "\\u180e"},      {"\xe2\x80\x8b", "\\u200b"},
        {"\xe2\x80\x8f", "\\u200f"},      {"\xe2\x81\xa0", "\\u2060"},
        {"\xe2\x81\xa4", "\\u2064"},      {"\xe2\x81\xaf", "\\u206f"},
        {"\xef\xbb\xbf", "\\ufeff"},      {"\xef\xbf\xbb", "\\ufffb"},
        {"\xf3\xa0\x81\x81", "\\ue0041"}, {"\xcd\x8f", "\\u034f"},
        {"\xe1\x85\x9f", "\\u115f"},      {"\xe1\x9e\xb5", "\\u17b5"},
        {"\xe1\xa0\x8b", "\\u180b"},      {"\xe3\x85\xa4", "\\u3164"},
        {"\xef\xbe\xa0", "\\uffa0"},      {"\xef\xbf\xb0", "\\ufff0"},
        {"\xf0\x9b\xb2\xa0", "\\u1bca0"}, {"\xf0\x9d\x85\xb3", "\\u1d173"},
        {"\xf3\xa0\x84\x80", "\\ue0100"}, {"\xf3\xa0\x87\xaf", "\\ue01ef"},
    };
    for (size_t i = 0; i < sizeof(hides) / sizeof(hides[0]); i++) {
        struct buffer out = {0};
        char text[8];
        printable_add(&out, hides[i].text, strlen(hides[i].text), "");
        ck_assert_str_eq(out.data, hides[i].shown);
        buffer_fini(&out);
        strcpy(text, hides[i].text);
        printable_mask(text);
        ck_assert_uint_eq(strspn(text, "?"), strlen(hides[i].text));
    }
}
END_TEST

/* What stands beside them is shown as it is, and so are accents and emoji with their variants. */
START_TEST(what_is_seen_stays)
{
    static const char seen[] =
        "\xc2\xac\xc2\xae\xd8\x9b\xd8\x9d\xe2\x80\x8a\xe2\x80\x90\xe2\x80\xaf"
        "\xe2\x81\x9f\xe2\x81\xb0"
        "e\xcc\x81\xe2\x9d\xa4\xef\xb8\x8f\xef\xbf\xbd";
    struct buffer out = {0};
    printable_add(&out, seen, sizeof(seen) - 1, "");
    ck_assert_str_eq(out.data, seen);
    buffer_fini(&out);
}
END_TEST

START_TEST(a_text_keeps_what_its_language_needs)
{
    static const char text[] =
        "\xd9\x85\xdb\x8c\xe2\x80\x8c\xd8\xae \xd8\x9c\xe2\x80\x8f \xe1\xa0\x8b\xe1\x85\xa0 \x8c";
    struct buffer out = {0};
    printable_add(&out, text, sizeof(text) - 1, "\n" PRINTABLE_IN_TEXT);
    ck_assert_str_eq(
        out.data,
        "\xd9\x85\xdb\x8c\xe2\x80\x8c\xd8\xae \xd8\x9c\xe2\x80\x8f \xe1\xa0\x8b\xe1\x85\xa0 \\x8c");
    buffer_fini(&out);
    printable_add(&out, "\xe2\x80\xae\xe2\x81\xa4\n\t", 8, "\n" PRINTABLE_IN_TEXT);
    ck_assert_str_eq(out.data, "\\u202e\\u2064\n\\x09");
    buffer_fini(&out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("printable");
    TCase *tcase = tcase_create("printable");
    tcase_add_test(tcase, what_controls_a_terminal_is_shown_escaped);
    tcase_add_test(tcase, a_masked_text_is_as_long_as_before);
    tcase_add_test(tcase, what_is_not_seen_is_shown);
    tcase_add_test(tcase, what_is_seen_stays);
    tcase_add_test(tcase, a_text_keeps_what_its_language_needs);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
