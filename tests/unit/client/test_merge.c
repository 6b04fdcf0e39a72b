/* The merge loop against the slow way: look for the best pair, join it, begin again. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "client/tokenizer/merge.h"
#include "tests/run_suite.h"

enum { LETTERS = 4, MAX_ID = 64 };

/* Ids 0..3 are letters; pairs of ids make further ids, in an order that may hold ties. */
struct table {
    struct merge merge; /* first: the rule finds the table by it */
    uint32_t order[MAX_ID][MAX_ID];
    uint32_t id[MAX_ID][MAX_ID]; /* 0: the two do not join */
};

static bool rule(const struct merge *m, const struct merge_link *left,
                 const struct merge_link *right, uint32_t *ret_order, uint32_t *ret_id)
{
    const struct table *t = (const struct table *)(const void *)m;
    *ret_order = t->order[left->id][right->id];
    *ret_id = t->id[left->id][right->id];
    return *ret_id != 0;
}

static uint32_t next_random(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33) % below;
}

static void fill_table(struct table *t, uint64_t *state, uint32_t n_orders)
{
    memset(t->id, 0, sizeof(t->id));
    for (uint32_t made = LETTERS; made < MAX_ID; made++) {
        uint32_t left = next_random(state, made), right = next_random(state, made);
        if (t->id[left][right] != 0)
            continue;
        t->id[left][right] = made;
        t->order[left][right] = next_random(state, n_orders);
    }
}

/* Joins pairs by search, which is slow and plain. Returns how many ids remain. */
static size_t join_slowly(const struct table *t, uint32_t *ids, size_t n)
{
    for (;;) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; i++) {
            if (t->id[ids[i]][ids[i + 1]] == 0)
                continue;
            if (best == n || t->order[ids[i]][ids[i + 1]] < t->order[ids[best]][ids[best + 1]])
                best = i;
        }
        if (best == n)
            return n;
        ids[best] = t->id[ids[best]][ids[best + 1]];
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof(*ids));
        n--;
    }
}

START_TEST(joins_as_the_slow_way_does)
{
    static struct table t;
    uint64_t state = (uint64_t)_i + 1;
    t.merge.rule = rule;
    for (int turn = 0; turn < 300; turn++) {
        uint32_t want[200];
        size_t n = 1 + next_random(&state, 199);
        fill_table(&t, &state, _i % 2 == 0 ? 1000 : 3); /* rarely or often of equal order */
        ck_assert_int_eq(merge_reserve(&t.merge, n), 0);
        merge_reset(&t.merge);
        for (size_t i = 0; i < n; i++) {
            want[i] = next_random(&state, LETTERS);
            merge_push(&t.merge, (uint32_t)i, 1, want[i]);
        }
        merge_run(&t.merge);
        size_t n_want = join_slowly(&t, want, n), n_got = 0;
        uint32_t at = 0;
        for (uint32_t i = 0; i != MERGE_NO_LINK; i = t.merge.links[i].next) {
            const struct merge_link *link = &t.merge.links[i];
            ck_assert_uint_lt(n_got, n_want);
            ck_assert_uint_eq(link->id, want[n_got++]);
            ck_assert_uint_eq(link->at, at); /* links lie side by side */
            at += link->bytes;
        }
        ck_assert_uint_eq(n_got, n_want);
        ck_assert_uint_eq(at, n);
    }
    merge_fini(&t.merge);
}
END_TEST

START_TEST(chains_may_be_empty_or_short)
{
    static struct table t;
    t.merge.rule = rule;
    ck_assert_int_eq(merge_reserve(&t.merge, 1), 0);
    merge_reset(&t.merge);
    merge_run(&t.merge);
    ck_assert_uint_eq(t.merge.n, 0);
    merge_push(&t.merge, 0, 1, 2);
    merge_run(&t.merge);
    ck_assert_uint_eq(t.merge.links[0].id, 2);
    ck_assert_uint_eq(t.merge.links[0].next, MERGE_NO_LINK);
    merge_fini(&t.merge);
    merge_fini(&t.merge);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("merge");
    TCase *c = tcase_create("merge");
    tcase_add_loop_test(c, joins_as_the_slow_way_does, 0, 4);
    tcase_add_test(c, chains_may_be_empty_or_short);
    suite_add_tcase(s, c);
    return run_suite(s);
}
