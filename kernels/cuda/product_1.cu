/* Products of up to 8 rows. */
#include "kernels/cuda/product_kernel.h"

PRODUCT_OF(1, false);
