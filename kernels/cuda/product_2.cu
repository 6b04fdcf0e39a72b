/* Products of up to 16 rows. */
#include "kernels/cuda/product_kernel.h"

PRODUCT_OF(2, false);
