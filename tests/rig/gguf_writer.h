/*
 * gguf_writer: makes GGUF files in memory, for tests: any key and tensor, valid or not, and whole
 * small llama models with random weights. A header of static functions, so that unit tests, fuzz
 * targets and end-to-end tests all use it.
 *
 * Use: gw_init, gw_key_* and gw_tensor in any order, gw_finish (which frees the writer's parts and
 * returns the file), free(). Memory that runs out aborts.
 */
#ifndef HEARTH_TESTS_RIG_GGUF_WRITER_H
#define HEARTH_TESTS_RIG_GGUF_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gguf/gguf.h"
#include "kernels/quant/quant_types.h"
#include "tests/rig/every_type.h"

struct gw_buffer {
    uint8_t *data;
    size_t bytes, room;
};

struct gw {
    uint32_t version;   /* 3 */
    uint32_t alignment; /* 32; what gw_finish pads to; the caller writes the key */
    uint64_t n_keys, n_tensors;
    struct gw_buffer keys, infos, data;
    uint64_t random; /* state of the weights' generator */
};

static inline void gw_put(struct gw_buffer *b, const void *data, size_t bytes)
{
    if (b->bytes + bytes > b->room) {
        b->room = 2 * (b->bytes + bytes) + 256;
        b->data = realloc(b->data, b->room);
        if (!b->data)
            abort();
    }
    if (bytes > 0)
        memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
}

static inline void gw_put_u32(struct gw_buffer *b, uint32_t value)
{
    gw_put(b, &value, sizeof(value));
}

static inline void gw_put_u64(struct gw_buffer *b, uint64_t value)
{
    gw_put(b, &value, sizeof(value));
}

static inline void gw_put_string(struct gw_buffer *b, const char *text, size_t bytes)
{
    gw_put_u64(b, bytes);
    gw_put(b, text, bytes);
}

static inline void gw_pad(struct gw_buffer *b, uint32_t alignment)
{
    static const uint8_t ZERO[64];
    while (b->bytes % alignment != 0) {
        size_t missing = alignment - b->bytes % alignment;
        gw_put(b, ZERO, missing < sizeof(ZERO) ? missing : sizeof(ZERO));
    }
}

static inline void gw_init(struct gw *w)
{
    *w = (struct gw){.version = 3, .alignment = 32, .random = 1};
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Any key: `value` is written as is after the type. */
static inline void gw_key(struct gw *w, const char *name, uint32_t type, const void *value,
                          size_t bytes)
{
    gw_put_string(&w->keys, name, strlen(name));
    gw_put_u32(&w->keys, type);
    gw_put(&w->keys, value, bytes);
    w->n_keys++;
}

static inline void gw_key_u32(struct gw *w, const char *name, uint32_t value)
{
    gw_key(w, name, GGUF_U32, &value, sizeof(value));
}

static inline void gw_key_f32(struct gw *w, const char *name, float value)
{
    gw_key(w, name, GGUF_F32, &value, sizeof(value));
}

static inline void gw_key_bool(struct gw *w, const char *name, uint8_t value)
{
    gw_key(w, name, GGUF_BOOL, &value, sizeof(value));
}

static inline void gw_key_string(struct gw *w, const char *name, const char *value)
{
    gw_key(w, name, GGUF_STRING, NULL, 0);
    gw_put_string(&w->keys, value, strlen(value));
}

/* An array of numbers, `bytes` long in all. */
static inline void gw_key_array(struct gw *w, const char *name, uint32_t type, uint64_t count,
                                const void *elements, size_t bytes)
{
    gw_key(w, name, GGUF_ARRAY, NULL, 0);
    gw_put_u32(&w->keys, type);
    gw_put_u64(&w->keys, count);
    gw_put(&w->keys, elements, bytes);
}

static inline void gw_key_strings(struct gw *w, const char *name, uint64_t count,
                                  const char *const *texts)
{
    gw_key_array(w, name, GGUF_STRING, count, NULL, 0);
    for (uint64_t i = 0; i < count; i++)
        gw_put_string(&w->keys, texts[i], strlen(texts[i]));
}

/* ---- tensors --------------------------------------------------------------------------------- */

static inline uint32_t gw_random(struct gw *w)
{
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(w->random >> 33);
}

/* The description only, with any numbers; no data is added. */
static inline void gw_tensor_info(struct gw *w, const char *name, uint32_t type, uint32_t n_dims,
                                  const uint64_t *ne, uint64_t offset)
{
    gw_put_string(&w->infos, name, strlen(name));
    gw_put_u32(&w->infos, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        gw_put_u64(&w->infos, ne[i]);
    gw_put_u32(&w->infos, type);
    gw_put_u64(&w->infos, offset);
    w->n_tensors++;
}

/* Sets what scales a block of random bytes: powers of two in f16, 2^-15 being 0x0200. */
static inline void gw_factors(uint32_t type, uint8_t *block)
{
    uint32_t at[2], n = every_halves(type, at);
    uint16_t scale = 0x2400; /* 2^-6 */
    if (type == QUANT_MXFP4)
        block[0] = 122; /* 2^-6 */
    if (type == QUANT_Q8_0 || type == QUANT_IQ4_NL || type == QUANT_Q3_K)
        scale = 0x1400; /* 2^-10 */
    if (type == QUANT_Q4_K || type == QUANT_Q5_K || type == QUANT_Q2_K || type == QUANT_IQ3_XXS ||
        type == QUANT_IQ3_S || type == QUANT_IQ4_XS)
        scale = 0x0c00; /* 2^-12 */
    if (type == QUANT_Q6_K)
        scale = 0x0400; /* 2^-14 */
    for (uint32_t i = 0; i < n; i++)
        memcpy(block + at[i], &scale, sizeof(scale));
    if (type == QUANT_Q5_1 || type == QUANT_Q4_1) /* minus 2^-2 */
        memcpy(block + 2, &(uint16_t){0xb400}, 2);
}

/* One block of a type with random small weights: about -1/4 .. 1/4. */
static inline void gw_block(struct gw *w, const struct quant_info *info)
{
    uint8_t block[512];
    for (uint32_t i = 0; i < info->block_bytes; i++)
        block[i] = (uint8_t)gw_random(w);
    float value = ((float)(gw_random(w) & 0xffff) / 65536.0f - 0.5f) / 2;
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t scale = 0;
    if (info->quantized)
        gw_factors(info->type, block);
    if (info->type == QUANT_F16) /* sign, exponent of 2^-3 .. 2^-6, mantissa */
        scale = (uint16_t)((gw_random(w) & 0x83ff) | (9 + (gw_random(w) & 3)) << 10);
    if (info->type == QUANT_BF16)
        scale = (uint16_t)(bits >> 16);
    if (scale)
        memcpy(block, &scale, sizeof(scale));
    if (info->type == QUANT_F32)
        memcpy(block, &bits, sizeof(bits));
    gw_put(&w->data, block, info->block_bytes);
}

/* A tensor of a known type with random data; ne1 0 makes a vector. */
static inline void gw_tensor(struct gw *w, const char *name, uint32_t type, uint64_t ne0,
                             uint64_t ne1)
{
    const struct quant_info *info = quant_find(type);
    uint64_t ne[2] = {ne0, ne1};
    gw_tensor_info(w, name, type, ne1 > 0 ? 2 : 1, ne, w->data.bytes);
    uint64_t blocks = ne0 * (ne1 > 0 ? ne1 : 1) / info->block;
    for (uint64_t i = 0; i < blocks; i++)
        gw_block(w, info);
    gw_pad(&w->data, w->alignment);
}

/* Returns the file, exactly *ret_bytes long and aligned to 64; free() it. *ret_data_at: where data
 * begins. */
static inline uint8_t *gw_finish(struct gw *w, size_t *ret_bytes, size_t *ret_data_at)
{
    struct gw_buffer file = {0};
    gw_put(&file, "GGUF", 4);
    gw_put_u32(&file, w->version);
    gw_put_u64(&file, w->n_tensors);
    gw_put_u64(&file, w->n_keys);
    gw_put(&file, w->keys.data, w->keys.bytes);
    gw_put(&file, w->infos.data, w->infos.bytes);
    if (w->n_tensors > 0)
        gw_pad(&file, w->alignment);
    if (ret_data_at)
        *ret_data_at = file.bytes;
    gw_put(&file, w->data.data, w->data.bytes);
    free(w->keys.data);
    free(w->infos.data);
    free(w->data.data);
    *ret_bytes = file.bytes;
    uint8_t *exact;
    if (posix_memalign((void **)&exact, 64, file.bytes))
        abort();
    memcpy(exact, file.data, file.bytes);
    free(file.data);
    return exact;
}

/* ---- a whole model --------------------------------------------------------------------------- */

struct gw_llama {
    uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv, n_vocab, n_context;
    uint32_t type; /* of all matrices */
    bool untied;   /* with output.weight */
    uint64_t seed;
};

/* 2 layers with 4 heads over 2, of width 64, or 256 for types with blocks of 256. */
static inline struct gw_llama gw_llama_small(uint32_t type)
{
    uint32_t unit = quant_find(type)->block == 256 ? 256 : 32;
    return (struct gw_llama){.n_layer = 2,
                             .n_embd = unit == 256 ? 256 : 64,
                             .n_ff = unit == 256 ? 512 : 96,
                             .n_head = 4,
                             .n_head_kv = 2,
                             .n_vocab = 40,
                             .n_context = 128,
                             .type = type,
                             .seed = 1};
}

/* SPM: <unk>, <s>, </s>, then letters. */
static inline void gw_llama_tokens(struct gw *w, uint32_t n_vocab)
{
    char text[16];
    float *scores = calloc(n_vocab, sizeof(*scores));
    int32_t *types = calloc(n_vocab, sizeof(*types));
    if (!scores || !types)
        abort();
    gw_key_string(w, "tokenizer.ggml.model", "llama");
    gw_key_array(w, "tokenizer.ggml.tokens", GGUF_STRING, n_vocab, NULL, 0);
    for (uint32_t i = 0; i < n_vocab; i++) {
        static const char *const FIRST[] = {"<unk>", "<s>", "</s>"};
        snprintf(text, sizeof(text), "%c%u", 'a' + (char)(i % 26), i);
        gw_put_string(&w->keys, i < 3 ? FIRST[i] : text, strlen(i < 3 ? FIRST[i] : text));
        scores[i] = -(float)i;
        types[i] = i == 0 ? 2 : i < 3 ? 3 : 1;
    }
    gw_key_array(w, "tokenizer.ggml.scores", GGUF_F32, n_vocab, scores, 4 * (size_t)n_vocab);
    gw_key_array(w, "tokenizer.ggml.token_type", GGUF_I32, n_vocab, types, 4 * (size_t)n_vocab);
    gw_key_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gw_key_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gw_key_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    free(scores);
    free(types);
}

static inline void gw_llama_keys(struct gw *w, const struct gw_llama *s)
{
    gw_key_string(w, "general.architecture", "llama");
    gw_key_string(w, "general.name", "small");
    gw_key_u32(w, "llama.context_length", s->n_context);
    gw_key_u32(w, "llama.embedding_length", s->n_embd);
    gw_key_u32(w, "llama.block_count", s->n_layer);
    gw_key_u32(w, "llama.feed_forward_length", s->n_ff);
    gw_key_u32(w, "llama.attention.head_count", s->n_head);
    gw_key_u32(w, "llama.attention.head_count_kv", s->n_head_kv);
    gw_key_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

static inline void gw_llama_tensors(struct gw *w, const struct gw_llama *s)
{
    uint32_t kv = s->n_embd / s->n_head * s->n_head_kv;
    const struct {
        const char *name;
        uint32_t type, ne0, ne1;
    } parts[] = {
        {"attn_norm.weight", QUANT_F32, s->n_embd, 0},
        {"attn_q.weight", s->type, s->n_embd, s->n_embd},
        {"attn_k.weight", s->type, s->n_embd, kv},
        {"attn_v.weight", s->type, s->n_embd, kv},
        {"attn_output.weight", s->type, s->n_embd, s->n_embd},
        {"ffn_norm.weight", QUANT_F32, s->n_embd, 0},
        {"ffn_gate.weight", s->type, s->n_embd, s->n_ff},
        {"ffn_up.weight", s->type, s->n_embd, s->n_ff},
        {"ffn_down.weight", s->type, s->n_ff, s->n_embd},
    };
    w->random = s->seed;
    gw_tensor(w, "token_embd.weight", s->type, s->n_embd, s->n_vocab);
    gw_tensor(w, "output_norm.weight", QUANT_F32, s->n_embd, 0);
    if (s->untied)
        gw_tensor(w, "output.weight", s->type, s->n_embd, s->n_vocab);
    for (uint32_t layer = 0; layer < s->n_layer; layer++)
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            char name[64];
            snprintf(name, sizeof(name), "blk.%u.%s", layer, parts[i].name);
            gw_tensor(w, name, parts[i].type, parts[i].ne0, parts[i].ne1);
        }
}

/* The whole file of a model; free() it. */
static inline uint8_t *gw_llama_file(const struct gw_llama *s, size_t *ret_bytes,
                                     size_t *ret_data_at)
{
    struct gw w;
    gw_init(&w);
    gw_llama_keys(&w, s);
    gw_llama_tokens(&w, s->n_vocab);
    gw_llama_tensors(&w, s);
    return gw_finish(&w, ret_bytes, ret_data_at);
}

#endif
