/*
 * store: KV pages, window pages and restart points that outlive the process, in files of a folder
 * (--kv-store DIR).
 *
 * Engine thread, but for open, close and the slots' files, which are the main thread's, before that
 * thread starts and after it ended. What the engine thread calls never waits, allocates or touches
 * a file: a thread of the store's own reads and writes; jobs and completions pass through bounded
 * queues, contents through a fixed pool of buffers.
 *
 *   engine thread                                             thread of the store
 *     store_find, store_offer: the index
 *     store_read, store_write  --- jobs, buffers --->           files
 *     store_take               <-- completions, buffers ---
 *
 * What is stored is a record: the contents (a payload) of one page, window page or state, under the
 * text up to its end. A text is named by a chained hash of 128 bits (text_key.h): of the seed, the
 * user, and 32 tokens after 32 tokens. The last tokens are kept beside it, and compared; those before
 * them are identified by the hash alone, which resists collisions, as their pages need not be
 * stored. A payload is returned only if it has the checksum that it was written
 * with. So what is returned is what was written under that text, or nothing; a checksum is not an
 * authentication, though: whoever may write to the folder may change answers.
 *
 * What goes when space runs out: other models' folders, the least recently used first; then, of the
 * user with the most bytes, what is worth least: the time to compute it again, per byte. A page that
 * another record follows stays.
 */
#ifndef HEARTH_DAEMON_STORE_STORE_H
#define HEARTH_DAEMON_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    STORE_TOKENS = 32, /* of a page */
    STORE_NAME_BYTES = 64,
    STORE_MODEL_BYTES = 128,
};

/* What hearthd takes if it is not told. 32 GiB a day are 57 TiB in five years; for small disks (256 GB) makers
 * warrant 150 TB. */
#define STORE_BYTES ((uint64_t)16 << 30)
#define STORE_DAY_BYTES ((uint64_t)32 << 30)

#define STORE_NONE UINT32_MAX     /* no record */
#define STORE_NO_TOKEN UINT32_MAX /* no model has so many */

enum store_class { STORE_PAGE, STORE_WINDOW, STORE_STATE, STORE_CLASSES };

struct store;

struct store_options {
    const char *path; /* of the folder, which is made, mode 0700, if it does not exist */
    const char
        *model; /* what `hearth store` calls it: a printable line, less than STORE_MODEL_BYTES */
    const void
        *seed; /* [seed_bytes] all that payloads depend on beside tokens: the model's fingerprint,
                          numerics id, KV type, sizes */
    size_t seed_bytes;
    size_t class_bytes[STORE_CLASSES]; /* of a payload; 0: the model has none of that class */
    uint64_t bytes;                    /* most that the folder may hold */
    uint64_t day_bytes;                /* most that is written in a day (UTC), over all restarts */
    uint32_t min_tokens;               /* texts shorter than this are stored when seen twice */
    bool plain;                        /* without io_uring, though the system may have it */
    /* Tests. No thread: store_work does its work. The clock's days since 1970. How many bytes and other
     * changes of files there are before all goes on as if the machine had stopped. */
    bool by_hand;
    uint64_t (*today)(void); /* NULL: the clock's */
    uint64_t *cut;           /* NULL: no write is cut off */
};

/* Opens the folder, and finds what it holds by the headers of its files. Returns 0; or with one line
 * -EBUSY (another process uses the model's part of it), -EPERM (the folder is a link, belongs to
 * another user, or others may enter it), -EOPNOTSUPP (its file system cannot free a part of a file),
 * -EINVAL (no room for a record of each class), -errno. Main thread; reads some hundred bytes a record. */
int store_open(struct store **ret_store, const struct store_options *options, char *err,
               size_t err_bytes);

/* Its users need not trust one another: from now on none writes more in a day than it leaves to the others. */
void store_share(struct store *store);

/* Ends the writes that are queued (but: store_abandon), then the thread. NULL is allowed. Every buffer was given back. */
void store_close(struct store *store);

/* ---- texts ------------------------------------------------------------------------------------ */

struct store_key {
    uint64_t words[2];
};

/* A text, what a record is kept under. It ends with a page, a multiple of STORE_TOKENS, or in one: of such a
 * page the record holds what there is, and none hangs on it. */
struct store_text {
    uid_t uid;
    uint32_t end;                 /* tokens */
    struct store_key key, parent; /* of the text, and of that up to the page before */
    uint32_t
        tokens[STORE_TOKENS]; /* of the last page, then STORE_NO_TOKEN; not set where end is 0 */
};

/* The empty text of a user. */
void store_begin(const struct store *store, uid_t uid, struct store_text *ret);

/* The text, which ends with a page, goes on by `tokens` [STORE_TOKENS]; or ends with tokens [n], of less
 * than a page. */
void store_follow(struct store_text *text, const uint32_t *tokens);
void store_follow_part(struct store_text *text, const uint32_t *tokens, uint32_t n);

/* ---- from the store --------------------------------------------------------------------------- */

/* The record of that class that was written under the text, or STORE_NONE. It stays valid until the
 * next call of store_offer or store_take. Its key, the key before it, the user, its end and the
 * tokens of its last page are compared. */
uint32_t store_find(const struct store *store, enum store_class class,
                    const struct store_text *text);

/* Of the texts that go on from this one, which ends with a page, by one page or less, the one
 * that goes on with the most of tokens [n], less than a page: *ret_n of them, whose KV in its
 * records is good for both texts. A state is not: of a model that has states, only texts are taken
 * whose tokens all agree. *ret has records of every class that the model has. False: there is none.
 * The newest 256 are looked through. */
bool store_find_begun(const struct store *store, const struct store_text *text,
                      const uint32_t *tokens, uint32_t n, struct store_text *ret, uint32_t *ret_n);

/* Can another read be queued? False: no buffer is free for it, or the queue is full: later. */
bool store_reads_more(struct store *store);

/* Queues a read; a completion with the cookie will follow, in any order. The payload is read into
 * `into` [class_bytes], which the store's thread alone uses until the completion is taken, or the store
 * is closed; NULL: into a buffer of the store. PRECOND: store_reads_more. */
void store_read(struct store *store, uint32_t record, uint64_t cookie, void *into);

/* Most reads at once, with buffers that are not released: as many as 8 MiB hold, 8 at least, and no more than
 * half of the buffers. */
uint32_t store_reads(const struct store *store);

struct store_done {
    uint64_t cookie;
    enum store_class class;
    int status; /* 0; -EBADMSG: damaged, -errno: not read. The record is forgotten then. */
    /* [class_bytes] in a buffer of the store, until store_release; NULL: where `into` is, or status is not 0 */
    const void *payload;
    uint64_t took_ns; /* from when the thread took the job to its end */
};

/* The next completion of a read. False: none has come. */
bool store_take(struct store *store, struct store_done *ret);
void store_release(struct store *store, const void *payload);

/* Is there something that store_take would take? Looks at shared words only. */
bool store_ready(const struct store *store);

/* Poll it (edge-triggered), never read it: it becomes readable when there is something to take. */
int store_event_fd(const struct store *store);

/* store_options.min_tokens. */
uint32_t store_min_tokens(const struct store *store);

/* ---- into the store --------------------------------------------------------------------------- */

/* Would the store take this record? Returns a buffer [class_bytes] to be filled, then given to
 * store_write or store_withdraw; or NULL, and the reason is counted:
 *
 *   (not counted)  the store has it already, or the user is the overflow uid
 *   too_short      the text has less than min_tokens and was not offered before, nor is it `wanted`: by
 *                  more than one request. A page that stored records follow is taken all the same
 *   no_room        all that could be evicted for it is needed or in use
 *   day_spent      the day's bytes are written
 *   busy           no buffer is free, or the queue is full
 *
 * `cost_ns` is the time to compute it again. */
void *store_offer(struct store *store, enum store_class class, const struct store_text *text,
                  uint64_t cost_ns, bool wanted);

/* The same for what is of little use: also NULL (not counted) if something would have to give way for
 * it, or half of the day's bytes are taken; and `busy` sooner. */
void *store_offer_spare(struct store *store, enum store_class class, const struct store_text *text,
                        uint64_t cost_ns, bool wanted);

void store_write(struct store *store, void *payload);
void store_withdraw(struct store *store, void *payload);

/* Wakes the thread, if jobs were queued since: at the end of a step, and before waiting. */
void store_submit(struct store *store);

/* Time is up: what is queued and not begun will fail, -ECANCELED. */
void store_abandon(struct store *store);

/* Reads and writes that were queued and have not been taken: 0 when all is done. Writes are taken by
 * store_take, too, which returns nothing for them. */
uint32_t store_pending(const struct store *store);

/* ---- accounts --------------------------------------------------------------------------------- */

struct store_counts {
    uint64_t records, bytes; /* that are stored now; bytes of files */
    uint64_t other_bytes;    /* of other models: when the store was opened, less what was removed */
    /* since the start: records, and bytes of payloads */
    uint64_t read, read_bytes, written, written_bytes, evicted;
    uint64_t damaged;                             /* reads: another checksum */
    uint64_t failed;                              /* reads and writes: an error of the disk */
    uint64_t too_short, no_room, day_spent, busy; /* refused offers: store_offer */
};

void store_counts(const struct store *store, struct store_counts *ret);

/* ---- named slots ------------------------------------------------------------------------------ */

struct store_slot {
    uid_t uid;
    char name[STORE_NAME_BYTES]; /* not empty */
    const uint32_t *tokens;      /* [n_tokens] */
    uint32_t n_tokens;
};

/* Keeps these slots, and these only: each user's in a file of its own, replaced as a whole. The overflow
 * uid's are left out. Returns 0 or the first -errno; the other users' are kept. Main thread; waits for
 * the disk. */
int store_save_slots(struct store *store, const struct store_slot *slots, uint32_t n);

/* Calls `each` for every slot that was kept, a user's in the order of store_save_slots; what it is given
 * is valid during the call. A damaged file is left out as a whole. Returns 0 or -ENOMEM. Main thread. */
int store_load_slots(struct store *store,
                     void (*each)(void *context, const struct store_slot *slot), void *context);

/* ---- tests ------------------------------------------------------------------------------------ */

/* Of a store that is opened by hand: does up to `n` jobs. Returns how many. */
uint32_t store_work(struct store *store, uint32_t n);

#endif
