/* Attention with the instruction set of the name; simd_attend.h has the code. */
#include "kernels/cpu/simd/simd_attend.h"
