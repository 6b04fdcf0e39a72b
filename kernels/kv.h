/* kv.h: where a key or a value of a position is inside a KV page.
 *
 * A page holds 32 consecutive positions of one sequence for all layers, in f16, in f32 for a model
 * whose layer matrices are all F32, or, on request, in blocks of int8:
 *
 *     page   layers of its class (enum page_class), one after the other; of PAGES_FULL the next-token
 *            layer, if there is one, the last
 *     layer  K: [n_head_kv][k_dim][32]   then   V: [n_head_kv][32][v_dim]
 *
 * Layers may differ in their heads and in the sizes of these, K's from V's.
 *
 * A block is 32 dimensions of one position and head, the last one shorter if their number is not a
 * multiple. The integers of a head are followed, in the same order, by their f32 scales: K
 * [k_blocks][32], V [32][v_blocks].
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

#include "kernels/backend.h"

struct model;

enum { KV_PAGE_POSITIONS = 32 };

enum { KV_BLOCK = 32 }; /* dimensions with one scale */

enum kv_type { KV_F16, KV_F32, KV_Q8_0 };

/* A layer's part of a page. */
struct kv_layer {
    enum kv_type type;
    enum page_class class; /* of the pages that it is in */
    uint32_t n_head_kv;
    uint32_t k_dim, v_dim;       /* dimensions of a head of K, of V */
    uint32_t k_blocks, v_blocks; /* KV_Q8_0: scales of a position in K, in V of a head */
    size_t k_bytes, v_bytes;     /* of a head: its values, and their scales */
    size_t offset;               /* from the start of the page to K of head 0 */
};

enum { KV_MAX_LAYERS = 512 };

struct kv_geometry {
    enum kv_type type;
    size_t page_bytes[PAGE_CLASSES]; /* all layers of a class */
    uint32_t n_layer;
    struct kv_layer layer[KV_MAX_LAYERS];
};

/* The geometry of a model's pages: of its own type, or KV_Q8_0; with or without pages of their own
 * for layers that attend in a window. */
void kv_geometry_init(struct kv_geometry *kv, const struct model *model, bool q8_0,
                      bool window_pages);

/* Adds a layer of these sizes to a geometry that is all zeros but for its type. */
void kv_geometry_add(struct kv_geometry *kv, enum page_class class, uint32_t n_head_kv,
                     uint32_t k_dim, uint32_t v_dim);

/* Bytes of all pages. */
static inline size_t kv_bytes(const struct kv_geometry *kv, const struct backend_limits *limits)
{
    return limits->pages * kv->page_bytes[PAGES_FULL] +
           limits->window_pages * kv->page_bytes[PAGES_WINDOW];
}

/* The longest window of a layer, 0: all layers see all positions. */
uint32_t kv_window(const struct model *model);

/* Bytes from the start of a page to K of a head, [k_dim][32]. */
static inline size_t kv_k_offset(const struct kv_layer *kv, uint32_t head)
{
    return kv->offset + head * kv->k_bytes;
}

/* Bytes from the start of a page to V of a head, [32][v_dim]. */
static inline size_t kv_v_offset(const struct kv_layer *kv, uint32_t head)
{
    return kv->offset + kv->n_head_kv * kv->k_bytes + head * kv->v_bytes;
}

/* KV_Q8_0: bytes from the start of K or V of a head to its scales. */
static inline size_t kv_scales_offset(uint32_t dim)
{
    return (size_t)dim * KV_PAGE_POSITIONS;
}

/* Zeros positions [from, 32) of a page of that class. */
void kv_clear(const struct kv_geometry *kv, enum page_class class, void *page, uint32_t from);

/* Pages that hold positions [0, n_positions). */
static inline uint32_t kv_pages(uint32_t n_positions)
{
    return n_positions / KV_PAGE_POSITIONS + (n_positions % KV_PAGE_POSITIONS != 0);
}

/* The first page that a row at `position` reads, in a window that ends with it; 0, no window: none. */
static inline uint32_t kv_window_begin(uint32_t window, uint32_t position)
{
    return window == 0         ? UINT32_MAX
           : position < window ? 0
                               : (position - window + 1) / KV_PAGE_POSITIONS;
}

#endif
