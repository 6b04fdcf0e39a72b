/* load.c: reads, hashes and packs weights on all threads. See load.h. */
#include "kernels/cpu/load.h"

#include "kernels/cpu/repack.h"
#include "kernels/base/hash128.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    PIECE_BYTES = 128 << 10, /* read, hashed and packed while in L2 */
    RUN_BYTES = 16 << 20, /* many huge pages: if two threads fault in the same one, both clear it */
    UNIT_BYTES = 2 << 20, /* a huge page */
};

/* ---- from the file
 * ---------------------------------------------------------------------------- */

/* Matrices that are adjacent in memory: those from `first` on, up to the next run's. */
struct matrix_run {
    size_t bytes;
    uint32_t first, n;
};

struct file_job {
    const struct model *model;
    const struct cpu_matrix **matrix;
    struct matrix_run *runs;
    uint8_t *buffers;    /* [threads][buffer_bytes] */
    size_t buffer_bytes; /* at least a group */
    _Atomic uint64_t *loaded;
    _Atomic int error; /* the first error of any thread */
};

/* Reads, hashes and packs groups first .. first + n - 1; one without memory is hashed alone. */
static int load_groups(const struct file_job *job, const struct cpu_matrix *m, uint32_t first,
                       uint32_t n, uint8_t *buffer, struct hash128 *hash)
{
    const size_t group_bytes = repack_file_bytes(m), before = first * group_bytes;
    size_t bytes = m->file.bytes - before;
    bytes = bytes < n * group_bytes ? bytes : n * group_bytes;
    int rc = gguf_read(job->model->gguf, m->file.data + before, bytes, buffer);
    if (rc)
        return rc;
    hash128_update(hash, buffer, bytes);
    for (uint32_t i = 0; i < n && m->packed; i++)
        repack_group(m, first + i, buffer + i * group_bytes);
    if (job->loaded)
        *job->loaded += bytes;
    return 0;
}

static int load_matrix(const struct file_job *job, const struct cpu_matrix *m, uint8_t *buffer)
{
    const uint32_t most = (uint32_t)(job->buffer_bytes / repack_file_bytes(m));
    struct hash128 hash;
    uint8_t bytes[16];
    hash128_init(&hash);
    for (uint32_t i = 0; i < m->file.n_matrices; i++) {
        const struct cpu_matrix part = repack_part(m, i, 0);
        for (uint32_t first = 0, n; first < m->groups; first += n) {
            n = m->groups - first < most ? m->groups - first : most;
            int rc = load_groups(job, &part, first, n, buffer, &hash);
            if (rc)
                return rc;
        }
    }
    hash128_final(&hash, bytes);
    model_note_hash(job->model, &m->file, bytes);
    return 0;
}

static void load_run(void *arg, uint32_t chunk, uint32_t worker)
{
    struct file_job *job = arg;
    const struct matrix_run *run = &job->runs[chunk];
    uint8_t *buffer = job->buffers + worker * job->buffer_bytes;
    for (uint32_t i = 0; i < run->n && !job->error; i++) {
        int rc = load_matrix(job, job->matrix[run->first + i], buffer);
        if (rc)
            job->error = rc;
    }
}

static int larger_first(const void *a, const void *b)
{
    const struct matrix_run *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

/* Divides n matrices into runs [at most n]. Returns how many. */
static uint32_t cut(const struct cpu_matrix **matrix, uint32_t n, struct matrix_run *runs)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (count == 0 || runs[count - 1].bytes + repack_bytes(matrix[i]) > RUN_BYTES)
            runs[count++] = (struct matrix_run){.first = i};
        runs[count - 1].bytes += repack_bytes(matrix[i]);
        runs[count - 1].n++;
    }
    qsort(runs, count, sizeof(runs[0]), larger_first);
    return count;
}

static size_t largest_piece(const struct cpu_matrix **matrix, uint32_t n)
{
    size_t most = PIECE_BYTES;
    for (uint32_t i = 0; i < n; i++)
        most = repack_file_bytes(matrix[i]) > most ? repack_file_bytes(matrix[i]) : most;
    return (most + 63) / 64 * 64;
}

int load_from_file(struct thread_pool *pool, const struct model *model,
                   const struct cpu_matrix **matrix, uint32_t n, _Atomic uint64_t *loaded)
{
    for (uint32_t i = 1; i < n; i++)
        assert(!matrix[i]->packed ||
               matrix[i - 1]->packed + repack_bytes(matrix[i - 1]) <= matrix[i]->packed);
    struct file_job job = {.model = model,
                           .matrix = matrix,
                           .buffer_bytes = largest_piece(matrix, n),
                           .loaded = loaded};
    job.runs = malloc(n * sizeof(job.runs[0]));
    job.buffers = aligned_alloc(64, pool_threads(pool) * job.buffer_bytes);
    if (job.runs && job.buffers)
        pool_run(pool, load_run, &job, cut(matrix, n, job.runs));
    else
        job.error = -ENOMEM;
    free(job.runs);
    free(job.buffers);
    return job.error;
}

int load_vector_data(const struct model *model, const struct model_tensor *tensor, void *to)
{
    uint8_t hash[16];
    int rc = gguf_read(model->gguf, tensor->data, tensor->bytes, to);
    if (rc)
        return rc;
    hash128(to, tensor->bytes, hash);
    model_note_hash(model, tensor, hash);
    return 0;
}

/* ---- from memory
 * ------------------------------------------------------------------------------ */

/* The first group of m that starts at `to` or later. */
static uint32_t group_at(const struct cpu_matrix *m, const uint8_t *to)
{
    if (to <= m->packed)
        return 0;
    size_t before = ((size_t)(to - m->packed) + m->group_bytes - 1) / m->group_bytes;
    return before < m->groups ? (uint32_t)before : m->groups;
}

static const uint8_t *first_unit(const struct cpu_matrix *m)
{
    return m->packed - (uintptr_t)m->packed % UNIT_BYTES;
}

/* Packs the groups that start in one huge page of memory. */
static void pack_unit(void *arg, uint32_t unit, uint32_t worker)
{
    (void)worker;
    const struct cpu_matrix *m = arg;
    const uint8_t *begin = first_unit(m) + (size_t)unit * UNIT_BYTES;
    const uint32_t end = group_at(m, begin + UNIT_BYTES);
    for (uint32_t g = group_at(m, begin); g < end; g++)
        repack_group(m, g, m->file.data + g * repack_file_bytes(m));
}

void load_from_memory(struct thread_pool *pool, const struct cpu_matrix *matrix)
{
    for (uint32_t i = 0; i < matrix->file.n_matrices; i++) {
        struct cpu_matrix m = repack_part(matrix, i, 0);
        const size_t bytes = (size_t)(m.packed + repack_bytes(&m) - first_unit(&m));
        pool_run(pool, pack_unit, &m, (uint32_t)((bytes + UNIT_BYTES - 1) / UNIT_BYTES));
    }
}
