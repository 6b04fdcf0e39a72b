/* Products of up to 8 rows. */
#include "kernels/cuda/device/matmul_kernel.h"

PRODUCT_OF(1, false);
