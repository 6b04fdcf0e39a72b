/*
 * The prefix cache alone: pages are found by user, parent and tokens, whatever their hashes; they
 * are counted; idle ones go the oldest first and never before what follows them. A random test
 * compares it with a model that keeps whole sequences and searches them all.
 */
#include "daemon/overflow_uid.h"
#include "daemon/cache/prefix.h"
#include "tests/random.h"
#include "tests/run_suite.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { TOTAL = 40, ALICE = 1000, BOB = 1001, DEPTH = 6, TABLES = 5 };

static struct pages pool;
static struct prefix prefix;

static void setup(void)
{
    ck_assert_int_eq(pages_init(&pool, TOTAL), 0);
    ck_assert_int_eq(prefix_init(&prefix, &pool, "model", 5), 0);
}

static void teardown(void)
{
    prefix_fini(&prefix);
    pages_fini(&pool);
}

/* The tokens of page `i` of sequence `text`: sequences leave each other where their numbers do. */
static const uint32_t *text(uint32_t i)
{
    static uint32_t tokens[PREFIX_TOKENS];

    for (uint32_t k = 0; k < PREFIX_TOKENS; k++)
        tokens[k] = i * 1000 + k;
    return tokens;
}

static uint32_t publish(uid_t uid, uint32_t parent, uint32_t i)
{
    uint32_t page = prefix_take(&prefix);

    ck_assert_uint_ne(page, PAGE_NONE);
    return prefix_publish(&prefix, uid, parent, page, PAGE_NONE, text(i));
}

/* A chain of pages of texts from, from + 1, ... under `parent`, held. */
static void publish_chain(uid_t uid, uint32_t parent, uint32_t from, uint32_t n, uint32_t *ret)
{
    for (uint32_t i = 0; i < n; i++)
        parent = ret[i] = publish(uid, parent, from + i);
}

static void release_chain(const uint32_t *pages, uint32_t n)
{
    while (n > 0)
        prefix_release(&prefix, pages[--n]);
}

START_TEST(too_large_a_table_is_refused)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("skip: sanitizers take more memory than the limit\n");
#else
    const struct rlimit little = {.rlim_cur = 1u << 29, .rlim_max = 1u << 29};
    const struct pages many = {.total = 1u << 28};
    struct prefix refused;

    ck_assert_int_eq(setrlimit(RLIMIT_AS, &little), 0);
    ck_assert_int_eq(prefix_init(&refused, (struct pages *)(uintptr_t)&many, "model", 5), -ENOMEM);
    prefix_fini(&refused);
#endif
}
END_TEST

/* ---- finding --------------------------------------------------------------------------------- */

START_TEST(a_page_is_found_by_its_whole_prefix)
{
    uint32_t chain[3];

    publish_chain(ALICE, PAGE_NONE, 1, 3, chain);
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, PAGE_NONE, text(1)), chain[0]);
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, chain[0], text(2)), chain[1]);
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, chain[1], text(3)), chain[2]);
    /* The same tokens elsewhere are another page. */
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, PAGE_NONE, text(2)), PAGE_NONE);
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, chain[1], text(2)), PAGE_NONE);
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, chain[0], text(3)), PAGE_NONE);
}
END_TEST

START_TEST(every_single_token_counts)
{
    uint32_t tokens[PREFIX_TOKENS], page = publish(ALICE, PAGE_NONE, 1);

    memcpy(tokens, text(1), sizeof(tokens));
    for (uint32_t k = 0; k < PREFIX_TOKENS; k++) {
        tokens[k] ^= 1;
        ck_assert_uint_eq(prefix_find(&prefix, ALICE, PAGE_NONE, tokens), PAGE_NONE);
        tokens[k] ^= 1;
    }
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, PAGE_NONE, tokens), page);
}
END_TEST

START_TEST(users_find_nothing_of_others)
{
    uint32_t page = publish(ALICE, PAGE_NONE, 1);

    ck_assert_uint_eq(prefix_find(&prefix, BOB, PAGE_NONE, text(1)), PAGE_NONE);
    ck_assert_uint_eq(prefix_find(&prefix, BOB, page, text(1)), PAGE_NONE);
    uint32_t bobs = publish(BOB, PAGE_NONE, 1);
    ck_assert_uint_ne(bobs, page);
    ck_assert_uint_eq(prefix_find(&prefix, BOB, PAGE_NONE, text(1)), bobs);
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, PAGE_NONE, text(1)), page);
}
END_TEST

START_TEST(the_overflow_user_does_not_share)
{
    ck_assert(!overflow_uid_shares(OVERFLOW_UID_USUAL));
    ck_assert(overflow_uid_shares(0));
    ck_assert_uint_eq(prefix_find(&prefix, OVERFLOW_UID_USUAL, PAGE_NONE, text(1)), PAGE_NONE);
}
END_TEST

START_TEST(publishing_for_the_overflow_user_is_our_mistake)
{
    publish(OVERFLOW_UID_USUAL, PAGE_NONE, 1);
}
END_TEST

START_TEST(publishing_after_a_page_that_is_not_held_is_our_mistake)
{
    uint32_t page = publish(ALICE, PAGE_NONE, 1);

    prefix_release(&prefix, page);
    publish(ALICE, page, 2);
}
END_TEST

/* Hashes of _i bits: from "all equal" on. */
START_TEST(equal_hashes_are_told_apart)
{
    uint32_t alice[8], bob[8], branch[8];

    prefix.hash_mask = ((uint64_t)1 << _i) - 1;
    publish_chain(ALICE, PAGE_NONE, 1, 8, alice);
    publish_chain(BOB, PAGE_NONE, 1, 8, bob);
    publish_chain(ALICE, alice[2], 20, 8, branch);
    for (uint32_t i = 0; i < 8; i++) {
        ck_assert_uint_eq(prefix_find(&prefix, ALICE, i ? alice[i - 1] : PAGE_NONE, text(1 + i)),
                          alice[i]);
        ck_assert_uint_eq(prefix_find(&prefix, BOB, i ? bob[i - 1] : PAGE_NONE, text(1 + i)),
                          bob[i]);
        ck_assert_uint_eq(prefix_find(&prefix, ALICE, i ? branch[i - 1] : alice[2], text(20 + i)),
                          branch[i]);
        ck_assert_uint_eq(prefix_find(&prefix, ALICE, alice[i], text(40)), PAGE_NONE);
        ck_assert_uint_eq(prefix_find(&prefix, BOB, alice[i], text(2 + i)), PAGE_NONE);
    }
    release_chain(branch, 8);
    release_chain(alice, 8);
    for (uint32_t i = 0; i < TOTAL - 8; i++) /* all but Bob's */
        ck_assert_uint_ne(prefix_take(&prefix), PAGE_NONE);
    ck_assert_uint_eq(prefix_take(&prefix), PAGE_NONE);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_uint_eq(prefix_find(&prefix, BOB, i ? bob[i - 1] : PAGE_NONE, text(1 + i)),
                          bob[i]);
}
END_TEST

static uint32_t longest_bucket(const struct prefix *p)
{
    uint32_t longest = 0;

    for (uint32_t b = 0; b < p->n_buckets; b++) {
        uint32_t n = 0;
        for (uint32_t id = p->buckets[b]; id != PAGE_NONE; id = p->pages[id].next_in_bucket)
            n++;
        longest = n > longest ? n : longest;
    }
    return longest;
}

/* A client tries texts in a daemon of its own, of the same model, and sends those whose pages fall
 * into one bucket there. */
START_TEST(texts_that_a_client_has_tried_fall_apart)
{
    enum { SENT = 16 };
    struct pages its_pool;
    struct prefix its;
    uint32_t sent = 0;

    ck_assert_int_eq(pages_init(&its_pool, TOTAL), 0);
    ck_assert_int_eq(prefix_init(&its, &its_pool, "model", 5), 0);
    for (uint32_t i = 0; sent < SENT; i++) {
        uint32_t page =
            prefix_publish(&its, ALICE, PAGE_NONE, prefix_take(&its), PAGE_NONE, text(i));
        if (its.buckets[0] == page) {
            publish(ALICE, PAGE_NONE, i);
            sent++;
        }
        ck_assert(prefix_withdraw(&its, page));
        pages_return(&its_pool, page);
    }
    ck_assert_uint_lt(longest_bucket(&prefix), SENT / 2);
    prefix_fini(&its);
    pages_fini(&its_pool);
}
END_TEST

/* ---- publishing ------------------------------------------------------------------------------ */

START_TEST(an_equal_page_takes_the_place_of_a_second_one)
{
    uint32_t first = publish(ALICE, PAGE_NONE, 1);
    uint32_t free_pages = pool.n_free;

    ck_assert_uint_eq(publish(ALICE, PAGE_NONE, 1), first);
    ck_assert_uint_eq(pool.n_free, free_pages);
    ck_assert_uint_eq(prefix.n_cached, 1);
    ck_assert_uint_eq(prefix.pages[first].held, 2);
    prefix_release(&prefix, first);
    ck_assert_uint_eq(prefix.idle.n, 0);
    prefix_release(&prefix, first);
    ck_assert_uint_eq(prefix.idle.n, 1);
    ck_assert_uint_eq(publish(ALICE, PAGE_NONE, 1), first); /* an idle one, too */
    ck_assert_uint_eq(prefix.idle.n, 0);
}
END_TEST

START_TEST(publishing_a_page_twice_is_our_mistake)
{
    uint32_t page = publish(ALICE, PAGE_NONE, 1);

    prefix_publish(&prefix, ALICE, PAGE_NONE, page, PAGE_NONE, text(2));
}
END_TEST

START_TEST(letting_go_once_too_often_is_our_mistake)
{
    uint32_t page = publish(ALICE, PAGE_NONE, 1);

    prefix_release(&prefix, page);
    prefix_release(&prefix, page);
}
END_TEST

START_TEST(holding_a_page_without_its_parent_is_our_mistake)
{
    uint32_t chain[2];

    publish_chain(ALICE, PAGE_NONE, 1, 2, chain);
    prefix_hold(&prefix, chain[1]);
}
END_TEST

/* ---- taking back ----------------------------------------------------------------------------- */

START_TEST(held_pages_are_never_handed_out)
{
    uint32_t chain[DEPTH];

    publish_chain(ALICE, PAGE_NONE, 1, DEPTH, chain);
    for (uint32_t i = 0; i < TOTAL - DEPTH; i++)
        ck_assert_uint_ne(prefix_take(&prefix), PAGE_NONE);
    ck_assert_uint_eq(prefix_spare(&prefix), 0);
    ck_assert_uint_eq(prefix_take(&prefix), PAGE_NONE);
    prefix_release(&prefix, chain[DEPTH - 1]);
    ck_assert_uint_eq(prefix_spare(&prefix), 1);
    ck_assert_uint_eq(prefix_take(&prefix), chain[DEPTH - 1]);
    ck_assert_uint_eq(prefix_take(&prefix), PAGE_NONE);
}
END_TEST

START_TEST(free_pages_go_before_cached_ones)
{
    uint32_t page = publish(ALICE, PAGE_NONE, 1);

    prefix_release(&prefix, page);
    for (uint32_t i = 0; i < TOTAL - 1; i++)
        ck_assert_uint_ne(prefix_take(&prefix), page);
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, PAGE_NONE, text(1)), page);
    ck_assert_uint_eq(prefix_take(&prefix), page);
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, PAGE_NONE, text(1)), PAGE_NONE);
}
END_TEST

START_TEST(the_least_recently_used_chain_goes_first_its_end_before_its_beginning)
{
    uint32_t a[3], b[3];

    publish_chain(ALICE, PAGE_NONE, 1, 3, a);
    publish_chain(ALICE, PAGE_NONE, 11, 3, b);
    release_chain(a, 3);
    release_chain(b, 3);
    prefix_hold(&prefix, a[0]); /* used once more: a[0] alone */
    prefix_release(&prefix, a[0]);
    while (pool.n_free)
        prefix_take(&prefix);
    static const uint32_t order[] = {2, 1, 5, 4, 3, 0};
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t at = order[i];
        ck_assert_uint_eq(prefix_take(&prefix), at < 3 ? a[at] : b[at - 3]);
    }
    ck_assert_uint_eq(prefix_take(&prefix), PAGE_NONE);
    ck_assert_uint_eq(prefix.n_cached, 0);
}
END_TEST

/* Whatever their numbers: these have the same rest (1). */
START_TEST(the_user_with_the_most_idle_pages_loses_one)
{
    const uid_t bob = _i ? ALICE + 3 * PREFIX_USERS : BOB;
    uint32_t alice[3], page;

    publish_chain(ALICE, PAGE_NONE, 1, 3, alice);
    release_chain(alice, 3);
    for (uint32_t i = 0; i < 3 * TOTAL; i++) /* whatever BOB asks for */
        prefix_release(&prefix, publish(bob, PAGE_NONE, 10 + i));
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(
            prefix_find(&prefix, ALICE, i > 0 ? alice[i - 1] : PAGE_NONE, text(1 + i)), alice[i]);
    ck_assert_uint_eq(prefix.idle.n, TOTAL);
    for (uint32_t i = 0; i < TOTAL - 3 - 3; i++) { /* until both have as many */
        page = prefix_take(&prefix);
        ck_assert(page != alice[0] && page != alice[1] && page != alice[2]);
    }
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_uint_ne(prefix_take(&prefix), PAGE_NONE);
    ck_assert_uint_eq(prefix_take(&prefix), PAGE_NONE);
}
END_TEST

START_TEST(an_evicted_page_leaves_no_tokens)
{
    static const struct prefix_page none;
    uint32_t page = publish(ALICE, PAGE_NONE, 1);

    prefix_release(&prefix, page);
    while (prefix_take(&prefix) != PAGE_NONE)
        continue;
    ck_assert_mem_eq(&prefix.pages[page], &none, sizeof(none));
}
END_TEST

/* ---- withdrawing ----------------------------------------------------------------------------- */

START_TEST(a_page_that_one_alone_holds_becomes_its_own_again)
{
    uint32_t chain[4], branch[3];

    publish_chain(ALICE, PAGE_NONE, 1, 4, chain);
    publish_chain(ALICE, chain[1], 20, 3, branch);
    release_chain(branch, 3);
    release_chain(chain + 2, 2);
    ck_assert(prefix_is_followed(&prefix, chain[1], 4) &&
              !prefix_is_followed(&prefix, chain[1], 5));
    ck_assert(prefix_is_followed(&prefix, chain[0], 5) &&
              !prefix_is_followed(&prefix, chain[0], 6));
    ck_assert(!prefix_is_followed(&prefix, chain[3], 0));
    ck_assert(prefix_is_followed(&prefix, branch[0], 1) &&
              !prefix_is_followed(&prefix, branch[0], 2));
    uint32_t free_pages = pool.n_free;
    ck_assert(prefix_withdraw(&prefix, chain[1]));
    ck_assert_uint_eq(pool.n_free, free_pages + 5); /* two after it, three of the branch */
    ck_assert_uint_eq(prefix.n_cached, 1);
    ck_assert_uint_eq(prefix.idle.n, 0);
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, chain[0], text(2)), PAGE_NONE);
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, PAGE_NONE, text(1)), chain[0]);
    pages_return(&pool, chain[1]);
    prefix_release(&prefix, chain[0]);
    ck_assert_uint_eq(prefix_spare(&prefix), TOTAL);
}
END_TEST

START_TEST(what_a_slot_left_gives_way_first)
{
    uint32_t old[3], chain[5], branch[2];

    publish_chain(ALICE, PAGE_NONE, 40, 3, old);
    release_chain(old, 3);
    publish_chain(ALICE, PAGE_NONE, 1, 5, chain);
    publish_chain(ALICE, chain[1], 20, 2, branch);
    release_chain(branch, 2);
    release_chain(chain, 5);
    prefix_give_first(&prefix, chain + 1, 4); /* but chain[1], which the branch follows */
    while (pool.n_free > 0)
        ck_assert_uint_ne(prefix_take(&prefix), PAGE_NONE);
    for (uint32_t i = 5; i-- > 2;)
        ck_assert_uint_eq(prefix_take(&prefix), chain[i]);
    for (uint32_t i = 3; i-- > 0;)
        ck_assert_uint_eq(prefix_take(&prefix), old[i]);
    for (uint32_t i = 2; i-- > 0;)
        ck_assert_uint_eq(prefix_take(&prefix), branch[i]);
    for (uint32_t i = 2; i-- > 0;)
        ck_assert_uint_eq(prefix_take(&prefix), chain[i]);
    ck_assert_uint_eq(prefix_take(&prefix), PAGE_NONE);
    for (uint32_t i = 0; i < TOTAL; i++)
        pages_return(&pool, i);
}
END_TEST

START_TEST(a_page_that_others_hold_stays)
{
    uint32_t chain[3];

    publish_chain(ALICE, PAGE_NONE, 1, 3, chain);
    prefix_hold(&prefix, chain[0]);
    prefix_hold(&prefix, chain[1]);
    prefix_release(&prefix, chain[2]);
    ck_assert(!prefix_withdraw(&prefix, chain[1]));
    ck_assert_uint_eq(prefix.n_cached, 3);
    ck_assert_uint_eq(prefix_find(&prefix, ALICE, chain[1], text(3)), chain[2]);
    prefix_release(&prefix, chain[1]);
    ck_assert(prefix_withdraw(&prefix, chain[1]));
    ck_assert_uint_eq(prefix.n_cached, 1);
}
END_TEST

/* ---- restart points -------------------------------------------------------------------------- */

enum { STATES = 4 };

static struct pages states;

static void setup_states(void)
{
    setup();
    ck_assert_int_eq(pages_init(&states, STATES), 0);
    prefix.states = &states;
}

static void teardown_states(void)
{
    pages_fini(&states);
    teardown();
}

/* A chain with a restart point on each page. */
static void keep_chain(uid_t uid, uint32_t from, uint32_t n, uint32_t *ret)
{
    publish_chain(uid, PAGE_NONE, from, n, ret);
    for (uint32_t i = 0; i < n; i++)
        prefix_keep(&prefix, ret[i], pages_take(&states));
}

START_TEST(a_page_has_one_restart_point)
{
    uint32_t chain[1];

    keep_chain(ALICE, 1, 1, chain);
    uint32_t point = prefix.pages[chain[0]].point;
    prefix_keep(&prefix, chain[0], pages_take(&states));
    ck_assert_uint_eq(prefix.pages[chain[0]].point, point);
    ck_assert_uint_eq(states.n_free, STATES - 1);
    prefix_drop_point(&prefix, chain[0]);
    ck_assert_uint_eq(prefix.pages[chain[0]].point, PAGE_NONE);
    ck_assert_uint_eq(states.n_free, STATES);
}
END_TEST

START_TEST(the_restart_point_that_was_used_least_recently_goes_first)
{
    uint32_t chain[3];

    keep_chain(ALICE, 1, 3, chain);
    prefix_hold(&prefix, chain[0]);
    prefix_hold(&prefix, chain[1]);
    prefix_begin(&prefix, chain[1]);
    prefix_begin(&prefix, chain[1]);
    prefix_begun(&prefix, chain[1]);
    prefix_use_point(&prefix, chain[1]); /* a slot begins from it still */
    uint32_t last = prefix.pages[chain[0]].point, first = prefix.pages[chain[2]].point;
    prefix_use_point(&prefix, chain[0]);
    ck_assert_uint_eq(prefix_take_point(&prefix), first);
    ck_assert_uint_eq(prefix_take_point(&prefix), last);
    ck_assert_uint_eq(prefix_take_point(&prefix), PAGE_NONE);
    prefix_begun(&prefix, chain[1]);
    last = prefix.pages[chain[1]].point;
    ck_assert_uint_eq(prefix_take_point(&prefix), last);
    ck_assert_uint_eq(prefix_take_point(&prefix), PAGE_NONE);
}
END_TEST

START_TEST(the_user_with_the_most_restart_points_loses_one)
{
    uint32_t alice[1], bob[3];

    keep_chain(ALICE, 1, 1, alice);
    keep_chain(BOB, 1, 3, bob);
    for (uint32_t i = 0; i < 20; i++) { /* whatever BOB asks for */
        uint32_t state = prefix_take_point(&prefix), page = publish(BOB, bob[2], 10 + i);
        ck_assert_uint_ne(state, PAGE_NONE);
        prefix_keep(&prefix, page, state);
        prefix_release(&prefix, page);
    }
    ck_assert_uint_ne(prefix.pages[alice[0]].point, PAGE_NONE);
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_uint_ne(prefix_take_point(&prefix), PAGE_NONE);
    ck_assert_uint_ne(prefix.pages[alice[0]].point, PAGE_NONE);
    ck_assert_uint_ne(prefix_take_point(&prefix), PAGE_NONE); /* both have one: the older one */
    ck_assert_uint_eq(prefix.pages[alice[0]].point, PAGE_NONE);
}
END_TEST

START_TEST(a_page_that_leaves_gives_its_restart_point_back)
{
    uint32_t chain[3], page;

    keep_chain(ALICE, 1, 3, chain);
    release_chain(chain + 1, 2);
    ck_assert(prefix_withdraw(&prefix, chain[0]));
    ck_assert_uint_eq(states.n_free, STATES);
    pages_return(&pool, chain[0]);
    keep_chain(ALICE, 4, 2, chain);
    release_chain(chain, 2);
    do
        page = prefix_take(&prefix);
    while (page != chain[0]);
    ck_assert_uint_eq(states.n_free, STATES);
    ck_assert_uint_eq(prefix.points.n, 0);
}
END_TEST

START_TEST(a_restart_point_of_a_page_that_is_not_held_is_our_mistake)
{
    uint32_t page = publish(ALICE, PAGE_NONE, 1);

    prefix_release(&prefix, page);
    prefix_keep(&prefix, page, pages_take(&states));
}
END_TEST

START_TEST(dropping_a_restart_point_that_a_slot_begins_from_is_our_mistake)
{
    uint32_t chain[1];

    keep_chain(ALICE, 1, 1, chain);
    prefix_begin(&prefix, chain[0]);
    prefix_drop_point(&prefix, chain[0]);
}
END_TEST

/* ---- at random ------------------------------------------------------------------------------- */

/* A table of a slot: whole pages of a sequence of small numbers, all held. */
struct table {
    uid_t uid;
    uint32_t texts[DEPTH], pages[DEPTH], n;
};

static uint32_t state;
static struct table tables[TABLES];

/* What the cache holds, from first principles: each held page has exactly its holders, equal
 * prefixes are one page, other prefixes are other pages. */
static void check_tables(void)
{
    uint32_t held[TOTAL] = {0}, cached = 0, idle = 0;
    bool right = true; /* an assertion of its own for each would take minutes */

    for (uint32_t t = 0; t < TABLES; t++)
        for (uint32_t i = 0; i < tables[t].n; i++) {
            const struct table *table = &tables[t];
            const struct prefix_page *page = &prefix.pages[table->pages[i]];
            held[table->pages[i]]++;
            right &= page->cached && page->uid == table->uid &&
                     !memcmp(page->tokens, text(table->texts[i]), sizeof(page->tokens)) &&
                     page->parent == (i ? table->pages[i - 1] : PAGE_NONE);
            for (uint32_t o = 0; o < t; o++) {
                bool same = tables[o].uid == table->uid && tables[o].n > i &&
                            !memcmp(tables[o].texts, table->texts, (i + 1) * sizeof(uint32_t));
                if (tables[o].n > i)
                    right &= same == (tables[o].pages[i] == table->pages[i]);
            }
        }
    for (uint32_t i = 0; i < TOTAL; i++) {
        const struct prefix_page *page = &prefix.pages[i];
        right &= (page->cached ? page->held : 0) == held[i];
        cached += page->cached;
        idle += page->cached && page->held == 0;
        if (page->cached && page->parent != PAGE_NONE)
            right &= prefix.pages[page->parent].cached;
        if (page->cached) /* found, so it is in its bucket */
            right &= prefix_find(&prefix, page->uid, page->parent, page->tokens) == i;
    }
    ck_assert(right);
    ck_assert_uint_eq(prefix.n_cached, cached);
    ck_assert_uint_eq(prefix.idle.n, idle);
    ck_assert_uint_eq(pool.n_free + cached, TOTAL);
}

static void extend(struct table *table)
{
    uint32_t parent = table->n ? table->pages[table->n - 1] : PAGE_NONE;
    uint32_t which = random_below(&state, 3);
    uint32_t page = prefix_find(&prefix, table->uid, parent, text(which));

    if (page != PAGE_NONE && random_below(&state, 4)) {
        prefix_hold(&prefix, page);
    } else {
        page = prefix_take(&prefix); /* computes it, in vain where it is there already */
        if (page == PAGE_NONE)
            return;
        page = prefix_publish(&prefix, table->uid, parent, page, PAGE_NONE, text(which));
    }
    table->texts[table->n] = which;
    table->pages[table->n++] = page;
}

/* _i: bits of the hashes, and the seed. */
START_TEST(random_use_keeps_every_promise)
{
    state = (uint32_t)_i + 1;
    prefix.hash_mask = ((uint64_t)1 << (_i % 9)) - 1;
    for (uint32_t t = 0; t < TABLES; t++)
        tables[t] = (struct table){.uid = ALICE + t % 2};
    for (uint32_t i = 0; i < 2000; i++) {
        struct table *table = &tables[random_below(&state, TABLES)];
        uint32_t what = random_below(&state, 10);
        if (what < 6 && table->n < DEPTH) {
            extend(table);
        } else if (what < 8 && table->n > 0) {
            prefix_release(&prefix, table->pages[--table->n]);
        } else if (what == 8) {
            release_chain(table->pages, table->n);
            table->n = 0;
        } else if (table->n > 0 && prefix_withdraw(&prefix, table->pages[table->n - 1])) {
            pages_return(&pool, table->pages[--table->n]);
        }
        if (i % 2 == 0)
            check_tables();
    }
    for (uint32_t t = 0; t < TABLES; t++)
        release_chain(tables[t].pages, tables[t].n);
    ck_assert_uint_eq(prefix_spare(&prefix), TOTAL);
    for (uint32_t i = 0; i < TOTAL; i++)
        ck_assert_uint_ne(prefix_take(&prefix), PAGE_NONE);
    ck_assert_uint_eq(prefix.n_cached, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefix");
    TCase *t = tcase_create("prefix");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, too_large_a_table_is_refused);
    tcase_add_test(t, a_page_is_found_by_its_whole_prefix);
    tcase_add_test(t, every_single_token_counts);
    tcase_add_test(t, users_find_nothing_of_others);
    tcase_add_test(t, the_overflow_user_does_not_share);
    tcase_add_test_raise_signal(t, publishing_for_the_overflow_user_is_our_mistake, SIGABRT);
    tcase_add_test_raise_signal(t, publishing_after_a_page_that_is_not_held_is_our_mistake,
                                SIGABRT);
    tcase_add_loop_test(t, equal_hashes_are_told_apart, 0, 4);
    tcase_add_test(t, texts_that_a_client_has_tried_fall_apart);
    tcase_add_test(t, an_equal_page_takes_the_place_of_a_second_one);
    tcase_add_test_raise_signal(t, publishing_a_page_twice_is_our_mistake, SIGABRT);
    tcase_add_test_raise_signal(t, letting_go_once_too_often_is_our_mistake, SIGABRT);
    tcase_add_test_raise_signal(t, holding_a_page_without_its_parent_is_our_mistake, SIGABRT);
    tcase_add_test(t, held_pages_are_never_handed_out);
    tcase_add_test(t, free_pages_go_before_cached_ones);
    tcase_add_test(t, the_least_recently_used_chain_goes_first_its_end_before_its_beginning);
    tcase_add_loop_test(t, the_user_with_the_most_idle_pages_loses_one, 0, 2);
    tcase_add_test(t, an_evicted_page_leaves_no_tokens);
    tcase_add_test(t, a_page_that_one_alone_holds_becomes_its_own_again);
    tcase_add_test(t, what_a_slot_left_gives_way_first);
    tcase_add_test(t, a_page_that_others_hold_stays);
    tcase_add_loop_test(t, random_use_keeps_every_promise, 0, 18);
    suite_add_tcase(suite, t);
    t = tcase_create("points");
    tcase_add_checked_fixture(t, setup_states, teardown_states);
    tcase_add_test(t, a_page_has_one_restart_point);
    tcase_add_test(t, the_restart_point_that_was_used_least_recently_goes_first);
    tcase_add_test(t, the_user_with_the_most_restart_points_loses_one);
    tcase_add_test(t, a_page_that_leaves_gives_its_restart_point_back);
    tcase_add_test_raise_signal(t, a_restart_point_of_a_page_that_is_not_held_is_our_mistake,
                                SIGABRT);
    tcase_add_test_raise_signal(t, dropping_a_restart_point_that_a_slot_begins_from_is_our_mistake,
                                SIGABRT);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
