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

int main(void)
{
    Suite *suite = suite_create("printable");
    TCase *tcase = tcase_create("printable");
    tcase_add_test(tcase, what_controls_a_terminal_is_shown_escaped);
    tcase_add_test(tcase, a_masked_text_is_as_long_as_before);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
