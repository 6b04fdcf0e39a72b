/* text.c - see text.h. */
#include "client/base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 512 };

/* Room for n more bytes and a 0 behind them. */
static bool make_room(struct text *t, size_t n)
{
    if (t->failed)
        return false;
    if (n < t->room - t->n)
        return true;
    size_t room = t->room ? t->room : FIRST_ROOM;
    while (room <= t->n + n)
        room *= 2;
    char *more = realloc(t->bytes, room);
    t->failed = !more;
    if (!more)
        return false;
    t->bytes = more;
    t->room = room;
    return true;
}

void text_add(struct text *t, const void *bytes, size_t n)
{
    if (!n || !make_room(t, n))
        return;
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
}

void text_puts(struct text *t, const char *string)
{
    text_add(t, string, strlen(string));
}

void text_printf(struct text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n > 0 && make_room(t, (size_t)n)) {
        vsnprintf(t->bytes + t->n, (size_t)n + 1, format, again);
        t->n += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

void text_drop(struct text *t, size_t n)
{
    t->n -= n;
    if (t->n)
        memmove(t->bytes, t->bytes + n, t->n);
}

void text_fini(struct text *t)
{
    free(t->bytes);
    *t = (struct text){0};
}
