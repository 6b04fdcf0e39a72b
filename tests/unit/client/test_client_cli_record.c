/* Records of answers: what is written is read again bit by bit, whatever else is refused with one
 * line, and the JSON reader below believes nothing. The sources belong to the program, so they are
 * taken in here. */
#include "client/cli/json.c"
#include "client/cli/json_read.c"
#include "client/cli/options.c"
#include "client/cli/record.c"
#include "client/cli/util.c"
#include "tests/run_suite.h"

#include <check.h>

#define FINGERPRINT "0123456789abcdef0123456789abcdef"
#define HASH_A "00112233445566778899aabbccddeeff"
#define HASH_B "ffeeddccbbaa99887766554433221100"
#define RECEIPT "hearth1:" FINGERPRINT ":cpu-float-1:" HASH_A ":" HASH_B

static struct buffer out;
static struct record c;
static char err[256];

static void setup(void)
{
    memset(&c, 0, sizeof(c));
    err[0] = 0;
}

static void teardown(void)
{
    buffer_fini(&out);
    record_fini(&c);
}

static const char *printed(void)
{
    buffer_add(&out, "", 1);
    ck_assert_int_eq(out.failed, 0);
    out.bytes = 0;
    return out.data;
}

static const uint32_t prompt[] = {1, 0, UINT32_MAX}, ids[] = {7, 8}, stop_tokens[] = {2};
static const char *const stops[] = {"\n\n", "\"\\/\b\f\r\t\x01\x7f", "\xff\xc3(\xe2\x82",
                                    "\xc3\xa9\xf0\x9f\x94\xa5", "\xed\xb2\x80"};
static const struct hearth_bias bias[] = {{3, -INFINITY}, {4, 0.1f}, {UINT32_MAX, -0.0f}};

static const struct hearth_mark marks[] = {{HEARTH_MARK_THOUGHT, "<think>\n", 1, 5},
                                           {HEARTH_MARK_THOUGHT_END, "</think>", 0, 0},
                                           {HEARTH_MARK_CALL, "\xff\"", 0, 0}};

static struct record sample(void)
{
    struct record s = {.version = RECORD_VERSION,
                       .model = "a \"model\" \xff",
                       .fingerprint = FINGERPRINT,
                       .numerics = "cpu-float-1",
                       .grammar = "root ::= \"\\n\xc3\xa9\"\n# \xff",
                       .ids = ids,
                       .n_ids = 2,
                       .reason = "stop",
                       .receipt = RECEIPT};
    hearth_request_init(&s.request, sizeof(s.request));
    s.request.tokens = prompt;
    s.request.n_tokens = 3;
    s.request.max_tokens = UINT32_MAX;
    s.request.temperature = 0.8f;
    s.request.top_k = 40;
    s.request.top_p = nextafterf(1, 0);
    s.request.min_p = 1e-42f; /* subnormal */
    s.request.typical_p = 0.3f;
    s.request.repeat_penalty = 1.1f;
    s.request.frequency_penalty = -0.0f;
    s.request.presence_penalty = -99.9f;
    s.request.penalty_last_n = -1;
    s.request.seed = UINT64_MAX;
    s.request.bias = bias;
    s.request.n_bias = 3;
    s.request.stops = stops;
    s.request.n_stops = 5;
    s.request.stop_tokens = stop_tokens;
    s.request.n_stop_tokens = 1;
    s.request.marks = marks;
    s.request.n_marks = 3;
    s.request.closing = ids;
    s.request.n_closing = 2;
    s.request.banned = stop_tokens;
    s.request.n_banned = 1;
    s.request.ignore_eos = 1;
    s.request.logprobs = 3;
    s.request.deterministic = 0;
    return s;
}

static int read_back(void)
{
    record_fini(&c);
    return record_read(out.data, out.bytes, &c, err, sizeof(err));
}

/* ---- records --------------------------------------------------------------------------------- */

START_TEST(a_record_is_read_back_bit_by_bit)
{
    struct record s = sample();
    record_write(&s, &out);
    ck_assert_msg(read_back() == 0, "%s", err);
    ck_assert_str_eq(c.model, s.model);
    ck_assert_str_eq(c.receipt, s.receipt);
    ck_assert_str_eq(c.reason, "stop");
    ck_assert_str_eq(c.grammar, s.grammar);
    ck_assert_ptr_eq(c.request.grammar, c.grammar);
    ck_assert_uint_eq(c.request.grammar_bytes, strlen(s.grammar));
    ck_assert_mem_eq(c.request.tokens, prompt, sizeof(prompt));
    ck_assert_mem_eq(c.ids, ids, sizeof(ids));
    ck_assert_mem_eq(c.request.stop_tokens, stop_tokens, sizeof(stop_tokens));
    ck_assert_uint_eq(c.request.n_marks, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_str_eq(c.request.marks[i].text, marks[i].text);
        ck_assert_uint_eq(c.request.marks[i].kind, marks[i].kind);
        ck_assert_uint_eq(c.request.marks[i].open, marks[i].open);
        ck_assert_int_eq(c.request.marks[i].tokens, marks[i].tokens);
    }
    ck_assert_uint_eq(c.request.n_closing, 2);
    ck_assert_mem_eq(c.request.closing, ids, sizeof(ids));
    ck_assert_uint_eq(c.request.n_banned, 1);
    ck_assert_uint_eq(c.request.banned[0], 2);
    ck_assert_uint_eq(c.request.ignore_eos, 1);
    ck_assert_uint_eq(c.request.n_stops, 5);
    for (int i = 0; i < 5; i++)
        ck_assert_str_eq(c.request.stops[i], stops[i]);
    ck_assert_uint_eq(c.request.n_bias, 3);
    ck_assert(c.request.bias[0].token == 3 && c.request.bias[0].value == -10000);
    ck_assert_mem_eq(&c.request.bias[1], &bias[1], 2 * sizeof(bias[0]));
    /* The scalars: a second line of text is the first one, and floats are the same bits. */
    ck_assert_mem_eq(&c.request.temperature, &s.request.temperature,
                     offsetof(struct hearth_request, bias) -
                         offsetof(struct hearth_request, temperature));
    ck_assert_uint_eq(c.request.max_tokens, UINT32_MAX);
    ck_assert_int_eq(c.request.logprobs, 3);
    ck_assert_uint_eq(c.request.deterministic, 0);
    struct buffer again = {0};
    record_write(&c, &again);
    ck_assert_uint_eq(again.bytes, out.bytes);
    ck_assert_mem_eq(again.data, out.data, out.bytes);
    buffer_fini(&again);
}
END_TEST

/* As those before there were any. */
START_TEST(a_record_may_have_no_grammar)
{
    struct record s = sample();
    s.grammar = NULL;
    record_write(&s, &out);
    ck_assert_int_eq(read_back(), 0);
    ck_assert(c.grammar == NULL && c.request.grammar == NULL && c.request.grammar_bytes == 0);
    ck_assert_ptr_null(strstr(printed(), "grammar"));
}
END_TEST

START_TEST(a_record_is_one_line_of_utf8)
{
    struct record s = sample();
    record_write(&s, &out);
    ck_assert_ptr_eq(memchr(out.data, '\n', out.bytes), out.data + out.bytes - 1);
    for (size_t i = 0; i < out.bytes;) {
        uint32_t code;
        int n = utf8_step(out.data + i, out.bytes - i, &code);
        ck_assert_int_gt(n, 0);
        i += (size_t)n;
    }
}
END_TEST

START_TEST(empty_lists_stay_empty)
{
    struct record s = sample();
    s.n_ids = s.request.n_bias = s.request.n_stops = s.request.n_stop_tokens = 0;
    record_write(&s, &out);
    ck_assert_msg(read_back() == 0, "%s", err);
    ck_assert_uint_eq(c.n_ids + c.request.n_bias + c.request.n_stops + c.request.n_stop_tokens, 0);
}
END_TEST

/* Members in another order, and blanks: what a tool for JSON makes of it. */
START_TEST(order_and_blanks_do_not_matter)
{
    struct record s = sample();
    s.request.n_stops = 0;
    record_write(&s, &out);
    char *text = strdup(printed());
    text[strlen(text) - 2] = 0; /* without "}\n" */
    char *cut = strstr(text, ",\"top_k\"");
    *cut = 0;
    buffer_text(&out, "\r\n {");
    buffer_text(&out, cut + 1);
    buffer_text(&out, " ,\n\t");
    buffer_text(&out, text + 1);
    buffer_text(&out, " } \n\n");
    ck_assert_msg(read_back() == 0, "%s", err);
    free(text);
}
END_TEST

/* Replaces the first `from` of the sample by `to` and reads that. */
static int read_changed(const char *from, const char *to)
{
    struct record s = sample();
    out.bytes = 0;
    record_write(&s, &out);
    char *text = strdup(printed()), *at = strstr(text, from);
    ck_assert_msg(at != NULL, "%s", from);
    buffer_add(&out, text, (size_t)(at - text));
    buffer_text(&out, to);
    buffer_text(&out, at + strlen(from));
    free(text);
    return read_back();
}

static const char *const damage[][3] = {
    {"\"hearth_record\":1", "\"hearth_record\":2", "version 2"},
    {"\"hearth_record\":1,", "", "hearth_record"},
    {"\"hearth_record\":1", "\"hearth_record\":-1", "out of range"},
    {"\"hearth_record\":1", "\"hearth_record\":01", "whole number"},
    {"\"top_k\":40", "\"top_k\":4.0", "whole number"},
    {"\"top_k\":40", "\"top_k\":4294967296", "out of range"},
    {"\"top_k\":40", "\"top_k\":40,\"top_k\":40", "already"},
    {"\"top_k\":40", "\"top_q\":40", "no member"},
    {"\"top_k\":40,", "", "no member top_k"},
    {"\"top_k\":40,", "\"top_k\":40", "',' or '}'"},
    {"\"top_k\":40,", "\"top_k\":40,,", "'\"'"},
    {"\"top_k\":40", "\"top_k\" 40", "':'"},
    {"\"seed\":18446744073709551615", "\"seed\":18446744073709551616", "out of range"},
    {"\"seed\":18446744073709551615", "\"seed\":1e3", "whole number"},
    {"\"temperature\":0.800000012", "\"temperature\":null", "number"},
    {"\"temperature\":0.800000012", "\"temperature\":1e39", "out of range"},
    {"\"temperature\":0.800000012", "\"temperature\":0x1", "',' or '}'"},
    {"\"temperature\":0.800000012", "\"temperature\":.8", "number"},
    {"\"temperature\":0.800000012", "\"temperature\":1.", "number"},
    {"\"temperature\":0.800000012", "\"temperature\":NaN", "number"},
    {"\"penalty_last_n\":-1", "\"penalty_last_n\":-2147483649", "out of range"},
    {"\"prompt\":[1,", "\"prompt\":[1,,", "whole number"},
    {"\"prompt\":[1,", "\"prompt\":[1 ", "']'"},
    {"\"prompt\":[1,", "\"prompt\":[-1,", "out of range"},
    {"\"ids\":[7,8]", "\"ids\":[7,8,]", "whole number"},
    {"\"ids\":[7,8]", "\"ids\":7", "'['"},
    {"\"ids\":[7,8]", "\"ids\":[[7],8]", "whole number"},
    {"[4,0.1", "[4,\"x\"", "number"},
    {"[4,0.1", "[4", "','"},
    {",\"<think>\\n\"]", ",\"<think>\\n\",", "']'"}, /* nor does the text leak */
    {"\"deterministic\":false", "\"deterministic\":0", "true or false"},
    {"\"stop\":[\"", "\"stop\":[\"\\u0000", "byte 0"},
    {"\"stop\":[\"", "\"stop\":[\"\\x", "escape"},
    {"\"stop\":[\"", "\"stop\":[\"\\ud800", "half"},
    {"\"stop\":[\"", "\"stop\":[\"\\ud800\\u0041", "pair"},
    {"\"stop\":[\"", "\"stop\":[\"\\udd00", "half"},
    {"\"stop\":[\"", "\"stop\":[\"\\u00g0", "hex"},
    {"\"stop\":[\"", "\"stop\":[\"\x01", "no byte"},
    {"\"stop\":[\"", "\"stop\":[\"\xff", "no byte"},
    {"\"reason\":\"stop\"", "\"reason\":\"error\"", "reason"},
    {"\"reason\":\"stop\"", "\"reason\":true", "'\"'"},
    {"\"fingerprint\":\"0", "\"fingerprint\":\"", "fingerprint"},
    {"\"fingerprint\":\"0", "\"fingerprint\":\"1", "receipt"},
    {"\"numerics\":\"cpu", "\"numerics\":\"gpu", "receipt"},
    {"\"receipt\":\"hearth1", "\"receipt\":\"hearth2", "receipt"},
    {HASH_B, "ffeeddccbbaa9988776655443322110x", "receipt"},
    {HASH_B, "", "receipt"},
    {RECEIPT, "", "receipt"},
    {"}\n", "}}", "nothing more"},
    {"}\n", "", "',' or '}'"},
};

START_TEST(damage_is_named_in_one_line)
{
    const char *const *d = damage[_i];
    ck_assert_int_eq(read_changed(d[0], d[1]), -EBADMSG);
    ck_assert_msg(strstr(err, d[2]) != NULL, "%s for %s: %s", d[1], d[0], err);
    ck_assert_ptr_null(c.ids); /* nothing is left to free */
}
END_TEST

START_TEST(every_truncation_is_refused)
{
    struct record s = sample(), cut;
    record_write(&s, &out);
    for (size_t n = 0; n < out.bytes - 1; n++) {
        char *text = malloc(n ? n : 1); /* so that a sanitizer sees a byte too many */
        memcpy(text, out.data, n);
        ck_assert_int_eq(record_read(text, n, &cut, err, sizeof(err)), -EBADMSG);
        free(text);
    }
}
END_TEST

/* A few bytes changed at random: read or refused, and what is read can be written and read. */
START_TEST(random_bytes_are_refused)
{
    static const char pool[] = "\"\\{}[],:0123456789eE+-.tfu \n\xff\xc3\xed";
    struct record s = sample(), damaged;
    record_write(&s, &out);
    uint64_t state = 1;
    int accepted = 0;
    for (int round = 0; round < 20000; round++) {
        char *text = malloc(out.bytes);
        memcpy(text, out.data, out.bytes);
        for (int k = 0; k <= round % 3; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            text[(state >> 33) % out.bytes] = pool[(state >> 20) % (sizeof(pool) - 1)];
        }
        int rc = record_read(text, out.bytes, &damaged, err, sizeof(err));
        ck_assert_msg(rc == 0 || rc == -EBADMSG, "round %d", round);
        if (rc == 0) {
            struct buffer again = {0};
            accepted++;
            record_write(&damaged, &again);
            record_fini(&c);
            ck_assert_msg(!record_read(again.data, again.bytes, &c, err, sizeof(err)), "%s", err);
            buffer_fini(&again);
            record_fini(&damaged);
        }
        free(text);
    }
    ck_assert_int_gt(accepted, 100); /* digits for digits: that is a record */
    ck_assert_int_lt(accepted, 15000);
}
END_TEST

START_TEST(deep_nesting_is_refused)
{
    for (int i = 0; i < 1000000; i++)
        buffer_text(&out, "[");
    ck_assert_int_eq(read_back(), -EBADMSG);
}
END_TEST

START_TEST(the_hashes_of_a_receipt_are_found)
{
    ck_assert_str_eq(record_hashes(RECEIPT), HASH_A ":" HASH_B);
    ck_assert_ptr_null(record_hashes(""));
    ck_assert_ptr_null(record_hashes(HASH_A ":" HASH_B));
    ck_assert_ptr_nonnull(record_hashes(":" HASH_A ":" HASH_B));
    ck_assert_ptr_null(record_hashes(":" HASH_A "-" HASH_B));
    ck_assert_ptr_null(record_hashes(RECEIPT ":"));
}
END_TEST

/* ---- the reader ------------------------------------------------------------------------------ */

static const char *text_of(const char *json)
{
    struct json_reader r;
    json_reader_init(&r, json, strlen(json));
    out.bytes = 0;
    ck_assert_msg(json_read_text(&r, &out) == 0, "%s: %s", json, r.why);
    ck_assert_int_eq(json_read_end(&r), 0);
    return printed();
}

START_TEST(strings_are_unescaped)
{
    ck_assert_str_eq(text_of("\"\""), "");
    ck_assert_str_eq(text_of(" \"a\\\"\\\\\\/\\b\\f\\n\\r\\t\" "), "a\"\\/\b\f\n\r\t");
    ck_assert_str_eq(text_of("\"\\u0041\\u00e9\\u20AC\\ud83d\\udd25\""),
                     "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\xa5");
    ck_assert_str_eq(text_of("\"\\udcff\\udc80x\""), "\xff\x80x");
    ck_assert_str_eq(text_of("\"\\uffff\\ud800\\udc80\""), "\xef\xbf\xbf\xf0\x90\x82\x80");
}
END_TEST

START_TEST(numbers_are_exact)
{
    static const char *const texts[] = {"0", "-0", "1e-45", "3.40282347e+38", "0.1", "1E2"};
    const float values[] = {0, -0.0f, 1e-45f, 3.40282347e+38f, 0.1f, 100};
    for (int i = 0; i < 6; i++) {
        struct json_reader r;
        float value;
        json_reader_init(&r, texts[i], strlen(texts[i]));
        ck_assert_int_eq(json_read_float(&r, &value), 0);
        ck_assert_mem_eq(&value, &values[i], sizeof(value));
        ck_assert_int_eq(json_read_end(&r), 0);
    }
}
END_TEST

START_TEST(the_first_error_is_kept)
{
    struct json_reader r;
    uint64_t value;
    json_reader_init(&r, "  x", 3);
    ck_assert_int_eq(json_read_mark(&r, '{'), -EBADMSG);
    ck_assert_uint_eq(r.at, 2);
    ck_assert_int_eq(json_read_unsigned(&r, 5, &value), -EBADMSG);
    ck_assert_str_eq(r.why, "'{' expected");
    ck_assert_int_eq(json_read_end(&r), -EBADMSG);
}
END_TEST

/* ---- the file -------------------------------------------------------------------------------- */

START_TEST(an_unwritable_path_is_reported_before_the_answer)
{
    ck_assert_int_eq(record_check_path("/nonexistent/record"), CLI_CANNOT_MAKE);
    ck_assert_int_eq(record_check_path("/tmp"), CLI_CANNOT_MAKE);
    ck_assert_int_eq(record_check_path("-"), CLI_USAGE);
    ck_assert_int_eq(record_check_path("/tmp/hearth-no-such-record"), CLI_OK);
    ck_assert_int_eq(record_check_path("/dev/null"), CLI_OK);
}
END_TEST

START_TEST(a_file_is_replaced_whole_without_leftovers)
{
    char folder[] = "/tmp/hearth-record-XXXXXX", path[64], command[160];
    struct buffer read = {0};
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/r", folder);
    buffer_text(&out, "a long first text");
    ck_assert_int_eq(cli_save(path, out.data, out.bytes), 0);
    out.bytes = 0;
    buffer_text(&out, "short");
    ck_assert_int_eq(cli_save(path, out.data, out.bytes), 0);
    ck_assert_int_eq(cli_read_file(path, &read), 0);
    ck_assert_uint_eq(read.bytes, 5);
    ck_assert_mem_eq(read.data, "short", 5);
    buffer_fini(&read);
    ck_assert_int_lt(save_beside(folder, out.data, out.bytes), 0); /* a folder cannot be replaced */
    snprintf(command, sizeof(command), "[ \"$(ls %s*)\" = r ] && [ \"$(stat -c %%a %s)\" = 600 ]",
             folder, path);
    ck_assert_int_eq(system(command), 0);
    unlink(path);
    rmdir(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_cli_record");
    TCase *t = tcase_create("record");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_record_is_read_back_bit_by_bit);
    tcase_add_test(t, a_record_may_have_no_grammar);
    tcase_add_test(t, a_record_is_one_line_of_utf8);
    tcase_add_test(t, empty_lists_stay_empty);
    tcase_add_test(t, order_and_blanks_do_not_matter);
    tcase_add_loop_test(t, damage_is_named_in_one_line, 0,
                        (int)(sizeof(damage) / sizeof(damage[0])));
    tcase_add_test(t, every_truncation_is_refused);
    tcase_add_test(t, random_bytes_are_refused);
    tcase_add_test(t, deep_nesting_is_refused);
    tcase_add_test(t, the_hashes_of_a_receipt_are_found);
    tcase_add_test(t, strings_are_unescaped);
    tcase_add_test(t, numbers_are_exact);
    tcase_add_test(t, the_first_error_is_kept);
    tcase_add_test(t, an_unwritable_path_is_reported_before_the_answer);
    tcase_add_test(t, a_file_is_replaced_whole_without_leftovers);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
