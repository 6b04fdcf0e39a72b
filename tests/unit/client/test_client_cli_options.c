/* The command line's options: what they are, what they take, and that help and man page know them. They
 * belong to the program and not to the library, so this test takes their sources in. */
#include "client/cli/options.c"
#include "client/cli/util.c"
#include "tests/run_suite.h"

#include <check.h>
#include <math.h>

static struct cli_options o;
static char err[512];
static struct buffer out;

static void setup(void)
{
    memset(&o, 0, sizeof(o));
    err[0] = 0;
}

static void teardown(void)
{
    cli_options_fini(&o);
    buffer_fini(&out);
}

/* Parses words that end with NULL, as `hearth run`. */
static int parse(char **words)
{
    static char *argv[256]; /* o.words points into it */
    int n = 0;
    for (; words[n]; n++)
        argv[n] = words[n];
    cli_options_fini(&o);
    return cli_options_parse(&o, CLI_CMD_RUN, n, argv, err, sizeof(err));
}
#define PARSE(...) parse((char *[]){__VA_ARGS__, NULL})

START_TEST(without_options_the_defaults_are_those_of_the_library)
{
    struct hearth_request library;
    hearth_request_init(&library, sizeof(library));
    ck_assert_int_eq(PARSE("hello"), 0);
    ck_assert_uint_eq(o.request.max_tokens, 256);
    ck_assert(o.request.temperature == 0 && o.request.top_p == 1 && o.request.repeat_penalty == 1);
    ck_assert_int_eq(o.request.logprobs, -1);
    ck_assert_uint_eq(o.request.deterministic, 1);
    ck_assert_mem_eq(&o.request, &library, sizeof(library));
    ck_assert_uint_eq(o.n_words, 1);
    ck_assert_str_eq(o.words[0], "hello");
}
END_TEST

START_TEST(every_option_reaches_its_field)
{
    int rc = PARSE("--max-tokens", "7", "--temperature=0.5", "--top-k", "40", "--top-p", "0.9",
                   "--min-p", "0.05", "--typical-p", "0.8", "--repeat-penalty", "1.1",
                   "--frequency-penalty", "-0.5", "--presence-penalty", "0.25", "--penalty-last-n",
                   "-1", "--seed", "18446744073709551615", "--logprobs", "3", "--slot", "edit",
                   "--priority", "batch", "--proposer", "none", "--deterministic", "no", "--json",
                   "--socket", "/s", "--file", "f");
    ck_assert_msg(rc == 0, "%s", err);
    ck_assert_uint_eq(o.request.max_tokens, 7);
    ck_assert(o.request.temperature == 0.5f && o.request.top_p == 0.9f && o.request.min_p == 0.05f);
    ck_assert(o.request.typical_p == 0.8f && o.request.repeat_penalty == 1.1f);
    ck_assert(o.request.frequency_penalty == -0.5f && o.request.presence_penalty == 0.25f);
    ck_assert_uint_eq(o.request.top_k, 40);
    ck_assert_int_eq(o.request.penalty_last_n, -1);
    ck_assert(o.request.seed == UINT64_MAX);
    ck_assert_int_eq(o.request.logprobs, 3);
    ck_assert_str_eq(o.slot, "edit");
    ck_assert_uint_eq(o.request.priority, HEARTH_BATCH);
    ck_assert_str_eq(o.request.proposer, "none");
    ck_assert_uint_eq(o.request.deterministic, 0);
    ck_assert_int_eq(o.json, 1);
    ck_assert_str_eq(o.socket, "/s");
    ck_assert_str_eq(o.file, "f");
}
END_TEST

/* As in Python: what the field holds. */
START_TEST(numbers_reach_the_limits_of_their_fields)
{
    ck_assert_int_eq(PARSE("--max-tokens", "4294967295", "--top-k", "4294967295",
                           "--penalty-last-n", "2147483647"),
                     0);
    ck_assert_uint_eq(o.request.max_tokens, UINT32_MAX);
    ck_assert_uint_eq(o.request.top_k, UINT32_MAX);
    ck_assert_int_eq(o.request.penalty_last_n, INT32_MAX);
}
END_TEST

START_TEST(repeated_options_accumulate)
{
    ck_assert_int_eq(PARSE("--stop", "a", "--stop", "b", "--stop", "c", "--stop-token", "2",
                           "--stop-token", "5,6", "--logit-bias", "7=-1.5", "--logit-bias",
                           "8=-inf"),
                     0);
    ck_assert_uint_eq(o.stops.n, 3);
    ck_assert_str_eq(o.stops.items[2], "c");
    ck_assert_uint_eq(o.stop_tokens.n, 3);
    ck_assert_uint_eq(o.stop_tokens.items[2], 6);
    ck_assert_uint_eq(o.bias.n, 2);
    ck_assert(o.bias.items[0].token == 7 && o.bias.items[0].value == -1.5f);
    ck_assert(o.bias.items[1].token == 8 && isinf(o.bias.items[1].value));
}
END_TEST

#define TEN "1234567890"
static char *const bad_words[][3] = {
    {"--max-tokens", "1.5"},
    {"--max-tokens", "x"},
    {"--max-tokens", ""},
    {"--max-tokens", "7 "},
    {"--max-tokens", "-1"},
    {"--max-tokens", "4294967296"},
    {"--top-k", "4294967296"},
    {"--penalty-last-n", "2147483648"},
    {"--temperature", "-0.1"},
    {"--temperature", "nan"},
    {"--temperature", "inf"},
    {"--temperature", "0x1"},
    {"--top-p", "1.01"},
    {"--min-p", "-1"},
    {"--repeat-penalty", "0"},
    {"--logprobs", "21"},
    {"--logprobs", "-1"},
    {"--penalty-last-n", "-2"},
    {"--seed", "-1"},
    {"--seed", "18446744073709551616"},
    {"--seed", "1x"},
    {"--priority", "high"},
    {"--priority", "interactive|batch"},
    {"--priority", ""},
    {"--deterministic", "y"},
    {"--proposer", "magic"},
    {"--proposer", "auto|none"},
    {"--proposer", ""},
    {"--stop", ""},
    {"--stop", TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
                   TEN TEN TEN TEN "1234567"},
    {"--tokens", "1,,2"},
    {"--tokens", "1,"},
    {"--tokens", "-1"},
    {"--tokens", "4294967296"},
    {"--tokens", "1;2"},
    {"--stop-token", "x"},
    {"--logit-bias", "7"},
    {"--logit-bias", "7=nan"},
    {"--logit-bias", "7=inf"},
    {"--logit-bias", "7=10001"},
    {"--logit-bias", "7=-1e5"},
    {"--logit-bias", "=1"},
    {"--logit-bias", "7=1x"},
    {"--logit-bias", "-7=1"},
    {"--slot", ""},
    {"--no-such-option", "1"},
    {"--max-tokens"},
    {"-x"},
    {"--json=yes"},
    {"--max-token", "4"},
};

START_TEST(an_invalid_value_is_refused_with_the_options_name)
{
    ck_assert_int_eq(parse((char **)(uintptr_t)bad_words[_i]), -EINVAL);
    ck_assert_msg(strlen(err) > 10 && !strchr(err, '\n'), "error for %s: '%s'", bad_words[_i][0],
                  err);
    size_t name = strcspn(bad_words[_i][0], "=");
    ck_assert_msg(strncmp(err, bad_words[_i][0], name) == 0 ||
                      strncmp(err, "unknown option ", 15) == 0,
                  "error for %s: '%s'", bad_words[_i][0], err);
}
END_TEST

START_TEST(stops_are_bounded_as_in_a_request)
{
    char *words[4 + 2 * OPTION_TEXTS_MAX] = {0};
    for (int i = 0; i < OPTION_TEXTS_MAX; i++) {
        words[2 * i] = "--stop";
        words[2 * i + 1] = "x";
    }
    ck_assert_int_eq(parse(words), 0);
    cli_options_fini(&o);
    words[2 * OPTION_TEXTS_MAX] = "--stop";
    words[2 * OPTION_TEXTS_MAX + 1] = "y";
    ck_assert_int_eq(parse(words), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err, "64 of them at most"));
}
END_TEST

START_TEST(a_double_dash_ends_the_options)
{
    ck_assert_int_eq(PARSE("--json", "--", "--seed", "-"), 0);
    ck_assert_uint_eq(o.n_words, 2);
    ck_assert_str_eq(o.words[0], "--seed");
}
END_TEST

START_TEST(a_command_takes_only_its_own_options)
{
    char *words[] = {"--max-tokens", "1"};
    ck_assert_int_eq(cli_options_parse(&o, CLI_CMD_TOKENIZE, 2, words, err, sizeof(err)), -EINVAL);
    char *model[] = {"--model", "x"};
    cli_options_fini(&o);
    ck_assert_int_eq(cli_options_parse(&o, CLI_CMD_TOKENIZE, 2, model, err, sizeof(err)), 0);
}
END_TEST

START_TEST(help_names_every_option_once_and_fits_a_terminal)
{
    char text[8192] = "";
    FILE *f = fmemopen(text, sizeof(text), "w");
    cli_options_help(CLI_CMD_RUN, f);
    ck_assert_int_eq(fclose(f), 0);
    for (int i = 0; i < N_ROWS; i++) {
        char name[64];
        snprintf(name, sizeof(name), "  --%s ", rows[i].name);
        ck_assert_msg(!(rows[i].commands & CLI_CMD_RUN) == !strstr(text, name), "%s", name);
    }
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        ck_assert_msg(strcspn(line, "\n") <= 80, "too long: %.80s", line);
}
END_TEST

START_TEST(the_man_page_knows_every_option)
{
    struct buffer page = {0};
    ck_assert_int_eq(cli_read_file("client/man/hearth.1", &page), 0);
    buffer_add(&page, "", 1);
    for (int i = 0; i < N_ROWS; i++) {
        char name[64] = "\\-\\-"; /* as roff writes it: \-\-max\-tokens */
        for (const char *c = rows[i].name; *c; c++)
            snprintf(name + strlen(name), sizeof(name) - strlen(name), *c == '-' ? "\\-" : "%c",
                     *c);
        ck_assert_msg(strstr(page.data, name), "%s", name);
    }
    buffer_fini(&page);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_cli_options");
    TCase *t = tcase_create("options");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, without_options_the_defaults_are_those_of_the_library);
    tcase_add_test(t, every_option_reaches_its_field);
    tcase_add_test(t, numbers_reach_the_limits_of_their_fields);
    tcase_add_test(t, repeated_options_accumulate);
    tcase_add_loop_test(t, an_invalid_value_is_refused_with_the_options_name, 0,
                        (int)(sizeof(bad_words) / sizeof(bad_words[0])));
    tcase_add_test(t, stops_are_bounded_as_in_a_request);
    tcase_add_test(t, a_double_dash_ends_the_options);
    tcase_add_test(t, a_command_takes_only_its_own_options);
    tcase_add_test(t, help_names_every_option_once_and_fits_a_terminal);
    tcase_add_test(t, the_man_page_knows_every_option);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
