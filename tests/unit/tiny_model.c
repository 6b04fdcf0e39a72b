#include "tests/unit/tiny_model.h"

#include <errno.h>
#include <math.h>

#include "kernels/num.h"
#include "tests/unit/gguf_writer.h"

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Roughly normal, variance 1: the sum of four uniform numbers. */
static float normal(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)(next(state) >> 40) * 0x1p-24f - 0.5f;
    return sum * 1.7320508f;
}

/* ---- types ------------------------------------------------------------------------------------
 */

static uint16_t bf16(float x)
{
    uint32_t bits = num_bits(x);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static int clamp_round(float x, int low, int high)
{
    int q = (int)lrintf(x);
    return q < low ? low : q > high ? high : q;
}

static size_t encode_block(uint32_t type, const float *x, uint8_t *out)
{
    float most = 0;
    for (int i = 0; i < 32; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    bool q8 = type == QUANT_Q8_0;
    uint16_t half = num_f16_from_f32(q8 ? fabsf(most) / 127.0f : most / -8.0f);
    float d = num_f32_from_f16(half), f = d != 0 && isfinite(d) ? 1.0f / d : 0.0f;
    memcpy(out, &half, 2);
    for (int i = 0; i < 32 && q8; i++)
        out[2 + i] = (uint8_t)clamp_round(x[i] * f, -127, 127);
    for (int i = 0; i < 16 && !q8; i++)
        out[2 + i] = (uint8_t)((clamp_round(x[i] * f, -8, 7) + 8) |
                               (clamp_round(x[i + 16] * f, -8, 7) + 8) << 4);
    return q8 ? 34 : 18;
}

size_t tiny_encode(uint32_t type, const float *x, size_t n, uint8_t *out)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t half = type == QUANT_F16 ? num_f16_from_f32(x[i]) : bf16(x[i]);
        if (type == QUANT_F32) {
            memcpy(out + at, &x[i], 4);
            at += 4;
        } else if (type == QUANT_F16 || type == QUANT_BF16) {
            memcpy(out + at, &half, 2);
            at += 2;
        } else if (i % 32 == 0) {
            at += encode_block(type, x + i, out + at);
        }
    }
    return at;
}

/* ---- tensors ----------------------------------------------------------------------------------
 */

struct builder {
    struct gw w;
    const struct tiny_model *shape;
    uint64_t random;
    uint32_t n_matrices;
};

static void tensor(struct builder *b, const char *name, uint32_t type, uint32_t cols, uint32_t rows,
                   float center, float spread)
{
    uint64_t ne[2] = {cols, rows};
    size_t n = (size_t)cols * (rows > 0 ? rows : 1);
    float *x = malloc(n * sizeof *x);
    uint8_t *bytes = malloc(n * 4 + 64);
    if (!x || !bytes)
        abort();
    for (size_t i = 0; i < n; i++)
        x[i] = center + spread * normal(&b->random);
    gw_tensor_info(&b->w, name, type, rows > 0 ? 2 : 1, ne, b->w.data.bytes);
    gw_put(&b->w.data, bytes, tiny_encode(type, x, n, bytes));
    gw_pad(&b->w.data, b->w.alignment);
    free(x);
    free(bytes);
}

static void matrix(struct builder *b, const char *name, uint32_t cols, uint32_t rows, float spread)
{
    static const uint32_t mix[] = {QUANT_Q8_0, QUANT_F32, QUANT_Q4_0, QUANT_BF16, QUANT_F16};
    uint32_t type = b->shape->type == TINY_MIXED ? mix[b->n_matrices++ % 5] : b->shape->type;
    tensor(b, name, type, cols, rows, 0, spread * b->shape->scale);
}

static void vector(struct builder *b, const char *name, uint32_t n)
{
    tensor(b, name, QUANT_F32, n, 0, 1, 0.1f);
}

static void layer(struct builder *b, uint32_t index)
{
    const struct tiny_model *s = b->shape;
    uint32_t head_dim = s->head_dim ? s->head_dim : s->n_embd / s->n_head;
    uint32_t q = head_dim * s->n_head, kv = head_dim * s->n_head_kv;
    float in = 1.0f / sqrtf((float)s->n_embd);
    char name[64];
#define NAME(part) (snprintf(name, sizeof name, "blk.%u." part ".weight", index), name)
    vector(b, NAME("attn_norm"), s->n_embd);
    matrix(b, NAME("attn_q"), s->n_embd, q, in * 2);
    matrix(b, NAME("attn_k"), s->n_embd, kv, in * 2);
    matrix(b, NAME("attn_v"), s->n_embd, kv, in);
    matrix(b, NAME("attn_output"), q, s->n_embd, 1.0f / sqrtf((float)q));
    vector(b, NAME("ffn_norm"), s->n_embd);
    matrix(b, NAME("ffn_gate"), s->n_embd, s->n_ff, in);
    matrix(b, NAME("ffn_up"), s->n_embd, s->n_ff, in);
    matrix(b, NAME("ffn_down"), s->n_ff, s->n_embd, 1.0f / sqrtf((float)s->n_ff));
#undef NAME
}

/* ---- keys -------------------------------------------------------------------------------------
 */

/* U+2581, a space in SPM's pieces. */
#define SPACE "\xe2\x96\x81"

static void token_text(uint32_t id, char *text, size_t bytes)
{
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    static const char *const pieces[] = {SPACE,     SPACE "the", SPACE "a", "th",  "he", "in",
                                         SPACE "t", "er",        SPACE "s", "the", "an", "re"};
    const uint32_t n_pieces = sizeof pieces / sizeof pieces[0];
    if (id < 3)
        snprintf(text, bytes, "%s", special[id]);
    else if (id < TINY_MIN_VOCAB)
        snprintf(text, bytes, "<0x%02X>", id - 3);
    else if (id - TINY_MIN_VOCAB < n_pieces)
        snprintf(text, bytes, "%s", pieces[id - TINY_MIN_VOCAB]);
    else if (id - TINY_MIN_VOCAB - n_pieces < 26)
        snprintf(text, bytes, "%c", (char)('a' + id - TINY_MIN_VOCAB - n_pieces));
    else
        snprintf(text, bytes, SPACE "w%u", id);
}

static void vocabulary(struct gw *w, uint32_t n)
{
    float *scores = calloc(n, sizeof *scores);
    int32_t *types = calloc(n, sizeof *types);
    char text[32];
    if (!scores || !types)
        abort();
    gw_key_string(w, "tokenizer.ggml.model", "llama");
    gw_key_array(w, "tokenizer.ggml.tokens", GGUF_STRING, n, NULL, 0);
    for (uint32_t i = 0; i < n; i++) {
        token_text(i, text, sizeof text);
        gw_put_string(&w->keys, text, strlen(text));
        scores[i] = i < TINY_MIN_VOCAB ? 0.0f : -(float)(i - TINY_MIN_VOCAB);
        types[i] = i == 0 ? 2 : i < 3 ? 3 : i < TINY_MIN_VOCAB ? 6 : 1;
    }
    gw_key_array(w, "tokenizer.ggml.scores", GGUF_F32, n, scores, 4 * (size_t)n);
    gw_key_array(w, "tokenizer.ggml.token_type", GGUF_I32, n, types, 4 * (size_t)n);
    gw_key_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gw_key_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gw_key_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    free(scores);
    free(types);
}

static void keys(struct gw *w, const struct tiny_model *s)
{
    gw_key_string(w, "general.architecture", "llama");
    gw_key_string(w, "general.name", "tiny");
    gw_key_u32(w, "llama.context_length", s->n_context);
    gw_key_u32(w, "llama.embedding_length", s->n_embd);
    gw_key_u32(w, "llama.block_count", s->n_layer);
    gw_key_u32(w, "llama.feed_forward_length", s->n_ff);
    gw_key_u32(w, "llama.attention.head_count", s->n_head);
    gw_key_u32(w, "llama.attention.head_count_kv", s->n_head_kv);
    gw_key_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (s->head_dim) {
        gw_key_u32(w, "llama.attention.key_length", s->head_dim);
        gw_key_u32(w, "llama.attention.value_length", s->head_dim);
        gw_key_u32(w, "llama.rope.dimension_count", s->head_dim);
    }
}

struct tiny_model tiny_model_default(uint32_t type)
{
    return (struct tiny_model){.n_layer = 2,
                               .n_embd = 64,
                               .n_ff = 96,
                               .n_head = 4,
                               .n_head_kv = 2,
                               .n_vocab = 320,
                               .n_context = 512,
                               .type = type,
                               .seed = 1,
                               .scale = 1};
}

uint8_t *tiny_model_file(const struct tiny_model *shape, size_t *ret_bytes)
{
    struct builder b = {.shape = shape, .random = shape->seed};
    gw_init(&b.w);
    keys(&b.w, shape);
    vocabulary(&b.w, shape->n_vocab);
    matrix(&b, "token_embd.weight", shape->n_embd, shape->n_vocab, 1);
    vector(&b, "output_norm.weight", shape->n_embd);
    if (shape->untied)
        matrix(&b, "output.weight", shape->n_embd, shape->n_vocab, 0.5f);
    for (uint32_t i = 0; i < shape->n_layer; i++)
        layer(&b, i);
    return gw_finish(&b.w, ret_bytes, NULL);
}

int tiny_model_write(const struct tiny_model *shape, const char *path)
{
    size_t bytes;
    uint8_t *file = tiny_model_file(shape, &bytes);
    FILE *out = fopen(path, "wb");
    int rc = out ? 0 : -errno;
    if (out && fwrite(file, 1, bytes, out) != bytes)
        rc = -EIO;
    if (out && fclose(out) && !rc)
        rc = -errno;
    free(file);
    return rc;
}
