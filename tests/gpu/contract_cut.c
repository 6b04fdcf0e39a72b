/* The pass contract on the CUDA backend where experts of some layers do not fit the device, so that the CPU computes them:
 * no bit is another, in any pass; and what fails there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/contract.h"
#include "tests/rig/every_type.h"

/* Architectures with experts, and what they have beside or around them: a shared expert with and without a gate, a dense part,
 * biases, a recurrence, a first layer without experts. */
static const struct {
    const char *arch;
    uint32_t type, cut;
} kinds[] = {{"qwen3moe", QUANT_Q4_0, 1},       {"qwen2moe", QUANT_Q8_0, 3},
             {"glm4moe", QUANT_Q6_K, 1},        {"granitemoe", QUANT_F32, 2},
             {"ernie4_5-moe", QUANT_F16, 1},    {"llama", QUANT_Q4_K, 3},
             {"gpt-oss", QUANT_MXFP4, 1},       {"gpt-oss", QUANT_Q8_0, 3},
             {"gemma4-experts", QUANT_Q8_0, 2}, {"gemma4-experts", QUANT_BF16, 1},
             {"qwen35moe", QUANT_Q8_0, 2},      {"qwen3next", QUANT_Q4_1, 1}};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static struct tiny_model shape_of(uint32_t kind)
{
    struct tiny_model shape = tiny_model_default(kinds[kind].type);
    shape.n_expert = 7;
    shape.n_expert_used = 3;
    tiny_model_as(&shape, kinds[kind].arch);
    shape.n_layer = 3;
    shape.merged = kind % 2;
    shape.kv_q8_0 = kind % 4 == 0;
    shape.seed = 2000 + kind;
    return shape;
}

/* How many layers of an instance have their experts on the CPU, and the bytes of these. */
static struct backend_info info_of(struct subject *s)
{
    struct backend_info info;
    s->device.describe(subject_backend(s), &info);
    return info;
}

/* Single rows, a few, a graph's most, and more than any graph holds. */
void experts_on_the_cpu_give_the_same_bits(void)
{
    static const uint32_t sizes[] = {1, 5, 71, 1, 32, 0};
    for (uint32_t i = 0; i < KINDS; i++) {
        const struct tiny_model shape = shape_of(i);
        struct subject s;
        subject_cut = kinds[i].cut;
        subject_init(&s, &shape, simulated() ? 79 : 110);
        check_sizes(&s, i % 2 ? sizes : sizes + 1, i, kinds[i].arch);
        const struct backend_info info = info_of(&s);
        subject_cut = 0;
        subject_fini(&s);
        EXPECT(info.host_layers == kinds[i].cut && info.host_bytes > 0 && info.note,
               "%s: experts of %u layers are on the CPU, not of %u", kinds[i].arch,
               info.host_layers, kinds[i].cut);
    }
}

/* Rows that are not a multiple of what they are padded to; an expert that every row uses; every expert used. */
void experts_of_odd_shapes_on_the_cpu_give_the_same_bits(void)
{
    static const struct tiny_model shapes[] = {
        {.arch = "qwen3moe", .n_embd = 34, .n_ff = 19, .n_expert = 5, .n_expert_used = 2},
        {.arch = "gpt-oss", .n_embd = 66, .n_ff = 8, .n_expert = 40, .n_expert_used = 32},
        {.arch = "qwen2moe", .n_embd = 48, .n_ff = 16, .n_expert = 1, .n_expert_used = 1},
    };
    for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct tiny_model shape = shapes[i];
        struct subject s;
        shape.type = i == 2 ? QUANT_BF16 : QUANT_F32;
        shape.n_layer = 2;
        shape.n_head = shape.n_head_kv = 2;
        shape.head_dim = 12;
        shape.n_vocab = TINY_MIN_VOCAB;
        shape.n_context = 512;
        shape.scale = 1;
        shape.seed = 2050 + i;
        subject_cut = 1 + i % 2;
        subject_init(&s, &shape, 69);
        check_sizes(&s, (uint32_t[]){3, 66, 0}, i, shape.arch);
        subject_cut = 0;
        subject_fini(&s);
    }
}

/* Windows with drafts, decoding and prefill in the same passes. */
void neighbours_of_experts_on_the_cpu_never_change_a_bit(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q4_0);
    shape.arch = "qwen2moe";
    shape.n_expert = 9;
    shape.n_expert_used = 2;
    subject_cut = 1;
    check_neighbours(&shape, false);
    subject_cut = 0;
}

/* Attention is native, experts are in float chains wherever they are: the instance without a cut gives the same bits. */
void native_passes_take_experts_of_the_cpu(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_BF16);
    struct subject s;
    shape.arch = "qwen3moe";
    shape.n_expert = 5;
    shape.n_expert_used = 2;
    subject_init(&s, &shape, 20);
    subject_go_native(&s, 20);
    s.device.close(s.opened);
    s.opened = NULL;
    subject_cut = 2;
    check_sizes(&s, (uint32_t[]){7, 1, 0}, 1, "native, cut");
    subject_cut = 0;
    subject_fini(&s);
}

void a_nonfinite_expert_on_the_cpu_poisons_at_its_layer(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    shape.arch = "qwen3moe";
    subject_cut = 2;
    for (uint32_t layer = 0; layer < shape.n_layer; layer++) {
        check_poisoned_at(&shape, layer, MODEL_FFN_ROUTER, __builtin_nanf(""), 4, false);
        check_poisoned_at(&shape, layer, MODEL_FFN_DOWN_EXPS, __builtin_inff(), 4, true);
    }
    subject_cut = 0;
}

/* Whether nothing but one line comes of it. */
static bool is_line(const char *text)
{
    return text[0] && !strchr(text, '\n');
}

/* One pass of a row on an instance that is cut in two; a call of it fails. */
static bool breaks(const struct tiny_model *shape, const char *fault)
{
    struct subject s;
    struct mixed x = {.n = 0};
    uint32_t pages[SUBJECT_PAGES];
    subject_init(&s, shape, 8);
    subject_pages(0, pages);
    for (uint32_t i = 0; i <= OTHERS; i++)
        x.sequences[i].pages = pages;
    subject_cut = 2;
    struct backend *b = subject_open(&s, &s.device, 8, SUBJECT_PAGES);
    subject_cut = 0;
    add_rows(&x, 0, s.tokens, 0, 8, 0);
    const int good = run_mixed(&s, b, &x, PASS_CANONICAL);
    setenv("HEARTH_CUDASIM_FAIL", fault, 1);
    const int bad = run_mixed(&s, b, &x, PASS_CANONICAL);
    unsetenv("HEARTH_CUDASIM_FAIL");
    const int after = run_mixed(&s, b, &x, PASS_CANONICAL);
    const bool line = is_line(s.device.error(b));
    s.device.close(b);
    subject_fini(&s);
    return good == 0 && bad == -EIO && after == -EIO && line;
}

/* Each copy of a pass (its upload, then three to the host and one back for each layer), each piece, each wait. */
void a_cut_pass_that_fails_breaks_its_instance(void)
{
    static const char *const faults[] = {"copy@1=701",  "copy@2=701",  "copy@3=701", "copy@4=701",
                                         "copy@5=701",  "copy@6=701",  "copy@9=701", "graph@1=701",
                                         "graph@2=701", "graph@3=701", "sync@2=701", "sync@3=701"};
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.arch = "qwen3moe";
    if (!may_fail())
        return;
    for (uint32_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        EXPECT(breaks(&shape, faults[i]), "%s: the instance is not broken, or says no line",
               faults[i]);
}

/* What opening a model says that does not fit: with all of its experts on the CPU; without any; where calls fail. */
void a_model_that_does_not_fit_is_refused_in_one_line(void)
{
    static const char *const faults[] = {"", "", "malloc@1=2", "malloc@3=2", "malloc@0=2"};
    for (uint32_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
        struct subject s;
        struct backend *b = NULL;
        char err[256] = "";
        struct backend_limits limits = {.rows = 8,
                                        .samples = 8,
                                        .pages = 8,
                                        .context = 64,
                                        .threads = 1,
                                        .gpu_bytes = i < 2 ? 100 << 10 : 0};
        if (faults[i][0] && !may_fail())
            return;
        shape.arch = i == 1 ? "llama" : "qwen3moe";
        subject_init(&s, &shape, 4);
        setenv("HEARTH_CUDASIM_FAIL", faults[i], 1);
        const int rc = s.device.open(s.model, &limits, &b, err, sizeof(err));
        unsetenv("HEARTH_CUDASIM_FAIL");
        s.device.close(b);
        subject_fini(&s);
        EXPECT(rc == -ENOMEM && is_line(err), "%u: %d %s", i, rc, err);
        EXPECT(i > 1 || strstr(err, "gpu-bytes"), "%u: %s", i, err);
    }
}
