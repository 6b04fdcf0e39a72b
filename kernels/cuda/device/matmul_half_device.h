/* matmul_half_device.h: NUMERICS.md, "Native": matmuls of F16 and BF16 matrices by tensor cores: 32
 * inputs of 16 outputs and 8 rows are two mma. A lane's sixteen bytes of a unit of layout.h are its
 * operands for both, and so are sixteen bytes of activations: this determines which inputs an mma
 * takes, and it is the same in every kernel. */
#ifndef HEARTH_KERNELS_CUDA_DEVICE_MATMUL_HALF_DEVICE_H
#define HEARTH_KERNELS_CUDA_DEVICE_MATMUL_HALF_DEVICE_H

#include "kernels/cuda/device/weights_device.h"

enum {
    HALF_CHUNK = 32,     /* inputs of two mma */
    HALF_OF_UNIT = 8,    /* inputs of a unit */
    HALF_CHUNK_UNITS = 4 /* a lane takes unit lane % 4 */
};

/* One chunk of outputs g (low) and g + 8 (high) and of the activations of row g; the lane has
 * inputs 8t .. 8t + 7. */
template <bool BF16>
static __device__ __forceinline__ void half_step(const uint4 &low, const uint4 &high,
                                                 const uint4 &x, float acc[4])
{
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const unsigned a[4] = {word_of(low, 2 * j), word_of(high, 2 * j), word_of(low, 2 * j + 1),
                               word_of(high, 2 * j + 1)};
        const unsigned b[2] = {word_of(x, 2 * j), word_of(x, 2 * j + 1)};
        mma_half<BF16>(acc, a, b, acc);
    }
}

/* One segment, inputs [begin, end), of the 32 outputs of a group of m, and of `rows` rows from
 * `first_row` on, at most 8 * TILES: results to out [8 * TILES][PITCH], where PITCH is 32 to
 * [rows][32] alone. BY_ROWS: the matrix is in row layout. */
template <bool BF16, int TILES, int PITCH, bool BY_ROWS>
static __device__ __forceinline__ void
half_segment(const struct cuda_matrix &m, const uint8_t *group, uint32_t begin, uint32_t end,
             const struct cuda_input &x, uint32_t first_row, uint32_t rows, float *out)
{
    constexpr uint32_t AT_ONCE = TILES > 2 || PITCH == CUDA_GROUP ? 2 : 4,
                       TOGETHER = TILES > 4             ? 1
                                  : 4 / TILES < AT_ONCE ? 4 / TILES
                                                        : AT_ONCE;
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4,
                   chunks = (end - begin + HALF_CHUNK - 1) / HALF_CHUNK,
                   first = begin / HALF_OF_UNIT + t,
                   units = (m.cols + HALF_OF_UNIT - 1) / HALF_OF_UNIT;
    const uint64_t pitch = BY_ROWS ? m.group_bytes / CUDA_GROUP : 16; /* of rows */
    constexpr uint64_t UNIT = BY_ROWS ? 16 : CUDA_UNIT;
    const uint8_t *at = group + first * UNIT + g * pitch;
    const uint16_t *half =
        x.half[BF16] + (uint64_t)(first_row + g) * x.stride + begin + t * HALF_OF_UNIT;
    float acc[2][TILES][4] = {};
#pragma unroll 1
    for (uint32_t c0 = 0; c0 < chunks; c0 += AT_ONCE) {
        uint4 w[AT_ONCE][4];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
            for (uint32_t r = 0; r < 4; r++)
                w[i][r] = first + (c0 + i) * HALF_CHUNK_UNITS < units
                              ? load_stream(at + (c0 + i) * HALF_CHUNK_UNITS * UNIT + r * 8 * pitch)
                              : make_uint4(0, 0, 0, 0);
        if (PITCH == CUDA_GROUP)
            wait_for_previous();
        uint4 b[TOGETHER][TILES];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            if (c0 + i >= chunks)
                break;
#pragma unroll
            for (uint32_t k = 0; i % TOGETHER == 0 && k < TOGETHER * TILES; k++) {
                const uint32_t c = c0 + i + k / TILES, j = k % TILES;
                b[k / TILES][j] = make_uint4(0, 0, 0, 0);
                if (c < chunks && CUDA_TILE * j + g < rows)
                    b[k / TILES][j] = load_now((
                        const uint4 *)(half + (uint64_t)CUDA_TILE * j * x.stride + c * HALF_CHUNK));
            }
#pragma unroll
            for (uint32_t j = 0; j < TILES; j++) {
                half_step<BF16>(w[i][0], w[i][1], b[i % TOGETHER][j], acc[0][j]);
                half_step<BF16>(w[i][2], w[i][3], b[i % TOGETHER][j], acc[1][j]);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < TILES; j++)
        for (int k = 0; k < 2; k++)
            for (int e = 0; e < 4; e++)
                if (PITCH > CUDA_GROUP || 2 * t + e % 2 < rows)
                    out[(CUDA_TILE * j + 2 * t + e % 2) * PITCH + 16 * k + 8 * (e / 2) + g] =
                        acc[k][j][e];
}

#endif
