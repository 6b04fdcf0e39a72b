/* vocab_merges.c: turns the merges of a description into pairs of ids. Each takes three lookups in
 * tables far larger than the caches, so merges are done in batches: all of a batch prefetch what
 * their next step reads, then all take that step. The batch waits for memory once a step instead of
 * once a merge. */
#include "ipc/vocab_build_impl.h"

enum { BATCH = 32 };
enum { LEFT, RIGHT, MERGED, PARTS };

/* One merge, "left right". */
struct merge_text {
    struct vocab_string text; /* 0 bytes: not a valid merge */
    size_t n_left;
    uint64_t hash[PARTS];
    uint32_t id[PARTS];
};

/* joined[0, return): left and right concatenated. */
static size_t join(const struct merge_text *m, char *joined)
{
    const size_t n_right = m->text.bytes - m->n_left - 1;
    memcpy(joined, m->text.data, m->n_left);
    memcpy(joined + m->n_left, m->text.data + m->n_left + 1, n_right);
    return m->n_left + n_right;
}

static const char *right_of(const struct merge_text *m, size_t *ret_bytes)
{
    *ret_bytes = m->text.bytes - m->n_left - 1;
    return m->text.data + m->n_left + 1;
}

/* A text longer than two tokens cannot be a merge. */
static void split(struct merge_text *m, struct vocab_string text)
{
    char joined[2 * VOCAB_MAX_TEXT_BYTES];
    *m = (struct merge_text){0};
    if (text.bytes < 3 || text.bytes > sizeof(joined))
        return;
    const char *space = memchr(text.data + 1, ' ', text.bytes - 1);
    if (space == NULL)
        return;
    m->text = text;
    m->n_left = (size_t)(space - text.data);
    size_t n_right;
    const char *right = right_of(m, &n_right);
    m->hash[LEFT] = vocab_hash_text(text.data, m->n_left);
    m->hash[RIGHT] = vocab_hash_text(right, n_right);
    const size_t n = join(m, joined);
    m->hash[MERGED] = vocab_hash_text(joined, n);
}

static const struct vocab_slot *slot_of(const struct build *b, uint64_t hash)
{
    return &b->lookup[(uint32_t)hash & b->header->lookup_mask];
}

static const struct vocab_entry *entry_of(const struct build *b, uint64_t hash)
{
    const uint32_t id = slot_of(b, hash)->id;
    return &b->tokens[id < b->header->n_tokens ? id : 0];
}

static uint32_t find(struct build *b, uint64_t hash, const char *text, size_t bytes)
{
    if (bytes == 0 || bytes > VOCAB_MAX_TEXT_BYTES)
        return VOCAB_NONE;
    return vocab_find_hashed(&b->view, hash, text, bytes, &b->alike_bytes);
}

static void find_parts(struct build *b, struct merge_text *m)
{
    char joined[2 * VOCAB_MAX_TEXT_BYTES];
    size_t n_right;
    const char *right = right_of(m, &n_right);
    m->id[LEFT] = find(b, m->hash[LEFT], m->text.data, m->n_left);
    m->id[RIGHT] = find(b, m->hash[RIGHT], right, n_right);
    const size_t n = join(m, joined);
    m->id[MERGED] = find(b, m->hash[MERGED], joined, n);
    b->crowded |= b->alike_bytes > VOCAB_ALIKE_MOST;
}

static uint32_t place_of(const struct build *b, const struct merge_text *m)
{
    return vocab_hash_pair(m->id[LEFT], m->id[RIGHT]) & b->header->merges_mask;
}

/* Skips a merge whose parts or result are not tokens: it can never be used. */
static void add(struct build *b, const struct merge_text *m, uint32_t rank)
{
    const uint32_t left = m->id[LEFT], right = m->id[RIGHT], merged = m->id[MERGED];
    if (left == VOCAB_NONE || right == VOCAB_NONE || merged == VOCAB_NONE)
        return;
    uint32_t at = place_of(b, m), row = 0;
    for (; b->merges[at].left != VOCAB_NONE && row < VOCAB_ROW_MOST; row++) {
        if (b->merges[at].left == left && b->merges[at].right == right)
            return; /* an earlier one has the better rank */
        at = (at + 1) & b->header->merges_mask;
    }
    b->crowded |= row == VOCAB_ROW_MOST;
    if (!b->crowded)
        b->merges[at] = (struct vocab_merge){left, right, rank, merged};
}

/* Merges first .. first + n - 1. */
static void add_batch(struct build *b, uint32_t first, uint32_t n)
{
    struct merge_text batch[BATCH];
    for (uint32_t i = 0; i < n; i++) {
        split(&batch[i], b->desc->merges[first + i]);
        for (int part = 0; part < PARTS; part++)
            __builtin_prefetch(slot_of(b, batch[i].hash[part]));
    }
    for (uint32_t i = 0; i < n; i++)
        for (int part = 0; part < PARTS; part++)
            __builtin_prefetch(entry_of(b, batch[i].hash[part]));
    for (uint32_t i = 0; i < n; i++)
        for (int part = 0; part < PARTS; part++)
            __builtin_prefetch(b->pool + entry_of(b, batch[i].hash[part])->text_at);
    for (uint32_t i = 0; i < n; i++) {
        if (batch[i].text.bytes > 0)
            find_parts(b, &batch[i]);
        __builtin_prefetch(&b->merges[place_of(b, &batch[i])]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (batch[i].text.bytes > 0)
            add(b, &batch[i], first + i);
}

void vocab_build_merges(struct build *b)
{
    const uint32_t n = b->desc->n_merges;
    for (uint32_t first = 0; first < n && !b->crowded; first += BATCH)
        add_batch(b, first, n - first < BATCH ? n - first : BATCH);
}
