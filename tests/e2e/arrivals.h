/* arrivals: arrival times and lengths of requests as a real service saw them.
 *
 * Stretches of the Azure code trace (8,819 requests of an hour) where the test data has it; without
 * it a seeded process of bursts. Times are scaled to a test's duration, lengths to its context.
 */
#ifndef HEARTH_TESTS_E2E_ARRIVALS_H
#define HEARTH_TESTS_E2E_ARRIVALS_H

#include <stdint.h>

struct arrival {
    uint64_t at_ns;  /* since the first one */
    uint32_t prompt; /* tokens */
    uint32_t output; /* tokens */
};

/* The source that arrivals_fill() will use, as one line for a test's output. */
const char *arrivals_source(void);

/* Fills arrivals [n] with a stretch chosen by `seed`: the last comes at span_ns, and the longest
 * prompt of the whole trace would have prompt_max tokens. */
void arrivals_fill(struct arrival *arrivals, uint32_t n, uint64_t span_ns, uint32_t prompt_max,
                   uint32_t seed);

#endif
