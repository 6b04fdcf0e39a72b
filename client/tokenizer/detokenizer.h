/* detokenizer: token ids to text, one id at a time, as they arrive.
 *
 * A token may hold half a character. Text mode gives out whole UTF-8 characters only: an unfinished
 * tail of up to 3 bytes is held back until the next token completes it; bytes that cannot become a
 * character are replaced by U+FFFD (one for each maximal piece of a broken sequence), at the latest
 * by detokenizer_finish. Raw mode gives every byte as it is. At the beginning of a text, and after
 * a special token, the space that an SPM tokenizer puts there is taken away again, so
 * detokenize(tokenize(text)) is text.
 *
 * Any thread; the state is the caller's struct, nothing is allocated, nothing to close. */
#ifndef HEARTH_CLIENT_TOKENIZER_DETOKENIZER_H
#define HEARTH_CLIENT_TOKENIZER_DETOKENIZER_H

#include "ipc/vocab.h"

#include <stddef.h>
#include <stdint.h>

enum detokenize_flag {
    DETOKENIZE_RAW = 1,          /* bytes as they are, also half characters and invalid ones */
    DETOKENIZE_SKIP_CONTROL = 2, /* control tokens give no text */
    DETOKENIZE_CONTINUE = 4, /* the text goes on after other text: keep a space at the beginning */
};

struct detokenizer {
    const struct vocab *vocab;
    unsigned flags;
    uint8_t tail[4]; /* an unfinished character */
    uint8_t n_tail;  /* 0..3 */
    uint8_t strip;   /* 1: a space at the beginning of the next text token is taken away */
};

/* Room that detokenizer_push may need for token id: 3 output bytes for each of its own and of the
 * tail. */
size_t detokenizer_room(const struct detokenizer *d, uint32_t id);

void detokenizer_init(struct detokenizer *d, const struct vocab *v, unsigned flags);

/* Writes the text that id completes to out[0, capacity), its length to *ret_n (often 0). Returns 0;
 * -EINVAL for an id that the vocabulary lacks; -ENOBUFS with *ret_n = the room needed, and the
 * state as it was. */
int detokenizer_push(struct detokenizer *d, uint32_t id, char *out, size_t capacity, size_t *ret_n);

/* The end of the text: an unfinished character becomes one U+FFFD. Writes at most 3 bytes; 0 or
 * -ENOBUFS. */
int detokenizer_finish(struct detokenizer *d, char *out, size_t capacity, size_t *ret_n);

#endif
