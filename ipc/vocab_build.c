/* vocab_build.c: builds a vocabulary block (vocab_layout.h) from a description, in three passes
 * over the tokens: types and roles; texts and the lookup table; what needs lookups (bytes, merges,
 * specials). */
#include "ipc/vocab_build_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { FETCH_AHEAD = 8 }; /* tokens */

void vocab_desc_init(struct vocab_desc *d)
{
    *d = (struct vocab_desc){.add_bos = -1, .add_eos = -1, .add_space_prefix = -1};
    for (int i = 0; i < VOCAB_ROLE_COUNT; i++)
        d->roles[i] = -1;
}

/* Reads one letter of GPT-2's byte alphabet at s, n > 0 bytes left: returns its byte, with the
 * letter's length, or -1 for a character outside of the alphabet. The alphabet writes a printable
 * Latin-1 byte as itself and the other 68 bytes, in order, as U+0100..U+0143. */
static int alphabet_byte(const unsigned char *s, size_t n, size_t *ret_length)
{
    *ret_length = 1;
    if (s[0] < 0x80)
        return s[0] > 0x20 && s[0] < 0x7f ? s[0] : -1;
    size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    *ret_length = length < n ? length : n;
    if (length != 2 || n < 2 || (s[1] & 0xc0) != 0x80)
        return -1;
    int code = (s[0] & 0x1f) << 6 | (s[1] & 0x3f);
    if (code >= 0xa1 && code <= 0xff && code != 0xad)
        return code;
    if (code < 0x100 || code > 0x143)
        return -1;
    code -= 0x100; /* 0x00..0x20, then 0x7f..0xa0, then 0xad */
    return code <= 0x20 ? code : code < 0x43 ? code + 0x5e : 0xad;
}

/* out[0, return): the bytes that a BPE token's text decodes to. */
static size_t decode_bpe(struct vocab_string text, char *out)
{
    size_t n = 0;
    for (size_t at = 0, length; at < text.bytes; at += length) {
        const unsigned char *s = (const unsigned char *)text.data + at;
        int byte = alphabet_byte(s, text.bytes - at, &length);
        if (byte >= 0) {
            out[n++] = (char)byte;
        } else {
            memcpy(out + n, s, length);
            n += length;
        }
    }
    return n;
}

static size_t decode_spm(struct vocab_string text, char *out)
{
    size_t n = 0;
    for (size_t at = 0; at < text.bytes;) {
        if (text.bytes - at >= 3 && memcmp(text.data + at, "\xe2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            at += 3;
        } else {
            out[n++] = text.data[at++];
        }
    }
    return n;
}

static const char replacement[3] = {'\xef', '\xbf', '\xbd'}; /* U+FFFD */

/* out[0, return): the bytes that token id decodes to; at most as many as its text has, or 3. */
static size_t decode_token(const struct build *b, uint32_t id, char *out)
{
    struct vocab_string text = b->desc->texts[id];
    bool spm = b->header->model != VOCAB_MODEL_BPE;
    int byte = vocab_build_byte_of_text(text);
    switch (b->types[id]) {
    case VOCAB_TYPE_BYTE:
        if (byte >= 0) {
            out[0] = (char)byte;
            return 1;
        }
        break;
    case VOCAB_TYPE_UNKNOWN:
        if (id == b->header->roles[VOCAB_UNK]) {
            memcpy(out, replacement, sizeof(replacement));
            return sizeof(replacement);
        }
        break;
    case VOCAB_TYPE_NORMAL:
    case VOCAB_TYPE_UNUSED:
        return spm ? decode_spm(text, out) : decode_bpe(text, out);
    case VOCAB_TYPE_USER_DEFINED: /* matched literally in a text, but merges may also produce it */
        if (spm)
            return decode_spm(text, out);
        break;
    default:
        break;
    }
    if (text.bytes > 0)
        memcpy(out, text.data, text.bytes);
    return text.bytes;
}

static bool has_text(const struct build *b, uint32_t id, struct vocab_string text)
{
    const struct vocab_entry *e = &b->tokens[id];
    return e->text_bytes == text.bytes && memcmp(b->pool + e->text_at, text.data, text.bytes) == 0;
}

/* Puts id into the lookup table; of two tokens with the same text the lower id stays. */
static void add_lookup(struct build *b, uint32_t id)
{
    struct vocab_string text = b->desc->texts[id];
    uint64_t hash = vocab_hash_text(text.data, text.bytes);
    const uint32_t tag = (uint32_t)(hash >> 32);
    struct vocab_slot *s = &b->lookup[(uint32_t)hash & b->header->lookup_mask];
    for (uint32_t row = 0; s->id != VOCAB_NONE && !b->crowded; row++) {
        if (s->tag == tag && has_text(b, s->id, text))
            return;
        b->alike_bytes += s->tag == tag ? text.bytes : 0;
        b->crowded = row + 1 == VOCAB_ROW_MOST || b->alike_bytes > VOCAB_ALIKE_MOST;
        s = &b->lookup[(uint32_t)(s - b->lookup + 1) & b->header->lookup_mask];
    }
    if (!b->crowded)
        *s = (struct vocab_slot){.tag = tag, .id = id};
}

/* Does a table have too long a row? Its slots have `words` words each; those are free whose `word`
 * is VOCAB_NONE. */
static bool is_crowded(const uint32_t *word, size_t words, uint32_t mask)
{
    uint32_t row = 0;
    for (uint64_t i = 0; i <= (uint64_t)mask + VOCAB_ROW_MOST && row <= VOCAB_ROW_MOST; i++)
        row = word[(i & mask) * words] == VOCAB_NONE ? 0 : row + 1;
    return row > VOCAB_ROW_MOST;
}

/* Prefetches the entry of the lookup table for a token that comes soon: it may be anywhere. */
static void fetch_lookup(const struct build *b, uint32_t id)
{
    if (id >= b->desc->n_tokens)
        return;
    struct vocab_string text = b->desc->texts[id];
    uint64_t hash = vocab_hash_text(text.data, text.bytes);
    __builtin_prefetch(&b->lookup[(uint32_t)hash & b->header->lookup_mask]);
}

static void add_token(struct build *b, uint32_t id)
{
    struct vocab_string text = b->desc->texts[id];
    struct vocab_entry *e = &b->tokens[id];
    *e = (struct vocab_entry){
        .text_at = (uint32_t)b->pool_used,
        .text_bytes = (uint16_t)text.bytes,
        .score = b->desc->scores != NULL ? b->desc->scores[id] : 0.0f,
        .type = b->types[id],
        .flags = b->flags[id],
    };
    if (text.bytes > 0)
        memcpy(b->pool + b->pool_used, text.data, text.bytes);
    b->pool_used += text.bytes;
    char *bytes = b->pool + b->pool_used;
    size_t n = decode_token(b, id, bytes);
    e->n_bytes = (uint16_t)n;
    e->bytes_at = (uint32_t)b->pool_used;
    if (n == text.bytes && memcmp(bytes, b->pool + e->text_at, n) == 0) {
        memset(bytes, 0, n);
        e->bytes_at = e->text_at;
    } else {
        b->pool_used += n;
    }
    if (text.bytes > 0)
        add_lookup(b, id);
}

static void add_byte_tokens(struct build *b)
{
    uint32_t *byte_tokens = b->header->byte_tokens;
    memset(byte_tokens, 0xff, sizeof(b->header->byte_tokens));
    bool spm = b->header->model != VOCAB_MODEL_BPE;
    for (uint32_t id = 0; id < b->desc->n_tokens; id++) {
        const struct vocab_entry *e = &b->tokens[id];
        bool fits = spm ? e->type == VOCAB_TYPE_BYTE : e->type != VOCAB_TYPE_CONTROL;
        if (!fits || e->n_bytes != 1)
            continue;
        unsigned char byte = (unsigned char)b->pool[e->bytes_at];
        if (byte_tokens[byte] == VOCAB_NONE)
            byte_tokens[byte] = id;
    }
}

static bool is_special(const struct build *b, uint32_t id)
{
    int t = b->types[id];
    return b->desc->texts[id].bytes > 0 &&
           (t == VOCAB_TYPE_CONTROL || t == VOCAB_TYPE_USER_DEFINED || t == VOCAB_TYPE_UNKNOWN);
}

static int compare_specials(const void *x, const void *y, void *context)
{
    const struct build *b = context;
    uint32_t i = *(const uint32_t *)x, j = *(const uint32_t *)y;
    const struct vocab_entry *p = &b->tokens[i], *q = &b->tokens[j];
    unsigned char c = (unsigned char)b->pool[p->text_at], d = (unsigned char)b->pool[q->text_at];
    if (c != d)
        return c < d ? -1 : 1;
    if (p->text_bytes != q->text_bytes)
        return p->text_bytes > q->text_bytes ? -1 : 1;
    const int order = memcmp(b->pool + p->text_at, b->pool + q->text_at, p->text_bytes);
    const bool user = p->type == VOCAB_TYPE_USER_DEFINED;
    if (order != 0)
        return order;
    if (user != (q->type == VOCAB_TYPE_USER_DEFINED))
        return user ? 1 : -1;
    return i < j ? -1 : 1;
}

static void add_specials(struct build *b)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < b->desc->n_tokens; id++) {
        if (is_special(b, id))
            b->specials[n++] = id;
    }
    qsort_r(b->specials, n, sizeof(*b->specials), compare_specials, b);
    uint32_t at = 0;
    for (unsigned c = 0; c <= 256; c++) {
        uint32_t lengths = 0, last = 0;
        for (; at < n && (unsigned char)b->pool[b->tokens[b->specials[at]].text_at] < c; at++) {
            lengths += b->tokens[b->specials[at]].text_bytes != last;
            last = b->tokens[b->specials[at]].text_bytes;
        }
        b->crowded |= lengths > VOCAB_LENGTHS_MOST;
        b->special_starts[c] = at;
    }
}

/* The smallest mask that leaves a third of the table free. */
static uint32_t mask_for(uint32_t n)
{
    uint32_t size = 2;
    while (size < n + n / 2 + 1)
        size *= 2;
    return size - 1;
}

static uint64_t take_section(uint64_t *end, uint64_t bytes)
{
    uint64_t at = *end;
    *end = (at + bytes + 7) / 8 * 8;
    return at;
}

/* Allocates the block with room for the largest possible pool. */
static int allocate_block(struct build *b, const struct vocab_header *h, uint64_t text_bytes)
{
    struct vocab_header sized = *h;
    uint64_t end = sizeof(sized);
    sized.tokens_at = take_section(&end, h->n_tokens * sizeof(struct vocab_entry));
    sized.lookup_at = take_section(&end, (h->lookup_mask + 1ull) * sizeof(struct vocab_slot));
    sized.merges_at = take_section(&end, (h->merges_mask + 1ull) * sizeof(struct vocab_merge));
    sized.specials_at = take_section(&end, h->n_specials * sizeof(uint32_t));
    sized.special_starts_at = take_section(&end, 257 * sizeof(uint32_t));
    sized.pool_at = take_section(&end, 2 * text_bytes + 3);
    for (int i = 0; i < VOCAB_TEMPLATE_COUNT; i++)
        (void)take_section(&end, b->desc->templates[i].bytes + 1);
    char *block = calloc(1, end);
    if (block == NULL)
        return -ENOMEM;
    b->header = (struct vocab_header *)(void *)block;
    *b->header = sized;
    b->tokens = (void *)(block + sized.tokens_at);
    b->lookup = (void *)(block + sized.lookup_at);
    b->merges = (void *)(block + sized.merges_at);
    b->specials = (void *)(block + sized.specials_at);
    b->special_starts = (void *)(block + sized.special_starts_at);
    b->pool = block + sized.pool_at;
    memset(b->lookup, 0xff, (h->lookup_mask + 1ull) * sizeof(struct vocab_slot));
    for (uint64_t i = 0; i <= h->merges_mask; i++)
        b->merges[i].left = VOCAB_NONE;
    /* The fields that vocab_find_text needs: building looks tokens up in the same way as readers
     * do. */
    b->view = (struct vocab){.header = b->header,
                             .tokens = b->tokens,
                             .lookup = b->lookup,
                             .pool = b->pool,
                             .n_tokens = h->n_tokens,
                             .lookup_mask = h->lookup_mask,
                             .pool_bytes = (uint32_t)(2 * text_bytes + 3)};
    return 0;
}

/* The templates follow the pool, whose size is known only now. */
static void add_templates(struct build *b)
{
    uint64_t end = b->header->pool_at + b->pool_used;
    for (int i = 0; i < VOCAB_TEMPLATE_COUNT; i++) {
        struct vocab_string t = b->desc->templates[i];
        end = (end + 7) / 8 * 8;
        b->header->templates_at[i] = take_section(&end, t.bytes + 1);
        b->header->template_bytes[i] = t.bytes;
        if (t.bytes > 0)
            memcpy((char *)b->header + b->header->templates_at[i], t.data, t.bytes);
    }
    b->header->block_bytes = end;
}

/* The hashes have no random key, so that equal files give equal tables: an attacker can choose
 * texts that all lie in one row. */
static int refuse_crowded(struct build *b)
{
    snprintf(b->err, b->err_bytes,
             "the vocabulary is malformed: its texts were chosen to be hard to look up");
    return -EBADMSG;
}

static int fill_block(struct build *b)
{
    const struct vocab_desc *d = b->desc;
    for (uint32_t id = 0; id < d->n_tokens; id++) {
        fetch_lookup(b, id + FETCH_AHEAD);
        add_token(b, id);
    }
    if (b->crowded || is_crowded(&b->lookup[0].id, 2, b->header->lookup_mask))
        return refuse_crowded(b);
    add_byte_tokens(b);
    if (b->header->model != VOCAB_MODEL_SPM)
        vocab_build_merges(b);
    if (b->crowded || is_crowded(&b->merges[0].left, 4, b->header->merges_mask))
        return refuse_crowded(b);
    add_specials(b);
    if (b->crowded)
        return refuse_crowded(b);
    b->header->pool_bytes = (uint32_t)b->pool_used;
    add_templates(b);
    return 0;
}

static int build_block(struct build *b, struct vocab_header *h)
{
    uint64_t text_bytes = 0;
    b->header = h; /* until the block is allocated */
    int rc = vocab_build_check(b, &text_bytes);
    if (rc != 0)
        return rc;
    b->types = calloc(b->desc->n_tokens, 1);
    b->flags = calloc(b->desc->n_tokens, 1);
    if (b->types == NULL || b->flags == NULL)
        return -ENOMEM;
    h->n_tokens = b->desc->n_tokens;
    vocab_build_roles(b);
    for (uint32_t id = 0; id < h->n_tokens; id++)
        h->n_specials += is_special(b, id);
    h->lookup_mask = mask_for(h->n_tokens);
    h->merges_mask = mask_for(h->model != VOCAB_MODEL_SPM ? b->desc->n_merges : 0);
    rc = allocate_block(b, h, text_bytes);
    if (rc != 0)
        return rc;
    rc = fill_block(b);
    if (rc != 0)
        free(b->header);
    return rc;
}

int vocab_build(const struct vocab_desc *d, void **ret_block, size_t *ret_bytes, char *err,
                size_t err_bytes)
{
    struct build b = {.desc = d, .err = err, .err_bytes = err_bytes};
    struct vocab_header h = {
        .magic = VOCAB_MAGIC, .version = VOCAB_VERSION, .header_bytes = sizeof(h)};
    int rc = build_block(&b, &h);
    free(b.types);
    free(b.flags);
    if (rc == 0) {
        *ret_block = b.header;
        *ret_bytes = b.header->block_bytes;
    } else if (rc == -ENOMEM) {
        snprintf(err, err_bytes, "not enough memory for the vocabulary");
    }
    return rc;
}
