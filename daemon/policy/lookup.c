/* Two hash tables of positions, the newest occurrence wins. */
#include "daemon/policy/lookup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t gram_slot(const uint32_t *tokens, uint32_t n)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < n; i++)
        hash = (hash ^ tokens[i]) * 0x9E3779B185EBCA87u;
    return (uint32_t)(hash >> 40) % LOOKUP_ENTRIES;
}

int lookup_open(struct lookup *lookup)
{
    lookup->indexed = 0;
    lookup->after_long = calloc(LOOKUP_ENTRIES, sizeof(uint32_t));
    lookup->after_short = calloc(LOOKUP_ENTRIES, sizeof(uint32_t));
    if (lookup->after_long && lookup->after_short)
        return 0;
    lookup_close(lookup);
    return -ENOMEM;
}

void lookup_close(struct lookup *lookup)
{
    free(lookup->after_long);
    free(lookup->after_short);
    *lookup = (struct lookup){0};
}

void lookup_begin(struct lookup *lookup, uint32_t common)
{
    if (lookup->indexed > common)
        lookup->indexed = common;
}

void lookup_feed(struct lookup *lookup, const uint32_t *tokens, uint32_t n_tokens)
{
    if (n_tokens > lookup->indexed && n_tokens - lookup->indexed > LOOKUP_FEED)
        n_tokens = lookup->indexed + LOOKUP_FEED;
    for (uint32_t end = lookup->indexed + 1; end <= n_tokens; end++) {
        if (end >= LOOKUP_LONG)
            lookup->after_long[gram_slot(tokens + end - LOOKUP_LONG, LOOKUP_LONG)] = end;
        if (end >= LOOKUP_SHORT)
            lookup->after_short[gram_slot(tokens + end - LOOKUP_SHORT, LOOKUP_SHORT)] = end;
    }
    if (lookup->indexed < n_tokens)
        lookup->indexed = n_tokens;
}

/* The entry for the last n tokens, if it is about these tokens and lies before them. */
static uint32_t lookup_in(const uint32_t *table, const uint32_t *tokens, uint32_t n_tokens,
                          uint32_t n)
{
    if (n_tokens < n)
        return 0;
    const uint32_t *gram = tokens + n_tokens - n;
    uint32_t after = table[gram_slot(gram, n)];
    if (after < n || after >= n_tokens || memcmp(tokens + after - n, gram, n * sizeof(*gram)) != 0)
        return 0;
    return after;
}

uint32_t lookup_find(const struct lookup *lookup, const uint32_t *tokens, uint32_t n_tokens)
{
    uint32_t after = lookup_in(lookup->after_long, tokens, n_tokens, LOOKUP_LONG);
    return after ? after : lookup_in(lookup->after_short, tokens, n_tokens, LOOKUP_SHORT);
}
