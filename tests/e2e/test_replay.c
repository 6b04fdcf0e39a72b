/* hearth run --record and hearth replay against real daemons: an answer is the same on other
 * kernels, threads and contexts, and replay names whatever differs from the record. */
#include "kernels/quant/quant_types.h"
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct harness d; /* shared by all tests */
static char record_path[200];
static struct harness_output o;

static void start(void)
{
    static const char *const arguments[] = {"--context", "512", "--threads", "1", NULL};
    harness_start(&d, harness_model(), arguments);
}

static void stop(void)
{
    ck_assert_int_eq(harness_stop(&d), 0);
}

static const char *path_of(const char *name)
{
    static char path[200];
    snprintf(path, sizeof(path), "%s/%s", d.directory, name);
    return path;
}

/* Everything that an answer depends on: sampling, penalties, bias, every kind of stop. */
#define SAMPLED                                                                                    \
    "--temperature", "0.9", "--top-k", "50", "--top-p", "0.95", "--min-p", "0.01",                 \
        "--repeat-penalty", "1.1", "--penalty-last-n", "-1", "--seed", "18446744073709551615",     \
        "--logit-bias", "5=-inf", "--logit-bias", "9=0.3", "--stop", "\n\n\n", "--stop", "\xff\"", \
        "--stop-token", "3"

static void setup(void)
{
    snprintf(record_path, sizeof(record_path), "%s", path_of("record"));
    o = HARNESS_RUN(&d, NULL, "run", SAMPLED, "--max-tokens", "40", "--record", record_path,
                    "Once upon a time");
    ck_assert_msg(o.code == 0, "%s", o.error);
    ck_assert_str_eq(o.error, "");
    harness_output_fini(&o);
}

static void teardown(void)
{
    harness_output_fini(&o);
    unlink(record_path);
}

static char *read_record(const char *path)
{
    static char text[65536];
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = 0;
    fclose(f);
    return text;
}

/* Overwrites the text after "name": in the record, up to the first of `ends`. */
static void edit(const char *name, const char *ends, const char *value)
{
    char *text = read_record(record_path), *at = strstr(text, name);
    ck_assert_msg(at != NULL, "%s", name);
    at += strlen(name);
    FILE *f = fopen(record_path, "w");
    fprintf(f, "%.*s%s%s", (int)(at - text), text, value, at + strcspn(at, ends));
    fclose(f);
}

/* The part of the record between `name` and the first of `ends`. */
static const char *part(const char *name, const char *ends)
{
    static char value[256];
    char *at = strstr(read_record(record_path), name) + strlen(name);
    snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, ends), at);
    return value;
}

static void assert_equal(void)
{
    char begin[256];
    ck_assert_msg(o.code == 0, "%d: %s%s", o.code, o.out, o.error);
    snprintf(begin, sizeof(begin), "%s: equal: ", record_path);
    ck_assert_msg(strncmp(o.out, begin, strlen(begin)) == 0, "%s", o.out);
    ck_assert_ptr_nonnull(strstr(o.out, " tokens, receipt hearth1:"));
    ck_assert_ptr_eq(strchr(o.out, '\n'), o.out + o.out_bytes - 1);
    ck_assert_str_eq(o.error, "");
}

/* One line on stderr with these words, nothing on stdout. */
static void assert_named(int code, const char *words)
{
    ck_assert_msg(o.code == code, "%d: %s%s", o.code, o.out, o.error);
    ck_assert_msg(strstr(o.error, words) != NULL, "%s", o.error);
    ck_assert_ptr_eq(strchr(o.error, '\n'), o.error + o.error_bytes - 1);
    ck_assert_str_eq(o.out, "");
}

#define REPLAY(...) HARNESS_RUN(&d, NULL, "replay", __VA_ARGS__)

/* ---- equal ----------------------------------------------------------------------------------- */

START_TEST(a_recorded_answer_replays_equal)
{
    o = REPLAY(record_path);
    assert_equal();
    harness_output_fini(&o);
    o = REPLAY("--proposer", "none", record_path);
    assert_equal();
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, read_record(record_path), "replay", "-");
    ck_assert_msg(strncmp(o.out, "-: equal: ", 10) == 0, "%s%s", o.out, o.error);
    struct stat st;
    ck_assert_int_eq(stat(record_path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
}
END_TEST

START_TEST(recording_leaves_the_output_unchanged)
{
    static const char *const formats[] = {"--json", "--"};
    for (int i = 0; i < 2; i++) {
        struct harness_output plain = HARNESS_RUN(&d, NULL, "run", SAMPLED, "--max-tokens", "20",
                                                  formats[i], "Once upon a time");
        o = HARNESS_RUN(&d, NULL, "run", SAMPLED, "--max-tokens", "20", "--record", record_path,
                        formats[i], "Once upon a time");
        if (i)
            ck_assert_str_eq(o.out, plain.out);
        else /* except the times */
            ck_assert_str_eq(strstr(o.out, "\"numerics\""), strstr(plain.out, "\"numerics\""));
        harness_output_fini(&plain);
        harness_output_fini(&o);
    }
}
END_TEST

START_TEST(another_kernel_and_more_threads_replay_equal)
{
    static const char *const arguments[] = {"--context", "512", "--isa", "ref",
                                            "--threads", "2",   NULL};
    struct harness other = {0};
    harness_start(&other, harness_model(), arguments);
    o = HARNESS_RUN(&other, NULL, "replay", record_path);
    harness_stop(&other);
    assert_equal();
}
END_TEST

/* Recorded where a state went on from a restart point. */
START_TEST(an_answer_of_a_recurrent_model_replays_equal)
{
    static const char *const archs[] = {"qwen35", "lfm2", "granitehybrid"};
    const char *model = harness_tiny_model_of(archs[_i], QUANT_Q8_0);
    struct harness own = {0}, other = {0};
    harness_start(&own, model, (const char *const[]){"--threads", "1", NULL});
    for (int i = 0; i < 2; i++) {
        harness_output_fini(&o);
        o = HARNESS_RUN(&own, NULL, "run", SAMPLED, "--max-tokens", "40", "--record", record_path,
                        "Once upon a time there was a text that is longer than a page, of which a "
                        "state is kept");
        ck_assert_msg(o.code == 0, "%s", o.error);
    }
    ck_assert_int_gt(harness_counter(&own, "cached_tokens"), 0);
    harness_stop(&own);
    harness_output_fini(&o);
    harness_start(&other, model, (const char *const[]){"--isa", "ref", "--threads", "2", NULL});
    o = HARNESS_RUN(&other, NULL, "replay", record_path);
    harness_stop(&other);
    assert_equal();
}
END_TEST

START_TEST(every_finish_reason_can_be_replayed)
{
    o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "12", "--record", record_path, "--json",
                    "--logprobs", "2", "Once upon a time");
    ck_assert_msg(o.code == 0, "%s", o.error);
    harness_output_fini(&o);
    ck_assert_str_eq(part("\"reason\":\"", "\""), "length");
    o = REPLAY(record_path);
    assert_equal();
    harness_output_fini(&o);

    char id[16];
    snprintf(id, sizeof(id), "%s", part("\"ids\":[", ","));
    o = HARNESS_RUN(&d, NULL, "run", "--stop-token", id, "--record", record_path,
                    "Once upon a time");
    harness_output_fini(&o);
    ck_assert_str_eq(part("\"reason\":\"", "\""), "stop");
    ck_assert_str_eq(part("\"ids\":[", "]"), id);
    o = REPLAY(record_path);
    assert_equal();
    harness_output_fini(&o);

    o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "0", "--tokens", "1,2,3", "--record",
                    record_path);
    ck_assert_msg(o.code == 0, "%s", o.error);
    harness_output_fini(&o);
    ck_assert_str_eq(part("\"prompt\":[", "]"), "1,2,3");
    o = REPLAY(record_path);
    assert_equal();
}
END_TEST

/* The answer ended with the context, which is part of the request's hash. */
START_TEST(an_answer_that_filled_the_context_is_equal_in_a_larger_one_and_too_long_for_a_smaller)
{
    static const char *const larger[] = {"--context", "640", "--threads", "1", NULL};
    static const char *const smaller[] = {"--context", "256", "--threads", "1", NULL};
    struct harness other = {0};
    o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "100000", "--logit-bias", "2=-inf", "--record",
                    record_path, "--tokens", "1,300");
    ck_assert_msg(o.code == 0, "%s", o.error);
    harness_output_fini(&o);
    ck_assert_str_eq(part("\"max_tokens\":", ","), "510");
    o = REPLAY(record_path);
    assert_equal();
    harness_output_fini(&o);
    harness_start(&other, harness_model(), larger);
    o = HARNESS_RUN(&other, NULL, "replay", record_path);
    harness_stop(&other);
    assert_equal();
    harness_output_fini(&o);
    other = (struct harness){0};
    harness_start(&other, harness_model(), smaller);
    o = HARNESS_RUN(&other, NULL, "replay", record_path);
    harness_stop(&other);
    assert_named(65, "the context holds 256");
}
END_TEST

/* ---- not equal ------------------------------------------------------------------------------- */

START_TEST(another_model_is_named)
{
    static const char *const arguments[] = {"--threads", "1", NULL};
    struct harness other = {0};
    harness_start(&other, harness_tiny_model(), arguments);
    o = HARNESS_RUN(&other, NULL, "replay", record_path);
    harness_stop(&other);
    assert_named(65, "recorded with another model: ");
    ck_assert_ptr_nonnull(strstr(o.error, part("\"fingerprint\":\"", "\"")));
}
END_TEST

START_TEST(other_numerics_are_named)
{
    char receipt[160], numerics[64];
    snprintf(numerics, sizeof(numerics), "%s", part("\"numerics\":\"", "\""));
    snprintf(receipt, sizeof(receipt), "%s", part("\"receipt\":\"", "\""));
    char *rest = strstr(receipt, numerics) + strlen(numerics), changed[200];
    snprintf(changed, sizeof(changed), "%.*sother-9%s", (int)(strstr(receipt, numerics) - receipt),
             receipt, rest);
    edit("\"numerics\":\"", "\"", "other-9");
    o = REPLAY(record_path);
    assert_named(65, "it is not one for that fingerprint and numerics");
    harness_output_fini(&o);
    edit("\"receipt\":\"", "\"", changed);
    o = REPLAY(record_path);
    assert_named(65, "recorded with other numerics: other-9, the daemon has ");
}
END_TEST

/* Appends +fast to the numerics id, as for an answer from a device's fast passes. */
static void make_fast(void)
{
    char receipt[200], numerics[64], changed[220];
    snprintf(numerics, sizeof(numerics), "%s", part("\"numerics\":\"", "\""));
    snprintf(receipt, sizeof(receipt), "%s", part("\"receipt\":\"", "\""));
    const char *rest = strstr(receipt, numerics) + strlen(numerics);
    snprintf(changed, sizeof(changed), "%.*s+fast%s", (int)(rest - receipt), receipt, rest);
    edit("\"receipt\":\"", "\"", changed);
    snprintf(changed, sizeof(changed), "%s+fast", numerics);
    edit("\"numerics\":\"", "\"", changed);
}

/* This daemon has no fast passes and verifies everything. */
START_TEST(an_unverified_answer_may_differ)
{
    char id[16];
    make_fast();
    o = REPLAY(record_path);
    ck_assert_int_eq(o.code, 1);
    ck_assert_msg(strstr(o.out, ": receipt differs: recorded hearth1:") != NULL, "%s", o.out);
    ck_assert_msg(strstr(o.out, "; it was not deterministic: a difference proves nothing\n") !=
                      NULL,
                  "%s", o.out);
    harness_output_fini(&o);
    snprintf(id, sizeof(id), "%lu", strtoul(part("\"ids\":[", ","), NULL, 10) + 1);
    edit("\"ids\":[", ",", id);
    o = REPLAY(record_path);
    ck_assert_int_eq(o.code, 1);
    ck_assert_msg(strstr(o.out, ": differs at token 0 ") != NULL, "%s", o.out);
    ck_assert_ptr_nonnull(strstr(o.out, "; it was not deterministic: "));
    harness_output_fini(&o);
    edit("\"seed\":", ",", "7");
    o = REPLAY(record_path);
    assert_named(65, "the prompt or a parameter was changed after the recording");
    ck_assert_ptr_null(strstr(o.error, "deterministic"));
}
END_TEST

/* Verification was not required but happened: the receipt counts, not the flag. */
START_TEST(a_verified_answer_replays_equal)
{
    o = HARNESS_RUN(&d, NULL, "run", SAMPLED, "--max-tokens", "40", "--deterministic", "no",
                    "--record", record_path, "Once upon a time");
    ck_assert_msg(o.code == 0, "%s", o.error);
    harness_output_fini(&o);
    ck_assert_str_eq(part("\"deterministic\":", ","), "false");
    ck_assert_ptr_null(strstr(part("\"numerics\":\"", "\""), "+fast"));
    o = REPLAY(record_path);
    assert_equal();
    ck_assert_ptr_null(strstr(o.out, "deterministic"));
}
END_TEST

static const char *const changes[][3] = {
    {"\"seed\":", ",", "7"},
    {"\"temperature\":", ",", "0.8"},
    {"\"top_k\":", ",", "51"},
    {"\"repeat_penalty\":", ",", "1"},
    {"\"penalty_last_n\":", ",", "64"},
    {"\"logit_bias\":", "s", "[],\""},
    {"\"stop\":[\"", "\"", "x"},
    {"\"stop_tokens\":[", "]", "4"},
    {"\"max_tokens\":", ",", "41"},
    {"\"logprobs\":", ",", "0"},
    {"\"prompt\":[1,", ",", "20"},
};

START_TEST(a_changed_parameter_or_prompt_is_named)
{
    edit(changes[_i][0], changes[_i][1], changes[_i][2]);
    o = REPLAY(record_path);
    assert_named(65, "the prompt or a parameter was changed after the recording");
}
END_TEST

START_TEST(a_parameter_out_of_range_gives_the_same_error_as_a_request)
{
    edit("\"temperature\":", ",", "-1");
    o = REPLAY(record_path);
    assert_named(65, "temperature");
}
END_TEST

START_TEST(a_changed_id_is_named_with_its_position)
{
    char ids[256], line[512], *second;
    snprintf(ids, sizeof(ids), "%s", part("\"ids\":[", "]"));
    unsigned first = (unsigned)strtoul(ids, &second, 10);
    unsigned was = (unsigned)strtoul(second + 1, NULL, 10), position = 1;
    for (const char *c = part("\"prompt\":[", "]"); *c; c++)
        position += *c == ',';
    snprintf(line, sizeof(line), "%u,%u", first, was + 1);
    edit("\"ids\":[", "]", line); /* two tokens, the second one another */
    o = REPLAY(record_path);
    ck_assert_int_eq(o.code, 1);
    snprintf(line, sizeof(line),
             "%s: differs at token 1 (position %u): recorded %u, now %u; the receipt is for the "
             "answer of now: the recorded ids were changed\n",
             record_path, position + 1, was + 1, was);
    ck_assert_str_eq(o.out, line);
    ck_assert_str_eq(o.error, "");
    harness_output_fini(&o);

    snprintf(line, sizeof(line), "%u", first);
    edit("\"ids\":[", "]", line);
    o = REPLAY(record_path);
    ck_assert_int_eq(o.code, 1);
    snprintf(line, sizeof(line), "token 1 (position %u): recorded none, now %u", position + 1, was);
    ck_assert_msg(strstr(o.out, line) != NULL, "%s", o.out);
}
END_TEST

START_TEST(a_changed_reason_or_receipt_is_named)
{
    char reason[32], receipt[160], line[80];
    snprintf(reason, sizeof(reason), "%s", part("\"reason\":\"", "\""));
    edit("\"reason\":\"", "\"", "eos");
    o = REPLAY(record_path);
    ck_assert_int_eq(o.code, 1);
    snprintf(line, sizeof(line), "reason differs: recorded eos, now %s\n", reason);
    ck_assert_msg(strstr(o.out, line) != NULL, "%s%s", o.out, o.error);
    harness_output_fini(&o);
    edit("\"reason\":\"", "\"", reason);
    snprintf(receipt, sizeof(receipt), "%s", part("\"receipt\":\"", "\""));
    char *last = receipt + strlen(receipt) - 1;
    *last = *last == '0' ? '1' : '0';
    edit("\"receipt\":\"", "\"", receipt);
    o = REPLAY(record_path);
    ck_assert_int_eq(o.code, 1);
    ck_assert_msg(strstr(o.out, ": receipt differs: recorded hearth1:") != NULL, "%s", o.out);
}
END_TEST

START_TEST(bad_files_are_reported_and_the_others_compared)
{
    o = REPLAY("/nonexistent/record");
    assert_named(66, "/nonexistent/record");
    harness_output_fini(&o);
    o = REPLAY("/dev/null");
    assert_named(65, "byte 0");
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, NULL, "replay");
    assert_named(64, "no record");
    harness_output_fini(&o);
    o = HARNESS_RUN(NULL, NULL, "replay", record_path);
    assert_named(69, "hearthd");
    harness_output_fini(&o);
    o = REPLAY("/dev/null", record_path, "/nonexistent/record");
    ck_assert_int_eq(o.code, 65); /* that of the first bad file */
    ck_assert_ptr_nonnull(strstr(o.out, ": equal: "));
}
END_TEST

START_TEST(json_has_one_object_per_file)
{
    char path[200], changed[16];
    snprintf(path, sizeof(path), "%s", path_of("copy"));
    ck_assert_int_eq(rename(record_path, path), 0);
    setup();
    unsigned was = (unsigned)strtoul(part("\"ids\":[", ","), NULL, 10);
    snprintf(changed, sizeof(changed), "%u", was + 1);
    edit("\"ids\":[", ",", changed);
    o = REPLAY("--json", path, record_path, "/dev/null");
    unlink(path);
    ck_assert_int_eq(o.code, 1);
    static const char *const results[] = {"equal", "differs", "malformed"};
    char *line = o.out;
    for (int i = 0; i < 3; i++) {
        char *end = strchr(line, '\n');
        ck_assert_ptr_nonnull(end);
        *end = 0;
        json_t *j = json_loads(line, 0, NULL);
        ck_assert_msg(j != NULL, "%s", line);
        ck_assert_str_eq(json_string_value(json_object_get(j, "result")), results[i]);
        ck_assert_uint_gt(strlen(json_string_value(json_object_get(j, "text"))), 5);
        if (i == 0)
            ck_assert_int_gt(json_integer_value(json_object_get(j, "tokens")), 0);
        if (i == 1) {
            ck_assert_int_eq(json_integer_value(json_object_get(j, "token")), 0);
            ck_assert_int_eq(json_integer_value(json_object_get(j, "recorded")), was + 1);
            ck_assert_int_eq(json_integer_value(json_object_get(j, "now")), was);
        }
        json_decref(j);
        line = end + 1;
    }
    ck_assert_str_eq(line, "");
}
END_TEST

/* ---- recording ------------------------------------------------------------------------------- */

START_TEST(a_failed_run_leaves_no_record)
{
    unlink(record_path);
    o = HARNESS_RUN(&d, NULL, "run", "--tokens", "99999999", "--record", record_path);
    assert_named(65, "99999999");
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, NULL, "run", "--record", "/nonexistent/record", "x");
    assert_named(73, "/nonexistent/record");
    harness_output_fini(&o);
    o = HARNESS_RUN(&d, NULL, "run", "--record", "-", "x");
    assert_named(64, "--record -");
    DIR *folder = opendir(d.directory);
    const struct dirent *entry;
    while ((entry = readdir(folder)))
        ck_assert_msg(strncmp(entry->d_name, "record", 6) != 0, "%s", entry->d_name);
    closedir(folder);
}
END_TEST

int main(void)
{
    if (!harness_model()) {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set and there is no bundled model\n");
        return EXIT_SUCCESS;
    }
    Suite *suite = suite_create("replay");
    TCase *t = tcase_create("replay");
    tcase_set_timeout(t, 60);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_recorded_answer_replays_equal);
    tcase_add_test(t, recording_leaves_the_output_unchanged);
    tcase_add_test(t, another_kernel_and_more_threads_replay_equal);
    tcase_add_loop_test(t, an_answer_of_a_recurrent_model_replays_equal, 0, 3);
    tcase_add_test(t, every_finish_reason_can_be_replayed);
    tcase_add_test(
        t, an_answer_that_filled_the_context_is_equal_in_a_larger_one_and_too_long_for_a_smaller);
    tcase_add_test(t, another_model_is_named);
    tcase_add_test(t, other_numerics_are_named);
    tcase_add_test(t, an_unverified_answer_may_differ);
    tcase_add_test(t, a_verified_answer_replays_equal);
    tcase_add_loop_test(t, a_changed_parameter_or_prompt_is_named, 0,
                        (int)(sizeof(changes) / sizeof(changes[0])));
    tcase_add_test(t, a_parameter_out_of_range_gives_the_same_error_as_a_request);
    tcase_add_test(t, a_changed_id_is_named_with_its_position);
    tcase_add_test(t, a_changed_reason_or_receipt_is_named);
    tcase_add_test(t, bad_files_are_reported_and_the_others_compared);
    tcase_add_test(t, json_has_one_object_per_file);
    tcase_add_test(t, a_failed_run_leaves_no_record);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
