/* The CUDA backend's table: opens an instance (memory counted, then taken; weights copied) and forwards passes. */
#include "kernels/cuda/backend_cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/contract.h"
#include "kernels/base/pool.h"
#include "kernels/cuda/launch.h"
#include "kernels/plugin.h"
#include "kernels/base/fail.h"

bool cuda_ok(struct backend *b, int code, const char *what)
{
    if (code == cudaSuccess || b->broken)
        return !b->broken;
    b->broken = true;
    b->code = code;
    b->where = what;
    fail(b->error, sizeof(b->error), 0, "the GPU failed in %s: %s", what,
         cudaGetErrorString((cudaError_t)code));
    return false;
}

int cuda_open_failed(const struct backend *b, char *err, size_t err_bytes)
{
    switch (b->code) {
    case cudaErrorMemoryAllocation:
        return fail(err, err_bytes, -ENOMEM,
                    "the GPU has too little memory for what its kernels need beside weights and KV "
                    "(in %s): lower kv-bytes, slots or context, or use --device cpu",
                    b->where);
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
        return fail(
            err, err_bytes, -EIO,
            "hearth-cuda.so has no code that this GPU (%s) and its driver can run: build it "
            "with make CUDA_ARCHS=%s, or use --device cpu",
            b->name, b->name + 3);
    default:
        return fail(err, err_bytes, -EIO, "the GPU cannot be used: it failed in %s: %s", b->where,
                    cudaGetErrorString((cudaError_t)b->code));
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static float *floats(struct backend *b, size_t count)
{
    return cuda_take(&b->scratch_memory, count * sizeof(float));
}

/* [rows][width]; where a matmul reads it, in all forms that one may need. */
static void place_buffer(struct backend *b, struct cuda_input *x, size_t rows, uint32_t width,
                         bool input)
{
    /* Rows that do not exist are read with the others of the largest tile. */
    const size_t most = (size_t)CUDA_TILE * CUDA_MAX_TILES, tiled = (rows + most - 1) / most * most;
    x->stride = cuda_padded(width);
    x->f = floats(b, (input ? tiled : rows) * x->stride);
    if (!input)
        return;
    x->q = cuda_take(&b->scratch_memory, tiled * x->stride);
    x->scale = cuda_take(&b->scratch_memory, tiled * (x->stride / CUDA_BLOCK) * sizeof(*x->scale));
    for (int i = 0; i < 2 && (b->native || b->fast); i++)
        x->half[i] = cuda_take(&b->scratch_memory, tiled * x->stride * sizeof(*x->half[i]));
}

/* Rows of a buffer. */
static size_t buffer_rows(const struct backend *b, enum op_buffer buffer)
{
    return buffer == BUFFER_LOGITS ? b->limits.samples
                                   : layer_ops_rows(&b->model->ops, buffer, b->limits.rows);
}

static void place_experts(struct backend *b)
{
    const struct layer_ops *ops = &b->model->ops;
    const size_t rows = b->limits.rows, pairs = rows * ops->n_expert_used;
    struct cuda_experts *x = &b->buffers.experts;
    if (ops->n_expert == 0)
        return;
    *x = (struct cuda_experts){.n_expert = ops->n_expert, .n_used = ops->n_expert_used};
    x->chosen = cuda_take(&b->scratch_memory, pairs * sizeof(*x->chosen));
    x->weight = floats(b, pairs);
    x->pair = cuda_take(&b->scratch_memory, pairs * sizeof(*x->pair));
    x->pair_row = cuda_take(&b->scratch_memory, pairs * sizeof(*x->pair_row));
    x->runs = cuda_take(&b->scratch_memory,
                        expert_runs(*x, b->limits.rows, CUDA_TILE) * sizeof(*x->runs));
    x->n_runs = cuda_take(&b->scratch_memory, sizeof(*x->n_runs));
    x->routed = cuda_take(&b->scratch_memory, sizeof(*x->routed));
    b->buffers.expert_y = floats(b, pairs * b->buffers.of[BUFFER_X].stride);
}

static void place_scratch(struct backend *b)
{
    struct cuda_buffers *u = &b->buffers;
    const struct model *m = b->model;
    const struct layer_ops *ops = &m->ops;
    const size_t rows = b->limits.rows, samples = b->limits.samples, parts = cuda_most_parts(b);
    for (int i = 0; i < N_BUFFERS; i++)
        if (ops->width[i] > 0 && i != BUFFER_UP)
            place_buffer(b, &u->of[i], buffer_rows(b, i), ops->width[i], ops->input[i]);
    place_experts(b);
    const size_t logits = samples * u->of[BUFFER_LOGITS].stride;
    u->part_ml = floats(b, parts * m->n_head * 2);
    u->part_o = floats(b, parts * ops->width[BUFFER_ATTENTION]);
    u->work = floats(b, logits);
    u->ids = cuda_take(&b->scratch_memory, logits * sizeof(*u->ids));
    u->blocks = floats(b, samples * sample_blocks(m->n_vocab));
    u->raw_blocks = floats(b, samples * sample_blocks(m->n_vocab));
    u->parts =
        cuda_take(&b->scratch_memory, samples * sample_parts(m->n_vocab) * sizeof(*u->parts));
    b->upload.device = cuda_take(&b->scratch_memory, cuda_upload_bytes(b));
    b->upload.to.bad = cuda_take(&b->scratch_memory, rows * sizeof(*b->upload.to.bad));
    b->upload.to.mark = cuda_take(&b->scratch_memory, rows * sizeof(*b->upload.to.mark));
    cuda_blas_place(b);
}

_Static_assert((int)CUDA_PAGE_CLASSES == (int)PAGE_CLASSES && (int)CUDA_PAGES == (int)COPY_PAGE &&
                   (int)CUDA_WINDOW_PAGES == (int)COPY_WINDOW_PAGE &&
                   (int)CUDA_STATES == (int)COPY_STATE,
               "the classes of kernels/backend.h");
_Static_assert((int)CUDA_KV_F16 == (int)KV_F16 && (int)CUDA_KV_F32 == (int)KV_F32 &&
                   (int)CUDA_KV_Q8_0 == (int)KV_Q8_0 && (int)CUDA_BLOCK == (int)KV_BLOCK,
               "the KV of kernels/kv.h");

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static struct cuda_most most_of(const struct model *m)
{
    struct cuda_most most = {0};
    for (uint32_t i = 0; i < m->n_layer + (m->mtp != NULL); i++) {
        const struct layer_geometry *g =
            i < m->n_layer ? &m->layers[i].geometry : &m->mtp->layer.geometry;
        most.share = larger(most.share, g->n_head / g->n_head_kv);
        most.head_dim = larger(most.head_dim, larger(g->k_dim, g->v_dim));
    }
    return most;
}

/* How many parts an array of the instance has, and their size. */
static uint32_t parts_of(const struct backend *b, enum cuda_array array, size_t *ret_bytes)
{
    const uint32_t states = b->model->n_recurrent > 0 ? b->limits.states : 0;
    const size_t bytes[] = {b->geometry.page_bytes[PAGES_FULL],
                            b->geometry.page_bytes[PAGES_WINDOW], b->state_geometry.state_bytes,
                            b->state_geometry.record_bytes};
    const uint32_t n[] = {b->limits.pages, b->limits.window_pages, states, states};
    *ret_bytes = bytes[array];
    return n[array];
}

static size_t count_arrays(const struct backend *b)
{
    size_t sum = 0;
    for (int i = 0; i < CUDA_ARRAYS; i++) {
        size_t bytes;
        const uint32_t n = parts_of(b, i, &bytes);
        sum += cuda_reserved_bytes(&b->vm, n, bytes);
    }
    return sum;
}

static int open_arrays(struct backend *b)
{
    int code = cudaSuccess;
    for (int i = 0; i < CUDA_ARRAYS && code == cudaSuccess; i++) {
        size_t bytes;
        const uint32_t n = parts_of(b, i, &bytes);
        code = cuda_reserved_open(&b->array[i], &b->vm, n, bytes);
    }
    return code;
}

static void place_all(struct backend *b)
{
    cuda_place_weights(b);
    place_scratch(b);
}

static size_t count_memory(struct backend *b)
{
    b->weight_memory.used = b->scratch_memory.used = 0;
    memset(b->weights.layers, 0, cuda_layers(b->model) * sizeof(*b->weights.layers));
    place_all(b);
    return b->weight_memory.used + b->scratch_memory.used + b->stack_bytes + count_arrays(b);
}

/* Experts go to the CPU, those of the last layer first, until the rest fits `most` bytes; with room for graphs and code where
 * that is all there is. Returns what it takes. */
static size_t cut_to_fit(struct backend *b, size_t most, bool all)
{
    enum { GRAPHS = 32 }; /* a part of it */
    size_t bytes = count_memory(b);
    if (bytes <= most || b->model->ops.n_expert == 0)
        return bytes;
    most -= all ? most / GRAPHS : 0;
    while (bytes > most && b->cut.first_layer > 0) {
        b->cut.first_layer--;
        bytes = count_memory(b);
    }
    return bytes;
}

/* Counts, and says in one line when it is too much. */
static int find_room(struct backend *b, char *err, size_t err_bytes)
{
    size_t free_bytes = 0, total = 0;
    const cudaError_t code = cudaMemGetInfo(&free_bytes, &total);
    if (code != cudaSuccess)
        return fail(err, err_bytes, -EIO, "the GPU cannot be used: %s", cudaGetErrorString(code));
    const bool all = b->limits.gpu_bytes == 0 || b->limits.gpu_bytes > free_bytes;
    const size_t most = all ? free_bytes : b->limits.gpu_bytes, bytes = cut_to_fit(b, most, all),
                 weights = b->weight_memory.used, kv = count_arrays(b);
    if (bytes <= most)
        return 0;
    return fail(err, err_bytes, -ENOMEM,
                "the GPU has %zu MiB free%s, %zu are needed (weights %zu, KV%s %zu, the rest %zu): "
                "lower kv-bytes, slots or "
                "context, or use --device cpu",
                most >> 20, all ? "" : " (gpu-bytes)", bytes >> 20, weights >> 20,
                b->model->n_recurrent > 0 ? " and states" : "", kv >> 20,
                (bytes - weights - kv) >> 20);
}

/* Memory of the host that the device writes: both addresses. */
static int map(size_t bytes, void *ret_here, void *ret_there)
{
    void **here = ret_here;
    const cudaError_t code = cudaHostAlloc(here, bytes, cudaHostAllocMapped);
    return code == cudaSuccess ? (int)cudaHostGetDevicePointer(ret_there, *here, 0) : (int)code;
}

static int map_results(struct backend *b)
{
    struct cuda_results *here = &b->results, *there = &b->results_device;
    const size_t rows = b->limits.rows, samples = b->limits.samples;
    if (map(sizeof(*here->done), &here->done, &there->done) != cudaSuccess ||
        map(rows * sizeof(*here->bad), &here->bad, &there->bad) != cudaSuccess ||
        map(samples * sizeof(*here->samples), &here->samples, &there->samples) != cudaSuccess ||
        cudaEventCreateWithFlags(&b->ended, cudaEventBlockingSync | cudaEventDisableTiming) !=
            cudaSuccess)
        return -ENOMEM;
    *here->done = 0;
    return 0;
}

/* Pinned host memory, and what the host needs beside it. */
static int open_host(struct backend *b)
{
    const size_t rows = b->limits.rows, samples = b->limits.samples;
    b->sample = calloc(b->limits.threads, sizeof(*b->sample));
    int rc = b->sample ? pool_open(b->limits.threads, &b->pool) : -ENOMEM;
    for (uint32_t i = 0; i < b->limits.threads && !rc; i++)
        rc = sampler_scratch_open(b->model->n_vocab, &b->sample[i]);
    b->next_position = calloc(rows, sizeof(*b->next_position));
    b->first_bad = calloc(rows, sizeof(*b->first_bad));
    b->places = calloc(rows, sizeof(*b->places));
    if (rc || !b->next_position || !b->first_bad || !b->places)
        return -ENOMEM;
    if (cudaMallocHost((void **)&b->upload.host, cuda_upload_bytes(b)) != cudaSuccess ||
        cudaMallocHost((void **)&b->logits, samples * b->model->n_vocab * sizeof(*b->logits)) !=
            cudaSuccess)
        return -ENOMEM;
    return map_results(b);
}

static int take_memory(struct backend *b, char *err, size_t err_bytes)
{
    int code = cuda_arena_open(&b->weight_memory);
    code = code == cudaSuccess ? cuda_arena_open(&b->scratch_memory) : code;
    code = code == cudaSuccess ? open_arrays(b) : code;
    if (code != cudaSuccess)
        return fail(err, err_bytes, -ENOMEM, "no memory on the GPU: %s",
                    cudaGetErrorString((cudaError_t)code));
    place_all(b);
    if (open_host(b))
        return fail(err, err_bytes, -ENOMEM,
                    "no pinned memory for %u rows a pass, or no %u threads", b->limits.rows,
                    b->limits.threads);
    cuda_place_upload(b);
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void cuda_close(struct backend *b)
{
    if (!b)
        return;
    cuda_graph_close(b);
    cuda_blas_close(b);
    cuda_cut_close(b);
    if (b->queue.stream)
        cudaStreamDestroy(b->queue.stream);
    cuda_arena_close(&b->weight_memory);
    cuda_arena_close(&b->scratch_memory);
    for (int i = 0; i < CUDA_ARRAYS; i++)
        cuda_reserved_close(&b->array[i]);
    cudaFreeHost(b->upload.host);
    cudaFreeHost(b->logits);
    cudaFreeHost(b->results.done);
    cudaFreeHost(b->results.bad);
    cudaFreeHost(b->results.samples);
    if (b->ended)
        cudaEventDestroy(b->ended);
    for (uint32_t i = 0; b->sample && i < b->limits.threads; i++)
        sampler_scratch_close(b->sample[i]);
    free(b->sample);
    pool_close(b->pool);
    free(b->next_position);
    free(b->first_bad);
    free(b->places);
    free(b->weights.layers);
    free(b);
}

static void open_vm(struct backend *b)
{
    const size_t at = strlen(b->note);
    cuda_vm_open(&b->vm);
    if (b->vm.granule == 0)
        snprintf(b->note + at, sizeof(b->note) - at,
                 "%sthis GPU and its driver keep all of kv-bytes until the end: they have no "
                 "virtual memory management",
                 at > 0 ? "; " : "");
}

static int open_device(struct backend *b, char *err, size_t err_bytes)
{
    struct cudaDeviceProp properties = {0};
    struct cuda_code code = {0};
    if (cuda_ok(b, (int)cudaSetDevice(0), "the choice of a device") &&
        cuda_ok(b, (int)cudaGetDeviceProperties(&properties, 0), "the device's properties"))
        snprintf(b->name, sizeof(b->name), "sm_%d%d", properties.major, properties.minor);
    if (!cuda_ok(b, (int)cudaStreamCreateWithFlags(&b->queue.stream, cudaStreamNonBlocking),
                 "opening a stream") ||
        !cuda_ok(b, cuda_launch_init(&code), "loading the kernels"))
        return cuda_open_failed(b, err, err_bytes);
    const char *fewer = getenv("HEARTH_CUDA_PROCESSORS");
    b->queue.processors =
        (uint32_t)(fewer && atoi(fewer) > 0 ? atoi(fewer) : properties.multiProcessorCount);
    b->queue.warpgroups = properties.major == 9 && properties.minor == 0 && code.version == 90;
    /* Code made for older ones and compiled here by the driver does not wait for what it depends on. */
    b->queue.dependent = properties.major >= 9 && code.version >= 90;
    b->stack_bytes = (size_t)code.stack * (size_t)properties.maxThreadsPerMultiProcessor *
                     (size_t)properties.multiProcessorCount;
    b->major = properties.major;
    cuda_choose_numerics(b);
    cuda_blas_open(b);
    open_vm(b);
    return 0;
}

/* What is given back may not be in use: the last pass has its results while its last kernel still ends. */
static void release(struct backend *b, enum cuda_array array, uint32_t i)
{
    struct cuda_reserved *r = &b->array[array];
    if (b->broken)
        return;
    cuda_settle(b->queue.stream);
    cuda_forget(cuda_part(r, i), r->part_bytes);
    if (cuda_reserved_gives(r, i))
        cuda_ok(b, (int)cudaStreamSynchronize(b->queue.stream), "waiting to give memory back");
    if (!b->broken)
        cuda_ok(b, cuda_reserved_release(r, i), "giving memory back");
}

/* After the first passes no page and no state is in use. */
static int give_back_all(struct backend *b, char *err, size_t err_bytes)
{
    for (int a = 0; a < CUDA_ARRAYS; a++)
        for (uint32_t i = 0; i < b->array[a].n; i++)
            release(b, (enum cuda_array)a, i);
    return b->broken ? cuda_open_failed(b, err, err_bytes) : 0;
}

static int open_parts(struct backend *b, char *err, size_t err_bytes)
{
    b->weights.layers = calloc(cuda_layers(b->model), sizeof(*b->weights.layers));
    if (!b->weights.layers)
        return fail(err, err_bytes, -ENOMEM, "no memory");
    int rc = open_device(b, err, err_bytes);
    if (!rc)
        rc = find_room(b, err, err_bytes);
    if (!rc)
        rc = take_memory(b, err, err_bytes);
    if (!rc && !cuda_ok(b,
                        (int)cudaMemsetAsync(b->scratch_memory.base, 0, b->scratch_memory.used,
                                             b->queue.stream),
                        "clearing memory"))
        rc = cuda_open_failed(b, err, err_bytes);
    if (!rc)
        rc = cuda_upload_weights(b, err, err_bytes);
    if (!rc)
        rc = cuda_cut_open(b, err, err_bytes);
    if (!rc)
        cuda_blas_warm_up(b);
    if (!rc && (b->broken || !cuda_run_once(b) || !cuda_graph_open(b)))
        rc = cuda_open_failed(b, err, err_bytes);
    rc = rc ? rc : cuda_self_test(b, err, err_bytes);
    return rc ? rc : give_back_all(b, err, err_bytes);
}

static int cuda_open(const struct model *model, const struct backend_limits *limits,
                     struct backend **ret_backend, char *err, size_t err_bytes)
{
    int rc = contract_check_limits(limits, model, err, err_bytes);
    if (rc)
        return rc;
    if (most_of(model).head_dim > CUDA_MAX_HEAD)
        return fail(err, err_bytes, -ENOTSUP,
                    "heads of %u values: the CUDA backend takes up to %d: use --device cpu",
                    most_of(model).head_dim, CUDA_MAX_HEAD);
    if (limits->isa)
        return fail(err, err_bytes, -ENOTSUP, "an instruction set (%s) is for --device cpu",
                    limits->isa);
    if (limits->shadow)
        return fail(err, err_bytes, -ENOTSUP, "the CUDA backend makes no shadow of the weights");
    if (limits->rows > CUDA_MOST_ROWS)
        return fail(err, err_bytes, -ENOTSUP, "the CUDA backend takes at most %d rows a pass",
                    CUDA_MOST_ROWS);
    struct backend *b = calloc(1, sizeof(*b));
    if (!b)
        return fail(err, err_bytes, -ENOMEM, "no memory");
    b->model = model;
    b->limits = *limits;
    b->cut.first_layer = model->n_layer;
    kv_geometry_init(&b->geometry, model, limits->kv_q8_0, limits->window_pages > 0);
    state_geometry_init(&b->state_geometry, model);
    b->most = most_of(model);
    rc = open_parts(b, err, err_bytes);
    if (rc)
        cuda_close(b);
    else
        *ret_backend = b;
    return rc;
}

int cuda_start(struct backend *b, const struct pass *pass)
{
    if (b->broken)
        return 0; /* finish says so */
    int rc = contract_check_pass(pass, &b->limits, b->model, b->next_position, b->error,
                                 sizeof(b->error));
    if (!rc && pass->kind == PASS_MTP && !cuda_has(b, PASS_MTP))
        rc = fail(b->error, sizeof(b->error), -EINVAL,
                  "pass refused: CUDA does not run a draft model's next-token layer");
    if (rc)
        return rc;
    b->pass = pass;
    cuda_pass_start(b);
    return 0;
}

int cuda_finish(struct backend *b)
{
    return b->broken ? -EIO : cuda_pass_finish(b);
}

bool cuda_commit(struct backend *b, enum cuda_array array, uint32_t i)
{
    return cuda_ok(b, cuda_reserved_commit(&b->array[array], i),
                   "taking memory for KV, which other programs may have used up (lower kv-bytes)");
}

static void cuda_release_page(struct backend *b, enum page_class class, uint32_t page)
{
    release(b, (enum cuda_array) class, page);
}

static void cuda_release_state(struct backend *b, uint32_t state)
{
    release(b, CUDA_STATES, state);
    release(b, CUDA_RECORDS, state);
}

/* After what the stream has yet to do for the last pass. */
static int copy_page(struct backend *b, void *to, const void *from, size_t bytes,
                     enum cudaMemcpyKind kind)
{
    const bool ok = cuda_ok(b, (int)cudaMemcpyAsync(to, from, bytes, kind, b->queue.stream),
                            "copying a page") &&
                    cuda_ok(b, (int)cudaStreamSynchronize(b->queue.stream), "copying a page");
    return ok ? 0 : -EIO;
}

static int cuda_read_page(struct backend *b, enum copy_class class, uint32_t id, uint32_t positions,
                          void *ret)
{
    const struct cuda_reserved *r = &b->array[class];
    const int rc = copy_page(b, ret, cuda_part(r, id), r->part_bytes, cudaMemcpyDeviceToHost);
    if (rc == 0 && class != COPY_STATE)
        kv_clear(&b->geometry, (enum page_class) class, ret, positions);
    return rc;
}

static int cuda_write_page(struct backend *b, enum copy_class class, uint32_t id, const void *from)
{
    const struct cuda_reserved *r = &b->array[class];
    if (!cuda_commit(b, (enum cuda_array) class, id))
        return -EIO;
    return copy_page(b, cuda_part(r, id), from, r->part_bytes, cudaMemcpyHostToDevice);
}

static void cuda_describe(const struct backend *b, struct backend_info *ret_info)
{
    *ret_info = (struct backend_info){
        .name = "cuda",
        .isa = b->name,
        .numerics = b->numerics,
        .threads = b->limits.threads,
        .fast = b->fast ? BACKEND_FAST_NATIVE : BACKEND_FAST_NONE,
        .weight_bytes = b->weight_memory.used,
        .scratch_bytes = b->scratch_memory.used + b->stack_bytes,
        .page_bytes = b->geometry.page_bytes[PAGES_FULL],
        .window_page_bytes = b->geometry.page_bytes[PAGES_WINDOW],
        .kv_bytes = kv_bytes(&b->geometry, &b->limits),
        .state_bytes = b->state_geometry.state_bytes,
        .record_bytes = b->state_geometry.record_bytes,
        .host_layers = cuda_cut_layers(b),
        .mtp = cuda_has(b, PASS_MTP),
        .host_bytes = b->cut.experts ? host_experts_bytes(b->cut.experts) : 0,
        .note = b->note[0] ? b->note : NULL,
    };
}

static const char *cuda_error(const struct backend *b)
{
    return b->error;
}

static int cuda_memory(size_t *ret_free, size_t *ret_total)
{
    return cudaMemGetInfo(ret_free, ret_total) == cudaSuccess ? 0 : -EIO;
}

static const struct backend_ops backend_cuda = {
    .name = "cuda",
    .probe = cuda_probe,
    .open = cuda_open,
    .start = cuda_start,
    .finish = cuda_finish,
    .release_page = cuda_release_page,
    .release_state = cuda_release_state,
    .read_page = cuda_read_page,
    .write_page = cuda_write_page,
    .describe = cuda_describe,
    .error = cuda_error,
    .close = cuda_close,
};

__attribute__((visibility("default"))) const struct hearth_plugin hearth_plugin = {
    .version = HEARTH_PLUGIN_VERSION,
    .ops = &backend_cuda,
    .memory = cuda_memory,
    .read_gb_s = cuda_read_gb_s,
};
