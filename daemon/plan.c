/* Sharing out the rows of one pass. Two sweeps a class: decoding slots, then prefills. */
#include "daemon/plan.h"

struct plan_left {
    uint32_t rows;
    uint32_t picks;
};

static bool decodes(const struct plan_slot *slot)
{
    return slot->rows <= slot->window;
}

/* A keystroke: not worth making two passes of. */
static bool is_short(const struct plan_slot *slot)
{
    return slot->rows <= PLAN_SHORT;
}

uint32_t plan_budget(const struct plan_slot *slots, uint32_t n, const struct plan_cost *cost,
                     uint32_t most)
{
    uint64_t alone_ns = 8 * cost->decode_ns, decoding = 0, brief = 0;
    bool answering = false;

    if (cost->row_ns == 0)
        return most;
    if (cost->decode_ns == 0 || alone_ns > cost->pass_ns)
        alone_ns = cost->pass_ns;
    for (uint32_t i = 0; i < n; i++) {
        if (decodes(&slots[i]))
            decoding += slots[i].rows;
        else if (is_short(&slots[i]))
            brief += slots[i].rows;
        else
            continue;
        answering |= !slots[i].batch && cost->decode_ns > 0;
    }
    uint64_t rows = (answering ? cost->decode_ns / 2 : alone_ns) / cost->row_ns;
    uint64_t least = answering ? 1 : 3 * PLAN_CHUNK_MIN / 2;
    rows = decoding + (brief < 2 * PLAN_SHORT ? brief : 2 * PLAN_SHORT) +
           (rows > least ? rows : least);
    return rows < most ? (uint32_t)rows : most;
}

/* Gives `slot` up to `rows` more rows. A pick comes only with the whole window: when it does not
 * fit, the rows before the window are computed and the window waits for the next pass. */
static void plan_give(struct plan_slot *slot, uint32_t rows, struct plan_left *left)
{
    uint32_t missing = slot->rows - slot->take;

    if (rows > left->rows)
        rows = left->rows;
    if (rows >= missing && slot->window <= left->picks) {
        rows = missing;
        left->picks -= slot->window;
    } else {
        uint32_t before = missing > slot->window ? missing - slot->window : 0;
        rows = rows < before ? rows : before;
    }
    slot->take += rows;
    left->rows -= rows;
}

/* Is there room for all short prompts of the class, and a row for the others? Else they share. */
static bool short_fit(const struct plan_slot *slots, uint32_t n, bool batch,
                      const struct plan_left *left)
{
    uint32_t rows = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t missing = slots[i].rows - slots[i].take;
        if (slots[i].batch == batch && !decodes(&slots[i]) && missing > 0)
            rows += is_short(&slots[i]) ? missing : 1;
    }
    return rows <= left->rows;
}

static void plan_class(struct plan_slot *slots, uint32_t n, bool batch, uint32_t turn,
                       struct plan_left *left)
{
    uint32_t prefills = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct plan_slot *slot = &slots[(turn + i) % n];
        if (slot->batch == batch && slot->take < slot->rows && decodes(slot))
            plan_give(slot, slot->rows, left);
    }
    bool fit = short_fit(slots, n, batch, left);
    for (uint32_t i = 0; i < n; i++) {
        struct plan_slot *slot = &slots[(turn + i) % n];
        if (slot->batch != batch || slot->take == slot->rows || decodes(slot))
            continue;
        if (fit && is_short(slot))
            plan_give(slot, slot->rows, left);
        prefills += slot->take < slot->rows;
    }
    while (prefills > 0 && left->rows > 0) {
        uint32_t share = left->rows / prefills, given = left->rows;
        if (share < PLAN_CHUNK_MIN)
            share = PLAN_CHUNK_MIN;
        prefills = 0;
        for (uint32_t i = 0; i < n; i++) {
            struct plan_slot *slot = &slots[(turn + i) % n];
            if (slot->batch != batch || decodes(slot) || slot->take == slot->rows)
                continue;
            plan_give(slot, share, left);
            prefills += slot->take < slot->rows;
        }
        if (given == left->rows)
            break; /* only windows without room for their picks are left */
    }
}

/* The eighth that batch keeps; of a single one interactive requests are first. */
static uint32_t plan_kept(uint32_t limit)
{
    return limit / 8 ? limit / 8 : limit > 1;
}

uint32_t plan_pass(struct plan_slot *slots, uint32_t n, const struct plan_limits *limits,
                   uint32_t turn)
{
    struct plan_left kept = {0}, left;

    for (uint32_t i = 0; i < n; i++) {
        slots[i].take = 0;
        if (slots[i].batch)
            kept = (struct plan_left){plan_kept(limits->rows), plan_kept(limits->picks)};
    }
    if (n == 0)
        return 0;
    left = (struct plan_left){limits->rows - kept.rows, limits->picks - kept.picks};
    plan_class(slots, n, false, turn, &left);
    left.rows += kept.rows;
    left.picks += kept.picks;
    plan_class(slots, n, true, turn, &left);
    plan_class(slots, n, false, turn, &left);
    return limits->rows - left.rows;
}
