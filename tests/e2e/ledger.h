/* ledger: which request gave which outputs under which circumstances.
 *
 * Rows are circumstances ("kernel avx2", "cache cold"); in each row every request has a count of
 * its answers and the set of different outputs it gave. It lies in memory that processes share:
 * clients add answers side by side, the process that started them names the rows and reads.
 */
#ifndef HEARTH_TESTS_E2E_LEDGER_H
#define HEARTH_TESTS_E2E_LEDGER_H

#include <stdatomic.h>
#include <stdint.h>

enum { LEDGER_REQUESTS = 64, LEDGER_ROWS = 40, LEDGER_DISTINCT = 4, LEDGER_NAME = 24 };

/* Outputs as hashes, never 0. Only four are kept apart. */
struct ledger_set {
    _Atomic uint64_t hash[LEDGER_DISTINCT];
};

struct ledger_row {
    char group[LEDGER_NAME], name[LEDGER_NAME];
    _Atomic uint32_t answers[LEDGER_REQUESTS];
    struct ledger_set outputs[LEDGER_REQUESTS]; /* tokens and reason */
    struct ledger_set logprobs[LEDGER_REQUESTS];
};

/* An answer: its hashes; `logprobs` 0 where it was not asked for them. */
struct ledger_answer {
    uint64_t output, logprobs;
};

struct ledger {
    struct ledger_answer alone[LEDGER_REQUESTS]; /* the expected ones, counted in every row */
    uint32_t n_rows;
    struct ledger_row rows[LEDGER_ROWS];
};

/* Zeroed memory shared with later children. */
struct ledger *ledger_open(void);

/* The row of that name, created if missing. Not while clients run. */
uint32_t ledger_row(struct ledger *ledger, const char *group, const char *name);

/* An answer to `request`, in each of rows [n]. From any process. */
void ledger_add(struct ledger *ledger, const uint32_t *rows, uint32_t n, uint32_t request,
                const struct ledger_answer *answer);

/* The largest number of different outputs, or sets of log-probabilities, of one request in a
 * row. */
uint32_t ledger_distinct(const struct ledger_row *row);
/* The number of requests of a row with more than one output. */
uint32_t ledger_differing(const struct ledger_row *row);
/* The number of answered requests of a row; the fewest answers that one of them got. */
uint32_t ledger_asked(const struct ledger_row *row);
uint32_t ledger_least(const struct ledger_row *row);
uint64_t ledger_answers(const struct ledger_row *row);

void ledger_print(const struct ledger *ledger);

#endif
