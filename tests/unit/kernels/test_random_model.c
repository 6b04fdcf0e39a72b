/* Random models: the same bytes with any number of threads, files that the reader accepts, and a
 * peaked model whose greedy text is the promised walk, in F16 and in a low-bit copy. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/hash128.h"
#include "kernels/tools/quantized_copy.h"
#include "kernels/tools/random_model.h"
#include "tests/run_suite.h"
#include "tests/rig/cpu_help.h"

static char folder[] = "/tmp/hearth-test-XXXXXX";
static char err[512];

static const char *path_of(const char *name)
{
    static char path[4][128];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof(path[0]), "%s/%s", folder, name);
    return p;
}

static void write_random(const char *path, uint32_t threads, struct random_model *model)
{
    struct gguf_out *out;
    ck_assert_msg(gguf_out_open(path, &out, err, sizeof(err)) == 0, "%s", err);
    ck_assert_int_eq(random_model_list(model, out), 0);
    ck_assert_msg(gguf_out_write(out, random_model_row, model, threads, err, sizeof(err)) == 0,
                  "%s", err);
    ck_assert_msg(gguf_out_commit(out, err, sizeof(err)) == 0, "%s", err);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq((uint64_t)st.st_size, gguf_out_bytes(out));
    gguf_out_close(out);
}

static void write_model(const char *path, const char *shape, const char *arch, const char *type,
                        uint64_t seed, bool peaked, uint32_t threads)
{
    write_random(path, threads,
                 &(struct random_model){.shape = shape_find(shape),
                                        .arch = arch,
                                        .mix = type_mix_find(type),
                                        .seed = seed,
                                        .peaked = peaked});
}

static void hash_file(const char *path, char text[33])
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    ck_assert(f && fstat(fileno(f), &st) == 0);
    uint8_t *data = malloc((size_t)st.st_size), hash[16];
    ck_assert_uint_eq(fread(data, 1, (size_t)st.st_size, f), (size_t)st.st_size);
    fclose(f);
    hash128(data, (size_t)st.st_size, hash);
    free(data);
    for (int i = 0; i < 16; i++)
        sprintf(text + 2 * i, "%02x", hash[i]);
}

/* The bytes of a seed are stable: the next version must write the same file. */
START_TEST(bytes_of_a_seed_are_pinned)
{
    static const struct {
        const char *arch, *type;
        bool peaked;
        const char *hash;
    } files[] = {
        {"llama", "F32", false, "16c8ad8fe7520e8864264319297a7416"},
        {"llama", "F16", false, "28a13ec0bd8e24cb51b0ce271a6e6d66"},
        {"llama", "Q8_0", false, "9b2ef44c3e05dd522e637e23b1234861"},
        {"llama", "F16", true, "83c3528c54040e04503bd3a293df2e25"},
        {"qwen2", "F16", false, "98b662dcaede4bc75fc90644d1fb2ec7"},
        {"qwen3", "F16", true, "6a59de5c59b81f73447ed5a711fef264"},
        {"llama", "Q4_0", false, "f9af6b253a92efd988257c500e24cb89"},
        {"llama", "Q4_K_M", false, "1717f8fef226dc595147fae3eda30543"},
        {"llama", "Q5_K_S", true, "84eeb6663c6d78286b9365d6fb15c4c3"},
        {"gemma3", "F16", false, "5f667ebed6a0b59d59ea90eef54d96d1"},
        {"gemma3", "Q4_K_M", true, "548946dd8d4a7416a018d9348f717efa"},
    };
    char hash[33];
    const char *path = path_of("fixed.gguf");
    write_model(path, "tiny", files[_i].arch, files[_i].type, 1, files[_i].peaked, 2);
    hash_file(path, hash);
    ck_assert_str_eq(hash, files[_i].hash);
}
END_TEST

START_TEST(the_seed_decides_the_bytes_not_the_threads)
{
    char one[33], five[33], other[33];
    write_model(path_of("a.gguf"), "tiny", "llama", "F16", 9, false, 1);
    hash_file(path_of("a.gguf"), one);
    write_model(path_of("a.gguf"), "tiny", "llama", "F16", 9, false, 5);
    hash_file(path_of("a.gguf"), five);
    write_model(path_of("a.gguf"), "tiny", "llama", "F16", 10, false, 5);
    hash_file(path_of("a.gguf"), other);
    ck_assert_str_eq(one, five);
    ck_assert_str_ne(one, other);
}
END_TEST

/* Every shape lists every tensor of its architecture; nothing is written. */
START_TEST(real_shapes_have_the_published_sizes)
{
    static const struct {
        const char *shape, *arch;
        double millions; /* parameters, as published */
    } models[] = {
        {"qwen2.5-0.5b", "qwen2", 494},       {"qwen2.5-1.5b", "qwen2", 1544},
        {"llama-3.2-1b", "llama", 1236},      {"qwen3-0.6b", "qwen3", 596},
        {"llama-3.1-8b", "llama", 8030},      {"gemma-3-270m", "gemma3", 268},
        {"gemma-3-1b", "gemma3", 1000},       {"qwen3-30b-a3b", "qwen3moe", 30532},
        {"gpt-oss-20b", "gpt-oss", 20914.76},
    };
    const struct model_shape *s = shape_find(models[_i].shape);
    ck_assert_str_eq(s->arch, models[_i].arch);
    double q = s->n_head * s->head_dim, kv = s->n_head_kv * s->head_dim, width = s->n_embd;
    double layer = 2 * width * q + 2 * width * kv + 3.0 * width * s->n_ff;
    if (s->n_expert) /* in place of it, and the router */
        layer += s->n_expert * width * (3.0 * s->n_ff_expert + 1) - 3.0 * width * s->n_ff;
    if (s->window && s->n_expert) /* gpt-oss: biases of all that is multiplied, and sinks */
        layer += q + 2 * kv + width + s->n_head + s->n_expert * (2.0 * s->n_ff_expert + width + 1);
    double all = layer * s->n_layer + width * s->n_vocab * (s->tied ? 1 : 2);
    ck_assert_double_eq_tol(all / 1e6, models[_i].millions, 1);
}
END_TEST

/* Bytes of a text's state: S of every V head, and three inputs of the convolution, of three of four
 * layers. */
START_TEST(recurrent_shapes_have_states_of_the_known_sizes)
{
    static const struct {
        const char *shape;
        uint32_t bytes;
    } models[] = {{"qwen35-0.8b", 20201472},
                  {"qwen35-4b", 52690944},
                  {"qwen35-9b", 52690944},
                  {"qwen35-35b-a3b", 65863680},
                  {"qwen3-next-80b-a3b", 79036416}};
    const struct model_shape *s = shape_find(models[_i].shape);
    const struct shape_delta d = shape_delta(s);
    const uint32_t inputs = 3 * (2 * d.k_heads * d.k_dim + d.v_heads * d.v_dim);
    ck_assert_uint_eq(s->n_layer * 3 / 4 * (d.v_heads * d.k_dim * d.v_dim + inputs) * 4,
                      models[_i].bytes);
}
END_TEST

/* Greedy ids by the CPU backend, one row a pass. */
static void greedy(const char *path, uint32_t first, uint32_t n, uint32_t *ids)
{
    struct help_model m;
    help_model_file(&m, path);
    struct backend *b = help_backend(&m, NULL, 2, 1, 4);
    const uint32_t pages[] = {0, 1, 2, 3};
    struct sampler_params params;
    sampler_params_init(&params);
    uint32_t tokens[128] = {first};
    for (uint32_t i = 0; i < n; i++) {
        struct row row = {0, i, tokens[i], ROW_SAMPLE, NULL};
        struct row_result result = {0};
        struct pass_sequence sequence = {
            .pages = pages,
            .tokens = tokens,
            .prompt_length = 1,
            .sampler = &params,
            .state = {.from = i == 0 ? BACKEND_STATE_ZERO : 0, .commit = 1}};
        help_pass(b, &(struct pass){PASS_CANONICAL, 1, &row, &sequence, &result, 1});
        ck_assert_int_eq(result.status, 0);
        tokens[i + 1] = ids[i] = result.sample.token;
    }
    backend_cpu.close(b);
    help_model_close(&m);
}

static void copy_model(const char *from_path, const char *type, const char *path)
{
    struct gguf *from;
    struct gguf_out *out;
    ck_assert_int_eq(gguf_open(from_path, &from, err, sizeof(err)), 0);
    struct quantized_copy copy = {from, type_mix_find(type)};
    ck_assert_int_eq(gguf_out_open(path, &out, err, sizeof(err)), 0);
    ck_assert_msg(quantized_copy_list(&copy, out, err, sizeof(err)) == 0, "%s", err);
    ck_assert_msg(gguf_out_write(out, quantized_copy_row, &copy, 2, err, sizeof(err)) == 0, "%s",
                  err);
    ck_assert_int_eq(gguf_out_commit(out, err, sizeof(err)), 0);
    gguf_out_close(out);
    gguf_close(from);
}

static const char *const archs[] = {
    "llama",        "qwen2",    "qwen3",    "gemma3",        "granite", "smollm3",   "phi3",
    "mistral3",     "qwen3moe", "qwen2moe", "glm4moe",       "qwen35",  "qwen35moe", "granitemoe",
    "ernie4_5-moe", "gpt-oss",  "gemma4",   "qwen3next",     "lfm2",    "lfm2moe",   "seed_oss",
    "ernie4_5",     "glm4",     "dots1",    "granitehybrid", "exaone4", "olmo2"};
enum { N_ARCHS = sizeof(archs) / sizeof(archs[0]) };

START_TEST(a_peaked_model_follows_its_walk)
{
    enum { N = 100 };
    const struct model_shape *s = shape_find("tiny");
    const char *path = path_of("peaked.gguf"), *low = path_of("low.gguf");
    uint32_t ids[N], copied[N], token = s->n_words - 1;
    write_model(path, "tiny", archs[_i], "F16", 4, true, 2);
    copy_model(path, "Q4_0", low);
    greedy(path, token, N, ids);
    greedy(low, token, N, copied);
    for (uint32_t i = 0; i < N; i++) {
        token = random_model_next(s, token);
        ck_assert_uint_eq(ids[i], token);
        ck_assert_uint_eq(copied[i], token);
    }
}
END_TEST

/* The tiny shape with experts, of those archs whose files hold gate and up apart, and as one. */
static void write_experts(const char *path, const char *arch, bool peaked)
{
    struct model_shape s = *shape_find("tiny");
    s.n_expert = 5;
    s.n_expert_used = 2;
    s.n_ff_expert = 96;
    write_random(
        path, 2,
        &(struct random_model){
            .shape = &s, .arch = arch, .mix = type_mix_find("F16"), .seed = 6, .peaked = peaked});
}

/* gemma4's files have gate and up of an expert as one tensor: the same numbers as apart. */
START_TEST(experts_of_gemma4_are_merged)
{
    struct help_model m[2];
    const char *path[] = {path_of("apart.gguf"), path_of("merged.gguf")};
    for (uint32_t i = 0; i < 2; i++) {
        write_experts(path[i], i ? "gemma4" : "qwen3moe", false);
        help_model_file(&m[i], path[i]);
        ck_assert(i == !!gguf_find_tensor(m[i].model->gguf, "blk.1.ffn_gate_up_exps.weight"));
        ck_assert(i == !gguf_find_tensor(m[i].model->gguf, "blk.1.ffn_up_exps.weight"));
    }
    for (uint32_t part = MODEL_FFN_GATE_EXPS; part <= MODEL_FFN_UP_EXPS; part++) {
        const struct model_tensor *a = &m[0].model->layers[1].tensor[part],
                                  *b = &m[1].model->layers[1].tensor[part];
        ck_assert(a->n_matrices == 5 && b->n_matrices == 5 && a->rows == 96 && b->rows == 96);
        ck_assert_uint_eq(b->matrix_bytes, 2 * a->matrix_bytes);
        for (uint32_t e = 0; e < 5; e++)
            ck_assert_mem_eq(a->data + e * a->matrix_bytes, b->data + e * b->matrix_bytes,
                             a->matrix_bytes);
    }
    for (uint32_t i = 0; i < 2; i++)
        help_model_close(&m[i]);
}
END_TEST

START_TEST(a_peaked_model_with_merged_experts_follows_its_walk)
{
    enum { N = 100 };
    const struct model_shape *s = shape_find("tiny");
    const char *path = path_of("merged.gguf");
    uint32_t ids[N], token = s->n_words - 1;
    write_experts(path, "gemma4", true);
    greedy(path, token, N, ids);
    for (uint32_t i = 0; i < N; i++) {
        token = random_model_next(s, token);
        ck_assert_uint_eq(ids[i], token);
    }
}
END_TEST

/* Drafts of the next-token layer for a text that is given: how many are what follows. */
static uint32_t right_drafts(const char *path, const uint32_t *tokens, uint32_t n)
{
    struct help_model m;
    const uint32_t pages[] = {0, 1, 2, 3};
    struct sampler_params params;
    uint32_t right = 0;
    help_model_file(&m, path);
    struct backend *b = help_backend(&m, NULL, 2, 1, 4);
    sampler_params_init(&params);
    for (uint32_t i = 0; i + 2 < n; i++) {
        struct row_result result = {0};
        struct pass_sequence sequence = {
            .pages = pages,
            .tokens = tokens,
            .prompt_length = 1,
            .sampler = &params,
            .state = {.from = i == 0 ? BACKEND_STATE_ZERO : 0, .commit = 1}};
        struct row row = {0, i, tokens[i], 0, NULL};
        help_pass(b, &(struct pass){PASS_CANONICAL, 1, &row, &sequence, &result, 1});
        row = (struct row){0, i + 1, tokens[i + 1], ROW_SAMPLE, NULL};
        sequence.state = (struct pass_state){.from = 0, .own = 0};
        help_pass(b, &(struct pass){PASS_MTP, 1, &row, &sequence, &result, 1});
        ck_assert_int_eq(result.status, 0);
        right += result.sample.token == tokens[i + 2];
    }
    backend_cpu.close(b);
    help_model_close(&m);
    return right;
}

/* So many drafts are right as were asked for, in a low-bit copy, too; the walk stays as it is. */
START_TEST(drafts_of_a_peaked_model_are_right_as_often_as_asked_for)
{
    enum { N = 122 };
    const float wanted[] = {1, 0.8f, 0.5f, 0};
    const struct model_shape *s = shape_find("tiny");
    const char *path = path_of("drafts.gguf"), *low = path_of("low.gguf"),
               *arch = _i % 2 ? "qwen35moe" : "qwen35";
    uint32_t tokens[N] = {s->n_words - 1}, ids[N];
    write_random(path, 2,
                 &(struct random_model){.shape = s,
                                        .arch = arch,
                                        .mix = type_mix_find("F16"),
                                        .seed = 4,
                                        .peaked = true,
                                        .mtp = true,
                                        .acceptance = wanted[_i / 2]});
    copy_model(path, "Q4_0", low);
    for (uint32_t i = 1; i < N; i++)
        tokens[i] = random_model_next(s, tokens[i - 1]);
    greedy(path, tokens[0], N - 1, ids);
    ck_assert_mem_eq(ids, tokens + 1, (N - 1) * sizeof(ids[0]));
    const uint32_t right = right_drafts(path, tokens, N);
    ck_assert_double_eq_tol(right / (double)(N - 2), (double)wanted[_i / 2], 0.1);
    ck_assert_uint_eq(right_drafts(low, tokens, N), right);
}
END_TEST

START_TEST(the_walk_visits_every_word)
{
    const struct model_shape *s = &shapes[_i];
    uint32_t token = 0, steps = 0;
    do {
        token = random_model_next(s, token);
        steps++;
    } while (token != 0);
    ck_assert_uint_eq(steps, s->n_words);
    ck_assert_uint_lt(random_model_next(s, s->n_vocab - 1), s->n_words); /* a special token */
}
END_TEST

/* A copy in the same type is the same model, and a copy of a quantized file is refused. */
START_TEST(a_copy_in_the_same_type_is_the_same_model)
{
    struct gguf *g;
    struct gguf_out *out;
    const char *path = path_of("f16.gguf"), *again = path_of("again.gguf"),
               *low = path_of("q8.gguf");
    write_model(path, "tiny", "llama", "F16", 2, false, 2);
    copy_model(path, "F16", again);
    struct help_model a, b;
    help_model_file(&a, path);
    help_model_file(&b, again);
    uint8_t x[MODEL_FINGERPRINT_BYTES], y[MODEL_FINGERPRINT_BYTES];
    ck_assert_int_eq(model_fingerprint(a.model, 1, x), 0);
    ck_assert_int_eq(model_fingerprint(b.model, 2, y), 0);
    ck_assert_mem_eq(x, y, sizeof(x));
    help_model_close(&a);
    help_model_close(&b);

    copy_model(path, "Q8_0", low);
    char copied[33], direct[33];
    hash_file(low, copied);
    copy_model(path, "Q8_0", low);
    hash_file(low, direct);
    ck_assert_str_eq(copied, direct);

    ck_assert_int_eq(gguf_open(low, &g, err, sizeof(err)), 0);
    ck_assert_int_eq(gguf_out_open(path_of("no.gguf"), &out, err, sizeof(err)), 0);
    struct quantized_copy copy = {g, type_mix_find("Q4_0")};
    ck_assert_int_eq(quantized_copy_list(&copy, out, err, sizeof(err)), -ENOTSUP);
    ck_assert_str_eq(err, "tensor token_embd.weight is already Q8_0: start from an F32, F16 or "
                          "BF16 file");
    gguf_out_close(out);
    gguf_close(g);
}
END_TEST

static void make_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

int main(void)
{
    Suite *s = suite_create("random_model");
    TCase *t = tcase_create("random_model");
    tcase_add_unchecked_fixture(t, make_folder, remove_folder);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, bytes_of_a_seed_are_pinned, 0, 11);
    tcase_add_test(t, the_seed_decides_the_bytes_not_the_threads);
    tcase_add_loop_test(t, real_shapes_have_the_published_sizes, 0, 9);
    tcase_add_loop_test(t, recurrent_shapes_have_states_of_the_known_sizes, 0, 5);
    tcase_add_loop_test(t, a_peaked_model_follows_its_walk, 0, N_ARCHS);
    tcase_add_test(t, experts_of_gemma4_are_merged);
    tcase_add_test(t, a_peaked_model_with_merged_experts_follows_its_walk);
    tcase_add_loop_test(t, drafts_of_a_peaked_model_are_right_as_often_as_asked_for, 0, 8);
    tcase_add_loop_test(t, the_walk_visits_every_word, 0, (int)n_shapes);
    tcase_add_test(t, a_copy_in_the_same_type_is_the_same_model);
    suite_add_tcase(s, t);
    return run_suite(s);
}
