/*
 * More requests than KV pages. Pages move from idle, paused, batch and newer requests to those with
 * more right to them; no answer changes by it, the first interactive request that can go on loses
 * nothing, and everything ends.
 */
#include "daemon/overflow_uid.h"
#include "ipc/params.h"
#include "kernels/kv.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLIENTS = 6, LONG = 1024 };

static struct rig rig;
static struct rig_client clients[CLIENTS];
static struct rig_request requests[CLIENTS];
static uint32_t tokens[CLIENTS][RIG_TOKENS];

static void open_with(uint32_t pages)
{
    struct rig_desc desc = {.slots = CLIENTS, .context = 256, .pages = pages, .rows = 48};

    rig_open(&rig, &desc);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_attach(&rig, &clients[i], 1, 1000, "");
        rig_tokens(tokens[i], RIG_TOKENS, i);
        requests[i] = (struct rig_request){.tokens = tokens[i], .n = 100, .max_tokens = 60};
    }
}

static void teardown(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_detach(&rig, &clients[i]);
    rig_check(&rig);
    ck_assert_uint_eq(prefix_spare(&rig.engine->slots.kv.prefix), rig.engine->slots.kv.pool.total);
    rig_close(&rig);
}

/* The interactive request that precedes all others and is not paused, or NULL. */
static const struct slot *first(void)
{
    const struct slot *found = NULL;

    for (uint32_t i = 0; i < rig.engine->options.n_slots; i++) {
        const struct slot *slot = &rig.engine->slots.all[i];
        if (slot->state != SLOT_IDLE && slot->state != SLOT_PAUSED && !slot->batch &&
            (!found || slot_precedes(slot, found)))
            found = slot;
    }
    return found;
}

static bool all_idle(void)
{
    return rig.engine->slots.n_active == 0;
}

/* Steps to the end of everything, looking at the rule in every step: the first interactive request
 * that can go on loses nothing, and goes on. Returns the steps. */
static uint32_t run_all(uint32_t most)
{
    uint32_t steps = 0, still = 0;

    do {
        for (uint32_t i = 0; i < CLIENTS; i++)
            rig_read_all(&clients[i]);
        const struct slot *protected = first();
        uint32_t canonical = protected ? protected->spec.canonical : 0;
        uint64_t serial = protected ? protected->serial : 0;
        uint32_t worked = engine_step(rig.engine);
        rig_check(&rig);
        if (protected && protected->state != SLOT_IDLE && protected->serial == serial) {
            ck_assert_uint_ge(protected->spec.canonical, canonical);
            still = protected->spec.canonical > canonical ? 0 : still + 1;
            /* Beside answers a chunk comes every fourth pass; they rotate; pages it always has. */
            ck_assert_uint_lt(still, 4 * CLIENTS);
        }
        ck_assert_msg(worked || all_idle(), "nothing moves, %u are active",
                      rig.engine->slots.n_active);
        ck_assert_uint_lt(++steps, most);
    } while (!all_idle() || engine_look(rig.engine));
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_read_all(&clients[i]);
    return steps;
}

static void all_right(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        ck_assert_msg(rig_same(&rig, &requests[i], &clients[i].slots[0].last), "client %u", i);
}

/* From a pool that holds one request (5 pages) to one that holds all (30). */
START_TEST(pressure_never_changes_an_answer)
{
    open_with((uint32_t)_i);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < CLIENTS;
             i++) { /* up, down, mixed: order of arrival is not that of slots */
            uint32_t next = round == 0 ? i : round == 1 ? CLIENTS - 1 - i : (i * 5 + 2) % CLIENTS;
            rig_submit(&clients[next], 0, &requests[next]);
            engine_step(rig.engine);
        }
        run_all(3000);
        all_right();
    }
    uint64_t evicted = counters_get(rig.ctl, COUNTER_EVICTIONS);
    if (_i >= 5 * CLIENTS)
        ck_assert_uint_eq(evicted, 0);
    else
        ck_assert_uint_gt(evicted, 0);
    teardown();
}
END_TEST

START_TEST(batch_and_interactive_of_all_lengths_end)
{
    static const uint32_t lengths[CLIENTS] = {1, 31, 32, 33, 150, 200};

    open_with(8);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        requests[i].n = lengths[(i + (uint32_t)_i) % CLIENTS];
        requests[i].max_tokens = 20 + 5 * i;
        requests[i].batch = (i ^ (uint32_t)_i) & 1;
        rig_submit(&clients[i], 0, &requests[i]);
        engine_step(rig.engine);
    }
    run_all(3000);
    all_right();
    teardown();
}
END_TEST

/* One after the other: the idle ones keep their pages until they are needed, the least recently used
 * loses them first. Those that were not taken yet are found again. */
START_TEST(idle_slots_give_way_the_longest_unused_first)
{
    open_with(12);
    for (uint32_t i = 0; i < 3; i++) { /* 2 x 5 pages fit; the third takes 3 of the first */
        ck_assert(rig_same(&rig, &requests[i], rig_ask(&rig, &clients[i], 0, &requests[i])));
    }
    ck_assert_uint_eq(clients[0].client->slots[0]->n_pages, 0);
    ck_assert_uint_eq(clients[1].client->slots[0]->n_pages, 5);
    ck_assert_uint_eq(rig_ask(&rig, &clients[1], 0, &requests[1])->done.cached, 99);
    ck_assert_uint_eq(rig_ask(&rig, &clients[0], 0, &requests[0])->done.cached, 64);
    ck_assert_uint_eq(rig_ask(&rig, &clients[2], 0, &requests[2])->done.cached, 64);
    teardown();
}
END_TEST

/* What was evicted is computed again, tokens of the answer included, and the answer goes on. */
START_TEST(an_evicted_answer_goes_on_where_it_was)
{
    open_with(7);
    requests[0].batch = true;
    rig_submit(&clients[0], 0, &requests[0]);
    for (int i = 0; i < 20; i++)
        engine_step(rig.engine);
    const struct slot *slot = clients[0].client->slots[0];
    ck_assert_uint_gt(slot->spec.accepted, 110);
    ck_assert_uint_eq(slot->spec.canonical, slot->spec.accepted - 1);
    rig_submit(&clients[1], 0, &requests[1]);
    while (slot->spec.canonical > 100)
        engine_step(rig.engine);
    ck_assert(slot->state != SLOT_IDLE);
    requests[2].batch = requests[3].batch = requests[4].batch = true;
    for (uint32_t i = 2; i < CLIENTS; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    run_all(3000);
    all_right();
    teardown();
}
END_TEST

/* A reader that stops delays no other slot, even if its request is the oldest; it resumes later. */
START_TEST(a_paused_request_gives_its_pages_the_oldest_too)
{
    open_with(7);
    requests[0].n = 64;
    requests[0].max_tokens = 150;
    for (uint32_t i = 1; i < CLIENTS; i++)
        requests[i].batch = i == (uint32_t)_i;
    rig_submit(&clients[0], 0, &requests[0]);
    for (int i = 0; i < 80; i++)
        engine_step(rig.engine);
    ck_assert(clients[0].client->slots[0]->state == SLOT_PAUSED);
    ck_assert_uint_ge(clients[0].client->slots[0]->n_pages, 4);
    for (uint32_t i = 1; i < CLIENTS; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    for (int i = 0; i < 1500; i++) {
        engine_step(rig.engine);
        rig_check(&rig);
        for (uint32_t k = 1; k < CLIENTS; k++)
            rig_read_all(&clients[k]);
    }
    for (uint32_t i = 1; i < CLIENTS; i++)
        ck_assert_msg(rig_same(&rig, &requests[i], &clients[i].slots[0].last), "client %u", i);
    ck_assert(clients[0].client->slots[0]->state != SLOT_IDLE);
    run_all(500);
    all_right();
    teardown();
}
END_TEST

/* Client 1 has its answer; that of client 0, which has a grammar, comes when masks have their time. */
static void right_then_that_with_a_grammar(void)
{
    ck_assert(rig_same(&rig, &requests[1], &clients[1].slots[0].last));
    ck_assert(clients[0].client->slots[0]->state != SLOT_IDLE);
    rig.engine->constrain.step = GRAMMAR_MILLISECOND;
    while (rig_step(&rig))
        rig_read_all(&clients[0]);
    rig_read_all(&clients[0]);
    ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
}

/* Answers that do not go on because of their grammars delay no other slot for long, though they are
 * older: neither while one is compiled (0), nor while a mask takes very many steps (1). They go on
 * later. */
START_TEST(a_request_that_waits_for_its_grammar_gives_its_pages)
{
    static const char text[] = "root ::= ([a-d] | [b-h]){1,200}";
    struct params p;
    uint32_t steps = 0;

    params_default(&p);
    p.grammar = (const uint8_t *)text;
    p.grammar_bytes = sizeof(text) - 1;
    open_with(5); /* one of them has all */
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    requests[0].params = &p;
    rig.engine->constrain.token = 0;
    rig_submit(&clients[0], 0, &requests[0]);
    if (_i == 1) {
        rig_step(&rig); /* compiles it */
        while (clients[0].client->slots[0]->spec.accepted < 110)
            rig_step(&rig);
        rig.engine->constrain.step = 0;
    }
    while (clients[0].client->slots[0]->state != SLOT_MASKING)
        engine_step(rig.engine);
    ck_assert_uint_ge(clients[0].client->slots[0]->n_pages, 4);
    rig_submit(&clients[1], 0, &requests[1]);
    while (!clients[1].slots[0].last.reason) {
        engine_step(rig.engine);
        rig_check(&rig);
        rig_read_all(&clients[1]);
        ck_assert_uint_lt(++steps, 62 + 2 * MASKED_LONG);
    }
    right_then_that_with_a_grammar();
    teardown();
}
END_TEST

/* A user's requests fill the pool many times over, and are older than another user's: that one's
 * waits for one of them at most, and not for all. */
START_TEST(a_users_many_requests_take_no_pages_from_another_users)
{
    uint32_t steps = 0, ended = 0;

    open_with(10); /* two of them */
    rig_detach(&rig, &clients[CLIENTS - 1]);
    rig_attach(&rig, &clients[CLIENTS - 1], 1, 2000, "");
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_submit(&clients[i], 0, &requests[i]);
        engine_step(rig.engine);
    }
    while (!clients[CLIENTS - 1].slots[0].last.reason) {
        engine_step(rig.engine);
        rig_check(&rig);
        for (uint32_t i = 0; i < CLIENTS; i++)
            rig_read_all(&clients[i]);
        ck_assert_uint_lt(++steps, 1000);
    }
    for (uint32_t i = 0; i < CLIENTS - 1; i++)
        ended += clients[i].slots[0].n_ends;
    ck_assert_uint_le(ended, 1);
    run_all(3000);
    all_right();
    teardown();
}
END_TEST

/* `n` requests, which have all pages each, of another user each, or all of one. Returns the rows that
 * they need together. */
static uint64_t ask_for_all(uint32_t n, bool users, bool fast)
{
    struct rig_desc desc = {.slots = CLIENTS, .context = LONG, .pages = LONG / 32, .rows = 48};
    desc.fast = fast ? BACKEND_FAST_NATIVE : desc.fast;
    rig_open(&rig, &desc);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_attach(&rig, &clients[i], 1, 1000 + (users ? i : 0), "");
        rig_tokens(tokens[i], RIG_TOKENS, i);
        requests[i] = (struct rig_request){
            .tokens = tokens[i], .n = 100, .max_tokens = LONG - 100, .fast = fast && i == 0};
    }
    for (uint32_t i = 0; i < n; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    return (uint64_t)n * (LONG - 1);
}

/* A request that needs all pages, verified (0) or not (1), is answered for a while only: then those of
 * others go on, which do not wait for its end. Each answer is as it is alone. */
START_TEST(a_request_that_needs_all_pages_does_not_keep_them)
{
    uint32_t steps = 0;

    ask_for_all(1, true, _i == 1);
    do {
        engine_step(rig.engine);
        rig_read_all(&clients[0]);
    } while (clients[0].client->slots[0]->spec.accepted < LONG - 150);
    for (uint32_t i = 1; i < 3; i++) {
        requests[i].max_tokens = 20;
        rig_submit(&clients[i], 0, &requests[i]);
    }
    while (!clients[1].slots[0].last.reason || !clients[2].slots[0].last.reason) {
        engine_step(rig.engine);
        rig_check(&rig);
        for (uint32_t i = 0; i < CLIENTS; i++)
            rig_read_all(&clients[i]);
        ck_assert_uint_lt(++steps, TURN_ROWS / TURN_PASS + 100);
    }
    ck_assert(clients[0].client->slots[0]->state != SLOT_IDLE);
    while (rig_step(&rig))
        rig_read_all(&clients[0]);
    rig_read_all(&clients[0]);
    ck_assert_int_eq(clients[0].slots[0].last.reason, DONE_LENGTH);
    if (_i == 0)
        ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
    ck_assert(rig_same(&rig, &requests[1], &clients[1].slots[0].last));
    ck_assert(rig_same(&rig, &requests[2], &clients[2].slots[0].last));
    teardown();
}
END_TEST

/* The same of one whose masks take many steps each, fewer than those after which it gives its
 * pages. */
START_TEST(steps_without_a_mask_are_part_of_a_turn)
{
    static const char text[] = "root ::= [a-h] root \"z\" | \"x\"";
    struct params p;
    uint32_t steps = 0;

    ask_for_all(0, true, false);
    params_default(&p);
    p.grammar = (const uint8_t *)text;
    p.grammar_bytes = sizeof(text) - 1;
    requests[0].params = &p;
    requests[0].n = LONG - 60;
    requests[0].max_tokens = 60; /* as many as the reference follows */
    requests[1].max_tokens = 20;
    rig_submit(&clients[0], 0, &requests[0]);
    do {
        rig_step(&rig);
        rig_read_all(&clients[0]);
    } while (clients[0].client->slots[0]->spec.accepted < LONG - 54);
    rig_submit(&clients[1], 0, &requests[1]);
    while (!clients[1].slots[0].last.reason) {
        rig.engine->constrain.step = ++steps % MASKED_LONG ? 0 : GRAMMAR_MILLISECOND;
        engine_step(rig.engine);
        rig_check(&rig);
        for (uint32_t i = 0; i < 2; i++)
            rig_read_all(&clients[i]);
        ck_assert_uint_lt(steps, 2 * TURN_ROWS / TURN_PASS + 100);
    }
    right_then_that_with_a_grammar();
    teardown();
}
END_TEST

/* Three requests, each of another user, which need all pages each, take turns: all end, at twice the
 * cost at most, where a pass costs what TURN_PASS rows cost. */
START_TEST(turns_at_all_pages_cost_no_more_than_twice)
{
    const uint64_t alone = ask_for_all(3, true, false), passes = TURN_PASS * 3 * (LONG - 100);
    run_all(20000);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert(rig_same(&rig, &requests[i], &clients[i].slots[0].last));
    ck_assert_uint_gt(rig.fake.n_rows, 3 * alone); /* there were turns */
    ck_assert_uint_lt(rig.fake.n_rows + passes, 2 * (alone + passes));
    teardown();
}
END_TEST

/* Six of one user follow one another: those that lost their pages do not compute again what they would
 * lose once more. */
START_TEST(what_would_be_lost_again_is_not_computed)
{
    const uint64_t alone = ask_for_all(6, false, false);
    run_all(20000);
    all_right();
    ck_assert_uint_lt(rig.fake.n_rows, alone * 9 / 4);
    teardown();
}
END_TEST

/* A reader that takes one token whenever its request has lost its pages, of which none stay in the
 * cache, does not keep its turn, although all that it computes it computes again. */
START_TEST(a_request_that_pauses_again_and_again_does_not_keep_its_turn)
{
    struct rig_client *reader = &clients[0], *other = &clients[1];
    const struct slot *slot;
    uint32_t steps = 0;

    ask_for_all(0, true, false);
    rig_detach(&rig, reader);
    rig_attach(&rig, reader, 1, OVERFLOW_UID_USUAL, "");
    slot = reader->client->slots[0];
    requests[0].n = 850;
    requests[0].max_tokens = LONG - 850;
    requests[1].n = 500;
    requests[1].max_tokens = 100;
    rig_submit(reader, 0, &requests[0]);
    while (slot->state != SLOT_PAUSED)
        rig_step(&rig);
    rig_submit(other, 0, &requests[1]);
    while (!other->slots[0].last.reason) {
        rig_step(&rig);
        rig_check(&rig);
        rig_read_all(other);
        if (slot->state == SLOT_PAUSED && slot->n_pages == 0)
            rig_read(reader, 0, 1);
        ck_assert_uint_lt(++steps, 400); /* 111 alone */
    }
    ck_assert(slot->state != SLOT_IDLE);
    ck_assert(rig_same(&rig, &requests[1], &other->slots[0].last));
    while (rig_step(&rig))
        rig_read_all(reader);
    rig_read_all(reader);
    ck_assert(rig_same(&rig, &requests[0], &reader->slots[0].last));
    teardown();
}
END_TEST

/* An answer that has had turns goes on beside short requests, of which some user has always one,
 * though none of these comes to the end of a turn: no others (0); besides those, a request of theirs
 * (1), or of a third user (2), is paused and has had no turn. Nor does that one save turns up for
 * itself (3). */
START_TEST(who_has_had_turns_has_more_beside_requests_that_end)
{
    struct rig_client *other = &clients[1];
    const struct slot *slot, *paused = NULL;
    uint32_t still = 0, began = 0, steps = 0;

    ask_for_all(0, true, false);
    if (_i == 1)
        for (uint32_t i = 2; i < 4; i++) {
            rig_detach(&rig, &clients[i]);
            rig_attach(&rig, &clients[i], 1, 1000, "");
        }
    slot = other->client->slots[0];
    requests[0].n = 32;
    requests[0].max_tokens = LONG - 32;
    if (_i > 0) {
        paused = clients[0].client->slots[0];
        rig_submit(&clients[0], 0, &requests[0]);
        while (paused->state != SLOT_PAUSED)
            rig_step(&rig);
    }
    rig_submit(other, 0, &requests[1]);
    while (slot->spec.accepted < 700) {
        rig_step(&rig);
        rig_read_all(other);
    }
    while (!other->slots[0].last.reason) {
        const uint32_t accepted = slot->spec.accepted;
        for (uint32_t i = 2; i < 4 && _i < 3; i++) {
            if (clients[i].client->slots[0]->state != SLOT_IDLE || steps < 15 * (i - 2))
                continue;
            rig_tokens(tokens[i], RIG_TOKENS, 100 + began++);
            requests[i] = (struct rig_request){.tokens = tokens[i], .n = 250, .max_tokens = 6};
            rig_submit(&clients[i], 0, &requests[i]);
        }
        rig_step(&rig);
        rig_check(&rig);
        for (uint32_t i = _i == 3 ? 0 : 1; i < CLIENTS; i++)
            rig_read_all(&clients[i]);
        steps++;
        still = slot->spec.accepted > accepted ? 0 : still + 1;
        ck_assert_uint_lt(still, 3 * TURN_ROWS / TURN_PASS);
    }
    ck_assert(rig_same(&rig, &requests[1], &other->slots[0].last));
    while (rig_step(&rig))
        for (uint32_t i = 0; i < CLIENTS; i++)
            rig_read_all(&clients[i]);
    rig_read_all(&clients[0]);
    ck_assert(!paused || rig_same(&rig, &requests[0], &clients[0].slots[0].last));
    teardown();
}
END_TEST

/* What a user has in the cache, without a slot, is not lost to another one whose idle slots have
 * more: these give way, down to as much as that. */
START_TEST(idle_slots_count_with_what_their_user_has_in_the_cache)
{
    const uint32_t idle = _i ? 1 : 4; /* of the other user's slots have 5 pages each */
    open_with(4 + 5 * idle);
    rig_detach(&rig, &clients[0]);
    rig_attach(&rig, &clients[0], 1, 2000, "");
    rig_ask(&rig, &clients[0], 0, &requests[0]); /* 4 whole pages and one that goes with the slot */
    rig_detach(&rig, &clients[0]);
    for (uint32_t i = 1; i <= idle; i++)
        rig_ask(&rig, &clients[i], 0, &requests[i]);
    rig_ask(&rig, &clients[5], 0, &requests[5]);
    rig_check(&rig);
    rig_attach(&rig, &clients[0], 1, 2000, "");
    const struct rig_answer *again = rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert_uint_eq(again->done.cached, _i ? 64 : 96);
    ck_assert(rig_same(&rig, &requests[0], again));
    teardown();
}
END_TEST

/* Nor is it where the model itself drafts (1), and takes pages for drafts. */
START_TEST(pages_for_drafts_are_those_of_the_user_with_the_most)
{
    enum { OTHER = 2000 };
    struct rig_desc desc = {.slots = CLIENTS, .context = 256, .pages = 4 + 2 * 5 + 4, .rows = 48};
    desc.proposer = _i ? PROPOSER_SHADOW : PROPOSER_NONE;
    rig_open(&rig, &desc);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_attach(&rig, &clients[i], 1, i ? 1000 : OTHER, "");
        rig_tokens(tokens[i], RIG_TOKENS, i);
        requests[i] = (struct rig_request){.tokens = tokens[i], .n = 100, .max_tokens = 60};
    }
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    rig_detach(&rig, &clients[0]);
    for (uint32_t i = 1; i < 4; i++)
        rig_ask(&rig, &clients[i], 0, &requests[i]);
    rig_check(&rig);
    ck_assert_uint_eq(rig.engine->slots.kv.prefix.idle.of[OTHER % PREFIX_USERS].n, 4);
    rig_attach(&rig, &clients[0], 1, OTHER, "");
    teardown();
}
END_TEST

/* No slot is starved, and none computes the same prefix without end: the rows of a crowd under
 * pressure stay within a few times of what each alone needs. */
START_TEST(pressure_costs_a_bounded_factor)
{
    uint64_t alone = CLIENTS * (100 + 59);

    open_with(11);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    run_all(3000);
    all_right();
    ck_assert_msg(rig.fake.n_rows < 10 * alone, "%llu rows instead of %llu",
                  (unsigned long long)rig.fake.n_rows, (unsigned long long)alone);
    teardown();
}
END_TEST

/* Requests of one user that share a long text, in a pool that has not a further page for each, whose
 * readers take a token a step, beside another user's answer. (0): they take nothing from each other
 * where all is shared. (1): a prompt comes before them and takes pages in each step. What they lose
 * they find in the cache again, which takes time of everybody's. */
START_TEST(what_is_lost_to_be_adopted_again_is_bounded)
{
    enum { SHARED = 250, TEXT = SHARED * KV_PAGE_POSITIONS, N = 4 * RIG_SLOTS, STEPS = 40 };
    static struct rig_client many[N / RIG_SLOTS], other;
    static uint32_t text[TEXT + 5], other_text[TEXT];
    struct rig_request request = {.tokens = text, .n = TEXT + 5, .max_tokens = 300};
    struct rig_desc desc = {.slots = N + 2,
                            .context = TEXT + 320,
                            .pages = SHARED + 12,
                            .samples = 64,
                            .proposer = PROPOSER_NONE};

    rig_open(&rig, &desc);
    rig_tokens(text, TEXT + 5, 3);
    rig_tokens(other_text, TEXT, 4);
    for (uint32_t i = 0; i < N / RIG_SLOTS; i++)
        rig_attach(&rig, &many[i], RIG_SLOTS, 2000, "");
    rig_attach(&rig, &other, 2, 1000, "");
    for (uint32_t i = 0; i < N; i++) {
        struct rig_client *c = &many[i / RIG_SLOTS];
        text[TEXT + 2] = FAKE_BYTES + i;
        rig_submit(c, i % RIG_SLOTS, &request);
        for (uint32_t k = 0; c->client->slots[i % RIG_SLOTS]->state != SLOT_PAUSED && k < 400; k++)
            rig_step(&rig);
    }
    request = (struct rig_request){.tokens = other_text, .n = 9, .max_tokens = 200};
    rig_submit(&other, 0, &request);
    request.n = 100 * KV_PAGE_POSITIONS;
    if (_i)
        rig_submit(&other, 1, &request);
    const uint64_t before = counters_get(rig.ctl, COUNTER_EVICTIONS);
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < N; i++)
            rig_read(&many[i / RIG_SLOTS], i % RIG_SLOTS, 1);
        rig_step(&rig);
        rig_check(&rig);
        rig_read_all(&other);
    }
    ck_assert_uint_ge(other.slots[0].now.n, STEPS - 2);
    ck_assert_uint_lt(counters_get(rig.ctl, COUNTER_EVICTIONS) - before,
                      N * SHARED + STEPS * (_i ? 1024 : 64)); /* 102,012 and 146,484 pages */
    rig_detach(&rig, &other);
    rig_end(&rig, many, N / RIG_SLOTS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_pages");
    TCase *t = tcase_create("pages");

    tcase_add_loop_test(t, pressure_never_changes_an_answer, 5, 31);
    tcase_add_loop_test(t, batch_and_interactive_of_all_lengths_end, 0, 12);
    tcase_add_test(t, idle_slots_give_way_the_longest_unused_first);
    tcase_add_test(t, an_evicted_answer_goes_on_where_it_was);
    tcase_add_loop_test(t, a_paused_request_gives_its_pages_the_oldest_too, 0, 2);
    tcase_add_loop_test(t, a_request_that_waits_for_its_grammar_gives_its_pages, 0, 2);
    tcase_add_test(t, a_users_many_requests_take_no_pages_from_another_users);
    tcase_add_loop_test(t, a_request_that_needs_all_pages_does_not_keep_them, 0, 2);
    tcase_add_test(t, steps_without_a_mask_are_part_of_a_turn);
    tcase_add_test(t, turns_at_all_pages_cost_no_more_than_twice);
    tcase_add_test(t, what_would_be_lost_again_is_not_computed);
    tcase_add_test(t, a_request_that_pauses_again_and_again_does_not_keep_its_turn);
    tcase_add_loop_test(t, who_has_had_turns_has_more_beside_requests_that_end, 0, 4);
    tcase_add_loop_test(t, idle_slots_count_with_what_their_user_has_in_the_cache, 0, 2);
    tcase_add_loop_test(t, pages_for_drafts_are_those_of_the_user_with_the_most, 0, 2);
    tcase_add_test(t, pressure_costs_a_bounded_factor);
    tcase_add_loop_test(t, what_is_lost_to_be_adopted_again_is_bounded, 0, 2);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
