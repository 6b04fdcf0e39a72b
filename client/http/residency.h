/* residency: which models stay in memory, and which give way to one that was asked for.
 *
 * Pure; any thread. Times are nanoseconds of one clock. */
#ifndef HEARTH_CLIENT_HTTP_RESIDENCY_H
#define HEARTH_CLIENT_HTTP_RESIDENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct resident {
    uint64_t bytes;    /* weights and KV, as declared */
    uint64_t since_ns; /* when it was loaded */
    uint64_t used_ns;  /* when it last had a request */
    uint64_t idle_ns;  /* without one for so long it ends; UINT64_MAX: never */
    bool is_busy;      /* has one now */
    bool is_pinned;    /* never gives way */
    bool gives_way;    /* set by residency_plan: it has to end first */
};

struct residency {
    struct resident *all; /* [n] */
    size_t n;
    uint64_t budget_bytes; /* for all of them */
    uint64_t stay_ns;      /* how long each may stay before it gives way */
};

enum residency_verdict {
    RESIDENCY_FITS,  /* beside those that are there */
    RESIDENCY_STOP,  /* once those that give way are stopped, which may be done now */
    RESIDENCY_WAIT,  /* the same, but one of them is busy, or has not been there for long */
    RESIDENCY_NEVER, /* not even beside the pinned ones alone */
};

/* May a model of `bytes` be loaded? Those that give way are marked: first the ones that may be stopped
 * now, the one longest without a request first; then the one that has been there longest; no more
 * than are needed. */
enum residency_verdict residency_plan(struct residency *r, uint64_t bytes, uint64_t now_ns);

/* After a plan: when those that give way will all have been there for long enough. */
uint64_t residency_due(const struct residency *r);

/* One that had no request for its idle_ns, and is not pinned; or n. */
size_t residency_idle(const struct residency *r, uint64_t now_ns);

/* When there will be one, as things are; UINT64_MAX: never. */
uint64_t residency_idle_due(const struct residency *r);

#endif
