/* random: pseudo-random numbers that are the same in every run, for the requests of tests and
 * benches. */
#ifndef HEARTH_TESTS_RANDOM_H
#define HEARTH_TESTS_RANDOM_H

#include <stdint.h>

/* The next number, 24 bits. `state` starts as the seed. A linear congruential generator with the
 * constants of Numerical Recipes; the low bits are dropped because their period is short. */
static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A number from 0 to n - 1. */
static inline uint32_t random_below(uint32_t *state, uint32_t n)
{
    return next_random(state) % n;
}

#endif
