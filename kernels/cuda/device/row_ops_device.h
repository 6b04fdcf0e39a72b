/*
 * row_ops_device: the operations of a pass that work on one row at a time, each as a function of one item that a block of
 * 256 threads computes: embedding, norms, activation blocks, rotation and append. NUMERICS.md has the order.
 */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_ROW_OPS_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_ROW_OPS_DEVICE_H

#include "kernels/cuda/device/pass_device.h"
#include "kernels/cuda/device/weights_device.h"

/* ---- poison ---------------------------------------------------------------------------------- */

/* Row r turned out bad in this layer: it, and later rows of its sequence, are poisoned. */
static __device__ __forceinline__ void mark_bad(const struct cuda_pass &pass, uint32_t r,
                                                uint32_t layer)
{
    atomicMax(&pass.bad[r], CUDA_ROW_OK - layer);
    atomicMax(&pass.mark[pass.rows[r].first], CUDA_ROW_OK - r);
}

/* ---- embedding ------------------------------------------------------------------------------- */

static __device__ float matrix_value(const struct cuda_matrix &m, uint32_t row, uint32_t i)
{
    switch (m.type) {
    case QUANT_F32:
        return float_value<QUANT_F32>(m, row, i);
    case QUANT_F16:
        return float_value<QUANT_F16>(m, row, i);
    case QUANT_BF16:
        return float_value<QUANT_BF16>(m, row, i);
    case QUANT_Q8_0:
        return block_value<QUANT_Q8_0>(m, row, i);
    case QUANT_Q4_0:
        return block_value<QUANT_Q4_0>(m, row, i);
    case QUANT_Q4_1:
        return block_value<QUANT_Q4_1>(m, row, i);
    case QUANT_Q5_0:
        return block_value<QUANT_Q5_0>(m, row, i);
    case QUANT_Q5_1:
        return block_value<QUANT_Q5_1>(m, row, i);
    case QUANT_Q2_K:
        return block_value<QUANT_Q2_K>(m, row, i);
    case QUANT_Q3_K:
        return block_value<QUANT_Q3_K>(m, row, i);
    case QUANT_Q4_K:
        return block_value<QUANT_Q4_K>(m, row, i);
    case QUANT_Q5_K:
        return block_value<QUANT_Q5_K>(m, row, i);
    case QUANT_MXFP4:
        return block_value<QUANT_MXFP4>(m, row, i);
    case QUANT_IQ4_NL:
        return block_value<QUANT_IQ4_NL>(m, row, i);
    case QUANT_IQ4_XS:
        return block_value<QUANT_IQ4_XS>(m, row, i);
    case QUANT_IQ3_XXS:
        return block_value<QUANT_IQ3_XXS>(m, row, i);
    case QUANT_IQ3_S:
        return block_value<QUANT_IQ3_S>(m, row, i);
    default:
        return block_value<QUANT_Q6_K>(m, row, i);
    }
}

/* Item: a row and 256 of its values; x [rows][stride]. Pages whose first position this is become zero: every item of
 * the row takes its share. */
static __device__ void embed_item(const struct embed_job &job, uint32_t r, uint32_t part)
{
    const struct cuda_row &row = job.pass.rows[r];
    const uint32_t i = part * CUDA_THREADS + threadIdx.x;
    if (i < job.stride) /* after the row: what residuals add to outputs that are not read */
        job.x[(uint64_t)r * job.stride + i] =
            i < job.embedding.cols ? __fmul_rn(matrix_value(job.embedding, row.token, i), job.scale)
                                   : 0.0f;
    if (row.position % CUDA_PAGE != 0)
        return;
    const uint32_t parts = embed_parts(job);
    for (int c = 0; c < CUDA_PAGE_CLASSES && job.kv[c]; c++) {
        const uint64_t id = job.pass.words[row.pages[c] + row.position / CUDA_PAGE];
        uint4 *page = (uint4 *)(job.kv[c] + id * job.page_bytes[c]);
        for (uint64_t at = i; at < job.page_bytes[c] / 16; at += (uint64_t)parts * CUDA_THREADS)
            page[at] = make_uint4(0, 0, 0, 0);
    }
}

/* ---- activation blocks ----------------------------------------------------------------------- */

static __device__ __forceinline__ int round_clamped(float v)
{
    if (v >= 127.0f)
        return 127;
    if (!(v > -127.0f))
        return -127;
    return (int)__fadd_rn(__fadd_rn(v, NUM_ROUND), -NUM_ROUND);
}

/* The integer of one value of a block of 32, a lane each, and their scale: NUMERICS.md, "Activations of a quantized
 * matrix". All lanes of the warp. */
static __device__ __forceinline__ int quantize_value(float x, float *d)
{
    const float amax = __uint_as_float(warp_max(__float_as_uint(x) & 0x7fffffffu));
    *d = 0.0f;
    if (amax < 0x1p-100f)
        return 0;
    *d = __fdiv_rn(amax, 127.0f);
    return round_clamped(__fmul_rn(x, __fdiv_rn(127.0f, amax)));
}

/* One block of row r, a value a lane. All lanes of the warp. */
static __device__ void quantize_block(const struct cuda_input &out, uint32_t r, uint32_t block,
                                      float x)
{
    const unsigned lane = threadIdx.x % 32;
    float d;
    const int q = quantize_value(x, &d);
    const int sum = warp_sum(q);
    unsigned word = ((unsigned)q & 255u) << 8 * (lane % 4);
    word |= __shfl_xor_sync(FULL_WARP, word, 1);
    word |= __shfl_xor_sync(FULL_WARP, word, 2);
    const uint64_t at = (uint64_t)(r / CUDA_TILE) * (out.stride / CUDA_BLOCK) + block;
    if (lane % 4 == 0)
        out.q[(at * 32 + r % CUDA_TILE * 4 + lane % 16 / 4) * 2 + lane / 16] = word;
    if (lane == 0)
        out.scale[at * CUDA_TILE + r % CUDA_TILE] = {d, sum};
}

/* Value i of row r of an input; i < n in whole blocks of lanes where they are wanted. */
static __device__ __forceinline__ void put_value(const struct cuda_input &out, uint32_t forms,
                                                 uint32_t r, uint32_t i, uint32_t n, float y)
{
    if ((forms & FORM_FLOATS) && i < n)
        out.f[(uint64_t)r * out.stride + i] = y;
    if ((forms & FORM_BLOCKS) && i / CUDA_BLOCK < n / CUDA_BLOCK)
        quantize_block(out, r, i / CUDA_BLOCK, y);
    if ((forms & FORM_F16) && i < out.stride)
        out.half[0][(uint64_t)r * out.stride + i] = i < n ? f16_from_f32(y) : (uint16_t)0;
    if ((forms & FORM_BF16) && i < out.stride)
        out.half[1][(uint64_t)r * out.stride + i] = i < n ? bf16_from_f32(y) : (uint16_t)0;
}

/* ---- norm ------------------------------------------------------------------------------------ */

/* What a norm of n values multiplies them by, which is kept in shared[128 + group]. A thread loads TOGETHER of them before it
 * adds the first. shared: 129 floats, more where there are groups, of which the next call for the same group writes none before
 * all have read. */
template <int TOGETHER, typename LOAD, typename VALUE>
static __device__ __forceinline__ float norm_factor(uint32_t n, float eps, float *shared, LOAD load,
                                                    VALUE value, uint32_t group = 0)
{
    const uint32_t tid = threadIdx.x;
    if (tid < 128) {
        float s = 0.0f;
#pragma unroll 1
        for (uint32_t k = tid; k < n; k += 128 * TOGETHER) {
            decltype(load(0)) raw[TOGETHER] = {};
#pragma unroll
            for (uint32_t i = 0; i < TOGETHER; i++)
                if (k + 128 * i < n)
                    raw[i] = load(k + 128 * i);
#pragma unroll
            for (uint32_t i = 0; i < TOGETHER; i++)
                if (k + 128 * i < n) {
                    const float x = value(raw[i]);
                    s = __fmaf_rn(x, x, s);
                }
        }
        shared[tid] = s;
    }
    __syncthreads();
    if (tid < 32) {
        const float low = __fadd_rn(shared[tid], shared[tid + 64]);
        const float high = __fadd_rn(shared[tid + 32], shared[tid + 96]);
        const float s = warp_tree(__fadd_rn(low, high));
        if (tid == 0)
            shared[128 + group] =
                __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(s, (float)(int)n), eps)));
    }
    __syncthreads();
    return shared[128 + group];
}

/* What a value of a norm's input is made of, 0 where it has no such part. */
struct norm_loaded {
    float x, bias, weight, residual;
};

/* Item: part `part` of `parts` of row i of the output, from its row of x: every block sums up the whole row, and writes
 * every parts-th 256 values of the output, and of a residual that is made here. shared: 128 floats, and one a group. */
static __device__ void norm_item(const struct norm_job &job, uint32_t i, uint32_t part,
                                 uint32_t parts, float *shared)
{
    const uint32_t from = job.wanted ? sampling_of(job.pass, i).row : i;
    const uint64_t at = (uint64_t)from * job.stride;
    const float *weight = job.added.weight, *bias = job.added.bias, *before = job.added.residual,
                *out_weight = job.weight;
    const bool added = job.added.to != nullptr;
    const uint32_t end = (job.n + 31) / 32 * 32;
    const auto load = [&](uint32_t k) {
        return norm_loaded{load_now(job.x + at + k), bias ? load_now(bias + k) : 0.0f,
                           weight ? load_now(weight + k) : 0.0f,
                           before ? load_now(before + at + k) : 0.0f};
    };
    const auto x = [&](const norm_loaded &v) { return bias ? __fadd_rn(v.x, v.bias) : v.x; };
    /* What a thread writes is loaded before the sums are made. */
    uint32_t k = part * CUDA_THREADS + threadIdx.x;
    norm_loaded own = k < job.n ? load(k) : norm_loaded{};
    float own_weight = out_weight && k < job.n ? load_now(out_weight + k) : 0.0f;
    float of_x = 0.0f;
    if (!added && !bias)
        for (uint32_t g = 0; g < job.n / job.group; g++)
            of_x = norm_factor<16>(
                job.group, job.eps, shared,
                [&](uint32_t i) { return load_now(job.x + at + g * job.group + i); },
                [](float loaded) { return loaded; }, g);
    else if (!added || weight)
        of_x = norm_factor<8>(job.n, job.eps, shared, load, x);
    const auto sum = [&](const norm_loaded &v) {
        const float y = weight ? __fmul_rn(__fmul_rn(x(v), of_x), v.weight) : x(v);
        const float part = __fmul_rn(y, job.added.factor),
                    sum = before ? __fadd_rn(part, v.residual) : part;
        return job.added.scale ? __fmul_rn(sum, job.added.scale[0]) : sum;
    };
    const float r = !out_weight ? 1.0f
                    : added     ? norm_factor<8>(job.n, job.eps, shared, load, sum)
                                : of_x;
    while (k < end) {
        const float residual = k >= job.n ? 0.0f : added ? sum(own) : x(own);
        if (added && k < job.n) {
            job.added.to[at + k] = residual;
            if (job.added.check && !device_finite(residual))
                mark_bad(job.pass, from, job.added.layer);
        }
        const float factor = job.group < job.n && k < job.n ? shared[128 + k / job.group] : r;
        const float y =
            !out_weight || k >= job.n
                ? residual
                : __fmul_rn(__fmul_rn(__fmul_rn(residual, factor), own_weight), job.factor);
        put_value(job.out, job.forms, i, k, job.n, y);
        k += parts * CUDA_THREADS;
        if (k < job.n) {
            own = load(k);
            own_weight = out_weight ? load_now(out_weight + k) : 0.0f;
        }
    }
    __syncthreads(); /* shared is the next item's */
}

/* ---- gates, inputs of layers ------------------------------------------------------------------- */

/* Item: a row and 256 of its values. */
static __device__ void gate_item(const struct gate_job &job, uint32_t r, uint32_t part)
{
    const uint32_t i = part * CUDA_THREADS + threadIdx.x;
    const uint64_t at = (uint64_t)r * job.from_stride + i, by = (uint64_t)r * job.stride + i;
    const float y = i >= job.n ? 0.0f
                    : job.gate == CUDA_GATE_PRODUCT
                        ? __fmul_rn(job.from[at], job.by[by])
                        : device_gated(job.gate, job.from[at], job.by[by]);
    put_value(job.out, job.forms, r, i, job.n, y);
}

/* Item: a layer's input of a row. shared: 129 floats. */
static __device__ void inputs_item(const struct inputs_job &job, uint32_t layer, uint32_t r,
                                   float *shared)
{
    const uint64_t at = (uint64_t)r * job.stride + layer * job.n;
    const auto load = [&](uint32_t k) { return load_now(job.x + at + k); };
    const auto value = [&](float loaded) { return __fmul_rn(loaded, job.factor); };
    const auto x = [&](uint32_t k) { return value(job.x[at + k]); };
    const float of_x = norm_factor<8>(job.n, job.eps, shared, load, value);
    for (uint32_t k = threadIdx.x; k < job.n; k += CUDA_THREADS) {
        const float y = __fmul_rn(__fmul_rn(x(k), of_x), job.weight[k]);
        job.x[at + k] = __fmul_rn(__fadd_rn(y, job.looked_up[at + k]), 0x1.6a09e6p-1f);
    }
}

/* ---- heads: bias, norm, rotation, append ------------------------------------------------------ */

/* The sum of a head's squares as a norm adds them up, in lane 0 of one warp: values i and i + 128 of partial i lie in one
 * lane. */
static __device__ __forceinline__ float head_squares(const float *x, uint32_t n)
{
    float s[4];
    for (int j = 0; j < 4; j++) {
        s[j] = 0.0f;
        for (uint32_t k = threadIdx.x % 32 + 32 * j; k < n; k += 128)
            s[j] = __fmaf_rn(x[k], x[k], s[j]);
    }
    return warp_tree(__fadd_rn(__fadd_rn(s[0], s[2]), __fadd_rn(s[1], s[3])));
}

/* The norm of a head in shared memory, without a weight that of ones, by one warp. */
static __device__ void norm_head(float *x, const float *weight, uint32_t n, float eps)
{
    const uint32_t lane = threadIdx.x % 32;
    const float sum = head_squares(x, n);
    float r = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)(int)n), eps)));
    r = __shfl_sync(FULL_WARP, r, 0);
    for (uint32_t k = lane; k < n; k += 32)
        x[k] = __fmul_rn(__fmul_rn(x[k], r), weight ? weight[k] : 1.0f);
    __syncwarp();
}

/* The cosines and sines of a row's position, [n_rot / 2][2]: to shared memory, before the job may start. */
static __device__ void rope_angles(const struct qkv_finish_job &job, uint32_t r, float *angles)
{
    const uint32_t n = job.n_rot, position = job.pass.rows[r].position;
    const float *low = job.rope + (uint64_t)(position % 256) * n;
    const float *high = job.rope + (uint64_t)(256 + position / 256) * n;
    for (uint32_t i = threadIdx.x; job.rope && i < n / 2; i += CUDA_THREADS) {
        const float cl = low[2 * i], sl = low[2 * i + 1], ch = high[2 * i], sh = high[2 * i + 1];
        angles[2 * i] = __fmaf_rn(ch, cl, -__fmul_rn(sh, sl));
        angles[2 * i + 1] = __fmaf_rn(sh, cl, __fmul_rn(ch, sl));
    }
    __syncthreads();
}

static __device__ void rope_head(float *x, const struct qkv_finish_job &job, const float *angles)
{
    const uint32_t n = job.n_rot;
    for (uint32_t i = threadIdx.x % 32; i < n / 2; i += 32) {
        const uint32_t first = job.halves ? i : 2 * i, second = job.halves ? i + n / 2 : 2 * i + 1;
        const float c = angles[2 * i], s = angles[2 * i + 1], a = x[first], b = x[second];
        x[first] = __fmaf_rn(a, c, -__fmul_rn(b, s));
        x[second] = __fmaf_rn(b, c, __fmul_rn(a, s));
    }
    __syncwarp();
}

/* Bytes from K of a layer's head to its V. */
static __device__ __forceinline__ uint64_t v_after_k(const struct cuda_kv &kv, uint32_t head_kv)
{
    return (kv.n_head_kv - head_kv) * kv.k_bytes + head_kv * kv.v_bytes;
}

/* Appends a head of K or V, x [dim], by one warp. Value k lies at `first` + k * `step` of `values`, and in q8_0 the scale of
 * block b at `first_scale` + b * `scale_step` after all values of the page. */
struct kv_place {
    uint8_t *values;
    uint32_t first, step, first_scale, scale_step;
};

static __device__ void append_q8_0(const kv_place &at, const float *x, uint32_t dim)
{
    const uint32_t lane = threadIdx.x % 32;
    float *scales = (float *)(at.values + dim * CUDA_PAGE);
    for (uint32_t b = 0; b * CUDA_BLOCK < dim; b++) {
        const uint32_t k = b * CUDA_BLOCK + lane;
        float d;
        const int q = quantize_value(k < dim ? x[k] : 0.0f, &d);
        if (k < dim)
            ((signed char *)at.values)[at.first + k * at.step] = (signed char)q;
        if (lane == 0)
            scales[at.first_scale + b * at.scale_step] = d;
    }
}

static __device__ void append_head(uint32_t type, const kv_place &at, const float *x, uint32_t dim)
{
    if (type == CUDA_KV_Q8_0)
        return append_q8_0(at, x, dim);
    for (uint32_t k = threadIdx.x % 32; k < dim; k += 32) {
        const uint32_t i = at.first + k * at.step;
        if (type == CUDA_KV_F32)
            ((float *)at.values)[i] = x[k];
        else
            ((unsigned short *)at.values)[i] = f16_from_f32(x[k]);
    }
}

/* Head `head` of n_head + 2 n_head_kv, those of q, then k, then v, of row r, by one warp. A query goes to `query`; x: n
 * values in shared memory, as are angles. A key or value that is not good goes nowhere. */
static __device__ void row_head(const struct qkv_finish_job &job, uint32_t r, uint32_t head,
                                float *x, const float *angles, float *query)
{
    const uint32_t lane = threadIdx.x % 32, n_kv = job.kv.n_head_kv;
    const int kind = head < job.n_head ? 0 : head < job.n_head + n_kv ? 1 : 2;
    const uint32_t n = kind == 2 ? job.kv.v_dim : job.kv.k_dim, step = kind == 0 ? job.q_dim : n;
    head -= kind == 0 ? 0 : kind == 1 ? job.n_head : job.n_head + n_kv;
    const float *values = job.values[kind] + (uint64_t)r * job.stride[kind] + (uint64_t)head * step;
    const struct cuda_row &row = job.pass.rows[r]; /* a copy, indexed, would lie on the stack */
    uint8_t *const page =                          /* of a key or value */
        kind == 0
            ? nullptr
            : job.kv.memory + job.pass.words[row.pages[job.kv.pages] + row.position / CUDA_PAGE] *
                                  job.kv.page_bytes;
    for (uint32_t k = lane; k < n; k += 32)
        x[k] = job.bias[kind] ? __fadd_rn(values[k], job.bias[kind][head * step + k]) : values[k];
    __syncwarp();
    if (kind == 2 ? job.value_norm : job.norm[kind] != nullptr)
        norm_head(x, kind == 2 ? nullptr : job.norm[kind], n, job.eps);
    if (kind < 2 && job.rope)
        rope_head(x, job, angles);
    if (kind == 0 && job.query_factors) {
        for (uint32_t k = lane; k < n; k += 32)
            x[k] = __fmul_rn(x[k], job.query_factors[row.position / job.query_period]);
        __syncwarp();
    }
    bool good = true;
    for (uint32_t k = lane; k < n; k += 32)
        good = good &&
               ((kind == 0 && !job.native) || job.kv.type == CUDA_KV_F32 ? device_finite(x[k])
                                                                         : device_fits_f16(x[k]));
    for (uint32_t k = n + lane; k < step; k += 32) /* of a query its gate, which stays as it is */
        good = good && device_finite(values[k]);
    good = __all_sync(FULL_WARP, good);
    if (!good && job.check && lane == 0)
        mark_bad(job.pass, r, job.layer);
    if (kind == 0) {
        for (uint32_t k = lane; k < n; k += 32)
            query[k] = x[k];
        return;
    }
    if (!good || CUDA_ROW_OK - r <= *(volatile uint32_t *)&job.pass.mark[row.first])
        return; /* poisoned: writes no KV */
    const uint32_t slot = row.position % CUDA_PAGE;
    uint8_t *const to = page + job.kv.offset + head * job.kv.k_bytes;
    if (kind == 1)
        append_head(job.kv.type, {to, slot, CUDA_PAGE, slot, CUDA_PAGE}, x, n);
    else
        append_head(job.kv.type,
                    {to + v_after_k(job.kv, head), slot * n, 1, slot * job.kv.v_blocks, 1}, x, n);
}

/* Item: eight heads of a row, one a warp; queries stay where they were. shared: CUDA_MAX_HEAD floats of rope_angles, and 8 *
 * CUDA_MAX_HEAD more. */
static __device__ void qkv_finish_item(const struct qkv_finish_job &job, uint32_t r, uint32_t part,
                                       float *shared)
{
    const uint32_t warp = threadIdx.x / 32, head = part * CUDA_WARPS + warp;
    if (head < job.n_head + 2 * job.kv.n_head_kv)
        row_head(job, r, head, shared + (1 + warp) * CUDA_MAX_HEAD, shared,
                 job.values[0] + (uint64_t)r * job.stride[0] + (uint64_t)head * job.q_dim);
}

#endif
