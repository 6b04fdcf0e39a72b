/* Matmuls of any number of rows, 64 at a time. */
#include "kernels/cuda/device/matmul_kernel.h"

MATMUL_OF(8, false);
