/* The index of the KV store against a naive model of it, which looks at everything: what is found, what is evicted, where
 * records lie; and its rules one by one. */
#include "daemon/store/index.h"
#include "tests/run_suite.h"

#include <string.h>

static struct store_index idx;

static const struct index_sizes small = {
    .bytes = 3000,
    .min_tokens = 96,
    .segment_bytes = 10,
    .classes = {{.slot_bytes = 100, .n_slots = 5},
                {.slot_bytes = 40, .n_slots = 7},
                {.slot_bytes = 70, .n_slots = 3}},
};

static void setup(void)
{
    ck_assert_int_eq(index_init(&idx, &small), 0);
}

static void teardown(void)
{
    index_fini(&idx);
}

/* Texts of a user are a tree: node i follows node i / 3; key 0 is that of the empty text. What follows a
 * text begins with the same token. */
static struct store_text node_text(uid_t uid, uint32_t node)
{
    struct store_text text = {.uid = uid};
    text.key.words[0] = node * 7919ull + uid;
    text.key.words[1] = node ? uid * 1000ull + node : uid;
    if (node == 0)
        return text;
    const struct store_text before = node_text(uid, node / 3);
    text.parent = before.key;
    text.end = before.end + 32;
    text.tokens[0] = node / 3;
    text.tokens[1] = node;
    return text;
}

/* ---- the naive model --------------------------------------------------------------------------- */

enum { USERS = 4, NODES = 40, MOST = 4096 };

struct naive {
    bool is_there, stored;
    uint32_t readers;
    uint64_t cost_ns, used;
    double worth;
    uint32_t id, segment, slot;
};

static struct naive model[USERS][STORE_CLASSES][NODES];
static double inflation[USERS];
static uint64_t now;

static uid_t uid_of(uint32_t user)
{
    return 1000 + user * 17;
}

static struct naive *next_of(uint32_t *user, uint32_t *class, uint32_t *node)
{
    if (++*node == NODES) {
        *node = 1;
        if (++*class == STORE_CLASSES) {
            *class = 0;
            if (++*user == USERS)
                return NULL;
        }
    }
    return &model[*user][*class][*node];
}
#define EACH(n, user, class, node)                                                                 \
    uint32_t user = 0, class = 0, node = 0;                                                        \
    for (struct naive * n; (n = next_of(&user, &class, &node)) != NULL;)

static bool is_followed(uint32_t user, uint32_t class, uint32_t node)
{
    if (class != STORE_PAGE)
        return false;
    for (uint32_t i = node * 3; i < node * 3 + 3 && i < NODES; i++)
        if (model[user][STORE_PAGE][i].is_there)
            return true;
    return model[user][STORE_WINDOW][node].is_there || model[user][STORE_STATE][node].is_there;
}

static uint32_t taken_in(uint32_t segment)
{
    uint32_t n = 0;
    EACH(r, user, class, node)
    {
        n += r->is_there && r->segment == segment;
    }
    return n;
}

static uint64_t bytes_of(uint32_t only) /* a user, or USERS */
{
    uint64_t bytes = 0;
    static bool seen[MOST];
    memset(seen, 0, sizeof(seen));
    EACH(r, user, class, node)
    {
        if (!r->is_there || (only < USERS && only != user))
            continue;
        bytes += small.classes[class].slot_bytes + (seen[r->segment] ? 0 : small.segment_bytes);
        seen[r->segment] = true;
    }
    return bytes;
}

static bool has_roomy(uint32_t user, uint32_t class)
{
    for (uint32_t i = 1; i < NODES; i++) {
        const struct naive *r = &model[user][class][i];
        if (r->is_there && taken_in(r->segment) < small.classes[class].n_slots)
            return true;
    }
    return false;
}

/* What goes next of that user. */
static struct naive *least_of(uint32_t only)
{
    struct naive *least = NULL;
    EACH(r, user, class, node)
    {
        if (user == only && r->is_there && r->stored && r->readers == 0 &&
            !is_followed(user, class, node) &&
            (!least || r->worth < least->worth ||
             (r->worth == least->worth && r->used < least->used)))
            least = r;
    }
    return least;
}

/* Evicts for `user`, noting the slots. False: nothing can go. */
static bool naive_room(uint32_t user, uint64_t need, struct naive gone[INDEX_GONE], uint32_t *n)
{
    while (bytes_of(USERS) + need > small.bytes) {
        uint32_t from = USERS;
        uint64_t most = bytes_of(user) + need;
        if (least_of(user))
            from = user;
        for (uint32_t i = 0; i < USERS; i++)
            if (bytes_of(i) > most && least_of(i)) {
                from = i;
                most = bytes_of(i);
            }
        if (from == USERS)
            return false;
        struct naive *least = least_of(from);
        inflation[from] = least->worth;
        gone[(*n)++] = *least;
        least->is_there = false;
        uint32_t n_left = 0;
        EACH(r, u, class, node)
        {
            n_left += u == from && r->is_there;
        }
        if (n_left == 0 && from != user) /* a user without records is forgotten */
            inflation[from] = 0;
    }
    return true;
}

/* ---- the walk ---------------------------------------------------------------------------------- */

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void set_worth(struct naive *r, uint32_t user, uint32_t class)
{
    r->worth = inflation[user] + (double)r->cost_ns / (double)small.classes[class].slot_bytes;
    r->used = ++now;
}

static void forget_user(uint32_t user)
{
    for (uint32_t class = 0; class < STORE_CLASSES; class ++)
        for (uint32_t i = 1; i < NODES; i++)
            if (model[user][class][i].is_there)
                return;
    inflation[user] = 0;
}

static void walk_add(uint32_t user, uint32_t class, uint32_t node)
{
    struct naive *r = &model[user][class][node], gone[INDEX_GONE];
    const struct store_text text = node_text(uid_of(user), node);
    uint32_t n_gone = 0;
    if (r->is_there) {
        ck_assert_int_eq(index_wants(&idx, class, &text, true), INDEX_HAS);
        return;
    }
    ck_assert_int_eq(index_wants(&idx, class, &text, true), INDEX_WANTS);
    *r = (struct naive){.is_there = true, .cost_ns = draw(5) * 1000, .segment = MOST - 1};
    set_worth(r, user, class);
    r->is_there = false;
    uint64_t need =
        small.classes[class].slot_bytes + (has_roomy(user, class) ? 0 : small.segment_bytes);
    /* It hangs on its anchor before room is made for it. */
    struct naive *anchor = &model[user][STORE_PAGE][class == STORE_PAGE ? node / 3 : node];
    anchor->readers++;
    const bool fits = naive_room(user, need, gone, &n_gone);
    anchor->readers--;
    r->id = index_add(&idx, class, &text, r->cost_ns);
    ck_assert_int_eq(fits, r->id != STORE_NONE);
    ck_assert_uint_eq(idx.n_gone, n_gone);
    for (uint32_t i = 0; i < n_gone; i++) {
        ck_assert_uint_eq(idx.gone[i].id, gone[i].segment);
        ck_assert_uint_eq(idx.gone[i].slot, gone[i].slot);
    }
    if (!fits) {
        forget_user(user);
        return;
    }
    r->is_there = true;
    r->segment = idx.records[r->id].segment;
    r->slot = idx.records[r->id].slot;
}

static void walk_step(void)
{
    const uint32_t user = draw(USERS), class = draw(STORE_CLASSES), node = 1 + draw(NODES - 1);
    struct naive *r = &model[user][class][node];
    const uint32_t what = draw(10);
    if (what < 4 || !r->is_there) {
        walk_add(user, class, node);
    } else if (!r->stored && what < 8) {
        const uint8_t hash[16] = {(uint8_t)node};
        index_stored(&idx, r->id, hash);
        r->stored = true;
    } else if (!r->stored || (what == 9 && r->readers == 0)) {
        index_forget(&idx, r->id);
        ck_assert_uint_eq(idx.n_gone, 1);
        ck_assert_uint_eq(idx.gone[0].id, r->segment);
        ck_assert_uint_eq(idx.gone[0].slot, r->slot);
        r->is_there = r->stored = false;
        ck_assert_int_eq(idx.gone[0].kind, taken_in(r->segment) ? GONE_SLOT : GONE_SEGMENT);
        forget_user(user);
    } else if (r->readers > 0 && what < 7) {
        index_unread(&idx, r->id);
        r->readers--;
        set_worth(r, user, class);
    } else if (r->readers < 3 && draw(3) == 0) {
        index_read(&idx, r->id);
        r->readers++;
    }
}

/* As if the model had these classes only. */
static uint32_t find_begun(uint32_t classes, const struct store_text *before,
                           const uint32_t *tokens, uint32_t n, uint32_t *ret_n)
{
    for (uint32_t i = classes; i < STORE_CLASSES; i++)
        idx.sizes.classes[i].slot_bytes = 0;
    const uint32_t found = index_find_begun(&idx, before, tokens, n, ret_n);
    idx.sizes = small;
    return found;
}

/* Is the page stored, and what the model has beside it? */
static bool can_begin(uint32_t user, uint32_t node, uint32_t classes)
{
    for (uint32_t i = 0; i < classes; i++)
        if (!model[user][i][node].is_there || !model[user][i][node].stored)
            return false;
    return true;
}

/* The page is found by its first tokens; where it is not stored, another one by the token that
 * they share. None is by the first tokens where a state follows from all of them. */
static void check_begun(uint32_t user, uint32_t node)
{
    const struct store_text text = node_text(uid_of(user), node),
                            before = node_text(uid_of(user), node / 3);
    for (uint32_t classes = 1; classes <= 2; classes++) {
        uint32_t n = 99, same = 0;
        const uint32_t found = find_begun(classes, &before, text.tokens, 5, &n);
        for (uint32_t i = node / 3 * 3; i < node / 3 * 3 + 3 && i < NODES; i++)
            same += i > 0 && can_begin(user, i, classes);
        ck_assert_uint_eq(n, can_begin(user, node, classes) ? 5 : same > 0);
        ck_assert_int_eq(found == STORE_NONE, n == 0);
        if (n == 5)
            ck_assert_uint_eq(found, model[user][STORE_PAGE][node].id);
    }
    uint32_t n = 99;
    ck_assert_uint_eq(find_begun(3, &before, text.tokens, 31, &n), STORE_NONE);
    ck_assert_uint_eq(n, 0);
}

static void check_equal(void)
{
    uint32_t n = 0;
    EACH(r, user, class, node)
    {
        const struct store_text text = node_text(uid_of(user), node);
        const uint32_t found = index_find(&idx, class, &text);
        ck_assert_uint_eq(found, r->is_there && r->stored ? r->id : STORE_NONE);
        n += r->is_there;
        if (class == STORE_PAGE)
            check_begun(user, node);
        if (!r->is_there)
            continue;
        const struct index_segment *s = &idx.segments[r->segment];
        ck_assert_uint_eq(s->class, class);
        ck_assert_uint_eq(idx.users[s->user].uid, uid_of(user));
        ck_assert_uint_eq(s->n_taken, taken_in(r->segment));
        ck_assert_uint_lt(r->slot, s->n_slots);
    }
    ck_assert_uint_eq(idx.n_stored, n);
    ck_assert_uint_eq(idx.bytes, bytes_of(USERS));
    ck_assert_uint_le(idx.bytes, small.bytes);
}

static void check_places_differ(void)
{
    EACH(a, user, class, node)
    {
        EACH(b, user2, class2, node2)
        {
            ck_assert(a == b || !a->is_there || !b->is_there || a->segment != b->segment ||
                      a->slot != b->slot);
        }
    }
}

START_TEST(a_random_walk_is_that_of_the_naive_model)
{
    state = 1 + (uint64_t)_i;
    for (int step = 0; step < 1500; step++) {
        walk_step();
        if (step % 10 == 0)
            check_equal();
        if (step % 500 == 0)
            check_places_differ();
    }
    ck_assert_uint_gt(idx.evicted, 20);
}
END_TEST

/* ---- rules ------------------------------------------------------------------------------------- */

static uint32_t add(uid_t uid, enum store_class class, uint32_t node, uint64_t cost_ns)
{
    static const uint8_t hash[16];
    const struct store_text text = node_text(uid, node);
    uint32_t id = index_add(&idx, class, &text, cost_ns);
    if (id != STORE_NONE)
        index_stored(&idx, id, hash);
    return id;
}

static bool is_stored(uid_t uid, enum store_class class, uint32_t node)
{
    const struct store_text text = node_text(uid, node);
    return index_find(&idx, class, &text) != STORE_NONE;
}

/* A text that many others follow, as the trunk of an agent's sessions: the newest are looked through. */
START_TEST(of_many_pages_after_a_text_the_newest_are_compared)
{
    const struct index_sizes large = {.bytes = 100000,
                                      .classes = {{.slot_bytes = 100, .n_slots = 500}}};
    static const uint8_t hash[16];
    struct store_text text = {.uid = 1000, .end = 32};
    const struct store_text before = {.uid = 1000};
    uint32_t n;
    index_fini(&idx);
    ck_assert_int_eq(index_init(&idx, &large), 0);
    for (uint32_t i = 0; i < INDEX_LOOKS + 1; i++) {
        text.key.words[0] = i + 1;
        text.tokens[0] = 7;
        text.tokens[1] = i;
        index_stored(&idx, index_add(&idx, STORE_PAGE, &text, 1), hash);
    }
    index_find_begun(&idx, &before, text.tokens, 2, &n);
    ck_assert_uint_eq(n, 2);
    text.tokens[1] = 1;
    index_find_begun(&idx, &before, text.tokens, 2, &n);
    ck_assert_uint_eq(n, 2);
    text.tokens[1] = 0; /* the oldest */
    index_find_begun(&idx, &before, text.tokens, 2, &n);
    ck_assert_uint_eq(n, 1);
}
END_TEST

/* The keys of a text follow from its tokens: a client can try as many as it likes. */
START_TEST(keys_that_a_client_has_chosen_fall_apart)
{
    enum { CHOSEN = 64 };
    const struct index_sizes large = {.bytes = 100000,
                                      .classes = {{.slot_bytes = 100, .n_slots = 500}}};
    struct store_text text = {.uid = 1000, .end = 32};
    uint32_t longest = 0;
    index_fini(&idx);
    ck_assert_int_eq(index_init(&idx, &large), 0);
    for (uint32_t i = 0; i < CHOSEN; i++) {
        text.key.words[0] = (uint64_t)(i + 1) << 32;
        text.key.words[1] = i;
        ck_assert_uint_ne(index_add(&idx, STORE_PAGE, &text, 1), STORE_NONE);
    }
    for (uint32_t b = 0; b < idx.n_buckets; b++) {
        uint32_t n = 0;
        for (uint32_t id = idx.buckets[b]; id != STORE_NONE; id = idx.records[id].next)
            n++;
        longest = n > longest ? n : longest;
    }
    ck_assert_uint_lt(longest, CHOSEN / 2);
}
END_TEST

START_TEST(a_text_goes_from_its_end)
{
    static const uint32_t chain[] = {1, 3, 9, 27, 81, 243};
    for (int i = 5; i >= 0; i--) /* the last page has the greatest cost, and came first */
        add(1000, STORE_PAGE, chain[i], (uint64_t)i * 100);
    add(1000, STORE_STATE, 243, 1000000);
    for (int last = 5; last >= 0; last--) {
        for (uint32_t i = 0; is_stored(1000, STORE_PAGE, chain[last]); i++) {
            ck_assert_uint_lt(i, 100);
            add(1000, STORE_WINDOW, 300 + i * 10 + (uint32_t)last * 1000, 1 << 30);
        }
        for (int i = 0; i < last; i++)
            ck_assert(is_stored(1000, STORE_PAGE, chain[i]));
        ck_assert(!is_stored(1000, STORE_STATE, 243));
    }
}
END_TEST

START_TEST(what_is_cheap_goes_before_what_is_dear_and_what_is_used_stays)
{
    for (uint32_t i = 1; i <= 20; i++)
        add(1000, STORE_PAGE, i * 3 + 100, i == 7 ? 10 : 1000 + i);
    uint32_t n = 0;
    while (is_stored(1000, STORE_PAGE, 7 * 3 + 100)) {
        ck_assert_uint_lt(n, 10);
        add(1000, STORE_PAGE, 900 + n++ * 3, 1500);
    }
    for (uint32_t i = 1; i <= 20; i++) /* it alone has gone */
        ck_assert_int_eq(is_stored(1000, STORE_PAGE, i * 3 + 100), i != 7);
    const struct store_text text = node_text(1000, 103);
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t used = index_find(&idx, STORE_PAGE, &text);
        ck_assert_uint_ne(used, STORE_NONE);
        index_read(&idx, used);
        index_unread(&idx, used);
        add(1000, STORE_PAGE, 2000 + i * 3, 900);
    }
    ck_assert(
        !is_stored(1000, STORE_PAGE, 106)); /* dearer, but not used: the inflation has passed it */
}
END_TEST

START_TEST(a_flood_takes_nothing_from_a_user_below_its_share)
{
    for (uint32_t i = 0; i < 12; i++)
        ck_assert_uint_ne(add(1001, STORE_PAGE, 100 + i * 3, 1), STORE_NONE);
    for (uint32_t i = 0; i < 500; i++)
        ck_assert_uint_ne(add(1002, STORE_PAGE, 100 + i * 3, 1 << 20), STORE_NONE);
    for (uint32_t i = 0; i < 12; i++)
        ck_assert(is_stored(1001, STORE_PAGE, 100 + i * 3));
    /* A user beyond its share gives to one below. */
    for (uint32_t i = 0; i < 9; i++)
        ck_assert_uint_ne(add(1003, STORE_PAGE, 100 + i * 3, 1), STORE_NONE);
    for (uint32_t i = 0; i < 9; i++)
        ck_assert(is_stored(1003, STORE_PAGE, 100 + i * 3));
    uint64_t most = 0, least = UINT64_MAX;
    for (uint32_t i = 0; i < INDEX_USERS; i++) {
        const struct index_user *u = &idx.users[i];
        if (u->n_records > 0) {
            most = u->bytes > most ? u->bytes : most;
            least = u->bytes < least ? u->bytes : least;
        }
    }
    ck_assert_uint_le(most, least + 310);
}
END_TEST

/* What a user keeps of a full store lies in as many segments as before. */
START_TEST(a_users_share_is_there_though_anothers_lies_in_many_segments)
{
    enum { FULL = 2000, OTHERS = 600 }; /* segments */
    static const struct index_sizes wide = {.bytes = FULL * 210,
                                            .min_tokens = 96,
                                            .segment_bytes = 10,
                                            .classes = {{.slot_bytes = 100, .n_slots = 2}}};
    index_fini(&idx);
    ck_assert_int_eq(index_init(&idx, &wide), 0);
    for (uint32_t i = 0; i < 2 * FULL; i++)
        ck_assert_uint_ne(add(1000, STORE_PAGE, 10000 + i * 3, 1), STORE_NONE);
    for (uint32_t i = 1; i < 2 * FULL; i += 2) { /* of each segment one is used */
        const struct store_text text = node_text(1000, 10000 + i * 3);
        const uint32_t id = index_find(&idx, STORE_PAGE, &text);
        index_read(&idx, id);
        index_unread(&idx, id);
    }
    for (uid_t uid = 1001; uid < 1003; uid++)
        for (uint32_t i = 0; i < 2 * OTHERS; i++)
            ck_assert_uint_ne(add(uid, STORE_PAGE, 10000 + i * 3, 1), STORE_NONE);
    ck_assert_uint_le(idx.bytes, wide.bytes);
    for (uint32_t i = 0; i < 2 * OTHERS; i++)
        ck_assert(is_stored(1001, STORE_PAGE, 10000 + i * 3));
}
END_TEST

/* As of a store whose bytes have room for more records than INDEX_RECORDS. */
START_TEST(places_of_records_are_shared_as_bytes_are)
{
    idx.n_records = 20; /* each of these texts takes two */
    for (uint32_t i = 0; i < 40; i++)
        ck_assert_uint_ne(add(1001, STORE_PAGE, 100 + i * 3, 1), STORE_NONE);
    ck_assert_uint_eq(idx.n_stored, 10);
    for (uint32_t i = 0; i < 40; i++)
        ck_assert_uint_ne(add(1002, STORE_PAGE, 100 + i * 3, 1), STORE_NONE);
    ck_assert_uint_eq(idx.n_stored, 10);
    ck_assert(!index_has_room(&idx, STORE_PAGE));
    for (uint32_t i = 35; i < 40; i++) {
        ck_assert(is_stored(1001, STORE_PAGE, 100 + i * 3));
        ck_assert(is_stored(1002, STORE_PAGE, 100 + i * 3));
    }
}
END_TEST

START_TEST(what_is_read_or_written_is_not_evicted)
{
    uint32_t ids[29], n = 0;
    const struct store_text text = node_text(1000, 5000);
    for (; n < 29; n++) { /* 6 segments */
        ids[n] = add(1000, STORE_PAGE, 100 + n * 3, 1);
        index_read(&idx, ids[n]);
    }
    ck_assert_uint_eq(index_add(&idx, STORE_PAGE, &text, 1), STORE_NONE);
    ck_assert_uint_eq(idx.n_gone, 0);
    index_unread(&idx, ids[13]);
    uint32_t writing = index_add(&idx, STORE_PAGE, &text, 1);
    ck_assert_uint_ne(writing, STORE_NONE);
    ck_assert(!is_stored(1000, STORE_PAGE, 100 + 13 * 3));
    const struct store_text more = node_text(1000, 5003);
    ck_assert_uint_eq(index_add(&idx, STORE_PAGE, &more, 1), STORE_NONE);
}
END_TEST

START_TEST(other_models_go_first_the_least_recently_used_one_before_the_others)
{
    index_other(&idx, 1000);
    index_other(&idx, 1500);
    for (uint32_t i = 0; i < 4; i++)
        add(1000, STORE_PAGE, 100 + i * 3, 1);
    ck_assert_uint_eq(idx.n_gone, 0);
    add(1000, STORE_PAGE, 200, 1);
    ck_assert_uint_eq(idx.n_gone, 1);
    ck_assert_int_eq(idx.gone[0].kind, GONE_MODEL);
    ck_assert_uint_eq(idx.gone[0].id, 0);
    ck_assert_uint_eq(idx.other_bytes, 1500);
    uint32_t n = 0;
    for (; idx.other_bytes > 0; n++) {
        ck_assert_uint_lt(n, 20);
        add(1000, STORE_PAGE, 300 + n * 3, 1);
    }
    ck_assert_uint_eq(idx.gone[0].id, 1);
    ck_assert_uint_eq(idx.evicted, 0);
}
END_TEST

START_TEST(there_may_be_more_users_than_places)
{
    uint32_t n = 0;
    for (uid_t uid = 1000; uid < 1000 + 2 * INDEX_USERS; uid++)
        n += add(uid, STORE_WINDOW, 1, 1) != STORE_NONE;
    ck_assert_uint_gt(n, 20);
    ck_assert_uint_le(idx.bytes, small.bytes);
}
END_TEST

/* ---- the start --------------------------------------------------------------------------------- */

START_TEST(what_is_loaded_goes_in_the_order_that_it_would_have)
{
    static const uint8_t hash[16];
    uint32_t segment = index_segment(&idx, 1000, STORE_PAGE, 7);
    struct store_text text = node_text(1000, 100);
    ck_assert(index_load(&idx, segment, 2, &text, 100, 50, hash)); /* written late */
    text = node_text(1000, 103);
    ck_assert(index_load(&idx, segment, 4, &text, 200, 3, hash));  /* dearer, written early */
    ck_assert(!index_load(&idx, segment, 1, &text, 200, 3, hash)); /* twice */
    text = node_text(1000, 106);
    ck_assert(index_load(&idx, segment, 0, &text, 100, -1.0 / 0.0, hash)); /* of no sense */
    index_loaded(&idx, segment);
    ck_assert_uint_eq(idx.n_gone, 0);
    ck_assert_uint_eq(idx.segments[segment].n_taken, 3);
    static const uint32_t order[] = {106, 103, 100};
    for (uint32_t i = 0, n = 0; i < 3; i++) {
        while (is_stored(1000, STORE_PAGE, order[i]))
            add(1000, STORE_PAGE, 1000 + n++ * 3, 1 << 20);
        for (uint32_t k = i + 1; k < 3; k++)
            ck_assert(is_stored(1000, STORE_PAGE, order[k]));
    }
}
END_TEST

START_TEST(a_segment_without_records_is_let_go)
{
    uint32_t segment = index_segment(&idx, 1000, STORE_PAGE, 7);
    index_loaded(&idx, segment);
    ck_assert_uint_eq(idx.n_gone, 1);
    ck_assert_int_eq(idx.gone[0].kind, GONE_SEGMENT);
}
END_TEST

/* A set of INDEX_SEEN_SET texts, and one more that leads there. */
START_TEST(texts_that_were_offered_are_known_though_they_meet)
{
    struct store_text text[INDEX_SEEN_SET + 1] = {{.uid = 1000}};
    for (uint32_t i = 0; i <= INDEX_SEEN_SET; i++) {
        text[i].uid = 1000;
        text[i].end = 32;
        text[i].key.words[0] = (uint64_t)i * INDEX_SEEN;
        text[i].key.words[1] = 1 + i;
    }
    for (uint32_t i = 0; i < INDEX_SEEN_SET; i++)
        ck_assert_int_eq(index_wants(&idx, STORE_PAGE, &text[i], false), INDEX_SHORT);
    for (uint32_t i = 0; i < INDEX_SEEN_SET; i++)
        ck_assert_int_eq(index_wants(&idx, STORE_PAGE, &text[i], false), INDEX_WANTS);
    ck_assert_int_eq(index_wants(&idx, STORE_PAGE, &text[INDEX_SEEN_SET], false), INDEX_SHORT);
    ck_assert_int_eq(index_wants(&idx, STORE_PAGE, &text[1], false), INDEX_WANTS);
    ck_assert_int_eq(index_wants(&idx, STORE_PAGE, &text[0], false), INDEX_SHORT);
}
END_TEST

/* A user offers short texts without end: those of another one are known all the same. */
START_TEST(a_flood_of_short_texts_has_no_others_forgotten)
{
    enum { TEXTS = 64, FLOOD = 100000 };
    struct store_text text = {.uid = 1000, .end = 32};
    uint32_t known = 0;
    for (uint32_t i = 0; i < TEXTS; i++) {
        text.key = (struct store_key){{i * 61, i + 1}};
        ck_assert_int_eq(index_wants(&idx, STORE_PAGE, &text, false), INDEX_SHORT);
    }
    text.uid = 1001;
    for (uint32_t i = 0; i < FLOOD; i++) {
        text.key = (struct store_key){{i * 7919ull, TEXTS + 1 + i}};
        ck_assert_int_eq(index_wants(&idx, STORE_PAGE, &text, false), INDEX_SHORT);
    }
    text.uid = 1000;
    for (uint32_t i = 0; i < TEXTS; i++) {
        text.key = (struct store_key){{i * 61, i + 1}};
        known += index_wants(&idx, STORE_PAGE, &text, false) == INDEX_WANTS;
    }
    ck_assert_uint_eq(known, TEXTS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store_index");
    TCase *tcase = tcase_create("store_index");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_random_walk_is_that_of_the_naive_model, 0, 10);
    tcase_add_test(tcase, of_many_pages_after_a_text_the_newest_are_compared);
    tcase_add_test(tcase, keys_that_a_client_has_chosen_fall_apart);
    tcase_add_test(tcase, a_text_goes_from_its_end);
    tcase_add_test(tcase, what_is_cheap_goes_before_what_is_dear_and_what_is_used_stays);
    tcase_add_test(tcase, a_flood_takes_nothing_from_a_user_below_its_share);
    tcase_add_test(tcase, a_users_share_is_there_though_anothers_lies_in_many_segments);
    tcase_add_test(tcase, places_of_records_are_shared_as_bytes_are);
    tcase_add_test(tcase, what_is_read_or_written_is_not_evicted);
    tcase_add_test(tcase, other_models_go_first_the_least_recently_used_one_before_the_others);
    tcase_add_test(tcase, there_may_be_more_users_than_places);
    tcase_add_test(tcase, what_is_loaded_goes_in_the_order_that_it_would_have);
    tcase_add_test(tcase, a_segment_without_records_is_let_go);
    tcase_add_test(tcase, texts_that_were_offered_are_known_though_they_meet);
    tcase_add_test(tcase, a_flood_of_short_texts_has_no_others_forgotten);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
