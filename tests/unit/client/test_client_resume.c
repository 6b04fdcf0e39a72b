/* The library goes on at the next daemon: nothing doubled, nothing missing. */
#include "tests/run_suite.h"
#include "tests/rig/client_fixture.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

static char text[4096];
static uint32_t ids[256], n_ids;
static struct hearth_result result;
static char error_text[256];

static void setup(void)
{
    fixture_setup();
    resume_ms = PATIENCE_MS;
    text[0] = 0;
    n_ids = 0;
}

/* The next event of the slot, added to what was heard; returns its kind, 0: none in time. */
static uint32_t hear(uint32_t slot, int timeout_ms)
{
    const struct hearth_event *e;
    int rc = hearth_next(h, slot, &e, timeout_ms);
    ck_assert_msg(rc >= 0, "%d: %s", rc, hearth_error(h));
    if (!rc)
        return 0;
    if (e->kind == HEARTH_PROGRESS)
        return hear(slot, timeout_ms);
    ck_assert_uint_eq(e->position, 3 + n_ids);
    if (e->n_tokens)
        memcpy(ids + n_ids, e->tokens, e->n_tokens * sizeof(*ids));
    n_ids += e->n_tokens;
    strcat(text, e->text);
    if (e->result) {
        result = *e->result;
        strcpy(error_text, e->result->error_text);
    }
    return e->kind;
}

static void hear_end(uint32_t slot)
{
    while (hear(slot, -1) != HEARTH_DONE)
        ;
    ck_assert_uint_eq(result.n_ids, n_ids);
    ck_assert_int_eq(memcmp(result.ids, ids, n_ids * sizeof(*ids)), 0);
}

static struct hearth_info look(void)
{
    struct hearth_info info = {.size = sizeof(info)};
    ck_assert_int_eq(hearth_info(h, &info), 0);
    return info;
}

/* The client, on its way, finds the daemon that was started and had not been found `resumes` times. */
static void find_daemon(uint32_t resumes)
{
    while (look().resumes == resumes)
        hear(0, 20);
    fake_join(&fake);
    ck_assert_uint_eq(look().is_away, 0);
}

/* The daemon dies and another one takes its place. */
static void replace_daemon(void)
{
    uint32_t resumes = look().resumes;
    fake_die(&fake);
    fake_start(&fake);
    find_daemon(resumes);
}

/* The request that came again: the prompt of the fixture and this much answer, which is `said`. */
static uint32_t take_again(uint32_t slot, const char *said)
{
    struct submit_cell c;
    uint32_t n = (uint32_t)strlen(said);
    const uint32_t *arena = segment_arena(&fake.segment, slot);
    ck_assert_int_eq(fake_take(&fake, &c), 1);
    ck_assert_uint_eq(c.opcode, SUBMIT_REQUEST);
    ck_assert_uint_eq(c.slot, slot);
    ck_assert_uint_eq(c.keep, 0);
    ck_assert_uint_eq(c.prompt_length, 3);
    ck_assert_uint_eq(c.length, 3 + n);
    ck_assert_uint_eq(c.cookie, 99);
    ck_assert_uint_eq(c.max_tokens, 256);
    ck_assert_int_eq(memcmp(arena, prompt, sizeof(prompt)), 0);
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(arena[3 + i], FAKE_BYTE + (unsigned char)said[i]);
    ck_assert_uint_eq(ring_generation(&segment_up_slot(&fake.segment, slot)->generation),
                      c.generation);
    struct params p;
    _Alignas(8) uint8_t block[4096];
    memcpy(block, segment_params(&fake.segment, slot), c.params_bytes);
    ck_assert_msg(params_decode(block, c.params_bytes, FAKE_VOCAB, &p, err, sizeof(err)) == 0, "%s",
                  err);
    return c.generation;
}

START_TEST(a_daemon_that_dies_between_two_tokens_is_replaced)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_bytes(&fake, 0, g, 3, "on");
    ck_assert_uint_eq(hear(0, -1), HEARTH_TOKENS);
    fake_bytes(&fake, 0, g, 5, "ce"); /* not read before it dies */
    replace_daemon();
    g = take_again(0, "once");
    fake_bytes(&fake, 0, g, 7, " more");
    fake_done(&fake, 0, g, DONE_EOS, 9);
    hear_end(0);
    ck_assert_str_eq(text, "once more");
    ck_assert_uint_eq(result.reason, HEARTH_EOS);
    ck_assert_uint_eq(result.prompt_tokens, 3);
    ck_assert_uint_eq(result.output_tokens, 9);
    ck_assert_ptr_nonnull(strstr(result.receipt, "hearth1:ab"));
}
END_TEST

START_TEST(what_was_published_and_not_read_counts_once)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    char many[41];
    memset(many, 'x', 40);
    many[40] = 0;
    fake_bytes(&fake, 0, g, 3, many); /* all of it waits in the ring */
    fake_die(&fake);
    fake_start(&fake);
    ck_assert_uint_eq(hear(0, -1), HEARTH_TOKENS);
    ck_assert_uint_eq(n_ids, 40);
    find_daemon(0);
    ck_assert_uint_eq(n_ids, 40);
    g = take_again(0, many);
    fake_bytes(&fake, 0, g, 43, "y");
    fake_done(&fake, 0, g, DONE_LENGTH, 41);
    hear_end(0);
    ck_assert_uint_eq(n_ids, 41);
}
END_TEST

START_TEST(before_the_first_token_the_prompt_is_submitted_again)
{
    connect_with(1, 0);
    submit_ids(0, prompt, 3);
    replace_daemon();
    uint32_t g = take_again(0, "");
    fake_bytes(&fake, 0, g, 3, "x");
    fake_done(&fake, 0, g, DONE_EOS, 1);
    hear_end(0);
    ck_assert_str_eq(text, "x");
}
END_TEST

START_TEST(an_unfinished_done_run_does_not_end_the_answer)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_bytes(&fake, 0, g, 3, "all");
    (void)event_prep(&fake.events[0], g, 6, EVENT_DONE, EVENT_MORE, EVENT_BYTES);
    ring_publish(&fake.events[0]); /* and never the rest */
    replace_daemon();
    g = take_again(0, "all");
    fake_done(&fake, 0, g, DONE_LENGTH, 3);
    hear_end(0);
    ck_assert_str_eq(text, "all");
    ck_assert_uint_eq(result.reason, HEARTH_LENGTH);
}
END_TEST

START_TEST(a_published_end_is_delivered_without_a_daemon)
{
    struct submit_cell c;
    connect_with(2, 0);
    uint32_t g0 = submit_ids(0, prompt, 3).generation, g1 = submit_ids(1, prompt, 3).generation;
    fake_bytes(&fake, 1, g1, 3, "done");
    fake_done(&fake, 1, g1, DONE_EOS, 4);
    fake_bytes(&fake, 0, g0, 3, "a");
    replace_daemon();
    g0 = take_again(0, "a");
    ck_assert_int_eq(fake_take(&fake, &c), 0); /* the other one is over */
    fake_done(&fake, 0, g0, DONE_EOS, 1);
    hear_end(0);
    text[0] = 0;
    n_ids = 0;
    hear_end(1); /* out of what was saved from the old ring */
    ck_assert_str_eq(text, "done");
}
END_TEST

START_TEST(two_daemons_may_die_in_a_row)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_bytes(&fake, 0, g, 3, "a");
    replace_daemon();
    g = take_again(0, "a");
    fake_bytes(&fake, 0, g, 4, "b");
    replace_daemon();
    g = take_again(0, "ab");
    replace_daemon(); /* without a token in between */
    g = take_again(0, "ab");
    fake_bytes(&fake, 0, g, 5, "c");
    fake_done(&fake, 0, g, DONE_EOS, 3);
    hear_end(0);
    ck_assert_str_eq(text, "abc");
}
END_TEST

/* Part of a character, and what may be a stop text, are held back across the death. */
START_TEST(text_that_is_held_back_stays_held_back)
{
    static const char *const stops[] = {"END"};
    connect_with(1, 0);
    struct hearth_request r;
    hearth_request_init(&r, sizeof(r));
    r.tokens = prompt;
    r.n_tokens = 3;
    r.stops = stops;
    r.n_stops = 1;
    r.cookie = 99;
    uint32_t g = submit_request(&r).generation;
    fake_bytes(&fake, 0, g, 3, "a\xc3");
    replace_daemon();
    g = take_again(0, "a\xc3");
    ck_assert_str_eq(text, "a");
    fake_bytes(&fake, 0, g, 5, "\xa4 E");
    replace_daemon();
    g = take_again(0, "a\xc3\xa4 E");
    ck_assert_str_eq(text, "a\xc3\xa4 ");
    fake_bytes(&fake, 0, g, 8, "ND");
    fake_done(&fake, 0, g, DONE_STOP, 7);
    hear_end(0);
    ck_assert_str_eq(text, "a\xc3\xa4 ");
    ck_assert_uint_eq(n_ids, 7);
}
END_TEST

START_TEST(a_stopped_daemon_is_waited_for)
{
    connect_with(2, 0);
    uint32_t g0 = submit_ids(0, prompt, 3).generation, g1 = submit_ids(1, prompt, 3).generation;
    const struct event_done d = {
        .reason = DONE_ERROR, .error = -ESHUTDOWN, .text = "stopping", .output = 1};
    fake_bytes(&fake, 0, g0, 3, "a");
    ck_assert_int_eq(event_put_done(&fake.events[0], g0, 4, &d), 0);
    fake_bytes(&fake, 1, g1, 3, "b");
    ck_assert_int_eq(event_put_done(&fake.events[1], g1, 4, &d), 0);
    replace_daemon();
    g0 = take_again(0, "a");
    g1 = take_again(1, "b");
    fake_done(&fake, 0, g0, DONE_EOS, 1);
    fake_done(&fake, 1, g1, DONE_EOS, 1);
    hear_end(0);
    ck_assert_str_eq(text, "a");
    text[0] = 0;
    n_ids = 0;
    hear_end(1);
    ck_assert_str_eq(text, "b");
    ck_assert_uint_eq(result.reason, HEARTH_EOS);
}
END_TEST

/* ---- where it does not go on ----------------------------------------------------------------- */

static void end_with_line(const char *what)
{
    hear_end(0);
    ck_assert_uint_eq(result.reason, HEARTH_ERROR);
    ck_assert_int_eq(result.error, -ECONNRESET);
    ck_assert_msg(strstr(error_text, what) != NULL, "%s", error_text);
    ck_assert_str_eq(text, "a");
}

START_TEST(another_model_ends_the_answer_and_is_named)
{
    connect_with(1, 0);
    fake_bytes(&fake, 0, submit_ids(0, prompt, 3).generation, 3, "a");
    fake.fingerprint = 0xcc;
    fake_die(&fake);
    fake_start(&fake);
    end_with_line("another model (fingerprint cccd");
    fake_join(&fake);
    const struct hearth_event *e;
    ck_assert_int_eq(hearth_next(h, 0, &e, -1), -ECONNRESET);
}
END_TEST

START_TEST(other_numerics_end_the_answer_and_are_named)
{
    connect_with(1, 0);
    fake_bytes(&fake, 0, submit_ids(0, prompt, 3).generation, 3, "a");
    fake.numerics = "other-7";
    fake_die(&fake);
    fake_start(&fake);
    end_with_line("other numerics (other-7, was portable-1)");
    fake_join(&fake);
}
END_TEST

START_TEST(a_context_that_moves_the_end_is_named)
{
    connect_with(1, 0);
    struct hearth_request r;
    hearth_request_init(&r, sizeof(r));
    r.tokens = prompt;
    r.n_tokens = 3;
    r.max_tokens = FAKE_CONTEXT;
    fake_bytes(&fake, 0, submit_request(&r).generation, 3, "a");
    fake.limits.context *= 2;
    fake_die(&fake);
    fake_start(&fake);
    end_with_line("--context");
    fake_join(&fake);
}
END_TEST

/* The next daemon has less room than an answer took that had come before. It is delivered, and one
 * that was not at its end ends: the handle goes on. */
START_TEST(an_answer_that_has_come_needs_no_room_at_the_next_daemon)
{
    connect_with(3, 0);
    uint32_t g0 = submit_ids(0, prompt, 3).generation, g1 = submit_ids(1, prompt, 3).generation;
    submit_ids(2, prompt, 3);
    fake_bytes(&fake, 0, g0, 3, "it is all here");
    fake_done(&fake, 0, g0, DONE_EOS, 14);
    fake_bytes(&fake, 1, g1, 3, "and half of it");
    fake.limits.context = 8;
    uint32_t resumes = look().resumes;
    fake_die(&fake);
    fake_start(&fake);
    const struct hearth_event *e;
    while (look().resumes == resumes)
        (void)hearth_next(h, 2, &e, 20);
    fake_join(&fake);
    hear_end(0);
    ck_assert_str_eq(text, "it is all here");
    ck_assert_uint_eq(result.reason, HEARTH_EOS);
    text[0] = 0;
    n_ids = 0;
    hear_end(1);
    ck_assert_str_eq(text, "and half of it");
    ck_assert_uint_eq(result.reason, HEARTH_ERROR);
    ck_assert_msg(strstr(error_text, "--context") != NULL, "%s", error_text);
    struct hearth_request r = text_request("Once");
    ck_assert_int_eq(hearth_submit(h, 0, &r), 0);
}
END_TEST

START_TEST(a_request_that_is_not_deterministic_ends)
{
    struct submit_cell c;
    connect_with(1, 0);
    struct hearth_request r;
    hearth_request_init(&r, sizeof(r));
    r.tokens = prompt;
    r.n_tokens = 3;
    r.deterministic = 0;
    fake_bytes(&fake, 0, submit_request(&r).generation, 3, "a");
    fake_die(&fake);
    end_with_line("not deterministic");
    /* The handle goes on. */
    r.deterministic = 1;
    r.cookie = 99;
    r.max_tokens = 256;
    ck_assert_int_eq(hearth_submit(h, 0, &r), 0);
    text[0] = 0;
    n_ids = 0;
    replace_daemon();
    fake_bytes(&fake, 0, take_again(0, ""), 3, "b");
    ck_assert_int_eq(fake_take(&fake, &c), 0);
    ck_assert_uint_eq(hear(0, -1), HEARTH_TOKENS);
    ck_assert_str_eq(text, "b");
}
END_TEST

START_TEST(without_a_new_daemon_the_request_ends_in_time)
{
    resume_ms = 150;
    connect_with(1, 0);
    fake_bytes(&fake, 0, submit_ids(0, prompt, 3).generation, 3, "a");
    fake_die(&fake);
    close(fake.listen_fd);
    fake.listen_fd = -1;
    end_with_line("did not come back within 150 ms");
}
END_TEST

/* In a folder that all may write to, somebody else takes the place of a daemon that is gone. */
START_TEST(somebody_else_is_told_nothing)
{
    char byte;
    int n = 0, fd;
    if (geteuid() != 0) /* only root can play somebody else */
        return;
    resume_ms = 300;
    connect_with(1, 0);
    fake_bytes(&fake, 0, submit_ids(0, prompt, 3).generation, 3, "a");
    fake_die(&fake);
    ck_assert_int_eq((int)syscall(SYS_setresuid, -1, 65534, -1), 0); /* of this thread */
    ck_assert_int_eq(listen(fake.listen_fd, 16), 0);
    ck_assert_int_eq((int)syscall(SYS_setresuid, -1, 0, -1), 0);
    end_with_line("did not come back within 300 ms");
    ck_assert_int_eq(fcntl(fake.listen_fd, F_SETFL, O_NONBLOCK), 0);
    for (; (fd = accept(fake.listen_fd, NULL, NULL)) >= 0; close(fd), n++)
        ck_assert_int_eq((int)recv(fd, &byte, 1, 0), 0);
    ck_assert_int_gt(n, 0);
}
END_TEST

/* As a request does whose prompt the daemon dies of: the time runs from the first loss. */
START_TEST(a_daemon_that_keeps_dying_without_a_token_is_given_up)
{
    resume_ms = 2000;
    connect_with(1, 0);
    submit_ids(0, prompt, 3);
    for (int i = 0; i < 2; i++) {
        replace_daemon();
        usleep(1100000);
    }
    fake_die(&fake);
    ck_assert_uint_eq(hear(0, 500), HEARTH_DONE);
    ck_assert_ptr_nonnull(strstr(error_text, "did not come back within 2000 ms"));
}
END_TEST

/* The daemon goes away, its socket too; it is there again when the client looks for it, long after it
 * would have given up. */
static void come_back_unseen(void)
{
    char aside[sizeof(fake.path) + 1];
    snprintf(aside, sizeof(aside), "%s_", fake.path);
    ck_assert_int_eq(rename(fake.path, aside), 0);
    fake_die(&fake);
    while (!look().is_away)
        hear(0, 0);
    ck_assert_int_eq(rename(aside, fake.path), 0);
}

/* As one does that works on an event for longer than it would have waited. */
START_TEST(a_daemon_that_is_back_is_found_however_late_one_looks)
{
    resume_ms = 150;
    connect_with(1, 0);
    fake_bytes(&fake, 0, submit_ids(0, prompt, 3).generation, 3, "a");
    come_back_unseen();
    fake_start(&fake);
    usleep(1200000);
    find_daemon(0);
    uint32_t g = take_again(0, "a");
    fake_bytes(&fake, 0, g, 4, "b");
    fake_done(&fake, 0, g, DONE_EOS, 2);
    hear_end(0);
    ck_assert_str_eq(text, "ab");
    ck_assert_str_eq(error_text, "");
}
END_TEST

/* Nor is one that does not answer waited for again and again. */
START_TEST(a_daemon_that_does_not_answer_ends_a_late_look)
{
    resume_ms = 150;
    connect_with(1, 0);
    submit_ids(0, prompt, 3);
    come_back_unseen();
    usleep(1200000);
    ck_assert_uint_eq(hear(0, 0), 0);
    usleep(1200000);
    ck_assert_uint_eq(hear(0, 0), HEARTH_DONE);
    ck_assert_ptr_nonnull(strstr(error_text, "did not come back within 150 ms"));
}
END_TEST

/* ---- while it is away ------------------------------------------------------------------------ */

START_TEST(requests_and_cancels_need_no_daemon)
{
    struct submit_cell c;
    connect_with(2, 0);
    submit_ids(1, prompt, 3);
    fake_bytes(&fake, 0, submit_ids(0, prompt, 3).generation, 3, "old");
    fake_die(&fake);
    ck_assert_uint_eq(hear(0, -1), HEARTH_TOKENS);
    while (!look().is_away)
        ck_assert_uint_eq(hear(0, 20), 0);
    ck_assert_int_eq(hearth_cancel(h, 1), 0);
    n_ids = 0;
    ck_assert_uint_eq(hear(1, -1), HEARTH_DONE);
    ck_assert_uint_eq(result.reason, HEARTH_CANCELLED);
    struct hearth_request r;
    hearth_request_init(&r, sizeof(r));
    r.tokens = prompt;
    r.n_tokens = 3;
    r.cookie = 99;
    for (int i = 0; i < 50; i++) /* more than the ring of the dead one holds */
        ck_assert_int_eq(hearth_submit(h, 0, &r), 0);
    text[0] = 0;
    replace_daemon();
    fake_bytes(&fake, 0, take_again(0, ""), 3, "new");
    ck_assert_int_eq(fake_take(&fake, &c), 0);
    ck_assert_uint_eq(hear(0, -1), HEARTH_TOKENS);
    ck_assert_str_eq(text, "new");
}
END_TEST

START_TEST(an_event_loop_keeps_its_descriptor)
{
    connect_with(1, HEARTH_POLLABLE);
    struct pollfd p = {.fd = hearth_fd(h), .events = POLLIN};
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_bytes(&fake, 0, g, 3, "a");
    while (hear(HEARTH_ANY_SLOT, 0))
        ;
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    fake_die(&fake);
    int rested = 0;
    for (int woken = 0; woken < 4 || !rested; woken++) { /* it ticks, and rests in between */
        ck_assert_int_eq(poll(&p, 1, PATIENCE_MS), 1);
        ck_assert_uint_eq(hear(HEARTH_ANY_SLOT, 0), 0);
        rested |= poll(&p, 1, 0) == 0;
        ck_assert_int_lt(woken, 100);
    }
    fake_start(&fake);
    do {
        ck_assert_int_eq(poll(&p, 1, PATIENCE_MS), 1);
        ck_assert_uint_eq(hear(HEARTH_ANY_SLOT, 0), 0);
    } while (!look().resumes);
    fake_join(&fake);
    ck_assert_int_eq(hearth_fd(h), p.fd);
    g = take_again(0, "a");
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    fake_bytes(&fake, 0, g, 4, "b");
    fake_done(&fake, 0, g, DONE_EOS, 2);
    ck_assert_int_eq(fake_wake(&fake), BELL_NOTIFY);
    ck_assert_int_eq(poll(&p, 1, PATIENCE_MS), 1);
    hear_end(0);
    ck_assert_str_eq(text, "ab");
}
END_TEST

START_TEST(an_event_loop_is_woken_when_the_wait_ends)
{
    resume_ms = 150;
    connect_with(1, HEARTH_POLLABLE);
    const struct hearth_event *e;
    struct pollfd p = {.fd = hearth_fd(h), .events = POLLIN};
    ck_assert_uint_eq(hear(0, 0), 0);
    fake_die(&fake);
    close(fake.listen_fd);
    fake.listen_fd = -1;
    int rc;
    do
        ck_assert_int_eq(poll(&p, 1, PATIENCE_MS), 1);
    while ((rc = hearth_next(h, HEARTH_ANY_SLOT, &e, 0)) == 0);
    ck_assert_int_eq(rc, -ECONNRESET);
    ck_assert_int_eq(poll(&p, 1, 0), 1); /* and for ever */
}
END_TEST

static void on_alarm(int signal)
{
    (void)signal;
}

START_TEST(a_signal_breaks_off_the_wait)
{
    const struct sigaction a = {.sa_handler = on_alarm};
    const struct itimerval in = {.it_value.tv_usec = 400000, .it_interval.tv_usec = 100000};
    const struct hearth_event *e;
    connect_with(1, 0);
    submit_ids(0, prompt, 3);
    fake_die(&fake);
    sigaction(SIGALRM, &a, NULL);
    setitimer(ITIMER_REAL, &in, NULL);
    ck_assert_int_eq(hearth_next(h, 0, &e, -1), -EINTR);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_resume");
    TCase *t = tcase_create("resume");
    tcase_add_checked_fixture(t, setup, fixture_teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_daemon_that_dies_between_two_tokens_is_replaced);
    tcase_add_test(t, what_was_published_and_not_read_counts_once);
    tcase_add_test(t, before_the_first_token_the_prompt_is_submitted_again);
    tcase_add_test(t, an_unfinished_done_run_does_not_end_the_answer);
    tcase_add_test(t, a_published_end_is_delivered_without_a_daemon);
    tcase_add_test(t, two_daemons_may_die_in_a_row);
    tcase_add_test(t, text_that_is_held_back_stays_held_back);
    tcase_add_test(t, a_stopped_daemon_is_waited_for);
    tcase_add_test(t, another_model_ends_the_answer_and_is_named);
    tcase_add_test(t, other_numerics_end_the_answer_and_are_named);
    tcase_add_test(t, a_context_that_moves_the_end_is_named);
    tcase_add_test(t, an_answer_that_has_come_needs_no_room_at_the_next_daemon);
    tcase_add_test(t, a_request_that_is_not_deterministic_ends);
    tcase_add_test(t, without_a_new_daemon_the_request_ends_in_time);
    tcase_add_test(t, a_daemon_that_keeps_dying_without_a_token_is_given_up);
    tcase_add_test(t, a_daemon_that_is_back_is_found_however_late_one_looks);
    tcase_add_test(t, a_daemon_that_does_not_answer_ends_a_late_look);
    tcase_add_test(t, requests_and_cancels_need_no_daemon);
    tcase_add_test(t, an_event_loop_keeps_its_descriptor);
    tcase_add_test(t, an_event_loop_is_woken_when_the_wait_ends);
    tcase_add_test(t, a_signal_breaks_off_the_wait);
    tcase_add_test(t, somebody_else_is_told_nothing);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
