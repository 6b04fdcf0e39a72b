/* Looks, decides, asks, takes, publishes, ends: in the order of this file. */
#include "daemon/engine/fetch.h"

#include "daemon/engine/answer.h"
#include "daemon/engine/gather.h"
#include "daemon/engine/request.h"
#include "daemon/overflow_uid.h"
#include "ipc/counters.h"
#include "kernels/kv.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t FIRST_MIB_NS = 2000000; /* while nothing was read: a slow SSD */
static const uint64_t PATIENCE_NS = 5000000;  /* at least: the disk, or the thread, woke up late */

enum {
    STEP_SHARE = 8,   /* beside other requests: 1 / this of the time between tokens */
    LOOK_PAGES = 128, /* of a text that one step looks for: less than 0.1 ms ... */
    LOOKS = 8,        /* ... and of so many texts */
};

int fetches_init(struct fetches *fetches, struct slots *slots)
{
    stored_open(&fetches->stored, slots);
    fetches->mib_ns = FIRST_MIB_NS;
    fetches->look_pages = LOOK_PAGES;
    if (!fetches->stored.store)
        return 0;
    fetches->reads = store_reads(fetches->stored.store);
    for (uint32_t i = 0; i < FETCH_READS; i++)
        fetches->read[i].memory = PAGE_NONE;
    fetches->all = calloc(slots->n, sizeof(*fetches->all));
    return fetches->all ? 0 : -ENOMEM;
}

void fetches_fini(struct fetches *fetches)
{
    stored_fini(&fetches->stored);
    free(fetches->all);
    fetches->all = NULL;
}

static struct slot *slot_of(const struct fetches *fetches, const struct fetch *fetch)
{
    return &fetches->stored.slots->all[fetch - fetches->all];
}

static const uint32_t *tokens_of(const struct slot *slot, uint32_t page)
{
    return slot->tokens + (size_t)page * KV_PAGE_POSITIONS;
}

/* ---- how far the store goes ------------------------------------------------------------------ */

/* The text up to the slot's shared page `n`. */
static void text_up_to(const struct stored *stored, const struct slot *slot, uint32_t n,
                       struct store_text *ret)
{
    if (n == 0)
        store_begin(stored->store, slot->uid, ret);
    else
        stored_text(stored, slot->pages[n - 1], ret);
}

/* fetch->text goes on by page `at`. One that the slot holds ahead has its key. */
static void follow_text(const struct stored *stored, struct fetch *fetch, const struct slot *slot)
{
    if (fetch->at < slot->n_ahead)
        stored_text(stored, slot->ahead[fetch->at], &fetch->text);
    else
        store_follow(&fetch->text, tokens_of(slot, fetch->at));
}

/* Looks for the end of the slot's text after page n, up to which fetch->text is; one token at
 * least is left to compute. Returns whether the store has some of it. */
static bool find_end(const struct stored *stored, struct fetch *fetch, const struct slot *slot,
                     uint32_t n)
{
    const uint32_t left = slot->spec.accepted - 1 - n * KV_PAGE_POSITIONS;
    if (!store_find_begun(stored->store, &fetch->text, tokens_of(slot, n),
                          left < KV_PAGE_POSITIONS ? left : KV_PAGE_POSITIONS - 1, &fetch->end_text,
                          &fetch->end_positions))
        fetch->end_positions = 0;
    return fetch->end_positions > 0;
}

static bool stores(const struct stored *stored, enum store_class class,
                   const struct store_text *text)
{
    return store_find(stored->store, class, text) != STORE_NONE;
}

/* The first of the window pages before page `from` that are at hand, here or there, without a gap. */
static uint32_t first_window(const struct stored *stored, const struct slot *slot, uint32_t from)
{
    const struct prefix *prefix = &stored->slots->kv.prefix;
    uint32_t left = from, begin = kv_window_begin(prefix->window, from * KV_PAGE_POSITIONS);
    struct store_text text;
    for (; left > begin; left--) {
        if (slot_finds_window(slot, prefix, left - 1))
            continue;
        text_up_to(stored, slot, left, &text);
        if (!stores(stored, STORE_WINDOW, &text))
            break;
    }
    return left;
}

/* Looks at page `at`, which the slot holds ahead, or the store may have. False: neither. */
static bool look_at(const struct stored *stored, struct fetch *fetch, const struct slot *slot)
{
    const struct prefix *prefix = &stored->slots->kv.prefix;
    const struct backend_info *info = &stored->loaded->info;
    const bool here = fetch->at < slot->n_ahead;
    const struct prefix_page *page = here ? &prefix->pages[slot->ahead[fetch->at]] : NULL;
    follow_text(stored, fetch, slot);
    if (!here && !stores(stored, STORE_PAGE, &fetch->text))
        return false;
    fetch->seen_bytes += here ? 0 : info->page_bytes;
    fetch->at++;
    if ((!here || page->window == PAGE_NONE) &&
        (prefix->window == 0 || !stores(stored, STORE_WINDOW, &fetch->text)))
        fetch->left = fetch->at;
    if (fetch->left <= kv_window_begin(prefix->window, fetch->at * KV_PAGE_POSITIONS) &&
        (!prefix->states || (here && page->point != PAGE_NONE) ||
         stores(stored, STORE_STATE, &fetch->text))) {
        fetch->n = fetch->at;
        fetch->bytes = fetch->seen_bytes + info->state_bytes;
    }
    return true;
}

/* How far would the slot's text be warm with what the store has? Some pages of it. Returns whether this is
 * known now. */
static bool look(const struct fetches *fetches, struct fetch *fetch, const struct slot *slot)
{
    const struct stored *stored = &fetches->stored;
    const struct backend_info *info = &stored->loaded->info;
    const struct prefix *prefix = &stored->slots->kv.prefix;
    const uint32_t window = prefix->window;
    for (uint32_t i = 0; i < fetches->look_pages; i++) {
        if ((uint64_t)(fetch->at + 1) * KV_PAGE_POSITIONS < slot->spec.accepted &&
            look_at(stored, fetch, slot))
            continue;
        if (prefix->states && find_end(stored, fetch, slot, fetch->at)) {
            fetch->needs_end = true;
            fetch->n = fetch->at;
            fetch->bytes = fetch->seen_bytes + info->page_bytes + info->state_bytes;
        }
        if (window > 0)
            fetch->bytes += (fetch->n - kv_window_begin(window, fetch->n * KV_PAGE_POSITIONS)) *
                            info->window_page_bytes;
        return true;
    }
    return false;
}

/* ---- beginning ------------------------------------------------------------------------------- */

/* Does the other slot, which reads, have the slot's text up to the end of the page that this one
 * needs next? The same parent is the same prefix: no token before that page is compared. */
static bool same_text(const struct slot *slot, const struct slot *other)
{
    const uint32_t i = slot->n_shared;
    return other->uid == slot->uid && other->n_ahead >= i &&
           (i == 0 || other->ahead[i - 1] == slot->pages[i - 1]) &&
           !memcmp(tokens_of(other, i), tokens_of(slot, i),
                   KV_PAGE_POSITIONS * sizeof(*slot->tokens));
}

/* Another fetch that reads the page that the slot needs next, or NULL. */
static struct fetch *find_leader(const struct fetches *fetches, const struct slot *slot)
{
    for (uint32_t k = 0; k < fetches->stored.slots->n; k++) {
        struct fetch *fetch = &fetches->all[k];
        if (fetch->active && !fetch->leader && !fetch->looks && fetch->n > slot->n_shared &&
            same_text(slot, slot_of(fetches, fetch)))
            return fetch;
    }
    return NULL;
}

/* Does another one read what the slot needs next? Then it waits for that. */
static bool follow(const struct fetches *fetches, struct fetch *fetch, struct slot *slot)
{
    fetch->leader = find_leader(fetches, slot);
    if (!fetch->leader)
        return false;
    fetch->follows = fetch->leader->number;
    slot_drop_ahead(slot, &fetches->stored.slots->kv.prefix);
    return true;
}

static bool worthwhile(struct fetches *fetches, const struct fetch *fetch)
{
    if (fetches->always || fetch->bytes * fetches->mib_ns >> 20 < fetch->compute_ns)
        return true;
    fetches->mib_ns -= fetches->mib_ns / 64; /* it is tried again some time */
    return false;
}

/* The slot sits out from now on. */
static void wait_from_now(struct fetches *fetches, struct fetch *fetch, struct slot *slot,
                          uint64_t now_ns)
{
    fetch->active = true;
    fetch->serial = slot->serial;
    fetch->number = ++fetches->number;
    fetch->began_ns = fetch->moved_ns = now_ns;
    slots_set(fetches->stored.slots, slot, SLOT_READING);
}

/* After the look: is there something to wait for? What is read begins with the first page that is missing
 * something: those before it are missing no window page. */
static bool set_start(struct fetches *fetches, struct fetch *fetch, struct slot *slot,
                      uint64_t now_ns)
{
    const struct stored *stored = &fetches->stored;
    uint32_t begin = kv_window_begin(stored->slots->kv.prefix.window, fetch->n * KV_PAGE_POSITIONS);
    if (fetch->n > fetch->from && follow(fetches, fetch, slot))
        return true;
    fetch->compute_ns =
        stored_compute_ns(stored, fetch->n * KV_PAGE_POSITIONS - slot->spec.canonical);
    if (fetch->n == fetch->from || !worthwhile(fetches, fetch))
        return false;
    fetch->at = begin < fetch->from ? begin : fetch->from;
    text_up_to(stored, slot, fetch->at, &fetch->text);
    fetch->began_ns = fetch->moved_ns = now_ns;
    return true;
}

/* Looks for some pages of the slot's text. False: it need not wait, for all is known and nothing is read. */
static bool go_on_looking(struct fetches *fetches, struct fetch *fetch, struct slot *slot,
                          uint64_t now_ns)
{
    if (fetches->looks == 0)
        return true;
    fetches->looks--;
    const bool looks = !look(fetches, fetch, slot);
    const bool waits = looks || set_start(fetches, fetch, slot, now_ns);
    fetch->looks = looks;
    return waits;
}

/* Begins with the slot's new request. Returns whether it waits for the store from now on. */
static bool begin(struct fetches *fetches, struct slot *slot, uint64_t now_ns)
{
    struct stored *stored = &fetches->stored;
    struct fetch *fetch = &fetches->all[slot - stored->slots->all];
    const uint32_t from = slot->n_shared;
    if (!overflow_uid_shares(slot->uid) || spec_rows(&slot->spec) <= PLAN_SHORT)
        return false;
    assert(from == slot->spec.canonical / KV_PAGE_POSITIONS);
    *fetch = (struct fetch){.looks = true, .from = from, .at = from, .n = from};
    if (follow(fetches, fetch, slot)) {
        fetch->looks = false;
    } else {
        slot_hold_ahead(slot, &stored->slots->kv.prefix);
        fetch->held = slot->n_ahead;
        fetch->left = first_window(stored, slot, from);
        text_up_to(stored, slot, from, &fetch->text);
        if (!go_on_looking(fetches, fetch, slot, now_ns)) {
            slot_drop_ahead(slot, &stored->slots->kv.prefix);
            return false;
        }
    }
    wait_from_now(fetches, fetch, slot, now_ns);
    return true;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Is this part of page `at`, or of the end after page n, to be read? */
static bool is_missing(const struct stored *stored, const struct fetch *fetch,
                       const struct slot *slot)
{
    const struct prefix *prefix = &stored->slots->kv.prefix;
    if (fetch->at == fetch->n)
        return fetch->end_positions > 0 &&
               backend_copy_bytes(&stored->loaded->info, (enum copy_class)fetch->next) > 0;
    const bool here = fetch->at < slot->n_ahead;
    const struct prefix_page *page = here ? &prefix->pages[slot->ahead[fetch->at]] : NULL;
    switch (fetch->next) {
    case STORE_PAGE:
        return !here;
    case STORE_WINDOW:
        return fetch->at >= kv_window_begin(prefix->window, fetch->n * KV_PAGE_POSITIONS) &&
               (!here ||
                (page->window == PAGE_NONE && !slot_finds_window(slot, prefix, fetch->at)));
    default:
        return prefix->states && !fetch->needs_end && fetch->at + 1 == fetch->n &&
               (!here || page->point == PAGE_NONE);
    }
}

/* Goes on to the next part, or the next page. */
static void go_on(struct fetch *fetch)
{
    if (fetch->next != STORE_STATE) {
        fetch->next = fetch->next == STORE_PAGE ? STORE_WINDOW : STORE_STATE;
        return;
    }
    fetch->next = STORE_PAGE;
    fetch->at++;
}

/* Does the slot still wait for this fetch, with all that it held? */
static bool is_live(const struct fetch *fetch, const struct slot *slot)
{
    return slot->state == SLOT_READING && slot->serial == fetch->serial;
}

/* Whose fetch it is, if it reads, or finds out what to read; else NULL. */
static struct client_user *user_of(const struct fetches *fetches, const struct fetch *fetch)
{
    const struct slot *slot = slot_of(fetches, fetch);
    return fetch->active && !fetch->leader && is_live(fetch, slot) ? slot->client->user : NULL;
}

/* Counts the fetches of each user that read. Returns the reads of each user that are queued at once:
 * the disk is busy while the engine takes what came, and several users have as much of it each. Of
 * all pages an eighth: a disk that does not answer keeps them. */
static uint32_t count_share(const struct fetches *fetches)
{
    const struct stored *stored = &fetches->stored;
    const uint32_t eighth = stored->slots->kv.pool.total / 8;
    uint32_t most = fetches->reads < eighth ? fetches->reads : eighth, n_users = 0;
    struct client_user *user;
    for (uint32_t i = 0; i < stored->slots->n; i++)
        if ((user = user_of(fetches, &fetches->all[i])))
            user->fetches = 0;
    for (uint32_t i = 0; i < stored->slots->n; i++)
        if ((user = user_of(fetches, &fetches->all[i])) && !fetches->all[i].looks)
            n_users += user->fetches++ == 0;
    most = n_users > 1 ? most / n_users : most;
    return most < 1 ? 1 : most;
}

/* Reads of the slot's fetch that are queued at once: a part of its user's. */
static uint32_t depth(const struct fetches *fetches, const struct slot *slot)
{
    const uint32_t n = slot->client->user->fetches;
    const uint32_t most = n > 1 ? fetches->share / n : fetches->share;
    return most < 1 ? 1 : most > FETCH_READS ? FETCH_READS : most;
}

/* Does it keep a place for reads from others? Until what was read is in the cache, or waits as an end
 * for its slot, or is back in the pool. */
static bool is_on_the_way(const struct fetch_read *read)
{
    return read->memory != PAGE_NONE && (!read->fetch || read->fetch->end[read->class] != read);
}

/* Has the user as many reads on the way as it may, those of its fetches that ended included? */
static bool has_share(const struct fetches *fetches, uid_t uid)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < FETCH_READS; i++)
        n += fetches->read[i].uid == uid && is_on_the_way(&fetches->read[i]);
    return n >= fetches->share;
}

/* Memory that nothing else uses from now on, or PAGE_NONE: there is none. */
static uint32_t take_memory(struct stored *stored, const struct slot *slot, enum store_class class)
{
    struct slots *slots = stored->slots;
    uint32_t evicted = 0;
    uint32_t id = class == STORE_PAGE     ? slots_take_page(slots, slot, &evicted)
                  : class == STORE_WINDOW ? slots_take_window(slots, slot, &evicted)
                                          : slots_take_state(slots, &slots->kv.prefix);
    counters_add(stored->ctl, COUNTER_EVICTIONS, evicted);
    return id;
}

static struct pages *pool_of(struct stored *stored, enum store_class class)
{
    struct slots *slots = stored->slots;
    return class == STORE_PAGE     ? &slots->kv.pool
           : class == STORE_WINDOW ? &slots->kv.windows
                                   : &slots->kv.states;
}

static struct fetch_read *find_free(struct fetches *fetches)
{
    for (uint32_t i = 0; i < FETCH_READS; i++)
        if (fetches->read[i].memory == PAGE_NONE)
            return &fetches->read[i];
    return NULL;
}

enum asked { ASKED, ASK_LATER, IS_GONE, NO_MEMORY };

/* Asks for the part that is missing, into memory of its own; without a copy where the backend says
 * where that is. Memory first: what has to give way for it is offered to the store, which may evict
 * this record for that, or have no buffer left. */
static enum asked ask_part(struct fetches *fetches, struct fetch *fetch, const struct slot *slot)
{
    struct stored *stored = &fetches->stored;
    struct backend *backend = stored->loaded->backend;
    const struct backend_ops *ops = stored->loaded->ops;
    const bool end = fetch->at == fetch->n;
    const struct store_text *text = end ? &fetch->end_text : &fetch->text;
    struct fetch_read *read = find_free(fetches);
    if (!read || has_share(fetches, slot->uid) || !store_reads_more(stored->store))
        return ASK_LATER;
    const uint32_t id = take_memory(stored, slot, fetch->next);
    if (id == PAGE_NONE)
        return NO_MEMORY;
    const uint32_t record = store_find(stored->store, fetch->next, text);
    if (record == STORE_NONE || !store_reads_more(stored->store)) {
        pages_return(pool_of(stored, fetch->next), id);
        return record == STORE_NONE ? IS_GONE : ASK_LATER;
    }
    void *into =
        ops->page_memory ? ops->page_memory(backend, (enum copy_class)fetch->next, id) : NULL;
    *read = (struct fetch_read){.uid = slot->uid,
                                .fetch = fetch,
                                .class = fetch->next,
                                .page = fetch->at,
                                .positions = end ? fetch->end_positions : KV_PAGE_POSITIONS,
                                .memory = id};
    store_read(stored->store, record, (uint64_t)(read - fetches->read), into);
    fetch->reads[(fetch->head + fetch->n_reads++) % FETCH_READS] = read;
    return ASKED;
}

/* Goes on to a part that is missing: of a page, or of the end. False: there is none. */
static bool go_on_to_missing(const struct stored *stored, struct fetch *fetch,
                             const struct slot *slot)
{
    for (; fetch->at <= fetch->n; go_on(fetch)) {
        if (fetch->at < fetch->n && fetch->text.end == fetch->at * KV_PAGE_POSITIONS)
            follow_text(stored, fetch, slot);
        if (fetch->at == fetch->n && !fetch->end_sought) {
            fetch->end_sought = true;
            fetch->again |= !find_end(stored, fetch, slot, fetch->n) && fetch->needs_end;
        }
        if (is_missing(stored, fetch, slot))
            return true;
    }
    return false;
}

/* Asks for the parts that are missing, one at least and while there is time, once there is room for a
 * quarter of what may be queued: the store's thread wakes up for each batch. Returns how many. */
static uint32_t ask(struct fetches *fetches, struct fetch *fetch, const struct slot *slot,
                    struct steady *clock, uint64_t until_ns)
{
    const struct stored *stored = &fetches->stored;
    const uint32_t most = depth(fetches, slot);
    uint32_t asked = 0;
    if (fetch->leader || fetch->looks || fetch->n_reads > most - most / 4)
        return 0;
    while (!fetch->ends && fetch->n_reads < most &&
           (asked == 0 || steady_look(clock) < until_ns) && /* memory costs more than asking */
           go_on_to_missing(stored, fetch, slot)) {
        const enum asked now = ask_part(fetches, fetch, slot);
        if (now == ASK_LATER)
            break;
        if (now != ASKED) {
            const bool end = fetch->at == fetch->n;
            fetch->again |= end && fetch->needs_end && now == IS_GONE;
            fetch->end_positions = 0;
            fetch->ends = !end;
            continue;
        }
        asked++;
        go_on(fetch);
    }
    if (asked > 0)
        store_submit(stored->store); /* it reads while the engine takes what came */
    return asked;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* What was read is not used. */
static void give_back(struct stored *stored, struct fetch_read *read)
{
    pages_return(pool_of(stored, read->class), read->memory);
    read->memory = PAGE_NONE;
    if (read->payload)
        store_release(stored->store, read->payload);
}

/* Hands what was read to the fetch that asked for it, if that one still goes on. */
static uint32_t take(struct fetches *fetches, uint64_t now_ns)
{
    struct store_done done;
    uint32_t taken = 0;
    for (; store_take(fetches->stored.store, &done); taken++) {
        struct fetch_read *read = &fetches->read[done.cookie];
        read->here = true;
        read->sound = done.status == 0;
        read->payload = done.payload;
        if (read->fetch)
            read->fetch->moved_ns = now_ns;
        else
            give_back(&fetches->stored, read);
    }
    return taken;
}

/* Is the record in its memory now? */
static bool fill(struct stored *stored, struct fetch_read *read)
{
    const struct loaded_model *loaded = stored->loaded;
    if (!read->sound || !read->payload)
        return read->sound;
    bool filled = loaded->ops->write_page(loaded->backend, (enum copy_class)read->class,
                                          read->memory, read->payload) == 0;
    store_release(stored->store, read->payload);
    read->payload = NULL;
    return filled;
}

/* Puts a record into the cache. False: the fetch cannot go on. */
static bool put(struct stored *stored, struct slot *slot, struct fetch_read *read)
{
    struct prefix *prefix = &stored->slots->kv.prefix;
    if (!fill(stored, read)) {
        give_back(stored, read);
        return false;
    }
    if (read->positions < KV_PAGE_POSITIONS) {
        read->fetch->end[read->class] = read; /* until the slot takes it */
        return true;
    }
    if (read->class == STORE_PAGE)
        slot_publish_ahead(slot, prefix, read->memory);
    else if (read->class == STORE_WINDOW)
        prefix_give_window(prefix, slot->ahead[read->page], read->memory);
    else
        prefix_keep(prefix, slot->ahead[read->page], read->memory);
    read->memory = PAGE_NONE;
    return true;
}

/* Puts the first record of the fetch into the cache, if it is here. */
static bool put_first(struct fetches *fetches, struct fetch *fetch, struct slot *slot)
{
    struct stored *stored = &fetches->stored;
    struct fetch_read *read = fetch->reads[fetch->head];
    if (fetch->n_reads == 0 || !read->here || fetch->ends)
        return false;
    fetch->again |= !read->sound;
    fetch->ends = !put(stored, slot, read);
    fetch->held = slot->n_ahead;
    if (!fetch->ends)
        fetch->got += backend_copy_bytes(&stored->loaded->info, (enum copy_class)read->class);
    fetch->head = (fetch->head + 1) % FETCH_READS;
    fetch->n_reads--;
    return true;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static uint64_t patience(const struct fetch *fetch)
{
    return fetch->compute_ns / 4 > PATIENCE_NS ? fetch->compute_ns / 4 : PATIENCE_NS;
}

/* Would the rest be there sooner if it were computed? Where a text is warm at its end alone, all of it
 * would have to be. */
static bool is_late(const struct fetches *fetches, const struct fetch *fetch, uint64_t now_ns)
{
    const struct prefix *prefix = &fetches->stored.slots->kv.prefix;
    const bool whole = prefix->window > 0 || prefix->states;
    const uint64_t passed_ns = now_ns - fetch->began_ns;
    if (fetches->always)
        return false;
    if (now_ns - fetch->moved_ns > patience(fetch))
        return true;
    if (passed_ns < patience(fetch) || fetch->got == 0 || fetch->got >= fetch->bytes)
        return false; /* the first records come late: many are read at once */
    const double left = (double)(fetch->bytes - fetch->got);
    const double compute = (double)fetch->compute_ns * (whole ? 1 : left / (double)fetch->bytes);
    return left * (double)passed_ns / (double)fetch->got > compute;
}

/* What reading costs. One that gave nothing took at least as long as computing. */
static void measure(struct fetches *fetches, const struct fetch *fetch, bool late)
{
    uint64_t took_ns = fetch->moved_ns - fetch->began_ns;
    if (fetch->got > 0)
        fetches->mib_ns = curve_smooth(fetches->mib_ns, (took_ns << 20) / fetch->got);
    if (late && fetch->bytes > 0 && fetches->mib_ns < (fetch->compute_ns << 20) / fetch->bytes)
        fetches->mib_ns = (fetch->compute_ns << 20) / fetch->bytes;
}

static void release(struct fetches *fetches, struct fetch *fetch)
{
    for (; fetch->n_reads > 0; fetch->n_reads--) {
        struct fetch_read *read = fetch->reads[fetch->head];
        read->fetch = NULL;
        if (read->here)
            give_back(&fetches->stored, read);
        fetch->head = (fetch->head + 1) % FETCH_READS;
    }
    for (int class = 0; class < STORE_CLASSES; class ++) {
        if (fetch->end[class])
            give_back(&fetches->stored, fetch->end[class]);
        fetch->end[class] = NULL;
    }
    fetch->active = false;
}

/* Is all of the end here, and does the slot come as far as to that? */
static bool is_end_here(const struct stored *stored, const struct fetch *fetch,
                        const struct slot *slot)
{
    const struct prefix *prefix = &stored->slots->kv.prefix;
    const uint32_t at = fetch->n * KV_PAGE_POSITIONS;
    for (int class = 0; class < STORE_CLASSES; class ++)
        if (!fetch->end[class] &&
            backend_copy_bytes(&stored->loaded->info, (enum copy_class) class) > 0)
            return false;
    return fetch->end_positions > 0 && slot->n_ahead >= fetch->n &&
           (prefix->states ? slot->spec.canonical <= at : slot->spec.canonical == at) &&
           at + fetch->end_positions < slot->spec.accepted;
}

/* The end of the text becomes the slot's, if it came. Returns how many positions it has gained. */
static uint32_t take_end(struct stored *stored, struct fetch *fetch, struct slot *slot)
{
    uint32_t part[PREFIX_PARTS] = {PAGE_NONE, PAGE_NONE, PAGE_NONE};
    if (!is_end_here(stored, fetch, slot))
        return 0;
    for (int class = 0; class < STORE_CLASSES; class ++) {
        if (!fetch->end[class])
            continue;
        part[class] = fetch->end[class]->memory; /* the same numbers: stored.c */
        fetch->end[class]->memory = PAGE_NONE;
        fetch->end[class] = NULL;
    }
    slot_take_end(slot, &stored->slots->kv.prefix, fetch->n, fetch->end_positions, part);
    return gather_gained(slot, stored->ctl);
}

/* The slot goes on with what came. */
static void end(struct fetches *fetches, struct fetch *fetch, struct slot *slot, bool late)
{
    struct stored *stored = &fetches->stored;
    struct prefix *prefix = &stored->slots->kv.prefix;
    if (!is_live(fetch, slot)) {
        release(fetches, fetch);
        return;
    }
    if (!fetch->leader)
        measure(fetches, fetch, late);
    slots_set(stored->slots, slot, SLOT_READY);
    uint32_t gained = gather_adopt(slot, prefix, stored->ctl);
    gained += take_end(stored, fetch, slot);
    release(fetches, fetch);
    slot_drop_ahead(slot, prefix);
    if (fetch->leader || fetch->got > 0) { /* else another one computed it */
        slot->request->stored += gained;
        counters_add(stored->ctl, COUNTER_STORED_TOKENS, gained);
    }
    /* The store has forgotten what was damaged or is gone; and may go further than what another
     * one read. */
    slot->request->looked = !fetch->again && !fetch->leader;
}

/* ---- the step -------------------------------------------------------------------------------- */

/* One fetch's part of a step; `first`: it comes before all others, and puts a record into the cache
 * in any case. Returns the work done, or left to do. */
static uint32_t step(struct fetches *fetches, struct fetch *fetch, struct steady *clock,
                     uint64_t until_ns, bool first)
{
    struct slot *slot = slot_of(fetches, fetch);
    uint32_t work = 0, put = 0;
    bool over = !is_live(fetch, slot), late = false;
    if (!over && fetch->leader) {
        over = !fetch->leader->active || fetch->leader->number != fetch->follows;
    } else if (!over && fetch->looks) {
        over = fetch->held != slot->n_ahead || /* evicted */
               !go_on_looking(fetches, fetch, slot, clock->now_ns);
        work++;
    }
    if (!over && !fetch->leader && !fetch->looks) {
        fetch->ends |= fetch->held != slot->n_ahead;
        work += ask(fetches, fetch, slot, clock, until_ns);
        for (; ((first && put == 0) || steady_look(clock) < until_ns) &&
               put_first(fetches, fetch, slot);
             put++)
            work += 1 + ask(fetches, fetch, slot, clock, until_ns);
        work += put == 0 && fetch->n_reads > 0 && fetch->reads[fetch->head]->here; /* next time */
        late = is_late(fetches, fetch, clock->now_ns);
        over = late || fetch->ends || (fetch->n_reads == 0 && fetch->at > fetch->n);
    }
    if (over)
        end(fetches, fetch, slot, late);
    return work + over;
}

/* Is there a record of it to be put into the cache? */
static bool has_come(const struct fetch *fetch)
{
    return fetch->n_reads > 0 && fetch->reads[fetch->head]->here;
}

/* Had `a` or its user the first place longer ago than `b`? Those that have no use for it come last. */
static bool turn_precedes(const struct fetches *fetches, const struct fetch *a,
                          const struct fetch *b)
{
    const struct client_user *x = user_of(fetches, a), *y = user_of(fetches, b);
    if (has_come(a) != has_come(b))
        return has_come(a);
    return x != y ? x->fetched < y->fetched : a->turn < b->turn;
}

/* The fetch that comes before all others: users take turns, and then each user's fetches. */
static uint32_t take_turn(struct fetches *fetches)
{
    const uint32_t n = fetches->stored.slots->n;
    uint32_t first = n;
    for (uint32_t i = 0; i < n; i++)
        if (user_of(fetches, &fetches->all[i]) &&
            (first == n || turn_precedes(fetches, &fetches->all[i], &fetches->all[first])))
            first = i;
    if (first == n)
        return 0;
    fetches->all[first].turn = user_of(fetches, &fetches->all[first])->fetched = ++fetches->turn;
    return first;
}

uint32_t fetches_step(struct fetches *fetches, struct attached *clients, struct steady *clock)
{
    const struct stored *stored = &fetches->stored;
    struct slots *slots = stored->slots;
    if (!fetches->all)
        return 0;
    uint32_t work = take(fetches, steady_look(clock));
    const uint64_t share_ns =
        slots_running(slots) > 0 ? stored->cost->step_ns / STEP_SHARE : stored->cost->limit_ns;
    const uint64_t until_ns = clock->now_ns + share_ns;
    fetches->share = count_share(fetches);
    fetches->looks = LOOKS;
    const uint32_t first = take_turn(fetches);
    for (uint32_t i = 0; i < slots->n; i++) {
        struct fetch *fetch = &fetches->all[(first + i) % slots->n];
        if (fetch->active)
            work += step(fetches, fetch, clock, until_ns, i == 0);
    }
    for (uint32_t i = 0; i < slots->n && slots->n_active > 0; i++) {
        struct slot *slot = &slots->all[i];
        if (slot->state != SLOT_READY || slot->request->looked)
            continue;
        slot->request->looked = true;
        if (begin(fetches, slot, clock->now_ns)) {
            answer_progress(slot, DOWN_READING);
            attached_news(clients, slot->client);
            work += 1 + ask(fetches, &fetches->all[i], slot, clock, until_ns);
        }
    }
    return work;
}

bool fetches_look(const struct fetches *fetches)
{
    return fetches->all && store_ready(fetches->stored.store);
}

uint64_t fetches_deadline(const struct fetches *fetches)
{
    uint64_t first_ns = UINT64_MAX;
    for (uint32_t i = 0; fetches->all && i < fetches->stored.slots->n; i++) {
        const struct fetch *fetch = &fetches->all[i];
        if (fetch->active && !fetch->leader && fetch->moved_ns + patience(fetch) < first_ns)
            first_ns = fetch->moved_ns + patience(fetch);
    }
    return first_ns;
}

void fetches_stop(struct fetches *fetches)
{
    for (uint32_t i = 0; fetches->all && i < fetches->stored.slots->n; i++)
        if (fetches->all[i].active)
            release(fetches, &fetches->all[i]);
}
