/* Products of up to 32 rows. */
#include "kernels/cuda/device/matmul_kernel.h"

PRODUCT_OF(4, false);
