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
    ck_assert(slot_reserve(&slots[i], &prefix, 0, 40));
}

static void make_idle(uint32_t i, uint64_t serial)
{
    slots[i].serial = serial;
    ck_assert(slot_reserve(&slots[i], &prefix, 0, 40));
}

/* All slots that are evicted for `needy`, in this order; then none. */
static void expect_victims(uint32_t needy, const uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct slot *victim = slot_victim(slots, SLOTS, &prefix, &slots[needy]);
        ck_assert_ptr_nonnull(victim);
        ck_assert_msg(victim == &slots[order[i]], "victim %u is slot %td, not %u", i,
                      victim - slots, order[i]);
        slot_evict(victim, &prefix);
    }
    ck_assert_ptr_null(slot_victim(slots, SLOTS, &prefix, &slots[needy]));
}

#define EXPECT_VICTIMS(needy, ...)                                                                 \
    expect_victims(needy, (const uint32_t[]){__VA_ARGS__},                                         \
                   sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* ---- pages ----------------------------------------------------------------------------------- */

START_TEST(a_page_for_every_32_positions)
{
    for (uint32_t n = 0; n <= CONTEXT; n++) {
        ck_assert(slot_reserve(&slots[0], &prefix, 0, n));
        ck_assert_uint_eq(slots[0].n_pages, (n + 31) / 32);
        ck_assert_uint_eq(pool.n_free, PAGES - slots[0].n_pages);
    }
    ck_assert(slot_reserve(&slots[0], &prefix, 0, 1)); /* never gives any back */
    ck_assert_uint_eq(slots[0].n_pages, 7);
}
END_TEST

START_TEST(an_empty_pool_leaves_what_was_taken)
{
    ck_assert(slot_reserve(&slots[0], &prefix, 0, 200));
    ck_assert(slot_reserve(&slots[1], &prefix, 0, 200));
    ck_assert(!slot_reserve(&slots[2], &prefix, 0, 200));
    ck_assert_uint_eq(slots[2].n_pages, PAGES - 14);
    ck_assert_uint_eq(pool.n_free, 0);
    slot_evict(&slots[0], &prefix);
    ck_assert(slot_reserve(&slots[2], &prefix, 0, 200));
}
END_TEST

START_TEST(trim_keeps_what_is_canonical)
{
    for (uint32_t canonical = 0; canonical < CONTEXT; canonical += 7) {
        ck_assert(slot_reserve(&slots[0], &prefix, 0, CONTEXT));
        slots[0].spec = (struct spec){.accepted = CONTEXT, .canonical = canonical};
        slot_trim(&slots[0], &prefix);
        ck_assert_uint_eq(slots[0].n_pages, (canonical + 31) / 32);
    }
}
END_TEST

START_TEST(evict_takes_pages_and_leaves_tokens)
{
    ck_assert(slot_reserve(&slots[0], &prefix, 0, 100));
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
    ck_assert(slot_reserve(&slots[0], &prefix, 0, 100));
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
    slot_reserve(&slots[0], &prefix, 0, CONTEXT + 32);
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
    ck_assert(slot_reserve(&slots[i], &prefix, 0, canonical));
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
    ck_assert_uint_eq(prefix.idle.n, 5);
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
    ck_assert_ptr_null(slot_victim(slots, SLOTS, &prefix, &slots[0]));
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

/* One user's many slots give way to its own and to others, down to what the others have. */
START_TEST(idle_slots_of_the_user_with_the_most_give_way)
{
    make_active(0, 50, false);
    for (uint32_t i = 1; i < 6; i++)
        make_idle(i, 10 * i);
    slots[1].uid = 7; /* the longest unused, and all that this user has */
    for (uint32_t i = 2; i < 6; i++)
        slots[i].uid = 8;
    EXPECT_VICTIMS(0, 2, 3, 4, 1, 5);
    make_idle(1, 10);
    make_idle(2, 20);
    slots[2].uid = 8;
    slots[0].uid = 8; /* what `needy` has itself does not count */
    EXPECT_VICTIMS(0, 1, 2);
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
    ck_assert_ptr_null(slot_victim(slots, SLOTS, &prefix, &slots[0]));
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
    ck_assert_ptr_null(slot_victim(slots, SLOTS, &prefix, &slots[1]));
}
END_TEST

/* ---- window pages ---------------------------------------------------------------------------- */

enum { WINDOW = 64, STEP = 32, LONG = 640, LONG_PAGES = LONG / 32 };

static struct pages windows;
static struct slot text, other;

static void setup_windows(void)
{
    ck_assert_int_eq(pages_init(&pool, 4 * LONG_PAGES), 0);
    ck_assert_int_eq(prefix_init(&prefix, &pool, "", 0), 0);
    prefix.windows = &windows;
    prefix.window = WINDOW;
    ck_assert_int_eq(slot_init(&text, LONG), 0);
    ck_assert_int_eq(slot_init(&other, LONG), 0);
    for (uint32_t i = 0; i < LONG; i++)
        text.tokens[i] = other.tokens[i] = i * 7;
    text.uid = other.uid = 1000;
}

static void teardown_windows(void)
{
    slot_evict(&text, &prefix);
    slot_evict(&other, &prefix);
    ck_assert_uint_eq(prefix_spare(&prefix), pool.total);
    ck_assert_uint_eq(prefix_spare_windows(&prefix), windows.total);
    slot_fini(&text, LONG);
    slot_fini(&other, LONG);
    prefix_fini(&prefix);
    pages_fini(&pool);
    pages_fini(&windows);
}

/* Computes the slot's tokens up to `to`, STEP at a time. */
static void compute(struct slot *slot, uint32_t to)
{
    while (slot->spec.canonical < to) {
        uint32_t from = slot->spec.canonical, n = to - from < STEP ? to - from : STEP;
        slot->spec.accepted = from + n + 1;
        ck_assert(slot_reserve(slot, &prefix, from, from + n));
        ck_assert_uint_le(slot->n_pages - slot->window_from, kv_pages(WINDOW + STEP) + 1);
        spec_prefilled(&slot->spec, n);
        slot_share(slot, &prefix);
    }
}

/* A new request keeps `kept` of the `n` tokens. */
static void begin(struct slot *slot, uint32_t n, uint32_t kept)
{
    slot->tokens[kept] += 1 << 20; /* goes on with other tokens */
    spec_begin(&slot->spec, n, kept);
    slot_adopt(slot, &prefix);
    slot_trim(slot, &prefix);
}

/* Takes `n` window pages for nothing, and gives them back. */
static void reclaim(uint32_t n)
{
    uint32_t ids[4 * LONG_PAGES];

    for (uint32_t i = 0; i < n; i++)
        ids[i] = prefix_take_window(&prefix);
    while (n > 0)
        pages_return(&windows, ids[--n]);
}

static bool found(const struct slot *slot, uint32_t i)
{
    return prefix.pages[slot->pages[i]].window != PAGE_NONE;
}

START_TEST(a_long_text_takes_its_window_and_the_rows_of_a_pass)
{
    const uint32_t few = kv_pages(WINDOW + STEP) + 1;

    ck_assert_int_eq(pages_init(&windows, few), 0);
    compute(&text, LONG - 1);
    ck_assert_uint_eq(text.n_pages, LONG_PAGES);
    ck_assert_uint_eq(text.n_shared, LONG_PAGES - 1);
    ck_assert_uint_le(windows.total - prefix_spare_windows(&prefix), few);
    /* The tip is warm, and 32 back; the beginning lost its window pages, the leftmost first. */
    ck_assert(!found(&text, 0) && found(&text, LONG_PAGES - 2));
}
END_TEST

START_TEST(what_a_text_went_past_is_reclaimed_first_the_leftmost_first)
{
    uint32_t ids[LONG_PAGES + 2], n = 0, passed;

    ck_assert_int_eq(pages_init(&windows, LONG_PAGES + 2), 0);
    compute(&other, 64); /* rests longer than any page of the other text is passed */
    slot_evict(&other, &prefix);
    for (uint32_t i = 0; i < LONG; i++)
        text.tokens[i] = i * 9;
    compute(&text, LONG);
    passed = prefix.passed.n;
    ck_assert_uint_eq(passed, text.window_from);
    ck_assert_uint_eq(windows.n_free, 0);
    for (; n < passed; n++) {
        ck_assert(found(&text, n));
        ids[n] = prefix_take_window(&prefix);
        ck_assert(!found(&text, n) && found(&text, n + 1));
        ck_assert_uint_eq(prefix.resting.n, 2);
    }
    ids[n++] = prefix_take_window(&prefix);
    ids[n++] = prefix_take_window(&prefix);
    ck_assert_uint_eq(prefix.resting.n, 0);
    ck_assert_uint_eq(prefix_take_window(&prefix), PAGE_NONE); /* the others are read */
    while (n > 0)
        pages_return(&windows, ids[--n]);
}
END_TEST

/* Back to a place whose window is there still: nothing is lost. */
START_TEST(a_text_goes_back_to_any_warm_place)
{
    const uint32_t kept = LONG - 40 - 37 * (uint32_t)_i, page = kept / 32;
    /* a page that more than eight follow is left to them */
    const uint32_t at = LONG_PAGES - 2 - page > 8 ? page * 32 : kept;
    ck_assert_int_eq(pages_init(&windows, LONG_PAGES), 0);
    compute(&text, LONG - 1);
    begin(&text, kept + 3, kept);
    ck_assert_uint_eq(text.spec.canonical, at);
    ck_assert_uint_le(text.window_from, kv_window_begin(WINDOW, at));
}
END_TEST

/* Back to a place whose window is not: to the last warm one before it. */
START_TEST(a_text_goes_back_to_the_last_warm_place)
{
    static const struct {
        uint32_t lost, kept, warm; /* window pages, positions */
    } cases[] = {{6, 400, 400}, {6, 255, 255}, {7, 255, 0},
                 {1, 90, 0},    {1, 96, 96},   {10, 384, 384}};
    const uint32_t kept = cases[_i].kept;

    ck_assert_int_eq(pages_init(&windows, LONG_PAGES), 0);
    compute(&text, LONG - 1);
    reclaim(windows.n_free + cases[_i].lost);
    begin(&text, kept + 3, kept);
    ck_assert_uint_eq(text.spec.canonical, cases[_i].warm);
    compute(&text, kept); /* what is computed again gives the cache its window pages */
    for (uint32_t k = kv_window_begin(WINDOW, kept); k < text.n_shared; k++)
        ck_assert(found(&text, k));
}
END_TEST

/* A page that another slot holds, too, is not written into: the slot goes back to its begin, whose
 * window reaches further. */
START_TEST(a_shared_page_is_left_for_a_warm_place)
{
    ck_assert_int_eq(pages_init(&windows, 2 * LONG_PAGES), 0);
    compute(&text, LONG - 1);
    other.spec = (struct spec){.accepted = LONG};
    ck_assert_uint_eq(slot_adopt(&other, &prefix), LONG - 32);
    reclaim(windows.n_free + 12); /* pages 0 to 11 */
    begin(&text, 450, 447);       /* sees pages 12 and 13; from 416 on it would see 11 */
    ck_assert_uint_eq(text.spec.canonical, 0);
    ck_assert_uint_eq(text.n_pages, 0);
}
END_TEST

/* Another slot takes over a text up to where it is warm, though the beginning is not. */
START_TEST(a_text_is_adopted_where_it_is_warm)
{
    ck_assert_int_eq(pages_init(&windows, 2 * LONG_PAGES), 0);
    compute(&text, LONG - 1);
    reclaim(windows.n_free + 8); /* pages 0 to 7 */
    other.spec = (struct spec){.accepted = 300};
    ck_assert_uint_eq(slot_adopt(&other, &prefix), 0); /* warm from page 10 on: 32 * 10 > 300 */
    ck_assert_uint_eq(other.n_pages, 0);
    other.spec = (struct spec){.accepted = 340};
    ck_assert_uint_eq(slot_adopt(&other, &prefix), 320);
    ck_assert_uint_eq(other.window_from, 8);
    ck_assert_uint_eq(other.n_shared, 10);
    ck_assert_uint_eq(prefix.pages[other.pages[8]].readers, 1);
    slot_evict(&text, &prefix); /* the window pages that `other` reads stay */
    reclaim(windows.n_free + prefix.passed.n + prefix.resting.n);
    ck_assert(found(&other, 8) && found(&other, 9));
}
END_TEST

/* A user whose idle slots hold the most window pages gives them, not the one that has a text in the cache. */
START_TEST(window_pages_of_the_user_with_the_most_give_way)
{
    enum { MANY = 3 };
    static struct slot many[MANY];
    struct slots all = {.all = many, .n = MANY};
    uint32_t evicted;

    ck_assert_int_eq(pages_init(&windows, 2 + 2 * MANY), 0);
    all.kv.prefix = prefix;
    for (uint32_t i = 0; i < MANY; i++) {
        ck_assert_int_eq(slot_init(&many[i], LONG), 0);
        many[i].uid = 2000;
        many[i].tokens[0] = 100 + i;
    }
    struct slot *const user[] = {&text, &many[0], &many[1], &many[2]};
    for (uint32_t k = 0; k < 4; k++) {
        user[k]->spec.accepted = WINDOW + 1;
        ck_assert(slot_reserve(user[k], &all.kv.prefix, 0, WINDOW));
        spec_prefilled(&user[k]->spec, WINDOW);
        slot_share(user[k], &all.kv.prefix);
    }
    const uint32_t last = text.pages[1], first = text.pages[0];
    slot_evict(&text, &all.kv.prefix);
    ck_assert_uint_eq(windows.n_free, 0);
    uint32_t taken = slots_take_window(&all, &other, &evicted);
    ck_assert_uint_ne(taken, PAGE_NONE);
    ck_assert_uint_gt(evicted, 0);
    ck_assert(all.kv.prefix.pages[first].window != PAGE_NONE);
    ck_assert(all.kv.prefix.pages[last].window != PAGE_NONE);
    pages_return(&windows, taken);
    for (uint32_t i = 0; i < MANY; i++) {
        slot_evict(&many[i], &all.kv.prefix);
        slot_fini(&many[i], LONG);
    }
    prefix = all.kv.prefix;
}
END_TEST

/* Where idle slots have all window pages, and the cache has none to give, they give them: those of
 * any user. */
START_TEST(idle_slots_give_window_pages_where_the_cache_has_none)
{
    struct slots all = {.all = &text, .n = 1};
    uint32_t evicted;

    ck_assert_int_eq(pages_init(&windows, 2), 0);
    all.kv.prefix = prefix;
    text.uid = (uid_t)_i;
    text.spec.accepted = WINDOW + 1;
    ck_assert(slot_reserve(&text, &all.kv.prefix, 0, WINDOW));
    spec_prefilled(&text.spec, WINDOW);
    slot_share(&text, &all.kv.prefix);
    ck_assert_uint_eq(windows.n_free + all.kv.prefix.passed.n + all.kv.prefix.resting.n, 0);
    const uint32_t taken = slots_take_window(&all, &other, &evicted);
    ck_assert_uint_ne(taken, PAGE_NONE);
    ck_assert_uint_eq(evicted, 2);
    pages_return(&windows, taken);
    prefix = all.kv.prefix;
}
END_TEST

/* ---- recurrent states ------------------------------------------------------------------------ */

enum { STATES = 8 };

static struct pages states;
static struct slots two; /* two.all[0], two.all[1]: the same text */

static void setup_states(void)
{
    ck_assert_int_eq(pages_init(&pool, 200), 0);
    ck_assert_int_eq(pages_init(&states, STATES), 0);
    ck_assert_int_eq(prefix_init(&prefix, &pool, "", 0), 0);
    prefix.states = &states;
    ck_assert_int_eq(slots_init(&two, 2, 3 * POINTS_EVERY, true), 0);
    for (uint32_t i = 0; i < 3 * POINTS_EVERY; i++)
        two.all[0].tokens[i] = two.all[1].tokens[i] = i * 7;
    two.all[0].uid = two.all[1].uid = 1000;
}

static void teardown_states(void)
{
    for (uint32_t i = 0; i < two.n; i++)
        slot_evict(&two.all[i], &prefix);
    ck_assert_uint_eq(states.n_free + prefix.points.n, STATES);
    slots_fini(&two);
    prefix_fini(&prefix);
    pages_fini(&pool);
    pages_fini(&states);
}

/* One pass of `n` rows, which keeps what the slot would. */
static void run_states(struct slot *slot, uint32_t n)
{
    uint32_t from = slot->spec.canonical, points[BACKEND_STATE_KEEPS];

    ck_assert(slot_reserve(slot, &prefix, from, from + n) && slots_own_state(&two, &prefix, slot));
    uint32_t n_points = slot_points(slot, from, from + spec_commit(&slot->spec, n), points);
    slot_settle(slot, &prefix, n, n);
    slot_share(slot, &prefix);
    for (uint32_t i = 0; i < n_points; i++)
        slot_keep(slot, &prefix, points[i], slots_take_state(&two, &prefix));
}

/* A request of `n` tokens, of which `common` are as before, up to its last one. Returns how many of
 * them were warm. */
static uint32_t request(struct slot *slot, uint32_t n, uint32_t common)
{
    uint32_t before = slot->spec.accepted, warm;

    for (uint32_t i = common; i < n; i++)
        slot->tokens[i] += 1 << 20;
    spec_begin(&slot->spec, n, common < slot->spec.canonical ? common : slot->spec.canonical);
    slot_adopt(slot, &prefix);
    slot_trim(slot, &prefix);
    slot_branch(slot, &prefix, n, common, before);
    warm = slot->spec.canonical;
    run_states(slot, spec_rows(&slot->spec));
    ck_assert_uint_eq(slot->spec.canonical, n - 1);
    ck_assert_uint_eq(slot->begins, PAGE_NONE);
    return warm;
}

static bool has_point(const struct slot *slot, uint32_t at)
{
    return prefix.pages[slot->pages[at / KV_PAGE_POSITIONS - 1]].point != PAGE_NONE;
}

/* What is typed at the end of a text, or goes back a little, begins near where it leaves the old
 * one. */
START_TEST(a_text_begins_at_its_last_restart_point)
{
    struct slot *slot = &two.all[0];

    ck_assert_uint_eq(request(slot, 300, 300), 0);
    ck_assert(has_point(slot, 288));
    ck_assert_uint_eq(request(slot, 310, 300), 299); /* goes on from its own state */
    ck_assert_uint_eq(slot->points[0], 288);
    ck_assert_uint_eq(request(slot, 330, 300), 288); /* leaves 301 .. 310 */
    ck_assert(has_point(slot, 320));
    ck_assert_uint_eq(request(slot, 330, 325), 320);
    ck_assert_uint_eq(request(slot, 330, 319), 288);
    ck_assert_uint_eq(request(slot, 330, 287), 0);
    ck_assert(has_point(slot, 256));
    ck_assert_uint_eq(request(slot, 30, 30), 0); /* shorter, and nothing changed */
}
END_TEST

/* Rows that a passed-on state has records of are not computed again. */
START_TEST(a_shorter_text_goes_on_from_the_records)
{
    struct slot *slot = &two.all[0];
    uint32_t next = 5;

    request(slot, 300, 300);
    spec_accept(&slot->spec, slot->tokens, next);
    for (uint32_t i = 0; i < 3; i++)
        spec_draft(&slot->spec, slot->tokens, next);
    run_states(slot, 4);
    while (spec_accept(&slot->spec, slot->tokens, next))
        continue;
    ck_assert_uint_eq(slot->spec.canonical, 304);
    ck_assert_uint_eq(request(slot, 303, 302), 302);
    ck_assert_uint_eq(slot->spec.base, 302);
    ck_assert_uint_eq(request(slot, 303, 301), 288); /* before the base */
}
END_TEST

START_TEST(another_slot_begins_at_restart_points_only)
{
    struct slot *slot = &two.all[0], *second = &two.all[1];

    request(slot, 300, 300);
    memcpy(second->tokens, slot->tokens, 300 * sizeof(*slot->tokens));
    second->spec = (struct spec){.accepted = 288};
    ck_assert_uint_eq(slot_adopt(second, &prefix), 0); /* its last row is the point's */
    second->spec = (struct spec){.accepted = 289};
    ck_assert_uint_eq(slot_adopt(second, &prefix), 288);
    ck_assert_uint_eq(second->spec.base, 288);
    ck_assert_uint_eq(second->begins, slot->pages[8]);
    ck_assert_uint_eq((uint32_t)slot_from(second, &prefix), prefix.pages[slot->pages[8]].point);
    ck_assert_uint_eq(second->own, PAGE_NONE);
    run_states(second, 1);
    ck_assert_uint_eq((uint32_t)slot_from(second, &prefix), second->own);
}
END_TEST

/* A poisoned row that is committed: its own state is lost, not the restart point. */
START_TEST(a_poisoned_state_goes_back_to_its_restart_point)
{
    struct slot *slot = &two.all[0];

    request(slot, 300, 300);
    slot->spec.accepted = 320;
    ck_assert(slot_reserve(slot, &prefix, 299, 320));
    slot_settle(slot, &prefix, 21, 5);
    ck_assert(!spec_has_state(&slot->spec));
    slot_share(slot, &prefix);
    slot_trim(slot, &prefix);
    ck_assert_uint_eq(slot->spec.canonical, 288);
    ck_assert_uint_eq(slot->spec.base, 288);
    ck_assert_uint_eq(slot->begins, slot->pages[8]);
}
END_TEST

START_TEST(idle_states_give_way_before_restart_points)
{
    uint32_t taken[STATES], n = 0, own;

    request(&two.all[0], 100, 100);
    own = two.all[0].own;
    two.all[0].serial = 2;
    two.all[1].tokens[0]++;
    request(&two.all[1], 100, 100);
    two.all[1].serial = 3;
    while (states.n_free > 0)
        taken[n++] = slots_take_state(&two, &prefix);
    taken[n++] = slots_take_state(&two, &prefix);
    ck_assert_uint_eq(taken[n - 1], own);
    ck_assert(!spec_has_state(&two.all[0].spec)); /* and its pages stay */
    ck_assert_uint_eq(two.all[0].n_pages, 4);
    two.all[1].state = SLOT_READY;
    uint32_t points = prefix.points.n;
    ck_assert_uint_eq(points, 2);
    taken[n++] = slots_take_state(&two, &prefix);
    ck_assert_uint_eq(prefix.points.n, points - 1);
    taken[n++] = slots_take_state(&two, &prefix);
    ck_assert_uint_eq(slots_take_state(&two, &prefix), PAGE_NONE);
    two.all[1].state = SLOT_IDLE;
    while (n > 0)
        pages_return(&states, taken[--n]);
    ck_assert_uint_eq(request(&two.all[0], 100, 100), 0); /* it knows */
}
END_TEST

/* Two users of three slots: the one with two states loses the one that it used less recently, the other one keeps its own. */
START_TEST(an_idle_state_of_the_user_with_the_most_gives_way)
{
    static struct slot three[3];
    struct slots of_users = {.all = three, .n = 3};
    uint32_t own[3];
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(slot_init(&three[i], CONTEXT), 0);
        three[i].own = own[i] = pages_take(&states);
        three[i].serial = 10 + i;
        three[i].uid = i == 0 ? 7 : 8;
    }
    while (states.n_free > 0)
        pages_take(&states);
    ck_assert_uint_eq(slots_take_state(&of_users, &prefix), own[1]);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(three[i].own, i == 1 ? PAGE_NONE : own[i]);
        three[i].own = PAGE_NONE;
        slot_fini(&three[i], CONTEXT);
    }
    for (uint32_t i = 0; i < STATES; i++)
        pages_return(&states, i);
}
END_TEST

/* A user with many restart points gives one of these, and another one keeps the state of its idle
 * slot. */
START_TEST(restart_points_of_the_user_with_the_most_give_way)
{
    struct slot *running = &two.all[0], *idle = &two.all[1];
    uint32_t taken[STATES], n = 0;

    idle->uid = 2000;
    request(idle, 100, 100);
    for (uint32_t i = 1; i <= 3; i++) /* each time another text */
        request(running, 100 + i, 0);
    running->state = SLOT_READY;
    ck_assert_uint_eq(prefix.points.of[1000 % PREFIX_USERS].n, 3);
    ck_assert_uint_eq(prefix.points.of[2000 % PREFIX_USERS].n, 1);
    while (states.n_free > 0)
        taken[n++] = slots_take_state(&two, &prefix);
    taken[n++] = slots_take_state(&two, &prefix); /* three to two */
    ck_assert_uint_eq(prefix.points.of[1000 % PREFIX_USERS].n, 2);
    ck_assert_uint_ne(idle->own, PAGE_NONE);
    taken[n++] = slots_take_state(&two, &prefix); /* two to two: idle slots first */
    ck_assert_uint_eq(idle->own, PAGE_NONE);
    running->state = SLOT_IDLE;
    while (n > 0)
        pages_return(&states, taken[--n]);
}
END_TEST

START_TEST(a_text_without_pages_has_no_state)
{
    request(&two.all[0], 100, 100);
    slot_evict(&two.all[0], &prefix);
    ck_assert_uint_eq(two.all[0].own, PAGE_NONE);
    ck_assert_int_eq(slot_from(&two.all[0], &prefix), BACKEND_STATE_ZERO);
    ck_assert_uint_eq(states.n_free, STATES - 1); /* its page in the cache has one */
}
END_TEST

/* A fifth one: of those that are as far from the one before, the one furthest back goes; never the
 * two of the last text that began anew, nor one that a slot begins from. */
START_TEST(a_text_has_four_restart_points)
{
    struct slot *slot = &two.all[0], *second = &two.all[1];

    for (uint32_t at = 32; at <= 192; at += 32) {
        slot->points[0] = at;
        slot->points[1] = at == 192 ? 64 : 0;
        slot->spec.accepted = at + 2;
        run_states(slot, at + 1 - slot->spec.canonical);
        second->spec.accepted = 33;
        if (_i == 1 && at == 32)
            ck_assert_uint_eq(slot_adopt(second, &prefix), 32);
        ck_assert_uint_eq(STATES - states.n_free - 1, at <= 128 ? at / 32 : 4);
        ck_assert(has_point(slot, 32) == (at <= 128 || _i == 1));
    }
    ck_assert(has_point(slot, 64) == (_i == 0) && has_point(slot, 96) == (_i == 1));
    ck_assert(has_point(slot, 128) == (_i == 0) && has_point(slot, 160) && has_point(slot, 192));
}
END_TEST

START_TEST(a_long_prefill_keeps_points_on_its_way)
{
    struct slot *slot = &two.all[0];
    uint32_t points[BACKEND_STATE_KEEPS];

    slot->points[0] = slot->meets = 64;
    ck_assert_uint_eq(slot_points(slot, 0, POINTS_EVERY - 1, points), 1);
    ck_assert_uint_eq(points[0], 64);
    ck_assert_uint_eq(slot_points(slot, 64, POINTS_EVERY, points), 1);
    ck_assert_uint_eq(points[0], POINTS_EVERY);
    ck_assert_uint_eq(slot_points(slot, POINTS_EVERY, POINTS_EVERY + 500, points), 0);
    slot->points[1] = 96;
    ck_assert_uint_eq(slot_points(slot, 0, POINTS_EVERY, points), 2);
    ck_assert_uint_eq(points[1], 96);
    slot->uid = OVERFLOW_UID_USUAL; /* who may be several users */
    ck_assert_uint_eq(slot_points(slot, 0, POINTS_EVERY, points), 0);
}
END_TEST

/* Where a slot could begin that follows another one: a page both texts have to the end, which that
 * one has not come to yet. */
START_TEST(slots_meet_where_their_texts_part)
{
    static const struct {
        uint32_t part, mine, its, canonical, meets;
    } cases[] = {{200, 300, 300, 0, 192}, {192, 300, 300, 0, 192},   {191, 300, 300, 0, 160},
                 {300, 200, 300, 0, 192}, {300, 193, 300, 0, 192},   {300, 192, 300, 0, 160},
                 {300, 300, 100, 0, 96},  {200, 300, 300, 191, 192}, {200, 300, 300, 192, 0},
                 {20, 300, 300, 0, 0}};
    struct slot *slot = &two.all[0], *leader = &two.all[1];

    slot->spec = (struct spec){.accepted = cases[_i].mine};
    leader->spec = (struct spec){.accepted = cases[_i].its};
    if (cases[_i].canonical)
        run_states(leader, cases[_i].canonical);
    slot->tokens[cases[_i].part]++;
    ck_assert_uint_eq(slot_meets(slot, leader), cases[_i].meets);
    slot->uid++;
    ck_assert_uint_eq(slot_meets(slot, leader), 0);
}
END_TEST

/* A text of which thousands of pages are in the cache, and no restart point, is looked for again in
 * each step: others do not wait for that. */
START_TEST(what_is_cached_and_not_warm_is_looked_at_within_a_budget)
{
    enum { N = 3 * POINTS_EVERY - 32, PAGES_OF_IT = N / KV_PAGE_POSITIONS };
    struct slot *first = &two.all[0], *slot = &two.all[1];
    int64_t look = 100;

    request(first, N + 1, N + 1);
    while (prefix.points.n > 0)
        pages_return(&states, prefix_take_point(&prefix));
    slot->spec = (struct spec){.accepted = N + 1};
    ck_assert_uint_eq(slot_adopt_within(slot, &prefix, &look), 0);
    ck_assert_int_eq(look,
                     100 - PAGES_OF_IT); /* not cut short: what it looks for may be the last */
    slot_keep(first, &prefix, N, slots_take_state(&two, &prefix));
    ck_assert_uint_eq(slot_adopt_within(slot, &prefix, &look), 0);
    ck_assert_int_eq(look, 100 - PAGES_OF_IT); /* nothing is looked at */
    look = 1;
    ck_assert_uint_eq(slot_adopt_within(slot, &prefix, &look), N);
    ck_assert_int_eq(look, 1); /* it was not in vain */
}
END_TEST

/* A step asks about every pair of slots: a user with many slots of one long text would have all of
 * it compared that many times, squared, in each step. */
START_TEST(what_texts_share_is_compared_once)
{
    struct slot *slot = &two.all[0], *leader = &two.all[1];

    slot->spec = leader->spec = (struct spec){.accepted = 300};
    ck_assert_uint_eq(slot_meets(slot, leader), 288);
    slot->tokens[70]++; /* nobody was told */
    ck_assert_uint_eq(slot_meets(slot, leader), 288);
    ck_assert_uint_eq(slot_meets(leader, slot), 288);
    slot->spec.accepted = leader->spec.accepted = 400; /* answers: what is new is compared */
    leader->tokens[380]++;
    ck_assert_uint_eq(slot_meets(slot, leader), 352);
    slot->spec.accepted = 200;
    ck_assert_uint_eq(slot_meets(slot, leader), 192);
    slot_branch(_i ? slot : leader, &prefix, 200, 110, 200);
    ck_assert_uint_eq(slot_meets(slot, leader), 192); /* told, of what comes after */
    slot_branch(_i ? slot : leader, &prefix, 200, 50, 200);
    ck_assert_uint_eq(slot_meets(slot, leader), 64);
    slot->tokens[0]++;
    ck_assert_uint_eq(slot_meets(slot, leader), 64);
    slot_clear(_i ? slot : leader, &prefix, 3 * POINTS_EVERY);
    slot->spec = leader->spec = (struct spec){.accepted = 200};
    leader->uid = slot->uid;
    ck_assert_uint_eq(slot_meets(slot, leader), 0);
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
    tcase_add_test(t, idle_slots_of_the_user_with_the_most_give_way);
    tcase_add_test(t, then_paused_then_batch_then_newer_interactive);
    tcase_add_test(t, an_older_interactive_request_never_gives_way);
    tcase_add_test(t, batch_evicts_newer_batch_and_no_interactive_request);
    tcase_add_test(t, eviction_skips_slots_of_the_pass);
    tcase_add_test(t, a_paused_request_gives_way_the_oldest_too);
    suite_add_tcase(suite, t);
    t = tcase_create("windows");
    tcase_add_checked_fixture(t, setup_windows, teardown_windows);
    tcase_add_test(t, a_long_text_takes_its_window_and_the_rows_of_a_pass);
    tcase_add_test(t, what_a_text_went_past_is_reclaimed_first_the_leftmost_first);
    tcase_add_loop_test(t, a_text_goes_back_to_any_warm_place, 0, 16);
    tcase_add_loop_test(t, a_text_goes_back_to_the_last_warm_place, 0, 6);
    tcase_add_test(t, a_shared_page_is_left_for_a_warm_place);
    tcase_add_test(t, a_text_is_adopted_where_it_is_warm);
    tcase_add_test(t, window_pages_of_the_user_with_the_most_give_way);
    tcase_add_loop_test(t, idle_slots_give_window_pages_where_the_cache_has_none, 0, 65);
    suite_add_tcase(suite, t);
    t = tcase_create("states");
    tcase_add_checked_fixture(t, setup_states, teardown_states);
    tcase_add_test(t, a_text_begins_at_its_last_restart_point);
    tcase_add_test(t, a_shorter_text_goes_on_from_the_records);
    tcase_add_test(t, another_slot_begins_at_restart_points_only);
    tcase_add_test(t, a_poisoned_state_goes_back_to_its_restart_point);
    tcase_add_test(t, idle_states_give_way_before_restart_points);
    tcase_add_test(t, an_idle_state_of_the_user_with_the_most_gives_way);
    tcase_add_test(t, restart_points_of_the_user_with_the_most_give_way);
    tcase_add_test(t, a_text_without_pages_has_no_state);
    tcase_add_loop_test(t, a_text_has_four_restart_points, 0, 2);
    tcase_add_test(t, a_long_prefill_keeps_points_on_its_way);
    tcase_add_loop_test(t, slots_meet_where_their_texts_part, 0, 10);
    tcase_add_test(t, what_is_cached_and_not_warm_is_looked_at_within_a_budget);
    tcase_add_loop_test(t, what_texts_share_is_compared_once, 0, 2);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
