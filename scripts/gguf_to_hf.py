#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns a GGUF file of a llama-like model into a Hugging Face folder: model.safetensors in float32,
config.json, tokenizer.json. For tests that need real weights where no model can be downloaded.

Needs gguf, safetensors and tokenizers. Knows architecture llama with a byte-level BPE, and every
quantisation that gguf dequantises.

Usage: gguf_to_hf.py IN.gguf FOLDER
"""

import json
import pathlib
import re
import sys

import numpy as np


def read_gguf(path):
    """(metadata, tensors by name)."""
    from gguf import GGUFReader

    reader = GGUFReader(path)
    return {name: field.contents() for name, field in reader.fields.items()}, {t.name: t for t in reader.tensors}


def floats(tensor):
    """Its values, axes as numpy has them."""
    from gguf.quants import dequantize

    values = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
    return np.ascontiguousarray(values.reshape([int(n) for n in tensor.shape[::-1]]))


def to_halves_apart(weight, heads):
    """GGUF's llama rotates neighbouring rows of a head, Hugging Face rows half a head apart."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}  # fmt: skip
WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
         "output.weight": "lm_head.weight"}  # fmt: skip


def weights(metadata, tensors):
    heads, kv_heads = (metadata[f"llama.attention.{name}"] for name in ("head_count", "head_count_kv"))
    result = {}
    for name, tensor in tensors.items():
        array = floats(tensor)
        if name in WHOLE:
            result[WHOLE[name]] = array
            continue
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
        if match is None or match[2] not in NAMES:
            sys.exit(f"{name}: a tensor that a plain llama has not")
        if match[2] in ("attn_q", "attn_k"):
            array = to_halves_apart(array, heads if match[2] == "attn_q" else kv_heads)
        result[f"model.layers.{match[1]}.{NAMES[match[2]]}.weight"] = array
    return result


def config(metadata, tensors):
    heads = metadata["llama.attention.head_count"]
    width = metadata["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "hidden_act": "silu",
        "vocab_size": int(tensors["token_embd.weight"].shape[1]), "hidden_size": width,
        "intermediate_size": metadata["llama.feed_forward_length"], "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": heads, "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "head_dim": metadata.get("llama.rope.dimension_count", width // heads),
        "max_position_embeddings": metadata["llama.context_length"], "rope_theta": metadata.get("llama.rope.freq_base", 10000.0),
        "rms_norm_eps": metadata["llama.attention.layer_norm_rms_epsilon"], "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in tensors, "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
    }  # fmt: skip


def save_tokenizer(metadata, folder):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if metadata["tokenizer.ggml.model"] != "gpt2":
        sys.exit(f"tokenizer {metadata['tokenizer.ggml.model']}: expected gpt2, a byte-level BPE")
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    split = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if metadata.get("tokenizer.ggml.pre") == "smollm":
        split.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(t, special=True) for t, kind in zip(tokens, metadata["tokenizer.ggml.token_type"]) if kind == 3]
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    ends = {name: tokens[metadata[f"tokenizer.ggml.{name}_id"]] for name in ("bos_token", "eos_token")}
    chat = {"chat_template": metadata["tokenizer.chat_template"]} if "tokenizer.chat_template" in metadata else {}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **ends, **chat}))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    from safetensors.numpy import save_file

    metadata, tensors = read_gguf(sys.argv[1])
    if metadata["general.architecture"] != "llama":
        sys.exit(f"architecture {metadata['general.architecture']}: expected llama")
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(metadata, folder)
    (folder / "config.json").write_text(json.dumps(config(metadata, tensors), indent=1))
    save_file(weights(metadata, tensors), str(folder / "model.safetensors"), {"format": "pt"})
    print(f"{folder}: {len(tensors)} tensors")


if __name__ == "__main__":
    main()
