/* Slots, and which of them gives its pages to another one. */
#include "daemon/cache/slot.h"

#include "daemon/overflow_uid.h"
#include "kernels/kv.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert((int)SPEC_RECORDS_MAX == (int)BACKEND_STATE_RECORDS, "what is applied is there");
_Static_assert(BACKEND_STATE_KEEPS == 2, "slot_points compares with one before");

/* One more than the context: the token that ends a full sequence has a place, but no row. */
static size_t token_bytes(uint32_t context)
{
    return ((size_t)context + 1) * sizeof(uint32_t);
}

int slot_init(struct slot *slot, uint32_t context)
{
    *slot = (struct slot){.n_pages_max = kv_pages(context), .own = PAGE_NONE, .begins = PAGE_NONE};
    slot->tokens = mmap(NULL, token_bytes(context), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slot->tokens == MAP_FAILED) {
        slot->tokens = NULL;
        return -ENOMEM;
    }
    slot->pages = calloc(slot->n_pages_max, sizeof(*slot->pages));
    slot->windows = calloc(slot->n_pages_max, sizeof(*slot->windows));
    slot->ahead = calloc(slot->n_pages_max, sizeof(*slot->ahead));
    slot->draft_kv.pages = calloc(slot->n_pages_max, sizeof(*slot->draft_kv.pages));
    if (!slot->pages || !slot->windows || !slot->ahead || !slot->draft_kv.pages) {
        slot_fini(slot, context);
        return -ENOMEM;
    }
    return 0;
}

void slot_fini(struct slot *slot, uint32_t context)
{
    if (slot->tokens)
        munmap(slot->tokens, token_bytes(context));
    proposer_close(&slot->proposer);
    free(slot->pages);
    free(slot->windows);
    free(slot->ahead);
    free(slot->draft_kv.pages);
    *slot = (struct slot){0};
}

int slots_init(struct slots *slots, uint32_t n, uint32_t context, bool recurrent)
{
    int rc = 0;
    slots->context = context;
    slots->all = calloc(n, sizeof(*slots->all));
    slots->ending = calloc(n, sizeof(struct slot *));
    slots->agreed = recurrent ? calloc((size_t)n * n, sizeof(*slots->agreed)) : NULL;
    if (!slots->all || !slots->ending || (recurrent && !slots->agreed))
        return -ENOMEM;
    for (; slots->n < n && rc == 0; slots->n++) {
        struct slot *slot = &slots->all[slots->n];
        rc = slot_init(slot, context);
        slot->agreed = slots->agreed;
        slot->number = slots->n;
        slot->n_slots = n;
    }
    return rc;
}

void slots_fini(struct slots *slots)
{
    for (uint32_t i = 0; i < slots->n; i++)
        slot_fini(&slots->all[i], slots->context);
    free(slots->all);
    free(slots->ending);
    free(slots->agreed);
    prefix_fini(&slots->kv.prefix);
    pages_fini(&slots->kv.pool);
    pages_fini(&slots->kv.windows);
    pages_fini(&slots->kv.states);
    *slots = (struct slots){0};
}

/* Does its request wait for something other than passes and pages? */
static bool slot_sits_out(const struct slot *slot)
{
    return slot->state == SLOT_PAUSED || slot->state == SLOT_MASKING;
}

/* The least turn of the class's requests that go on, or where none does, of those that sit out.
 * UINT64_MAX: there are none. */
static uint64_t slots_first(const struct slots *slots, bool batch)
{
    uint64_t first[2] = {UINT64_MAX, UINT64_MAX};
    for (uint32_t i = 0; i < slots->n; i++) {
        const struct slot *slot = &slots->all[i];
        uint64_t *least = &first[slot_sits_out(slot)];
        if (slot->state != SLOT_IDLE && slot->batch == batch && slot->turn < *least)
            *least = slot->turn;
    }
    return first[0] != UINT64_MAX ? first[0] : first[1];
}

/* Does a request of the class go on? */
static bool slot_goes_on(const struct slot *slot, bool batch)
{
    return slot->state != SLOT_IDLE && slot->batch == batch && !slot_sits_out(slot);
}

/* Does one of the user's requests of the class go on at turn `first`? */
static bool slots_at_turn(const struct slots *slots, bool batch, uid_t uid, uint64_t first)
{
    bool is_at = false;
    for (uint32_t i = 0; i < slots->n && !is_at; i++)
        is_at = slots->all[i].uid == uid && slots->all[i].turn == first &&
                slot_goes_on(&slots->all[i], batch);
    return is_at;
}

/* Has a user whose requests of the class go on no one at turn `first`, since it has had that? */
static bool slots_had_turn(const struct slots *slots, bool batch, uint64_t first)
{
    bool had = false;
    for (uint32_t i = 0; i < slots->n && !had; i++)
        had = slot_goes_on(&slots->all[i], batch) &&
              !slots_at_turn(slots, batch, slots->all[i].uid, first);
    return had;
}

/* The turn of a request that begins (slot_precedes): that of the first one that goes on. Where a
 * user has had that already, the next one: else requests that end and begin anew could stay before
 * that user's for ever. */
static uint64_t slots_turn(const struct slots *slots, const struct slot *slot)
{
    const uint64_t first = slots_first(slots, slot->batch);
    uint64_t turn = first;
    if (first == UINT64_MAX)
        return 0;
    turn += slots_had_turn(slots, slot->batch, first);
    for (uint32_t i = 0; i < slots->n; i++) {
        const struct slot *own = &slots->all[i];
        if (own->state != SLOT_IDLE && own->batch == slot->batch && own->uid == slot->uid &&
            own->turn >= turn)
            turn = own->turn + 1;
    }
    return turn;
}

void slots_set(struct slots *slots, struct slot *slot, enum slot_state state)
{
    if (slot->state == SLOT_IDLE && state != SLOT_IDLE) {
        slot->turn = slots_turn(slots, slot);
        slot->fresh = slot->again = 0;
    }
    slots->n_active += (uint32_t)(state != SLOT_IDLE) - (uint32_t)(slot->state != SLOT_IDLE);
    slots->n_paused += (uint32_t)(state == SLOT_PAUSED) - (uint32_t)(slot->state == SLOT_PAUSED);
    slots->n_reading += (uint32_t)(state == SLOT_READING) - (uint32_t)(slot->state == SLOT_READING);
    if (state == SLOT_ENDING)
        slots->ending[slots->n_ending++] = slot;
    slot->state = state;
}

/* Does it keep no pages from anybody, whatever its turn? */
static bool slot_gives_way(const struct slot *slot)
{
    return slot->state == SLOT_PAUSED ||
           (slot->state == SLOT_MASKING && slot->masked == MASKED_LONG);
}

uint32_t slots_evict(struct slots *slots, struct slot *victim)
{
    const uint32_t n_pages = victim->n_pages;
    if (slot_gives_way(victim)) {
        const uint64_t first = slots_first(slots, victim->batch);
        victim->fresh = victim->again = 0;
        victim->turn = victim->turn > first ? victim->turn : first + 1;
    }
    slot_evict(victim, &slots->kv.prefix);
    return n_pages;
}

/* Is the turn of the slot's request over? Then it and its user's others come a turn later. */
static void slots_end_turn(struct slots *slots, struct slot *slot)
{
    const uint64_t whole = slot->spec.accepted, least = slot->again < whole ? slot->again : whole;
    if (slot->fresh < TURN_ROWS || slot->fresh < least)
        return;
    const uint64_t first = slots_first(slots, slot->batch);
    slot->fresh = slot->again = 0;
    for (uint32_t i = 0; i < slots->n; i++) {
        struct slot *other = &slots->all[i];
        if (other->state == SLOT_IDLE || other->batch != slot->batch)
            continue;
        if (other->uid == slot->uid)
            other->turn++;
        else if (slot_sits_out(other) && other->turn < first)
            other->turn = first; /* it does not save them up */
    }
}

void slots_worked(struct slots *slots, struct slot *slot, uint32_t rows, uint32_t further)
{
    slot->fresh += further > 0 ? further + TURN_PASS : 0;
    slot->again += further > 0 ? 0 : rows; /* drafts that were rejected are neither */
    slots_end_turn(slots, slot);
}

void slots_waited(struct slots *slots, struct slot *slot)
{
    if (slot->n_pages == 0 || slot_gives_way(slot))
        return; /* it keeps none from others */
    slot->fresh += TURN_PASS;
    slots_end_turn(slots, slot);
}

/* ---- what texts share ------------------------------------------------------------------------ */

/* The first tokens of both texts that were found to be the same. `number`: of another slot. */
static uint32_t *slot_agreed(const struct slot *slot, uint32_t number)
{
    const bool first = slot->number < number;
    const size_t row = first ? slot->number : number;
    return &slot->agreed[row * slot->n_slots + (first ? number : slot->number)];
}

/* Tokens from `common` on are others now. */
static void slot_changes(struct slot *slot, uint32_t common)
{
    for (uint32_t i = 0; i < slot->n_slots; i++) {
        uint32_t *agreed = slot_agreed(slot, i);
        *agreed = *agreed < common ? *agreed : common;
    }
}

/* ---- window pages ---------------------------------------------------------------------------- */

static bool has_window(const struct slot *slot, const struct prefix *prefix, uint32_t i)
{
    return prefix->window > 0 && i >= slot->window_from && i < slot->n_pages;
}

/* Lets go of window page `i`. */
static void slot_unread(struct slot *slot, struct prefix *prefix, uint32_t i, bool passed)
{
    if (i < slot->n_shared)
        prefix_unread(prefix, slot->pages[i], passed);
    else
        pages_return(prefix->windows, slot->windows[i]);
}

/* Lets go of the window pages before `begin`, which are not read any more. */
static void slot_pass(struct slot *slot, struct prefix *prefix, uint32_t begin)
{
    for (uint32_t i = slot->window_from; i < begin && has_window(slot, prefix, i); i++)
        slot_unread(slot, prefix, i, true);
    if (slot->window_from < begin)
        slot->window_from = begin;
}

bool slot_finds_window(const struct slot *slot, const struct prefix *prefix, uint32_t i)
{
    return has_window(slot, prefix, i) ||
           (i < slot->n_shared && prefix->pages[slot->pages[i]].window != PAGE_NONE);
}

/* The furthest position up to `at` at which the slot's text is warm. */
static uint32_t slot_warm_at(const struct slot *slot, const struct prefix *prefix, uint32_t at)
{
    for (uint32_t i = kv_pages(at); i-- > kv_window_begin(prefix->window, at);)
        if (!slot_finds_window(slot, prefix, i))
            at = i * KV_PAGE_POSITIONS;
    return at;
}

/* Reads the window of position `at`, whose window pages are all found. */
static void slot_read(struct slot *slot, struct prefix *prefix, uint32_t at)
{
    uint32_t from = slot->window_from < slot->n_pages ? slot->window_from : slot->n_pages;
    uint32_t begin = kv_window_begin(prefix->window, at);
    for (uint32_t i = begin; i < from; i++) {
        prefix_read(prefix, slot->pages[i]);
        prefix->pages[slot->pages[i]].begun_near = true;
        slot->windows[i] = prefix->pages[slot->pages[i]].window;
    }
    if (begin < slot->window_from)
        slot->window_from = begin;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Lets go of the restart point that the slot began from. */
static void slot_begun(struct slot *slot, struct prefix *prefix)
{
    if (slot->begins == PAGE_NONE)
        return;
    prefix_begun(prefix, slot->begins);
    slot->begins = PAGE_NONE;
}

/* Gives its own state back. What it can go on from is lost, unless that is a restart point. */
static void slot_give_state(struct slot *slot, struct prefix *prefix)
{
    if (slot->own == PAGE_NONE)
        return;
    pages_return(prefix->states, slot->own);
    slot->own = PAGE_NONE;
    if (slot->begins == PAGE_NONE && slot->spec.canonical > 0)
        spec_lose_state(&slot->spec);
}

/* Does its own memory hold the state that it goes on from? */
static bool slot_has_own_state(const struct slot *slot)
{
    return slot->own != PAGE_NONE && slot->begins == PAGE_NONE && spec_has_state(&slot->spec);
}

bool slot_end(const struct slot *slot, const struct prefix *prefix, struct prefix_end *ret)
{
    const bool recurrent = prefix->states;
    if (recurrent && (!slot_has_own_state(slot) || prefix->window > 0)) /* no model has both */
        return false;
    const uint32_t at = recurrent ? slot->spec.base : slot->spec.canonical;
    const uint32_t i = at / KV_PAGE_POSITIONS, n = at % KV_PAGE_POSITIONS;
    if (i == 0 || i > slot->n_shared)
        return false;
    if (n > 0 && (i >= slot->n_pages || (prefix->window > 0 && !has_window(slot, prefix, i))))
        return false;
    *ret = (struct prefix_end){
        .before = slot->pages[i - 1],
        .n = n,
        .tokens = slot->tokens + (size_t)i * KV_PAGE_POSITIONS,
        .part = {[PREFIX_PAGE] = n > 0 ? slot->pages[i] : PAGE_NONE,
                 [PREFIX_WINDOW] = n > 0 && prefix->window > 0 ? slot->windows[i] : PAGE_NONE,
                 [PREFIX_POINT] = recurrent ? slot->own : PAGE_NONE}};
    return n > 0 || recurrent;
}

/* An idle slot is about to lose the end of its text. */
static void slot_end_leaves(const struct slot *slot, const struct prefix *prefix)
{
    struct prefix_end end;
    if (slot->state == SLOT_IDLE && prefix->end_leaves && slot_end(slot, prefix, &end))
        prefix->end_leaves(prefix->context, &end);
}

/* What an idle slot has that others could use: pages, or a state of its own. */
typedef uint32_t idle_has(const struct slot *slot);

static uint32_t idle_pages(const struct slot *slot)
{
    return slot->state == SLOT_IDLE || slot->state == SLOT_ENDING ? slot->n_pages + slot->n_ahead
                                                                  : 0;
}

static uint32_t idle_states(const struct slot *slot)
{
    return slot->state == SLOT_IDLE && slot->own != PAGE_NONE ? 1 : 0;
}

static uint32_t idle_windows(const struct slot *slot)
{
    return idle_pages(slot) > 0 && slot->n_pages > slot->window_from
               ? slot->n_pages - slot->window_from
               : 0;
}

/* What each user has that no request needs: in the cache's lists, and in idle slots but `needy`. */
static void count_idle(const struct slot *slots, uint32_t n_slots, idle_has *has,
                       struct prefix *prefix, const struct prefix_lists *lists,
                       const struct slot *needy, uint64_t ret[PREFIX_USERS])
{
    for (uint32_t i = 0; i < PREFIX_USERS; i++)
        ret[i] = lists ? lists->of[i].n : 0;
    for (uint32_t i = 0; i < n_slots; i++)
        if (&slots[i] != needy && has(&slots[i]) > 0)
            ret[prefix_user(prefix, slots[i].uid)] += has(&slots[i]);
}

/* Of the users with idle slots that have some, the one with the most: of these slots the one that
 * was used least recently. NULL: there are none. */
static struct slot *find_idle(struct slot *slots, uint32_t n_slots, idle_has *has,
                              struct prefix *prefix, const struct slot *needy,
                              const uint64_t sums[PREFIX_USERS])
{
    struct slot *found = NULL;
    uint64_t most = 0;
    for (uint32_t i = 0; i < n_slots; i++) {
        if (&slots[i] == needy || has(&slots[i]) == 0)
            continue;
        const uint64_t sum = sums[prefix_user(prefix, slots[i].uid)];
        if (sum > most || (sum == most && slots[i].serial <= found->serial)) {
            found = &slots[i];
            most = sum;
        }
    }
    return found;
}

/* The idle slot that gives way before the oldest of the lists, since its user has more than the one
 * whose that is, or they are empty; or NULL. */
static struct slot *find_before(struct slots *slots, idle_has *has, struct prefix *prefix,
                                const struct prefix_lists *lists, const struct slot *needy)
{
    uint64_t sums[PREFIX_USERS];
    count_idle(slots->all, slots->n, has, prefix, lists, needy, sums);
    struct slot *idle = find_idle(slots->all, slots->n, has, prefix, needy, sums);
    const uint32_t most = prefix_most(lists);
    return idle && (lists->n == 0 || sums[prefix_user(prefix, idle->uid)] > sums[most]) ? idle
                                                                                        : NULL;
}

/* The next one that has to let go of its pages, or of its window pages; or NULL. */
static struct slot *find_to_level(struct slots *slots, struct prefix *prefix,
                                  const struct slot *needy)
{
    struct slot *idle = NULL;
    if (prefix->pool->n_free == 0 && prefix->idle.n > 0)
        idle = find_before(slots, idle_pages, prefix, &prefix->idle, needy);
    if (!idle && prefix->window > 0 && prefix->windows->n_free == 0 && prefix->passed.n == 0)
        idle = find_before(slots, idle_windows, prefix, &prefix->resting, needy);
    return idle;
}

uint32_t slots_level(struct slots *slots, struct prefix *prefix, const struct slot *needy)
{
    uint32_t evicted = 0;
    struct slot *idle;
    while ((idle = find_to_level(slots, prefix, needy))) {
        evicted += idle->n_pages;
        slot_evict(idle, prefix);
    }
    return evicted;
}

uint32_t slots_take_state(struct slots *slots, struct prefix *prefix)
{
    uint64_t sums[PREFIX_USERS];
    const uint32_t state = pages_take(prefix->states), most = prefix_most(&prefix->points);
    if (state != PAGE_NONE)
        return state;
    count_idle(slots->all, slots->n, idle_states, prefix, &prefix->points, NULL, sums);
    struct slot *idle = find_idle(slots->all, slots->n, idle_states, prefix, NULL, sums);
    if (!idle || (prefix->points.n > 0 && sums[most] > sums[prefix_user(prefix, idle->uid)]))
        return prefix_take_point(prefix);
    slot_end_leaves(idle, prefix);
    slot_give_state(idle, prefix);
    return pages_take(prefix->states);
}

bool slots_own_state(struct slots *slots, struct prefix *prefix, struct slot *slot)
{
    assert(slot->n_pages > 0);
    if (prefix->states && slot->own == PAGE_NONE)
        slot->own = slots_take_state(slots, prefix);
    return !prefix->states || slot->own != PAGE_NONE;
}

int32_t slot_from(const struct slot *slot, const struct prefix *prefix)
{
    if (slot->spec.canonical == 0)
        return BACKEND_STATE_ZERO;
    return (int32_t)(slot->begins != PAGE_NONE ? prefix->pages[slot->begins].point : slot->own);
}

void slot_settle(struct slot *slot, struct prefix *prefix, uint32_t n_rows, uint32_t n_clean)
{
    spec_settle(&slot->spec, n_rows, n_clean);
    slot_begun(slot, prefix);
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Keeps the first `n_pages` pages. The last one goes first, as the cache wants it. */
static void slot_shrink(struct slot *slot, struct prefix *prefix, uint32_t n_pages)
{
    while (slot->n_pages > n_pages) {
        uint32_t page = slot->pages[slot->n_pages - 1];
        if (slot->begins == page)
            slot_begun(slot, prefix);
        if (has_window(slot, prefix, slot->n_pages - 1))
            slot_unread(slot, prefix, slot->n_pages - 1, false);
        if (--slot->n_pages >= slot->n_shared) {
            pages_return(prefix->pool, page);
        } else {
            prefix_release(prefix, page);
            slot->n_shared--;
        }
    }
    if (slot->n_pages == 0)
        slot_give_state(slot, prefix);
}

/* Keeps the KV of positions [0, at), a multiple of a page. */
static void slot_cut(struct slot *slot, struct prefix *prefix, uint32_t at)
{
    slot_shrink(slot, prefix, at / KV_PAGE_POSITIONS);
    spec_evict(&slot->spec, at);
    slot->goal = slot->spec.drafted; /* a fast pass could read nothing there any more */
}

void slot_drop_ahead(struct slot *slot, struct prefix *prefix)
{
    while (slot->n_ahead > 0)
        prefix_release(prefix, slot->ahead[--slot->n_ahead]);
}

void slot_evict(struct slot *slot, struct prefix *prefix)
{
    slot_drop_ahead(slot, prefix);
    slot_end_leaves(slot, prefix);
    slot_cut(slot, prefix, 0);
}

/* Begins from the restart point after the first `n_pages` pages; 0: from nothing. */
static void slot_begin_from(struct slot *slot, struct prefix *prefix, uint32_t n_pages)
{
    slot_begun(slot, prefix);
    spec_restart(&slot->spec);
    if (n_pages == 0)
        return;
    slot->begins = slot->pages[n_pages - 1];
    prefix_begin(prefix, slot->begins);
}

/* Goes back to its last restart point. */
static void slot_go_back(struct slot *slot, struct prefix *prefix)
{
    uint32_t n = slot->spec.canonical / KV_PAGE_POSITIONS;
    n = n < slot->n_shared ? n : slot->n_shared;
    while (n > 0 && prefix->pages[slot->pages[n - 1]].point == PAGE_NONE)
        n--;
    slot_cut(slot, prefix, n * KV_PAGE_POSITIONS);
    slot_begin_from(slot, prefix, n);
}

/* Goes back to where the window of `canonical` is found, if the slot has gone past that: it was
 * moved back, or fast passes went on from it, whose KV is lost. Returns whether that is further
 * back. */
static bool slot_rewarm_window(struct slot *slot, struct prefix *prefix)
{
    uint32_t at = slot->spec.canonical;
    if (slot->window_from <= kv_window_begin(prefix->window, at))
        return false;
    slot_shrink(slot, prefix, kv_pages(at));
    spec_evict(&slot->spec, at);
    at = slot_warm_at(slot, prefix, slot->spec.canonical);
    bool back = at < slot->spec.canonical;
    if (back)
        slot_cut(slot, prefix, at);
    slot_read(slot, prefix, at);
    return back;
}

/* Goes back to where the text is warm, if it is not at `canonical`. */
static void slot_rewarm(struct slot *slot, struct prefix *prefix)
{
    do {
        if (prefix->states && !spec_has_state(&slot->spec))
            slot_go_back(slot, prefix);
    } while (slot_rewarm_window(slot, prefix));
}

void slot_clear(struct slot *slot, struct prefix *prefix, uint32_t context)
{
    assert(slot->state == SLOT_IDLE && slot->draft_kv.n_pages == 0);
    slot_evict(slot, prefix);
    madvise(slot->tokens, token_bytes(context), MADV_DONTNEED); /* gone, not only unreachable */
    if (prefix->states)
        slot_changes(slot, 0);
    proposer_close(&slot->proposer); /* its index holds nothing but positions, but takes room */
    slot->client = NULL;
    slot->name[0] = 0;
    slot->same = 0;
    slot->goal = 0;
    slot->spec = (struct spec){0};
}

/* One page more, and its window page. */
static bool slot_extend(struct slot *slot, struct prefix *prefix)
{
    uint32_t i = slot->n_pages, page;
    if (prefix->window > 0) {
        assert(slot->window_from <= i);
        slot->windows[i] = prefix_take_window(prefix);
        if (slot->windows[i] == PAGE_NONE)
            return false;
    }
    page = prefix_take(prefix);
    if (page == PAGE_NONE) {
        if (prefix->window > 0)
            pages_return(prefix->windows, slot->windows[i]);
        return false;
    }
    slot->pages[slot->n_pages++] = page;
    return true;
}

bool slot_reserve(struct slot *slot, struct prefix *prefix, uint32_t from, uint32_t to)
{
    uint32_t wanted = kv_pages(to);
    assert(wanted <= slot->n_pages_max);
    slot_pass(slot, prefix, kv_window_begin(prefix->window, from));
    while (slot->n_pages < wanted)
        if (!slot_extend(slot, prefix))
            return false;
    return true;
}

/* The slot's text parts from another one within a page. That page can be written into at the cost of
 * all that follows it in the cache: an answer that is not wanted any more, while somebody types, or a
 * whole conversation, because of a question in between that begins alike. More pages than these are
 * worth more than the rows of one, which are then computed again, if the text is warm before it. */
enum { MOST_LOST = 8 };

static bool slot_leaves_last(const struct slot *slot, const struct prefix *prefix)
{
    const uint32_t begin = (slot->n_shared - 1) * KV_PAGE_POSITIONS;
    return prefix_is_followed(prefix, slot->pages[slot->n_shared - 1], MOST_LOST) &&
           slot_warm_at(slot, prefix, begin) == begin;
}

void slot_trim(struct slot *slot, struct prefix *prefix)
{
    const uint32_t n_before = slot->n_shared;
    slot_drop_ahead(slot, prefix);
    slot_shrink(slot, prefix, kv_pages(slot->spec.canonical));
    slot_rewarm(slot, prefix);
    if (slot->n_shared * KV_PAGE_POSITIONS <= slot->spec.canonical)
        return;
    const bool leaves = slot_leaves_last(slot, prefix);
    if (!leaves && prefix_withdraw(prefix, slot->pages[slot->n_shared - 1])) {
        slot->n_shared--;
        return;
    }
    const uint32_t n = slot->n_shared;
    slot_cut(slot, prefix, (slot->n_pages - 1) * KV_PAGE_POSITIONS);
    if (leaves) /* else each keystroke would fill the cache with a text that nobody wants */
        prefix_give_first(prefix, slot->pages + n, n_before - n);
    slot_rewarm(slot, prefix); /* that is one page further back */
}

/* ---- sharing --------------------------------------------------------------------------------- */

/* The page before page `i`. */
static uint32_t slot_parent(const struct slot *slot, uint32_t i)
{
    return i > 0 ? slot->pages[i - 1] : PAGE_NONE;
}

/* Does the slot have a row to compute after page `i`? That of the last accepted token is always
 * computed, since it gives the sample. */
static bool slot_goes_beyond(const struct slot *slot, uint32_t i)
{
    return (uint64_t)(i + 1) * KV_PAGE_POSITIONS < slot->spec.accepted;
}

/* The page after page `i` - 1 = `parent` in the cache, if the slot's text goes on with it. */
static uint32_t slot_find(const struct slot *slot, const struct prefix *prefix, uint32_t parent,
                          uint32_t i)
{
    if (!slot_goes_beyond(slot, i))
        return PAGE_NONE;
    return prefix_find(prefix, slot->uid, parent, slot->tokens + (size_t)i * KV_PAGE_POSITIONS);
}

/* How many pages the slot could have from the cache, from page `i` on, so that its text is warm
 * after the last of them: i, none. *look goes down by what it finds beyond that. */
static uint32_t slot_adoptable(const struct slot *slot, const struct prefix *prefix, uint32_t i,
                               int64_t *look)
{
    uint32_t n = i, left = i; /* window pages from `left` on are found */
    uint32_t begin = kv_window_begin(prefix->window, i * KV_PAGE_POSITIONS);
    while (left > begin && slot_finds_window(slot, prefix, left - 1))
        left--;
    for (uint32_t id = slot_parent(slot, i); (id = slot_find(slot, prefix, id, i)) != PAGE_NONE;) {
        if (prefix->pages[id].window == PAGE_NONE)
            left = i + 1;
        if (left <= kv_window_begin(prefix->window, ++i * KV_PAGE_POSITIONS) &&
            (!prefix->states || prefix->pages[id].point != PAGE_NONE))
            n = i;
    }
    *look -= i - n;
    return n;
}

/* Goes on at the end of page `n` - 1, which is beyond `canonical`: the pages up to there are in
 * the cache. */
static void slot_hold_up_to(struct slot *slot, struct prefix *prefix, uint32_t n)
{
    uint32_t before = slot->spec.canonical, i = before / KV_PAGE_POSITIONS;
    slot_shrink(slot, prefix, i); /* a part of this page, computed by itself */
    slot_pass(slot, prefix, i);   /* what is needed of them is read again */
    for (; i < n; i++) {
        uint32_t page = slot_find(slot, prefix, slot_parent(slot, i), i);
        prefix_hold(prefix, page);
        prefix->pages[page].wanted = true;
        slot->pages[slot->n_pages++] = page;
        slot->n_shared++;
    }
    slot->window_from = n;
    spec_prefilled(&slot->spec, n * KV_PAGE_POSITIONS - before);
}

uint32_t slot_adopt(struct slot *slot, struct prefix *prefix)
{
    int64_t look = INT64_MAX;
    return slot_adopt_within(slot, prefix, &look);
}

uint32_t slot_adopt_within(struct slot *slot, struct prefix *prefix, int64_t *look)
{
    uint32_t before = slot->spec.canonical, i = before / KV_PAGE_POSITIONS;
    bool looks = *look > 0 && i <= slot->n_shared;
    uint32_t n = looks ? slot_adoptable(slot, prefix, i, look) : i;
    if (n == i) {
        slot_rewarm(slot, prefix);
        return 0;
    }
    slot_hold_up_to(slot, prefix, n);
    if (prefix->states)
        slot_begin_from(slot, prefix, n);
    slot_read(slot, prefix, slot->spec.canonical);
    return slot->spec.canonical - before;
}

void slot_hold_ahead(struct slot *slot, struct prefix *prefix)
{
    uint32_t page = PAGE_NONE;
    assert(slot->n_ahead == 0);
    for (; slot->n_ahead < slot->n_shared; slot->n_ahead++) {
        page = slot->ahead[slot->n_ahead] = slot->pages[slot->n_ahead];
        prefix_hold(prefix, page);
    }
    while ((page = slot_find(slot, prefix, page, slot->n_ahead)) != PAGE_NONE) {
        prefix_hold(prefix, page);
        slot->ahead[slot->n_ahead++] = page;
    }
}

void slot_publish_ahead(struct slot *slot, struct prefix *prefix, uint32_t page)
{
    uint32_t i = slot->n_ahead, parent = i > 0 ? slot->ahead[i - 1] : PAGE_NONE;
    assert(slot_goes_beyond(slot, i));
    slot->ahead[slot->n_ahead++] = prefix_publish(prefix, slot->uid, parent, page, PAGE_NONE,
                                                  slot->tokens + (size_t)i * KV_PAGE_POSITIONS);
}

void slot_take_end(struct slot *slot, struct prefix *prefix, uint32_t n_pages, uint32_t positions,
                   const uint32_t part[PREFIX_PARTS])
{
    assert(slot->spec.canonical <= n_pages * KV_PAGE_POSITIONS);
    if (slot->spec.canonical < n_pages * KV_PAGE_POSITIONS)
        slot_hold_up_to(slot, prefix, n_pages);
    assert(slot->n_pages == n_pages && slot->n_shared == n_pages);
    slot->windows[n_pages] = part[PREFIX_WINDOW];
    slot->pages[slot->n_pages++] = part[PREFIX_PAGE];
    spec_prefilled(&slot->spec, positions);
    if (!prefix->states)
        return;
    slot_begun(slot, prefix);
    if (slot->own != PAGE_NONE)
        pages_return(prefix->states, slot->own);
    slot->own = part[PREFIX_POINT];
    spec_restart(&slot->spec);
}

void slot_share(struct slot *slot, struct prefix *prefix)
{
    if (!overflow_uid_shares(slot->uid))
        return;
    for (uint32_t i = slot->n_shared; i < slot->spec.canonical / KV_PAGE_POSITIONS; i++) {
        uint32_t window = prefix->window > 0 ? slot->windows[i] : PAGE_NONE;
        assert(prefix->window == 0 || has_window(slot, prefix, i));
        slot->pages[i] = prefix_publish(prefix, slot->uid, slot_parent(slot, i), slot->pages[i],
                                        window, slot->tokens + (size_t)i * KV_PAGE_POSITIONS);
        slot->windows[i] = prefix->pages[slot->pages[i]].window;
        slot->n_shared++;
    }
}

bool slot_fills_page(const struct slot *slot)
{
    return overflow_uid_shares(slot->uid) &&
           slot_goes_beyond(slot, slot->spec.canonical / KV_PAGE_POSITIONS);
}

bool slot_same_page(const struct slot *slot, const struct slot *other)
{
    uint32_t i = slot->n_shared;
    /* The same parent is the same prefix: equal pages are one page in the cache. */
    return slot->uid == other->uid && other->n_shared == i &&
           slot_parent(slot, i) == slot_parent(other, i) &&
           !memcmp(slot->tokens + (size_t)i * KV_PAGE_POSITIONS,
                   other->tokens + (size_t)i * KV_PAGE_POSITIONS,
                   KV_PAGE_POSITIONS * sizeof(*slot->tokens));
}

/* ---- restart points -------------------------------------------------------------------------- */

/* The last place for a restart point that lies a few tokens before `n_tokens`, or 0. */
static uint32_t point_before(uint32_t n_tokens)
{
    const uint32_t tokens = 8; /* what is typed or counted again at the end of a text */
    return n_tokens < tokens ? 0 : (n_tokens - tokens) / KV_PAGE_POSITIONS * KV_PAGE_POSITIONS;
}

void slot_branch(struct slot *slot, struct prefix *prefix, uint32_t n_tokens, uint32_t common,
                 uint32_t before)
{
    if (!prefix->states)
        return;
    slot_changes(slot, common);
    for (uint32_t i = 0; i < slot->n_shared; i++)
        prefix_use_point(prefix, slot->pages[i]);
    if (before > 0 && common == before)
        return;
    slot->points[0] = point_before(n_tokens);
    slot->points[1] = point_before(common);
}

uint32_t slot_points(const struct slot *slot, uint32_t from, uint32_t to,
                     uint32_t ret[BACKEND_STATE_KEEPS])
{
    const uint32_t wanted[] = {slot->meets, slot->points[0], slot->points[1],
                               (from / POINTS_EVERY + 1) * POINTS_EVERY};
    uint32_t n = 0;
    if (!overflow_uid_shares(slot->uid))
        return 0;
    for (uint32_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]) && n < BACKEND_STATE_KEEPS; i++)
        if (wanted[i] > from && wanted[i] <= to && (n == 0 || ret[0] != wanted[i]))
            ret[n++] = wanted[i];
    return n;
}

/* If the slot's text has more restart points than it may have, finds the page of the one that saves
 * the least: few rows after the one before it, and far from the end, where few texts go back to.
 * Otherwise PAGE_NONE. */
static uint32_t find_least_point(const struct slot *slot, const struct prefix *prefix)
{
    uint32_t n = 0, before = 0, least = PAGE_NONE;
    uint64_t least_gap = 0, least_back = 1;
    for (uint32_t i = 0; i < slot->n_shared; i++) {
        const struct prefix_page *page = &prefix->pages[slot->pages[i]];
        uint32_t at = (i + 1) * KV_PAGE_POSITIONS;
        uint64_t gap = at - before, back = slot->spec.accepted - at;
        if (page->point == PAGE_NONE)
            continue;
        n++;
        before = at;
        if (page->beginners > 0 || at == slot->points[0] || at == slot->points[1])
            continue;
        if (least == PAGE_NONE || gap * least_back < least_gap * back) {
            least = slot->pages[i];
            least_gap = gap;
            least_back = back;
        }
    }
    return n > TEXT_POINTS ? least : PAGE_NONE;
}

void slot_keep(struct slot *slot, struct prefix *prefix, uint32_t at, uint32_t state)
{
    uint32_t page = slot->pages[at / KV_PAGE_POSITIONS - 1];
    assert(at / KV_PAGE_POSITIONS <= slot->n_shared);
    prefix_keep(prefix, page, state);
    page = find_least_point(slot, prefix);
    if (page != PAGE_NONE)
        prefix_drop_point(prefix, page);
}

/* How many whole pages of tokens [0, most) are the same in both texts, of which the first `n` pages
 * are; in tokens. Each token is compared once, since every pair of slots is asked for in every
 * step. */
static uint32_t slot_agrees(const struct slot *slot, const struct slot *other, uint32_t n,
                            uint32_t most)
{
    uint32_t *agreed = slot_agreed(slot, other->number), at = n * KV_PAGE_POSITIONS;
    const uint32_t known = *agreed / KV_PAGE_POSITIONS * KV_PAGE_POSITIONS;
    if (at < known)
        at = known < most ? known : most;
    while (at < most && !memcmp(slot->tokens + at, other->tokens + at,
                                KV_PAGE_POSITIONS * sizeof(*slot->tokens)))
        at += KV_PAGE_POSITIONS;
    *agreed = at > *agreed ? at : *agreed;
    return at;
}

uint32_t slot_meets(const struct slot *slot, const struct slot *other)
{
    uint32_t i = slot->n_shared, at, most = slot->spec.accepted;
    if (most > other->spec.accepted)
        most = other->spec.accepted;
    most =
        (most - 1) / KV_PAGE_POSITIONS * KV_PAGE_POSITIONS; /* each has a row to compute after it */
    if (slot->uid != other->uid || !overflow_uid_shares(slot->uid) ||
        most <= other->spec.canonical || i > other->n_shared ||
        slot_parent(slot, i) != slot_parent(other, i))
        return 0;
    at = slot_agrees(slot, other, i, most);
    return at > other->spec.canonical ? at : 0;
}

/* ---- eviction ------------------------------------------------------------------------------ */

/* The order of giving way of slots that are not idle; the lowest class goes first. */
enum yield_class { YIELD_PAUSED, YIELD_BATCH, YIELD_INTERACTIVE, YIELD_NEVER };

/* Does `needy` hold all that the slot does? The same last page is the same text up to its end. */
static bool slot_has_nothing_for(const struct slot *slot, const struct slot *needy)
{
    const uint32_t n = slot->n_pages;
    return slot->n_ahead == 0 && slot->own == PAGE_NONE && n > 0 && n <= needy->n_pages &&
           slot->pages[n - 1] == needy->pages[n - 1] &&
           (slot->window_from >= n || slot->window_from >= needy->window_from);
}

static enum yield_class yields(const struct slot *slot, const struct slot *needy)
{
    if (slot == needy || slot->state == SLOT_PLANNED || slot->n_pages + slot->n_ahead == 0 ||
        slot_has_nothing_for(slot, needy))
        return YIELD_NEVER;
    if (slot_gives_way(slot))
        return YIELD_PAUSED;
    if (slot->batch && !needy->batch)
        return YIELD_BATCH;
    if (slot->batch == needy->batch && slot_precedes(needy, slot))
        return slot->batch ? YIELD_BATCH : YIELD_INTERACTIVE;
    return YIELD_NEVER;
}

struct slot *slot_victim(struct slot *slots, uint32_t n_slots, struct prefix *prefix,
                         const struct slot *needy)
{
    uint64_t sums[PREFIX_USERS];
    count_idle(slots, n_slots, idle_pages, prefix, NULL, needy, sums);
    struct slot *victim = find_idle(slots, n_slots, idle_pages, prefix, needy, sums);
    enum yield_class lowest = YIELD_NEVER;
    if (victim)
        return victim;
    for (uint32_t i = 0; i < n_slots; i++) {
        struct slot *slot = &slots[i];
        enum yield_class class = yields(slot, needy);
        bool later = victim && slot_precedes(victim, slot);
        if (class > lowest || class == YIELD_NEVER)
            continue;
        if (class < lowest || later) { /* the newest has the least to compute again */
            victim = slot;
            lowest = class;
        }
    }
    return victim;
}

uint32_t slots_room(const struct slots *slots, const struct slot *needy)
{
    uint32_t room = prefix_spare(&slots->kv.prefix);
    for (uint32_t i = 0; i < slots->n; i++) {
        const struct slot *slot = &slots->all[i];
        if (slot->state == SLOT_IDLE || yields(slot, needy) != YIELD_NEVER)
            room += slot->n_pages;
    }
    return room;
}

static uint32_t idle_draft_pages(const struct slot *slot)
{
    return slot->state == SLOT_IDLE ? slot->draft_kv.n_pages : 0;
}

/* A request that stands still drafts nothing, and may do so for ever. */
static uint32_t still_draft_pages(const struct slot *slot)
{
    return slot_gives_way(slot) && !slot->draft_kv.in_pass ? slot->draft_kv.n_pages : 0;
}

struct slot *slot_draft_victim(struct slot *slots, uint32_t n_slots, struct prefix *prefix,
                               const struct slot *needy)
{
    idle_has *const order[] = {idle_draft_pages, still_draft_pages};
    struct slot *victim = NULL;
    uint64_t sums[PREFIX_USERS];
    for (uint32_t i = 0; i < sizeof(order) / sizeof(*order) && !victim; i++) {
        count_idle(slots, n_slots, order[i], prefix, NULL, needy, sums);
        victim = find_idle(slots, n_slots, order[i], prefix, needy, sums);
    }
    return victim;
}

uint32_t slots_take_page(struct slots *slots, const struct slot *needy, uint32_t *ret_evicted)
{
    struct prefix *prefix = &slots->kv.prefix;
    uint32_t page;
    struct slot *victim;
    *ret_evicted = slots_level(slots, prefix, needy);
    while ((page = prefix_take(prefix)) == PAGE_NONE &&
           (victim = slot_victim(slots->all, slots->n, prefix, needy)))
        *ret_evicted += slots_evict(slots, victim);
    return page;
}

uint32_t slots_take_window(struct slots *slots, const struct slot *needy, uint32_t *ret_evicted)
{
    *ret_evicted = slots_level(slots, &slots->kv.prefix, needy);
    return prefix_take_window(&slots->kv.prefix);
}
