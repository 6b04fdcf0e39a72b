/* vocab_layout.h: the byte picture of a vocabulary block. Included by vocab.c and the parts of
 * vocab_build only; all other code uses vocab.h.
 *
 *   0      header           identity, counts, where the sections lie, roles, byte tokens
 *   ...    tokens           entry[n_tokens]          by id
 *   ...    lookup           slot[2^a]                text -> id, linear probing
 *   ...    merges           merge[2^b]               (left, right) -> rank and merged id
 *   ...    specials         u32[n_specials]          ids by first byte, longest first, by text,
 *                                                  user-defined ones last
 *   ...    special_starts   u32[257]                 byte c's specials: [starts[c], starts[c + 1])
 *   ...    pool             char[pool_bytes]         texts and bytes, entries refer to them
 *   ...    templates        char[bytes + 1]          VOCAB_TEMPLATE_COUNT Jinja texts, a 0 after each
 *
 * Sections begin at multiples of 8 and are zero between them. Numbers are in host byte order: the
 * block never leaves the machine. It is not written after vocab_build. */
#ifndef HEARTH_IPC_VOCAB_LAYOUT_H
#define HEARTH_IPC_VOCAB_LAYOUT_H
#include "ipc/vocab.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VOCAB_MAGIC 0x31434f5654524548ull /* "HERTVOC1" */
#define VOCAB_VERSION 3u

struct vocab_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint64_t block_bytes;
    uint64_t reserved; /* 0 */
    uint32_t model;    /* enum vocab_model */
    uint32_t pre;      /* enum vocab_pre */
    uint32_t flags;    /* enum vocab_flag */
    uint32_t n_tokens;
    uint32_t n_specials;
    uint32_t lookup_mask; /* slots - 1 */
    uint32_t merges_mask; /* merges - 1 */
    uint32_t pool_bytes;
    uint64_t tokens_at, lookup_at, merges_at, specials_at, special_starts_at, pool_at;
    uint32_t roles[16];        /* [VOCAB_ROLE_COUNT] ids or VOCAB_NONE */
    uint32_t byte_tokens[256]; /* ids or VOCAB_NONE */
    uint64_t templates_at[VOCAB_TEMPLATE_COUNT];
    uint64_t template_bytes[VOCAB_TEMPLATE_COUNT]; /* without the 0 */
};

enum { VOCAB_ENTRY_END = 1, VOCAB_ENTRY_SHOWN = 2 };

struct vocab_entry {
    uint32_t text_at;  /* in the pool */
    uint32_t bytes_at; /* in the pool; the same place where text and bytes are equal */
    uint16_t text_bytes;
    uint16_t n_bytes;
    float score;
    uint8_t type; /* enum vocab_type */
    uint8_t flags;
    uint16_t zero;
};

struct vocab_slot {
    uint32_t tag; /* the text's hash, upper half */
    uint32_t id;  /* VOCAB_NONE: free */
};

struct vocab_merge {
    uint32_t left; /* VOCAB_NONE: free */
    uint32_t right;
    uint32_t rank;
    uint32_t merged;
};

#define VOCAB_AT(type, field, offset)                                                              \
    static_assert(offsetof(struct type, field) == (offset), #type "." #field " moved")
VOCAB_AT(vocab_header, reserved, 24);
VOCAB_AT(vocab_header, model, 32);
VOCAB_AT(vocab_header, pool_bytes, 60);
VOCAB_AT(vocab_header, tokens_at, 64);
VOCAB_AT(vocab_header, roles, 112);
VOCAB_AT(vocab_header, byte_tokens, 176);
VOCAB_AT(vocab_header, templates_at, 1200);
VOCAB_AT(vocab_header, template_bytes, 1216);
static_assert(sizeof(struct vocab_header) == 1232, "header size");
VOCAB_AT(vocab_entry, score, 12);
VOCAB_AT(vocab_entry, type, 16);
static_assert(sizeof(struct vocab_entry) == 20, "entry size");
static_assert(sizeof(struct vocab_slot) == 8, "slot size");
static_assert(sizeof(struct vocab_merge) == 16, "merge size");
static_assert(VOCAB_ROLE_COUNT <= 16, "roles fit");
#undef VOCAB_AT

/* text[0, n) as a word padded with zeros, n from 1 to 8: overlapping reads instead of a copy of n
 * bytes. */
static inline uint64_t vocab_hash_word(const char *text, size_t n)
{
    uint64_t word = 0;
    uint32_t first, last;
    if (n == 8) {
        memcpy(&word, text, 8);
    } else if (n >= 4) {
        memcpy(&first, text, 4);
        memcpy(&last, text + n - 4, 4);
        word = first | (uint64_t)last << 8 * (n - 4);
    } else {
        const unsigned char *s = (const unsigned char *)text;
        word = s[0] | (uint64_t)s[n / 2] << 8 * (n / 2) | (uint64_t)s[n - 1] << 8 * (n - 1);
    }
    return word;
}

/* Hash of a text. Both halves are used: the lower one picks the slot, the upper one is the tag. */
static inline uint64_t vocab_hash_text(const char *text, size_t bytes)
{
    uint64_t h = 0x9e3779b97f4a7c15ull ^ (bytes * 0xff51afd7ed558ccdull);
    while (bytes > 0) {
        size_t n = bytes < 8 ? bytes : 8;
        h = (h ^ vocab_hash_word(text, n)) * 0xd6e8feb86659fd93ull;
        h ^= h >> 32;
        text += n;
        bytes -= n;
    }
    h *= 0xd6e8feb86659fd93ull;
    return h ^ (h >> 29);
}

/* vocab_find_text with the text's hash given. Adds to *alike_bytes what was compared in vain. */
uint32_t vocab_find_hashed(const struct vocab *v, uint64_t hash, const char *text, size_t bytes,
                           uint64_t *alike_bytes);

static inline uint32_t vocab_hash_pair(uint32_t left, uint32_t right)
{
    uint64_t h = (((uint64_t)left << 32) | right) * 0x9e3779b97f4a7c15ull;
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93ull;
    return (uint32_t)(h >> 32);
}

#endif
