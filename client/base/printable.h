/* printable: texts of others, such as files' names and what a model writes, for terminals and lines of a
 * log. A control character, C1 included, drives a terminal; U+2028 to U+202E and U+2066 to U+2069 break
 * or reorder a line; bytes that are not UTF-8 may be C1 in another encoding. Pure; any thread. */
#ifndef HEARTH_CLIENT_BASE_PRINTABLE_H
#define HEARTH_CLIENT_BASE_PRINTABLE_H

#include "client/base/buffer.h"

/* Appends text[0, bytes) with such characters escaped, \x1b or \u202e, but for those in `keeps`. */
void printable_add(struct buffer *b, const char *text, size_t bytes, const char *keeps);

/* Puts a question mark in the place of each such byte. */
void printable_mask(char *text);

#endif
