/* sample_select.c: which candidates a stage keeps: a radix selection finds the border without
 * sorting. */
#include "kernels/sample/sample_impl.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum { SORT_BELOW = 24 }; /* a bucket smaller than this is sorted */

/* The lowest bit of the 11-bit digit whose highest bit is that of `differ`. */
static int digit_shift(uint64_t differ)
{
    const int top = differ == 0 ? 0 : 63 - __builtin_clzll(differ);
    return top < SAMPLE_BUCKETS_LOG2 ? 0 : top + 1 - SAMPLE_BUCKETS_LOG2;
}

/* The bucket in which the running sum reaches *target; reduces *target by the sum before it. */
static uint32_t border_bucket(struct sampler_scratch *s, uint64_t *target)
{
    for (uint32_t b = 0;; b++) {
        assert(b < SAMPLE_BUCKETS);
        const uint64_t sum =
            s->buckets[0][b] + s->buckets[1][b] + s->buckets[2][b] + s->buckets[3][b];
        if (sum >= *target) {
            return b;
        }
        *target -= sum;
    }
}

/* Narrows m keys to the border's bucket of their highest differing digit. Returns how many are
 * left. */
static uint32_t narrow(struct sampler_scratch *s, uint32_t m, uint64_t *target)
{
    uint64_t differ = 0;
    for (uint32_t i = 1; i < m; i++) {
        differ |= s->key[i] ^ s->key[0];
    }
    const int shift = digit_shift(differ);
    memset(s->buckets, 0, sizeof(s->buckets));
    for (uint32_t i = 0; i < m; i++) {
        s->buckets[i % SAMPLE_TABLES][(s->key[i] >> shift) & (SAMPLE_BUCKETS - 1)] += s->key_w[i];
    }
    const uint32_t b = border_bucket(s, target);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m; i++) {
        if (((s->key[i] >> shift) & (SAMPLE_BUCKETS - 1)) != b) {
            continue;
        }
        s->key[kept] = s->key[i];
        s->key_w[kept++] = s->key_w[i];
    }
    return kept;
}

static void sort_keys(struct sampler_scratch *s, uint32_t m)
{
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

/* First step: buckets over all candidates' ranks; the border's bucket becomes keys. Returns how
 * many. */
static uint32_t open_bucket(struct sampler_scratch *s, uint32_t differ, const uint64_t *w,
                            uint64_t *target)
{
    const uint32_t n = s->n, mask = SAMPLE_BUCKETS - 1;
    const uint32_t *rank = s->rank, *id = s->id;
    const int shift = digit_shift(differ);
    memset(s->buckets, 0, sizeof(s->buckets));
    if (w == NULL) {
        for (uint32_t i = 0; i < n; i++) {
            s->buckets[i % SAMPLE_TABLES][(rank[i] >> shift) & mask]++;
        }
    } else {
        for (uint32_t i = 0; i < n; i++) {
            s->buckets[i % SAMPLE_TABLES][(rank[i] >> shift) & mask] += w[i];
        }
    }
    const uint32_t b = border_bucket(s, target);
    uint64_t *restrict key = s->key, *restrict key_w = s->key_w;
    uint32_t m = 0;
    /* Branch-free: an entry is always written, and kept only if it counts. */
    for (uint32_t i = 0; i < n; i++) {
        key[m] = sample_key(rank[i], id[i]);
        key_w[m] = w != NULL ? w[i] : 1;
        m += ((rank[i] >> shift) & mask) == b;
    }
    return m;
}

uint64_t sample_select(struct sampler_scratch *s, uint32_t differ, const uint64_t *w,
                       uint64_t target)
{
    uint32_t m = open_bucket(s, differ, w, &target);
    while (m > SORT_BELOW) {
        m = narrow(s, m, &target);
    }
    sort_keys(s, m);
    uint32_t last = 0;
    while (s->key_w[last] < target) {
        target -= s->key_w[last++];
        assert(last < m);
    }
    return s->key[last];
}

void sample_admit(struct sampler_scratch *s, const float *logits, float bound)
{
    s->weighed = false;
    if (bound > -FLT_MAX) {
        s->n = s->lanes.above(logits, s->n_vocab, bound, s->l, s->id);
        return;
    }
    s->n = s->n_vocab;
    memcpy(s->l, logits, s->n * sizeof(*s->l));
    for (uint32_t i = 0; i < s->n; i++) {
        s->id[i] = i;
    }
}

/* The k-th largest of the maxima of disjoint blocks: k logits, one of each of k blocks, reach it.
 */
float sample_bound_top_k(struct sampler_scratch *s, const float *logits, uint32_t k)
{
    const uint32_t n_blocks = s->n_vocab / SAMPLE_BLOCK;
    if (k == 0 || k > n_blocks / 4) {
        return -INFINITY;
    }
    s->lanes.block_max(logits, s->n_vocab, s->block);
    s->n = n_blocks;
    for (uint32_t i = 0; i < n_blocks; i++) {
        s->id[i] = i;
    }
    const uint32_t differ = s->lanes.rank(s->block, n_blocks, s->rank);
    const uint64_t key = sample_select(s, differ, NULL, k);
    return s->block[(uint32_t)key]; /* a key's low half is the id */
}

/* Branch-free like open_bucket: an entry that is not kept is overwritten by the next. */
void sample_keep(struct sampler_scratch *s, uint64_t last)
{
    const uint32_t n = s->n;
    const uint32_t *restrict rank = s->rank;
    float *restrict l = s->l;
    uint32_t *restrict id = s->id;
    uint64_t *restrict w = s->w;
    uint64_t total = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n;
         i++) { /* moves w even if it is not valid, which costs less than a branch */
        const uint64_t weight = w[i];
        const uint32_t token = id[i];
        const bool keep = sample_key(rank[i], token) <= last;
        w[kept] = weight;
        l[kept] = l[i];
        id[kept] = token;
        total += keep ? weight : 0;
        kept += keep;
    }
    s->n = kept;
    if (s->weighed) {
        s->total = total;
    }
}
