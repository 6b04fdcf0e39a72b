/* answer: see answer.h. */
#include "client/lib/answer.h"

#include "client/base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void stops_free(struct answer_stop *stops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free(stops[i].bytes);
    free(stops);
}

void answer_fini(struct answer *a)
{
    stops_free(a->stops, a->n_stops);
    buffer_fini(&a->held);
    buffer_fini(&a->text);
    memset(a, 0, sizeof(*a));
}

/* Returns copies of the texts, or NULL. n > 0. */
static struct answer_stop *stops_copy(const char *const *texts, uint32_t n)
{
    struct answer_stop *stops = calloc(n, sizeof(*stops));
    for (uint32_t i = 0; stops && i < n; i++) {
        stops[i] = (struct answer_stop){.bytes = strdup(texts[i]), .n_bytes = strlen(texts[i])};
        if (!stops[i].bytes) {
            stops_free(stops, i);
            return NULL;
        }
    }
    return stops;
}

int answer_start(struct answer *a, const char *const *stops, uint32_t n_stops, int drop_space)
{
    struct answer_stop *copy = n_stops ? stops_copy(stops, n_stops) : NULL;
    if (n_stops && !copy)
        return -ENOMEM;
    stops_free(a->stops, a->n_stops);
    a->stops = copy;
    a->n_stops = n_stops;
    a->longest = 0;
    for (uint32_t i = 0; i < n_stops; i++)
        if (copy[i].n_bytes > a->longest)
            a->longest = copy[i].n_bytes;
    a->held.bytes = 0;
    a->held.failed = a->text.failed = false;
    a->ended = 0;
    a->at_start = drop_space;
    answer_take(a);
    return 0;
}

void answer_take(struct answer *a)
{
    buffer_drop(&a->text, a->text.bytes);
}

/* Where the first stop text in held[] begins, or held.bytes. */
static size_t find_stop(const struct answer *a)
{
    size_t first = a->held.bytes;
    for (uint32_t i = 0; i < a->n_stops; i++) {
        const struct answer_stop *s = &a->stops[i];
        const char *at = memmem(a->held.data, a->held.bytes, s->bytes, s->n_bytes);
        if (at && (size_t)(at - a->held.data) < first)
            first = (size_t)(at - a->held.data);
    }
    return first;
}

/* How many bytes at the end of held[] are the beginning of a stop text. */
static size_t may_begin_stop(const struct answer *a)
{
    size_t n = a->longest ? a->longest - 1 : 0;
    if (n > a->held.bytes)
        n = a->held.bytes;
    for (; n; n--)
        for (uint32_t i = 0; i < a->n_stops; i++)
            if (n < a->stops[i].n_bytes &&
                memcmp(a->held.data + a->held.bytes - n, a->stops[i].bytes, n) == 0)
                return n;
    return 0;
}

/* Gives out whole characters of held[0, bytes); at the end also what is left of a broken one. */
static int release(struct answer *a, size_t bytes, int is_end)
{
    /* One byte becomes three at most. */
    if (!buffer_reserve(&a->text, 3 * bytes))
        return -ENOMEM;
    size_t i = 0;
    if (a->at_start && bytes) {
        i = a->held.data[0] == ' ';
        a->at_start = 0;
    }
    while (i < bytes) {
        uint32_t code;
        int n = utf8_step(a->held.data + i, bytes - i, &code);
        if (n == 0 && !is_end)
            break;
        if (n > 0) {
            buffer_add(&a->text, a->held.data + i, (size_t)n);
            i += (size_t)n;
            continue;
        }
        buffer_text(&a->text, "\xef\xbf\xbd");
        i += n ? (size_t)-n : bytes - i;
    }
    buffer_drop(&a->held, i);
    return 0;
}

int answer_feed(struct answer *a, const char *bytes, size_t n_bytes)
{
    if (a->ended || !n_bytes)
        return 0;
    buffer_add(&a->held, bytes, n_bytes);
    if (a->held.failed)
        return -ENOMEM;
    size_t stop = find_stop(a);
    if (stop == a->held.bytes)
        return release(a, a->held.bytes - may_begin_stop(a), 0);
    a->held.bytes = stop;
    a->ended = 1;
    return release(a, a->held.bytes, 1);
}

int answer_finish(struct answer *a)
{
    return a->held.bytes ? release(a, a->held.bytes, 1) : 0;
}
