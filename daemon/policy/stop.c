/* Stop texts over a stream of bytes. Texts are few and short: a plain comparison at every end
 * position. */
#include "daemon/policy/stop.h"

#include <string.h>

void stop_init(struct stop *stop, const struct stop_text *texts, size_t n_texts)
{
    stop->texts = texts;
    stop->n_texts = n_texts;
    stop->longest = 0;
    stop->n_tail = 0;
    for (size_t i = 0; i < n_texts; i++)
        if (texts[i].n_bytes > stop->longest)
            stop->longest = texts[i].n_bytes;
}

/* Appends one byte to the tail, which never grows beyond the longest text. */
static void stop_append(struct stop *stop, char byte)
{
    if (stop->n_tail == stop->longest)
        memmove(stop->tail, stop->tail + 1, --stop->n_tail);
    stop->tail[stop->n_tail++] = byte;
}

static bool stop_ends_here(const struct stop *stop)
{
    for (size_t i = 0; i < stop->n_texts; i++) {
        size_t n = stop->texts[i].n_bytes;
        if (n <= stop->n_tail && !memcmp(stop->tail + stop->n_tail - n, stop->texts[i].bytes, n))
            return true;
    }
    return false;
}

bool stop_feed(struct stop *stop, const char *bytes, size_t n_bytes)
{
    if (stop->longest == 0)
        return false;
    for (size_t i = 0; i < n_bytes; i++) {
        stop_append(stop, bytes[i]);
        if (stop_ends_here(stop))
            return true;
    }
    return false;
}
