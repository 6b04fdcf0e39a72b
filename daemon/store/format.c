/* format.c: see format.h. */
#include "daemon/store/format.h"

#include "kernels/base/hash128.h"

#include <string.h>

_Static_assert((int)STORE_TOKENS == (int)STORE_FILE_TOKENS, "part of the format");

static uint64_t in_blocks(uint64_t bytes)
{
    return (bytes + STORE_FILE_BLOCK - 1) / STORE_FILE_BLOCK * STORE_FILE_BLOCK;
}

uint64_t format_slot_bytes(size_t payload_bytes)
{
    return in_blocks(payload_bytes) + sizeof(struct store_file_entry);
}

/* A block for the header, and less than one after the entries. */
uint32_t format_slots(size_t payload_bytes)
{
    return (uint32_t)((STORE_FILE_BYTES - 2 * STORE_FILE_BLOCK) / format_slot_bytes(payload_bytes));
}

void format_header(struct store_file_header *ret, const uint8_t seed[16], enum store_class class,
                   uid_t uid, size_t payload_bytes)
{
    const uint32_t n_slots = format_slots(payload_bytes);
    *ret = (struct store_file_header){.magic = STORE_FILE_MAGIC,
                                      .version = STORE_FILE_VERSION,
                                      .class = class,
                                      .uid = uid,
                                      .n_slots = n_slots,
                                      .payload_bytes = payload_bytes,
                                      .slot_bytes = in_blocks(payload_bytes),
                                      .slots_at = in_blocks(format_entry_at(n_slots))};
    memcpy(ret->seed, seed, sizeof(ret->seed));
    hash128(ret, offsetof(struct store_file_header, hash), ret->hash);
}

uint64_t format_entry_at(uint32_t slot)
{
    return STORE_FILE_BLOCK + (uint64_t)slot * sizeof(struct store_file_entry);
}

uint64_t format_slot_at(const struct store_file_header *header, uint32_t slot)
{
    return header->slots_at + slot * header->slot_bytes;
}

void format_entry(struct store_file_entry *ret, enum store_class class,
                  const struct store_text *text, uint64_t cost_ns, double inflation)
{
    *ret = (struct store_file_entry){.used = STORE_FILE_USED,
                                     .class = class,
                                     .uid = text->uid,
                                     .end = text->end,
                                     .cost_ns = cost_ns,
                                     .inflation = inflation};
    memcpy(ret->key, text->key.words, sizeof(ret->key));
    memcpy(ret->parent, text->parent.words, sizeof(ret->parent));
    memcpy(ret->tokens, text->tokens, sizeof(ret->tokens));
}

static void hash_entry(const struct store_file_entry *entry, const uint8_t seed[16],
                       uint8_t ret[16])
{
    struct hash128 hash;
    hash128_init(&hash);
    hash128_update(&hash, seed, 16);
    hash128_update(&hash, entry, offsetof(struct store_file_entry, hash));
    hash128_final(&hash, ret);
}

void format_seal(struct store_file_entry *entry, const struct store_file_header *header,
                 const void *payload)
{
    hash128(payload, header->payload_bytes, entry->payload);
    hash_entry(entry, header->seed, entry->hash);
}

bool format_read(const struct store_file_entry *entry, const struct store_file_header *header,
                 struct store_text *ret)
{
    uint8_t hash[16];
    if (entry->used != STORE_FILE_USED || entry->class != header->class ||
        entry->uid != header->uid || entry->end == 0)
        return false;
    hash_entry(entry, header->seed, hash);
    if (memcmp(hash, entry->hash, sizeof(hash)) != 0)
        return false;
    const uint32_t n = (entry->end - 1) % STORE_TOKENS + 1; /* of the last page */
    *ret = (struct store_text){.uid = entry->uid, .end = entry->end - n};
    memcpy(ret->key.words, entry->parent, sizeof(entry->parent));
    store_follow_part(ret, entry->tokens, n);
    return !memcmp(ret->tokens, entry->tokens, sizeof(entry->tokens)) &&
           !memcmp(ret->key.words, entry->key, sizeof(entry->key));
}

bool format_payload_is(const void *payload, size_t bytes, const uint8_t hash[16])
{
    uint8_t found[16];
    hash128(payload, bytes, found);
    return !memcmp(found, hash, sizeof(found));
}
