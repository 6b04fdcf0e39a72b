/*
 * curve: what a pass of so many rows takes, learned from passes.
 *
 * Not base plus slope. With experts each of the first rows brings weights that no row before it
 * read, and later ones find them read: a row of 512 costs a fraction of a row of 16. Without, the
 * first rows cost next to nothing, as the weights are read anyway.
 *
 * Pure: no clock, the caller brings the times. The values follow what is measured, and between
 * neighbours (twice the rows) holds what always holds of passes: more rows take no less time, and
 * twice the rows at most twice the time. */
#ifndef HEARTH_DAEMON_POLICY_CURVE_H
#define HEARTH_DAEMON_POLICY_CURVE_H

#include <stdbool.h>
#include <stdint.h>

enum { CURVE_POINTS = 13 }; /* 1, 2, 4 .. 4096 rows */

struct curve {
    uint64_t ns[CURVE_POINTS]; /* [i] of 2^i rows, smoothed; 0: not known */
};

/* Was a pass of about `rows` rows, or more, measured? */
bool curve_known(const struct curve *curve, uint32_t rows);

/* A pass of `rows` rows, at least 1, took `ns`. */
void curve_measured(struct curve *curve, uint32_t rows, uint64_t ns);

/* What a pass of `rows` rows takes: between the sizes that are known a line, beyond the largest the
 * line through the last two, below the smallest its cost a row. 0 for no rows. */
uint64_t curve_ns(const struct curve *curve, uint32_t rows);

/* The most rows that take no more than `ns`, at most twice those of the largest size that is known:
 * beyond is a guess. 0: not even one, or nothing is known. */
uint32_t curve_rows(const struct curve *curve, uint64_t ns);

/* The least number of rows that costs no more than twice as much a row as one more row adds to the
 * largest pass that is known. */
uint32_t curve_worthwhile(const struct curve *curve);

/* Smooths a cost: 1/8 of each new value. */
static inline uint64_t curve_smooth(uint64_t old, uint64_t value)
{
    return old ? old - old / 8 + value / 8 : value;
}

#endif
