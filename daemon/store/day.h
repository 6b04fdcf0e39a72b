/*
 * day: the bytes that may still be written today (--kv-store-writes), over all models and restarts.
 *
 * The file `day` of the store's folder has the bytes of a day; every hearthd that uses the folder takes its
 * share from there in advance, in grants, and gives back what is left when it ends. So one that is killed has
 * at most a grant counted that it did not write, and none writes more than was granted.
 *
 * The engine thread spends; the store's thread, and the main thread before and after, grants. A day that
 * is past gives nothing back; what is left of its grant may be spent on the next one. */
#ifndef HEARTH_DAEMON_STORE_DAY_H
#define HEARTH_DAEMON_STORE_DAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct day {
    int fd;
    uint64_t bytes; /* most of a day */
    uint64_t grant;
    uint64_t (*today)(void); /* since 1970 */
    uint64_t said;           /* on that day the log said that it is spent */
    _Atomic uint64_t last;   /* the day of the last grant, of which `taken` speaks */
    _Atomic int64_t left;    /* granted and not spent */
    _Atomic uint64_t taken;  /* of the day, by all, at the last grant */
    _Atomic bool short_of;   /* a day_spend was refused since the last grant ... */
    _Atomic bool spent;      /* ... for there was not so much left */
};

/* `folder` is that of the store; `largest`: the most that is spent at once. Returns 0 or -errno. */
int day_open(struct day *day, int folder, uint64_t bytes, uint64_t largest,
             uint64_t (*today)(void));
void day_close(struct day *day);

/* False: there is not so much left, or less than `own` with them, what the same user wrote today; the next
 * day_grant may change that. */
bool day_spend(struct day *day, uint64_t bytes, uint64_t own);
void day_unspend(struct day *day, uint64_t bytes);

/* Is half of the day's bytes left, but for what others took since the last grant? */
bool day_has_half(const struct day *day);

/* Takes a grant, if less than half of one is left and the day has some. Reads and writes the file, as
 * it does on a new day. */
void day_grant(struct day *day);

/* The clock's day. */
uint64_t day_today(void);

#endif
