/* characters: see characters.h. */
#include "client/http/characters.h"

#include "client/base/utf8.h"

#include <stdint.h>
#include <string.h>

void characters_add(struct characters *c, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t code;
        int step;
        c->tail[c->n_tail++] = bytes[i];
        while (c->n_tail && (step = utf8_step(c->tail, c->n_tail, &code))) {
            size_t used = (size_t)(step < 0 ? -step : step);
            c->n++;
            c->n_tail -= used;
            memmove(c->tail, c->tail + used, c->n_tail);
        }
    }
}
