/* Sharing out the rows of one pass. Two sweeps a class: decoding slots, then prefills. */
#include "daemon/policy/plan.h"

#include <assert.h>

struct plan_left {
    uint32_t rows;
    uint32_t samples;
    uint32_t brief;
    uint32_t prefill;
};

static bool decodes(const struct plan_slot *slot)
{
    return slot->rows <= slot->window;
}

/* A keystroke: not worth making two passes of. */
static bool is_short(const struct plan_slot *slot)
{
    return slot->brief && !decodes(slot);
}

bool plan_is_long(const struct plan_slot *slot)
{
    return !decodes(slot) && !slot->brief;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Is the cost of prompt rows known? Until it is, no rule uses it. */
static bool plan_knows(const struct plan_cost *cost)
{
    return curve_known(&cost->pass, PLAN_CHUNK_MIN);
}

/* What rows of prompts add to this pass. */
static uint64_t plan_adds_ns(const struct plan_cost *cost, uint32_t rows)
{
    return curve_ns(&cost->pass, cost->decode_rows + rows) -
           curve_ns(&cost->pass, cost->decode_rows);
}

/* How many rows of prompts add no more than `ns`. */
static uint32_t plan_rows(const struct plan_cost *cost, uint64_t ns)
{
    uint32_t rows = curve_rows(&cost->pass, curve_ns(&cost->pass, cost->decode_rows) + ns);
    return rows > cost->decode_rows ? rows - cost->decode_rows : 0;
}

/* What the smallest worthwhile chunk adds to this pass; 0 if it has PLAN_CHUNK_MIN rows or fewer. */
static uint64_t plan_worthwhile_ns(const struct plan_cost *cost)
{
    uint32_t rows = curve_worthwhile(&cost->pass);
    return rows <= PLAN_CHUNK_MIN
               ? 0
               : least(plan_adds_ns(cost, rows), 2 * plan_adds_ns(cost, 2 * PLAN_CHUNK_MIN));
}

/* What a chunk beside an answer costs. */
static int64_t plan_price(const struct plan_cost *cost)
{
    uint64_t chunk_ns = least(plan_adds_ns(cost, PLAN_CHUNK_MIN), 2 * cost->decode_ns);
    return (int64_t)most(chunk_ns, plan_worthwhile_ns(cost));
}

int64_t plan_credit(const struct plan_cost *cost, uint64_t prefill_ns)
{
    int64_t price = plan_price(cost), earned = (int64_t)(cost->decode_ns / 2);
    /* A pass that was preempted, or a wrong guess, must not stop them for long. */
    int64_t paid = prefill_ns < 4 * (uint64_t)price ? (int64_t)prefill_ns : 4 * price;
    int64_t credit = cost->credit_ns + earned - paid, kept = price > earned ? price : earned;
    return credit < kept ? credit : kept;
}

static uint32_t plan_prefill(const struct plan_cost *cost, bool answering)
{
    uint64_t alone_ns = (cost->lately ? 4 : 8) * cost->decode_ns;
    if (!plan_knows(cost))
        return PLAN_SHORT;
    if (answering && cost->credit_ns < plan_price(cost))
        return 0;
    if (answering)
        return (uint32_t)most(1, plan_rows(cost, (uint64_t)cost->credit_ns));
    if (cost->decode_ns == 0 || alone_ns > cost->pass_ns)
        alone_ns = cost->pass_ns;
    alone_ns = most(alone_ns, plan_worthwhile_ns(cost));
    return (uint32_t)most(3 * PLAN_CHUNK_MIN / 2, plan_rows(cost, alone_ns));
}

/* Is an interactive answer being read? */
static bool plan_reading(const struct plan_slot *slots, uint32_t n, const struct plan_cost *cost)
{
    bool reading = cost->unverified;
    for (uint32_t i = 0; i < n; i++)
        reading |= !slots[i].batch && decodes(&slots[i]);
    return reading && cost->decode_ns > 0 && plan_knows(cost);
}

/* Slots that decode; fills their rows. */
static uint32_t plan_decoders(const struct plan_slot *slots, uint32_t n, uint64_t *ret_rows)
{
    uint32_t decoders = 0;
    *ret_rows = 0;
    for (uint32_t i = 0; i < n; i++)
        if (decodes(&slots[i])) {
            *ret_rows += slots[i].rows;
            decoders++;
        }
    return decoders;
}

bool plan_budget(struct plan_slot *slots, uint32_t n, const struct plan_cost *cost, uint32_t most,
                 struct plan_limits *limits)
{
    bool reading = plan_reading(slots, n, cost), answering = reading;
    uint64_t decoding, brief = 0;
    if (plan_decoders(slots, n, &decoding) == n) {
        limits->rows = (uint32_t)least(decoding, most);
        limits->brief = limits->prefill = 0;
        return reading;
    }
    uint32_t bounded = reading ? plan_rows(cost, 4 * cost->decode_ns) : UINT32_MAX;
    uint32_t longest = (uint32_t)least(bounded, PLAN_SHORT);
    uint32_t together = (uint32_t)least(bounded, 2 * PLAN_SHORT);
    for (uint32_t i = 0; i < n; i++) {
        struct plan_slot *slot = &slots[i];
        uint32_t whole = slot->whole > slot->rows ? slot->whole : slot->rows;
        slot->brief = !(reading && (slot->batch || slot->owes)) && whole <= longest;
        if (!is_short(slot))
            continue;
        brief += slot->rows;
        answering |= !slot->batch && cost->decode_ns > 0 && plan_knows(cost);
    }
    limits->prefill = plan_prefill(cost, answering);
    limits->rows = (uint32_t)least(decoding + least(brief, together) + limits->prefill, most);
    limits->brief = reading ? together : limits->rows;
    return answering;
}

/* Gives `slot` up to `rows` more rows. A sample comes only with the whole window: when it does not
 * fit, the rows before the window are computed and the window waits for the next pass. */
static void plan_give(struct plan_slot *slot, uint32_t rows, struct plan_left *left)
{
    uint32_t missing = slot->rows - slot->take;
    if (rows > left->rows)
        rows = left->rows;
    if (rows >= missing && slot->window <= left->samples) {
        rows = missing;
        left->samples -= slot->window;
    } else {
        uint32_t before = missing > slot->window ? missing - slot->window : 0;
        rows = rows < before ? rows : before;
    }
    slot->take += rows;
    left->rows -= rows;
}

/* The same for a prompt: short ones and long ones have limits of their own. */
static void plan_give_prefill(struct plan_slot *slot, uint32_t rows, struct plan_left *left)
{
    uint32_t *limit = is_short(slot) ? &left->brief : &left->prefill, before = left->rows;
    plan_give(slot, rows < *limit ? rows : *limit, left);
    *limit -= before - left->rows;
}

/* Is there room for all short prompts of the class, and a row for the others? Else they share. */
static bool short_fit(const struct plan_slot *slots, uint32_t n, bool batch,
                      const struct plan_left *left)
{
    uint32_t rows = 0, others = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct plan_slot *slot = &slots[i];
        if (slot->batch != batch || decodes(slot))
            continue;
        if (slot->brief)
            rows += slot->rows - slot->take;
        else
            others += slot->take < slot->rows;
    }
    return rows <= left->brief && rows + others <= left->rows;
}

/* Slots that are served one after another, grouped by their users. */
struct plan_queue {
    uint32_t n, n_users;
    uint32_t users[PLAN_SLOTS_MAX];   /* [n_users] */
    uint16_t counts[PLAN_SLOTS_MAX];  /* [n_users] slots of each */
    uint16_t user_of[PLAN_SLOTS_MAX]; /* [n] of each slot: a place in `users` */
    uint16_t slots[PLAN_SLOTS_MAX];   /* [n] */
};

static void plan_join(struct plan_queue *queue, const struct plan_slot *slot, uint32_t i)
{
    uint32_t user = 0;
    while (user < queue->n_users && queue->users[user] != slot->user)
        user++;
    if (user == queue->n_users) {
        queue->users[queue->n_users++] = slot->user;
        queue->counts[user] = 0;
    }
    queue->counts[user]++;
    queue->user_of[queue->n] = (uint16_t)user;
    queue->slots[queue->n++] = (uint16_t)i;
}

/* Puts the slots in order: one of each user, then the second of each that has one, and so on. */
static void plan_order(struct plan_queue *queue, uint32_t turn)
{
    uint16_t grouped[PLAN_SLOTS_MAX], first[PLAN_SLOTS_MAX], next[PLAN_SLOTS_MAX];
    uint32_t at = 0, begin = 0;
    for (uint32_t user = 0; user < queue->n_users; user++) {
        first[user] = next[user] = (uint16_t)begin;
        begin += queue->counts[user];
    }
    for (uint32_t i = 0; i < queue->n; i++)
        grouped[next[queue->user_of[i]]++] = queue->slots[i];
    for (uint32_t lap = 0; at < queue->n; lap++)
        for (uint32_t k = 0; k < queue->n_users; k++) {
            uint32_t user = (turn + k) % queue->n_users, count = queue->counts[user];
            if (lap >= count)
                continue;
            queue->user_of[at] = (uint16_t)user;
            queue->slots[at++] = grouped[first[user] + (turn / queue->n_users + lap) % count];
        }
}

/* Slots of the class that decode. */
static void plan_decoding(const struct plan_slot *slots, uint32_t n, bool batch, uint32_t turn,
                          struct plan_queue *queue)
{
    queue->n = queue->n_users = 0;
    for (uint32_t i = 0; i < n; i++)
        if (slots[i].batch == batch && slots[i].take < slots[i].rows && decodes(&slots[i]))
            plan_join(queue, &slots[i], i);
    plan_order(queue, turn);
}

/* Slots whose prompts share what is left: where all short ones fit, these have theirs already. */
static void plan_sharing(const struct plan_slot *slots, uint32_t n, bool batch, bool fit,
                         uint32_t turn, struct plan_queue *queue)
{
    queue->n = queue->n_users = 0;
    for (uint32_t i = 0; i < n; i++)
        if (slots[i].batch == batch && slots[i].take < slots[i].rows && !decodes(&slots[i]) &&
            !(fit && slots[i].brief))
            plan_join(queue, &slots[i], i);
    plan_order(queue, turn);
}

/* Returns whether prompts had shares. */
static bool plan_class(struct plan_slot *slots, uint32_t n, bool batch,
                       const struct plan_turn *turns, struct plan_left *left)
{
    struct plan_queue queue;
    plan_decoding(slots, n, batch, turns->passes, &queue);
    for (uint32_t i = 0; i < queue.n; i++)
        plan_give(&slots[queue.slots[i]], slots[queue.slots[i]].rows, left);
    bool fit = short_fit(slots, n, batch, left);
    for (uint32_t i = 0; i < n && fit; i++)
        if (slots[i].batch == batch && slots[i].take < slots[i].rows && is_short(&slots[i]))
            plan_give_prefill(&slots[i], slots[i].rows, left);
    uint32_t before = left->rows, given;
    do {
        given = left->rows;
        plan_sharing(slots, n, batch, fit, turns->shares, &queue);
        for (uint32_t i = 0; i < queue.n; i++) {
            uint32_t share = given / queue.n_users / queue.counts[queue.user_of[i]];
            plan_give_prefill(&slots[queue.slots[i]],
                              share > PLAN_CHUNK_MIN ? share : PLAN_CHUNK_MIN, left);
        }
    } while (left->rows > 0 && left->rows < given);
    /* What is left are windows without room for their samples, and prompts that have to wait. */
    return left->rows < before;
}

/* The eighth that batch keeps; of a single one interactive requests are first. */
static uint32_t plan_kept(uint32_t limit, uint64_t wanted)
{
    uint32_t kept = limit / 8 ? limit / 8 : limit > 1;
    return wanted < kept ? (uint32_t)wanted : kept;
}

uint32_t plan_widest(uint32_t rows, bool batch)
{
    uint32_t kept = plan_kept(rows, rows);
    return batch ? (uint32_t)most(kept, 1) : rows - kept;
}

uint32_t plan_pass(struct plan_slot *slots, uint32_t n, const struct plan_limits *limits,
                   struct plan_turn *turn)
{
    uint64_t ready = 0, waiting = 0, samples = 0; /* what batch could use of this pass */
    assert(n <= PLAN_SLOTS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        slots[i].take = 0;
        if (!slots[i].batch)
            continue;
        *(plan_is_long(&slots[i]) ? &waiting : &ready) += slots[i].rows;
        samples += slots[i].window;
    }
    if (n == 0)
        return 0;
    waiting = waiting < limits->prefill ? waiting : limits->prefill;
    struct plan_left kept = {
        .rows = plan_kept(limits->rows, ready + waiting),
        .samples = plan_kept(limits->samples, samples),
        .prefill = plan_kept(limits->prefill, waiting),
    };
    struct plan_left left = {
        .rows = limits->rows - kept.rows,
        .samples = limits->samples - kept.samples,
        .brief = limits->brief,
        .prefill = limits->prefill - kept.prefill,
    };
    bool shared = plan_class(slots, n, false, turn, &left);
    left.rows += kept.rows;
    left.samples += kept.samples;
    left.prefill += kept.prefill;
    shared |= plan_class(slots, n, true, turn, &left);
    shared |= plan_class(slots, n, false, turn, &left);
    turn->passes++;
    turn->shares += shared;
    return limits->rows - left.rows;
}
