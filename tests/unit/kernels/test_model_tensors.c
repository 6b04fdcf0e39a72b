/* The tensors of a model: wrong, missing, surplus and badly aligned ones are refused by name. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/model_opened.h"

/* What replaces one tensor of a model with one layer. */
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
    {"blk.0.ffn_up.weight", 40, 64, 96, -ENOTSUP,
     "tensor blk.0.ffn_up.weight is NVFP4: not supported yet; supported: F32, F16, BF16, Q8_0, "
     "Q6_K, Q5_K, Q5_1, Q5_0, Q4_K, Q4_1, Q4_0, Q3_K, Q2_K, IQ4_NL, IQ4_XS, IQ3_S, IQ3_XXS, MXFP4"},
    {"blk.0.ffn_up.weight", 9, 64, 96, -ENOTSUP, "is Q8_1"},
    {"blk.0.ffn_up.weight", 24, 64, 96, -ENOTSUP, "is I8"},
    {"output.weight", 28, 64, 40, -ENOTSUP, "output.weight is F64"},
    {"rope_freqs.weight", QUANT_F32, 16, 0, -EBADMSG, "must be 8 x 1"},
    {"rope_freqs.weight", QUANT_F16, 8, 0, -ENOTSUP, "vectors must be F32"},
    {"rope_factors_long.weight", QUANT_F32, 8, 0, -EBADMSG, "belong together, one is missing"},
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

int main(void)
{
    Suite *suite = suite_create("model_tensors");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, wrong_tensors_are_refused);
    tcase_add_test(core, data_that_is_not_aligned_is_refused);
    suite_add_tcase(suite, core);
    return run_suite(suite);
}
