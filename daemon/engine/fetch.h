/*
 * fetch: from the store into the cache, when a request begins.
 *
 * Engine thread. A request that has much to compute is looked up in the store, once, a long text in
 * several steps. Where reading is thought to take less time than computing, its slot sits out the
 * passes (SLOT_READING) while the store's thread reads; the others go on. What comes goes into
 * fresh pages and is published in the cache, and in the end the slot adopts it as any other page. So
 * what is read and what was never stored differ in time only.
 *
 *   text      [ in the cache | m .. n: of the store      | its end | computed ]
 *   pages       held           read, published in order    read, the slot's own
 *   windows              [ those that position 32 n sees  ][ the same ]
 *   state                                               [ of 32 n or of the end ]
 *
 * n is the furthest place at which the text would be warm (slot.h). What a text that ended in
 * the next page has kept of its end is good as far as this text is the same; a state only if all
 * of it is. A slot whose next page another one is reading waits for that one. A fetch ends
 * early, and the rest is computed, where a record is damaged, no page can be had, the slot is
 * evicted, its request ends, or the disk is slow: no record for a quarter of the time that
 * computing takes, or, after that quarter, so slow that computing the rest is faster.
 *
 * Users take turns, and then each user's fetches: a step looks for some texts, puts one record into
 * the cache, and more while its time lasts. What may be on the way is divided between users first,
 * and then between each user's fetches.
 */
#ifndef HEARTH_DAEMON_ENGINE_FETCH_H
#define HEARTH_DAEMON_ENGINE_FETCH_H

#include "daemon/engine/client.h"
#include "daemon/engine/stored.h"
#include "daemon/steady.h"

enum { FETCH_READS = 128 }; /* most that are queued at once */

/* A record on its way. */
struct fetch_read {
    uid_t uid;
    struct fetch *fetch; /* NULL: it ended meanwhile */
    enum store_class class;
    uint32_t page;      /* of the text */
    uint32_t positions; /* less than 32: of the end of the text */
    uint32_t memory; /* id of the page, window page or state that it goes into; PAGE_NONE: unused */
    bool here, sound;    /* sound: it could be read */
    const void *payload; /* sound: in a buffer of the store; NULL: in the memory */
};

struct fetch {
    bool active;
    uint64_t serial;        /* of the slot's request */
    uint32_t number;        /* of all fetches */
    uint64_t turn;          /* the last one that it had */
    struct fetch *leader;   /* the one that reads what this one waits for, or NULL */
    uint32_t follows;       /* its number */
    bool looks;             /* how far the store goes is not known yet */
    uint32_t from;          /* page of the text at which it began */
    uint32_t at, n;         /* the next page to look at, or to ask for; it goes up to page n */
    uint32_t left;          /* of a look: window pages from here to `at` are there */
    uint64_t seen_bytes;    /* of a look: to be read up to `at` */
    uint32_t held;          /* pages that the slot holds ahead: others, and it was evicted */
    struct store_text text; /* up to page `at` */
    enum store_class next;  /* to ask for, of page `at` */
    bool end_sought;        /* how much the store has of the end of the text is known */
    bool needs_end;         /* the text is not warm after page n: its state is that of the end */
    uint32_t end_positions; /* that the store has, and the slot could use; 0: nothing */
    struct store_text end_text;            /* what they are kept under */
    struct fetch_read *end[STORE_CLASSES]; /* read, and still here: until the slot takes them */
    struct fetch_read *reads[FETCH_READS]; /* a ring, in order of the text */
    uint32_t head, n_reads;
    bool ends;
    bool again; /* something was damaged, or is gone: another look finds what is there instead */
    uint64_t began_ns, moved_ns; /* moved: when a record came last */
    uint64_t compute_ns;         /* what computing would take */
    uint64_t bytes, got;         /* to be read, about; of these, read */
};

struct fetches {
    struct stored stored;
    struct fetch *all; /* [slots] or NULL: there is no store */
    struct fetch_read read[FETCH_READS];
    uint32_t number;
    uint64_t turn;       /* number of the last step in which a fetch came before all others */
    uint64_t mib_ns;     /* smoothed: to read a MiB */
    uint32_t share;      /* in this step: reads of each user that are queued at once */
    uint32_t looks;      /* left in this step: of so many fetches, some pages each */
    uint32_t look_pages; /* of a text that a step looks for; tests change it */
    uint32_t reads;      /* of all fetches, queued at once: store_reads; tests change it */
    bool always;         /* tests: whatever it costs, and however long it takes */
};

/* For all slots, which have their caches. Returns 0 or -ENOMEM; fini in any case. */
int fetches_init(struct fetches *fetches, struct slots *slots);
void fetches_fini(struct fetches *fetches);

/* A stage of a step: takes what was read, begins and ends fetches. Returns the work done. */
uint32_t fetches_step(struct fetches *fetches, struct attached *clients, struct steady *clock);

/* Is there a record that a step would take? */
bool fetches_look(const struct fetches *fetches);

/* When a step must look at the clock: UINT64_MAX: no slot waits for the store. */
uint64_t fetches_deadline(const struct fetches *fetches);

/* No step follows: gives back all buffers. */
void fetches_stop(struct fetches *fetches);

#endif
