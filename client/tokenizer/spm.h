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

/* The same by ranks of merges, as Gemma 4 has it: no space is put before the text, runs of newlines
 * are cut off the rest, and one that is a token is that token. */
int spm_tokenize_ranked(struct merge *m, const char *text, size_t bytes, struct token_list *out,
                        size_t *ret_byte);

#endif
