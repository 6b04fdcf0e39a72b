/* token_json: tokens and bytes as JSON. */
#ifndef HEARTH_CLIENT_HTTP_TOKEN_JSON_H
#define HEARTH_CLIENT_HTTP_TOKEN_JSON_H

#include "client/hearth.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { TOKEN_TEXT_BYTES = 256 };

/* The bytes of a token inside a text (with the space in front that SPM keeps in it). Returns their
 * number, at most TOKEN_TEXT_BYTES. */
size_t token_text(struct hearth *h, uint32_t id, char *bytes);

/* A string; bytes that are not UTF-8 become U+FFFD. */
json_t *json_of_text(const char *bytes, size_t n);

/* A string, or an array of bytes where it is not all UTF-8. */
json_t *json_of_exact(const char *bytes, size_t n);

/* An array of bytes. */
json_t *json_of_bytes(const char *bytes, size_t n);

json_t *json_of_ids(const uint32_t *ids, size_t n);

#endif
