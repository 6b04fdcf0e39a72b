/* quantized_copy.h: another file's model in another type: the same keys and tensors, matrices
 * rounded by kernels/quant/quantize.h. One thread, except quantized_copy_row: any thread. Borrows
 * the gguf. */
#ifndef HEARTH_KERNELS_TOOLS_QUANTIZED_COPY_H
#define HEARTH_KERNELS_TOOLS_QUANTIZED_COPY_H

#include "kernels/gguf/gguf.h"
#include "kernels/tools/gguf_out.h"
#include "kernels/tools/type_mix.h"

struct quantized_copy {
    const struct gguf *from;
    const struct type_mix *mix;
};

/* Adds all keys and tensors to out, in the file's order. Returns 0, or -ENOTSUP with the line for a
 * tensor that is quantized already, or that is neither a matrix nor a vector. */
int quantized_copy_list(const struct quantized_copy *copy, struct gguf_out *out, char *err,
                        size_t err_bytes);

/* A gguf_out_row; arg is the struct quantized_copy. */
int quantized_copy_row(void *arg, uint32_t tensor, uint64_t row, float *x);

#endif
