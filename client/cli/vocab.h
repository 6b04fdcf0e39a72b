/* vocab: the vocabulary for `hearth tokenize` and `detokenize`: of a GGUF file.
 *
 * This is the one place on the client's side that reads a model file; it takes the format's two
 * leaf headers from kernels/ and nothing else.
 */
#ifndef HEARTH_CLIENT_CLI_VOCAB_H
#define HEARTH_CLIENT_CLI_VOCAB_H

#include "ipc/vocab.h"

#include <stddef.h>

/* Builds the vocabulary of a GGUF file (one without weights will do). Returns 0 with *ret_vocab
 * open over *ret_block, which the caller frees after use; else an exit code, the error told. */
int cli_vocab_open(const char *path, struct vocab *ret_vocab, void **ret_block);

#endif
