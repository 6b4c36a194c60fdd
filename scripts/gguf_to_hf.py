#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns a GGUF file of a llama-like model into a Hugging Face folder: model.safetensors in float32,
config.json, tokenizer.json. For tests that need real weights where no model can be downloaded.

Needs numpy, safetensors and tokenizers. Knows architecture llama with a byte-level BPE, and tensors of
F32, F16, Q8_0, Q4_0, Q4_1, Q5_1 and Q6_K (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

Usage: gguf_to_hf.py IN.gguf FOLDER
"""

import json
import pathlib
import re
import struct
import sys

import numpy as np

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def scalar(self, form):
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def string(self):
        size = self.scalar("<Q")
        self.at += size
        return bytes(self.data[self.at - size : self.at]).decode("utf-8", "surrogateescape")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            inner, count = self.scalar("<I"), self.scalar("<Q")
            return [self.value(inner) for _ in range(count)]
        return self.scalar(SCALARS[kind])


def read_gguf(path):
    """(metadata, {name: (type, shape as numpy has it, bytes)})."""
    data = np.memmap(path, np.uint8, "r")
    reader = Reader(data)
    if bytes(data[:4]) != b"GGUF":
        sys.exit(f"{path}: no GGUF file")
    reader.at = 4
    version, tensors, pairs = reader.scalar("<I"), reader.scalar("<Q"), reader.scalar("<Q")
    if version not in (2, 3):
        sys.exit(f"{path}: GGUF version {version}, expected 2 or 3")
    metadata = {}
    for _ in range(pairs):
        key = reader.string()
        metadata[key] = reader.value(reader.scalar("<I"))
    infos = []
    for _ in range(tensors):
        name = reader.string()
        dims = [reader.scalar("<Q") for _ in range(reader.scalar("<I"))]
        infos.append((name, dims[::-1], reader.scalar("<I"), reader.scalar("<Q")))
    alignment = metadata.get("general.alignment", 32)
    start = -(-reader.at // alignment) * alignment
    return metadata, {name: (kind, shape, data[start + offset :]) for name, shape, kind, offset in infos}


def halves(raw):
    return raw.view(np.float16).astype(np.float32)


def nibbles(raw):
    return np.concatenate([raw & 15, raw >> 4], axis=1).astype(np.float32)


def q4_0(b):
    return halves(b[:, :2]) * (nibbles(b[:, 2:]) - 8)


def q4_1(b):
    return halves(b[:, :2]) * nibbles(b[:, 4:]) + halves(b[:, 2:4])


def q5_1(b):
    high = np.unpackbits(b[:, 4:8], axis=1, bitorder="little").astype(np.float32)
    return halves(b[:, :2]) * (nibbles(b[:, 8:]) + 16 * high) + halves(b[:, 2:4])


def q8_0(b):
    return halves(b[:, :2]) * b[:, 2:].view(np.int8)


def q6_k(b):
    low, high, scales = b[:, :128].reshape(-1, 2, 64), b[:, 128:192].reshape(-1, 2, 32), b[:, 192:208].view(np.int8)
    parts = []
    for i in range(4):
        four = low[:, :, 32 * (i % 2) : 32 * (i % 2) + 32] >> (4 * (i // 2)) & 15
        parts.append(four | (high >> (2 * i) & 3) << 4)
    codes = np.stack(parts, axis=2).reshape(-1, 16, 16).astype(np.float32) - 32
    return (halves(b[:, 208:210])[:, :, None] * scales[:, :, None] * codes).reshape(len(b), 256)


# Number in the file: (elements of a block, its bytes, to float32).
TYPES = {0: (1, 4, lambda b: b.view(np.float32)), 1: (1, 2, halves), 2: (32, 18, q4_0), 3: (32, 20, q4_1),
         7: (32, 24, q5_1), 8: (32, 34, q8_0), 14: (256, 210, q6_k)}  # fmt: skip


def floats(name, kind, shape, raw):
    if kind not in TYPES:
        sys.exit(f"{name}: tensor type {kind}, expected one of {sorted(TYPES)}")
    elements, size, decode = TYPES[kind]
    count = int(np.prod(shape)) // elements
    return np.ascontiguousarray(decode(np.ascontiguousarray(raw[: count * size]).reshape(count, size)).reshape(shape), np.float32)


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
        array = floats(name, *tensor)
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
        "vocab_size": tensors["token_embd.weight"][1][0], "hidden_size": width,
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
