#include "kernels/model_load.h"

#define HAS(tensor) (1u << (tensor))
#define LLAMA_TENSORS                                                                              \
    (HAS(MODEL_ATTN_NORM) | HAS(MODEL_ATTN_Q) | HAS(MODEL_ATTN_K) | HAS(MODEL_ATTN_V) |            \
     HAS(MODEL_ATTN_OUTPUT) | HAS(MODEL_FFN_NORM) | HAS(MODEL_FFN_GATE) | HAS(MODEL_FFN_UP) |      \
     HAS(MODEL_FFN_DOWN))

static const struct model_arch ARCHS[] = {
    {"llama", MODEL_ROPE_ADJACENT, LLAMA_TENSORS},
};
#define ARCH_NAMES "llama"

const struct model_arch *model_arch_find(struct gguf_string name)
{
    for (size_t i = 0; i < sizeof(ARCHS) / sizeof(ARCHS[0]); i++)
        if (gguf_string_equal(name, ARCHS[i].name))
            return &ARCHS[i];
    return NULL;
}

const char *model_arch_names(void)
{
    return ARCH_NAMES;
}
