/* piece.h - tokens and bytes as JSON. */
#ifndef HEARTH_CLIENT_HTTP_PIECE_H
#define HEARTH_CLIENT_HTTP_PIECE_H

#include "client/hearth.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { PIECE_BYTES = 256 };

/* The bytes of a token inside a text (with the space in front that SPM keeps in it). Returns their
 * number, at most PIECE_BYTES. */
size_t piece_get(struct hearth *h, uint32_t id, char *bytes);

/* A string; bytes that are no UTF-8 become U+FFFD. */
json_t *piece_text(const char *bytes, size_t n);

/* A string, or an array of bytes where it is not all UTF-8. */
json_t *piece_exact(const char *bytes, size_t n);

/* An array of bytes. */
json_t *piece_bytes(const char *bytes, size_t n);

json_t *piece_ids(const uint32_t *ids, size_t n);

#endif
