/* sample_lanes.c: the sampler's loops over the whole vocabulary, in portable C. sample_impl.h says
 * what each does. */
#include "kernels/sample/sample_impl.h"

#include <errno.h>
#include <float.h>
#include <math.h>

static int scan(const float *l, uint32_t n, float *ret_max, uint32_t *ret_index)
{
    float max = -INFINITY;
    uint32_t index = 0;
    bool bad = false;
    for (uint32_t i = 0; i < n; i++) {
        bad |= !(l[i] <= FLT_MAX);
        if (l[i] > max) {
            max = l[i];
            index = i;
        }
    }
    if (bad || max < -FLT_MAX) {
        return -EDOM;
    }
    *ret_max = max;
    *ret_index = index;
    return 0;
}

static uint64_t weigh(const float *l, uint32_t n, float max, uint64_t *w)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t weight = (uint64_t)(num_exp(l[i] - max) * SAMPLE_ONE);
        if (w != NULL) {
            w[i] = weight;
        }
        total += weight;
    }
    return total;
}

static uint32_t rank_all(const float *l, uint32_t n, uint32_t *rank)
{
    const uint32_t first = sample_rank(l[0]);
    uint32_t differ = 0;
    for (uint32_t i = 0; i < n; i++) {
        rank[i] = sample_rank(l[i]);
        differ |= rank[i] ^ first;
    }
    return differ;
}

static void temper(float *l, uint32_t n, float max, float t)
{
    for (uint32_t i = 0; i < n; i++) {
        l[i] = (l[i] - max) / t;
    }
}

static void block_max(const float *l, uint32_t n, float *block)
{
    for (uint32_t b = 0; b < n / SAMPLE_BLOCK; b++) {
        const float *x = l + (size_t)b * SAMPLE_BLOCK;
        float max = x[0];
        for (uint32_t i = 1; i < SAMPLE_BLOCK; i++) {
            max = x[i] > max ? x[i] : max;
        }
        block[b] = max;
    }
}

static uint32_t above(const float *l, uint32_t n, float bound, float *ret_l, uint32_t *ret_id)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (l[i] < bound) {
            continue;
        }
        ret_l[k] = l[i];
        ret_id[k++] = i;
    }
    return k;
}

static void allow(const float *l, uint32_t n, const uint64_t *bits, float *ret)
{
    for (uint32_t i = 0; i < n; i++) {
        ret[i] = (bits[i >> 6] >> (i & 63) & 1) != 0 ? l[i] : -INFINITY;
    }
}

const struct sample_lanes sample_lanes_portable = {scan,      weigh, rank_all, temper,
                                                   block_max, above, allow};
