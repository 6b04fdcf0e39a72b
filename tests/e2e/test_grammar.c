/* Grammars against real daemons and a real model: at any temperature the answer is JSON, the same
 * with every proposer, equal on replay, and valid after the daemon was killed during it. */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char model[] = "daemon/models/hearth-code-5m-f16.gguf";
static struct harness d; /* shared by the tests of the first case */

/* Any JSON object with few blanks, so that a small model reaches the end. */
static const char json[] =
    "root ::= object\n"
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
    "object ::= \"{\" ws (pair (\",\" ws pair){0,5})? ws \"}\"\n"
    "pair ::= string \":\" ws value\n"
    "array ::= \"[\" (value (\",\" ws value){0,5})? \"]\"\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" "
    "[0-9a-fA-F]{4})){0,20} "
    "\"\\\"\"\n"
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,8}) (\".\" [0-9]{1,6})?\n"
    "ws ::= [ \\n]{0,3}\n";
static char grammar_path[160];

static void write_grammar(void)
{
    snprintf(grammar_path, sizeof(grammar_path), "%s/json.gbnf", d.directory);
    FILE *f = fopen(grammar_path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(json, f);
    fclose(f);
}

static void start(void)
{
    static const char *const arguments[] = {"--context", "1024",    "--threads", "1", "--shadow",
                                            "yes",       "--draft", model,       NULL};
    harness_start(&d, model, arguments);
    write_grammar();
}

static void stop(void)
{
    unlink(grammar_path);
    ck_assert_int_eq(harness_stop(&d), 0);
}

#define ASK(seed, ...)                                                                             \
    HARNESS_RUN(&d, NULL, "run", "--grammar-file", grammar_path, "--temperature", "0.8", "--seed", \
                seed, "--max-tokens", "700", __VA_ARGS__, "config = ")

static void assert_json(const struct harness_output *o)
{
    json_error_t error;
    ck_assert_msg(o->code == 0, "%s", o->error);
    json_t *value = json_loadb(o->out, o->out_bytes, 0, &error);
    ck_assert_msg(json_is_object(value), "'%s': %s", o->out, error.text);
    json_decref(value);
}

START_TEST(answers_are_json_with_every_proposer)
{
    static const char *const proposers[] = {"lookup", "auto", "draft", "shadow", "client"};
    for (int seed = 0; seed < 8; seed++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", seed);
        struct harness_output first = ASK(text, "--proposer", "none");
        assert_json(&first);
        for (size_t i = 0; i < sizeof(proposers) / sizeof(proposers[0]); i++) {
            struct harness_output o =
                ASK(text, "--proposer", proposers[i], "--guess", "{\"a\": [1, 2], \"b\": \"x\"}");
            ck_assert_msg(o.out_bytes == first.out_bytes && !memcmp(o.out, first.out, o.out_bytes),
                          "seed %d, %s: '%s', not '%s'", seed, proposers[i], o.out, first.out);
            harness_output_fini(&o);
        }
        harness_output_fini(&first);
    }
    harness_check_drafts(&d);
}
END_TEST

START_TEST(a_record_replays_equal_and_a_changed_grammar_is_named)
{
    char path[200], changed[220], text[16384];
    snprintf(path, sizeof(path), "%s/record", d.directory);
    snprintf(changed, sizeof(changed), "%s/changed", d.directory);
    struct harness_output o = ASK("3", "--record", path);
    assert_json(&o);
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, NULL, "replay", "--proposer", "none", path);
    ck_assert_msg(o.code == 0, "%s%s", o.out, o.error);
    harness_output_fini(&o);
    FILE *f = fopen(path, "r");
    text[fread(text, 1, sizeof(text) - 1, f)] = 0;
    fclose(f);
    char *at = strstr(text, "{0,20}");
    ck_assert_ptr_nonnull(at);
    at[3] = '3';
    f = fopen(changed, "w");
    fputs(text, f);
    fclose(f);
    o = HARNESS_RUN(&d, NULL, "replay", changed);
    ck_assert_int_ne(o.code, 0);
    ck_assert_msg(strstr(o.error, "parameter") != NULL, "%s", o.error);
    harness_output_fini(&o);
    unlink(path);
    unlink(changed);
}
END_TEST

START_TEST(a_grammar_error_is_one_line)
{
    static const struct {
        const char *text, *line;
    } rows[] = {
        {"root ::= a", "hearth: grammar line 1, column 10: rule a is not defined\n"},
        {"root ::= root \"x\" | \"y\"",
         "hearth: grammar line 1, column 1: rule root begins with itself (left recursion): write "
         "the repeated part after it, with *\n"},
        {"root ::= [a", "hearth: grammar line 1, column 10: this class is not closed\n"},
        {"root ::= \"a\"{1000000}", "hearth: grammar line 1, column 10: the grammar is too large"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct harness_output o = HARNESS_RUN(&d, NULL, "run", "--grammar", rows[i].text, "x");
        ck_assert_int_eq(o.code, 65);
        ck_assert_msg(!strncmp(o.error, rows[i].line, strlen(rows[i].line)), "%s", o.error);
        ck_assert_str_eq(o.out, "");
        harness_output_fini(&o);
    }
    struct harness_output o = HARNESS_RUN(&d, NULL, "run", "--grammar", "root ::= \"x\"",
                                          "--grammar-file", grammar_path, "x");
    ck_assert_int_eq(o.code, 64);
    harness_output_fini(&o);
}
END_TEST

/* The grammar, the limit and a stop text: the first one gives the reason. */
START_TEST(grammar_limit_and_stop_text_give_different_reasons)
{
    static const char digits[] = "root ::= [0-9]{20} \"!\"";
    struct harness_output o = HARNESS_RUN(&d, NULL, "run", "--json", "--grammar", digits, "x = ");
    ck_assert_msg(strstr(o.out, "\"reason\":\"eos\"") != NULL, "%s", o.out);
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, NULL, "run", "--json", "--grammar", digits, "--max-tokens", "2", "x = ");
    ck_assert_msg(strstr(o.out, "\"reason\":\"length\"") != NULL, "%s", o.out);
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, NULL, "run", "--json", "--grammar", "root ::= \"abc\" [0-9]{9}", "--stop",
                    "bc", "x = ");
    ck_assert_msg(strstr(o.out, "\"reason\":\"stop\"") != NULL, "%s", o.out);
    harness_output_fini(&o);
}
END_TEST

START_TEST(logprobs_ignore_the_grammar)
{
    struct harness_output free_run =
        HARNESS_RUN(&d, NULL, "run", "--json", "--logprobs", "3", "--max-tokens", "1", "x = ");
    struct harness_output bound =
        HARNESS_RUN(&d, NULL, "run", "--json", "--logprobs", "3", "--max-tokens", "1", "--grammar",
                    "root ::= \"\xe6\xbc\xa2\"", "x = ");
    const char *top = strstr(free_run.out, "\"top"), *same = strstr(bound.out, "\"top");
    ck_assert_msg(top && same, "%s%s", free_run.out, bound.out);
    size_t n = strcspn(top, "\n");
    ck_assert_msg(n > 20 && !strncmp(top, same, strcspn(top, "]")), "%s%s", top, same);
    harness_output_fini(&free_run);
    harness_output_fini(&bound);
}
END_TEST

/* A vocabulary of words cannot produce what this grammar requires. */
START_TEST(a_vocabulary_unable_to_continue_is_an_error)
{
    const char *path = harness_data("models/babyllama105-f16.gguf");
    if (!path || access(path, R_OK) != 0) {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set\n");
        return;
    }
    static struct harness small;
    harness_start(&small, path, NULL);
    struct harness_output o = HARNESS_RUN(&small, NULL, "run", "--grammar",
                                          "root ::= \"\\U0001F600\" \"\xe6\xbc\xa2\"", "the");
    ck_assert_msg(o.code != 0 && strstr(o.error, "vocabulary has no token") != NULL, "%d %s",
                  o.code, o.error);
    harness_output_fini(&o);
    ck_assert_int_eq(harness_stop(&small), 0);
}
END_TEST

/* Reads an answer to its end; the daemon is killed and restarted after `kill_at` tokens. */
static uint32_t take_answer(struct harness *h, struct hearth *handle, uint32_t kill_at,
                            uint32_t *ids, uint32_t max)
{
    const struct hearth_event *e;
    uint32_t seen = 0;
    for (;;) {
        int rc = hearth_next(handle, 0, &e, 120000);
        ck_assert_msg(rc == 1, "%d: %s", rc, hearth_error(handle));
        seen += e->n_tokens;
        if (kill_at && seen >= kill_at) {
            kill_at = 0;
            harness_kill(h);
            harness_restart(h, model, NULL);
        }
        if (e->kind != HEARTH_DONE)
            continue;
        ck_assert_msg(e->result->reason == HEARTH_EOS, "%u: %s", e->result->reason,
                      e->result->error_text);
        ck_assert_uint_le(e->result->n_ids, max);
        memcpy(ids, e->result->ids, e->result->n_ids * sizeof(*ids));
        return e->result->n_ids;
    }
}

START_TEST(a_resumed_answer_stays_within_the_grammar)
{
    enum { MOST = 1000 };
    static uint32_t whole[MOST], resumed[MOST];
    static struct harness h;
    struct hearth_request r;
    harness_start(&h, model, NULL);
    struct hearth_options options;
    struct hearth *handle;
    hearth_options_init(&options, sizeof(options));
    options.resume_ms = 120000;
    ck_assert_int_eq(hearth_connect(h.socket, &options, &handle, NULL, 0), 0);
    hearth_request_init(&r, sizeof(r));
    r.text = "config = ";
    r.text_bytes = strlen(r.text);
    r.temperature = 0.8f;
    r.max_tokens = MOST;
    r.grammar = "root ::= \"[\" number (\", \" number){40} \"]\"\nnumber ::= [1-9] [0-9]{2,5}";
    r.grammar_bytes = strlen(r.grammar);
    for (uint32_t seed = 0; seed < 3; seed++) {
        r.seed = seed;
        ck_assert_int_eq(hearth_submit(handle, 0, &r), 0);
        uint32_t n = take_answer(&h, handle, 0, whole, MOST);
        ck_assert_uint_gt(n, 60);
        ck_assert_int_eq(hearth_submit(handle, 0, &r), 0);
        ck_assert_uint_eq(take_answer(&h, handle, 10 + 20 * seed, resumed, MOST), n);
        ck_assert(!memcmp(whole, resumed, n * sizeof(*whole)));
    }
    hearth_close(handle);
    ck_assert_int_eq(harness_stop(&h), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grammar");
    TCase *shared = tcase_create("shared"), *own = tcase_create("own");
    tcase_add_unchecked_fixture(shared, start, stop);
    tcase_set_timeout(shared, 300);
    tcase_set_timeout(own, 300);
    tcase_add_test(shared, answers_are_json_with_every_proposer);
    tcase_add_test(shared, a_record_replays_equal_and_a_changed_grammar_is_named);
    tcase_add_test(shared, a_grammar_error_is_one_line);
    tcase_add_test(shared, grammar_limit_and_stop_text_give_different_reasons);
    tcase_add_test(shared, logprobs_ignore_the_grammar);
    tcase_add_test(own, a_vocabulary_unable_to_continue_is_an_error);
    tcase_add_test(own, a_resumed_answer_stays_within_the_grammar);
    suite_add_tcase(suite, shared);
    suite_add_tcase(suite, own);
    return run_suite(suite);
}
