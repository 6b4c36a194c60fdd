# SPDX-License-Identifier: Apache-2.0
"""Caches from shapes and strides: what is seen in place, what is copied, what is refused."""

import itertools

import kvcodec
import numpy as np
import pytest
from kvcodec import arrays
from kvcodec.errors import InvalidArgument

LAYERS, TOKENS, HEADS, DIM = 2, 32, 3, 8


def numbered(*shape, dtype=np.float16):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape).astype(dtype)


def shares_memory(cache, array):
    return np.shares_memory(np.asarray(cache.memory), array)


def round_trip(cache):
    """Keys and values as the library sees them: encoded, and decoded into canonical memory."""
    target = arrays.empty(cache.shape, cache.tokens)
    kvcodec.decode_chunk(kvcodec.encode_chunk(cache), target)
    return arrays.views(target)


def test_one_array_is_seen_in_place():
    kv = numbered(LAYERS, 2, TOKENS, HEADS, DIM)
    cache = arrays.from_array(kv)
    assert shares_memory(cache, kv) and cache.writable
    assert cache.shape == kvcodec.KvShape(LAYERS, HEADS, DIM, dtype=kvcodec.DType.F16)
    keys, values = round_trip(cache)
    assert np.array_equal(keys, kv[:, 0]) and np.array_equal(values, kv[:, 1])


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_any_order_of_axes_is_a_transposed_view(order):
    memory = numbered(LAYERS, *[(TOKENS, HEADS, DIM)[axis] for axis in order])
    keys = memory.transpose(0, *[1 + order.index(axis) for axis in range(3)])
    cache = arrays.from_layers(keys, keys + 1)  # the values are other memory: a copy
    assert not shares_memory(cache, memory)
    cache = arrays.from_layers(keys, copy=False)
    assert shares_memory(cache, memory) and cache.shape.value_dim == 0
    assert np.array_equal(round_trip(cache)[0], keys)


# Layouts of paged caches that engines have had, as (axes of memory, view to [L, B, N, H, D]).
BLOCKS, BLOCK = 7, 16
PAGED = {
    "fused last axis": lambda m: (m[..., :DIM], m[..., DIM:]),
    "two halves": lambda m: (m[:, :, :, :, :, 0], m[:, :, :, :, :, 1]),
}


@pytest.mark.parametrize("layers_apart", [False, True])
@pytest.mark.parametrize("layout", PAGED)
def test_paged_caches_are_seen_in_place(layout, layers_apart):
    last = (2 * DIM,) if layout == "fused last axis" else (DIM, 2)
    memory = numbered(LAYERS, BLOCKS, BLOCK, HEADS, *last, dtype=np.float32)
    keys, values = PAGED[layout](memory)
    table = [5, 0, 3]
    given = (list(keys), list(values)) if layers_apart else (keys, values)
    cache = arrays.paged(*given, table, tokens=41, copy=False)
    assert shares_memory(cache, memory) and cache.tokens == 41
    expected = [a[:, table].reshape(LAYERS, -1, HEADS, DIM)[:, :41] for a in (keys, values)]
    for seen in (round_trip(cache), arrays.views(cache), arrays.views(arrays.paged(*given, table, tokens=41, copy=True))):
        assert all(np.array_equal(a, b) for a, b in zip(seen, expected))


def test_decoding_into_blocks_touches_the_sequence_alone():
    memory = np.full((LAYERS, BLOCKS, BLOCK, HEADS, 2 * DIM), 7, np.float32)
    before = memory.copy()
    kv = numbered(LAYERS, 2, TOKENS, HEADS, DIM, dtype=np.float32)
    target = arrays.paged(memory[..., :DIM], memory[..., DIM:], [6, 1], copy=False)
    kvcodec.decode_chunk(kvcodec.encode_chunk(arrays.from_array(kv)), target)
    restored = memory[:, [6, 1]].reshape(LAYERS, -1, HEADS, 2 * DIM)
    assert np.array_equal(restored[..., :DIM], kv[:, 0]) and np.array_equal(restored[..., DIM:], kv[:, 1])
    memory[:, [6, 1]] = 7
    assert np.array_equal(memory, before)


def test_keys_may_be_stored_transposed_in_their_block():
    # vLLM's CPU attention: in a block and head, K is [dim, token] and V [token, dim] after it.
    memory = numbered(LAYERS, BLOCKS, HEADS, 2 * DIM * BLOCK, dtype=np.float32)
    halves = memory.reshape(LAYERS, BLOCKS, HEADS, 2, DIM * BLOCK)
    keys = halves[:, :, :, 0].reshape(LAYERS, BLOCKS, HEADS, DIM, BLOCK).transpose(0, 1, 4, 2, 3)
    values = halves[:, :, :, 1].reshape(LAYERS, BLOCKS, HEADS, BLOCK, DIM).transpose(0, 1, 3, 2, 4)
    assert np.shares_memory(keys, memory) and np.shares_memory(values, memory)
    cache = arrays.paged(keys, values, [4, 2], copy=False)
    seen = round_trip(cache)
    assert np.array_equal(seen[0], keys[:, [4, 2]].reshape(LAYERS, -1, HEADS, DIM))
    assert np.array_equal(seen[1], values[:, [4, 2]].reshape(LAYERS, -1, HEADS, DIM))


def test_read_only_memory_is_a_source_and_no_target():
    kv = numbered(LAYERS, 2, TOKENS, HEADS, DIM)
    kv.flags.writeable = False
    cache = arrays.from_array(kv, copy=False)
    assert not cache.writable
    with pytest.raises(InvalidArgument, match="read-only"):
        kvcodec.decode_chunk(kvcodec.encode_chunk(cache), cache)


def test_a_read_only_view_of_writable_memory_stays_read_only():
    kv = numbered(LAYERS, 2, TOKENS, HEADS, DIM)
    view = kv[:]
    view.flags.writeable = False
    assert not arrays.from_array(view, copy=False).writable


@pytest.mark.parametrize(
    "call, what",
    [
        (lambda: arrays.from_array(np.zeros((2, 3, 4))), "expected \\[layer, 2"),
        (lambda: arrays.from_array(np.zeros((1, 2, 4, 1, 4), np.float64)), "float64"),
        (lambda: arrays.from_array(np.zeros((1, 2, 4, 1, 4), np.uint16)), "BF16"),
        (lambda: arrays.from_layers([]), "0 layers"),
        (lambda: arrays.from_layers([np.zeros((4, 1, 4), np.float16), np.zeros((5, 1, 4), np.float16)]), "layer 1"),
        (lambda: arrays.from_layers(np.zeros((1, 4, 1, 4), np.float16), np.zeros((1, 5, 1, 4), np.float16)), "differ"),
        (lambda: arrays.from_layers([np.zeros((4, 1, 4), np.float16)] * 2, copy=False), None),
        (lambda: arrays.from_layers([np.zeros((4, 1, 4), np.float16) for _ in range(3)], copy=False), "one allocation"),
        (lambda: arrays.from_layers(np.zeros((1, 4, 1, 4), np.float16)[:, ::-1], copy=False), "negative"),
        (lambda: arrays.paged(np.zeros((1, 3, 4, 1, 4), np.float16), None, [3]), "expected 0 to 2"),
        (lambda: arrays.paged(np.zeros((1, 3, 4, 1, 4), np.float16), None, [-1]), "expected 0 to 2"),
        (lambda: arrays.paged(np.zeros((1, 3, 4, 1, 4), np.float16), None, [1], tokens=5), "room for 4"),
    ],
)
def test_what_is_refused(call, what):
    if what is None:
        assert call().shape.layers == 2  # the same memory twice is a stride of 0
        return
    with pytest.raises(InvalidArgument, match=what):
        call()


def test_layers_apart_and_reversed_tokens_are_copied():
    layers = [numbered(TOKENS, HEADS, DIM) + i for i in range(3)]
    cache = arrays.from_layers(layers, [layer[::-1] for layer in layers])
    keys, values = round_trip(cache)
    assert np.array_equal(keys, np.stack(layers)) and np.array_equal(values, np.stack(layers)[:, ::-1])


def test_a_geometry_outside_its_memory_is_refused():
    shape = kvcodec.KvShape(1, 1, 4)
    with pytest.raises(InvalidArgument):
        kvcodec.KvCache(np.zeros(31, np.uint8), kvcodec.KvGeometry.contiguous(shape, 2))
    with pytest.raises(InvalidArgument, match="contiguous"):
        kvcodec.KvCache(np.zeros(64, np.uint8)[::2], kvcodec.KvGeometry.contiguous(shape, 2))


def test_bfloat16_bits():
    bits = np.arange(2 * TOKENS * DIM, dtype=np.uint16).reshape(1, 2, TOKENS, 1, DIM)
    keys, values = round_trip(arrays.from_array(bits, dtype=kvcodec.DType.BF16))
    assert np.array_equal(keys, bits[:, 0]) and np.array_equal(values, bits[:, 1])


def test_the_cache_keeps_its_memory_alive():
    cache = arrays.from_array(numbered(LAYERS, 2, TOKENS, HEADS, DIM))
    assert np.array_equal(arrays.views(cache)[0], numbered(LAYERS, 2, TOKENS, HEADS, DIM)[:, 0])


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        memory = torch.randn(LAYERS, 2, BLOCKS, HEADS, BLOCK, DIM, requires_grad=True).to(dtype)
        keys, values = memory[:, 0].transpose(2, 3), memory[:, 1].transpose(2, 3)
        cache = arrays.paged(keys, values, torch.tensor([3, 1]), copy=False)
        assert cache.memory.data_ptr() == memory.data_ptr() and cache.writable
        target = torch.zeros(LAYERS, 2, 2 * BLOCK, HEADS, DIM, dtype=dtype)
        kvcodec.decode_chunk(kvcodec.encode_chunk(cache), arrays.from_array(target, copy=False))
        for kind, source in enumerate((keys, values)):
            expected = source[:, [3, 1]].reshape(LAYERS, 2 * BLOCK, HEADS, DIM)
            assert torch.equal(target[:, kind], expected.detach())


def test_torch_layers_apart_are_copied_whatever_their_type():
    torch = pytest.importorskip("torch")
    layers = [torch.randn(TOKENS, HEADS, DIM).to(torch.bfloat16) for _ in range(3)]
    keys, _ = round_trip(arrays.from_layers(layers))
    assert np.array_equal(keys, torch.stack(layers).view(torch.uint16).numpy())
