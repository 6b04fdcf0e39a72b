/* prefix_break: see prefix_break.h. */
#include "client/http/prefix_break.h"

#include "client/http/say.h"

#include <stdbool.h>
#include <stdio.h>

enum {
    PAGE = 32,   /* an answer's end may be written in other tokens */
    QUOTED = 10, /* tokens of each quote */
    QUOTE_BYTES = 48,
};

struct quote {
    char text[QUOTE_BYTES + 1];
};

/* The text of ids[from, to), in one line of whole characters; the end of it where it is too long and
 * `end` is set. */
static struct quote quote(struct hearth *h, const uint32_t *ids, size_t from, size_t to, bool end)
{
    struct quote q;
    char all[4096];
    int64_t got = hearth_detokenize(h, ids + from, to - from, HEARTH_SPECIAL, all, sizeof(all));
    size_t n = got < 0 ? 0 : (size_t)got < sizeof(all) ? (size_t)got : sizeof(all);
    size_t at = end && n > QUOTE_BYTES ? n - QUOTE_BYTES : 0, bytes = 0;
    while (at < n && ((unsigned char)all[at] & 0xc0) == 0x80)
        at++;
    for (; at < n && bytes < QUOTE_BYTES; at++)
        q.text[bytes++] = (unsigned char)all[at] < ' ' || all[at] == 127 ? ' ' : all[at];
    while (bytes && at < n && ((unsigned char)all[at] & 0xc0) == 0x80)
        at--, bytes--;
    q.text[bytes] = 0;
    return q;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void prefix_break_tell(struct hearth *h, int slot, const struct token_list *held,
                       const struct hearth_request *r, uint32_t common)
{
    char line[512];
    if (held->n - common <= PAGE || r->n_tokens - common <= PAGE)
        return;
    struct quote before = quote(h, r->tokens, common > QUOTED ? common - QUOTED : 0, common, true),
                 was = quote(h, held->ids, common, least(held->n, common + QUOTED), false),
                 is = quote(h, r->tokens, common, least(r->n_tokens, common + QUOTED), false);
    snprintf(line, sizeof(line),
             "slot %d: a prompt of %u tokens leaves the %zu that were there at token %u: after "
             "\"%s\", \"%s\" became \"%s\"",
             slot, r->n_tokens, held->n, common, before.text, was.text, is.text);
    say(6, line);
}
