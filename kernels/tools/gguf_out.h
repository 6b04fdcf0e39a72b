/* gguf_out.h: writes a GGUF file, version 3, as a stream: keys and the list of tensors are
 * collected in memory, then tensors are computed row by row on several threads and written to their
 * offsets. Takes a few megabytes of memory per thread, however large the model.
 *
 * The file appears under its name only when it is complete: until gguf_out_commit it is PATH.part.
 * The bytes do not depend on the number of threads.
 *
 * One thread; the row function is called from several. Order of calls: open, keys, tensors, write,
 * commit, close. An error is remembered and returned by write, so keys and tensors need no checks.
 */
#ifndef HEARTH_KERNELS_TOOLS_GGUF_OUT_H
#define HEARTH_KERNELS_TOOLS_GGUF_OUT_H
#include "kernels/gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf_out;

struct gguf_out_tensor {
    char name[GGUF_MAX_NAME + 1];
    uint32_t type;       /* quant_type that quantize_row writes */
    uint32_t n_dims;     /* 1 to 3 */
    uint64_t cols, rows; /* rows 1 for a vector; cols a multiple of the type's block */
    uint64_t n_matrices; /* of three dimensions alone; a row's number counts through all of them */
};

/* Computes row `row` of tensor `tensor` (in the order of gguf_out_tensor) into x [cols]. Returns 0
 * or -errno. Several threads at once, any order. */
typedef int gguf_out_row(void *arg, uint32_t tensor, uint64_t row, float *x);

/* True if PATH.part, which open truncates, is the file `source`. */
bool gguf_out_overwrites(const char *path, const char *source);

/* Creates PATH.part. Returns 0, or -errno with the line; refuses a directory, device or pipe at
 * PATH. */
int gguf_out_open(const char *path, struct gguf_out **ret_out, char *err, size_t err_bytes);

void gguf_out_u32(struct gguf_out *out, const char *key, uint32_t value);
void gguf_out_f32(struct gguf_out *out, const char *key, float value);
void gguf_out_bool(struct gguf_out *out, const char *key, bool value);
void gguf_out_string(struct gguf_out *out, const char *key, const char *value);
/* A value as in a file, without its type (struct gguf_key). */
void gguf_out_raw(struct gguf_out *out, struct gguf_string key, uint32_t type, const void *raw,
                  size_t raw_bytes);
/* An array of `count` numbers, `bytes` long. */
void gguf_out_array(struct gguf_out *out, const char *key, uint32_t type, uint64_t count,
                    const void *elements, size_t bytes);
/* Begins an array of `count` strings; the strings follow, each by gguf_out_text. */
void gguf_out_texts(struct gguf_out *out, const char *key, uint64_t count);
void gguf_out_text(struct gguf_out *out, const char *text, size_t bytes);

void gguf_out_tensor(struct gguf_out *out, const struct gguf_out_tensor *tensor);

/* Writes header and tensors. Returns 0, or -errno with the line. */
int gguf_out_write(struct gguf_out *out, gguf_out_row *row, void *arg, uint32_t threads, char *err,
                   size_t err_bytes);

/* Renames the file to its name. Returns 0, or -errno with the line. */
int gguf_out_commit(struct gguf_out *out, char *err, size_t err_bytes);

/* Removes the file if it was not committed. NULL is fine. */
void gguf_out_close(struct gguf_out *out);

uint64_t gguf_out_bytes(const struct gguf_out *out); /* of the whole file, after write */

#endif
