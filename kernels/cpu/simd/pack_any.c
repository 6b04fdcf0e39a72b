/* Packing on any machine: what the others are compared with. */
#define LANES_ROWS 4
#define PACK_GROUP pack_group_any
#include "kernels/cpu/simd/simd_pack.h"
