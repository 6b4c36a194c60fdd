# SPDX-License-Identifier: Apache-2.0
"""The KV tensors that vLLM registers, in every layout that it has had, and the CPU kernel's own order."""

import kvcodec
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from kvcodec.errors import Unsupported  # noqa: E402
from kvcodec.vllm.layout import Heads, Layout, cpu_kernel, layer_order  # noqa: E402

L, B, H, N, D = 3, 6, 2, 32, 32


def heads(dtype=torch.float32, value_dim=D, kv_heads=H):
    return Heads(kv_heads, D, value_dim, N, dtype)


# Layouts that vLLM has had (engines' tensors by layer), and keys and values [B, N, H, D] in them.
def fused(dtype):
    whole = torch.randn(L, B, H, N, 2 * D).to(dtype)
    return list(whole), [(t[..., :D].transpose(1, 2), t[..., D:].transpose(1, 2)) for t in whole]


def fused_nhd(dtype):
    whole = torch.randn(L, B, N, H, 2 * D).to(dtype)
    return list(whole.transpose(2, 3)), [(t[..., :D], t[..., D:]) for t in whole]


def block_outermost(dtype):
    whole = torch.randn(B, L, H, N, 2 * D).to(dtype)
    return list(whole.transpose(0, 1)), [(t[..., :D].transpose(1, 2), t[..., D:].transpose(1, 2)) for t in whole.transpose(0, 1)]


def kv_second(dtype):
    whole = torch.randn(L, B, 2, N, H, D).to(dtype)
    return list(whole), [(t[:, 0], t[:, 1]) for t in whole]


def kv_first(dtype):
    whole = torch.randn(L, 2, B, N, H, D).to(dtype)
    return list(whole), [(t[0], t[1]) for t in whole]


def allocated_apart(dtype):
    tensors = [torch.randn(B, H, N, 2 * D).to(dtype) for _ in range(L)]
    return tensors, [(t[..., :D].transpose(1, 2), t[..., D:].transpose(1, 2)) for t in tensors]


LAYOUTS = [fused, fused_nhd, block_outermost, kv_second, kv_first, allocated_apart]
BLOCKS = [4, 1, 5]


def expected(pairs, kind):
    rows = torch.stack([pair[kind][BLOCKS].reshape(-1, H, D) for pair in pairs])
    return (rows.view(torch.uint16) if rows.dtype == torch.bfloat16 else rows).numpy()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("make", LAYOUTS)
def test_layouts_are_read_and_written(make, dtype):
    tensors, pairs = make(dtype)
    layout = Layout(tensors, heads(dtype))
    staged = layout.staging(3)
    layout.gather(BLOCKS, staged)
    seen = kvcodec.arrays.views(staged)
    assert all(np.array_equal(seen[kind], expected(pairs, kind)) for kind in (0, 1))
    in_place = layout.cache(BLOCKS)
    assert (in_place is None) == (make is allocated_apart)
    if in_place is not None:
        assert kvcodec.encode_chunk(in_place) == kvcodec.encode_chunk(staged)
    object_ = kvcodec.encode_chunk(staged)
    others = [t.clone() for t in tensors]
    for pair in pairs:
        pair[0][BLOCKS] = 0
        pair[1][BLOCKS] = 0
    if in_place is not None:
        kvcodec.decode_chunk(object_, in_place)
    else:
        layout.scatter(staged, BLOCKS)
    assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(tensors, others))


def test_mla_has_no_values():
    tensors = [torch.randn(B, N, D) for _ in range(L)]
    layout = Layout(tensors, heads(value_dim=0, kv_heads=1))
    staged = layout.staging(3)
    layout.gather(BLOCKS, staged)
    assert layout.shape.value_dim == 0
    assert np.array_equal(kvcodec.arrays.views(staged)[0][:, :, 0], torch.stack([t[BLOCKS].reshape(-1, D) for t in tensors]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_what_the_cpu_kernel_writes_is_what_is_read(dtype, monkeypatch):
    from vllm.v1.attention.backends import cpu_attn

    # Some virtual machines show AMX and trap at its first instruction.
    monkeypatch.setattr(cpu_attn.torch.cpu, "_is_amx_tile_supported", lambda: False)
    tensors = [torch.zeros(B, H, N, 2 * D, dtype=dtype) for _ in range(L)]
    from vllm import _custom_ops as ops

    keys, values = (torch.randn(L, 3 * N, H, D).to(dtype) for _ in range(2))
    slots = torch.cat([torch.arange(N) + block * N for block in BLOCKS])
    isa = cpu_attn._get_attn_isa(dtype, N, D)
    for tensor, key, value in zip(tensors, keys, values):
        halves = tensor.view(B, H, 2 * N, D).chunk(2, dim=2)
        ops.cpu_attn_reshape_and_cache(key, value, *halves, slots, isa)
    layout = Layout(tensors, heads(dtype), cpu_kernel(heads(dtype)))
    staged = layout.staging(3)
    layout.gather(BLOCKS, staged)
    bits = (lambda t: t.view(torch.uint16).numpy()) if dtype == torch.bfloat16 else (lambda t: t.numpy())
    seen = kvcodec.arrays.views(staged)
    assert np.array_equal(seen[0], bits(keys)) and np.array_equal(seen[1], bits(values))


def scrambled_kernel(key, value, cache, slots):
    """Packs in an order that no strides describe, as kernels for matrix units do."""
    n, d = cache.shape[2], key.shape[2]
    flat = torch.cat([key.reshape(-1), value.reshape(-1)])
    order = torch.randperm(2 * n * d, generator=torch.Generator().manual_seed(3))
    cache.view(-1)[order] = flat


def test_a_packed_order_goes_through_staging():
    tensors = [torch.randn(B, H, N, 2 * D) for _ in range(L)]
    layout = Layout(tensors, heads(), scrambled_kernel)
    assert layout.cache(BLOCKS) is None and "permuted" in layout.describe()
    keys, values = (torch.randn(H, N, D) for _ in range(2))
    for h in range(H):
        scrambled_kernel(keys[h][:, None], values[h][:, None], tensors[1][5, h][None, None], None)
    staged = layout.staging(3)
    layout.gather(BLOCKS, staged)
    seen = kvcodec.arrays.views(staged)
    assert np.array_equal(seen[0][1, 2 * N :], keys.transpose(0, 1)) and np.array_equal(seen[1][1, 2 * N :], values.transpose(0, 1))
    others = [t.clone() for t in tensors]
    for tensor in tensors:
        tensor[BLOCKS] = 0
    layout.scatter(staged, BLOCKS)
    assert all(torch.equal(a, b) for a, b in zip(tensors, others))


def test_a_kernel_that_is_not_understood_is_refused():
    tensors = [torch.zeros(B, H, N, 2 * D)]
    for kernel in (lambda *a: None, lambda k, v, cache, s: cache.fill_(1), lambda k, v, cache, s: cache.view(-1).copy_(cache.view(-1) * 0)):
        with pytest.raises(Unsupported, match="once in its block"):
            Layout(tensors, heads(), kernel)


@pytest.mark.parametrize("shape", [(B, H, N, D), (B, N, H, 2 * D), (B, H, N, 2 * D + 2), (B, N, 2 * D), (3, B, N, H, D)])
def test_unknown_shapes_are_refused(shape):
    with pytest.raises(Unsupported, match="expected"):
        Layout([torch.zeros(shape)], Heads(H, D, D, N + 1, torch.float32))


def test_layers_are_in_the_order_of_their_numbers():
    names = [f"model.layers.{i}.self_attn.attn" for i in (10, 9, 0, 1)]
    assert layer_order(names) == [names[2], names[3], names[1], names[0]]
