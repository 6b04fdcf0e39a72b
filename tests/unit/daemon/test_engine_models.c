/*
 * Models that draft, in the engine: the draft model with KV of its own, the shadow and the fast pass
 * in the slot's own pages. The device aborts where a canonical row reads what a fast pass wrote, the
 * rig where the draft model's KV is of other tokens. Drafts may be wrong as often as they like: no
 * answer changes, counts add up, no slot waits for another one's window.
 */
#include "ipc/params.h"
#include "tests/random.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLIENTS = 4, KINDS = 4 };

static const enum submit_proposer kinds[KINDS] = {PROPOSER_DRAFT, PROPOSER_SHADOW, PROPOSER_FAST,
                                                  PROPOSER_MTP};

static struct rig rig;
static struct rig_client clients[CLIENTS];
static struct rig_request requests[CLIENTS];
static uint32_t tokens[CLIENTS][RIG_TOKENS];
static uint32_t state;

static void open_with(const struct rig_desc *desc)
{
    rig_open(&rig, desc);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_attach(&rig, &clients[i], 1, 1000, "");
        rig_tokens(tokens[i], RIG_TOKENS, i);
        requests[i] = (struct rig_request){.tokens = tokens[i], .n = 10, .max_tokens = 60};
    }
}

static void open_kind(enum submit_proposer kind, uint32_t wrong)
{
    open_with(&(struct rig_desc){
        .slots = CLIENTS, .context = 256, .rows = 64, .proposer = kind, .wrong = wrong});
}

static void close_all(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_detach(&rig, &clients[i]);
    rig_check(&rig);
    const struct pages *pool = &rig.engine->drafters.all[DRAFTER_MODEL].pool;
    ck_assert_uint_eq(pool->n_free, pool->total); /* the draft model forgets, too */
    ck_assert_uint_eq(prefix_spare(&rig.engine->slots.kv.prefix), rig.engine->slots.kv.pool.total);
    rig_close(&rig);
}

static struct slot *slot_of(uint32_t client)
{
    return clients[client].client->slots[0];
}

static void check_counts(const struct event_done *done)
{
    ck_assert_uint_le(done->accepted_drafts, done->drafted);
    ck_assert_uint_le(done->rollbacks, done->passes);
    ck_assert_uint_le(done->rollbacks, done->drafted - done->accepted_drafts);
    ck_assert_uint_le(done->accepted_drafts, done->output);
    ck_assert_uint_le(done->output,
                      done->accepted_drafts + done->passes); /* one own sample a pass */
}

static void all_right(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        ck_assert_msg(rig_same(&rig, &requests[i], &clients[i].slots[0].last), "client %u", i);
        check_counts(&clients[i].slots[0].last.done);
    }
}

static void run_all(uint32_t most)
{
    uint32_t steps = 0;

    while (rig.engine->slots.n_active > 0 || engine_look(rig.engine)) {
        engine_step(rig.engine);
        rig_check(&rig);
        for (uint32_t i = 0; i < CLIENTS; i++)
            rig_read_all(&clients[i]);
        ck_assert_uint_lt(++steps, most);
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_read_all(&clients[i]);
}

/* ---- what comes out -------------------------------------------------------------------------- */

/* Drafts that are all right: none is rejected, and every verification gives one token more than it
 * had drafts. */
START_TEST(right_drafts_all_hold)
{
    open_kind(kinds[_i], 0);
    requests[0].max_tokens = 200;
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    const struct event_done *done = &answer->done;
    ck_assert(rig_same(&rig, &requests[0], answer));
    ck_assert_uint_gt(done->drafted, 100);
    ck_assert_uint_eq(done->rollbacks, 0);
    ck_assert_uint_eq(done->accepted_drafts, done->drafted);
    ck_assert_uint_eq(done->output, done->accepted_drafts + done->passes);
    close_all();
}
END_TEST

START_TEST(wrong_drafts_change_nothing)
{
    uint32_t kind = (uint32_t)_i % KINDS, wrong = 1 + (uint32_t)_i / KINDS;

    open_kind(kinds[kind], wrong);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    run_all(2000);
    all_right();
    const struct event_done *done = &clients[0].slots[0].last.done;
    ck_assert_uint_gt(done->drafted, 0);
    ck_assert_uint_gt(done->rollbacks, 0);
    if (wrong == 1)
        ck_assert_uint_eq(done->accepted_drafts, 0);
    close_all();
}
END_TEST

/* Everything at random: prompts, ends, newer requests, cancels, slow readers, few pages. */
static void random_requests(uint32_t kind, uint32_t seed)
{
    struct params sampled;
    uint32_t stop = FAKE_BYTES + 'c';

    state = seed + 1;
    params_default(&sampled);
    sampled.seed = seed;
    sampled.n_stop_tokens = seed % 3 == 0;
    sampled.stop_tokens = &stop;
    sampled.logprobs_on = seed % 2;
    open_with(&(struct rig_desc){.slots = CLIENTS,
                                 .context = 256,
                                 .pages = 8 + seed % 12,
                                 .rows = 20 + seed % 30,
                                 .samples = 4 + seed % 12,
                                 .draft_pages = kinds[kind] == PROPOSER_DRAFT ? 3 + seed % 20 : 0,
                                 .draft_context = seed % 4 ? 0 : 100,
                                 .proposer = kinds[kind],
                                 .wrong = seed % 5});
    if (seed % 3 == 1)
        rig.fake.end_at = rig.draft.end_at = 100;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        requests[i].n = 1 + random_below(&state, 120);
        requests[i].max_tokens = 1 + random_below(&state, 100);
        requests[i].batch = random_below(&state, 3) == 0;
        requests[i].params = random_below(&state, 2) ? &sampled : NULL;
        rig_submit(&clients[i], 0, &requests[i]);
    }
    for (int step = 0; step < 300; step++) {
        uint32_t i = random_below(&state, CLIENTS);
        if (random_below(&state, 12) == 0) {
            rig_cancel(&clients[i], 0);
        } else if (random_below(&state, 8) == 0 && ring_space(&clients[i].submit) > 0) {
            requests[i].n = 1 + random_below(&state, 150);
            rig_submit(&clients[i], 0, &requests[i]);
        }
        engine_step(rig.engine);
        rig_check(&rig);
        if (random_below(&state, 3))
            rig_read(&clients[random_below(&state, CLIENTS)], 0, 3);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_read_all(&clients[i]);
        engine_step(rig.engine);
        rig_submit(&clients[i], 0, &requests[i]);
    }
    run_all(20000);
    all_right();
    close_all();
}

START_TEST(nor_does_anything_else_beside_them)
{
    random_requests((uint32_t)_i % KINDS, (uint32_t)_i / KINDS);
}
END_TEST

/* ---- windows that are not full --------------------------------------------------------------- */

/* Steps until the slot has drafts that were not verified: they are there between two steps. */
static void draft_some(uint32_t client)
{
    for (int i = 0; i < 100 && slot_of(client)->spec.drafted == 0; i++)
        engine_step(rig.engine);
    ck_assert_uint_gt(slot_of(client)->spec.drafted, 0);
    ck_assert_uint_gt(slot_of(client)->goal, slot_of(client)->spec.drafted);
}

START_TEST(a_cancel_between_draft_and_verification_drops_the_drafts)
{
    open_kind(kinds[_i], 0);
    rig_submit(&clients[0], 0, &requests[0]);
    draft_some(0);
    uint32_t accepted = slot_of(0)->spec.accepted, canonical = slot_of(0)->spec.canonical;
    rig_read_all(&clients[0]);
    rig_cancel(&clients[0], 0);
    engine_step(rig.engine);
    rig_check(&rig);
    rig_read_all(&clients[0]);
    const struct rig_answer *last = &clients[0].slots[0].last;
    ck_assert_int_eq(last->reason, DONE_CANCELLED);
    ck_assert_uint_eq(slot_of(0)->spec.drafted, 0);
    ck_assert_uint_eq(slot_of(0)->spec.accepted, accepted);
    ck_assert_uint_eq(slot_of(0)->spec.canonical, canonical);
    ck_assert_uint_eq(last->n, accepted - requests[0].n);
    ck_assert_uint_gt(last->done.drafted, last->done.accepted_drafts); /* unused ones */
    close_all();
}
END_TEST

START_TEST(a_newer_request_between_them_starts_from_what_is_canonical)
{
    uint32_t prompt[RIG_TOKENS];

    open_kind(kinds[_i], 0);
    rig_submit(&clients[0], 0, &requests[0]);
    draft_some(0);
    const struct slot *slot = slot_of(0);
    uint32_t canonical = slot->spec.canonical, n = slot->spec.accepted + slot->spec.drafted;
    memcpy(prompt, slot->tokens, n * sizeof(*prompt)); /* the drafts as a prompt */
    struct rig_request next = {.tokens = prompt, .n = n, .max_tokens = 20};
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &next);
    ck_assert(rig_same(&rig, &next, answer));
    ck_assert_uint_eq(answer->done.cached, canonical); /* the KV of drafts is not shared */
    close_all();
}
END_TEST

START_TEST(a_client_that_goes_away_between_them_leaves_nothing)
{
    open_kind(kinds[_i], 0);
    rig_submit(&clients[0], 0, &requests[0]);
    draft_some(0);
    rig_detach(&rig, &clients[0]);
    rig_check(&rig);
    ck_assert_uint_eq(rig.engine->drafters.all[DRAFTER_MODEL].pool.n_free,
                      rig.engine->drafters.all[DRAFTER_MODEL].pool.total);
    rig_attach(&rig, &clients[0], 1, 1001, "");
    ck_assert(rig_same(&rig, &requests[0], rig_ask(&rig, &clients[0], 0, &requests[0])));
    close_all();
}
END_TEST

/* Pages taken back in the middle of a window: what was drafted is verified, nothing is drafted on
 * KV that is not there (the device would abort). */
START_TEST(a_window_may_lose_its_pages)
{
    open_kind(kinds[_i], 0);
    rig_submit(&clients[0], 0, &requests[0]);
    draft_some(0);
    slot_evict(slot_of(0), &rig.engine->slots.kv.prefix);
    ck_assert_uint_eq(slot_of(0)->spec.canonical, 0);
    engine_step(rig.engine);
    ck_assert_uint_eq(slot_of(0)->spec.drafted, 0);
    ck_assert_uint_eq(slot_of(0)->spec.canonical, slot_of(0)->spec.accepted - 1);
    run_all(1000);
    ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
    close_all();
}
END_TEST

/* Drafts up to and over the end of a page: only canonical pages are in the cache. rig_check looks
 * at what the device has in every cached page after every step. */
START_TEST(speculative_kv_is_never_shared)
{
    open_kind(kinds[_i % KINDS], 3);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        requests[i].tokens = tokens[0];
        requests[i].n = 20 + (uint32_t)_i / KINDS;
        requests[i].max_tokens = 150;
    }
    rig_submit(&clients[0], 0, &requests[0]);
    for (uint32_t step = 0; step == 0 || rig.engine->slots.n_active > 0; step++) {
        engine_step(rig.engine);
        rig_check(&rig);
        rig_read_all(&clients[0]);
        rig_read_all(&clients[1]);
        if (step == 9) /* adopts what the first one has published so far */
            rig_submit(&clients[1], 0, &requests[1]);
    }
    rig_submit(&clients[2], 0, &requests[2]);
    rig_submit(&clients[3], 0, &requests[3]);
    run_all(2000);
    all_right();
    close_all();
}
END_TEST

/* ---- which slots wait ------------------------------------------------------------------------ */

/* One that does not draft gets a token in every step, whatever windows are being filled. */
START_TEST(no_slot_waits_for_another_ones_window)
{
    open_kind(kinds[_i], 0);
    clients[0].proposer = PROPOSER_NONE;
    requests[0].max_tokens = 100;
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    engine_step(rig.engine);
    while (slot_of(0)->state != SLOT_IDLE) {
        uint32_t before = slot_of(0)->spec.accepted, passes = rig.fake.n_fast_passes;
        passes += rig.draft.n_fast_passes;
        engine_step(rig.engine);
        rig_check(&rig);
        for (uint32_t i = 0; i < CLIENTS; i++)
            rig_read_all(&clients[i]);
        ck_assert_uint_le(rig.fake.n_fast_passes + rig.draft.n_fast_passes - passes, 1);
        if (slot_of(0)->state != SLOT_IDLE)
            ck_assert_uint_eq(slot_of(0)->spec.accepted, before + 1);
    }
    run_all(1000);
    all_right();
    ck_assert_uint_gt(clients[1].slots[0].last.done.accepted_drafts, 0);
    close_all();
}
END_TEST

/* Slots that all draft share each drafting pass, and there is no other pass until windows are full.
 */
START_TEST(slots_that_draft_go_on_together)
{
    uint32_t alone = 0;

    open_kind(kinds[_i], 0);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    engine_step(rig.engine);
    for (int step = 0; step < 60 && rig.engine->slots.n_active == CLIENTS; step++) {
        uint32_t canonical = rig.fake.n_passes;
        struct fake *device = kinds[_i] == PROPOSER_DRAFT ? &rig.draft : &rig.fake;
        uint32_t fast = device->n_fast_passes;
        engine_step(rig.engine);
        rig_check(&rig);
        for (uint32_t i = 0; i < CLIENTS; i++)
            rig_read_all(&clients[i]);
        if (device->n_fast_passes > fast && step > 10)
            ck_assert_uint_ge(device->last_fast_rows, CLIENTS);
        alone += device->n_fast_passes > fast && rig.fake.n_passes == canonical;
    }
    ck_assert_uint_gt(alone, 5);
    run_all(1000);
    all_right();
    close_all();
}
END_TEST

START_TEST(the_first_token_is_not_held_back)
{
    open_kind(kinds[_i], 0);
    requests[0].n = 50;
    rig_submit(&clients[0], 0, &requests[0]);
    engine_step(rig.engine);
    rig_read_all(&clients[0]);
    ck_assert_uint_eq(clients[0].slots[0].now.n, 1);
    ck_assert_uint_eq(rig.fake.n_fast_passes + rig.draft.n_fast_passes, 0);
    run_all(1000);
    close_all();
}
END_TEST

/* ---- the draft model's KV -------------------------------------------------------------------- */

/* A long prompt is caught up with in chunks, beside decoding; after a prompt that grew only what is
 * new. */
START_TEST(the_draft_model_catches_up)
{
    uint32_t grown[RIG_TOKENS];

    open_kind(PROPOSER_DRAFT, 0);
    requests[0].n = 150;
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert(rig_same(&rig, &requests[0], answer));
    ck_assert_uint_gt(answer->done.drafted, 20);
    uint64_t rows = rig.draft.n_fast_rows;
    ck_assert_uint_ge(rows, 150);
    memcpy(grown, tokens[0], 150 * sizeof(*grown));
    memcpy(grown + 150, answer->tokens, answer->n * sizeof(*grown));
    struct rig_request next = {.tokens = grown, .n = 150 + answer->n, .max_tokens = 10};
    ck_assert(rig_same(&rig, &next, rig_ask(&rig, &clients[0], 0, &next)));
    ck_assert_uint_le(rig.draft.n_fast_rows - rows, 40);
    close_all();
}
END_TEST

/* Its pages are taken from idle slots alone; without any there are no drafts, and no harm. */
START_TEST(without_pages_the_draft_model_does_not_draft)
{
    open_with(&(struct rig_desc){
        .slots = CLIENTS, .context = 256, .proposer = PROPOSER_DRAFT, .draft_pages = 4});
    for (uint32_t i = 0; i < CLIENTS; i++) {
        requests[i].n = 70;
        ck_assert(rig_same(&rig, &requests[i], rig_ask(&rig, &clients[i], 0, &requests[i])));
        ck_assert_uint_gt(clients[i].slots[0].last.done.drafted, 0);
        rig_check(&rig);
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    run_all(2000);
    all_right();
    close_all();
}
END_TEST

/* A pass of the model takes a millisecond, one of the draft model a twentieth of that. */
static uint64_t passes_ns(void)
{
    return 1 + rig.fake.n_passes * 1000000ull + rig.draft.n_fast_passes * 50000ull;
}

/* Clients of one user, but the last, which is another one's. */
static void open_users(uint32_t draft_pages)
{
    open_with(&(struct rig_desc){.slots = CLIENTS,
                                 .context = 256,
                                 .rows = 64,
                                 .proposer = PROPOSER_DRAFT,
                                 .draft_pages = draft_pages,
                                 .now_ns = passes_ns});
    rig_detach(&rig, &clients[CLIENTS - 1]);
    rig_attach(&rig, &clients[CLIENTS - 1], 1, 2000, "");
}

/* What an idle slot's user has drives out its own, not the older one of a user with less. */
START_TEST(the_user_with_the_most_loses_the_draft_models_pages)
{
    open_users(12);
    for (uint32_t i = 0; i < CLIENTS; i++)
        requests[i].n = 70;
    (void)rig_ask(&rig, &clients[CLIENTS - 1], 0, &requests[CLIENTS - 1]);
    const uint32_t pages = slot_of(CLIENTS - 1)->draft_kv.n_pages;
    ck_assert_uint_gt(pages, 0);
    for (uint32_t i = 0; i < CLIENTS - 1; i++)
        ck_assert(rig_same(&rig, &requests[i], rig_ask(&rig, &clients[i], 0, &requests[i])));
    ck_assert_uint_eq(slot_of(CLIENTS - 1)->draft_kv.n_pages, pages);
    ck_assert_uint_eq(slot_of(0)->draft_kv.n_pages, 0);
    close_all();
}
END_TEST

/* Requests whose client does not read are paused for as long as it likes: the draft model's pages go
 * to those that go on. A paused one drafts again when it is read. */
START_TEST(paused_requests_give_the_draft_models_pages)
{
    const struct rig_answer *own[CLIENTS - 1];
    struct rig_request *other = &requests[CLIENTS - 1];
    struct params with_logprobs;
    uint32_t steps = 0;

    params_default(&with_logprobs);
    with_logprobs.logprobs_on = 1;
    open_users(12);
    for (uint32_t i = 0; i < CLIENTS - 1; i++) {
        requests[i] = (struct rig_request){
            .tokens = tokens[i], .n = 70, .max_tokens = 180, .params = &with_logprobs};
        rig_submit(&clients[i], 0, &requests[i]);
        own[i] = &clients[i].slots[0].last;
    }
    while (rig.engine->slots.n_paused < CLIENTS - 1) {
        rig_step(&rig);
        ck_assert_uint_lt(++steps, 1000);
    }
    ck_assert_uint_lt(rig.engine->drafters.all[DRAFTER_MODEL].pool.n_free, 4);
    other->n = 97;
    ck_assert(rig_same(&rig, other, rig_ask(&rig, &clients[CLIENTS - 1], 0, other)));
    ck_assert_uint_gt(clients[CLIENTS - 1].slots[0].last.done.accepted_drafts, 20);
    for (uint32_t i = 0; i < CLIENTS - 1; i++)
        ck_assert_int_eq(slot_of(i)->state, SLOT_PAUSED);
    run_all(2000);
    for (uint32_t i = 0; i < CLIENTS - 1; i++)
        ck_assert(rig_same(&rig, &requests[i], own[i]));
    close_all();
}
END_TEST

/* One that has not seen long texts of two users sees a part of each in turn. */
START_TEST(users_take_turns_at_catching_up)
{
    uint32_t steps = 0, behind = 0;

    open_users(0);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        requests[i].n = 180;
        rig_submit(&clients[i], 0, &requests[i]);
    }
    const struct draft_kv *kv = &slot_of(CLIENTS - 1)->draft_kv;
    for (; kv->computed < 180; steps++) {
        engine_step(rig.engine);
        ck_assert_uint_lt(steps, 1000);
    }
    for (uint32_t i = 0; i < CLIENTS - 1; i++)
        behind += slot_of(i)->draft_kv.computed < 180;
    ck_assert_uint_gt(behind, 1);
    run_all(2000);
    all_right();
    close_all();
}
END_TEST

/* No draft holds in one user's answers: that is nothing to another one's, which leaves to the daemon
 * whether to draft. */
START_TEST(drafts_that_fail_for_a_user_are_not_another_ones)
{
    struct rig_request *other = &requests[CLIENTS - 1];

    open_users(0);
    rig.draft.wrong = 1;
    for (uint32_t i = 0; i < 10; i++)
        (void)rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert_uint_eq(clients[0].slots[0].last.done.accepted_drafts, 0);
    rig.draft.wrong = 0;
    clients[CLIENTS - 1].proposer = PROPOSER_AUTO;
    other->n = 90;
    other->max_tokens = 150;
    const uint64_t rows = rig.draft.n_fast_rows;
    ck_assert(rig_same(&rig, other, rig_ask(&rig, &clients[CLIENTS - 1], 0, other)));
    ck_assert_uint_gt(rig.draft.n_fast_rows - rows, 180);
    ck_assert_uint_gt(clients[CLIENTS - 1].slots[0].last.done.accepted_drafts, 90);
    close_all();
}
END_TEST

START_TEST(beyond_its_context_it_does_not_draft)
{
    open_with(&(struct rig_desc){.slots = CLIENTS,
                                 .context = 256,
                                 .proposer = PROPOSER_DRAFT,
                                 .draft_context = 60 + (uint32_t)_i});
    requests[0].n = 30;
    requests[0].max_tokens = 100;
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert(rig_same(&rig, &requests[0], answer));
    ck_assert_uint_gt(answer->done.drafted, 0);
    ck_assert_uint_lt(answer->done.drafted, 60);
    requests[0].n = 90; /* wholly beyond */
    ck_assert(rig_same(&rig, &requests[0], rig_ask(&rig, &clients[0], 0, &requests[0])));
    ck_assert_uint_eq(clients[0].slots[0].last.done.drafted, 0);
    close_all();
}
END_TEST

/* A guess that holds again: what the draft model was to catch up with before is not wanted any more,
 * least of all beyond its context. */
START_TEST(a_slot_with_a_guess_needs_no_catching_up)
{
    struct rig_answer right;
    struct params params;

    open_with(&(struct rig_desc){
        .slots = CLIENTS, .context = 256, .draft_pages = 20, .draft_context = 60});
    requests[0].n = 30;
    requests[0].max_tokens = 100;
    rig_alone(&rig, &requests[0], &right);
    params_default(&params);
    params.guess = right.tokens;
    params.n_guess = right.n;
    requests[0].params = &params;
    rig_submit(&clients[0], 0, &requests[0]);
    while (rig.engine->slots.n_active > 0 || engine_look(rig.engine)) {
        engine_step(rig.engine);
        rig_read_all(&clients[0]);
    }
    ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
    ck_assert_uint_gt(clients[0].slots[0].last.done.accepted_drafts, 80);
    ck_assert_uint_eq(rig.draft.n_fast_rows, 0);
    close_all();
}
END_TEST

/* A request that stands still before its first token since its client left no room for one: that is
 * no prompt that goes before the catching up of others. */
START_TEST(a_prompt_that_stands_still_stops_no_catching_up)
{
    const struct submit_cell nop = {.opcode = SUBMIT_NOP};

    open_users(0);
    while (ring_space(&clients[0].client->events[0]) > (int)EVENT_RUN_CELLS) {
        rig_push(&clients[0], &nop);
        rig_step(&rig);
    }
    rig_submit(&clients[0], 0, &requests[0]);
    rig_step(&rig);
    rig_step(&rig);
    ck_assert_int_eq(slot_of(0)->state, SLOT_PAUSED);
    struct rig_request *other = &requests[CLIENTS - 1];
    other->n = 180;
    ck_assert(rig_same(&rig, other, rig_ask(&rig, &clients[CLIENTS - 1], 0, other)));
    ck_assert_uint_gt(clients[CLIENTS - 1].slots[0].last.done.drafted, 0);
    ck_assert_int_eq(slot_of(0)->state, SLOT_PAUSED);
    rig_read_all(&clients[0]);
    rig_run(&rig, 1000);
    rig_read_all(&clients[0]);
    ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
    close_all();
}
END_TEST

/* A user whose prompts never end: the text of another one is seen all the same, and has its drafts. */
START_TEST(prompts_without_end_stop_no_catching_up)
{
    const struct rig_answer *answer = &clients[CLIENTS - 1].slots[0].last;
    struct rig_request *other = &requests[CLIENTS - 1];
    uint32_t steps = 0;

    open_users(0);
    other->n = 90;
    other->max_tokens = 150;
    rig_submit(&clients[CLIENTS - 1], 0, other);
    for (; !answer->reason; steps++) {
        struct rig_slot *own = &clients[0].slots[0];
        requests[0] = (struct rig_request){.tokens = tokens[steps % 3], .n = 10, .max_tokens = 1};
        if (own->n_ends == own->n_requests)
            rig_submit(&clients[0], 0, &requests[0]);
        engine_step(rig.engine);
        rig_check(&rig);
        rig_read_all(&clients[0]);
        rig_read_all(&clients[CLIENTS - 1]);
        ck_assert_uint_lt(steps, 1000);
    }
    ck_assert(rig_same(&rig, other, answer));
    ck_assert_uint_gt(clients[0].slots[0].n_ends, steps / 2);
    ck_assert_uint_gt(answer->done.accepted_drafts, 20);
    rig_run(&rig, 1000);
    rig_read_all(&clients[0]);
    close_all();
}
END_TEST

/* Requests that wait for pages have no part of a pass: they leave its samples to the drafts of
 * others. */
START_TEST(requests_that_wait_for_pages_take_no_drafts_from_others)
{
    struct rig_request *other = &requests[CLIENTS - 1];
    uint32_t steps = 0;

    open_with(&(struct rig_desc){.slots = CLIENTS,
                                 .context = 256,
                                 .samples = CLIENTS,
                                 .pages = 4,
                                 .proposer = PROPOSER_DRAFT,
                                 .draft_pages = 64});
    other->n = 97;
    other->max_tokens = 30;
    rig_submit(&clients[CLIENTS - 1], 0, other);
    rig_step(&rig);
    for (uint32_t i = 0; i < CLIENTS - 1; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    for (; !clients[CLIENTS - 1].slots[0].last.reason; steps++) {
        rig_step(&rig);
        rig_read_all(&clients[CLIENTS - 1]);
        ck_assert_uint_lt(steps, 100);
    }
    ck_assert(rig_same(&rig, other, &clients[CLIENTS - 1].slots[0].last));
    ck_assert_uint_gt(clients[CLIENTS - 1].slots[0].last.done.accepted_drafts, 10);
    for (uint32_t i = 0; i < CLIENTS - 1; i++)
        ck_assert_uint_eq(clients[i].slots[0].n_ends, 0);
    run_all(2000);
    all_right();
    close_all();
}
END_TEST

/* A slot waits for a page while its draft model says that the answer ends here, which is not
 * drafted: what that one has seen goes no further than the text. */
START_TEST(a_draft_that_is_refused_is_not_behind)
{
    static const char grammar[] = "root ::= [a-h]*";
    struct params params;
    uint32_t waited = 0;

    open_with(&(struct rig_desc){.slots = CLIENTS,
                                 .context = 256,
                                 .pages = 5,
                                 .proposer = PROPOSER_DRAFT,
                                 .draft_pages = 64});
    params_default(&params);
    params.grammar = (const uint8_t *)grammar;
    params.grammar_bytes = sizeof(grammar) - 1;
    rig.draft.end_at = 33;
    requests[0].n = 97;
    requests[0].max_tokens = 31;
    requests[1].n = 32;
    requests[1].params = &params;
    for (uint32_t i = 0; i < 2; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    while (rig_step(&rig)) {
        rig_check(&rig);
        rig_read_all(&clients[0]);
        rig_read_all(&clients[1]);
        const struct slot *slot = slot_of(1);
        waited += slot->state == SLOT_WAITING && slot->draft_kv.computed == 32;
        if (slot->state != SLOT_IDLE)
            ck_assert_uint_lt(slot->draft_kv.computed, slot->spec.accepted + slot->spec.drafted);
    }
    ck_assert_uint_gt(waited, 1);
    for (uint32_t i = 0; i < 2; i++)
        ck_assert(rig_same(&rig, &requests[i], &clients[i].slots[0].last));
    close_all();
}
END_TEST

/* ---- what goes wrong ------------------------------------------------------------------------- */

START_TEST(a_proposer_that_is_not_there_is_refused)
{
    enum submit_proposer kind = kinds[_i];

    open_kind(PROPOSER_NONE, 0);
    clients[0].proposer = kind;
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert_int_eq(answer->reason, DONE_ERROR);
    ck_assert_int_eq(answer->done.error, -ENOTSUP);
    ck_assert_uint_eq(answer->n, 0);
    ck_assert_msg(!strncmp(answer->done.text, "proposer ", 9), "%s", answer->done.text);
    clients[0].proposer = PROPOSER_AUTO;
    ck_assert(rig_same(&rig, &requests[0], rig_ask(&rig, &clients[0], 0, &requests[0])));
    close_all();
}
END_TEST

/* The daemon that comes back may have been started without it: that costs drafts, not the answer. */
START_TEST(a_resumed_answer_does_without_its_proposer)
{
    struct rig_answer alone;
    uint32_t so_far[RIG_TOKENS];

    open_kind(PROPOSER_NONE, 0);
    struct rig_request rest = requests[0];
    rig_alone(&rig, &requests[0], &alone);
    ck_assert_uint_gt(alone.n, 4);
    memcpy(so_far, rest.tokens, rest.n * sizeof(*so_far));
    memcpy(so_far + rest.n, alone.tokens, 4 * sizeof(*so_far));
    rest.tokens = so_far;
    rest.prompt_length = rest.n;
    rest.n += 4;
    clients[0].proposer = kinds[_i];
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &rest);
    ck_assert(rig_same(&rig, &rest, answer));
    ck_assert_int_eq(answer->reason, alone.reason);
    ck_assert_uint_eq(answer->n, alone.n - 4);
    ck_assert_uint_eq(answer->done.drafted, 0);
    close_all();
}
END_TEST

/* After a poisoned drafting row there are no more drafts, and no error. */
START_TEST(a_poisoned_draft_is_left_alone)
{
    open_kind(kinds[_i], 0);
    struct fake *device = kinds[_i] == PROPOSER_DRAFT ? &rig.draft : &rig.fake;
    rig_submit(&clients[0], 0, &requests[0]);
    engine_step(rig.engine);
    engine_step(rig.engine);
    device->poison_fast = true;
    run_all(1000);
    ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
    device->poison_fast = false;
    ck_assert(rig_same(&rig, &requests[0], rig_ask(&rig, &clients[0], 0, &requests[0])));
    ck_assert_uint_gt(clients[0].slots[0].last.done.drafted, 0);
    close_all();
}
END_TEST

/* A draft that would poison its row, and is wrong: the answer is as without drafts. */
START_TEST(a_rejected_draft_poisons_nothing)
{
    open_kind(kinds[_i], 3);
    rig.fake.poison = FAKE_WRONG; /* which is not in this prompt */
    const struct rig_answer *answer = rig_ask(&rig, &clients[1], 0, &requests[1]);
    ck_assert(rig_same(&rig, &requests[1], answer));
    ck_assert_int_ne(answer->reason, DONE_ERROR);
    ck_assert_uint_gt(answer->done.rollbacks, 0);
    close_all();
}
END_TEST

/* The place of the token whose first one comes last. */
static uint32_t newest_of(const struct rig_answer *answer)
{
    uint32_t newest = 0;
    for (uint32_t i = 1; i < answer->n; i++) {
        bool is_new = true;
        for (uint32_t k = 0; k < i; k++)
            is_new &= answer->tokens[k] != answer->tokens[i];
        newest = is_new ? i : newest;
    }
    return newest;
}

/* A draft that poisons its row, and is right: the answer ends after it, as without drafts. */
START_TEST(an_accepted_draft_poisons_what_follows_it)
{
    open_kind(kinds[_i], 0);
    const struct rig_answer alone = *rig_ask(&rig, &clients[1], 0, &requests[1]);
    const uint32_t last = newest_of(&alone);
    ck_assert_uint_gt(last, 4);
    rig.fake.poison = alone.tokens[last];
    const struct rig_answer *answer = rig_ask(&rig, &clients[2], 0, &requests[1]);
    ck_assert_int_eq(answer->reason, DONE_ERROR);
    ck_assert_int_eq(answer->done.error, -EDOM);
    ck_assert_uint_eq(answer->n, last + 1);
    ck_assert_mem_eq(answer->tokens, alone.tokens, (last + 1) * sizeof(alone.tokens[0]));
    close_all();
}
END_TEST

static void cancel_first(void *arg)
{
    (void)arg;
    rig.fake.during = rig.draft.during = NULL;
    rig_cancel(&clients[0], 0);
}

/* A cancel while a drafting pass runs: nothing is published after it. */
START_TEST(a_cancel_in_a_drafting_pass_ends_in_that_step)
{
    open_kind(kinds[_i], 0);
    struct fake *device = kinds[_i] == PROPOSER_DRAFT ? &rig.draft : &rig.fake;
    rig_submit(&clients[0], 0, &requests[0]);
    draft_some(0);
    rig_read_all(&clients[0]);
    device->during = cancel_first;
    engine_step(rig.engine);
    rig_read_all(&clients[0]);
    ck_assert_int_eq(clients[0].slots[0].last.reason, DONE_CANCELLED);
    ck_assert(slot_of(0)->state == SLOT_IDLE);
    close_all();
}
END_TEST

START_TEST(a_broken_drafting_device_ends_everything)
{
    open_kind(kinds[_i], 0);
    struct fake *device = kinds[_i] == PROPOSER_DRAFT ? &rig.draft : &rig.fake;
    rig_submit(&clients[0], 0, &requests[0]);
    draft_some(0);
    device->finish_error = -EIO;
    engine_step(rig.engine);
    rig_read_all(&clients[0]);
    ck_assert_int_eq(clients[0].slots[0].last.reason, DONE_ERROR);
    ck_assert_int_eq(clients[0].slots[0].last.done.error, -EIO);
    ck_assert_str_eq(clients[0].slots[0].last.done.text, "the fake device broke");
    ck_assert_int_eq(rig.engine->failed, -EIO);
    close_all();
}
END_TEST

/* auto on a device whose drafts cost as much as its tokens: hardly any drafts. */
START_TEST(auto_leaves_a_drafter_alone_that_does_not_pay)
{
    bool model = _i == 0;

    open_with(&(struct rig_desc){.slots = CLIENTS,
                                 .context = 1000,
                                 .fast = model ? BACKEND_FAST_NONE : BACKEND_FAST_SHADOW,
                                 .draft_pages = model ? 200 : 0,
                                 .wrong = 2});
    requests[0].max_tokens = 900;
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert(rig_same(&rig, &requests[0], answer));
    ck_assert_uint_gt(rig.fake.n_fast_passes + rig.draft.n_fast_passes, 0);
    ck_assert_uint_lt(rig.fake.n_fast_passes + rig.draft.n_fast_passes, 900 / 50);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_models");
    TCase *t = tcase_create("models");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, right_drafts_all_hold, 0, KINDS);
    tcase_add_loop_test(t, wrong_drafts_change_nothing, 0, 6 * KINDS);
    tcase_add_loop_test(t, nor_does_anything_else_beside_them, 0, 40 * KINDS);
    tcase_add_loop_test(t, a_cancel_between_draft_and_verification_drops_the_drafts, 0, KINDS);
    tcase_add_loop_test(t, a_newer_request_between_them_starts_from_what_is_canonical, 0, KINDS);
    tcase_add_loop_test(t, a_client_that_goes_away_between_them_leaves_nothing, 0, KINDS);
    tcase_add_loop_test(t, a_window_may_lose_its_pages, 0, KINDS);
    tcase_add_loop_test(t, speculative_kv_is_never_shared, 0, 12 * KINDS);
    tcase_add_loop_test(t, no_slot_waits_for_another_ones_window, 0, KINDS);
    tcase_add_loop_test(t, slots_that_draft_go_on_together, 0, KINDS);
    tcase_add_loop_test(t, the_first_token_is_not_held_back, 0, KINDS);
    tcase_add_test(t, the_draft_model_catches_up);
    tcase_add_test(t, without_pages_the_draft_model_does_not_draft);
    tcase_add_test(t, the_user_with_the_most_loses_the_draft_models_pages);
    tcase_add_test(t, paused_requests_give_the_draft_models_pages);
    tcase_add_test(t, users_take_turns_at_catching_up);
    tcase_add_test(t, drafts_that_fail_for_a_user_are_not_another_ones);
    tcase_add_test(t, a_prompt_that_stands_still_stops_no_catching_up);
    tcase_add_test(t, prompts_without_end_stop_no_catching_up);
    tcase_add_test(t, requests_that_wait_for_pages_take_no_drafts_from_others);
    tcase_add_test(t, a_draft_that_is_refused_is_not_behind);
    tcase_add_loop_test(t, beyond_its_context_it_does_not_draft, 0, 8);
    tcase_add_test(t, a_slot_with_a_guess_needs_no_catching_up);
    tcase_add_loop_test(t, a_proposer_that_is_not_there_is_refused, 0, KINDS);
    tcase_add_loop_test(t, a_resumed_answer_does_without_its_proposer, 0, KINDS);
    tcase_add_loop_test(t, a_poisoned_draft_is_left_alone, 0, KINDS);
    tcase_add_loop_test(t, a_rejected_draft_poisons_nothing, 0, KINDS);
    tcase_add_loop_test(t, an_accepted_draft_poisons_what_follows_it, 0, KINDS);
    tcase_add_loop_test(t, a_cancel_in_a_drafting_pass_ends_in_that_step, 0, KINDS);
    tcase_add_loop_test(t, a_broken_drafting_device_ends_everything, 0, KINDS);
    tcase_add_loop_test(t, auto_leaves_a_drafter_alone_that_does_not_pay, 0, 2);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
