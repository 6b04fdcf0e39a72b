/* index.c: a hash table, a tree that is known upwards alone, and a leftist heap a user, all in one array. */
#include "daemon/store/index.h"

#include "daemon/overflow_uid.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- memory ------------------------------------------------------------------------------------ */

static uint32_t bounded(uint64_t n, uint64_t most)
{
    return (uint32_t)(n < most ? n : most);
}

/* As many records as could fit, and as many again that are absent. */
static void count_places(struct store_index *index)
{
    uint64_t least = UINT64_MAX, most_slots = 1, filled = 0;
    for (int i = 0; i < STORE_CLASSES; i++) {
        const struct index_size *size = &index->sizes.classes[i];
        if (size->slot_bytes == 0)
            continue;
        if (size->slot_bytes < least)
            least = size->slot_bytes;
        if (size->n_slots > most_slots)
            most_slots = size->n_slots;
        filled += index->sizes.bytes / (size->slot_bytes * size->n_slots);
    }
    index->n_records = 64 + bounded(index->sizes.bytes / least, INDEX_RECORDS / 2) * 2;
    index->n_segments =
        INDEX_USERS * STORE_CLASSES + bounded(INDEX_SPREAD * filled, INDEX_SEGMENTS);
    index->words = (uint32_t)((most_slots + 63) / 64);
    index->shift = 63;
    for (index->n_buckets = 2; index->n_buckets < index->n_records; index->shift--)
        index->n_buckets *= 2;
}

int index_init(struct store_index *index, const struct index_sizes *sizes)
{
    *index = (struct store_index){.sizes = *sizes, .free = STORE_NONE, .next_number = 1};
    count_places(index);
    if (getrandom(index->salt, sizeof(index->salt), 0) != sizeof(index->salt))
        return -EIO;
    index->records = calloc(index->n_records, sizeof(*index->records));
    index->buckets = malloc(index->n_buckets * sizeof(*index->buckets));
    index->segments = calloc(index->n_segments, sizeof(*index->segments));
    index->taken = calloc((size_t)index->n_segments * index->words, sizeof(*index->taken));
    if (!index->records || !index->buckets || !index->segments || !index->taken)
        return -ENOMEM;
    memset(index->buckets, 0xff, index->n_buckets * sizeof(*index->buckets)); /* STORE_NONE */
    return 0;
}

void index_fini(struct store_index *index)
{
    free(index->records);
    free(index->buckets);
    free(index->segments);
    free(index->taken);
    *index = (struct store_index){0};
}

/* ---- the heap of a user ------------------------------------------------------------------------ */

static bool is_worth_less(const struct index_record *a, const struct index_record *b)
{
    return a->worth < b->worth || (a->worth == b->worth && a->used < b->used);
}

static uint32_t heap_rank(const struct store_index *index, uint32_t id)
{
    return id == STORE_NONE ? 0 : index->records[id].rank;
}

/* The longer side of a node is its left one. Returns whether its rank has changed. */
static bool heap_level(struct store_index *index, uint32_t id)
{
    struct index_record *r = &index->records[id];
    if (heap_rank(index, r->left) < heap_rank(index, r->right)) {
        uint32_t left = r->left;
        r->left = r->right;
        r->right = left;
    }
    uint32_t before = r->rank;
    r->rank = heap_rank(index, r->right) + 1;
    return r->rank != before;
}

/* Goes down right sides, so as deep as their rank: a logarithm. */
static uint32_t heap_merge(struct store_index *index, uint32_t a, uint32_t b)
{
    if (a == STORE_NONE || b == STORE_NONE)
        return a == STORE_NONE ? b : a;
    if (is_worth_less(&index->records[b], &index->records[a])) {
        uint32_t swapped = a;
        a = b;
        b = swapped;
    }
    uint32_t right = heap_merge(index, index->records[a].right, b);
    index->records[a].right = right;
    index->records[right].up = a;
    heap_level(index, a);
    return a;
}

static void heap_root(struct store_index *index, uint32_t user, uint32_t id)
{
    index->users[user].heap = id;
    if (id != STORE_NONE)
        index->records[id].up = STORE_NONE;
}

static void heap_add(struct store_index *index, uint32_t id)
{
    struct index_record *r = &index->records[id];
    r->left = r->right = STORE_NONE;
    r->rank = 1;
    heap_root(index, r->user, heap_merge(index, index->users[r->user].heap, id));
}

static void heap_remove(struct store_index *index, uint32_t id)
{
    struct index_record *r = &index->records[id];
    uint32_t up = r->up, merged = heap_merge(index, r->left, r->right);
    r->rank = 0;
    if (up == STORE_NONE) {
        heap_root(index, r->user, merged);
        return;
    }
    if (merged != STORE_NONE)
        index->records[merged].up = up;
    if (index->records[up].left == id)
        index->records[up].left = merged;
    else
        index->records[up].right = merged;
    while (up != STORE_NONE && heap_level(index, up))
        up = index->records[up].up;
}

/* A record is in the heap while it may be evicted. */
static void heap_settle(struct store_index *index, uint32_t id)
{
    const struct index_record *r = &index->records[id];
    bool may_go = r->state == INDEX_STORED && r->followers == 0 && r->readers == 0;
    if (may_go && r->rank == 0)
        heap_add(index, id);
    else if (!may_go && r->rank > 0)
        heap_remove(index, id);
}

/* ---- records by key ---------------------------------------------------------------------------- */

/* Keys are as good as chosen by clients: by odd factors of chance they spread whatever they are. */
static uint32_t *bucket_of(const struct store_index *index, enum store_class class,
                           const struct store_key *key)
{
    const uint64_t hash = (key->words[0] + (uint64_t) class) * (index->salt[0] | 1) +
                          key->words[1] * (index->salt[1] | 1);
    return &index->buckets[hash >> index->shift];
}

static bool same_key(const struct store_key *a, const struct store_key *b)
{
    return a->words[0] == b->words[0] && a->words[1] == b->words[1];
}

/* In any state. */
static uint32_t find_key(const struct store_index *index, enum store_class class,
                         const struct store_key *key)
{
    uint32_t id = *bucket_of(index, class, key);
    while (id != STORE_NONE &&
           (index->records[id].class != class || !same_key(&index->records[id].text.key, key)))
        id = index->records[id].next;
    return id;
}

static bool same_text(const struct store_text *a, const struct store_text *b)
{
    return a->uid == b->uid && a->end == b->end && same_key(&a->key, &b->key) &&
           same_key(&a->parent, &b->parent) && !memcmp(a->tokens, b->tokens, sizeof(a->tokens));
}

uint32_t index_find(const struct store_index *index, enum store_class class,
                    const struct store_text *text)
{
    uint32_t id = find_key(index, class, &text->key);
    return id != STORE_NONE && index->records[id].state == INDEX_STORED &&
                   same_text(&index->records[id].text, text)
               ? id
               : STORE_NONE;
}

/* An absent record of that key, new or there; STORE_NONE: all places are taken. */
static uint32_t take_record(struct store_index *index, enum store_class class,
                            const struct store_key *key)
{
    uint32_t id = find_key(index, class, key);
    if (id != STORE_NONE)
        return id;
    id = index->free;
    if (id != STORE_NONE)
        index->free = index->records[id].next;
    else if (index->unused < index->n_records)
        id = index->unused++;
    else
        return STORE_NONE;
    uint32_t *bucket = bucket_of(index, class, key);
    index->records[id] = (struct index_record){.text.key = *key,
                                               .class = (uint8_t) class,
                                               .anchor = STORE_NONE,
                                               .first = STORE_NONE,
                                               .next = *bucket};
    *bucket = id;
    return id;
}

/* An absent record that none hangs on is free again. */
static void release_record(struct store_index *index, uint32_t id)
{
    struct index_record *r = &index->records[id];
    uint32_t *link = bucket_of(index, r->class, &r->text.key);
    if (r->state != INDEX_ABSENT || r->followers > 0)
        return;
    while (*link != id)
        link = &index->records[*link].next;
    *link = r->next;
    *r = (struct index_record){.next = index->free}; /* the tokens too: they are a user's text */
    index->free = id;
}

/* ---- anchors ----------------------------------------------------------------------------------- */

/* What a record of the text hangs on: one follower more. STORE_NONE: all places are taken. */
static uint32_t take_anchor(struct store_index *index, enum store_class class,
                            const struct store_text *text)
{
    uint32_t id = take_record(index, STORE_PAGE, class == STORE_PAGE ? &text->parent : &text->key);
    if (id == STORE_NONE)
        return id;
    index->records[id].followers++;
    heap_settle(index, id);
    return id;
}

/* Into the list of its anchor, if it is a page; out of it. */
static void link_page(struct store_index *index, uint32_t id)
{
    struct index_record *r = &index->records[id];
    uint32_t *first = &index->records[r->anchor].first;
    if (r->class != STORE_PAGE)
        return;
    r->before = STORE_NONE;
    r->after = *first;
    if (*first != STORE_NONE)
        index->records[*first].before = id;
    *first = id;
}

static void unlink_page(struct store_index *index, uint32_t id)
{
    const struct index_record *r = &index->records[id];
    if (r->class != STORE_PAGE)
        return;
    if (r->before == STORE_NONE)
        index->records[r->anchor].first = r->after;
    else
        index->records[r->before].after = r->after;
    if (r->after != STORE_NONE)
        index->records[r->after].before = r->before;
}

static uint32_t equal_tokens(const uint32_t *a, const uint32_t *b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* How many of tokens [n] a text can make use of that goes on with them as this page does, and
 * has the classes beside it that the model has: a state follows from all of the page's tokens. */
static uint32_t usable_tokens(const struct store_index *index, const struct index_record *page,
                              const uint32_t *tokens, uint32_t n)
{
    const struct index_size *sizes = index->sizes.classes;
    const uint32_t has = (page->text.end - 1) % STORE_TOKENS + 1;
    const uint32_t equal = equal_tokens(page->text.tokens, tokens, n);
    if (sizes[STORE_WINDOW].slot_bytes > 0 &&
        index_find(index, STORE_WINDOW, &page->text) == STORE_NONE)
        return 0;
    if (sizes[STORE_STATE].slot_bytes > 0 &&
        (equal < has || index_find(index, STORE_STATE, &page->text) == STORE_NONE))
        return 0;
    return equal;
}

uint32_t index_find_begun(const struct store_index *index, const struct store_text *text,
                          const uint32_t *tokens, uint32_t n, uint32_t *ret_n)
{
    uint32_t found = STORE_NONE, looks = 0;
    const uint32_t anchor = find_key(index, STORE_PAGE, &text->key);
    *ret_n = 0;
    if (anchor == STORE_NONE)
        return found;
    for (uint32_t id = index->records[anchor].first; id != STORE_NONE && looks < INDEX_LOOKS;
         id = index->records[id].after, looks++) {
        const struct index_record *r = &index->records[id];
        if (r->state != INDEX_STORED || r->text.uid != text->uid ||
            !same_key(&r->text.parent, &text->key) ||
            (r->text.end - 1) / STORE_TOKENS * STORE_TOKENS != text->end)
            continue;
        const uint32_t usable = usable_tokens(index, r, tokens, n);
        if (usable <= *ret_n)
            continue;
        found = id;
        *ret_n = usable;
    }
    return found;
}

static void release_anchor(struct store_index *index, uint32_t id)
{
    assert(index->records[id].followers > 0);
    index->records[id].followers--;
    heap_settle(index, id);
    release_record(index, id);
}

/* ---- users and segments ------------------------------------------------------------------------ */

/* Of a uid; else a free place for it; else STORE_NONE. */
static uint32_t user_of(struct store_index *index, uid_t uid)
{
    uint32_t found = STORE_NONE;
    for (uint32_t i = 0; i < INDEX_USERS; i++) {
        if (index->users[i].n_records > 0 && index->users[i].uid == uid)
            return i;
        if (index->users[i].n_records == 0 && found == STORE_NONE)
            found = i;
    }
    if (found != STORE_NONE)
        index->users[found] = (struct index_user){.uid = uid, .heap = STORE_NONE};
    return found;
}

static uint64_t *slot_word(struct store_index *index, uint32_t segment, uint32_t slot)
{
    return &index->taken[(size_t)segment * index->words + slot / 64];
}

static bool slot_is_taken(struct store_index *index, uint32_t segment, uint32_t slot)
{
    return *slot_word(index, segment, slot) >> slot % 64 & 1;
}

static bool has_room(const struct index_segment *s)
{
    return s->n_taken > 0 && s->n_taken < s->n_slots;
}

static uint32_t find_roomy(const struct store_index *index, uint32_t user, enum store_class class)
{
    for (uint32_t i = 0; i < index->n_segments; i++) {
        const struct index_segment *s = &index->segments[i];
        if (has_room(s) && s->user == user && s->class == class)
            return i;
    }
    return STORE_NONE;
}

/* A place for a segment without slots; to be kept, one has to be taken. */
static uint32_t new_segment(struct store_index *index, uint32_t user, enum store_class class,
                            uint32_t number)
{
    uint32_t id = 0;
    while (id < index->n_segments && index->segments[id].n_taken > 0)
        id++;
    if (id == index->n_segments)
        return STORE_NONE;
    index->segments[id] = (struct index_segment){.number = number,
                                                 .n_slots = index->sizes.classes[class].n_slots,
                                                 .user = (uint16_t)user,
                                                 .class = (uint8_t) class};
    return id;
}

/* The record has its place in a file, and its bytes count. */
static void take_slot(struct store_index *index, uint32_t id, uint32_t segment, uint32_t slot)
{
    struct index_segment *s = &index->segments[segment];
    struct index_record *r = &index->records[id];
    uint64_t bytes = index->sizes.classes[s->class].slot_bytes +
                     (s->n_taken == 0 ? index->sizes.segment_bytes : 0);
    *slot_word(index, segment, slot) |= (uint64_t)1 << slot % 64;
    s->n_taken++;
    r->segment = segment;
    r->slot = slot;
    index->bytes += bytes;
    index->users[s->user].bytes += bytes;
}

static void release_slot(struct store_index *index, const struct index_record *r)
{
    struct index_segment *s = &index->segments[r->segment];
    *slot_word(index, r->segment, r->slot) &= ~((uint64_t)1 << r->slot % 64);
    s->n_taken--;
    if (r->slot < s->first)
        s->first = r->slot;
    uint64_t bytes = index->sizes.classes[s->class].slot_bytes +
                     (s->n_taken == 0 ? index->sizes.segment_bytes : 0);
    index->bytes -= bytes;
    index->users[s->user].bytes -= bytes;
    assert(index->n_gone < INDEX_GONE);
    index->gone[index->n_gone++] = (struct index_gone){
        .kind = s->n_taken == 0 ? GONE_SEGMENT : GONE_SLOT, .id = r->segment, .slot = r->slot};
}

static uint32_t free_slot(struct store_index *index, uint32_t segment)
{
    struct index_segment *s = &index->segments[segment];
    while (slot_is_taken(index, segment, s->first))
        s->first++;
    return s->first;
}

/* ---- in and out -------------------------------------------------------------------------------- */

static void set_worth(struct store_index *index, struct index_record *r, double inflation)
{
    const double bytes = (double)index->sizes.classes[r->class].slot_bytes;
    r->worth = inflation + (double)r->cost_ns / bytes;
    r->used = ++index->used;
}

/* A record that is being written from now on, not in a slot yet. STORE_NONE: all places are taken. */
static uint32_t fill(struct store_index *index, uint32_t user, enum store_class class,
                     const struct store_text *text, uint64_t cost_ns, double inflation)
{
    uint32_t id = take_record(index, class, &text->key);
    uint32_t anchor = id == STORE_NONE ? STORE_NONE : take_anchor(index, class, text);
    if (id == STORE_NONE)
        return id;
    if (anchor == STORE_NONE) {
        release_record(index, id);
        return anchor;
    }
    struct index_record *r = &index->records[id];
    assert(r->state == INDEX_ABSENT);
    r->text = *text;
    r->cost_ns = cost_ns;
    r->anchor = anchor;
    r->user = (uint16_t)user;
    r->state = INDEX_WRITING;
    link_page(index, id);
    set_worth(index, r, inflation);
    index->users[user].n_records++;
    index->n_stored++;
    return id;
}

/* What is not there any more; it may still be another one's anchor. */
static void empty(struct store_index *index, uint32_t id)
{
    struct index_record *r = &index->records[id];
    uint32_t anchor = r->anchor;
    if (r->rank > 0)
        heap_remove(index, id);
    index->users[r->user].n_records--;
    index->n_stored--;
    unlink_page(index, id);
    r->state = INDEX_ABSENT;
    r->anchor = STORE_NONE;
    memset(r->text.tokens, 0, sizeof(r->text.tokens));
    release_record(index, id);
    release_anchor(index, anchor);
}

/* The same with its slot. */
static void drop(struct store_index *index, uint32_t id)
{
    release_slot(index, &index->records[id]);
    empty(index, id);
}

void index_forget(struct store_index *index, uint32_t id)
{
    assert(index->records[id].state != INDEX_ABSENT && index->records[id].readers == 0);
    index->n_gone = 0;
    drop(index, id);
}

/* ---- room -------------------------------------------------------------------------------------- */

/* Of the users with something to evict the one with the most bytes, `user` as if it had `need` more.
 * None with fewer than `user` has then. */
static uint32_t choose_user(const struct store_index *index, uint32_t user, uint64_t need)
{
    uint64_t most = user == STORE_NONE ? 0 : index->users[user].bytes + need;
    uint32_t found = STORE_NONE;
    if (user != STORE_NONE && index->users[user].heap != STORE_NONE)
        found = user;
    for (uint32_t i = 0; i < INDEX_USERS; i++) {
        const struct index_user *u = &index->users[i];
        if (u->n_records > 0 && u->heap != STORE_NONE && u->bytes > most) {
            found = i;
            most = u->bytes;
        }
    }
    return found;
}

static void evict(struct store_index *index, uint32_t user)
{
    struct index_user *u = &index->users[user];
    uint32_t id = u->heap;
    u->inflation = index->records[id].worth;
    index->evicted++;
    drop(index, id);
}

/* Evicts until there are `need` bytes, for the user. Returns false when that takes too much. */
static bool make_room(struct store_index *index, uint32_t user, uint64_t need)
{
    while (index->bytes + index->other_bytes + need > index->sizes.bytes) {
        uint32_t from;
        if (index->n_gone == INDEX_GONE)
            return false;
        if (index->next_other < index->n_others) {
            index->other_bytes -= index->others[index->next_other];
            index->gone[index->n_gone++] =
                (struct index_gone){.kind = GONE_MODEL, .id = index->next_other++};
        } else if ((from = choose_user(index, user, need)) != STORE_NONE) {
            evict(index, from);
        } else {
            return false;
        }
    }
    return true;
}

bool index_shrink(struct store_index *index)
{
    index->n_gone = 0;
    return !make_room(index, STORE_NONE, 0) && index->n_gone == INDEX_GONE;
}

/* ---- what is offered --------------------------------------------------------------------------- */

/* The text of a set that gives its place: of the user with the most in it the one that was offered
 * first. Else whoever offers many texts would have all others' forgotten. */
static uint32_t find_least_seen(const uint64_t *seen)
{
    uint32_t found = INDEX_SEEN_SET - 1, most = 0;
    for (uint32_t i = INDEX_SEEN_SET; i-- > 0 && seen[INDEX_SEEN_SET - 1] != 0;) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < INDEX_SEEN_SET; k++)
            n += (uint8_t)seen[k] == (uint8_t)seen[i];
        if (n <= most)
            continue;
        found = i;
        most = n;
    }
    return found;
}

/* Was the text offered before? If not, it is noted, in place of another one of its set. */
static bool offered_before(struct store_index *index, enum store_class class,
                           const struct store_text *text)
{
    const uint64_t this = (text->key.words[1] + (uint64_t) class) << 8 | (uint8_t)text->uid,
                   set = (text->key.words[0] + (uint64_t) class) % (INDEX_SEEN / INDEX_SEEN_SET);
    uint64_t *seen = &index->seen[set * INDEX_SEEN_SET];
    for (uint32_t i = 0; i < INDEX_SEEN_SET; i++)
        if (seen[i] == this)
            return true;
    memmove(seen + 1, seen, find_least_seen(seen) * sizeof(*seen));
    seen[0] = this;
    return false;
}

/* Is the text long enough, needed by what is stored, wanted, or offered again? */
static bool is_eligible(struct store_index *index, enum store_class class,
                        const struct store_text *text, bool wanted)
{
    return wanted || text->end >= index->sizes.min_tokens ||
           find_key(index, class, &text->key) != STORE_NONE || offered_before(index, class, text);
}

/* Finds a slot for the record, with its anchor, evicting others. */
static bool place(struct store_index *index, uint32_t id, uint32_t user, enum store_class class)
{
    uint64_t need = index->sizes.classes[class].slot_bytes;
    uint32_t segment = find_roomy(index, user, class);
    if (segment == STORE_NONE)
        need += index->sizes.segment_bytes;
    if (!make_room(index, user, need))
        return false;
    segment = find_roomy(index, user, class); /* what was evicted may have left it, or one more */
    if (segment == STORE_NONE)
        segment = new_segment(index, user, class, index->next_number);
    if (segment == STORE_NONE)
        return false;
    index->next_number += index->segments[segment].n_taken == 0;
    take_slot(index, id, segment, free_slot(index, segment));
    return true;
}

static bool is_there(const struct store_index *index, enum store_class class,
                     const struct store_key *key)
{
    uint32_t id = find_key(index, class, key);
    return id != STORE_NONE && index->records[id].state != INDEX_ABSENT;
}

/* Of records, for one and its anchor: --kv-store-bytes may have room for more than there are. */
static bool has_places(const struct store_index *index)
{
    uint32_t n = index->n_records - index->unused;
    for (uint32_t id = index->free; id != STORE_NONE && n < 2; id = index->records[id].next)
        n++;
    return n >= 2;
}

bool index_has_room(const struct store_index *index, enum store_class class)
{
    return has_places(index) && index->bytes + index->other_bytes +
                                        index->sizes.classes[class].slot_bytes +
                                        index->sizes.segment_bytes <=
                                    index->sizes.bytes;
}

enum index_answer index_wants(struct store_index *index, enum store_class class,
                              const struct store_text *text, bool wanted)
{
    if (!overflow_uid_shares(text->uid) || is_there(index, class, &text->key))
        return INDEX_HAS;
    return is_eligible(index, class, text, wanted) ? INDEX_WANTS : INDEX_SHORT;
}

uint32_t index_add(struct store_index *index, enum store_class class, const struct store_text *text,
                   uint64_t cost_ns)
{
    assert(overflow_uid_shares(text->uid));
    index->n_gone = 0;
    uint32_t user = user_of(index, text->uid);
    if (user == STORE_NONE)
        return STORE_NONE;
    while (!has_places(index)) {
        uint32_t from = choose_user(index, user, 0);
        if (index->n_gone == INDEX_GONE || from == STORE_NONE)
            return STORE_NONE;
        evict(index, from);
    }
    uint32_t id = fill(index, user, class, text, cost_ns, index->users[user].inflation);
    if (id == STORE_NONE || place(index, id, user, class))
        return id;
    empty(index, id);
    return STORE_NONE;
}

uint64_t index_written(const struct store_index *index, uid_t uid, uint64_t day)
{
    for (uint32_t i = 0; i < INDEX_USERS; i++) {
        const struct index_user *u = &index->users[i];
        if (u->n_records > 0 && u->uid == uid)
            return u->day == day ? u->written : 0;
    }
    return 0;
}

void index_charge(struct store_index *index, uint32_t id, uint64_t day, int64_t bytes)
{
    struct index_user *u = &index->users[index->records[id].user];
    const int64_t before = u->day == day ? (int64_t)u->written : 0;
    u->day = day;
    u->written = before + bytes > 0 ? (uint64_t)(before + bytes) : 0;
}

void index_stored(struct store_index *index, uint32_t id, const uint8_t hash[16])
{
    struct index_record *r = &index->records[id];
    assert(r->state == INDEX_WRITING);
    memcpy(r->hash, hash, sizeof(r->hash));
    r->state = INDEX_STORED;
    heap_settle(index, id);
}

void index_read(struct store_index *index, uint32_t id)
{
    assert(index->records[id].state == INDEX_STORED);
    index->records[id].readers++;
    heap_settle(index, id);
}

void index_unread(struct store_index *index, uint32_t id)
{
    struct index_record *r = &index->records[id];
    assert(r->readers > 0);
    r->readers--;
    set_worth(index, r, index->users[r->user].inflation);
    heap_settle(index, id);
}

/* ---- when the store is opened ------------------------------------------------------------------ */

uint32_t index_segment(struct store_index *index, uid_t uid, enum store_class class,
                       uint32_t number)
{
    const uint32_t user = user_of(index, uid);
    return user == STORE_NONE ? STORE_NONE : new_segment(index, user, class, number);
}

bool index_load(struct store_index *index, uint32_t segment, uint32_t slot,
                const struct store_text *text, uint64_t cost_ns, double inflation,
                const uint8_t hash[16])
{
    const struct index_segment *s = &index->segments[segment];
    struct index_user *user = &index->users[s->user];
    double since = inflation >= 0 && inflation < 1e300 ? inflation : 0;
    uint32_t id = is_there(index, s->class, &text->key)
                      ? STORE_NONE
                      : fill(index, s->user, s->class, text, cost_ns, since);
    if (id == STORE_NONE)
        return false;
    if (since > user->inflation)
        user->inflation = since;
    take_slot(index, id, segment, slot);
    index_stored(index, id, hash);
    return true;
}

void index_loaded(struct store_index *index, uint32_t segment)
{
    index->n_gone = 0;
    if (index->segments[segment].n_taken == 0)
        index->gone[index->n_gone++] = (struct index_gone){.kind = GONE_SEGMENT, .id = segment};
}

void index_other(struct store_index *index, uint64_t bytes)
{
    if (index->n_others == INDEX_MODELS)
        return;
    index->others[index->n_others++] = bytes;
    index->other_bytes += bytes;
}
