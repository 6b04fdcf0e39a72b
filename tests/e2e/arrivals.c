/* arrivals: see arrivals.h. */
#include "tests/e2e/arrivals.h"

#include "tests/e2e/harness.h"
#include "tests/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TRACE_MAX = 16384, SEEDED = 4096 };

struct trace_row {
    double at_s;
    uint32_t prompt, output;
};

static struct trace_row records[TRACE_MAX];
static uint32_t n_records;
static uint32_t longest;

static const char *trace_path(void)
{
    const char *path = harness_data("traces/AzureLLMInferenceTrace_code.csv");

    return path && access(path, R_OK) == 0 ? path : NULL;
}

const char *arrivals_source(void)
{
    return trace_path() ? "the Azure code trace, compressed"
                        : "a seeded process of bursts (HEARTH_TESTDATA has no trace)";
}

/* A header, then lines such as "2023-11-16 18:17:03.9799600,4808,10". */
static void read_trace(const char *path)
{
    FILE *file = fopen(path, "re");
    char line[128];
    int day, hour, minute;
    double second;
    struct trace_row r;

    while (file && n_records < TRACE_MAX && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%*d-%*d-%d %d:%d:%lf,%u,%u", &day, &hour, &minute, &second, &r.prompt,
                   &r.output) != 6)
            continue;
        r.at_s = ((day * 24 + hour) * 60 + minute) * 60 + second;
        records[n_records++] = r;
    }
    if (file)
        fclose(file);
}

/* Bursts of some requests at once, and pauses between them. */
static void make_seeded(void)
{
    uint32_t state = 20231116, burst = 0;
    double at_s = 0;

    for (; n_records < SEEDED; n_records++) {
        uint32_t dice = next_random(&state);
        if (burst == 0)
            burst = 1 + dice % 12;
        at_s += --burst ? 0.01 : 0.2 + dice % 1000 / 500.0;
        records[n_records] = (struct trace_row){
            .at_s = at_s,
            .prompt = 1 + dice % 97 * (dice % 77),
            .output = 1 + dice % 40,
        };
    }
}

static void load(void)
{
    const char *path = trace_path();

    if (n_records)
        return;
    if (path)
        read_trace(path);
    if (n_records == 0)
        make_seeded();
    for (uint32_t i = 0; i < n_records; i++)
        longest = records[i].prompt > longest ? records[i].prompt : longest;
}

void arrivals_fill(struct arrival *arrivals, uint32_t n, uint64_t span_ns, uint32_t prompt_max,
                   uint32_t seed)
{
    load();
    uint32_t from = (uint32_t)((uint64_t)seed * 2654435761u % (n_records - n));
    double first = records[from].at_s, stretch = records[from + n - 1].at_s - first;

    for (uint32_t i = 0; i < n; i++) {
        const struct trace_row *r = &records[from + i];
        double share = stretch > 0 ? (r->at_s - first) / stretch : 0;
        arrivals[i] = (struct arrival){
            .at_ns = (uint64_t)(share * (double)span_ns),
            .prompt = 1 + (uint32_t)((uint64_t)r->prompt * (prompt_max - 1) / longest),
            .output = r->output ? r->output : 1,
        };
    }
}
