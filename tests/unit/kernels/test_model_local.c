/* Models whose layers are local where the file gives a window, and whose norms come after their parts: exaone4, olmo2. */
#include <check.h>
#include <errno.h>

#include "tests/run_suite.h"
#include "tests/rig/model_changed.h"

static const char *const archs[] = {"exaone4", "olmo2"};

static struct tiny_model shape_of(const char *arch)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.arch = arch;
    return shape;
}

static const char *key_of(const char *arch)
{
    static char key[64];
    snprintf(key, sizeof(key), "%s.attention.sliding_window", arch);
    return key;
}

/* In exaone4 the layers that see all do not turn, in olmo2 the local ones turn as if there were no YaRN. */
START_TEST(layers_are_local_where_the_file_gives_a_window)
{
    const struct tiny_model shape = shape_of(archs[_i]);
    struct opened o;
    changed_open(&o, &shape, NULL, 0);
    const struct model *m = o.model;
    ck_assert(m->layers[0].geometry.sliding_window == 20 &&
              m->layers[1].geometry.sliding_window == MODEL_NO_WINDOW);
    ck_assert_uint_eq(m->layers[0].geometry.rope, (uint32_t)_i);
    ck_assert_uint_eq(m->layers[1].geometry.rope, _i ? 0u : MODEL_NO_ROPE);
    ck_assert_uint_eq(m->ropes[0].yarn.original, _i ? 64 : 0);
    ck_assert(m->n_ropes == 1 || (m->ropes[1].base == m->ropes[0].base &&
                                  m->ropes[1].scale == 1.0f && m->ropes[1].yarn.original == 0));
    close_opened(&o);
}
END_TEST

START_TEST(without_a_window_all_layers_see_all)
{
    static const uint32_t none = 0;
    const struct tiny_model shape = shape_of(archs[_i / 2]);
    const struct change change = {.key = key_of(archs[_i / 2]),
                                  .type = _i % 2 ? GGUF_U32 : GGUF_ARRAY, /* 0, or no key */
                                  .values = &none};
    struct opened o;
    changed_open(&o, &shape, &change, 1);
    ck_assert(o.model->n_ropes == 1 && o.model->local_sliding_window == 0);
    for (uint32_t l = 0; l < 2; l++) {
        ck_assert_uint_eq(o.model->layers[l].geometry.sliding_window, MODEL_NO_WINDOW);
        ck_assert_uint_eq(o.model->layers[l].geometry.rope, 0);
    }
    close_opened(&o);
}
END_TEST

START_TEST(norms_are_those_of_what_parts_add)
{
    const struct tiny_model shape = shape_of(archs[_i]);
    struct opened o;
    changed_open(&o, &shape, NULL, 0);
    const struct model_tensor *t = o.model->layers[1].tensor;
    ck_assert(!t[MODEL_ATTN_NORM].data && !t[MODEL_FFN_NORM].data);
    ck_assert(t[MODEL_ATTN_POST_NORM].cols == 64 && t[MODEL_FFN_POST_NORM].cols == 64);
    ck_assert_uint_eq(t[MODEL_ATTN_Q_NORM].cols, _i ? 64 : 16);
    ck_assert_uint_eq(t[MODEL_ATTN_K_NORM].cols, _i ? 32 : 16);
    close_opened(&o);
}
END_TEST

START_TEST(other_norms_are_refused)
{
    const char *arch = archs[_i];
    const struct {
        struct change change;
        int code;
        const char *part;
    } cases[] = {
        {{.tensor = "blk.0.attn_norm.weight", .tensor_type = QUANT_F32, .cols = 64},
         -ENOTSUP,
         "blk.0.attn_norm.weight is not part of"},
        {{.tensor = "blk.0.attn_k_norm.weight", .tensor_type = QUANT_F32, .cols = 24},
         -EBADMSG,
         "blk.0.attn_k_norm.weight is 24"},
    };
    const struct tiny_model shape = shape_of(arch);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gw w;
        changed_write(&w, &shape, &cases[i].change, 1);
        check_refused(&w, cases[i].code, cases[i].part);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_local");
    TCase *tcase = tcase_create("local");
    tcase_add_loop_test(tcase, layers_are_local_where_the_file_gives_a_window, 0, 2);
    tcase_add_loop_test(tcase, without_a_window_all_layers_see_all, 0, 4);
    tcase_add_loop_test(tcase, norms_are_those_of_what_parts_add, 0, 2);
    tcase_add_loop_test(tcase, other_norms_are_refused, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
