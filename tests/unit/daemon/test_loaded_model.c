/* Which draft models fit a model: those with the same tokens in the same order. Which models are
 * refused before any weight is read, and the limits of --kv-bytes. */
#include "daemon/model/loaded_model.h"
#include "kernels/quant/quant_types.h"
#include "tests/run_suite.h"
#include "tests/rig/tiny_model.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 6 };

struct built_vocab {
    void *block;
    struct vocab vocab;
};

/* A vocabulary of the first `n` of these texts, number `odd` replaced. */
static void open_vocab(struct built_vocab *v, uint32_t n, uint32_t odd, const char *text)
{
    static const char *const texts[TOKENS] = {"<unk>", "<s>", "</s>", "a", "b", "c"};
    struct vocab_string strings[TOKENS];
    struct vocab_desc desc;
    size_t bytes;
    char err[200] = "";

    for (uint32_t i = 0; i < n; i++) {
        const char *word = i == odd ? text : texts[i];
        strings[i] = (struct vocab_string){word, strlen(word)};
    }
    vocab_desc_init(&desc);
    desc.model = (struct vocab_string){"llama", 5};
    desc.n_tokens = n;
    desc.texts = strings;
    ck_assert_msg(vocab_build(&desc, &v->block, &bytes, err, sizeof(err)) == 0, "%s", err);
    ck_assert_msg(vocab_open(v->block, bytes, &v->vocab, err, sizeof(err)) == 0, "%s", err);
}

static int compare(uint32_t n, uint32_t odd, const char *text, char *err, size_t err_bytes)
{
    struct built_vocab model, draft;

    open_vocab(&model, TOKENS - 1, TOKENS, "");
    open_vocab(&draft, n, odd, text);
    err[0] = 0;
    int rc = loaded_model_compare_vocab(&model.vocab, &draft.vocab, err, err_bytes);
    free(model.block);
    free(draft.block);
    return rc;
}

START_TEST(equal_tokens_are_equal_vocabularies)
{
    char err[200];

    ck_assert_int_eq(compare(TOKENS - 1, TOKENS, "", err, sizeof(err)), 0);
    ck_assert_str_eq(err, "");
}
END_TEST

START_TEST(the_first_difference_is_named)
{
    char err[200];

    ck_assert_int_eq(compare(TOKENS - 1, 3, "x", err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(
        err, "the draft model's vocabulary differs: its token 3 is 'x', the model's is 'a'");
    ck_assert_int_eq(compare(TOKENS, 4, "bb", err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(
        err, "the draft model's vocabulary differs: its token 4 is 'bb', the model's is 'b'");
    ck_assert_int_eq(compare(TOKENS, 4, "b\xc2\x9b\x1b[2J", err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(
        err, "the draft model's vocabulary differs: its token 4 is 'b??\?[2J', the model's is 'b'");
}
END_TEST

START_TEST(another_number_of_tokens_is_named)
{
    char err[200];

    ck_assert_int_eq(compare(TOKENS, TOKENS, "", err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(err,
                     "the draft model's vocabulary differs: it has 6 tokens, the model's has 5");
    ck_assert_int_eq(compare(TOKENS - 2, TOKENS, "", err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(err,
                     "the draft model's vocabulary differs: it has 4 tokens, the model's has 5");
}
END_TEST

/* Opens a valid model after changing the bytes `offset` after a key. Returns
 * loaded_model_open_model's result. */
static int open_changed(const char *key, size_t offset, const char *bytes, char *err,
                        size_t err_bytes)
{
    const struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct loaded_model loaded = {0};
    size_t n;
    uint8_t *file = tiny_model_file(&shape, &n);
    uint8_t *at = memmem(file, n, key, strlen(key));

    ck_assert_ptr_nonnull(at);
    memcpy(at + strlen(key) + offset, bytes, strlen(bytes));
    ck_assert_msg(gguf_open_memory(file, n, &loaded.gguf, err, err_bytes) == 0, "%s", err);
    err[0] = 0;
    int rc = loaded_model_open_model(&loaded, "a.gguf", NULL, err, err_bytes);
    loaded_model_close(&loaded);
    free(file);
    return rc;
}

enum { TYPE_AND_LENGTH = 12 }; /* of a string value */

START_TEST(an_unknown_vocabulary_is_refused_before_the_weights)
{
    static const char model[] = "tokenizer.ggml.model";
    char err[600];

    ck_assert_msg(open_changed(model, TYPE_AND_LENGTH, "llama", err, sizeof(err)) == 0, "%s", err);
    ck_assert_int_eq(open_changed(model, TYPE_AND_LENGTH, "plums", err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(err, "a.gguf: tokenizer 'plums' is not known to hearth; known: llama "
                          "(SentencePiece), gpt2 (byte-level BPE), gemma4");
    ck_assert_int_eq(open_changed("tokenizer.ggml.token", 0, "z", err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(err, "a.gguf: the file has no tokenizer (no tokenizer.ggml.tokens)");
    ck_assert_int_eq(
        open_changed("tokenizer.ggml.bos_token_id", 4, "\x01\x01\x01\x01", err, sizeof(err)),
        -EBADMSG);
    ck_assert_ptr_nonnull(strstr(err, "a.gguf: malformed: tokenizer.ggml.bos_token_id is"));
}
END_TEST

static const char *const archs[] = {"llama", "gemma3", "qwen35", "gemma4-inputs"};

/* Opens a tiny model with this --kv-bytes. Returns the result. */
static int open_shape(const struct tiny_model *shape, uint64_t kv_bytes, char *err,
                      size_t err_bytes)
{
    struct loaded_model loaded = {0};
    struct config config = {0};
    static char name[] = "hearthd", device[] = "--device", cpu[] = "cpu";
    size_t n;
    uint8_t *file = tiny_model_file(shape, &n);

    ck_assert_int_eq(config_load(&config, 3, (char *[]){name, device, cpu}, err, err_bytes), 0);
    config.kv_bytes = kv_bytes;
    ck_assert_msg(gguf_open_memory(file, n, &loaded.gguf, err, err_bytes) == 0, "%s", err);
    int rc = loaded_model_open_model(&loaded, "a.gguf", NULL, err, err_bytes);
    ck_assert_msg(rc == 0, "%s", err);
    err[0] = 0;
    rc = loaded_model_open_backend(&loaded, &config, err, err_bytes);
    ck_assert((loaded.limits.states >= BUDGET_STATES) ==
              (rc == 0 && !strcmp(shape->arch, "qwen35")));
    loaded_model_close(&loaded);
    config_fini(&config);
    free(file);
    return rc;
}

static int open_with_kv_bytes(const char *arch, uint64_t kv_bytes, char *err, size_t err_bytes)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    tiny_model_as(&shape, arch);
    return open_shape(&shape, kv_bytes, err, err_bytes);
}

START_TEST(kv_bytes_out_of_range_name_the_bound)
{
    char err[600];
    unsigned long long end;

    ck_assert_int_eq(open_with_kv_bytes(archs[_i], 1, err, sizeof(err)), -EINVAL);
    const char *said = strstr(err, "give at least ");
    ck_assert_msg(said && sscanf(said, "give at least %llu", &end) == 1, "%s", err);
    ck_assert_int_eq(open_with_kv_bytes(archs[_i], end - 1, err, sizeof(err)), -EINVAL);
    ck_assert_msg(open_with_kv_bytes(archs[_i], end, err, sizeof(err)) == 0, "%s", err);
    ck_assert_int_eq(open_with_kv_bytes(archs[_i], 60ull << 40, err, sizeof(err)), -EINVAL);
    said = strstr(err, "give at most ");
    ck_assert_msg(said && sscanf(said, "give at most %llu", &end) == 1, "%s", err);
    ck_assert_ptr_null(strstr(err, "at least"));
    ck_assert_uint_lt(end, 60ull << 40);
}
END_TEST

/* Its pages have no bytes, by which --kv-bytes is divided, and which the store counts on; also
 * where a draft model's have some. */
START_TEST(a_model_of_recurrent_layers_alone_is_refused)
{
    static const char LINE[] =
        "a model of recurrent layers alone is not supported: serve another one";
    static char path[] = "/tmp/hearth-draft-XXXXXX", name[] = "hearthd";
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct loaded_model loaded = {0};
    struct config config = {0};
    char err[600];
    size_t n;
    const int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(tiny_model_write(&shape, path), 0);
    shape.arch = "qwen35";
    shape.n_layer = 1; /* the second one attends */
    ck_assert_int_eq(open_shape(&shape, 0, err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(err, LINE);

    uint8_t *file = tiny_model_file(&shape, &n);
    ck_assert_int_eq(config_load(&config, 1, (char *[]){name}, err, sizeof(err)), 0);
    config.draft = path;
    ck_assert_int_eq(gguf_open_memory(file, n, &loaded.gguf, err, sizeof(err)), 0);
    ck_assert_int_eq(loaded_model_open_model(&loaded, "a.gguf", NULL, err, sizeof(err)), 0);
    const int rc = loaded_model_open_draft(&loaded, &config, err, sizeof(err));
    unlink(path);
    ck_assert_msg(rc == 0, "%s", err);
    ck_assert_int_eq(loaded_model_plan(&loaded, &config, err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(err, LINE);
    loaded_model_close(&loaded);
    config.draft = NULL;
    config_fini(&config);
    free(file);
}
END_TEST

/* What a tiny model is said to take beside KV; *ret_rows: of a pass; *ret_weights, or NULL: what
 * its weights then take. */
static uint64_t bytes_of(const struct tiny_model *shape, uint32_t *ret_rows, uint64_t *ret_weights)
{
    struct loaded_model loaded = {0};
    struct config config = {0};
    static char name[] = "hearthd", device[] = "--device", cpu[] = "cpu";
    char err[600] = "";
    size_t n;
    uint8_t *file = tiny_model_file(shape, &n);
    ck_assert_int_eq(config_load(&config, 3, (char *[]){name, device, cpu}, err, sizeof(err)), 0);
    ck_assert_msg(gguf_open_memory(file, n, &loaded.gguf, err, sizeof(err)) == 0, "%s", err);
    ck_assert_int_eq(loaded_model_open_model(&loaded, "a.gguf", NULL, err, sizeof(err)), 0);
    ck_assert_msg(loaded_model_plan(&loaded, &config, err, sizeof(err)) == 0, "%s", err);
    const uint64_t bytes = loaded.facts.loaded;
    *ret_rows = loaded.limits.rows;
    if (ret_weights) {
        ck_assert_int_eq(
            loaded.ops->open(loaded.model, &loaded.limits, &loaded.backend, err, sizeof(err)), 0);
        loaded.ops->describe(loaded.backend, &loaded.info);
        *ret_weights = loaded.info.image_bytes;
    }
    loaded_model_close(&loaded);
    config_fini(&config);
    free(file);
    return bytes;
}

/* The same of one with so many experts for each row. */
static uint64_t bytes_with_experts(uint32_t n_used, uint32_t *ret_rows)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.arch = "qwen3moe";
    shape.n_expert_used = n_used;
    return bytes_of(&shape, ret_rows, NULL);
}

/* Weights that are packed may take more than in the file: of IQ3_XXS 1.4 times as much, of experts
 * with one output row a group of 16 for each. A pass's buffers are small beside these. */
START_TEST(what_a_model_takes_is_at_least_its_packed_weights)
{
    struct tiny_model shape = tiny_model_default(_i ? QUANT_F32 : QUANT_IQ3_XXS);
    uint32_t rows;
    uint64_t weights;
    shape.arch = "qwen3moe";
    shape.n_layer = 2;
    shape.n_embd = shape.n_ff = 256;
    shape.n_expert = _i ? 1000 : 200;
    shape.n_expert_used = 1;
    if (_i)
        shape.n_ff = 1;
    const uint64_t bytes = bytes_of(&shape, &rows, &weights);
    ck_assert_uint_ge(bytes, weights);
}
END_TEST

/* A row of a pass has the outputs of each expert that it uses: [96] f32, and the same as int8. */
START_TEST(what_a_model_takes_grows_with_the_experts_of_a_row)
{
    uint32_t rows;
    const uint64_t one = bytes_with_experts(1, &rows), five = bytes_with_experts(5, &rows);
    ck_assert_uint_eq(five - one, (uint64_t)4 * rows * 96 * 5);
}
END_TEST

/* It would need a state that follows drafts. */
START_TEST(a_recurrent_draft_model_is_refused)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct loaded_model loaded = {0};
    static char path[] = "/tmp/hearth-draft-XXXXXX";
    const struct config config = {.draft = path};
    char err[600], line[600];
    size_t n;
    uint8_t *file = tiny_model_file(&shape, &n);
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    close(fd);
    shape.arch = "qwen35";
    ck_assert_int_eq(tiny_model_write(&shape, path), 0);
    ck_assert_int_eq(gguf_open_memory(file, n, &loaded.gguf, err, sizeof(err)), 0);
    ck_assert_int_eq(loaded_model_open_model(&loaded, "a.gguf", NULL, err, sizeof(err)), 0);
    int rc = loaded_model_open_draft(&loaded, &config, err, sizeof(err));
    unlink(path);
    snprintf(line, sizeof(line), "%s: a draft model may not have recurrent layers: take another",
             path);
    ck_assert_int_eq(rc, -ENOTSUP);
    ck_assert_str_eq(err, line);
    loaded_model_close(&loaded);
    free(file);
}
END_TEST

/* Where nobody asks, the bytes of tokens are not sorted: neither for a file that is described, as
 * hearthd --describe does, nor for a draft model. */
START_TEST(only_requests_need_what_grammars_read)
{
    for (int without = 0; without < 2; without++) {
        const struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
        struct loaded_model loaded = {.without_grammars = without};
        char err[600];
        size_t n;
        uint8_t *file = tiny_model_file(&shape, &n);
        ck_assert_int_eq(gguf_open_memory(file, n, &loaded.gguf, err, sizeof(err)), 0);
        ck_assert_int_eq(loaded_model_open_model(&loaded, "a.gguf", NULL, err, sizeof(err)), 0);
        ck_assert_int_eq(loaded_model_finish_vocab(&loaded, err, sizeof(err)), 0);
        ck_assert_int_eq(loaded.grammar_vocab == NULL, without);
        ck_assert_uint_gt(loaded.vocab.n_tokens, 0);
        loaded_model_close(&loaded);
        free(file);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loaded_model");
    TCase *t = tcase_create("loaded_model");

    tcase_add_test(t, equal_tokens_are_equal_vocabularies);
    tcase_add_test(t, the_first_difference_is_named);
    tcase_add_test(t, another_number_of_tokens_is_named);
    tcase_add_test(t, an_unknown_vocabulary_is_refused_before_the_weights);
    tcase_add_loop_test(t, kv_bytes_out_of_range_name_the_bound, 0, 4);
    tcase_add_test(t, a_model_of_recurrent_layers_alone_is_refused);
    tcase_add_test(t, what_a_model_takes_grows_with_the_experts_of_a_row);
    tcase_add_loop_test(t, what_a_model_takes_is_at_least_its_packed_weights, 0, 2);
    tcase_add_test(t, a_recurrent_draft_model_is_refused);
    tcase_add_test(t, only_requests_need_what_grammars_read);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
