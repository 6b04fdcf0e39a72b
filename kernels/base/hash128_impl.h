/* hash128_impl.h: shared by hash128.c and its vector form. hash128.h has the definition. */
#ifndef HEARTH_KERNELS_BASE_HASH128_IMPL_H
#define HEARTH_KERNELS_BASE_HASH128_IMPL_H

#include <stddef.h>
#include <stdint.h>

enum { HASH128_LANES = 8, HASH128_STRIPE = 64 };

#define HASH128_P1 UINT64_C(0x9E3779B185EBCA87)
#define HASH128_P2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define HASH128_P3 UINT64_C(0x165667B19E3779F9)

/* Takes n stripes from data on into the lanes; the second one needs AVX-512 F and DQ. */
void hash128_stripes_any(uint64_t lane[HASH128_LANES], const uint8_t *data, size_t n);
void hash128_stripes_avx512(uint64_t lane[HASH128_LANES], const uint8_t *data, size_t n);

#endif
