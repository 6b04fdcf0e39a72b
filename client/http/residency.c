/* residency: see residency.h. */
#include "client/http/residency.h"

static bool may_stop(const struct residency *r, const struct resident *one, uint64_t now_ns)
{
    return !one->is_busy && one->since_ns + r->stay_ns <= now_ns;
}

/* Does `a` give way before `b`? */
static bool is_before(const struct residency *r, const struct resident *a, const struct resident *b,
                      uint64_t now_ns)
{
    bool a_may = may_stop(r, a, now_ns), b_may = may_stop(r, b, now_ns);
    if (a_may != b_may)
        return a_may;
    return a_may ? a->used_ns < b->used_ns : a->since_ns < b->since_ns;
}

/* The next one that gives way; NULL: only pinned ones are left. */
static struct resident *choose(struct residency *r, uint64_t now_ns)
{
    struct resident *best = NULL;
    for (size_t i = 0; i < r->n; i++) {
        struct resident *one = &r->all[i];
        if (!one->is_pinned && !one->gives_way && (!best || is_before(r, one, best, now_ns)))
            best = one;
    }
    return best;
}

static uint64_t kept_bytes(const struct residency *r)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->n; i++)
        bytes += r->all[i].gives_way ? 0 : r->all[i].bytes;
    return bytes;
}

static bool fits(const struct residency *r, uint64_t bytes)
{
    uint64_t kept = kept_bytes(r);
    return bytes <= r->budget_bytes && kept <= r->budget_bytes - bytes;
}

/* Keeps those that were marked in vain, because a larger one was marked after them. */
static void keep_needless(struct residency *r, uint64_t bytes)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->all[i].gives_way) {
            r->all[i].gives_way = false;
            r->all[i].gives_way = !fits(r, bytes);
        }
}

enum residency_verdict residency_plan(struct residency *r, uint64_t bytes, uint64_t now_ns)
{
    struct resident *one;
    enum residency_verdict verdict = RESIDENCY_FITS;
    for (size_t i = 0; i < r->n; i++)
        r->all[i].gives_way = false;
    while (!fits(r, bytes) && (one = choose(r, now_ns)))
        one->gives_way = true;
    if (!fits(r, bytes)) {
        for (size_t i = 0; i < r->n; i++)
            r->all[i].gives_way = false;
        return RESIDENCY_NEVER;
    }
    keep_needless(r, bytes);
    for (size_t i = 0; i < r->n; i++)
        if (r->all[i].gives_way && !may_stop(r, &r->all[i], now_ns))
            return RESIDENCY_WAIT;
        else if (r->all[i].gives_way)
            verdict = RESIDENCY_STOP;
    return verdict;
}

uint64_t residency_due(const struct residency *r)
{
    uint64_t due_ns = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->all[i].gives_way && r->all[i].since_ns + r->stay_ns > due_ns)
            due_ns = r->all[i].since_ns + r->stay_ns;
    return due_ns;
}

/* When it ends if it has no further request. */
static uint64_t ends_ns(const struct resident *one)
{
    if (one->is_pinned || one->is_busy || one->idle_ns > UINT64_MAX - one->used_ns)
        return UINT64_MAX;
    return one->used_ns + one->idle_ns;
}

size_t residency_idle(const struct residency *r, uint64_t now_ns)
{
    size_t i = 0;
    while (i < r->n && ends_ns(&r->all[i]) > now_ns)
        i++;
    return i;
}

uint64_t residency_idle_due(const struct residency *r)
{
    uint64_t due_ns = UINT64_MAX;
    for (size_t i = 0; i < r->n; i++)
        if (ends_ns(&r->all[i]) < due_ns)
            due_ns = ends_ns(&r->all[i]);
    return due_ns;
}
