/* Which candidates a stage keeps: the border is found by radix buckets around it, without sorting. */
#include <assert.h>
#include <string.h>

#include "kernels/pick_impl.h"

enum { SORT_BELOW = 24 }; /* a bucket this small is sorted */

/* The lowest bit of the 11-bit digit whose highest bit is that of `differ`. */
static int digit_shift(uint64_t differ) {
    const int top = differ == 0 ? 0 : 63 - __builtin_clzll(differ);
    return top < PICK_BUCKETS_LOG2 ? 0 : top + 1 - PICK_BUCKETS_LOG2;
}

/* The bucket in which the running sum reaches *target; *target loses what lies before it. */
static uint32_t border_bucket(const uint64_t *buckets, uint64_t *target) {
    uint32_t b = 0;
    while (buckets[b] < *target) {
        *target -= buckets[b++];
        assert(b < PICK_BUCKETS);
    }
    return b;
}

/* Among m keys, narrows to the border's bucket of their highest differing digit. Returns how many stay. */
static uint32_t narrow(struct pick_scratch *s, uint32_t m, uint64_t *target) {
    uint64_t differ = 0;
    for (uint32_t i = 1; i < m; i++) { differ |= s->key[i] ^ s->key[0]; }
    const int shift = digit_shift(differ);
    memset(s->buckets, 0, sizeof s->buckets);
    for (uint32_t i = 0; i < m; i++) {
        s->buckets[(s->key[i] >> shift) & (PICK_BUCKETS - 1)] += s->key_w[i];
    }
    const uint32_t b = border_bucket(s->buckets, target);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m; i++) {
        if (((s->key[i] >> shift) & (PICK_BUCKETS - 1)) != b) { continue; }
        s->key[kept] = s->key[i];
        s->key_w[kept++] = s->key_w[i];
    }
    return kept;
}

static void sort_keys(struct pick_scratch *s, uint32_t m) {
    for (uint32_t i = 1; i < m; i++) {
        const uint64_t key = s->key[i], w = s->key_w[i];
        uint32_t j = i;
        for (; j > 0 && s->key[j - 1] > key; j--) {
            s->key[j] = s->key[j - 1];
            s->key_w[j] = s->key_w[j - 1];
        }
        s->key[j] = key;
        s->key_w[j] = w;
    }
}

uint64_t pick_select(struct pick_scratch *s, uint32_t differ, const uint64_t *w, uint64_t target) {
    const int shift = digit_shift(differ);
    memset(s->buckets, 0, sizeof s->buckets);
    for (uint32_t i = 0; i < s->n; i++) {
        s->buckets[(s->rank[i] >> shift) & (PICK_BUCKETS - 1)] += w != NULL ? w[i] : 1;
    }
    const uint32_t b = border_bucket(s->buckets, &target);
    uint32_t m = 0;
    for (uint32_t i = 0; i < s->n; i++) { /* branch-free: the slot is written, then claimed or not */
        s->key[m] = pick_key(s->rank[i], s->id[i]);
        s->key_w[m] = w != NULL ? w[i] : 1;
        m += ((s->rank[i] >> shift) & (PICK_BUCKETS - 1)) == b;
    }
    while (m > SORT_BELOW) { m = narrow(s, m, &target); }
    sort_keys(s, m);
    uint32_t last = 0;
    while (s->key_w[last] < target) {
        target -= s->key_w[last++];
        assert(last < m);
    }
    return s->key[last];
}

void pick_keep(struct pick_scratch *s, uint64_t last) {
    uint32_t kept = 0;
    if (s->weighed) {
        s->total = 0;
        for (uint32_t i = 0; i < s->n; i++) {
            const bool keep = pick_key(s->rank[i], s->id[i]) <= last;
            s->w[kept] = s->w[i];
            s->total += keep ? s->w[i] : 0;
            kept += keep;
        }
        kept = 0;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const bool keep = pick_key(s->rank[i], s->id[i]) <= last;
        s->l[kept] = s->l[i];
        s->id[kept] = s->id[i];
        kept += keep;
    }
    s->n = kept;
}
