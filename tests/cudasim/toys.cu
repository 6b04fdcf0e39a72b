#include "tests/cudasim/toys.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/device.h"

struct toy_job {
    int *out;
    const int *in;
    unsigned n;
};

static int launch(const struct toy *toy, void (*kernel)(toy_job))
{
    cudaLaunchAttribute dependent = {};
    dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    dependent.val.programmaticStreamSerializationAllowed = toy->dependent;
    const cudaLaunchConfig_t config = {dim3(toy->blocks), dim3(toy->threads), toy->shared_bytes,
                                       toy->stream,       &dependent,         1};
    return cudaLaunchKernelEx(&config, kernel, toy_job{toy->out, toy->in, toy->n});
}

#define TOY(name)                                                                                  \
    static __global__ void name(toy_job job);                                                      \
    extern "C" int toy_##name(const struct toy *toy)                                               \
    {                                                                                              \
        return launch(toy, name);                                                                  \
    }                                                                                              \
    static __global__ void name(toy_job job)

/* ---- correct kernels ---- */

static __device__ int warp_sum(int value)
{
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_down_sync(0xffffffffu, value, distance);
    return value;
}

TOY(sum)
{
    SHARED_BYTES(shared);
    int *partial = (int *)shared, value = 0;
    const unsigned t = threadIdx.x;

    for (unsigned i = t; i < job.n; i += blockDim.x)
        value += job.in[blockIdx.x * job.n + i];
    value = warp_sum(value);
    if (t % 32 == 0)
        partial[t / 32] = value;
    __syncthreads();
    if (t < 32) {
        value = warp_sum(t < blockDim.x / 32 ? partial[t] : 0);
        if (t == 0)
            job.out[blockIdx.x] = value;
    }
}

TOY(dot)
{
    const unsigned words = job.n / 4;
    int value = 0;

    for (unsigned i = threadIdx.x; i < words; i += 32)
        value = __dp4a(job.in[i], job.in[words + i], value);
    value = warp_sum(value);
    if (threadIdx.x == 0)
        job.out[0] = value;
}

/* The block that arrives last adds up what all of them have written. out[gridDim.x]: how many have arrived. */
TOY(last_block)
{
    if (threadIdx.x != 0)
        return;
    job.out[blockIdx.x] = job.in[blockIdx.x];
    if (add_acquire_release((unsigned *)job.out + gridDim.x, 1) + 1 < gridDim.x)
        return;
    int sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++)
        sum += job.out[i];
    job.out[gridDim.x + 1] = sum;
}

TOY(identity)
{
    job.out[blockIdx.x * blockDim.x + threadIdx.x] = (int)(blockIdx.x * 1000 + threadIdx.x);
}

TOY(warp)
{
    const unsigned all = 0xffffffffu, lane = threadIdx.x;
    const int v = job.in[lane];
    int *out = job.out + lane;

    out[0 * 32] = __shfl_sync(all, v, (int)(lane * 7 % 32));
    out[1 * 32] = __shfl_up_sync(all, v, 3);
    out[2 * 32] = __shfl_down_sync(all, v, 5);
    out[3 * 32] = __shfl_xor_sync(all, v, 9);
    out[4 * 32] = __shfl_sync(all, v, 2, 8);
    out[5 * 32] = __shfl_down_sync(all, v, 3, 8);
    out[6 * 32] = (int)__ballot_sync(all, v & 1);
    out[7 * 32] = __any_sync(all, v == job.in[13]);
    out[8 * 32] = __all_sync(all, v > -1000000);
    out[9 * 32] = __reduce_add_sync(all, v);
    out[10 * 32] = __reduce_min_sync(all, v);
    out[11 * 32] = (int)__reduce_max_sync(all, (unsigned)v);
    out[12 * 32] = (int)__reduce_xor_sync(all, (unsigned)v);
    /* halves with masks of their own, at the same time */
    if (lane < 16)
        out[13 * 32] = __shfl_xor_sync(0x0000ffffu, v, 1);
    else
        out[13 * 32] = __shfl_xor_sync(0xffff0000u, v, 2);
    out[14 * 32] = (int)__match_any_sync(all, v & 3);
    out[15 * 32] = __shfl_up_sync(all, v, 3, 8);
    out[16 * 32] = __shfl_xor_sync(all, v, 9, 8);
}

TOY(atomics)
{
    const int t = (int)threadIdx.x;

    atomicAdd(&job.out[0], t);
    atomicMax(&job.out[1], t - 50);
    atomicMin(&job.out[2], 20 - t);
    atomicOr((unsigned *)&job.out[3], 1u << t % 32);
    atomicSub(&job.out[4], 1);
    atomicAdd((unsigned long long *)&job.out[6], 1ull << 33);
    /* a lock made of compare and swap; what it guards is counted in out[8] */
    while (atomicCAS(&job.out[5], 0, 1) != 0)
        __nanosleep(10);
    job.out[8] = job.out[8] + 1;
    __threadfence();
    atomicExch(&job.out[5], 0);
}

TOY(mma_i8)
{
    const unsigned lane = threadIdx.x, group = lane / 4, member = lane % 4;
    const unsigned *a = (const unsigned *)job.in;             /* [16][8] words of 4 k */
    const signed char *b = (const signed char *)job.in + 512; /* [32][8] */
    const int *c = job.in + 192;                              /* [16][8] */
    unsigned fa[4], fb[2] = {0, 0};
    int fc[4];

    for (unsigned i = 0; i < 4; i++)
        fa[i] = a[(group + 8 * (i % 2)) * 8 + member + 4 * (i / 2)];
    for (unsigned i = 0; i < 8; i++)
        fb[i / 4] |= (unsigned)(unsigned char)b[(16 * (i / 4) + 4 * member + i % 4) * 8 + group]
                     << 8 * (i % 4);
    for (unsigned i = 0; i < 4; i++)
        fc[i] = c[(group + 8 * (i / 2)) * 8 + 2 * member + i % 2];
    mma_s8(fc, fa, fb, fc);
    for (unsigned i = 0; i < 4; i++)
        job.out[(group + 8 * (i / 2)) * 8 + 2 * member + i % 2] = fc[i];
}

template <bool BF16> static __device__ void mma_toy(const toy_job &job)
{
    const unsigned lane = threadIdx.x, group = lane / 4, member = lane % 4;
    const unsigned *a = (const unsigned *)job.in;                     /* [16][8] pairs of k */
    const unsigned short *b = (const unsigned short *)(job.in + 128); /* [16][8] */
    const float *c = (const float *)job.in + 192;                     /* [16][8] */
    unsigned fa[4], fb[2] = {0, 0};
    float fc[4];

    for (unsigned i = 0; i < 4; i++) {
        fa[i] = a[(group + 8 * (i % 2)) * 8 + member + 4 * (i / 2)];
        fc[i] = c[(group + 8 * (i / 2)) * 8 + 2 * member + i % 2];
    }
    for (unsigned i = 0; i < 4; i++)
        fb[i / 2] |= (unsigned)b[(8 * (i / 2) + 2 * member + i % 2) * 8 + group] << 16 * (i % 2);
    mma_half<BF16>(fc, fa, fb, fc);
    for (unsigned i = 0; i < 4; i++)
        ((float *)job.out)[(group + 8 * (i / 2)) * 8 + 2 * member + i % 2] = fc[i];
}

TOY(mma_f16)
{
    mma_toy<false>(job);
}

TOY(mma_bf16)
{
    mma_toy<true>(job);
}

/* in: a, four words of each thread, then b, bf16 [128 columns][16 of k]. n 1: writes b before the end; 2: d; 3: never ends. */
TOY(wgmma)
{
    SHARED_BYTES(shared);
    unsigned a[4];
    float d[64], want[16][4] = {};
    const unsigned thread = threadIdx.x, lane = thread % 32, pitch = 2048;
    uint4 *const b = (uint4 *)shared;

    for (unsigned k = 0; k < 2; k++)
        b[k * pitch / 16 + thread] = ((const uint4 *)(job.in + 512))[2 * thread + k];
    for (unsigned i = 0; i < 4; i++)
        a[i] = (unsigned)job.in[4 * thread + i];
    for (unsigned i = 0; i < 64; i++)
        d[i] = 0.0f;
    shared_written();
    __syncthreads();
    wgmma_begin();
    wgmma_half<true>(d, a, b, pitch);
    wgmma_half<true>(d, a, b, pitch);
    __syncthreads();
    if (job.n == 1)
        b[thread] = make_uint4(1, 2, 3, 4);
    if (job.n == 2)
        d[thread % 64] = 1.0f;
    if (job.n == 3)
        return;
    wgmma_end(d);
    int others = 0;
    for (unsigned j = 0; j < 16; j++) {
        const unsigned column = 8 * j + lane / 4, member = lane % 4;
        const unsigned *word = (const unsigned *)job.in + 512 + 8 * column;
        const unsigned two[2] = {word[member], word[4 + member]};
        mma_half<true>(want[j], a, two, want[j]);
        mma_half<true>(want[j], a, two, want[j]);
        for (unsigned i = 0; i < 4; i++)
            others += want[j][i] != d[4 * j + i];
    }
    job.out[thread] = others;
}

TOY(load_matrix)
{
    SHARED_BYTES(shared);
    unsigned word[4];

    for (unsigned i = threadIdx.x; i < 128; i += 32)
        ((int *)shared)[i] = job.in[i];
    __syncthreads();
    load_matrices<false>(word, shared + threadIdx.x * 16);
    for (unsigned m = 0; m < 4; m++)
        job.out[m * 64 + threadIdx.x] = (int)word[m];
    load_matrices<true>(word, shared + threadIdx.x * 16);
    for (unsigned m = 0; m < 4; m++)
        job.out[m * 64 + 32 + threadIdx.x] = (int)word[m];
}

TOY(copy_async)
{
    SHARED_BYTES(shared);
    int *words = (int *)shared;
    const unsigned t = threadIdx.x, first = 4 * t;
    const unsigned left = first < job.n ? job.n - first : 0, n = left < 4 ? left : 4;

    cudasim_copy_async(words + first, job.in + (n > 0 ? first : 0), 16, n * 4, __FILE__, __LINE__);
    cudasim_copy_commit();
    cudasim_copy_wait(0, __FILE__, __LINE__);
    __syncthreads();
    for (unsigned i = t; i < job.n; i += blockDim.x)
        job.out[i] = words[i];
    if (t == 0)
        job.out[job.n] = words[job.n]; /* a zero past the end */
}

TOY(poll)
{
    if (blockIdx.x == job.n)
        atomicExch(&job.out[0], 1);
    while (blockIdx.x != job.n &&
           cudasim_atomic(CUDASIM_ATOMIC_LOAD, job.out, 4, 0, 0, __FILE__, __LINE__) == 0)
        ;
}

/* out: mapped; the last number is written after the others. */
TOY(publish)
{
    for (unsigned i = threadIdx.x; i < job.n; i += blockDim.x)
        job.out[i] = (int)(job.n + i);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        *(volatile int *)(job.out + job.n) = (int)job.n;
    }
}

/* out: mapped; in: a word of the device, 0. Mistake 0: no fence; 1: a fence in each thread, none
 * that orders all of them; 2: none in a block whose store another block signals. Blocks run in the order of their numbers. */
TOY(publish_early)
{
    unsigned *counter = (unsigned *)job.in;
    const bool last = blockIdx.x + 1 == gridDim.x;

    if (job.n < 2 || !last)
        job.out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
    if (job.n == 1)
        __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        add_acquire_release(counter, 1);
    if (job.n == 2 && last)
        __threadfence_system();
    if (last && threadIdx.x == 0)
        *(volatile int *)(job.out + gridDim.x * blockDim.x) = 1;
}

TOY(sleep)
{
    const long long begin = clock64();

    while (clock64() - begin < 20000000)
        ;
    job.out[0] = (int)job.n;
}

TOY(byte)
{
    const unsigned a = (unsigned)job.in[0], b = (unsigned)job.in[1];
    const float x = __uint_as_float((unsigned)job.in[2]), y = __uint_as_float((unsigned)job.in[3]);
    const float z = __uint_as_float((unsigned)job.in[4]);
    int *out = job.out;

    out[0] = __dp4a((int)a, (int)b, 7);
    out[1] = (int)__dp4a(a, b, 7u);
    out[2] = (int)__umulhi(a, b);
    out[3] = __mulhi((int)a, (int)b);
    out[4] = __popc(a);
    out[5] = __clz((int)a);
    out[6] = __ffs((int)a);
    out[7] = (int)__brev(a);
    out[8] = (int)__byte_perm(a, b, 0x7531);
    out[9] = (int)__funnelshift_l(a, b, 5);
    out[10] = __float_as_int(__fmaf_rn(x, y, z));
    out[11] = __float_as_int(__fmul_rn(x, y));
    out[12] = __float_as_int(__fadd_rn(x, y));
    out[13] = __float_as_int(__fdiv_rn(x, y));
    out[14] = __float_as_int(__fsqrt_rn(x));
    out[15] = __half_as_ushort(__float2half_rn(x));
    out[16] = __float_as_int(__half2float(__ushort_as_half((unsigned short)a)));
    out[17] = (int)(__umul64hi((unsigned long long)a << 32, (unsigned long long)b << 32));
    out[18] = __float2int_rn(x);
    out[19] = __float_as_int(__fsub_rn(x, y));
}

/* ---- one mistake each ---- */

TOY(barrier_left)
{
    if (threadIdx.x == job.n)
        return;
    __syncthreads();
    job.out[threadIdx.x] = 1;
}

TOY(barrier_other)
{
    if (threadIdx.x == job.n)
        __syncthreads();
    else
        __syncthreads();
    job.out[threadIdx.x] = 1;
}

TOY(shuffle_left)
{
    if (threadIdx.x == job.n)
        return;
    job.out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 1);
}

TOY(shuffle_masks)
{
    const unsigned mask = threadIdx.x < 16 ? 0x0001ffffu : 0xffff0000u;

    job.out[threadIdx.x] = __shfl_sync(mask, (int)threadIdx.x, 16);
}

TOY(shuffle_out)
{
    if (threadIdx.x < 16)
        job.out[threadIdx.x] = __shfl_sync(0x0000ffffu, (int)threadIdx.x, (int)job.n);
}

TOY(shuffle_barrier)
{
    if (threadIdx.x == job.n)
        __syncthreads();
    else
        (void)__shfl_sync(0xffffffffu, 1, 0);
    __syncthreads();
}

TOY(read_at)
{
    job.out[0] = job.in[job.n];
}

TOY(write_at)
{
    job.out[job.n] = 1;
}

TOY(shared_unwritten)
{
    SHARED_BYTES(shared);

    ((int *)shared)[0] = 1;
    job.out[0] = ((int *)shared)[job.n];
}

TOY(shared_race)
{
    SHARED_BYTES(shared);
    int *words = (int *)shared;

    words[threadIdx.x] = 0;
    __syncthreads();
    words[threadIdx.x] = (int)threadIdx.x;
    job.out[threadIdx.x] = words[(threadIdx.x + 32) % blockDim.x];
}

TOY(lane_race)
{
    SHARED_BYTES(shared);
    int *words = (int *)shared;

    words[threadIdx.x] = 0;
    __syncwarp();
    words[threadIdx.x] = (int)threadIdx.x;
    job.out[threadIdx.x] = words[threadIdx.x ^ 1];
}

TOY(write_race)
{
    SHARED_BYTES(shared);

    *(int *)shared = (int)threadIdx.x;
    __syncthreads();
    job.out[threadIdx.x] = *(int *)shared;
}

TOY(no_race)
{
    SHARED_BYTES(shared);
    int *words = (int *)shared;
    const unsigned t = threadIdx.x;

    shared[t] = (unsigned char)t;
    __syncthreads();
    job.out[t] = shared[blockDim.x - 1 - t];
    __syncthreads();
    words[t] = (int)t;
    __syncwarp();
    job.out[t] += words[t ^ 1];
    __syncwarp();
    words[t] = 1;
    __syncthreads();
    atomicAdd(&words[0], 1);
    __syncthreads();
    job.out[t] += words[0];
}

TOY(copy_no_wait)
{
    SHARED_BYTES(shared);

    cudasim_copy_async(shared + 16 * threadIdx.x, job.in, 16, 16, __FILE__, __LINE__);
    cudasim_copy_commit();
    job.out[threadIdx.x] = ((int *)shared)[4 * threadIdx.x];
}

TOY(block_race)
{
    unsigned *counter = (unsigned *)job.out + 3;
    const bool first = blockIdx.x == 0;

    if (job.n == 0 && first) { /* the other block may have written it already */
        job.out[2] = job.out[1];
    } else if (job.n == 0) {
        job.out[1] = 1;
    } else if (job.n == 1) { /* both write the same word, even the same value */
        job.out[0] = 1;
    } else if (
        first) { /* 2: its store comes after the release; 3: the other block counts without acquiring */
        if (job.n == 3)
            job.out[0] = 1;
        add_acquire_release(counter, 1);
        if (job.n == 2)
            job.out[0] = 1;
    } else {
        if (job.n == 3)
            atomicAdd(counter, 1);
        else
            add_acquire_release(counter, 1);
        job.out[1] = job.out[0];
    }
}

TOY(early)
{
    const int value = job.in[0];

    follow_previous();
    job.out[0] = value;
}

TOY(misaligned)
{
    const int4 value = *(const int4 *)(job.in + 1);

    job.out[0] = value.x + value.w;
}

TOY(stack)
{
    SHARED_BYTES(shared);
    volatile int mine = 5;

    if (threadIdx.x == 0)
        *(volatile int **)shared = &mine;
    __syncthreads();
    if (threadIdx.x == 1)
        job.out[0] = **(volatile int **)shared;
    __syncthreads();
}
