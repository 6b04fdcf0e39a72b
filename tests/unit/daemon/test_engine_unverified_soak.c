/*
 * Verified and unverified answers at random, with few pages, rows and samples, cancelled and superseded:
 * a request for a verified answer gets its bits, and each token of another one is what some pass
 * samples.
 */
#include "ipc/params.h"
#include "tests/random.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_unverified.h"

static struct params sampled;
static uint32_t state;

static void random_request(uint32_t i)
{
    static const enum submit_proposer proposers[] = {PROPOSER_FAST, PROPOSER_NONE, PROPOSER_LOOKUP,
                                                     PROPOSER_AUTO};

    requests[i].n = 1 + random_below(&state, 120);
    requests[i].max_tokens = random_below(&state, 90);
    requests[i].tokens = tokens[random_below(&state, 3)];
    requests[i].batch = random_below(&state, 3) == 0;
    requests[i].fast = random_below(&state, 2);
    requests[i].params = random_below(&state, 2) ? &sampled : NULL;
    clients[i].proposer = proposers[random_below(&state, 4)];
    rig_submit(&clients[i], 0, &requests[i]);
}

/* A verified answer that ended by itself is right in every bit; each token of another one is what
 * some pass samples. */
static uint32_t checked[CLIENTS], n_fast, n_verified;

static void check_ended(uint32_t i)
{
    const struct rig_slot *s = &clients[i].slots[0];

    if (checked[i] == s->n_ends)
        return;
    checked[i] = s->n_ends;
    if (s->last.generation != s->generation || s->last.reason == DONE_CANCELLED)
        return;
    ck_assert_int_ne(s->last.reason, DONE_ERROR);
    ck_assert_msg(rig_possible(&rig, &requests[i], &s->last), "client %u", i);
    ck_assert(requests[i].fast || !says_fast(i));
    if (!says_fast(i)) { /* also of one that could have been fast and was not */
        struct rig_request verified = requests[i];
        verified.fast = false;
        ck_assert_msg(rig_same(&rig, &verified, &s->last), "client %u", i);
    }
    n_fast += says_fast(i);
    n_verified += !says_fast(i);
}

static void random_act(void)
{
    uint32_t i = random_below(&state, CLIENTS);

    if (random_below(&state, 20) == 0)
        rig_cancel(&clients[i], 0);
    else if (slot_of(i)->state == SLOT_IDLE && ring_space(&clients[i].submit) > 2)
        random_request(i);
    else if (random_below(&state, 12) == 0 && ring_space(&clients[i].submit) > 2)
        random_request(i); /* supersedes */
}

START_TEST(whatever_happens_each_request_gets_its_answer)
{
    uint32_t stop = FAKE_BYTES + 'c';

    state = (uint32_t)_i * 91 + 7;
    n_fast = n_verified = 0;
    memset(checked, 0, sizeof(checked));
    open_with(&(struct rig_desc){.fast = BACKEND_FAST_NATIVE,
                                 .context = 256,
                                 .pages = 8 + (uint32_t)_i % 30,
                                 .rows = 20 + (uint32_t)_i % 40,
                                 .samples = 2 + (uint32_t)_i % 12,
                                 .window = _i % 3 == 2 ? 20 + (uint32_t)_i : 0,
                                 .window_pages = 12 + (uint32_t)_i % 12,
                                 .wrong = 1 + (uint32_t)_i % 6});
    params_default(&sampled);
    sampled.seed = (uint64_t)_i;
    sampled.n_stop_tokens = _i % 3 == 0;
    sampled.stop_tokens = &stop;
    sampled.logprobs_on = _i % 2 == 1;
    if (_i % 4 == 1)
        rig.fake.end_at = 100;
    for (int round = 0; round < 600; round++) {
        random_act();
        engine_step(rig.engine);
        rig_check(&rig);
        uint32_t i = random_below(&state, CLIENTS);
        rig_read(&clients[i], 0, 1 + random_below(&state, 40));
        check_ended(i);
    }
    for (uint32_t most = 20000; rig.engine->slots.n_active > 0 || engine_look(rig.engine); most--) {
        step_all();
        for (uint32_t i = 0; i < CLIENTS; i++)
            check_ended(i);
        ck_assert_uint_gt(most, 0);
    }
    ck_assert_uint_gt(n_fast, 5);
    ck_assert_uint_gt(n_verified, 5);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_unverified_soak");
    TCase *t = tcase_create("soak");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, whatever_happens_each_request_gets_its_answer, 0, 60);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
