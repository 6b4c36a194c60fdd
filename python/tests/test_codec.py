# SPDX-License-Identifier: Apache-2.0
import kvcodec
import numpy as np
import pytest
from kvcodec import DecodeOptions, Tier, arrays
from kvcodec.errors import Corrupt, InvalidArgument

from conftest import kv_like


def relative_error(a, b):
    return np.linalg.norm(a.astype(np.float32) - b) / np.linalg.norm(b.astype(np.float32))


@pytest.mark.parametrize("name", ["smollm2_exact", "smollm2_int8", "balanced_smollm2", "high_smollm2",
                                  "int8_f16_interleaved", "exact_bf16", "exact_f32_special", "balanced_identity",
                                  "exact_no_values"])  # fmt: skip
def test_golden_objects_decode_to_their_bytes(golden, root, name):
    object_, raw = golden(name)
    info = kvcodec.chunk_info(object_)
    assert info.object_bytes == len(object_) and info.values * (4 if info.shape.dtype == kvcodec.DType.F32 else 2) == len(raw)
    profile = None
    if "smollm2" in name and info.tier not in (Tier.EXACT, Tier.INT8):
        profile = kvcodec.Profile.load(str(root / "tests/golden/profiles/smollm2_cut.safetensors"))
        assert profile.digest == info.profile and not profile.is_identity
    memory = np.zeros(len(raw), np.uint8)
    target = kvcodec.KvCache(memory, kvcodec.KvGeometry.contiguous(info.shape, info.tokens))
    options = DecodeOptions(expected=info.id, profile=profile)
    kvcodec.decode_chunk(object_, target, options=options)
    assert memory.tobytes() == raw
    kvcodec.verify_chunk(object_, options)


@pytest.mark.parametrize("tier, error, bits", [(Tier.EXACT, 0, 16), (Tier.INT8, 0.02, 8.5), (Tier.HIGH, 0.1, 8.5),
                                               (Tier.BALANCED, 0.2, 6), (Tier.SMALL, 0.4, 5)])  # fmt: skip
def test_tiers_keep_what_they_promise(kv, tier, error, bits):
    cache = arrays.from_array(kv)
    profile = kvcodec.Profile.identity(cache.shape) if tier not in (Tier.EXACT, Tier.INT8) else None
    object_ = kvcodec.encode_chunk(cache, tier=tier, profile=profile)
    info = kvcodec.chunk_info(object_)
    target = arrays.empty(cache.shape, cache.tokens)
    kvcodec.decode_chunk(object_, target, options=DecodeOptions(profile=profile, expected_tier=tier))
    keys, values = arrays.views(target)
    assert info.tier == tier
    assert relative_error(keys, kv[:, 0]) <= error and relative_error(values, kv[:, 1]) <= error
    assert 0 < info.bits_per_value < bits


def test_ranges_and_positions(kv):
    cache = arrays.from_array(kv)
    id_ = kvcodec.ChunkId(bytes(range(32)), bytes(32), 32)
    object_ = kvcodec.encode_chunk(cache, 32, 40, id_)
    info = kvcodec.chunk_info(object_)
    assert info.id == id_ and info.tokens == 40 and info.id.first_token == 32
    target = np.zeros_like(kv)
    kvcodec.decode_chunk(object_, arrays.from_array(target), 50)
    assert np.array_equal(target[:, :, 50:90], kv[:, :, 32:72])
    assert not target[:, :, :50].any() and not target[:, :, 90:].any()


def test_equal_input_gives_equal_bytes(kv):
    cache = arrays.from_array(kv)
    assert kvcodec.encode_chunk(cache, tier=Tier.INT8, threads=1) == kvcodec.encode_chunk(cache, tier=Tier.INT8, threads=2)


def test_every_damaged_byte_is_found_and_nothing_is_written(kv):
    object_ = bytearray(kvcodec.encode_chunk(arrays.from_array(kv)))
    target = np.zeros_like(kv)
    for at in range(0, len(object_), max(1, len(object_) // 50)):
        object_[at] ^= 0x10
        with pytest.raises((Corrupt, kvcodec.Unsupported)):
            kvcodec.decode_chunk(object_, arrays.from_array(target))
        object_[at] ^= 0x10
    assert not target.any()
    kvcodec.decode_chunk(object_, arrays.from_array(target))
    assert np.array_equal(target, kv)


def test_expectations(kv):
    cache = arrays.from_array(kv)
    object_ = kvcodec.encode_chunk(cache, tier=Tier.INT8, id=kvcodec.ChunkId(bytes(32), bytes(32)))
    kvcodec.verify_chunk(object_, DecodeOptions(lowest_tier=Tier.INT8))
    for options in (DecodeOptions(expected_tier=Tier.EXACT), DecodeOptions(lowest_tier=Tier.EXACT),
                    DecodeOptions(expected=kvcodec.ChunkId(bytes(32), b"x" * 32))):  # fmt: skip
        with pytest.raises(Corrupt):
            kvcodec.verify_chunk(object_, options)
    with pytest.raises(Corrupt):
        kvcodec.verify_chunk(object_, DecodeOptions(max_object_bytes=100))


def test_wrong_calls(kv):
    cache = arrays.from_array(kv)
    with pytest.raises(InvalidArgument, match="shape|layers"):
        kvcodec.decode_chunk(kvcodec.encode_chunk(cache), arrays.from_array(kv_like(2, 96, 2, 16)))
    for first, count in ((97, None), (0, 97), (96, 1), (0, 0)):
        with pytest.raises(InvalidArgument):
            kvcodec.encode_chunk(cache, first, count)
    kv[1, 0, 5, 1, 3] = np.nan
    kvcodec.verify_chunk(kvcodec.encode_chunk(cache))
    with pytest.raises(InvalidArgument, match="token"):
        kvcodec.encode_chunk(cache, tier=Tier.INT8)


def test_profiles(kv):
    cache = arrays.from_array(kv)
    rope = kvcodec.Rope.plain(kvcodec.RopeStyle.NEOX, 16, 10000)
    profile = kvcodec.Profile.identity(cache.shape, rope, "some model")
    again = kvcodec.Profile.parse(profile.to_bytes())
    assert again.digest == profile.digest and again.model == "some model" and again.rope == rope
    assert again.tier(Tier.HIGH).step < again.tier(Tier.BALANCED).step < again.tier(Tier.SMALL).step
    name = kvcodec.rendition_name(Tier.BALANCED, profile)
    assert name == "balanced-" + profile.digest.hex()[:16] and kvcodec.rendition_tier(name) == Tier.BALANCED
    profile.check_shape(cache.shape)
    with pytest.raises(InvalidArgument):
        profile.check_shape(kvcodec.KvShape(9, 2, 16))
    with pytest.raises(InvalidArgument):
        profile.tier(Tier.EXACT)
    with pytest.raises(Corrupt):
        kvcodec.Profile.parse(profile.to_bytes()[:-1])


def test_rope():
    base = 1e4 ** (-np.arange(8) / 8)
    rope = kvcodec.Rope.from_frequencies(kvcodec.RopeStyle.NEOX, list(base))
    plain = kvcodec.Rope.plain(kvcodec.RopeStyle.NEOX, 16, 1e4)
    assert rope.rotary_dims == 16 and plain.rotary_dims == 16
    difference = [abs(a - b) for a, b in zip(rope.phase_steps, plain.phase_steps)]
    assert max(difference) <= 2**20
    assert kvcodec.Rope() == kvcodec.Rope() != plain
    with pytest.raises(InvalidArgument):
        kvcodec.Rope.from_frequencies(kvcodec.RopeStyle.NEOX, [float("nan")])
