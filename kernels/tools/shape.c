/* shape.c: the table of shapes. */
#include "kernels/tools/shape.h"

#include <stdio.h>
#include <string.h>

const struct model_shape shapes[] = {
    /* For tests: rows are whole 256-blocks, so that every type can be used. */
    {"tiny", "llama", 2, 256, 512, 4, 2, 64, 512, 500, 1024, 1e4f, 1e-5f, true, VOCABULARY_QWEN, 0,
     0, 0, 0},
    /* For benches: larger than a cache, but written within seconds. */
    {"small", "llama", 8, 1024, 2816, 16, 4, 64, 8192, 8170, 8192, 1e4f, 1e-5f, true,
     VOCABULARY_QWEN, 0, 0, 0, 0},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 151643, 32768, 1e6f, 1e-6f, true,
     VOCABULARY_QWEN, 0, 0, 0, 0},
    {"qwen2.5-1.5b", "qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 151643, 32768, 1e6f, 1e-6f, true,
     VOCABULARY_QWEN, 0, 0, 0, 0},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 128000, 131072, 5e5f, 1e-5f, true,
     VOCABULARY_LLAMA, 0, 0, 0, 0},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 151643, 40960, 1e6f, 1e-6f, true,
     VOCABULARY_QWEN, 0, 0, 0, 0},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 128000, 131072, 5e5f, 1e-5f,
     false, VOCABULARY_LLAMA, 0, 0, 0, 0},
    {"gemma-3-270m", "gemma3", 18, 640, 2048, 4, 1, 256, 262144, 256000, 32768, 1e6f, 1e-6f, true,
     VOCABULARY_GEMMA, 512, 0, 0, 0},
    {"gemma-3-1b", "gemma3", 26, 1152, 6912, 4, 1, 256, 262144, 256000, 32768, 1e6f, 1e-6f, true,
     VOCABULARY_GEMMA, 512, 0, 0, 0},
    {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936, 151643, 262144, 1e7f, 1e-6f,
     false, VOCABULARY_QWEN, 0, 128, 8, 768},
    {"qwen35-0.8b", "qwen35", 24, 1024, 3584, 8, 2, 256, 248320, 248044, 262144, 1e7f, 1e-6f, true,
     VOCABULARY_QWEN, 0, 0, 0, 0},
    {"qwen35-4b", "qwen35", 32, 2560, 9216, 16, 4, 256, 248320, 248044, 262144, 1e7f, 1e-6f, true,
     VOCABULARY_QWEN, 0, 0, 0, 0},
    {"qwen35-9b", "qwen35", 32, 4096, 12288, 16, 4, 256, 248320, 248044, 262144, 1e7f, 1e-6f, false,
     VOCABULARY_QWEN, 0, 0, 0, 0},
    {"qwen35-35b-a3b", "qwen35moe", 40, 2048, 4096, 16, 2, 256, 248320, 248044, 262144, 1e7f, 1e-6f,
     false, VOCABULARY_QWEN, 0, 256, 8, 512},
    {"qwen3-next-80b-a3b", "qwen3next", 48, 2048, 5120, 16, 2, 256, 151936, 151643, 262144, 1e7f,
     1e-6f, false, VOCABULARY_QWEN, 0, 512, 10, 512},
    {"lfm2-1.2b", "lfm2", 16, 2048, 8192, 32, 8, 64, 65536, 64400, 128000, 1e6f, 1e-5f, true,
     VOCABULARY_QWEN, 0, 0, 0, 0},
    {"lfm2-8b-a1b", "lfm2moe", 24, 2048, 7168, 32, 8, 64, 65536, 64400, 128000, 1e6f, 1e-5f, true,
     VOCABULARY_QWEN, 0, 32, 4, 1792},
    {"granite-4.0-h-micro", "granitehybrid", 40, 2048, 8192, 32, 8, 64, 100352, 100257, 131072,
     10000, 1e-5f, true, VOCABULARY_QWEN, 0, 0, 0, 0},
    {"gpt-oss-20b", "gpt-oss", 24, 2880, 2880, 64, 8, 64, 201088, 199998, 131072, 150000, 1e-5f,
     false, VOCABULARY_HARMONY, 128, 32, 4, 2880},
    {"gemma-4-e2b", "gemma4", 35, 1536, 6144, 8, 1, 512, 262144, 256000, 131072, 1e6f, 1e-6f, true,
     VOCABULARY_GEMMA, 512, 0, 0, 0},
    {"gemma-4-e4b", "gemma4", 42, 2560, 10240, 8, 2, 512, 262144, 256000, 131072, 1e6f, 1e-6f, true,
     VOCABULARY_GEMMA, 512, 0, 0, 0},
    {"gemma-4-12b", "gemma4", 48, 3840, 15360, 16, 1, 512, 262144, 256000, 262144, 1e6f, 1e-6f,
     true, VOCABULARY_GEMMA, 1024, 0, 0, 0},
    {"gemma-4-26b-a4b", "gemma4", 30, 2816, 2112, 16, 2, 512, 262144, 256000, 262144, 1e6f, 1e-6f,
     true, VOCABULARY_GEMMA, 1024, 128, 8, 704},
    {"gemma-4-31b", "gemma4", 60, 5376, 21504, 32, 4, 512, 262144, 256000, 262144, 1e6f, 1e-6f,
     true, VOCABULARY_GEMMA, 1024, 0, 0, 0},
};
const uint32_t n_shapes = sizeof(shapes) / sizeof(shapes[0]);

struct shape_delta shape_delta(const struct model_shape *s)
{
    const bool dense = strcmp(s->arch, "qwen35") == 0;
    if (!dense && strcmp(s->arch, "qwen35moe") != 0 && strcmp(s->arch, "qwen3next") != 0)
        return (struct shape_delta){s->n_head_kv, s->n_head, s->head_dim, s->head_dim};
    return (struct shape_delta){16, dense && s->n_embd <= 2048 ? 16 : 32, 128, 128};
}

struct shape_kinds shape_kinds(const struct model_shape *s)
{
    static const struct {
        const char *name;
        struct shape_kinds kinds;
    } gemma4[] = {
        {"gemma-4-e2b", {5, 256, 1, 20, 256, false, true}},
        {"gemma-4-e4b", {6, 256, 2, 18, 256, false, false}},
        {"gemma-4-12b", {6, 256, 8, 0, 0, true, false}},
        {"gemma-4-26b-a4b", {6, 256, 8, 0, 0, true, false}},
        {"gemma-4-31b", {6, 256, 16, 0, 0, true, false}},
    };
    struct shape_kinds kinds = {
        .period = 6, .local_head_dim = s->head_dim, .local_kv = s->n_head_kv};
    for (size_t i = 0; i < sizeof(gemma4) / sizeof(gemma4[0]); i++)
        if (strcmp(s->name, gemma4[i].name) == 0)
            kinds = gemma4[i].kinds;
    if (s->n_layer < 2 * kinds.period) /* fewer layers than the real model: some of every kind */
        kinds.period = 2;
    const uint32_t most = s->n_layer > kinds.period ? s->n_layer - kinds.period : 0;
    kinds.n_shared_kv = kinds.n_shared_kv < most ? kinds.n_shared_kv : most;
    return kinds;
}

const struct model_shape *shape_find(const char *name)
{
    for (uint32_t i = 0; i < n_shapes; i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}

void shape_names(char *text, size_t text_bytes)
{
    size_t at = 0;
    for (uint32_t i = 0; i < n_shapes && at < text_bytes; i++)
        at += (size_t)snprintf(text + at, text_bytes - at, i ? ", %s" : "%s", shapes[i].name);
}
