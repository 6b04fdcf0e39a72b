/* vocab_file: the vocabulary block of a GGUF file, for Check tests. */
#ifndef HEARTH_TESTS_RIG_VOCAB_FILE_H
#define HEARTH_TESTS_RIG_VOCAB_FILE_H

#include <stddef.h>

/* Builds the block of the file at `path`; a failure fails the test. The caller frees it. */
void *vocab_file_build(const char *path, size_t *ret_bytes);

#endif
