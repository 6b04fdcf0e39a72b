/* printable: texts of others, such as files' names and what a model writes, for terminals and lines of a
 * log. A control character, C1 included, drives a terminal; others break or reorder a line (U+2028 to
 * U+202E, isolates, directional marks) or are not seen at all, so that two names look the same (of no
 * width, tags); bytes that are not UTF-8 may be C1 in another encoding. Pure; any thread. */
#ifndef HEARTH_CLIENT_BASE_PRINTABLE_H
#define HEARTH_CLIENT_BASE_PRINTABLE_H

#include "client/base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

/* What whole texts keep, not names: soft hyphens, what joins and parts letters and emoji, what old
 * Hangul and Mongolian are written with, and the marks of right-to-left scripts, which move nothing
 * that a letter of these scripts would not move. */
#define PRINTABLE_IN_TEXT                                                                          \
    "\xc2\xad\xcd\x8f\xd8\x9c\xe1\x85\x9f\xe1\x85\xa0\xe1\xa0\x8b\xe1\xa0\x8c\xe1\xa0\x8d\xe1\xa0" \
    "\x8e"                                                                                         \
    "\xe1\xa0\x8f\xe2\x80\x8b\xe2\x80\x8c\xe2\x80\x8d\xe2\x80\x8e\xe2\x80\x8f"

/* Appends text[0, bytes) with such characters escaped, \x1b or \u202e, but for those in `keeps`, UTF-8. */
void printable_add(struct buffer *b, const char *text, size_t bytes, const char *keeps);

/* Is the character none of them? */
bool printable_is_shown(uint32_t code);

/* Puts a question mark in the place of each such byte. */
void printable_mask(char *text);

#endif
