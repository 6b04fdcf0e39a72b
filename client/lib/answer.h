/* answer: the text of an answer while it arrives: stop texts and whole characters.
 *
 * The daemon decides where an answer stops; it matches stop texts over the bytes of the tokens.
 * This module repeats that match over the same bytes to know where to cut, and holds back every
 * byte that may still turn out to be the beginning of a stop text, or of a character. What comes
 * out is valid UTF-8: bytes that cannot become a character are replaced by U+FFFD. One caller at a
 * time; owns copies of the stop texts and its buffers; knows no tokens, rings or sockets. */
#ifndef HEARTH_CLIENT_LIB_ANSWER_H
#define HEARTH_CLIENT_LIB_ANSWER_H

#include "client/base/buffer.h"

#include <stddef.h>
#include <stdint.h>

struct answer_stop {
    char *bytes; /* [n_bytes] */
    size_t n_bytes;
};

struct answer {
    struct answer_stop *stops; /* [n_stops] */
    uint32_t n_stops;
    size_t longest;     /* bytes of the longest stop text */
    struct buffer held; /* not given out yet */
    struct buffer text; /* given out */
    int at_start;       /* nothing was given out yet, and a leading space is to be dropped */
    int ended;          /* a stop text was found: nothing follows it */
};

/* All zero is a valid, empty answer. */
void answer_fini(struct answer *a);

/* Begins an answer with these stop texts (copied, none empty). drop_space: a space that the answer
 * begins with is the tokenizer's, not the model's. Returns 0, or -ENOMEM with *a as it was. */
int answer_start(struct answer *a, const char *const *stops, uint32_t n_stops, int drop_space);

/* Takes the bytes of one token; what is certain now is appended to a->text. Returns 0 or -ENOMEM.
 */
int answer_feed(struct answer *a, const char *bytes, size_t n_bytes);

/* No more bytes will come: what was held back is text, unless a stop text was found. */
int answer_finish(struct answer *a);

/* Empties a->text, after the caller has used it. Keeps its memory. */
void answer_take(struct answer *a);

#endif
