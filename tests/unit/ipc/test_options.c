/* Options by table: each kind of value, each way to write one, and the error lines. */
#include "ipc/options.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static struct fields {
    int flag;
    uint32_t on, u32, choice;
    int32_t i32;
    uint64_t u64;
    float f32;
    const char *word, *text;
    struct option_texts texts;
    char other;
} f;

static int read_letter(const struct option_row *row, void *field, const char *text)
{
    *(char *)field = *text;
    return text[0] && !text[1] ? 0 : row->least > 0 ? -ENOMEM : -EINVAL;
}

#define O(...) OPTION(struct fields, __VA_ARGS__)
static const struct option_row rows[] = {
    O(flag, "flag", 'f', OPTION_FLAG, NULL, NULL, 0, 0, "a flag"),
    O(on, "switch", 0, OPTION_SWITCH, NULL, NULL, 0, 0, "a switch"),
    O(u32, "u32", 'n', OPTION_U32, "N", "7", 2, UINT32_MAX, "a number"),
    O(i32, "i32", 0, OPTION_I32, "N", "-1", -5, 5, "a number"),
    O(u64, "u64", 0, OPTION_U64, "N", NULL, 0, OPTION_U64_MAX, "a number"),
    O(f32, "f32", 0, OPTION_F32, "X", "0.5", -1, 1, "a number"),
    O(choice, "choice", 0, OPTION_CHOICE, "a|bc|d", "bc", 0, 0, "a choice"),
    O(word, "word", 0, OPTION_WORD, "a|bc|d", NULL, 0, 0, "a word"),
    O(text, "text", 't', OPTION_TEXT, "TEXT", NULL, 0, 0, "a text"),
    O(texts, "texts", 0, OPTION_TEXTS, "TEXT", NULL, 1, 3, "a text; repeatable"),
    {.name = "other",
     .value = "LETTER",
     .help = "one letter",
     .field = offsetof(struct fields, other),
     .kind = OPTION_OTHER,
     .commands = 2,
     .read = read_letter},
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static bool given[N_ROWS];
static struct options o = {
    .rows = rows, .n = N_ROWS, .fields = &f, .given = given, .takes_words = true};
static char *argv[200], err[200];

/* Parses line, cut at spaces; '_' stands for an empty value. */
static int parse(const char *line)
{
    static char copy[2000];
    char *save = NULL;
    int argc = 0;
    memset(&f, 0, sizeof(f));
    memset(given, 0, sizeof(given));
    *err = 0;
    snprintf(copy, sizeof(copy), "%s", line);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = strcmp(word, "_") == 0 ? "" : word;
    options_init(&o);
    return options_parse(&o, argc, argv, err, sizeof(err));
}

START_TEST(without_options_fields_have_their_defaults)
{
    ck_assert_int_eq(parse(""), 0);
    ck_assert(!f.flag && !f.on && f.u32 == 7 && f.i32 == -1 && f.u64 == 0 && f.f32 == 0.5f);
    ck_assert(f.choice == 1 && !f.word && !f.text && !f.texts.n);
    for (int i = 0; i < N_ROWS; i++)
        ck_assert(!given[i]);
}
END_TEST

START_TEST(every_kind_is_read_in_every_form)
{
    ck_assert_int_eq(parse("--flag --switch --u32 2 --i32=-5 --u64 18446744073709551615 --f32=-1 "
                           "--choice d --word bc --text=a=b --texts x --texts yyy --other z"),
                     0);
    ck_assert(f.flag == 1 && f.on == 1 && f.u32 == 2 && f.i32 == -5 && f.u64 == UINT64_MAX);
    ck_assert(f.f32 == -1 && f.choice == 2 && f.texts.n == 2 && f.other == 'z');
    ck_assert_str_eq(f.word, "bc");
    ck_assert_str_eq(f.text, "a=b");
    ck_assert_str_eq(f.texts.items[1], "yyy");
    for (int i = 0; i < N_ROWS; i++)
        ck_assert(given[i]);
    ck_assert_int_eq(parse("--switch=yes --switch=no -n3 -t -f -f"), 0);
    ck_assert(f.on == 0 && f.u32 == 3 && f.flag == 1);
    ck_assert_str_eq(f.text, "-f");
}
END_TEST

START_TEST(whole_numbers_take_suffixes)
{
    ck_assert_int_eq(parse("--u32 3K --u64 2t"), 0);
    ck_assert(f.u32 == 3072 && f.u64 == 2ull << 40);
    ck_assert_int_eq(parse("--u64=3m"), 0);
    ck_assert(f.u64 == 3 << 20);
}
END_TEST

START_TEST(words_are_kept_in_order_and_a_double_dash_ends_the_options)
{
    ck_assert_int_eq(parse("one -f - --u32 9 two -- --flag -- _"), 6);
    static const char *const want[] = {"one", "-", "two", "--flag", "--", ""};
    for (int i = 0; i < 6; i++)
        ck_assert_str_eq(argv[i], want[i]);
}
END_TEST

static const char *const mistakes[][2] = {
    {"--none 1", "unknown option --none"},
    {"-x", "unknown option -x"},
    {"--fla", "unknown option"},
    {"--flag=yes", "--flag takes no value"},
    {"-fx", "--flag takes no value"},
    {"--switch=maybe", "--switch 'maybe': give yes or no"},
    {"--u32", "--u32 needs a value: N"},
    {"--u32 1", "--u32 '1': give a whole number from 2 to 4294967295"},
    {"--u32 4294967296", "4294967295"},
    {"--u32 4G", "4294967295"},
    {"--u32 3KK", "--u32"},
    {"--u32 +3", "--u32"},
    {"--u32 1e3", "--u32"},
    {"--u32 3.0", "--u32"},
    {"--u32 -3", "--u32"},
    {"--u32=", "--u32"},
    {"--i32 -6", "from -5 to 5"},
    {"--i32 --5", "from -5 to 5"},
    {"--u64 18446744073709551616", "from 0 to 2^64 - 1"},
    {"--u64 18446744073709551615K", "from 0 to 2^64 - 1"},
    {"--f32 1.5", "--f32 '1.5': give a number from -1 to 1"},
    {"--f32 nan", "--f32"},
    {"--f32 0x0", "--f32"},
    {"--f32 0.5x", "--f32"},
    {"--choice b", "--choice 'b': give one of a|bc|d"},
    {"--choice a|bc", "give one of"},
    {"--word _", "give one of"},
    {"--text _", "--text is empty: give TEXT"},
    {"--texts _", "give 1 to 3 bytes"},
    {"--texts four", "give 1 to 3 bytes"},
    {"--other zz", "--other 'zz': give LETTER"},
};

START_TEST(a_usage_error_gets_one_line_that_names_the_option)
{
    ck_assert_int_eq(parse(mistakes[_i][0]), -EINVAL);
    ck_assert_msg(strstr(err, mistakes[_i][1]) != NULL, "%s: %s", mistakes[_i][0], err);
    ck_assert_ptr_null(strchr(err, '\n'));
}
END_TEST

START_TEST(an_option_repeats_up_to_its_bound)
{
    char line[1200] = "";
    for (int i = 0; i < OPTION_TEXTS_MAX; i++)
        strcat(line, "--texts x ");
    ck_assert_int_eq(parse(line), 0);
    strcat(line, "--texts x");
    ck_assert_int_eq(parse(line), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err, "64 of them at most"));
}
END_TEST

START_TEST(a_command_takes_only_the_options_of_its_mask)
{
    o.commands = 2;
    ck_assert_int_eq(parse("--flag --other z"), 0);
    o.commands = 1;
    ck_assert_int_eq(parse("--flag"), 0);
    ck_assert_int_eq(parse("--other z"), -EINVAL);
    o.commands = 0;
}
END_TEST

START_TEST(without_words_each_argument_is_an_option)
{
    o.takes_words = false;
    ck_assert_int_eq(parse("--flag word"), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err, "'word' is not an option"));
    ck_assert_int_eq(parse("--"), -EINVAL);
    o.takes_words = true;
}
END_TEST

START_TEST(help_has_a_line_for_each_option_with_its_default)
{
    char text[2000] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");
    o.commands = 1;
    options_help(&o, out);
    o.commands = 0;
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_ptr_nonnull(strstr(text, "  -n, --u32 N                a number (7)\n"));
    ck_assert_ptr_nonnull(strstr(text, "      --u64 N                a number\n"));
    ck_assert_ptr_nonnull(strstr(text, "--choice a|bc|d        a choice (bc)\n"));
    ck_assert_ptr_null(strstr(text, "--other"));
}
END_TEST

static const char *value(int i)
{
    static char text[40];
    return options_value(&o, &rows[i], text, sizeof(text));
}

START_TEST(only_values_other_than_the_default_are_printed)
{
    ck_assert_int_eq(parse("--u32 7 --choice bc --flag"), 0);
    for (int i = 0; i < N_ROWS; i++)
        ck_assert_ptr_null(value(i));
    ck_assert_int_eq(parse("--u32 8K --u64 5 --choice d --text t --word a"), 0);
    ck_assert_str_eq(value(2), "8192");
    ck_assert_str_eq(value(4), "5");
    ck_assert_str_eq(value(6), "d");
    ck_assert_str_eq(value(7), "a");
    ck_assert_str_eq(value(8), "t");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *t = tcase_create("options");
    tcase_add_test(t, without_options_fields_have_their_defaults);
    tcase_add_test(t, every_kind_is_read_in_every_form);
    tcase_add_test(t, whole_numbers_take_suffixes);
    tcase_add_test(t, words_are_kept_in_order_and_a_double_dash_ends_the_options);
    tcase_add_loop_test(t, a_usage_error_gets_one_line_that_names_the_option, 0,
                        (int)(sizeof(mistakes) / sizeof(mistakes[0])));
    tcase_add_test(t, an_option_repeats_up_to_its_bound);
    tcase_add_test(t, a_command_takes_only_the_options_of_its_mask);
    tcase_add_test(t, without_words_each_argument_is_an_option);
    tcase_add_test(t, help_has_a_line_for_each_option_with_its_default);
    tcase_add_test(t, only_values_other_than_the_default_are_printed);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
