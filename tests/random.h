/* random.h - numbers that look random and are the same in every run: what tests and benches draw
 * their requests from. */
#ifndef HEARTH_TESTS_RANDOM_H
#define HEARTH_TESTS_RANDOM_H

#include <stdint.h>

/* The next one, 24 bits. `state` is the seed at first. A linear congruential generator (the
 * constants of Numerical Recipes), whose low bits are dropped: they repeat soon. */
static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* One from 0 to n - 1. */
static inline uint32_t random_below(uint32_t *state, uint32_t n)
{
    return next_random(state) % n;
}

#endif
