/* characters: counts the characters of a text that arrives in pieces, which may split one. */
#ifndef HEARTH_CLIENT_HTTP_CHARACTERS_H
#define HEARTH_CLIENT_HTTP_CHARACTERS_H

#include <stddef.h>

struct characters {
    size_t n; /* whole ones so far: where the next begins, or the one that is not whole yet */
    char tail[4];
    size_t n_tail; /* bytes of that one */
};

/* Bytes that are not UTF-8 count as the U+FFFD that stands for them. */
void characters_add(struct characters *c, const char *bytes, size_t n);

#endif
