/*
 * backend_cuda: the host side of one instance: what it owns, and which file does what.
 *
 *   backend_cuda.c  the table of backend.h, opening and closing
 *   probe.c         is there a device that can run this
 *   arena.h         one piece of device memory, handed out once
 *   reserved.c      arrays in device memory of which only what is used is there
 *   load.c          weights: repacked, copied, once
 *   plan.c          what a pass is on the device: rows, pages, items of attention, uploaded before it
 *   plan_sample.c     the same of its samples
 *   plan_state.c      and of the states of recurrent layers
 *   jobs.c          the jobs of a pass in their order
 *   graph.c         the same, captured
 *   cut.c           experts that do not fit the device
 *   native.c        which passes are in native numerics, and the id
 *   blas.c          matmuls of many rows by cuBLAS, where there is one
 *   warm.c          the first passes, at open: every kernel once, and the self-test
 *   pass.c          a pass from its upload to its results
 *   wait.c          until it has ended
 *
 * Threads: as backend.h says. A CUDA error makes the instance broken for good: every later finish says -EIO.
 */
#ifndef HEARTH_KERNELS_CUDA_BACKEND_CUDA_H
#define HEARTH_KERNELS_CUDA_BACKEND_CUDA_H

#include <cuda_runtime_api.h>

#include "kernels/backend.h"
#include "kernels/cpu/host_experts.h"
#include "kernels/cuda/arena.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reserved.h"
#include "kernels/kv.h"
#include "kernels/model/model.h"
#include "kernels/state.h"

/* Attention is cut at every split where rows are few, so that they still fill the device; else the splits of a row run
 * one after the other. There is memory for the partial results of this many rows that are cut. */
enum { CUDA_SPLIT_ROWS = 16 };

/* The limit of a grid's second dimension, which is rows; up to how many rows passes of each number are timed by themselves
 * (wait.c), and how often these can be doubled within the limit. */
enum {
    CUDA_PASS_KINDS = PASS_MTP + 1,
    CUDA_MOST_ROWS = 65535,
    CUDA_TIMED_ROWS = 16,
    CUDA_ROW_DOUBLINGS = 12
};

/* Graph `bucket` serves passes of up to 2^bucket rows; a graph has CUDA_ATTEND_BLOCKS blocks of
 * attention for each SM. */
enum { CUDA_GRAPH_BUCKETS = 7, CUDA_GRAPH_ROWS = 64, CUDA_ATTEND_BLOCKS = 2 };

/* cuBLAS takes passes of more rows: our kernels read the activations from L2 once for each 32
 * outputs, from here on more bytes than those outputs' weights. */
enum { CUDA_BLAS_ROWS = 32 };

struct thread_pool;
struct cuda_blas; /* blas.c */

/* What grids cover: at least what the pass has. items: blocks that share them out; kinds: a bit for each that there may
 * be of enum cuda_item_kind. */
struct cuda_grid {
    enum pass_kind kind;
    uint32_t rows, wanted, items, kinds;
    uint32_t states; /* sequences whose state moves */
};

/* The tensors of a layer, by enum model_layer_tensor, or those outside of layers, by enum
 * model_global. Device pointers; NULL: the model has no such tensor. */
struct cuda_layer {
    struct cuda_matrix matrix[MODEL_N_LAYER_TENSORS];
    const float *vector[MODEL_N_LAYER_TENSORS];
};

struct cuda_weights {
    struct cuda_layer
        *layers; /* host, [cuda_layers]: after the model's the tensors of no layer, then the
                                   next-token layer's */
    const float *rope[MODEL_MAX_ROPES]; /* tables of model.ropes */
    const float *query_factors;         /* kernels/cpu/rope.h; NULL: none */
};

/* Scratch of a pass. */
struct cuda_buffers {
    struct cuda_input of
        [N_BUFFERS]; /* [limits.rows], the logits [limits.samples], EXPERTS a row a pair; BUFFER_UP is
                                        not there: gates are computed by their matmul. Other forms than f only
                                        where a matmul reads it */
    float *part_ml, *part_o;
    float *work, *blocks, *raw_blocks; /* of samples: struct sample_job */
    uint32_t *ids;
    struct cuda_sample_part *parts;
    struct cuda_experts experts; /* of the layers that have the most */
    float *expert_y;             /* [rows * n_used][stride of X] */
    float *sums;                 /* of cuBLAS: struct sums_job; NULL without */
    void *workspace;             /* cuBLAS's own */
    uint32_t sums_stride;
};

/* The upload: the words of a pass, in pinned host memory and in device memory; those that it uses are copied. */
struct cuda_upload {
    uint32_t *host, *device;
    struct cuda_pass to,
        from; /* pointers into device, into host; the latter without bad and mark */
    /* Parts of this pass's words, in `host`. */
    struct cuda_item *items;
    struct cuda_sampling *sampling;
    uint32_t n_words, most_words; /* taken; that may be */
};

/* What the rows of a sequence share: numbers of words in the upload. known: what its samples read
 * is planned; here: the device takes them, else the host. */
struct cuda_place {
    uint32_t pages[CUDA_PAGE_CLASSES], first_row;
    uint32_t state; /* which of the pass's */
    bool known, here;
    uint32_t bias, tokens, first_token;
};

/* The arrays of an instance, in the order of enum copy_class. */
enum cuda_array { CUDA_PAGES, CUDA_WINDOW_PAGES, CUDA_STATES, CUDA_RECORDS, CUDA_ARRAYS };

/* The largest sizes that any layer has. */
struct cuda_most {
    uint32_t share;    /* heads of a KV head */
    uint32_t head_dim; /* of K or V */
};

/* Experts of layers from first_layer on are the CPU's (cut.c); n_layer: none are. A pass has a piece for each such layer, and
 * one before them. */
struct cuda_cut {
    uint32_t first_layer, n_pieces;
    uint32_t *begin;       /* [n_pieces] of the model's operations: 0, then OP_EXPERT_GATEs */
    struct host_rows rows; /* pinned; without a cut NULL, as experts */
    struct host_experts *experts;
};

struct backend {
    const struct model *model;
    struct backend_limits limits;
    struct cuda_cut cut;
    struct cuda_weights weights;
    struct cuda_buffers buffers;
    struct cuda_upload upload;
    struct kv_geometry geometry;
    struct cuda_most most;
    struct state_geometry state_geometry;
    struct cuda_vm vm;
    struct cuda_reserved
        array[CUDA_ARRAYS]; /* kernels/kv.h, kernels/state.h; base NULL: no parts */
    size_t stack_bytes;     /* that the device sets aside for its kernels' stacks */
    struct cuda_arena weight_memory, scratch_memory;
    struct cuda_queue queue;
    cudaGraphExec_t *graphs; /* graph.c; NULL above limits.rows */
    uint32_t least_bucket;   /* 0; other ones are for the self-test */
    struct cuda_grid grid;   /* of the jobs that are launched */
    bool native;             /* numerics of canonical passes, and their id */
    char numerics[32];
    struct cuda_blas *blas; /* NULL: own kernels compute every matmul */
    bool fast;              /* fast passes have native numerics, canonical ones not */
    bool tensors;           /* the pass, or the jobs that are captured, are in native numerics */
    /* Results, pinned host memory. */
    struct cuda_results results, results_device; /* mapped */
    uint32_t pass_number;                        /* of the last one that began */
    cudaEvent_t ended;                           /* to sleep until then */
    uint64_t began_ns;
    uint64_t usual_ns[CUDA_PASS_KINDS][CUDA_TIMED_ROWS + CUDA_ROW_DOUBLINGS]; /* wait.c */
    float *logits; /* [samples][vocab] of rows that want them here */
    /* About the pass that runs. */
    const struct pass *pass;
    uint32_t n_wanted, n_items, n_parts; /* parts: partial results of attention */
    uint32_t n_states;                   /* sequences whose state moves */
    uint32_t item_kinds;                 /* a bit for each that the pass has */
    uint32_t n_copies;                   /* of logits to the host */
    uint32_t *next_position, *first_bad; /* [rows] by sequence */
    struct cuda_place *places;           /* likewise */
    struct thread_pool *pool;            /* repacks weights, and samples what the device does not */
    struct sampler_scratch **sample;     /* [limits.threads] */
    bool broken;
    int code; /* the cudaError_t that broke it, and in what */
    const char *where;
    char name[64];  /* of the device */
    int major;      /* of its compute capability */
    char note[256]; /* backend_info's; "": none */
    char error[192];
};

/* probe.c: backend_ops.probe. */
int cuda_probe(char *err, size_t err_bytes);

/* read_rate.c: hearth_plugin.read_gb_s. */
double cuda_read_gb_s(size_t bytes);

/* load.c. place: sets every pointer of the weights, or only counts their bytes (arena.h). upload: fills the weights.
 * Returns 0, or -ENOMEM or -EIO with the line. */
void cuda_place_weights(struct backend *b);
int cuda_upload_weights(struct backend *b, char *err, size_t err_bytes);

/* plan.c. plan_pass: fills the upload for b->pass; upload_pass: starts its copy. upload_bytes: of the largest upload.
 * place_upload: sets its pointers. take_words: takes n of its words and returns the first one's number, CUDA_NOWHERE
 * when fewer are left. has_large_tiles: whether the model's heads are small enough for items CUDA_ITEM_LARGE. */
size_t cuda_upload_bytes(const struct backend *b);
void cuda_place_upload(struct backend *b);
uint32_t cuda_take_words(struct backend *b, size_t n);
uint32_t cuda_most_parts(const struct backend *b);
bool cuda_has_large_tiles(const struct backend *b);
void cuda_plan_pass(struct backend *b);
void cuda_upload_pass(struct backend *b);

/* plan_sample.c: the samples of b->pass; the most words that they read. */
void cuda_plan_samples(struct backend *b);
size_t cuda_most_sample_words(const struct backend *b);

/* plan_state.c: what becomes of the states of b->pass; the most words that it takes. forget: what the pass must not read. */
void cuda_plan_states(struct backend *b);
size_t cuda_most_state_words(const struct backend *b);
void cuda_forget_states(const struct backend *b);

/* jobs.c: the jobs of a pass. layer_jobs: those of the layer, or the head, whose first operation is op[i] of the model's;
 * returns where the next one begins. run_jobs: launches those of a piece. */
struct embed_job cuda_embed_job(const struct backend *b);
uint32_t cuda_layer_jobs(const struct backend *b, uint32_t i, struct layer_jobs *ret);
struct sample_job cuda_sample_job(const struct backend *b);
void cuda_run_jobs(struct backend *b, struct cuda_grid grid, uint32_t piece);

/* graph.c. open: false when the instance broke. exists: for passes of up to 2^bucket rows. run: launches the graph of a piece
 * of b->pass; false when there is none, or the instance broke. */
bool cuda_graph_open(struct backend *b);
bool cuda_graph_exists(const struct backend *b, enum pass_kind kind, uint32_t bucket);
void cuda_graph_close(struct backend *b);
bool cuda_graph_run(struct backend *b, uint32_t piece);

/* cut.c. open: after memory was taken; 0, or an error with its line. cross: before a piece but the first: what the CPU
 * computes between it and the one before it; false: the instance broke. layers: how many have their experts there. */
int cuda_cut_open(struct backend *b, char *err, size_t err_bytes);
void cuda_cut_close(struct backend *b);
bool cuda_cut_cross(struct backend *b, uint32_t piece);
uint32_t cuda_cut_layers(const struct backend *b);

/* native.c. choose_numerics: sets native, fast and the id; needs the device's name. has: does the
 * instance have passes of this kind that are not those of another kind? A draft model's next-token layer is not run. tensors: is a pass of
 * this kind on tensor cores (b->tensors)? */
void cuda_choose_numerics(struct backend *b);
bool cuda_has(const struct backend *b, enum pass_kind kind);
bool cuda_tensors(const struct backend *b, enum pass_kind kind);

/* blas.c. open: where the model wants cuBLAS, opens it, or leaves a note that it could not; before memory is counted, of
 * which it takes some. place: its scratch. warm_up: before graphs are captured. takes: whether it computes the matmuls
 * of a layer for so many rows; matmul: one. */
void cuda_blas_open(struct backend *b);
void cuda_blas_place(struct backend *b);
void cuda_blas_warm_up(struct backend *b);
bool cuda_blas_takes(const struct backend *b, uint32_t rows);
void cuda_blas_matmul(struct backend *b, const struct matmul_job *job, uint32_t rows,
                      const char *what);
void cuda_blas_close(struct backend *b);

/* warm.c. run_once: every kernel that passes launch, before they are captured; false: the instance broke. self_test:
 * returns 0, or -ENOMEM, -EIO with the line. */
bool cuda_run_once(struct backend *b);
int cuda_self_test(struct backend *b, char *err, size_t err_bytes);

/* backend_cuda.c. start, finish: as in backend_ops, with the pass checked. open_failed: writes the
 * line of an instance that broke while it was opened; returns -ENOMEM or -EIO. */
int cuda_start(struct backend *b, const struct pass *pass);
int cuda_finish(struct backend *b);
int cuda_open_failed(const struct backend *b, char *err, size_t err_bytes);

/* wait.c. wait_begin: call it when the pass begins. wait: waits until it has ended, and with
 * `copies` until the copies after it have. Returns false if the instance broke. */
void cuda_wait_begin(struct backend *b);
bool cuda_wait(struct backend *b, bool copies);

/* pass.c */
void cuda_pass_start(struct backend *b);
int cuda_pass_finish(struct backend *b);

/* Before a pass or a copy writes part i of an array: its memory is there. False: the instance broke. */
bool cuda_commit(struct backend *b, enum cuda_array array, uint32_t i);

/* Marks the instance as broken, unless the code is success. True when all is well. */
bool cuda_ok(struct backend *b, int code, const char *what);

/* Are the experts of this layer the CPU's? */
static inline bool cuda_on_host(const struct backend *b, uint32_t layer)
{
    return layer >= b->cut.first_layer && layer < b->model->n_layer;
}

/* Of passes of a kind; the next-token layer's experts are the device's. */
static inline uint32_t cuda_last_piece(const struct backend *b, enum pass_kind kind)
{
    return kind == PASS_MTP ? 0 : b->cut.n_pieces - 1;
}

/* Sets of tensors: cuda_weights.layers. */
static inline uint32_t cuda_layers(const struct model *m)
{
    return m->n_layer + 1 + (m->mtp != NULL);
}

static inline uint32_t cuda_padded(uint32_t n)
{
    return (n + CUDA_BLOCK - 1) / CUDA_BLOCK * CUDA_BLOCK;
}

#endif
