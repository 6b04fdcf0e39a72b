/* gemma4: layers of two kinds, V from K, KV that layers share, inputs of layers, experts beside a
 * dense part; and what is refused with a line. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "kernels/kv.h"
#include "tests/run_suite.h"
#include "tests/rig/model_changed.h"

#define KEY(name, its_type, n, its_values)                                                         \
    .key = "gemma4." name, .type = its_type, .count = n, .values = its_values
#define WITHOUT_KEY(name) .key = "gemma4." name, .type = GGUF_ARRAY
#define WITHOUT(name) .tensor = name

static struct tiny_model shape_of(const char *variant)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.n_layer = 4;
    tiny_model_as(&shape, variant);
    return shape;
}

static void open_variant(struct opened *o, const char *variant, const struct change *change)
{
    const struct tiny_model shape = shape_of(variant);
    changed_open(o, &shape, change, change ? 1 : 0);
}

static void refuse(const char *variant, const struct change *change, uint32_t n, int code,
                   const char *part)
{
    const struct tiny_model shape = shape_of(variant);
    struct gw w;
    struct opened o;
    size_t bytes;
    changed_write(&w, &shape, change, n);
    uint8_t *file = gw_finish(&w, &bytes, NULL);
    const int rc = open_file(file, bytes, &o);
    ck_assert_msg(rc == code && strstr(err, part) && !strchr(err, '\n'), "%s: %d: %s", part, rc,
                  err);
    close_opened(&o);
}

/* Even layers are local, with half as large heads; odd ones turn by the divided table, and their V
 * is K. */
START_TEST(layers_are_of_two_kinds)
{
    struct opened o;
    open_variant(&o, "gemma4", NULL);
    const struct model *m = o.model;
    for (uint32_t l = 0; l < 4; l++) {
        const struct layer_geometry *g = &m->layers[l].geometry;
        const bool local = l % 2 == 0;
        ck_assert(g->k_dim == (local ? 8 : 16) && g->v_dim == g->k_dim && g->q_dim == g->k_dim);
        ck_assert(g->rope == local && g->sliding_window == (local ? 20 : MODEL_NO_WINDOW));
        ck_assert(g->memory == l && !g->shares_kv && g->value_norm && g->n_expert == 0);
        ck_assert((m->layers[l].tensor[MODEL_ATTN_V].data != NULL) == local);
        ck_assert((m->layers[l].tensor[MODEL_LAYER_SCALE].data != NULL) == (l > 0));
    }
    ck_assert(m->ropes[0].n == 16 && m->ropes[1].n == 8 && m->ropes[0].divisors[7] == 1e30f);
    ck_assert(!m->ropes[1].divisors && m->ropes[0].base == 1e6f && m->ropes[1].base == 1e4f);
    ck_assert(m->score_scale == 1 && m->logit_cap == 8 && m->embd_scale == 8);
    ck_assert(m->tied && model_portable(m) && m->gate == MODEL_GATE_GELU);
    close_opened(&o);
}
END_TEST

/* Of five layers the last three read the KV of the last one before them of their kind. */
START_TEST(layers_share_the_kv_of_the_last_of_their_kind)
{
    static const uint32_t memory[] = {0, 1, 0, 1, 0};
    struct opened o;
    open_variant(&o, "gemma4-inputs", NULL);
    for (uint32_t l = 0; l < 5; l++) {
        const struct model_layer *layer = &o.model->layers[l];
        ck_assert(layer->geometry.shares_kv == (l >= 2) && layer->geometry.memory == memory[l]);
        ck_assert((layer->tensor[MODEL_ATTN_K].data == NULL) == (l >= 2));
        ck_assert_uint_eq(layer->geometry.n_ff, l >= 2 ? 192 : 96);
        ck_assert_uint_eq(layer->tensor[MODEL_PER_LAYER_GATE].rows, 32);
    }
    static struct kv_geometry kv;
    kv_geometry_init(&kv, o.model, false, true);
    ck_assert_uint_eq(kv.n_layer, 2); /* the others take no room in pages */
    ck_assert(kv.layer[0].class == PAGES_WINDOW && kv.layer[1].class == PAGES_FULL);
    ck_assert_uint_eq(o.model->global[MODEL_PER_LAYER_EMBD].cols, 5 * 32);
    ck_assert_uint_eq(o.model->global[MODEL_PER_LAYER_PROJ].type, QUANT_BF16);
    ck_assert(model_portable(o.model)); /* the projection is read by chains everywhere */
    close_opened(&o);
}
END_TEST

/* Older files hold K and V of layers that share KV: they are not read, and change nothing. */
START_TEST(kv_of_layers_that_share_it_is_left_out)
{
    const struct change change = {
        .tensor = "blk.3.attn_k.weight", .tensor_type = QUANT_F16, .cols = 64, .rows = 32};
    uint8_t seen[2][MODEL_FINGERPRINT_BYTES];
    for (int i = 0; i < 2; i++) {
        struct opened o;
        open_variant(&o, "gemma4-inputs", i == 0 ? NULL : &change);
        ck_assert_int_eq(model_fingerprint(o.model, 1, seen[i]), 0);
        close_opened(&o);
    }
    ck_assert_mem_eq(seen[0], seen[1], sizeof(seen[0]));
}
END_TEST

START_TEST(experts_are_beside_a_dense_part)
{
    struct opened o;
    open_variant(&o, "gemma4-experts", NULL);
    const struct model_layer *l = &o.model->layers[3];
    ck_assert(l->geometry.n_expert == 7 && l->geometry.n_ff == 96 && l->geometry.n_ff_beside == 96);
    ck_assert(l->tensor[MODEL_FFN_GATE].data && l->tensor[MODEL_FFN_GATE_EXPS].data);
    ck_assert(l->tensor[MODEL_FFN_EXPERT_SCALE].cols == 7 && o.model->router.normed);
    close_opened(&o);
}
END_TEST

/* What files may leave out, and what they may say otherwise. */
START_TEST(optional_parts_may_be_absent)
{
    static const uint8_t all_global[4] = {0};
    static const float none = 0;
    static const uint32_t pattern = 2;
    const struct {
        const char *variant;
        struct change change;
    } cases[] = {
        {"gemma4", {WITHOUT_KEY("final_logit_softcapping")}},
        {"gemma4", {KEY("final_logit_softcapping", GGUF_F32, 0, &none)}},
        {"gemma4", {WITHOUT_KEY("attention.shared_kv_layers")}},
        {"gemma4", {WITHOUT_KEY("embedding_length_per_layer_input")}},
        {"gemma4", {KEY("attention.sliding_window_pattern", GGUF_U32, 0, &pattern)}},
        {"gemma4", {WITHOUT("blk.2.layer_output_scale.weight")}},
        {"gemma4-experts", {WITHOUT("blk.1.ffn_down_exps.scale")}},
    };
    struct opened o;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_variant(&o, cases[i].variant, &cases[i].change);
        ck_assert_uint_eq(o.model->logit_cap != 0, i > 1);
        close_opened(&o);
    }
    struct tiny_model shape = shape_of("gemma4");
    shape.head_dim = 0;
    const struct change global[] = {
        {KEY("attention.sliding_window_pattern", GGUF_BOOL, 4, all_global)},
        {WITHOUT_KEY("attention.sliding_window")},
        {WITHOUT_KEY("attention.key_length_swa")},
    };
    struct gw w;
    size_t bytes;
    changed_write(&w, &shape, global,
                  3); /* the tensors are those of other heads: read up to there */
    uint8_t *file = gw_finish(&w, &bytes, NULL);
    ck_assert_int_eq(open_file(file, bytes, &o), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(err, "tensor blk.0.attn_q.weight is 64 x 32"));
    close_opened(&o);
}
END_TEST

START_TEST(bad_files_are_refused)
{
    static const uint32_t one = 1, two = 2, three = 3, four = 4, eight = 8, large = 4097,
                          huge = 514;
    static const uint32_t widths[4] = {96, 0, 96, 96}, few[3] = {96, 96, 96};
    static const uint32_t more_heads[5] = {2, 2, 2, 4, 2}, fewer_heads[5] = {2, 2, 2, 2, 1};
    static const uint8_t flags[3] = {1, 0, 1};
    static const float nan_cap = NAN, negative = -1;
    const struct {
        const char *variant;
        struct change change;
        int code;
        const char *part;
    } cases[] = {
        {"gemma4",
         {WITHOUT_KEY("attention.sliding_window_pattern")},
         -EBADMSG,
         "pattern is missing"},
        {"gemma4",
         {KEY("attention.sliding_window_pattern", GGUF_BOOL, 3, flags)},
         -EBADMSG,
         "a number, or 4 booleans"},
        {"gemma4",
         {KEY("attention.sliding_window_pattern", GGUF_I32, 4, widths)},
         -EBADMSG,
         "a number, or 4 booleans"},
        {"gemma4", {WITHOUT_KEY("attention.sliding_window")}, -EBADMSG, "window is missing"},
        {"gemma4", {WITHOUT_KEY("attention.key_length_swa")}, -EBADMSG, "length_swa is missing"},
        {"gemma4", {WITHOUT_KEY("attention.value_length_swa")}, -EBADMSG, "length_swa is missing"},
        {"gemma4",
         {KEY("attention.key_length_swa", GGUF_U32, 0, &huge)},
         -ENOTSUP,
         "heads of 514 dimensions"},
        {"gemma4",
         {KEY("attention.value_length_swa", GGUF_U32, 0, &three)},
         -ENOTSUP,
         "heads of 3 dimensions"},
        {"gemma4",
         {KEY("attention.key_length_swa", GGUF_U32, 0, &four)},
         -EBADMSG,
         "blk.0.attn_q.weight is"},
        {"gemma4",
         {KEY("rope.dimension_count_swa", GGUF_U32, 0, &huge)},
         -ENOTSUP,
         "rope over 514 of 8"},
        {"gemma4",
         {KEY("attention.value_length", GGUF_U32, 0, &two)},
         -EBADMSG,
         "blk.1.attn_output.weight is"},
        {"gemma4",
         {KEY("attention.shared_kv_layers", GGUF_U32, 0, &four)},
         -EBADMSG,
         "shared_kv_layers must be 1 to 3"},
        {"gemma4",
         {KEY("attention.shared_kv_layers", GGUF_U32, 0, &three)},
         -EBADMSG,
         "layer 1 shares KV (gemma4.attention.shared_kv_layers), and no layer before these is "
         "global"},
        {"gemma4-inputs",
         {KEY("attention.head_count_kv", GGUF_U32, 5, more_heads)},
         -EBADMSG,
         "layer 3 with 4 key/value heads shares those of layer 1, which has 2"},
        {"gemma4-inputs",
         {KEY("attention.head_count_kv", GGUF_U32, 5, fewer_heads)},
         -EBADMSG,
         "layer 4 with 1 key/value heads shares those of layer 0, which has 2"},
        {"gemma4",
         {KEY("feed_forward_length", GGUF_U32, 4, widths)},
         -EBADMSG,
         "feed_forward_length holds 0, must be 1 to"},
        {"gemma4",
         {KEY("feed_forward_length", GGUF_U32, 3, few)},
         -EBADMSG,
         "must be a number, or 4 of them"},
        {"gemma4",
         {KEY("final_logit_softcapping", GGUF_F32, 0, &nan_cap)},
         -EBADMSG,
         "softcapping must be"},
        {"gemma4",
         {KEY("final_logit_softcapping", GGUF_F32, 0, &negative)},
         -EBADMSG,
         "softcapping must be"},
        {"gemma4", {KEY("final_logit_softcapping", GGUF_U32, 0, &one)}, -EBADMSG, "not a float"},
        {"gemma4",
         {KEY("embedding_length_per_layer_input", GGUF_U32, 0, &large)},
         -EBADMSG,
         "must be 1 to 4096"},
        {"gemma4",
         {KEY("embedding_length_per_layer_input", GGUF_U32, 0, &one)},
         -EBADMSG,
         "tensor per_layer_token_embd.weight is missing"},
        {"gemma4", {KEY("attn_logit_softcapping", GGUF_F32, 0, &negative)}, -ENOTSUP, "capped"},
        {"gemma4", {WITHOUT("rope_freqs.weight")}, -EBADMSG, "rope_freqs.weight is missing"},
        {"gemma4", {WITHOUT("blk.1.attn_k.weight")}, -EBADMSG, "attn_k.weight is missing"},
        {"gemma4", {WITHOUT("blk.1.post_ffw_norm.weight")}, -EBADMSG, "norm.weight is missing"},
        {"gemma4",
         {.tensor = "blk.1.layer_output_scale.weight", .tensor_type = QUANT_F32, .cols = 2},
         -EBADMSG,
         "layer_output_scale.weight is 2 x"},
        {"gemma4-experts",
         {WITHOUT_KEY("expert_feed_forward_length")},
         -EBADMSG,
         "expert_feed_forward_length is missing"},
        {"gemma4-experts",
         {WITHOUT_KEY("feed_forward_length")},
         -EBADMSG,
         "gemma4.feed_forward_length is missing"},
        {"gemma4-experts", {WITHOUT("blk.0.ffn_gate_inp.scale")}, -EBADMSG, "scale is missing"},
        {"gemma4-experts",
         {WITHOUT("blk.0.pre_ffw_norm_2.weight")},
         -EBADMSG,
         "_2.weight is missing"},
        {"gemma4-experts",
         {.tensor = "blk.0.ffn_down_exps.scale", .tensor_type = QUANT_F32, .cols = 6},
         -EBADMSG,
         "ffn_down_exps.scale is 6 x"},
        {"gemma4-inputs",
         {WITHOUT("blk.4.inp_gate.weight")},
         -EBADMSG,
         "inp_gate.weight is missing"},
        {"gemma4-inputs",
         {WITHOUT("per_layer_proj_norm.weight")},
         -EBADMSG,
         "norm.weight is missing"},
        {"gemma4-inputs",
         {.tensor = "per_layer_model_proj.weight",
          .tensor_type = QUANT_Q8_0,
          .cols = 64,
          .rows = 160},
         -ENOTSUP,
         "per_layer_model_proj.weight is Q8_0: not supported; it must be F32, F16 or BF16"},
        {"gemma4-inputs",
         {.tensor = "per_layer_token_embd.weight",
          .tensor_type = QUANT_Q8_0,
          .cols = 64,
          .rows = 320},
         -EBADMSG,
         "per_layer_token_embd.weight is 64 x 320"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refuse(cases[i].variant, &cases[i].change, 1, cases[i].code, cases[i].part);
    const struct change unequal[] = {
        {KEY("attention.value_length", GGUF_U32, 0, &eight)},
        {.tensor = "blk.1.attn_output.weight", .tensor_type = QUANT_F16, .cols = 32, .rows = 64}};
    refuse("gemma4", unequal, 2, -EBADMSG, "layer 1 has no attn_v.weight, and heads of 16 and 8");
}
END_TEST

/* Q, K and V may be rows of one tensor. */
START_TEST(fused_heads_are_views)
{
    const struct tiny_model shape = shape_of("gemma4");
    const struct change change[] = {
        {WITHOUT("blk.0.attn_q.weight")},
        {WITHOUT("blk.0.attn_k.weight")},
        {WITHOUT("blk.0.attn_v.weight")},
        {.tensor = "blk.0.attn_qkv.weight", .tensor_type = QUANT_Q8_0, .cols = 64, .rows = 64},
    };
    struct opened o;
    changed_open(&o, &shape, change, 4);
    const struct model_tensor *t = o.model->layers[0].tensor;
    ck_assert(t[MODEL_ATTN_Q].rows == 32 && t[MODEL_ATTN_K].rows == 16 &&
              t[MODEL_ATTN_V].rows == 16);
    ck_assert_ptr_eq(t[MODEL_ATTN_V].data, t[MODEL_ATTN_Q].data + 48 * t[MODEL_ATTN_Q].row_bytes);
    close_opened(&o);
}
END_TEST

/* What answers depend on is in the fingerprint. */
START_TEST(a_fingerprint_depends_on_what_is_new)
{
    static const float other = 9, base = 5e3f;
    static const uint32_t window = 21;
    const struct change change[] = {{KEY("final_logit_softcapping", GGUF_F32, 0, &other)},
                                    {KEY("rope.freq_base_swa", GGUF_F32, 0, &base)},
                                    {KEY("attention.sliding_window", GGUF_U32, 0, &window)}};
    uint8_t seen[4][MODEL_FINGERPRINT_BYTES];
    for (int i = 0; i < 4; i++) {
        struct opened o;
        open_variant(&o, "gemma4", i == 0 ? NULL : &change[i - 1]);
        ck_assert_int_eq(model_fingerprint(o.model, 1, seen[i]), 0);
        close_opened(&o);
        for (int k = 0; k < i; k++)
            ck_assert_mem_ne(seen[k], seen[i], sizeof(seen[0]));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_gemma4");
    TCase *tcase = tcase_create("gemma4");
    tcase_add_test(tcase, layers_are_of_two_kinds);
    tcase_add_test(tcase, layers_share_the_kv_of_the_last_of_their_kind);
    tcase_add_test(tcase, kv_of_layers_that_share_it_is_left_out);
    tcase_add_test(tcase, experts_are_beside_a_dense_part);
    tcase_add_test(tcase, optional_parts_may_be_absent);
    tcase_add_test(tcase, bad_files_are_refused);
    tcase_add_test(tcase, fused_heads_are_views);
    tcase_add_test(tcase, a_fingerprint_depends_on_what_is_new);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
