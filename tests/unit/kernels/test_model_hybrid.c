/* Models with recurrent layers: which layers are recurrent, their sizes, sections of rope, layers
 * that only draft. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/model_changed.h"

#define KEY(name, its_type, n, its_values)                                                         \
    .key = "qwen35." name, .type = its_type, .count = n, .values = its_values

static struct tiny_model shape_of_four(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.arch = "qwen35";
    shape.n_layer = 4;
    return shape;
}

/* The tiny model of four layers with the changes. */
static void write_changed(struct gw *w, const struct change *change, uint32_t n)
{
    const struct tiny_model shape = shape_of_four();
    changed_write(w, &shape, change, n);
}

static void open_changed(struct opened *o, const struct change *change, uint32_t n)
{
    const struct tiny_model shape = shape_of_four();
    changed_open(o, &shape, change, n);
}

START_TEST(bad_keys_are_refused)
{
    static const uint32_t none = 0, one = 1, three = 3, large = 257, odd = 161;
    static const uint8_t flags[5] = {1, 1, 0, 1, 0};
    static const int32_t few[] = {1, 1, 1, 0}, fourth[] = {2, 1, 1, 1}, negative[] = {2, -1, 1, 0};
    const struct {
        struct change change;
        int code;
        const char *part;
    } cases[] = {
        {{KEY("ssm.conv_kernel", GGUF_U32, 0, &three)}, -ENOTSUP, "a convolution of 3 positions"},
        {{KEY("ssm.conv_kernel", GGUF_ARRAY, 0, NULL)}, -EBADMSG, "conv_kernel is missing"},
        {{KEY("ssm.state_size", GGUF_ARRAY, 0, NULL)}, -EBADMSG, "state_size is missing"},
        {{KEY("ssm.state_size", GGUF_U32, 0, &large)}, -EBADMSG, "state_size must be 1 to 256"},
        {{KEY("ssm.state_size", GGUF_U32, 0, &three)}, -EBADMSG, "blk.0.attn_qkv.weight is"},
        {{KEY("ssm.group_count", GGUF_U32, 0, &three)}, -EBADMSG, "160 values of 4 heads over 3"},
        {{KEY("ssm.group_count", GGUF_U32, 0, &none)}, -EBADMSG, "group_count must be"},
        {{KEY("ssm.time_step_rank", GGUF_ARRAY, 0, NULL)}, -EBADMSG, "time_step_rank is missing"},
        {{KEY("ssm.inner_size", GGUF_U32, 0, &odd)}, -EBADMSG, "161 values of 4 heads"},
        {{KEY("ssm.inner_size", GGUF_U32, 0, &one)}, -EBADMSG, "1 values of 4 heads"},
        {{KEY("full_attention_interval", GGUF_U32, 0, &none)}, -EBADMSG, "interval must be"},
        {{KEY("full_attention_interval", GGUF_U32, 0, &three)}, -EBADMSG, "blk.1.attn_gate"},
        {{KEY("attention.recurrent_layers", GGUF_BOOL, 5, flags)}, -EBADMSG, "4 booleans"},
        {{KEY("attention.recurrent_layers", GGUF_U32, 0, &one)}, -EBADMSG, "4 booleans"},
        {{KEY("attention.recurrent_layers", GGUF_I32, 4, few)}, -EBADMSG, "4 booleans"},
        {{KEY("rope.dimension_sections", GGUF_I32, 4, few)}, -ENOTSUP, "all of its 4 pairs"},
        {{KEY("rope.dimension_sections", GGUF_I32, 4, fourth)}, -ENOTSUP, "all of its 4 pairs"},
        {{KEY("rope.dimension_sections", GGUF_I32, 4, negative)}, -ENOTSUP, "all of its 4"},
        {{KEY("rope.dimension_sections", GGUF_I32, 3, fourth)}, -ENOTSUP, "all of its 4 pairs"},
        {{.tensor = "blk.0.ssm_conv1d.weight", .tensor_type = QUANT_F16, .cols = 4, .rows = 208},
         -ENOTSUP,
         "vectors must be F32"},
        {{.tensor = "blk.1.ssm_a", .tensor_type = QUANT_F32, .cols = 4},
         -ENOTSUP,
         "is not part of"},
        {{.tensor = "blk.0.ffn_norm.weight", .tensor_type = QUANT_F32, .cols = 64},
         -ENOTSUP,
         "is not part of"},
        {{.tensor = "blk.4.nextn.enorm.weight", .tensor_type = QUANT_F32, .cols = 64},
         -ENOTSUP,
         "is not part of"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gw w;
        write_changed(&w, &cases[i].change, 1);
        check_refused(&w, cases[i].code, cases[i].part);
    }
}
END_TEST

START_TEST(sizes_are_read)
{
    static const int32_t sections[] = {2, 1, 1, 0};
    const struct change change = {KEY("rope.dimension_sections", GGUF_I32, 4, sections)};
    struct opened o;
    open_changed(&o, &change, 1);
    const struct layer_geometry *first = &o.model->layers[0].geometry,
                                *last = &o.model->layers[3].geometry;
    const struct delta_geometry *d = &first->delta;
    ck_assert(o.model->n_recurrent == 2 && o.model->ropes[0].n == 8);
    ck_assert(d->n_head_k == 2 && d->n_head_v == 4 && d->k_dim == 12 && d->v_dim == 40);
    ck_assert_uint_eq(d->channels, 2 * 2 * 12 + 4 * 40);
    ck_assert(last->delta.n_head_v == 0 && last->k_dim == 16 && last->q_dim == 32);
    ck_assert(first->memory == 0 && o.model->layers[2].geometry.memory == 1 && last->memory == 1);
    ck_assert_ptr_nonnull(o.model->layers[0].tensor[MODEL_FFN_NORM].data);
    ck_assert_ptr_null(o.model->layers[0].tensor[MODEL_ATTN_POST_NORM].data);
    close_opened(&o);
}
END_TEST

/* An array says which layers are recurrent, whatever the interval; the model is the same if they
 * are. */
START_TEST(an_array_of_layers_goes_before_the_interval)
{
    static const uint8_t flags[4] = {1, 0, 1, 0};
    static const uint32_t four = 4;
    const struct change change[] = {
        {KEY("attention.recurrent_layers", GGUF_BOOL, 4, flags)},
        {KEY("full_attention_interval", GGUF_U32, 0, &four)},
    };
    uint8_t seen[2][MODEL_FINGERPRINT_BYTES];
    for (uint32_t i = 0; i < 2; i++) {
        struct opened o;
        open_changed(&o, change, i == 0 ? 0 : 2);
        ck_assert_int_eq(model_fingerprint(o.model, 1, seen[i]), 0);
        close_opened(&o);
    }
    ck_assert_mem_eq(seen[0], seen[1], sizeof(seen[0]));
}
END_TEST

/* Four heads of six values fill the same tensors as two of twelve. */
START_TEST(a_fingerprint_depends_on_the_heads)
{
    static const uint32_t six = 6, four = 4;
    const struct change change[] = {{KEY("ssm.state_size", GGUF_U32, 0, &six)},
                                    {KEY("ssm.group_count", GGUF_U32, 0, &four)}};
    uint8_t seen[2][MODEL_FINGERPRINT_BYTES];
    for (uint32_t i = 0; i < 2; i++) {
        struct opened o;
        open_changed(&o, change, i == 0 ? 0 : 2);
        ck_assert_int_eq(model_fingerprint(o.model, 1, seen[i]), 0);
        close_opened(&o);
    }
    ck_assert_mem_ne(seen[0], seen[1], sizeof(seen[0]));
}
END_TEST

START_TEST(layers_that_only_draft_are_left_out)
{
    static const uint32_t five = 5, one = 1;
    static const uint8_t flags[5] = {1, 0, 1, 0, 0};
    static const uint32_t heads[5] = {2, 2, 2, 2, 2};
    const struct change change[] = {
        {KEY("block_count", GGUF_U32, 0, &five)},
        {KEY("nextn_predict_layers", GGUF_U32, 0, &one)},
        {KEY("attention.recurrent_layers", GGUF_BOOL, 5, flags)},
        {KEY("attention.head_count_kv", GGUF_U32, 5, heads)},
        {.tensor = "blk.4.attn_norm.weight", .tensor_type = QUANT_F32, .cols = 64},
        {.tensor = "blk.4.nextn.enorm.weight", .tensor_type = QUANT_F32, .cols = 64},
    };
    struct opened o;
    open_changed(&o, change, 6);
    ck_assert(o.model->n_layer == 4 && o.model->n_recurrent == 2);
    ck_assert_ptr_null(o.model->mtp); /* it has nothing that joins */
    close_opened(&o);
}
END_TEST

static void open_drafting(struct opened *o, uint32_t n_draft)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    size_t bytes;
    shape.arch = "qwen35";
    shape.n_layer = 4;
    shape.n_draft = n_draft;
    uint8_t *file = tiny_model_file(&shape, &bytes);
    ck_assert_msg(open_file(file, bytes, o) == 0, "%s", err);
}

/* It is no layer of the model: sizes, parameters and fingerprint are as without it. */
START_TEST(a_next_token_layer_is_read)
{
    uint8_t seen[2][MODEL_FINGERPRINT_BYTES];
    uint64_t n_params[2];
    for (uint32_t n = 0; n < 2; n++) {
        struct opened o;
        open_drafting(&o, n);
        const struct model_mtp *mtp = o.model->mtp;
        ck_assert(o.model->n_layer == 4 && !mtp == (n == 0));
        ck_assert(!mtp || (mtp->layer.geometry.memory == 2 && mtp->layer.geometry.q_dim == 32 &&
                           mtp->layer.geometry.delta.n_head_v == 0 && mtp->bytes > 0));
        ck_assert(!mtp || (mtp->layer.tensor[MODEL_MTP_JOIN].cols == 128 &&
                           mtp->layer.tensor[MODEL_MTP_OUTPUT_NORM].data));
        ck_assert_int_eq(model_fingerprint(o.model, 1, seen[n]), 0);
        n_params[n] = o.model->n_params;
        close_opened(&o);
    }
    ck_assert_mem_eq(seen[0], seen[1], sizeof(seen[0]));
    ck_assert_uint_eq(n_params[0], n_params[1]);
}
END_TEST

/* Several layers that draft each a token further are not what hearth runs. */
START_TEST(of_several_next_token_layers_none_is_read)
{
    struct opened o;
    open_drafting(&o, 2);
    ck_assert(o.model->n_layer == 4 && !o.model->mtp);
    close_opened(&o);
}
END_TEST

/* One that joins, but is not whole, is malformed. */
START_TEST(half_a_next_token_layer_is_refused)
{
    static const uint32_t five = 5, one = 1;
    const struct change change[] = {
        {KEY("block_count", GGUF_U32, 0, &five)},
        {KEY("nextn_predict_layers", GGUF_U32, 0, &one)},
        {.tensor = "blk.4.attn_norm.weight", .tensor_type = QUANT_F32, .cols = 64},
        {.tensor = "blk.4.nextn.eh_proj.weight", .tensor_type = QUANT_F16, .cols = 128, .rows = 64},
    };
    struct gw w;
    write_changed(&w, change, 4);
    check_refused(&w, -EBADMSG, "blk.4.attn_q.weight is missing");
}
END_TEST

/* Files may hold alpha and beta in F32, whose sums all backends keep in order, but not in F16. */
START_TEST(small_matrices_in_f32_are_portable)
{
    const uint32_t types[] = {QUANT_F32, QUANT_F16};
    for (uint32_t i = 0; i < 2; i++) {
        const struct change change[] = {
            {.tensor = "blk.0.ssm_beta.weight", .tensor_type = types[i], .cols = 64, .rows = 4},
            {.tensor = "blk.2.ssm_alpha.weight", .tensor_type = types[i], .cols = 64, .rows = 4}};
        struct opened o;
        open_changed(&o, change, 2);
        ck_assert_int_eq(model_portable(o.model), types[i] == QUANT_F32);
        close_opened(&o);
    }
}
END_TEST

/* qwen3next has beta and alpha in one matrix, and V heads 0 and 1 share K head 0. */
START_TEST(heads_of_qwen3next_follow_each_other)
{
    struct tiny_model shape = shape_of_four();
    const struct change change = {
        .tensor = "blk.0.ssm_ba.weight", .tensor_type = QUANT_F32, .cols = 64, .rows = 8};
    for (uint32_t i = 0; i < 2; i++) {
        struct opened o;
        shape.arch = i ? "qwen3next" : "qwen35";
        changed_open(&o, &shape, &change, i);
        const struct delta_geometry *d = &o.model->layers[0].geometry.delta;
        const uint32_t k_heads[2][4] = {{0, 1, 0, 1}, {0, 0, 1, 1}}, beta_at[] = {0, 1, 4, 5};
        for (uint32_t h = 0; h < 4; h++) {
            ck_assert_uint_eq(delta_k_head(d, h), k_heads[i][h]);
            ck_assert(i == 0 || delta_beta_at(d, h) == beta_at[h]);
        }
        ck_assert((o.model->layers[0].tensor[MODEL_DELTA_BETA_ALPHA].rows == 8) == (i == 1));
        ck_assert(model_portable(o.model));
        close_opened(&o);
    }
}
END_TEST

/* ---- Mamba-2 --------------------------------------------------------------------------------- */

#define MAMBA_KEY(name, its_type, n, its_values)                                                   \
    .key = "granitehybrid." name, .type = its_type, .count = n, .values = its_values

static struct tiny_model mamba_of_four(void)
{
    struct tiny_model shape = shape_of_four();
    shape.arch = "granitehybrid";
    return shape;
}

/* The parts of what one matrix makes are its rows, one after the other. */
START_TEST(sizes_of_mamba_are_read)
{
    const struct tiny_model shape = mamba_of_four();
    struct opened o;
    changed_open(&o, &shape, NULL, 0);
    const struct delta_geometry *d = &o.model->layers[0].geometry.delta;
    const struct model_tensor *t = o.model->layers[2].tensor;
    ck_assert(o.model->n_recurrent == 2 && d->mamba && !o.model->layers[1].geometry.delta.mamba);
    ck_assert(d->n_head_k == 2 && d->n_head_v == 4 && d->k_dim == 12 && d->v_dim == 40);
    ck_assert(d->channels == 208 && d->v_at == 0 && d->k_at == 160 && d->q_at == 184);
    ck_assert(delta_k_head(d, 1) == 0 && delta_k_head(d, 2) == 1);
    ck_assert(t[MODEL_DELTA_Z].rows == 160 && t[MODEL_DELTA_QKV].rows == 208);
    ck_assert(t[MODEL_MAMBA_NORM].rows == 2 && t[MODEL_MAMBA_NORM].cols == 80);
    ck_assert(t[MODEL_DELTA_ALPHA].rows == 4);
    ck_assert_ptr_eq(t[MODEL_DELTA_QKV].data, t[MODEL_DELTA_Z].data + t[MODEL_DELTA_Z].bytes);
    ck_assert_ptr_eq(t[MODEL_DELTA_ALPHA].data, t[MODEL_DELTA_QKV].data + t[MODEL_DELTA_QKV].bytes);
    ck_assert_ptr_null(t[MODEL_MAMBA_CONV_BIAS].data);
    ck_assert_ptr_nonnull(o.model->layers[0].tensor[MODEL_MAMBA_CONV_BIAS].data);
    close_opened(&o);
}
END_TEST

/* A file says by the key of another thing that attention has no rope. */
START_TEST(rope_of_granitehybrid_is_the_files_choice)
{
    static const uint8_t yes = 1;
    const struct change change = {MAMBA_KEY("rope.scaling.finetuned", GGUF_BOOL, 0, &yes)};
    const struct tiny_model shape = mamba_of_four();
    uint8_t seen[2][MODEL_FINGERPRINT_BYTES];
    for (uint32_t i = 0; i < 2; i++) {
        struct opened o;
        changed_open(&o, &shape, &change, i);
        ck_assert_uint_eq(o.model->layers[1].geometry.rope, i ? 0 : MODEL_NO_ROPE);
        ck_assert_int_eq(model_fingerprint(o.model, 1, seen[i]), 0);
        close_opened(&o);
    }
    ck_assert_mem_ne(seen[0], seen[1], sizeof(seen[0]));
}
END_TEST

START_TEST(what_mamba_cannot_have_is_refused)
{
    static const uint32_t two = 2, three = 3, six = 6, none[4] = {0, 0, 0, 0};
    const struct {
        struct change change;
        int code;
        const char *part;
    } cases[] = {
        {{MAMBA_KEY("ssm.group_count", GGUF_U32, 0, &three)},
         -EBADMSG,
         "160 values of 4 heads over 3"},
        {{MAMBA_KEY("ssm.state_size", GGUF_U32, 0, &six)}, -EBADMSG, "blk.0.ssm_in.weight is"},
        {{MAMBA_KEY("ssm.inner_size", GGUF_ARRAY, 0, NULL)}, -EBADMSG, "inner_size is missing"},
        {{MAMBA_KEY("attention.head_count_kv", GGUF_U32, 4, none)},
         -ENOTSUP,
         "without attention in any layer"},
        {{MAMBA_KEY("rope.scaling.finetuned", GGUF_U32, 0, &two)}, -EBADMSG, "not a truth value"},
        {{.tensor = "blk.0.ssm_norm.weight", .tensor_type = QUANT_F32, .cols = 160},
         -EBADMSG,
         "blk.0.ssm_norm.weight is 160 x 1 x 1 x 1, must be 80 x 2"},
        {{.tensor = "blk.0.ssm_a", .tensor_type = QUANT_F32, .cols = 4}, -EBADMSG, "blk.0.ssm_a"},
    };
    const struct tiny_model shape = mamba_of_four();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gw w;
        changed_write(&w, &shape, &cases[i].change, 1);
        check_refused(&w, cases[i].code, cases[i].part);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_hybrid");
    TCase *tcase = tcase_create("hybrid");
    tcase_add_test(tcase, bad_keys_are_refused);
    tcase_add_test(tcase, sizes_are_read);
    tcase_add_test(tcase, an_array_of_layers_goes_before_the_interval);
    tcase_add_test(tcase, a_fingerprint_depends_on_the_heads);
    tcase_add_test(tcase, layers_that_only_draft_are_left_out);
    tcase_add_test(tcase, a_next_token_layer_is_read);
    tcase_add_test(tcase, of_several_next_token_layers_none_is_read);
    tcase_add_test(tcase, half_a_next_token_layer_is_refused);
    tcase_add_test(tcase, small_matrices_in_f32_are_portable);
    tcase_add_test(tcase, heads_of_qwen3next_follow_each_other);
    tcase_add_test(tcase, sizes_of_mamba_are_read);
    tcase_add_test(tcase, rope_of_granitehybrid_is_the_files_choice);
    tcase_add_test(tcase, what_mamba_cannot_have_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
