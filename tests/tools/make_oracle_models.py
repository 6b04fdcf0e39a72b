#!/usr/bin/env python3
"""Makes tests/fixtures/oracle: small random models of every architecture and what another implementation says of them.

Usage: make_oracle_models.py FOLDER [NAME...]     (needs torch, transformers, tokenizers, gguf, numpy; the tests need none of them)

Per model three files. NAME.gguf: F16 matrices, F32 vectors; every weight is an f16 number, so a copy of the file in F32
holds the same model. NAME.json: a prompt, the largest logit's id after each of its tokens, the greedy ids that follow, and
the smallest lead of a sample over its runner-up; for byte-level BPE some texts and their ids. NAME.f32: logits at every position of the prompt, float32
[prompt][columns], of every COLUMN_STEP-th token.

The numbers come from transformers in float64, the ids of texts from tokenizers. (It computes norms and rope's angles in float32 even then.) Seeds are
tried until no sample is close. The same library versions give the same files; `made_with` says which were used.
"""

import inspect
import json
import sys
from pathlib import Path

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

N_VOCAB, N_PROMPT, N_ANSWER, COLUMN_STEP = 288, 40, 20, 4
LEAST_LEAD = 0.15  # several times what f16 KV moves a logit by
LEAST_GAP = 0.01  # between the scores of the last expert chosen and the first one not chosen

# rope of llama3: the first pair keeps its frequency, the second is between, the others are divided.
LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}

# Rope turns half of the pairs of layers that see all.
GEMMA4 = dict(hidden_size=32, intermediate_size=36, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
              pad_token_id=0, sliding_window=12, final_logit_softcapping=30.0, hidden_size_per_layer_input=0,
              vocab_size_per_layer_input=N_VOCAB, hidden_activation="gelu_pytorch_tanh",
              rope_parameters={"full_attention": {"rope_type": "proportional", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
                               "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}})
GEMMA4_LAYERS = ["sliding_attention", "sliding_attention", "full_attention"]

# The heads of Mamba-2 have other sizes than those of attention.
GRANITE_HYBRID = dict(kind="granitemoehybrid", hidden_size=32, intermediate_size=20, shared_intermediate_size=28, num_attention_heads=4,
                      num_key_value_heads=2, mamba_n_heads=4, mamba_d_head=16, mamba_d_state=10, mamba_expand=2,
                      mamba_chunk_size=16, mamba_conv_bias=True, position_embedding_type="nope", tie_word_embeddings=False,
                      embedding_multiplier=2.0, attention_multiplier=0.25, residual_multiplier=0.7, logits_scaling=1.25)

MODELS = {
    "llama": dict(kind="llama", hidden_size=36, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6,
                  num_key_value_heads=3, tie_word_embeddings=False),
    "llama3": dict(kind="llama", hidden_size=32, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
                   num_key_value_heads=2, tie_word_embeddings=True, rope_parameters=LLAMA3),
    "llama-linear": dict(kind="llama", hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=2, tie_word_embeddings=True,
                         rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    "mistral": dict(kind="mistral", hidden_size=32, intermediate_size=38, num_hidden_layers=2, num_attention_heads=3,
                    num_key_value_heads=1, head_dim=10, tie_word_embeddings=False, sliding_window=64),
    "qwen2": dict(kind="qwen2", hidden_size=30, intermediate_size=44, num_hidden_layers=2, num_attention_heads=5,
                  num_key_value_heads=1, tie_word_embeddings=True,
                  rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "qwen3": dict(kind="qwen3", hidden_size=32, intermediate_size=33, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=14, tie_word_embeddings=True,
                  rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    # The third layer sees all, the others 12 positions of the prompt's 40; scores are divided by the root of head_dim.
    "gemma3": dict(kind="gemma3_text", hidden_size=32, intermediate_size=36, num_hidden_layers=4, num_attention_heads=4,
                   num_key_value_heads=2, head_dim=12, query_pre_attn_scalar=12, tie_word_embeddings=True, sliding_window=12,
                   layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
                   hidden_activation="gelu_pytorch_tanh",
                   rope_parameters={"full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
                                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
    "granite": dict(kind="granite", hidden_size=32, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, tie_word_embeddings=False, embedding_multiplier=2.0, attention_multiplier=0.25,
                    residual_multiplier=0.7, logits_scaling=1.25),
    # The fourth layer has no rope.
    "smollm3": dict(kind="smollm3", hidden_size=32, intermediate_size=36, num_hidden_layers=5, num_attention_heads=4,
                    num_key_value_heads=2, tie_word_embeddings=True, pad_token_id=0,
                    rope_parameters={"rope_type": "default", "rope_theta": 2000000.0}),
    # Rope turns six of a head's eight dimensions.
    "phi3": dict(kind="phi3", hidden_size=32, intermediate_size=34, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, tie_word_embeddings=False, pad_token_id=0, sliding_window=None,
                 rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}),
    # YaRN: the second pair is the first that is divided, the sixth the last that is blended.
    "llama-yarn": dict(kind="llama", hidden_size=32, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2,
                       num_key_value_heads=1, tie_word_embeddings=True,
                       rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 2.0, "beta_fast": 4.0, "beta_slow": 1.0,
                                        "original_max_position_embeddings": 64}),
    # LongRoPE in use: the prompt is longer than the original context.
    "phi3-long": dict(kind="phi3", hidden_size=32, intermediate_size=34, num_hidden_layers=2, num_attention_heads=4,
                      num_key_value_heads=2, tie_word_embeddings=False, pad_token_id=0, sliding_window=None,
                      original_max_position_embeddings=16,
                      rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                                       "original_max_position_embeddings": 16, "short_factor": [1.0, 1.0, 1.0],
                                       "long_factor": [1.0, 1.5, 6.0]}),
    # Queries grow from position 16, 32, 48 on.
    "mistral3": dict(kind="ministral3", hidden_size=32, intermediate_size=38, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=1, head_dim=12, tie_word_embeddings=False, pad_token_id=0,
                     rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 8.0, "beta_fast": 2.0, "beta_slow": 0.5,
                                      "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 1.0,
                                      "llama_4_scaling_beta": 0.3}),
    "qwen3moe": dict(kind="qwen3_moe", hidden_size=32, moe_intermediate_size=26, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=10, num_experts=7, num_experts_per_tok=3, norm_topk_prob=True,
                     tie_word_embeddings=False, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "qwen2moe": dict(kind="qwen2_moe", hidden_size=32, intermediate_size=40, moe_intermediate_size=22, shared_expert_intermediate_size=36,
                     num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, num_experts=9, num_experts_per_tok=4,
                     norm_topk_prob=False, tie_word_embeddings=False, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    # The first layer has no experts; rope turns half of a head.
    "glm4moe": dict(kind="glm4_moe", hidden_size=32, intermediate_size=40, moe_intermediate_size=18, num_hidden_layers=3,
                    num_attention_heads=4, num_key_value_heads=2, head_dim=12, n_routed_experts=8, num_experts_per_tok=3,
                    n_shared_experts=2, first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True,
                    routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True, tie_word_embeddings=False,
                    pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0, "partial_rotary_factor": 0.5}),
    # Three V heads for a K head, of other sizes; the fourth layer has attention, with rope over half of a head.
    "qwen35": dict(kind="qwen3_5_text", hidden_size=32, intermediate_size=36, num_hidden_layers=4, num_attention_heads=4,
                   num_key_value_heads=2, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=12,
                   linear_value_head_dim=10, tie_word_embeddings=False, pad_token_id=0,
                   rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                                    "mrope_section": [2, 1, 1]}),
    "qwen35moe": dict(kind="qwen3_5_moe_text", hidden_size=32, moe_intermediate_size=22, shared_expert_intermediate_size=28,
                      num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16, num_experts=7,
                      layer_types=["linear_attention", "full_attention"],
                      num_experts_per_tok=3, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
                      linear_value_head_dim=14, tie_word_embeddings=False, pad_token_id=0,
                      rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                                       "mrope_section": [2, 1, 1]}),
    # With a next-token layer.
    "qwen35-mtp": dict(kind="qwen3_5_text", mtp=True, hidden_size=32, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=2, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
                       linear_value_head_dim=12, layer_types=["linear_attention", "full_attention"], tie_word_embeddings=True,
                       pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                                                        "mrope_section": [2, 1, 1]}),
    "mixtral": dict(kind="mixtral", hidden_size=32, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=2, tie_word_embeddings=False, sliding_window=None,
                    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "granitemoe": dict(kind="granitemoeshared", hidden_size=32, intermediate_size=20, shared_intermediate_size=28, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, num_local_experts=7, num_experts_per_tok=3,
                       tie_word_embeddings=False, embedding_multiplier=2.0, attention_multiplier=0.25, residual_multiplier=0.7,
                       logits_scaling=1.25, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
    "ernie4_5-moe": dict(kind="ernie4_5_moe", hidden_size=32, intermediate_size=40, moe_intermediate_size=18, num_hidden_layers=3,
                         num_attention_heads=4, num_key_value_heads=2, moe_num_experts=8, moe_k=3, moe_num_shared_experts=2,
                         moe_layer_start_index=1, tie_word_embeddings=False,
                         rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    # The second layer sees all, the first 12 positions; gates reach their limits; the blended pairs of rope lie between 0.3 and 3.0.
    "gpt-oss": dict(kind="gpt_oss", hidden_size=32, intermediate_size=22, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=12, num_local_experts=6, num_experts_per_tok=2, sliding_window=12,
                    tie_word_embeddings=False, pad_token_id=0,
                    rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 8.0, "beta_fast": 2.0, "beta_slow": 0.25,
                                     "original_max_position_embeddings": 16, "truncate": False}),
    # Every third layer sees all, the others 12 positions; its heads are larger, and V is K.
    "gemma4": dict(kind="gemma4_text", num_hidden_layers=6, head_dim=12, global_head_dim=18, attention_k_eq_v=True,
                   num_global_key_value_heads=1, layer_types=GEMMA4_LAYERS * 2, **GEMMA4),
    "gemma4-experts": dict(kind="gemma4_text", num_hidden_layers=2, head_dim=10, global_head_dim=16, attention_k_eq_v=True,
                           num_global_key_value_heads=1, enable_moe_block=True, num_experts=7, top_k_experts=3,
                           moe_intermediate_size=22, layer_types=GEMMA4_LAYERS[1:], **GEMMA4),
    # The last three layers have no KV of their own, and a wider feed-forward part; all have inputs of their own.
    "gemma4-inputs": dict(kind="gemma4_text", num_hidden_layers=6, head_dim=12, global_head_dim=16, num_kv_shared_layers=3,
                          use_double_wide_mlp=True, layer_types=GEMMA4_LAYERS * 2,
                          **{**GEMMA4, "hidden_size_per_layer_input": 10}),
    # As qwen35moe; V heads that share a K head follow each other, and a K head's parts of a matrix.
    "qwen3next": dict(kind="qwen3_next", hidden_size=32, intermediate_size=36, moe_intermediate_size=22,
                      shared_expert_intermediate_size=28, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                      num_experts=7, layer_types=["linear_attention", "full_attention"], num_experts_per_tok=3, norm_topk_prob=True,
                      linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=14,
                      tie_word_embeddings=False, pad_token_id=0,
                      rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
    # The second layer has attention, the others a short convolution.
    "lfm2": dict(kind="lfm2", hidden_size=32, intermediate_size=36, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                 layer_types=["conv", "full_attention", "conv"], block_auto_adjust_ff_dim=False, tie_word_embeddings=True,
                 rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    # The first layer has no experts.
    "lfm2moe": dict(kind="lfm2_moe", hidden_size=32, intermediate_size=40, moe_intermediate_size=18, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, num_dense_layers=1, num_experts=6, num_experts_per_tok=2,
                    layer_types=["full_attention", "conv"], tie_word_embeddings=True,
                    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    # The first layer has no experts.
    "dots1": dict(kind="dots1", hidden_size=32, intermediate_size=40, moe_intermediate_size=18, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, first_k_dense_replace=1,
                  norm_topk_prob=True, routed_scaling_factor=1.5, tie_word_embeddings=False,
                  layer_types=["full_attention"] * 2, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "seed_oss": dict(kind="seed_oss", hidden_size=32, intermediate_size=38, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=12, attention_bias=True, attention_out_bias=False, tie_word_embeddings=False,
                     rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "ernie4_5": dict(kind="ernie4_5", hidden_size=32, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=10, tie_word_embeddings=True,
                     rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    # Rope turns half of a head; each part's output is normed before it is added.
    "glm4": dict(kind="glm4", hidden_size=32, intermediate_size=34, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 head_dim=12, attention_bias=True, tie_word_embeddings=False, pad_token_id=0,
                 rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
    # The second layer has attention, without rope, the others Mamba-2. transformers takes the shared expert alone as what is dense.
    "granitehybrid": dict(num_hidden_layers=3, num_local_experts=0, mamba_n_groups=2, layer_types=["linear_attention", "full_attention", "linear_attention"],
                          **GRANITE_HYBRID),
    "granite-h-moe": dict(num_hidden_layers=2, num_local_experts=7, mamba_n_groups=1, num_experts_per_tok=3,
                          layer_types=["linear_attention", "full_attention"], **GRANITE_HYBRID),
    # The second layer sees all, without rope, the others 12 positions.
    "exaone4": dict(kind="exaone4", hidden_size=32, intermediate_size=36, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                    head_dim=12, sliding_window=12, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                    tie_word_embeddings=False, pad_token_id=0, rope_parameters=LLAMA3),
    "olmo2": dict(kind="olmo2", hidden_size=32, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                  tie_word_embeddings=False, pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    # The second layer sees all, by YaRN, the others 12 positions.
    "olmo3": dict(kind="olmo3", hidden_size=32, intermediate_size=36, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
                  sliding_window=12, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                  tie_word_embeddings=False, pad_token_id=0,
                  rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 100.0, "factor": 2.0, "beta_fast": 4.0,
                                                      "beta_slow": 1.0, "original_max_position_embeddings": 64},
                                   "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}),
}

BPE = {"llama3": "llama-bpe", "qwen2": "qwen2", "qwen3": "qwen2", "qwen3moe": "qwen2", "qwen2moe": "qwen2",
       "qwen35": "qwen35", "qwen35-mtp": "qwen35", "qwen35moe": "qwen35", "gpt-oss": "gpt-4o", "qwen3next": "qwen2"}  # pre-tokenizer; SPM for the others


def recur_in_double(module):
    """The delta rule of a module of transformers, which is float32 and for prompts in chunks: as the recurrence, in float64."""
    text = inspect.getsource(inspect.unwrap(module.torch_recurrent_gated_delta_rule))
    space = {}
    exec(text[text.index("def "):].replace("torch.float32", "torch.float64"), module.__dict__, space)
    module.torch_chunk_gated_delta_rule = lambda *a, cu_seqlens=None, **k: space["torch_recurrent_gated_delta_rule"](*a, **k)


def scan_in_double(module):
    """The scan of Mamba-2 of a module of transformers, which is float32, in float64: in chunks, which are as exact there."""
    text = inspect.getsource(module)
    text = text[text.index("def mamba2_chunk_scan("):]
    space = {}
    exec(text[:text.index("\n\n\n")].replace(".float()", ".double()"), module.__dict__, space)
    module.mamba2_chunk_scan = space["mamba2_chunk_scan"]


class NextToken(torch.nn.Module):
    """The next-token layer: transformers leaves it out of its models, but has the layer that it consists of."""

    def __init__(self, config):
        super().__init__()
        import transformers.models.qwen3_5.modeling_qwen3_5 as qwen35

        self.enorm, self.hnorm, self.norm = (qwen35.Qwen3_5RMSNorm(config.hidden_size, config.rms_norm_eps) for _ in range(3))
        self.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.layer = qwen35.Qwen3_5DecoderLayer(config, config.layer_types.index("full_attention"))

    def forward(self, model, ids):
        """Logits at every position: of the token there, and what the model says of the position before it."""
        hidden = model.model(ids).last_hidden_state
        before = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)
        x = self.eh_proj(torch.cat([self.enorm(model.model.embed_tokens(ids)), self.hnorm(before)], dim=-1))
        n = ids.shape[1]
        mask = torch.full((n, n), float("-inf"), dtype=x.dtype).triu(1)[None, None]
        turns = model.model.rotary_emb(x, torch.arange(n)[None])
        return model.lm_head(self.norm(self.layer(x, position_embeddings=turns, attention_mask=mask)))


def norm_in_double(module):
    """The norm of a module of transformers, which is float32, in float64: large norms of what is added magnify what it loses."""
    module.Gemma4RMSNorm.forward = lambda norm, x: norm._norm(x) * (norm.weight if norm.with_scale else 1)


def make_model(spec, seed):
    """A model in float64 whose weights are f16 numbers, and whose attention and logits are not flat."""
    spec = dict(spec)
    mtp = spec.pop("mtp", False)
    config = AutoConfig.for_model(spec.pop("kind"), vocab_size=N_VOCAB, max_position_embeddings=128, rms_norm_eps=1e-5,
                                  bos_token_id=1, eos_token_id=2, **spec)
    attention = "eager" if config.model_type == "gpt_oss" else "sdpa"  # the latter has no sinks
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, experts_implementation="eager")
    if mtp:
        model.mtp = NextToken(config)
    model = model.double().eval()
    random = torch.Generator().manual_seed(seed)
    if config.model_type == "gemma4_text":
        norm_in_double(sys.modules[type(model).__module__])
    gemma, gpt_oss = config.model_type == "gemma3_text", config.model_type == "gpt_oss"
    qwen35, gemma4 = config.model_type.startswith(("qwen3_5", "qwen3_next")), config.model_type == "gemma4_text"
    if qwen35:
        recur_in_double(sys.modules[type(model).__module__])
    if config.model_type == "granitemoehybrid":
        scan_in_double(sys.modules[type(model).__module__])
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape, generator=random, dtype=torch.float64)
            if gemma and name.endswith("norm.weight"):  # the model adds 1
                x = 0.25 * x + (5 if "post_" in name else 0)  # else it answers with its last token for ever, too
            elif gemma4 and p.dim() == 1:
                x = 0.25 * x + (5 if "post_attention" in name or name.endswith("post_feedforward_layernorm.weight") else 1)
                x = x / 2 if name.endswith("q_norm.weight") else x  # scores have no other factor
            elif name.endswith("norm.weight"):
                x = 0.25 * x + (0 if qwen35 and "linear_attn" not in name else 1)  # qwen35 adds 1 to the others
            elif name.endswith("A_log"):
                x = 0.5 * x - 1
            elif name.endswith(("q_proj.weight", "k_proj.weight", "qkv_proj.weight")):
                x = 1.5 * x / p.shape[1] ** 0.5
            elif p.dim() >= 2 and "embed_tokens" not in name:
                x = x / p.shape[-1] ** 0.5
            if "lm_head" in name:
                x = x * p.shape[1] ** 0.5
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "down_proj", "w2.weight")):
                x = 3 * x  # else a tied model answers with its last token for ever
            if name.endswith("router.proj.weight") and gemma4:
                x = 3 * x * p.shape[1] ** 0.5  # its input is as much smaller
            if gemma4 and "embed_tokens" in name:
                x = x / 2  # else logits are at their cap
            if gpt_oss and "gate_up_proj" in name:
                x = 3 * x  # some gates reach their limits
            p.copy_(x.to(torch.float16))
        for name, b in model.named_buffers():
            if name.endswith("layer_scalar"):
                b.copy_((0.25 * torch.randn(b.shape, generator=random, dtype=torch.float64) + 1).to(torch.float16))
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                b.copy_((0.3 * torch.randn(b.shape, generator=random, dtype=torch.float64)).to(torch.float16))
    return model


def watch_routers(model):
    """A list to which every router of a mixture of experts adds how close its choices were."""
    gaps = []

    def note(router, inputs, outputs):
        if hasattr(router, "per_expert_scale"):
            scores, k = outputs[0].log().sort(dim=-1, descending=True).values, router.config.top_k_experts
            gaps.append(float((scores[..., k - 1] - scores[..., k]).min()))
            return
        scores = inputs[0] @ router.weight.T + (router.bias if model.config.model_type == "gpt_oss" else 0)
        if hasattr(router, "e_score_correction_bias"):
            scores = scores.sigmoid() + router.e_score_correction_bias
        if len(inputs) > 1:
            scores = scores.sigmoid() + inputs[1]
        if hasattr(router, "moe_statics"):
            scores = router.moe_statics(scores.softmax(dim=-1))
        scores = scores.sort(dim=-1, descending=True).values
        k = router.top_k
        gaps.append(float((scores[..., k - 1] - scores[..., k]).min()))

    for name, module in model.named_modules():
        if name.endswith(("mlp.gate", "moe.router", "mlp.router", "feed_forward.gate")) or type(module).__name__ == "Gemma4TextRouter":
            module.register_forward_hook(note)
    return gaps


def run(model, seed):
    """prompt, logits [N_PROMPT][N_VOCAB], greedy ids, their smallest lead, that in the prompt; None if a sample is close, or an expert's choice."""
    gaps = watch_routers(model)
    prompt = torch.randint(0, N_VOCAB, (N_PROMPT,), generator=torch.Generator().manual_seed(seed)).tolist()
    ids, leads = [], []
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits[0]
        for _ in range(N_ANSWER):
            last = model(torch.tensor([prompt + ids])).logits[0, -1]
            ids.append(int(last.argmax()))
            best = last.topk(2).values
            leads.append(float(best[0] - best[1]))
            # Neither close, nor the end, nor one id over and over.
            if min(gaps, default=1) < LEAST_GAP or leads[-1] < LEAST_LEAD or ids[-1] == 2 or ids.count(ids[-1]) > 6:
                return None
    best = logits.topk(2, dim=1).values
    return prompt, logits.numpy(), ids, min(leads), float((best[:, 0] - best[:, 1]).min())


# ---- the file --------------------------------------------------------------------------------------------------------

def byte_letters():
    """GPT-2's printable letter of every byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


MERGES = ["Ġ t", "h e", "i n", "r e", "Ġ a", "Ġt he", "1 2", "12 3", "123 4", "Ġ Ġ", "ĠĠ ĠĠ", "' l", "'l l", "Ċ Ċ", "! Ċ",
          "' t", "e r", "o n", "Ġ s", "a t", "i s", "( a", "_ a", "l l", "in g", "T H"]
# How the pre-tokenizers cut text before any merge.
WORDS = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
GPT_4O = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{ENDINGS}|"
          r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PRE = {"llama-bpe": WORDS % r"\p{N}{1,3}", "qwen2": WORDS % r"\p{N}", "gpt-4o": GPT_4O,
       "qwen35": (WORDS % r"\p{N}").replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")}
TEXTS = ["the thing is 1234 12345", "we'll    see\n\nhe'LL can't  12\t34", "THE (a_a) over! \n\n  in a\n", "été 中文 is 3.14\r\n"]


def bpe_tokens():
    letters = byte_letters()
    tokens = ["<|pad|>", "<|begin|>", "<|end|>"] + [letters[b] for b in range(256)] + [m.replace(" ", "") for m in MERGES]
    return tokens + [f"<|unused{i}|>" for i in range(N_VOCAB - len(tokens))]


def bpe_ids(pre):
    """What the tokenizers library makes of the texts."""
    tokens = {text: i for i, text in enumerate(bpe_tokens())}
    t = tokenizers.Tokenizer(tokenizers.models.BPE(tokens, [tuple(m.split(" ")) for m in MERGES], ignore_merges=False))
    t.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(PRE[pre]), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return [{"text": text, "ids": t.encode(text).ids} for text in TEXTS]


def add_bpe(out, pre):
    tokens = bpe_tokens()
    kinds = [gguf.TokenType.NORMAL] * N_VOCAB
    for i, text in enumerate(tokens):
        if text.startswith("<|"):
            kinds[i] = gguf.TokenType.CONTROL
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre(pre)
    out.add_token_list(tokens)
    out.add_token_types(kinds)
    out.add_token_merges(MERGES)
    out.add_add_bos_token(False)


def add_spm(out):
    pieces = ["▁", "▁the", "▁a", "th", "he", "in", "▁t", "er", "▁s", "the", "an", "re", *"abcdefghijklmnopq"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces
    kinds = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.BYTE] * 256
    out.add_tokenizer_model("llama")
    out.add_token_list(tokens)
    out.add_token_scores([0.0] * 259 + [-float(i) for i in range(len(pieces))])
    out.add_token_types(kinds + [gguf.TokenType.NORMAL] * len(pieces))
    out.add_unk_token_id(0)


def pairs(weight, heads):
    """Rows of a head from halves (i, i + n/2) to pairs (2i, 2i + 1): files of llama, granite and smollm3 want them so."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).transpose(0, 2, 1, 3).reshape(rows, columns)


def llama3_divisors(rope, head_dim):
    """By how much each pair's frequency is divided: 1, factor, or between for wavelengths between."""
    theta = rope["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim)
    turns = rope["original_max_position_embeddings"] * theta / (2 * np.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


PARTS = {
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.weight": "attn_k.weight", "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.o_proj.weight": "attn_output.weight", "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight", "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight", "mlp.experts.down_proj": "ffn_down_exps.weight",
    "self_attn.qkv_proj.weight": "attn_qkv.weight", "mlp.gate_up_proj.weight": "ffn_up.weight",
}
# The shared expert.
for shared in ("mlp.shared_expert.", "mlp.shared_experts."):
    for part in ("gate", "up", "down"):
        PARTS[f"{shared}{part}_proj.weight"] = f"ffn_{part}_shexp.weight"
PARTS |= {"mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
          "mlp.gate.moe_statics.e_score_correction_bias": "exp_probs_b.bias", "block_sparse_moe.router.weight": "ffn_gate_inp.weight",
          "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight", "shared_mlp.output_linear.weight": "ffn_down_shexp.weight"}
# qwen35 has another name for the norm before the feed-forward part.
QWEN35_PARTS = {**PARTS, "post_attention_layernorm.weight": "post_attention_norm.weight",
                "linear_attn.in_proj_qkv.weight": "attn_qkv.weight", "linear_attn.in_proj_z.weight": "attn_gate.weight",
                "linear_attn.in_proj_ba.weight": "ssm_ba.weight", "linear_attn.in_proj_b.weight": "ssm_beta.weight", "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
                "linear_attn.conv1d.weight": "ssm_conv1d.weight", "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias",
                "linear_attn.norm.weight": "ssm_norm.weight", "linear_attn.out_proj.weight": "ssm_out.weight"}
# Other names for norms.
GEMMA_PARTS = {**PARTS, "post_attention_layernorm.weight": "post_attention_norm.weight",
               "pre_feedforward_layernorm.weight": "ffn_norm.weight", "post_feedforward_layernorm.weight": "post_ffw_norm.weight"}
GLM_PARTS = {**PARTS, "post_attention_layernorm.weight": "post_attention_norm.weight"}
GPT_OSS_PARTS = {**GLM_PARTS, "self_attn.sinks": "attn_sinks.weight",
                 "self_attn.o_proj.bias": "attn_output.bias", "mlp.router.weight": "ffn_gate_inp.weight",
                 "mlp.router.bias": "ffn_gate_inp.bias", "mlp.experts.down_proj_bias": "ffn_down_exps.bias"}
OTHER_PARTS = {"gemma3": GEMMA_PARTS, "glm4moe": GLM_PARTS, "qwen35": QWEN35_PARTS, "qwen35moe": QWEN35_PARTS, "qwen3next": QWEN35_PARTS, "gpt-oss": GPT_OSS_PARTS}
GEMMA4_PARTS = {**GEMMA_PARTS, "layer_scalar": "layer_output_scale.weight", "router.proj.weight": "ffn_gate_inp.weight",
                "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
                "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight",
                "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
                "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
                "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
                "per_layer_input_gate.weight": "inp_gate.weight", "per_layer_projection.weight": "proj.weight",
                "post_per_layer_input_norm.weight": "post_norm.weight"}
OTHER_PARTS["gemma4"] = GEMMA4_PARTS
LFM2_PARTS = {**PARTS, "operator_norm.weight": "attn_norm.weight", "ffn_norm.weight": "ffn_norm.weight",
              "self_attn.q_layernorm.weight": "attn_q_norm.weight", "self_attn.k_layernorm.weight": "attn_k_norm.weight",
              "self_attn.out_proj.weight": "attn_output.weight", "conv.in_proj.weight": "shortconv.in_proj.weight",
              "conv.conv.weight": "shortconv.conv.weight", "conv.out_proj.weight": "shortconv.out_proj.weight",
              "feed_forward.w1.weight": "ffn_gate.weight", "feed_forward.w3.weight": "ffn_up.weight",
              "feed_forward.w2.weight": "ffn_down.weight", "feed_forward.gate.weight": "ffn_gate_inp.weight",
              "feed_forward.expert_bias": "exp_probs_b.bias", "feed_forward.experts.down_proj": "ffn_down_exps.weight"}
GRANITE_HYBRID_PARTS = {**PARTS, "mamba.in_proj.weight": "ssm_in.weight", "mamba.conv1d.weight": "ssm_conv1d.weight",
                        "mamba.conv1d.bias": "ssm_conv1d.bias", "mamba.dt_bias": "ssm_dt.bias", "mamba.A_log": "ssm_a", "mamba.D": "ssm_d",
                        "mamba.norm.weight": "ssm_norm.weight", "mamba.out_proj.weight": "ssm_out.weight"}
OTHER_PARTS["granitehybrid"] = GRANITE_HYBRID_PARTS
OTHER_PARTS["seed_oss"] = GLM_PARTS
OTHER_PARTS["glm4"] = {**PARTS, "post_self_attn_layernorm.weight": "post_attention_norm.weight",
                       "post_mlp_layernorm.weight": "post_ffw_norm.weight"}
OTHER_PARTS["lfm2"] = OTHER_PARTS["lfm2moe"] = LFM2_PARTS
OTHER_PARTS["exaone4"] = OTHER_PARTS["olmo2"] = GEMMA_PARTS
GLOBALS = {"model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
           "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
           "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight", "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
           "model.embedding_norm.weight": "token_embd_norm.weight", "lm_head.weight": "output.weight"}


def tiled(value, c, width):
    """Rows of V heads from the order in which a K head's follow each other to that in which V head h has K head h mod the number of these."""
    shared = c.linear_num_value_heads // c.linear_num_key_heads
    return value.reshape(c.linear_num_key_heads, shared, width, -1).swapaxes(0, 1).reshape(value.shape)


def recurrent_part(part, value, c):
    """A tensor of a recurrent layer as files hold it."""
    width = c.linear_value_head_dim
    keys = 2 * c.linear_num_key_heads * c.linear_key_head_dim
    if part.endswith("A_log"):
        value = -np.exp(value)
    if part.endswith("conv1d.weight"):
        value = value[:, 0]
    if c.model_type == "qwen3_next":
        return value
    if part.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        return np.concatenate([value[:keys], tiled(value[keys:], c, width)])
    if part.endswith(("in_proj_z.weight")):
        return tiled(value, c, width)
    if part.endswith("out_proj.weight"):
        return tiled(value.T, c, width).T
    return value if part.endswith("linear_attn.norm.weight") else tiled(value, c, 1)


def mamba_part(part, value, c):
    """A tensor of Mamba-2 as files hold it."""
    if part.endswith("conv1d.weight"):
        return value[:, 0]
    if part.endswith("A_log"):
        return -np.exp(value)[:, None]
    if part.endswith("norm.weight"):
        return value.reshape(c.mamba_n_groups, -1)
    return value[:, None] if part.endswith(".D") else value


def add_mamba(out, c):
    """Which layers are Mamba-2, and its sizes; the others have no rope."""
    out.add_head_count_kv([0 if kind == "linear_attention" else c.num_key_value_heads for kind in c.layer_types])
    out.add_ssm_conv_kernel(c.mamba_d_conv)
    out.add_ssm_state_size(c.mamba_d_state)
    out.add_ssm_group_count(c.mamba_n_groups)
    out.add_ssm_time_step_rank(c.mamba_n_heads)
    out.add_ssm_inner_size(c.mamba_n_heads * c.mamba_d_head)
    out.add_rope_scaling_finetuned(False)


def query_to_gate(value, c):
    """Rows of q, k, v and z of each K head: as all of q, of k and of v, and all of z."""
    keys, values = c.linear_key_head_dim, c.linear_num_value_heads // c.linear_num_key_heads * c.linear_value_head_dim
    heads = value.reshape(c.linear_num_key_heads, 2 * keys + 2 * values, -1)
    q, k, v, z = (part.reshape(-1, value.shape[1]) for part in np.split(heads, [keys, 2 * keys, 2 * keys + values], axis=1))
    return {"attn_qkv.weight": np.concatenate([q, k, v]), "attn_gate.weight": z}


def add_gemma4(out, c):
    """What only files of gemma4 hold; the divisors of rope leave pairs where they are."""
    local = [kind == "sliding_attention" for kind in c.layer_types]
    layers = [c.per_layer_config[i] for i in range(c.num_hidden_layers)]
    full, own = layers[local.index(False)], layers[local.index(True)]
    shared = c.num_hidden_layers - c.num_kv_shared_layers
    wide = c.intermediate_size * (2 if c.use_double_wide_mlp else 1)
    out.add_feed_forward_length([c.intermediate_size if i < shared else wide for i in range(c.num_hidden_layers)])
    out.add_head_count_kv([layer.num_key_value_heads for layer in layers])
    out.add_key_length(full.head_dim)
    out.add_value_length(full.head_dim)
    out.add_key_length_swa(own.head_dim)
    out.add_value_length_swa(own.head_dim)
    out.add_rope_dimension_count(full.head_dim)
    out.add_rope_dimension_count_swa(own.head_dim)
    out.add_rope_freq_base_swa(c.rope_parameters["sliding_attention"]["rope_theta"])
    out.add_sliding_window(c.sliding_window)
    out.add_sliding_window_pattern(local)
    out.add_shared_kv_layers(c.num_kv_shared_layers)
    out.add_embedding_length_per_layer_input(c.hidden_size_per_layer_input)
    out.add_final_logit_softcapping(c.final_logit_softcapping)
    turned = int(full.head_dim * c.rope_parameters["full_attention"]["partial_rotary_factor"] / 2)
    out.add_tensor("rope_freqs.weight", np.array([1.0] * turned + [1e30] * (full.head_dim // 2 - turned), np.float32))
    if c.enable_moe_block:
        out.add_expert_count(c.num_experts)
        out.add_expert_used_count(c.top_k_experts)
        out.add_expert_feed_forward_length(c.moe_intermediate_size)


def write(model, name, path):
    c = model.config
    gemma, gpt_oss = c.model_type == "gemma3_text", c.model_type == "gpt_oss"
    gemma4 = c.model_type == "gemma4_text"
    arch = {"gemma3_text": "gemma3", "mistral": "llama", "ministral3": "mistral3", "qwen3_moe": "qwen3moe",
            "qwen2_moe": "qwen2moe", "glm4_moe": "glm4moe", "qwen3_5_text": "qwen35",
            "qwen3_5_moe_text": "qwen35moe", "qwen3_next": "qwen3next", "mixtral": "llama", "granitemoeshared": "granitemoe",
            "ernie4_5_moe": "ernie4_5-moe", "gpt_oss": "gpt-oss", "gemma4_text": "gemma4", "lfm2_moe": "lfm2moe", "granitemoehybrid": "granitehybrid", "olmo3": "olmo2"}.get(c.model_type, c.model_type)
    permuted = arch in ("llama", "granite", "smollm3", "mistral3", "granitemoe", "granitehybrid")
    dense_shared = arch == "granitehybrid" and c.num_local_experts == 0  # files have what is dense under its usual names
    head_dim = None if gemma4 else getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    rope = c.rope_parameters.get("full_attention", c.rope_parameters)
    out = gguf.GGUFWriter(path, arch)
    out.add_name(f"oracle {name}")
    out.add_context_length(c.max_position_embeddings)
    out.add_embedding_length(c.hidden_size)
    out.add_block_count(c.num_hidden_layers + hasattr(model, "mtp"))
    if hasattr(model, "mtp"):
        out.add_nextn_predict_layers(1)
    if gemma4:
        add_gemma4(out, c)
    elif arch not in ("qwen35moe", "qwen3next"):
        out.add_feed_forward_length(c.shared_intermediate_size if dense_shared else c.intermediate_size)
    out.add_head_count(c.num_attention_heads)
    if arch.startswith("lfm2"):
        out.add_head_count_kv([0 if kind == "conv" else c.num_key_value_heads for kind in c.layer_types])
        out.add_shortconv_l_cache(c.conv_L_cache)
    elif arch == "granitehybrid":
        add_mamba(out, c)
    elif not gemma4:
        out.add_head_count_kv(c.num_key_value_heads)
    out.add_layer_norm_rms_eps(c.rms_norm_eps)
    out.add_rope_freq_base(rope["rope_theta"])
    if not gemma4 and head_dim * c.num_attention_heads != c.hidden_size:
        out.add_key_length(head_dim)
        out.add_value_length(head_dim)
    if rope["rope_type"] == "linear":
        out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        out.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        out.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        out.add_rope_scaling_factor(rope["factor"])
        out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        out.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        out.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if arch == "mistral3":
        out.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        out.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        out.add_rope_scaling_orig_ctx_len(original)
        out.add_rope_scaling_attn_factors((1 + np.log(c.max_position_embeddings / original) / np.log(original)) ** 0.5)
    if c.model_type == "mistral" and c.sliding_window:
        out.add_sliding_window(c.sliding_window)
    if arch in ("granite", "granitemoe", "granitehybrid"):
        out.add_embedding_scale(c.embedding_multiplier)
        out.add_attention_scale(c.attention_multiplier)
        out.add_residual_scale(c.residual_multiplier)
        out.add_logit_scale(c.logits_scaling)
    if arch in ("qwen3moe", "qwen2moe", "glm4moe", "dots1", "qwen35moe", "qwen3next", "lfm2moe"):
        out.add_expert_count(c.n_routed_experts if arch in ("glm4moe", "dots1") else c.num_experts)
        out.add_expert_used_count(c.num_experts_per_tok)
        out.add_expert_feed_forward_length(c.moe_intermediate_size)
    if arch in ("qwen2moe", "qwen35moe", "qwen3next"):
        out.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)
    if arch == "lfm2moe":
        out.add_leading_dense_block_count(c.num_dense_layers)
        out.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if arch in ("glm4moe", "dots1"):
        out.add_expert_shared_count(c.n_shared_experts)
        out.add_leading_dense_block_count(c.first_k_dense_replace)
        out.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        out.add_expert_weights_scale(c.routed_scaling_factor)
        out.add_expert_weights_norm(c.norm_topk_prob)
    if c.model_type in ("mixtral", "granitemoeshared", "granitemoehybrid") and not dense_shared:
        out.add_expert_count(c.num_local_experts)
        out.add_expert_used_count(c.num_experts_per_tok)
    if arch in ("granitemoe", "granitehybrid") and not dense_shared:
        out.add_expert_shared_feed_forward_length(c.shared_intermediate_size)
    if arch == "ernie4_5-moe":
        out.add_expert_count(c.moe_num_experts)
        out.add_expert_used_count(c.moe_k)
        out.add_expert_feed_forward_length(c.moe_intermediate_size)
        out.add_expert_shared_count(c.moe_num_shared_experts)
        out.add_expert_shared_feed_forward_length(c.moe_intermediate_size * c.moe_num_shared_experts)
        out.add_leading_dense_block_count(c.moe_layer_start_index)
        out.add_interleave_moe_layer_step(c.moe_layer_interval)
    if arch in ("qwen35", "qwen35moe", "qwen3next"):
        out.add_ssm_conv_kernel(c.linear_conv_kernel_dim)
        out.add_ssm_state_size(c.linear_key_head_dim)
        out.add_ssm_group_count(c.linear_num_key_heads)
        out.add_ssm_time_step_rank(c.linear_num_value_heads)
        out.add_ssm_inner_size(c.linear_num_value_heads * c.linear_value_head_dim)
        out.add_full_attention_interval(c.layer_types.index("full_attention") + 1)
        if "mrope_section" in rope:
            out.add_rope_dimension_sections(rope["mrope_section"] + [0])
    if gpt_oss:
        out.add_expert_count(c.num_local_experts)
        out.add_expert_used_count(c.num_experts_per_tok)
        out.add_expert_feed_forward_length(c.intermediate_size)
        out.add_sliding_window(c.sliding_window)
    if "partial_rotary_factor" in rope and not gemma4:
        out.add_rope_dimension_count(int(head_dim * rope["partial_rotary_factor"]))
    if c.model_type in ("exaone4", "olmo3"):
        out.add_sliding_window(c.sliding_window)
        out.add_sliding_window_pattern([kind == "sliding_attention" for kind in c.layer_types])
    if gemma:
        out.add_sliding_window(c.sliding_window)
        out.add_sliding_window_pattern(c.layer_types.index("full_attention") + 1)
    if name in BPE:
        add_bpe(out, BPE[name])
    else:
        add_spm(out)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    if rope["rope_type"] == "llama3":
        out.add_tensor("rope_freqs.weight", llama3_divisors(rope, head_dim))
    if rope["rope_type"] == "longrope":
        out.add_tensor("rope_factors_long.weight", np.array(rope["long_factor"], np.float32))
        out.add_tensor("rope_factors_short.weight", np.array(rope["short_factor"], np.float32))
    for key, value in model.state_dict().items():
        if key == "lm_head.weight" and c.tie_word_embeddings:
            continue
        value = value.numpy()
        if "e_score_correction_bias" in key:
            value = value.reshape(-1)
        if key.endswith("norm.weight") and (gemma or arch in ("qwen35", "qwen35moe", "qwen3next") and "linear_attn" not in key):
            value = value + 1  # files hold the sum
        if key.endswith("conv.conv.weight"):
            value = value[:, 0]
        if "mamba" in key:
            value = mamba_part(key, value, c)
        if "linear_attn" in key:
            value = recurrent_part(key, value, c)
        if permuted and key.endswith("q_proj.weight"):
            value = pairs(value, c.num_attention_heads)
        if permuted and key.endswith("k_proj.weight"):
            value = pairs(value, c.num_key_value_heads)
        if key.startswith("mtp.") and not key.startswith("mtp.layer."):
            part = key.removeprefix("mtp.")
            part = "shared_head_norm.weight" if part == "norm.weight" else part
            tensors = {f"blk.{c.num_hidden_layers}.nextn.{part}": value}
        elif key in GLOBALS:
            tensors = {GLOBALS[key]: value}
        else:
            key = key.replace("mtp.layer.", f"model.layers.{c.num_hidden_layers}.")
            _, _, layer, part = key.split(".", 3)
            if gpt_oss and part in ("mlp.experts.gate_up_proj", "mlp.experts.down_proj"):
                value = value.swapaxes(1, 2)
            if gpt_oss and "gate_up_proj" in part:  # rows of gate and up in turn
                kind = "bias" if part.endswith("bias") else "weight"
                parts = {f"ffn_gate_exps.{kind}": value[:, 0::2], f"ffn_up_exps.{kind}": value[:, 1::2]}
            elif part.endswith("experts.gate_up_proj") and not gemma4:
                parts = dict(zip(["ffn_gate_exps.weight", "ffn_up_exps.weight"], np.split(value, 2, axis=1)))
            elif part == "linear_attn.in_proj_qkvz.weight":
                parts = query_to_gate(value, c)
            elif part == "shared_mlp.input_linear.weight":
                names = ["ffn_gate.weight", "ffn_up.weight"] if dense_shared else ["ffn_gate_shexp.weight", "ffn_up_shexp.weight"]
                parts = dict(zip(names, np.split(value, 2, axis=0)))
            elif dense_shared and part == "shared_mlp.output_linear.weight":
                parts = {"ffn_down.weight": value}
            else:
                parts = {OTHER_PARTS.get(arch, PARTS)[part]: value}
            tensors = {f"blk.{layer}.{part}": v for part, v in parts.items()}
        for tensor, v in tensors.items():
            whole = v.ndim == 1 or tensor.endswith(".bias") or "ffn_gate_inp" in tensor or "conv1d" in tensor or "shortconv.conv" in tensor or tensor.endswith(("ssm_a", "ssm_d", "ssm_norm.weight"))  # F32 in every file
            out.add_tensor(tensor, np.ascontiguousarray(v.astype(np.float32 if whole else np.float16)))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main(folder, names):
    for index, (name, spec) in enumerate(MODELS.items()):
        if names and name not in names:
            continue
        for seed in range(1000 * index, 1000 * index + 1000):
            model = make_model(spec, seed)
            found = run(model, seed)
            if found and found[-1] >= 0.01:
                break
        else:
            raise SystemExit(f"{name}: no seed without a close sample")
        prompt, logits, ids, lead, prompt_lead = found
        write(model, name, folder / f"{name}.gguf")
        logits[:, ::COLUMN_STEP].astype("<f4").tofile(folder / f"{name}.f32")
        if hasattr(model, "mtp"):
            with torch.no_grad():
                drafts = model.mtp(model, torch.tensor([prompt]))[0].numpy()
            drafts[:, ::COLUMN_STEP].astype("<f4").tofile(folder / f"{name}.next.f32")
        about = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}",
                 "seed": seed, "n_vocab": N_VOCAB, "column_step": COLUMN_STEP, "least_lead": round(lead, 4),
                 "prompt": prompt, "argmax": logits.argmax(axis=1).tolist(), "ids": ids}
        about["texts"] = bpe_ids(BPE[name]) if name in BPE else []
        rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in about.items())
        (folder / f"{name}.json").write_text("{\n" + rows + "\n}\n")
        print(f"{name}: seed {seed}, logits to {abs(logits).max():.1f}, least lead {lead:.3f}, in the prompt {prompt_lead:.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:])
