/* The CPU backend's table: opens an instance (choice of instruction set, repacking, memory) and
 * forwards passes to pass.c. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/contract.h"
#include "kernels/base/arena.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/base/pool.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/shadow.h"
#include "kernels/cpu/weights.h"
#include "kernels/base/fail.h"

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

static int choose_isa(const char *name, const struct cpu_isa **ret, char *err, size_t err_bytes)
{
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
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

static float *rope_memory(struct backend *b)
{
    size_t floats = rope_table_floats(b->model->rope_dim, b->limits.context);
    b->weight_bytes += floats * sizeof(float);
    return arena_alloc(b->arena, floats * sizeof(float));
}

static int load_rope(struct backend *b)
{
    const struct model *m = b->model;
    const float *divisors = (const float *)(const void *)m->global[MODEL_ROPE_FREQS].data;
    uint32_t n = m->rope_dim, context = b->limits.context;
    b->rope[false] = rope_memory(b);
    if (!b->rope[false])
        return -ENOMEM;
    rope_build(b->rope[false], n, context, m->rope_base, m->rope_scale, divisors);
    if (m->local_period == 0)
        return 0;
    b->rope[true] = rope_memory(b);
    if (!b->rope[true])
        return -ENOMEM;
    rope_build(b->rope[true], n, context, m->local_rope_base, 1.0f, NULL);
    return 0;
}

/* ---- scratch ----------------------------------------------------------------------------------
 */

/* Returns zeroed memory for count items; sets *failed instead of returning NULL to every caller. */
static void *scratch(struct backend *b, size_t count, size_t bytes, bool *failed)
{
    void *memory = arena_alloc(b->arena, count * bytes);
    *failed |= !memory;
    b->scratch_bytes += count * bytes;
    return memory;
}

static void input_scratch(struct backend *b, struct cpu_input *x, size_t rows, uint32_t stride,
                          bool *failed)
{
    /* Blocks of 32 may not divide a stride padded to 16. */
    stride = (stride + CPU_BLOCK - 1) / CPU_BLOCK * CPU_BLOCK;
    x->stride = stride;
    x->f = scratch(b, rows * stride, sizeof(float), failed);
    x->q = scratch(b, rows * stride, 1, failed);
    x->d = scratch(b, rows * stride / CPU_BLOCK, sizeof(float), failed);
    x->sum = scratch(b, rows * stride / CPU_BLOCK, sizeof(int32_t), failed);
}

static uint32_t padded(uint32_t n)
{
    return (n + CPU_BLOCK - 1) / CPU_BLOCK * CPU_BLOCK;
}

static void row_scratch(struct backend *b, bool *failed)
{
    struct cpu_buffers *u = &b->buffers;
    const struct model *m = b->model;
    size_t rows = b->limits.rows, samples = b->limits.samples;
    u->embd = padded(m->n_embd);
    u->heads = padded(m->n_head * m->head_dim);
    u->heads_kv = padded(m->n_head_kv * m->head_dim);
    u->ff = padded(m->n_ff);
    u->vocab = padded(m->n_vocab);
    u->x = scratch(b, rows * u->embd, sizeof(float), failed);
    u->h = scratch(b, rows * u->embd, sizeof(float), failed);
    u->q = scratch(b, rows * u->heads, sizeof(float), failed);
    u->k = scratch(b, rows * u->heads_kv, sizeof(float), failed);
    u->v = scratch(b, rows * u->heads_kv, sizeof(float), failed);
    u->up = scratch(b, rows * u->ff, sizeof(float), failed);
    u->logits = scratch(b, samples * u->vocab, sizeof(float), failed);
    for (int local = 0; local < 2 && b->rope[local]; local++) {
        u->cs[local] = scratch(b, rows * m->rope_dim, sizeof(float), failed);
        u->sn[local] = scratch(b, rows * m->rope_dim, sizeof(float), failed);
    }
    input_scratch(b, &u->norm, rows, u->embd, failed);
    input_scratch(b, &u->attention, rows, u->heads, failed);
    input_scratch(b, &u->ffn, rows, u->ff, failed);
    u->gate = u->ffn.f; /* silu(gate) * up goes where gate was */
    input_scratch(b, &u->head, samples, u->embd, failed);
}

static int open_scratch(struct backend *b)
{
    struct cpu_buffers *u = &b->buffers;
    size_t rows = b->limits.rows, threads = b->limits.threads;
    bool failed = false;
    row_scratch(b, &failed);
    u->bad = scratch(b, rows, 1, &failed);
    u->poisoned = scratch(b, rows, sizeof(uint32_t), &failed);
    u->first_poisoned = scratch(b, rows, sizeof(uint32_t), &failed);
    u->next_position = scratch(b, rows, sizeof(uint32_t), &failed);
    u->wanted = scratch(b, b->limits.samples, sizeof(uint32_t), &failed);
    u->tile = scratch(b, rows + 1, sizeof(uint32_t), &failed);
    u->attend_scratch = scratch(b, threads * CPU_ATTEND_SCRATCH, sizeof(float), &failed);
    u->parts = scratch(b, attention_parts_floats(b), sizeof(float), &failed);
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

/* KV is reserved in full and committed by the first write to a page; what nobody uses costs
 * nothing. A read may run up to one vector past a V row of the last page: 64 bytes more. */
static int open_kv(struct backend *b)
{
    kv_geometry_init(&b->kv, b->model, b->limits.kv_q8_0);
    b->kv_reserved = b->limits.pages * b->kv.page_bytes + 64;
    if (b->kv.page_bytes > (SIZE_MAX / 2) / b->limits.pages)
        return -ENOMEM;
    void *memory = mmap(NULL, b->kv_reserved, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -ENOMEM;
    b->kv_memory = memory;
    return 0;
}

/* ---- the table --------------------------------------------------------------------------------
 */

static void cpu_close(struct backend *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; b->buffers.sample && i < b->limits.threads; i++)
        sampler_scratch_close(b->buffers.sample[i]);
    if (b->kv_memory)
        munmap(b->kv_memory, b->kv_reserved);
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
                    b->limits.pages, b->kv.page_bytes);
    rc = weights_load(b);
    if (!rc)
        rc = load_rope(b);
    if (!rc)
        rc = open_scratch(b);
    if (rc == -ENOMEM)
        return fail(err, err_bytes, rc, "no memory for the weights and %u rows a pass",
                    b->limits.rows);
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
        rc = choose_isa(limits->isa, &isa, err, err_bytes);
    if (!rc && limits->native)
        rc = fail(err, err_bytes, -ENOTSUP,
                  "the CPU has no native numerics: use --numerics portable, or --device cuda");
    if (rc)
        return rc;
    struct backend *b = calloc(1, sizeof *b);
    if (!b)
        return fail(err, err_bytes, -ENOMEM, "no memory");
    b->model = model;
    b->limits = *limits;
    b->limits.isa = NULL; /* the caller's text */
    b->isa = isa;
    b->scale = 1.0f / sqrtf((float)model->score_divisor);
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
                                 sizeof b->error);
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

static void cpu_release_page(struct backend *b, uint32_t page)
{
    const uintptr_t unit = 4096;
    uintptr_t begin = (uintptr_t)(b->kv_memory + page * b->kv.page_bytes);
    uintptr_t first = (begin + unit - 1) / unit * unit;
    uintptr_t last = (begin + b->kv.page_bytes) / unit * unit;
    if (first < last)
        madvise(b->kv_memory + (first - (uintptr_t)b->kv_memory), last - first, MADV_DONTNEED);
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
        .page_bytes = b->kv.page_bytes,
        .kv_bytes = b->limits.pages * b->kv.page_bytes,
    };
}

static const char *cpu_error(const struct backend *b)
{
    return b->error;
}

const struct backend_ops backend_cpu = {
    .name = "cpu",
    .probe = cpu_probe,
    .open = cpu_open,
    .start = cpu_start,
    .finish = cpu_finish,
    .release_page = cpu_release_page,
    .describe = cpu_describe,
    .error = cpu_error,
    .close = cpu_close,
};
