/*
 * The engine stepped by hand: every way an answer ends, answers that go on after an end that was not
 * theirs, and the daemon's own end.
 */
#include "daemon/engine/verify.h"
#include "ipc/params.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"
#include "tests/rig/tiny_vocab.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static struct rig rig;
static struct rig_client a, b;
static uint32_t prompt[RIG_TOKENS], other[RIG_TOKENS];

static void setup(void)
{
    rig_open(&rig, NULL);
    rig_attach(&rig, &a, 2, 1000, "");
    rig_attach(&rig, &b, 1, 1000, "");
    rig_tokens(prompt, RIG_TOKENS, 1);
    rig_tokens(other, RIG_TOKENS, 2);
}

static void teardown(void)
{
    rig_detach(&rig, &a);
    rig_detach(&rig, &b);
    ck_assert_uint_eq(prefix_spare(&rig.engine->slots.kv.prefix), rig.engine->slots.kv.pool.total);
    ck_assert_uint_eq(rig.n_closed, 0);
    rig_close(&rig);
}

/* ---- ends ------------------------------------------------------------------------------------ */

START_TEST(eos_is_a_reason_and_not_a_token)
{
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 50};

    for (uint32_t at = 10; at < 14; at++) {
        rig.fake.end_at = at;
        const struct rig_answer *answer = rig_ask(&rig, &a, 0, &request);
        ck_assert(rig_same(&rig, &request, answer));
        ck_assert_int_eq(answer->reason, DONE_EOS);
        ck_assert_uint_eq(answer->n, at - 10);
        ck_assert_uint_eq(answer->done.output, at - 10);
    }
}
END_TEST

START_TEST(a_stop_token_ends_the_answer_and_belongs_to_it)
{
    struct params p;
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 100, .params = &p};
    uint32_t stop = FAKE_BYTES + 'c';

    params_default(&p);
    p.n_stop_tokens = 1;
    p.stop_tokens = &stop;
    const struct rig_answer *answer = rig_ask(&rig, &a, 0, &request);
    ck_assert(rig_same(&rig, &request, answer));
    ck_assert_int_eq(answer->reason, DONE_STOP);
    ck_assert_uint_eq(answer->tokens[answer->n - 1], stop);
}
END_TEST

/* Two to four bytes are two to four tokens here. */
START_TEST(a_stop_text_is_found_across_tokens)
{
    static const char *const texts[] = {"ab", "fed", "hgaa", "eb", "cag"};
    struct params p;
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 500, .params = &p};
    uint32_t stopped = 0;

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        uint32_t lengths[2] = {(uint32_t)strlen(texts[i]), 3};
        uint8_t bytes[16];
        params_default(&p);
        memcpy(bytes, texts[i], lengths[0]);
        memcpy(bytes + lengths[0], "zzz", 3);
        p.n_stop_texts = 2;
        p.stop_text_lengths = lengths;
        p.stop_texts = bytes;
        p.stop_text_bytes = lengths[0] + 3;
        const struct rig_answer *answer = rig_ask(&rig, &a, 0, &request);
        ck_assert(rig_same(&rig, &request, answer));
        stopped += answer->reason == DONE_STOP;
    }
    ck_assert_uint_ge(stopped, 3);
}
END_TEST

START_TEST(a_stop_text_in_the_prompt_stops_nothing)
{
    struct params p;
    struct rig_request request = {.tokens = prompt, .n = 10, .max_tokens = 1, .params = &p};
    uint32_t length = 2;
    uint8_t bytes[2];

    params_default(&p);
    /* the prompt's last byte and the answer's first */
    bytes[0] = (uint8_t)(prompt[9] - FAKE_BYTES);
    bytes[1] = (uint8_t)(fake_next(&rig.fake, prompt, 10, 0) - FAKE_BYTES);
    p.n_stop_texts = 1;
    p.stop_text_lengths = &length;
    p.stop_texts = bytes;
    p.stop_text_bytes = 2;
    const struct rig_answer *answer = rig_ask(&rig, &a, 0, &request);
    ck_assert(rig_same(&rig, &request, answer));
    ck_assert_int_eq(answer->reason, DONE_LENGTH);
}
END_TEST

START_TEST(the_context_ends_an_answer)
{
    struct rig_request request = {.tokens = prompt, .n = 500, .max_tokens = 1000};
    const struct rig_answer *answer = rig_ask(&rig, &a, 0, &request);

    ck_assert(rig_same(&rig, &request, answer));
    ck_assert_int_eq(answer->reason, DONE_LENGTH);
    ck_assert_uint_eq(answer->n, 12);
}
END_TEST

START_TEST(a_prompt_that_fills_the_context_gets_no_token)
{
    struct rig_request request = {.tokens = prompt, .n = 512, .max_tokens = 10};
    const struct rig_answer *answer = rig_ask(&rig, &a, 0, &request);

    ck_assert(rig_same(&rig, &request, answer));
    ck_assert_uint_eq(answer->n, 0);
    ck_assert_int_eq(answer->reason, DONE_LENGTH);
    request.n = 511;
    ck_assert(rig_same(&rig, &request, rig_ask(&rig, &a, 0, &request)));
}
END_TEST

START_TEST(a_poisoned_row_ends_its_answer_and_no_other)
{
    struct rig_request bad = {.tokens = prompt, .n = 100, .max_tokens = 10};
    struct rig_request good = {.tokens = other, .n = 100, .max_tokens = 10};

    prompt[70] = 1; /* not a byte: no other text has it */
    rig.fake.poison = 1;
    rig_submit(&a, 0, &bad);
    rig_submit(&b, 0, &good);
    rig_run(&rig, 50);
    rig_read_all(&a);
    rig_read_all(&b);
    ck_assert_int_eq(a.slots[0].last.reason, DONE_ERROR);
    ck_assert_int_eq(a.slots[0].last.done.error, -EDOM);
    ck_assert_ptr_nonnull(strstr(a.slots[0].last.done.text, "layer 1"));
    ck_assert_uint_eq(a.slots[0].last.n, 0);
    ck_assert(rig_same(&rig, &good, &b.slots[0].last));
    /* What was computed before it stays good. */
    rig.fake.poison = FAKE_NEVER;
    const struct rig_answer *answer = rig_ask(&rig, &a, 0, &bad);
    ck_assert(rig_same(&rig, &bad, answer));
    ck_assert_uint_le(answer->done.cached, 70);
}
END_TEST

/* ---- resumed --------------------------------------------------------------------------------- */

/* Prompt and part of the answer come back from a client whose daemon died. Wherever it was cut, the
 * rest is the rest. */
START_TEST(a_resumed_request_goes_on_where_it_was)
{
    struct params p;
    struct rig_request whole = {.tokens = prompt, .n = 20, .max_tokens = 30, .params = &p};
    struct rig_answer alone;
    uint32_t length = 3;
    uint8_t bytes[3];

    params_default(&p);
    rig_alone(&rig, &whole, &alone);
    for (uint32_t i = 0; i < 3; i++) /* stops inside the answer, across the cut */
        bytes[i] = (uint8_t)(alone.tokens[20 + i] - FAKE_BYTES);
    p.n_stop_texts = 1;
    p.stop_text_lengths = &length;
    p.stop_texts = bytes;
    p.stop_text_bytes = 3;
    for (int stops = 0; stops < 2; stops++) {
        if (!stops)
            p.n_stop_texts = p.stop_text_bytes = 0;
        else
            p.n_stop_texts = 1, p.stop_text_bytes = 3;
        rig_alone(&rig, &whole, &alone);
        memcpy(prompt + 20, alone.tokens, alone.n * sizeof(*prompt));
        for (uint32_t cut = 1; cut <= alone.n; cut++) {
            struct rig_request rest = whole;
            rest.n = 20 + cut;
            rest.prompt_length = 20;
            const struct rig_answer *answer = rig_ask(&rig, &a, 0, &rest);
            ck_assert(rig_same(&rig, &rest, answer));
            ck_assert_int_eq(answer->reason, alone.reason);
            ck_assert_uint_eq(answer->n, alone.n - cut);
            ck_assert_uint_eq(answer->done.output, alone.n);
        }
    }
}
END_TEST

/* Control tokens are not text: a stop text that an answer began before them ends after them, also where
 * the daemon died meanwhile. */
START_TEST(a_stop_text_is_found_across_control_tokens)
{
    struct params p;
    struct rig_request rest = {
        .tokens = prompt, .prompt_length = 20, .max_tokens = 30, .params = &p};
    uint32_t length = 2;
    uint8_t bytes[2];

    for (uint32_t between = 0; between < 5; between++) {
        rest.n = 21 + between;
        for (uint32_t i = 21; i < rest.n; i++)
            prompt[i] = FAKE_CONTROL;
        bytes[0] = (uint8_t)(prompt[20] - FAKE_BYTES);
        bytes[1] = (uint8_t)(fake_next(&rig.fake, prompt, rest.n, 0) - FAKE_BYTES);
        params_default(&p);
        p.n_stop_texts = 1;
        p.stop_text_lengths = &length;
        p.stop_texts = bytes;
        p.stop_text_bytes = 2;
        const struct rig_answer *answer = rig_ask(&rig, &a, 0, &rest);
        ck_assert_int_eq(answer->reason, DONE_STOP);
        ck_assert_uint_eq(answer->n, 1);
    }
}
END_TEST

/* gpt-oss's: they are text for whoever reads the answer's messages. */
START_TEST(a_stop_text_may_be_the_mark_of_a_message)
{
    static const struct stop_text stop = {"<|channel|>", 11};
    struct tiny t;
    struct request request = {0};
    void *block;
    tiny_init_bpe(&t, "gpt-4o");
    tiny_merge(&t, "a", "b");
    tiny_add(&t, "<|return|>", VOCAB_TYPE_CONTROL, 0);
    const uint32_t call = tiny_add(&t, "<|call|>", VOCAB_TYPE_CONTROL, 0),
                   channel = tiny_add(&t, "<|channel|>", VOCAB_TYPE_CONTROL, 0);
    const struct vocab v = tiny_open(&t, &block);
    stop_init(&request.stop, &stop, 1);
    ck_assert(!verify_feed_stops(&v, &request, 'a'));
    ck_assert(!verify_feed_stops(&v, &request, call));
    ck_assert(verify_feed_stops(&v, &request, channel));
    free(block);
}
END_TEST

/* ---- the daemon's own end -------------------------------------------------------------------- */

START_TEST(a_broken_backend_ends_every_answer)
{
    struct rig_request one = {.tokens = prompt, .n = 8, .max_tokens = 10};

    rig_submit(&a, 0, &one);
    rig_submit(&b, 0, &one);
    engine_step(rig.engine);
    rig.fake.finish_error = -EIO;
    engine_step(rig.engine);
    rig_read_all(&a);
    rig_read_all(&b);
    ck_assert_int_eq(a.slots[0].last.reason, DONE_ERROR);
    ck_assert_int_eq(a.slots[0].last.done.error, -EIO);
    ck_assert_str_eq(a.slots[0].last.done.text, "the fake device broke");
    ck_assert_int_eq(b.slots[0].last.reason, DONE_ERROR);
    ck_assert_int_eq(rig.engine->failed, -EIO);
    rig.fake.finish_error = 0;
}
END_TEST

START_TEST(stop_ends_every_answer)
{
    struct rig_request one = {.tokens = prompt, .n = 8, .max_tokens = 100};
    struct mail stop = {.kind = MAIL_STOP};

    rig_submit(&a, 0, &one);
    rig_submit(&a, 1, &one);
    rig_submit(&b, 0, &one);
    engine_step(rig.engine);
    ck_assert(mailbox_post(&rig.inbox, &stop));
    engine_step(rig.engine);
    ck_assert(rig.engine->clients.stopping);
    rig_read_all(&a);
    rig_read_all(&b);
    ck_assert_int_eq(a.slots[0].last.done.error, -ESHUTDOWN);
    ck_assert_int_eq(a.slots[1].last.done.error, -ESHUTDOWN);
    ck_assert_int_eq(b.slots[0].last.done.error, -ESHUTDOWN);
    ck_assert_uint_gt(strlen(b.slots[0].last.done.text), 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_ends");
    TCase *t = tcase_create("engine_ends");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, eos_is_a_reason_and_not_a_token);
    tcase_add_test(t, a_stop_token_ends_the_answer_and_belongs_to_it);
    tcase_add_test(t, a_stop_text_is_found_across_tokens);
    tcase_add_test(t, a_stop_text_in_the_prompt_stops_nothing);
    tcase_add_test(t, the_context_ends_an_answer);
    tcase_add_test(t, a_prompt_that_fills_the_context_gets_no_token);
    tcase_add_test(t, a_poisoned_row_ends_its_answer_and_no_other);
    tcase_add_test(t, a_resumed_request_goes_on_where_it_was);
    tcase_add_test(t, a_stop_text_is_found_across_control_tokens);
    tcase_add_test(t, a_stop_text_may_be_the_mark_of_a_message);
    tcase_add_test(t, a_broken_backend_ends_every_answer);
    tcase_add_test(t, stop_ends_every_answer);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
