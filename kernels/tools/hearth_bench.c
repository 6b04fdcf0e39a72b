/* hearth_bench.c: measures how fast a model runs here, in process, next to how fast this machine
 * reads memory, which limits decoding. Medians of several runs, with reads measured in between. */
#include "kernels/device.h"
#include "kernels/gguf/gguf.h"
#include "kernels/model/model.h"
#include "kernels/tools/bench_run.h"
#include "kernels/tools/read_rate.h"
#include "kernels/tools/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

enum { MAX_RUNS = 99, MAX_BATCHES = 4 /* 1, 4, 16, 64 */ };
#define SHORTEST_SECONDS 1.0 /* if runs are quick, repeat until this much time has passed */

static struct bench_options {
    struct tool_common common;
    const char *model, *isa, *device, *kv_type, *numerics;
    uint64_t prompt, tokens, slots, threads, rows, runs, gpu_bytes;
    int json, batches, windows, drafts;
} options;

static const struct option_row table[] = {
#define O(...) OPTION(struct bench_options, __VA_ARGS__)
    O(model, "model", 0, OPTION_TEXT, "FILE", NULL, 0, 0, "the GGUF model (required)"),
    O(prompt, "prompt", 'p', OPTION_U64, "N", "128", 1, 1 << 20, "tokens of each slot's prompt"),
    O(tokens, "tokens", 'n', OPTION_U64, "N", "64", 1, 1 << 20, "tokens decoded after it"),
    O(slots, "slots", 'b', OPTION_U64, "N", "1", 1, BENCH_MAX_SLOTS, "slots decoding together"),
    O(threads, "threads", 't', OPTION_U64, "N", NULL, 0, 256, "compute threads; 0: one per core"),
    O(rows, "rows", 0, OPTION_U64, "N", "512", 1, 4096, "max rows of a pass over the prompt"),
    O(runs, "runs", 'r', OPTION_U64, "N", "5", 1, MAX_RUNS, "report the median of N runs"),
    O(isa, "isa", 0, OPTION_TEXT, "ISA", NULL, 0, 0, "ref, avx2, avxvnni or avx512 (the best)"),
    O(device, "device", 0, OPTION_TEXT, "DEVICE", "cpu", 0, 0, "auto, cpu or cuda"),
    O(kv_type, "kv-type", 0, OPTION_TEXT, "TYPE", "f16", 0, 0, "f16 (of F32 models: f32) or q8_0"),
    O(numerics, "numerics", 0, OPTION_TEXT, "KIND", "portable", 0, 0,
      "portable, or native: on a GPU"),
    O(gpu_bytes, "gpu-bytes", 0, OPTION_U64, "N", NULL, 0, 1ull << 46,
      "memory to take of a GPU; 0: what is free"),
    O(batches, "batches", 0, OPTION_FLAG, NULL, NULL, 0, 0,
      "also decode with 1, 4, 16 .. of the slots"),
    O(windows, "windows", 0, OPTION_FLAG, NULL, NULL, 0, 0,
      "cost of 2 to 16 rows (GPU: 64), one row = 1"),
    O(drafts, "drafts", 0, OPTION_FLAG, NULL, NULL, 0, 0, "run it as a draft model: fast passes"),
    O(json, "json", 0, OPTION_FLAG, NULL, NULL, 0, 0, "one JSON object a line"),
    TOOL_COMMON_ROWS(struct bench_options)
#undef O
};

static const struct tool tool = {
    "hearth-bench",
    "usage: hearth-bench --model FILE [-p N] [-n N] [-b SLOTS] [-t THREADS] [--json]\n"
    "Runs a model in process and says how fast: reading a prompt (prefill) and\n"
    "decoding, each beside the best plain read of as many bytes by as many threads.\n",
    table, sizeof(table) / sizeof(table[0]), &options};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, uint32_t n)
{
    qsort(x, n, sizeof(*x), ascending);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* ---- what is printed ------------------------------------------------------------------------- */

struct bench {
    struct gguf *gguf;
    struct model *model;
    struct bench_run *run;
    struct device device;
    struct read_rate *rate; /* for the CPU */
    struct backend_info info;
    /* from the open file to ready; one pass over the file in the page cache */
    double load_s, read_s;
};

/* A rate, its share of the best read, measured right before it, and of the reads in turns with its
 * steps (0: there were none): the median over the runs. */
struct rate {
    double tok_s, read_gb_s, share, turns_share;
    uint32_t runs;
};

/* Escapes any bytes of a file name for a JSON string. */
static void print_text(const char *text)
{
    for (; *text; text++)
        putchar(*text < 0x20 || *text > 0x7e || strchr("\"\\", *text) ? '?' : *text);
}

/* Prints the file's name without directories. */
static void print_name(const char *path)
{
    print_text(strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
}

/* Prints the common start of every JSON line, for this number of slots. */
static void print_head(const struct bench *b, const char *what, uint32_t slots)
{
    printf("{\"bench\":\"%s\",\"what\":\"%s\",\"model\":\"", b->info.name, what);
    print_name(options.model);
    printf("\",\"type\":\"%s\",\"isa\":\"%s\",\"numerics\":\"%s\",\"threads\":%u,\"slots\":%u,"
           "\"prompt\":%llu,\"tokens\":%llu",
           model_type_name(b->model), b->info.isa, b->info.numerics, b->info.threads, slots,
           (unsigned long long)options.prompt, (unsigned long long)options.tokens);
}

static void print_load(const struct bench *b)
{
    double bytes = 0;
    for (const struct gguf *part = b->gguf; part; part = part->next)
        bytes += (double)gguf_file_bytes(part);
    if (!options.json) {
        printf("load     %8.1f ms; one pass over the file's %.1f MB takes %.1f ms\n",
               b->load_s * 1e3, bytes / 1e6, b->read_s * 1e3);
        if (b->info.note)
            printf("note     %s\n", b->info.note);
        return;
    }
    print_head(b, "load", (uint32_t)options.slots);
    printf(
        ",\"load_ms\":%.2f,\"read_ms\":%.2f,\"file_bytes\":%.0f,\"weight_bytes\":%llu,\"note\":\"",
        b->load_s * 1e3, b->read_s * 1e3, bytes, (unsigned long long)b->info.weight_bytes);
    print_text(b->info.note ? b->info.note : "");
    printf("\"}\n");
}

/* bytes: what one token must read: its share of the weights, which a pass reads once, and its own
 * KV. first_ms: 0 for none. */
static void print_rate(const struct bench *b, const char *what, uint32_t slots,
                       const struct rate *rate, double bytes, double first_ms)
{
    if (options.json) {
        print_head(b, what, slots);
        printf(",\"runs\":%u,\"tok_s\":%.2f,\"bytes_per_token\":%.0f,\"read_gb_s\":%.2f,"
               "\"bandwidth_share\":%.4f",
               rate->runs, rate->tok_s, bytes, rate->read_gb_s, rate->share);
        if (first_ms > 0)
            printf(",\"first_token_ms\":%.3f", first_ms);
        if (rate->turns_share > 0)
            printf(",\"turns_share\":%.4f", rate->turns_share);
        printf("}\n");
        return;
    }
    printf("%-8s %10.2f tok/s   %11.0f bytes/token   %6.1f %% of the best read, %.1f GB/s", what,
           rate->tok_s, bytes, rate->share * 100, rate->read_gb_s);
    if (rate->turns_share > 0)
        printf("; %.1f %% of reads in turns", rate->turns_share * 100);
    if (first_ms > 0)
        printf("   first token after %.1f ms", first_ms);
    else if (options.batches)
        printf("   slots %u", slots);
    printf("\n");
}

/* On a device: the CPU time of starting a step. */
static void print_start(const struct bench *b, double start_s)
{
    if (!options.json) {
        printf("start    %8.1f us of CPU time per step\n", start_s * 1e6);
        return;
    }
    print_head(b, "start", (uint32_t)options.slots);
    printf(",\"start_us\":%.2f}\n", start_s * 1e6);
}

static void print_window(const struct bench *b, uint32_t rows, double pass_s, double one_s)
{
    if (!options.json) {
        printf("window   %2u rows: %8.3f ms, %.2f x one\n", rows, pass_s * 1e3, pass_s / one_s);
        return;
    }
    print_head(b, "window", (uint32_t)options.slots);
    printf(",\"rows\":%u,\"pass_ms\":%.4f,\"over_one\":%.3f}\n", rows, pass_s * 1e3,
           pass_s / one_s);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int fail_pass(const struct bench *b)
{
    return tool_fail(&tool, EX_DATAERR, "%s: %s", options.model, bench_run_error(b->run));
}

/* GB/s of the best plain read of as many bytes as the weights have, on the device that computes. */
static double read_gb_s(const struct bench *b)
{
    return b->device.read_gb_s ? b->device.read_gb_s((size_t)b->model->tensor_bytes)
                               : read_rate_run(b->rate);
}

/* The numbers of slots to decode with, in turn: those of --batches, then all. Returns how many
 * numbers. */
static uint32_t batches_of(uint32_t batches[MAX_BATCHES])
{
    const uint32_t slots = (uint32_t)options.slots;
    uint32_t n = 0;
    for (uint32_t some = 1; options.batches && some < slots; some *= 4)
        batches[n++] = some;
    batches[n++] = slots;
    return n;
}

/* Prefills every slot's prompt, so that all can decode; this is the warm-up, too. */
static int fill_slots(struct bench *b)
{
    for (uint32_t s = 0; s < options.slots; s++)
        if (bench_run_prefill(b->run, s) < 0)
            return fail_pass(b);
    return 0;
}

/* tok_s [n], reads [n] and turns [n] (or NULL) are from the same runs, measured close together: the
 * speed of a shared machine changes from second to second, so the shares are computed per run. */
static struct rate rate_of(double *tok_s, const double *reads, const double *turns, double bytes,
                           uint32_t n)
{
    double shares[MAX_RUNS], in_turns[MAX_RUNS], sorted[MAX_RUNS];
    for (uint32_t i = 0; i < n; i++) {
        shares[i] = tok_s[i] * bytes / 1e9 / reads[i];
        in_turns[i] = turns ? turns[i] * bytes / 1e9 : 0;
        sorted[i] = reads[i];
    }
    return (struct rate){median(tok_s, n), median(sorted, n), median(shares, n),
                         median(in_turns, n), n};
}

/* One run: a prefill, the read rate, and decoding with each number of slots, in turns with reads. */
struct runs {
    double prefill[MAX_RUNS], decode[MAX_BATCHES][MAX_RUNS]; /* tok/s */
    double read[MAX_RUNS];                                   /* GB/s */
    double turns[MAX_BATCHES][MAX_RUNS]; /* tokens in the time of a GB's read; 0: of a device */
    double prefill_experts, decode_experts[MAX_BATCHES]; /* bytes a token, in the last run */
};

/* Reads in turns with steps. */
struct turns {
    struct read_rate *rate;
    double s_per_gb; /* the sum: of equal passes its mean gives the rate of all */
};

static void read_in_turn(void *context)
{
    struct turns *turns = context;
    turns->s_per_gb += 1 / read_rate_again(turns->rate);
}

/* Decodes again, in turns with reads, which leave none of the weights in a cache. Returns seconds, or
 * a negative number. */
static double measure_turns(struct bench *b, uint32_t slots, double *ret_per_gb)
{
    struct turns turns = {.rate = b->rate};
    const double spent = bench_run_decode(b->run, slots, read_in_turn, &turns);
    *ret_per_gb = turns.s_per_gb * slots / spent;
    (void)bench_run_expert_bytes(b->run); /* they were counted before */
    return spent;
}

static int measure_run(struct bench *b, const uint32_t *batches, uint32_t n_batches,
                       struct runs *runs, uint32_t run)
{
    (void)bench_run_expert_bytes(b->run);
    double spent = bench_run_prefill(b->run, 0);
    runs->prefill[run] = (double)options.prompt / spent;
    runs->prefill_experts = (double)bench_run_expert_bytes(b->run) / (double)options.prompt;
    runs->read[run] = read_gb_s(b);
    for (uint32_t i = 0; i < n_batches && spent >= 0; i++) {
        spent = bench_run_decode(b->run, batches[i], NULL, NULL);
        const double tokens = (double)(options.tokens * batches[i]);
        runs->decode[i][run] = tokens / spent;
        runs->decode_experts[i] = (double)bench_run_expert_bytes(b->run) / tokens;
        if (spent >= 0 && !b->device.read_gb_s)
            spent = measure_turns(b, batches[i], &runs->turns[i][run]);
    }
    return spent < 0 ? fail_pass(b) : 0;
}

static int measure_rates(struct bench *b)
{
    static struct runs runs;
    const double begin = seconds(), weights = (double)bench_run_weight_bytes(b->run);
    uint32_t batches[MAX_BATCHES], n = 0;
    const uint32_t n_batches = batches_of(batches);
    int rc = fill_slots(b);
    for (bool warm = false;
         !rc && (n < options.runs || (seconds() - begin < SHORTEST_SECONDS && n < MAX_RUNS));
         warm = true) {
        rc = measure_run(b, batches, n_batches, &runs, n);
        n += warm;
    }
    if (rc)
        return rc;
    uint64_t passes = (options.prompt + options.rows - 1) / options.rows;
    double bytes = weights * (double)passes / (double)options.prompt + runs.prefill_experts;
    struct rate rate = rate_of(runs.prefill, runs.read, NULL, bytes, n);
    print_rate(b, "prefill", (uint32_t)options.slots, &rate, bytes,
               (double)options.prompt / rate.tok_s * 1e3);
    for (uint32_t i = 0; i < n_batches; i++) {
        bytes = weights / batches[i] + runs.decode_experts[i] + (double)bench_run_kv_bytes(b->run);
        rate = rate_of(runs.decode[i], runs.read, runs.turns[i], bytes, n);
        print_rate(b, "decode", batches[i], &rate, bytes, 0);
    }
    if (b->device.ops != &backend_cpu)
        print_start(b, bench_run_start(b->run));
    return 0;
}

/* All sizes in turn, so that a disturbance during one run affects all of them alike. */
static int measure_windows(struct bench *b)
{
    static const uint32_t sizes[] = {1, 2, 4, 6, 8, 12, 16, 32, 64};
    enum { ALL = sizeof(sizes) / sizeof(sizes[0]), OF_CPU = ALL - 2 };
    const int n_sizes = b->device.ops == &backend_cpu ? OF_CPU : ALL;
    double times[ALL][MAX_RUNS], begin = seconds(), one = 0;
    uint32_t n = 0;
    while (n < options.runs || (seconds() - begin < 2 * SHORTEST_SECONDS && n < MAX_RUNS)) {
        for (int i = 0; i < n_sizes; i++) {
            times[i][n] = bench_run_window(b->run, sizes[i]);
            if (times[i][n] < 0)
                return fail_pass(b);
        }
        n++;
    }
    for (int i = 0; i < n_sizes; i++) {
        double pass = median(times[i], n);
        one = i == 0 ? pass : one;
        print_window(b, sizes[i], pass, one);
    }
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int open_model(struct bench *b, char *err, size_t err_bytes)
{
    int rc = gguf_open_parts(options.model, &b->gguf, err, err_bytes);
    return rc ? rc : model_open(b->gguf, &b->model, err, err_bytes);
}

static int choose_device(struct device *device)
{
    enum device_wanted wanted;
    char err[512];
    if (!device_parse(options.device, &wanted))
        return tool_fail(&tool, EX_USAGE, "--device must be cpu, cuda or auto, not %s",
                         options.device);
    if (device_choose(wanted, device, err, sizeof(err)))
        return tool_fail(&tool, EX_OSERR, "%s", err);
    return 0;
}

/* Checks that the value is one of two. */
static int check_choice(const char *option, const char *value, const char *first,
                        const char *second)
{
    if (strcmp(value, first) == 0 || strcmp(value, second) == 0)
        return 0;
    return tool_fail(&tool, EX_USAGE, "--%s must be %s or %s, not %s", option, first, second,
                     value);
}

/* Reads the file once first, so that it is in the page cache and loading can be compared with
 * it. */
static int open_all(struct bench *b)
{
    struct bench_sizes sizes = {(uint32_t)options.prompt,
                                (uint32_t)options.tokens,
                                (uint32_t)options.slots,
                                (uint32_t)options.rows,
                                tool_threads(options.threads),
                                options.isa,
                                b->device.ops,
                                strcmp(options.kv_type, "q8_0") == 0,
                                strcmp(options.numerics, "native") == 0,
                                options.drafts,
                                options.gpu_bytes};
    char err[512];
    int rc = open_model(b, err, sizeof(err));
    if (rc)
        return tool_fail(&tool, tool_exit(rc), "%s: %s", options.model, err);
    if (options.prompt + options.tokens > b->model->n_context)
        return tool_fail(
            &tool, EX_USAGE,
            "--prompt %llu and --tokens %llu exceed the model's context of %u: give less",
            (unsigned long long)options.prompt, (unsigned long long)options.tokens,
            b->model->n_context);
    /* A device reads its own memory. */
    rc = read_rate_open(b->device.read_gb_s ? 0 : (size_t)b->model->tensor_bytes, sizes.threads,
                        &b->rate);
    if (rc)
        return tool_fail(&tool, tool_exit(rc),
                         "cannot start threads, or allocate a buffer of %llu bytes to read",
                         (unsigned long long)b->model->tensor_bytes);
    for (int i = 0; i < 2; i++) {
        b->read_s = 0;
        for (const struct gguf *part = b->gguf; part; part = part->next)
            b->read_s += (double)read_rate_pass_ns(b->rate, part->data, part->bytes) * 1e-9;
    }
    double begin = seconds();
    rc = bench_run_open(b->model, &sizes, &b->run, err, sizeof(err));
    if (rc)
        return tool_fail(&tool, rc == -ENOTSUP ? EX_DATAERR : tool_exit(rc), "%s: %s",
                         options.model, err);
    b->load_s = seconds() - begin;
    bench_run_describe(b->run, &b->info);
    return 0;
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    const char *operand;
    setvbuf(stdout, NULL, _IOLBF, 0); /* print each line when it is known, also into a pipe */
    int rc = tool_parse(&tool, argc, argv, &operand);
    if (!rc && !options.model)
        rc = tool_fail(&tool, EX_USAGE, "give a model: --model FILE (see --help)");
    if (!rc && operand)
        rc = tool_fail(&tool, EX_USAGE, "unexpected argument %s: give one model, with --model",
                       operand);
    if (rc)
        return rc;
    rc = check_choice("kv-type", options.kv_type, "f16", "q8_0");
    rc = rc ? rc : check_choice("numerics", options.numerics, "portable", "native");
    rc = rc ? rc : choose_device(&b.device);
    rc = rc ? rc : open_all(&b);
    if (!rc) {
        print_load(&b);
        rc = measure_rates(&b);
    }
    if (!rc && options.windows)
        rc = measure_windows(&b);
    bench_run_close(b.run);
    read_rate_close(b.rate);
    model_close(b.model);
    gguf_close(b.gguf);
    return tool_end(&tool, rc);
}
