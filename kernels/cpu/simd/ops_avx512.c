/* Operations on rows with the instruction set of the name; simd_ops.h has the code. */
#include "kernels/cpu/simd/simd_ops.h"
