/* bench_speculation: the gain from drafting, the cost of determinism, and delays caused by
 * verification. Both sides of every ratio come from one daemon, in turns; the answers of both sides
 * must be equal.
 *
 *   bench_speculation BIN_FOLDER PYTHON_FILE MODEL...
 *
 * HEARTH_BENCH_SHADOW=FILE adds a row for that F16 model with its shadow as proposer,
 * HEARTH_BENCH_MTP=FILE two for one with a next-token layer.
 */
#include "ipc/counters.h"
#include "tests/bench/bench.h"
#include "tests/bench/served.h"
#include "tests/random.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    REPEATS = 7,
    ANSWER = 240,
    PROMPT_MAX = 400,
    EDITED = 640, /* tokens of the file that is rewritten */
    AGAIN = 60,   /* of its new version, before the model continues */
    TRAFFIC_SLOTS = 4,
    TRAFFIC_REQUESTS = 24,
    TRAFFIC_PAIRS = 25, /* short: the machine's other load changes by the second */
};

static struct hearth *h;
static const char *model;
static uint32_t n_vocab, context;
static uint32_t python[8192]; /* the Python file's tokens */
static uint32_t n_python;
static struct hearth_bias no_end; /* forbids the end token; value 0: the model has none */

static void open_daemon(const char *file, const char *threads, const char *shadow)
{
    struct hearth_info info = {.size = sizeof(info)};

    served_start(file, (const char *const[]){"--threads", threads, "--shadow", shadow, NULL});
    h = served_connect(TRAFFIC_SLOTS);
    model = served_name(file);
    if (hearth_info(h, &info) < 0)
        served_fail(hearth_error(h));
    n_vocab = info.n_vocab;
    context = info.context;
    no_end = (struct hearth_bias){.token = info.eos >= 0 ? (uint32_t)info.eos : 0,
                                  .value = info.eos >= 0 ? -10000 : 0};
}

static void close_daemon(void)
{
    hearth_close(h);
    served_stop();
}

static void read_python(const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "re");
    size_t bytes = file ? fread(text, 1, sizeof(text), file) : 0;

    if (file)
        fclose(file);
    int64_t n = hearth_tokenize(h, text, bytes, HEARTH_ADD_BOS, python, 8192);
    if (bytes == 0 || n < 0)
        served_fail("the Python file cannot be read");
    n_python = n < 8192 ? (uint32_t)n : 8192;
}

static struct hearth_request new_request(const uint32_t *tokens, uint32_t n)
{
    struct hearth_request r;

    hearth_request_init(&r, sizeof(r));
    r.tokens = tokens;
    r.n_tokens = n;
    r.max_tokens = ANSWER;
    r.proposer = "none";
    r.bias = &no_end;
    r.n_bias = no_end.value != 0;
    return r;
}

/* ---- drafting: tokens a second of the same request with and without ------------------------- */

/* One request with and without the proposer in turns; r gets the ratio with / without. Returns the
 * last result with it. */
static struct hearth_result compare(const struct hearth_request *base, const char *proposer,
                                    struct bench_ratio *r)
{
    double with[REPEATS], without[REPEATS];
    struct hearth_request drafted = *base;
    struct hearth_result last = {0};
    static uint32_t ids[ANSWER];

    drafted.proposer = proposer;
    served_ask(h, 0, base); /* from here on the prompt is cached for both */
    served_ask(h, 0, &drafted);
    for (int i = 0; i < REPEATS; i++) {
        struct hearth_result plain = served_ask(h, 0, base);
        without[i] = served_decode_rate(&plain);
        memcpy(ids, plain.ids, plain.n_ids * sizeof(*ids));
        uint32_t n = plain.n_ids;
        last = served_ask(h, 0, &drafted);
        with[i] = served_decode_rate(&last);
        if (last.n_ids != n || memcmp(last.ids, ids, n * sizeof(*ids)) != 0)
            served_fail("two proposers gave two answers");
    }
    bench_ratio_of(r, with, without, REPEATS);
    r->bench = "speculation";
    r->model = model;
    return last;
}

static void print_compared(const struct bench_ratio *r, const struct hearth_result *last,
                           const char *about)
{
    char note[256];
    struct bench_ratio row = *r;

    snprintf(note, sizeof(note), "%s; drafts %u of %u held, %u tokens in %u passes", about,
             last->accepted_drafts, last->drafted, last->output_tokens, last->passes);
    row.note = note;
    bench_print_ratio(&row);
}

/* The model continues a real file of 200 lines: it repeats the file's names and its own. */
static void bench_python(const char *proposer, const char *what)
{
    struct bench_ratio r = {.what = what};
    struct hearth_request request =
        new_request(python, n_python < PROMPT_MAX ? n_python : PROMPT_MAX);
    struct hearth_result last = compare(&request, proposer, &r);

    print_compared(&r, &last, "the model's own greedy text after real Python");
}

/* An edit: a file of 200 lines, or as much as fits the context, and the beginning of its new
 * version, which the model continues. */
static void bench_edit(const char *proposer, const char *what)
{
    static uint32_t prompt[EDITED + AGAIN];
    struct bench_ratio r = {.what = what, .target = 2};
    uint32_t n = context - ANSWER - AGAIN < EDITED ? context - ANSWER - AGAIN : EDITED;

    n = n < n_python ? n : n_python;
    memcpy(prompt, python, n * sizeof(*prompt));
    memcpy(prompt + n, python, AGAIN * sizeof(*prompt));
    struct hearth_request request = new_request(prompt, n + AGAIN);
    struct hearth_result last = compare(&request, proposer, &r);
    print_compared(&r, &last, "a Python file, then its new version");
}

/* The best case: one token over and over. */
static void bench_constant(void)
{
    struct bench_ratio r = {.what = "lookup_best_case", .target = 2};
    struct hearth_bias bias = {.token = n_vocab / 2, .value = 1000};
    struct hearth_request request = new_request(python, 100);

    request.bias = &bias;
    request.n_bias = 1;
    struct hearth_result last = compare(&request, "lookup", &r);
    print_compared(&r, &last, "synthetic: every draft holds");
}

/* Sampled at so high a temperature that hardly any n-gram repeats. */
static void bench_random(const char *proposer, const char *what)
{
    struct bench_ratio r = {.what = what, .target = strcmp(proposer, "auto") ? 0 : 0.98};
    uint32_t prompt[100], state = 7;

    for (uint32_t i = 0; i < 100; i++)
        prompt[i] = 3 + next_random(&state) % (n_vocab - 3);
    struct hearth_request request = new_request(prompt, 100);
    request.temperature = 3;
    struct hearth_result last = compare(&request, proposer, &r);
    print_compared(&r, &last, "text that never repeats");
}

/* Yesterday's completion as a guess: all right, or wrong in every `odds`-th place. */
static void bench_guess(uint32_t odds)
{
    struct bench_ratio r = {.what = odds ? "client_guess_1_of_16_wrong" : "client_guess_right"};
    struct hearth_request request = new_request(python, 100);
    static uint32_t guess[ANSWER];

    struct hearth_result right = served_ask(h, 0, &request);
    memcpy(guess, right.ids, right.n_ids * sizeof(*guess));
    for (uint32_t i = odds; odds && i < right.n_ids; i += odds)
        guess[i] = (guess[i] + 1) % n_vocab;
    request.guess = guess;
    request.n_guess = right.n_ids;
    struct hearth_result last = compare(&request, "client", &r);
    print_compared(&r, &last, "the guess that came with the request");
    if (odds)
        return;
    /* The prompt's last row samples the first token; every later pass verifies a window. */
    double windows = last.passes - 1, drafts = last.drafted / windows;
    struct bench_ratio n = {
        .bench = "speculation",
        .what = "tokens_per_verification_over_drafts",
        .model = model,
        .x = (last.output_tokens - 1) / windows - drafts,
        .target = 1,
        .note = "accepted tokens minus drafts of a window in which all hold: n + 1 - n",
    };
    bench_print_ratio(&n);
}

/* ---- traffic: all answers deterministic against none verified -------------------------------- */

/* Both sides ask for the same texts, and no prompt is cached: two tokens unique to the round come
 * first. */
static uint32_t traffic_prompt(uint32_t text, uint32_t round, uint32_t *prompt)
{
    uint32_t state = text * 2654435761u + 11, n = 20 + (state >> 8) % 180;
    uint32_t from = (state >> 4) % (n_python > 200 ? n_python - 200 : 1);

    prompt[0] = 3 + text % (n_vocab - 3);
    prompt[1] = 3 + round % (n_vocab - 3);
    for (uint32_t i = 2; i < n; i++)
        prompt[i] = python[(from + i) % n_python];
    return n;
}

/* Even rounds ask for deterministic answers, odd ones for the same answers unverified. */
static void traffic_submit(uint32_t slot, uint32_t number, uint32_t round)
{
    static uint32_t prompt[256];
    uint32_t text = round / 2 * TRAFFIC_REQUESTS + number;
    struct hearth_request r = new_request(prompt, traffic_prompt(text, round, prompt));

    r.max_tokens = 40;
    r.temperature = 0.8f;
    r.seed = text;
    r.proposer = round % 2 == 0 ? "auto" : "none";
    r.deterministic = round % 2 == 0;
    if (hearth_submit(h, slot, &r) < 0)
        served_fail(hearth_error(h));
}

/* Keeps four slots busy. */
static double run_traffic(uint32_t round, struct bench_samples *first)
{
    uint64_t asked[TRAFFIC_SLOTS] = {0}, start = bench_ticks(), tokens = 0;
    uint32_t sent = 0, ended = 0;
    const struct hearth_event *event;

    for (; sent < TRAFFIC_SLOTS; sent++) {
        asked[sent] = bench_ticks();
        traffic_submit(sent, sent, round);
    }
    while (ended < TRAFFIC_REQUESTS) {
        if (hearth_next(h, HEARTH_ANY_SLOT, &event, 60000) <= 0)
            served_fail(hearth_error(h));
        uint32_t slot = event->slot;
        if (event->n_tokens && asked[slot]) {
            bench_add(first, bench_ticks() - asked[slot]);
            asked[slot] = 0;
        }
        if (event->kind != HEARTH_DONE)
            continue;
        tokens += event->result->output_tokens;
        ended++;
        if (sent < TRAFFIC_REQUESTS) {
            asked[slot] = bench_ticks();
            traffic_submit(slot, sent, round);
            sent++;
        }
    }
    return (double)tokens * 1e9 / ((double)(bench_ticks() - start) * bench_tick_ns());
}

static void bench_determinism(void)
{
    double tok_s[2][TRAFFIC_PAIRS]; /* deterministic, unverified */
    struct bench_samples first[2];
    struct bench_ratio r = {
        .bench = "speculation",
        .what = "determinism_throughput",
        .model = model,
        .target = 0.98,
        .note = "4 busy slots, temperature 0.8: all deterministic with auto, over none unchecked",
    };

    for (int i = 0; i < 2; i++)
        if (bench_samples_open(&first[i], TRAFFIC_PAIRS * TRAFFIC_REQUESTS) < 0)
            served_fail("no memory");
    for (uint32_t i = 0; i < 2 * TRAFFIC_PAIRS; i++) {
        uint32_t side = (i + i / 2) % 2; /* the order of the sides alternates */
        tok_s[side][i / 2] = run_traffic(i / 2 * 2 + side, &first[side]);
    }
    bench_ratio_of(&r, tok_s[0], tok_s[1], TRAFFIC_PAIRS);
    bench_print_ratio(&r);
    double p99[2] = {bench_percentile_us(&first[0], 99), bench_percentile_us(&first[1], 99)};
    r = (struct bench_ratio){
        .bench = "speculation",
        .what = "determinism_p99_first_token",
        .model = model,
        .x = p99[0] / p99[1],
        .target = 1.1,
        .at_most = 1,
        .note = "of the same requests",
    };
    bench_print_ratio(&r);
    bench_samples_close(&first[0]);
    bench_samples_close(&first[1]);
}

/* ---- delays by verification ------------------------------------------------------------------ */

/* Slot 1 decodes without drafts while slot 0 verifies windows all the time. Counts the daemon's
 * passes from slot 1's request to its end in which it had no row; two of them are its start and
 * end. */
static void bench_standing(void)
{
    struct bench_ratio r = {
        .bench = "speculation",
        .what = "passes_others_stand_still",
        .model = model,
        .at_most = 1,
        .target = 2,
        .note =
            "passes without a row of a slot with 60 tokens to decode, beside one that verifies; "
            "2: before its first row and after its last",
    };
    struct hearth_bias bias = {.token = n_vocab / 2, .value = 1000};
    struct hearth_request windows = new_request(python, 100), plain = windows;
    double without[REPEATS], one[REPEATS];
    const struct ctl *ctl = served_ctl();

    windows.bias = &bias;
    windows.n_bias = 1;
    windows.proposer = "lookup";
    windows.max_tokens = n_vocab; /* up to the end of the context */
    plain.max_tokens = 60;
    for (int i = 0; i < REPEATS; i++) {
        if (hearth_submit(h, 0, &windows) < 0)
            served_fail(hearth_error(h));
        uint64_t before = counters_get(ctl, COUNTER_PASSES);
        struct hearth_result result = served_ask(h, 1, &plain);
        without[i] = (double)(counters_get(ctl, COUNTER_PASSES) - before) - result.passes;
        one[i] = 1;
        hearth_cancel(h, 0);
        served_answer(h, 0);
    }
    bench_ratio_of(&r, without, one, REPEATS);
    bench_print_ratio(&r);
}

/* ---- models that draft by themselves ---------------------------------------------------------- */

/* A model whose own passes draft, and what is promised of it. */
struct drafts {
    const char *variable; /* of the environment: names the file */
    const char *proposer, *shadow, *about;
    double target;
};

static const struct drafts by_shadow = {"HEARTH_BENCH_SHADOW", "shadow", "yes",
                                        "a low-bit copy of the model drafts", 1.8},
                           by_mtp = {"HEARTH_BENCH_MTP", "mtp", "no",
                                     "the model's next-token layer drafts", 1.4},
                           by_mtp_auto = {"HEARTH_BENCH_MTP", "auto", "no",
                                          "the model's next-token layer drafts where it pays", 1.4};

static void bench_drafts(const struct drafts *d)
{
    const char *file = getenv(d->variable);
    if (!file) {
        printf("{\"bench\":\"speculation\",\"what\":\"%s\",\"skipped\":\"%s names no model\"}\n",
               d->proposer, d->variable);
        return;
    }
    open_daemon(file, "2", d->shadow);
    struct bench_ratio r = {.what = d->proposer, .target = d->target};
    uint32_t prompt[64];
    for (uint32_t i = 0; i < 64; i++)
        prompt[i] = 3 + i * 7919u % (n_vocab - 3);
    struct hearth_request request = new_request(prompt, 64);
    request.max_tokens = 64;
    request.proposer = d->proposer;
    if (hearth_submit(h, 0, &request) < 0) {
        printf("{\"bench\":\"speculation\",\"what\":\"%s\",\"skipped\":\"%s\"}\n", d->proposer,
               hearth_error(h));
    } else {
        served_answer(h, 0);
        request.proposer = "none";
        struct hearth_result last = compare(&request, d->proposer, &r);
        print_compared(&r, &last, d->about);
    }
    close_daemon();
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_speculation BIN_FOLDER PYTHON_FILE [MODEL...]\n");
        return 64;
    }
    served_init(argv[1]);
    for (int i = 3; i < argc; i++) {
        open_daemon(argv[i], "0", "no");
        read_python(argv[2]);
        bench_edit("lookup", "lookup_on_an_edit");
        bench_edit("auto", "auto_on_an_edit");
        bench_python("lookup", "lookup_on_python");
        bench_python("auto", "auto_on_python");
        bench_constant();
        bench_random("auto", "auto_never_repeats");
        bench_random("lookup", "lookup_never_repeats");
        bench_guess(0);
        bench_guess(16);
        bench_determinism();
        bench_standing();
        close_daemon();
    }
    bench_drafts(&by_shadow);
    bench_drafts(&by_mtp);
    bench_drafts(&by_mtp_auto);
    served_fini();
    return 0;
}
