/* buf: a growing string that knows the origin of each byte. One thread. */
#ifndef HEARTH_CLIENT_JINJA_BUF_H
#define HEARTH_CLIENT_JINJA_BUF_H

#include "client/jinja/value.h"

/* Begins as {.heap = h}. */
struct buf {
    struct heap *heap;
    char *text;       /* [n] */
    uint8_t *origins; /* [n] where it holds both kinds, else NULL */
    size_t n, room;
    uint8_t origin; /* of all of it, while origins is NULL */
};

void buf_add(struct buf *b, const char *text, size_t bytes, enum origin origin);
void buf_literal(struct buf *b, const char *text); /* the template's own, up to its 0 */
void buf_string(struct buf *b, struct value s);    /* a string value, with its origins */

/* The string; the buffer must not grow any more. */
struct value buf_value(const struct buf *b);

/* The origin of byte i of a string: ORIGIN_TEMPLATE or ORIGIN_INPUT. */
enum origin origin_at(struct value s, size_t i);

#endif
