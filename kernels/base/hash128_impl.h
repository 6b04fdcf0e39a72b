/* hash128_impl.h: hash128_update as each instruction set has it: the same states. */
#ifndef HEARTH_KERNELS_BASE_HASH128_IMPL_H
#define HEARTH_KERNELS_BASE_HASH128_IMPL_H

#include "kernels/base/hash128.h"

void hash128_update_any(struct hash128 *h, const void *data, size_t bytes);
void hash128_update_avx2(struct hash128 *h, const void *data, size_t bytes);
void hash128_update_avx512(struct hash128 *h, const void *data, size_t bytes);

#endif
