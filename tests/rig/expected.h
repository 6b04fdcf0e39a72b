/*
 * expected: what the tests of CPU passes compare with: a tiny model, a sequence, and its logits
 * with all rows computed in one pass. Also passes of rows of several sequences.
 */
#ifndef HEARTH_TESTS_RIG_EXPECTED_H
#define HEARTH_TESTS_RIG_EXPECTED_H

#include "tests/rig/cpu_help.h"

enum { EXPECTED_TOKENS = 300, EXPECTED_PAGES = 64, EXPECTED_SEQUENCES = 4 };

struct expected {
    struct help_model m;
    uint32_t tokens[EXPECTED_TOKENS], pages[EXPECTED_PAGES];
    float *logits; /* [n][n_vocab] */
    uint32_t n;
};

/* Computed with the instruction set `isa`; NULL: the best of this machine. */
void expected_open(struct expected *e, const struct tiny_model *shape, const char *isa, uint32_t n);
void expected_close(struct expected *e);

/* Asserts that logits [n][n_vocab] equal those bit for bit; a failure names `what`. */
void expected_same(const struct expected *e, const float *got, const char *what);

/* ---- passes ---------------------------------------------------------------------------------- */

void expected_random_tokens(uint64_t seed, const struct model *m, uint32_t *tokens, uint32_t n);

/* All pages in order (seed 0), or shuffled by the seed. */
void expected_page_ids(uint64_t seed, uint32_t pages[EXPECTED_PAGES]);

/* Rows of several sequences in one pass, filled by a test. */
struct expected_rows {
    struct row rows[256];
    struct row_result results[256];
    struct pass_sequence sequences[EXPECTED_SEQUENCES];
    uint32_t n;
};

/* Adds `count` rows of sequence s from `position` on. */
void expected_add(struct expected_rows *x, uint32_t s, const uint32_t *tokens, uint32_t position,
                  uint32_t count, uint32_t wants);

/* Runs them all. */
void expected_run(struct backend *b, enum pass_kind kind, struct expected_rows *x,
                  uint32_t n_sequences);

/* ---- types ------------------------------------------------------------------------------------
 */

enum { EXPECTED_TYPES = 7 };
extern const uint32_t expected_types[EXPECTED_TYPES];

/* Loop test i of 2 * EXPECTED_TYPES: the types with their own KV, then all with KV in q8_0. */
uint32_t expected_type(int i);
bool expected_q8_0(int i);

#endif
