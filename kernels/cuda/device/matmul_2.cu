/* Products of up to 16 rows. */
#include "kernels/cuda/device/matmul_kernel.h"

PRODUCT_OF(2, false);
