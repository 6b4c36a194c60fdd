# SPDX-License-Identifier: Apache-2.0
"""KvCache objects from numpy arrays and torch tensors, described by their shapes and strides.

Axes are named in one order everywhere: layer, block, token, head, dim. An engine that keeps them in
another order hands over a transposed view; strides are free. Nothing is copied where one piece of
memory and one stride a axis describe all of it; `copy` says what happens otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._native import DType, KvCache, KvGeometry, KvShape, Strides
from .errors import InvalidArgument

_DTYPES = {"float16": DType.F16, "bfloat16": DType.BF16, "float32": DType.F32}
_NUMPY: dict[DType, np.dtype[Any]] = {DType.F16: np.dtype(np.float16), DType.BF16: np.dtype(np.uint16), DType.F32: np.dtype(np.float32)}


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _as_array(array: Any) -> Any:
    """A numpy array or a torch tensor without gradient; anything else through DLPack or buffers."""
    if isinstance(array, np.ndarray):
        return array
    if _is_torch(array):
        return array.detach()
    if hasattr(array, "__dlpack__"):
        return np.from_dlpack(array)
    return np.asarray(array)


def dtype_of(array: Any) -> DType:
    """The element type of an array. numpy knows no bfloat16 by itself: ml_dtypes' is taken."""
    name = str(array.dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise InvalidArgument(f"element type {name}: expected one of {', '.join(_DTYPES)}; bfloat16 as bits "
                              "(uint16) needs dtype=DType.BF16")  # fmt: skip
    return _DTYPES[name]


class _Memory:
    """The whole allocation behind an array: `flat` is its bytes, one axis."""

    def __init__(self, array: Any):
        self.flat: Any = None
        self.writable = True
        if _is_torch(array):
            import torch

            storage = array.untyped_storage()
            self.key = (str(array.device), storage.data_ptr(), storage.nbytes())
            self.address = storage.data_ptr()
            self.flat = torch.empty(0, dtype=torch.uint8, device=array.device).set_(storage)
            return
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        self.address = root.__array_interface__["data"][0]
        self.key = ("numpy", self.address, root.nbytes)
        self.writable = array.flags.writeable
        if root.flags.c_contiguous or root.flags.f_contiguous:
            flat = root.reshape(-1, order="A").view(np.uint8)
            if not self.writable:
                flat = flat.view()
                flat.flags.writeable = False
            self.flat = flat


def _byte_strides(array: Any) -> tuple[int, ...]:
    if _is_torch(array):
        return tuple(s * array.element_size() for s in array.stride())
    return tuple(array.strides)


def _address(array: Any) -> int:
    return int(array.data_ptr() if _is_torch(array) else array.__array_interface__["data"][0])


def _layer_stride(layers: Sequence[Any]) -> int | None:
    """The distance of neighbouring layers in bytes, or None where it is not one number."""
    if len({_byte_strides(layer) for layer in layers}) != 1:
        return None
    steps = {_address(b) - _address(a) for a, b in zip(layers, layers[1:])}
    if len(steps) > 1 or any(step < 0 for step in steps):
        return None
    return steps.pop() if steps else 0


def _check_shapes(keys: Sequence[Any], values: Sequence[Any], axes: int) -> None:
    names = "[token, head, dim]" if axes == 3 else "[block, token, head, dim]"
    if not keys or (values and len(values) != len(keys)):
        raise InvalidArgument(f"{len(keys)} layers of keys and {len(values)} of values: expected as many, at least 1")
    for kind, layers in (("keys", keys), ("values", values)):
        for i, layer in enumerate(layers):
            if len(layer.shape) != axes:
                raise InvalidArgument(f"{kind} of layer {i}: shape {tuple(layer.shape)}, expected {names}")
            if tuple(layer.shape) != tuple(layers[0].shape) or layer.dtype != keys[0].dtype:
                raise InvalidArgument(f"{kind} of layer {i}: {tuple(layer.shape)} {layer.dtype}, expected as in layer 0: "
                                      f"{tuple(layers[0].shape)} {keys[0].dtype}")  # fmt: skip
    if values and tuple(values[0].shape[:-1]) != tuple(keys[0].shape[:-1]):
        raise InvalidArgument(f"values {tuple(values[0].shape)} and keys {tuple(keys[0].shape)} differ in more than dim")


def _describe(keys: Sequence[Any], values: Sequence[Any], shape: KvShape, table: list[int] | None,
              tokens: int) -> KvCache | str:  # fmt: skip
    """The cache in place, or why one geometry cannot describe it."""
    memories = [_Memory(layer) for layer in (*keys, *values)]
    if len({memory.key for memory in memories}) != 1:
        return "layers, keys and values are not parts of one allocation"
    memory = memories[0]
    if memory.flat is None:
        return "the allocation is not contiguous"
    strides: list[Strides] = []
    block_strides = set()
    for layers in (keys, values):
        if not layers:
            strides.append(Strides())
            continue
        layer_stride = _layer_stride(layers)
        axes = _byte_strides(layers[0])
        if layer_stride is None:
            return "the distance between layers is not one number"
        if any(s < 0 for s in axes):
            return "a stride is negative"
        if table is not None:
            block_strides.add(axes[0])
        strides.append(Strides(_address(layers[0]) - memory.address, layer_stride, *axes[-3:]))
    if len(block_strides) > 1:
        return "blocks of keys and values have different strides"
    if table is None:
        geometry = KvGeometry(shape, tokens, strides[0], strides[1])
    else:
        geometry = KvGeometry(shape, tokens, strides[0], strides[1], keys[0].shape[1], block_strides.pop(), table)
    flat = memory.flat
    if not all(m.writable for m in memories) and not _is_torch(flat):
        flat = flat.view()
        flat.flags.writeable = False
    return KvCache(flat, geometry)


def _gathered(keys: Sequence[Any], values: Sequence[Any], shape: KvShape, table: list[int] | None,
              tokens: int) -> KvCache:  # fmt: skip
    """A copy in host memory, keys [layer][token][head][dim] and then values."""
    cache = empty(shape, tokens)
    for copied, layers in zip(views(cache), (keys, values)):
        for out, layer in zip(copied, layers):
            if table is not None:
                layer = layer[table]
                layer = layer.reshape(-1, *layer.shape[2:])[:tokens]
            if _is_torch(layer):
                layer = _torch_bits(layer)
            out[...] = layer.view(out.dtype) if layer.dtype != out.dtype else layer
    return cache


def _torch_bits(tensor: Any) -> Any:
    """A torch tensor on the host as numpy; bfloat16 as its bits."""
    import torch

    tensor = tensor.detach().cpu()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _cache(keys: Sequence[Any], values: Sequence[Any], table: list[int] | None, tokens: int, dtype: DType | None,
           copy: bool | None) -> KvCache:  # fmt: skip
    _check_shapes(keys, values, 3 if table is None else 4)
    first = keys[0]
    value_dim = values[0].shape[-1] if values else 0
    shape = KvShape(len(keys), first.shape[-2], first.shape[-1], value_dim, dtype or dtype_of(first))
    if copy:
        return _gathered(keys, values, shape, table, tokens)
    cache = _describe(keys, values, shape, table, tokens)
    if isinstance(cache, KvCache):
        return cache
    if copy is False:
        raise InvalidArgument(f"{cache}, and copy=False")
    return _gathered(keys, values, shape, table, tokens)


def _layers(tensor: Any) -> list[Any]:
    if tensor is None:
        return []
    if isinstance(tensor, (list, tuple)):
        return [_as_array(layer) for layer in tensor]
    return list(_as_array(tensor))


def from_array(kv: Any, *, dtype: DType | None = None, copy: bool | None = None) -> KvCache:
    """One array [layer, 2, token, head, dim], keys at index 0 and values at 1.

    dtype: for bfloat16 as bits. copy: None copies where a geometry cannot describe the memory,
    False raises InvalidArgument instead (what a target needs), True always copies.
    """
    kv = _as_array(kv)
    if len(kv.shape) != 5 or kv.shape[1] != 2:
        raise InvalidArgument(f"shape {tuple(kv.shape)}, expected [layer, 2, token, head, dim]")
    return _cache(list(kv[:, 0]), list(kv[:, 1]), None, kv.shape[2], dtype, copy)


def from_layers(keys: Any, values: Any = None, *, dtype: DType | None = None, copy: bool | None = None) -> KvCache:
    """Keys and values as arrays [layer, token, head, dim], or as sequences of [token, head, dim].

    values None: the cache keeps none (MLA). dtype and copy as from_array.
    """
    keys, values = _layers(keys), _layers(values)
    return _cache(keys, values, None, keys[0].shape[0] if keys else 0, dtype, copy)


def paged(keys: Any, values: Any, block_table: Any, *, tokens: int | None = None, dtype: DType | None = None,
          copy: bool | None = None) -> KvCache:  # fmt: skip
    """A paged cache: keys and values as [layer, block, token, head, dim], or as sequences of
    [block, token, head, dim]; one sequence's tokens are in the blocks `block_table`, in order.

    tokens: of the sequence; None: all that the table has room for. values, dtype and copy as
    from_layers; a copy is of the sequence's tokens alone.
    """
    keys, values = _layers(keys), _layers(values)
    table = [int(block) for block in block_table]
    block_tokens, blocks = (keys[0].shape[1], keys[0].shape[0]) if keys and len(keys[0].shape) == 4 else (0, 0)
    room = len(table) * block_tokens
    if keys and block_tokens and any(not 0 <= block < blocks for block in table):
        raise InvalidArgument(f"block_table: {max(table)} among them, expected 0 to {blocks - 1}")
    if tokens is not None and not 0 <= tokens <= room:
        raise InvalidArgument(f"tokens {tokens}: the block table has room for {room}")
    return _cache(keys, values, table, room if tokens is None else tokens, dtype, copy)


def empty(shape: KvShape, tokens: int) -> KvCache:
    """Host memory for a cache, zeroed: keys [layer][token][head][dim] and then values."""
    size = {DType.F16: 2, DType.BF16: 2, DType.F32: 4}[shape.dtype]
    strides: list[Strides] = []
    offset = 0
    for dim in (shape.key_dim, shape.value_dim):
        head, token = dim * size, shape.kv_heads * dim * size
        strides.append(Strides(offset, tokens * token, token, head, size))
        offset += shape.layers * tokens * token
    return KvCache(np.zeros(offset, np.uint8), KvGeometry(shape, tokens, strides[0], strides[1]))


def views(cache: KvCache) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Keys and values of a cache in host memory as numpy arrays [layer, token, head, dim]; bfloat16 as
    uint16. Views of its memory; of a paged cache copies. Values have dim 0 where there are none.
    """
    if not cache.on_host:
        raise InvalidArgument("views: the cache is not in host memory")
    geometry, shape = cache.geometry, cache.shape
    memory = cache.memory.numpy() if _is_torch(cache.memory) else np.asarray(cache.memory)
    memory = memory.reshape(-1).view(np.uint8)
    element = _NUMPY[shape.dtype]
    blocks = geometry.block_tokens > 0
    count = 0
    if blocks:
        table = list(geometry.block_table) or list(range(-(-cache.tokens // geometry.block_tokens)))
        count = max(table, default=-1) + 1
    result = []
    for strides, dim in ((geometry.key, shape.key_dim), (geometry.value, shape.value_dim)):
        if dim == 0:
            result.append(np.zeros((shape.layers, cache.tokens, shape.kv_heads, 0), element))
            continue
        axes: tuple[int, ...] = (shape.layers, cache.tokens, shape.kv_heads, dim)
        steps: tuple[int, ...] = (strides.layer, strides.token, strides.head, strides.dim)
        if blocks:
            axes = (shape.layers, count, geometry.block_tokens, *axes[2:])
            steps = (strides.layer, geometry.block_stride, *steps[1:])
        array: np.ndarray[Any, Any] = np.ndarray(axes, element, memory.data, strides.offset, steps)
        if blocks:
            array = array[:, table].reshape(shape.layers, -1, *axes[3:])[:, : cache.tokens]
        result.append(array)
    return result[0], result[1]
