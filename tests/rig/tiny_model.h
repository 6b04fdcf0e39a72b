/*
 * tiny_model: small random models of any architecture as GGUF files in memory or on disk, of any
 * type and shape, with a vocabulary that tokenizes anything: <unk>, <s>, </s>, 256 byte tokens,
 * then letters and pieces (SPM). The same seed and shape give the same real numbers for every
 * type, rounded to it, so types can be compared. For tests only; aborts when memory runs out.
 */
#ifndef HEARTH_TESTS_RIG_TINY_MODEL_H
#define HEARTH_TESTS_RIG_TINY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In place of a type: a different one for each matrix, with blocks of at most 32 values; or the K
 * types, with Q5_0 where rows are not a multiple of 256, as in real files of mixed types. */
enum { TINY_MIXED = 1000, TINY_MIXED_K, TINY_MIXED_SMALL };

enum { TINY_MIN_VOCAB = 259 };

struct tiny_model {
    const char *arch; /* NULL: llama; qwen2 adds biases, qwen3 norms of heads, gemma3 all
                         that it has, with every second layer local, granite its factors, phi3 fused
                         tensors and a rope that is narrower than the head, mistral3 YaRN and a
                         query that grows, qwen3moe experts, qwen2moe these, biases and a shared
                         expert with a gate, glm4moe all of experts but that gate, and a first
                         layer without them, as ernie4_5-moe and dots1; granitemoe granite's factors and
                         experts, seed_oss biases, glm4 these, fused gates, norms as gemma3 and a narrow rope,
                         exaone4 norms of heads and of what parts add, none before these, every second layer
                         local, the others without rope, olmo2 the same but for the rope, which is YaRN there, with
                         norms of all heads together, ernie4_5 nothing more, llama experts where n_expert is given, qwen35 heads with
                         gates and, in every second layer from the first on, a recurrence,
                         qwen35moe that and what qwen2moe has, qwen3next the same, with one matrix
                         for beta and alpha, lfm2 short convolutions in every second layer, lfm2moe also
                         experts but in its first layer, granitehybrid granite's factors, no rope and, in
                         every second layer from the first on, Mamba-2 of two groups, or, where
                         n_expert is given, of one, with a shared expert and others, gpt-oss all that it has, gemma4 all
                         that the dense 31B has, every second layer local from the first on with
                         half as large heads, and experts, inputs of layers and shared KV where
                         n_expert, n_per_layer and n_shared_kv are given */
    uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv;
    uint32_t head_dim;    /* 0: n_embd / n_head */
    uint32_t v_dim;       /* of V; 0: as of Q and K */
    uint32_t odd_head_kv; /* KV heads of every second layer; 0: n_head_kv */
    uint32_t n_vocab;     /* at least TINY_MIN_VOCAB */
    uint32_t n_context;
    uint32_t window;                   /* of local layers, gemma3, gemma4 and gpt-oss; 0: 20 */
    uint32_t n_draft;                  /* layers after n_layer that only draft (MTP) */
    bool merged;                       /* gate and up of experts are one tensor */
    uint32_t n_expert, n_expert_used;  /* 0: 7, 3; n_ff is one's */
    uint32_t n_per_layer, n_shared_kv; /* gemma4 */
    uint32_t delta_k, delta_v; /* of a recurrent layer: values of a head of K, of V; 0: 12, 40 */
    uint32_t type;             /* quant_type of the matrices, or one of TINY_MIXED.. */
    bool untied;               /* with output.weight, as gpt-oss always */
    bool freqs;                /* with rope_freqs.weight: divisors from 1 to 8 */
    uint64_t seed;
    float scale; /* factor of all weights but norms; 1: logits stay small */

    bool kv_q8_0; /* not in the file: the KV type of cpu_help's instances */
    bool sinks;   /* not in the file: tiny_model_sinks of the opened model */
};

/* Two layers, width 64, 4 heads over 2, ffn 96, vocabulary 320, context 512; for types with blocks
 * of 256 width 256, ffn 512 (TINY_MIXED_K: 288, TINY_MIXED_SMALL: 544). */
struct tiny_model tiny_model_default(uint32_t type);

/* Sets the architecture; of some also with what other variants of it have: granite-h-moe,
 * gemma4-experts, gemma4-inputs (which share KV, too), gemma4-all. */
void tiny_model_as(struct tiny_model *shape, const char *name);

/* Returns the file, aligned to 64, *ret_bytes long; free() it. */
uint8_t *tiny_model_file(const struct tiny_model *shape, size_t *ret_bytes);

struct model;

/* Gives every layer of an opened model sinks and a bias of the attention's output: a dense model of
 * any architecture then has what only gpt-oss has in its files. The first head's sink is -inf, the
 * last one's so large that its weights nearly vanish. Returns their numbers; free() them after
 * model_close. */
float *tiny_model_sinks(struct model *model, uint64_t seed);

/* Writes it. Returns 0 or -errno. */
int tiny_model_write(const struct tiny_model *shape, const char *path);

/* Bytes of n values as rows of a type, n a multiple of its block; returns how many were written. */
size_t tiny_encode(uint32_t type, const float *x, size_t n, uint8_t *out);

#endif
