/* A daemon whose KV outlives it: a restart in the middle of answers, and kills at random. Every answer is
 * the one of a daemon without a store.
 *
 * HEARTH_STORE_DEATHS=N: so many kills -9 (12 by default). */
#include "tests/e2e/harness.h"
#include "tests/random.h"
#include "tests/rig/folder.h"
#include "tests/run_suite.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS = 16, TRUNK = 600, OWN = 20, OUTPUT = 150, TEXT = 900, TEXTS = 4, DEATHS = 12 };

static struct harness d, plain;
static char root[64], folder[96];
static const char *const plain_arguments[] = {"--context", "1024", NULL};
static const char *arguments[9] = {"--context",      "1024", "--kv-store", folder,
                                   "--kv-store-min", "64",   NULL};

static void setup(void)
{
    snprintf(root, sizeof(root), "/tmp/hearth-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    snprintf(folder, sizeof(folder), "%s/store", root);
    harness_start(&plain, harness_tiny_model(), plain_arguments);
    harness_start(&d, harness_tiny_model(), arguments);
}

static void teardown(void)
{
    ck_assert_int_eq(harness_stop(&d), 0);
    ck_assert_int_eq(harness_stop(&plain), 0);
    folder_remove(root);
}

/* It goes on at the next daemon. */
static struct hearth *connect_to(const struct harness *daemon)
{
    struct hearth_options o;
    struct hearth *h;
    char err[256];
    hearth_options_init(&o, sizeof(o));
    o.resume_ms = 120000;
    ck_assert_msg(hearth_connect(daemon->socket, &o, &h, err, sizeof(err)) == 0, "%s", err);
    return h;
}

static void submit(struct hearth *h, const uint32_t *tokens, uint32_t n, uint32_t output)
{
    struct hearth_request request;
    hearth_request_init(&request, sizeof(request));
    request.tokens = tokens;
    request.n_tokens = n;
    request.max_tokens = output;
    ck_assert_msg(hearth_submit(h, 0, &request) == 0, "%s", hearth_error(h));
}

/* Reads to the end. Returns the tokens that were read from the store. */
static uint32_t finish(struct hearth *h, uint32_t *ids, uint32_t *n)
{
    const struct hearth_event *event;
    while (hearth_next(h, 0, &event, 600000) > 0) {
        memcpy(ids + *n, event->tokens, event->n_tokens * sizeof(*ids));
        *n += event->n_tokens;
        if (event->kind != HEARTH_DONE)
            continue;
        ck_assert_msg(event->result->error == 0, "%s", event->result->error_text);
        ck_assert_uint_eq(event->result->n_ids, *n); /* none lost, none doubled */
        ck_assert_mem_eq(event->result->ids, ids, *n * sizeof(*ids));
        return event->result->stored_tokens;
    }
    ck_abort_msg("no end: %s", hearth_error(h));
    return 0;
}

static void random_tokens(uint32_t *tokens, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = 3 + random_below(&seed, 300);
}

/* What the daemon without a store answers. */
static void check(struct hearth *reference, const uint32_t *tokens, uint32_t n_tokens,
                  uint32_t output, const uint32_t *ids, uint32_t n)
{
    uint32_t right[TEXT], n_right = 0;
    submit(reference, tokens, n_tokens, output);
    finish(reference, right, &n_right);
    ck_assert_uint_eq(n, n_right);
    ck_assert_mem_eq(ids, right, n * sizeof(*ids));
}

/* The service manager restarts it under clients that stream: each answer goes on, and their common trunk
 * is read, not computed. */
START_TEST(a_restart_loses_no_token_and_keeps_the_trunk_warm)
{
    struct hearth *h[CLIENTS], *reference = connect_to(&plain);
    uint32_t tokens[CLIENTS][TRUNK + OWN], ids[CLIENTS][TEXT], n[CLIENTS] = {0}, stored = 0;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        random_tokens(tokens[i], TRUNK, 5);
        random_tokens(tokens[i] + TRUNK, OWN, 100 + i);
        h[i] = connect_to(&d);
        submit(h[i], tokens[i], TRUNK + OWN, OUTPUT);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) { /* each has begun */
        const struct hearth_event *event;
        while (n[i] == 0 && hearth_next(h[i], 0, &event, 600000) > 0) {
            memcpy(ids[i], event->tokens, event->n_tokens * sizeof(*ids[i]));
            n[i] = event->n_tokens;
        }
        ck_assert_uint_gt(n[i], 0);
    }
    int status;
    ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
    ck_assert_int_eq(waitpid(d.pid, &status, 0), d.pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    harness_restart(&d, harness_tiny_model(), arguments);
    for (uint32_t i = 0; i < CLIENTS; i++)
        stored += finish(h[i], ids[i], &n[i]);
    ck_assert_uint_ge(stored, TRUNK / 32 * 32);
    ck_assert_int_eq(harness_counter(&d, "stored_tokens"), stored);
    ck_assert_int_eq(harness_counter(&d, "store_failed"), 0);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        check(reference, tokens[i], TRUNK + OWN, OUTPUT, ids[i], n[i]);
        hearth_close(h[i]);
    }
    hearth_close(reference);
}
END_TEST

/* Killed while it reads, writes and answers, with so few pages that it always does. */
START_TEST(kills_at_random_change_no_answer)
{
    const char *text = getenv("HEARTH_STORE_DEATHS");
    const uint32_t deaths = text ? (uint32_t)strtoul(text, NULL, 10) : DEATHS;
    uint32_t tokens[TEXTS][TEXT], seed = 9, asked = 0, stored = 0;
    struct hearth *reference = connect_to(&plain);
    struct hearth *h = connect_to(&d);
    for (uint32_t i = 0; i < TEXTS; i++)
        random_tokens(tokens[i], TEXT, 70 + i);
    for (uint32_t death = 0; death < deaths;) {
        uint32_t i = random_below(&seed, TEXTS), n_tokens = 200 + random_below(&seed, 600);
        uint32_t ids[TEXT], n = 0, at = random_below(&seed, TEXT);
        if (random_below(&seed, 3) == 0)
            random_tokens(tokens[i] + at, TEXT - at, seed);
        submit(h, tokens[i], n_tokens, 10);
        if (random_below(&seed, 2)) { /* somewhere in it, or after it */
            usleep(random_below(&seed, 30000));
            harness_kill(&d);
            harness_restart(&d, harness_tiny_model(), arguments);
            death++;
        }
        stored += finish(h, ids, &n);
        check(reference, tokens[i], n_tokens, 10, ids, n);
        asked++;
    }
    submit(h, tokens[0], 200, 10); /* the last one is up when it has answered */
    uint32_t ids[TEXT], n = 0;
    stored += finish(h, ids, &n);
    check(reference, tokens[0], 200, 10, ids, n);
    ck_assert_uint_gt(asked, deaths);
    ck_assert_uint_gt(stored, 0);
    hearth_close(h);
    hearth_close(reference);
}
END_TEST

static void setup_few(void)
{
    arguments[6] = "--kv-bytes";
    arguments[7] = "327680";
    setup();
}

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
