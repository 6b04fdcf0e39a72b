/* Real vocabularies in models of the architectures that carry them, through the daemon: its shared
 * vocabulary gives the published ids (tokenizers/NAME.gguf of the test data, .inp and .out beside
 * it), also when the embedding has more rows than the tokenizer has tokens, as in Qwen's files. And
 * a small one whose texts have more tokens than bytes. */
#include "tests/e2e/harness.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/gguf/gguf.h"
#include "tests/run_suite.h"
#include "tests/rig/gguf_writer.h"
#include "tests/rig/tiny_model.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

static const struct {
    const char *file, *arch;
    uint32_t n_vocab; /* padded to so many with unused tokens */
} cases[] = {
    {"ggml-vocab-qwen2.gguf", "qwen2", 151936},    {"ggml-vocab-qwen2.gguf", "qwen3", 151936},
    {"ggml-vocab-llama-spm.gguf", "llama", 32000}, {"ggml-vocab-gpt-2.gguf", "llama", 50257},
    {"ggml-vocab-starcoder.gguf", "llama", 49152},
};
enum { N_CASES = sizeof(cases) / sizeof(cases[0]), EMBD = 2, FF = 2 };

static struct harness d;

/* ---- a model around a vocabulary ------------------------------------------------------------- */

/* An array of the tokenizer, lengthened to n with "[PAD1]" or the type of unused tokens. */
static void copy_array(struct gw *w, const char *name, const struct gguf_key *key, uint64_t n)
{
    struct gguf_array a = key->array;
    char text[32];
    int32_t unused = 5;

    gw_key_array(w, name, a.type, n, a.data, a.bytes);
    for (uint64_t i = a.count; i < n; i++) {
        snprintf(text, sizeof(text), "[PAD%llu]", (unsigned long long)i);
        if (a.type == GGUF_STRING)
            gw_put_string(&w->keys, text, strlen(text));
        else
            gw_put(&w->keys, &unused, sizeof(unused));
    }
}

static void copy_tokenizer(struct gw *w, const struct gguf *from, uint64_t n_vocab)
{
    char name[256];

    for (uint64_t i = 0; i < from->n_keys; i++) {
        const struct gguf_key *key = gguf_key_at(from, i);
        snprintf(name, sizeof(name), "%.*s", (int)key->name.bytes, key->name.data);
        if (strncmp(name, "tokenizer.ggml.", 15) != 0)
            continue;
        if (strcmp(name, "tokenizer.ggml.tokens") == 0 ||
            strcmp(name, "tokenizer.ggml.token_type") == 0)
            copy_array(w, name, key, n_vocab);
        else
            gw_key(w, name, key->type, key->raw, key->raw_bytes);
    }
}

static void write_keys(struct gw *w, const char *arch)
{
    static const struct {
        const char *name;
        uint32_t value;
    } counts[] = {
        {"context_length", 256},       {"embedding_length", EMBD},  {"block_count", 1},
        {"feed_forward_length", FF},   {"attention.head_count", 1}, {"attention.head_count_kv", 1},
        {"attention.key_length", EMBD}};
    char name[128];

    gw_key_string(w, "general.architecture", arch);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        snprintf(name, sizeof(name), "%s.%s", arch, counts[i].name);
        gw_key_u32(w, name, counts[i].value);
    }
    snprintf(name, sizeof(name), "%s.attention.layer_norm_rms_epsilon", arch);
    gw_key_f32(w, name, 1e-5f);
}

static void write_tensors(struct gw *w, const char *arch, uint32_t n_vocab)
{
    static const struct {
        const char *name, *only; /* NULL: in every architecture */
        uint32_t ne0, ne1;
    } parts[] = {
        {"attn_norm.weight", NULL, EMBD, 0},      {"attn_q.weight", NULL, EMBD, EMBD},
        {"attn_k.weight", NULL, EMBD, EMBD},      {"attn_v.weight", NULL, EMBD, EMBD},
        {"attn_output.weight", NULL, EMBD, EMBD}, {"ffn_norm.weight", NULL, EMBD, 0},
        {"ffn_gate.weight", NULL, EMBD, FF},      {"ffn_up.weight", NULL, EMBD, FF},
        {"ffn_down.weight", NULL, FF, EMBD},      {"attn_q.bias", "qwen2", EMBD, 0},
        {"attn_k.bias", "qwen2", EMBD, 0},        {"attn_v.bias", "qwen2", EMBD, 0},
        {"attn_q_norm.weight", "qwen3", EMBD, 0}, {"attn_k_norm.weight", "qwen3", EMBD, 0}};
    char name[64];

    gw_tensor(w, "token_embd.weight", QUANT_F16, EMBD, n_vocab);
    gw_tensor(w, "output_norm.weight", QUANT_F32, EMBD, 0);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(name, sizeof(name), "blk.0.%s", parts[i].name);
        if (!parts[i].only || strcmp(parts[i].only, arch) == 0)
            gw_tensor(w, name, parts[i].ne1 ? QUANT_F16 : QUANT_F32, parts[i].ne0, parts[i].ne1);
    }
}

static void write_file(const char *path, const uint8_t *file, size_t bytes)
{
    FILE *out = fopen(path, "wb");

    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(file, 1, bytes, out), bytes);
    ck_assert_int_eq(fclose(out), 0);
}

static void write_model(const char *vocabulary, const char *arch, uint32_t n_vocab,
                        const char *path)
{
    struct gguf *from;
    struct gw w;
    size_t bytes;
    char err[256] = "";

    ck_assert_msg(gguf_open(vocabulary, &from, err, sizeof(err)) == 0, "%s", err);
    gw_init(&w);
    write_keys(&w, arch);
    copy_tokenizer(&w, from, n_vocab);
    write_tensors(&w, arch, n_vocab);
    uint8_t *file = gw_finish(&w, &bytes, NULL);
    write_file(path, file, bytes);
    free(file);
    gguf_close(from);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static char *read_file(const char *path)
{
    FILE *in = fopen(path, "rb");
    ck_assert_msg(in != NULL, "%s", path);
    ck_assert_int_eq(fseek(in, 0, SEEK_END), 0);
    size_t n = (size_t)ftell(in);
    rewind(in);
    char *text = malloc(n + 1);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_eq(fread(text, 1, n, in), n);
    text[n] = 0;
    fclose(in);
    return text;
}

static void check_text(struct hearth *h, const char *text, size_t bytes, char *line)
{
    uint32_t ids[4096];
    int64_t n = hearth_tokenize(h, text, bytes, 0, ids, 4096), i = 0;

    ck_assert(n >= 0 && n <= 4096);
    for (char *id = strtok(line, " "); id; id = strtok(NULL, " "), i++)
        ck_assert_msg(i < n && ids[i] == strtoul(id, NULL, 10), "'%.*s': id %lld is not %s",
                      (int)bytes, text, (long long)i, id);
    ck_assert_int_eq(i, n);
}

START_TEST(the_daemons_vocabulary_gives_the_published_ids)
{
    char vocabulary[1024], model[256], path[1100];
    int n = 0;

    snprintf(vocabulary, sizeof(vocabulary), "%s/tokenizers/%s", getenv("HEARTH_TESTDATA"),
             cases[_i].file);
    snprintf(model, sizeof(model), "/tmp/hearth-vocabulary.%ld.gguf", (long)getpid());
    write_model(vocabulary, cases[_i].arch, cases[_i].n_vocab, model);
    harness_start(&d, model, NULL);
    struct hearth *h = harness_connect(&d, 1, NULL);
    snprintf(path, sizeof(path), "%s.inp", vocabulary);
    char *texts = read_file(path);
    snprintf(path, sizeof(path), "%s.out", vocabulary);
    char *ids = read_file(path), *line = ids;
    for (char *text = texts; text && *line; n++) {
        char *end = strstr(text, SEPARATOR), *next_line = strchr(line, '\n');
        ck_assert_ptr_nonnull(next_line);
        *next_line = 0;
        check_text(h, text, end ? (size_t)(end - text) : strlen(text), line);
        line = next_line + 1;
        text = end ? end + strlen(SEPARATOR) : NULL;
    }
    ck_assert_int_ge(n, 46);
    hearth_close(h);
    struct harness_output o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "4", "some text");
    ck_assert_msg(o.code == 0, "%s", o.error);
    harness_output_fini(&o);
    ck_assert_int_eq(harness_stop(&d), 0);
    unlink(model);
    free(texts);
    free(ids);
}
END_TEST

/* Without a token for a lone space, it becomes the three bytes of SPM's character for it. */
START_TEST(a_text_may_have_more_tokens_than_bytes)
{
    static const char blank[] = "\3\0\0\0\0\0\0\0\xe2\x96\x81"; /* as a string of GGUF */
    const struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    char path[64];
    size_t bytes;
    uint8_t *file = tiny_model_file(&shape, &bytes);
    char *piece = memmem(file, bytes, blank, sizeof(blank) - 1);

    ck_assert_ptr_nonnull(piece);
    memcpy(piece + 8, "xyz", 3);
    snprintf(path, sizeof(path), "/tmp/hearth-vocabulary.%ld.gguf", (long)getpid());
    write_file(path, file, bytes);
    free(file);
    harness_start(&d, path, (const char *const[]){"--threads", "1", NULL});
    struct hearth *h = harness_connect(&d, 0, NULL);
    ck_assert_int_gt(hearth_tokenize(h, "          ", 10, 0, NULL, 0), 10 + 2);
    hearth_close(h);
    struct harness_output o = HARNESS_RUN(&d, NULL, "run", "--max-tokens", "4", "--proposer",
                                          "client", "--guess", "          ", "a");
    ck_assert_msg(o.code == 0, "exit code %d: %s", o.code, o.error);
    harness_output_fini(&o);
    ck_assert_int_eq(harness_stop(&d), 0);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("vocabularies");
    TCase *tcase = tcase_create("vocabularies");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_text_may_have_more_tokens_than_bytes);
    if (getenv("HEARTH_TESTDATA"))
        tcase_add_loop_test(tcase, the_daemons_vocabulary_gives_the_published_ids, 0, N_CASES);
    else
        fprintf(stderr, "skip: HEARTH_TESTDATA is not set: no real vocabularies\n");
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
