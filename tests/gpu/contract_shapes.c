/* Models whose sizes fill no group, block, segment, unit, chunk or tile, with heads of all kinds.
 * Each numerics runs those that exercise it, in a type it supports. */
#include "kernels/quant/quant_types.h"
#include "tests/gpu/contract.h"

enum { NOT = UINT32_MAX /* not for this use */ };
/* UNEQUAL: heads of V of another size than K's, and one KV head in every second layer. */
enum { UNTIED = 1, FREQS = 2, KV_Q8_0 = 4, UNEQUAL = 8 };

static const struct {
    const char *arch;
    uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_vocab, more;
    uint32_t type[ODD_USES]; /* portable, native, by cuBLAS */
} odd[] = {
    {"llama", 1, 36, 50, 6, 3, 0, 261, 0, {QUANT_F32, QUANT_F16, QUANT_F16}},
    {"llama", 1, 32, 544, 7, 7, 2, 1000, 0, {QUANT_F16, NOT, NOT}},
    {"llama", 1, 544, 300, 7, 7, 2, 1000, KV_Q8_0, {NOT, QUANT_BF16, NOT}},
    {"llama", 1, 64, 352, 12, 1, 24, 277, 0, {QUANT_Q8_0, NOT, NOT}},
    {"llama", 1, 288, 544, 4, 2, 80, 259, UNTIED, {QUANT_Q5_1, NOT, NOT}},
    {"qwen3", 1, 2336, 96, 2, 1, 256, 259, 0, {QUANT_Q5_0, NOT, NOT}},
    {"qwen2", 2, 42, 35, 3, 1, 0, 4100, 0, {QUANT_BF16, NOT, NOT}},
    {"qwen3", 1, 42, 35, 3, 1, 130, 4100, 0, {NOT, QUANT_F16, NOT}},
    {"qwen3", 1, 50, 41, 2, 2, 130, 259, FREQS, {QUANT_F32, NOT, NOT}},
    {"llama", 1, 768, 2304, 4, 4, 64, 300, 0, {QUANT_Q4_K, NOT, NOT}},
    {"qwen2", 1, 70, 301, 5, 1, 66, 300, UNTIED, {NOT, NOT, QUANT_BF16}},
    {"qwen3", 2, 36, 50, 6, 3, 66, 270, UNEQUAL, {QUANT_F32, QUANT_F16, NOT}},
    {"qwen3", 1, 36, 40, 10, 1, 330, 259, 0, {QUANT_F32, NOT, NOT}},
    {"qwen3", 1, 64, 32, 3, 1, 512, 259, KV_Q8_0, {QUANT_Q8_0, NOT, NOT}},
    {"gemma3", 3, 32, 40, 4, 4, 20, 261, UNEQUAL | KV_Q8_0, {QUANT_F16, QUANT_BF16, NOT}},
};

bool next_odd_shape(enum odd_use use, uint32_t *at, struct tiny_model *ret_shape)
{
    while (*at < sizeof(odd) / sizeof(odd[0]) && odd[*at].type[use] == NOT)
        ++*at;
    if (*at == sizeof(odd) / sizeof(odd[0]))
        return false;
    const uint32_t i = (*at)++;
    *ret_shape = (struct tiny_model){
        .arch = odd[i].arch,
        .n_layer = odd[i].n_layer,
        .n_embd = odd[i].n_embd,
        .n_ff = odd[i].n_ff,
        .n_head = odd[i].n_head,
        .n_head_kv = odd[i].n_head_kv,
        .head_dim = odd[i].head_dim,
        .n_vocab = odd[i].n_vocab,
        .n_context = 512,
        .type = odd[i].type[use],
        .untied = odd[i].more & UNTIED,
        .freqs = odd[i].more & FREQS,
        .kv_q8_0 = odd[i].more & KV_Q8_0,
        .v_dim = odd[i].more & UNEQUAL ? 154 - odd[i].head_dim : 0,
        .odd_head_kv = odd[i].more & UNEQUAL ? 1 : 0,
        .scale = 1,
    };
    return true;
}
