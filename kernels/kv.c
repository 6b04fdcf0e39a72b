/* kv.c: the geometry of KV pages. */
#include "kernels/kv.h"

#include "kernels/model/model.h"

#include <string.h>

_Static_assert((int)KV_PAGE_POSITIONS == (int)BACKEND_PAGE_POSITIONS, "one page size");

static const size_t value_bytes[] = {[KV_F16] = 2, [KV_F32] = 4, [KV_Q8_0] = 1};

_Static_assert((int)KV_MAX_LAYERS == (int)MODEL_MAX_LAYERS, "a place for every layer");

/* K or V of a head, of `blocks` blocks. Every part of a page begins at a multiple of 64 bytes. */
static size_t head_bytes(enum kv_type type, uint32_t dim, uint32_t blocks)
{
    const size_t scales = type == KV_Q8_0 ? (size_t)blocks * sizeof(float) : 0;
    return KV_PAGE_POSITIONS * (dim * value_bytes[type] + scales);
}

void kv_geometry_add(struct kv_geometry *kv, enum page_class class, uint32_t n_head_kv,
                     uint32_t k_dim, uint32_t v_dim)
{
    struct kv_layer *layer = &kv->layer[kv->n_layer++];
    *layer = (struct kv_layer){.type = kv->type,
                               .class = class,
                               .n_head_kv = n_head_kv,
                               .k_dim = k_dim,
                               .v_dim = v_dim,
                               .k_blocks = (k_dim + KV_BLOCK - 1) / KV_BLOCK,
                               .v_blocks = (v_dim + KV_BLOCK - 1) / KV_BLOCK,
                               .offset = kv->page_bytes[class]};
    layer->k_bytes = head_bytes(kv->type, k_dim, layer->k_blocks);
    layer->v_bytes = head_bytes(kv->type, v_dim, layer->v_blocks);
    kv->page_bytes[class] += n_head_kv * (layer->k_bytes + layer->v_bytes);
}

void kv_geometry_init(struct kv_geometry *kv, const struct model *model, bool q8_0,
                      bool window_pages)
{
    *kv = (struct kv_geometry){.type = q8_0 ? KV_Q8_0 : model_kv_f32(model) ? KV_F32 : KV_F16};
    for (uint32_t i = 0; i < model->n_layer; i++) {
        const struct layer_geometry *g = &model->layers[i].geometry;
        if (g->recurrent || g->shares_kv)
            continue; /* a state in place of KV, or that of another layer */
        const bool local = window_pages && g->sliding_window != MODEL_NO_WINDOW;
        kv_geometry_add(kv, local ? PAGES_WINDOW : PAGES_FULL, g->n_head_kv, g->k_dim, g->v_dim);
    }
    if (model->mtp) {
        const struct layer_geometry *g = &model->mtp->layer.geometry;
        kv_geometry_add(kv, PAGES_FULL, g->n_head_kv, g->k_dim, g->v_dim);
    }
}

/* Of `n` runs of 32 items, one for each position. */
static void clear_columns(uint8_t *runs, size_t item_bytes, size_t n, uint32_t from)
{
    for (size_t i = 0; i < n; i++)
        memset(runs + (i * KV_PAGE_POSITIONS + from) * item_bytes, 0,
               (KV_PAGE_POSITIONS - from) * item_bytes);
}

/* Of 32 rows, one for each position. */
static void clear_rows(uint8_t *rows, size_t row_bytes, uint32_t from)
{
    memset(rows + from * row_bytes, 0, (KV_PAGE_POSITIONS - from) * row_bytes);
}

static void clear_head(const struct kv_layer *layer, uint8_t *page, uint32_t head, uint32_t from)
{
    const size_t value = value_bytes[layer->type];
    uint8_t *k = page + kv_k_offset(layer, head), *v = page + kv_v_offset(layer, head);
    clear_columns(k, value, layer->k_dim, from);
    clear_rows(v, layer->v_dim * value, from);
    if (layer->type != KV_Q8_0)
        return;
    clear_columns(k + kv_scales_offset(layer->k_dim), sizeof(float), layer->k_blocks, from);
    clear_rows(v + kv_scales_offset(layer->v_dim), layer->v_blocks * sizeof(float), from);
}

void kv_clear(const struct kv_geometry *kv, enum page_class class, void *page, uint32_t from)
{
    for (uint32_t i = 0; i < kv->n_layer && from < KV_PAGE_POSITIONS; i++)
        for (uint32_t head = 0; kv->layer[i].class == class && head < kv->layer[i].n_head_kv;
             head++)
            clear_head(&kv->layer[i], page, head, from);
}

uint32_t kv_window(const struct model *model)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < model->n_layer; i++) {
        const uint32_t window = model->layers[i].geometry.sliding_window;
        most = window != MODEL_NO_WINDOW && window > most ? window : most;
    }
    return most;
}
