/* Packing with the instruction set of the name; simd_pack.h has the code. */
#define LANES_ROWS 8
#define PACK_GROUP pack_group_avx2
#include "kernels/cpu/simd/simd_pack.h"
