/* A daemon whose KV outlives it: a restart in the middle of answers, and kills at random. Every answer is
 * the one of a daemon without a store.
 *
 * HEARTH_STORE_DEATHS=N: so many kills -9 (12 by default). */
#include "tests/e2e/stored.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLIENTS = 16, TRUNK = 600, OWN = 20, OUTPUT = 150, TEXT = 900, TEXTS = 4, DEATHS = 12 };

static struct stored_rig rig;

static void setup(void)
{
    stored_init(&rig, NULL);
}

static void setup_few(void)
{
    stored_init(&rig, (const char *const[]){"--kv-bytes", "327680", NULL});
}

static void teardown(void)
{
    stored_fini(&rig);
}

/* The service manager restarts it under clients that stream: each answer goes on, and their common trunk
 * is read, not computed. */
START_TEST(a_restart_loses_no_token_and_keeps_the_trunk_warm)
{
    struct hearth *h[CLIENTS];
    static struct stored_answer answers[CLIENTS];
    uint32_t tokens[CLIENTS][TRUNK + OWN], stored = 0;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        stored_tokens(tokens[i], TRUNK, 5);
        stored_tokens(tokens[i] + TRUNK, OWN, 100 + i);
        h[i] = stored_connect(rig.daemon.socket);
        stored_submit(h[i], tokens[i], TRUNK + OWN, OUTPUT);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) { /* each has begun */
        const struct hearth_event *event;
        while (answers[i].n == 0 && hearth_next(h[i], 0, &event, 600000) > 0)
            ck_assert(!stored_take(&answers[i], event));
        ck_assert_uint_gt(answers[i].n, 0);
    }
    stored_stop(&rig);
    harness_restart(&rig.daemon, harness_tiny_model(), rig.arguments);
    for (uint32_t i = 0; i < CLIENTS; i++)
        stored += stored_finish(h[i], &answers[i]);
    ck_assert_int_eq(harness_counter(&rig.daemon, "stored_tokens"), stored);
    ck_assert_int_eq(harness_counter(&rig.daemon, "store_failed"), 0);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        stored_check(&rig, tokens[i], TRUNK + OWN, OUTPUT, &answers[i]);
        hearth_close(h[i]);
    }
    if (stored == 0)
        stored_expect(&rig, tokens[0], TRUNK);
}
END_TEST

/* Killed while it reads, writes and answers, with so few pages that it always does. */
START_TEST(kills_at_random_change_no_answer)
{
    const char *text = getenv("HEARTH_STORE_DEATHS");
    const uint32_t deaths = text ? (uint32_t)strtoul(text, NULL, 10) : DEATHS;
    uint32_t tokens[TEXTS][TEXT], seed = 9, asked = 0, stored = 0;
    struct hearth *h = stored_connect(rig.daemon.socket);
    for (uint32_t i = 0; i < TEXTS; i++)
        stored_tokens(tokens[i], TEXT, 70 + i);
    for (uint32_t death = 0; death < deaths;) {
        uint32_t i = random_below(&seed, TEXTS), n_tokens = 200 + random_below(&seed, 600);
        uint32_t at = random_below(&seed, TEXT);
        struct stored_answer answer = {.n = 0};
        if (random_below(&seed, 3) == 0)
            stored_tokens(tokens[i] + at, TEXT - at, seed);
        stored_submit(h, tokens[i], n_tokens, 10);
        if (random_below(&seed, 2)) { /* somewhere in it, or after it */
            usleep(random_below(&seed, 30000));
            harness_kill(&rig.daemon);
            harness_restart(&rig.daemon, harness_tiny_model(), rig.arguments);
            death++;
        }
        stored += stored_finish(h, &answer);
        stored_check(&rig, tokens[i], n_tokens, 10, &answer);
        asked++;
    }
    stored += stored_ask(&rig, h, tokens[0], 200); /* the last one is up when it has answered */
    ck_assert_uint_gt(asked, deaths);
    hearth_close(h);
    if (stored == 0)
        stored_expect(&rig, tokens[0], TEXT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *t = tcase_create("restart");
    tcase_set_timeout(t, 600);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_restart_loses_no_token_and_keeps_the_trunk_warm);
    suite_add_tcase(suite, t);
    t = tcase_create("kills");
    tcase_set_timeout(t, 3600);
    tcase_add_checked_fixture(t, setup_few, teardown);
    tcase_add_test(t, kills_at_random_change_no_answer);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
