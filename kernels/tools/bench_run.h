/* bench_run.h: sequences on an open backend, and the passes that a benchmark times: prefill of a
 * prompt, decoding of all slots together, verification of drafts. One thread. Owns the backend and
 * its sequences; the model outlives it. */
#ifndef HEARTH_KERNELS_TOOLS_BENCH_RUN_H
#define HEARTH_KERNELS_TOOLS_BENCH_RUN_H
#include "kernels/backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_MAX_SLOTS = 64, BENCH_MAX_WINDOW = 64 };

struct bench_sizes {
    uint32_t prompt, tokens; /* tokens prefilled and then decoded by every slot; at least 1 */
    uint32_t slots;          /* 1 to BENCH_MAX_SLOTS */
    uint32_t rows;           /* max rows per pass while a prompt is prefilled */
    uint32_t threads;
    const char *isa; /* or NULL */
    const struct backend_ops *ops;
    bool kv_q8_0;       /* KV in q8_0 instead of the model's own type */
    bool native;        /* native numerics */
    bool drafts;        /* passes are those of a draft model: fast ones */
    uint64_t gpu_bytes; /* backend_limits */
};

struct bench_run;

/* Returns 0, or -errno with the line. */
int bench_run_open(const struct model *model, const struct bench_sizes *sizes,
                   struct bench_run **ret_run, char *err, size_t err_bytes);
void bench_run_close(struct bench_run *run); /* NULL is fine */

void bench_run_describe(const struct bench_run *run, struct backend_info *ret_info);

/* Bytes of weights that every step reads, without those of experts; of these what all steps have
 * read since the last call; and bytes of KV, and of a recurrent state, that a token in the middle of the
 * decoded ones reads. */
uint64_t bench_run_weight_bytes(const struct bench_run *run);
uint64_t bench_run_expert_bytes(struct bench_run *run);
uint64_t bench_run_kv_bytes(const struct bench_run *run);

/* Called after each step of decoding; its time is not measured. */
typedef void bench_pause(void *context);

/* Each returns the seconds it took, or a negative number when a pass failed (bench_run_error says
 * why). Prefill computes one slot's prompt and samples its first token; decode then samples
 * `tokens` for each of the first `slots` slots, one pass per token, and calls pause() after each
 * (NULL: it does not); window verifies rows - 1 drafts after slot 0's prompt (1 to BENCH_MAX_WINDOW
 * rows). */
double bench_run_prefill(struct bench_run *run, uint32_t slot);
double bench_run_decode(struct bench_run *run, uint32_t slots, bench_pause *pause, void *context);
double bench_run_window(struct bench_run *run, uint32_t rows);

/* Seconds that backend_ops.start took per pass of the last decode: CPU time before a GPU works. */
double bench_run_start(const struct bench_run *run);

const char *bench_run_error(const struct bench_run *run);

#endif
