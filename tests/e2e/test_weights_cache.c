/* --weights-cache from outside: answers are the same with the file as without, daemons share it, and
 * one that is damaged ends the daemon. */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char model[] = "daemon/models/hearth-code-5m-f16.gguf";
static char folder[64];
static struct harness d;

static void setup(void)
{
    strcpy(folder, "/tmp/hearth-weights-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void start(struct harness *daemon, const char *isa)
{
    memset(daemon, 0, sizeof(*daemon));
    harness_start(daemon, model,
                  (const char *const[]){"--weights-cache", folder, "--isa", isa, NULL});
}

/* What an answer says of itself after its times: numerics, receipt, model. Static memory. */
static const char *answer(const struct harness *daemon)
{
    static char text[2][1024];
    static int next;
    char *ret = text[next++ % 2];
    struct harness_output o =
        HARNESS_RUN(daemon, NULL, "run", "--json", "--tokens", "1,40,52,9,17,23,40", "--max-tokens",
                    "48", "--temperature", "1", "--seed", "7");
    const char *end = o.code == 0 ? strstr(o.out, "\"numerics\"") : NULL;
    ck_assert_msg(end != NULL, "%s%s", o.out, o.error);
    snprintf(ret, sizeof(text[0]), "%s", end);
    harness_output_fini(&o);
    return ret;
}

/* The only file of the folder; NULL: there is none, or it is not complete. Static memory. */
static const char *kept(void)
{
    static char path[400];
    struct dirent *entry;
    DIR *dir = opendir(folder);
    int n = 0;
    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name), n++;
    closedir(dir);
    return n == 1 && strstr(path, ".weights") ? path : NULL;
}

static void await_file(void)
{
    for (int i = 0; i < 6000 && !kept(); i++)
        usleep(10000);
    ck_assert_ptr_nonnull(kept());
}

static void check_log(const struct harness *daemon, const char *said)
{
    char text[8192];
    FILE *log = fopen(daemon->log, "r");
    ck_assert_ptr_nonnull(log);
    text[fread(text, 1, sizeof(text) - 1, log)] = 0;
    fclose(log);
    ck_assert_msg(strstr(text, said) != NULL, "%s", text);
}

/* hearthd with the folder, until it ends by itself. */
static void check_end(int code, const char *said, const char *const *more)
{
    const char *arguments[12] = {"--model", model, "--weights-cache", folder};
    for (int i = 0; more[i]; i++)
        arguments[4 + i] = more[i];
    struct harness_output o = harness_run_hearthd(arguments);
    ck_assert_msg(o.code == code && (strstr(o.out, said) || strstr(o.error, said)), "%d %s%s",
                  o.code, o.out, o.error);
    harness_output_fini(&o);
}

START_TEST(answers_are_equal_with_and_without_the_file)
{
    static const char *const isas[] = {"auto", "avx2", "ref"};
    char first[1024];
    start(&d, "auto");
    check_log(&d, "is not used: there is none");
    ck_assert_ptr_null(kept()); /* before the first answer */
    snprintf(first, sizeof(first), "%s", answer(&d));
    await_file();
    ck_assert_int_eq(harness_stop(&d), 0);
    check_end(0, "is used", (const char *const[]){"--check", NULL});
    for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
        start(&d, isas[i]);
        check_log(&d, strcmp(isas[i], "ref") == 0
                          ? "not used: it is for weights that the CPU repacks"
                          : "is used");
        ck_assert_str_eq(answer(&d), first);
        ck_assert_int_eq(harness_stop(&d), 0);
    }
}
END_TEST

START_TEST(two_daemons_share_the_file)
{
    struct harness other;
    start(&d, "auto");
    start(&other, "auto");
    ck_assert_str_eq(answer(&d), answer(&other));
    await_file();
    ck_assert_int_eq(harness_stop(&d), 0);
    ck_assert_str_eq(answer(&other), answer(&other));
    ck_assert_int_eq(harness_stop(&other), 0);
    check_end(0, "is used", (const char *const[]){"--check", NULL});
}
END_TEST

/* The model drafts for itself, so that both have the same file. */
START_TEST(a_draft_models_weights_are_mapped_too)
{
    const char *const arguments[] = {"--weights-cache", folder, "--draft", model, NULL};
    char first[1024];
    start(&d, "auto");
    snprintf(first, sizeof(first), "%s", answer(&d));
    await_file();
    ck_assert_int_eq(harness_stop(&d), 0);
    memset(&d, 0, sizeof(d));
    harness_start(&d, model, arguments);
    check_log(&d, "is used");
    ck_assert_str_eq(answer(&d), first);
    ck_assert_int_eq(harness_stop(&d), 0);
    struct harness_output o = harness_run_hearthd((const char *const[]){
        "--model", model, "--check", "--weights-cache", folder, "--draft", model, NULL});
    const char *once = strstr(o.out, "is used");
    ck_assert_msg(o.code == 0 && once && strstr(once + 1, "is used"), "%s%s", o.out, o.error);
    harness_output_fini(&o);
}
END_TEST

START_TEST(a_killed_daemon_leaves_nothing_that_is_believed)
{
    char first[1024];
    start(&d, "auto");
    snprintf(first, sizeof(first), "%s", answer(&d));
    harness_kill(&d);
    start(&d, "auto");
    ck_assert_str_eq(answer(&d), first);
    await_file();
    ck_assert_int_eq(harness_stop(&d), 0);
    check_end(0, "is used", (const char *const[]){"--check", NULL});
}
END_TEST

/* A byte of the weights differs: the daemon starts, reads all of it, and ends. */
START_TEST(a_damaged_file_ends_the_daemon)
{
    char socket[128];
    uint8_t byte;
    start(&d, "auto");
    answer(&d);
    await_file();
    ck_assert_int_eq(harness_stop(&d), 0);
    int fd = open(kept(), O_RDWR | O_CLOEXEC);
    const off_t at = (2 << 20) + 5000;
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    snprintf(socket, sizeof(socket), "%s.sock", folder);
    if (_i == 0)
        check_end(65, "are damaged", (const char *const[]){"--check", NULL});
    else
        check_end(65, "are damaged", (const char *const[]){"--socket", socket, NULL});
    ck_assert_ptr_null(kept());
    check_end(0, "is not used: there is none", (const char *const[]){"--check", NULL});
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("weights_cache");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, answers_are_equal_with_and_without_the_file);
    tcase_add_test(core, two_daemons_share_the_file);
    tcase_add_test(core, a_draft_models_weights_are_mapped_too);
    tcase_add_test(core, a_killed_daemon_leaves_nothing_that_is_believed);
    tcase_add_loop_test(core, a_damaged_file_ends_the_daemon, 0, 2);
    suite_add_tcase(suite, core);
    return run_suite(suite);
}
