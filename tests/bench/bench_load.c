/* bench_load: the time of a start, and the memory that stays in use.
 *
 *   bench_load BIN_FOLDER MODEL...
 *
 * The time from the start of hearthd to a client's first token, with the file in the page cache,
 * over two ways to read the file once with as many threads: copying it from its mapping to fresh
 * memory, and read(2) into a reused buffer. The same with the file on the disk alone, over what cat
 * does: one thread's read(2). And the first, with weights that an earlier start has kept
 * (--weights-cache), over the copy. Then the daemon's memory over the size of the file's tensors plus the
 * KV in use.
 */
#include "kernels/kv.h"
#include "kernels/model/model.h"
#include "tests/bench/bench.h"
#include "tests/bench/served.h"

#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    REPEATS = 5,
    MAX_THREADS = 64,
    PIECE = 2 << 20, /* bytes that a thread takes at a time */
    READ = 1 << 17,  /* bytes of one read(2), as cat's */
    PROMPT = 512,
    OUTPUT = 16,
};

static const char *name;
static struct gguf *gguf;
static struct model *model;

/* ---- once over the file ---------------------------------------------------------------------- */

struct sweep {
    const uint8_t *from; /* [bytes] mapped */
    uint8_t *to;         /* [bytes] fresh, or NULL: read(2) it */
    int fd;
    size_t bytes;
    _Atomic size_t next;
};

static void read_piece(const struct sweep *s, size_t at, size_t bytes, uint8_t *buffer)
{
    for (size_t done = 0; done < bytes;) {
        size_t want = bytes - done < READ ? bytes - done : READ;
        ssize_t got = pread(s->fd, buffer, want, (off_t)(at + done));
        if (got <= 0)
            served_fail("the model cannot be read");
        done += (size_t)got;
    }
}

static void *sweep_thread(void *arg)
{
    struct sweep *s = arg;
    uint8_t *buffer = malloc(READ);
    size_t at;

    if (!buffer)
        served_fail("no memory");
    while ((at = atomic_fetch_add(&s->next, PIECE)) < s->bytes) {
        size_t bytes = s->bytes - at < PIECE ? s->bytes - at : PIECE;
        if (s->to)
            memcpy(s->to + at, s->from + at, bytes);
        else
            read_piece(s, at, bytes, buffer);
    }
    free(buffer);
    return NULL;
}

/* Fresh memory aligned to a huge page, with huge pages requested. */
static uint8_t *fresh(size_t bytes, void **ret_mapping)
{
    *ret_mapping = mmap(NULL, bytes + PIECE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*ret_mapping == MAP_FAILED)
        served_fail("no memory for a copy of the model");
    uint8_t *at = *ret_mapping;
    at += (PIECE - (uintptr_t)at % PIECE) % PIECE;
    madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

static long core_count(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    return n > MAX_THREADS ? MAX_THREADS : n;
}

/* Milliseconds of one pass by n threads. */
static double sweep_ms(const char *path, bool copy, long n)
{
    struct sweep s = {.fd = open(path, O_RDONLY | O_CLOEXEC), .bytes = gguf_file_bytes(gguf)};
    pthread_t thread[MAX_THREADS];
    void *from, *to = NULL;

    from = mmap(NULL, s.bytes, PROT_READ, MAP_PRIVATE, s.fd, 0);
    if (s.fd < 0 || from == MAP_FAILED)
        served_fail("the model cannot be mapped");
    s.from = from;
    if (copy)
        s.to = fresh(s.bytes, &to);
    uint64_t start = bench_ticks();
    for (long i = 0; i < n; i++)
        if (pthread_create(&thread[i], NULL, sweep_thread, &s) != 0)
            served_fail("no threads");
    for (long i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    double ms = (double)(bench_ticks() - start) * bench_tick_ns() * 1e-6;
    munmap(from, s.bytes);
    if (to)
        munmap(to, s.bytes + PIECE);
    close(s.fd);
    return ms;
}

/* In a virtual machine the first touch of memory costs more than everything measured here, and
 * again after it has been free for some seconds. So each side begins with memory that was in use a
 * moment ago, for as many copies of the file as it makes, where the machine has that much. */
static void warm_memory(size_t copies)
{
    const size_t free = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = copies * gguf_file_bytes(gguf) + (gguf_file_bytes(gguf) >> 2);
    void *mapping;

    bytes = bytes < free / 8 * 7 ? bytes : free / 8 * 7;
    uint8_t *at = fresh(bytes, &mapping);

    for (size_t i = 0; i < bytes; i += 4096)
        at[i] = 1;
    munmap(mapping, bytes + PIECE);
}

/* From here on the file is on the disk alone, but for the pages that this process has touched. */
static void drop_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        served_fail("the model cannot be dropped from the page cache");
    close(fd);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static char folder[48];
static const char *const arguments[] = {"--context", "4096", "--slots", "4", NULL};
static const char *const arguments_kept[] = {"--context",       "4096", "--slots", "4",
                                             "--weights-cache", folder, NULL};

static struct hearth_result ask(struct hearth *h, uint32_t n, uint32_t max_tokens)
{
    uint32_t tokens[PROMPT];
    struct hearth_request r;

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = 3 + i % 200;
    hearth_request_init(&r, sizeof(r));
    r.tokens = tokens;
    r.n_tokens = n;
    r.max_tokens = max_tokens;
    return served_ask(h, 0, &r);
}

/* Milliseconds from the start of hearthd to the first token. It is left running. */
static double load_ms(const char *path, const char *const *more)
{
    uint64_t start = bench_ticks();

    served_start(path, more);
    struct hearth *h = served_connect(1);
    ask(h, 3, 1);
    double ms = (double)(bench_ticks() - start) * bench_tick_ns() * 1e-6;
    hearth_close(h);
    return ms;
}

/* Bytes of a line of /proc/PID/status. */
static double status_bytes(const char *key)
{
    char path[64], line[256];
    double kib = 0;

    snprintf(path, sizeof(path), "/proc/%d/status", served_pid());
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        if (!strncmp(line, key, strlen(key)))
            kib = atof(line + strlen(key) + 1);
    if (f)
        fclose(f);
    return kib * 1024;
}

static void print_memory(const char *what, const char *key, uint32_t positions)
{
    struct kv_geometry kv;
    char note[160];
    struct bench_ratio r = {
        .bench = "load", .what = what, .model = name, .target = 1.05, .at_most = 1, .note = note};

    kv_geometry_init(&kv, model, false, false);
    double weights = (double)model->tensor_bytes,
           used = kv_pages(positions) * (double)kv.page_bytes[PAGES_FULL];
    double bytes = status_bytes(key);
    r.x = bytes / (weights + used);
    snprintf(note, sizeof(note), "%s %.1f MiB over %.1f of tensors and %.1f of KV", key,
             bytes / (1 << 20), weights / (1 << 20), used / (1 << 20));
    bench_print_ratio(&r);
}

static void print_load(const char *what, double *load, double *floor, double target,
                       const char *about)
{
    char note[200];
    struct bench_ratio r = {
        .bench = "load", .what = what, .model = name, .target = target, .at_most = 1, .note = note};

    bench_ratio_of(&r, load, floor, REPEATS);
    snprintf(note, sizeof(note), "%.0f ms over %.0f: %s", served_median(load, REPEATS),
             served_median(floor, REPEATS), about);
    bench_print_ratio(&r);
}

/* With the file in the page cache. The last daemon is left running. */
static void bench_cached(const char *path)
{
    double load[2][REPEATS], copied[REPEATS], was_read[REPEATS];
    const long n = core_count();

    sweep_ms(path, false, n); /* into the page cache */
    for (int i = 0; i < REPEATS; i++) {
        was_read[i] = sweep_ms(path, false, n);
        warm_memory(1);
        copied[i] = sweep_ms(path, true, n);
        warm_memory(1);
        load[0][i] = load[1][i] = load_ms(path, arguments);
        if (i < REPEATS - 1)
            served_stop();
    }
    print_load("load_over_copy", load[0], copied, 1.5,
               "start to first token, over a copy of the file to fresh memory");
    print_load("load_over_read", load[1], was_read, 0,
               "the same over read(2) of the file into a buffer");
}

/* With the file on the disk: the page cache's copy of it is fresh memory, too. */
static void bench_cold(const char *path)
{
    double load[REPEATS], was_read[REPEATS];

    for (int i = 0; i < REPEATS; i++) {
        drop_file(path);
        warm_memory(2);
        was_read[i] = sweep_ms(path, false, 1);
        drop_file(path);
        warm_memory(2);
        load[i] = load_ms(path, arguments);
        served_stop();
    }
    print_load("cold_load_over_cat", load, was_read, 1.2,
               "start to first token, the file on the disk, over cat of it");
}

/* A start that keeps the weights: returns when they are there. */
static void keep_weights(const char *path)
{
    glob_t found;
    char pattern[64];
    bool there = false;

    load_ms(path, arguments_kept);
    snprintf(pattern, sizeof(pattern), "%s/*.weights", folder);
    for (int i = 0; i < 6000 && !there; i++) {
        usleep(100000);
        there = glob(pattern, 0, NULL, &found) == 0;
        globfree(&found);
    }
    if (!there)
        served_fail("the weights were not kept");
    served_stop();
}

static void bench_kept(const char *path)
{
    double load[REPEATS], copied[REPEATS];
    char command[64];

    strcpy(folder, "/tmp/hearth-bench-weights-XXXXXX");
    if (!mkdtemp(folder))
        served_fail("no folder for the weights");
    keep_weights(path);
    for (int i = 0; i < REPEATS; i++) {
        warm_memory(1);
        copied[i] = sweep_ms(path, true, core_count());
        load[i] = load_ms(path, arguments_kept);
        served_stop();
    }
    print_load("kept_load_over_copy", load, copied, 0.3,
               "start to first token, weights mapped from the cache, over a copy of the file");
    snprintf(command, sizeof(command), "rm -r %s", folder);
    if (system(command) != 0)
        served_fail("the folder of the weights cannot be removed");
}

static void bench_model(const char *path)
{
    bench_cold(path);
    bench_kept(path);
    bench_cached(path);
    print_memory("peak_of_load", "VmHWM:", 4);
    print_memory("resident_after_load", "VmRSS:", 4);
    struct hearth *h = served_connect(1);
    ask(h, PROMPT, OUTPUT);
    print_memory("resident_after_answer", "VmRSS:", PROMPT + OUTPUT);
    hearth_close(h);
    served_stop();
}

int main(int argc, char **argv)
{
    char err[256];

    if (argc < 3) {
        fprintf(stderr, "usage: bench_load BIN_FOLDER MODEL...\n");
        return 64;
    }
    served_init(argv[1]);
    for (int i = 2; i < argc; i++) {
        name = served_name(argv[i]);
        if (gguf_open(argv[i], &gguf, err, sizeof(err)) < 0 ||
            model_open(gguf, &model, err, sizeof(err)) < 0)
            served_fail(err);
        bench_model(argv[i]);
        model_close(model);
        gguf_close(gguf);
    }
    served_fini();
    return 0;
}
