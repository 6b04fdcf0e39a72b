/* Matmuls of up to 8 rows. */
#include "kernels/cuda/device/matmul_kernel.h"

MATMUL_OF(1, false);
