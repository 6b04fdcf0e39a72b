/* Products of matrices by rows. */
#include "kernels/cuda/device/matmul_kernel.h"

PRODUCT_OF(1, true);
PRODUCT_OF(2, true);
PRODUCT_OF(4, true);
PRODUCT_OF(8, true);
