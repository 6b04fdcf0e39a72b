/* Which tensor of a quantized file has which type: the table in kernels/tools/type_mix.h. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/quant/quant_types.h"
#include "kernels/tools/type_mix.h"
#include "tests/run_suite.h"

/* The type of a tensor in a model of 24 layers with rows of 1024, two heads to a KV head. */
static const char *of(const char *mix, const char *tensor, bool tied)
{
    const struct type_mix_model model = {.n_layer = 24, .n_gqa = 2, .tied = tied};
    return quant_name(type_mix_of(type_mix_find(mix), tensor, 1024, &model));
}

static const char *in_layer(const char *mix, uint32_t layer, const char *part)
{
    char name[64];
    snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, part);
    return of(mix, name, false);
}

START_TEST(plain_types_apply_to_every_tensor)
{
    static const char *const mixes[] = {"F32", "F16", "BF16", "Q8_0"};
    for (size_t i = 0; i < sizeof(mixes) / sizeof(mixes[0]); i++) {
        ck_assert_str_eq(of(mixes[i], "token_embd.weight", true), mixes[i]);
        ck_assert_str_eq(of(mixes[i], "output.weight", false), mixes[i]);
        ck_assert_str_eq(in_layer(mixes[i], 0, "ffn_down"), mixes[i]);
    }
}
END_TEST

START_TEST(the_output_matrix_has_more_bits)
{
    static const char *const mixes[] = {"Q4_0", "Q5_0", "Q5_1", "Q4_K_S", "Q4_K_M", "Q6_K"};
    for (size_t i = 0; i < sizeof(mixes) / sizeof(mixes[0]); i++) {
        ck_assert_str_eq(of(mixes[i], "token_embd.weight", true), "Q6_K");
        ck_assert_str_eq(of(mixes[i], "output.weight", false), "Q6_K");
    }
    ck_assert_str_eq(of("Q4_0", "token_embd.weight", false), "Q4_0");
    ck_assert_str_eq(of("Q4_K_M", "token_embd.weight", false), "Q4_K");
}
END_TEST

/* 24 layers: an eighth is 3. More bits: 0..2, 21..23, and 5, 8, 11, 14, 17, 20. */
START_TEST(medium_mixes_favour_some_layers)
{
    for (uint32_t layer = 0; layer < 24; layer++) {
        bool more = layer < 3 || layer >= 21 || layer % 3 == 2;
        ck_assert_str_eq(in_layer("Q4_K_M", layer, "attn_v"), more ? "Q6_K" : "Q4_K");
        ck_assert_str_eq(in_layer("Q4_K_M", layer, "ffn_down"), more ? "Q6_K" : "Q4_K");
        ck_assert_str_eq(in_layer("Q5_K_M", layer, "ffn_down"), more ? "Q6_K" : "Q5_K");
        ck_assert_str_eq(in_layer("Q4_K_M", layer, "attn_q"), "Q4_K");
        ck_assert_str_eq(in_layer("Q4_K_M", layer, "ffn_up"), "Q4_K");
    }
}
END_TEST

START_TEST(small_mixes_favour_the_first_layers)
{
    for (uint32_t layer = 0; layer < 24; layer++) {
        ck_assert_str_eq(in_layer("Q4_K_S", layer, "attn_v"), layer < 4 ? "Q5_K" : "Q4_K");
        ck_assert_str_eq(in_layer("Q4_K_S", layer, "ffn_down"), layer < 3 ? "Q5_K" : "Q4_K");
        ck_assert_str_eq(in_layer("Q5_K_S", layer, "ffn_down"), "Q5_K");
    }
}
END_TEST

/* Rows of 896, as the 0.5B shape has. */
/* As llama.cpp's llama_tensor_get_type. */
START_TEST(small_types_keep_more_bits_in_some_tensors)
{
    static const struct {
        const char *mix, *tensor, *type;
    } cases[] = {
        {"Q2_K", "blk.9.attn_q.weight", "Q2_K"},
        {"Q2_K", "blk.9.attn_v.weight", "Q3_K"},
        {"Q2_K", "blk.9.attn_output.weight", "Q3_K"},
        {"Q2_K", "blk.9.ffn_down.weight", "Q3_K"},
        {"Q3_K_S", "blk.9.ffn_down.weight", "Q3_K"},
        {"Q3_K_M", "blk.1.attn_v.weight", "Q5_K"},
        {"Q3_K_M", "blk.2.attn_v.weight", "Q4_K"},
        {"Q3_K_M", "blk.0.ffn_down.weight", "Q5_K"},
        {"Q3_K_M", "blk.1.ffn_down.weight", "Q4_K"},
        {"Q3_K_M", "blk.9.attn_output.weight", "Q4_K"},
        {"Q3_K_M", "blk.9.ffn_up.weight", "Q3_K"},
        {"Q3_K_L", "blk.9.attn_v.weight", "Q5_K"},
        {"Q3_K_L", "blk.9.attn_qkv.weight", "Q4_K"},
        {"Q4_K_M", "blk.9.attn_qkv.weight", "Q5_K"},
        {"IQ4_XS", "blk.2.ffn_down.weight", "Q5_K"},
        {"IQ4_XS", "blk.3.ffn_down.weight", "IQ4_XS"},
        {"IQ4_NL", "blk.9.attn_v.weight", "IQ4_NL"},
        {"IQ4_XS", "output.weight", "Q6_K"},
        {"MXFP4", "output.weight", "Q8_0"},
        {"MXFP4", "blk.9.ffn_down.weight", "MXFP4"},
        {"MXFP4_MOE", "blk.9.ffn_down_exps.weight", "MXFP4"},
        {"MXFP4_MOE", "blk.9.ffn_gate_inp.weight", "F32"},
        {"MXFP4_MOE", "blk.9.ffn_down_exps.bias", "F32"},
        {"Q4_K_M", "blk.9.ffn_gate_inp.weight", "F32"},
        {"F16", "blk.9.shortconv.conv.weight", "F32"},
        {"F16", "blk.9.ssm_a", "F32"},
        {"F16", "blk.9.ssm_norm.weight", "F32"},
        {"Q4_K_M", "blk.9.ssm_norm.weight", "F32"},
        {"Q4_K_M", "blk.9.ssm_d", "F32"},
        {"MXFP4_MOE", "output.weight", "Q8_0"},
    };
    const struct type_mix_model grouped = {.n_layer = 24, .n_gqa = 4};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_msg(strcmp(of(cases[i].mix, cases[i].tensor, false), cases[i].type) == 0,
                      "%s of %s", cases[i].tensor, cases[i].mix);
    ck_assert_uint_eq(type_mix_of(type_mix_find("Q2_K"), "blk.9.attn_v.weight", 1024, &grouped),
                      QUANT_Q4_K);
    ck_assert_uint_eq(type_mix_of(type_mix_find("IQ4_NL"), "blk.9.attn_v.weight", 1024, &grouped),
                      QUANT_Q5_K);
}
END_TEST

START_TEST(rows_that_do_not_fit_take_another_type)
{
    const struct type_mix_model model = {.n_layer = 24, .n_gqa = 2, .tied = true};
    const struct {
        const char *mix, *tensor;
        uint64_t cols;
        const char *type;
    } cases[] = {
        {"Q4_K_M", "blk.4.attn_q.weight", 896, "Q5_0"},
        {"Q5_K_M", "blk.4.attn_q.weight", 896, "Q5_1"},
        {"Q4_K_M", "blk.0.attn_v.weight", 896, "Q8_0"},
        {"Q4_0", "token_embd.weight", 896, "Q8_0"},
        {"Q4_0", "blk.4.attn_q.weight", 896, "Q4_0"},
        {"Q4_K_M", "blk.4.ffn_down.weight", 4864, "Q4_K"},
        {"Q3_K_S", "blk.4.attn_q.weight", 2880, "Q4_0"},
        {"Q2_K", "blk.4.attn_q.weight", 2880, "Q4_0"},
        {"IQ4_XS", "blk.4.attn_q.weight", 2880, "IQ4_NL"},
        {"MXFP4", "blk.4.attn_q.weight", 2880, "MXFP4"},
        {"MXFP4", "blk.4.attn_q.weight", 100, "F16"},
        {"Q8_0", "blk.4.attn_q.weight", 100, "F16"},
        {"Q4_K_M", "blk.4.attn_q.weight", 100, "F16"},
        {"F32", "blk.4.attn_q.weight", 100, "F32"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_str_eq(quant_name(type_mix_of(type_mix_find(cases[i].mix), cases[i].tensor,
                                                cases[i].cols, &model)),
                         cases[i].type);
}
END_TEST

START_TEST(names_are_whole_and_in_any_case)
{
    char names[256];
    type_mix_names(names, sizeof(names));
    ck_assert(strncmp(names, "F32, F16, BF16, Q8_0, ", 22) == 0);
    ck_assert_ptr_nonnull(type_mix_find("Q8_0"));
    ck_assert_ptr_eq(type_mix_find("q8_0"), type_mix_find("Q8_0"));
    ck_assert_ptr_null(type_mix_find("Q8"));
    ck_assert_ptr_null(type_mix_find(""));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("type_mix");
    TCase *t = tcase_create("type_mix");
    tcase_add_test(t, plain_types_apply_to_every_tensor);
    tcase_add_test(t, the_output_matrix_has_more_bits);
    tcase_add_test(t, medium_mixes_favour_some_layers);
    tcase_add_test(t, small_mixes_favour_the_first_layers);
    tcase_add_test(t, small_types_keep_more_bits_in_some_tensors);
    tcase_add_test(t, rows_that_do_not_fit_take_another_type);
    tcase_add_test(t, names_are_whole_and_in_any_case);
    suite_add_tcase(s, t);
    return run_suite(s);
}
