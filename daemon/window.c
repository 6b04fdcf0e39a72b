/* The arithmetic of window.h. */
#include "daemon/window.h"

static const float WINDOW_GAIN = 1.03f;     /* below this the measurement's noise would decide */
static const float ACCEPTANCE_START = 0.6f; /* a match in the context is a good sign */
static const float ROW_GUESS = 0.2f;        /* S / T before it was measured */

void window_init(struct window *window)
{
    *window = (struct window){.acceptance = ACCEPTANCE_START};
}

void window_verified(struct window *window, uint32_t drafted, uint32_t accepted)
{
    /* Only drafts up to the first miss were really tried. */
    uint32_t tried = accepted < drafted ? accepted + 1 : drafted;

    for (uint32_t i = 0; i < tried; i++)
        window->acceptance += 0.15f * ((i < accepted ? 1.0f : 0.0f) - window->acceptance);
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

    if (always) /* every draft that holds more often than not */
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
