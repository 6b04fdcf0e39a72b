/* kv.c: the geometry of KV pages. */
#include "kernels/kv.h"

#include "kernels/backend.h"
#include "kernels/model/model.h"

_Static_assert((int)KV_PAGE_POSITIONS == (int)BACKEND_PAGE_POSITIONS, "one page size");

static const size_t value_bytes[] = {[KV_F16] = 2, [KV_F32] = 4, [KV_Q8_0] = 1};

void kv_geometry_set(struct kv_geometry *kv, uint32_t n_layer, uint32_t n_head_kv,
                     uint32_t head_dim, enum kv_type type)
{
    kv->n_layer = n_layer;
    kv->n_head_kv = n_head_kv;
    kv->head_dim = head_dim;
    kv->type = type;
    kv->n_block = (head_dim + KV_BLOCK - 1) / KV_BLOCK;
    kv->head_bytes = (size_t)KV_PAGE_POSITIONS * head_dim * value_bytes[type];
    if (type == KV_Q8_0)
        kv->head_bytes += (size_t)KV_PAGE_POSITIONS * kv->n_block * sizeof(float);
    kv->layer_bytes = 2 * (size_t)n_head_kv * kv->head_bytes;
    kv->page_bytes = n_layer * kv->layer_bytes;
}

void kv_geometry_init(struct kv_geometry *kv, const struct model *model, bool q8_0)
{
    enum kv_type own = model_kv_f32(model) ? KV_F32 : KV_F16;
    kv_geometry_set(kv, model->n_layer, model->n_head_kv, model->head_dim, q8_0 ? KV_Q8_0 : own);
}
