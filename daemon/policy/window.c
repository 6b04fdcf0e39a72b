/* The arithmetic of window.h. */
#include "daemon/policy/window.h"

static const float WINDOW_GAIN = 1.03f;     /* below this the measurement's noise would decide */
static const float ACCEPTANCE_START = 0.6f; /* a match in the context is a good sign */
static const float ROW_GUESS = 0.2f;        /* S / T before it was measured */
static const float DRAFT_GUESS = 0.3f;      /* D / T before it was measured */
static const float DRAFT_ROW_GUESS = 0.1f;  /* one more row of a drafting pass, over D */
static const float LEARN_SLOT = 0.15f;      /* how much one draft says about its request ... */
static const float LEARN_ALL = 0.02f;       /* ... and about its user's to come */
static const float ANSWER_SHARE = 0.5f;     /* of its limit, that an answer may well reach */

void window_init(struct window *window)
{
    *window = (struct window){.acceptance = ACCEPTANCE_START};
}

/* Only drafts up to the first miss were really tried. */
static void learn(float *acceptance, float rate, uint32_t drafted, uint32_t accepted)
{
    uint32_t tried = accepted < drafted ? accepted + 1 : drafted;
    for (uint32_t i = 0; i < tried; i++)
        *acceptance += rate * ((i < accepted ? 1.0f : 0.0f) - *acceptance);
}

void window_verified(struct window *window, uint32_t drafted, uint32_t accepted)
{
    learn(&window->acceptance, LEARN_SLOT, drafted, accepted);
    window->unused = 0;
}

static float smooth(float old, float value)
{
    return old > 0 ? old + 0.1f * (value - old) : value;
}

void window_measured(struct window_cost *cost, uint32_t slots, uint32_t rows, uint64_t took_ns)
{
    float took = (float)took_ns;
    if (rows == slots) {
        /* A pass that was preempted says nothing about rows. */
        cost->pass_ns =
            smooth(cost->pass_ns,
                   cost->pass_ns > 0 && took > 4 * cost->pass_ns ? 4 * cost->pass_ns : took);
    } else if (cost->pass_ns > 0) {
        float row = (took - cost->pass_ns) / (float)(rows - slots);
        float least = cost->pass_ns / 64;
        row = row < least ? least : row > 2 * cost->pass_ns ? 2 * cost->pass_ns : row;
        cost->row_ns = smooth(cost->row_ns, row);
    }
}

uint32_t window_choose(struct window *window, const struct window_cost *cost, uint32_t slots,
                       uint32_t most, bool always)
{
    float pass = cost->pass_ns > 0 ? cost->pass_ns : 1;
    float row = cost->row_ns > 0 ? cost->row_ns : ROW_GUESS * pass;
    float others = (float)(slots > 0 ? slots - 1 : 0);
    float expected = 1, power = 1, best_rate = (others + 1) / pass * (always ? 0 : WINDOW_GAIN);
    uint32_t best = 0;
    if (always) /* every draft that is accepted more often than not */
        row = pass / 16;
    for (uint32_t w = 1; w <= most && w <= WINDOW_MAX; w++) {
        power *= window->acceptance;
        expected += power;
        float rate = (others + expected) / (pass + (float)w * row);
        if (rate > best_rate) {
            best_rate = rate;
            best = w;
        }
    }
    if (best == 0 && most > 0 && ++window->unused >= WINDOW_PROBE) {
        window->unused = 0;
        best = 1;
    }
    return best;
}

/* ---- drafts that a model computes ------------------------------------------------------------ */

/* What a round takes: T, S, D with guesses for what was not measured yet. */
struct round_cost {
    float pass, row, draft;
};

/* A drafter that all requests asked for by name is taken to be worth it. */
static void round_cost_named(struct round_cost *c)
{
    if (c->draft > DRAFT_GUESS * c->pass)
        c->draft = DRAFT_GUESS * c->pass;
}

static struct round_cost round_cost(const struct window_cost *cost,
                                    const struct window_drafter *drafter)
{
    float pass = cost->pass_ns > 0 ? cost->pass_ns : 1;
    return (struct round_cost){
        .pass = pass,
        .row = cost->row_ns > 0 ? cost->row_ns : ROW_GUESS * pass,
        .draft = drafter->cost.pass_ns > 0 ? drafter->cost.pass_ns : DRAFT_GUESS * pass,
    };
}

/* E(w) = 1 + p + .. + p^w */
static float expected(float acceptance, uint32_t w)
{
    float sum = 1;
    while (w-- > 0)
        sum = 1 + acceptance * sum;
    return sum;
}

static float round_ns(const struct round_cost *c, uint32_t n, uint32_t w)
{
    return c->pass + (float)w * (c->draft + (float)n * c->row);
}

float window_past_acceptance(const struct window_past *past)
{
    return past->known ? past->acceptance : ACCEPTANCE_START;
}

void window_past_verified(struct window_past *past, uint32_t drafted, uint32_t accepted)
{
    *past = (struct window_past){.acceptance = window_past_acceptance(past), .known = true};
    learn(&past->acceptance, LEARN_ALL, drafted, accepted);
}

/* The window that gives the slots together the most tokens for their time, among those that make no
 * slot slower than without drafts; 0: there is none. */
static uint32_t share_all(const struct window_share *slots, uint32_t n,
                          const struct round_cost *cost)
{
    struct round_cost c = *cost;
    uint32_t best = 0, most = WINDOW_MAX;
    float best_rate = 0;
    bool always = true;
    for (uint32_t i = 0; i < n; i++) {
        most = slots[i].most < most ? slots[i].most : most;
        always &= slots[i].always;
    }
    if (always)
        round_cost_named(&c);
    for (uint32_t w = 1; w <= most; w++) {
        float ns = round_ns(&c, n, w), tokens = 0;
        bool gains = true;
        for (uint32_t i = 0; i < n; i++) {
            float own = expected(slots[i].acceptance, w);
            gains &= slots[i].always || own * c.pass > WINDOW_GAIN * ns;
            tokens += own;
        }
        if (gains && tokens / ns > best_rate) {
            best_rate = tokens / ns;
            best = w;
        }
    }
    return best;
}

/* One draft for each slot where it is worth its row, if together they are worth the pass. Returns
 * how many got one. */
static uint32_t share_some(struct window_share *slots, uint32_t n, uint32_t others,
                           const struct round_cost *c)
{
    float all = (float)(n + others), tokens = all;
    uint32_t drafting = 0;
    bool paid = false; /* some slot drafts in any case */
    for (uint32_t i = 0; i < n; i++) {
        slots[i].drafts = slots[i].always || slots[i].acceptance * c->pass > c->row * all;
        tokens += slots[i].drafts ? slots[i].acceptance : 0;
        drafting += slots[i].drafts;
        paid |= slots[i].always;
    }
    if (paid || tokens * c->pass > WINDOW_GAIN * all * round_ns(c, drafting, 1))
        return drafting;
    for (uint32_t i = 0; i < n; i++)
        slots[i].drafts = 0;
    return 0;
}

/* After many rounds without a draft the most hopeful slot tries one. */
static void share_probe(struct window_share *slots, uint32_t n, struct window_drafter *drafter)
{
    uint32_t best = 0;
    if (++drafter->unused < WINDOW_PROBE)
        return;
    drafter->unused = 0;
    for (uint32_t i = 1; i < n; i++)
        best = slots[i].acceptance > slots[best].acceptance ? i : best;
    slots[best].drafts = 1;
}

void window_share(struct window_share *slots, uint32_t n, uint32_t others,
                  const struct window_cost *cost, struct window_drafter *drafter)
{
    struct round_cost c = round_cost(cost, drafter);
    uint32_t w = 0;
    for (uint32_t i = 0; i < n; i++)
        slots[i].drafts = 0;
    if (n == 0)
        return;
    /* A round without drafts shows what a pass costs: at first, and now and then. */
    if (drafter->used >= WINDOW_PROBE || (others == 0 && cost->pass_ns <= 0)) {
        drafter->used = 0;
        return;
    }
    if (others == 0)
        w = share_all(slots, n, &c);
    for (uint32_t i = 0; i < n; i++)
        slots[i].drafts = w;
    if (w > 0 || share_some(slots, n, others, &c) > 0) {
        drafter->unused = 0;
        drafter->used++;
    } else {
        drafter->used = 0;
        share_probe(slots, n, drafter);
    }
}

bool window_lag_pays(const struct window_cost *cost, const struct window_drafter *drafter,
                     float acceptance, uint32_t lag, uint32_t left)
{
    struct round_cost c = round_cost(cost, drafter);
    struct window_share alone = {.acceptance = acceptance, .most = WINDOW_MAX};
    float row = drafter->cost.row_ns > 0 ? drafter->cost.row_ns : DRAFT_ROW_GUESS * c.draft;
    uint32_t w = share_all(&alone, 1, &c);
    if (w == 0)
        return false;
    float saved = c.pass - round_ns(&c, 1, w) / expected(acceptance, w); /* a token */
    return saved * ANSWER_SHARE * (float)left > row * (float)lag;
}
