/* vocab.c: reads a vocabulary block in place; every access is checked. */
#include "ipc/vocab.h"

#include "ipc/vocab_layout.h"

#include <errno.h>
#include <stdio.h>

/* True if a section of `count` items lies inside the block, after the header, aligned. */
static bool section_valid(const struct vocab_header *h, uint64_t at, uint64_t count, size_t item)
{
    return at >= sizeof(*h) && at % 8 == 0 && at <= h->block_bytes &&
           count <= (h->block_bytes - at) / item;
}

/* True if they lie inside the block, each with its terminating 0. */
static bool templates_valid(const struct vocab_header *h)
{
    for (int i = 0; i < VOCAB_TEMPLATE_COUNT; i++) {
        uint64_t bytes = h->template_bytes[i];
        if (bytes > VOCAB_MAX_TEMPLATE_BYTES || !section_valid(h, h->templates_at[i], bytes + 1, 1))
            return false;
        if (((const char *)h)[h->templates_at[i] + bytes] != 0)
            return false;
    }
    return true;
}

static bool mask_valid(uint32_t mask)
{
    return (mask & (mask + 1u)) == 0 && mask < (1u << 28);
}

static const char *header_fault(const struct vocab_header *h, size_t bytes)
{
    if (h->magic != VOCAB_MAGIC)
        return "it is not a vocabulary";
    if (h->version != VOCAB_VERSION || h->header_bytes != sizeof(*h))
        return "it was made by another version of hearth";
    if (h->block_bytes < sizeof(*h) || h->block_bytes > bytes)
        return "it is truncated";
    if (h->model < VOCAB_MODEL_SPM || h->model > VOCAB_MODEL_GEMMA4)
        return "its tokenizer is unknown";
    if (h->pre >= VOCAB_PRE_COUNT || (h->model == VOCAB_MODEL_BPE) != (h->pre != VOCAB_PRE_NONE))
        return "its pre-tokenizer is unknown";
    if (h->n_tokens == 0 || h->n_tokens > VOCAB_MAX_TOKENS || h->n_specials > h->n_tokens)
        return "its counts are wrong";
    if (!mask_valid(h->lookup_mask) || !mask_valid(h->merges_mask))
        return "its tables' sizes are wrong";
    if (!section_valid(h, h->tokens_at, h->n_tokens, sizeof(struct vocab_entry)) ||
        !section_valid(h, h->lookup_at, h->lookup_mask + 1ull, sizeof(struct vocab_slot)) ||
        !section_valid(h, h->merges_at, h->merges_mask + 1ull, sizeof(struct vocab_merge)) ||
        !section_valid(h, h->specials_at, h->n_specials, sizeof(uint32_t)) ||
        !section_valid(h, h->special_starts_at, 257, sizeof(uint32_t)) ||
        !section_valid(h, h->pool_at, h->pool_bytes, 1) || !templates_valid(h))
        return "a section lies outside of it";
    return NULL;
}

static bool starts_valid(const struct vocab *v)
{
    for (int c = 0; c < 256; c++) {
        if (v->special_starts[c] > v->special_starts[c + 1])
            return false;
    }
    return v->special_starts[256] <= v->n_specials;
}

int vocab_open(const void *block, size_t bytes, struct vocab *v, char *err, size_t err_bytes)
{
    const struct vocab_header *h = block;
    const char *base = block;
    const char *fault = "it is truncated";
    if (bytes >= sizeof(*h))
        fault = (uintptr_t)block % 8 != 0 ? "it is not aligned" : header_fault(h, bytes);
    if (fault == NULL) {
        *v = (struct vocab){
            .header = h,
            .tokens = (const void *)(base + h->tokens_at),
            .lookup = (const void *)(base + h->lookup_at),
            .merges = (const void *)(base + h->merges_at),
            .specials = (const void *)(base + h->specials_at),
            .special_starts = (const void *)(base + h->special_starts_at),
            .pool = base + h->pool_at,
            .n_tokens = h->n_tokens,
            .n_specials = h->n_specials,
            .lookup_mask = h->lookup_mask,
            .merges_mask = h->merges_mask,
            .pool_bytes = h->pool_bytes,
            .model = (enum vocab_model)h->model,
            .pre = (enum vocab_pre)h->pre,
            .flags = h->flags,
        };
        for (int i = 0; i < VOCAB_TEMPLATE_COUNT; i++)
            v->templates[i] = (struct vocab_string){.data = base + h->templates_at[i],
                                                    .bytes = (size_t)h->template_bytes[i]};
        if (!starts_valid(v))
            fault = "its special tokens are out of order";
    }
    if (fault == NULL)
        return 0;
    snprintf(err, err_bytes, "the vocabulary cannot be used: %s", fault);
    return -EBADMSG;
}

/* The entry of id, or NULL where there is none or its texts lie outside the pool. */
static const struct vocab_entry *find_entry(const struct vocab *v, uint32_t id)
{
    if (id >= v->n_tokens)
        return NULL;
    const struct vocab_entry *e = &v->tokens[id];
    if (e->text_at > v->pool_bytes || e->text_bytes > v->pool_bytes - e->text_at ||
        e->bytes_at > v->pool_bytes || e->n_bytes > v->pool_bytes - e->bytes_at)
        return NULL;
    return e;
}

static enum vocab_type type_of(const struct vocab_entry *e)
{
    bool known = e->type >= VOCAB_TYPE_NORMAL && e->type <= VOCAB_TYPE_BYTE;
    return known ? (enum vocab_type)e->type : VOCAB_TYPE_NORMAL;
}

bool vocab_find_token(const struct vocab *v, uint32_t id, struct vocab_token *ret)
{
    const struct vocab_entry *e = find_entry(v, id);
    if (e == NULL)
        return false;
    *ret = (struct vocab_token){
        .text = v->pool + e->text_at,
        .bytes = v->pool + e->bytes_at,
        .text_bytes = e->text_bytes,
        .n_bytes = e->n_bytes,
        .score = e->score,
        .type = type_of(e),
        .end = (e->flags & VOCAB_ENTRY_END) != 0,
    };
    return true;
}

const char *vocab_bytes(const struct vocab *v, uint32_t id, uint32_t *ret_n)
{
    const struct vocab_entry *e = find_entry(v, id);
    *ret_n = e == NULL ? 0 : e->n_bytes;
    return e == NULL ? NULL : v->pool + e->bytes_at;
}

uint32_t vocab_find_text(const struct vocab *v, const char *text, size_t bytes)
{
    uint64_t alike_bytes = 0;
    if (bytes == 0 || bytes > VOCAB_MAX_TEXT_BYTES)
        return VOCAB_NONE;
    return vocab_find_hashed(v, vocab_hash_text(text, bytes), text, bytes, &alike_bytes);
}

uint32_t vocab_find_hashed(const struct vocab *v, uint64_t hash, const char *text, size_t bytes,
                           uint64_t *alike_bytes)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    /* At most once around the table: a damaged one may have no free entry. */
    for (uint32_t i = 0; i <= v->lookup_mask; i++) {
        const struct vocab_slot *s = &v->lookup[((uint32_t)hash + i) & v->lookup_mask];
        uint32_t id = s->id;
        if (id == VOCAB_NONE)
            return VOCAB_NONE;
        if (s->tag != tag)
            continue;
        const struct vocab_entry *e = find_entry(v, id);
        if (e != NULL && e->text_bytes == bytes && memcmp(v->pool + e->text_at, text, bytes) == 0)
            return id;
        *alike_bytes += bytes;
    }
    return VOCAB_NONE;
}

static uint32_t id_or_none(const struct vocab *v, uint32_t id)
{
    return id < v->n_tokens ? id : VOCAB_NONE;
}

uint32_t vocab_byte_token(const struct vocab *v, uint8_t byte)
{
    return id_or_none(v, v->header->byte_tokens[byte]);
}

uint32_t vocab_special(const struct vocab *v, enum vocab_role role)
{
    return (unsigned)role < VOCAB_ROLE_COUNT ? id_or_none(v, v->header->roles[role]) : VOCAB_NONE;
}

bool vocab_find_merge(const struct vocab *v, uint32_t left, uint32_t right, uint32_t *ret_rank,
                      uint32_t *ret_merged)
{
    uint32_t hash = vocab_hash_pair(left, right);
    for (uint32_t i = 0; i <= v->merges_mask; i++) {
        const struct vocab_merge *m = &v->merges[(hash + i) & v->merges_mask];
        if (m->left == VOCAB_NONE)
            return false;
        if (m->left != left || m->right != right)
            continue;
        *ret_rank = m->rank;
        *ret_merged = id_or_none(v, m->merged);
        return *ret_merged != VOCAB_NONE;
    }
    return false;
}

bool vocab_is_end(const struct vocab *v, uint32_t id)
{
    return id < v->n_tokens && (v->tokens[id].flags & VOCAB_ENTRY_END) != 0;
}

bool vocab_is_control(const struct vocab *v, uint32_t id)
{
    return id < v->n_tokens && v->tokens[id].type == VOCAB_TYPE_CONTROL;
}

bool vocab_is_text(const struct vocab *v, uint32_t id)
{
    return id < v->n_tokens &&
           (!vocab_is_control(v, id) || (v->tokens[id].flags & VOCAB_ENTRY_SHOWN) != 0);
}

struct vocab_string vocab_template(const struct vocab *v, enum vocab_template which)
{
    return v->templates[which];
}

/* ---- special tokens: a model may have thousands that begin alike ----------------------------- */

/* Of specials [low, high), the first whose text has at most so many bytes. */
static uint32_t find_length(const struct vocab *v, uint32_t low, uint32_t high, size_t most)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct vocab_entry *e = find_entry(v, v->specials[middle]);
        if (e != NULL && e->text_bytes > most)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How special i stands to a text, and a user-defined token of it, in the order of specials. */
static int compare_special(const struct vocab *v, uint32_t i, struct vocab_string text, bool user)
{
    const struct vocab_entry *e = find_entry(v, v->specials[i]);
    if (e == NULL || e->text_bytes != text.bytes)
        return -1;
    const int order = memcmp(v->pool + e->text_at, text.data, text.bytes);
    return order == 0 && user && e->type != VOCAB_TYPE_USER_DEFINED ? -1 : order;
}

/* Of specials [low, high), whose texts are as long as this one, the first of that text, or the
 * first user-defined one. */
static uint32_t find_special(const struct vocab *v, uint32_t low, uint32_t high,
                             struct vocab_string text, bool user)
{
    const uint32_t end = high;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (compare_special(v, middle, text, user) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && compare_special(v, low, text, user) == 0 ? v->specials[low] : VOCAB_NONE;
}

uint32_t vocab_match_special(const struct vocab *v, const char *text, size_t bytes, bool control,
                             size_t *ret_bytes)
{
    if (bytes == 0)
        return VOCAB_NONE;
    const unsigned first = (unsigned char)text[0];
    const uint32_t end = v->special_starts[first + 1];
    uint32_t i = find_length(v, v->special_starts[first], end, bytes);
    while (i < end) {
        const struct vocab_entry *e = find_entry(v, v->specials[i]);
        const size_t length = e != NULL ? e->text_bytes : 0;
        if (length == 0 || length > bytes)
            return VOCAB_NONE; /* a damaged block */
        const uint32_t next = find_length(v, i + 1, end, length - 1);
        const uint32_t id = find_special(v, i, next, (struct vocab_string){text, length}, !control);
        if (id != VOCAB_NONE) {
            *ret_bytes = length;
            return id;
        }
        i = next;
    }
    return VOCAB_NONE;
}
