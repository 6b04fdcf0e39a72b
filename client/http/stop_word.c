/* stop_word: see stop_word.h. */
#include "client/http/stop_word.h"

#include "client/base/buffer.h"

#include <string.h>

static bool is_shown(const struct hearth_request *q, uint32_t id)
{
    for (uint32_t i = 0; i < q->n_shown_tokens; i++)
        if (q->shown_tokens[i] == id)
            return true;
    return false;
}

static void add_tokens(struct buffer *all, struct hearth *h, const uint32_t *ids, size_t n,
                       uint32_t flags)
{
    const int64_t bytes = hearth_detokenize(h, ids, n, flags, NULL, 0);
    if (bytes <= 0 || !buffer_reserve(all, (size_t)bytes))
        return;
    (void)hearth_detokenize(h, ids, n, flags, all->data + all->bytes, (size_t)bytes);
    all->bytes += (size_t)bytes;
}

const char *stop_word_find(struct hearth *h, const struct hearth_request *q,
                           const struct hearth_result *r)
{
    struct buffer all = {0};
    const char *found = NULL;
    size_t first = 0;
    for (size_t at = 0, n; at < r->n_ids; at += n) {
        const bool shown = is_shown(q, r->ids[at]);
        for (n = 1; at + n < r->n_ids && is_shown(q, r->ids[at + n]) == shown;)
            n++;
        add_tokens(&all, h, r->ids + at, n, shown ? HEARTH_SPECIAL : 0);
    }
    for (uint32_t i = 0; i < q->n_stops && all.bytes; i++) {
        const char *at = memmem(all.data, all.bytes, q->stops[i], strlen(q->stops[i]));
        if (!at || (found && (size_t)(at - all.data) >= first))
            continue;
        first = (size_t)(at - all.data);
        found = q->stops[i];
    }
    buffer_fini(&all);
    return found;
}
