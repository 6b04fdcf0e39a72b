/* printable: see printable.h. */
#include "client/base/printable.h"

#include "client/base/utf8.h"

#include <stdbool.h>
#include <string.h>

/* Not shown, from the first to the last of each row, in ascending order. */
static const uint32_t hidden[][2] = {
    {0x0, 0x1f},        /* control characters */
    {0x7f, 0x9f},       /* control characters */
    {0xad, 0xad},       /* soft hyphen */
    {0x34f, 0x34f},     /* grapheme joiner */
    {0x61c, 0x61c},     /* Arabic letter mark */
    {0x115f, 0x1160},   /* Hangul fillers */
    {0x17b4, 0x17b5},   /* Khmer vowels that are not seen */
    {0x180b, 0x180f},   /* Mongolian variants */
    {0x200b, 0x200f},   /* of no width: spaces, joiners, directional marks */
    {0x2028, 0x202e},   /* line ends and directions */
    {0x2060, 0x206f},   /* joiner, operators, isolates, deprecated */
    {0x3164, 0x3164},   /* Hangul filler */
    {0xfeff, 0xfeff},   /* byte order mark */
    {0xffa0, 0xffa0},   /* Hangul filler */
    {0xfff0, 0xfffb},   /* reserved; annotations */
    {0x1bca0, 0x1bca3}, /* controls of shorthand */
    {0x1d173, 0x1d17a}, /* controls of music */
    {0xe0000, 0xe0fff}, /* tags, which spell invisible ASCII; variants, which spell any bytes */
};

bool printable_is_shown(uint32_t code)
{
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]) && hidden[i][0] <= code; i++)
        if (code <= hidden[i][1])
            return false;
    return true;
}

/* The bytes of the first character, [n > 0] of a text; or of what is none, which is then not shown. */
static size_t step(const char *text, size_t n, uint32_t *ret_code, bool *ret_shown)
{
    int bytes = utf8_step(text, n, ret_code);
    *ret_shown = bytes > 0 && printable_is_shown(*ret_code);
    if (bytes > 0)
        return (size_t)bytes;
    *ret_code = (unsigned char)*text;
    return 1;
}

void printable_add(struct buffer *b, const char *text, size_t bytes, const char *keeps)
{
    uint32_t code;
    bool shown;
    for (size_t i = 0, n; i < bytes; i += n) {
        n = step(text + i, bytes - i, &code, &shown);
        const bool whole = n > 1 || code < 0x80; /* no part of one that is kept */
        if (shown || (whole && memmem(keeps, strlen(keeps), text + i, n)))
            buffer_add(b, text + i, n);
        else
            buffer_format(b, n == 1 ? "\\x%02x" : "\\u%04x", code);
    }
}

void printable_mask(char *text)
{
    uint32_t code;
    bool shown;
    for (size_t n, left = strlen(text); left > 0; text += n, left -= n) {
        n = step(text, left, &code, &shown);
        if (!shown)
            memset(text, '?', n);
    }
}
