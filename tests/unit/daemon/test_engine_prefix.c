/*
 * Pages shared between slots: what one computed, others of the same user do not compute again, also
 * when they start at once; a slot that waits for a page takes over when the one that computes it goes; none writes to
 * what others read; drafts are never shared. rig_check compares the cache with the device's memory
 * in every step, and every answer is the one the request gets alone.
 */
#include "daemon/overflow_uid.h"
#include "ipc/params.h"
#include "kernels/kv.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLIENTS = 6, USER = 1000, PAGE = KV_PAGE_POSITIONS };

static struct rig rig;
static struct rig_client clients[CLIENTS];
static struct rig_request requests[CLIENTS];
static uint32_t tokens[CLIENTS][RIG_TOKENS];

/* All prompts have the same first `trunk` tokens, and then differ. */
static void write_prompts(uint32_t trunk, uint32_t n)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_tokens(tokens[i], RIG_TOKENS, 100 + i);
        rig_tokens(tokens[i], trunk, 1);
        if (i > 0 && trunk < RIG_TOKENS && tokens[i][trunk] == tokens[0][trunk])
            tokens[i][trunk] = FAKE_BYTES + i; /* exactly the trunk is common */
        requests[i] = (struct rig_request){.tokens = tokens[i], .n = n, .max_tokens = 8};
    }
}

static void open_with(uint32_t pages, uint32_t rows)
{
    struct rig_desc desc = {.slots = CLIENTS, .context = 512, .pages = pages, .rows = rows};

    rig_open(&rig, &desc);
}

static void attach_all(uid_t uid)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_attach(&rig, &clients[i], 1, uid, "");
}

static void read_all(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (clients[i].client)
            rig_read_all(&clients[i]);
}

static void step(void)
{
    engine_step(rig.engine);
    rig_check(&rig);
}

/* To the end of everything. In every step something moves: a wait without end would show. */
static void run_all(uint32_t most)
{
    while (rig.engine->slots.n_active > 0 || engine_look(rig.engine)) {
        read_all();
        uint32_t worked = engine_step(rig.engine);
        rig_check(&rig);
        ck_assert_msg(worked || rig.engine->slots.n_active == 0, "nothing moves");
        ck_assert_msg(most-- > 0, "no end");
    }
    read_all();
}

static void all_right(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ck_assert_msg(rig_same(&rig, &requests[i], &clients[i].slots[0].last), "client %u", i);
}

static uint64_t counter(enum counter c)
{
    return counters_get(rig.ctl, c);
}

static void teardown(void)
{
    rig_end(&rig, clients, CLIENTS);
}

/* ---- one after the other --------------------------------------------------------------------- */

START_TEST(a_second_process_computes_only_the_tail)
{
    open_with(0, 64);
    write_prompts(300, 310);
    rig_attach(&rig, &clients[0], 1, USER, "");
    ck_assert_uint_eq(rig_ask(&rig, &clients[0], 0, &requests[0])->done.cached, 0);
    if (_i == 1)
        rig_detach(&rig, &clients[0]); /* a process that ended leaves its pages */
    rig_attach(&rig, &clients[1], 1, USER, "");
    uint64_t before = rig.fake.n_rows;
    const struct rig_answer *answer = rig_ask(&rig, &clients[1], 0, &requests[1]);
    ck_assert(rig_same(&rig, &requests[1], answer));
    ck_assert_uint_eq(answer->done.cached, 288);
    ck_assert_uint_eq(answer->done.prefix_break, 0);
    ck_assert_uint_eq(rig.fake.n_rows - before, 310 - 288 + 7);
    ck_assert_uint_eq(counter(COUNTER_CACHED_TOKENS), 288);
    teardown();
}
END_TEST

/* Lengths around a page's end: at most all positions but the last are taken over. */
START_TEST(the_last_row_of_a_prompt_is_always_computed)
{
    uint32_t n = (uint32_t)_i;

    open_with(0, 64);
    write_prompts(200, 200);
    rig_attach(&rig, &clients[0], 1, USER, "");
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    rig_attach(&rig, &clients[1], 1, USER, "");
    requests[1].n = n;
    const struct rig_answer *answer = rig_ask(&rig, &clients[1], 0, &requests[1]);
    ck_assert(rig_same(&rig, &requests[1], answer));
    ck_assert_uint_eq(answer->done.cached, (n - 1) / PAGE * PAGE);
    teardown();
}
END_TEST

START_TEST(answers_are_shared_as_well_as_prompts)
{
    open_with(0, 64);
    write_prompts(50, 50);
    requests[0].max_tokens = 100;
    rig_attach(&rig, &clients[0], 1, USER, "");
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    memcpy(tokens[1], tokens[0], 50 * sizeof(uint32_t));
    memcpy(tokens[1] + 50, answer->tokens, 100 * sizeof(uint32_t));
    requests[1].n = 160;
    rig_attach(&rig, &clients[1], 1, USER, "");
    answer = rig_ask(&rig, &clients[1], 0, &requests[1]);
    ck_assert(rig_same(&rig, &requests[1], answer));
    ck_assert_uint_eq(answer->done.cached, 128);
    teardown();
}
END_TEST

START_TEST(a_request_for_no_tokens_warms_other_processes_as_well)
{
    open_with(0, 64);
    write_prompts(300, 310);
    requests[0].max_tokens = 0;
    rig_attach(&rig, &clients[0], 1, USER, "");
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    rig_detach(&rig, &clients[0]);
    rig_attach(&rig, &clients[1], 1, USER, "");
    const struct rig_answer *answer = rig_ask(&rig, &clients[1], 0, &requests[1]);
    ck_assert(rig_same(&rig, &requests[1], answer));
    ck_assert_uint_eq(answer->done.cached, 288);
    teardown();
}
END_TEST

/* The user's own partial page gives way to a whole one of the cache. */
START_TEST(a_cached_page_replaces_a_partial_one)
{
    open_with(0, 64);
    write_prompts(300, 80);
    rig_attach(&rig, &clients[0], 1, USER, "");
    rig_attach(&rig, &clients[1], 1, USER, "");
    requests[1].max_tokens = 1;
    rig_ask(&rig, &clients[1], 0, &requests[1]); /* 80 positions */
    requests[0].n = 250;
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    requests[1].n = 200;
    const struct rig_answer *answer = rig_ask(&rig, &clients[1], 0, &requests[1]);
    ck_assert(rig_same(&rig, &requests[1], answer));
    ck_assert_uint_eq(answer->done.prefix_break, 80);
    ck_assert_uint_eq(answer->done.cached, 192);
    teardown();
}
END_TEST

/* A slot that turns to another prompt, which the cache has, keeps its own pages in the cache. */
START_TEST(a_prompt_that_is_left_for_a_cached_one_stays_cached)
{
    open_with(0, 64);
    write_prompts(PAGE + 8, 4 * PAGE + 2);
    rig_attach(&rig, &clients[0], 1, USER, "");
    rig_attach(&rig, &clients[1], 1, USER, "");
    rig_ask(&rig, &clients[1], 0, &requests[1]);
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert_uint_eq(rig_ask(&rig, &clients[0], 0, &requests[1])->done.cached, 4 * PAGE);
    ck_assert_uint_eq(rig_ask(&rig, &clients[0], 0, &requests[0])->done.cached, 4 * PAGE);
    teardown();
}
END_TEST

START_TEST(users_compute_for_themselves)
{
    static const uid_t uids[] = {USER, USER + 1, 0, OVERFLOW_UID_USUAL, OVERFLOW_UID_USUAL};

    open_with(0, 64);
    write_prompts(200, 200);
    for (uint32_t i = 0; i < 5; i++) {
        rig_attach(&rig, &clients[i], 1, uids[i], "");
        const struct rig_answer *answer = rig_ask(&rig, &clients[i], 0, &requests[i]);
        ck_assert(rig_same(&rig, &requests[i], answer));
        ck_assert_uint_eq(answer->done.cached, 0);
    }
    ck_assert_uint_eq(rig_ask(&rig, &clients[3], 0, &requests[3])->done.cached, 199); /* its own */
    teardown();
}
END_TEST

START_TEST(users_compute_for_themselves_at_once_too)
{
    uint32_t alone = 200 + 7;

    open_with(0, 64);
    write_prompts(200, 200);
    for (uint32_t i = 0; i < 4; i++)
        rig_attach(&rig, &clients[i], 1, i < 2 ? USER + i : OVERFLOW_UID_USUAL, "");
    for (uint32_t i = 0; i < 4; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    step();
    ck_assert_uint_eq(rig.fake.last_sequences, 4); /* no slot waits for another user */
    run_all(200);
    all_right(4);
    ck_assert_uint_eq(rig.fake.n_rows, 4 * alone);
    teardown();
}
END_TEST

START_TEST(named_slots_share_and_stay_warm)
{
    open_with(0, 64);
    write_prompts(200, 200);
    rig_attach(&rig, &clients[0], 1, USER, "editor");
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    rig_detach(&rig, &clients[0]);
    rig_attach(&rig, &clients[1], 1, USER, "agent");
    ck_assert_uint_eq(rig_ask(&rig, &clients[1], 0, &requests[1])->done.cached, 192);
    rig_attach(&rig, &clients[0], 1, USER, "editor"); /* all of it, not only whole pages */
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert_uint_eq(answer->done.cached, 199);
    ck_assert(rig_same(&rig, &requests[0], answer));
    teardown();
}
END_TEST

/* ---- shared pages are not written to --------------------------------------------------------- */

/* A text changed in the middle of a page (before position 100): what others share is left to them,
 * what is the slot's alone is kept to the last position. */
START_TEST(a_shared_page_is_never_written_to)
{
    open_with(0, 64);
    write_prompts(200, 200);
    attach_all(USER);
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    rig_ask(&rig, &clients[1], 0, &requests[1]);
    tokens[0][77] = 1; /* not a byte: no other text has it */
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert(rig_same(&rig, &requests[0], answer));
    ck_assert_uint_eq(answer->done.prefix_break, 77);
    ck_assert_uint_eq(answer->done.cached, 64);
    ck_assert_uint_eq(rig_ask(&rig, &clients[1], 0, &requests[1])->done.cached, 199);
    all_right(2);
    tokens[0][90] = 1; /* in its own page */
    answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert(rig_same(&rig, &requests[0], answer));
    ck_assert_uint_eq(answer->done.cached, 90);
    tokens[0][77] = tokens[1][77]; /* back on the trunk: from the cache */
    tokens[0][90] = tokens[1][90];
    answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert(rig_same(&rig, &requests[0], answer));
    ck_assert_uint_eq(answer->done.cached, 192);
    teardown();
}
END_TEST

/* Of one slot: what begins alike costs a long text nothing but the page where they part; where less
 * follows that page than it is worth, its rows are not computed again. */
START_TEST(a_question_in_between_leaves_a_conversation_cached)
{
    open_with(0, 64);
    write_prompts(7, 480);
    attach_all(USER);
    requests[1].n = 100;
    for (int i = 0; i < 3; i++) {
        const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
        ck_assert(rig_same(&rig, &requests[0], answer));
        ck_assert_uint_eq(answer->done.cached, i ? 448 : 0);
        answer = rig_ask(&rig, &clients[0], 0, &requests[1]);
        ck_assert(rig_same(&rig, &requests[1], answer));
        ck_assert_uint_eq(answer->done.cached, i ? 96 : 0);
    }
    tokens[0][480 - 40] = 1;
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    tokens[0][480 - 10] = 1;
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert(rig_same(&rig, &requests[0], answer));
    ck_assert_uint_eq(answer->done.cached, 470);
    tokens[0][170] = 1; /* nine pages follow that */
    answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert(rig_same(&rig, &requests[0], answer));
    ck_assert_uint_eq(answer->done.cached, 160);
    tokens[0][202] = 1; /* eight */
    answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    ck_assert(rig_same(&rig, &requests[0], answer));
    ck_assert_uint_eq(answer->done.cached, 202);
    teardown();
}
END_TEST

/* Shorter and shorter, longer and longer, beside another that holds the same pages. */
START_TEST(shorter_requests_only_let_go)
{
    open_with(0, 64);
    write_prompts(RIG_TOKENS, 300);
    attach_all(USER);
    rig_ask(&rig, &clients[1], 0, &requests[1]);
    for (uint32_t i = 0; i < 60; i++) {
        requests[0].n = 1 + (i * 37 + 11) % 300;
        rig_ask(&rig, &clients[0], 0, &requests[0]);
        ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
        ck_assert_uint_ge(clients[0].slots[0].last.done.cached, (requests[0].n - 1) / PAGE * PAGE);
    }
    ck_assert_uint_eq(rig_ask(&rig, &clients[1], 0, &requests[1])->done.cached, 299);
    teardown();
}
END_TEST

/* ---- at once --------------------------------------------------------------------------------- */

/* Rows that k requests of n tokens need when their first `trunk` are computed once. */
static uint64_t rows_needed(uint32_t k, uint32_t trunk, uint32_t n)
{
    uint32_t shared = trunk < n ? trunk / PAGE * PAGE : (n - 1) / PAGE * PAGE;

    return shared + (uint64_t)k * (n - shared + 7);
}

/* 2 .. 6 slots, trunks that end with a page and in the middle of one; submitted in one step, or one
 * in each. */
START_TEST(a_trunk_is_computed_once)
{
    uint32_t k = 2 + (uint32_t)_i % 5, trunk = _i % 3 ? 320 : 333, cached = 0;

    open_with(0, _i % 2 ? 48 : 100);
    write_prompts(trunk, 400);
    attach_all(USER);
    for (uint32_t i = 0; i < k; i++) {
        uint32_t next = (i + (uint32_t)_i) % k;
        rig_submit(&clients[next], 0, &requests[next]);
        if (_i >= 10)
            step();
    }
    run_all(300);
    all_right(k);
    for (uint32_t i = 0; i < k; i++)
        cached += clients[i].slots[0].last.done.cached;
    ck_assert_uint_eq(rig.fake.n_rows, rows_needed(k, trunk, 400));
    ck_assert_uint_eq(cached, (k - 1) * 320); /* counted once where it was not computed */
    ck_assert_uint_eq(counter(COUNTER_CACHED_TOKENS), cached);
    teardown();
}
END_TEST

START_TEST(the_same_prompt_at_once_is_computed_once)
{
    open_with(0, 64);
    write_prompts(RIG_TOKENS, 97 + (uint32_t)_i * 31);
    attach_all(USER);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    run_all(200);
    all_right(CLIENTS);
    ck_assert_uint_eq(rig.fake.n_rows, rows_needed(CLIENTS, RIG_TOKENS, requests[0].n));
    teardown();
}
END_TEST

/* A slot that waits is not planned, and counted as waiting. */
START_TEST(a_waiting_slot_is_not_planned)
{
    open_with(0, 32);
    write_prompts(300, 310);
    attach_all(USER);
    rig_submit(&clients[0], 0, &requests[0]);
    rig_submit(&clients[1], 0, &requests[1]);
    for (uint32_t i = 1; i <= 9; i++) {
        step();
        ck_assert_uint_eq(rig.fake.last_sequences, 1);
        ck_assert_uint_eq(clients[0].client->slots[0]->spec.canonical, 32 * i);
        ck_assert_uint_eq(counter(COUNTER_SLOTS_WAITING), 1);
    }
    run_all(100);
    all_right(2);
    ck_assert_uint_eq(counter(COUNTER_SLOTS_WAITING), 0);
    teardown();
}
END_TEST

/* A batch request computes what an interactive one waits for: it is planned as interactive. */
START_TEST(a_waiting_slot_lends_its_priority)
{
    open_with(0, 64);
    write_prompts(400, 410);
    rig_tokens(tokens[2], RIG_TOKENS, 77);
    requests[0].batch = true;
    attach_all(USER);
    rig_submit(&clients[0], 0, &requests[0]);
    step();
    rig_submit(&clients[2], 0, &requests[2]); /* another interactive one, long */
    uint32_t before = clients[0].client->slots[0]->spec.canonical;
    step();
    ck_assert_uint_eq(clients[0].client->slots[0]->spec.canonical - before, 8); /* its eighth */
    rig_submit(&clients[1], 0, &requests[1]);
    before = clients[0].client->slots[0]->spec.canonical;
    step();
    ck_assert_uint_eq(clients[0].client->slots[0]->spec.canonical - before, 32); /* its half */
    run_all(200);
    all_right(3);
    teardown();
}
END_TEST

/* ---- taking over ----------------------------------------------------------------------------- */

/* Stops the reader of a slot: its ring is filled with echoes, as many as there is room for. */
static void fill_ring(struct rig_client *c)
{
    struct submit_cell nop = {.opcode = SUBMIT_NOP};

    for (uint32_t i = 0; i < 80; i++) {
        if (ring_space(&c->submit) == 0)
            break;
        rig_push(c, &nop);
        if (i % 8 == 7)
            step();
    }
}

/* _i: how the computing slot goes, and after how many steps. What it computed is not computed
 * again, except for the page it was in. */
START_TEST(a_waiting_slot_takes_over)
{
    uint32_t manner = (uint32_t)_i % 5, steps = 1 + (uint32_t)_i / 5;
    struct rig_request newer = {.tokens = tokens[5], .n = 60, .max_tokens = 8};

    open_with(0, 20);
    write_prompts(400, 410);
    attach_all(USER);
    rig_submit(&clients[0], 0, &requests[0]);
    rig_submit(&clients[1], 0, &requests[1]);
    rig_submit(&clients[2], 0, &requests[2]);
    for (uint32_t i = 0; i < steps; i++)
        step();
    struct slot *first = clients[0].client->slots[0];
    ck_assert_uint_eq(rig.engine->slots.n_following, 2);
    ck_assert_uint_gt(first->spec.canonical, 0);
    if (manner == 0) {
        rig_cancel(&clients[0], 0);
    } else if (manner == 1) {
        rig_tokens(tokens[5], RIG_TOKENS, 5);
        rig_submit(&clients[0], 0, &newer);
    } else if (manner == 2) {
        rig_detach(&rig, &clients[0]);
    } else if (manner == 3) {
        fill_ring(&clients[0]);
    } else {
        slot_evict(first, &rig.engine->slots.kv.prefix);
    }
    for (uint32_t i = 0; i < 200 && rig.engine->slots.n_active > rig.engine->slots.n_paused; i++) {
        step();
        rig_read_all(&clients[1]);
        rig_read_all(&clients[2]);
    }
    for (uint32_t i = 1; i < 3; i++)
        ck_assert_msg(rig_same(&rig, &requests[i], &clients[i].slots[0].last), "client %u", i);
    run_all(100);
    uint64_t trunk = 384 + 2 * (410 - 384 + 7) + PAGE;
    if (manner == 1)
        ck_assert(rig_same(&rig, &newer, &clients[0].slots[0].last));
    else if (manner >= 3)
        ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
    trunk += manner == 1 ? 60 + 7 : manner >= 3 ? 410 - 384 + 7 : 0;
    ck_assert_msg(rig.fake.n_rows <= trunk, "%llu rows, not %llu",
                  (unsigned long long)rig.fake.n_rows, (unsigned long long)trunk);
    teardown();
}
END_TEST

/* A batch request is ahead, but finds no pages while another user decodes; an interactive request
 * for the same trunk has a right to its pages, and does not wait for it. */
START_TEST(no_slot_waits_for_one_that_finds_no_pages)
{
    open_with(21, 64);
    write_prompts(400, 400);
    rig_tokens(tokens[2], RIG_TOKENS, 77);
    requests[0].batch = true;
    requests[2].n = 300;
    requests[2].max_tokens = 200;
    for (uint32_t i = 0; i < 3; i++)
        rig_attach(&rig, &clients[i], 1, USER + i / 2, "");
    const struct slot *first = clients[0].client->slots[0], *second = clients[1].client->slots[0];
    rig_submit(&clients[2], 0, &requests[2]);
    for (uint32_t i = 0; i < 6; i++)
        step();
    rig_submit(&clients[0], 0, &requests[0]);
    for (uint32_t i = 0; i < 150 && first->state != SLOT_WAITING; i++)
        step();
    ck_assert(first->state == SLOT_WAITING);
    uint32_t canonical = first->spec.canonical;
    rig_submit(&clients[1], 0, &requests[1]);
    for (uint32_t i = 0; i < 40 && second->spec.canonical <= canonical; i++)
        step();
    ck_assert(clients[2].client->slots[0]->state != SLOT_IDLE);
    ck_assert_uint_gt(second->spec.canonical, canonical);
    run_all(500);
    all_right(3);
    teardown();
}
END_TEST

/* A pool that holds one request and little more, full of requests for one trunk and of another
 * user's: all of them end, the one that computes loses its pages again and again. */
START_TEST(eviction_in_the_middle_changes_nothing)
{
    open_with(14 + (uint32_t)_i, 48);
    write_prompts(300, 400);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_attach(&rig, &clients[i], 1, USER + (i % 3 == 2), "");
        requests[i].batch = (_i + (int)i) % 4 == 0;
        requests[i].max_tokens = 40;
    }
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < CLIENTS; i++) {
            rig_submit(&clients[(i * 5) % CLIENTS], 0, &requests[(i * 5) % CLIENTS]);
            step();
        }
        run_all(4000);
        all_right(CLIENTS);
    }
    teardown();
}
END_TEST

/* ---- pressure -------------------------------------------------------------------------------- */

START_TEST(idle_cached_pages_go_before_any_slots)
{
    open_with(16, 64);
    write_prompts(0, 150);
    rig_attach(&rig, &clients[0], 1, USER, "");
    rig_ask(&rig, &clients[0], 0, &requests[0]);
    rig_attach(&rig, &clients[1], 1, USER, "");
    rig_ask(&rig, &clients[1], 0, &requests[1]);
    rig_detach(&rig, &clients[1]); /* its 4 whole pages stay */
    ck_assert_uint_eq(counter(COUNTER_PAGES_CACHED), 4);
    ck_assert_uint_eq(counter(COUNTER_PAGES_FREE), 16 - clients[0].client->slots[0]->n_pages);
    rig_attach(&rig, &clients[2], 1, USER, "");
    requests[2].n = 320; /* 11 pages: all that are free, all that are idle */
    rig_ask(&rig, &clients[2], 0, &requests[2]);
    ck_assert(rig_same(&rig, &requests[2], &clients[2].slots[0].last));
    ck_assert_uint_eq(counter(COUNTER_EVICTIONS), 0);
    ck_assert_uint_eq(counter(COUNTER_PAGES_CACHED), 0);
    ck_assert_uint_eq(counter(COUNTER_PAGES_FREE), 0);
    ck_assert_uint_eq(rig_ask(&rig, &clients[0], 0, &requests[0])->done.cached, 149);
    teardown();
}
END_TEST

/* ---- drafts ---------------------------------------------------------------------------------- */

/* A slot drafts wrong tokens around the end of a page, at any place of the window; another process
 * then asks exactly that wrong text, while the drafts are in flight and after they were dropped. */
START_TEST(speculation_never_reaches_the_cache)
{
    uint32_t wrong[RIG_TOKENS], at = 0, n_wrong = 0;

    open_with(0, 64);
    write_prompts(200, 50);
    requests[0].max_tokens = 60;
    rig_attach(&rig, &clients[0], 1, USER, "");
    rig_attach(&rig, &clients[1], 1, USER, "");
    rig_submit(&clients[0], 0, &requests[0]);
    struct slot *slot = clients[0].client->slots[0];
    while (slot->spec.accepted < 54 + (uint32_t)_i)
        step();
    at = slot->spec.accepted;
    memcpy(wrong, slot->tokens, at * sizeof(*wrong));
    for (; n_wrong < 12; n_wrong++) {
        wrong[at + n_wrong] = FAKE_BYTES + 'Z';
        spec_draft(&slot->spec, slot->tokens, FAKE_BYTES + 'Z');
        slot->request->drafted++;
    }
    rig_tokens(wrong + at + n_wrong, 60, 3);
    requests[1] = (struct rig_request){.tokens = wrong, .n = at + n_wrong + 60, .max_tokens = 8};
    if (_i % 3 == 0) /* its first pass is that of the drafts */
        rig_submit(&clients[1], 0, &requests[1]);
    if (_i % 3 == 1) /* the drafts were computed, and not verified */
        rig_cancel(&clients[0], 0);
    step();
    ck_assert_uint_eq(slot->spec.drafted, 0);
    ck_assert_uint_le(rig.engine->slots.kv.prefix.n_cached, at / PAGE + 1);
    if (_i % 3 != 0)
        rig_submit(&clients[1], 0, &requests[1]);
    run_all(200);
    ck_assert(rig_same(&rig, &requests[1], &clients[1].slots[0].last));
    ck_assert_uint_le(clients[1].slots[0].last.done.cached, at / PAGE * PAGE);
    if (_i % 3 != 1)
        ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
    teardown();
}
END_TEST

/* The same while the pass runs: nothing is published before its rows are verified. */
static uint32_t cached_during;

static void look_during(void *arg)
{
    (void)arg;
    cached_during = rig.engine->slots.kv.prefix.n_cached;
}

START_TEST(a_pass_in_flight_publishes_nothing)
{
    open_with(0, 64);
    write_prompts(200, 200);
    rig_attach(&rig, &clients[0], 1, USER, "");
    rig.fake.during = look_during;
    rig_submit(&clients[0], 0, &requests[0]);
    for (uint32_t i = 0; i < 4; i++) {
        step();
        ck_assert_uint_eq(cached_during, 2 * i);
    }
    run_all(20);
    teardown();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_prefix");
    TCase *t = tcase_create("prefix");

    tcase_add_loop_test(t, a_second_process_computes_only_the_tail, 0, 2);
    tcase_add_loop_test(t, the_last_row_of_a_prompt_is_always_computed, 94, 100);
    tcase_add_test(t, answers_are_shared_as_well_as_prompts);
    tcase_add_test(t, a_request_for_no_tokens_warms_other_processes_as_well);
    tcase_add_test(t, a_cached_page_replaces_a_partial_one);
    tcase_add_test(t, a_prompt_that_is_left_for_a_cached_one_stays_cached);
    tcase_add_test(t, users_compute_for_themselves);
    tcase_add_test(t, users_compute_for_themselves_at_once_too);
    tcase_add_test(t, named_slots_share_and_stay_warm);
    tcase_add_test(t, a_shared_page_is_never_written_to);
    tcase_add_test(t, a_question_in_between_leaves_a_conversation_cached);
    tcase_add_test(t, shorter_requests_only_let_go);
    tcase_add_loop_test(t, a_trunk_is_computed_once, 0, 20);
    tcase_add_loop_test(t, the_same_prompt_at_once_is_computed_once, 0, 4);
    tcase_add_test(t, a_waiting_slot_is_not_planned);
    tcase_add_test(t, a_waiting_slot_lends_its_priority);
    tcase_add_loop_test(t, a_waiting_slot_takes_over, 0, 50);
    tcase_add_test(t, no_slot_waits_for_one_that_finds_no_pages);
    tcase_add_loop_test(t, eviction_in_the_middle_changes_nothing, 0, 8);
    tcase_add_test(t, idle_cached_pages_go_before_any_slots);
    tcase_add_loop_test(t, speculation_never_reaches_the_cache, 0, 24);
    tcase_add_test(t, a_pass_in_flight_publishes_nothing);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
