/* store_file.h: the files of the KV store (hearthd --kv-store DIR), which hearthd writes and
 * `hearth store` counts.
 *
 *   DIR/
 *     day                   struct store_file_day: what was written today, by all models
 *     MODEL/                32 hex digits: a hash of all that contents depend on beside tokens
 *       model               a line of text: what the model is called. Locked by the hearthd that uses the
 *                           folder; its time of change is when that one started
 *       seen                struct store_file_seen: texts that were too short, and seen once
 *       UID/                a decimal number: the user whose texts these are
 *         slots             named slots (daemon/store/slots.h)
 *         NUMBER.kv         a segment: records of one class, at most 256 MiB
 *
 *   a segment     0          struct store_file_header
 *                 4096       [n_slots] struct store_file_entry: which text's contents each slot holds
 *                 slots_at   [n_slots][slot_bytes] payloads
 *
 * Everything is written in place, in any order, and nothing is synchronized: what was cut off is noticed
 * by a hash (kernels/base/hash128.h). Numbers are those of the machine that wrote them. */
#ifndef HEARTH_IPC_STORE_FILE_H
#define HEARTH_IPC_STORE_FILE_H

#include <stddef.h>
#include <stdint.h>

enum {
    STORE_FILE_VERSION = 3, /* changes with anything in here */
    STORE_FILE_BLOCK = 4096,
    STORE_FILE_TOKENS = 32,
    STORE_FILE_USED = 0x4b56, /* entry.used of a slot with a record */
    STORE_FILE_SEEN = 4096,
};

#define STORE_FILE_BYTES ((uint64_t)256 << 20) /* most of a segment */
#define STORE_FILE_MAGIC "hearth kv store"     /* 16 bytes with the 0 */
#define STORE_FILE_DAY_MAGIC "hearth kv day"
#define STORE_FILE_SEEN_MAGIC "hearth kv seen"

struct store_file_header {
    char magic[16];
    uint32_t version;
    uint32_t class; /* enum store_class */
    uint32_t uid;
    uint32_t n_slots;
    uint64_t payload_bytes;
    uint64_t slot_bytes; /* payload_bytes, rounded up to whole blocks */
    uint64_t slots_at;   /* a multiple of a block */
    uint8_t seed[16];    /* the hash that names MODEL */
    uint8_t hash[16];    /* of all above */
};
_Static_assert(sizeof(struct store_file_header) == 88, "part of the format");

struct store_file_entry {
    uint32_t used; /* STORE_FILE_USED; anything else: the slot is free */
    uint32_t class;
    uint32_t uid;
    uint32_t end;       /* tokens of the text */
    uint64_t key[2];    /* of the text: a chained hash (daemon/store/text_key.h) */
    uint64_t parent[2]; /* of the text up to the last multiple of 32 before its end */
    uint32_t tokens[STORE_FILE_TOKENS]; /* from there on; where the text ends before, 2^32 - 1 */
    uint64_t cost_ns;                   /* to compute it again */
    double inflation;                   /* of its user when it was written (daemon/store/index.h) */
    uint8_t payload[16];                /* hash of the payload */
    uint8_t zero[32];
    uint8_t hash[16]; /* of the header's seed and all above */
};
_Static_assert(sizeof(struct store_file_entry) == 256, "part of the format");
_Static_assert(offsetof(struct store_file_entry, hash) == 240, "no padding before it");

struct store_file_day {
    char magic[16];
    uint64_t day;     /* since 1970, UTC */
    uint64_t bytes;   /* written on it, and granted to running daemons */
    uint8_t hash[16]; /* of all above */
};
_Static_assert(sizeof(struct store_file_day) == 48, "part of the format");

struct store_file_seen {
    char magic[16];
    uint8_t seed[16];                /* the hash that names MODEL */
    uint64_t texts[STORE_FILE_SEEN]; /* daemon/store/index.h, seen */
    uint8_t hash[16];                /* of all above */
};
_Static_assert(sizeof(struct store_file_seen) == 48 + 8 * STORE_FILE_SEEN, "part of the format");

#endif
