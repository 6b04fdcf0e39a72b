/* delta_device.h: NUMERICS.md, "Gated delta rule": recurrent layers, and what a pass does with their states (cuda_state).
 *
 * A block takes 32 columns of a V head's state through the records and rows of a sequence, in order, while they lie in shared
 * memory. Its first warp computes, a column a lane: sums over a column are chains, and rows follow one another. The others
 * bring what the next steps read. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_DELTA_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_DELTA_DEVICE_H

#include "kernels/cuda/device/row_ops_device.h"

static __device__ __forceinline__ const struct cuda_state &state_at(const struct cuda_pass &pass,
                                                                    uint32_t i)
{
    return ((const struct cuda_state *)(pass.words + pass.counts[CUDA_AT_STATES]))[i];
}

static __device__ __forceinline__ float *memory_of(const struct cuda_states &x, int32_t id)
{
    return (float *)(x.memory + (uint64_t)id * x.state_bytes);
}

static __device__ __forceinline__ float *record_of(const struct cuda_states &x, int32_t id,
                                                   uint32_t i)
{
    return (float *)(x.records + (uint64_t)id * x.record_bytes) + i * x.record;
}

/* The row of the pass that step t is (steps before s.records are records, not rows). */
static __device__ __forceinline__ uint32_t row_of(const struct cuda_pass &pass,
                                                  const struct cuda_state &s, uint32_t t)
{
    return pass.words[s.rows + t - s.records];
}

/* ---- the convolution ------------------------------------------------------------------------- */

/* The convolution's input of channel c at step t; -1, -2, .. are before the first record. */
template <class JOB>
static __device__ __forceinline__ float input_at(const JOB &job, const struct cuda_state &s,
                                                 int32_t t, uint32_t c)
{
    const struct cuda_states &x = job.states;
    if (t >= (int32_t)s.records)
        return job.mixed[(uint64_t)row_of(job.pass, s, (uint32_t)t) * job.stride + c];
    if (s.from == CUDA_STATE_ZERO)
        return 0.0f;
    if (t >= 0)
        return record_of(x, s.from, (uint32_t)t)[x.input + c];
    return memory_of(x, s.from)[x.inputs + (uint64_t)((int32_t)x.taps - 1 + t) * x.channels + c];
}

/* A head of n channels from c on, of the row at step t, by one warp; y: in shared memory. */
static __device__ __forceinline__ void convolve_head(const struct convolve_job &job,
                                                     const struct cuda_state &s, int32_t t,
                                                     uint32_t c, uint32_t n, float *y)
{
    for (uint32_t k = threadIdx.x % 32; k < n; k += 32) {
        const int32_t n_taps = (int32_t)job.states.taps;
        const float *taps = job.taps + (uint64_t)(c + k) * n_taps;
        float acc = job.added ? job.added[c + k] : 0.0f;
        for (int32_t j = 0; j < n_taps; j++)
            acc = __fmaf_rn(taps[j], input_at(job, s, t + 1 - n_taps + j, c + k), acc);
        y[k] = job.states.n_head_v > 0 ? device_gated(CUDA_GATE_SILU, acc, 1.0f) : acc;
    }
    __syncwarp();
}

/* How strongly each V head of row r writes, and what it keeps. */
static __device__ __forceinline__ void beta_and_decay(const struct convolve_job &job, uint32_t r)
{
    for (uint32_t h = threadIdx.x % 32; h < job.states.n_head_v; h += 32) {
        const uint64_t at = (uint64_t)r * job.head_stride + h,
                       from = (uint64_t)r * job.from_stride + h +
                              (job.joined ? h / job.states.run * job.states.run : 0);
        const float l =
            __fadd_rn(job.from[1][from + (job.joined ? job.states.run : 0)], job.bias[h]);
        const float step = device_softplus(l);
        job.beta[at] = job.states.mamba ? step : device_sigmoid(job.from[0][from]);
        job.decay[at] = device_exp(__fmul_rn(job.a[h], step));
    }
}

/* Item: eight heads of a row, one a warp. shared: 8 * 256 floats. */
static __device__ void convolve_item(const struct convolve_job &job, uint32_t r, uint32_t part,
                                     float *shared)
{
    const struct cuda_states &x = job.states;
    const uint32_t warp = threadIdx.x / 32, head = part * CUDA_WARPS + warp, keys = x.unit;
    float *y = shared + warp * CUDA_MAX_STATE;
    if (head + 1 == convolve_heads(x))
        beta_and_decay(job, r);
    if (head + 1 >= convolve_heads(x))
        return;
    const uint32_t c = head < keys ? head * x.k_dim : keys * x.k_dim + (head - keys) * x.part,
                   most = head < keys ? x.k_dim : x.part,
                   n = x.channels - c < most ? x.channels - c : most;
    const struct cuda_state &s =
        state_at(job.pass, job.pass.words[job.pass.counts[CUDA_AT_ROW_STATES] + r]);
    convolve_head(job, s, (int32_t)(job.pass.rows[r].position - s.base), c, n, y);
    float r_length = 1.0f, factor = 1.0f;
    if (head < keys) {
        const float sum = __shfl_sync(FULL_WARP, head_squares(y, n), 0);
        r_length = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(sum, 1e-6f)));
        factor = head < x.n_head_k ? __fdiv_rn(1.0f, __fsqrt_rn((float)(int)n)) : 1.0f;
    }
    for (uint32_t k = threadIdx.x % 32; k < n; k += 32)
        job.convolved[(uint64_t)r * job.stride + c + k] =
            __fmul_rn(__fmul_rn(y[k], r_length), factor);
    __syncwarp(); /* y is the next item's */
}

/* ---- the recurrence -------------------------------------------------------------------------- */

/* Steps that are loaded at once, while those before them are computed. */
enum { DELTA_STEPS = 4 };

/* What these steps read. k has one step more, since the chain of a key over the state is made with
 * the step before. v: for a record, its d. */
struct delta_steps {
    float k[DELTA_STEPS + 1][CUDA_MAX_STATE], q[DELTA_STEPS][CUDA_MAX_STATE];
    float v[DELTA_STEPS][CUDA_STATE_COLUMNS], beta[DELTA_STEPS], decay[DELTA_STEPS];
};

struct delta_shared {
    struct delta_steps steps[2];
    float state[CUDA_MAX_STATE * CUDA_STATE_COLUMNS]; /* [k_dim][32]; as much as k_dim needs */
};

/* A block's columns, on their way. */
struct delta_walk {
    const struct delta_job &job;
    const struct cuda_state &s;
    uint32_t head, column, columns; /* of V: the first column, how many there are */
    uint64_t block;                 /* of a memory: where they lie */
    uint32_t n_steps, folded;       /* all; the first ones, which move the state that stays */
};

/* Thread `thread` of n: steps [t, t + DELTA_STEPS), as far as there are such. */
static __device__ __forceinline__ void
bring_steps(const delta_walk &w, uint32_t t, struct delta_steps &to, uint32_t thread, uint32_t n)
{
    const struct delta_job &job = w.job;
    const struct cuda_states &x = job.states;
    const uint32_t of_k = w.head / x.run % x.n_head_k * x.k_dim, of_v = w.head * x.v_dim + w.column;
    for (uint32_t i = 0; i <= DELTA_STEPS && t + i < w.n_steps; i++) {
        const bool is_record = t + i < w.s.records;
        const uint32_t r = is_record ? 0 : row_of(job.pass, w.s, t + i);
        const float *record = is_record ? record_of(x, w.s.from, t + i) : nullptr,
                    *row = job.convolved + (uint64_t)r * job.stride,
                    *k = is_record ? record + x.k : row + x.k_at,
                    *v = is_record ? record + x.d : row + x.v_at;
        for (uint32_t d = thread; d < x.k_dim; d += n) {
            to.k[i][d] = k[of_k + d];
            if (i < DELTA_STEPS)
                to.q[i][d] = is_record ? 0.0f : row[x.q_at + of_k + d];
        }
        if (i == DELTA_STEPS)
            break;
        for (uint32_t j = thread; j < CUDA_STATE_COLUMNS; j += n)
            to.v[i][j] = j < w.columns ? v[of_v + j] : 0.0f;
        if (thread == 0) {
            const uint64_t at = (uint64_t)r * job.head_stride + w.head;
            to.beta[i] = is_record ? 0.0f : job.beta[at];
            to.decay[i] = is_record ? record[x.decay + w.head] : job.decay[at];
        }
    }
}

/* The columns of a memory; by one warp. */
static __device__ __forceinline__ void put_state(const delta_walk &w, int32_t id,
                                                 const float *state)
{
    float *to = memory_of(w.job.states, id) + w.block;
    for (uint32_t i = threadIdx.x; i < w.job.states.k_dim * CUDA_STATE_COLUMNS; i += 32)
        to[i] = state[i];
}

/* Stores the state after t steps where the pass keeps one. First warp only. */
static __device__ __forceinline__ void keep_state(const delta_walk &w, uint32_t t,
                                                  const float *state)
{
    for (uint32_t i = 0; i < w.s.n_keep; i++)
        if (w.s.keep_at[i] == t)
            put_state(w, w.s.keep[i], state);
    if (t == w.folded && (t > 0 || w.s.from != w.s.own))
        put_state(w, w.s.own, state);
}

/* Computes step t, number i of those loaded, for the lane's column. p: the chain of its key over
 * the state; returns that of the next step's key. */
static __device__ __forceinline__ float delta_step(const delta_walk &w, uint32_t t,
                                                   const struct delta_steps &steps, uint32_t i,
                                                   float p, float *state)
{
    const uint32_t lane = threadIdx.x, n = w.job.states.k_dim;
    const bool is_record = t < w.s.records, more = t + 1 < w.n_steps;
    const float decay = steps.decay[i], v = steps.v[i][lane],
                kept = w.job.states.mamba ? v : __fadd_rn(v, -__fmul_rn(p, decay)),
                d = is_record || lane >= w.columns ? v : __fmul_rn(kept, steps.beta[i]);
    const float *k = steps.k[i], *q = steps.q[i], *next = more ? steps.k[i + 1] : k;
    float o = 0.0f, sum = 0.0f;
#pragma unroll 4
    for (uint32_t j = 0; j < n; j++) {
        float *at = state + j * CUDA_STATE_COLUMNS + lane;
        const float moved = __fmaf_rn(k[j], d, __fmul_rn(*at, decay));
        *at = moved;
        o = __fmaf_rn(moved, q[j], o);
        sum = __fmaf_rn(moved, next[j], sum);
    }
    if (!is_record && lane < w.columns) {
        const uint32_t r = row_of(w.job.pass, w.s, t),
                       at = w.head * w.job.states.v_dim + w.column + lane;
        w.job.convolved[(uint64_t)r * w.job.stride + w.job.states.v_at + at] = d;
        w.job.to[(uint64_t)r * w.job.to_stride + at] =
            w.job.added ? __fmaf_rn(w.job.added[w.head], v, o) : o;
    }
    return sum;
}

/* The state that the walk begins with, and the first steps. All threads. */
static __device__ __forceinline__ void begin_walk(const delta_walk &w, struct delta_shared &shared)
{
    const float *from =
        w.s.from == CUDA_STATE_ZERO ? nullptr : memory_of(w.job.states, w.s.from) + w.block;
    for (uint32_t i = threadIdx.x; i < w.job.states.k_dim * CUDA_STATE_COLUMNS; i += CUDA_THREADS)
        shared.state[i] = from ? from[i] : 0.0f;
    bring_steps(w, 0, shared.steps[0], threadIdx.x, CUDA_THREADS);
    __syncthreads();
}

/* Item: 32 columns of a V head of a sequence's state. */
static __device__ void delta_item(const struct delta_job &job, uint32_t state, uint32_t part,
                                  struct delta_shared &shared)
{
    const struct cuda_states &x = job.states;
    const struct cuda_state &s = state_at(job.pass, state);
    const uint32_t column = part % x.blocks * CUDA_STATE_COLUMNS, left = x.v_dim - column;
    const delta_walk w = {job,
                          s,
                          part / x.blocks,
                          column,
                          left < CUDA_STATE_COLUMNS ? left : (uint32_t)CUDA_STATE_COLUMNS,
                          x.scan + (uint64_t)part * x.k_dim * CUDA_STATE_COLUMNS,
                          s.records + s.n_rows,
                          s.apply + s.commit};
    const uint32_t tid = threadIdx.x;
    float p = 0.0f;
    begin_walk(w, shared);
    if (tid < 32) {
        keep_state(w, 0, shared.state);
        for (uint32_t j = 0; j < x.k_dim; j++)
            p = __fmaf_rn(shared.state[j * CUDA_STATE_COLUMNS + tid], shared.steps[0].k[0][j], p);
    }
    for (uint32_t t = 0; t < w.n_steps; t += DELTA_STEPS) {
        struct delta_steps *steps = shared.steps + t / DELTA_STEPS % 2,
                           *next = shared.steps + (t / DELTA_STEPS + 1) % 2;
        if (tid >= 32)
            bring_steps(w, t + DELTA_STEPS, *next, tid - 32, CUDA_THREADS - 32);
        for (uint32_t i = 0; tid < 32 && i < DELTA_STEPS && t + i < w.n_steps; i++) {
            p = delta_step(w, t + i, *steps, i, p, shared.state);
            keep_state(w, t + i + 1, shared.state);
        }
        __syncthreads();
    }
}

/* ---- after it -------------------------------------------------------------------------------- */

/* Value i of the layer's part of a record that row r makes. */
static __device__ __forceinline__ float recorded(const struct delta_job &job, uint32_t r,
                                                 uint32_t i)
{
    const struct cuda_states &x = job.states;
    const float *row = job.convolved + (uint64_t)r * job.stride;
    if (i < x.channels)
        return job.mixed[(uint64_t)r * job.stride + i];
    if (i < x.d - x.input)
        return row[x.k_at + i - (x.k - x.input)];
    if (i < x.decay - x.input)
        return row[x.v_at + i - (x.d - x.input)];
    return job.decay[(uint64_t)r * job.head_stride + i - (x.decay - x.input)];
}

/* Is value i of a record in use, rather than padding between two parts? */
static __device__ __forceinline__ bool is_recorded(const struct cuda_states &x, uint32_t i)
{
    const uint64_t at = x.input + i, k = x.n_head_k * x.k_dim, d = x.n_head_v * x.v_dim;
    return i < x.channels || (at >= x.k && at < x.k + k) || (at >= x.d && at < x.d + d) ||
           (at >= x.decay && at < x.end);
}

/* Stores the inputs of channel c before step t in a memory. If they come from the same one, all are
 * read first. */
static __device__ __forceinline__ void put_inputs(const struct delta_job &job,
                                                  const struct cuda_state &s, int32_t id,
                                                  uint32_t t, uint32_t c)
{
    const int32_t n = (int32_t)job.states.taps - 1;
    float *to = memory_of(job.states, id) + job.states.inputs + c, input[CUDA_STATE_INPUTS];
#pragma unroll
    for (int32_t i = 0; i < CUDA_STATE_INPUTS; i++)
        if (i < n)
            input[i] = input_at(job, s, (int32_t)t - n + i, c);
#pragma unroll
    for (int32_t i = 0; i < CUDA_STATE_INPUTS; i++)
        if (i < n)
            to[(uint64_t)i * job.states.channels] = input[i];
}

/* Item: 256 values of the layer's part of a record, in all records of a sequence; and the last inputs of their channels. What a
 * thread writes, it alone has read. */
static __device__ void settle_item(const struct delta_job &job, uint32_t state, uint32_t part)
{
    const struct cuda_states &x = job.states;
    const struct cuda_state &s = state_at(job.pass, state);
    const uint32_t i = part * CUDA_THREADS + threadIdx.x, replay = s.records - s.apply;
    if (i < x.channels) {
        for (uint32_t k = 0; k < s.n_keep; k++)
            put_inputs(job, s, s.keep[k], s.keep_at[k], i);
        put_inputs(job, s, s.own, s.apply + s.commit, i);
    }
    if (!is_recorded(x, i))
        return;
    for (uint32_t n = 0; n < replay && (s.apply > 0 || s.from != s.own); n++)
        record_of(x, s.own, n)[x.input + i] = record_of(x, s.from, s.apply + n)[x.input + i];
    for (uint32_t n = s.commit; n < s.n_rows; n++)
        record_of(x, s.own, replay + n - s.commit)[x.input + i] =
            recorded(job, row_of(job.pass, s, s.records + n), i);
}

/* ---- the next-token layer -------------------------------------------------------------------- */

/* Item: part `part` of `parts` of row r, of which every block sums up all. shared: 130 floats. */
static __device__ void join_item(const struct join_job &job, uint32_t r, uint32_t part,
                                 uint32_t parts, float *shared)
{
    const struct cuda_row &row = job.pass.rows[r];
    const struct cuda_state &s =
        state_at(job.pass, job.pass.words[job.pass.counts[CUDA_AT_ROW_STATES] + r]);
    const int32_t before = (int32_t)(row.position - s.base) - 1;
    const auto token = [&](uint32_t k) { return matrix_value(job.embedding, row.token, k); };
    const auto hidden = [&](uint32_t k) { return input_at(job, s, before, k); };
    const auto itself = [](float loaded) { return loaded; };
    const float of_token = norm_factor<8>(job.n, job.eps, shared, token, itself),
                of_hidden = norm_factor<8>(job.n, job.eps, shared, hidden, itself, 1);
    const uint32_t n = 2 * job.n, end = (n + 31) / 32 * 32;
    for (uint32_t k = part * CUDA_THREADS + threadIdx.x; k < end; k += parts * CUDA_THREADS) {
        float y = 0.0f;
        if (k < job.n)
            y = __fmul_rn(__fmul_rn(token(k), of_token), job.weight[0][k]);
        else if (k < n)
            y = __fmul_rn(__fmul_rn(hidden(k - job.n), of_hidden), job.weight[1][k - job.n]);
        put_value(job.out, job.forms, r, k, n, y);
    }
    __syncthreads(); /* shared is the next item's */
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* Item: some heads of a row, a warp each. shared: head_gate_heads * n floats. */
static __device__ void head_gate_item(const struct head_gate_job &job, uint32_t r, uint32_t part,
                                      float *shared)
{
    const uint32_t heads = head_gate_heads(job), first = part * heads, n = job.n_head * job.n,
                   end = first + heads < job.n_head ? (first + heads) * job.n : job.out.stride;
    const float *x = job.x + (uint64_t)r * job.out.stride;
    for (uint32_t h = threadIdx.x / 32; h < heads && first + h < job.n_head; h += CUDA_WARPS) {
        float *head = shared + h * job.n;
        for (uint32_t k = threadIdx.x % 32; k < job.n; k += 32)
            head[k] = x[(first + h) * job.n + k];
        __syncwarp();
        norm_head(head, job.weight, job.n, job.eps);
    }
    __syncthreads();
    for (uint32_t k = first * job.n + threadIdx.x; k / 32 * 32 < end; k += CUDA_THREADS) {
        const float y =
            k < n ? device_gated(CUDA_GATE_SILU, job.gate[(uint64_t)r * job.gate_stride + k],
                                 shared[k - first * job.n])
                  : 0.0f;
        put_value(job.out, job.forms, r, k, n, y);
    }
    __syncthreads(); /* shared is the next item's */
}

#endif
