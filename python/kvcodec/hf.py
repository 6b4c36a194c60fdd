# SPDX-License-Identifier: Apache-2.0
"""KV caches of Hugging Face transformers: publish from a DynamicCache, restore into one.

The exactness oracle of this project: what a model says after a restored cache can be compared with
what it says after its own. Works on CPUs and CUDA devices; tensors of a device are copied to the host
to be encoded, and what was decoded is copied back.

    ns = kvcodec.hf.namespace(model, weights=digest)
    kvcodec.hf.publish(store, ns, ids, model(ids, use_cache=True).past_key_values)
    cache, tokens = kvcodec.hf.restore(store, ns, ids, model)
    model(ids[:, tokens:], past_key_values=cache)
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache

from . import arrays
from ._native import (
    DType,
    FetchReport,
    KvCache,
    KvShape,
    Profile,
    PublishReport,
    Rope,
    Store,
    Tier,
    fetch_prefix,
    namespace_digest,
    publish_prefix,
    rendition_name,
)
from .engine_config import rope_of
from .errors import InvalidArgument, Unsupported

_TORCH = {DType.F16: torch.float16, DType.BF16: torch.bfloat16, DType.F32: torch.float32}


def shape_of(model: Any) -> KvShape:
    """Of the cache that a model fills, from its configuration and dtype. Raises Unsupported for caches
    that are not one plain list of layers."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or getattr(config, "sliding_window", None):
        raise Unsupported(f"layers of {', '.join(sorted(kinds))}: expected full attention in all of them")
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    dtypes = {v: k for k, v in _TORCH.items()}
    if model.dtype not in dtypes:
        raise Unsupported(f"model of {model.dtype}: expected one of {', '.join(map(str, dtypes))}")
    return KvShape(config.num_hidden_layers, heads, dim, dim, dtypes[model.dtype])


def model_rope(model: Any) -> Rope:
    """How the model rotates its keys; none where that is not known, which costs tiers below exact
    some of their ratio."""
    return rope_of(model.config.get_text_config())


def namespace(model: Any, *, weights: bytes, salt: str = "", profile: Profile | None = None) -> bytes:
    """Of a model's caches. weights: a SHA-256 that stands for the model's weights."""
    digest = profile.digest if profile is not None else None
    return namespace_digest(str(model.config.model_type), shape_of(model), weights, model_rope(model), 0, 1, salt, digest)


def from_cache(cache: Any) -> KvCache:
    """A DynamicCache of one sequence as a KvCache; tokens are those it holds. A copy, as its layers are
    tensors of their own."""
    layers = getattr(cache, "layers", None)
    if not layers or any(getattr(layer, "is_sliding", False) for layer in layers):
        raise Unsupported(f"{type(cache).__name__}: expected a DynamicCache of layers with full attention, not empty")
    batches = {layer.keys.shape[0] for layer in layers}
    if batches != {1}:
        raise InvalidArgument(f"a cache of batch {sorted(batches)}: expected one sequence; slice it first")
    return arrays.from_layers([layer.keys[0].transpose(0, 1) for layer in layers],
                              [layer.values[0].transpose(0, 1) for layer in layers])  # fmt: skip


def to_cache(restored: KvCache, tokens: int, device: Any = "cpu") -> DynamicCache:
    """The first `tokens` of a cache in host memory as a DynamicCache of one sequence on `device`."""
    dtype = _TORCH[restored.shape.dtype]
    cache = DynamicCache()
    planes = []
    for plane in arrays.views(restored):
        tensor = torch.from_numpy(plane)
        tensor = tensor.view(dtype) if tensor.dtype != dtype else tensor
        planes.append(tensor[:, :tokens].permute(0, 2, 1, 3))  # [layer, head, token, dim]
    for layer, (keys, values) in enumerate(zip(*planes)):
        # Contiguous copies: attention kernels may take another path for other strides.
        cache.update(keys[None].contiguous().to(device), values[None].contiguous().to(device), layer)
    return cache


def _one_sequence(ids: Any) -> list[int]:
    flat = torch.as_tensor(ids)
    if flat.dim() == 2 and flat.shape[0] == 1:
        flat = flat[0]
    if flat.dim() != 1:
        raise InvalidArgument(f"ids of shape {tuple(flat.shape)}: expected one sequence")
    return [int(i) for i in flat.tolist()]


def publish(store: Store, ns: bytes, ids: Any, cache: Any, *, tier: Tier = Tier.EXACT, rope: Rope | None = None,
            profile: Profile | None = None, **options: Any) -> PublishReport:  # fmt: skip
    """Stores the whole chunks of a sequence whose cache is given. options: those of publish_prefix."""
    tokens, source = _one_sequence(ids), from_cache(cache)
    return publish_prefix(store, ns, tokens[: source.tokens], source, tier=tier, rope=rope or Rope(), profile=profile, **options)


def fetch(store: Store, ns: bytes, ids: Any, shape: KvShape, *, tier: Tier = Tier.EXACT, profile: Profile | None = None,
          **options: Any) -> tuple[KvCache, FetchReport]:  # fmt: skip
    """What is stored of a sequence, in host memory. options: those of fetch_prefix."""
    tokens = _one_sequence(ids)
    target = arrays.empty(shape, len(tokens))
    report = fetch_prefix(store, ns, tokens, target, rendition=rendition_name(tier, profile), profile=profile, **options)
    return target, report


def restore(store: Store, ns: bytes, ids: Any, model: Any, *, keep: int = 1, **options: Any) -> tuple[DynamicCache, int]:
    """(cache, tokens in it) of the longest stored prefix of a sequence, on the model's device.

    keep: so many tokens at the end are left to be computed, as logits come with no cache. options:
    those of fetch. Compute ids[:, tokens:] with the cache next; (empty cache, 0) where nothing is stored.
    """
    count = len(_one_sequence(ids))
    target, report = fetch(store, ns, ids, shape_of(model), **options)
    tokens = min(report.tokens_restored, max(0, count - keep))
    return (to_cache(target, tokens, model.device) if tokens else DynamicCache()), tokens
