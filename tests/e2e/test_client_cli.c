/* The hearth command against a real daemon and a real model: what it prints and how it ends. */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Shared by all tests: started before the first of them. */
static struct harness d;

static void start(void)
{
    static const char *const arguments[] = {"--context", "30000", "--slots", "8",
                                            "--threads", "1",     NULL};
    harness_start(&d, harness_model(), arguments);
}

static void stop(void)
{
    ck_assert_int_eq(harness_stop(&d), 0);
}

static struct harness_output o;

static void teardown(void)
{
    harness_output_fini(&o);
}

/* One line on stderr that begins like all of them, and nothing on stdout. */
static void assert_failed(int code)
{
    ck_assert_msg(o.code == code, "exit code %d, not %d: %s", o.code, code, o.error);
    ck_assert_msg(strncmp(o.error, "hearth: ", 8) == 0, "%s", o.error);
    ck_assert_msg(strchr(o.error, '\n') == o.error + o.error_bytes - 1, "%s", o.error);
    ck_assert_str_eq(o.out, "");
    harness_output_fini(&o);
}

/* ---- JSON output --------------------------------------------------------------------------- */

struct answer_lines {
    json_t *done; /* the last line */
    json_t *ids;  /* of all lines before it */
    char text[65536];
};

static struct answer_lines read_lines(char *out)
{
    struct answer_lines a = {.ids = json_array()};
    char *save = NULL;
    for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_error_t why;
        json_t *j = json_loads(line, 0, &why);
        ck_assert_msg(j != NULL, "%s: %s", line, why.text);
        ck_assert_msg(!a.done, "a line after done: %s", line);
        const char *event = json_string_value(json_object_get(j, "event"));
        if (strcmp(event, "done") == 0) {
            a.done = j;
            continue;
        }
        ck_assert_str_eq(event, "tokens");
        strcat(a.text, json_string_value(json_object_get(j, "text")));
        json_array_extend(a.ids, json_object_get(j, "ids"));
        json_decref(j);
    }
    ck_assert_ptr_nonnull(a.done);
    ck_assert(json_equal(a.ids, json_object_get(a.done, "ids")) ||
              !strcmp(json_string_value(json_object_get(a.done, "reason")), "cancelled"));
    return a;
}

static int64_t number(const struct answer_lines *a, const char *name)
{
    const json_t *n = json_object_get(a->done, name);
    ck_assert_msg(json_is_number(n), "%s", name);
    return (int64_t)json_number_value(n);
}

static const char *word(const struct answer_lines *a, const char *name)
{
    const json_t *s = json_object_get(a->done, name);
    ck_assert_msg(json_is_string(s), "%s", name);
    return json_string_value(s);
}

static void lines_fini(struct answer_lines *a)
{
    json_decref(a->done);
    json_decref(a->ids);
    harness_output_fini(&o);
}

START_TEST(json_lines_carry_the_plain_text_and_the_end)
{
    struct harness_output plain =
        HARNESS_RUN(&d, NULL, "run", "--max-tokens", "60", "Once upon a time");
    ck_assert_msg(plain.code == 0, "%s", plain.error);
    ck_assert_str_eq(plain.error, "");
    o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "60", "--json", "Once upon a time");
    ck_assert_int_eq(o.code, 0);
    struct answer_lines a = read_lines(o.out);
    ck_assert_str_eq(a.text, plain.out);
    ck_assert_str_eq(word(&a, "reason"), "length");
    ck_assert_int_eq(number(&a, "output_tokens"), 60);
    ck_assert_uint_eq(json_array_size(a.ids), 60);
    ck_assert_int_gt(number(&a, "prompt_tokens"), 1);
    ck_assert_int_ge(number(&a, "cached_tokens"), 0);
    ck_assert_int_ge(number(&a, "passes"), 1);
    ck_assert_int_ge(number(&a, "drafted"), number(&a, "accepted_drafts"));
    ck_assert_int_le(number(&a, "rollbacks"), number(&a, "passes"));
    ck_assert(json_is_number(json_object_get(a.done, "prefill_ms")));
    ck_assert(json_is_number(json_object_get(a.done, "decode_ms")));
    ck_assert_uint_gt(strlen(word(&a, "numerics")), 3);
    ck_assert_uint_gt(strlen(word(&a, "model")), 3);
    ck_assert_int_eq(strncmp(word(&a, "receipt"), "hearth1:", 8), 0);
    harness_output_fini(&plain);
    lines_fini(&a);
}
END_TEST

START_TEST(prompts_come_from_words_stdin_a_file_or_ids)
{
    struct harness_output words =
        HARNESS_RUN(&d, NULL, "run", "--max-tokens", "20", "Once upon", "a time");
    ck_assert_uint_gt(words.out_bytes, 10);
    o = HARNESS_RUN(&d, "Once upon a time", "run", "--max-tokens", "20");
    ck_assert_str_eq(o.out, words.out);
    harness_output_fini(&o);

    char path[200];
    snprintf(path, sizeof(path), "%s/prompt", d.directory);
    FILE *f = fopen(path, "w");
    fputs("Once upon a time", f);
    fclose(f);
    o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "20", "--file", path);
    unlink(path);
    ck_assert_str_eq(o.out, words.out);
    harness_output_fini(&o);

    struct hearth *h = harness_connect(&d, 1, NULL);
    uint32_t ids[64];
    int64_t n = hearth_tokenize(h, "Once upon a time", 16, HEARTH_ADD_BOS, ids, 64);
    hearth_close(h);
    char list[1024] = "";
    for (int64_t i = 0; i < n; i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%u", i ? "," : "", ids[i]);
    o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "20", "--tokens", list);
    ck_assert_str_eq(o.out, words.out);
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, list, "run", "--max-tokens", "20", "--tokens", "-");
    ck_assert_str_eq(o.out, words.out);
    harness_output_fini(&words);
}
END_TEST

START_TEST(a_stop_text_ends_the_answer_before_it)
{
    struct harness_output all =
        HARNESS_RUN(&d, NULL, "run", "--max-tokens", "80", "Once upon a time");
    ck_assert_uint_gt(all.out_bytes, 30);
    /* From the middle of the answer, so that it spans tokens. */
    char stop_text[8] = "";
    memcpy(stop_text, all.out + all.out_bytes / 2, 7);
    size_t at = (size_t)(strstr(all.out, stop_text) - all.out);
    o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "80", "--json", "--stop", "never there",
                    "--stop", stop_text, "Once upon a time");
    struct answer_lines a = read_lines(o.out);
    ck_assert_str_eq(word(&a, "reason"), "stop");
    all.out[at] = 0;
    ck_assert_str_eq(a.text, all.out);
    /* The ids go on to the token that completes the stop. */
    struct hearth *h = harness_connect(&d, 1, NULL);
    uint32_t ids[64];
    char text[1024] = "";
    for (size_t i = 0; i < json_array_size(a.ids); i++)
        ids[i] = (uint32_t)json_integer_value(json_array_get(a.ids, i));
    ck_assert_int_lt(hearth_detokenize(h, ids, json_array_size(a.ids), 0, text, sizeof(text) - 1),
                     1000);
    hearth_close(h);
    ck_assert_ptr_nonnull(strstr(text, stop_text));
    harness_output_fini(&all);
    lines_fini(&a);
}
END_TEST

START_TEST(a_stop_token_ends_the_answer)
{
    o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "10", "--json", "Once upon a time");
    struct answer_lines all = read_lines(o.out);
    char id[16];
    snprintf(id, sizeof(id), "%lld", (long long)json_integer_value(json_array_get(all.ids, 4)));
    struct harness_output stopped = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "10", "--json",
                                                "--stop-token", id, "Once upon a time");
    struct answer_lines a = read_lines(stopped.out);
    ck_assert_str_eq(word(&a, "reason"), "stop");
    ck_assert_uint_le(json_array_size(a.ids), 5);
    ck_assert_int_eq(strncmp(a.text, all.text, strlen(a.text)), 0);
    ck_assert_uint_lt(strlen(a.text), strlen(all.text));
    lines_fini(&all);
    harness_output_fini(&stopped);
    lines_fini(&a);
}
END_TEST

START_TEST(the_seed_decides_at_a_temperature_above_0)
{
    const char *const seeds[] = {"1", "1", "2"};
    char *texts[3];
    for (int i = 0; i < 3; i++) {
        o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "40", "--temperature", "1", "--seed",
                        seeds[i], "Once upon a time");
        ck_assert_int_eq(o.code, 0);
        texts[i] = strdup(o.out);
        harness_output_fini(&o);
    }
    ck_assert_str_eq(texts[0], texts[1]);
    ck_assert_str_ne(texts[0], texts[2]);
    for (int i = 0; i < 3; i++)
        free(texts[i]);
}
END_TEST

START_TEST(logprobs_are_sorted_and_belong_to_the_tokens)
{
    o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "5", "--json", "--logprobs", "3",
                    "Once upon a time");
    ck_assert_int_eq(o.code, 0);
    size_t seen = 0;
    char *save = NULL;
    for (char *line = strtok_r(o.out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *j = json_loads(line, 0, NULL);
        const json_t *list = json_object_get(j, "logprobs"), *ids = json_object_get(j, "ids");
        for (size_t i = 0; i < json_array_size(list); i++, seen++) {
            const json_t *item = json_array_get(list, i), *top = json_object_get(item, "top");
            double own = json_number_value(json_object_get(item, "logprob"));
            ck_assert(json_equal(json_object_get(item, "id"), json_array_get(ids, i)));
            ck_assert(own <= 0);
            ck_assert_uint_eq(json_array_size(top), 3);
            /* Greedy: the sampled token is the first alternative. */
            ck_assert(json_equal(json_object_get(json_array_get(top, 0), "id"),
                                 json_object_get(item, "id")));
            for (size_t k = 1; k < 3; k++)
                ck_assert(
                    json_number_value(json_object_get(json_array_get(top, k), "logprob")) <=
                    json_number_value(json_object_get(json_array_get(top, k - 1), "logprob")));
        }
        json_decref(j);
    }
    ck_assert_uint_eq(seen, 5);
}
END_TEST

START_TEST(a_named_slot_stays_warm_and_is_busy_while_held)
{
    for (int i = 0; i < 2; i++) {
        o = HARNESS_RUN(&d, NULL, "run", "--json", "--slot", "warm", "--max-tokens", "2",
                        "Once upon a time");
        ck_assert_msg(o.code == 0, "%s", o.error);
        struct answer_lines a = read_lines(o.out);
        if (i)
            ck_assert_int_eq(number(&a, "cached_tokens"), number(&a, "prompt_tokens") - 1);
        lines_fini(&a);
    }
    ck_assert_int_eq(harness_wait_counter(&d, "clients", 0), 0);
    struct hearth *h = harness_connect(&d, 1, "warm");
    o = HARNESS_RUN(&d, NULL, "run", "--slot", "warm", "x");
    assert_failed(75);
    hearth_close(h);
}
END_TEST

START_TEST(an_edit_says_where_the_prefix_broke)
{
    static const char *const prompts[] = {"7,8,9,10,11,12", "7,8,9,10,11,12,13", "7,8,9,99,11,12"};
    static const int broke[] = {0, 6, 3};
    for (int i = 0; i < 3; i++) {
        o = HARNESS_RUN(&d, NULL, "run", "--json", "--slot", "edited", "--max-tokens", "0",
                        "--tokens", prompts[i]);
        ck_assert_msg(o.code == 0, "%s", o.error);
        struct answer_lines a = read_lines(o.out);
        ck_assert_int_eq(number(&a, "prefix_break"), broke[i]);
        lines_fini(&a);
        harness_output_fini(&o);
    }
}
END_TEST

/* ---- tokenize, detokenize, status ---------------------------------------------------------- */

START_TEST(tokenizing_by_daemon_and_by_file_agree_and_come_back)
{
    static const char text[] =
        "Once upon\n a  time: na\xc3\xafve \xe2\x82\xac \xf0\x9f\x94\xa5\t\x01 end";
    struct harness_output by_file = HARNESS_RUN(NULL, text, "tokenize", "--model", harness_model());
    ck_assert_msg(by_file.code == 0, "%s", by_file.error);
    o = HARNESS_RUN(&d, text, "tokenize");
    ck_assert_msg(o.code == 0, "%s", o.error);
    ck_assert_str_eq(o.out, by_file.out);
    json_t *ids = json_loads(o.out, 0, NULL);
    ck_assert_uint_gt(json_array_size(ids), 5);
    json_decref(ids);
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, by_file.out, "detokenize");
    ck_assert_str_eq(o.out, text);
    harness_output_fini(&o);
    o = HARNESS_RUN(NULL, by_file.out, "detokenize", "--model", harness_model());
    ck_assert_str_eq(o.out, text);
    harness_output_fini(&by_file);
}
END_TEST

START_TEST(doctor_looks_at_the_machine_and_at_the_daemon)
{
    char line[300];

    o = HARNESS_RUN(&d, NULL, "doctor");
    ck_assert_int_eq(o.code, 0);
    snprintf(line, sizeof(line), " at %s\n", d.socket);
    ck_assert_msg(strstr(o.out, "daemon      serves ") && strstr(o.out, line), "%s", o.out);
    ck_assert_ptr_nonnull(strstr(o.out, "resident    "));
    harness_output_fini(&o);
    o = HARNESS_RUN(NULL, NULL, "doctor", "--json");
    ck_assert_int_eq(o.code, 0);
    ck_assert_ptr_nonnull(strstr(o.out, "\"check\":\"daemon\",\"verdict\":\"note\","));
    for (char *at = o.out; *at; at = strchr(at, '\n') + 1) {
        json_t *object = json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);
        ck_assert_ptr_nonnull(object);
        ck_assert_ptr_nonnull(json_string_value(json_object_get(object, "text")));
        json_decref(object);
    }
    harness_output_fini(&o);
}
END_TEST

/* A whole line of the output. */
static void assert_line(const char *format, const char *value)
{
    char line[400] = "\n";
    snprintf(line + 1, sizeof(line) - 2, format, value);
    strcat(line, "\n");
    ck_assert_msg(strstr(o.out, line), "no '%s': %s", line, o.out);
}

START_TEST(status_is_json_and_a_table_of_the_same)
{
    o = HARNESS_RUN(&d, NULL, "status", "--json");
    ck_assert_msg(o.code == 0, "%s", o.error);
    json_t *j = json_loads(o.out, 0, NULL);
    static const char *const names[] = {"slots_used", "pages_free", "fds_open", "rss_bytes",
                                        "clients"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        ck_assert_msg(json_is_integer(json_object_get(j, names[i])), "%s", names[i]);
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, NULL, "status");
    const char *name;
    json_t *value;
    json_object_foreach(j, name, value) {
        char line[80];
        snprintf(line, sizeof(line), "%s ", name);
        ck_assert_msg(strstr(o.out, line), "%s", name);
    }
    assert_line("model                    %s", json_string_value(json_object_get(j, "model")));
    assert_line("numerics                 %s", json_string_value(json_object_get(j, "numerics")));
    assert_line("slots                    %s", "none");
    json_decref(j);
}
END_TEST

START_TEST(a_slot_is_one_line_of_the_table)
{
    struct hearth *h = harness_connect(&d, 2, NULL);
    o = HARNESS_RUN(&d, NULL, "status", "--json");
    json_t *j = json_loads(o.out, 0, NULL), *rows = json_object_get(j, "slots");
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, NULL, "status");
    ck_assert_uint_eq(json_array_size(rows), 2);
    for (size_t i = 0; i < 2; i++) {
        json_t *row = json_array_get(rows, i);
        char line[200];
        snprintf(line, sizeof(line),
                 "\nslots.%zu                  client %lld slot %zu uid %lld pid %d state idle ", i,
                 (long long)json_integer_value(json_object_get(row, "client")), i,
                 (long long)json_integer_value(json_object_get(row, "uid")), (int)getpid());
        ck_assert_msg(strstr(o.out, line), "no '%s': %s", line, o.out);
    }
    json_decref(j);
    hearth_close(h);
}
END_TEST

/* ---- bad input ----------------------------------------------------------------------------- */

START_TEST(bad_input_gets_one_line_and_its_code)
{
    o = HARNESS_RUN(&d, NULL, "run", "--tokens", "99999999", "--max-tokens", "1");
    assert_failed(65);
    o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "-1", "x");
    assert_failed(64);
    o = HARNESS_RUN(&d, NULL, "run", "--nope", "x");
    assert_failed(64);
    o = HARNESS_RUN(&d, NULL, "run", "--logprobs", "1", "x");
    assert_failed(64);
    o = HARNESS_RUN(&d, NULL, "run", "--file", "/nonexistent/prompt");
    assert_failed(66);
    o = HARNESS_RUN(&d, NULL, "run", "--file", "a", "b");
    assert_failed(64);
    o = HARNESS_RUN(&d, NULL, "frobnicate");
    assert_failed(64);
    o = HARNESS_RUN(&d, NULL, "tokenize", "surplus");
    assert_failed(64);
    o = HARNESS_RUN(&d, "[1,2", "detokenize");
    assert_failed(65);
    o = HARNESS_RUN(&d, "[99999999]", "detokenize");
    assert_failed(65);
    o = HARNESS_RUN(&d, "x", "tokenize", "--model", "/nonexistent.gguf");
    assert_failed(66);
    o = HARNESS_RUN(&d, "x", "tokenize", "--model", "/dev/null");
    assert_failed(65);
    o = HARNESS_RUN(&d, NULL, "run", "--proposer", "magic", "x");
    assert_failed(64);
    o = HARNESS_RUN(&d, NULL, "run", "--slot", "a b", "x");
    assert_failed(64);
    ck_assert_int_eq(harness_wait_counter(&d, "slots_active", 0), 0);
}
END_TEST

START_TEST(a_schema_file_without_its_at_sign_is_named)
{
    static const char *const names[] = {"/nonexistent/s.json", "/etc/passwd"};
    for (size_t i = 0; i < 2; i++) {
        char hint[64];
        o = HARNESS_RUN(&d, NULL, "run", "--json-schema", names[i], "x");
        snprintf(hint, sizeof(hint), "give @%s", names[i]);
        ck_assert_msg(strstr(o.error, hint) != NULL, "%s", o.error);
        assert_failed(65);
    }
    o = HARNESS_RUN(&d, NULL, "run", "--json-schema", "{\"type\":.json", "x");
    ck_assert_msg(strstr(o.error, "not JSON") != NULL, "%s", o.error);
    assert_failed(65);
    o = HARNESS_RUN(&d, NULL, "run", "--json-schema", "@/nonexistent/s.json", "x");
    assert_failed(66);
}
END_TEST

/* Runs a command line of the shell, with $HEARTH set to the program. Returns its exit code. */
static int shell(const char *line)
{
    char command[512], program[PATH_MAX];
    ck_assert_ptr_nonnull(realpath(harness_program("hearth"), program));
    setenv("HEARTH", program, 1);
    setenv("HEARTH_SOCKET", d.socket, 1);
    snprintf(command, sizeof(command), "cd %s && %s", d.directory, line);
    return WEXITSTATUS(system(command));
}

/* What the shell left in a file of the daemon's directory, which goes. */
static const char *left_in(const char *name)
{
    static char text[512];
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", d.directory, name);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = 0;
    fclose(f);
    unlink(path);
    return text;
}

START_TEST(closed_standard_descriptors_are_reported)
{
    ck_assert_int_eq(shell("$HEARTH run Once 2>err >&-"), 71);
    ck_assert_str_eq(left_in("err"), "hearth: stdout is closed: redirect it to a file or a pipe\n");
    ck_assert_int_eq(shell("$HEARTH status 2>err >&-"), 71);
    ck_assert_str_eq(left_in("err"), "hearth: stdout is closed: redirect it to a file or a pipe\n");
    ck_assert_int_eq(shell("$HEARTH run 2>err <&-"), 66);
    ck_assert_str_eq(left_in("err"), "hearth: stdin is closed: give it a file or a pipe to read\n");
    ck_assert_int_eq(shell("$HEARTH run --max-tokens 4 Once 2>err >out <&-"), 0);
    ck_assert_str_eq(left_in("err"), "");
    ck_assert_uint_gt(strlen(left_in("out")), 3);
    ck_assert_int_eq(shell("$HEARTH run --max-tokens 4 Once 2>&- >out <&-"), 0);
    ck_assert_uint_gt(strlen(left_in("out")), 3);
    ck_assert_int_eq(shell("$HEARTH run --tokens 99999999 2>&- >out"), 65);
    ck_assert_str_eq(left_in("out"), "");
    ck_assert_int_eq(shell("$HEARTH run Once 2>&- >&- <&-"), 71);
    ck_assert_int_eq(harness_wait_counter(&d, "clients", 0), 0);
}
END_TEST

START_TEST(a_prompt_beyond_the_context_is_refused)
{
    char *ids = malloc(2 * 30001 + 1);
    for (size_t i = 0; i < 30001; i++)
        memcpy(ids + 2 * i, "1,", 2);
    ids[2 * 30001 - 1] = 0;
    o = HARNESS_RUN(&d, ids, "run", "--tokens", "-");
    free(ids);
    ck_assert_ptr_nonnull(strstr(o.error, "30001"));
    assert_failed(65);
}
END_TEST

START_TEST(a_daemon_whose_socket_cannot_be_made_says_why)
{
    char longer[200];
    memset(longer, 'x', sizeof(longer));
    longer[0] = '/';
    longer[sizeof(longer) - 1] = 0;
    const struct {
        const char *socket, *part;
        int code;
    } cases[] = {{"Makefile", "Makefile exists and is not a socket", 73},
                 {"/nonexistent/h.sock", "its folder does not exist", 73},
                 {longer, "a socket path has at most", 64},
                 {d.socket, " already listens at ", 75}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        o = harness_run_hearthd((const char *const[]){"--model", harness_model(), "--log-level",
                                                      "error", "--threads", "1", "--socket",
                                                      cases[i].socket, NULL});
        ck_assert_msg(o.code == cases[i].code, "exit code %d: %s", o.code, o.error);
        ck_assert_msg(strstr(o.error, cases[i].part) &&
                          strchr(o.error, '\n') == o.error + o.error_bytes - 1,
                      "%s", o.error);
        harness_output_fini(&o);
    }
}
END_TEST

START_TEST(no_daemon_is_69_and_says_how_to_start_one)
{
    o = HARNESS_RUN(NULL, NULL, "run", "x");
    ck_assert_ptr_nonnull(strstr(o.error, "start one with hearthd --model FILE"));
    assert_failed(69);
    o = HARNESS_RUN(NULL, NULL, "status");
    assert_failed(69);
}
END_TEST

static void add_tests(TCase *t)
{
    tcase_add_test(t, json_lines_carry_the_plain_text_and_the_end);
    tcase_add_test(t, prompts_come_from_words_stdin_a_file_or_ids);
    tcase_add_test(t, a_stop_text_ends_the_answer_before_it);
    tcase_add_test(t, a_stop_token_ends_the_answer);
    tcase_add_test(t, the_seed_decides_at_a_temperature_above_0);
    tcase_add_test(t, logprobs_are_sorted_and_belong_to_the_tokens);
    tcase_add_test(t, an_edit_says_where_the_prefix_broke);
    tcase_add_test(t, a_named_slot_stays_warm_and_is_busy_while_held);
    tcase_add_test(t, tokenizing_by_daemon_and_by_file_agree_and_come_back);
    tcase_add_test(t, status_is_json_and_a_table_of_the_same);
    tcase_add_test(t, a_slot_is_one_line_of_the_table);
    tcase_add_test(t, doctor_looks_at_the_machine_and_at_the_daemon);
    tcase_add_test(t, bad_input_gets_one_line_and_its_code);
    tcase_add_test(t, a_schema_file_without_its_at_sign_is_named);
    tcase_add_test(t, closed_standard_descriptors_are_reported);
    tcase_add_test(t, a_prompt_beyond_the_context_is_refused);
    tcase_add_test(t, a_daemon_whose_socket_cannot_be_made_says_why);
    tcase_add_test(t, no_daemon_is_69_and_says_how_to_start_one);
}

int main(void)
{
    if (!harness_model()) {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set and there is no bundled model\n");
        return EXIT_SUCCESS;
    }
    Suite *suite = suite_create("client_cli_e2e");
    TCase *t = tcase_create("cli");
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_set_timeout(t, 300);
    add_tests(t);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
