/* The CPU backend's table: opens an instance (choice of instruction set, repacking, memory) and
 * forwards passes to pass.c. */
#include "kernels/contract.h"
#include "kernels/base/arena.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/experts.h"
#include "kernels/base/pool.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/shadow.h"
#include "kernels/cpu/weights.h"
#include "kernels/base/fail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { SYSTEM_PAGE = 4096 };

/* Best first. */
static const struct cpu_isa *const isas[] = {
#if defined(__x86_64__)
    &cpu_isa_avx512,
    &cpu_isa_avxvnni,
    &cpu_isa_avx2,
#endif
    &cpu_isa_ref,
};

static int cpu_probe(char *err, size_t err_bytes)
{
    (void)err, (void)err_bytes;
    return 0;
}

int cpu_choose_isa(const char *name, const struct cpu_isa **ret, char *err, size_t err_bytes)
{
    for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
        if (name && strcmp(name, isas[i]->name) != 0)
            continue;
        if (isas[i]->usable()) {
            *ret = isas[i];
            return 0;
        }
    }
    return fail(err, err_bytes, -ENOTSUP, "this processor cannot run the instruction set \"%s\"",
                name);
}

static uint64_t cpu_added_bytes(const struct model *model, const struct backend_limits *limits)
{
    const struct cpu_isa *isa = NULL;
    char line[128]; /* open says it */
    return cpu_choose_isa(limits->isa, &isa, line, sizeof(line))
               ? 0
               : weights_added_bytes(model, isa->packed);
}

static int load_rope(struct backend *b)
{
    const struct model *m = b->model;
    for (uint32_t i = 0; i < m->n_ropes; i++) {
        const size_t floats = rope_table_floats(&m->ropes[i], b->limits.context);
        b->rope[i] = arena_alloc(b->arena, floats * sizeof(float));
        if (!b->rope[i])
            return -ENOMEM;
        b->weight_bytes += floats * sizeof(float);
        rope_build(b->rope[i], &m->ropes[i], b->limits.context);
    }
    const uint32_t n = rope_query_factors_n(m, b->limits.context);
    if (n == 0)
        return 0;
    b->query_factors = arena_alloc(b->arena, n * sizeof(float));
    if (!b->query_factors)
        return -ENOMEM;
    b->weight_bytes += n * sizeof(float);
    rope_query_factors(b->query_factors, m, b->limits.context);
    return 0;
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* Returns zeroed memory for count items; sets *failed instead of returning NULL to every caller. */
static void *scratch(struct backend *b, size_t count, size_t bytes, bool *failed)
{
    void *memory = arena_alloc(b->arena, count * bytes);
    *failed |= !memory;
    b->scratch_bytes += count * bytes;
    return memory;
}

/* Rows of a buffer. */
static size_t buffer_rows(const struct backend *b, enum op_buffer buffer)
{
    return buffer == BUFFER_LOGITS ? b->limits.samples
                                   : layer_ops_rows(&b->model->ops, buffer, b->limits.rows);
}

/* [rows][width], unless the caller brings it, and where a matmul reads it the same as blocks. Strides
 * are whole blocks of 32, so whole groups of a matrix, too. */
void cpu_buffer_scratch(struct backend *b, enum op_buffer buffer, bool *failed)
{
    const struct layer_ops *ops = &b->model->ops;
    struct cpu_input *x = &b->buffers.of[buffer];
    const size_t rows = buffer_rows(b, buffer);
    x->stride = (ops->width[buffer] + CPU_BLOCK - 1) / CPU_BLOCK * CPU_BLOCK;
    if (!x->f)
        x->f = scratch(b, rows * x->stride, sizeof(float), failed);
    if (!ops->input[buffer])
        return;
    x->q = scratch(b, rows * x->stride, 1, failed);
    x->d = scratch(b, rows * x->stride / CPU_BLOCK, sizeof(float), failed);
    x->sum = scratch(b, rows * x->stride / CPU_BLOCK, sizeof(int32_t), failed);
}

void cpu_experts_scratch(struct backend *b, bool *failed)
{
    struct cpu_experts *x = &b->buffers.experts;
    const struct layer_ops *ops = &b->model->ops;
    const size_t pairs = (size_t)b->limits.rows * ops->n_expert_used;
    if (ops->n_expert == 0)
        return;
    if (!x->chosen) /* the caller may bring these */
        x->chosen = scratch(b, pairs, sizeof(uint32_t), failed);
    if (!x->weight)
        x->weight = scratch(b, pairs, sizeof(float), failed);
    x->active = scratch(b, ops->n_expert, sizeof(uint32_t), failed);
    x->first = scratch(b, ops->n_expert + 1, sizeof(uint32_t), failed);
    x->pair_row = scratch(b, pairs, sizeof(uint32_t), failed);
    x->pair_weight = scratch(b, pairs, sizeof(float), failed);
    x->scratch = scratch(b, (size_t)b->limits.threads * EXPERTS_SCRATCH, sizeof(float), failed);
}

static void states_scratch(struct backend *b, bool *failed)
{
    struct cpu_states *x = &b->states;
    const size_t rows = b->limits.rows;
    if (b->model->n_recurrent == 0)
        return;
    for (uint32_t i = 0; i < x->geometry.n_layer; i++)
        x->block = x->geometry.layer[i].block > x->block ? x->geometry.layer[i].block : x->block;
    x->first = scratch(b, rows, sizeof(uint32_t), failed);
    x->last = scratch(b, rows, sizeof(uint32_t), failed);
    x->rows = scratch(b, rows, sizeof(uint32_t), failed);
    x->before = scratch(b, rows, sizeof(uint32_t), failed);
    x->after = scratch(b, rows, sizeof(uint32_t), failed);
    const uint32_t *width = b->model->ops.width;
    x->zero = scratch(b, width[BUFFER_MIXED] + width[BUFFER_HIDDEN], sizeof(float), failed);
    x->scratch = scratch(b, b->limits.threads * x->block, sizeof(float), failed);
}

static void row_scratch(struct backend *b, bool *failed)
{
    struct cpu_buffers *u = &b->buffers;
    const struct layer_ops *ops = &b->model->ops;
    const size_t rows = b->limits.rows;
    for (int i = 0; i < N_BUFFERS; i++)
        if (ops->width[i] > 0)
            cpu_buffer_scratch(b, i, failed);
    for (uint32_t i = 0; i < b->model->n_ropes; i++) {
        u->cs[i] = scratch(b, rows * b->model->ropes[i].n, sizeof(float), failed);
        u->sn[i] = scratch(b, rows * b->model->ropes[i].n, sizeof(float), failed);
    }
}

static void set_ones(struct backend *b, bool *failed)
{
    float *ones = scratch(b, CPU_MAX_HEAD, sizeof(float), failed);
    for (uint32_t i = 0; ones && i < CPU_MAX_HEAD; i++)
        ones[i] = 1.0f;
    b->ones = ones;
}

static int open_scratch(struct backend *b)
{
    struct cpu_buffers *u = &b->buffers;
    size_t rows = b->limits.rows, threads = b->limits.threads;
    bool failed = false;
    set_ones(b, &failed);
    row_scratch(b, &failed);
    cpu_experts_scratch(b, &failed);
    states_scratch(b, &failed);
    u->bad = scratch(b, rows, 1, &failed);
    u->poisoned = scratch(b, rows, sizeof(uint32_t), &failed);
    u->first_poisoned = scratch(b, rows, sizeof(uint32_t), &failed);
    u->next_position = scratch(b, rows, sizeof(uint32_t), &failed);
    u->wanted = scratch(b, b->limits.samples, sizeof(uint32_t), &failed);
    u->tile = scratch(b, rows + 1, sizeof(uint32_t), &failed);
    u->attend_scratch = scratch(b, threads * CPU_ATTEND_SCRATCH, sizeof(float), &failed);
    u->partials = scratch(b, attention_partial_floats(b), sizeof(float), &failed);
    u->sample = scratch(b, threads, sizeof(struct sampler_scratch *), &failed);
    if (failed)
        return -ENOMEM;
    for (size_t i = 0; i < threads; i++) {
        int rc = sampler_scratch_open(b->model->n_vocab, &u->sample[i]);
        if (rc)
            return rc;
        b->scratch_bytes += (size_t)b->model->n_vocab * 36;
    }
    return 0;
}

/* KV and states are reserved in full and committed by the first write to a page or a state; unused
 * ones cost nothing. A read may run up to one vector past a V row of the last page: 64 bytes more. */
static int reserve(uint32_t n, size_t bytes, uint8_t **ret, size_t *ret_reserved)
{
    if (bytes > (SIZE_MAX / 2) / n)
        return -ENOMEM;
    *ret_reserved = n * bytes + 64;
    void *memory = mmap(NULL, *ret_reserved, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -ENOMEM;
    *ret = memory;
    return 0;
}

static int reserve_pages(struct backend *b, enum page_class class, uint32_t pages)
{
    return reserve(pages, b->kv.page_bytes[class], &b->kv_memory[class], &b->kv_reserved[class]);
}

static int open_states(struct backend *b)
{
    struct cpu_states *x = &b->states;
    state_geometry_init(&x->geometry, b->model);
    if (b->model->n_recurrent == 0)
        return 0;
    const int rc =
        reserve(b->limits.states, x->geometry.state_bytes, &x->memory, &x->memory_reserved);
    return rc ? rc
              : reserve(b->limits.states, x->geometry.record_bytes, &x->records,
                        &x->records_reserved);
}

static int open_kv(struct backend *b)
{
    const uint32_t window_pages = b->limits.window_pages;
    kv_geometry_init(&b->kv, b->model, b->limits.kv_q8_0, window_pages > 0);
    const int rc = reserve_pages(b, PAGES_FULL, b->limits.pages);
    return rc || window_pages == 0 ? rc : reserve_pages(b, PAGES_WINDOW, window_pages);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void cpu_close(struct backend *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; b->buffers.sample && i < b->limits.threads; i++)
        sampler_scratch_close(b->buffers.sample[i]);
    for (int c = 0; c < PAGE_CLASSES; c++)
        if (b->kv_memory[c])
            munmap(b->kv_memory[c], b->kv_reserved[c]);
    if (b->states.memory)
        munmap(b->states.memory, b->states.memory_reserved);
    if (b->states.records)
        munmap(b->states.records, b->states.records_reserved);
    pool_close(b->pool);
    arena_close(b->arena);
    free(b);
}

static int open_parts(struct backend *b, char *err, size_t err_bytes)
{
    int rc = pool_open(b->limits.threads, &b->pool);
    if (rc)
        return fail(err, err_bytes, rc, "cannot start %u threads: %s", b->limits.threads,
                    strerror(-rc));
    b->arena = arena_open();
    rc = b->arena ? open_kv(b) : -ENOMEM;
    if (rc)
        return fail(err, err_bytes, rc,
                    "no memory for %u KV pages of %zu bytes: lower kv-bytes, slots or context",
                    b->limits.pages, b->kv.page_bytes[PAGES_FULL]);
    rc = open_states(b);
    if (rc)
        return fail(err, err_bytes, rc, "no memory for %u states of %zu bytes", b->limits.states,
                    b->states.geometry.state_bytes);
    rc = weights_load(b);
    if (!rc)
        rc = load_rope(b);
    if (!rc)
        rc = open_scratch(b);
    if (rc == -ENOMEM)
        return fail(err, err_bytes, rc, "no memory for the weights and %u rows a pass",
                    b->limits.rows);
    if (rc == -EINVAL)
        return fail(err, err_bytes, rc, "the weights have %zu bytes, those given %zu",
                    b->image_bytes, b->limits.image_bytes);
    if (rc)
        return fail(err, err_bytes, rc, "cannot read the model's file: %s", strerror(-rc));
    return b->limits.shadow ? shadow_load(b, err, err_bytes) : 0;
}

static int cpu_open(const struct model *model, const struct backend_limits *limits,
                    struct backend **ret_backend, char *err, size_t err_bytes)
{
    const struct cpu_isa *isa = NULL;
    int rc = contract_check_limits(limits, model, err, err_bytes);
    if (!rc)
        rc = cpu_choose_isa(limits->isa, &isa, err, err_bytes);
    if (!rc && limits->native)
        rc = fail(err, err_bytes, -ENOTSUP,
                  "the CPU has no native numerics: use --numerics portable, or --device cuda");
    if (rc)
        return rc;
    struct backend *b = calloc(1, sizeof(*b));
    if (!b)
        return fail(err, err_bytes, -ENOMEM, "no memory");
    b->model = model;
    b->limits = *limits;
    b->limits.isa = NULL; /* the caller's text */
    b->isa = isa;
    rc = open_parts(b, err, err_bytes);
    if (rc) {
        cpu_close(b);
        return rc;
    }
    *ret_backend = b;
    return 0;
}

/* The CPU has nothing to overlap with: start does the pass, finish has nothing left to wait for. */
static int cpu_start(struct backend *b, const struct pass *pass)
{
    int rc = contract_check_pass(pass, &b->limits, b->model, b->buffers.next_position, b->error,
                                 sizeof(b->error));
    if (rc)
        return rc;
    cpu_pass_run(b, pass);
    return 0;
}

static int cpu_finish(struct backend *b)
{
    (void)b;
    return 0;
}

/* The system's pages that are wholly part i of a memory go back. */
static void release(uint8_t *memory, uint32_t i, size_t bytes)
{
    const uintptr_t begin = (uintptr_t)(memory + i * bytes);
    uintptr_t first = (begin + SYSTEM_PAGE - 1) / SYSTEM_PAGE * SYSTEM_PAGE;
    uintptr_t last = (begin + bytes) / SYSTEM_PAGE * SYSTEM_PAGE;
    if (first < last)
        madvise(memory + (first - (uintptr_t)memory), last - first, MADV_DONTNEED);
}

static void cpu_release_page(struct backend *b, enum page_class class, uint32_t page)
{
    release(b->kv_memory[class], page, b->kv.page_bytes[class]);
}

static void cpu_release_state(struct backend *b, uint32_t state)
{
    release(b->states.memory, state, b->states.geometry.state_bytes);
    release(b->states.records, state, b->states.geometry.record_bytes);
}

/* Where a page or a state is; *ret_bytes: its size. */
static uint8_t *memory_of(const struct backend *b, enum copy_class class, uint32_t id,
                          size_t *ret_bytes)
{
    const bool state = class == COPY_STATE;
    *ret_bytes = state ? b->states.geometry.state_bytes : b->kv.page_bytes[class];
    return (state ? b->states.memory : b->kv_memory[class]) + id * *ret_bytes;
}

static int cpu_read_page(struct backend *b, enum copy_class class, uint32_t id, uint32_t positions,
                         void *ret)
{
    size_t bytes;
    const uint8_t *memory = memory_of(b, class, id, &bytes);
    memcpy(ret, memory, bytes);
    if (class != COPY_STATE)
        kv_clear(&b->kv, (enum page_class) class, ret, positions);
    return 0;
}

/* The system gives all of the memory at once: a fault for each of its pages costs more than the copy. What
 * was there stays. For speed only: failure (Linux before 5.14) is harmless. */
static void commit(uint8_t *memory, size_t bytes)
{
    const size_t before = (uintptr_t)memory % SYSTEM_PAGE;
    madvise(memory - before, before + bytes, MADV_POPULATE_WRITE);
}

static void *cpu_page_memory(struct backend *b, enum copy_class class, uint32_t id)
{
    size_t bytes;
    uint8_t *memory = memory_of(b, class, id, &bytes);
    commit(memory, bytes);
    return memory;
}

static int cpu_write_page(struct backend *b, enum copy_class class, uint32_t id, const void *from)
{
    size_t bytes;
    uint8_t *memory = memory_of(b, class, id, &bytes);
    commit(memory, bytes);
    memcpy(memory, from, bytes);
    return 0;
}

static void cpu_describe(const struct backend *b, struct backend_info *ret_info)
{
    *ret_info = (struct backend_info){
        .name = "cpu",
        .isa = b->isa->name,
        .numerics = model_numerics_id(b->model, b->limits.kv_q8_0),
        .threads = b->limits.threads,
        .fast = b->limits.shadow ? BACKEND_FAST_SHADOW : BACKEND_FAST_NONE,
        .weight_bytes = b->weight_bytes,
        .shadow_bytes = b->shadow_bytes,
        .scratch_bytes = b->scratch_bytes,
        .image = b->isa->packed ? b->image : NULL,
        .image_bytes = b->image_bytes,
        .expert_bytes = b->buffers.experts.read_bytes,
        .page_bytes = b->kv.page_bytes[PAGES_FULL],
        .window_page_bytes = b->kv.page_bytes[PAGES_WINDOW],
        .kv_bytes = kv_bytes(&b->kv, &b->limits),
        .state_bytes = b->states.geometry.state_bytes,
        .record_bytes = b->states.geometry.record_bytes,
        .mtp = b->model->mtp != NULL,
    };
}

static const char *cpu_error(const struct backend *b)
{
    return b->error;
}

const struct backend_ops backend_cpu = {
    .name = "cpu",
    .layout = "cpu-2", /* repack.h, weights.c */
    .probe = cpu_probe,
    .added_bytes = cpu_added_bytes,
    .open = cpu_open,
    .start = cpu_start,
    .finish = cpu_finish,
    .release_page = cpu_release_page,
    .release_state = cpu_release_state,
    .read_page = cpu_read_page,
    .write_page = cpu_write_page,
    .page_memory = cpu_page_memory,
    .describe = cpu_describe,
    .error = cpu_error,
    .close = cpu_close,
};
