/* kv.h: where a key or a value of a position is inside a KV page.
 *
 * A page holds 32 consecutive positions of one sequence for all layers, in f16, in f32 for a model
 * whose layer matrices are all F32, or, on request, in blocks of int8:
 *
 *     page   [n_layer] layers
 *     layer  K: [n_head_kv][head_dim][32]   then   V: [n_head_kv][32][head_dim]
 *
 * A block is 32 dimensions of one position and head, the last one shorter if head_dim is not a
 * multiple. The integers of a head are followed, in the same order, by their f32 scales: K
 * [n_block][32], V [32][n_block].
 *
 * In K the 32 positions of one dimension are adjacent, so that SIMD lanes are positions when scores
 * are computed; in V the dimensions of one position are, so that lanes are dimensions in the
 * weighted sum (NUMERICS.md, "KV" and "Attention"). Every block starts at a multiple of 64 bytes of
 * the page. Pure arithmetic, any thread. */
#ifndef HEARTH_KERNELS_KV_H
#define HEARTH_KERNELS_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model;

enum { KV_PAGE_POSITIONS = 32 };

enum { KV_BLOCK = 32 }; /* dimensions with one scale */

enum kv_type { KV_F16, KV_F32, KV_Q8_0 };

struct kv_geometry {
    uint32_t n_layer;
    uint32_t n_head_kv;
    uint32_t head_dim;
    enum kv_type type;
    uint32_t n_block;   /* KV_Q8_0: scales of a position in K or V of a head */
    size_t head_bytes;  /* K or V of one KV head: head_dim * 32 values, and their scales */
    size_t layer_bytes; /* K and V of all KV heads */
    size_t page_bytes;  /* all layers */
};

/* The geometry of a model's pages: of its own type, or KV_Q8_0. */
void kv_geometry_init(struct kv_geometry *kv, const struct model *model, bool q8_0);

/* The geometry for sizes given one by one. */
void kv_geometry_set(struct kv_geometry *kv, uint32_t n_layer, uint32_t n_head_kv,
                     uint32_t head_dim, enum kv_type type);

/* Bytes from the start of a page to K of (layer, head), [head_dim][32]. */
static inline size_t kv_k_offset(const struct kv_geometry *kv, uint32_t layer, uint32_t head)
{
    return layer * kv->layer_bytes + head * kv->head_bytes;
}

/* Bytes from the start of a page to V of (layer, head), [32][head_dim]. */
static inline size_t kv_v_offset(const struct kv_geometry *kv, uint32_t layer, uint32_t head)
{
    return layer * kv->layer_bytes + (kv->n_head_kv + head) * kv->head_bytes;
}

/* KV_Q8_0: bytes from the start of K or V of a head to its scales. */
static inline size_t kv_scales_offset(const struct kv_geometry *kv)
{
    return (size_t)kv->head_dim * KV_PAGE_POSITIONS;
}

/* Pages that hold positions [0, n_positions). */
static inline uint32_t kv_pages(uint32_t n_positions)
{
    return n_positions / KV_PAGE_POSITIONS + (n_positions % KV_PAGE_POSITIONS != 0);
}

#endif
