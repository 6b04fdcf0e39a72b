/* weights.h: loads the model's tensors into an instance: vectors are copied, matrices are repacked
 * if the instruction set needs it, in the order in which a pass reads them: the image. Or the image is
 * given (backend_limits.image), and nothing is read.
 *
 * Called by open, from one thread; load.h does the work on all threads. Owns nothing: memory comes
 * from the instance's arena. */
#ifndef HEARTH_KERNELS_CPU_WEIGHTS_H
#define HEARTH_KERNELS_CPU_WEIGHTS_H

#include "kernels/cpu/cpu.h"

/* Fills both kinds of weights, the embedding and the output norm. Returns 0, -ENOMEM, the error of
 * gguf_read, or -EINVAL: a given image has not the model's size. */
int weights_load(struct backend *b);

/* Bytes that they take beyond those of the file's tensors: some types grow when packed, and
 * output rows that do not fill a group are padded. */
size_t weights_added_bytes(const struct model *model, bool packed);

/* One matrix of a tensor in memory, packed if the isa wants it. Returns 0 or -ENOMEM. */
int weights_load_matrix(struct backend *b, const struct model_tensor *tensor, struct cpu_matrix *m);

/* Matrix `index` of these weights, layer by layer, then the head, then the next-token layer's; NULL:
 * index is past the end. */
struct cpu_matrix *weights_matrix(struct cpu_weights *w, const struct model *model, uint32_t index);

#endif
