/* The small parts of hearth-http: which hosts may ask, what an indent ends, events, options. */
#include "client/http/characters.h"
#include "client/http/config.h"
#include "client/http/exchange.h"
#include "client/http/guard.h"
#include "client/http/indent.h"
#include "client/http/json_put.h"
#include "client/http/reply.h"
#include "client/http/talk.h"
#include "client/http/token_json.h"
#include "client/http/upstream.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- guard ----------------------------------------------------------------------------------- */

START_TEST(only_loopback_and_allowed_names_are_valid_hosts)
{
    struct guard none = {0}, one = {.hosts = {"host.docker.internal"}, .n_hosts = 1};
    static const char *const good[] = {"localhost",      "LocalHost:80", "127.0.0.1",
                                       "127.0.0.1:8012", "[::1]",        "[::1]:1"};
    static const char *const bad[] = {"",      "localhost.a.org", "localhost:",     "localhost:8a",
                                      "a.org", "127.0.0.1.a.org", "[::1]x",         "127.0.0.2",
                                      "[::]",  "localhost@a.org", "127.0.0.1:80:80"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert_msg(guard_host(&none, good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!guard_host(&one, bad[i]), "%s", bad[i]);
    ck_assert(guard_host(&none, NULL));
    ck_assert(guard_host(&one, "Host.docker.internal:8012"));
    ck_assert(guard_host(&one, "localhost"));
    ck_assert(!guard_host(&none, "host.docker.internal"));
    ck_assert(!guard_host(&one, "host.docker.internal.a.org"));
}
END_TEST

START_TEST(only_allowed_origins_pass)
{
    struct guard none = {0}, one = {.origins = {"http://localhost:3000"}, .n_origins = 1};
    struct guard all = {.origins = {"*"}, .n_origins = 1};
    ck_assert(!guard_origin(&none, "http://localhost:3000"));
    ck_assert(guard_origin(&one, "http://localhost:3000"));
    ck_assert(!guard_origin(&one, "http://localhost:30000"));
    ck_assert(!guard_origin(&one, "null"));
    ck_assert(guard_origin(&all, "http://a.org"));
}
END_TEST

START_TEST(only_a_page_of_the_host_that_is_asked_is_its_own)
{
    ck_assert(guard_is_own("localhost:80", "http://LOCALHOST:80"));
    ck_assert(!guard_is_own("localhost:80", "http://localhost:81"));
    ck_assert(!guard_is_own("localhost:80", "http://localhost"));
    ck_assert(!guard_is_own("localhost:80", "https://localhost:80"));
    ck_assert(!guard_is_own("localhost", "null"));
    ck_assert(!guard_is_own("", "null"));
    ck_assert(!guard_is_own(NULL, "http://localhost"));
}
END_TEST

START_TEST(a_picture_on_another_site_s_page_is_foreign)
{
    ck_assert(!guard_is_foreign(NULL)); /* no browser */
    ck_assert(!guard_is_foreign("same-origin"));
    ck_assert(!guard_is_foreign("none")); /* what was typed */
    ck_assert(guard_is_foreign("same-site"));
    ck_assert(guard_is_foreign("cross-site"));
    ck_assert(guard_is_foreign(""));
}
END_TEST

START_TEST(keys_match_as_a_whole)
{
    struct guard g = {.keys = {"abc", "de"}, .n_keys = 2}, open = {0};
    ck_assert(guard_key(&open, NULL, NULL));
    ck_assert(!guard_key(&g, NULL, NULL));
    ck_assert(guard_key(&g, "Bearer abc", NULL));
    ck_assert(guard_key(&g, "bearer de", NULL));
    ck_assert(guard_key(&g, NULL, "abc"));
    ck_assert(guard_key(&g, "Basic xyz", "abc"));
    ck_assert(!guard_key(&g, "Bearer ab", NULL));
    ck_assert(!guard_key(&g, "Bearer abcd", NULL));
    ck_assert(!guard_key(&g, "Bearer dede", NULL));
    ck_assert(!guard_key(&g, "Bearer ", NULL));
    ck_assert(!guard_key(&g, "abc", NULL));
}
END_TEST

/* ---- indent ---------------------------------------------------------------------------------- */

/* The filter over text, one byte at a time or whole. */
static void check_indent(size_t least, const char *text, const char *want, bool ends)
{
    for (size_t step = 1; step <= strlen(text) + 1; step += strlen(text)) {
        struct indent i = {.least = least};
        struct buffer out = {0};
        bool ended = false;
        for (size_t at = 0; at < strlen(text) && !ended; at += step) {
            size_t left = strlen(text) - at;
            ended = indent_filter(&i, text + at, left < step ? left : step, &out);
        }
        if (!ended)
            indent_finish(&i, &out);
        buffer_add(&out, "", 1);
        ck_assert_str_eq(out.data, want);
        ck_assert_int_eq(ended, ends);
        indent_fini(&i);
        buffer_fini(&out);
    }
}

START_TEST(an_answer_ends_where_the_indent_does)
{
    check_indent(4, "a\n    b\nc", "a\n    b", true);
    check_indent(4, "a\n    b\n\n    c\n", "a\n    b\n\n    c\n", false);
    check_indent(4, "a\n   b", "a", true);
    check_indent(1, "a\n\tb\n\n\n}", "a\n\tb", true);
    check_indent(0, "a\nb\nc", "a\nb\nc", false);
    check_indent(2, "a", "a", false);
    check_indent(2, "x\r\n  y\r\nz", "x\r\n  y\r", true);
}
END_TEST

START_TEST(a_truncated_message_is_valid_utf8)
{
    struct fail f;
    fail_set(&f, 400, FAIL_INVALID, "caf\xc3\xa9, caf\xc3");
    json_t *o = fail_json(&f);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(o, "error"), "message")),
                     "caf\xc3\xa9, caf\xef\xbf\xbd");
    json_decref(o);
}
END_TEST

/* ---- JSON and events ------------------------------------------------------------------------- */

START_TEST(a_server_sent_event_is_one_line_of_json)
{
    struct exchange x = {.reply = &reply_native, .params = {.stream = true}};
    exchange_put(&x, json_pack("{s:s, s:f}", "a", "1\n2", "b", 0.1f));
    buffer_add(&x.out, "", 1);
    ck_assert_str_eq(x.out.data, "data: {\"a\":\"1\\n2\",\"b\":0.100000001}\n\n");
    buffer_fini(&x.out);
    x.params.stream = false;
    exchange_put(&x, json_pack("{}"));
    buffer_add(&x.out, "", 1);
    ck_assert_str_eq(x.out.data, "{}");
    buffer_fini(&x.out);
    exchange_put(&x, NULL); /* NULL stands for text that could not be made */
    ck_assert(x.out.failed);
    buffer_fini(&x.out);
}
END_TEST

START_TEST(what_is_written_reads_back_as_the_same_json)
{
    static const char all[] =
        "{\"a\":[],\"b\":{},\"c\":[1,-2,9223372036854775807,-9223372036854775808,[true,false,null]]"
        ","
        "\"d \\\"\\n\":{\"e\":\"\\u0000\\u001f\\\\ caf\xc3\xa9 \xf0\x9f\x99\x82\\u007f\"},"
        "\"f\":[0.0,1.0,-3.0,0.100000001,1e+30,4e9,1.5e-7]}";
    struct buffer t = {0};
    json_put_format(&t, "{'a':%s,'b':%t,'c':[%d,%f,%f,%b],'d':%o}", "x\"", "y\xff\n", (size_t)3,
                    (int64_t)-7, 0.5, 2.0, 1, json_loads(all, JSON_ALLOW_NUL, NULL));
    json_t *read = json_loadb(t.data, t.bytes, JSON_ALLOW_NUL, NULL);
    json_t *want = json_pack("{s:s, s:s, s:[i, f, f, b], s:o}", "a", "x\"", "b", "y\xef\xbf\xbd\n",
                             "c", -7, 0.5, 2.0, 1, "d", json_loads(all, JSON_ALLOW_NUL, NULL));
    ck_assert_msg(json_equal(read, want), "%s", t.data);
    ck_assert_ptr_nonnull(strstr(t.data, "[-7,0.5,2.0,true]")); /* reals stay reals */
    json_decref(read);
    json_decref(want);
    buffer_fini(&t);
}
END_TEST

START_TEST(a_real_has_the_nine_digits_that_printf_gives)
{
    static const double some[] = {0.1f,        0.95f,       1e-4,         9.9999e-5, 123.5,
                                  99999999.95, 0.999999999, 0.9999999999, 1e8 + 0.5, 3e-5,
                                  1e30,        12345678.9,  0.00012345,   1e-7,      -2.25};
    uint32_t state = 1;
    for (uint32_t i = 0; i < 200000; i++) {
        struct buffer t = {0};
        char want[40];
        float f = ldexpf((float)next_random(&state), -(int)random_below(&state, 48) - 2);
        double value = i < sizeof(some) / sizeof(some[0]) ? some[i] : i % 2 ? f : -f;
        int n = snprintf(want, sizeof(want), "%.9g", value);
        snprintf(want + n, sizeof(want) - (size_t)n, "%s", strpbrk(want, ".e") ? "" : ".0");
        json_put_format(&t, "%f", value);
        ck_assert_str_eq(t.data, want);
        buffer_fini(&t);
    }
}
END_TEST

/* What a client gave is said again as it was: no double becomes another one. */
START_TEST(a_given_real_stays_the_same)
{
    static const char some[] =
        "[0.1,0.7,0.95,-0.3,3.14159265358979,2.718281828459045,0.123456789012345,1e-09,"
        "1234567890.25,99999999.9999999,1.7976931348623157e+308,0.30000000000000004,"
        "123456789012.5,1e+22]";
    uint32_t state = 7;
    struct buffer t = {0};
    json_t *given = json_loads(some, 0, NULL);
    json_put(&t, given);
    ck_assert_str_eq(t.data, some);
    json_decref(given);
    for (uint32_t i = 0; i < 100000; i++) {
        const double value = ldexp((double)next_random(&state) * 4294967296.0 + next_random(&state),
                                   -(int)random_below(&state, 96));
        given = json_real(i % 2 ? value : -value);
        buffer_drop(&t, t.bytes);
        json_put(&t, given);
        ck_assert_msg(strtod(t.data, NULL) == json_real_value(given), "%s", t.data);
        json_decref(given);
    }
    buffer_fini(&t);
}
END_TEST

START_TEST(invalid_utf8_is_replaced_or_listed)
{
    json_t *s = json_of_text("a\xc3\xa9\xc3z\xff", 6), *whole = json_of_exact("\xc3\xa9", 2);
    json_t *half = json_of_exact("\xc3", 1), *cut = json_of_text("\xe6\x97z\xf0\x9f\xa6", 6);
    ck_assert_str_eq(json_string_value(s), "a\xc3\xa9\xef\xbf\xbdz\xef\xbf\xbd");
    ck_assert_str_eq(json_string_value(cut), "\xef\xbf\xbdz\xef\xbf\xbd"); /* one for each */
    ck_assert_str_eq(json_string_value(whole), "\xc3\xa9");
    ck_assert_uint_eq(json_array_size(half), 1);
    ck_assert_int_eq(json_integer_value(json_array_get(half, 0)), 0xc3);
    json_decref(s);
    json_decref(whole);
    json_decref(cut);
    json_decref(half);
}
END_TEST

START_TEST(characters_are_counted_across_tokens)
{
    static const struct {
        const char *piece;
        size_t n; /* after it */
    } row[] = {{"a\xc3\xa9", 2},    {"\xe6\x97", 2},  {"\xa5", 3},  {"\xf0\x9f", 3},
               {"\xa6", 3},         {"\xffz", 6},     {"", 6},      {"\xe6", 6},
               {"\xe6\x97\xa5", 8}, {"\x80\x80", 10}, {"\xc0z", 12}};
    struct characters c = {0};
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        characters_add(&c, row[i].piece, strlen(row[i].piece));
        ck_assert_msg(c.n == row[i].n, "piece %zu: %zu, not %zu", i, c.n, row[i].n);
    }
}
END_TEST

START_TEST(a_text_grows_and_gives_back)
{
    struct buffer t = {0};
    for (int i = 0; i < 1000; i++)
        buffer_format(&t, "%03d", i);
    ck_assert_uint_eq(t.bytes, 3000);
    buffer_drop(&t, 2997);
    buffer_add(&t, "", 1);
    ck_assert_str_eq(t.data, "999");
    buffer_fini(&t);
}
END_TEST

/* ---- options --------------------------------------------------------------------------------- */

static struct http_config config;
static char err[256];

#define READ(...) read_options((char *[]){"hearth-http", __VA_ARGS__, NULL})
static int read_options(char **argv)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    *err = 0;
    return http_config_read(&config, argc, argv, err, sizeof(err));
}

START_TEST(a_template_that_looks_like_a_path_is_a_file)
{
    static const char text[] = "{{ messages[0].content }}";
    char path[] = "/tmp/hearth-template-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    ck_assert_int_eq(READ("--chat-template", path), 0);
    ck_assert_str_eq(config.chat_template, text);
    http_config_fini(&config);
    unlink(path);
    ck_assert_int_eq(READ("--chat-template", path), -ENOENT);
    ck_assert_msg(strstr(err, path) && strstr(err, "give a file with a Jinja template"), "%s", err);
    http_config_fini(&config);
    ck_assert_int_eq(READ("--chat-template", "/tmp"), -EISDIR);
    http_config_fini(&config);
    ck_assert_int_eq(READ("--chat-template", "{% if a %}/{% endif %}"), 0);
    ck_assert_str_eq(config.chat_template, "{% if a %}/{% endif %}");
    http_config_fini(&config);
    ck_assert_int_eq(READ("--chat-template", "{% if a %}/{% end %}"), -EINVAL);
    ck_assert_msg(strstr(err, "--chat-template: line 1"), "%s", err);
    http_config_fini(&config);
    ck_assert_int_eq(READ("--chat-template", "/etc/passwd"), -EINVAL);
    ck_assert_msg(strstr(err, "--chat-template: it is not Jinja"), "%s", err);
    http_config_fini(&config);
    ck_assert_int_eq(READ("--chat-template", "nochatml"), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err, "it is not a family"));
    http_config_fini(&config);
    ck_assert_int_eq(READ("--chat-template", "chatml"), 0);
    ck_assert_str_eq(config.chat_template, "chatml");
    http_config_fini(&config);
}
END_TEST

START_TEST(options_are_read_and_checked)
{
    ck_assert_int_eq(
        READ("--port", "8012", "--slots=3", "--max-body", "1M", "--api-key", "a", "--api-key", "b"),
        0);
    ck_assert_uint_eq(config.port, 8012);
    ck_assert_uint_eq(config.slots, 3);
    ck_assert_uint_eq(config.max_body, 1 << 20);
    ck_assert_uint_eq(config.api_keys.n, 2);
    ck_assert_uint_eq(config.queue, 64);
    http_config_fini(&config);
    static const char *const bad[][3] = {{"--port", "0", "--port"},
                                         {"--port", "65536", "65535"},
                                         {"--port", "x", "--port"},
                                         {"--slots", "65", "64"},
                                         {"--slots", "-1", "--slots"},
                                         {"--api-key", "", "--api-key"},
                                         {"--nothing", "1", "--help"},
                                         {"word", "1", "word"},
                                         {"--host", "::1", "--port"},
                                         {"--host", "192.168.0.1", "loopback"},
                                         {"--listen", "127.0.0.1:8080", "--port 8080"},
                                         {"-", "", "-"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(READ((char *)(uintptr_t)bad[i][0], (char *)(uintptr_t)bad[i][1]), -EINVAL);
        ck_assert_msg(strstr(err, bad[i][2]) != NULL, "%s", err);
        http_config_fini(&config);
    }
    ck_assert_int_eq(READ("--port"), -EINVAL);
    http_config_fini(&config);
    ck_assert_int_eq(READ("--api-key-file", "/nonexistent/file"), -ENOENT);
    http_config_fini(&config);
    ck_assert_int_eq(READ("--help=yes"), -EINVAL);
    http_config_fini(&config);
}
END_TEST

START_TEST(an_upstream_s_url_is_cut_after_its_host_alone)
{
    static struct upstreams u;
    static const char *const urls[][2] = {
        {"http://a/v1", "http://a"},        {"http://a:1/v1//", "http://a:1"},
        {"https://a/b/v1/", "https://a/b"}, {"http://a/", "http://a"},
        {"http://a/v12", "http://a/v12"},   {"http://v1", "http://v1"},
        {"http://v1/", "http://v1"},        {"http://v1/v1", "http://v1"}};
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        char entry[64];
        snprintf(entry, sizeof(entry), "m=%s", urls[i][0]);
        const struct option_texts entries = {.items = {entry}, .n = 1}, keys = {.n = 0};
        ck_assert_int_eq(upstreams_read(&u, &entries, &keys, err, sizeof(err)), 0);
        ck_assert_str_eq(u.all[0].url, urls[i][1]);
    }
}
END_TEST

START_TEST(a_key_file_is_read_whole_or_refused)
{
    char path[] = "/tmp/hearth-keys-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "# two\nfirst\r\n\nsecond\n");
    fflush(f);
    ck_assert_int_eq(READ("--api-key-file", path), 0);
    ck_assert_uint_eq(config.api_keys.n, 2);
    ck_assert_str_eq(config.api_keys.items[1], "second");
    http_config_fini(&config);
    fputc(0, f);
    fflush(f);
    ck_assert_int_eq(READ("--api-key-file", path), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err, "zero byte"));
    http_config_fini(&config);
    for (int i = 0; i < 65536; i++)
        fputc('k', f);
    fclose(f);
    ck_assert_int_eq(READ("--api-key-file", path), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err, "at most 65536 bytes"));
    http_config_fini(&config);
    unlink(path);
}
END_TEST

/* ---- talk ------------------------------------------------------------------------------------ */

/* The template's variables of a conversation with these members, beside those that keep thoughts. */
static void assert_variables(const char *members, const char *variables)
{
    static const char form[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]%s}";
    static const char keep[] = "{\"preserve_thinking\":true,\"preserved_thinking\":true,"
                               "\"keep_past_thinking\":true,\"clear_thinking\":false,"
                               "\"truncate_history_thinking\":false,\"drop_thinking\":false}";
    char text[400];
    struct talk talk;
    struct fail f;
    snprintf(text, sizeof(text), form, members);
    json_t *o = json_loads(text, 0, NULL), *want = json_loads(variables, 0, NULL),
           *kept = json_loads(keep, 0, NULL);
    ck_assert(o && want && kept);
    ck_assert_int_eq(json_object_update_missing(want, kept), 0);
    ck_assert_int_eq(talk_read(&talk, o, NULL, &f), 0);
    char *found = json_dumps(talk.json.extra, JSON_COMPACT | JSON_SORT_KEYS),
         *wanted = json_dumps(want, JSON_COMPACT | JSON_SORT_KEYS);
    ck_assert_str_eq(found, wanted);
    free(found);
    free(wanted);
    talk_fini(&talk);
    json_decref(o);
    json_decref(want);
    json_decref(kept);
}

/* Every way to ask for thinking, or none, as every template may call it; what is said to the template
 * itself counts. */
START_TEST(thinking_is_what_templates_call_it)
{
    static const char off[] = "{\"enable_thinking\":false,\"thinking\":false}";
    assert_variables("", "{}");
    assert_variables(",\"reasoning_effort\":\"none\"", off);
    assert_variables(",\"enable_thinking\":false", off);
    assert_variables(",\"enable_thinking\":true", "{\"enable_thinking\":true,\"thinking\":true}");
    static const char *const efforts[][2] = {{"minimal", "low"},   {"low", "low"},
                                             {"medium", "medium"}, {"high", "high"},
                                             {"xhigh", "high"},    {"max", "high"}};
    for (size_t i = 0; i < sizeof(efforts) / sizeof(efforts[0]); i++) {
        char members[60], want[100];
        snprintf(members, sizeof(members), ",\"reasoning_effort\":\"%s\"", efforts[i][0]);
        snprintf(want, sizeof(want),
                 "{\"enable_thinking\":true,\"thinking\":true,\"reasoning_effort\":\"%s\"}",
                 efforts[i][1]);
        assert_variables(members, want);
    }
    assert_variables(
        ",\"reasoning_effort\":\"high\",\"enable_thinking\":false",
        "{\"enable_thinking\":false,\"thinking\":false,\"reasoning_effort\":\"high\"}");
    assert_variables(",\"reasoning_effort\":\"none\","
                     "\"chat_template_kwargs\":{\"enable_thinking\":true,\"clear_thinking\":true}",
                     "{\"enable_thinking\":true,\"thinking\":false,\"clear_thinking\":true}");
}
END_TEST

/* Elsewhere it is refused. */
START_TEST(of_a_result_s_image_the_model_is_told_that_it_was_left_out)
{
    static const char form[] = "{\"messages\":[{\"role\":\"%s\",\"content\":[{\"type\":\"text\","
                               "\"text\":\"r\"},{\"type\":\"image_url\"}]}]}";
    char text[200];
    for (int is_result = 0; is_result < 2; is_result++) {
        struct talk talk;
        struct fail f = {0};
        snprintf(text, sizeof(text), form, is_result ? "tool" : "user");
        json_t *o = json_loads(text, 0, NULL);
        ck_assert_int_eq(talk_read(&talk, o, NULL, &f), is_result ? 0 : -1);
        ck_assert(is_result || strstr(f.message, "messages[0]: content of type 'image_url'"));
        const json_t *message = json_array_get(json_object_get(o, "messages"), 0);
        const json_t *part = json_array_get(json_object_get(message, "content"), 1);
        const char *said = json_string_value(json_object_get(part, "text"));
        ck_assert(is_result ? said && strstr(said, "'image_url' was left out") != NULL : !said);
        talk_fini(&talk);
        json_decref(o);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_parts");
    TCase *tcase = tcase_create("parts");
    tcase_add_test(tcase, only_loopback_and_allowed_names_are_valid_hosts);
    tcase_add_test(tcase, only_allowed_origins_pass);
    tcase_add_test(tcase, a_picture_on_another_site_s_page_is_foreign);
    tcase_add_test(tcase, keys_match_as_a_whole);
    tcase_add_test(tcase, only_a_page_of_the_host_that_is_asked_is_its_own);
    tcase_add_test(tcase, an_answer_ends_where_the_indent_does);
    tcase_add_test(tcase, an_upstream_s_url_is_cut_after_its_host_alone);
    tcase_add_test(tcase, a_key_file_is_read_whole_or_refused);
    tcase_add_test(tcase, a_truncated_message_is_valid_utf8);
    tcase_add_test(tcase, a_server_sent_event_is_one_line_of_json);
    tcase_add_test(tcase, what_is_written_reads_back_as_the_same_json);
    tcase_add_test(tcase, a_real_has_the_nine_digits_that_printf_gives);
    tcase_add_test(tcase, a_given_real_stays_the_same);
    tcase_add_test(tcase, invalid_utf8_is_replaced_or_listed);
    tcase_add_test(tcase, characters_are_counted_across_tokens);
    tcase_add_test(tcase, a_text_grows_and_gives_back);
    tcase_add_test(tcase, a_template_that_looks_like_a_path_is_a_file);
    tcase_add_test(tcase, options_are_read_and_checked);
    tcase_add_test(tcase, thinking_is_what_templates_call_it);
    tcase_add_test(tcase, of_a_result_s_image_the_model_is_told_that_it_was_left_out);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
