/* The library's events: what it delivers, what it drops, how it ends. */
#include "tests/run_suite.h"
#include "tests/rig/client_fixture.h"

#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- events ---------------------------------------------------------------------------------- */

START_TEST(tokens_text_and_the_end_are_delivered)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    ck_assert_ptr_null(next(0));
    const uint32_t out[] = {FAKE_A, FAKE_B};
    fake_tokens(&fake, 0, g, 3, out, 2);
    const struct hearth_event *e = next(0);
    ck_assert_ptr_nonnull(e);
    ck_assert_uint_eq(e->kind, HEARTH_TOKENS);
    ck_assert_uint_eq(e->cookie, 99);
    ck_assert_uint_eq(e->position, 3);
    ck_assert_uint_eq(e->n_tokens, 2);
    ck_assert_uint_eq(e->tokens[1], FAKE_B);
    ck_assert_str_eq(e->text, " a b");
    ck_assert_uint_eq(e->text_bytes, 4);
    ck_assert_ptr_null(e->logprobs);
    ck_assert_ptr_null(e->result);
    fake_done(&fake, 0, g, DONE_EOS, 2);
    e = next(0);
    ck_assert_uint_eq(e->kind, HEARTH_DONE);
    const struct hearth_result *r = e->result;
    ck_assert_uint_eq(r->reason, HEARTH_EOS);
    ck_assert_uint_eq(r->prompt_tokens, 3);
    ck_assert_uint_eq(r->cached_tokens, 2);
    ck_assert_uint_eq(r->prefix_break, 1);
    ck_assert_uint_eq(r->output_tokens, 2);
    ck_assert_uint_eq(r->n_ids, 2);
    ck_assert_uint_eq(r->ids[0], FAKE_A);
    ck_assert_uint_eq(r->passes, 7);
    ck_assert_uint_eq(r->prefill_ns, 1000);
    ck_assert_str_eq(r->numerics, "portable-1");
    ck_assert_str_eq(r->model, "fake");
    ck_assert_str_eq(r->receipt,
                     "hearth1:ab000000000000000000000000000000:portable-1:"
                     "12000000000000000000000000000000:34000000000000000000000000000000");
    ck_assert_ptr_null(next(0));
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
}
END_TEST

START_TEST(available_tokens_become_one_event)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_bytes(&fake, 0, g, 3, "hello");
    fake_done(&fake, 0, g, DONE_LENGTH, 5);
    const struct hearth_event *e = next(0);
    ck_assert_str_eq(e->text, "hello");
    ck_assert_uint_eq(e->n_tokens, 5);
    ck_assert_uint_eq(next(0)->kind, HEARTH_DONE);
}
END_TEST

START_TEST(read_events_are_released_to_the_daemon)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    /* Many times the ring's 64 cells: every cell must come back. */
    for (uint32_t round = 0; round < 50; round++) {
        fake_bytes(&fake, 0, g, 3 + round * 10, "0123456789");
        ck_assert_str_eq(next(0)->text, "0123456789");
    }
    fake_done(&fake, 0, g, DONE_LENGTH, 500);
    const struct hearth_event *e = next(0);
    ck_assert_uint_eq(e->result->n_ids, 500);
    for (uint32_t i = 0; i < 500; i++)
        ck_assert_uint_eq(e->result->ids[i], FAKE_BYTE + '0' + i % 10);
}
END_TEST

START_TEST(the_space_after_bos_is_dropped)
{
    connect_with(1, 0);
    const uint32_t bos[] = {FAKE_BOS}, out[] = {FAKE_ONCE, FAKE_UPON};
    uint32_t g = submit_ids(0, bos, 1).generation;
    fake_tokens(&fake, 0, g, 1, out, 2);
    ck_assert_str_eq(next(0)->text, "Once upon");
    g = submit_ids(0, prompt, 2).generation;
    fake_tokens(&fake, 0, g, 2, out + 1, 1);
    ck_assert_str_eq(next(0)->text, " upon");
}
END_TEST

START_TEST(control_tokens_are_not_text_but_marks_of_messages_are)
{
    connect_with(1, 0);
    const uint32_t out[] = {FAKE_CHANNEL, FAKE_ONCE, FAKE_BOS, FAKE_CALL, FAKE_A};
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_tokens(&fake, 0, g, 3, out, 5);
    const struct hearth_event *e = next(0);
    ck_assert_str_eq(e->text, "<|channel|> Once a");
    ck_assert_uint_eq(e->n_tokens, 5);
}
END_TEST

START_TEST(a_character_in_byte_tokens_comes_whole)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_bytes(&fake, 0, g, 3, "\xe2\x82");
    const struct hearth_event *e = next(0);
    ck_assert_uint_eq(e->n_tokens, 2);
    ck_assert_uint_eq(e->text_bytes, 0);
    ck_assert_str_eq(e->text, "");
    fake_bytes(&fake, 0, g, 5, "\xac");
    ck_assert_str_eq(next(0)->text, "\xe2\x82\xac");
}
END_TEST

START_TEST(stop_texts_and_stop_tokens_are_cut_from_the_text_only)
{
    connect_with(1, 0);
    struct hearth_request r = text_request("Once");
    const char *stops[] = {"END"};
    const uint32_t stop_tokens[] = {FAKE_B};
    r.stops = stops;
    r.n_stops = 1;
    r.stop_tokens = stop_tokens;
    r.n_stop_tokens = 1;
    uint32_t g = submit_request(&r).generation;
    fake_bytes(&fake, 0, g, 2, "xE");
    ck_assert_str_eq(next(0)->text, "x");
    fake_bytes(&fake, 0, g, 4, "ND");
    fake_done(&fake, 0, g, DONE_STOP, 4);
    const struct hearth_event *e = next(0);
    ck_assert_uint_eq(e->n_tokens, 2);
    ck_assert_str_eq(e->text, "");
    e = next(0);
    ck_assert_uint_eq(e->result->reason, HEARTH_STOP);
    ck_assert_uint_eq(e->result->n_ids, 4);

    g = submit_request(&r).generation;
    const uint32_t out[] = {FAKE_A, FAKE_B};
    fake_tokens(&fake, 0, g, 2, out, 2);
    ck_assert_str_eq(next(0)->text, " a");

    /* A beginning that came to nothing is text, and comes before the end. */
    g = submit_request(&r).generation;
    fake_bytes(&fake, 0, g, 2, "EN");
    e = next(0);
    ck_assert_uint_eq(e->n_tokens, 2);
    ck_assert_str_eq(e->text, "");
    fake_done(&fake, 0, g, DONE_LENGTH, 2);
    e = next(0);
    ck_assert_uint_eq(e->kind, HEARTH_TOKENS);
    ck_assert_uint_eq(e->n_tokens, 0);
    ck_assert_str_eq(e->text, "EN");
    ck_assert_uint_eq(next(0)->kind, HEARTH_DONE);
}
END_TEST

START_TEST(logprobs_belong_to_their_tokens)
{
    connect_with(1, 0);
    struct hearth_request r = text_request("Once");
    r.logprobs = 2;
    uint32_t g = submit_request(&r).generation;
    for (uint32_t i = 0; i < 40; i++) { /* more than the first allocation holds */
        const struct event_logprob head = {.token = FAKE_A, .logprob = -(float)i, .n_top = i % 3};
        const struct event_top top[] = {{i, -1}, {i + 1, -2}};
        ck_assert_int_eq(event_put_logprob(&fake.events[0], g, 2 + i, &head, top), 0);
    }
    const struct hearth_event *e = next(0);
    ck_assert_uint_eq(e->n_tokens, 40);
    ck_assert_ptr_nonnull(e->logprobs);
    for (uint32_t i = 0; i < 40; i++) {
        const struct hearth_token_logprobs *l = &e->logprobs[i];
        ck_assert(l->picked.token == FAKE_A && l->picked.logprob == -(float)i && l->n_top == i % 3);
        for (uint32_t k = 0; k < l->n_top; k++)
            ck_assert(l->top[k].token == i + k && l->top[k].logprob == -(float)k - 1);
    }
}
END_TEST

START_TEST(an_error_event_has_its_message)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_done(&fake, 0, g, DONE_ERROR, 0);
    const struct hearth_event *e = next(0);
    ck_assert_uint_eq(e->result->reason, HEARTH_ERROR);
    ck_assert_int_eq(e->result->error, -ENOSPC);
    ck_assert_str_eq(e->result->error_text, "no room: ask for less");
}
END_TEST

/* ---- generations ----------------------------------------------------------------------------- */

START_TEST(a_superseded_request_delivers_nothing)
{
    connect_with(1, 0);
    uint32_t first = submit_ids(0, prompt, 3).generation;
    fake_bytes(&fake, 0, first, 3, "old");
    uint32_t second = submit_ids(0, prompt, 2).generation;
    ck_assert_uint_ne(first, second);
    fake_bytes(&fake, 0, first, 6, "older");
    fake_done(&fake, 0, first, DONE_SUPERSEDED, 8);
    ck_assert_ptr_null(next(0));
    fake_bytes(&fake, 0, second, 2, "new");
    ck_assert_str_eq(next(0)->text, "new");
    fake_done(&fake, 0, second, DONE_LENGTH, 3);
    const struct hearth_event *e = next(0);
    ck_assert_uint_eq(e->result->reason, HEARTH_LENGTH);
    ck_assert_uint_eq(e->result->n_ids, 3);
}
END_TEST

START_TEST(a_cancelled_request_delivers_only_its_end)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_bytes(&fake, 0, g, 3, "a");
    ck_assert_str_eq(next(0)->text, "a");
    fake_bytes(&fake, 0, g, 4, "bc");
    ck_assert_int_eq(hearth_cancel(h, 0), 0);
    ck_assert_uint_ne(ring_generation(&segment_up_slot(&fake.segment, 0)->generation), g);
    struct submit_cell c;
    ck_assert_int_eq(fake_take(&fake, &c), 0); /* cancel is the word alone */
    ck_assert_ptr_null(next(0));
    fake_done(&fake, 0, g, DONE_CANCELLED, 3);
    const struct hearth_event *e = next(0);
    ck_assert_uint_eq(e->kind, HEARTH_DONE);
    ck_assert_uint_eq(e->result->reason, HEARTH_CANCELLED);
    ck_assert_uint_eq(e->result->output_tokens, 3);
    ck_assert_uint_eq(e->result->n_ids, 1);
    ck_assert_ptr_null(next(0));
    ck_assert_int_eq(hearth_cancel(h, 0), 0);
}
END_TEST

START_TEST(a_request_cancelled_before_it_was_read_ends_cancelled)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    ck_assert_int_eq(hearth_cancel(h, 0), 0);
    fake_done(&fake, 0, g, DONE_SUPERSEDED, 0);
    ck_assert_uint_eq(next(0)->result->reason, HEARTH_CANCELLED);
}
END_TEST

START_TEST(an_answer_cancelled_before_it_was_read_is_not_complete)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_bytes(&fake, 0, g, 3, "abc");
    fake_done(&fake, 0, g, DONE_LENGTH, 3);
    ck_assert_int_eq(hearth_cancel(h, 0), 0);
    const struct hearth_event *e = next(0);
    ck_assert_uint_eq(e->result->reason, HEARTH_CANCELLED);
    ck_assert_uint_eq(e->result->n_ids, 0);
}
END_TEST

START_TEST(a_request_after_a_cancel_does_not_see_the_cancelled_end)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    ck_assert_int_eq(hearth_cancel(h, 0), 0);
    uint32_t second = submit_ids(0, prompt, 3).generation;
    ck_assert_uint_eq(second, g + 2);
    fake_done(&fake, 0, g, DONE_CANCELLED, 0);
    ck_assert_ptr_null(next(0));
    fake_done(&fake, 0, second, DONE_EOS, 0);
    ck_assert_uint_eq(next(0)->result->reason, HEARTH_EOS);
}
END_TEST

START_TEST(slots_are_apart_and_any_slot_is_fair)
{
    connect_with(3, 0);
    uint32_t g[3];
    for (uint32_t i = 0; i < 3; i++)
        g[i] = submit_ids(i, prompt, 3).generation;
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 3; i++)
            fake_bytes(&fake, i, g[i], 3, (const char *[]){"a", "b", "c"}[i]);
    const char *const texts[] = {"aaa", "bbb", "ccc"};
    int seen[3] = {0};
    for (int i = 0; i < 3; i++) {
        const struct hearth_event *e = next(HEARTH_ANY_SLOT);
        ck_assert_str_eq(e->text, texts[e->slot]);
        seen[e->slot]++;
    }
    ck_assert(seen[0] == 1 && seen[1] == 1 && seen[2] == 1);
    ck_assert_ptr_null(next(HEARTH_ANY_SLOT));
    fake_bytes(&fake, 2, g[2], 6, "z");
    ck_assert_ptr_null(next(0));
    ck_assert_str_eq(next(2)->text, "z");
}
END_TEST

/* ---- endings --------------------------------------------------------------------------------- */

START_TEST(a_dead_daemon_ends_every_request_after_its_published_tokens)
{
    connect_with(2, 0);
    uint32_t g0 = submit_ids(0, prompt, 3).generation;
    uint32_t g1 = submit_ids(1, prompt, 3).generation;
    fake_bytes(&fake, 0, g0, 3, "last words");
    fake_bytes(&fake, 1, g1, 3, "whole");
    fake_done(&fake, 1, g1, DONE_EOS, 5);
    fake_hang_up(&fake);
    const struct hearth_event *e;
    ck_assert_int_eq(hearth_next(h, 0, &e, -1), 1);
    ck_assert_str_eq(e->text, "last words");
    ck_assert_int_eq(hearth_next(h, 0, &e, -1), 1);
    ck_assert_uint_eq(e->kind, HEARTH_DONE);
    ck_assert_uint_eq(e->result->reason, HEARTH_ERROR);
    ck_assert_int_eq(e->result->error, -ECONNRESET);
    ck_assert_ptr_nonnull(strstr(e->result->error_text, fake.path));
    ck_assert_uint_eq(e->result->n_ids, 10);
    /* The other slot's answer was complete. */
    ck_assert_int_eq(hearth_next(h, HEARTH_ANY_SLOT, &e, -1), 1);
    ck_assert_str_eq(e->text, "whole");
    ck_assert_int_eq(hearth_next(h, HEARTH_ANY_SLOT, &e, -1), 1);
    ck_assert_uint_eq(e->result->reason, HEARTH_EOS);
    ck_assert_int_eq(hearth_next(h, HEARTH_ANY_SLOT, &e, -1), -ECONNRESET);
    struct hearth_request r = text_request("Once");
    ck_assert_int_eq(hearth_submit(h, 0, &r), -ECONNRESET);
    ck_assert_int_eq(hearth_cancel(h, 0), 0);
}
END_TEST

START_TEST(an_unfinished_run_of_a_killed_daemon_is_dropped)
{
    connect_with(2, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    fake_bytes(&fake, 0, g, 3, "x");
    (void)event_prep(&fake.events[0], g, 4, EVENT_LOGPROBS, EVENT_MORE, EVENT_BYTES);
    ring_publish(&fake.events[0]); /* and never the rest */
    const struct hearth_event *e;
    ck_assert_str_eq(next(0)->text, "x");
    fake_hang_up(&fake);
    ck_assert_int_eq(hearth_next(h, 0, &e, -1), 1);
    ck_assert_uint_eq(e->result->reason, HEARTH_ERROR);
    ck_assert_uint_eq(e->result->n_ids, 1);
}
END_TEST

START_TEST(a_daemon_that_writes_garbage_is_disconnected)
{
    connect_with(1, 0);
    submit_ids(0, prompt, 3);
    struct ring_cell *cells = fake.events[0].cells;
    atomic_store(&cells[0].seq, 0xdeadbeef);
    const struct hearth_event *e = next(0);
    ck_assert_uint_eq(e->result->reason, HEARTH_ERROR);
    ck_assert_ptr_nonnull(strstr(e->result->error_text, "same version"));
}
END_TEST

START_TEST(a_forked_child_is_refused_and_may_close)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation;
    pid_t child = fork();
    if (child == 0) {
        const struct hearth_event *e;
        struct hearth_request r = text_request("Once");
        struct hearth_info info = {.size = sizeof(info)};
        int ok = hearth_next(h, 0, &e, 0) == -EPERM && hearth_submit(h, 0, &r) == -EPERM &&
                 hearth_cancel(h, 0) == -EPERM && hearth_info(h, &info) == -EPERM &&
                 hearth_tokenize(h, "a", 1, 0, NULL, 0) == -EPERM && hearth_fd(h) == -EPERM &&
                 hearth_status(h, NULL, 0) == -EPERM && strstr(hearth_error(h), "fork");
        hearth_close(h);
        _exit(ok ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    fake_bytes(&fake, 0, g, 3, "x");
    ck_assert_str_eq(next(0)->text, "x");
}
END_TEST

/* The daemon learns that the parent left while a child still has its descriptors; of a child that
 * closes the handle it learns nothing. */
START_TEST(a_handle_that_is_closed_hangs_up_whoever_was_forked)
{
    int lives[2];
    char byte;
    connect_with(1, 0);
    struct pollfd p = {.fd = fake.socket_fd, .events = POLLRDHUP};
    ck_assert_int_eq(pipe(lives), 0);
    pid_t closes = fork();
    if (closes == 0) {
        hearth_close(h);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(closes, NULL, 0), closes);
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    pid_t child = fork();
    if (child == 0) {
        close(lives[1]);
        _exit(read(lives[0], &byte, 1) != 0);
    }
    hearth_close(h);
    h = NULL;
    ck_assert_int_eq(poll(&p, 1, 0), 1);
    close(lives[0]);
    close(lives[1]);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

/* A daemon whose answer does not end. */
START_TEST(an_answer_past_the_context_ends)
{
    connect_with(1, 0);
    uint32_t g = submit_ids(0, prompt, 3).generation, n = 0;
    const struct hearth_event *e = NULL;
    for (uint32_t at = 3; !(e && e->result); at++) {
        ck_assert_uint_lt(at, 2 * FAKE_CONTEXT);
        fake_bytes(&fake, 0, g, at, "x");
        while ((e = next(0)) && !e->result)
            n += e->n_tokens;
    }
    ck_assert_uint_eq(n, FAKE_CONTEXT - 3);
    ck_assert_uint_eq(e->result->reason, HEARTH_ERROR);
    ck_assert_ptr_nonnull(strstr(e->result->error_text, "of the same version"));
}
END_TEST

static void add_tests(TCase *t)
{
    tcase_add_test(t, tokens_text_and_the_end_are_delivered);
    tcase_add_test(t, available_tokens_become_one_event);
    tcase_add_test(t, read_events_are_released_to_the_daemon);
    tcase_add_test(t, the_space_after_bos_is_dropped);
    tcase_add_test(t, control_tokens_are_not_text_but_marks_of_messages_are);
    tcase_add_test(t, a_character_in_byte_tokens_comes_whole);
    tcase_add_test(t, stop_texts_and_stop_tokens_are_cut_from_the_text_only);
    tcase_add_test(t, logprobs_belong_to_their_tokens);
    tcase_add_test(t, an_error_event_has_its_message);
    tcase_add_test(t, a_superseded_request_delivers_nothing);
    tcase_add_test(t, a_cancelled_request_delivers_only_its_end);
    tcase_add_test(t, a_request_cancelled_before_it_was_read_ends_cancelled);
    tcase_add_test(t, an_answer_cancelled_before_it_was_read_is_not_complete);
    tcase_add_test(t, a_request_after_a_cancel_does_not_see_the_cancelled_end);
    tcase_add_test(t, slots_are_apart_and_any_slot_is_fair);
    tcase_add_test(t, a_dead_daemon_ends_every_request_after_its_published_tokens);
    tcase_add_test(t, an_unfinished_run_of_a_killed_daemon_is_dropped);
    tcase_add_test(t, a_daemon_that_writes_garbage_is_disconnected);
    tcase_add_test(t, an_answer_past_the_context_ends);
    tcase_add_test(t, a_forked_child_is_refused_and_may_close);
    tcase_add_test(t, a_handle_that_is_closed_hangs_up_whoever_was_forked);
}

int main(void)
{
    Suite *suite = suite_create("client_events");
    TCase *t = tcase_create("library");
    tcase_add_checked_fixture(t, fixture_setup, fixture_teardown);
    tcase_set_timeout(t, 120);
    add_tests(t);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
