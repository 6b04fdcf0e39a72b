/* Costs from measured passes. */
#include "daemon/policy/cost.h"

enum { LATELY_NS = 500000000 }; /* a typist's next keystroke usually arrives within this time */

/* What a step of decoding takes: its fast pass where that answers, and its canonical one where that
 * does. */
static uint64_t decode_ns(const struct cost *cost, const struct cost_step *step)
{
    float pass_ns = cost->decode.pass_ns;
    if (!step->unverified)
        return (uint64_t)pass_ns;
    return step->fast_ns + (step->decode_rows > 0 ? (uint64_t)pass_ns : 0);
}

struct plan_cost cost_plan(const struct cost *cost, const struct cost_step *step)
{
    return (struct plan_cost){
        .pass_ns = cost->limit_ns,
        .decode_ns = decode_ns(cost, step),
        .unverified = step->unverified,
        .decode_rows = step->decode_rows,
        .pass = cost->pass,
        .credit_ns = cost->credit_ns,
        .lately = cost->answered_ns && step->now_ns - cost->answered_ns < LATELY_NS,
    };
}

/* What long prompts took of a pass beside an answer: the pass without the others' part, and no less
 * than a quarter of what their rows were thought to add. */
static uint64_t long_ns(const struct cost *cost, const struct cost_pass *pass, uint64_t decoding_ns)
{
    uint32_t rows = pass->decode_rows + pass->short_rows;
    uint64_t others = pass->short_rows > 0 ? curve_ns(&cost->pass, rows) : decoding_ns;
    uint64_t least =
        (curve_ns(&cost->pass, rows + pass->long_rows) - curve_ns(&cost->pass, rows)) / 4;
    if (pass->long_rows == 0)
        return 0;
    return pass->took_ns > others + least ? pass->took_ns - others : least;
}

uint64_t cost_short_ns(const struct cost *cost, const struct cost_pass *pass)
{
    return curve_ns(&cost->pass, pass->decode_rows + pass->short_rows) -
           curve_ns(&cost->pass, pass->decode_rows);
}

void cost_measured(struct cost *cost, const struct cost_step *step, const struct cost_pass *pass)
{
    uint64_t decoding_ns = pass->decode_rows > 0 ? (uint64_t)cost->decode.pass_ns : 0;
    struct plan_cost plan = cost_plan(cost, step);
    if (pass->answering) {
        cost->answered_ns = step->now_ns;
        cost->credit_ns = plan_credit(&plan, long_ns(cost, pass, decoding_ns));
    }
    if (pass->rows > 0 && pass->rows == pass->decode_rows)
        window_measured(&cost->decode, pass->slots, pass->rows, pass->took_ns);
    if (pass->rows > 0)
        curve_measured(&cost->pass, pass->rows, pass->took_ns);
    cost->step_ns = curve_smooth(cost->step_ns, cost->drafting_ns + pass->took_ns + 1);
    cost->drafting_ns = 0;
}
