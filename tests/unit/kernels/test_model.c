/* The model: supported files open with the right sizes, all others are refused by name.
 * Hyperparameters are in test_model_keys.c, wrong tensors in test_model_tensors.c. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/rig/model_opened.h"
#include "tests/rig/tiny_model.h"

/* ---- files that open
 * -------------------------------------------------------------------------- */

START_TEST(a_small_llama_opens_in_every_type)
{
    for (size_t i = 0; i < EVERY_TYPE; i++) {
        struct opened o;
        struct gw_llama spec = gw_llama_small(every_type[i]);
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
        ck_assert_uint_eq(m->ropes[0].n, spec.n_embd / 4);
        ck_assert_uint_eq(m->n_vocab, 40);
        ck_assert_uint_eq(m->n_context, 128);
        ck_assert(m->ropes[0].base == 10000.0f);
        ck_assert(m->rms_eps == 1e-5f);
        ck_assert_int_eq(m->rope, MODEL_ROPE_ADJACENT);
        ck_assert_str_eq(model_type_name(m), quant_name(every_type[i]));
        bool quantized = quant_find(every_type[i])->quantized;
        ck_assert(model_portable(m) == quantized);
        ck_assert_str_eq(model_numerics_id(m, true),
                         quantized ? "portable-1-kvq8" : "cpu-float-1-kvq8");
        ck_assert_str_eq(model_numerics_id(m, false), quantized ? "portable-1"
                                                      : every_type[i] == QUANT_F32
                                                          ? "cpu-float-1-kvf32"
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

START_TEST(a_missing_output_matrix_is_the_embedding)
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
START_TEST(only_layer_weights_decide_the_numerics)
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

/* ---- the kind of file ------------------------------------------------------------------------ */

START_TEST(other_kinds_of_files_are_refused_by_name)
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
                  "architecture mamba is not supported yet; supported: llama, qwen2, qwen3, "
                  "qwen3moe, gemma3, granite, smollm3, phi3, seed_oss, ernie4_5, glm4, exaone4, "
                  "olmo2, mistral3, "
                  "qwen2moe, glm4moe, dots1, qwen35, "
                  "qwen35moe, qwen3next, lfm2, lfm2moe, granitehybrid, granitemoe, ernie4_5-moe, "
                  "gpt-oss");
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
    gw_key_string(&w, "llama.rope.scaling.type", "dynamic");
    gw_llama_tensors(&w, &spec);
    check_refused(&w, -ENOTSUP, "rope scaling of type dynamic (llama.rope.scaling.type)");
}
END_TEST

/* ---- architectures --------------------------------------------------------------------------- */

START_TEST(an_architecture_has_its_own_tensors)
{
    static const struct {
        const char *arch;
        enum model_rope rope;
        bool bias, norm, gemma;
    } ARCHS[] = {{"llama", MODEL_ROPE_ADJACENT, false, false, false},
                 {"qwen2", MODEL_ROPE_HALVES, true, false, false},
                 {"qwen3", MODEL_ROPE_HALVES, false, true, false},
                 {"gemma3", MODEL_ROPE_HALVES, false, true, true},
                 {"granite", MODEL_ROPE_ADJACENT, false, false, false},
                 {"smollm3", MODEL_ROPE_ADJACENT, false, false, false},
                 {"phi3", MODEL_ROPE_HALVES, false, false, false},
                 {"mistral3", MODEL_ROPE_ADJACENT, false, false, false}};
    for (size_t i = 0; i < sizeof(ARCHS) / sizeof(ARCHS[0]); i++) {
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
        ck_assert_uint_eq(t[MODEL_ATTN_POST_NORM].cols, ARCHS[i].gemma ? 64 : 0);
        ck_assert_uint_eq(t[MODEL_FFN_POST_NORM].cols, ARCHS[i].gemma ? 64 : 0);
        ck_assert_int_eq(o.model->gate, ARCHS[i].gemma ? MODEL_GATE_GELU : MODEL_GATE_SILU);
        const bool granite = strcmp(ARCHS[i].arch, "granite") == 0;
        ck_assert(o.model->embd_scale == (ARCHS[i].gemma ? 8.0f : granite ? 3.0f : 1.0f));
        ck_assert(o.model->residual_scale == (granite ? 0.6f : 1.0f));
        ck_assert(o.model->logit_scale == (granite ? 1.7f : 1.0f));
        ck_assert(o.model->score_scale == (granite ? 0.3f : 1.0f / sqrtf(24)));
        ck_assert_uint_eq(o.model->ropes[0].n, strcmp(ARCHS[i].arch, "phi3") == 0 ? 22 : 24);
        const bool mistral = strcmp(ARCHS[i].arch, "mistral3") == 0;
        ck_assert(o.model->temperature_scale == (mistral ? 0.25f : 0.0f));
        ck_assert_uint_eq(o.model->ropes[0].yarn.original, mistral ? 12 : 0);
        ck_assert_uint_eq(o.model->layers[0].geometry.sliding_window,
                          ARCHS[i].gemma ? 20 : MODEL_NO_WINDOW);
        ck_assert_uint_eq(o.model->layers[1].geometry.sliding_window, MODEL_NO_WINDOW);
        close_opened(&o);
    }
}
END_TEST

/* Names are traps: what other files call the norm of what attention adds is the one before the experts.
 * Even layers attend in a window and turn as the others do, by YaRN between whole numbers. */
START_TEST(gpt_oss_has_biases_sinks_and_a_norm_of_another_name)
{
    static const struct {
        enum model_layer_tensor tensor;
        uint32_t rows, cols;
    } SHAPES[] = {{MODEL_ATTN_Q_BIAS, 1, 64},      {MODEL_ATTN_K_BIAS, 1, 32},
                  {MODEL_ATTN_V_BIAS, 1, 32},      {MODEL_ATTN_SINKS, 1, 4},
                  {MODEL_ATTN_OUT_BIAS, 1, 64},    {MODEL_FFN_NORM, 1, 64},
                  {MODEL_FFN_ROUTER_BIAS, 1, 7},   {MODEL_FFN_GATE_EXPS_BIAS, 7, 96},
                  {MODEL_FFN_UP_EXPS_BIAS, 7, 96}, {MODEL_FFN_DOWN_EXPS_BIAS, 7, 64}};
    struct opened o;
    size_t bytes;
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.arch = "gpt-oss";
    shape.n_layer = 4;
    uint8_t *file = tiny_model_file(&shape, &bytes);
    int rc = open_file(file, bytes, &o);
    ck_assert_msg(rc == 0, "%d: %s", rc, err);
    const struct model *m = o.model;
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i++) {
        const struct model_tensor *t = &m->layers[1].tensor[SHAPES[i].tensor];
        ck_assert(t->data && t->rows == SHAPES[i].rows && t->cols == SHAPES[i].cols);
        ck_assert(t->n_matrices == 1 && model_layer_vector(SHAPES[i].tensor));
    }
    ck_assert_ptr_eq(m->layers[1].tensor[MODEL_FFN_NORM].data,
                     gguf_find_tensor(o.gguf, "blk.1.post_attention_norm.weight")->data);
    ck_assert_ptr_null(m->layers[1].tensor[MODEL_ATTN_POST_NORM].data);
    ck_assert(m->gate == MODEL_GATE_SWIGLU && m->rope == MODEL_ROPE_HALVES && !m->tied);
    ck_assert(model_portable(m)); /* vectors and a router in F32 do not count */
    ck_assert(m->n_ropes == 1 && m->ropes[0].yarn.original == 64 && !m->ropes[0].yarn.truncated);
    for (uint32_t l = 0; l < 4; l++) {
        ck_assert_uint_eq(m->layers[l].geometry.sliding_window, l % 2 ? MODEL_NO_WINDOW : 20);
        ck_assert_uint_eq(m->layers[l].geometry.rope, 0);
    }
    close_opened(&o);
}
END_TEST

START_TEST(gpt_oss_without_one_of_its_tensors_is_refused)
{
    static const char *const NAMES[] = {"output.weight",
                                        "blk.1.attn_sinks.weight",
                                        "blk.1.attn_output.bias",
                                        "blk.1.ffn_gate_inp.bias",
                                        "blk.1.ffn_gate_exps.bias",
                                        "blk.1.ffn_up_exps.bias",
                                        "blk.1.ffn_down_exps.bias",
                                        "blk.1.post_attention_norm.weight"};
    struct opened o;
    size_t bytes;
    char want[96];
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    shape.arch = "gpt-oss";
    uint8_t *file = tiny_model_file(&shape, &bytes);
    const size_t length = strlen(NAMES[_i]);
    for (size_t at = 8; at + length <= bytes; at++)
        if (memcmp(file + at, NAMES[_i], length) == 0 && file[at - 8] == length)
            file[at + length - 1] = 'X';
    snprintf(want, sizeof(want), "malformed: tensor %s is missing", NAMES[_i]);
    ck_assert_int_eq(open_file(file, bytes, &o), -EBADMSG);
    ck_assert_str_eq(err, want);
    close_opened(&o);
}
END_TEST

/* Every fourth layer of smollm3 has no rope, the others the first table. */
START_TEST(some_layers_have_no_rope)
{
    struct opened o;
    size_t bytes;
    struct tiny_model shape = tiny_model_default(QUANT_F16);
    shape.arch = "smollm3";
    shape.n_layer = 9;
    uint8_t *file = tiny_model_file(&shape, &bytes);
    ck_assert_int_eq(open_file(file, bytes, &o), 0);
    for (uint32_t i = 0; i < 9; i++)
        ck_assert_uint_eq(o.model->layers[i].geometry.rope, i % 4 == 3 ? MODEL_NO_ROPE : 0);
    close_opened(&o);
}
END_TEST

/* phi3's attn_qkv is Q's rows, then K's, then V's; its ffn_up those of the gate, then up's. */
START_TEST(fused_tensors_are_views_of_their_rows)
{
    struct opened o;
    size_t bytes;
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.arch = "phi3";
    uint8_t *file = tiny_model_file(&shape, &bytes);
    ck_assert_int_eq(open_file(file, bytes, &o), 0);
    const struct model_tensor *t = o.model->layers[1].tensor;
    const struct gguf_tensor *qkv = gguf_find_tensor(o.gguf, "blk.1.attn_qkv.weight"),
                             *up = gguf_find_tensor(o.gguf, "blk.1.ffn_up.weight");
    ck_assert(t[MODEL_ATTN_Q].rows == 64 && t[MODEL_ATTN_K].rows == 32);
    ck_assert(t[MODEL_ATTN_V].rows == 32 && t[MODEL_FFN_GATE].rows == 96);
    ck_assert_ptr_eq(t[MODEL_ATTN_Q].data, qkv->data);
    ck_assert_ptr_eq(t[MODEL_ATTN_K].data, qkv->data + 64 * t[MODEL_ATTN_Q].row_bytes);
    ck_assert_ptr_eq(t[MODEL_ATTN_V].data, qkv->data + 96 * t[MODEL_ATTN_Q].row_bytes);
    ck_assert_ptr_eq(t[MODEL_FFN_GATE].data, up->data);
    ck_assert_ptr_eq(t[MODEL_FFN_UP].data, up->data + t[MODEL_FFN_GATE].bytes);
    ck_assert_uint_eq(t[MODEL_FFN_GATE].bytes + t[MODEL_FFN_UP].bytes, up->bytes);
    close_opened(&o);
}
END_TEST

/* The tensors of one architecture under another's name: one of them is missing. */
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

/* The same for gemma3, whose name is longer: its own norms are missing. */
START_TEST(gemma3_without_its_norms_is_refused)
{
    static const char *const NORMS[] = {"post_attention_norm", "post_ffw_norm"};
    struct opened o;
    size_t bytes;
    char tensor[64];
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    shape.arch = "gemma3";
    uint8_t *file = tiny_model_file(&shape, &bytes);
    for (size_t at = 0; at + 20 <= bytes; at++)
        if (memcmp(file + at, NORMS[_i], strlen(NORMS[_i])) == 0)
            file[at] = 'P';
    ck_assert_int_eq(open_file(file, bytes, &o), -EBADMSG);
    snprintf(tensor, sizeof(tensor), "malformed: tensor blk.0.%s.weight is missing", NORMS[_i]);
    ck_assert_str_eq(err, tensor);
    close_opened(&o);
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

int main(void)
{
    Suite *suite = suite_create("model");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, a_small_llama_opens_in_every_type);
    tcase_add_test(core, tensors_have_their_shapes);
    tcase_add_test(core, a_missing_output_matrix_is_the_embedding);
    tcase_add_test(core, a_model_describes_itself_in_one_line);
    tcase_add_test(core, only_layer_weights_decide_the_numerics);
    tcase_add_test(core, other_kinds_of_files_are_refused_by_name);
    tcase_add_test(core, an_architecture_has_its_own_tensors);
    tcase_add_test(core, gpt_oss_has_biases_sinks_and_a_norm_of_another_name);
    tcase_add_loop_test(core, gpt_oss_without_one_of_its_tensors_is_refused, 0, 8);
    tcase_add_test(core, some_layers_have_no_rope);
    tcase_add_test(core, fused_tensors_are_views_of_their_rows);
    tcase_add_test(core, another_architectures_tensors_are_refused);
    tcase_add_loop_test(core, gemma3_without_its_norms_is_refused, 0, 2);
    tcase_add_test(core, tokenizer_and_embedding_must_agree);
    suite_add_tcase(suite, core);
    TCase *data = add_testdata_case(suite, 120);
    if (data)
        tcase_add_test(data, trained_models_open);
    return run_suite(suite);
}
