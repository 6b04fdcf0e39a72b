/* bpe: one piece of text, free of special tokens, by byte-level BPE. Any thread. */
#ifndef HEARTH_CLIENT_TOKENIZER_BPE_H
#define HEARTH_CLIENT_TOKENIZER_BPE_H

#include "client/tokenizer/merge.h"
#include "client/tokenizer/token_list.h"

/* Appends the ids of text[0, bytes) to *out. m is a zeroed or used merge of the same vocabulary.
 * Returns 0, -ENOMEM, or -EILSEQ for a byte that has no token and cannot be replaced; then
 * *ret_byte is the byte's offset. */
int bpe_tokenize(struct merge *m, const char *text, size_t bytes, struct token_list *out,
                 size_t *ret_byte);

#endif
