/* vocabulary.h: a synthetic vocabulary of any size, byte-level BPE or, for gemma, SentencePiece:
 * every text can be tokenized, and its tokens decode to the same text.
 *
 * The first 256 tokens are the bytes; then come short words of a to z, alone and after a blank, by
 * length: each is the merge of two shorter ones (SentencePiece has the blank and the letters before
 * them). The last n_vocab - n_words are special tokens with the names of the family (<|im_end|>,
 * <|fim_prefix|>, ...); gemma's include runs of blanks and newlines. One thread, at start; owns
 * nothing. */
#ifndef HEARTH_KERNELS_TOOLS_VOCABULARY_H
#define HEARTH_KERNELS_TOOLS_VOCABULARY_H

#include "kernels/tools/gguf_out.h"
#include "kernels/tools/shape.h"

/* Writes the tokenizer.ggml.* keys. Returns 0, or -ENOMEM. n_words is 256 to 493,762, for gemma
 * from 283 on. */
int vocabulary_keys(const struct model_shape *shape, struct gguf_out *out);

#endif
