/*
 * Window pages under an engine: a long context takes no more of them than its window and the rows
 * of a pass, and answers stay right wherever a text begins whose window pages are gone.
 */
#include "kernels/kv.h"
#include "tests/run_suite.h"
#include "tests/rig/engine_rig.h"

#include <check.h>

enum { CLIENTS = 2, USER = 1000, WINDOW = 50, ROWS = 32, FEW = (WINDOW + ROWS + 31) / 32 + 1 };

static struct rig rig;
static struct rig_client clients[CLIENTS];
static struct rig_request requests[CLIENTS];
static uint32_t tokens[CLIENTS][RIG_TOKENS];

static void open_with(uint32_t window_pages)
{
    struct rig_desc desc = {.slots = CLIENTS,
                            .context = 512,
                            .rows = ROWS,
                            .window = WINDOW,
                            .window_pages = window_pages};

    rig_open(&rig, &desc);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        rig_attach(&rig, &clients[i], 1, USER, "");
        rig_tokens(tokens[i], RIG_TOKENS, i);
        requests[i] = (struct rig_request){.tokens = tokens[i], .n = 300, .max_tokens = 60};
    }
}

static void teardown(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_detach(&rig, &clients[i]);
    rig_check(&rig);
    ck_assert_uint_eq(prefix_spare_windows(&rig.engine->slots.kv.prefix),
                      rig.engine->slots.kv.windows.total);
    rig_close(&rig);
}

/* Asks, and returns how many tokens of the prompt were cached; the answer must be right. */
static uint32_t cached_of(uint32_t client)
{
    const struct rig_answer *answer = rig_ask(&rig, &clients[client], 0, &requests[client]);

    rig_check(&rig);
    ck_assert(rig_same(&rig, &requests[client], answer));
    return answer->done.cached;
}

static uint64_t gauge(enum counter counter)
{
    return counters_get(rig.ctl, counter);
}

START_TEST(a_context_runs_in_its_window_and_the_rows_of_a_pass)
{
    open_with(FEW);
    requests[0] = (struct rig_request){.tokens = tokens[0], .n = 400, .max_tokens = 112};
    ck_assert_uint_eq(cached_of(0), 0);
    ck_assert_uint_eq(clients[0].client->slots[0]->n_pages, 16);
    ck_assert_uint_eq(gauge(COUNTER_WINDOW_PAGES_TOTAL), FEW);
    ck_assert_uint_ge(gauge(COUNTER_WINDOW_PAGES_FREE), FEW - kv_pages(WINDOW) - 1);
    uint64_t windows = FEW - gauge(COUNTER_WINDOW_PAGES_FREE);
    ck_assert_uint_eq(gauge(COUNTER_KV_BYTES), (16 + windows) * 128);
    teardown();
}
END_TEST

/* The second one is cached up to the first one's tip, or, where that cannot be, computed. */
START_TEST(a_text_is_reused_where_it_is_warm)
{
    open_with(32);
    ck_assert_uint_eq(cached_of(0), 0);
    requests[1].tokens = tokens[0];
    ck_assert_uint_eq(cached_of(1), 288);
    requests[1].n = 120;                 /* ends further back, in what was passed */
    ck_assert_uint_eq(cached_of(1), 96); /* the next page is the first one's, too */
    teardown();
    open_with(FEW + 2);
    ck_assert_uint_eq(cached_of(0), 0);
    requests[1] = (struct rig_request){.tokens = tokens[0], .n = 120, .max_tokens = 60};
    ck_assert_uint_eq(cached_of(1), 0); /* its window pages went to the rest of the text */
    teardown();
}
END_TEST

START_TEST(a_slot_goes_on_from_its_tip_after_others_took_window_pages)
{
    open_with(2 * FEW);
    ck_assert_uint_eq(cached_of(0), 0);
    ck_assert_uint_eq(cached_of(1), 0);
    const struct rig_answer *last = &clients[0].slots[0].last;
    memcpy(tokens[0] + 300, last->tokens, last->n * sizeof(*tokens[0]));
    requests[0].n = 300 + last->n + 5;
    uint32_t tip = 300 + last->n - 1;
    ck_assert_uint_eq(cached_of(0), tip);
    teardown();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_windows");
    TCase *t = tcase_create("windows");

    tcase_add_test(t, a_context_runs_in_its_window_and_the_rows_of_a_pass);
    tcase_add_test(t, a_text_is_reused_where_it_is_warm);
    tcase_add_test(t, a_slot_goes_on_from_its_tip_after_others_took_window_pages);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
