#include "kernels/kv.h"

#include "kernels/backend.h"
#include "kernels/model.h"

_Static_assert((int)KV_PAGE_POSITIONS == (int)BACKEND_PAGE_POSITIONS, "one page size");

void kv_geometry_set(struct kv_geometry *kv, uint32_t n_layer, uint32_t n_head_kv,
                     uint32_t head_dim, bool f32)
{
    kv->n_layer = n_layer;
    kv->n_head_kv = n_head_kv;
    kv->head_dim = head_dim;
    kv->f32 = f32;
    kv->head_bytes = (size_t)head_dim * KV_PAGE_POSITIONS * (f32 ? 4 : 2);
    kv->layer_bytes = 2 * (size_t)n_head_kv * kv->head_bytes;
    kv->page_bytes = n_layer * kv->layer_bytes;
}

void kv_geometry_init(struct kv_geometry *kv, const struct model *model)
{
    kv_geometry_set(kv, model->n_layer, model->n_head_kv, model->head_dim, model_kv_f32(model));
}
