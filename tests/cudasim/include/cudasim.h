/* cudasim: the functions that device code compiled for the host calls. cuda_runtime.h builds CUDA's
 * names on them; device.h of the CUDA backend uses the cudasim_* functions in place of PTX.
 *
 * Every call that can fail takes the place in the source that a report will name: CUDASIM_HERE in a
 * C++ wrapper is its caller's file and line.
 *
 * Threads: called by simulated threads only (and hooks for tests by the host, at the end). */
#ifndef HEARTH_TESTS_CUDASIM_INCLUDE_CUDASIM_H
#define HEARTH_TESTS_CUDASIM_INCLUDE_CUDASIM_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
#define CUDASIM_HERE                                                                               \
    const char *cudasim_file = __builtin_FILE(), int cudasim_line = __builtin_LINE()
#define CUDASIM_PLACE cudasim_file, cudasim_line
extern "C" {
#endif

/* The identity of a simulated thread. */
struct cudasim_self {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
    unsigned lane; /* of its warp, 0 .. 31 */
};

/* The same answer for as long as a simulated thread lives. */
__attribute__((const)) const struct cudasim_self *cudasim_self(void);

/* This block's dynamic shared memory, 16-byte aligned, as long as the launch said. */
__attribute__((const)) void *cudasim_shared(void);

enum cudasim_barrier {
    CUDASIM_BARRIER,
    CUDASIM_BARRIER_COUNT,
    CUDASIM_BARRIER_AND,
    CUDASIM_BARRIER_OR
};

/* All threads of the block; returns the count, and or or of the predicates. */
int cudasim_barrier(enum cudasim_barrier kind, int predicate, const char *file, int line);

enum cudasim_collective {
    CUDASIM_SYNC_WARP,
    CUDASIM_SHUFFLE,
    CUDASIM_SHUFFLE_UP,
    CUDASIM_SHUFFLE_DOWN,
    CUDASIM_SHUFFLE_XOR,
    CUDASIM_BALLOT,
    CUDASIM_ANY,
    CUDASIM_ALL,
    CUDASIM_MATCH_ANY,
    CUDASIM_REDUCE_ADD,
    CUDASIM_REDUCE_MIN_S32,
    CUDASIM_REDUCE_MAX_S32,
    CUDASIM_REDUCE_MIN_U32,
    CUDASIM_REDUCE_MAX_U32,
    CUDASIM_REDUCE_AND,
    CUDASIM_REDUCE_OR,
    CUDASIM_REDUCE_XOR,
    CUDASIM_MMA_I8,      /* value: struct cudasim_mma * */
    CUDASIM_MMA_F16,     /* likewise */
    CUDASIM_MMA_BF16,    /* likewise */
    CUDASIM_LOAD_MATRIX, /* value: struct cudasim_load_matrix * */
    CUDASIM_WGMMA,       /* value: struct cudasim_wgmma * */
};

/* One operation of the lanes in mask. argument: lane, delta or lane mask of a shuffle; width: its
 * segments. Returns this lane's result. */
uint64_t cudasim_collective(enum cudasim_collective kind, uint32_t mask, uint64_t value,
                            unsigned argument, unsigned width, const char *file, int line);

enum cudasim_atomic {
    CUDASIM_ATOMIC_ADD,
    CUDASIM_ATOMIC_MIN,
    CUDASIM_ATOMIC_MAX,
    CUDASIM_ATOMIC_MIN_SIGNED,
    CUDASIM_ATOMIC_MAX_SIGNED,
    CUDASIM_ATOMIC_AND,
    CUDASIM_ATOMIC_OR,
    CUDASIM_ATOMIC_XOR,
    CUDASIM_ATOMIC_EXCHANGE,
    CUDASIM_ATOMIC_COMPARE,
    CUDASIM_ATOMIC_LOAD,  /* ld.acquire, ld.relaxed, ld.volatile */
    CUDASIM_ATOMIC_STORE, /* st.release, st.relaxed, st.volatile */
};

/* One atomic operation on 4 or 8 aligned bytes; returns the value before it. */
uint64_t cudasim_atomic(enum cudasim_atomic kind, void *address, unsigned bytes, uint64_t value,
                        uint64_t compare, const char *file, int line);

/* The host sees what this thread wrote before this fence before what it writes after it. */
void cudasim_fence_system(void);

/* Make the next atomic operation on the address a release, and the last one an acquire: an acquire
 * sees what was done before each earlier release of the address. For races.c: the order itself is
 * that of the calls. */
void cudasim_release(const void *address);
void cudasim_acquire(const void *address);

/* Lets other threads run: __nanosleep and other ways to wait in a loop. */
void cudasim_yield(const char *file, int line);

/* Reports a misaligned access; inline so that the usual case costs nothing. */
void cudasim_misaligned(const void *address, unsigned alignment, const char *file, int line);

/* Ends the launch with a report of an error that the code itself found. */
__attribute__((noreturn)) void cudasim_trap(const char *text, const char *file, int line);

/* ---- asynchronous copies: cp.async ---- */

/* bytes: 4, 8 or 16; the first source_bytes are copied, the rest is zero-filled. This thread sees
 * the bytes after its wait, other threads after a barrier that follows it. */
void cudasim_copy_async(void *shared, const void *global, unsigned bytes, unsigned source_bytes,
                        const char *file, int line);
void cudasim_copy_commit(void);
/* Waits until at most `pending` of the groups committed last are outstanding. */
void cudasim_copy_wait(unsigned pending, const char *file, int line);
/* cp.async.wait_all: everything, committed or not. */
void cudasim_copy_wait_all(const char *file, int line);

/* ---- dependent launches: griddepcontrol ---- */

void cudasim_grid_wait(void);
void cudasim_grid_launch_dependents(void);

/* ---- matrix instructions ---- */

/* mma.sync m16n8k32 of 8-bit integers (a, b of either sign, as flagged; int32 sums wrap) and
 * m16n8k16 of f16 or bf16 with f32 sums. Registers as PTX lays them out. A float sum follows one of
 * the ways that hardware uses: c and the 16 products, each truncated 25 bits below the largest
 * exponent, are added exactly and rounded to f32 once. A product's exponent is the sum of its
 * operands', even when one is 0, so a term multiplied by 0 still changes the bits of the others. */
struct cudasim_mma {
    uint32_t a[4], b[2], c[4];
    uint32_t d[4];
    int a_unsigned, b_unsigned;
};
void cudasim_mma(enum cudasim_collective kind, struct cudasim_mma *mma, const char *file, int line);

/* ldmatrix: `count` (1, 2, 4) 8x8 matrices of 16-bit values; lane i gives the address of row i % 8
 * of matrix i / 8. */
struct cudasim_load_matrix {
    const void *row;
    unsigned count;
    int transposed;
    uint32_t registers[4];
};
void cudasim_load_matrix(struct cudasim_load_matrix *load, const char *file, int line);

/* wgmma m64n128k16 of f16 or bf16 with f32 sums, a in registers, as one warp's part of it: rows as a and
 * columns as d of 16 mma m16n8k16. b: cores of 8 columns by 8 k, [2 of k, pitch bytes apart][16 of columns]. d
 * is written at the end (wait_group 0); that it, or b, was written by others until then is reported. */
struct cudasim_wgmma {
    uint32_t a[4];
    const void *b;
    unsigned pitch;
    int bf16;
    float *d; /* [64] */
};
void cudasim_wgmma(struct cudasim_wgmma *wgmma, const char *file, int line);
void cudasim_wgmma_end(float *d, const char *file, int line);

/* ---- library operations on the device ---- */

/* y[j][i] = sum over p of w[i][p] x[j][p], for i < m, j < n, p < k: f16, or bf16, with f32 sums. */
struct cudasim_matmul {
    const uint16_t *w, *x; /* device memory: [m][w_stride], [n][x_stride] */
    float *y;              /* [n][y_stride] */
    uint32_t m, n, k, w_stride, x_stride, y_stride;
    int bf16;
};

/* An operation of the stream, summed in an order that no kernel uses. A row of x with unwritten
 * bytes leaves its row of y unwritten. The only call of the simulator that other libraries see
 * (cublas/cublas.c). */
__attribute__((visibility("default"))) cudaError_t
cudasim_matmul(cudaStream_t stream, const struct cudasim_matmul *matmul);

/* ---- for a host with its own allocator ---- */

/* cudasim_gap: these bytes of device memory belong to no piece. cudasim_forget: what was written
 * there counts as unwritten again. No effect on host memory and NULL. Not while the device uses the
 * bytes. */
void cudasim_gap(const void *address, size_t bytes);
void cudasim_forget(const void *address, size_t bytes);

/* ---- launches ---- */

struct cudasim_kernel {
    const void *function;
    void (*call)(const void *arguments); /* calls function */
    const void *arguments;               /* copied by the launch */
    size_t argument_bytes;               /* at most CUDASIM_ARGUMENT_BYTES */
};
enum { CUDASIM_ARGUMENT_BYTES = 4096 };

cudaError_t cudasim_launch(const cudaLaunchConfig_t *config, const struct cudasim_kernel *kernel);

#ifdef __cplusplus
}
#endif

#endif
