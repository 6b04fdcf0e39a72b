/* unicode: see unicode.h. */
#include "client/base/unicode.h"

#include "client/base/unicode_tables.h"
#include "client/base/utf8.h"

#include <errno.h>
#include <stdlib.h>

enum {
    N_RUNS = sizeof(unicode_runs) / sizeof(unicode_runs[0]),
    CASED = 11 /* a run of letters that are in turn LU and LL */
};

enum unicode_class unicode_class_of(uint32_t code)
{
    if (code > 0x10ffff)
        return UNICODE_OTHER;
    size_t low = 0, high = N_RUNS; /* the run is in [low, high) */
    if (code < 0x80)
        high = 64; /* ASCII lies in the first 64 runs */
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (unicode_runs[middle] >> 4 <= code)
            low = middle;
        else
            high = middle;
    }
    uint32_t kind = unicode_runs[low] & 15u, first = unicode_runs[low] >> 4;
    if (kind == CASED)
        return (code - first) % 2 == 0 ? UNICODE_LU : UNICODE_LL;
    return (enum unicode_class)kind;
}

int letters_open(struct letters *l, const char *text, size_t bytes)
{
    l->n = 0;
    l->letter = malloc((bytes + 1) * sizeof(*l->letter));
    l->at = malloc((bytes + 1) * sizeof(*l->at));
    if (l->letter == NULL || l->at == NULL) {
        letters_close(l);
        return -ENOMEM;
    }
    uint32_t ascii[128]; /* classes of the most frequent letters, looked up once */
    for (uint32_t c = 0; c < 128; c++)
        ascii[c] = c | (uint32_t)unicode_class_of(c) << 24;
    for (size_t at = 0; at < bytes;) {
        unsigned char first = (unsigned char)text[at];
        l->at[l->n] = (uint32_t)at;
        if (first < 0x80) {
            l->letter[l->n++] = ascii[first];
            at++;
            continue;
        }
        uint32_t code = UTF8_REPLACEMENT;
        int step = utf8_step(text + at, bytes - at, &code);
        l->letter[l->n++] = code | (uint32_t)unicode_class_of(code) << 24;
        at += step > 0 ? (size_t)step : 1;
    }
    l->at[l->n] = (uint32_t)bytes;
    return 0;
}

void letters_close(struct letters *l)
{
    free(l->letter);
    free(l->at);
    *l = (struct letters){0};
}
