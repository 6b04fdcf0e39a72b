/* Products with the instruction set of the name; simd_product.h has the code. */
#include "kernels/cpu/simd/simd_product.h"
