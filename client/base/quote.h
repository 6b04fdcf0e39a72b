/* quote: any bytes as a string of JSON, with its quotation marks. Control characters are escaped,
 * the rest stays as it is, but for bytes that are not UTF-8. Pure; any thread. */
#ifndef HEARTH_CLIENT_BASE_QUOTE_H
#define HEARTH_CLIENT_BASE_QUOTE_H

#include "client/base/buffer.h"

/* Bytes that are not UTF-8 become U+FFFD. */
void quote_text(struct buffer *b, const char *text, size_t bytes);

/* Bytes that are not UTF-8 stay: \udc80 to \udcff, half of a surrogate pair, which stands for no
 * character. */
void quote_bytes(struct buffer *b, const char *text, size_t bytes);

#endif
