/* Packing with the instruction set of the name; simd_pack.h has the code. */
#define LANES_ROWS 16
#define PACK_GROUP pack_group_avx512
#include "kernels/cpu/simd/simd_pack.h"
