/*
 * What one client costs another: a reader's interval beside others' prompts, its place in a pass
 * beside another user's many slots, its cells and its time beside a flood of them. The clock is the
 * device's: a pass takes what its rows cost; a submit cell takes what a test says.
 */
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>
#include <stdlib.h>

enum { OTHERS = 5, DECODE_US = 20000, ROW_US = 2000 };

static struct rig rig;
static struct rig_client reader, late, others[OTHERS];
static uint32_t prompt[RIG_TOKENS], texts[4 * OTHERS][RIG_TOKENS];
static uint64_t clock_us;
static uint64_t look_us;    /* a look at the clock takes so long: one comes after each cell */
static uint32_t stopped_at; /* in so many looks the engine is stopped for a second; 0: it is not */

static uint64_t clock_now(void)
{
    clock_us += look_us;
    if (stopped_at > 0 && --stopped_at == 0)
        clock_us += 1000000;
    return clock_us * 1000;
}

/* Called while a pass runs: its first row costs a decode pass, each further one a row. */
static void run_pass(void *arg)
{
    const struct fake *fake = arg;

    clock_us += DECODE_US + (fake->last_rows - 1) * ROW_US;
}

static void open_with(uint32_t samples, enum backend_fast fast)
{
    look_us = 0;
    rig_open(&rig, &(struct rig_desc){.slots = 4 * OTHERS + 2,
                                      .rows = 256,
                                      .samples = samples,
                                      .proposer = PROPOSER_NONE,
                                      .fast = fast,
                                      .now_ns = clock_now});
    rig.fake.during = run_pass;
    rig.fake.arg = &rig.fake;
    rig_attach(&rig, &reader, 1, 1000, "");
    rig_tokens(prompt, RIG_TOKENS, 1);
    for (uint32_t i = 0; i < 4 * OTHERS; i++)
        rig_tokens(texts[i], RIG_TOKENS, 10 + i);
    for (uint32_t i = 0; i < OTHERS; i++)
        rig_attach(&rig, &others[i], 4, 2000, "");
}

static void close_all(void)
{
    for (uint32_t i = 0; i < OTHERS; i++)
        rig_detach(&rig, &others[i]);
    rig_detach(&rig, &reader);
    rig_close(&rig);
}

/* An answer of the reader's, so long that it lasts, and the costs are known. */
static void read_on(void)
{
    static struct rig_request request = {.tokens = prompt, .n = 100, .max_tokens = 400};

    rig_submit(&reader, 0, &request);
    for (int i = 0; i < 8; i++)
        engine_step(rig.engine);
}

/* `n` batch prompts of `length` tokens beside a reader: each gets a chunk now and then, so the reader's
 * interval is half as long again on average, and never longer than a pass with a chunk. Neither
 * their number nor being just below PLAN_SHORT makes a difference. */
START_TEST(a_readers_interval_beside_batch_prompts_is_bounded)
{
    static const uint32_t many[] = {1, 17}, lengths[] = {64, 65, 200};
    uint32_t n = many[_i % 2], passes = 0;
    uint64_t longest_us = 0;

    open_with(64, BACKEND_FAST_NONE);
    read_on();
    for (uint32_t i = 0; i < n; i++)
        rig_submit(&others[i / 4], i % 4,
                   &(struct rig_request){
                       .tokens = texts[i], .n = lengths[_i / 2], .max_tokens = 1, .batch = true});
    uint64_t start_us = clock_us;
    do {
        uint64_t before_us = clock_us;
        engine_step(rig.engine);
        rig_read_all(&reader);
        ck_assert_uint_eq(reader.slots[0].n_ends, 0);
        longest_us = clock_us - before_us > longest_us ? clock_us - before_us : longest_us;
    } while (++passes < 300 && rig.engine->slots.n_active > 1);
    ck_assert_uint_gt(passes, 5);
    ck_assert_uint_le(longest_us, DECODE_US + PLAN_CHUNK_MIN * ROW_US);
    ck_assert_uint_le((clock_us - start_us) / passes, DECODE_US * 31 / 20);
    close_all();
}
END_TEST

/* Presses a key in each of the other user's slots that has no answer to wait for: a prompt of `n`
 * tokens that is not cached. */
static void press_keys(uint32_t n_slots, uint32_t n)
{
    static uint32_t keys;

    for (uint32_t i = 0; i < n_slots; i++) {
        struct rig_client *c = &others[i / 4];
        struct rig_request request = {.tokens = texts[i], .n = n, .max_tokens = 1};
        rig_read_all(c);
        if (c->slots[i % 4].n_ends < c->slots[i % 4].n_requests)
            continue;
        keys++;
        for (uint32_t k = 0; k < 3; k++)
            texts[i][k] = 3 + (keys >> 6 * k & 63);
        rig_submit(c, i % 4, &request);
    }
}

/* Another user types in all of its slots without end. Of the time, its keystrokes have a quarter as
 * such and a quarter as any prompts: the reader's answer has half. */
START_TEST(a_reader_has_half_of_the_time_beside_another_users_keystrokes)
{
    static const uint32_t lengths[] = {20, 40, 64};
    uint64_t start_us = 0, longest_us = 0;
    enum { WARM = 40, PASSES = 300 };

    open_with(64, BACKEND_FAST_NONE);
    read_on();
    for (uint32_t i = 0; i < WARM + PASSES; i++) {
        uint64_t before_us = clock_us;
        uint32_t accepted = reader.client->slots[0]->spec.accepted;
        if (i == WARM) /* what a user has in advance is used up */
            start_us = clock_us;
        press_keys(4 * OTHERS, lengths[_i]);
        engine_step(rig.engine);
        rig_read_all(&reader);
        ck_assert_uint_eq(reader.client->slots[0]->spec.accepted, accepted + 1);
        longest_us = clock_us - before_us > longest_us ? clock_us - before_us : longest_us;
    }
    ck_assert_uint_le(longest_us, 5 * DECODE_US + PLAN_CHUNK_MIN * ROW_US);
    ck_assert_uint_le((clock_us - start_us) / PASSES, DECODE_US * 21 / 10);
    close_all();
}
END_TEST

/* Other users that type as people do are not slowed down, nor is the reader's own user. */
START_TEST(a_typists_keystrokes_are_a_pass_each)
{
    const uint32_t slots = _i ? 1 : 4, every = _i ? 8 : 1;

    open_with(64, BACKEND_FAST_NONE);
    read_on();
    for (uint32_t i = 0; i < OTHERS && !_i; i++) { /* the reader's own */
        rig_detach(&rig, &others[i]);
        rig_attach(&rig, &others[i], 4, 1000, "");
    }
    for (uint32_t key = 0; key < 38; key++) {
        press_keys(slots, _i ? 20 : 8);
        for (uint32_t i = 0; i < every; i++) {
            engine_step(rig.engine);
            rig_read_all(&reader);
        }
        for (uint32_t i = 0; i < slots; i++) {
            rig_read_all(&others[i / 4]);
            ck_assert_uint_eq(others[i / 4].slots[i % 4].n_ends, key + 1);
        }
    }
    close_all();
}
END_TEST

/* A pass has room for four of 21 answers, canonical or fast ones: the reader's is in each of them. */
START_TEST(a_reader_has_a_row_beside_another_users_many_slots)
{
    struct rig_request request = {.n = 20, .max_tokens = 400, .fast = _i};

    open_with(4, _i ? BACKEND_FAST_NATIVE : BACKEND_FAST_NONE);
    for (uint32_t i = 0; i < 4 * OTHERS; i++) {
        request.tokens = texts[i];
        rig_submit(&others[i / 4], i % 4, &request);
    }
    request.tokens = prompt;
    rig_submit(&reader, 0, &request);
    for (int i = 0; i < 100; i++) {
        uint32_t before = reader.client->slots[0]->spec.accepted;
        engine_step(rig.engine);
        rig_read_all(&reader);
        for (uint32_t k = 0; k < OTHERS; k++)
            rig_read_all(&others[k]);
        uint32_t now = reader.client->slots[0]->spec.accepted;
        if (i >= 50)
            ck_assert_uint_eq(now, before + 1);
    }
    close_all();
}
END_TEST

/* ---- submit cells ---------------------------------------------------------------------------- */

static uint32_t cells_taken(const struct rig_client *c)
{
    return atomic_load(&segment_down_head(&c->segment)->submitted);
}

/* The other user's cells so far. */
static uint32_t flood_taken(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < OTHERS; i++)
        n += cells_taken(&others[i]);
    return n;
}

/* Reads everything, and fills the rings of all of the other user's clients. */
static void flood(void)
{
    struct submit_cell nop = {.opcode = SUBMIT_NOP};

    for (uint32_t i = 0; i < OTHERS; i++) {
        rig_read_all(&others[i]);
        while (ring_space(&others[i].submit) > 0)
            rig_push(&others[i], &nop);
    }
}

/* A user's clients share what a step takes of one user, the same number each. */
START_TEST(a_step_takes_so_many_cells_of_a_user)
{
    struct submit_cell nop = {.opcode = SUBMIT_NOP};

    open_with(64, BACKEND_FAST_NONE);
    for (uint32_t step = 1; step <= 20; step++) {
        flood();
        rig_push(&reader, &nop);
        engine_step(rig.engine);
        rig_read_all(&reader);
        ck_assert_uint_eq(flood_taken(), 16 * step);
        ck_assert_uint_eq(cells_taken(&reader), step);
        for (uint32_t i = 0; i < OTHERS; i++)
            ck_assert_uint_le(cells_taken(&others[i]), 16 * step / OTHERS + 1);
    }
    close_all();
}
END_TEST

/* Each cell takes 5 ms: all together have an eighth of the time of the answer's passes, but for what
 * the first step allows, or the last. */
START_TEST(cells_beside_an_answer_take_an_eighth_of_its_time)
{
    open_with(64, BACKEND_FAST_NONE);
    read_on();
    uint64_t start_us = clock_us;
    uint32_t before = flood_taken();
    look_us = 5000;
    for (uint32_t step = 1; step <= 100; step++) {
        uint32_t accepted = reader.client->slots[0]->spec.accepted;
        flood();
        engine_step(rig.engine);
        rig_read_all(&reader);
        ck_assert_uint_eq(reader.client->slots[0]->spec.accepted, accepted + 1);
    }
    uint64_t cells_us = (flood_taken() - before) * look_us,
             passes_us = clock_us - start_us - cells_us;
    ck_assert_uint_le(cells_us, passes_us / 8 + 10000);
    ck_assert_uint_ge(cells_us, passes_us / 8 - 10000);
    close_all();
}
END_TEST

/* How long a request and its parameters are that were not copied yet counts, too. */
START_TEST(a_step_takes_so_many_tokens_of_a_user)
{
    struct submit_cell cells[] = {
        {.opcode = SUBMIT_REQUEST, .length = 40000}, /* void, all of them */
        {.opcode = SUBMIT_REQUEST, .params_bytes = 160000}};

    open_with(64, BACKEND_FAST_NONE);
    for (uint32_t i = 0; i < 16; i++) {
        struct submit_cell cell = cells[i / 8];
        cell.generation = 1000 + i;
        rig_push(&others[i % 2], &cell);
    }
    for (uint32_t step = 1; step <= 8; step++) {
        engine_step(rig.engine);
        ck_assert_uint_eq(flood_taken(), 2 * step);
        rig_read_all(&others[0]);
        rig_read_all(&others[1]);
    }
    close_all();
}
END_TEST

/* The engine was stopped while it took a cell: the others do not wait for the time that this costs. */
START_TEST(a_cell_in_which_the_engine_was_stopped_is_forgiven)
{
    uint32_t steps = 0;

    open_with(64, BACKEND_FAST_NONE);
    read_on();
    uint32_t before = flood_taken();
    flood();
    stopped_at = 2; /* before the first cell, after it */
    engine_step(rig.engine);
    ck_assert_uint_eq(flood_taken(), before + 1);
    for (; flood_taken() == before + 1; steps++) {
        ck_assert_uint_lt(steps, 5);
        engine_step(rig.engine);
    }
    ck_assert_uint_ge(steps, 2);
    close_all();
}
END_TEST

/* Each cell takes as long as two passes. Another user's is the next one that is taken. */
START_TEST(a_users_cell_does_not_wait_for_anothers_flood)
{
    struct submit_cell nop = {.opcode = SUBMIT_NOP};
    uint32_t steps = 0;

    open_with(64, BACKEND_FAST_NONE);
    rig_attach(&rig, &late, 1, 3000, "");
    read_on();
    look_us = 2 * DECODE_US;
    for (uint32_t step = 0; step < 20 + (uint32_t)_i; step++) {
        flood();
        engine_step(rig.engine);
        rig_read_all(&reader);
    }
    rig_push(&late, &nop);
    uint32_t before = flood_taken();
    for (; cells_taken(&late) == 0; steps++) {
        ck_assert_uint_lt(steps, 4);
        flood();
        engine_step(rig.engine);
        rig_read_all(&reader);
    }
    ck_assert_uint_eq(flood_taken(), before);
    rig_detach(&rig, &late);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_fair");
    TCase *t = tcase_create("fair");

    tcase_add_loop_test(t, a_readers_interval_beside_batch_prompts_is_bounded, 0, 6);
    tcase_add_loop_test(t, a_reader_has_half_of_the_time_beside_another_users_keystrokes, 0, 3);
    tcase_add_loop_test(t, a_typists_keystrokes_are_a_pass_each, 0, 2);
    tcase_add_loop_test(t, a_reader_has_a_row_beside_another_users_many_slots, 0, 2);
    tcase_add_test(t, a_step_takes_so_many_cells_of_a_user);
    tcase_add_test(t, a_step_takes_so_many_tokens_of_a_user);
    tcase_add_test(t, a_cell_in_which_the_engine_was_stopped_is_forgiven);
    tcase_add_test(t, cells_beside_an_answer_take_an_eighth_of_its_time);
    tcase_add_loop_test(t, a_users_cell_does_not_wait_for_anothers_flood, 0, 5);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
