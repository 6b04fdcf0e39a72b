/* `hearth store`: shows what a store keeps, by model and user, and clears exactly what it is asked to. */
#include "daemon/log.h"
#include "tests/rig/store_rig.h"
#include "tests/run_suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct store_rig rig;
static char out[8192]; /* what the last command printed, on both streams */

static void put(uid_t uid, uint32_t number)
{
    struct store_text text = store_rig_text(&rig, uid, number, 96);
    ck_assert(store_rig_put(&rig, STORE_PAGE, &text));
}

static bool is_there(uid_t uid, uint32_t number)
{
    struct store_text text = store_rig_text(&rig, uid, number, 96);
    return store_rig_get(&rig, STORE_PAGE, &text) == 0;
}

static void serve(const char *name, const char *seed)
{
    rig.options.model = name;
    rig.options.seed = seed;
    rig.options.seed_bytes = strlen(seed);
    store_rig_open(&rig);
}

static void setup(void)
{
    log_init(LOG_LEVEL_ERROR);
    store_rig_init(&rig);
    serve("model A (f16)", "seed a");
    put(1000, 0);
    put(1000, 10);
    put(1001, 20);
    serve("model B (f16)", "seed b");
    put(1000, 30);
    store_rig_close(&rig);
}

static void teardown(void)
{
    store_rig_fini(&rig);
}

/* Runs `hearth store --dir ... ARGUMENTS`. Returns its exit code. */
static int store(const char *arguments)
{
    const char *build = getenv("BUILD");
    char command[512];
    snprintf(command, sizeof(command), "%s/bin/hearth store --dir %s %s 2>&1",
             build ? build : "build", rig.path, arguments);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    out[fread(out, 1, sizeof(out) - 1, pipe)] = 0;
    int status = pclose(pipe);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void says(const char *text)
{
    ck_assert_msg(strstr(out, text), "no \"%s\" in: %s", text, out);
}

static void says_not(const char *text)
{
    ck_assert_msg(!strstr(out, text), "\"%s\" in: %s", text, out);
}

START_TEST(it_shows_models_users_and_records)
{
    ck_assert_int_eq(store("--json"), 0);
    says("{\"model\":\"model A (f16)\",\"id\":\"");
    says("\"user\":1000,\"bytes\":");
    says("\"records\":2,\"written\":1");
    says("\"user\":1001");
    says("\"records\":1,\"written\":1");
    says("model B (f16)");
    says("\"served\":false}\n");
    says_not("\"served\":true");
    ck_assert_int_eq(store(""), 0);
    says("MODEL          ID             USER      SIZE  RECORDS WRITTEN\n");
    says("       1000   ");
    says(" KiB        2     now\n");
    ck_assert_int_eq(store("--user 1001"), 0);
    says("1001");
    says_not("model B");
    serve("model B (f16)", "seed b");
    ck_assert_int_eq(store(""), 0);
    says("now  served\n");
}
END_TEST

/* Of another user's store, whose files root lists, too. */
START_TEST(a_models_name_drives_no_terminal)
{
    serve("model \x1b[2J \xc2\x9b"
          "2J \xe2\x80\xae",
          "seed c");
    put(1000, 40);
    store_rig_close(&rig);
    ck_assert_int_eq(store(""), 0);
    ck_assert_ptr_nonnull(strstr(out, "\nmodel ?[2J ?\?2J ?\?\?  "));
}
END_TEST

START_TEST(a_user_without_records_has_written_none)
{
    ck_assert_int_eq(unlink(store_rig_found(&rig, "*/1001/*.kv")), 0);
    ck_assert_int_eq(store("--user 1001"), 0);
    says("        0       -\n");
}
END_TEST

START_TEST(it_names_what_is_not_its_users_alone)
{
    ck_assert_int_eq(chmod(store_rig_found(&rig, "*/1001"), 0755), 0);
    ck_assert_int_eq(store(""), 71);
    says("/1001 is not its user's alone: make it that, a folder mode 0700");
}
END_TEST

START_TEST(it_clears_one_user_and_nothing_else)
{
    ck_assert_int_eq(store("--clear --user 1000"), 0);
    says("cleared ");
    ck_assert_ptr_null(store_rig_found(&rig, "*/1000"));
    serve("model A (f16)", "seed a");
    ck_assert(!is_there(1000, 0) && !is_there(1000, 10) && is_there(1001, 20));
    serve("model B (f16)", "seed b");
    ck_assert(!is_there(1000, 30));
    store_rig_close(&rig);
    ck_assert_int_eq(store("--clear --json --user 1001"), 0);
    says("{\"cleared_bytes\":3");
    char command[160]; /* model B's is there */
    snprintf(command, sizeof(command), "[ $(ls %s/*/seen | wc -l) = 1 ]", rig.path);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(it_clears_all_but_what_is_served)
{
    struct stat st;
    serve("model B (f16)", "seed b");
    ck_assert_int_eq(store("--clear"), 75);
    says("model B (f16): a hearthd serves it: stop that, then clear it");
    ck_assert(is_there(1000, 30));
    store_rig_close(&rig);
    serve("model A (f16)", "seed a");
    ck_assert(!is_there(1000, 0) && !is_there(1001, 20));
    store_rig_close(&rig);
    ck_assert_int_eq(store("--clear"), 0); /* one without users as well */
    ck_assert_ptr_null(store_rig_found(&rig, "*/model"));
    ck_assert_int_eq(stat(store_rig_in(&rig, "day"), &st), 0);
}
END_TEST

START_TEST(it_leaves_what_is_not_the_stores)
{
    char command[300];
    snprintf(command, sizeof(command),
             "cd %s && touch mine ../away && for d in */1000 */1001; do touch $d/mine && "
             "ln -s ../../../away $d/0009.kv; done",
             rig.path);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(store("--clear"), 0);
    snprintf(command, sizeof(command),
             "cd %s && ls mine ../away >/dev/null && [ $(ls */*/mine | wc -l) = 3 ] && ! ls "
             "*/*/*.kv 2>/dev/null",
             rig.path);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(what_cannot_be_is_one_line)
{
    ck_assert_int_eq(store("--user me"), 64);
    says("hearth: --user 'me': give a user's number");
    ck_assert_int_eq(chmod(rig.path, 0755), 0);
    ck_assert_int_eq(store(""), 71);
    says("is not yours alone");
    ck_assert_int_eq(chmod(rig.path, 0700), 0);
    strcat(rig.path, "/nothing");
    ck_assert_int_eq(store(""), 66);
    says("does not exist: give --dir DIR");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_store");
    TCase *tcase = tcase_create("client_store");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, it_shows_models_users_and_records);
    tcase_add_test(tcase, a_models_name_drives_no_terminal);
    tcase_add_test(tcase, a_user_without_records_has_written_none);
    tcase_add_test(tcase, it_names_what_is_not_its_users_alone);
    tcase_add_test(tcase, it_clears_one_user_and_nothing_else);
    tcase_add_test(tcase, it_clears_all_but_what_is_served);
    tcase_add_test(tcase, it_leaves_what_is_not_the_stores);
    tcase_add_test(tcase, what_cannot_be_is_one_line);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
