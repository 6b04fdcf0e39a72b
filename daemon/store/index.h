/*
 * index: what the store holds, where, and what goes next. No file, no clock, no thread: the engine's.
 *
 * A record is found by class and key, and confirmed by user, length, parent and tokens. It hangs on the
 * record of a page, its anchor: a page on the page before it, a window page or a state on the page that
 * ends where it does. An anchor that is not stored is there by its key alone (INDEX_ABSENT), because
 * pages come in any order: from memory the last page of a text is evicted first.
 *
 *   (key of the empty text) <- page <- page <- page
 *                                        ^- state, window page
 *
 * Replacement is GreedyDual-Size (Cao and Irani, 1997), for each user: a record is worth the user's
 * inflation when it was last used, plus the time to compute it again per byte; the inflation is the
 * worth of what was evicted last. Only a record that none hangs on and none reads is evicted, so a text
 * goes from its end. Space comes from the user with the most bytes: a user with less than its share loses
 * nothing to the others.
 *
 *   record   absent --add--> writing --stored--> stored --evicted, forget--> absent, or free
 *
 * A segment is a file of slots of one size for one user's records of one class. What a call lets go
 * of is in `gone` after it: slots to be erased, segments to be removed, other models' folders.
 *
 * Memory is allocated at init; every call is bounded: by the logarithm of the number of records, the
 * number of users and of segments, and INDEX_GONE evictions.
 */
#ifndef HEARTH_DAEMON_STORE_INDEX_H
#define HEARTH_DAEMON_STORE_INDEX_H

#include "daemon/store/store.h"
#include "ipc/store_file.h"

enum {
    INDEX_GONE = 64, /* evictions of one call */
    INDEX_USERS = 256,
    INDEX_SEEN = STORE_FILE_SEEN,
    INDEX_SEEN_SET = 8,      /* texts whose keys lead to one place in `seen` */
    INDEX_RECORDS = 1 << 20, /* most records */
    INDEX_MODELS = 256,      /* other models whose folders are known */
    INDEX_LOOKS = 256,       /* pages after one text that are compared, the newest */
    /* Evictions leave holes: a user keeps as many segments as it ever filled, while others take
     * their shares. Of n users the last one fills at most the n-th part of all, so what they filled
     * is at most 1 + 1/2 + ... + 1/INDEX_USERS times what all bytes fill. */
    INDEX_SPREAD = 7,
    INDEX_SEGMENTS = 3 << 12, /* most, each a descriptor, beside one of each class for each user */
};

struct index_sizes {
    uint64_t bytes; /* most of all files */
    uint32_t min_tokens;
    struct index_size {
        uint64_t slot_bytes; /* with what describes it in the file; 0: no such class */
        uint32_t n_slots;    /* of a segment */
    } classes[STORE_CLASSES];
    uint64_t segment_bytes; /* of a segment, beside its slots */
};

enum index_state { INDEX_ABSENT, INDEX_WRITING, INDEX_STORED };

struct index_record {
    struct store_text text; /* of an absent one the key alone is set */
    uint64_t cost_ns;
    uint64_t used;      /* when: a number that grows; equal worths go by it */
    double worth;       /* while it is stored */
    uint8_t hash[16];   /* of the payload */
    uint32_t anchor;    /* STORE_NONE: it is absent */
    uint32_t followers; /* records whose anchor it is */
    uint32_t first, before,
        after; /* of these the pages, the newest first; in that list of its anchor's */
    uint32_t readers;
    uint32_t next;                  /* in its bucket, or in the list of free ones */
    uint32_t up, left, right, rank; /* in its user's heap; rank 0: it is in none */
    uint32_t segment, slot;
    uint16_t user;
    uint8_t class;
    uint8_t state;
};

struct index_user {
    uid_t uid;
    uint32_t n_records; /* 0: the place is free */
    uint64_t bytes;
    uint64_t day, written; /* bytes of that day */
    uint32_t heap;         /* what may be evicted, the least worth at the top */
    double inflation;
};

struct index_segment {
    uint32_t number;           /* of the file */
    uint32_t n_slots, n_taken; /* n_taken 0: the place is free */
    uint32_t first;            /* no slot before it is free */
    uint16_t user;
    uint8_t class;
};

enum index_kind { GONE_SLOT, GONE_SEGMENT, GONE_MODEL };
struct index_gone {
    enum index_kind kind;
    uint32_t id; /* of a segment; of another model, in the order of index_other */
    uint32_t slot;
};

struct store_index {
    struct index_sizes sizes;
    struct index_record *records;   /* [n_records] */
    uint32_t *buckets;              /* [n_buckets], a power of two: 2^(64 - shift) */
    struct index_segment *segments; /* [n_segments] */
    uint64_t *taken;                /* [n_segments][words] bits of slots */
    uint64_t seen[INDEX_SEEN];      /* texts that were offered and too short: 7 bytes of the key,
                                       the lowest of the user's number; in sets, the latest first */
    struct index_user users[INDEX_USERS];
    uint64_t others[INDEX_MODELS]; /* bytes of other models, the least recently used first */
    struct index_gone gone[INDEX_GONE];
    uint64_t salt[2]; /* by chance, so that no client can work out which keys share a bucket */
    uint32_t n_records, n_buckets, shift, n_segments, words;
    uint32_t free;   /* list of records that are free again */
    uint32_t unused; /* records from here on were never taken */
    uint32_t n_others, next_other, n_gone;
    uint32_t next_number;
    uint64_t used;              /* last given */
    uint64_t bytes;             /* of files */
    uint64_t n_stored, evicted; /* stored: with those being written */
    uint64_t other_bytes;
};

/* Returns 0, -ENOMEM or -EIO; call index_fini in either case. */
int index_init(struct store_index *index, const struct index_sizes *sizes);
void index_fini(struct store_index *index);

/* The stored record, or STORE_NONE. */
uint32_t index_find(const struct store_index *index, enum store_class class,
                    const struct store_text *text);

/* store_find_begun: the record of the page, or STORE_NONE. */
uint32_t index_find_begun(const struct store_index *index, const struct store_text *text,
                          const uint32_t *tokens, uint32_t n, uint32_t *ret_n);

/* Is there room for one more without an eviction? */
bool index_has_room(const struct store_index *index, enum store_class class);

/* Is it to be stored: not there yet, and long enough, wanted, needed by what is there, or offered again? */
enum index_answer { INDEX_WANTS, INDEX_HAS, INDEX_SHORT };
enum index_answer index_wants(struct store_index *index, enum store_class class,
                              const struct store_text *text, bool wanted);

/* The record, in a slot, to be written; STORE_NONE: no room could be made. What was evicted for it is in `gone`
 * in either case. PRECOND: it is not there, and its user is not the overflow uid. */
uint32_t index_add(struct store_index *index, enum store_class class, const struct store_text *text,
                   uint64_t cost_ns);

/* Bytes of the records that the user added on that day, as index_charge was told. */
uint64_t index_written(const struct store_index *index, uid_t uid, uint64_t day);
void index_charge(struct store_index *index, uint32_t record, uint64_t day, int64_t bytes);

/* It is written, with a payload of this hash. */
void index_stored(struct store_index *index, uint32_t record, const uint8_t hash[16]);

/* It is not there: it could not be written, or read. No other call has it. */
void index_forget(struct store_index *index, uint32_t record);

/* It is being read, and stays; it was read, and counts as used. */
void index_read(struct store_index *index, uint32_t record);
void index_unread(struct store_index *index, uint32_t record);

/* ---- when the store is opened ------------------------------------------------------------------ */

/* A file that was found in the folder: one after the other, each with its records. Returns its segment;
 * STORE_NONE: there are too many, or too many users. */
uint32_t index_segment(struct store_index *index, uid_t uid, enum store_class class,
                       uint32_t number);

/* A record of it. False: it is another one's copy, or all places are taken. */
bool index_load(struct store_index *index, uint32_t segment, uint32_t slot,
                const struct store_text *text, uint64_t cost_ns, double inflation,
                const uint8_t hash[16]);

/* The segment has all its records: one without any is let go of. */
void index_loaded(struct store_index *index, uint32_t segment);

/* Another model's folder, less recently used than those that were added after it. */
void index_other(struct store_index *index, uint64_t bytes);

/* Evicts what is beyond the most bytes. True: there is more to do. */
bool index_shrink(struct store_index *index);

#endif
