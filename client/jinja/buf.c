/* buf: see buf.h. */
#include "client/jinja/buf.h"

#include <string.h>

static void reserve(struct buf *b, size_t bytes)
{
    if (b->room - b->n >= bytes)
        return;
    size_t room = b->room ? b->room : 64;
    while (room - b->n < bytes)
        room = room > SIZE_MAX / 4 ? SIZE_MAX / 2 : 2 * room;
    b->text = heap_grow(b->heap, b->text, b->n, b->room, room);
    if (b->origins)
        b->origins = heap_grow(b->heap, b->origins, b->n, b->room, room);
    b->room = room;
}

/* From here on each byte has an origin of its own. */
static void mix(struct buf *b)
{
    if (b->origins)
        return;
    b->origins = heap_take(b->heap, b->room);
    memset(b->origins, b->origin, b->n);
}

void buf_add(struct buf *b, const char *text, size_t bytes, enum origin origin)
{
    if (!bytes)
        return;
    heap_charge(b->heap, 1 + bytes / 64);
    reserve(b, bytes);
    if (!b->n && !b->origins)
        b->origin = (uint8_t)origin;
    if (origin != b->origin)
        mix(b);
    memcpy(b->text + b->n, text, bytes);
    if (b->origins)
        memset(b->origins + b->n, (int)origin, bytes);
    b->n += bytes;
}

void buf_literal(struct buf *b, const char *text)
{
    buf_add(b, text, strlen(text), ORIGIN_TEMPLATE);
}

void buf_string(struct buf *b, struct value s)
{
    if (s.origin != ORIGIN_MIXED) {
        buf_add(b, s.text, s.bytes, (enum origin)s.origin);
        return;
    }
    if (!s.bytes)
        return;
    heap_charge(b->heap, 1 + s.bytes / 32);
    reserve(b, s.bytes);
    mix(b);
    memcpy(b->text + b->n, s.text, s.bytes);
    memcpy(b->origins + b->n, s.origins, s.bytes);
    b->n += s.bytes;
}

struct value buf_value(const struct buf *b)
{
    struct value v = value_text(b->text ? b->text : "", b->n);
    v.origin = b->origins ? ORIGIN_MIXED : b->origin;
    v.origins = b->origins;
    return v;
}

enum origin origin_at(struct value s, size_t i)
{
    return s.origin == ORIGIN_MIXED ? (enum origin)s.origins[i] : (enum origin)s.origin;
}
