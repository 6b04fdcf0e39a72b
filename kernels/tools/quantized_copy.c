/* quantized_copy.c: see quantized_copy.h. */
#include "kernels/tools/quantized_copy.h"

#include "kernels/base/fail.h"
#include "kernels/quant/quant_block.h"
#include "kernels/quant/quant_types.h"

#include <errno.h>
#include <stdio.h>

/* A number of the architecture's; 0 if the file lacks it. */
static uint32_t number_of(const struct gguf *g, const char *key)
{
    struct gguf_string arch;
    char name[96];
    uint32_t number = 0;
    if (gguf_string(g, "general.architecture", &arch) == 0) {
        snprintf(name, sizeof(name), "%.*s.%s", GGUF_SHOW(arch), key);
        (void)gguf_u32(g, name, &number);
    }
    return number;
}

static struct type_mix_model facts_of(const struct gguf *g)
{
    const uint32_t kv = number_of(g, "attention.head_count_kv");
    return (struct type_mix_model){.n_layer = number_of(g, "block_count"),
                                   .n_gqa = kv ? number_of(g, "attention.head_count") / kv : 1,
                                   .tied = !gguf_find_tensor(g, "output.weight")};
}

/* True for keys that describe the file itself and are written anew. */
static bool replaced(const struct gguf_key *key)
{
    return gguf_string_equal(key->name, "general.file_type") ||
           gguf_string_equal(key->name, "general.quantization_version") ||
           gguf_string_equal(key->name, "general.alignment") ||
           gguf_string_equal(key->name, "split.no") ||
           gguf_string_equal(key->name, "split.count") ||
           gguf_string_equal(key->name, "split.tensors.count");
}

static bool readable(uint32_t type)
{
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16;
}

int quantized_copy_list(const struct quantized_copy *copy, struct gguf_out *out, char *err,
                        size_t err_bytes)
{
    const struct gguf *g = copy->from;
    const struct type_mix_model facts = facts_of(g);
    for (uint64_t i = 0; i < gguf_n_keys(g); i++) {
        const struct gguf_key *key = gguf_key_at(g, i);
        if (!replaced(key))
            gguf_out_raw(out, key->name, key->type, key->raw, key->raw_bytes);
    }
    gguf_out_u32(out, "general.file_type", copy->mix->file_type);
    gguf_out_u32(out, "general.quantization_version", 2);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *from = gguf_tensor_at(g, i);
        struct gguf_out_tensor t = {.n_dims = from->n_dims,
                                    .cols = from->ne[0],
                                    .rows = from->ne[1],
                                    .n_matrices = from->ne[2]};
        snprintf(t.name, sizeof(t.name), "%.*s", (int)from->name.bytes, from->name.data);
        if (!readable(from->type))
            return fail(err, err_bytes, -ENOTSUP,
                        "tensor %s is already %s: start from an F32, F16 or BF16 file", t.name,
                        quant_name(from->type));
        if (from->n_dims > 3)
            return fail(err, err_bytes, -ENOTSUP,
                        "tensor %s has %u dimensions, which is not supported", t.name,
                        from->n_dims);
        t.type = from->n_dims >= 2 ? type_mix_of(copy->mix, t.name, t.cols, &facts) : QUANT_F32;
        gguf_out_tensor(out, &t);
    }
    return 0;
}

int quantized_copy_row(void *arg, uint32_t tensor, uint64_t row, float *x)
{
    const struct quantized_copy *copy = arg;
    const struct gguf_tensor *t = gguf_tensor_at(copy->from, tensor);
    uint64_t n = t->ne[0];
    quant_row_values(t->type, t->data + row * n * (t->type == QUANT_F32 ? 4 : 2), n, x);
    return 0;
}
