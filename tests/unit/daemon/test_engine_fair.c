/*
 * What one client costs another: a reader's interval beside others' prompts. The clock is the
 * device's: a pass takes what its rows cost.
 */
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>
#include <stdlib.h>

enum { OTHERS = 5, DECODE_US = 20000, ROW_US = 2000 };

static struct rig rig;
static struct rig_client reader, others[OTHERS];
static uint32_t prompt[RIG_TOKENS], texts[4 * OTHERS][RIG_TOKENS];
static uint64_t clock_us;

static uint64_t clock_now(void)
{
    return clock_us * 1000;
}

/* Called while a pass runs: its first row costs a decode pass, each further one a row. */
static void run_pass(void *arg)
{
    const struct fake *fake = arg;

    clock_us += DECODE_US + (fake->last_rows - 1) * ROW_US;
}

static void setup(void)
{
    rig_open(&rig, &(struct rig_desc){.slots = 4 * OTHERS + 1,
                                      .rows = 256,
                                      .samples = 64,
                                      .proposer = PROPOSER_NONE,
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

static void teardown(void)
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
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_fair");
    TCase *t = tcase_create("fair");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_readers_interval_beside_batch_prompts_is_bounded, 0, 6);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
