# SPDX-License-Identifier: Apache-2.0
"""Where vLLM keeps the elements of its KV cache, from the tensors it registers.

Nothing here asks for a version: shapes, strides and what the attention kernel does decide. A layout
that is not understood is refused (Unsupported), never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import arrays
from .._native import DType, KvCache, KvGeometry, KvShape
from ..errors import InvalidArgument, Unsupported

DTYPES = {torch.float16: DType.F16, torch.bfloat16: DType.BF16, torch.float32: DType.F32}


@dataclass(frozen=True)
class Heads:
    """What vLLM's KV cache spec says of a layer on this rank. value_dim 0: MLA."""

    kv_heads: int
    key_dim: int
    value_dim: int
    block_tokens: int
    dtype: torch.dtype


def layer_order(names: Sequence[str]) -> list[str]:
    """Names by the numbers in them: model.layers.10 comes after model.layers.9."""
    return sorted(names, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])


def _packed_order(heads: Heads, write: Callable[..., None]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Where a kernel puts key (token, dim) and value (token, dim) in the 2*N*D elements that a head
    has in a block: found by writing numbers with it.

    write(key [N, 1, D], value, cache [1, 1, N, 2 * D], slots [N]) is the kernel. A number is written
    in two digits, as 8 bits of significand are all that bfloat16 has.
    """
    n, d = heads.block_tokens, heads.key_dim
    ids = torch.arange(2 * n * d)
    digits = []
    for digit in (ids % 256, ids // 256):
        cache = torch.full((1, 1, n, 2 * d), -1, dtype=heads.dtype)
        key, value = (part.reshape(n, 1, d).to(heads.dtype) for part in (digit[: n * d], digit[n * d :]))
        write(key, value, cache, torch.arange(n))
        digits.append(cache.reshape(-1).to(torch.float32).to(torch.int64))
    found = (digits[0] + 256 * digits[1]).numpy()
    where = np.full(2 * n * d, -1)
    valid = (found >= 0) & (found < 2 * n * d)
    where[found[valid]] = np.nonzero(valid)[0]
    if len(np.unique(where)) != 2 * n * d or where.min() < 0:
        raise Unsupported("the CPU attention kernel does not keep each key and value once in its block")
    return where[: n * d].reshape(n, d), where[n * d :].reshape(n, d)


def _affine(order: np.ndarray[Any, Any]) -> tuple[int, int, int] | None:
    """(offset, token stride, dim stride) of element positions, or None where they are not that."""
    offset = int(order[0, 0])
    token = int(order[1, 0]) - offset if order.shape[0] > 1 else 0
    dim = int(order[0, 1]) - offset if order.shape[1] > 1 else 0
    tokens, dims = np.indices(order.shape)
    if token < 0 or dim < 0 or not np.array_equal(order, offset + tokens * token + dims * dim):
        return None
    return offset, token, dim


def cpu_kernel(heads: Heads) -> Callable[..., None]:
    """The kernel by which vLLM's CPU attention fills its cache."""
    try:
        from vllm import _custom_ops as ops
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

        isa = _get_attn_isa(heads.dtype, heads.block_tokens, heads.key_dim)
        kernel = ops.cpu_attn_reshape_and_cache
    except (ImportError, AttributeError, TypeError) as error:
        raise Unsupported(f"this vLLM's CPU attention is not known: {error}") from error

    def write(key: Any, value: Any, cache: Any, slots: Any) -> None:
        n = cache.shape[2]
        keys, values = cache.view(1, 1, 2 * n, -1).chunk(2, dim=2)
        kernel(key, value, keys, values, slots, isa)

    return write


class Layout:
    """The registered tensors as keys and values [block, token, head, dim] of every layer."""

    def __init__(self, tensors: Sequence[Any], heads: Heads, kernel: Callable[..., None] | None = None):
        """tensors: by layer, as registered; kernel: of the CPU backend, None elsewhere."""
        self.heads = heads
        self.tensors = list(tensors)
        first = self.tensors[0]
        for i, tensor in enumerate(self.tensors):
            if tensor.shape != first.shape or tensor.stride() != first.stride() or tensor.dtype != heads.dtype:
                raise Unsupported(f"layer {i}: {tuple(tensor.shape)} {tensor.dtype}, layer 0 {tuple(first.shape)}, expected "
                                  f"{heads.dtype}: one KV cache group of equal layers")  # fmt: skip
        if heads.dtype not in DTYPES:
            raise Unsupported(f"KV cache of {heads.dtype}: expected float16, bfloat16 or float32")
        self.shape = KvShape(len(self.tensors), heads.kv_heads, heads.key_dim, heads.value_dim, DTYPES[heads.dtype])
        self._order: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None
        self.keys: list[Any] = []
        self.values: list[Any] = []
        if kernel is not None:
            self._view_packed(kernel)
        else:
            self._view_plain()
        self._in_place = self._find_geometry()

    def _view_plain(self) -> None:
        h, n, dk, dv = self.heads.kv_heads, self.heads.block_tokens, self.heads.key_dim, self.heads.value_dim
        for tensor in self.tensors:
            shape = tuple(tensor.shape)
            if dv == 0:  # MLA: [block, token, dim], or with an axis of one head
                self.keys.append(_as_mla(tensor, n, dk))
                continue
            if len(shape) == 4 and shape[1:] == (h, n, dk + dv):  # keys and values in the last axis
                self.keys.append(tensor[..., :dk].transpose(1, 2))
                self.values.append(tensor[..., dk:].transpose(1, 2))
            elif len(shape) == 5 and shape[1:] == (2, n, h, dk) and dk == dv:
                self.keys.append(tensor[:, 0])
                self.values.append(tensor[:, 1])
            elif len(shape) == 5 and shape[0] == 2 and shape[2:] == (n, h, dk) and dk == dv:
                self.keys.append(tensor[0])
                self.values.append(tensor[1])
            else:
                raise Unsupported(f"KV cache tensor {shape}: expected [block, {h}, {n}, {dk + dv}], [block, 2, {n}, {h}, {dk}] "
                                  f"or [2, block, {n}, {h}, {dk}]")  # fmt: skip

    def _view_packed(self, kernel: Callable[..., None]) -> None:
        h, n, d = self.heads.kv_heads, self.heads.block_tokens, self.heads.key_dim
        first = self.tensors[0]
        if tuple(first.shape[1:]) != (h, n, 2 * d) or first.stride()[2:] != (2 * d, 1) or self.heads.value_dim != d:
            raise Unsupported(f"CPU KV cache tensor {tuple(first.shape)} {first.stride()}: expected [block, {h}, {n}, {2 * d}], "
                              "blocks of a head contiguous")  # fmt: skip
        orders = _packed_order(self.heads, kernel)
        affine = [_affine(order) for order in orders]
        if None in affine:
            self._order = orders
            return
        for tensor in self.tensors:
            block, head = tensor.stride()[:2]
            for views, (offset, token, dim) in zip((self.keys, self.values), (a for a in affine if a)):
                views.append(tensor.as_strided((tensor.shape[0], n, h, d), (block, token, head, dim),
                                               tensor.storage_offset() + offset))  # fmt: skip

    def _find_geometry(self) -> tuple[Any, KvGeometry] | None:
        if not self.keys:
            return None
        try:
            cache = arrays.paged(self.keys, self.values or None, [0], copy=False)
        except InvalidArgument:
            return None
        return cache.memory, cache.geometry

    @property
    def blocks(self) -> int:
        return int((self.keys or self.tensors)[0].shape[0])

    @property
    def on_cpu(self) -> bool:
        return bool(self.tensors[0].device.type == "cpu")

    def describe(self) -> str:
        """For the log."""
        way = "in place" if self._in_place else "through a staging buffer"
        order = "permuted" if self._order else "by strides"
        return f"{self.shape}, {self.blocks} blocks of {self.heads.block_tokens} tokens, {order}, {way}"

    def cache(self, block_ids: list[int]) -> KvCache | None:
        """A sequence's blocks in place, or None where no geometry describes them."""
        if self._in_place is None:
            return None
        memory, g = self._in_place
        tokens = len(block_ids) * self.heads.block_tokens
        return KvCache(memory, KvGeometry(self.shape, tokens, g.key, g.value, g.block_tokens, g.block_stride, block_ids))

    def staging(self, blocks: int) -> KvCache:
        """Host memory in canonical planes for so many blocks."""
        return arrays.empty(self.shape, blocks * self.heads.block_tokens)

    def _planes(self, cache: KvCache) -> list[Any]:
        """Keys and values of staging memory as torch tensors [layer, block, token, head, dim]."""
        result = []
        for plane in arrays.views(cache):
            tensor = torch.from_numpy(plane)
            if self.heads.dtype == torch.bfloat16:
                tensor = tensor.view(torch.bfloat16)
            layers, tokens, *rest = tensor.shape
            result.append(tensor.view(layers, tokens // self.heads.block_tokens, self.heads.block_tokens, *rest))
        return result

    def gather(self, block_ids: list[int], into: KvCache) -> None:
        """Copies blocks into staging memory of as many."""
        self._copy(block_ids, into, to_staging=True)

    def scatter(self, cache: KvCache, block_ids: list[int]) -> None:
        """Copies staging memory into blocks of as many; they are written when it returns."""
        self._copy(block_ids, cache, to_staging=False)
        if not self.on_cpu:
            torch.cuda.current_stream(self.tensors[0].device).synchronize()

    def queued_work(self) -> Callable[[], None]:
        """Waits, when it is called, for what the calling thread's stream has been given until now."""
        if self.on_cpu:
            return lambda: None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.tensors[0].device))

        def wait() -> None:
            event.synchronize()

        return wait

    def _copy(self, block_ids: list[int], staging: KvCache, *, to_staging: bool) -> None:
        index = torch.tensor(block_ids, device=self.tensors[0].device)
        planes = self._planes(staging)
        kinds = ((0, self.keys), (1, self.values)) if self.heads.value_dim else ((0, self.keys),)
        for layer, tensor in enumerate(self.tensors):
            if self._order is not None:
                self._copy_permuted(tensor, index, [plane[layer] for plane in planes], to_staging)
                continue
            for kind, views in kinds:
                if to_staging:
                    planes[kind][layer].copy_(views[layer][index])
                else:
                    views[layer][index] = planes[kind][layer].to(tensor.device)

    def _copy_permuted(self, tensor: Any, index: Any, planes: list[Any], to_staging: bool) -> None:
        assert self._order is not None
        flat = tensor.flatten(2)  # [block, head, N * 2D]
        heads = torch.arange(flat.shape[1])[:, None]
        for plane, order in zip(planes, self._order):
            positions = torch.from_numpy(order.reshape(-1))
            if to_staging:
                rows = flat[index[:, None, None], heads, positions]
                plane.copy_(rows.unflatten(2, order.shape).permute(0, 2, 1, 3))
            else:
                flat[index[:, None, None], heads, positions] = plane.permute(0, 2, 1, 3).flatten(2)


def _as_mla(tensor: Any, n: int, dim: int) -> Any:
    shape = tuple(tensor.shape)
    if shape[1:] == (n, dim):
        return tensor.unsqueeze(2)
    if shape[1:] == (1, n, dim):
        return tensor.transpose(1, 2)
    if shape[1:] == (n, 1, dim):
        return tensor
    raise Unsupported(f"MLA KV cache tensor {shape}: expected [block, {n}, {dim}]")
