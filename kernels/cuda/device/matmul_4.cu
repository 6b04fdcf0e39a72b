/* Matmuls of up to 32 rows. */
#include "kernels/cuda/device/matmul_kernel.h"

MATMUL_OF(4, false);
