/* The library against a real daemon: event loops, several slots, the newest request wins, cancel.
 */
#include "tests/e2e/harness.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONG = 20000, PATIENCE_MS = 60000 };

static struct harness d;

static void start(void)
{
    static const char *const arguments[] = {"--context", "30000", "--slots", "8",
                                            "--threads", "1",     NULL};
    harness_start(&d, harness_tiny_model(), arguments);
}

static void stop(void)
{
    ck_assert_int_eq(harness_stop(&d), 0);
}

static struct hearth *h;

static void teardown(void)
{
    hearth_close(h);
    h = NULL;
}

static struct hearth_request request(const char *text, uint32_t max_tokens)
{
    struct hearth_request r;
    hearth_request_init(&r, sizeof(r));
    r.text = text;
    r.text_bytes = strlen(text);
    r.max_tokens = max_tokens;
    return r;
}

static void submit(uint32_t slot, const struct hearth_request *r)
{
    ck_assert_msg(hearth_submit(h, slot, r) == 0, "%s", hearth_error(h));
}

static const struct hearth_event *next(uint32_t slot)
{
    const struct hearth_event *e;
    int rc = hearth_next(h, slot, &e, PATIENCE_MS);
    ck_assert_msg(rc == 1, "%d: %s", rc, hearth_error(h));
    return e;
}

/* Reads the slot's request to its end, and returns that. */
static const struct hearth_result *finish(uint32_t slot)
{
    const struct hearth_event *e;
    do
        e = next(slot);
    while (e->kind != HEARTH_DONE);
    return e->result;
}

START_TEST(an_event_loop_gets_every_token)
{
    struct hearth_options o;
    char err[256];
    hearth_options_init(&o, sizeof(o));
    o.flags = HEARTH_POLLABLE;
    ck_assert_msg(hearth_connect(d.socket, &o, &h, err, sizeof(err)) == 0, "%s", err);
    struct hearth_request r = request("Once upon a time", 300);
    submit(0, &r);
    struct pollfd p = {.fd = hearth_fd(h), .events = POLLIN};
    uint32_t n = 0, done = 0;
    while (!done) {
        const struct hearth_event *e;
        int rc;
        while ((rc = hearth_next(h, HEARTH_ANY_SLOT, &e, 0)) == 1) {
            ck_assert_uint_eq(done, 0);
            n += e->n_tokens;
            done = e->kind == HEARTH_DONE;
            if (done)
                ck_assert_uint_eq(e->result->output_tokens, n);
        }
        ck_assert_int_eq(rc, 0);
        if (!done)
            ck_assert_int_eq(poll(&p, 1, PATIENCE_MS), 1);
    }
    ck_assert_uint_eq(n, 300);
}
END_TEST

START_TEST(slots_answer_side_by_side_as_alone)
{
    static const char *const prompts[] = {"Once upon a time", "The big dog", "Lily said",
                                          "In the park"};
    h = harness_connect(&d, 4, NULL);
    uint32_t alone[4][50], n[4] = {0};
    for (uint32_t i = 0; i < 4; i++) {
        struct hearth_request r = request(prompts[i], 50);
        submit(0, &r);
        const struct hearth_result *result = finish(0);
        ck_assert_uint_le(result->n_ids, 50);
        memcpy(alone[i], result->ids, result->n_ids * sizeof(*result->ids));
        n[i] = result->n_ids;
    }
    for (uint32_t i = 0; i < 4; i++) {
        struct hearth_request r = request(prompts[i], 50);
        r.cookie = 1000 + i;
        submit(i, &r);
    }
    for (int left = 4; left;) {
        const struct hearth_event *e = next(HEARTH_ANY_SLOT);
        ck_assert_uint_eq(e->cookie, 1000 + e->slot);
        if (e->kind != HEARTH_DONE)
            continue;
        left--;
        ck_assert_uint_eq(e->result->n_ids, n[e->slot]);
        ck_assert_int_eq(memcmp(e->result->ids, alone[e->slot], n[e->slot] * sizeof(uint32_t)), 0);
    }
}
END_TEST

/* An editor: each keystroke is a longer prompt, and the answers to most are never read. */
START_TEST(the_newest_request_wins)
{
    static const char text[] = "Once upon a time there was a little girl named Lily who loved";
    char prompt[sizeof(text)] = "";
    h = harness_connect(&d, 1, NULL);
    struct hearth_request r = request(text, 20);
    submit(0, &r);
    const struct hearth_result *alone = finish(0);
    uint32_t ids[20], n = alone->n_ids;
    memcpy(ids, alone->ids, n * sizeof(*ids));
    for (int round = 0; round < 20; round++) {
        for (size_t bytes = 20; bytes <= sizeof(text) - 1; bytes++) {
            memcpy(prompt, text, bytes);
            prompt[bytes] = 0;
            r = request(prompt, bytes < sizeof(text) - 1 ? 5000 : 20);
            r.cookie = bytes;
            submit(0, &r);
            const struct hearth_event *e;
            if ((bytes + (size_t)round) % 7 == 0 && hearth_next(h, 0, &e, 1) == 1)
                ck_assert_uint_eq(e->cookie, bytes);
        }
        const struct hearth_event *e;
        do {
            e = next(0);
            ck_assert_uint_eq(e->cookie, sizeof(text) - 1);
        } while (e->kind != HEARTH_DONE);
        ck_assert_uint_eq(e->result->n_ids, n);
        ck_assert_int_eq(memcmp(e->result->ids, ids, n * sizeof(*ids)), 0);
        ck_assert_uint_gt(e->result->cached_tokens, 0);
    }
    ck_assert_int_eq(harness_wait_counter(&d, "slots_active", 0), 0);
}
END_TEST

START_TEST(a_cancelled_request_ends_soon)
{
    h = harness_connect(&d, 2, NULL);
    struct hearth_request r = request("Once upon a time", LONG);
    for (int round = 0; round < 20; round++) {
        submit(1, &r);
        if (round % 2)
            (void)next(1);
        ck_assert_int_eq(hearth_cancel(h, 1), 0);
        const struct hearth_event *e = next(1);
        ck_assert_uint_eq(e->kind, HEARTH_DONE);
        ck_assert_uint_eq(e->result->reason, HEARTH_CANCELLED);
        ck_assert_uint_lt(e->result->output_tokens, LONG);
    }
    ck_assert_int_eq(harness_wait_counter(&d, "slots_active", 0), 0);
}
END_TEST

/* A reader that stops reading pauses its own slot and loses nothing. */
START_TEST(a_slow_reader_loses_nothing)
{
    h = harness_connect(&d, 2, NULL);
    struct hearth_request r = request("Once upon a time", 3000);
    r.logprobs = 5; /* a run of cells for each token: the ring is full soon */
    submit(0, &r);
    /* The other slot goes on meanwhile. */
    struct hearth_request other = request("The big dog", 500);
    submit(1, &other);
    ck_assert_uint_eq(finish(1)->output_tokens, 500);
    usleep(100000);
    uint32_t n = 0;
    for (;;) {
        const struct hearth_event *e = next(0);
        if (e->kind == HEARTH_DONE) {
            ck_assert_uint_eq(e->result->n_ids, n);
            break;
        }
        ck_assert_ptr_nonnull(e->logprobs);
        for (uint32_t i = 0; i < e->n_tokens; i++)
            ck_assert(e->logprobs[i].picked.token == e->tokens[i] && e->logprobs[i].n_top == 5);
        n += e->n_tokens;
    }
    ck_assert_uint_eq(n, 3000);
}
END_TEST

START_TEST(a_slot_that_is_not_read_holds_up_no_other)
{
    h = harness_connect(&d, 2, NULL);
    struct hearth_request r = request("Once upon a time", 20000);
    int64_t stalls = harness_counter(&d, "stalls");
    submit(0, &r);
    ck_assert_int_eq(harness_wait_counter(&d, "stalls", stalls + 1), stalls + 1); /* ring full */
    for (int i = 0; i < 100; i++)
        submit(0, &r);
    r.max_tokens = 5;
    submit(1, &r);
    ck_assert_uint_eq(finish(1)->output_tokens, 5);
    ck_assert_int_eq(hearth_cancel(h, 0), 0);
    ck_assert_uint_eq(finish(0)->reason, HEARTH_CANCELLED);
}
END_TEST

static void *wake_daemon(void *arg)
{
    (void)arg;
    usleep(50000);
    kill(d.pid, SIGCONT);
    return NULL;
}

/* More requests in one turn of the loop than the submit ring holds, of a daemon that takes none for
 * a while. */
START_TEST(an_event_loop_may_submit_more_than_fits)
{
    struct hearth_options o;
    char err[256];
    const struct hearth_event *e;
    hearth_options_init(&o, sizeof(o));
    o.flags = HEARTH_POLLABLE;
    o.slots = 4;
    ck_assert_msg(hearth_connect(d.socket, &o, &h, err, sizeof(err)) == 0, "%s", err);
    struct pollfd p = {.fd = hearth_fd(h), .events = POLLIN};
    struct hearth_request r = request("Once upon a time", 20);
    pthread_t thread;
    submit(3, &r); /* so that something runs: the loop waits for it */
    while (hearth_next(h, HEARTH_ANY_SLOT, &e, 0) > 0)
        ;
    kill(d.pid, SIGSTOP);
    ck_assert_int_eq(pthread_create(&thread, NULL, wake_daemon, NULL), 0);
    for (r.cookie = 0; r.cookie < 600; r.cookie++)
        submit(r.cookie % 4, &r);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    for (int left = 4; left;) {
        ck_assert_int_eq(poll(&p, 1, PATIENCE_MS), 1);
        int rc;
        while ((rc = hearth_next(h, HEARTH_ANY_SLOT, &e, 0)) > 0)
            if (e->kind == HEARTH_DONE) {
                left--;
                ck_assert_uint_ge(e->cookie, 596);
                ck_assert_uint_eq(e->result->output_tokens, 20);
            }
        ck_assert_int_eq(rc, 0);
    }
}
END_TEST

START_TEST(two_handles_of_a_process_are_independent)
{
    h = harness_connect(&d, 1, NULL);
    struct hearth *other = harness_connect(&d, 2, NULL);
    const struct hearth_event *e;
    struct hearth_request r = request("Once upon a time", 40);
    submit(0, &r);
    ck_assert_int_eq(hearth_submit(other, 1, &r), 0);
    struct hearth *const handles[] = {h, other};
    char text[2][1024] = {"", ""};
    int ended[2] = {0, 0};
    for (int i = 0; !ended[0] || !ended[1]; i ^= 1) { /* in turn, as one thread does */
        int rc = ended[i] ? 0 : hearth_next(handles[i], HEARTH_ANY_SLOT, &e, 20);
        ck_assert_int_ge(rc, 0);
        if (!rc)
            continue;
        strcat(text[i], e->text);
        ended[i] = e->kind == HEARTH_DONE;
    }
    ck_assert_str_eq(text[0], text[1]);
    /* One closed in the middle of its answer: the other goes on. */
    submit(0, &r);
    r.max_tokens = 20000;
    ck_assert_int_eq(hearth_submit(other, 0, &r), 0);
    ck_assert_int_eq(hearth_next(other, 0, &e, PATIENCE_MS), 1);
    hearth_close(other);
    ck_assert_uint_eq(finish(0)->output_tokens, 40);
    ck_assert_int_eq(harness_wait_counter(&d, "clients", 1), 1);
}
END_TEST

START_TEST(a_long_prompt_reports_progress)
{
    enum { PROMPT = 25000 };
    h = harness_connect(&d, 1, NULL);
    uint32_t *ids = malloc(PROMPT * sizeof(*ids));
    for (uint32_t i = 0; i < PROMPT; i++)
        ids[i] = 3 + (i * 7 + i / 97) % 200;
    struct hearth_request r;
    hearth_request_init(&r, sizeof(r));
    r.tokens = ids;
    r.n_tokens = PROMPT;
    r.max_tokens = 1;
    submit(0, &r);
    uint32_t seen = 0, last = 0;
    const struct hearth_event *e;
    for (int i = 0; i < 5; i++) {
        e = next(0);
        if (e->kind != HEARTH_PROGRESS)
            break; /* a fast machine: it was done before the first look */
        ck_assert_uint_le(e->done, e->total);
        ck_assert_uint_gt(e->done, last);
        last = e->done;
        seen++;
    }
    free(ids);
    if (e->kind == HEARTH_PROGRESS) {
        ck_assert_uint_gt(seen, 0);
        ck_assert_int_eq(hearth_cancel(h, 0), 0); /* in the middle of a prefill */
        while (next(0)->kind != HEARTH_DONE)
            ;
    }
    ck_assert_int_eq(harness_wait_counter(&d, "slots_active", 0), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_library_e2e");
    TCase *t = tcase_create("library");
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_set_timeout(t, 300);
    tcase_add_test(t, an_event_loop_gets_every_token);
    tcase_add_test(t, slots_answer_side_by_side_as_alone);
    tcase_add_test(t, the_newest_request_wins);
    tcase_add_test(t, a_cancelled_request_ends_soon);
    tcase_add_test(t, a_slow_reader_loses_nothing);
    tcase_add_test(t, a_slot_that_is_not_read_holds_up_no_other);
    tcase_add_test(t, an_event_loop_may_submit_more_than_fits);
    tcase_add_test(t, two_handles_of_a_process_are_independent);
    tcase_add_test(t, a_long_prompt_reports_progress);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
