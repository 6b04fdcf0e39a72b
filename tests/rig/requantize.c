#include "tests/rig/requantize.h"

#include "kernels/quant/quant_block.h"
#include "kernels/quant/quantize.h"
#include "tests/rig/gguf_writer.h"

static void put_matrix(struct gw_buffer *data, const struct gguf_tensor *t, uint32_t type)
{
    const struct quant_info *from = quant_find(t->type), *to = quant_find(type);
    uint64_t n = t->ne[0], row_bytes = n / from->block * from->block_bytes;
    float *x = malloc(n * sizeof(*x));
    uint8_t *row = malloc(n / to->block * to->block_bytes);
    if (!x || !row)
        abort();
    for (uint64_t r = 0; r < t->ne[1]; r++) {
        quant_row_values(t->type, t->data + r * row_bytes, n, x);
        if (quantize_row(type, x, n, row))
            abort();
        gw_put(data, row, n / to->block * to->block_bytes);
    }
    free(x);
    free(row);
}

uint8_t *requantize_file(const struct gguf *gguf, uint32_t type, size_t *ret_bytes)
{
    struct gw w;
    char name[GGUF_MAX_NAME + 1];
    gw_init(&w);
    for (uint64_t i = 0; i < gguf_n_keys(gguf); i++) {
        const struct gguf_key *key = gguf_key_at(gguf, i);
        snprintf(name, sizeof(name), "%.*s", (int)key->name.bytes, key->name.data);
        gw_key(&w, name, key->type, key->raw, key->raw_bytes);
    }
    for (uint64_t i = 0; i < gguf_n_tensors(gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(gguf, i);
        uint32_t to = t->n_dims < 2                             ? t->type
                      : t->ne[0] % quant_find(type)->block == 0 ? type
                                                                : QUANT_Q8_0;
        snprintf(name, sizeof(name), "%.*s", (int)t->name.bytes, t->name.data);
        gw_tensor_info(&w, name, to, t->n_dims, t->ne, w.data.bytes);
        if (t->n_dims < 2)
            gw_put(&w.data, t->data, t->bytes);
        else
            put_matrix(&w.data, t, to);
        gw_pad(&w.data, w.alignment);
    }
    return gw_finish(&w, ret_bytes, NULL);
}
