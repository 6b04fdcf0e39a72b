/* The pass contract on the CUDA backend, mixtures of experts: how rows are spread over experts
 * changes no bit, from pass to pass of one graph. */
#include <string.h>

#include "tests/gpu/contract.h"
#include "tests/rig/every_type.h"

static struct tiny_model shape_of(uint32_t type, uint32_t n_expert, uint32_t n_used)
{
    struct tiny_model shape = tiny_model_default(type);
    shape.arch = "qwen3moe";
    shape.n_expert = n_expert;
    shape.n_expert_used = n_used;
    shape.untied = true;
    return shape;
}

/* Architectures with experts: routers of all kinds, shared experts. */
static const char *const archs[] = {"qwen3moe",     "qwen2moe", "glm4moe", "granitemoe",
                                    "ernie4_5-moe", "llama",    "gpt-oss"};
enum { N_ARCHS = sizeof(archs) / sizeof(archs[0]) };

/* Of 40 rows experts have 8 on average, of 20 more than a tile. */
void experts_of_every_type_give_the_same_bits(void)
{
    static const uint32_t types[] = {WRITTEN_TYPES, FLOAT_TYPES, TINY_MIXED,
                                     TINY_MIXED_K,  READ_TYPES,  TINY_MIXED_SMALL};
    for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct tiny_model shape = shape_of(types[i], i % 2 ? 15 : 5, 3);
        struct subject s;
        char what[32];
        snprintf(what, sizeof(what), "experts of type %u", types[i]);
        shape.arch = archs[i % N_ARCHS];
        shape.merged = i % 2;
        shape.n_layer = 2;
        shape.kv_q8_0 = i % 3 == 0;
        shape.seed = 1000 + i;
        subject_init(&s, &shape, 40);
        check_sizes(&s, (uint32_t[]){i % 2 ? 13 : 7, 40, 0}, i, what);
        subject_fini(&s);
    }
}

/* Matrices that fill no group, or some and a part; passes without a graph. The simulator takes each architecture and each
 * shape twice. */
void experts_of_odd_shapes_give_the_same_bits(void)
{
    static const struct tiny_model shapes[] = {
        {.n_embd = 34, .n_ff = 19, .n_expert = 5, .n_expert_used = 2, .type = QUANT_F32},
        {.n_embd = 48, .n_ff = 16, .n_expert = 3, .n_expert_used = 3, .type = QUANT_F16},
        {.n_embd = 66, .n_ff = 8, .n_expert = 130, .n_expert_used = 32, .type = QUANT_F32},
        {.n_embd = 288, .n_ff = 544, .n_expert = 1, .n_expert_used = 1, .type = QUANT_BF16},
        {.n_embd = 32, .n_ff = 32, .n_expert = 1024, .n_expert_used = 7, .type = QUANT_F32},
    };
    enum { N = sizeof(shapes) / sizeof(shapes[0]) };
    for (uint32_t i = 0; i < N * N_ARCHS; i++) {
        const uint32_t turn = (i + i / N) % N;
        if (turn > 1 && simulated())
            continue;
        struct tiny_model shape = shapes[i % N];
        struct subject s;
        char what[32];
        snprintf(what, sizeof(what), "experts, shape %u", i);
        shape.arch = archs[i / N];
        shape.n_layer = 2;
        shape.n_head = shape.n_head_kv = 2;
        shape.head_dim = 12;
        shape.n_vocab = TINY_MIN_VOCAB;
        shape.n_context = 512;
        shape.scale = 1;
        shape.seed = 1020 + i;
        subject_init(&s, &shape, 69);
        check_sizes(&s, (uint32_t[]){i % 2 ? 1 : 4, 69, 0}, i, what);
        subject_fini(&s);
    }
}

/* Equal rows in the router: scores are tied, and all rows use the first experts, in more than one
 * run of the longest. The others hold numbers that would be seen, and may not be read. */
void tied_experts_are_the_first(void)
{
    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t n_used = i % 2 ? 3 : 1;
        struct tiny_model shape = shape_of(i < 2 ? QUANT_F32 : QUANT_Q8_0, i < 2 ? 6 : 40, n_used);
        struct subject s;
        shape.arch = i < 4 ? shape.arch : "gpt-oss";
        subject_init(&s, &shape, 70);
        for (uint32_t l = 0; l < s.model->n_layer; l++) {
            const struct model_layer *layer = &s.model->layers[l];
            const uint64_t row = layer->tensor[MODEL_FFN_ROUTER].row_bytes;
            uint8_t *router = subject_bytes(&s, l, MODEL_FFN_ROUTER);
            for (uint32_t e = 1; e < shape.n_expert; e++)
                memcpy(router + e * row, router, row);
            for (uint32_t t = MODEL_FFN_GATE_EXPS; t <= MODEL_FFN_DOWN_EXPS_BIAS; t++) {
                const struct model_tensor *x = &layer->tensor[t];
                const uint64_t one = x->bytes / shape.n_expert;
                if (x->data && t == MODEL_FFN_ROUTER_BIAS)
                    memset(subject_bytes(&s, l, t), 0, x->bytes);
                else if (x->data)
                    memset(subject_bytes(&s, l, t) + n_used * one, 0x7f, x->bytes - n_used * one);
            }
        }
        subject_expect(&s);
        check_sizes(&s, (uint32_t[]){9, 70, 0}, i, "all on the first experts");
        subject_fini(&s);
    }
}

/* Attention adds nothing, and the router's row e is the embedding of token e: tokens choose their
 * expert. Passes of as many rows run the same graph: all rows on one expert, one row on each, two on
 * some, in turn. */
void a_graph_serves_every_routing(void)
{
    enum { ROWS = 16 };
    struct tiny_model shape = shape_of(QUANT_F32, ROWS, 1);
    struct subject s;
    shape.n_layer = 1;
    subject_init(&s, &shape, 4 * ROWS);
    memset(subject_bytes(&s, 0, MODEL_ATTN_OUTPUT), 0,
           s.model->layers[0].tensor[MODEL_ATTN_OUTPUT].bytes);
    const struct model_tensor *embedding = &s.model->global[MODEL_TOKEN_EMBD];
    memcpy(subject_bytes(&s, 0, MODEL_FFN_ROUTER), embedding->data, ROWS * embedding->row_bytes);
    for (uint32_t r = 0; r < ROWS; r++) {
        s.tokens[r] = 5;
        s.tokens[ROWS + r] = ROWS - 1 - r;
        s.tokens[2 * ROWS + r] = r / 2;
        s.tokens[3 * ROWS + r] = ROWS - 1;
    }
    subject_expect(&s);
    check_chunks(&s, ROWS, 1, "routed by tokens");
    check_chunks(&s, 2 * ROWS, 2, "routed by tokens");
    subject_fini(&s);
}

void rows_that_share_experts_never_change_a_bit(void)
{
    const struct tiny_model shape = shape_of(QUANT_Q4_0, 9, 2);
    check_neighbours(&shape, false);
}

/* Scores that are not finite poison their layer; a residual that experts leave so, too. */
void a_nonfinite_score_poisons_at_its_layer(void)
{
    const struct tiny_model shape = shape_of(QUANT_F32, 7, 3);
    for (uint32_t layer = 0; layer < shape.n_layer; layer++) {
        check_poisoned_at(&shape, layer, MODEL_FFN_ROUTER, __builtin_nanf(""), 4, false);
        check_poisoned_at(&shape, layer, MODEL_FFN_ROUTER, __builtin_inff(), 4, true);
        check_poisoned_at(&shape, layer, MODEL_FFN_DOWN_EXPS, __builtin_inff(), 1, false);
    }
}

/* Attention is native, experts are not; nor do they depend on the pass. A row uses all of them: near
 * logits have near scores, of which others may be the best. */
void native_experts_do_not_depend_on_their_pass(void)
{
    static const uint32_t types[] = {QUANT_Q8_0, QUANT_F16, QUANT_BF16};
    for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        const struct tiny_model shape = shape_of(types[i], 3, 3);
        struct subject s;
        subject_init(&s, &shape, 70);
        check_near(subject_go_native(&s, simulated() ? 70 : 1), bound_of(types[i]),
                   "native experts");
        check_sizes(&s, (uint32_t[]){9, 1, 70, 0}, i, "native experts");
        subject_fini(&s);
    }
}
