/* ledger: see ledger.h. */
#include "tests/e2e/ledger.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct ledger *ledger_open(void)
{
    struct ledger *ledger =
        mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (ledger == MAP_FAILED)
        abort(); /* also called outside of tests, where Check cannot fail */
    return ledger;
}

uint32_t ledger_row(struct ledger *ledger, const char *group, const char *name)
{
    for (uint32_t i = 0; i < ledger->n_rows; i++)
        if (!strcmp(ledger->rows[i].group, group) && !strcmp(ledger->rows[i].name, name))
            return i;
    ck_assert_uint_lt(ledger->n_rows, LEDGER_ROWS);
    struct ledger_row *row = &ledger->rows[ledger->n_rows];
    snprintf(row->group, sizeof(row->group), "%s", group);
    snprintf(row->name, sizeof(row->name), "%s", name);
    return ledger->n_rows++;
}

static void set_add(struct ledger_set *set, uint64_t hash)
{
    for (uint32_t i = 0; i < LEDGER_DISTINCT; i++) {
        uint64_t seen = 0;
        if (atomic_compare_exchange_strong(&set->hash[i], &seen, hash) || seen == hash)
            return;
    }
}

static uint32_t set_size(const struct ledger_set *set)
{
    uint32_t n = 0;

    while (n < LEDGER_DISTINCT && atomic_load(&set->hash[n]))
        n++;
    return n;
}

void ledger_add(struct ledger *ledger, const uint32_t *rows, uint32_t n, uint32_t request,
                const struct ledger_answer *answer)
{
    const struct ledger_answer *alone = &ledger->alone[request];

    for (uint32_t i = 0; i < n; i++) {
        struct ledger_row *row = &ledger->rows[rows[i]];
        atomic_fetch_add(&row->answers[request], 1);
        set_add(&row->outputs[request], alone->output);
        set_add(&row->outputs[request], answer->output);
        if (!answer->logprobs)
            continue;
        set_add(&row->logprobs[request], alone->logprobs);
        set_add(&row->logprobs[request], answer->logprobs);
    }
}

static uint32_t most(const struct ledger_set *sets)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < LEDGER_REQUESTS; i++)
        n = set_size(&sets[i]) > n ? set_size(&sets[i]) : n;
    return n;
}

uint32_t ledger_distinct(const struct ledger_row *row)
{
    uint32_t outputs = most(row->outputs), logprobs = most(row->logprobs);

    return outputs > logprobs ? outputs : logprobs;
}

uint32_t ledger_differing(const struct ledger_row *row)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < LEDGER_REQUESTS; i++)
        n += set_size(&row->outputs[i]) > 1;
    return n;
}

uint32_t ledger_least(const struct ledger_row *row)
{
    uint32_t n = UINT32_MAX;

    for (uint32_t i = 0; i < LEDGER_REQUESTS; i++) {
        uint32_t answers = atomic_load(&row->answers[i]);
        n = answers && answers < n ? answers : n;
    }
    return n == UINT32_MAX ? 0 : n;
}

uint32_t ledger_asked(const struct ledger_row *row)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < LEDGER_REQUESTS; i++)
        n += atomic_load(&row->answers[i]) > 0;
    return n;
}

uint64_t ledger_answers(const struct ledger_row *row)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < LEDGER_REQUESTS; i++)
        n += atomic_load(&row->answers[i]);
    return n;
}

static uint32_t requests_of(const struct ledger_row *row)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < LEDGER_REQUESTS; i++)
        n += atomic_load(&row->answers[i]) > 0;
    return n;
}

/* The fewest answers among requests that have any: half of them are greedy, half are not. */
static uint32_t least_of_answered(const struct ledger_row *row)
{
    uint32_t n = UINT32_MAX;

    for (uint32_t i = 0; i < LEDGER_REQUESTS; i++) {
        uint32_t answers = atomic_load(&row->answers[i]);
        n = answers && answers < n ? answers : n;
    }
    return n;
}

static void print_row(const struct ledger_row *row, const char *group)
{
    if (ledger_answers(row) > 0)
        printf("%-10s %-24s %9u %9llu %10u %9u %9u\n", group, row->name, requests_of(row),
               (unsigned long long)ledger_answers(row), least_of_answered(row), most(row->outputs),
               most(row->logprobs));
}

void ledger_print(const struct ledger *ledger)
{
    const struct ledger_row *rows = ledger->rows;

    printf("%-35s %9s %9s %10s %9s %9s\n", "by", "requests", "answers", "runs each", "distinct",
           "distinct");
    printf("%-35s %9s %9s %10s %9s %9s\n", "", "", "", "at least", "outputs", "logprobs");
    for (uint32_t i = 0; i < ledger->n_rows; i++) {
        uint32_t first = 0;
        while (strcmp(rows[first].group, rows[i].group) != 0)
            first++;
        if (first < i)
            continue; /* printed below its group's first */
        print_row(&rows[i], rows[i].group);
        for (uint32_t k = i + 1; k < ledger->n_rows; k++)
            if (!strcmp(rows[k].group, rows[i].group))
                print_row(&rows[k], "");
    }
}
