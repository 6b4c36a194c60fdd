# SPDX-License-Identifier: Apache-2.0
"""What a Hugging Face configuration says of a model's KV cache; shared by the connectors."""

from __future__ import annotations

import math
from typing import Any

from ._native import Rope, RopeStyle


def rope_of(config: Any) -> Rope:
    """How a model's keys are rotated, from its Hugging Face configuration; none where that is not one
    plain rotation for all layers. Tiers below exact are then worse, not wrong."""
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    theta = parameters.get("rope_theta") or getattr(config, "rope_theta", None)
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    heads = getattr(config, "num_attention_heads", 0)
    dim = getattr(config, "head_dim", None) or (config.hidden_size // heads if heads else 0)
    share = parameters.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or 1.0
    rotary = int(dim * share)
    nested = any(isinstance(value, dict) for value in parameters.values())
    if not theta or rotary < 2 or rotary % 2 or nested or kind not in ("default", "linear", "llama3"):
        return Rope()
    frequencies = [theta ** (-2 * i / rotary) for i in range(rotary // 2)]
    if kind == "linear":
        frequencies = [f / parameters["factor"] for f in frequencies]
    elif kind == "llama3":
        frequencies = [_llama3(f, parameters) for f in frequencies]
    return Rope.from_frequencies(RopeStyle.NEOX, frequencies)


def _llama3(frequency: float, p: dict[str, float]) -> float:
    """Llama 3.1's scaling of one frequency."""
    low, high, factor = p["low_freq_factor"], p["high_freq_factor"], p["factor"]
    turns = p["original_max_position_embeddings"] * frequency / (2 * math.pi)
    if turns < low:
        return frequency / factor
    if turns > high:
        return frequency
    smooth = (turns - low) / (high - low)
    return (1 - smooth) * frequency / factor + smooth * frequency
