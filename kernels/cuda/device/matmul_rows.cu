/* Matmuls of matrices by rows. */
#include "kernels/cuda/device/matmul_kernel.h"

MATMUL_OF(1, true);
MATMUL_OF(2, true);
MATMUL_OF(4, true);
MATMUL_OF(8, true);
