/* Products of up to 32 rows. */
#include "kernels/cuda/product_kernel.h"

PRODUCT_OF(4, false);
