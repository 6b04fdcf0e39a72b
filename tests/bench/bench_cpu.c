/* bench_cpu: tokens per second of the CPU backend in process, as JSON lines.
 *
 *   bench_cpu MODEL.gguf [-p PROMPT] [-n TOKENS] [-b SLOTS] [-t THREADS,THREADS..] [-i ISA]
 *             [-r RUNS]
 *
 * For every number of threads: prefill of PROMPT tokens in one pass, and decoding of TOKENS picks
 * behind a prompt of PROMPT tokens, SLOTS sequences together. The median of at least RUNS runs and
 * a second of them (99 at most). Beside it the rate at which one plain pass of the same threads
 * reads a buffer as large as the weights. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "kernels/cpu/pool.h"
#include "kernels/gguf.h"
#include "kernels/kv.h"
#include "kernels/model.h"

enum { MAX_SLOTS = 64, MAX_RUNS = 99 };

struct options {
    const char *path, *isa;
    uint32_t prompt, tokens, slots, runs;
    uint32_t threads[8], n_threads;
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_cpu: %s: %s\n", what, why);
    exit(1);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, uint32_t n)
{
    qsort(x, n, sizeof *x, ascending);
    return x[n / 2];
}

/* ---- reading a buffer -------------------------------------------------------------------------
 */

/* Eight words: the compiler makes of it what registers the machine has. */
typedef uint64_t wide __attribute__((vector_size(64)));

struct reading {
    const wide *data;
    size_t n; /* of a chunk */
    wide sum[64];
};

static void read_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    struct reading *r = arg;
    const wide *data = r->data + chunk * r->n;
    wide a = {0}, b = {0};
    for (size_t i = 0; i + 2 <= r->n; i += 2) {
        a += data[i];
        b += data[i + 1];
    }
    r->sum[worker % 64] += a + b;
}

static double read_gb_s(size_t bytes, uint32_t threads)
{
    struct pool *pool;
    struct reading r = {.n = bytes / sizeof(wide) / 64};
    wide *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    int repeats = 1 + (int)((1u << 26) / (bytes + 1));
    if (!data || pool_open(threads, &pool))
        die("reading", "no memory");
    memset(data, 1, bytes);
    r.data = data;
    double best = 1e9;
    for (int i = 0; i < 7; i++) {
        double begin = seconds();
        for (int k = 0; k < repeats; k++)
            pool_run(pool, read_chunk, &r, 64);
        double per = (seconds() - begin) / repeats;
        best = per < best ? per : best;
    }
    pool_close(pool);
    free(data);
    return (double)bytes / best / 1e9;
}

/* ---- passes -----------------------------------------------------------------------------------
 */

struct bench {
    const struct options *o;
    const struct model *model;
    struct backend *backend;
    uint32_t *pages, *tokens; /* [slots][pages of a slot], [slots][prompt + tokens + 1] */
    uint32_t per_slot, length;
    struct pick_params params;
    struct pass_sequence sequences[MAX_SLOTS];
    struct row *rows;
    struct row_result *results;
};

static void run(struct bench *b, uint32_t n_rows, uint32_t n_sequences)
{
    struct pass pass = {PASS_CANONICAL, n_rows, b->rows, b->sequences, b->results, n_sequences};
    if (backend_cpu.start(b->backend, &pass) || backend_cpu.finish(b->backend))
        die("pass", backend_cpu.error(b->backend));
    for (uint32_t r = 0; r < n_rows; r++) {
        if (b->results[r].status)
            die("pass", "a row was poisoned");
    }
}

static double prefill(struct bench *b, uint32_t slot)
{
    for (uint32_t i = 0; i < b->o->prompt; i++)
        b->rows[i] = (struct row){slot, i, b->tokens[slot * b->length + i], 0};
    b->rows[b->o->prompt - 1].wants = ROW_PICK;
    double begin = seconds();
    run(b, b->o->prompt, b->o->slots);
    b->tokens[slot * b->length + b->o->prompt] = b->results[b->o->prompt - 1].pick.token;
    return seconds() - begin;
}

static double decode(struct bench *b)
{
    double begin = seconds();
    for (uint32_t i = 0; i < b->o->tokens; i++) {
        uint32_t position = b->o->prompt + i;
        for (uint32_t s = 0; s < b->o->slots; s++)
            b->rows[s] = (struct row){s, position, b->tokens[s * b->length + position], ROW_PICK};
        run(b, b->o->slots, b->o->slots);
        for (uint32_t s = 0; s < b->o->slots; s++)
            b->tokens[s * b->length + position + 1] = b->results[s].pick.token;
    }
    return seconds() - begin;
}

static void report(struct bench *b, const char *work, double tok_s, uint32_t threads)
{
    struct backend_info info;
    backend_cpu.describe(b->backend, &info);
    double bytes = (double)b->model->tensor_bytes;
    printf("{\"bench\":\"cpu\",\"what\":\"%s\",\"model\":\"%s\",\"type\":\"%s\",\"isa\":\"%s\","
           "\"threads\":%u,\"slots\":%u,\"prompt\":%u,\"tokens\":%u,\"tok_s\":%.1f,"
           "\"weight_bytes\":%.0f",
           work, strrchr(b->o->path, '/') ? strrchr(b->o->path, '/') + 1 : b->o->path,
           model_type_name(b->model), info.isa, threads, b->o->slots, b->o->prompt, b->o->tokens,
           tok_s, bytes);
    if (strcmp(work, "decode") == 0) {
        double gb_s = read_gb_s((size_t)bytes, threads);
        double used = tok_s / b->o->slots * bytes / 1e9;
        printf(",\"read_gb_s\":%.1f,\"bandwidth_share\":%.2f", gb_s, used / gb_s);
    }
    printf("}\n");
    fflush(stdout);
}

static void measure(struct bench *b, uint32_t threads)
{
    const struct options *o = b->o;
    uint32_t rows = o->prompt > o->slots ? o->prompt : o->slots;
    struct backend_limits limits = {.rows = rows,
                                    .picks = o->slots,
                                    .pages = o->slots * b->per_slot,
                                    .context = b->length,
                                    .threads = threads,
                                    .isa = o->isa};
    char err[256];
    if (backend_cpu.open(b->model, &limits, &b->backend, err, sizeof err))
        die("open", err);
    double prefills[MAX_RUNS], decodes[MAX_RUNS];
    double begin = seconds();
    uint32_t n = 0;
    for (bool warm = false; n < o->runs || (seconds() - begin < 1.0 && n < MAX_RUNS); warm = true) {
        double spent = 0;
        for (uint32_t s = 0; s < o->slots; s++)
            spent += prefill(b, s);
        double decoding = decode(b);
        if (warm) {
            prefills[n] = o->prompt * o->slots / spent;
            decodes[n++] = o->tokens * o->slots / decoding;
        }
    }
    report(b, "prefill", median(prefills, n), threads);
    report(b, "decode", median(decodes, n), threads);
    backend_cpu.close(b->backend);
}

static void prepare(struct bench *b)
{
    const struct options *o = b->o;
    b->length = o->prompt + o->tokens + 1;
    b->per_slot = kv_pages(b->length);
    b->pages = calloc((size_t)o->slots * b->per_slot, sizeof *b->pages);
    b->tokens = calloc((size_t)o->slots * b->length, sizeof *b->tokens);
    b->rows = calloc(o->prompt + o->slots, sizeof *b->rows);
    b->results = calloc(o->prompt + o->slots, sizeof *b->results);
    if (!b->pages || !b->tokens || !b->rows || !b->results)
        die("prepare", "no memory");
    pick_params_init(&b->params);
    for (uint32_t i = 0; i < o->slots * b->per_slot; i++)
        b->pages[i] = i;
    uint64_t seed = 1;
    for (uint32_t i = 0; i < o->slots * b->length; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1;
        b->tokens[i] = (uint32_t)((seed >> 33) % b->model->n_vocab);
    }
    for (uint32_t s = 0; s < o->slots; s++)
        b->sequences[s] = (struct pass_sequence){b->pages + s * b->per_slot,
                                                 b->tokens + s * b->length, o->prompt, &b->params};
}

static void parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){
        .prompt = 16, .tokens = 128, .slots = 1, .runs = 5, .threads = {1, 2}, .n_threads = 2};
    int c;
    while ((c = getopt(argc, argv, "p:n:b:t:i:r:")) != -1) {
        uint32_t value = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        switch (c) {
        case 'p':
            o->prompt = value;
            break;
        case 'n':
            o->tokens = value;
            break;
        case 'b':
            o->slots = value;
            break;
        case 'r':
            o->runs = value;
            break;
        case 'i':
            o->isa = optarg;
            break;
        case 't':
            o->n_threads = 0;
            for (char *t = strtok(optarg, ","); t && o->n_threads < 8; t = strtok(NULL, ","))
                o->threads[o->n_threads++] = (uint32_t)strtoul(t, NULL, 10);
            break;
        default:
            exit(64);
        }
    }
    if (optind >= argc || !o->prompt || !o->tokens || !o->slots || o->slots > MAX_SLOTS ||
        !o->runs || o->runs > MAX_RUNS)
        die("usage", "bench_cpu MODEL.gguf [-p PROMPT] [-n TOKENS] [-b SLOTS] [-t THREADS,..] "
                     "[-i ISA] [-r RUNS]");
    o->path = argv[optind];
}

int main(int argc, char **argv)
{
    struct options o;
    struct gguf *gguf;
    struct model *model;
    char err[256];
    parse(argc, argv, &o);
    if (gguf_open(o.path, &gguf, err, sizeof err) || model_open(gguf, &model, err, sizeof err))
        die(o.path, err);
    struct bench b = {.o = &o, .model = model};
    prepare(&b);
    for (uint32_t i = 0; i < o.n_threads; i++)
        measure(&b, o.threads[i]);
    free(b.pages);
    free(b.tokens);
    free(b.rows);
    free(b.results);
    model_close(model);
    gguf_close(gguf);
    return 0;
}
