/* buffer: see buffer.h. */
#include "client/base/buffer.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 1024 };

bool buffer_reserve(struct buffer *b, size_t bytes)
{
    size_t room = b->room ? b->room : FIRST_ROOM;
    if (b->failed)
        return false;
    if (bytes < b->room - b->bytes)
        return true;
    while (room - b->bytes <= bytes && room <= SIZE_MAX / 4)
        room *= 2;
    char *data = room - b->bytes > bytes ? realloc(b->data, room) : NULL;
    b->failed = !data;
    if (!data)
        return false;
    b->data = data;
    b->room = room;
    return true;
}

void buffer_add(struct buffer *b, const void *data, size_t bytes)
{
    if (!bytes || !buffer_reserve(b, bytes))
        return;
    memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
    b->data[b->bytes] = 0;
}

void buffer_text(struct buffer *b, const char *text)
{
    buffer_add(b, text, strlen(text));
}

void buffer_format(struct buffer *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n > 0 && buffer_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->bytes, (size_t)n + 1, format, again);
        b->bytes += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

void buffer_drop(struct buffer *b, size_t n)
{
    b->bytes -= n;
    if (b->data)
        memmove(b->data, b->data + n, b->bytes + 1);
}

void buffer_fini(struct buffer *b)
{
    free(b->data);
    *b = (struct buffer){0};
}
