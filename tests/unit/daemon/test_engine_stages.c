/* The order of a step's stages (pass.h), where clients could see it broken. */
#include "tests/rig/engine_unverified.h"
#include "tests/run_suite.h"

#include <stdlib.h>

enum { PROMPT = 200, ROWS = 64, ANSWER = 40 };

static struct rig_client bad; /* two slots */
static struct rig_request request;

/* Clients 0 and 1 read verified answers, and so do both slots of `bad`. */
static void open_bad(void)
{
    rig_open(&rig, &(struct rig_desc){.rows = ROWS});
    rig_tokens(tokens[0], RIG_TOKENS, 7);
    request = (struct rig_request){.tokens = tokens[0], .n = 10, .max_tokens = ANSWER};
    for (uint32_t i = 0; i < 2; i++) {
        rig_attach(&rig, &clients[i], 1, 1000, "");
        rig_submit(&clients[i], 0, &request);
    }
    rig_attach(&rig, &bad, 2, 2000, "");
    for (uint32_t i = 0; i < 2; i++) {
        bad.proposer = clients[i].proposer = PROPOSER_NONE;
        rig_submit(&bad, i, &request);
    }
    for (uint32_t i = 0; i < 4; i++)
        engine_step(rig.engine);
}

static void read_good(void)
{
    rig_read_all(&clients[0]);
    rig_read_all(&clients[1]);
    rig_read(&bad, 1, 100);
}

static void close_bad(void)
{
    rig_detach(&rig, &bad);
    for (uint32_t i = 0; i < 2; i++) {
        rig_run(&rig, 200);
        rig_read_all(&clients[i]);
        ck_assert(rig_same(&rig, &request, last_of(i)));
    }
    rig_end(&rig, clients, 2);
}

/* The ring of slot 0 of the bad client: its reader says that it has read what was never written. */
static void break_ring(void *arg)
{
    (void)arg;
    rig.fake.during = NULL;
    atomic_store(&segment_up_slot(&bad.segment, 0)->events, UINT32_MAX / 2);
}

/* _i: before a step, or while its pass runs. */
START_TEST(a_ring_that_breaks_closes_its_client_once_after_publishing)
{
    uint32_t n[3] = {0}, steps = 0;

    open_bad();
    if (_i)
        rig.fake.during = break_ring;
    else
        break_ring(NULL);
    while (bad.client->error == 0) {
        read_good();
        n[0] = clients[0].slots[0].now.n;
        n[1] = clients[1].slots[0].now.n;
        n[2] = bad.slots[1].now.n;
        engine_step(rig.engine);
        ck_assert_uint_le(++steps, 2);
    }
    /* Marked, not closed: everything else that this step computed was published, the bad client's
     * other answer too. */
    read_good();
    rig_mail(&rig);
    ck_assert_uint_eq(rig.n_closed, 0);
    ck_assert_uint_eq(clients[0].slots[0].now.n, n[0] + 1);
    ck_assert_uint_eq(clients[1].slots[0].now.n, n[1] + 1);
    ck_assert_uint_eq(bad.slots[1].now.n, n[2] + 1);
    ck_assert(bad.client->slots[0]->state != SLOT_IDLE);
    ck_assert(engine_look(rig.engine));

    engine_step(rig.engine);
    read_good();
    rig_mail(&rig);
    ck_assert_uint_eq(rig.n_closed, 1);
    ck_assert_uint_eq(clients[0].slots[0].now.n, n[0] + 2);
    ck_assert_int_eq(bad.slots[1].last.reason, DONE_ERROR);
    ck_assert(bad.client->slots[0]->state == SLOT_IDLE);
    for (int i = 0; i < 5; i++)
        engine_step(rig.engine);
    rig_mail(&rig);
    ck_assert_uint_eq(rig.n_closed, 1);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_PROTOCOL_ERRORS), 1);
    close_bad();
}
END_TEST

/* A marked client's process dies: the control thread lets go of it before the engine could close it.
 * It is closed, then let go, and not looked at again. */
START_TEST(a_marked_client_may_be_detached_at_once)
{
    open_bad();
    break_ring(NULL);
    engine_step(rig.engine);
    ck_assert_int_ne(bad.client->error, 0);
    ck_assert_uint_eq(rig.engine->clients.n_failed, 1);
    close_bad();
    ck_assert_uint_eq(rig.n_closed, 1);
}
END_TEST

static void cancel(void *arg)
{
    (void)arg;
    rig.fake.during = NULL;
    rig_cancel(&clients[0], 0);
}

/* Settle comes before what follows from a request's fate: the rows of a request that was cancelled
 * while they were computed are not computed again. */
START_TEST(what_a_cancelled_request_computed_is_kept)
{
    struct rig_answer answer;

    rig_open(&rig, &(struct rig_desc){.rows = ROWS});
    rig_attach(&rig, &clients[0], 1, 1000, "");
    rig_tokens(tokens[0], RIG_TOKENS, 7);
    request = (struct rig_request){.tokens = tokens[0], .n = PROMPT, .max_tokens = 10};
    rig.fake.during = cancel;
    rig_submit(&clients[0], 0, &request);
    engine_step(rig.engine);
    rig_read_all(&clients[0]);
    ck_assert_int_eq(last_of(0)->reason, DONE_CANCELLED);
    ck_assert(slot_of(0)->state == SLOT_IDLE);
    ck_assert_uint_eq(slot_of(0)->spec.canonical, rig.fake.n_rows);
    ck_assert_uint_gt(slot_of(0)->n_shared, 0);

    uint64_t rows = rig.fake.n_rows;
    answer = *rig_ask(&rig, &clients[0], 0, &request);
    ck_assert(rig_same(&rig, &request, &answer));
    ck_assert_uint_eq(answer.done.cached, rows);
    rig_end(&rig, clients, 1);
}
END_TEST

static uint32_t fast_passes_before, seen_during;

static void read_during(void *arg)
{
    (void)arg;
    if (rig.fake.n_fast_passes == fast_passes_before)
        return; /* no fast pass in this step yet */
    rig_read_all(&clients[0]);
    if (++seen_during == 2) /* the fast pass itself, then the canonical one */
        rig.fake.during = NULL;
}

/* A fast answer's token is in its ring while the canonical pass of the same step runs. */
START_TEST(a_fast_pass_publishes_before_the_canonical_one)
{
    open_native(0);
    rig_submit(&clients[0], 0, &requests[0]);
    answer_some(0, 3);
    requests[1].fast = false;
    requests[1].max_tokens = 8;
    rig_submit(&clients[1], 0, &requests[1]);
    uint32_t n = clients[0].slots[0].now.n;
    fast_passes_before = rig.fake.n_fast_passes;
    seen_during = 0;
    rig.fake.during = read_during;
    uint32_t canonical = rig.fake.n_passes;
    engine_step(rig.engine);
    ck_assert_uint_eq(rig.fake.n_passes, canonical + 1);
    ck_assert_uint_eq(seen_during, 2);
    ck_assert_uint_eq(clients[0].slots[0].now.n, n + 1); /* not read since */
    run_all(200);
    check_answer(0);
    check_answer(1);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_stages");
    TCase *t = tcase_create("stages");

    tcase_add_loop_test(t, a_ring_that_breaks_closes_its_client_once_after_publishing, 0, 2);
    tcase_add_test(t, a_marked_client_may_be_detached_at_once);
    tcase_add_test(t, what_a_cancelled_request_computed_is_kept);
    tcase_add_test(t, a_fast_pass_publishes_before_the_canonical_one);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
