/* buffer: bytes that grow, with a 0 after them.
 *
 * A failed allocation sets `failed`, drops what came and all that comes after it: look once, at the
 * end. Owns its memory until buffer_fini. A zeroed struct is an empty buffer. */
#ifndef HEARTH_CLIENT_BASE_BUFFER_H
#define HEARTH_CLIENT_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *data; /* [bytes] and a 0; NULL before the first byte */
    size_t bytes, room;
    bool failed;
};

void buffer_add(struct buffer *b, const void *data, size_t bytes);
void buffer_text(struct buffer *b, const char *text);
__attribute__((format(printf, 2, 3))) void buffer_format(struct buffer *b, const char *format, ...);

/* Makes room for `bytes` more and a 0, for a caller that writes them and counts them itself. */
bool buffer_reserve(struct buffer *b, size_t bytes);

/* Takes the first n bytes away. */
void buffer_drop(struct buffer *b, size_t n);

void buffer_fini(struct buffer *b);

#endif
