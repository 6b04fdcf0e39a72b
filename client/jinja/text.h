/* text: characters as strings' methods see them. Upper and lower case are those of ASCII, Latin,
 * Greek and Cyrillic letters; others stay as they are. Pure; any thread. */
#ifndef HEARTH_CLIENT_JINJA_TEXT_H
#define HEARTH_CLIENT_JINJA_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint32_t text_upper(uint32_t code);
uint32_t text_lower(uint32_t code);
bool text_is_space(uint32_t code); /* what Python's strip() takes away */
bool text_is_letter(uint32_t code);

/* The character at text[0, bytes), bytes > 0; its length in *ret_bytes. A byte that is not UTF-8 is
 * a character of its own. */
uint32_t text_code(const char *text, size_t bytes, size_t *ret_bytes);

#endif
