/* `hearth fim` and hearth_fim() against a real daemon and the bundled model, which was trained
 * suffix first: what is filled in, and how many tokens a keystroke computes. */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char model[] = "daemon/models/hearth-code-5m-f16.gguf";
enum { CONTEXT = 8192, PAGE = 32 };

static struct harness d;
static char folder[] = "/tmp/hearth-fim-XXXXXX", path[64];

static const char before[] =
    "import os\n\ndef read_lines(path):\n    with open(path) as f:\n        ";
static const char after[] = "\n    return lines\n";

static void start(void)
{
    static const char *const arguments[] = {"--context", "8192", "--threads", "1", NULL};
    harness_start(&d, model, arguments);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/x.py", folder);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "%s%s", before, after);
    fclose(f);
}

static void stop(void)
{
    unlink(path);
    rmdir(folder);
    ck_assert_int_eq(harness_stop(&d), 0);
}

static struct hearth_fim fim_of(const char *prefix, size_t bytes)
{
    struct hearth_fim f;
    hearth_fim_init(&f, sizeof(f));
    f.prefix = prefix;
    f.prefix_bytes = bytes;
    f.suffix = after;
    f.suffix_bytes = strlen(after);
    return f;
}

/* ---- the command ----------------------------------------------------------------------------- */

static char *said(const char *input, const char *const *arguments)
{
    struct harness_output o = harness_run(&d, input, arguments);
    ck_assert_msg(o.code == 0, "%s", o.error);
    char *text = strdup(o.out);
    harness_output_fini(&o);
    return text;
}
#define SAID(input, ...) said(input, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(command_and_library_give_the_same_answer)
{
    struct hearth *h = harness_connect(&d, 1, NULL);
    struct hearth_info info = {.size = sizeof(info)};
    uint32_t ids[256];
    const struct hearth_fim f = fim_of(before, strlen(before));
    ck_assert_int_eq(hearth_info(h, &info), 0);
    ck_assert_uint_eq(info.fim, 2); /* suffix first */
    int64_t n = hearth_fim(h, &f, ids, 256);
    ck_assert_msg(n > 20 && n < 256, "%lld: %s", (long long)n, hearth_error(h));
    hearth_close(h);
    char list[2048], place[80];
    size_t at = 0;
    for (int64_t i = 0; i < n; i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%u", i ? "," : "", ids[i]);
    snprintf(place, sizeof(place), "%s:5:9", path);
    char *want = SAID(NULL, "run", "--max-tokens", "20", "--tokens", list);
    char *got = SAID(NULL, "fim", "--max-tokens", "20", place);
    ck_assert_uint_gt(strlen(want), 0);
    ck_assert_str_eq(got, want);
    free(want);
    free(got);
}
END_TEST

START_TEST(a_position_can_be_given_in_four_ways)
{
    char place[80], text[256], prefix[80];
    snprintf(place, sizeof(place), "%s:5", path);
    snprintf(text, sizeof(text), "%s%s", before, after);
    snprintf(prefix, sizeof(prefix), "%s/prefix", folder);
    FILE *f = fopen(prefix, "w");
    ck_assert_ptr_nonnull(f);
    fputs(before, f);
    fclose(f);
    char *want = SAID(NULL, "fim", "--max-tokens", "12", place);
    char *got[] = {
        SAID(NULL, "fim", "--max-tokens", "12", "--line", "5", "--col", "9", path),
        SAID(text, "fim", "--max-tokens", "12", "--line", "5"),
        SAID(after, "fim", "--max-tokens", "12", "--prefix-file", prefix, "--suffix-file", "-"),
    };
    unlink(prefix);
    ck_assert_uint_gt(strlen(want), 0);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_str_eq(got[i], want);
        free(got[i]);
    }
    free(want);
}
END_TEST

/* The last line of --json. */
static json_t *done_of(const char *const *arguments)
{
    struct harness_output o = harness_run(&d, NULL, arguments);
    ck_assert_msg(o.code == 0, "%s", o.error);
    json_error_t error;
    char *last = strstr(o.out, "{\"event\":\"done\"");
    ck_assert_ptr_nonnull(last);
    json_t *done = json_loads(last, 0, &error);
    ck_assert_msg(done != NULL, "%s", error.text);
    harness_output_fini(&o);
    return done;
}

START_TEST(order_and_other_files_change_the_prompt)
{
    char place[80];
    snprintf(place, sizeof(place), "%s:5", path);
    const char *plain[] = {"fim", "--json", "--max-tokens", "1", place, NULL};
    const char *more[] = {"fim", "--json", "--max-tokens", "1", "--extra", path, place, NULL};
    const char *psm[] = {"fim", "--json", "--max-tokens", "1", "--order", "psm", place, NULL};
    const char *spm[] = {"fim", "--json", "--max-tokens", "1", "--order", "spm", place, NULL};
    json_t *p = done_of(plain), *m = done_of(more), *a = done_of(psm), *b = done_of(spm);
    long long n = json_integer_value(json_object_get(p, "prompt_tokens"));
    ck_assert_int_gt(json_integer_value(json_object_get(m, "prompt_tokens")), n + 10);
    ck_assert_int_eq(json_integer_value(json_object_get(a, "prompt_tokens")), n);
    const char *receipt = json_string_value(json_object_get(p, "receipt"));
    ck_assert_str_eq(json_string_value(json_object_get(b, "receipt")), receipt);
    ck_assert_str_ne(json_string_value(json_object_get(a, "receipt")), receipt);
    json_decref(p);
    json_decref(m);
    json_decref(a);
    json_decref(b);
}
END_TEST

static void assert_failed(int code, const char *const *arguments)
{
    struct harness_output o = harness_run(&d, "x\n", arguments);
    ck_assert_msg(o.code == code, "exit code %d, not %d: %s", o.code, code, o.error);
    ck_assert_msg(strncmp(o.error, "hearth: ", 8) == 0, "%s", o.error);
    ck_assert_msg(strchr(o.error, '\n') == o.error + o.error_bytes - 1, "%s", o.error);
    ck_assert_str_eq(o.out, "");
    harness_output_fini(&o);
}
#define FAILS(code, ...) assert_failed(code, (const char *const[]){"fim", __VA_ARGS__, NULL})

START_TEST(usage_errors_are_one_line)
{
    char place[80];
    snprintf(place, sizeof(place), "%s:99:1", path);
    FAILS(65, place);
    snprintf(place, sizeof(place), "%s:5:99", path);
    FAILS(65, place);
    snprintf(place, sizeof(place), "%s:0:1", path);
    FAILS(64, place);
    FAILS(64, path);
    FAILS(64, "--line", "0");
    FAILS(64, "--line", "1", "a", "b");
    FAILS(64, "--prefix-file", "-", "--suffix-file", "-");
    FAILS(64, "--prefix-file", path, "--line", "1");
    FAILS(64, "--line", "1", "--order", "msp");
    FAILS(66, "/nowhere/x.py:1:1");
    FAILS(66, "--line", "1", "--extra", "/nowhere/x.py");
    FAILS(66, "--suffix-file", "/nowhere/x.py");
}
END_TEST

/* ---- keystrokes ------------------------------------------------------------------------------ */

static struct hearth_result answer(struct hearth *h, const uint32_t *ids, int64_t n,
                                   uint32_t max_tokens)
{
    struct hearth_request r;
    const struct hearth_event *e;
    hearth_request_init(&r, sizeof(r));
    r.tokens = ids;
    r.n_tokens = (uint32_t)n;
    r.max_tokens = max_tokens;
    ck_assert_msg(hearth_submit(h, 0, &r) == 0, "%s", hearth_error(h));
    do
        ck_assert_msg(hearth_next(h, 0, &e, 60000) == 1, "%s", hearth_error(h));
    while (e->kind != HEARTH_DONE);
    ck_assert_msg(e->result->reason != HEARTH_ERROR, "%s", e->result->error_text);
    return *e->result;
}

/* A cached buffer of more than 7,000 tokens; then a line is typed, with a request for each
 * character. */
START_TEST(a_keystroke_recomputes_from_the_first_changed_token)
{
    static char text[1 << 16];
    static uint32_t ids[CONTEXT], old[CONTEXT];
    static const char typed[] = "    for name in sorted(os.listdir(path)):\n";
    struct hearth *h = harness_connect(&d, 1, NULL);
    struct hearth_fim f = fim_of(text, 0);
    size_t bytes = 0;
    int64_t n = 0, n_old;
    f.max_tokens = CONTEXT - 64;
    for (unsigned i = 0; n < 7000; i++) {
        bytes += (size_t)sprintf(text + bytes, "def item_%u(x):\n    return x + %u\n\n", i, i);
        f.prefix_bytes = bytes;
        n = hearth_fim(h, &f, ids, CONTEXT);
    }
    struct hearth_result r = answer(h, ids, n, 0);
    ck_assert_int_eq(r.prompt_tokens, n);
    uint32_t most = 0;
    for (size_t i = 0; i < sizeof(typed) - 1; i++) {
        memcpy(old, ids, (size_t)n * sizeof(*ids));
        n_old = n;
        text[bytes++] = typed[i];
        f.prefix_bytes = bytes;
        n = hearth_fim(h, &f, ids, CONTEXT);
        int64_t same = 0;
        while (same < n && same < n_old && ids[same] == old[same])
            same++;
        ck_assert_int_ge(same, n - 8);
        r = answer(h, ids, n, 16);
        uint32_t computed = r.prompt_tokens - r.cached_tokens;
        ck_assert_uint_le(computed, (uint32_t)(n - same) + PAGE);
        most = computed > most ? computed : most;
    }
    printf("keystrokes on %lld warm tokens: at most %u rows of the prompt\n", (long long)n, most);
    hearth_close(h);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fim");
    TCase *c = tcase_create("fim");
    tcase_add_unchecked_fixture(c, start, stop);
    tcase_set_timeout(c, 300);
    tcase_add_test(c, command_and_library_give_the_same_answer);
    tcase_add_test(c, a_position_can_be_given_in_four_ways);
    tcase_add_test(c, order_and_other_files_change_the_prompt);
    tcase_add_test(c, usage_errors_are_one_line);
    tcase_add_test(c, a_keystroke_recomputes_from_the_first_changed_token);
    suite_add_tcase(s, c);
    return run_suite(s);
}
