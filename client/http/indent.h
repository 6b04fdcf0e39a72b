/* indent: ends an answer at the first line that is indented less than asked for (n_indent).
 *
 * Lines after the first are held back until their first visible character says whether they belong
 * to the answer; blank lines wait for the next one. Cutting also removes the line end before. */
#ifndef HEARTH_CLIENT_HTTP_INDENT_H
#define HEARTH_CLIENT_HTTP_INDENT_H

#include "client/base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

struct indent {
    size_t least; /* blanks and tabs; 0: everything passes */
    size_t now;   /* of the line that is held */
    bool holds;
    struct buffer held;
};

/* Appends to *out the part of bytes[n], and of what was held, that certainly belongs to the answer.
 * Returns true when the answer ends here. */
bool indent_filter(struct indent *i, const char *bytes, size_t n, struct buffer *out);

/* The answer ended by itself: what is held belongs to it. */
void indent_finish(struct indent *i, struct buffer *out);

void indent_fini(struct indent *i);

#endif
