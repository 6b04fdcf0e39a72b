/* spm: one piece of text, free of special tokens, by SentencePiece's BPE. Any thread. */
#ifndef HEARTH_CLIENT_TOKENIZER_SPM_H
#define HEARTH_CLIENT_TOKENIZER_SPM_H

#include "client/tokenizer/merge.h"
#include "client/tokenizer/token_list.h"

/* Appends the ids of text[0, bytes) to *out, as if a space stood before it if `prefix`. m is a
 * zeroed or used merge of the same vocabulary. Returns 0, -ENOMEM, or -EILSEQ for a character that
 * has no token where the vocabulary has no <unk>; then *ret_byte is an offset at or after it. */
int spm_tokenize(struct merge *m, const char *text, size_t bytes, bool prefix,
                 struct token_list *out, size_t *ret_byte);

#endif
