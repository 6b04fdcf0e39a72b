/*
 * requantize: a model's file with its matrices in another type, in memory. For tests only; memory
 * that runs out aborts.
 */
#ifndef HEARTH_TESTS_RIG_REQUANTIZE_H
#define HEARTH_TESTS_RIG_REQUANTIZE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/gguf/gguf.h"

/* Returns the file, aligned to 64, *ret_bytes long; free() it. Every two-dimensional tensor gets
 * `type`, or Q8_0 where its rows are not a multiple of the type's block; the others are
 * unchanged. */
uint8_t *requantize_file(const struct gguf *gguf, uint32_t type, size_t *ret_bytes);

#endif
