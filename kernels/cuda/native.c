/* Native numerics (kernels/NUMERICS.md, "Native"): which passes have them, and their id. In which order a tensor core adds is
 * its architecture's, so the id has the compute capability in it. Where canonical passes are portable, and float chains make
 * them slow, fast passes are native ones. KV in f32 is there for the digits that f16 loses, and tf32, which has as few: it
 * has no native numerics. */
#include <stdio.h>

#include "kernels/cuda/backend_cuda.h"

void cuda_choose_numerics(struct backend *b)
{
    const struct model *m = b->model;
    const bool computed = b->most.head_dim <= CUDA_LARGE_HEAD && m->n_per_layer == 0,
               possible = computed && b->geometry.type != KV_F32;
    b->native = b->limits.native && possible;
    b->fast =
        (!b->native || b->limits.drafts) && possible && !model_portable(m) && !model_kv_f32(m);
    if (b->native)
        snprintf(b->numerics, sizeof(b->numerics), "native-2-sm%s%s", b->name + 3,
                 b->limits.kv_q8_0 ? "-kvq8" : "");
    else
        snprintf(b->numerics, sizeof(b->numerics), "%s", model_numerics_id(m, b->limits.kv_q8_0));
    if (b->limits.native && !computed)
        snprintf(b->note, sizeof(b->note),
                 "portable numerics: native ones are there for heads of up to %d values, and for "
                 "models whose layers have no inputs of their own",
                 CUDA_LARGE_HEAD);
    else if (b->limits.native && !possible)
        snprintf(b->note, sizeof(b->note),
                 "portable numerics, as an F32 model has KV in f32: native ones are there with "
                 "--kv-type q8_0");
}

bool cuda_has(const struct backend *b, enum pass_kind kind)
{
    return kind == PASS_FAST  ? b->fast
           : kind == PASS_MTP ? b->model->mtp && !b->limits.drafts
                              : !b->fast || !b->limits.drafts;
}

bool cuda_tensors(const struct backend *b, enum pass_kind kind)
{
    return b->native || (b->fast && kind == PASS_FAST);
}
