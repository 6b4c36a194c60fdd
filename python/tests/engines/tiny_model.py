# SPDX-License-Identifier: Apache-2.0
"""A tiny llama with random weights, large enough that its greedy tokens depend on the whole prompt.

Usage: tiny_model.py FOLDER [SEED]
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "hidden_act": "silu",
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 2048, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
    "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def make(folder, seed=7):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    random = torch.Generator().manual_seed(seed)
    width, hidden, kv = 128, 256, 64

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=random) * 0.2

    tensors = {"model.embed_tokens.weight": matrix(512, width), "lm_head.weight": matrix(512, width),
               "model.norm.weight": torch.ones(width)}  # fmt: skip
    for i in range(3):
        at = f"model.layers.{i}."
        shapes = {"self_attn.q_proj": (width, width), "self_attn.k_proj": (kv, width), "self_attn.v_proj": (kv, width),
                  "self_attn.o_proj": (width, width), "mlp.gate_proj": (hidden, width), "mlp.up_proj": (hidden, width),
                  "mlp.down_proj": (width, hidden)}  # fmt: skip
        tensors.update({f"{at}{name}.weight": matrix(*shape) for name, shape in shapes.items()})
        tensors.update({f"{at}{name}.weight": torch.ones(width) for name in ("input_layernorm", "post_attention_layernorm")})
    save_file(tensors, str(folder / "model.safetensors"), {"format": "pt"})


if __name__ == "__main__":
    make(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7)
