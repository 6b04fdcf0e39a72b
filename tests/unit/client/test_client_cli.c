/* The command line's own parts: lists of ids, the JSON that it prints, how it reads and writes, exit
 * codes. They belong to the program and not to the library, so this test takes their sources in. */
#include "client/cli/json.c"
#include "client/cli/options.c"
#include "client/cli/status.c"
#include "client/cli/util.c"
#include "tests/run_suite.h"
#include "tests/rig/fake_daemon.h"

#include <check.h>
#include <math.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

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

static const char *printed(void)
{
    buffer_add(&out, "", 1);
    ck_assert_int_eq(out.failed, 0);
    out.bytes = 0;
    return out.data;
}

/* ---- ids ------------------------------------------------------------------------------------- */

static int ids(const char *text, struct cli_ids *ret)
{
    const char *bad;
    memset(ret, 0, sizeof(*ret));
    return cli_ids_parse(ret, text, strlen(text), &bad);
}

START_TEST(ids_are_read_with_and_without_brackets)
{
    static const char *const texts[] = {"1,22,333",  "[1,22,333]", " [ 1 , 22 ,333 ]\n",
                                        "1 22\n333", "[1 22 333]", "1, 22, 333"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct cli_ids l;
        ck_assert_msg(ids(texts[i], &l) == 0, "%s", texts[i]);
        ck_assert_uint_eq(l.n, 3);
        ck_assert(l.items[0] == 1 && l.items[1] == 22 && l.items[2] == 333);
        free(l.items);
    }
    struct cli_ids none;
    ck_assert_int_eq(ids("[]", &none), 0);
    ck_assert_uint_eq(none.n, 0);
    ck_assert_int_eq(ids(" \n", &none), 0);
}
END_TEST

START_TEST(malformed_id_lists_are_refused)
{
    static const char *const texts[] = {"[1",     "1]",         "[1,]", "[,1]",
                                        "[[1]]",  "1.5",        "[1]2", "\"1\"",
                                        "[1][2]", "4294967296", "a",    "99999999999999999999"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct cli_ids l;
        ck_assert_msg(ids(texts[i], &l) == -EINVAL, "%s", texts[i]);
        free(l.items);
    }
    struct cli_ids most;
    ck_assert_int_eq(ids("4294967295", &most), 0);
    ck_assert_uint_eq(most.items[0], UINT32_MAX);
    free(most.items);
}
END_TEST

START_TEST(many_ids_fit)
{
    for (unsigned i = 0; i < 5000; i++)
        buffer_format(&out, "%u,", i);
    out.bytes--; /* the last comma */
    struct cli_ids l = {0};
    const char *bad;
    ck_assert_int_eq(cli_ids_parse(&l, out.data, out.bytes, &bad), 0);
    ck_assert_uint_eq(l.n, 5000);
    for (uint32_t i = 0; i < l.n; i++)
        ck_assert_uint_eq(l.items[i], i);
    free(l.items);
}
END_TEST

/* ---- JSON ------------------------------------------------------------------------------------ */

static const char *json(const char *text, size_t bytes)
{
    json_text(&out, text, bytes);
    return printed();
}

START_TEST(strings_are_escaped)
{
    ck_assert_str_eq(json("a\"b\\c/", 6), "\"a\\\"b\\\\c/\"");
    ck_assert_str_eq(json("\b\f\n\r\t", 5), "\"\\b\\f\\n\\r\\t\"");
    ck_assert_str_eq(json("\0\x01\x1f\x7f", 4), "\"\\u0000\\u0001\\u001f\\u007f\"");
    ck_assert_str_eq(json("\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\xa5", 9),
                     "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\xa5\"");
    ck_assert_str_eq(json("", 0), "\"\"");
}
END_TEST

START_TEST(invalid_utf8_is_replaced)
{
    ck_assert_str_eq(json("a\xff"
                          "b",
                          3),
                     "\"a\\ufffdb\"");
    ck_assert_str_eq(json("\xe2\x82", 2), "\"\\ufffd\"");
    ck_assert_str_eq(json("\xe2\x82\"", 3), "\"\\ufffd\\\"\"");
    ck_assert_str_eq(json("\xed\xa0\x80", 3), "\"\\ufffd\\ufffd\\ufffd\"");
}
END_TEST

/* --json writes to terminals as well: C1, directions of text, tags, and a byte that quote_text
 * escapes. */
START_TEST(json_drives_no_terminal)
{
    const struct hearth_event e = {.text = "\xc2\x9b"
                                           "8m",
                                   .text_bytes = 4};
    ck_assert_str_eq(json("\xc2\x9b\xe2\x80\xae\xf3\xa0\x81\xa1\xff\x1b", 11),
                     "\"\\u009b\\u202e\\udb40\\udc61\\ufffd\\u001b\"");
    json_tokens_event(&out, &e);
    ck_assert_str_eq(printed(), "{\"event\":\"tokens\",\"ids\":[],\"text\":\"\\u009b8m\"}\n");
}
END_TEST

START_TEST(numbers_that_json_lacks_become_null)
{
    json_number(&out, -INFINITY);
    ck_assert_str_eq(printed(), "null");
    json_number(&out, (double)NAN);
    ck_assert_str_eq(printed(), "null");
    json_number(&out, -0.25);
    ck_assert_str_eq(printed(), "-0.25");
}
END_TEST

START_TEST(a_tokens_event_is_one_line)
{
    const uint32_t tokens[] = {403, 4294967295u};
    struct hearth_event e = {
        .kind = HEARTH_TOKENS, .n_tokens = 2, .tokens = tokens, .text = "a\n", .text_bytes = 2};
    json_tokens_event(&out, &e);
    ck_assert_str_eq(printed(),
                     "{\"event\":\"tokens\",\"ids\":[403,4294967295],\"text\":\"a\\n\"}\n");
    const struct hearth_logprob top[] = {{403, -0.5f}, {2, -1}};
    const struct hearth_token_logprobs lp[] = {{{403, -0.5f}, 2, top}, {{7, -INFINITY}, 0, NULL}};
    e.logprobs = lp;
    json_tokens_event(&out, &e);
    ck_assert_str_eq(
        printed(), "{\"event\":\"tokens\",\"ids\":[403,4294967295],\"text\":\"a\\n\",\"logprobs\":["
                   "{\"id\":403,\"logprob\":-0.5,\"top\":[{\"id\":403,\"logprob\":-0.5},"
                   "{\"id\":2,\"logprob\":-1}]},{\"id\":7,\"logprob\":null,\"top\":[]}]}\n");
}
END_TEST

START_TEST(a_done_event_has_every_member)
{
    const uint32_t tokens[] = {1, 2};
    struct hearth_result r = {.reason = HEARTH_LENGTH,
                              .error_text = "",
                              .prompt_tokens = 5,
                              .cached_tokens = 4,
                              .stored_tokens = 1,
                              .prefix_break = 3,
                              .output_tokens = 2,
                              .passes = 3,
                              .drafted = 6,
                              .accepted_drafts = 1,
                              .rollbacks = 2,
                              .prefill_ns = 1500000,
                              .decode_ns = 250000,
                              .n_ids = 2,
                              .ids = tokens,
                              .numerics = "portable-1",
                              .receipt = "hearth1:x",
                              .model = "m \"q\""};
    json_done_event(&out, &r);
    ck_assert_str_eq(
        printed(),
        "{\"event\":\"done\",\"reason\":\"length\",\"prompt_tokens\":5,\"cached_tokens\":4,"
        "\"stored_tokens\":1,"
        "\"prefix_break\":3,\"output_tokens\":2,\"ids\":[1,2],\"passes\":3,\"drafted\":6,"
        "\"accepted_drafts\":1,"
        "\"rollbacks\":2,\"prefill_ms\":1.500,\"decode_ms\":0.250,\"numerics\":\"portable-1\","
        "\"receipt\":\"hearth1:x\",\"model\":\"m \\\"q\\\"\"}\n");
    r.reason = HEARTH_ERROR;
    r.error = -ENOSPC;
    r.error_text = "no room";
    json_done_event(&out, &r);
    ck_assert_ptr_nonnull(strstr(printed(), ",\"error\":\"no room\"}\n"));
}
END_TEST

START_TEST(reasons_have_the_documented_words)
{
    static const char *const words[] = {"error",     "eos",        "stop",  "length",
                                        "cancelled", "superseded", "error", "error"};
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_str_eq(json_reason(i), words[i]);
}
END_TEST

/* ---- output ---------------------------------------------------------------------------------- */

START_TEST(a_large_write_to_a_nonblocking_pipe_arrives_whole)
{
    int fds[2];
    ck_assert_int_eq(pipe2(fds, O_NONBLOCK), 0);
    static char data[1 << 20];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(i * 7);
    pid_t child = fork();
    if (child == 0)
        _exit(cli_write(fds[1], data, sizeof(data)) ? 1 : 0);
    close(fds[1]);
    struct buffer got = {0};
    ck_assert_int_eq(cli_read_all(fds[0], &got), 0);
    ck_assert_uint_eq(got.bytes, sizeof(data));
    ck_assert(memcmp(got.data, data, sizeof(data)) == 0);
    buffer_fini(&got);
}
END_TEST

START_TEST(a_pipe_without_reader_says_so_and_does_not_kill)
{
    int fds[2];
    cli_catch_signals();
    ck_assert_int_eq(pipe(fds), 0);
    close(fds[0]);
    ck_assert_int_eq(cli_write(fds[1], "x", 1), -EPIPE);
    ck_assert_int_eq(cli_exit_output(-EPIPE), CLI_INTERRUPTED);
}
END_TEST

START_TEST(a_signal_ends_a_read)
{
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    cli_catch_signals();
    ck_assert_int_eq(cli_stop_requested(), 0);
    pid_t self = getpid();
    pid_t child = fork();
    if (child == 0) {
        usleep(50000);
        kill(self, SIGINT); /* most likely during the read; before it, the byte below ends that */
        usleep(50000);
        _exit(write(fds[1], "x", 1) == 1 ? 0 : 1);
    }
    struct buffer got = {0};
    ck_assert_int_eq(cli_read_all(fds[0], &got), -EINTR);
    ck_assert_int_eq(cli_stop_requested(), 1);
    buffer_fini(&got);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

/* The daemon has accepted and says nothing: the wait goes on after signals, the process does not.
 */
START_TEST(a_signal_ends_a_handshake)
{
    static const int signals[] = {SIGINT, SIGTERM};
    struct fake_daemon fake;
    char message[512];
    fake_open(&fake);
    pid_t child = fork();
    if (child == 0) {
        struct hearth *h;
        o.socket = fake.path;
        cli_catch_signals();
        cli_connect(&o, _i < 2, &h);
        _exit(1);
    }
    fake.socket_fd = accept(fake.listen_fd, NULL, NULL);
    ck_assert_int_gt(recv(fake.socket_fd, message, sizeof(message), 0), 0); /* HELLO */
    kill(child, signals[_i % 2]);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 130, "status 0x%x", status);
    fake_close(&fake);
}
END_TEST

START_TEST(a_signal_before_the_handshake_is_not_forgotten)
{
    pid_t child = fork();
    if (child == 0) {
        cli_catch_signals();
        raise(SIGINT);
        cli_stop_at_once(1);
        _exit(1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 130, "status 0x%x", status);
}
END_TEST

START_TEST(an_error_is_one_line_whatever_it_repeats)
{
    int fds[2], old = dup(STDERR_FILENO);
    ck_assert_int_eq(pipe(fds), 0);
    dup2(fds[1], STDERR_FILENO);
    int code = cli_fail(CLI_USAGE, "unknown '%s'",
                        "a\nb\x1b[2J\x7f \xc3\xa9 \xc2\x9b"
                        "2J \x9b \xe2\x80\xae");
    dup2(old, STDERR_FILENO);
    close(fds[1]);
    ck_assert_int_eq(code, 64);
    ck_assert_int_eq(cli_read_all(fds[0], &out), 0);
    ck_assert_str_eq(printed(), "hearth: unknown 'a?b?[2J? \xc3\xa9 ?\?2J ? ?\?\?'\n");
}
END_TEST

/* What the status of a daemon, who may be anybody, says on a terminal: names of members, too, and
 * what is no JSON; also with --json. */
START_TEST(a_status_drives_no_terminal)
{
    static const char *const texts[][3] = {
        {"{\"a\\u001b\":\"\\u009b\",\"b\":[{\"\\u202e\":1}]}", "a?                       ??\n"
                                                               "b.0                      ??? 1\n"},
        {"no \033[2J JSON\n", "no \\x1b[2J JSON\n"},
        {"{\"a\\u001b\":\"\xc2\x9b\",\"b\":[{\"\xe2\x80\xae\":18}]}",
         "{\"a\\u001B\":\"\\u009B\",\"b\":[{\"\\u202E\":18}]}\n", "json"},
        {"{\"a\":\"\033[2J\"}", "{\"a\":\"\\x1b[2J\"}\n", "json"},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char shown[256];
        int fds[2], old = dup(STDOUT_FILENO);
        ck_assert_int_eq(pipe(fds), 0);
        fflush(stdout);
        dup2(fds[1], STDOUT_FILENO);
        o.json = texts[i][2] != NULL;
        int code = print_status(&o, texts[i][0], strlen(texts[i][0]));
        dup2(old, STDOUT_FILENO);
        ssize_t n = read(fds[0], shown, sizeof(shown) - 1);
        shown[n > 0 ? n : 0] = 0;
        ck_assert_int_eq(code, CLI_OK);
        ck_assert_str_eq(shown, texts[i][1]);
        close(old);
        close(fds[0]);
        close(fds[1]);
    }
}
END_TEST

START_TEST(codes_follow_sysexits)
{
    ck_assert_int_eq(cli_exit_connect(-ENOENT), 69);
    ck_assert_int_eq(cli_exit_connect(-ECONNREFUSED), 69);
    ck_assert_int_eq(cli_exit_connect(-EPROTONOSUPPORT), 69);
    ck_assert_int_eq(cli_exit_connect(-EBUSY), 75);
    ck_assert_int_eq(cli_exit_connect(-ENOMEM), 71);
    ck_assert_int_eq(cli_exit_request(-ERANGE), 65);
    ck_assert_int_eq(cli_exit_request(-E2BIG), 65);
    ck_assert_int_eq(cli_exit_request(-EINVAL), 65);
    ck_assert_int_eq(cli_exit_request(-ECONNRESET), 69);
    ck_assert_int_eq(cli_exit_request(-EBUSY), 75);
    ck_assert_int_eq(cli_exit_request(-EIO), 71);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_cli");
    TCase *t = tcase_create("cli");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, ids_are_read_with_and_without_brackets);
    tcase_add_test(t, malformed_id_lists_are_refused);
    tcase_add_test(t, many_ids_fit);
    tcase_add_test(t, strings_are_escaped);
    tcase_add_test(t, invalid_utf8_is_replaced);
    tcase_add_test(t, json_drives_no_terminal);
    tcase_add_test(t, numbers_that_json_lacks_become_null);
    tcase_add_test(t, a_tokens_event_is_one_line);
    tcase_add_test(t, a_done_event_has_every_member);
    tcase_add_test(t, reasons_have_the_documented_words);
    tcase_add_test(t, a_large_write_to_a_nonblocking_pipe_arrives_whole);
    tcase_add_test(t, a_pipe_without_reader_says_so_and_does_not_kill);
    tcase_add_test(t, a_signal_ends_a_read);
    tcase_add_loop_test(t, a_signal_ends_a_handshake, 0, 4);
    tcase_add_test(t, a_signal_before_the_handshake_is_not_forgotten);
    tcase_add_test(t, an_error_is_one_line_whatever_it_repeats);
    tcase_add_test(t, a_status_drives_no_terminal);
    tcase_add_test(t, codes_follow_sysexits);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
