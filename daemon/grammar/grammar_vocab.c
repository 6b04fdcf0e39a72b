/* grammar_vocab.c: the vocabulary as a trie of bytes: tokens sorted, common prefixes once. */
#include "daemon/grammar/grammar_impl.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 32 }; /* at most this many keys are sorted by comparing instead of by radix */

/* A token to be sorted: a radix sort by the first eight bytes, in which most tokens differ, and a
 * comparison beyond them. */
struct sort_key {
    uint64_t head; /* the first eight bytes, big-endian, padded with 0 */
    const uint8_t *bytes;
    uint32_t n, id;
};

static int compare(const void *x, const void *y)
{
    const struct sort_key *a = x, *b = y;
    if (a->head != b->head)
        return a->head < b->head ? -1 : 1;
    const uint32_t n = a->n < b->n ? a->n : b->n;
    const int order = n > 0 ? memcmp(a->bytes, b->bytes, n) : 0;
    if (order != 0)
        return order;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : 1; /* two tokens with the same text */
}

static uint64_t head_of(const uint8_t *bytes, uint32_t n)
{
    uint64_t head = 0;
    memcpy(&head, bytes, n < 8 ? n : 8);
    return be64toh(head);
}

/* Sorts n keys that agree above the byte that ends at bit `shift`: by that byte, then each bucket
 * by the next one. `room` [n] is scratch. */
static void sort(struct sort_key *keys, struct sort_key *room, uint32_t n, int shift)
{
    uint32_t at[256] = {0}, begin = 0;
    memcpy(room, keys, n * sizeof(*keys));
    for (uint32_t i = 0; i < n; i++)
        at[room[i].head >> shift & 255]++;
    for (uint32_t byte = 0; byte < 256; byte++) {
        const uint32_t count = at[byte];
        at[byte] = begin;
        begin += count;
    }
    for (uint32_t i = 0; i < n; i++)
        keys[at[room[i].head >> shift & 255]++] = room[i];
    begin = 0;
    for (uint32_t byte = 0; byte < 256; begin = at[byte++]) {
        const uint32_t count = at[byte] - begin;
        if (count > FEW && shift > 0)
            sort(keys + begin, room, count, shift - 8);
        else if (count > 1)
            qsort(keys + begin, count, sizeof(*keys), compare);
    }
}

/* Collects the tokens that have text, sorted; keys are [2 * n_vocab]. Returns how many. */
static uint32_t collect(const struct grammar_vocab *v, struct sort_key *keys)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < v->n_vocab; id++) {
        const uint32_t bytes = v->at[id + 1] - v->at[id];
        if (bytes == 0)
            continue;
        const uint8_t *text = v->text + v->at[id];
        keys[n++] = (struct sort_key){head_of(text, bytes), text, bytes, id};
    }
    sort(keys, keys + n, n, 56);
    return n;
}

/* Keeps those of more than GRAMMAR_SHORT bytes. Returns how many. */
static uint32_t keep_long(struct sort_key *keys, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (keys[i].n > GRAMMAR_SHORT)
            keys[kept++] = keys[i];
    return kept;
}

static uint32_t common(const struct sort_key *a, const struct sort_key *b)
{
    const uint64_t differs = a->head ^ b->head;
    const uint32_t most = a->n < b->n ? a->n : b->n;
    uint32_t n = differs ? (uint32_t)__builtin_clzll(differs) / 8 : 8;
    while (!differs && n < most && a->bytes[n] == b->bytes[n])
        n++;
    return n < most ? n : most;
}

static void fill(struct grammar_trie *t, const struct sort_key *keys)
{
    uint32_t path[GRAMMAR_TOKEN_MAX]; /* nodes from the root down to the last token */
    uint32_t depth = 0, node = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        const uint32_t kept = i > 0 ? common(&keys[i - 1], &keys[i]) : 0;
        while (depth > kept)
            t->next[path[--depth]] = node;
        while (depth < keys[i].n) {
            path[depth] = node;
            t->byte[node] = keys[i].bytes[depth++];
            t->depth[node] = (uint16_t)depth;
            t->first[node++] = i;
        }
        t->ids[i] = keys[i].id;
    }
    while (depth > 0)
        t->next[path[--depth]] = node;
    t->first[node] = t->n_tokens;
}

static int build(const struct sort_key *keys, uint32_t n_keys, struct grammar_trie *t)
{
    t->n_tokens = n_keys;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        t->n_nodes += keys[i].n - (i > 0 ? common(&keys[i - 1], &keys[i]) : 0);
        t->longest = keys[i].n > t->longest ? keys[i].n : t->longest;
    }
    const size_t n = t->n_nodes + 1u; /* never 0 */
    t->byte = calloc(n, sizeof(*t->byte));
    t->depth = calloc(n, sizeof(*t->depth));
    t->next = calloc(n, sizeof(*t->next));
    t->first = calloc(n, sizeof(*t->first));
    t->ids = calloc(t->n_tokens + 1u, sizeof(*t->ids));
    if (t->byte == NULL || t->depth == NULL || t->next == NULL || t->first == NULL ||
        t->ids == NULL)
        return -ENOMEM;
    fill(t, keys);
    return 0;
}

static void trie_free(struct grammar_trie *t)
{
    free(t->byte);
    free(t->depth);
    free(t->next);
    free(t->first);
    free(t->ids);
}

void grammar_spell_control(uint32_t id, uint8_t to[GRAMMAR_CONTROL_BYTES])
{
    const uint32_t big = htobe32(id);
    to[0] = GRAMMAR_CONTROL;
    memcpy(to + 1, &big, sizeof(big));
}

/* The length of a token's text, or 0 if it may not occur in an answer. */
static uint32_t text_bytes(const struct grammar_token *t)
{
    if (t->is_end)
        return 0;
    if (t->is_control)
        return GRAMMAR_CONTROL_BYTES;
    const bool fits = t->n_bytes <= GRAMMAR_TOKEN_MAX && t->n_bytes > 0 &&
                      memchr(t->bytes, GRAMMAR_CONTROL, t->n_bytes) == NULL;
    return fits ? t->n_bytes : 0;
}

static int copy_tokens(struct grammar_vocab *v, const struct grammar_token *tokens,
                       uint32_t n_tokens)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n_tokens; i++) {
        bytes += text_bytes(&tokens[i]);
        v->n_ends += tokens[i].is_end;
    }
    if (bytes > UINT32_MAX)
        return -EINVAL;
    v->at = calloc(v->n_vocab + 1u, sizeof(*v->at));
    v->text = malloc(bytes + 1);
    v->ends = calloc(v->n_ends + 1u, sizeof(*v->ends));
    v->short_bits = calloc(v->n_words, sizeof(*v->short_bits));
    if (v->at == NULL || v->text == NULL || v->ends == NULL || v->short_bits == NULL)
        return -ENOMEM;
    uint32_t at = 0, n_ends = 0;
    for (uint32_t i = 0; i < v->n_vocab; i++) {
        const uint32_t n = i < n_tokens ? text_bytes(&tokens[i]) : 0;
        v->at[i] = at;
        if (n > 0 && tokens[i].is_control)
            grammar_spell_control(i, v->text + at);
        else if (n > 0)
            memcpy(v->text + at, tokens[i].bytes, n);
        at += n;
        if (n > 0 && n <= GRAMMAR_SHORT)
            v->short_bits[i >> 6] |= (uint64_t)1 << (i & 63);
        if (i < n_tokens && tokens[i].is_end)
            v->ends[n_ends++] = i;
    }
    v->at[v->n_vocab] = at;
    return 0;
}

int grammar_vocab_open(const struct grammar_token *tokens, uint32_t n_tokens, uint32_t n_vocab,
                       struct grammar_vocab **ret)
{
    if (n_vocab == 0 || n_tokens > n_vocab || n_vocab > UINT32_MAX / 64)
        return -EINVAL;
    struct grammar_vocab *v = calloc(1, sizeof(*v));
    struct sort_key *keys = calloc(n_vocab, 2 * sizeof(*keys));
    uint32_t n = 0;
    int rc = v == NULL || keys == NULL ? -ENOMEM : 0;
    if (rc == 0) {
        v->n_vocab = n_vocab;
        v->n_words = (n_vocab + 63) / 64;
        rc = copy_tokens(v, tokens, n_tokens);
    }
    if (rc == 0) {
        n = collect(v, keys);
        rc = build(keys, n, &v->all);
    }
    if (rc == 0)
        rc = build(keys, keep_long(keys, n), &v->long_tokens);
    free(keys);
    if (rc < 0) {
        grammar_vocab_close(v);
        return rc;
    }
    *ret = v;
    return 0;
}

void grammar_vocab_close(struct grammar_vocab *v)
{
    if (v == NULL)
        return;
    trie_free(&v->all);
    trie_free(&v->long_tokens);
    free(v->ends);
    free(v->at);
    free(v->text);
    free(v->short_bits);
    free(v);
}

static size_t trie_memory(const struct grammar_trie *t)
{
    return t->n_nodes *
               (sizeof(*t->byte) + sizeof(*t->depth) + sizeof(*t->next) + sizeof(*t->first)) +
           t->n_tokens * sizeof(*t->ids);
}

size_t grammar_vocab_memory(const struct grammar_vocab *v)
{
    return sizeof(*v) + trie_memory(&v->all) + trie_memory(&v->long_tokens) +
           (v->n_vocab + 1u) * sizeof(*v->at) + v->at[v->n_vocab] +
           v->n_words * sizeof(*v->short_bits) + v->n_ends * sizeof(*v->ends);
}
