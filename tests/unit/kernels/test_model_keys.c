/* The hyperparameters of a model: bad ones are refused by name, irrelevant ones change nothing,
 * rope scaling and the window are read. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/model_opened.h"
#include "tests/rig/tiny_model.h"

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
    {"llama.embedding_length", U(66), -EBADMSG, "not a multiple of the head count 4"},
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
    {"llama.attention.key_length", U(514), -ENOTSUP, "heads of 514 dimensions"},
    {"llama.attention.key_length", U(15), -ENOTSUP, "heads of 15 dimensions"},
    {"llama.attention.key_length", U(0), -EBADMSG, "key_length must be"},
    {"llama.attention.value_length", U(8), -EBADMSG, "attn_v.weight is"},
    {"llama.attention.value_length", U(514), -ENOTSUP, "heads of 514"},
    {"llama.attention.value_length", U(7), -ENOTSUP, "heads of 7"},
    {"llama.rope.dimension_count", U(18), -ENOTSUP, "rope over 18 of 16"},
    {"llama.rope.dimension_count", U(7), -ENOTSUP, "rope over 7 of 16"},
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
    {"llama.expert_count", U(8), -EBADMSG, "llama.expert_used_count is missing"},
    {"llama.rope.scaling.factor", F(-4), -EBADMSG, "rope scaled by -4"},
    {"llama.rope.scaling.factor", F(1e7f), -EBADMSG, "rope scaled by 1e+07"},
    {"llama.rope.scaling.factor", F(NAN), -EBADMSG, "rope scaled by"},
    {"llama.rope.scale_linear", F(0.25f), -EBADMSG, "rope scaled by 0.25, must be 0.5 to 1e+06"},
    {"llama.rope.scale_linear", U(2), -EBADMSG, "not a float"},
    {"llama.rope.scaling.attn_factor", F(0), -EBADMSG, "attention scaled by 0"},
    {"llama.rope.scaling.attn_factor", F(NAN), -EBADMSG, "attention scaled by"},
    {"llama.rope.scaling.original_context_length", U(0), -EBADMSG, "must be 1 to"},
    {"llama.attention.temperature_scale", F(-1), -EBADMSG, "temperature_scale must be 0 to 100"},
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

START_TEST(irrelevant_keys_change_nothing)
{
    static const struct key_case CASES[] = {
        {"llama.rope.freq_base", F(500000), 0, NULL},
        {"llama.rope.freq_base", GGUF_F64, {.u64 = 0x40c3880000000000}, 0, NULL},
        {"llama.rope.scaling.factor", F(1), 0, NULL},
        {"llama.rope.scaling.factor", F(0), 0, NULL},
        {"llama.rope.scaling.attn_factor", F(1), 0, NULL},
        {"llama.rope.dimension_count", U(16), 0, NULL},
        {"llama.rope.dimension_count", U(8), 0, NULL},
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

/* Without head_count_kv there are as many KV heads as heads. */
START_TEST(key_value_heads_default_to_all)
{
    struct gw w;
    static const struct key_case NONE = {"llama.attention.head_count_kv", ABSENT, 0, NULL};
    write_with_key(&w, &NONE);
    check_refused(&w, -EBADMSG, "attn_k.weight is 64 x 32 x 1 x 1, must be 64 x 64");
}
END_TEST

START_TEST(key_value_heads_by_layer_are_checked)
{
    static const struct key_case NONE = {"llama.attention.head_count_kv", ABSENT, 0, NULL};
    static const float FLOATS[2] = {2, 2};
    static const struct {
        uint32_t n, heads[3];
        const char *part;
    } BAD[] = {{1, {2}, "must be a number, or 2 of them"},
               {3, {2, 2, 2}, "must be a number, or 2 of them"},
               {2, {2, 0}, "head_count_kv holds 0, must be 1 to"},
               {2, {3, 2}, "4 heads over 3"},
               {2, {2, 1}, "blk.1.attn_k.weight is 64 x 32 x 1 x 1, must be 64 x 16"}};
    struct gw w;
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        write_with_key(&w, &NONE);
        gw_key_array(&w, NONE.name, GGUF_U32, BAD[i].n, BAD[i].heads, BAD[i].n * 4);
        check_refused(&w, -EBADMSG, BAD[i].part);
    }
    write_with_key(&w, &NONE);
    gw_key_array(&w, NONE.name, GGUF_F32, 2, FLOATS, sizeof(FLOATS));
    check_refused(&w, -EBADMSG, "must be a number, or 2 of them");
}
END_TEST

/* KV heads by layer, and V's size apart from K's; both are part of the fingerprint. */
START_TEST(sizes_of_keys_and_values_are_read)
{
    uint8_t seen[3][MODEL_FINGERPRINT_BYTES];
    for (uint32_t i = 0; i < 3; i++) {
        struct tiny_model shape = tiny_model_default(QUANT_F32);
        struct opened o;
        size_t bytes;
        shape.v_dim = i == 1 ? 24 : 0;
        shape.odd_head_kv = i == 2 ? 1 : 0;
        uint8_t *file = tiny_model_file(&shape, &bytes);
        ck_assert_int_eq(open_file(file, bytes, &o), 0);
        for (uint32_t l = 0; l < 2; l++) {
            const struct layer_geometry *g = &o.model->layers[l].geometry;
            ck_assert_uint_eq(g->k_dim, 16);
            ck_assert_uint_eq(g->v_dim, i == 1 ? 24 : 16);
            ck_assert_uint_eq(g->n_head_kv, i == 2 && l == 1 ? 1 : 2);
        }
        ck_assert_int_eq(model_fingerprint(o.model, 1, seen[i]), 0);
        ck_assert(i == 0 || memcmp(seen[i], seen[i - 1], sizeof(seen[i])) != 0);
        close_opened(&o);
    }
}
END_TEST

START_TEST(per_layer_hyperparameters_are_refused)
{
    struct gw w;
    static const struct key_case NONE = {"llama.attention.head_count", ABSENT, 0, NULL};
    static const uint32_t TWO[] = {4, 4};
    write_with_key(&w, &NONE);
    gw_key_array(&w, NONE.name, GGUF_U32, 2, TWO, sizeof(TWO));
    check_refused(&w, -ENOTSUP, "differs from layer to layer");
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
    ck_assert(o.model->ropes[0].scale == scale);
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
    check_refused(&w, -ENOTSUP, "longrope without the tensor rope_factors_long.weight");
    write_scaled(&w, "dynamic", NULL);
    check_refused(&w, -ENOTSUP, "rope scaling of type dynamic");
}
END_TEST

/* ---- YaRN, LongRoPE, and another scaling than the file's --------------------------------------- */

#define SCALING "llama.rope.scaling."

/* The model opened with that option. */
static int open_scaled(struct gw *w, const char *option, struct opened *o)
{
    size_t bytes;
    o->file = gw_finish(w, &bytes, NULL);
    int rc = gguf_open_memory(o->file, bytes, &o->gguf, err, sizeof(err));
    ck_assert_msg(rc == 0, "%s", err);
    return model_open_scaled(o->gguf, option, &o->model, err, sizeof(err));
}

static struct model_rope_table rope_of(struct gw *w, const char *option, uint32_t context)
{
    struct opened o;
    int rc = open_scaled(w, option, &o);
    ck_assert_msg(rc == 0, "%d: %s", rc, err);
    ck_assert_uint_eq(o.model->n_context, context);
    struct model_rope_table rope = o.model->ropes[0];
    close_opened(&o);
    return rope;
}

START_TEST(yarn_is_read)
{
    struct gw w;
    write_scaled(&w, "yarn", NULL);
    gw_key_u32(&w, SCALING "original_context_length", 16);
    struct model_rope_table r = rope_of(&w, NULL, 128);
    ck_assert(r.scale == 8 && r.attention == 1 && r.yarn.original == 16 && r.yarn.truncated);
    ck_assert(r.yarn.fast == 32 && r.yarn.slow == 1 && r.yarn.log_multiplier == 0);
    write_scaled(&w, "yarn", NULL);
    gw_key_f32(&w, SCALING "yarn_beta_fast", 16);
    gw_key_f32(&w, SCALING "yarn_beta_slow", 2);
    gw_key_f32(&w, SCALING "yarn_log_multiplier", 0.5f);
    gw_key_f32(&w, SCALING "attn_factor", 1.5f);
    r = rope_of(&w, NULL, 128);
    ck_assert(r.yarn.original == 128 && r.attention == 1.5f);
    ck_assert(r.yarn.fast == 16 && r.yarn.slow == 2 && r.yarn.log_multiplier == 0.5f);
    write_scaled(&w, "yarn", NULL); /* replaces what follows from the factor */
    gw_key_f32(&w, SCALING "yarn_attn_factor", 1.25f);
    r = rope_of(&w, NULL, 128);
    ck_assert(r.attention == 1.25f && r.yarn.log_multiplier == 1);
}
END_TEST

START_TEST(malformed_yarn_is_refused)
{
    static const struct {
        const char *name;
        float value;
        int code;
        const char *part;
    } CASES[] = {
        {SCALING "yarn_beta_fast", 1, -EBADMSG, "YaRN between 1 and 1 turns"},
        {SCALING "yarn_beta_fast", INFINITY, -EBADMSG, "YaRN between"},
        {SCALING "yarn_beta_slow", 0, -EBADMSG, "YaRN between 0 and 32 turns"},
        {SCALING "yarn_beta_slow", NAN, -EBADMSG, "YaRN between"},
        {SCALING "yarn_log_multiplier", -1, -EBADMSG, "yarn_log_multiplier must be 0 to 100"},
        {SCALING "yarn_ext_factor", 0.5f, -ENOTSUP, "extrapolation of 0.5"},
        {SCALING "yarn_attn_factor", -1, -EBADMSG, "attention scaled by -1"},
        {"llama.rope.freq_base", 1, -EBADMSG, "of base 1"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct gw w;
        write_scaled(&w, "yarn", NULL);
        gw_key_f32(&w, CASES[i].name, CASES[i].value);
        check_refused(&w, CASES[i].code, CASES[i].part);
    }
}
END_TEST

static void put_factors(struct gw *w, const char *name, const float *factors)
{
    gw_tensor_info(w, name, QUANT_F32, 1, (uint64_t[]){8}, w->data.bytes);
    gw_put(&w->data, factors, 8 * sizeof(float));
    gw_pad(&w->data, w->alignment);
}

/* A model of 128 positions, of which `original` without LongRoPE. */
static void write_longrope(struct gw *w, uint32_t original, bool both)
{
    static const float LONG[8] = {2, 2, 2, 2, 2, 2, 2, 2}, SHORT[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    write_scaled(w, NULL, NULL);
    gw_key_u32(w, SCALING "original_context_length", original);
    gw_key_f32(w, SCALING "attn_factor", 1.2f);
    put_factors(w, "rope_factors_long.weight", LONG);
    if (both)
        put_factors(w, "rope_factors_short.weight", SHORT);
}

static void check_factors(struct gw *w, const char *option, uint32_t context, float divisor)
{
    struct opened o;
    int rc = open_scaled(w, option, &o);
    ck_assert_msg(rc == 0, "%d: %s", rc, err);
    ck_assert_uint_eq(o.model->n_context, context);
    ck_assert(o.model->ropes[0].divisors[0] == divisor && o.model->ropes[0].scale == 1);
    ck_assert(o.model->ropes[0].attention == 1.2f);
    close_opened(&o);
}

START_TEST(longrope_takes_its_long_factors_beyond_the_original_context)
{
    struct gw w;
    write_longrope(&w, 64, true);
    check_factors(&w, NULL, 128, 2);
    write_longrope(&w, 128, true);
    check_factors(&w, NULL, 128, 1);
    write_longrope(&w, 64, true);
    check_factors(&w, "none", 64, 1);
    write_longrope(&w, 64, false);
    check_refused(&w, -EBADMSG, "belong together");
}
END_TEST

START_TEST(an_option_replaces_the_files_scaling)
{
    struct gw w;
    struct model_rope_table r;
    write_scaled(&w, "none", NULL);
    r = rope_of(&w, "yarn:4", 512);
    ck_assert(r.scale == 4 && r.yarn.original == 128 && r.yarn.fast == 32);
    write_scaled(&w, "none", NULL);
    r = rope_of(&w, "yarn:2.5:100", 250);
    ck_assert(r.scale == 2.5f && r.yarn.original == 100);
    write_scaled(&w, "yarn", NULL);
    gw_key_u32(&w, SCALING "original_context_length", 32);
    r = rope_of(&w, "linear:4", 128);
    ck_assert(r.scale == 4 && r.yarn.original == 0);
    write_scaled(&w, "linear", NULL);
    r = rope_of(&w, "none", 128);
    ck_assert(r.scale == 1 && r.yarn.original == 0);
}
END_TEST

START_TEST(an_option_that_is_no_scaling_is_refused)
{
    static const char *const BAD[] = {
        "yarn",      "yarn:",      "yarn:x",    "yarn:4:",   "yarn:4:128:1", "none:2",
        "linear",    "longrope:2", "dynamic:4", "yarn:nan",  "yarn:-4",      "yarn:4:0",
        "yarn:4:-1", "yarn:1e9",   " yarn:4",   "yarnyarn:4"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        struct gw w;
        struct opened o;
        write_scaled(&w, "none", NULL);
        int rc = open_scaled(&w, BAD[i], &o);
        ck_assert_msg(rc == -EINVAL, "%s: %d", BAD[i], rc);
        ck_assert_msg(strncmp(err, "rope-scaling ", 13) == 0, "%s", err);
        gguf_close(o.gguf);
        free(o.file);
    }
    struct gw w;
    struct opened o;
    write_longrope(&w, 64, true);
    ck_assert_int_eq(open_scaled(&w, "yarn:4", &o), -ENOTSUP);
    ck_assert_msg(strstr(err, "give none, or leave it out") != NULL, "%s", err);
    gguf_close(o.gguf);
    free(o.file);
}
END_TEST

/* Each of granite's four factors must be there, and above 0. */
START_TEST(granite_needs_its_factors)
{
    static const char *const NAMES[] = {"granite.embedding_scale", "granite.attention.scale",
                                        "granite.residual_scale", "granite.logit_scale"};
    struct tiny_model shape = tiny_model_default(QUANT_F16);
    const char *name = NAMES[_i % 4];
    char want[96];
    struct opened o;
    size_t bytes;
    shape.arch = "granite";
    uint8_t *file = tiny_model_file(&shape, &bytes), *key = memmem(file, bytes, name, strlen(name));
    ck_assert_ptr_nonnull(key);
    if (_i < 4)
        key[strlen(name) - 1] = 'X';
    else
        memset(key + strlen(name) + 4, 0, 4); /* after the type: the value */
    snprintf(want, sizeof(want), _i < 4 ? "%s is missing" : "%s must be above 0", name);
    ck_assert_int_eq(open_file(file, bytes, &o), -EBADMSG);
    ck_assert_msg(strstr(err, want) != NULL, "%s", err);
    close_opened(&o);
}
END_TEST

/* The keys of a mixture of experts, one of them replaced or added; the tensors are llama's. */
static void write_experts(struct gw *w, const char *arch, const char *name, uint32_t type,
                          const void *value)
{
    static const struct {
        const char *name;
        uint32_t value;
    } COUNTS[] = {
        {"context_length", 32},      {"embedding_length", 64},
        {"block_count", 2},          {"expert_feed_forward_length", 96},
        {"expert_count", 8},         {"expert_used_count", 2},
        {"attention.head_count", 4},
    };
    char key[96];
    const struct gw_llama spec = gw_llama_small(QUANT_F32);
    gw_init(w);
    gw_key_string(w, "general.architecture", arch);
    for (size_t i = 0; i < sizeof(COUNTS) / sizeof(COUNTS[0]); i++) {
        snprintf(key, sizeof(key), "%s.%s", arch, COUNTS[i].name);
        if (strcmp(COUNTS[i].name, name) != 0)
            gw_key_u32(w, key, COUNTS[i].value);
    }
    snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", arch);
    gw_key_f32(w, key, 1e-5f);
    snprintf(key, sizeof(key), "%s.%s", arch, name);
    if (value)
        gw_key(w, key, type, value, type == GGUF_BOOL ? 1 : 4);
    gw_llama_tensors(w, &spec);
}

START_TEST(bad_keys_of_experts_are_refused)
{
    const uint32_t none = 0, one = 1, three = 3, four = 4, nine = 9, many = 1u << 20;
    const float minus = -1.0f;
    const struct {
        const char *arch, *name;
        uint32_t type;
        const void *value;
        int code;
        const char *part;
    } cases[] = {
        {"qwen3moe", "expert_count", 0, NULL, -EBADMSG, "expert_count is missing"},
        {"qwen3moe", "expert_count", GGUF_U32, &none, -EBADMSG, "expert_count must be 1 to"},
        {"qwen3moe", "expert_count", GGUF_U32, &many, -EBADMSG, "expert_count must be 1 to"},
        {"qwen3moe", "expert_used_count", 0, NULL, -EBADMSG, "expert_used_count is missing"},
        {"qwen3moe", "expert_used_count", GGUF_U32, &nine, -EBADMSG, "9 of 8 experts used"},
        {"qwen3moe", "expert_used_count", GGUF_U32, &many, -EBADMSG, "expert_used_count must be"},
        {"qwen3moe", "expert_feed_forward_length", 0, NULL, -EBADMSG, "length is missing"},
        {"qwen3moe", "expert_gating_func", GGUF_U32, &four, -ENOTSUP,
         "a router of kind 4 (qwen3moe.expert_gating_func) is not supported"},
        {"qwen3moe", "expert_gating_func", GGUF_F32, &minus, -ENOTSUP,
         "qwen3moe.expert_gating_func"},
        {"glm4moe", "expert_gating_func", GGUF_U32, &three, -ENOTSUP, "a router of kind 3"},
        {"qwen3moe", "expert_weights_norm", GGUF_U32, &one, -EBADMSG, "not a truth value"},
        {"qwen3moe", "expert_weights_scale", GGUF_F32, &minus, -EBADMSG, "must be above 0"},
        {"qwen3moe", "expert_weights_scale", GGUF_F32, &none, -EBADMSG,
         "tensor blk.0.attn_k"}, /* 0: none */
        {"qwen3moe", "expert_group_count", GGUF_U32, &one, -EBADMSG, "tensor blk.0.attn_k"},
        {"qwen3moe", "expert_group_count", GGUF_U32, &four, -ENOTSUP, "experts in 4 groups"},
        {"qwen3moe", "leading_dense_block_count", GGUF_U32, &none, -EBADMSG, "tensor blk.0.attn_k"},
        {"qwen3moe", "expert_shared_count", GGUF_U32, &one, -ENOTSUP,
         "with a shared expert is not"},
        {"qwen3", "feed_forward_length", GGUF_U32, &nine, -ENOTSUP,
         "a mixture of experts (qwen3.expert_count) is not supported for qwen3"},
        {"ernie4_5-moe", "interleave_moe_layer_step", GGUF_U32, &three, -ENOTSUP,
         "experts in every 3-th layer"},
        {"glm4moe", "leading_dense_block_count", GGUF_U32, &three, -EBADMSG, "must be 1 to 2"},
        {"glm4moe", "leading_dense_block_count", GGUF_U32, &one, -EBADMSG,
         "glm4moe.feed_forward_length is missing"},
        {"glm4moe", "expert_shared_count", GGUF_U32, &many, -EBADMSG, "must be 1 to"},
        {"glm4moe", "expert_shared_feed_forward_length", GGUF_U32, &many, -EBADMSG, "must be 1 to"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gw w;
        write_experts(&w, cases[i].arch, cases[i].name, cases[i].type, cases[i].value);
        check_refused(&w, cases[i].code, cases[i].part);
    }
}
END_TEST

/* Shared experts are one part of their widths together, and no wider than any other. */
START_TEST(shared_experts_have_a_width_together)
{
    const uint32_t width = MODEL_MAX_FF / 2;
    for (uint32_t n = 2; n <= 3; n++) {
        struct gw w;
        write_experts(&w, "granitemoe", "expert_feed_forward_length", GGUF_U32, &width);
        gw_key_u32(&w, "granitemoe.expert_shared_count", n);
        check_refused(&w, -EBADMSG,
                      n == 2 ? "embedding_scale is missing"
                             : "a width of 393216 for 3 shared experts, must be up to 262144");
    }
}
END_TEST

/* Tensors must have the file's number of experts; the fingerprint depends on how many a row uses,
 * which no tensor tells. */
START_TEST(experts_are_counted)
{
    static const char COUNT[] = "qwen3moe.expert_count";
    uint8_t seen[2][MODEL_FINGERPRINT_BYTES];
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.arch = "qwen3moe";
    for (uint32_t i = 0; i < 2; i++) {
        struct opened o;
        size_t bytes;
        shape.n_expert_used = 2 + i;
        ck_assert_int_eq(open_file(tiny_model_file(&shape, &bytes), bytes, &o), 0);
        const struct model_tensor *t = &o.model->layers[1].tensor[MODEL_FFN_DOWN_EXPS];
        ck_assert(o.model->n_expert == 7 && o.model->n_expert_used == 2 + i);
        ck_assert(t->n_matrices == 7 && t->rows == 64 && t->cols == 96);
        ck_assert_uint_eq(t->bytes, 7 * 64 * t->row_bytes);
        ck_assert(model_portable(o.model));
        ck_assert_int_eq(model_fingerprint(o.model, 1, seen[i]), 0);
        close_opened(&o);
    }
    ck_assert(memcmp(seen[0], seen[1], sizeof(seen[0])) != 0);
    struct opened o;
    size_t bytes;
    uint8_t *file = tiny_model_file(&shape, &bytes);
    uint8_t *key = memmem(file, bytes, COUNT, strlen(COUNT));
    ck_assert_ptr_nonnull(key);
    key[strlen(COUNT) + 4] = 6; /* after the type */
    ck_assert_int_eq(open_file(file, bytes, &o), -EBADMSG);
    ck_assert_msg(strstr(err, "ffn_gate_inp.weight is 64 x 7 x 1 x 1, must be 64 x 6") != NULL,
                  "%s", err);
    close_opened(&o);
}
END_TEST

/* What a layer has is in its geometry; how a router weighs is in the fingerprint. */
START_TEST(layers_say_what_they_have_and_routers_how_they_weigh)
{
    uint8_t seen[4][MODEL_FINGERPRINT_BYTES];
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct opened o;
    size_t bytes;
    char text[256];
    shape.arch = "glm4moe";
    uint8_t *file = tiny_model_file(&shape, &bytes);
    ck_assert_int_eq(open_file(file, bytes, &o), 0);
    const struct model_layer *dense = &o.model->layers[0], *mixed = &o.model->layers[1];
    ck_assert(dense->geometry.n_expert == 0 && dense->geometry.n_ff_shared == 0);
    ck_assert(dense->tensor[MODEL_FFN_UP].data && !dense->tensor[MODEL_FFN_UP_EXPS].data);
    ck_assert(mixed->geometry.n_expert == 7 && mixed->geometry.n_ff_shared == 192);
    ck_assert(!mixed->tensor[MODEL_FFN_UP].data && mixed->tensor[MODEL_FFN_UP_SHARED].rows == 192);
    ck_assert(model_portable(o.model));
    model_describe(o.model, text, sizeof(text));
    ck_assert_msg(strstr(text, "3 of 7 experts and a shared one,") != NULL, "%s", text);

    struct model_router *router = &o.model->router;
    ck_assert(router->gating == MODEL_GATING_SIGMOID && router->normed && router->scale == 1.5f);
    for (int i = 0; i < 4; i++) {
        *router = (struct model_router){i == 1 ? MODEL_GATING_SOFTMAX : MODEL_GATING_SIGMOID,
                                        i != 2, i == 3 ? 1.0f : 1.5f};
        ck_assert_int_eq(model_fingerprint(o.model, 1, seen[i]), 0);
        for (int j = 0; j < i; j++)
            ck_assert(memcmp(seen[i], seen[j], sizeof(seen[0])) != 0);
    }
    close_opened(&o);
}
END_TEST

/* A file's layers for drafts change nothing: no pass reads them, and the fingerprint is that of the
 * file without them. */
START_TEST(layers_that_only_draft_are_left_out)
{
    uint8_t seen[2][MODEL_FINGERPRINT_BYTES];
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct opened o[2];
    size_t bytes;
    shape.arch = "glm4moe";
    for (uint32_t i = 0; i < 2; i++) {
        shape.n_draft = i;
        uint8_t *file = tiny_model_file(&shape, &bytes);
        ck_assert_int_eq(open_file(file, bytes, &o[i]), 0);
        ck_assert_int_eq(model_fingerprint(o[i].model, 1, seen[i]), 0);
    }
    ck_assert_uint_eq(o[1].model->n_layer, 2);
    ck_assert(gguf_n_tensors(o[1].gguf) > gguf_n_tensors(o[0].gguf));
    ck_assert_uint_eq(o[1].model->tensor_bytes, o[0].model->tensor_bytes);
    ck_assert_uint_eq(o[1].model->n_params, o[0].model->n_params);
    ck_assert_mem_eq(seen[0], seen[1], sizeof(seen[0]));
    close_opened(&o[0]);
    close_opened(&o[1]);
}
END_TEST

/* Neither all layers draft, nor does one after the last. */
START_TEST(other_layers_are_not_left_out)
{
    static const char *const renamed[] = {"blk.2.nextn.enorm.weight", "blk.3.nextn.enorm.weight",
                                          "blk.1.nextn.enorm.weight"};
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct opened o;
    size_t bytes;
    shape.n_draft = 1;
    for (uint32_t i = 0; i < 3; i++) {
        uint8_t *file = tiny_model_file(&shape, &bytes);
        char *name = memmem(file, bytes, renamed[0], strlen(renamed[0]));
        ck_assert_ptr_nonnull(name);
        memcpy(name, renamed[i], strlen(renamed[i]));
        ck_assert_int_eq(open_file(file, bytes, &o), i == 0 ? 0 : -ENOTSUP);
        if (i > 0)
            ck_assert_msg(strstr(err, renamed[i]) != NULL, "%s", err);
        close_opened(&o);
    }
    uint8_t *file = tiny_model_file(&shape, &bytes);
    uint8_t *key = memmem(file, bytes, "llama.nextn_predict_layers", 26);
    ck_assert_ptr_nonnull(key);
    key[26 + 4] = 3; /* after the type */
    ck_assert_int_eq(open_file(file, bytes, &o), -EBADMSG);
    ck_assert_msg(strstr(err, "nextn_predict_layers must be 1 to 2") != NULL, "%s", err);
    close_opened(&o);
}
END_TEST

START_TEST(divisors_of_frequencies_are_checked)
{
    static const float BAD[] = {0, -1, 0.25f, 2e31f, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        struct gw w;
        float divisors[8] = {1, 1, 1, 1, 2, 4, 8, 8};
        divisors[i] = BAD[i];
        write_scaled(&w, "none", divisors);
        check_refused(&w, -EBADMSG, "malformed: rope_freqs.weight holds");
    }
}
END_TEST

/* The context is limited to the window, also when a longer one is requested. */
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
        ck_assert_uint_eq(o.model->sliding_window, WINDOWS[i][1]);
        ck_assert_uint_eq(o.model->n_context, WINDOWS[i][2]);
        model_describe(o.model, text, sizeof(text));
        ck_assert((strstr(text, "(its sliding window)") != NULL) ==
                  (WINDOWS[i][1] == WINDOWS[i][2]));
        close_opened(&o);
    }
}
END_TEST

/* ---- gemma3 ---------------------------------------------------------------------------------- */

#define NO_F32 NAN /* leave the key out */

struct gemma_keys {
    uint32_t layers, window, pattern; /* 0: leave the key out */
    float base, local_base, factor, cap;
};

/* Keys only: they are read before any tensor. */
static void write_gemma(struct gw *w, const struct gemma_keys *k)
{
    const struct {
        const char *name;
        float value;
    } floats[] = {
        {"gemma3.attention.layer_norm_rms_epsilon", 1e-6f},
        {"gemma3.rope.freq_base", k->base},
        {"gemma3.rope.freq_base_swa", k->local_base},
        {"gemma3.rope.scaling.factor", k->factor},
        {"gemma3.final_logit_softcapping", k->cap},
    };
    gw_init(w);
    gw_key_string(w, "general.architecture", "gemma3");
    gw_key_u32(w, "gemma3.context_length", 4096);
    gw_key_u32(w, "gemma3.embedding_length", 96);
    gw_key_u32(w, "gemma3.block_count", k->layers);
    gw_key_u32(w, "gemma3.feed_forward_length", 32);
    gw_key_u32(w, "gemma3.attention.head_count", 4);
    gw_key_u32(w, "gemma3.attention.head_count_kv", 1);
    gw_key_u32(w, "gemma3.attention.key_length", 16);
    gw_key_u32(w, "gemma3.attention.value_length", 16);
    if (k->window > 0)
        gw_key_u32(w, "gemma3.attention.sliding_window", k->window);
    if (k->pattern > 0)
        gw_key_u32(w, "gemma3.attention.sliding_window_pattern", k->pattern);
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++)
        if (!isnan(floats[i].value))
            gw_key_f32(w, floats[i].name, floats[i].value);
}

/* A file of these keys and the tensors of its layers, all zeros. */
static void write_gemma_model(struct gw *w, const struct gemma_keys *k)
{
    static const struct {
        const char *name;
        uint64_t ne[2];
    } tensors[] = {
        {"attn_norm", {96, 0}},    {"attn_q", {96, 64}},  {"attn_k", {96, 16}},
        {"attn_v", {96, 16}},      {"attn_q_norm", {16}}, {"attn_k_norm", {16}},
        {"attn_output", {64, 96}}, {"ffn_norm", {96}},    {"post_attention_norm", {96}},
        {"ffn_gate", {96, 32}},    {"ffn_up", {96, 32}},  {"ffn_down", {32, 96}},
        {"post_ffw_norm", {96}},
    };
    static const float zeros[96 * 64];
    uint64_t embedding[2] = {96, 8};
    char name[64];
    write_gemma(w, k);
    for (uint32_t l = 0; l < k->layers; l++) {
        for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
            uint64_t rows = tensors[i].ne[1] > 0 ? tensors[i].ne[1] : 1;
            snprintf(name, sizeof(name), "blk.%u.%s.weight", l, tensors[i].name);
            gw_tensor_info(w, name, QUANT_F32, tensors[i].ne[1] > 0 ? 2 : 1, tensors[i].ne,
                           w->data.bytes);
            gw_put(&w->data, zeros, (size_t)(tensors[i].ne[0] * rows) * sizeof(float));
        }
    }
    gw_tensor_info(w, "token_embd.weight", QUANT_F32, 2, embedding, w->data.bytes);
    gw_put(&w->data, zeros, 96 * 8 * sizeof(float));
    gw_tensor_info(w, "output_norm.weight", QUANT_F32, 1, embedding, w->data.bytes);
    gw_put(&w->data, zeros, 96 * sizeof(float));
}

START_TEST(local_layers_are_read)
{
    static const struct {
        struct gemma_keys keys;
        uint32_t period;
        float base, local_base, scale;
        uint32_t divisor;
    } cases[] = {
        {{12, 1024, 0, 1e6f, NO_F32, 8, NO_F32}, 6, 1e6f, 1e4f, 8, 16},
        {{12, 5, 3, NO_F32, 2e4f, NO_F32, 0}, 3, 1e4f, 2e4f, 1, 16},
        {{62, 1024, 0, 1e6f, NO_F32, 8, NO_F32}, 6, 1e6f, 1e4f, 8, 24}, /* the 27B: 96 / 4 */
    };
    struct gw w;
    struct opened o;
    size_t bytes;
    write_gemma_model(&w, &cases[_i].keys);
    uint8_t *file = gw_finish(&w, &bytes, NULL);
    int rc = open_file(file, bytes, &o);
    ck_assert_msg(rc == 0, "%d: %s", rc, err);
    const struct model *m = o.model;
    for (uint32_t l = 0; l < m->n_layer; l++)
        ck_assert_uint_eq(m->layers[l].geometry.sliding_window,
                          l % cases[_i].period == cases[_i].period - 1 ? MODEL_NO_WINDOW
                                                                       : cases[_i].keys.window);
    ck_assert_uint_eq(m->local_sliding_window, cases[_i].keys.window);
    ck_assert(m->ropes[0].base == cases[_i].base && m->ropes[1].base == cases[_i].local_base);
    ck_assert(m->ropes[0].scale == cases[_i].scale && m->ropes[1].scale == 1.0f);
    ck_assert(m->score_scale == 1.0f / sqrtf((float)cases[_i].divisor));
    ck_assert(m->embd_scale == sqrtf(96));
    ck_assert_uint_eq(m->n_context, 4096); /* the window bounds local layers, not the context */
    ck_assert_uint_eq(m->sliding_window, 0);
    close_opened(&o);
}
END_TEST

START_TEST(local_layers_are_refused_by_name)
{
    static const struct {
        struct gemma_keys keys;
        int code;
        const char *part;
    } cases[] = {
        {{2, 0, 0, NO_F32, NO_F32, NO_F32, NO_F32},
         -EBADMSG,
         "malformed: gemma3.attention.sliding_window is missing"},
        {{2, 1u << 30, 0, NO_F32, NO_F32, NO_F32, NO_F32}, -EBADMSG, "sliding_window must be 1 to"},
        {{2, 8, 1000, NO_F32, NO_F32, NO_F32, NO_F32},
         -EBADMSG,
         "gemma3.attention.sliding_window_pattern must be 1 to"},
        {{2, 8, 0, NO_F32, 0, NO_F32, NO_F32}, -EBADMSG, "gemma3.rope.freq_base_swa must be 1 to"},
        {{2, 8, 0, NO_F32, NO_F32, NO_F32, 30},
         -ENOTSUP,
         "logits capped at 30 (gemma3.final_logit_softcapping) are not supported"},
    };
    struct gw w;
    write_gemma_model(&w, &cases[_i].keys);
    check_refused(&w, cases[_i].code, cases[_i].part);
}
END_TEST

/* Window, pattern and local rope base are all part of the fingerprint. */
START_TEST(fingerprints_depend_on_local_layers)
{
    static const struct gemma_keys cases[] = {
        {2, 8, 2, NO_F32, NO_F32, NO_F32, NO_F32},
        {2, 9, 2, NO_F32, NO_F32, NO_F32, NO_F32},
        {2, 8, 3, NO_F32, NO_F32, NO_F32, NO_F32},
        {2, 8, 2, NO_F32, 5e4f, NO_F32, NO_F32},
    };
    uint8_t seen[4][MODEL_FINGERPRINT_BYTES];
    for (int i = 0; i < 4; i++) {
        struct gw w;
        struct opened o;
        size_t bytes;
        write_gemma_model(&w, &cases[i]);
        uint8_t *file = gw_finish(&w, &bytes, NULL);
        ck_assert_int_eq(open_file(file, bytes, &o), 0);
        ck_assert_int_eq(model_fingerprint(o.model, 1, seen[i]), 0);
        for (int j = 0; j < i; j++)
            ck_assert(memcmp(seen[i], seen[j], sizeof(seen[i])) != 0);
        close_opened(&o);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_keys");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, bad_hyperparameters_are_refused);
    tcase_add_test(core, irrelevant_keys_change_nothing);
    tcase_add_test(core, key_value_heads_default_to_all);
    tcase_add_test(core, key_value_heads_by_layer_are_checked);
    tcase_add_test(core, sizes_of_keys_and_values_are_read);
    tcase_add_test(core, per_layer_hyperparameters_are_refused);
    tcase_add_test(core, rope_scaling_is_read_or_refused_by_name);
    tcase_add_loop_test(core, granite_needs_its_factors, 0, 8);
    tcase_add_test(core, bad_keys_of_experts_are_refused);
    tcase_add_test(core, shared_experts_have_a_width_together);
    tcase_add_test(core, experts_are_counted);
    tcase_add_test(core, layers_that_only_draft_are_left_out);
    tcase_add_test(core, other_layers_are_not_left_out);
    tcase_add_test(core, layers_say_what_they_have_and_routers_how_they_weigh);
    tcase_add_test(core, divisors_of_frequencies_are_checked);
    tcase_add_test(core, yarn_is_read);
    tcase_add_test(core, malformed_yarn_is_refused);
    tcase_add_test(core, longrope_takes_its_long_factors_beyond_the_original_context);
    tcase_add_test(core, an_option_replaces_the_files_scaling);
    tcase_add_test(core, an_option_that_is_no_scaling_is_refused);
    tcase_add_test(core, a_sliding_window_bounds_the_context);
    tcase_add_loop_test(core, local_layers_are_read, 0, 3);
    tcase_add_loop_test(core, local_layers_are_refused_by_name, 0, 5);
    tcase_add_test(core, fingerprints_depend_on_local_layers);
    suite_add_tcase(suite, core);
    return run_suite(suite);
}
