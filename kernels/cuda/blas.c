/* cuBLAS, for matmuls of many rows of a draft model in F16 or BF16; its matrices then lie row by
 * row (layout.h).
 *
 * The library is opened with such a model, never linked: it takes half a gigabyte that other models
 * do not need. It stays open. Where it is missing, our own kernels compute every matmul, and the
 * note says so.
 *
 * HEARTH_CUBLAS: the library's name in place of the usual ones; 0: none. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/cublas.h"

static bool all_of_one_half_type(const struct model *m)
{
    const uint32_t type = m->global[MODEL_OUTPUT].type;
    bool same = m->tied || m->global[MODEL_TOKEN_EMBD].type == type;
    for (uint32_t l = 0; l < m->n_layer; l++)
        for (uint32_t t = 0; t < MODEL_N_LAYER_TENSORS; t++)
            same = same && (model_layer_vector(t) || !m->layers[l].tensor[t].data ||
                            m->layers[l].tensor[t].type == type);
    return same && (type == QUANT_F16 || type == QUANT_BF16);
}

/* Only for draft models: fast passes of the served model itself have one row or a few per slot. */
static bool is_wanted(const struct backend *b)
{
    return b->limits.drafts && b->fast && b->limits.rows > CUDA_BLAS_ROWS &&
           all_of_one_half_type(b->model);
}

bool cuda_blas_takes(const struct backend *b, uint32_t rows)
{
    return b->blas && rows > CUDA_BLAS_ROWS;
}

#define FUNCTIONS(X)                                                                               \
    X(cublasCreate_v2)                                                                             \
    X(cublasDestroy_v2)                                                                            \
    X(cublasSetStream_v2)                                                                          \
    X(cublasSetWorkspace_v2)                                                                       \
    X(cublasSetMathMode)                                                                           \
    X(cublasGetStatusString)                                                                       \
    X(cublasGemmEx)

struct cuda_blas {
    cublasHandle_t handle;
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
};

/* ---- open ------------------------------------------------------------------------------------ */

/* Opens what HEARTH_CUBLAS names; else the library of the toolkit that this was built with, or of
 * the toolkit before it, whose functions are the same. Returns NULL with a problem if there is
 * none. */
static void *open_library(char *problem, size_t bytes)
{
    const char *asked = getenv("HEARTH_CUBLAS");
    char usual[32], older[32];
    snprintf(usual, sizeof(usual), "libcublas.so.%d", CUDART_VERSION / 1000);
    snprintf(older, sizeof(older), "libcublas.so.%d", CUDART_VERSION / 1000 - 1);
    const bool any = !asked || !asked[0];
    void *library = dlopen(any ? usual : asked, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(problem, bytes, "%s", dlerror());
    return library || !any ? library : dlopen(older, RTLD_NOW | RTLD_LOCAL);
}

/* The functions, and a handle. Returns why not, or NULL. */
static const char *open_handle(struct cuda_blas *blas, void *library)
{
#define X(name)                                                                                    \
    blas->name = (__typeof__(&name))(uintptr_t)dlsym(library, #name);                              \
    if (!blas->name)                                                                               \
        return "libcublas has no " #name;
    FUNCTIONS(X)
#undef X
    cublasStatus_t status = blas->cublasCreate_v2(&blas->handle);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            blas->cublasSetMathMode(blas->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    return status == CUBLAS_STATUS_SUCCESS ? NULL : blas->cublasGetStatusString(status);
}

static void close_blas(struct cuda_blas *blas)
{
    if (blas && blas->handle)
        blas->cublasDestroy_v2(blas->handle);
    free(blas);
}

void cuda_blas_open(struct backend *b)
{
    const char *asked = getenv("HEARTH_CUBLAS");
    if (!is_wanted(b))
        return;
    if (asked && strcmp(asked, "0") == 0) {
        snprintf(b->note, sizeof(b->note), "matmuls by own kernels alone, as HEARTH_CUBLAS=0 says");
        return;
    }
    char missing[160];
    void *library = open_library(missing, sizeof(missing));
    struct cuda_blas *blas = calloc(1, sizeof(*blas));
    const char *problem = !library ? missing : blas ? open_handle(blas, library) : "no memory";
    if (problem) {
        snprintf(b->note, sizeof(b->note),
                 "matmuls by own kernels alone, slower where rows are many: no cuBLAS: %s",
                 problem);
        close_blas(blas);
        return;
    }
    b->blas = blas;
    snprintf(b->note, sizeof(b->note), "matmuls of more than %d rows by cuBLAS", CUDA_BLAS_ROWS);
}

void cuda_blas_close(struct backend *b)
{
    close_blas(b->blas);
}

/* What NVIDIA recommends. */
static size_t workspace_bytes(const struct backend *b)
{
    return (size_t)(b->major >= 9 ? 32 : 4) << 20;
}

void cuda_blas_place(struct backend *b)
{
    struct cuda_buffers *u = &b->buffers;
    if (!b->blas)
        return;
    const uint32_t gated = 2 * u->of[BUFFER_FFN].stride, embd = u->of[BUFFER_X].stride;
    u->sums_stride = gated > embd ? gated : embd;
    u->sums =
        cuda_take(&b->scratch_memory, (size_t)b->limits.rows * u->sums_stride * sizeof(float));
    u->workspace = cuda_take(&b->scratch_memory, workspace_bytes(b));
}

/* ---- a matmul ------------------------------------------------------------------------------- */

/* True when all is well. Otherwise the instance breaks, with CUDA's own error if there is one:
 * cuBLAS's codes are not CUDA's. */
static bool blas_ok(struct backend *b, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return !b->broken;
    const cudaError_t code = cudaPeekAtLastError();
    return cuda_ok(b, (int)(code == cudaSuccess ? cudaErrorUnknown : code), what);
}

/* Computes y [rows][stride] for all outputs of the matrix, padding included. cuBLAS is
 * column-major, where a row-major matrix is its transpose. */
static void multiply(struct backend *b, const struct cuda_matrix *m, const struct cuda_input *x,
                     uint32_t rows, float *y, uint32_t stride, const char *what)
{
    const cudaDataType type = m->type == QUANT_BF16 ? CUDA_R_16BF : CUDA_R_16F;
    const int inputs = (int)(m->group_bytes / CUDA_GROUP / sizeof(uint16_t));
    const float one = 1, none = 0;
    if (b->broken)
        return;
    blas_ok(b,
            b->blas->cublasGemmEx(b->blas->handle, CUBLAS_OP_T, CUBLAS_OP_N,
                                  (int)(m->groups * CUDA_GROUP), (int)rows, inputs, &one, m->data,
                                  type, inputs, x->half[m->type == QUANT_BF16], type,
                                  (int)x->stride, &none, y, CUDA_R_32F, (int)stride,
                                  CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            what);
}

void cuda_blas_matmul(struct backend *b, const struct matmul_job *job, uint32_t rows,
                      const char *what)
{
    const struct matmul_part *first = &job->part[0];
    const struct sums_job sums = {*job, b->buffers.sums, b->buffers.sums_stride};
    rows = rows < b->limits.rows ? rows : b->limits.rows;
    if (!job->gate && !first->residual && !first->check) {
        for (int i = 0; i < 3 && job->part[i].matrix.groups > 0; i++)
            multiply(b, &job->part[i].matrix, &job->x, rows, job->part[i].y, job->part[i].stride,
                     what);
        return;
    }
    for (uint32_t i = 0; i < (job->gate ? 2 : 1); i++)
        multiply(b, &job->part[i].matrix, &job->x, rows,
                 b->buffers.sums + (size_t)i * job->groups * CUDA_GROUP, b->buffers.sums_stride,
                 what);
    if (!b->broken)
        cuda_ok(b, cuda_launch_sums(&b->queue, &sums, rows), what);
}

/* Code of cuBLAS comes to the device with its first matmul of a kind, which must not be one that is captured. All layers
 * are like the first. */
void cuda_blas_warm_up(struct backend *b)
{
    static const char what[] = "the first matmuls of cuBLAS";
    if (!b->blas ||
        !blas_ok(b, b->blas->cublasSetStream_v2(b->blas->handle, b->queue.stream), what) ||
        !blas_ok(b,
                 b->blas->cublasSetWorkspace_v2(b->blas->handle, b->buffers.workspace,
                                                workspace_bytes(b)),
                 what))
        return;
    b->tensors = true;
    struct layer_jobs jobs;
    const uint32_t rows[] = {CUDA_GRAPH_ROWS, b->limits.rows};
    cuda_layer_jobs(b, 1, &jobs);
    for (uint32_t i = 0; i < 2 * jobs.n; i++)
        if (jobs.job[i % jobs.n].kind == CUDA_JOB_MATMUL)
            cuda_blas_matmul(b, &jobs.job[i % jobs.n].of.matmul, rows[i / jobs.n], what);
    cuda_ok(b, (int)cudaStreamSynchronize(b->queue.stream), what);
}
