/* From the cache to the store: by the cache's own accounts, and before anything is written over. */
#include "daemon/engine/stored.h"

#include "daemon/log.h"
#include "ipc/counters.h"
#include "kernels/kv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Static_assert((int)STORE_TOKENS == (int)PREFIX_TOKENS, "a record is a page of the cache");
_Static_assert((int)STORE_NAME_BYTES == (int)SLOT_NAME_BYTES, "a slot's name is kept whole");
_Static_assert((int)STORE_PAGE == (int)COPY_PAGE && (int)STORE_WINDOW == (int)COPY_WINDOW_PAGE &&
                   (int)STORE_STATE == (int)COPY_STATE,
               "a class of the store is a class of the device");
_Static_assert((int)STORE_PAGE == (int)PREFIX_PAGE && (int)STORE_WINDOW == (int)PREFIX_WINDOW &&
                   (int)STORE_STATE == (int)PREFIX_POINT,
               "and a part of the cache");

/* While no pass of some rows was measured: weights are read from memory, and a core or two compute.
 * Too slow for most machines, so that the store is asked until it is known. */
enum { GUESS_BYTES_NS = 100 };

uint64_t stored_compute_ns(const struct stored *stored, uint32_t rows)
{
    const struct curve *curve = &stored->cost->pass;
    if (curve_known(curve, PLAN_CHUNK_MIN))
        return curve_ns(curve, rows);
    return stored->loaded->info.weight_bytes / GUESS_BYTES_NS * rows;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* The text up to the page's end: its last tokens follow those up to its parent's. */
void stored_text(const struct stored *stored, uint32_t id, struct store_text *ret)
{
    const struct prefix_page *pages = stored->slots->kv.prefix.pages, *page = &pages[id];
    if (page->parent == PAGE_NONE) {
        store_begin(stored->store, page->uid, ret);
        ret->parent = ret->key;
    } else {
        memcpy(ret->parent.words, pages[page->parent].key, sizeof(page->key));
    }
    ret->uid = page->uid;
    ret->end = page->end;
    memcpy(ret->key.words, page->key, sizeof(page->key));
    memcpy(ret->tokens, page->tokens, sizeof(page->tokens));
}

static void name_page(void *context, uint32_t id)
{
    const struct stored *stored = context;
    struct prefix_page *pages = stored->slots->kv.prefix.pages, *page = &pages[id];
    struct store_text text;
    if (page->parent == PAGE_NONE)
        store_begin(stored->store, page->uid, &text);
    else
        stored_text(stored, page->parent, &text);
    store_follow(&text, page->tokens);
    page->end = text.end;
    memcpy(page->key, text.key.words, sizeof(page->key));
}

/* ---- into the store -------------------------------------------------------------------------- */

/* What a restart point saves: the rows since the one before it. */
static uint32_t point_rows(const struct prefix *prefix, uint32_t id)
{
    uint32_t rows = 0;
    do {
        rows += KV_PAGE_POSITIONS;
        id = prefix->pages[id].parent;
    } while (id != PAGE_NONE && prefix->pages[id].point == PAGE_NONE && rows < POINTS_EVERY);
    return rows;
}

/* What is offered, and from where. */
struct offered {
    enum store_class class;
    struct store_text text;
    uint32_t memory, positions; /* read_page */
    uint32_t rows;              /* to compute it again */
    bool wanted;
    bool spare; /* kept only where that costs others nothing */
};

/* A window page of the middle of a text serves only a text that parts from it there, and they are most
 * of a model's bytes. */
static const uint32_t PASSED_WORTH = 8; /* 1 / this */

/* A part of a page of the cache. */
static void describe_part(const struct stored *stored, enum prefix_part part, uint32_t id,
                          struct offered *ret)
{
    const struct prefix *prefix = &stored->slots->kv.prefix;
    const struct prefix_page *page = &prefix->pages[id];
    const bool passed = part == PREFIX_WINDOW && prefix_is_passed(page);
    *ret = (struct offered){
        .class = (enum store_class)part,
        .memory = part == PREFIX_PAGE     ? id
                  : part == PREFIX_WINDOW ? page->window
                                          : page->point,
        .positions = KV_PAGE_POSITIONS,
        .rows = part == PREFIX_POINT ? point_rows(prefix, id)
                                     : KV_PAGE_POSITIONS / (passed ? PASSED_WORTH : 1),
        .wanted = page->wanted,
        .spare = passed,
    };
    stored_text(stored, id, &ret->text);
}

/* The parts of the end of a slot's text. Returns how many. */
static uint32_t describe_end(const struct stored *stored, const struct prefix_end *end,
                             struct offered ret[PREFIX_PARTS])
{
    const struct prefix *prefix = &stored->slots->kv.prefix;
    const struct prefix_page *before = &prefix->pages[end->before];
    const uint32_t back = before->point == PAGE_NONE ? point_rows(prefix, end->before) : 0;
    uint32_t n = 0;
    for (enum prefix_part part = 0; part < PREFIX_PARTS; part++) {
        if (end->part[part] == PAGE_NONE)
            continue;
        ret[n] = (struct offered){
            .class = (enum store_class)part,
            .memory = end->part[part],
            .positions = end->n,
            .rows = part == PREFIX_POINT ? end->n + back : end->n,
            .wanted = before->wanted,
        };
        stored_text(stored, end->before, &ret[n].text);
        if (end->n > 0)
            store_follow_part(&ret[n].text, end->tokens, end->n);
        n++;
    }
    return n;
}

/* A device that fails says so in the next pass. */
static void offer(struct stored *stored, const struct offered *o)
{
    const struct loaded_model *loaded = stored->loaded;
    const uint64_t cost_ns = stored_compute_ns(stored, POINTS_EVERY) * o->rows / POINTS_EVERY;
    if (stored->failed)
        return;
    void *payload = (o->spare ? store_offer_spare : store_offer)(stored->store, o->class, &o->text,
                                                                 cost_ns, o->wanted);
    if (!payload)
        return;
    if (loaded->ops->read_page(loaded->backend, (enum copy_class)o->class, o->memory, o->positions,
                               payload) == 0) {
        store_write(stored->store, payload);
        return;
    }
    stored->failed = true;
    store_withdraw(stored->store, payload);
}

static void page_leaves(void *context, enum prefix_part part, uint32_t id)
{
    struct offered offered;
    describe_part(context, part, id, &offered);
    offer(context, &offered);
}

static void end_leaves(void *context, const struct prefix_end *end)
{
    struct offered parts[PREFIX_PARTS];
    const uint32_t n = describe_end(context, end, parts);
    for (uint32_t i = 0; i < n; i++)
        offer(context, &parts[i]);
}

void stored_open(struct stored *stored, struct slots *slots)
{
    struct prefix *prefix = &slots->kv.prefix;
    stored->slots = slots;
    if (!stored->store)
        return;
    prefix->enters = name_page;
    prefix->leaves = page_leaves;
    prefix->end_leaves = end_leaves;
    prefix->context = stored;
}

void stored_submit(const struct stored *stored)
{
    if (stored->store)
        store_submit(stored->store);
}

void stored_count(const struct stored *stored)
{
    struct store_counts counts;
    struct ctl *ctl = stored->ctl;
    if (!stored->store)
        return;
    store_counts(stored->store, &counts);
    counters_set(ctl, COUNTER_STORE_BYTES, counts.bytes);
    counters_set(ctl, COUNTER_STORE_RECORDS, counts.records);
    counters_set(ctl, COUNTER_STORE_READ_BYTES, counts.read_bytes);
    counters_set(ctl, COUNTER_STORE_WRITTEN_BYTES, counts.written_bytes);
    counters_set(ctl, COUNTER_STORE_EVICTED, counts.evicted);
    counters_set(ctl, COUNTER_STORE_FAILED, counts.damaged + counts.failed);
    counters_set(ctl, COUNTER_STORE_DROPPED, counts.no_room + counts.day_spent + counts.busy);
}

/* ---- at a stop ------------------------------------------------------------------------------- */

struct stop {
    struct stored *stored;
    uint64_t (*now_ns)(void);
    uint64_t end_ns;
    bool passed; /* what is offered: the window pages that texts have passed; or all else */
};

/* Waits for the store to end some of what it has to do. Returns whether there is time left. */
static bool wait_for_store(const struct stop *stop)
{
    struct store *store = stop->stored->store;
    struct store_done done;
    store_submit(store);
    while (!store_ready(store)) { /* its event is edge-triggered, and the loop is closed */
        if (stop->now_ns() >= stop->end_ns)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    while (store_take(store, &done))
        if (done.payload)
            store_release(store, done.payload);
    return true;
}

/* Offers it, and waits while the store is busy. Returns whether there is time left. */
static bool stop_offer(const struct stop *stop, const struct offered *offered)
{
    struct store_counts before, after;
    do {
        store_counts(stop->stored->store, &before);
        offer(stop->stored, offered);
        store_counts(stop->stored->store, &after);
    } while (after.busy != before.busy && wait_for_store(stop));
    return after.busy == before.busy && !stop->stored->failed;
}

static bool stop_part(const struct stop *stop, enum prefix_part part, uint32_t id)
{
    struct offered offered;
    describe_part(stop->stored, part, id, &offered);
    return stop_offer(stop, &offered);
}

static bool stop_page(const struct stop *stop, uint32_t id)
{
    const struct prefix_page *page = &stop->stored->slots->kv.prefix.pages[id];
    if (stop->passed)
        return !prefix_is_passed(page) || stop_part(stop, PREFIX_WINDOW, id);
    return stop_part(stop, PREFIX_PAGE, id) &&
           (page->window == PAGE_NONE || prefix_is_passed(page) ||
            stop_part(stop, PREFIX_WINDOW, id)) &&
           (page->point == PAGE_NONE || stop_part(stop, PREFIX_POINT, id));
}

static bool stop_slot(const struct stop *stop, const struct slot *slot)
{
    struct prefix_end end;
    struct offered parts[PREFIX_PARTS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < slot->n_shared; i++)
        if (!stop_page(stop, slot->pages[i]))
            return false;
    if (!stop->passed && slot_end(slot, &stop->stored->slots->kv.prefix, &end))
        n = describe_end(stop->stored, &end, parts);
    for (uint32_t i = 0; i < n; i++)
        if (!stop_offer(stop, &parts[i]))
            return false;
    return true;
}

/* Pages at the beginning of a long text are wanted as those at its end are. */
static void want_long_texts(struct prefix *prefix, uint32_t min_tokens)
{
    for (uint32_t i = 0; i < prefix->pool->total; i++) {
        struct prefix_page *page = &prefix->pages[i];
        if (!page->cached || page->end < min_tokens)
            continue;
        while (page->parent != PAGE_NONE && !prefix->pages[page->parent].wanted) {
            page = &prefix->pages[page->parent];
            page->wanted = true;
        }
    }
}

/* A named slot is there again after the next start, and its text warm, also where it is shorter
 * than the store asks for. */
static void want_named(const struct slots *slots, struct prefix *prefix)
{
    for (uint32_t i = 0; i < slots->n; i++) {
        const struct slot *slot = &slots->all[i];
        for (uint32_t k = 0; k < slot->n_shared && slot->name[0]; k++)
            prefix->pages[slot->pages[k]].wanted = true;
    }
}

static int by_use(const void *a, const void *b)
{
    const struct slot *x = *(struct slot *const *)a, *y = *(struct slot *const *)b;
    return x->serial < y->serial ? 1 : x->serial > y->serial ? -1 : 0;
}

static bool stop_slots(const struct stop *stop)
{
    const struct slots *slots = stop->stored->slots;
    struct slot **by = calloc(slots->n, sizeof(struct slot *));
    bool time_left = by != NULL;
    for (uint32_t i = 0; i < slots->n && by; i++)
        by[i] = &slots->all[i];
    if (by)
        qsort(by, slots->n, sizeof(struct slot *), by_use);
    for (uint32_t i = 0; i < slots->n && time_left; i++)
        time_left = stop_slot(stop, by[i]);
    free(by);
    return time_left;
}

/* The users' idle pages in turns, the newest first: a page is newer in its list than what follows
 * it. */
static bool stop_idle(const struct stop *stop, const struct prefix *prefix)
{
    uint32_t next[PREFIX_USERS];
    bool any = true;
    for (uint32_t i = 0; i < PREFIX_USERS; i++)
        next[i] = prefix->idle.of[i].newest;
    while (any) {
        any = false;
        for (uint32_t i = 0; i < PREFIX_USERS; i++) {
            if (next[i] == PAGE_NONE)
                continue;
            if (!stop_page(stop, next[i]))
                return false;
            next[i] = prefix->pages[next[i]].link.older;
            any = true;
        }
    }
    return true;
}

void stored_stop(struct stored *stored, uint64_t (*now_ns)(void), uint64_t limit_ns)
{
    struct stop stop = {stored, now_ns, now_ns() + limit_ns, false};
    if (!stored->store)
        return;
    struct prefix *prefix = &stored->slots->kv.prefix;
    want_long_texts(prefix, store_min_tokens(stored->store));
    want_named(stored->slots, prefix);
    bool time_left = stop_slots(&stop) && stop_idle(&stop, prefix);
    stop.passed = true;
    if (time_left && prefix->window > 0 && stop_slots(&stop))
        stop_idle(&stop, prefix);
    while (store_pending(stored->store) > 0 && wait_for_store(&stop))
        ;
    store_abandon(stored->store);
}

/* ---- named slots ----------------------------------------------------------------------------- */

enum { MOST_WAITING = 256 };

static bool has_slot(const struct store_slot *slots, uint32_t n, const struct store_slot *wanted)
{
    for (uint32_t i = 0; i < n; i++)
        if (slots[i].uid == wanted->uid && !strcmp(slots[i].name, wanted->name))
            return true;
    return false;
}

int stored_save_slots(const struct stored *stored)
{
    const struct slots *slots = stored->slots;
    struct store_slot *named = calloc(slots->n + stored->n_waiting, sizeof(*named));
    uint32_t n = 0;
    if (!named)
        return -ENOMEM;
    for (uint32_t i = 0; i < slots->n; i++) {
        const struct slot *slot = &slots->all[i];
        if (!slot->name[0])
            continue;
        named[n].uid = slot->uid;
        memcpy(named[n].name, slot->name, sizeof(slot->name));
        named[n].tokens = slot->tokens;
        named[n++].n_tokens = slot->spec.accepted;
    }
    for (uint32_t i = 0; i < stored->n_waiting; i++)
        if (!has_slot(named, n, &stored->waiting[i]))
            named[n++] = stored->waiting[i];
    int rc = store_save_slots(stored->store, named, n);
    free(named);
    return rc;
}

static uint32_t count_waiting(const struct stored *stored, uid_t uid)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < stored->n_waiting; i++)
        n += stored->waiting[i].uid == uid;
    return n;
}

/* Of as many as may wait the last one of the user with the most is forgotten for the user's; unless
 * that one has as many itself. */
static void make_place(struct stored *stored, uid_t uid)
{
    uint32_t most = count_waiting(stored, uid), last = UINT32_MAX;
    if (stored->n_waiting < MOST_WAITING)
        return;
    for (uint32_t i = 0; i < stored->n_waiting; i++) {
        const uint32_t n = count_waiting(stored, stored->waiting[i].uid);
        if (n < most || (n == most && last == UINT32_MAX))
            continue;
        most = n;
        last = i;
    }
    if (last == UINT32_MAX)
        return;
    free((void *)stored->waiting[last].tokens);
    stored->waiting[last] = stored->waiting[--stored->n_waiting];
    stored->n_lost++;
}

/* Keeps a copy of it. Without memory it is lost, as a text without a store is. Returns whether there
 * is one. */
static bool keep_waiting(struct stored *stored, const struct store_slot *kept)
{
    struct store_slot copy = *kept, *more;
    make_place(stored, kept->uid);
    if (stored->n_waiting == MOST_WAITING)
        return false;
    more = realloc(stored->waiting, (stored->n_waiting + 1) * sizeof(*more));
    if (!more)
        return false;
    stored->waiting = more;
    uint32_t *tokens = malloc((kept->n_tokens + 1) * sizeof(*tokens));
    if (!tokens)
        return false;
    memcpy(tokens, kept->tokens, kept->n_tokens * sizeof(*tokens));
    copy.tokens = tokens;
    stored->waiting[stored->n_waiting++] = copy;
    return true;
}

static void park(void *context, const struct store_slot *kept)
{
    struct stored *stored = context;
    struct slots *slots = stored->slots;
    struct slot *slot = NULL;
    for (uint32_t i = 0; i < kept->n_tokens; i++)
        if (kept->tokens[i] >= stored->loaded->model->n_vocab)
            return;
    for (uint32_t i = 0; i < slots->n && !slot; i++)
        if (!slots->all[i].name[0])
            slot = &slots->all[i];
    if (!slot || kept->n_tokens > slots->context) {
        stored->n_lost += !keep_waiting(stored, kept);
        return;
    }
    slot->uid = kept->uid;
    slot->serial = ++slots->serial;
    memcpy(slot->name, kept->name, sizeof(slot->name));
    memcpy(slot->tokens, kept->tokens, kept->n_tokens * sizeof(*kept->tokens));
    if (kept->n_tokens > 0)
        spec_begin(&slot->spec, kept->n_tokens, 0);
}

int stored_load_slots(struct stored *stored)
{
    int rc = store_load_slots(stored->store, park, stored);
    if (stored->n_waiting > 0)
        log_warning("KV store: %u named slots have no place: they wait for a start with more "
                    "--slots, or a larger --context",
                    stored->n_waiting);
    if (stored->n_lost > 0)
        log_warning("KV store: %u more are forgotten at the next stop: of those without a place %u "
                    "wait, those of users with many go first",
                    stored->n_lost, (uint32_t)MOST_WAITING);
    return rc;
}

void stored_fini(struct stored *stored)
{
    for (uint32_t i = 0; i < stored->n_waiting; i++)
        free((void *)stored->waiting[i].tokens);
    free(stored->waiting);
    stored->waiting = NULL;
    stored->n_waiting = 0;
}
