/*
 * A recurrent model under an engine: its state goes on, back and over to other slots with the KV, or a
 * text is computed again from where there is one; and `cached_tokens` says what that saved. The device
 * of the rig aborts when a state is not that of the KV before a row.
 */
#include "ipc/params.h"
#include "kernels/kv.h"
#include "tests/random.h"
#include "tests/rig/engine_rig.h"
#include "tests/run_suite.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLIENTS = 4, USER = 1000, LENGTH = 300, POINT = 288, ANSWER = 10 };

static struct rig rig;
static struct rig_client clients[CLIENTS];
static struct rig_request requests[CLIENTS];
static uint32_t tokens[CLIENTS][RIG_TOKENS];

static void open_with(const struct rig_desc *desc)
{
    rig_open(&rig, desc);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_attach(&rig, &clients[i], 1, USER, "");
        rig_tokens(tokens[i], RIG_TOKENS, 0);
        requests[i] = (struct rig_request){.tokens = tokens[i], .n = LENGTH, .max_tokens = ANSWER};
    }
}

static void setup(void)
{
    open_with(
        &(struct rig_desc){.slots = CLIENTS, .states = 5 * CLIENTS, .proposer = PROPOSER_NONE});
}

static void teardown(void)
{
    rig_end(&rig, clients, CLIENTS);
}

/* Asks, and returns how many tokens of the prompt were cached; the answer must be right. */
static uint32_t cached_of(uint32_t client)
{
    const struct rig_answer *answer = rig_ask(&rig, &clients[client], 0, &requests[client]);

    ck_assert(rig_same(&rig, &requests[client], answer));
    return answer->done.cached;
}

/* All at once; the answers must be right. */
static void ask_all(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        rig_submit(&clients[i], 0, &requests[i]);
    rig_run(&rig, 4000);
    for (uint32_t i = 0; i < n; i++) {
        rig_read_all(&clients[i]);
        ck_assert(rig_same(&rig, &requests[i], &clients[i].slots[0].last));
    }
}

static const struct event_done *done_of(uint32_t client)
{
    return &clients[client].slots[0].last.done;
}

static struct slot *slot_of(uint32_t client)
{
    return clients[client].client->slots[0];
}

/* ---- one text -------------------------------------------------------------------------------- */

START_TEST(the_same_prompt_again_begins_at_its_restart_point)
{
    ck_assert_uint_eq(cached_of(0), 0);
    uint64_t rows = rig.fake.n_rows;
    ck_assert_uint_eq(cached_of(0), POINT);
    ck_assert_uint_eq(rig.fake.n_rows - rows, LENGTH - POINT + ANSWER - 1);
    ck_assert_uint_eq(cached_of(1), POINT); /* and from another slot */
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_CACHED_TOKENS), 2 * POINT);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_STATES_TOTAL), 5 * CLIENTS);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_STATES_FREE), 5 * CLIENTS - 2);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_RESTART_POINTS), 1);
    uint64_t pages =
        counters_get(rig.ctl, COUNTER_PAGES_TOTAL) - counters_get(rig.ctl, COUNTER_PAGES_FREE);
    ck_assert_uint_eq(counters_get(rig.ctl, COUNTER_KV_BYTES), pages * 128 + 2 * (512 + 64));
}
END_TEST

START_TEST(a_text_that_goes_on_computes_what_is_new)
{
    cached_of(0);
    memcpy(tokens[0] + LENGTH, clients[0].slots[0].last.tokens, ANSWER * sizeof(*tokens[0]));
    requests[0].n = LENGTH + ANSWER + 20;
    uint64_t rows = rig.fake.n_rows;
    uint32_t kept = rig.fake.n_kept;
    ck_assert_uint_eq(cached_of(0), LENGTH + ANSWER - 1);
    ck_assert_uint_eq(rig.fake.n_rows - rows, 20 + 1 + ANSWER - 1);
    ck_assert_uint_eq(rig.fake.n_kept, kept);
}
END_TEST

START_TEST(a_prewarmed_prompt_is_computed_up_to_its_last_token)
{
    requests[0].max_tokens = 0;
    ck_assert_uint_eq(cached_of(0), 0);
    requests[0].max_tokens = ANSWER;
    ck_assert_uint_eq(cached_of(0), LENGTH - 1);
}
END_TEST

/* A shorter text, in the middle of a prefill, of a window, or after the answer. */
START_TEST(a_newer_request_goes_back)
{
    rig_submit(&clients[0], 0, &requests[0]);
    for (int i = 0; i < _i; i++)
        rig_step(&rig);
    requests[0].n = 40 + 20 * (uint32_t)_i;
    ck_assert_uint_le(cached_of(0), requests[0].n - 1);
    rig_submit(&clients[0], 0, &requests[0]);
    for (int i = 0; i < _i; i++)
        rig_step(&rig);
    rig_cancel(&clients[0], 0);
    cached_of(0);
}
END_TEST

START_TEST(a_parked_slot_keeps_its_state)
{
    rig_detach(&rig, &clients[0]);
    rig_attach(&rig, &clients[0], 1, USER, "editor");
    cached_of(0);
    uint32_t own = slot_of(0)->own;
    rig_detach(&rig, &clients[0]);
    rig_attach(&rig, &clients[0], 1, USER, "editor");
    ck_assert_uint_eq(slot_of(0)->own, own);
    memcpy(tokens[0] + LENGTH, clients[0].slots[0].last.tokens, ANSWER * sizeof(*tokens[0]));
    requests[0].n = LENGTH + 1;
    cached_of(0);
    rig_detach(&rig, &clients[0]); /* its name gives way to clients without one */
    rig_attach(&rig, &clients[0], 1, USER, "");
    ck_assert_uint_eq(slot_of(0)->own, PAGE_NONE);
}
END_TEST

/* The state is lost in the pass that poisoned it, but for what it kept before that row. */
START_TEST(a_poisoned_row_costs_what_follows_the_restart_point)
{
    const uint32_t poisoned = _i ? 340 : 310, kept = _i ? 320 : POINT;

    cached_of(0);
    requests[0].n = 350;
    tokens[0][poisoned] = rig.fake.poison = FAKE_BYTES + 'P';
    ck_assert_int_eq(rig_ask(&rig, &clients[0], 0, &requests[0])->reason, DONE_ERROR);
    ck_assert_uint_eq(slot_of(0)->spec.canonical, kept);
    requests[0].n = poisoned;
    ck_assert_uint_eq(cached_of(0), kept);
}
END_TEST

/* ---- several slots --------------------------------------------------------------------------- */

START_TEST(choices_of_one_prompt_compute_it_once)
{
    ask_all(CLIENTS);
    uint32_t cached = 0;
    for (uint32_t i = 0; i < CLIENTS; i++)
        cached += done_of(i)->cached;
    ck_assert_uint_eq(cached, (CLIENTS - 1) * POINT);
    ck_assert_uint_eq(rig.fake.n_rows,
                      LENGTH + (CLIENTS - 1) * (LENGTH - POINT) + CLIENTS * (ANSWER - 1));
}
END_TEST

START_TEST(texts_that_part_meet_where_they_do)
{
    tokens[1][100]++;
    tokens[2][200]++;
    ask_all(3);
    ck_assert_uint_eq(done_of(0)->cached + done_of(1)->cached + done_of(2)->cached, 96 + 192);
}
END_TEST

START_TEST(users_share_no_state)
{
    rig_detach(&rig, &clients[1]);
    rig_attach(&rig, &clients[1], 1, USER + 1, "");
    ask_all(2);
    ck_assert_uint_eq(done_of(0)->cached + done_of(1)->cached, 0);
}
END_TEST

/* More of them than there are states; its own state the idle slot does lose. */
START_TEST(another_users_prompts_leave_a_restart_point)
{
    enum { PROMPTS = 8 * CLIENTS };
    teardown();
    open_with(&(struct rig_desc){.slots = CLIENTS,
                                 .states = 5 * CLIENTS,
                                 .pages = (PROMPTS + CLIENTS) * (RIG_TOKENS / 32 + 1),
                                 .proposer = PROPOSER_NONE});
    rig_detach(&rig, &clients[1]);
    rig_attach(&rig, &clients[1], 1, USER + 1, "");
    (void)cached_of(0);
    const uint32_t cached = cached_of(0);
    ck_assert_uint_gt(cached, 0);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        rig_tokens(tokens[1], RIG_TOKENS, 100 + i);
        ck_assert_uint_eq(cached_of(1), 0);
    }
    ck_assert_uint_eq(cached_of(0), cached);
}
END_TEST

/* Fewer states than slots, and as many as there may be at least: all get theirs in turn. */
START_TEST(states_are_shared_out_like_pages)
{
    teardown();
    open_with(&(struct rig_desc){
        .slots = CLIENTS, .states = 1 + (uint32_t)_i / 2, .pages = _i % 2 ? 20 : 0});
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < CLIENTS; i++) {
            rig_tokens(tokens[i] + 20 * i, RIG_TOKENS - 20 * i, i + round);
            requests[i].batch = (i + round) % 2;
        }
        ask_all(CLIENTS);
    }
}
END_TEST

/* The flag asks for fast passes, which do not carry the state on. */
START_TEST(answers_that_need_not_be_verified_are)
{
    teardown();
    open_with(&(struct rig_desc){.slots = CLIENTS,
                                 .states = 4,
                                 .fast = BACKEND_FAST_NATIVE,
                                 .proposer = PROPOSER_NONE,
                                 .wrong = 2});
    requests[0].fast = true;
    const struct rig_answer *answer = rig_ask(&rig, &clients[0], 0, &requests[0]);
    requests[0].fast = false;
    ck_assert(rig_same(&rig, &requests[0], answer));
    ck_assert_str_eq(answer->done.numerics, "fake-1");
    ck_assert_uint_eq(rig.fake.n_fast_passes, 0);
}
END_TEST

/* At its tip again, from a restart point: the next canonical pass makes that its own before it drafts. */
START_TEST(nothing_is_drafted_from_a_restart_point)
{
    struct rig_answer alone;
    const uint32_t n = 320;

    teardown();
    open_with(
        &(struct rig_desc){.slots = CLIENTS, .states = 8, .proposer = PROPOSER_SHADOW, .wrong = 3});
    requests[0].n = n;
    requests[0].max_tokens = 30;
    rig_alone(&rig, &requests[0], &alone);
    memcpy(tokens[1] + n, alone.tokens, alone.n * sizeof(*tokens[1]));
    requests[1].n = n + 20;
    cached_of(1);
    rig_submit(&clients[0], 0, &requests[0]);
    while (slot_of(0)->spec.accepted <= n)
        rig_step(&rig);
    struct slot *slot = slot_of(0);
    slot_evict(slot, &rig.engine->slots.kv.prefix);
    slot_adopt(slot, &rig.engine->slots.kv.prefix);
    ck_assert_uint_ne(slot->begins, PAGE_NONE);
    uint32_t drafting = rig.fake.n_fast_passes;
    rig_step(&rig);
    ck_assert_uint_eq(rig.fake.n_fast_passes, drafting);
    rig_run(&rig, 4000);
    rig_read_all(&clients[0]);
    ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
    ck_assert_uint_gt(rig.fake.n_fast_passes, drafting);
}
END_TEST

START_TEST(what_idles_gives_its_memory_back)
{
    cached_of(0);
    uint32_t own = slot_of(0)->own;
    rig_detach(&rig, &clients[0]);
    ck_assert(rig.fake.states[own].valid);
    engine_tidy(rig.engine);
    ck_assert(!rig.fake.states[own].valid);
    rig_attach(&rig, &clients[0], 1, USER, "");
}
END_TEST

/* ---- the observer ---------------------------------------------------------------------------- */

/* Verifies windows of drafts that are wrong, and after each rejection puts what a state holds that was not
 * rolled back into the device: all rows of the window. */
START_TEST(a_state_that_is_not_rolled_back_is_noticed)
{
    teardown();
    open_with(
        &(struct rig_desc){.slots = CLIENTS, .states = 4, .proposer = PROPOSER_SHADOW, .wrong = 2});
    requests[0].max_tokens = 100;
    rig_submit(&clients[0], 0, &requests[0]);
    for (int i = 0; i < 200; i++) {
        struct slot *slot = slot_of(0);
        uint32_t rollbacks = slot->request->rollbacks;
        rig_step(&rig);
        rig_read_all(&clients[0]);
        if (slot->request->rollbacks == rollbacks)
            continue;
        struct fake_state *state = &rig.fake.states[slot->own];
        ck_assert_uint_gt(state->n_records, slot->spec.canonical - slot->spec.base);
        if (_i == 0)
            continue;
        for (uint32_t k = 0; k < state->n_records; k++)
            state->folded = state->folded * 3 + state->records[k];
        state->n_records = 0;
        state->base = slot->spec.base = slot->spec.canonical;
    }
    ck_assert(rig_same(&rig, &requests[0], &clients[0].slots[0].last));
    ck_assert_uint_gt(done_of(0)->rollbacks, 5);
}
END_TEST

/* ---- a long day ------------------------------------------------------------------------------ */

enum { KEYSTROKES = 2000, FILE_TOKENS = 700, AROUND = 350 };

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* A cursor in a file: types mostly, deletes, goes elsewhere. Each keystroke asks for what comes between
 * the text before the cursor and the text after it, in either order of a fill-in-the-middle prompt. */
START_TEST(a_keystroke_computes_what_changed_and_a_restart_point_s_distance)
{
    static uint32_t file[FILE_TOKENS + KEYSTROKES];
    static int distance[KEYSTROKES];
    uint32_t random = 17 + (uint32_t)_i, n = FILE_TOKENS, cursor = 300;

    teardown();
    open_with(
        &(struct rig_desc){.slots = CLIENTS, .states = 5, .context = RIG_TOKENS, .rows = 256});
    rig_tokens(file, RIG_TOKENS, 3);
    requests[0].max_tokens = 4;
    for (uint32_t key = 0; key < KEYSTROKES; key++) {
        uint32_t what = random_below(&random, 50), before, after, *to = tokens[0];
        if (what == 0)
            cursor = random_below(&random, n);
        if (what < 10 && cursor > 0) {
            memmove(file + cursor - 1, file + cursor, (n - cursor) * sizeof(*file));
            n--;
            cursor--;
        } else {
            memmove(file + cursor + 1, file + cursor, (n - cursor) * sizeof(*file));
            n++;
            file[cursor++] = FAKE_BYTES + random_below(&random, 256);
        }
        before = cursor < AROUND ? cursor : AROUND;
        after = n - cursor < AROUND ? n - cursor : AROUND;
        for (int part = 0; part < 2; part++) {
            bool first = (part == 0) == (_i == 0);
            memcpy(to, first ? file + cursor - before : file + cursor,
                   (first ? before : after) * sizeof(*file));
            to += first ? before : after;
            *to++ = FAKE_CONTROL;
        }
        requests[0].n = (uint32_t)(to - tokens[0]);
        uint32_t cached = cached_of(0), common = done_of(0)->prefix_break;
        distance[key] = common > cached ? (int)(common - cached) : 0;
    }
    qsort(distance, KEYSTROKES, sizeof(*distance), compare);
    printf("distance to a restart point: %d rows at the median, %d at p90, %d at most\n",
           distance[KEYSTROKES / 2], distance[KEYSTROKES / 10 * 9], distance[KEYSTROKES - 1]);
    ck_assert_int_le(distance[KEYSTROKES / 2], 32);
    ck_assert_int_le(distance[KEYSTROKES / 10 * 9], 64);
}
END_TEST

/* An agent's turns, from which the thinking is taken out again: each computes what it adds, and no more
 * than two pages of what was there. */
START_TEST(a_turn_without_the_thinking_leaves_the_trunk_alone)
{
    enum { TRUNK = 500, NEW = 30, THOUGHTS = 20, REPLY = 10 };

    teardown();
    open_with(&(struct rig_desc){
        .slots = CLIENTS, .states = 5, .context = RIG_TOKENS, .proposer = PROPOSER_NONE});
    requests[0] =
        (struct rig_request){.tokens = tokens[0], .n = TRUNK, .max_tokens = THOUGHTS + REPLY};
    cached_of(0);
    for (uint32_t turn = 0; turn < 10; turn++) {
        const uint32_t *answer = clients[0].slots[0].last.tokens, n = requests[0].n;
        memcpy(tokens[0] + n, answer + THOUGHTS, REPLY * sizeof(*answer));
        tokens[0][n]++;
        requests[0].n = n + REPLY + NEW;
        ck_assert_uint_ge(cached_of(0) + 8 + KV_PAGE_POSITIONS, n);
    }
}
END_TEST

/* Texts are edited, left for others and gone back to, by slots that come and go, under pressure on pages
 * and states; now and then the daemon is another one. Each answer is that of an empty cache. */
START_TEST(no_way_to_a_text_changes_its_answer)
{
    enum { STEPS = 1250, TEXTS = 6 };
    static const enum submit_proposer proposers[] = {PROPOSER_LOOKUP, PROPOSER_SHADOW,
                                                     PROPOSER_MTP};
    static uint32_t texts[TEXTS][RIG_TOKENS];
    uint32_t random = 99 + (uint32_t)_i, lengths[TEXTS], cached = 0;
    const struct rig_desc desc = {.slots = CLIENTS,
                                  .states = 2 + 3 * ((uint32_t)_i % 4),
                                  .pages = 20 + 10 * ((uint32_t)_i % 3),
                                  .proposer = proposers[_i % 3],
                                  .wrong = 3};

    teardown();
    open_with(&desc);
    for (uint32_t i = 0; i < TEXTS; i++) {
        rig_tokens(texts[i], RIG_TOKENS, i / 3);
        lengths[i] = 100 + 60 * i;
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t i = random_below(&random, TEXTS), client_at = random_below(&random, CLIENTS);
        uint32_t at = random_below(&random, lengths[i]), what = random_below(&random, 40);
        if (what < 8)
            texts[i][at] = FAKE_BYTES + random_below(&random, 8);
        else if (what < 12)
            lengths[i] = 1 + at;
        else if (what < 30 && lengths[i] < 470)
            lengths[i] += 1 + at % 30;
        else if (what == 30)
            memcpy(texts[i], texts[at % TEXTS], sizeof(texts[i]));
        else if (what == 31)
            slot_evict(slot_of(client_at), &rig.engine->slots.kv.prefix);
        if (what == 32) {
            rig_detach(&rig, &clients[client_at]);
            rig_attach(&rig, &clients[client_at], 1, USER, "");
        } else if (what == 33) {
            teardown();
            open_with(&desc);
        }
        memcpy(tokens[client_at], texts[i], sizeof(texts[i]));
        requests[client_at].n = lengths[i];
        requests[client_at].max_tokens = random_below(&random, 12);
        cached += cached_of(client_at);
    }
    ck_assert_uint_gt(cached, STEPS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_states");
    TCase *t = tcase_create("states");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_same_prompt_again_begins_at_its_restart_point);
    tcase_add_test(t, a_text_that_goes_on_computes_what_is_new);
    tcase_add_test(t, a_prewarmed_prompt_is_computed_up_to_its_last_token);
    tcase_add_loop_test(t, a_newer_request_goes_back, 0, 14);
    tcase_add_test(t, a_parked_slot_keeps_its_state);
    tcase_add_loop_test(t, a_poisoned_row_costs_what_follows_the_restart_point, 0, 2);
    tcase_add_test(t, choices_of_one_prompt_compute_it_once);
    tcase_add_test(t, texts_that_part_meet_where_they_do);
    tcase_add_test(t, users_share_no_state);
    tcase_add_test(t, another_users_prompts_leave_a_restart_point);
    tcase_add_loop_test(t, states_are_shared_out_like_pages, 0, 8);
    tcase_add_test(t, answers_that_need_not_be_verified_are);
    tcase_add_test(t, nothing_is_drafted_from_a_restart_point);
    tcase_add_test(t, what_idles_gives_its_memory_back);
    tcase_add_loop_test(t, a_state_that_is_not_rolled_back_is_noticed, 0, 1);
    tcase_add_loop_test_raise_signal(t, a_state_that_is_not_rolled_back_is_noticed, SIGABRT, 1, 2);
    tcase_add_loop_test(t, a_keystroke_computes_what_changed_and_a_restart_point_s_distance, 0, 2);
    tcase_add_test(t, a_turn_without_the_thinking_leaves_the_trunk_alone);
    tcase_add_loop_test(t, no_way_to_a_text_changes_its_answer, 0, 8);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
