/* Slots: pages as the sequence grows and shrinks, and which one is evicted for which. */
#include "daemon/overflow_uid.h"
#include "daemon/cache/slot.h"

#include "kernels/kv.h"
#include "tests/run_suite.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>

enum { CONTEXT = 200, SLOTS = 6, PAGES = 20 };

static struct slot slots[SLOTS];
static struct pages pool;
static struct prefix prefix;

static void setup(void)
{
    ck_assert_int_eq(pages_init(&pool, PAGES), 0);
    ck_assert_int_eq(prefix_init(&prefix, &pool, "", 0), 0);
    for (uint32_t i = 0; i < SLOTS; i++)
        ck_assert_int_eq(slot_init(&slots[i], CONTEXT), 0);
}

static void teardown(void)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        slot_fini(&slots[i], CONTEXT);
    prefix_fini(&prefix);
    pages_fini(&pool);
}

/* A slot with two pages, as it looks in the middle of a request. */
static void make_active(uint32_t i, uint64_t serial, bool batch)
{
    slots[i].state = SLOT_READY;
    slots[i].serial = serial;
    slots[i].batch = batch;
    ck_assert(slot_reserve(&slots[i], &prefix, 40));
}

static void make_idle(uint32_t i, uint64_t serial)
{
    slots[i].serial = serial;
    ck_assert(slot_reserve(&slots[i], &prefix, 40));
}

/* All slots that are evicted for `needy`, in this order; then none. */
static void expect_victims(uint32_t needy, const uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct slot *victim = slot_victim(slots, SLOTS, &slots[needy]);
        ck_assert_ptr_nonnull(victim);
        ck_assert_msg(victim == &slots[order[i]], "victim %u is slot %td, not %u", i,
                      victim - slots, order[i]);
        slot_evict(victim, &prefix);
    }
    ck_assert_ptr_null(slot_victim(slots, SLOTS, &slots[needy]));
}

#define EXPECT_VICTIMS(needy, ...)                                                                 \
    expect_victims(needy, (const uint32_t[]){__VA_ARGS__},                                         \
                   sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* ---- pages ----------------------------------------------------------------------------------- */

START_TEST(a_page_for_every_32_positions)
{
    for (uint32_t n = 0; n <= CONTEXT; n++) {
        ck_assert(slot_reserve(&slots[0], &prefix, n));
        ck_assert_uint_eq(slots[0].n_pages, (n + 31) / 32);
        ck_assert_uint_eq(pool.n_free, PAGES - slots[0].n_pages);
    }
    ck_assert(slot_reserve(&slots[0], &prefix, 1)); /* never gives any back */
    ck_assert_uint_eq(slots[0].n_pages, 7);
}
END_TEST

START_TEST(an_empty_pool_leaves_what_was_taken)
{
    ck_assert(slot_reserve(&slots[0], &prefix, 200));
    ck_assert(slot_reserve(&slots[1], &prefix, 200));
    ck_assert(!slot_reserve(&slots[2], &prefix, 200));
    ck_assert_uint_eq(slots[2].n_pages, PAGES - 14);
    ck_assert_uint_eq(pool.n_free, 0);
    slot_evict(&slots[0], &prefix);
    ck_assert(slot_reserve(&slots[2], &prefix, 200));
}
END_TEST

START_TEST(trim_keeps_what_is_canonical)
{
    for (uint32_t canonical = 0; canonical < CONTEXT; canonical += 7) {
        ck_assert(slot_reserve(&slots[0], &prefix, CONTEXT));
        slots[0].spec = (struct spec){.accepted = CONTEXT, .canonical = canonical};
        slot_trim(&slots[0], &prefix);
        ck_assert_uint_eq(slots[0].n_pages, (canonical + 31) / 32);
    }
}
END_TEST

START_TEST(evict_takes_pages_and_leaves_tokens)
{
    ck_assert(slot_reserve(&slots[0], &prefix, 100));
    slots[0].spec = (struct spec){.accepted = 100, .canonical = 99};
    slots[0].tokens[50] = 4711;
    slot_evict(&slots[0], &prefix);
    ck_assert_uint_eq(pool.n_free, PAGES);
    ck_assert_uint_eq(slots[0].spec.canonical, 0);
    ck_assert_uint_eq(slots[0].spec.accepted, 100);
    ck_assert_uint_eq(slots[0].tokens[50], 4711);
}
END_TEST

START_TEST(clear_leaves_nothing_of_the_owner)
{
    ck_assert(slot_reserve(&slots[0], &prefix, 100));
    slots[0].spec = (struct spec){.accepted = 100, .canonical = 99};
    slots[0].same = 100;
    for (uint32_t i = 0; i <= CONTEXT; i++)
        slots[0].tokens[i] = 4711;
    slots[0].name[0] = 'x';
    slot_clear(&slots[0], &prefix, CONTEXT);
    ck_assert_uint_eq(pool.n_free, PAGES);
    for (uint32_t i = 0; i <= CONTEXT; i++)
        ck_assert_uint_eq(slots[0].tokens[i], 0);
    ck_assert_uint_eq(slots[0].same, 0);
    ck_assert_uint_eq(slots[0].spec.accepted, 0);
    ck_assert_str_eq(slots[0].name, "");
}
END_TEST

START_TEST(clearing_a_running_slot_is_our_mistake)
{
    slots[0].state = SLOT_READY;
    slot_clear(&slots[0], &prefix, CONTEXT);
}
END_TEST

START_TEST(more_than_the_context_is_our_mistake)
{
    slot_reserve(&slots[0], &prefix, CONTEXT + 32);
}
END_TEST

/* ---- sharing --------------------------------------------------------------------------------- */

/* Slot i with `canonical` of 200 tokens that are the same for all slots up to `trunk`. */
static void make_canonical(uint32_t i, uint32_t trunk, uint32_t canonical)
{
    slots[i].uid = 1000;
    for (uint32_t k = 0; k < CONTEXT; k++)
        slots[i].tokens[k] = k < trunk ? k : 1000 * (i + 1) + k;
    slots[i].spec = (struct spec){.accepted = CONTEXT, .canonical = canonical};
    ck_assert(slot_reserve(&slots[i], &prefix, canonical));
}

START_TEST(whole_canonical_pages_are_published)
{
    for (uint32_t canonical = 0; canonical < CONTEXT; canonical += 13) {
        make_canonical(0, CONTEXT, canonical);
        slots[0].spec.drafted = 40; /* these are not canonical */
        slot_share(&slots[0], &prefix);
        ck_assert_uint_eq(slots[0].n_shared, canonical / 32);
        ck_assert_uint_eq(prefix.n_cached, canonical / 32);
    }
}
END_TEST

START_TEST(the_overflow_user_publishes_nothing)
{
    make_canonical(0, CONTEXT, 150);
    slots[0].uid = OVERFLOW_UID_USUAL;
    slot_share(&slots[0], &prefix);
    ck_assert_uint_eq(slots[0].n_shared + prefix.n_cached, 0);
    ck_assert_uint_eq(slot_adopt(&slots[0], &prefix), 0);
    ck_assert(!slot_fills_page(&slots[0]));
}
END_TEST

START_TEST(adopting_goes_as_far_as_the_tokens_agree)
{
    make_canonical(0, CONTEXT, 170);
    slot_share(&slots[0], &prefix);
    for (uint32_t trunk = 0; trunk <= CONTEXT; trunk += 9) {
        make_canonical(1, trunk, 20); /* a page of its own, in the way */
        uint32_t whole = trunk / 32 < 5 ? trunk / 32 : 5;
        uint32_t gained = slot_adopt(&slots[1], &prefix);
        ck_assert_uint_eq(gained, whole ? whole * 32 - 20 : 0);
        ck_assert_uint_eq(slots[1].n_pages, whole ? whole : 1);
        ck_assert_mem_eq(slots[1].pages, slots[0].pages, whole * sizeof(uint32_t));
        slot_evict(&slots[1], &prefix);
    }
    ck_assert_uint_eq(prefix_spare(&prefix), PAGES - slots[0].n_pages);
}
END_TEST

START_TEST(two_that_computed_the_same_keep_one_copy)
{
    make_canonical(0, 100, 150);
    make_canonical(1, 100, 150);
    slot_share(&slots[0], &prefix);
    ck_assert(!slot_same_page(&slots[0], &slots[1]));
    slot_share(&slots[1], &prefix);
    ck_assert_mem_eq(slots[0].pages, slots[1].pages, 3 * sizeof(uint32_t));
    ck_assert_uint_ne(slots[0].pages[3], slots[1].pages[3]);
    ck_assert_uint_eq(pool.n_free, PAGES - 7);
    slot_clear(&slots[0], &prefix, CONTEXT);
    slot_clear(&slots[1], &prefix, CONTEXT); /* what was shared stays, idle */
    ck_assert_uint_eq(prefix.n_idle, 5);
    ck_assert_uint_eq(prefix_spare(&prefix), PAGES);
}
END_TEST

/* Before the next row: a page that others hold is left to them, one held alone becomes its own. */
START_TEST(the_next_row_goes_to_a_page_of_its_own)
{
    make_canonical(0, CONTEXT, 150);
    make_canonical(1, CONTEXT, 80);
    slot_share(&slots[0], &prefix);
    slot_share(&slots[1], &prefix); /* holds the first two as well */
    slots[0].spec.canonical = 77;
    slot_trim(&slots[0], &prefix);
    ck_assert_uint_eq(slots[0].spec.canonical, 77);
    ck_assert_uint_eq(slots[0].n_shared, 2);
    ck_assert_uint_eq(slots[0].n_pages, 3);
    slots[0].spec.canonical = 50;
    slot_trim(&slots[0], &prefix);
    ck_assert_uint_eq(slots[0].spec.canonical, 32);
    ck_assert_uint_eq(slots[0].n_shared, 1);
    ck_assert_uint_eq(slots[0].n_pages, 1);
    ck_assert_uint_eq(prefix.n_cached, 2);
}
END_TEST

/* ---- eviction -------------------------------------------------------------------------------- */

START_TEST(eviction_skips_slots_without_pages)
{
    slots[0].state = SLOT_READY;
    ck_assert_ptr_null(slot_victim(slots, SLOTS, &slots[0]));
}
END_TEST

START_TEST(idle_slots_first_the_longest_unused_before)
{
    make_active(0, 50, false);
    make_idle(1, 30);
    make_idle(2, 10);
    make_idle(3, 20);
    make_active(4, 60, false);
    EXPECT_VICTIMS(0, 2, 3, 1, 4);
}
END_TEST

START_TEST(then_paused_then_batch_then_newer_interactive)
{
    make_active(0, 10, false);
    make_active(1, 20, false);
    make_active(2, 30, false);
    make_active(3, 5, true);
    make_active(4, 6, true);
    make_active(5, 15, false);
    slots[5].state = SLOT_PAUSED;
    EXPECT_VICTIMS(0, 5, 4, 3, 2, 1);
}
END_TEST

START_TEST(an_older_interactive_request_never_gives_way)
{
    make_active(0, 10, false);
    make_active(1, 20, false);
    make_active(2, 30, false);
    EXPECT_VICTIMS(1, 2);
}
END_TEST

START_TEST(batch_evicts_newer_batch_and_no_interactive_request)
{
    make_active(0, 10, true);
    make_active(1, 20, true);
    make_active(2, 30, false);
    make_active(3, 40, false);
    make_active(4, 5, true);
    make_idle(5, 1);
    EXPECT_VICTIMS(0, 5, 1);
}
END_TEST

START_TEST(eviction_skips_slots_of_the_pass)
{
    make_active(0, 10, false);
    make_active(1, 20, false);
    make_active(2, 30, true);
    slots[1].state = slots[2].state = SLOT_PLANNED;
    ck_assert_ptr_null(slot_victim(slots, SLOTS, &slots[0]));
}
END_TEST

START_TEST(a_paused_request_gives_way_the_oldest_too)
{
    make_active(0, 10, false);
    slots[0].state = SLOT_PAUSED;
    make_active(1, 20, true);
    make_active(2, 30, false);
    EXPECT_VICTIMS(1, 0);
    make_active(0, 10, false);
    slots[0].state = SLOT_READY;
    ck_assert_ptr_null(slot_victim(slots, SLOTS, &slots[1]));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slot");
    TCase *t = tcase_create("slot");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_page_for_every_32_positions);
    tcase_add_test(t, an_empty_pool_leaves_what_was_taken);
    tcase_add_test(t, trim_keeps_what_is_canonical);
    tcase_add_test(t, evict_takes_pages_and_leaves_tokens);
    tcase_add_test(t, clear_leaves_nothing_of_the_owner);
    tcase_add_test_raise_signal(t, clearing_a_running_slot_is_our_mistake, SIGABRT);
    tcase_add_test_raise_signal(t, more_than_the_context_is_our_mistake, SIGABRT);
    tcase_add_test(t, whole_canonical_pages_are_published);
    tcase_add_test(t, the_overflow_user_publishes_nothing);
    tcase_add_test(t, adopting_goes_as_far_as_the_tokens_agree);
    tcase_add_test(t, two_that_computed_the_same_keep_one_copy);
    tcase_add_test(t, the_next_row_goes_to_a_page_of_its_own);
    tcase_add_test(t, eviction_skips_slots_without_pages);
    tcase_add_test(t, idle_slots_first_the_longest_unused_before);
    tcase_add_test(t, then_paused_then_batch_then_newer_interactive);
    tcase_add_test(t, an_older_interactive_request_never_gives_way);
    tcase_add_test(t, batch_evicts_newer_batch_and_no_interactive_request);
    tcase_add_test(t, eviction_skips_slots_of_the_pass);
    tcase_add_test(t, a_paused_request_gives_way_the_oldest_too);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
