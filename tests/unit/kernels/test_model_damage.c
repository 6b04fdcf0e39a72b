/* Damaged files: any flipped bit, any inverted byte and any truncation gives an error line or a working model. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gguf/gguf_vocab.h"
#include "kernels/model/model.h"
#include "tests/run_suite.h"
#include "tests/rig/gguf_writer.h"
#include "tests/rig/model_opened.h"

/* ---- damaged files --------------------------------------------------------------------------- */

/* Opens what a daemon would, and reads the ends of every view. */
static void use_file(const uint8_t *file, size_t bytes)
{
    struct gguf *g;
    struct gguf_vocab vocab;
    struct model *m;
    unsigned sum = 0;
    err[0] = 0;
    if (gguf_open_memory(file, bytes, &g, err, sizeof(err))) {
        ck_assert_uint_gt(strlen(err), 0);
        return;
    }
    if (gguf_vocab_open(g, &vocab, err, sizeof(err)) == 0)
        gguf_vocab_close(&vocab);
    if (model_open(g, &m, err, sizeof(err)) == 0) {
        for (uint32_t layer = 0; layer < m->n_layer; layer++)
            for (uint32_t i = 0; i < MODEL_N_LAYER_TENSORS; i++)
                if (m->layers[layer].tensor[i].data)
                    sum += m->layers[layer].tensor[i].data[m->layers[layer].tensor[i].bytes - 1];
        ck_assert_uint_le(sum, m->n_layer * MODEL_N_LAYER_TENSORS * 255);
        model_close(m);
    } else {
        ck_assert_uint_gt(strlen(err), 0);
    }
    gguf_close(g);
}

/* The copy is exactly as long as the part, so that a sanitizer sees a read beyond it. */
static void use_part(const uint8_t *file, size_t bytes)
{
    uint8_t *part;
    ck_assert_int_eq(posix_memalign((void **)&part, 64, bytes > 0 ? bytes : 1), 0);
    memcpy(part, file, bytes);
    use_file(part, bytes);
    free(part);
}

START_TEST(every_bit_flip_and_truncation_is_survived)
{
    size_t bytes;
    size_t data_at;
    struct gw_llama spec = {.n_layer = 1,
                            .n_embd = 32,
                            .n_ff = 32,
                            .n_head = 2,
                            .n_head_kv = 1,
                            .n_vocab = 6,
                            .n_context = 16,
                            .type = QUANT_Q4_0,
                            .seed = 3};
    uint8_t *file = gw_llama_file(&spec, &bytes, &data_at);
    static const uint8_t MASKS[] = {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff};
    for (size_t i = 0; i < data_at + 64; i++)
        for (size_t k = 0; k < sizeof(MASKS); k++) {
            file[i] ^= MASKS[k];
            use_file(file, bytes);
            file[i] ^= MASKS[k];
        }
    for (size_t n = 0; n < bytes; n++)
        use_part(file, n);
    use_file(file, bytes);
    ck_assert_str_eq(err, "");
    free(file);
}
END_TEST

/* Byte flips over the metadata of models with biases, head norms and rope divisors, and over the
 * divisors themselves. */
START_TEST(damaged_models_of_other_architectures_are_survived)
{
    static const char *const NAMES[] = {"qwen2", "qwen3", "llama3", "gemma3", "qwen35"};
    char path[128];
    struct gguf *g;
    uint8_t *file;
    snprintf(path, sizeof(path), "tests/fixtures/oracle/%s.gguf", NAMES[_i]);
    ck_assert_msg(gguf_open(path, &g, err, sizeof(err)) == 0, "%s: %s", path, err);
    size_t bytes = gguf_file_bytes(g);
    size_t data_at = (size_t)(gguf_tensor_at(g, 0)->data - g->data);
    ck_assert_int_eq(posix_memalign((void **)&file, 64, bytes), 0);
    memcpy(file, g->data, bytes);
    gguf_close(g);
    for (size_t i = 0; i < data_at + 32; i++) {
        uint8_t mask = (uint8_t)(i % 3 == 0 ? 0xff : i % 3 == 1 ? 0x80 : 0x01);
        file[i] ^= mask;
        use_file(file, bytes);
        file[i] ^= mask;
    }
    use_file(file, bytes);
    ck_assert_str_eq(err, "");
    free(file);
}
END_TEST

/* ---- test data ---- */

/* Byte flips over the metadata of a real model and the start of its weights. */
START_TEST(a_damaged_trained_model_is_survived)
{
    struct opened o;
    open_testdata("stories260K-f32", &o);
    size_t bytes = gguf_file_bytes(o.gguf);
    size_t data_at = (size_t)(gguf_tensor_at(o.gguf, 0)->data - o.gguf->data);
    uint8_t *file;
    ck_assert_int_eq(posix_memalign((void **)&file, 64, bytes), 0);
    memcpy(file, o.gguf->data, bytes);
    close_opened(&o);
    for (size_t i = 0; i < data_at + 32; i++) {
        uint8_t mask = (uint8_t)(i % 3 == 0 ? 0xff : i % 3 == 1 ? 0x80 : 0x01);
        file[i] ^= mask;
        use_file(file, bytes);
        file[i] ^= mask;
    }
    for (size_t n = 0; n < bytes; n += n < data_at ? 13 : 40009)
        use_part(file, n);
    free(file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_damage");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, every_bit_flip_and_truncation_is_survived);
    tcase_add_loop_test(core, damaged_models_of_other_architectures_are_survived, 0, 5);
    suite_add_tcase(suite, core);
    TCase *data = add_testdata_case(suite, 120);
    if (data)
        tcase_add_test(data, a_damaged_trained_model_is_survived);
    return run_suite(suite);
}
