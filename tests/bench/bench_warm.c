/* bench_warm: reuse of computed prefixes and scheduling: a prompt that another process has just
 * sent, a keystroke on a long context, and an editor beside an agent's long prefill. Both sides of
 * every ratio come from one daemon, in turns.
 *
 *   bench_warm BIN_FOLDER MODEL...
 *
 * The context is set to CONTEXT even for models trained for less: their output is meaningless then,
 * its cost is not.
 */
#include "ipc/counters.h"
#include "tests/bench/bench.h"
#include "tests/bench/served.h"
#include "tests/random.h"

#include <stdlib.h>
#include <string.h>

enum {
    CONTEXT = 8192,
    PAGE = 32,
    REPEATS = 7,
    SHARED = 1000, /* tokens of the prompt that two processes send */
    WARM = 8000,   /* cached tokens before a keystroke */
    TYPED = 32,    /* its new tokens */
    OUTPUT = 16,   /* tokens back */
    EDITED = 1000, /* warm context of the editor beside an agent */
    AGENT = 2000,  /* tokens of each of the agent's prompts */
    AGENT_ALL = 30000,
    KEYSTROKES = 2000, /* most samples of the editor */
};

static const char *model;
static uint32_t n_vocab;

/* Tokens whose beginning is unique to `seed`. */
static void fill(uint32_t *tokens, uint32_t n, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 1;

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = 3 + next_random(&state) % (n_vocab - 3);
}

static struct hearth_request new_request(const uint32_t *tokens, uint32_t n, uint32_t max_tokens)
{
    struct hearth_request r;

    hearth_request_init(&r, sizeof(r));
    r.tokens = tokens;
    r.n_tokens = n;
    r.max_tokens = max_tokens;
    return r;
}

static double ask_timed(struct hearth *h, const struct hearth_request *r, struct hearth_result *ret)
{
    uint64_t start = bench_ticks();

    *ret = served_ask(h, 0, r);
    return (double)(bench_ticks() - start) * bench_tick_ns() * 1e-6;
}

/* A prompt on one connection, then the same on a new connection. */
static void bench_prefix(void)
{
    double cold[REPEATS], warm[REPEATS], rows[REPEATS], one[REPEATS];
    uint32_t tokens[SHARED];
    struct hearth_result result;
    struct bench_ratio r = {
        .bench = "warm",
        .what = "prefix_rows_of_second_process",
        .model = model,
        .target = PAGE,
        .at_most = 1,
        .note = "of a prompt of 1000 tokens that another client has asked",
    };

    for (int i = 0; i < REPEATS; i++) {
        fill(tokens, SHARED, 1000 + (uint32_t)i);
        struct hearth_request request = new_request(tokens, SHARED, 1);
        struct hearth *first = served_connect(1), *second = served_connect(1);
        cold[i] = ask_timed(first, &request, &result);
        warm[i] = ask_timed(second, &request, &result);
        rows[i] = result.prompt_tokens - result.cached_tokens;
        one[i] = 1;
        hearth_close(first);
        hearth_close(second);
    }
    bench_ratio_of(&r, rows, one, REPEATS);
    bench_print_ratio(&r);
    r = (struct bench_ratio){.bench = "warm",
                             .what = "prefix_time_of_second_process",
                             .model = model,
                             .note = "time to its first token over the first one's"};
    bench_ratio_of(&r, warm, cold, REPEATS);
    bench_print_ratio(&r);
}

/* Rows that the daemon computes for one keystroke, by its own count. */
static void bench_keystroke(void)
{
    static uint32_t tokens[WARM + TYPED];
    double rows[REPEATS], one[REPEATS], ms[REPEATS], cold_ms;
    struct hearth_result result;
    struct hearth *h = served_connect(1);
    const struct ctl *ctl = served_ctl();
    char note[160];
    struct bench_ratio r = {
        .bench = "warm",
        .what = "keystroke_rows",
        .model = model,
        .target = TYPED + OUTPUT + PAGE,
        .at_most = 1,
        .note = note,
    };

    fill(tokens, WARM, 1);
    struct hearth_request request = new_request(tokens, WARM, OUTPUT);
    cold_ms = ask_timed(h, &request, &result);
    for (int i = 0; i < REPEATS; i++) {
        fill(tokens + WARM, TYPED, 500 + (uint32_t)i);
        request = new_request(tokens, WARM + TYPED, OUTPUT);
        request.proposer = "none";
        uint64_t before = counters_get(ctl, COUNTER_ROWS);
        ms[i] = ask_timed(h, &request, &result);
        rows[i] = (double)(counters_get(ctl, COUNTER_ROWS) - before);
        one[i] = 1;
    }
    bench_ratio_of(&r, rows, one, REPEATS);
    snprintf(note, sizeof(note),
             "32 tokens typed after 8000 cached ones, 16 back: %.1f ms; cold %.0f ms",
             served_median(ms, REPEATS), cold_ms);
    bench_print_ratio(&r);
    hearth_close(h);
}

/* ---- an editor beside an agent --------------------------------------------------------------- */

struct editor {
    struct hearth *h;
    uint32_t tokens[EDITED + TYPED];
    uint32_t number;
    struct bench_samples first, whole; /* beside: to the first token, to the last */
    struct bench_samples first_alone, whole_alone;
};

static void editor_type(struct editor *e, struct bench_samples *first, struct bench_samples *whole)
{
    const struct hearth_event *event;
    uint64_t start = bench_ticks(), seen = 0;

    fill(e->tokens + EDITED, TYPED, 70000 + e->number++);
    struct hearth_request request = new_request(e->tokens, EDITED + TYPED, OUTPUT);
    if (hearth_submit(e->h, 0, &request) < 0)
        served_fail(hearth_error(e->h));
    while (hearth_next(e->h, 0, &event, 60000) > 0) {
        if (event->n_tokens && !seen)
            bench_add(first, (seen = bench_ticks()) - start);
        if (event->kind == HEARTH_DONE)
            break;
    }
    bench_add(whole, bench_ticks() - start);
}

static void agent_ask(struct hearth *agent, uint32_t number, enum hearth_priority priority)
{
    static uint32_t tokens[AGENT];

    fill(tokens, AGENT, 90000 + number);
    struct hearth_request request = new_request(tokens, AGENT, 1);
    request.priority = priority;
    if (hearth_submit(agent, 0, &request) < 0)
        served_fail(hearth_error(agent));
}

static void print_editor(struct editor *e, const char *what, int whole, const char *about)
{
    struct bench_samples *of[] = {whole ? &e->whole : &e->first,
                                  whole ? &e->whole_alone : &e->first_alone};
    double beside = bench_percentile_us(of[0], 95), alone = bench_percentile_us(of[1], 95);
    char note[256];
    struct bench_ratio r = {
        .bench = "warm",
        .what = what,
        .model = model,
        .x = beside / alone,
        .target = 2,
        .at_most = 1,
        .note = note,
    };

    snprintf(note, sizeof(note), "p95 %.1f ms over %.1f ms alone, %zu and %zu keystrokes; %s",
             beside * 1e-3, alone * 1e-3, e->whole.n, e->whole_alone.n, about);
    bench_print_ratio(&r);
}

/* The editor types alone, then while the agent prefills a prompt, and so on in turns. */
static void bench_editor(enum hearth_priority priority)
{
    static struct editor e;
    struct hearth *agent = served_connect(1);
    const struct hearth_event *event;
    struct bench_samples *const samples[] = {&e.first, &e.whole, &e.first_alone, &e.whole_alone};
    int batch = priority == HEARTH_BATCH;
    static uint32_t prompts;

    e = (struct editor){.h = served_connect(1)};
    for (int i = 0; i < 4; i++)
        if (bench_samples_open(samples[i], KEYSTROKES) < 0)
            served_fail("no memory");
    fill(e.tokens, EDITED, 3);
    editor_type(&e, &e.first_alone, &e.whole_alone);
    e.first_alone.n = e.whole_alone.n = 0; /* the first one was cold */
    for (uint32_t prefilled = 0; prefilled < AGENT_ALL; prefilled += AGENT) {
        size_t before = e.whole.n;
        agent_ask(agent, prompts++, priority);
        for (int done = 0; !done;) {
            editor_type(&e, &e.first, &e.whole);
            while (!done && hearth_next(agent, 0, &event, 0) > 0)
                done = event->kind == HEARTH_DONE;
        }
        for (; before < e.whole.n; before++)
            editor_type(&e, &e.first_alone, &e.whole_alone);
    }
    print_editor(&e, batch ? "editor_beside_batch_prefill" : "editor_beside_prefill", 1,
                 "16 tokens; the agent: 30k tokens in prompts of 2000");
    print_editor(&e, batch ? "editor_first_token_batch" : "editor_first_token", 0, "first token");
    for (int i = 0; i < 4; i++)
        bench_samples_close(samples[i]);
    hearth_close(e.h);
    hearth_close(agent);
}

int main(int argc, char **argv)
{
    char context[16];

    if (argc < 3) {
        fprintf(stderr, "usage: bench_warm BIN_FOLDER MODEL...\n");
        return 64;
    }
    served_init(argv[1]);
    snprintf(context, sizeof(context), "%d", CONTEXT);
    for (int i = 2; i < argc; i++) {
        struct hearth_info info = {.size = sizeof(info)};
        served_start(argv[i], (const char *const[]){"--context", context, "--slots", "4", NULL});
        struct hearth *h = served_connect(1);
        if (hearth_info(h, &info) < 0)
            served_fail(hearth_error(h));
        n_vocab = info.n_vocab;
        model = served_name(argv[i]);
        hearth_close(h);
        bench_prefix();
        bench_keystroke();
        bench_editor(HEARTH_BATCH);
        bench_editor(HEARTH_INTERACTIVE);
        served_stop();
    }
    served_fini();
    return 0;
}
