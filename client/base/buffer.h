/* text.h - bytes that grow: bodies, and what is to be sent.
 *
 * A failed allocation sets `failed` and drops what came; whoever sends the text looks at it once,
 * at the end. Owns its memory until text_fini.
 */
#ifndef HEARTH_CLIENT_HTTP_TEXT_H
#define HEARTH_CLIENT_HTTP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *bytes; /* [n], NULL before the first */
    size_t n, room;
    bool failed;
};

void text_add(struct text *t, const void *bytes, size_t n);
void text_puts(struct text *t, const char *string);
__attribute__((format(printf, 2, 3))) void text_printf(struct text *t, const char *format, ...);

/* Takes the first n bytes away. */
void text_drop(struct text *t, size_t n);

void text_fini(struct text *t);

#endif
