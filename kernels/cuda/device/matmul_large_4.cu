/* Matmuls of quantized types, 256 outputs a block, rows 32 at a time. */
#include "kernels/cuda/device/matmul_kernel.h"

MATMUL_LARGE_OF(4);
