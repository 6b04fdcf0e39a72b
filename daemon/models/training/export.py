#!/usr/bin/env python3
"""Write a checkpoint's averaged weights as a GGUF: matrices F16, norms F32.

  export.py --data OUT --to hearth-code-5m-f16.gguf
"""
import argparse
import json
import pathlib

import gguf
import numpy as np
import torch

from corpus import BOS, EOS, MID, PAD, PRE, SPECIALS, SUF
from model import CONFIG

CONTEXT = 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--to", required=True)
    args = parser.parse_args()
    weights = torch.load(args.data / "checkpoint.pt")["ema"]
    bpe = json.loads((args.data / "tokenizer.json").read_text())["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)

    w = gguf.GGUFWriter(args.to, "llama")
    w.add_name("hearth code 5M")
    w.add_license("MIT")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(CONFIG["dim"])
    w.add_block_count(CONFIG["layers"])
    w.add_feed_forward_length(CONFIG["ffn"])
    w.add_head_count(CONFIG["heads"])
    w.add_head_count_kv(CONFIG["kv_heads"])
    w.add_layer_norm_rms_eps(CONFIG["eps"])
    w.add_rope_dimension_count(CONFIG["dim"] // CONFIG["heads"])
    w.add_rope_freq_base(CONFIG["rope_base"])
    w.add_vocab_size(CONFIG["vocab"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.CONTROL if token in SPECIALS else gguf.TokenType.NORMAL
                       for token in tokens])
    w.add_token_merges([" ".join(pair) for pair in bpe["merges"]])
    w.add_bos_token_id(BOS)
    w.add_eos_token_id(EOS)
    w.add_pad_token_id(PAD)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_add_space_prefix(False)
    for key, token in (("pre", PRE), ("suf", SUF), ("mid", MID)):
        w.add_uint32(f"tokenizer.ggml.fim_{key}_token_id", token)
    for name, weight in weights.items():
        assert name.endswith(".weight")
        w.add_tensor(name, weight.numpy().astype(np.float16 if weight.ndim == 2 else np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
