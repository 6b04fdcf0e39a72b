/* The model: what hearth can run opens with the right sizes, everything else is refused by name. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/model.h"
#include "tests/run_suite.h"
#include "tests/unit/gguf_writer.h"
#include "tests/unit/model_opened.h"
#include "tests/unit/tiny_model.h"

/* Finishes the writer; model_open must refuse it with `code` and a line that holds `part`. */
static void check_refused(struct gw *w, int code, const char *part)
{
    struct opened o;
    size_t bytes;
    uint8_t *file = gw_finish(w, &bytes, NULL);
    int rc = open_file(file, bytes, &o);
    ck_assert_msg(rc == code, "returned %d, not %d, for \"%s\": %s", rc, code, part, err);
    ck_assert_msg(strstr(err, part) != NULL, "\"%s\" is not in: %s", part, err);
    ck_assert_ptr_nonnull(o.gguf); /* the container itself was valid */
    ck_assert_ptr_null(o.model);
    close_opened(&o);
}

static void check_opens(struct gw *w)
{
    struct opened o;
    size_t bytes;
    uint8_t *file = gw_finish(w, &bytes, NULL);
    int rc = open_file(file, bytes, &o);
    ck_assert_msg(rc == 0, "%d: %s", rc, err);
    close_opened(&o);
}

/* ---- what opens ------------------------------------------------------------------------------ */

START_TEST(a_small_llama_opens_in_every_type)
{
    static const uint32_t TYPES[] = {QUANT_F32,  QUANT_F16,  QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0,
                                     QUANT_Q5_0, QUANT_Q5_1, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K};
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) {
        struct opened o;
        struct gw_llama spec = gw_llama_small(TYPES[i]);
        open_spec(&spec, &o);
        const struct model *m = o.model;
        ck_assert_str_eq(m->arch, "llama");
        ck_assert(gguf_string_equal(m->name, "small"));
        ck_assert_uint_eq(m->n_layer, 2);
        ck_assert_uint_eq(m->n_embd, spec.n_embd);
        ck_assert_uint_eq(m->n_ff, spec.n_ff);
        ck_assert_uint_eq(m->n_head, 4);
        ck_assert_uint_eq(m->n_head_kv, 2);
        ck_assert_uint_eq(m->head_dim, spec.n_embd / 4);
        ck_assert_uint_eq(m->rope_dim, spec.n_embd / 4);
        ck_assert_uint_eq(m->n_vocab, 40);
        ck_assert_uint_eq(m->n_context, 128);
        ck_assert(m->rope_base == 10000.0f);
        ck_assert(m->rms_eps == 1e-5f);
        ck_assert_int_eq(m->rope, MODEL_ROPE_ADJACENT);
        ck_assert_str_eq(model_type_name(m), quant_name(TYPES[i]));
        bool quantized = quant_find(TYPES[i])->quantized;
        ck_assert(model_portable(m) == quantized);
        ck_assert_str_eq(model_numerics_id(m, true),
                         quantized ? "portable-1-kvq8" : "cpu-float-1-kvq8");
        ck_assert_str_eq(model_numerics_id(m, false), quantized               ? "portable-1"
                                                      : TYPES[i] == QUANT_F32 ? "cpu-float-1-kvf32"
                                                                              : "cpu-float-1");
        close_opened(&o);
    }
}
END_TEST

START_TEST(tensors_have_their_shapes)
{
    static const uint32_t SHAPES[MODEL_N_LAYER_TENSORS][2] = {
        [MODEL_ATTN_NORM] = {1, 64}, [MODEL_ATTN_Q] = {64, 64},      [MODEL_ATTN_K] = {32, 64},
        [MODEL_ATTN_V] = {32, 64},   [MODEL_ATTN_OUTPUT] = {64, 64}, [MODEL_FFN_NORM] = {1, 64},
        [MODEL_FFN_GATE] = {96, 64}, [MODEL_FFN_UP] = {96, 64},      [MODEL_FFN_DOWN] = {64, 96},
    };
    struct opened o;
    struct gw_llama spec = gw_llama_small(QUANT_Q4_0);
    open_spec(&spec, &o);
    for (uint32_t layer = 0; layer < 2; layer++)
        for (uint32_t i = 0; i < MODEL_N_LAYER_TENSORS; i++) {
            const struct model_tensor *t = &o.model->layers[layer].tensor[i];
            ck_assert_uint_eq(t->rows, SHAPES[i][0]);
            ck_assert_uint_eq(t->cols, SHAPES[i][1]);
            ck_assert((t->data != NULL) == (SHAPES[i][0] != 0));
            if (!t->data)
                continue;
            uint64_t row_bytes = t->rows == 1 ? 4 * t->cols : t->cols / 32 * 18;
            ck_assert_uint_eq(t->row_bytes, row_bytes);
            ck_assert_uint_eq(t->bytes, row_bytes * t->rows);
            ck_assert_uint_eq(t->type, t->rows == 1 ? QUANT_F32 : QUANT_Q4_0);
        }
    const struct gguf_tensor *down = gguf_find_tensor(o.gguf, "blk.1.ffn_down.weight");
    ck_assert_ptr_eq(o.model->layers[1].tensor[MODEL_FFN_DOWN].data, down->data);
    ck_assert_uint_eq(o.model->global[MODEL_TOKEN_EMBD].rows, 40);
    ck_assert_uint_eq(o.model->global[MODEL_OUTPUT_NORM].cols, 64);
    close_opened(&o);
}
END_TEST

START_TEST(a_missing_head_is_the_embedding)
{
    struct opened tied;
    struct opened untied;
    struct gw_llama spec = gw_llama_small(QUANT_F16);
    open_spec(&spec, &tied);
    spec.untied = true;
    open_spec(&spec, &untied);
    ck_assert(tied.model->tied);
    ck_assert(!untied.model->tied);
    ck_assert_ptr_eq(tied.model->global[MODEL_OUTPUT].data,
                     tied.model->global[MODEL_TOKEN_EMBD].data);
    ck_assert_ptr_ne(untied.model->global[MODEL_OUTPUT].data,
                     untied.model->global[MODEL_TOKEN_EMBD].data);
    ck_assert_uint_eq(untied.model->n_params - tied.model->n_params, 40 * 64);
    ck_assert_uint_eq(untied.model->tensor_bytes - tied.model->tensor_bytes, 40 * 64 * 2);
    close_opened(&tied);
    close_opened(&untied);
}
END_TEST

START_TEST(a_model_describes_itself_in_one_line)
{
    struct opened o;
    char text[256];
    char small[8];
    struct gw_llama spec = gw_llama_small(QUANT_F32);
    open_spec(&spec, &o);
    model_describe(o.model, text, sizeof(text));
    ck_assert_str_eq(text, "llama, F32, 0.06 M parameters, 0.2 MiB, 2 layers, width 64, 4 heads "
                           "(2 kv) of 16, vocabulary 40, context 128");
    model_describe(o.model, small, sizeof(small));
    ck_assert_str_eq(small, "llama, ");
    close_opened(&o);
}
END_TEST

/* A quantized model with one float matrix in a layer is not portable; a float embedding does not
 * matter. */
START_TEST(only_layers_decide_what_is_portable)
{
    for (int float_layer = 0; float_layer < 2; float_layer++) {
        struct gw w;
        struct opened o;
        size_t bytes;
        struct gw_llama spec = gw_llama_small(QUANT_Q8_0);
        spec.n_layer = 1;
        gw_init(&w);
        gw_llama_keys(&w, &spec);
        gw_tensor(&w, "token_embd.weight", QUANT_F16, 64, 40);
        gw_tensor(&w, "output_norm.weight", QUANT_F32, 64, 0);
        gw_tensor(&w, "blk.0.attn_norm.weight", QUANT_F32, 64, 0);
        gw_tensor(&w, "blk.0.attn_q.weight", QUANT_Q8_0, 64, 64);
        gw_tensor(&w, "blk.0.attn_k.weight", QUANT_Q8_0, 64, 32);
        gw_tensor(&w, "blk.0.attn_v.weight", float_layer ? QUANT_F16 : QUANT_Q4_0, 64, 32);
        gw_tensor(&w, "blk.0.attn_output.weight", QUANT_Q8_0, 64, 64);
        gw_tensor(&w, "blk.0.ffn_norm.weight", QUANT_F32, 64, 0);
        gw_tensor(&w, "blk.0.ffn_gate.weight", QUANT_Q8_0, 64, 96);
        gw_tensor(&w, "blk.0.ffn_up.weight", QUANT_Q8_0, 64, 96);
        gw_tensor(&w, "blk.0.ffn_down.weight", QUANT_Q8_0, 96, 64);
        uint8_t *file = gw_finish(&w, &bytes, NULL);
        ck_assert_int_eq(open_file(file, bytes, &o), 0);
        ck_assert(model_portable(o.model) == !float_layer);
        ck_assert_str_eq(model_type_name(o.model), "Q8_0");
        close_opened(&o);
    }
}
END_TEST

/* ---- keys ------------------------------------------------------------------------------------ */

/* The keys of a small model, `name` left out or replaced by `value` of `type`; then its tensors. */
struct key_case {
    const char *name;
    uint32_t type; /* GGUF_ARRAY: leave it out */
    union {
        uint32_t u;
        float f;
        uint64_t u64;
    } value;
    int code;
    const char *part;
};

static void write_with_key(struct gw *w, const struct key_case *c)
{
    const struct gw_llama spec = gw_llama_small(QUANT_Q8_0);
    const struct {
        const char *name;
        uint32_t value;
    } counts[] = {
        {"llama.context_length", spec.n_context},    {"llama.embedding_length", spec.n_embd},
        {"llama.block_count", spec.n_layer},         {"llama.feed_forward_length", spec.n_ff},
        {"llama.attention.head_count", spec.n_head}, {"llama.attention.head_count_kv", 2},
    };
    static const size_t BYTES[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
    gw_init(w);
    gw_key_string(w, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (strcmp(counts[i].name, c->name) != 0)
            gw_key_u32(w, counts[i].name, counts[i].value);
    if (strcmp(c->name, "llama.attention.layer_norm_rms_epsilon") != 0)
        gw_key_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (c->type != GGUF_ARRAY)
        gw_key(w, c->name, c->type, &c->value, BYTES[c->type]);
    gw_llama_tensors(w, &spec);
}

#define U(v)                                                                                       \
    GGUF_U32,                                                                                      \
    {                                                                                              \
        .u = (v)                                                                                   \
    }
#define F(v)                                                                                       \
    GGUF_F32,                                                                                      \
    {                                                                                              \
        .f = (v)                                                                                   \
    }
#define ABSENT                                                                                     \
    GGUF_ARRAY,                                                                                    \
    {                                                                                              \
        0                                                                                          \
    }
#define EPS "llama.attention.layer_norm_rms_epsilon"
#define HEADS "llama.attention.head_count"

static const struct key_case BAD_KEYS[] = {
    {"llama.block_count", ABSENT, -EBADMSG, "llama.block_count is missing"},
    {"llama.block_count", U(0), -EBADMSG, "1 to 512"},
    {"llama.block_count", U(513), -EBADMSG, "1 to 512"},
    {"llama.block_count", U(1), -ENOTSUP, "tensor blk.1"},
    {"llama.block_count", U(3), -EBADMSG, "tensor blk.2.attn_norm.weight is missing"},
    {"llama.block_count", F(2), -EBADMSG, "is a f32"},
    {"llama.block_count", GGUF_U64, {.u64 = (uint64_t)1 << 32 | 2}, -EBADMSG, "1 to 512"},
    {"llama.block_count", GGUF_I32, {.u = UINT32_MAX}, -EBADMSG, "1 to 512"},
    {"llama.embedding_length", ABSENT, -EBADMSG, "missing"},
    {"llama.embedding_length", U(0), -EBADMSG, "1 to 65536"},
    {"llama.embedding_length", U(65537), -EBADMSG, "1 to 65536"},
    {"llama.embedding_length", U(66), -EBADMSG, "no multiple of 4 heads"},
    {"llama.embedding_length", U(128), -EBADMSG, "token_embd.weight is 64 x 40"},
    {"llama.feed_forward_length", ABSENT, -EBADMSG, "missing"},
    {"llama.feed_forward_length", U(0), -EBADMSG, "must be 1 to"},
    {"llama.feed_forward_length", U(64), -EBADMSG,
     "ffn_gate.weight is 64 x 96 x 1 x 1, must be 64 x 64"},
    {"llama.feed_forward_length", U(1u << 31), -EBADMSG, "must be 1 to"},
    {"llama.context_length", ABSENT, -EBADMSG, "missing"},
    {"llama.context_length", U(0), -EBADMSG, "must be 1 to"},
    {"llama.context_length", U(UINT32_MAX), -EBADMSG, "must be 1 to"},
    {HEADS, ABSENT, -EBADMSG, "missing"},
    {HEADS, U(0), -EBADMSG, "1 to 1024"},
    {HEADS, U(1025), -EBADMSG, "1 to 1024"},
    {HEADS, U(3), -EBADMSG, "3 heads over 2"},
    {HEADS, U(64), -ENOTSUP, "heads of 1 dimensions"},
    {HEADS, U(8), -EBADMSG, "attn_k.weight is 64 x 32 x 1 x 1, must be 64 x 16"},
    {"llama.attention.head_count_kv", U(0), -EBADMSG, "1 to 1024"},
    {"llama.attention.head_count_kv", U(4), -EBADMSG, "attn_k.weight is"},
    {"llama.attention.head_count_kv", U(8), -EBADMSG, "4 heads over 8"},
    {"llama.attention.key_length", U(32), -EBADMSG,
     "attn_q.weight is 64 x 64 x 1 x 1, must be 64 x 128"},
    {"llama.attention.key_length", U(258), -ENOTSUP, "heads of 258 dimensions"},
    {"llama.attention.key_length", U(15), -ENOTSUP, "heads of 15 dimensions"},
    {"llama.attention.key_length", U(0), -EBADMSG, "key_length must be"},
    {"llama.attention.value_length", U(8), -ENOTSUP, "values of 8"},
    {"llama.rope.dimension_count", U(8), -ENOTSUP, "rope over 8"},
    {"llama.rope.dimension_count", U(0), -EBADMSG, "must be"},
    {"llama.rope.freq_base", F(0), -EBADMSG, "freq_base must be"},
    {"llama.rope.freq_base", F(-1), -EBADMSG, "freq_base must be"},
    {"llama.rope.freq_base", F(1e30f), -EBADMSG, "freq_base must be"},
    {"llama.rope.freq_base", F(NAN), -EBADMSG, "freq_base"},
    {"llama.rope.freq_base", F(INFINITY), -EBADMSG, "freq_base must be"},
    {"llama.rope.freq_base", U(10000), -EBADMSG, "not a float"},
    {EPS, ABSENT, -EBADMSG, "epsilon is missing"},
    {EPS, F(NAN), -EBADMSG, "epsilon"},
    {EPS, F(-1e-5f), -EBADMSG, "epsilon must be"},
    {EPS, F(INFINITY), -EBADMSG, "epsilon must be"},
    {EPS, U(0), -EBADMSG, "not a float"},
    {"llama.expert_count", U(8), -ENOTSUP, "mixture of experts"},
    {"llama.rope.scaling.factor", F(-4), -EBADMSG, "rope scaled by -4"},
    {"llama.rope.scaling.factor", F(1e7f), -EBADMSG, "rope scaled by 1e+07"},
    {"llama.rope.scaling.factor", F(NAN), -EBADMSG, "rope scaled by"},
    {"llama.rope.scale_linear", F(0.25f), -EBADMSG, "rope scaled by 0.25, must be 0.5 to 1e+06"},
    {"llama.rope.scale_linear", U(2), -EBADMSG, "not a float"},
    {"llama.rope.scaling.attn_factor", F(1.2f), -ENOTSUP, "attention scaled by 1.2"},
    {"llama.rope.scaling.type", U(1), -ENOTSUP, "rope scaling"},
    {"llama.attention.sliding_window", F(64), -ENOTSUP, "sliding window"},
    {"llama.attention.causal", GGUF_BOOL, {.u = 0}, -ENOTSUP, "not causal"},
    {"split.count", U(3), -ENOTSUP, "one of 3 parts"},
};

START_TEST(bad_hyperparameters_are_refused)
{
    for (size_t i = 0; i < sizeof(BAD_KEYS) / sizeof(BAD_KEYS[0]); i++) {
        struct gw w;
        write_with_key(&w, &BAD_KEYS[i]);
        check_refused(&w, BAD_KEYS[i].code, BAD_KEYS[i].part);
    }
}
END_TEST

START_TEST(harmless_keys_change_nothing)
{
    static const struct key_case CASES[] = {
        {"llama.rope.freq_base", F(500000), 0, NULL},
        {"llama.rope.freq_base", GGUF_F64, {.u64 = 0x40c3880000000000}, 0, NULL},
        {"llama.rope.scaling.factor", F(1), 0, NULL},
        {"llama.rope.scaling.factor", F(0), 0, NULL},
        {"llama.rope.scaling.attn_factor", F(1), 0, NULL},
        {"llama.rope.dimension_count", U(16), 0, NULL},
        {"llama.attention.key_length", U(16), 0, NULL},
        {"llama.attention.value_length", GGUF_U8, {.u = 16}, 0, NULL},
        {"llama.attention.sliding_window", U(128), 0, NULL},
        {"llama.attention.causal", GGUF_BOOL, {.u = 1}, 0, NULL},
        {"llama.expert_count", U(0), 0, NULL},
        {"llama.block_count", GGUF_U16, {.u = 2}, 0, NULL},
        {"llama.vocab_size", U(999), 0, NULL},
        {"split.count", U(1), 0, NULL},
        {EPS, F(0), 0, NULL},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct gw w;
        write_with_key(&w, &CASES[i]);
        check_opens(&w);
    }
}
END_TEST

/* Without head_count_kv there are as many as heads. */
START_TEST(key_value_heads_default_to_all)
{
    struct gw w;
    static const struct key_case NONE = {"llama.attention.head_count_kv", ABSENT, 0, NULL};
    write_with_key(&w, &NONE);
    check_refused(&w, -EBADMSG, "attn_k.weight is 64 x 32 x 1 x 1, must be 64 x 64");
}
END_TEST

START_TEST(per_layer_hyperparameters_are_refused)
{
    struct gw w;
    static const struct key_case NONE = {"llama.feed_forward_length", ABSENT, 0, NULL};
    static const uint32_t TWO[] = {96, 96};
    write_with_key(&w, &NONE);
    gw_key_array(&w, NONE.name, GGUF_U32, 2, TWO, sizeof(TWO));
    check_refused(&w, -ENOTSUP, "differs from layer to layer");
}
END_TEST

/* ---- the kind of file ------------------------------------------------------------------------ */

START_TEST(other_kinds_of_files_say_what_they_are)
{
    struct gw w;
    const struct gw_llama spec = gw_llama_small(QUANT_F32);
    gw_init(&w);
    check_refused(&w, -ENOTSUP,
                  "valid GGUF, but no general.architecture: not a model hearth can run");
    gw_init(&w);
    gw_key_u32(&w, "general.architecture", 1);
    check_refused(&w, -ENOTSUP, "no general.architecture");
    gw_init(&w);
    gw_key_string(&w, "general.architecture", "mamba");
    check_refused(&w, -ENOTSUP,
                  "architecture mamba is not supported yet; supported: llama, qwen2, qwen3");
    gw_init(&w);
    gw_llama_keys(&w, &spec);
    gw_llama_tokens(&w, spec.n_vocab);
    check_refused(&w, -ENOTSUP, "no tensors");
    gw_init(&w);
    gw_llama_keys(&w, &spec);
    gw_key_string(&w, "general.type", "adapter");
    check_refused(&w, -ENOTSUP, "of type adapter");
    gw_init(&w);
    gw_llama_keys(&w, &spec);
    gw_llama_tensors(&w, &spec);
    free(w.data.data);
    w.data = (struct gw_buffer){0};
    check_refused(&w, -EBADMSG, "before its tensor data");
    gw_init(&w);
    gw_llama_keys(&w, &spec);
    gw_key_string(&w, "llama.rope.scaling.type", "yarn");
    gw_llama_tensors(&w, &spec);
    check_refused(&w, -ENOTSUP, "rope scaling of type yarn (llama.rope.scaling.type)");
}
END_TEST

/* ---- rope and window ------------------------------------------------------------------------- */

/* A small llama with a scaling of that type, its factor 8, with or without divisors [8]. */
static void write_scaled(struct gw *w, const char *type, const float *divisors)
{
    const struct gw_llama spec = gw_llama_small(QUANT_F32);
    uint64_t ne[1] = {8};
    gw_init(w);
    gw_llama_keys(w, &spec);
    if (type)
        gw_key_string(w, "llama.rope.scaling.type", type);
    gw_key_f32(w, "llama.rope.scaling.factor", 8);
    gw_llama_tensors(w, &spec);
    if (!divisors)
        return;
    gw_tensor_info(w, "rope_freqs.weight", QUANT_F32, 1, ne, w->data.bytes);
    gw_put(&w->data, divisors, 8 * sizeof(float));
}

static void check_scale(struct gw *w, float scale, bool divided)
{
    struct opened o;
    size_t bytes;
    uint8_t *file = gw_finish(w, &bytes, NULL);
    int rc = open_file(file, bytes, &o);
    ck_assert_msg(rc == 0, "%d: %s", rc, err);
    ck_assert(o.model->rope_scale == scale);
    ck_assert((o.model->global[MODEL_ROPE_FREQS].data != NULL) == divided);
    close_opened(&o);
}

START_TEST(rope_scaling_is_read_or_refused_by_name)
{
    static const float ONES[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct gw w;
    write_scaled(&w, "none", NULL);
    check_scale(&w, 1, false);
    write_scaled(&w, NULL, NULL);
    check_scale(&w, 8, false);
    write_scaled(&w, "linear", NULL);
    check_scale(&w, 8, false);
    write_scaled(&w, "linear", ONES);
    check_scale(&w, 8, true);
    write_scaled(&w, "none", ONES);
    check_scale(&w, 1, true);
    write_scaled(&w, "llama3", ONES);
    check_scale(&w, 1, true);
    write_scaled(&w, "llama3", NULL);
    check_refused(&w, -ENOTSUP, "llama3 without the tensor rope_freqs.weight");
    write_scaled(&w, "longrope", ONES);
    check_refused(&w, -ENOTSUP, "rope scaling of type longrope");
}
END_TEST

START_TEST(divisors_of_frequencies_are_checked)
{
    static const float BAD[] = {0, -1, 0.25f, 2e6f, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        struct gw w;
        float divisors[8] = {1, 1, 1, 1, 2, 4, 8, 8};
        divisors[i] = BAD[i];
        write_scaled(&w, "none", divisors);
        check_refused(&w, -EBADMSG, "malformed: rope_freqs.weight holds");
    }
}
END_TEST

/* The context ends where the window begins to matter, also one that is asked for beyond the model's
 * own. */
START_TEST(a_sliding_window_bounds_the_context)
{
    static const uint32_t WINDOWS[][3] = {
        {64, 64, 64}, {127, 127, 127}, {128, 128, 128}, {200, 200, 128}, {0, 0, 128}};
    for (size_t i = 0; i < 5; i++) {
        struct gw w;
        struct opened o;
        size_t bytes;
        char text[256];
        const struct key_case c = {
            "llama.attention.sliding_window", GGUF_U32, {.u = WINDOWS[i][0]}, 0, NULL};
        write_with_key(&w, &c);
        uint8_t *file = gw_finish(&w, &bytes, NULL);
        ck_assert_int_eq(open_file(file, bytes, &o), 0);
        ck_assert_uint_eq(o.model->n_window, WINDOWS[i][1]);
        ck_assert_uint_eq(o.model->n_context, WINDOWS[i][2]);
        model_describe(o.model, text, sizeof(text));
        ck_assert((strstr(text, "(its sliding window)") != NULL) ==
                  (WINDOWS[i][1] == WINDOWS[i][2]));
        close_opened(&o);
    }
}
END_TEST

/* ---- architectures --------------------------------------------------------------------------- */

START_TEST(an_architecture_has_its_own_tensors)
{
    static const struct {
        const char *arch;
        enum model_rope rope;
        bool bias, norm;
    } ARCHS[] = {{"llama", MODEL_ROPE_ADJACENT, false, false},
                 {"qwen2", MODEL_ROPE_HALVES, true, false},
                 {"qwen3", MODEL_ROPE_HALVES, false, true}};
    for (size_t i = 0; i < 3; i++) {
        struct opened o;
        size_t bytes;
        struct tiny_model shape = tiny_model_default(QUANT_F16);
        shape.arch = ARCHS[i].arch;
        shape.head_dim = 24;
        uint8_t *file = tiny_model_file(&shape, &bytes);
        int rc = open_file(file, bytes, &o);
        ck_assert_msg(rc == 0, "%d: %s", rc, err);
        ck_assert_str_eq(o.model->arch, ARCHS[i].arch);
        ck_assert_int_eq(o.model->rope, ARCHS[i].rope);
        ck_assert_uint_eq(o.model->head_dim, 24);
        const struct model_tensor *t = o.model->layers[1].tensor;
        ck_assert_uint_eq(t[MODEL_ATTN_Q_BIAS].cols, ARCHS[i].bias ? 4 * 24 : 0);
        ck_assert_uint_eq(t[MODEL_ATTN_K_BIAS].cols, ARCHS[i].bias ? 2 * 24 : 0);
        ck_assert_uint_eq(t[MODEL_ATTN_V_BIAS].cols, ARCHS[i].bias ? 2 * 24 : 0);
        ck_assert_uint_eq(t[MODEL_ATTN_Q_NORM].cols, ARCHS[i].norm ? 24 : 0);
        ck_assert_uint_eq(t[MODEL_ATTN_K_NORM].cols, ARCHS[i].norm ? 24 : 0);
        close_opened(&o);
    }
}
END_TEST

/* The tensors of one architecture under the name of another: one lacks what the other has. */
START_TEST(another_architectures_tensors_are_refused)
{
    static const char *const NAMES[] = {"llama", "qwen2", "qwen3"};
    for (int i = 0; i < 9; i++) {
        struct opened o;
        size_t bytes;
        struct tiny_model shape = tiny_model_default(QUANT_F32);
        if (i / 3 == i % 3)
            continue;
        shape.arch = NAMES[i / 3];
        uint8_t *file = tiny_model_file(&shape, &bytes);
        /* Both names have five letters; the keys carry it too. */
        for (size_t at = 0; at + 5 <= bytes; at++)
            if (memcmp(file + at, shape.arch, 5) == 0)
                memcpy(file + at, NAMES[i % 3], 5);
        int rc = open_file(file, bytes, &o);
        ck_assert_msg(rc == (i % 3 == 0 ? -ENOTSUP : -EBADMSG), "%s as %s: %d %s", shape.arch,
                      NAMES[i % 3], rc, err);
        ck_assert_ptr_nonnull(strstr(err, "tensor blk.0.attn_"));
        close_opened(&o);
    }
}
END_TEST

START_TEST(tokenizer_and_embedding_must_agree)
{
    struct gw w;
    const struct gw_llama spec = gw_llama_small(QUANT_F32);
    for (uint32_t n = 39; n <= 41; n++) {
        gw_init(&w);
        gw_llama_keys(&w, &spec);
        gw_llama_tokens(&w, n);
        gw_llama_tensors(&w, &spec);
        if (n == 40)
            check_opens(&w);
        else
            check_refused(&w, -EBADMSG, "tokens in the tokenizer, 40 in token_embd.weight");
    }
}
END_TEST

/* ---- tensors --------------------------------------------------------------------------------- */

/* What stands in the file in the place of one tensor of a model with one layer. */
struct tensor_case {
    const char *name;
    uint32_t type; /* UINT32_MAX: leave it out */
    uint64_t ne0, ne1;
    int code;
    const char *part;
};

static void write_with_tensor(struct gw *w, const struct tensor_case *c)
{
    static const struct {
        const char *name;
        uint32_t type, ne0, ne1;
    } PARTS[] = {
        {"token_embd.weight", QUANT_F16, 64, 40},
        {"output_norm.weight", QUANT_F32, 64, 0},
        {"blk.0.attn_norm.weight", QUANT_F32, 64, 0},
        {"blk.0.attn_q.weight", QUANT_F16, 64, 64},
        {"blk.0.attn_k.weight", QUANT_F16, 64, 32},
        {"blk.0.attn_v.weight", QUANT_F16, 64, 32},
        {"blk.0.attn_output.weight", QUANT_F16, 64, 64},
        {"blk.0.ffn_norm.weight", QUANT_F32, 64, 0},
        {"blk.0.ffn_gate.weight", QUANT_F16, 64, 96},
        {"blk.0.ffn_up.weight", QUANT_F16, 64, 96},
        {"blk.0.ffn_down.weight", QUANT_F16, 96, 64},
    };
    struct gw_llama spec = gw_llama_small(QUANT_F16);
    spec.n_layer = 1;
    gw_init(w);
    gw_llama_keys(w, &spec);
    bool replaced = false;
    for (size_t i = 0; i < sizeof(PARTS) / sizeof(PARTS[0]); i++) {
        bool same = strcmp(PARTS[i].name, c->name) == 0;
        replaced |= same;
        if (!same)
            gw_tensor(w, PARTS[i].name, PARTS[i].type, PARTS[i].ne0, PARTS[i].ne1);
        else if (c->type != UINT32_MAX)
            gw_tensor(w, c->name, c->type, c->ne0, c->ne1);
    }
    if (!replaced)
        gw_tensor(w, c->name, c->type, c->ne0, c->ne1);
}

static const struct tensor_case BAD_TENSORS[] = {
    {"token_embd.weight", UINT32_MAX, 0, 0, -EBADMSG, "token_embd.weight is missing"},
    {"output_norm.weight", UINT32_MAX, 0, 0, -EBADMSG, "output_norm.weight is missing"},
    {"blk.0.attn_norm.weight", UINT32_MAX, 0, 0, -EBADMSG, "blk.0.attn_norm.weight is missing"},
    {"blk.0.attn_q.weight", UINT32_MAX, 0, 0, -EBADMSG, "blk.0.attn_q.weight is missing"},
    {"blk.0.ffn_down.weight", UINT32_MAX, 0, 0, -EBADMSG, "blk.0.ffn_down.weight is missing"},
    {"token_embd.weight", QUANT_F16, 32, 80, -EBADMSG, "must be 64 x 80"},
    {"output_norm.weight", QUANT_F32, 63, 0, -EBADMSG, "must be 64 x 1"},
    {"output_norm.weight", QUANT_F32, 64, 2, -EBADMSG, "must be 64 x 1"},
    {"blk.0.attn_q.weight", QUANT_F16, 64, 63, -EBADMSG, "must be 64 x 64"},
    {"blk.0.attn_v.weight", QUANT_F16, 64, 64, -EBADMSG, "must be 64 x 32"},
    {"blk.0.ffn_down.weight", QUANT_F16, 64, 96, -EBADMSG, "must be 96 x 64"},
    {"output.weight", QUANT_F16, 64, 39, -EBADMSG, "must be 64 x 40"},
    {"output_norm.weight", QUANT_F16, 64, 0, -ENOTSUP, "vectors must be F32"},
    {"blk.0.ffn_norm.weight", QUANT_BF16, 64, 0, -ENOTSUP, "vectors must be F32"},
    {"blk.0.ffn_up.weight", 3, 64, 96, -ENOTSUP,
     "tensor blk.0.ffn_up.weight is Q4_1: not supported yet; supported: F32, F16, BF16, Q8_0, "
     "Q6_K, Q5_K, Q5_1, Q5_0, Q4_K, Q4_0"},
    {"blk.0.ffn_up.weight", 20, 64, 96, -ENOTSUP, "is IQ4_NL"},
    {"blk.0.ffn_up.weight", 24, 64, 96, -ENOTSUP, "is I8"},
    {"output.weight", 28, 64, 40, -ENOTSUP, "output.weight is F64"},
    {"rope_freqs.weight", QUANT_F32, 16, 0, -EBADMSG, "must be 8 x 1"},
    {"rope_freqs.weight", QUANT_F16, 8, 0, -ENOTSUP, "vectors must be F32"},
    {"rope_factors_long.weight", QUANT_F32, 8, 0, -ENOTSUP, "tensor rope_factors_long.weight"},
    {"blk.0.rope_freqs.weight", QUANT_F32, 8, 0, -ENOTSUP, "tensor blk.0.rope_freqs.weight"},
    {"blk.0.attn_q.bias", QUANT_F32, 64, 0, -ENOTSUP, "tensor blk.0.attn_q.bias"},
    {"blk.1.attn_norm.weight", QUANT_F32, 64, 0, -ENOTSUP, "tensor blk.1.attn_norm.weight"},
    {"blk.0.ffn_gate_exps.weight", QUANT_F16, 64, 96, -ENOTSUP, "ffn_gate_exps"},
    {"something.else", QUANT_F32, 64, 0, -ENOTSUP, "tensor something.else"},
};

START_TEST(wrong_tensors_are_refused)
{
    for (size_t i = 0; i < sizeof(BAD_TENSORS) / sizeof(BAD_TENSORS[0]); i++) {
        struct gw w;
        write_with_tensor(&w, &BAD_TENSORS[i]);
        check_refused(&w, BAD_TENSORS[i].code, BAD_TENSORS[i].part);
    }
    struct gw w;
    static const struct tensor_case GOOD = {"output.weight", QUANT_Q8_0, 64, 40, 0, NULL};
    write_with_tensor(&w, &GOOD);
    check_opens(&w);
}
END_TEST

/* With an alignment of 1 data may begin anywhere; a backend must never see that. */
START_TEST(data_that_is_not_aligned_is_refused)
{
    for (int shift = 0; shift < 5; shift++) {
        struct gw w;
        struct gw_llama spec = gw_llama_small(QUANT_F32);
        gw_init(&w);
        gw_llama_keys(&w, &spec);
        gw_key_u32(&w, "general.alignment", 1);
        w.alignment = 1;
        /* Names are chosen so that the metadata's length moves byte by byte; find the fitting one.
         */
        char name[16] = "pad....";
        name[3 + shift] = 0;
        gw_key_string(&w, "a", name);
        gw_llama_tensors(&w, &spec);
        size_t bytes;
        size_t data_at;
        struct opened o;
        uint8_t *file = gw_finish(&w, &bytes, &data_at);
        int rc = open_file(file, bytes, &o);
        ck_assert_int_eq(rc, data_at % 4 == 0 ? 0 : -ENOTSUP);
        if (rc)
            ck_assert_ptr_nonnull(strstr(err, "not aligned"));
        close_opened(&o);
    }
}
END_TEST

/* ---- test data ---- */

START_TEST(trained_models_open)
{
    static const struct {
        const char *name, *type;
        uint32_t n_embd, n_ff, n_vocab, n_context;
    } MODELS[] = {
        {"stories260K-f32", "F32", 64, 172, 512, 512},
        {"stories260K-ff192-f32", "F32", 64, 192, 512, 512},
        {"stories260K-ff192-f16", "F16", 64, 192, 512, 512},
        {"stories260K-ff192-bf16", "BF16", 64, 192, 512, 512},
        {"stories260K-ff192-q8_0", "Q8_0", 64, 192, 512, 512},
        {"stories260K-ff192-q4_0", "Q4_0", 64, 192, 512, 512},
        {"babyllama105-f32", "F32", 128, 352, 105, 256},
        {"babyllama105-f16", "F16", 128, 352, 105, 256},
        {"babyllama105-bf16", "BF16", 128, 352, 105, 256},
        {"babyllama105-q8_0", "Q8_0", 128, 352, 105, 256},
        {"babyllama105-q4_0", "Q4_0", 128, 352, 105, 256},
    };
    for (size_t i = 0; i < sizeof(MODELS) / sizeof(MODELS[0]); i++) {
        struct opened o;
        open_testdata(MODELS[i].name, &o);
        ck_assert_str_eq(model_type_name(o.model), MODELS[i].type);
        ck_assert_uint_eq(o.model->n_layer, 5);
        ck_assert_uint_eq(o.model->n_head, 8);
        ck_assert_uint_eq(o.model->n_head_kv, 4);
        ck_assert_uint_eq(o.model->n_embd, MODELS[i].n_embd);
        ck_assert_uint_eq(o.model->n_ff, MODELS[i].n_ff);
        ck_assert_uint_eq(o.model->n_vocab, MODELS[i].n_vocab);
        ck_assert_uint_eq(o.model->n_context, MODELS[i].n_context);
        ck_assert(o.model->tied);
        close_opened(&o);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("model");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, a_small_llama_opens_in_every_type);
    tcase_add_test(core, tensors_have_their_shapes);
    tcase_add_test(core, a_missing_head_is_the_embedding);
    tcase_add_test(core, a_model_describes_itself_in_one_line);
    tcase_add_test(core, only_layers_decide_what_is_portable);
    tcase_add_test(core, bad_hyperparameters_are_refused);
    tcase_add_test(core, harmless_keys_change_nothing);
    tcase_add_test(core, key_value_heads_default_to_all);
    tcase_add_test(core, per_layer_hyperparameters_are_refused);
    tcase_add_test(core, other_kinds_of_files_say_what_they_are);
    tcase_add_test(core, rope_scaling_is_read_or_refused_by_name);
    tcase_add_test(core, divisors_of_frequencies_are_checked);
    tcase_add_test(core, a_sliding_window_bounds_the_context);
    tcase_add_test(core, an_architecture_has_its_own_tensors);
    tcase_add_test(core, another_architectures_tensors_are_refused);
    tcase_add_test(core, tokenizer_and_embedding_must_agree);
    tcase_add_test(core, wrong_tensors_are_refused);
    tcase_add_test(core, data_that_is_not_aligned_is_refused);
    suite_add_tcase(suite, core);
    if (getenv("HEARTH_TESTDATA")) {
        TCase *data = tcase_create("test data");
        tcase_set_timeout(data, 120);
        tcase_add_test(data, trained_models_open);
        suite_add_tcase(suite, data);
    } else {
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set\n");
    }
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
