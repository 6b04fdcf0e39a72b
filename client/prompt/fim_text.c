/* Two generations of remembered blocks, young and old. What is used is, or becomes, young; when the
 * young ones are many, the old ones go and the young ones are the old. */
#include "client/prompt/fim_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    BLOCK_MIN = 256,  /* bytes of the shortest block, except at a text's end */
    BLOCK_MAX = 2048, /* of the longest: a keystroke tokenizes one block anew */
    BUCKETS = 1024,
    YOUNG_BYTES = 4 << 20, /* of text and ids */
};

struct block {
    struct block *next;
    uint64_t hash; /* of text and flags */
    uint32_t bytes, n, flags;
    uint32_t data[]; /* ids [n], then the text */
};

struct fim_text {
    struct block *young[BUCKETS], *old[BUCKETS];
    size_t young_bytes;
    size_t budget, spent;
    uint64_t looks;
    uint64_t seed; /* by chance, so that no client can work out which texts share a bucket */
};

struct fim_text *fim_text_open(void)
{
    struct fim_text *t = calloc(1, sizeof(*t));
    if (t && getrandom(&t->seed, sizeof(t->seed), 0) != sizeof(t->seed)) {
        free(t);
        return NULL;
    }
    return t;
}

static void drop(struct block **buckets)
{
    for (size_t i = 0; i < BUCKETS; i++)
        while (buckets[i]) {
            struct block *b = buckets[i];
            buckets[i] = b->next;
            free(b);
        }
}

void fim_text_close(struct fim_text *t)
{
    if (!t)
        return;
    drop(t->young);
    drop(t->old);
    free(t);
}

uint64_t fim_text_looks(const struct fim_text *t)
{
    return t->looks;
}

void fim_text_begin(struct fim_text *t, size_t budget)
{
    t->budget = budget ? budget : SIZE_MAX;
    t->spent = 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* A space between two letters: every pre-tokenizer cuts before it, whatever stands further off, and
 * SentencePiece has no piece with one inside. After line breaks this does not hold. */
static int is_cut(const char *s, size_t at)
{
    return s[at] == ' ' && is_letter(s[at - 1]) && is_letter(s[at + 1]);
}

/* Where to cut a text that has no space between two letters: in s[BLOCK_MIN, BLOCK_MAX], after the
 * last line break; without one, before the last blank; without either, between two characters. */
static size_t any_cut(const char *s)
{
    for (size_t i = BLOCK_MAX; i > BLOCK_MIN; i--)
        if (s[i - 1] == '\n')
            return i;
    for (size_t i = BLOCK_MAX; i > BLOCK_MIN; i--)
        if (s[i] == ' ' && s[i - 1] != ' ')
            return i;
    size_t i = BLOCK_MAX;
    while (i > BLOCK_MIN && ((unsigned char)s[i] & 0xc0) == 0x80)
        i--;
    return i;
}

/* A cut shows by the two characters after it, so a text that grows does not move one. */
size_t fim_text_block(const char *text, size_t bytes)
{
    size_t most = bytes < BLOCK_MAX + 2 ? bytes : BLOCK_MAX + 2;
    for (size_t at = BLOCK_MIN; at + 1 < most; at++)
        if (is_cut(text, at))
            return at;
    return bytes > BLOCK_MAX ? any_cut(text) : bytes;
}

/* ---- remembering ----------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    return h ^ h >> 32;
}

/* Once more at the end: the lower bits of a product know nothing of the upper ones. */
static uint64_t hash_of(const struct fim_text *t, const char *text, size_t bytes, unsigned flags)
{
    uint64_t h = mix(t->seed, bytes + flags * (1ull << 32)), word = 0;
    for (; bytes >= 8; text += 8, bytes -= 8) {
        memcpy(&word, text, 8);
        h = mix(h, word);
    }
    word = 0;
    memcpy(&word, text, bytes);
    return mix(mix(h, word), 0);
}

static struct block **find(struct fim_text *t, struct block **buckets, uint64_t hash,
                           const char *text, size_t bytes, unsigned flags)
{
    struct block **at = &buckets[hash % BUCKETS];
    for (; *at; at = &(*at)->next) {
        const struct block *b = *at;
        t->looks++;
        if (b->hash == hash && b->bytes == bytes && b->flags == flags &&
            memcmp(b->data + b->n, text, bytes) == 0)
            break;
    }
    return at;
}

static void keep_young(struct fim_text *t, struct block *b)
{
    struct block **bucket = &t->young[b->hash % BUCKETS];
    b->next = *bucket;
    *bucket = b;
    t->young_bytes += b->bytes + b->n * sizeof(*b->data);
    if (t->young_bytes < YOUNG_BYTES)
        return;
    drop(t->old);
    memcpy(t->old, t->young, sizeof(t->old));
    memset(t->young, 0, sizeof(t->young));
    t->young_bytes = 0;
}

static const struct block *recall(struct fim_text *t, uint64_t hash, const char *text, size_t bytes,
                                  unsigned flags)
{
    struct block *b = *find(t, t->young, hash, text, bytes, flags);
    if (b)
        return b;
    struct block **at = find(t, t->old, hash, text, bytes, flags);
    b = *at;
    if (!b)
        return NULL;
    *at = b->next;
    keep_young(t, b);
    return b;
}

/* Without memory it is not remembered. */
static void remember(struct fim_text *t, uint64_t hash, const char *text, size_t bytes,
                     unsigned flags, const uint32_t *ids, size_t n)
{
    struct block *b = malloc(sizeof(*b) + n * sizeof(*ids) + bytes);
    if (!b)
        return;
    *b = (struct block){.hash = hash, .bytes = (uint32_t)bytes, .n = (uint32_t)n, .flags = flags};
    if (n)
        memcpy(b->data, ids, n * sizeof(*ids));
    memcpy(b->data + n, text, bytes);
    keep_young(t, b);
}

static int add_block(struct fim_text *t, const struct vocab *v, const char *text, size_t bytes,
                     unsigned flags, struct token_list *out, char *err, size_t err_bytes)
{
    uint64_t hash = hash_of(t, text, bytes, flags);
    const struct block *b = recall(t, hash, text, bytes, flags);
    if (b) {
        int rc = token_list_append(out, b->data, b->n);
        if (rc)
            snprintf(err, err_bytes, "out of memory: free some and try again");
        return rc;
    }
    if (t->spent && t->spent + bytes > t->budget) {
        snprintf(err, err_bytes, "the text is not tokenized completely yet: call again");
        return -EAGAIN;
    }
    t->spent += bytes;
    size_t before = out->n;
    int rc = tokenize(v, text, bytes, flags, out, err, err_bytes);
    if (!rc)
        remember(t, hash, text, bytes, flags, out->ids + before, out->n - before);
    return rc;
}

int fim_text_add(struct fim_text *t, const struct vocab *v, const char *text, size_t bytes,
                 unsigned flags, struct token_list *out, char *err, size_t err_bytes)
{
    int rc = 0;
    while (bytes && !rc) {
        size_t n = fim_text_block(text, bytes);
        rc = add_block(t, v, text, n, flags, out, err, err_bytes);
        text += n;
        bytes -= n;
        flags |= TOKENIZE_CONTINUE;
    }
    return rc;
}
