/* Matmuls of up to 16 rows. */
#include "kernels/cuda/device/matmul_kernel.h"

MATMUL_OF(2, false);
