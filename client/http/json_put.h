/* json_put: JSON at the end of a buffer. jansson's own writer asks an allocation and a printed
 * address of each list and object, to find circles; answers have none. */
#ifndef HEARTH_CLIENT_HTTP_JSON_PUT_H
#define HEARTH_CLIENT_HTTP_JSON_PUT_H

#include "client/base/buffer.h"

#include <jansson.h>

/* Compact; of a real nine digits where they give a float exactly, else as many more as give the
 * double. NULL, which says that memory ran out while it was made: the buffer has failed. */
void json_put(struct buffer *t, const json_t *value);

/* JSON with ' in place of ", and values: %s a text, %t a text and its bytes (size_t), %d an int64_t,
 * %f a double with nine digits, %b whether an int is not 0, %o a json_t, which is taken over. */
void json_put_format(struct buffer *t, const char *format, ...);

#endif
