/* vocab: the vocabulary for `hearth tokenize` and `detokenize`: of a GGUF file.
 *
 * Only this file of client/ reads a model file; it uses the format's two leaf headers from kernels/
 * and nothing else there. */
#ifndef HEARTH_CLIENT_CLI_VOCAB_H
#define HEARTH_CLIENT_CLI_VOCAB_H

#include "ipc/vocab.h"

/* Builds the vocabulary of a GGUF file (one without weights will do). Returns 0 with *ret_vocab
 * open over *ret_block, which the caller frees after use; else an exit code, the error printed. */
int cli_vocab_open(const char *path, struct vocab *ret_vocab, void **ret_block);

#endif
