/* Toy kernels for the tests of the simulator itself: correct ones, and one for each error that it
 * must detect. Each launcher returns a cudaError_t. Pointers are device pointers. */
#ifndef HEARTH_TESTS_CUDASIM_TOYS_H
#define HEARTH_TESTS_CUDASIM_TOYS_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct toy {
    cudaStream_t stream;
    unsigned blocks, threads, shared_bytes;
    int dependent;
    /* the kernel's arguments */
    int *out;
    const int *in;
    unsigned n;
};

#define TOYS(X)                                                                                    \
    X(sum)           /* out[block] = sum of in[block * n .. + n) */                                \
    X(dot)           /* out[0] = dot product of n bytes at in and the n after them */              \
    X(last_block)    /* out[blocks + 1] = sum of in, one of each block */                          \
    X(identity)      /* out[i] = block * 1000 + thread */                                          \
    X(warp)          /* out[op * 32 + lane], in[32] operands */                                    \
    X(atomics)       /* out[0 .. 6] */                                                             \
    X(mma_i8)        /* out[16][8] = a[16][32] * b[32][8] + c, in: a bytes, b bytes, c */          \
    X(mma_f16)       /* likewise [16][16] * [16][8], in: a halves, b halves, c floats */           \
    X(mma_bf16)      /* the same of bf16 */                                                        \
    X(wgmma)         /* out[thread] = sums that are not mma's, mistake n; in: see toys.cu */       \
    X(load_matrix)   /* out[lane] of each of in's four 8x8 16-bit matrices, then its transpose */  \
    X(copy_async)    /* out[i] = in[i] through shared memory, n <= threads * 4 */                  \
    X(poll)          /* the others poll what block n writes */                                     \
    X(sleep)         /* spins a while, then out[0] = n */                                          \
    X(byte)          /* out[i] = byte i of each kind of arithmetic: see test_kernels.c */          \
    X(barrier_left)  /* thread n returns before the barrier */                                     \
    X(barrier_other) /* thread n waits at another barrier */                                       \
    X(publish)       /* numbers to mapped memory, then n after them */                             \
    X(publish_early) /* the same too early, mistake n */                                           \
    X(shuffle_left)  /* lane n never arrives */                                                    \
    X(shuffle_masks) /* halves of a warp with masks that overlap */                                \
    X(shuffle_out)   /* reads a lane that is not in the mask */                                    \
    X(shuffle_barrier)  /* lane n is at a barrier instead */                                       \
    X(read_at)          /* out[0] = in[n] */                                                       \
    X(write_at)         /* out[n] = 1 */                                                           \
    X(shared_unwritten) /* reads the shared word n */                                              \
    X(shared_race)      /* reads the neighbour's word without a barrier */                         \
    X(lane_race)        /* the same in one warp without __syncwarp */                              \
    X(write_race)       /* two threads write one word */                                           \
    X(no_race)          /* bytes of one word, and words after barriers: nothing to report */       \
    X(copy_no_wait)     /* reads what cp.async has not copied yet */                               \
    X(block_race)       /* a race between blocks, mistake n */                                     \
    X(early)            /* reads in[0] before it waits for the previous kernel */                  \
    X(misaligned)       /* an int4 at in + 1 */                                                    \
    X(stack)            /* reads another thread's stack */

#define X(name) int toy_##name(const struct toy *toy);
TOYS(X)
#undef X

#ifdef __cplusplus
}
#endif

#endif
