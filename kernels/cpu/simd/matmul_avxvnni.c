/* Matmuls with the instruction set of the name; simd_matmul.h has the code. */
#include "kernels/cpu/simd/simd_matmul.h"
