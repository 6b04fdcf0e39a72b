/* gguf_out.c: see gguf_out.h. */
#include "kernels/tools/gguf_out.h"

#include "kernels/base/pool.h"
#include "kernels/base/fail.h"
#include "kernels/quant/quant_types.h"
#include "kernels/quant/quantize.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIGNMENT = 32, CHUNK_BYTES = 1 << 20 };

struct byte_list {
    uint8_t *data; /* [bytes] */
    size_t bytes, room;
};

struct gguf_out {
    char *path, *part;
    int fd;
    bool failed; /* no memory */
    uint64_t n_keys, n_tensors;
    struct byte_list keys;
    struct gguf_out_tensor *tensors; /* [n_tensors] */
    uint64_t room, bytes;
};

/* ---- keys ------------------------------------------------------------------------------------ */

static void put(struct gguf_out *out, struct byte_list *b, const void *data, size_t bytes)
{
    if (out->failed || bytes == 0)
        return;
    if (b->room - b->bytes < bytes) {
        size_t room = 2 * (b->bytes + bytes) + 4096;
        uint8_t *grown = realloc(b->data, room);
        out->failed = !grown;
        if (!grown)
            return;
        b->data = grown;
        b->room = room;
    }
    memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
}

/* Numbers in the file are little-endian, whatever the machine. */
static void put_number(struct gguf_out *out, struct byte_list *b, uint64_t value, size_t bytes)
{
    uint8_t little[8];
    for (size_t i = 0; i < bytes; i++)
        little[i] = (uint8_t)(value >> 8 * i);
    put(out, b, little, bytes);
}

static void put_string(struct gguf_out *out, struct byte_list *b, const char *text, size_t bytes)
{
    put_number(out, b, bytes, 8);
    put(out, b, text, bytes);
}

static void begin_key(struct gguf_out *out, struct gguf_string key, uint32_t type)
{
    put_string(out, &out->keys, key.data, key.bytes);
    put_number(out, &out->keys, type, 4);
    out->n_keys++;
}

static struct gguf_string named(const char *key)
{
    return (struct gguf_string){key, strlen(key)};
}

void gguf_out_u32(struct gguf_out *out, const char *key, uint32_t value)
{
    begin_key(out, named(key), GGUF_U32);
    put_number(out, &out->keys, value, 4);
}

void gguf_out_f32(struct gguf_out *out, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    begin_key(out, named(key), GGUF_F32);
    put_number(out, &out->keys, bits, 4);
}

void gguf_out_bool(struct gguf_out *out, const char *key, bool value)
{
    begin_key(out, named(key), GGUF_BOOL);
    put_number(out, &out->keys, value, 1);
}

void gguf_out_string(struct gguf_out *out, const char *key, const char *value)
{
    begin_key(out, named(key), GGUF_STRING);
    put_string(out, &out->keys, value, strlen(value));
}

void gguf_out_raw(struct gguf_out *out, struct gguf_string key, uint32_t type, const void *raw,
                  size_t raw_bytes)
{
    begin_key(out, key, type);
    put(out, &out->keys, raw, raw_bytes);
}

void gguf_out_array(struct gguf_out *out, const char *key, uint32_t type, uint64_t count,
                    const void *elements, size_t bytes)
{
    begin_key(out, named(key), GGUF_ARRAY);
    put_number(out, &out->keys, type, 4);
    put_number(out, &out->keys, count, 8);
    put(out, &out->keys, elements, bytes);
}

void gguf_out_texts(struct gguf_out *out, const char *key, uint64_t count)
{
    gguf_out_array(out, key, GGUF_STRING, count, NULL, 0);
}

void gguf_out_text(struct gguf_out *out, const char *text, size_t bytes)
{
    put_string(out, &out->keys, text, bytes);
}

/* ---- tensors --------------------------------------------------------------------------------- */

void gguf_out_tensor(struct gguf_out *out, const struct gguf_out_tensor *tensor)
{
    if (out->n_tensors == out->room) {
        uint64_t room = 2 * out->room + 64;
        void *grown = realloc(out->tensors, room * sizeof(*out->tensors));
        out->failed |= !grown;
        if (!grown)
            return;
        out->tensors = grown;
        out->room = room;
    }
    out->tensors[out->n_tensors++] = *tensor;
}

static uint64_t row_bytes(const struct gguf_out_tensor *t)
{
    const struct quant_info *info = quant_find(t->type);
    assert(info && t->cols % info->block == 0);
    return t->cols / info->block * info->block_bytes;
}

static uint64_t rows_of(const struct gguf_out_tensor *t)
{
    return t->n_dims > 2 ? t->rows * t->n_matrices : t->rows;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int write_at(int fd, const uint8_t *data, size_t bytes, uint64_t at)
{
    while (bytes > 0) {
        ssize_t n = pwrite(fd, data, bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        bytes -= (size_t)n;
        at += (uint64_t)n;
    }
    return 0;
}

/* Writes magic, counts, keys and tensor infos, padded; *ret_data_at is where the tensor data
 * begins. */
static int write_header(struct gguf_out *out, uint64_t *ret_data_at)
{
    static const uint8_t zeros[ALIGNMENT];
    struct byte_list head = {0};
    put(out, &head, "GGUF", 4);
    put_number(out, &head, 3, 4);
    put_number(out, &head, out->n_tensors, 8);
    put_number(out, &head, out->n_keys, 8);
    put(out, &head, out->keys.data, out->keys.bytes);
    uint64_t at = 0;
    for (uint64_t i = 0; i < out->n_tensors; i++) {
        const struct gguf_out_tensor *t = &out->tensors[i];
        put_string(out, &head, t->name, strlen(t->name));
        put_number(out, &head, t->n_dims, 4);
        put_number(out, &head, t->cols, 8);
        if (t->n_dims > 1)
            put_number(out, &head, t->rows, 8);
        if (t->n_dims > 2)
            put_number(out, &head, t->n_matrices, 8);
        put_number(out, &head, t->type, 4);
        put_number(out, &head, at, 8);
        at += aligned(rows_of(t) * row_bytes(t));
    }
    put(out, &head, zeros, (size_t)(aligned(head.bytes) - head.bytes));
    int rc = out->failed ? -ENOMEM : write_at(out->fd, head.data, head.bytes, 0);
    *ret_data_at = head.bytes;
    out->bytes = head.bytes + at;
    free(head.data);
    return rc;
}

/* One tensor being written in chunks of rows, each by one worker. */
struct write_job {
    struct gguf_out *out;
    gguf_out_row *row;
    void *arg;
    uint32_t tensor;
    uint64_t at, rows_of_chunk; /* at: offset of the tensor in the file */
    float **x;                  /* [threads][cols] */
    uint8_t **bytes;            /* [threads][rows_of_chunk * row_bytes] */
    _Atomic int error;          /* the first -errno; relaxed: the end of pool_run orders it */
};

static void write_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    struct write_job *job = arg;
    const struct gguf_out_tensor *t = &job->out->tensors[job->tensor];
    uint64_t stride = row_bytes(t), first = chunk * job->rows_of_chunk;
    uint64_t rows = rows_of(t), last = first + job->rows_of_chunk;
    last = last < rows ? last : rows;
    int rc = atomic_load_explicit(&job->error, memory_order_relaxed);
    for (uint64_t r = first; r < last && !rc; r++) {
        rc = job->row(job->arg, job->tensor, r, job->x[worker]);
        if (!rc)
            rc = quantize_row(t->type, job->x[worker], t->cols,
                              job->bytes[worker] + (r - first) * stride);
    }
    if (!rc)
        rc = write_at(job->out->fd, job->bytes[worker], (last - first) * stride,
                      job->at + first * stride);
    int none = 0;
    if (rc)
        atomic_compare_exchange_strong_explicit(&job->error, &none, rc, memory_order_relaxed,
                                                memory_order_relaxed);
}

static int write_tensor(struct write_job *job, struct thread_pool *pool)
{
    const struct gguf_out_tensor *t = &job->out->tensors[job->tensor];
    uint32_t threads = pool_threads(pool);
    uint64_t stride = row_bytes(t);
    job->rows_of_chunk = stride < CHUNK_BYTES ? CHUNK_BYTES / stride : 1;
    int rc = 0;
    for (uint32_t i = 0; i < threads; i++) {
        free(job->x[i]);
        free(job->bytes[i]);
        job->x[i] = malloc(t->cols * sizeof(float));
        job->bytes[i] = malloc(job->rows_of_chunk * stride);
        rc = job->x[i] && job->bytes[i] ? rc : -ENOMEM;
    }
    if (rc)
        return rc;
    pool_run(pool, write_chunk, job,
             (uint32_t)((rows_of(t) + job->rows_of_chunk - 1) / job->rows_of_chunk));
    return job->error;
}

static int fail_tensor(const struct gguf_out *out, uint32_t tensor, int rc, char *err,
                       size_t err_bytes)
{
    const struct gguf_out_tensor *t = &out->tensors[tensor];
    if (rc == -EDOM)
        return fail(err, err_bytes, rc, "tensor %s has a value that is not finite", t->name);
    if (rc == -ERANGE)
        return fail(err, err_bytes, rc, "tensor %s has a value too large for %s", t->name,
                    quant_name(t->type));
    if (rc == -ENOTSUP)
        return fail(err, err_bytes, rc, "tensor %s: hearth-mkmodel does not write %s yet", t->name,
                    quant_name(t->type));
    return fail(err, err_bytes, rc, "%s: cannot write tensor %s: %s", out->part, t->name,
                strerror(-rc));
}

int gguf_out_write(struct gguf_out *out, gguf_out_row *row, void *arg, uint32_t threads, char *err,
                   size_t err_bytes)
{
    struct thread_pool *pool = NULL;
    struct write_job job = {.out = out, .row = row, .arg = arg};
    uint64_t at;
    int rc = write_header(out, &at);
    if (rc)
        return fail(err, err_bytes, rc, "%s: cannot write the header: %s", out->part,
                    strerror(-rc));
    rc = pool_open(threads, &pool);
    if (rc)
        return fail(err, err_bytes, rc, "cannot start %u threads: %s", threads, strerror(-rc));
    job.x = calloc(threads, sizeof(*job.x));
    job.bytes = calloc(threads, sizeof(*job.bytes));
    rc = job.x && job.bytes ? 0 : fail(err, err_bytes, -ENOMEM, "not enough memory");
    for (; job.tensor < out->n_tensors && !rc; job.tensor++) {
        const struct gguf_out_tensor *t = &out->tensors[job.tensor];
        job.at = at;
        rc = write_tensor(&job, pool);
        if (rc)
            rc = fail_tensor(out, job.tensor, rc, err, err_bytes);
        at += aligned(rows_of(t) * row_bytes(t));
    }
    /* The last tensor is padded like the others; this sets the length accordingly. */
    if (!rc && ftruncate(out->fd, (off_t)out->bytes) < 0)
        rc = fail(err, err_bytes, -errno, "%s: cannot set the length: %s", out->part,
                  strerror(errno));
    for (uint32_t i = 0; i < threads; i++) {
        free(job.x ? job.x[i] : NULL);
        free(job.bytes ? job.bytes[i] : NULL);
    }
    free(job.x);
    free(job.bytes);
    pool_close(pool);
    return rc;
}

/* ---- the file -------------------------------------------------------------------------------- */

bool gguf_out_overwrites(const char *path, const char *source)
{
    struct stat theirs, ours;
    char *part;
    if (asprintf(&part, "%s.part", path) < 0)
        return false;
    bool both = stat(source, &theirs) == 0 && stat(part, &ours) == 0;
    free(part);
    return both && theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

int gguf_out_open(const char *path, struct gguf_out **ret_out, char *err, size_t err_bytes)
{
    /* gguf_out_commit renames over PATH, which would replace a device and fail for a directory at
     * the very end. */
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return fail(err, err_bytes, -EEXIST, "cannot write %s: it exists and is not a regular file",
                    path);
    struct gguf_out *out = calloc(1, sizeof(*out));
    if (!out)
        return fail(err, err_bytes, -ENOMEM, "not enough memory");
    out->fd = -1;
    out->path = strdup(path);
    if (!out->path || asprintf(&out->part, "%s.part", path) < 0) {
        out->part = NULL;
        gguf_out_close(out);
        return fail(err, err_bytes, -ENOMEM, "not enough memory");
    }
    /* A new file: one that is there may be a link, a pipe, or open to others. */
    (void)unlink(out->part);
    out->fd = open(out->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (out->fd < 0) {
        int rc = fail(err, err_bytes, -errno, "cannot create %s: %s", out->part, strerror(errno));
        gguf_out_close(out);
        return rc;
    }
    *ret_out = out;
    return 0;
}

int gguf_out_commit(struct gguf_out *out, char *err, size_t err_bytes)
{
    int closed = close(out->fd);
    out->fd = -1;
    if (closed < 0 || rename(out->part, out->path) < 0) {
        int rc = fail(err, err_bytes, -errno, "cannot write %s: %s", out->path, strerror(errno));
        unlink(out->part);
        return rc;
    }
    return 0;
}

void gguf_out_close(struct gguf_out *out)
{
    if (!out)
        return;
    if (out->fd >= 0 && out->part) {
        close(out->fd);
        unlink(out->part);
    }
    free(out->path);
    free(out->part);
    free(out->keys.data);
    free(out->tensors);
    free(out);
}

uint64_t gguf_out_bytes(const struct gguf_out *out)
{
    return out->bytes;
}
