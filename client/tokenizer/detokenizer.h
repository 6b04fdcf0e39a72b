/* detokenizer: token ids to bytes.
 *
 * At the beginning of a text, and after a special token, the space that an SPM tokenizer puts there
 * is taken away again, so detokenize(tokenize(text)) is text. A token may hold half a character:
 * the bytes of part of a text need not be UTF-8 (client/lib/answer.h makes characters of them). Any
 * thread. */
#ifndef HEARTH_CLIENT_TOKENIZER_DETOKENIZER_H
#define HEARTH_CLIENT_TOKENIZER_DETOKENIZER_H

#include "client/base/buffer.h"
#include "ipc/vocab.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Appends the bytes of ids[n] to *out; tokens that are not text (vocab_is_text) add bytes only with
 * `control`. Returns n, or the index of the first id that the vocabulary lacks. */
size_t detokenize(const struct vocab *v, const uint32_t *ids, size_t n, bool control,
                  struct buffer *out);

#endif
