/*
 * Fuzzes the reading of model files: container, vocabulary, model, fingerprint.
 *
 * The first byte of an input says what the rest is: 0..127 a file as it stands; else changes to a
 * small valid model (its type of weights follows from the byte), three bytes each, {u16 position,
 * u8 value}; the position 0xffff cuts the file there instead, at value / 256 of its length. So the
 * deep checks are reached without a seed corpus.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/gguf/gguf_vocab.h"
#include "kernels/model/model.h"
#include "tests/rig/gguf_writer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Optional keys, with values that change nothing. */
static void put_optional_keys(struct gw *w)
{
    static const char *const MERGES[] = {"a b", "ab c"};
    gw_key_string(w, "general.type", "model");
    gw_key_u32(w, "general.alignment", 32);
    gw_key_u32(w, "split.count", 1);
    gw_key_u32(w, "llama.rope.dimension_count", 16);
    gw_key_f32(w, "llama.rope.freq_base", 10000.0f);
    gw_key_string(w, "llama.rope.scaling.type", "none");
    gw_key_f32(w, "llama.rope.scaling.factor", 1.0f);
    gw_key_u32(w, "llama.attention.key_length", 16);
    gw_key_u32(w, "llama.attention.value_length", 16);
    gw_key_u32(w, "llama.attention.sliding_window", 0);
    gw_key_bool(w, "llama.attention.causal", 1);
    gw_key_u32(w, "llama.expert_count", 0);
    gw_key_string(w, "tokenizer.ggml.pre", "default");
    gw_key_strings(w, "tokenizer.ggml.merges", 2, MERGES);
    gw_key_u32(w, "tokenizer.ggml.prefix_token_id", 3);
    gw_key_bool(w, "tokenizer.ggml.add_bos_token", 1);
}

/* Divisors of rope's frequencies that change nothing. */
static void put_divisors(struct gw *w)
{
    static const float ONES[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const uint64_t ne[1] = {8};
    gw_tensor_info(w, "rope_freqs.weight", QUANT_F32, 1, ne, w->data.bytes);
    gw_put(&w->data, ONES, sizeof(ONES));
}

static uint8_t *valid_model(uint8_t selector, size_t *ret_bytes, size_t *ret_data_at)
{
    static const uint32_t TYPES[] = {QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0};
    struct gw_llama spec = {.n_layer = 1 + selector % 2,
                            .n_embd = 32,
                            .n_ff = 32,
                            .n_head = 2,
                            .n_head_kv = 1,
                            .n_vocab = 8,
                            .n_context = 64,
                            .type = TYPES[selector % 5],
                            .untied = selector & 8,
                            .seed = 1};
    struct gw w;
    gw_init(&w);
    gw_llama_keys(&w, &spec);
    gw_llama_tokens(&w, spec.n_vocab);
    if (selector & 16)
        put_optional_keys(&w);
    if (selector & 16)
        put_divisors(&w);
    gw_llama_tensors(&w, &spec);
    return gw_finish(&w, ret_bytes, ret_data_at);
}

/* Returns the file to read, exactly *ret_bytes long, so that a read past its end is seen. */
static uint8_t *make_file(const uint8_t *data, size_t size, size_t *ret_bytes)
{
    uint8_t *file;
    if (data[0] < 128) {
        *ret_bytes = size - 1;
        if (posix_memalign((void **)&file, 64, size))
            abort();
        memcpy(file, data + 1, size - 1);
        return file;
    }
    size_t bytes;
    size_t data_at;
    uint8_t *model = valid_model(data[0], &bytes, &data_at);
    size_t reach = data_at + 64; /* the weights' values do not matter here */
    for (size_t i = 1; i + 3 <= size; i += 3) {
        size_t position = data[i] | (size_t)data[i + 1] << 8;
        if (position == 0xffff)
            bytes = bytes * data[i + 2] / 256;
        else if (position % reach < bytes)
            model[position % reach] = data[i + 2];
    }
    if (posix_memalign((void **)&file, 64, bytes + 1))
        abort();
    memcpy(file, model, bytes);
    free(model);
    *ret_bytes = bytes;
    return file;
}

/* Reads what a backend would: both ends of every tensor. */
static unsigned touch(const struct model *model)
{
    unsigned sum = 0;
    for (uint32_t i = 0; i < MODEL_N_GLOBAL; i++)
        if (model->global[i].data) /* divisors of rope are not in every file */
            sum += model->global[i].data[model->global[i].bytes - 1];
    for (uint32_t layer = 0; layer < model->n_layer; layer++)
        for (uint32_t i = 0; i < MODEL_N_LAYER_TENSORS; i++) {
            const struct model_tensor *t = &model->layers[layer].tensor[i];
            if (t->data)
                sum += t->data[0] + t->data[(uint64_t)t->rows * t->row_bytes - 1];
        }
    return sum;
}

static void read_vocab(const struct gguf *gguf, char *err, size_t err_bytes)
{
    struct gguf_vocab vocab;
    char line[256];
    unsigned sum = 0;
    if (gguf_vocab_open(gguf, &vocab, err, err_bytes))
        return;
    for (uint32_t i = 0; i < vocab.n_tokens; i++)
        if (vocab.tokens[i].bytes > 0)
            sum += (uint8_t)vocab.tokens[i].data[vocab.tokens[i].bytes - 1] + (vocab.types[i] & 1u);
    for (uint32_t i = 0; i < vocab.n_merges; i++)
        if (vocab.merges[i].bytes > 0)
            sum += (uint8_t)vocab.merges[i].data[vocab.merges[i].bytes - 1];
    snprintf(line, sizeof(line), "%.*s %u", GGUF_SHOW(vocab.pre), sum);
    if (vocab.ids.bos >= (int32_t)vocab.n_tokens || vocab.ids.fim_pre >= (int32_t)vocab.n_tokens)
        abort();
    gguf_vocab_close(&vocab);
}

static void read_model(const struct gguf *gguf, char *err, size_t err_bytes)
{
    struct model *model;
    uint8_t fingerprint[MODEL_FINGERPRINT_BYTES];
    char line[256];
    if (model_open(gguf, &model, err, err_bytes))
        return;
    model_describe(model, line, sizeof(line));
    snprintf(line, sizeof(line), "%s %u", model_numerics_id(model, false), touch(model));
    if (model_fingerprint(model, 1, fingerprint))
        abort();
    model_close(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *gguf;
    char err[200] = "";
    size_t bytes;
    if (size == 0)
        return 0;
    uint8_t *file = make_file(data, size, &bytes);
    int rc = gguf_open_memory(file, bytes, &gguf, err, sizeof(err));
    if (rc && err[0] == 0)
        abort(); /* refused without an error line */
    if (rc == 0) {
        read_vocab(gguf, err, sizeof(err));
        read_model(gguf, err, sizeof(err));
        gguf_close(gguf);
    }
    free(file);
    return 0;
}
