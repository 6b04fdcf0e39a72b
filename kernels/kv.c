#include "kernels/kv.h"

#include "kernels/backend.h"
#include "kernels/model.h"

_Static_assert((int)KV_PAGE_POSITIONS == (int)BACKEND_PAGE_POSITIONS, "one page size");

void kv_geometry_init(struct kv_geometry *kv, const struct model *model) {
    kv->n_layer = model->n_layer;
    kv->n_head_kv = model->n_head_kv;
    kv->head_dim = model->head_dim;
    kv->head_bytes = (size_t)model->head_dim * KV_PAGE_POSITIONS * sizeof(uint16_t);
    kv->layer_bytes = 2 * (size_t)model->n_head_kv * kv->head_bytes;
    kv->page_bytes = model->n_layer * kv->layer_bytes;
}
