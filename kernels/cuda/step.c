/* Passes of up to 16 rows as one kernel: whether the device can, the jobs that it finds in device memory, and its launch.
 *
 * Blocks wait for each other, so all of them must run at once: the launch is cooperative, which the device refuses when
 * they do not fit, and there are as many as it said at open that do. Where it has no such launch, graphs serve. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/backend_cuda.h"
#include "kernels/base/fail.h"

void cuda_step_place(struct backend *b)
{
    const size_t splits_done = (size_t)STEP_ROWS * b->most.n_head_kv;
    b->steps.layers =
        cuda_take(&b->scratch_memory, (b->model->n_layer + 1) * sizeof(*b->steps.layers));
    b->steps.arrived = cuda_take(&b->scratch_memory, 2 * CUDA_LINE);
    b->steps.splits_done =
        cuda_take(&b->scratch_memory, splits_done * sizeof(*b->steps.splits_done));
}

/* ---- open ------------------------------------------------------------------------------------ */

/* HEARTH_CUDA_STEPS: 0 leaves passes to graphs, 1 makes it an error where there are none; else as the device can. */
enum wish { WISH_NONE, WISH_POSSIBLE, WISH_MUST };

static enum wish wish(void)
{
    const char *text = getenv("HEARTH_CUDA_STEPS");
    if (!text || !text[0])
        return WISH_POSSIBLE;
    return strcmp(text, "0") == 0 ? WISH_NONE : WISH_MUST;
}

/* Fills in the job and jobs [n_layer + 1]. */
static void make_jobs(struct backend *b, struct layer_jobs *jobs)
{
    const struct model *m = b->model;
    struct step_job *job = &b->steps.job;
    const uint32_t own_queries = b->most.queries * (uint32_t)sizeof(float);
    *job = (struct step_job){
        .embed = cuda_embed_job(b),
        .sample = cuda_sample_job(b),
        .layers = b->steps.layers,
        .splits_done = b->steps.splits_done,
        .arrived = b->steps.arrived,
        .n_layer = m->n_layer,
        .delta_bytes = m->n_recurrent > 0 ? cuda_delta_bytes(m->delta.k_dim) : 0,
        .k_dim = b->most.k_dim,
        .own_queries = own_queries,
        .own_heads = own_queries <= STEP_OWN_BYTES,
    };
    for (uint32_t layer = 0, i = 1; layer <= m->n_layer; layer++) {
        i = cuda_layer_jobs(b, i, &jobs[layer]);
        job->most_jobs = jobs[layer].n > job->most_jobs ? jobs[layer].n : job->most_jobs;
    }
}

static bool upload_jobs(struct backend *b)
{
    const size_t bytes = (b->model->n_layer + 1) * sizeof(*b->steps.layers);
    struct layer_jobs *jobs = calloc(1, bytes);
    if (!jobs)
        return cuda_ok(b, cudaErrorMemoryAllocation, "the jobs of layers");
    make_jobs(b, jobs);
    cuda_ok(
        b,
        (int)cudaMemcpyAsync(b->steps.layers, jobs, bytes, cudaMemcpyHostToDevice, b->queue.stream),
        "the copy of jobs");
    const bool done = cuda_ok(b, (int)cudaStreamSynchronize(b->queue.stream), "the copy of jobs");
    free(jobs);
    return done;
}

static bool ask_device(struct backend *b)
{
    int cooperative = 0;
    if (!cuda_ok(b, (int)cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0),
                 "the device's properties"))
        return false;
    for (uint32_t i = 0; i < STEP_KERNELS && cooperative; i++) {
        if (!cuda_ok(b, cuda_step_blocks(&b->queue, &b->steps.job, i, &b->steps.blocks[i]),
                     "loading the kernel of a pass"))
            return false;
    }
    return true;
}

int cuda_step_open(struct backend *b, char *err, size_t err_bytes)
{
    const enum wish wished = wish();
    if (wished == WISH_NONE || b->native || !cuda_has(b, PASS_CANONICAL))
        return 0;
    b->tensors = false; /* its jobs are of portable passes */
    if (!upload_jobs(b) || !ask_device(b))
        return cuda_open_failed(b, err, err_bytes);
    if (wished == WISH_MUST && (b->steps.blocks[0] == 0 || b->steps.blocks[1] == 0))
        return fail(err, err_bytes, -EIO,
                    "the GPU (%s) cannot run all blocks of a pass at once: unset HEARTH_CUDA_STEPS",
                    b->name);
    return 0;
}

/* ---- a pass ---------------------------------------------------------------------------------- */

/* Whether no row has another one of its sequence beside it. */
static bool all_alone(const struct pass *pass)
{
    for (uint32_t r = 1; r < pass->n_rows; r++)
        for (uint32_t i = 0; i < r; i++)
            if (pass->rows[i].sequence == pass->rows[r].sequence)
                return false;
    return true;
}

bool cuda_step_run(struct backend *b)
{
    const uint32_t rows = b->pass->n_rows, kernel = rows > CUDA_TILE;
    if (rows > STEP_ROWS || b->tensors || b->steps.off || b->steps.blocks[kernel] == 0)
        return false;
    struct step_job job = b->steps.job;
    b->steps.job.turn ^= 1;
    if (b->upload.n_words <= STEP_WORDS) {
        job.n_words = b->upload.n_words;
        memcpy(job.words, b->upload.host, job.n_words * sizeof(*job.words));
    } else {
        cuda_upload_pass(b);
    }
    if (b->broken)
        return true;
    job.own_heads = job.own_heads && all_alone(b->pass);
    cuda_ok(b, cuda_launch_step(&b->queue, &job, kernel, b->steps.blocks[kernel]), "a pass");
    return true;
}
