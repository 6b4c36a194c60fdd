# SPDX-License-Identifier: Apache-2.0
"""transformers: a restored cache against the model's own, with the same suffix after both."""

import copy

import kvcodec
import pytest
from kvcodec import Tier, evaluate

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from kvcodec import hf  # noqa: E402

CHUNK, PREFIX, SUFFIX = 32, 96, 20
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"))]


def tiny(dtype=torch.float32, **changes):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**dict(
        vocab_size=300, hidden_size=96, intermediate_size=128, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=3,
        head_dim=16, attn_implementation="eager", initializer_range=0.3), **changes})  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval().to(dtype)


def logits_after(model, cache, ids):
    # The cache grows in place.
    with torch.no_grad():
        return model(ids, past_key_values=copy.deepcopy(cache)).logits[0].float()


def prefix_of(model, ids):
    with torch.no_grad():
        return model(ids, use_cache=True).past_key_values


@pytest.fixture
def ids():
    return torch.randint(3, 300, (1, PREFIX + SUFFIX), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_exact_gives_equal_logits(store, ids, dtype, device):
    model, ids = tiny(dtype).to(device), ids.to(device)
    own = prefix_of(model, ids[:, :PREFIX])
    ns = hf.namespace(model, weights=bytes(32))
    report = hf.publish(store, ns, ids, own, chunk_tokens=CHUNK)
    assert report.written == PREFIX // CHUNK
    cache, tokens = hf.restore(store, ns, ids, model, chunk_tokens=CHUNK)
    assert tokens == PREFIX == cache.get_seq_length()
    for mine, theirs in zip(cache.layers, own.layers):
        assert torch.equal(mine.keys, theirs.keys) and torch.equal(mine.values, theirs.values)
    assert torch.equal(logits_after(model, cache, ids[:, PREFIX:]), logits_after(model, own, ids[:, PREFIX:]))


def test_generate_goes_on_from_a_restored_cache(store, ids):
    model = tiny()
    ns = hf.namespace(model, weights=bytes(32))
    hf.publish(store, ns, ids, prefix_of(model, ids[:, :PREFIX]), chunk_tokens=CHUNK)
    cache, tokens = hf.restore(store, ns, ids, model, chunk_tokens=CHUNK)
    assert tokens == PREFIX
    options = dict(max_new_tokens=8, do_sample=False, pad_token_id=0)
    own = prefix_of(model, ids[:, :PREFIX])
    assert torch.equal(model.generate(ids, past_key_values=cache, **options), model.generate(ids, past_key_values=own, **options))


def test_tiers_below_exact_stay_close_in_their_order(store, ids):
    model = tiny()
    own = prefix_of(model, ids[:, :PREFIX])
    reference = logits_after(model, own, ids[:, PREFIX:])
    profile = kvcodec.Profile.identity(hf.shape_of(model), hf.model_rope(model))
    kl, error = {}, []
    for tier in (Tier.EXACT, Tier.INT8, Tier.HIGH, Tier.BALANCED, Tier.SMALL):
        given = profile if tier not in (Tier.EXACT, Tier.INT8) else None
        ns = hf.namespace(model, weights=bytes(32), profile=given)
        hf.publish(store, ns, ids, own, tier=tier, rope=hf.model_rope(model), profile=given, chunk_tokens=CHUNK)
        cache, tokens = hf.restore(store, ns, ids, model, tier=tier, profile=given, chunk_tokens=CHUNK)
        assert tokens == PREFIX
        error.append(evaluate.distortion(hf.from_cache(own), hf.from_cache(cache))[1].relative_error)
        kl[tier] = float(evaluate.kl_divergence(reference, logits_after(model, cache, ids[:, PREFIX:])).mean())
    assert error[0] == 0 and error == sorted(set(error)), error
    # Random weights are so sensitive that coarser tiers all end far away.
    assert kl[Tier.EXACT] == 0 and 0 < kl[Tier.INT8] < 0.1 < kl[Tier.HIGH], kl


def test_a_whole_prompt_leaves_its_last_token_to_compute(store, ids):
    model = tiny()
    ns = hf.namespace(model, weights=bytes(32))
    hf.publish(store, ns, ids[:, :PREFIX], prefix_of(model, ids[:, :PREFIX]), chunk_tokens=CHUNK)
    cache, tokens = hf.restore(store, ns, ids[:, :PREFIX], model, chunk_tokens=CHUNK)
    assert tokens == PREFIX - 1 == cache.get_seq_length()
    nothing, tokens = hf.restore(store, ns, ids + 1, model, chunk_tokens=CHUNK)
    assert tokens == 0 and nothing.get_seq_length() == 0


def test_what_is_refused(ids):
    model = tiny()
    with pytest.raises(kvcodec.InvalidArgument, match="one sequence"):
        hf.from_cache(prefix_of(model, ids.repeat(2, 1)))
    with pytest.raises(kvcodec.Unsupported, match="not empty"):
        hf.from_cache(transformers.DynamicCache())
    with pytest.raises(kvcodec.InvalidArgument, match="shape"):
        hf.publish(kvcodec.open_store("mem:"), bytes(32), ids.repeat(2, 1), prefix_of(model, ids))
    sliding = transformers.MistralConfig(sliding_window=16, num_hidden_layers=1, hidden_size=32, num_attention_heads=2,
                                         num_key_value_heads=2, intermediate_size=32, vocab_size=50)  # fmt: skip
    with pytest.raises(kvcodec.Unsupported):
        hf.shape_of(transformers.MistralForCausalLM(sliding))
    double = tiny().double()
    with pytest.raises(kvcodec.Unsupported, match="float64"):
        hf.shape_of(double)


def test_namespaces_of_models_differ():
    model, other = tiny(), tiny(rope_parameters={"rope_theta": 5e5, "rope_type": "default"})
    spaces = {hf.namespace(model, weights=bytes(32)), hf.namespace(model, weights=b"x" * 32), hf.namespace(other, weights=bytes(32)),
              hf.namespace(model, weights=bytes(32), salt="t"), hf.namespace(tiny(torch.float16), weights=bytes(32))}  # fmt: skip
    assert len(spaces) == 5
