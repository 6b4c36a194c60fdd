# SPDX-License-Identifier: Apache-2.0
"""KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache (Liu et al., ICML 2024, arXiv
2402.02750).

From the paper: keys are quantised by channel in groups of 32 tokens, values by token in groups of
32 channels; asymmetric, zero point = smallest value, scale = range / (2^bits - 1), both float16
for every group; group size 32 and residual length 128. The residual stays in full precision: of
the keys, the last `tokens mod 128`; of the values, the last 128 tokens. Keys are quantised as they
are cached, rotated. Nothing is entropy coded. Nothing differs.
"""

import numpy as np

GROUP, RESIDUAL = 32, 128


def quantise_groups(x, bits):
    """x [..., groups, GROUP]: each last axis by its own range. Returns what is restored."""
    low = x.min(-1, keepdims=True).astype(np.float16).astype(np.float32)
    scale = ((x.max(-1, keepdims=True) - low) / (2**bits - 1)).astype(np.float16).astype(np.float32)
    scale[scale == 0] = 1
    return np.clip(np.rint((x - low) / scale), 0, 2**bits - 1) * scale + low


def encode(bits, cache):
    """Returns (key, value, bits of the object)."""
    key, value = cache.key.astype(np.float32), cache.value.astype(np.float32)
    layers, tokens, heads, dim = key.shape
    value_dim = value.shape[3]
    if dim % GROUP or value_dim % GROUP:
        raise ValueError(f"KIVI: heads of {dim} and {value_dim} are not whole groups of {GROUP}")
    kept = tokens // RESIDUAL * RESIDUAL
    if kept:
        # [layers, kept, heads, dim] -> [layers, heads, dim, groups, GROUP]: 32 tokens of a channel.
        part = key[:, :kept].transpose(0, 2, 3, 1).reshape(layers, heads, dim, -1, GROUP)
        key[:, :kept] = quantise_groups(part, bits).reshape(layers, heads, dim, kept).transpose(0, 3, 1, 2)
    total = layers * heads * dim * (kept * (bits + 32 / GROUP) + 16 * (tokens - kept))
    old = max(0, tokens - RESIDUAL)
    part = value[:, :old].reshape(layers, old, heads, value_dim // GROUP, GROUP)
    value[:, :old] = quantise_groups(part, bits).reshape(value[:, :old].shape)
    total += layers * heads * value_dim * (old * (bits + 32 / GROUP) + 16 * (tokens - old))
    return key, value, total
