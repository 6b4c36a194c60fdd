# SPDX-License-Identifier: Apache-2.0
"""The connector's parts by themselves: options, identity, decisions, saves and loads."""

import dataclasses
import pathlib
import threading
import time
import types

import kvcodec
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from kvcodec.errors import InvalidArgument, Unavailable, Unsupported  # noqa: E402
from kvcodec.vllm import identity as ident  # noqa: E402
from kvcodec.vllm.backing import Backing  # noqa: E402
from kvcodec.vllm.jobs import LoadResult, SaveJob, StepResults  # noqa: E402
from kvcodec.vllm.layout import Layout  # noqa: E402
from kvcodec.vllm.metrics import KvCodecStats  # noqa: E402
from kvcodec.vllm.reuse import RETRY_EVERY, ReusePolicy  # noqa: E402
from kvcodec.vllm.saving import Saver  # noqa: E402
from kvcodec.vllm.scheduling import KeyMemory, SchedulerSide  # noqa: E402
from kvcodec.vllm.settings import Settings  # noqa: E402

from test_vllm_layout import D, H, L, N, B, fused, heads  # noqa: E402

SHAPE = kvcodec.KvShape(L, H, D, dtype=kvcodec.DType.F32)


# Options.


def test_settings():
    settings = Settings.parse({"store": "mem:", "chunk_tokens": 128}, 32)
    assert settings.chunk_tokens == 128 and settings.rendition(None) == "exact"
    for wrong, what in (({}, "store"), ({"store": "mem:", "chunk_tokens": 100}, "block_size 32"), ({"store": "mem:", "teir": 1}, "teir"),
                        ({"store": "mem:", "tier": "tiny"}, "tiny"), ({"store": "mem:", "tier": "balanced"}, "profile"),
                        ({"store": 3}, "expected str"), ({"store": "mem:", "load": 1}, "expected bool"),
                        ({"store": "mem:", "min_tokens": True}, "expected int"), ({"store": "mem:", "load_threads": 0}, "below 1")):  # fmt: skip
        with pytest.raises(InvalidArgument, match=what):
            Settings.parse(wrong, 32)


def test_every_option_is_documented(root):
    text = (root / "docs" / "connectors.md").read_text()
    missing = [field.name for field in dataclasses.fields(Settings) if f"`{field.name}`" not in text]
    assert not missing


# Identity.


def identity(**changes):
    fields = dict(name="m", weights=bytes(32), config={"hidden_size": 64}, shape=SHAPE, rope=kvcodec.Rope(), ranks=1, salt="",
                  profile=None)  # fmt: skip
    return ident.Identity(**{**fields, **changes})


def test_all_that_matters_is_in_the_namespace():
    seen = {identity().namespaces(None, "")[0]}
    rope = kvcodec.Rope.plain(kvcodec.RopeStyle.NEOX, D, 1e4)
    for changes in ({"name": "n"}, {"weights": b"w" * 32}, {"config": {"hidden_size": 65}}, {"rope": rope}, {"salt": "t"},
                    {"profile": b"p" * 32}, {"shape": kvcodec.KvShape(L, H, D, dtype=kvcodec.DType.F16)}):  # fmt: skip
        seen.add(identity(**changes).namespaces(None, "")[0])
    for salt, lora in (("t", ""), ("", "t"), ("a", "bc"), ("ab", "c"), ("2:ab", "")):
        seen.add(identity().namespaces(salt, lora)[0])
    assert len(seen) == 1 + 7 + 5 - 0
    two = identity(ranks=2).namespaces(None, "")
    assert len(seen | set(two)) == len(seen) + 2
    assert identity(config={"hidden_size": 64, "transformers_version": "9"}).namespaces("", "") == identity().namespaces(None, "")


def test_weights_are_identified_by_their_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(Unsupported, match="no weight files"):
        ident.files_digest(str(folder))
    (folder / "model.safetensors").write_bytes(b"1")
    first = ident.files_digest(str(folder))
    assert ident.files_digest(str(folder)) == first
    (folder / "README.md").write_text("no weights")
    assert ident.files_digest(str(folder)) == first
    (folder / "model.safetensors").write_bytes(b"2")
    assert ident.files_digest(str(folder)) != first
    lora = types.SimpleNamespace(lora_name="a", lora_path=str(folder))
    assert ident.lora_identity(None) == "" and ident.lora_identity(lora).startswith("a ")
    with pytest.raises(Unsupported):
        ident.lora_identity(types.SimpleNamespace(lora_name="a", lora_path="/nowhere"))


def test_rope_from_configurations():
    base = dict(hidden_size=64, num_attention_heads=2, head_dim=None)
    plain = ident.rope_of(types.SimpleNamespace(**base, rope_theta=1e4))
    assert plain.rotary_dims == 32 and plain.style == kvcodec.RopeStyle.NEOX
    linear = ident.rope_of(types.SimpleNamespace(**base, rope_parameters={"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0}))
    assert linear.phase_steps[0] == pytest.approx(plain.phase_steps[0] / 2)
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192, "rope_theta": 5e5}  # fmt: skip
    scaled = ident.rope_of(types.SimpleNamespace(**{**base, "head_dim": 128}, rope_parameters=llama3))
    unscaled = kvcodec.Rope.plain(kvcodec.RopeStyle.NEOX, 128, 5e5)
    assert scaled.phase_steps[0] == pytest.approx(unscaled.phase_steps[0])
    assert scaled.phase_steps[-1] == pytest.approx(unscaled.phase_steps[-1] / 8, rel=1e-6)
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = transformers.LlamaConfig(hidden_size=256, num_attention_heads=2, head_dim=128, max_position_embeddings=8192, rope_parameters=llama3)
    theirs, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    turns = [step / 2**64 * 2 * np.pi for step in scaled.phase_steps]
    assert turns == pytest.approx(theirs.tolist(), rel=1e-5)
    for unknown in ({"rope_type": "yarn", "rope_theta": 1e4}, {"full_attention": {"rope_theta": 1e4}}, {}):
        assert ident.rope_of(types.SimpleNamespace(**base, rope_parameters=unknown)) == kvcodec.Rope()


# Decisions.


def test_reuse_policy():
    fixed = ReusePolicy(100, 256)
    assert not fixed.worth(99) and fixed.worth(100) and not ReusePolicy(0, 256).worth(0)
    fixed.observe_fetch(100, 100.0)
    fixed.observe_compute(100, 0.1)
    assert fixed.worth(100), "an option beats the measurement"
    policy = ReusePolicy(None, 256)
    assert not policy.worth(255) and policy.worth(256), "until both are known, a chunk is worth it"
    policy.observe_compute(1000, 1.0)
    policy.observe_fetch(1000, 0.1)
    assert policy.worth(256)
    for _ in range(20):
        policy.observe_fetch(1000, 10.0)
    answers = [policy.worth(256) for _ in range(2 * RETRY_EVERY)]
    assert answers.count(True) == 2, "one in so many finds out whether it is better now"
    for _ in range(20):
        policy.observe_fetch(1000, 0.1)
    assert policy.worth(256)


def test_key_memory():
    now = [0.0]
    memory = KeyMemory(10, lambda: now[0])
    memory.add(b"a")
    assert b"a" in memory and b"b" not in memory and memory
    now[0] = 11
    assert b"a" not in memory and not memory
    memory.add(b"b")
    memory.discard(b"b")
    assert b"b" not in memory


def test_a_store_that_is_down_is_left_alone_and_comes_back(monkeypatch):
    now, opened = [0.0], []
    monkeypatch.setattr("kvcodec.vllm.backing.time.monotonic", lambda: now[0])

    def opener(uri, max_bytes):
        opened.append(uri)
        if len(opened) < 3:
            raise Unavailable("refused")
        return kvcodec.open_store("mem:")

    backing = Backing("mem:", 0, opener)  # down at start: no exception
    with pytest.raises(Unavailable, match="left alone"):
        backing.use(len)
    now[0] = 1.5
    with pytest.raises(Unavailable, match="refused"):
        backing.use(len)
    now[0] = 2.5  # the second pause is longer
    with pytest.raises(Unavailable, match="left alone"):
        backing.use(len)
    now[0] = 4.0
    assert backing.use(lambda store: store.list()) == [] and len(opened) == 3
    with pytest.raises(kvcodec.NotFound):
        backing.use(lambda store: store.get("a"))  # a miss is no fault
    assert backing.use(lambda store: store.list()) == []
    for wrong in ("mem", "pigeon://x"):
        with pytest.raises((InvalidArgument, Unsupported)):
            Backing(wrong, 0)


class Scheduler:
    """A SchedulerSide over a memory store, and requests as vLLM has them."""

    def __init__(self, **options):
        self.settings = Settings.parse({"store": "mem:", "chunk_tokens": 64, "min_tokens": 1, **options}, 32)
        self.backing = Backing("mem:", 0)
        self.side = SchedulerSide(self.settings, identity, "exact", 32, self.backing)
        self.ns = identity().namespaces(None, "")[0]

    def store(self, tokens, chunks):
        for key in kvcodec.chunk_keys(self.ns, tokens, 64)[:chunks]:
            self.backing.use(lambda store, key=key: store.put(kvcodec.object_name(self.ns, key, "exact"), b"x"))

    def request(self, name, tokens, **more):
        request = types.SimpleNamespace(request_id=name, prompt_token_ids=tokens, **more)
        self.side.on_new_request(request)
        return request

    def matched(self, request, computed=0):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            answer = self.side.get_num_new_matched_tokens(request, computed)
            if answer[0] is not None:
                return answer
            time.sleep(0.001)
        raise AssertionError("no answer")

    def step(self, new=(), cached=(), resumed=()):
        """One step; new and cached: (name, blocks, computed, scheduled)."""
        output = types.SimpleNamespace(
            scheduled_new_reqs=[types.SimpleNamespace(req_id=n, block_ids=(b,), num_computed_tokens=c) for n, b, c, _ in new],
            scheduled_cached_reqs=types.SimpleNamespace(
                req_ids=[n for n, *_ in cached], resumed_req_ids=set(resumed), new_block_ids=[(b,) if b else None for _, b, *_ in cached],
                num_computed_tokens=[c for _, _, c, _ in cached]),
            num_scheduled_tokens={n: s for n, _, _, s in (*new, *cached)})  # fmt: skip
        return self.side.build_connector_meta(output)

    def report(self, finished=(), **results):
        self.side.update_connector_output(types.SimpleNamespace(finished_recving=set(finished), kv_connector_worker_meta=StepResults(**results)))


TOKENS = list(range(300))


def test_a_load_begins_where_the_local_prefix_ends():
    s = Scheduler()
    s.store(TOKENS, 4)
    request = s.request("r", TOKENS)
    assert s.matched(request, 96) == (160, True)
    s.side.update_state_after_alloc(request, list(range(10, 20)), 160)
    s.side.update_state_after_alloc(request, list(range(10, 20)), 0)
    [job] = s.step().loads
    assert (job.first_chunk, job.skip_blocks, job.block_ids, len(job.keys[0])) == (1, 1, [12, 13, 14, 15, 16, 17], 3)
    assert job.keys[0] == kvcodec.chunk_keys(s.ns, TOKENS, 64)[1:4] and not s.step().loads


def test_failed_keys_are_not_offered_again():
    s = Scheduler()
    s.store(TOKENS, 4)
    request = s.request("r", TOKENS)
    assert s.matched(request) == (256, True)
    s.side.update_state_after_alloc(request, list(range(10)), 256)
    s.step()
    s.report(finished=["r"], loads={"r": [LoadResult(64, 0.1, failed_chunk=1, reason="x")]})
    assert s.matched(request) == (64, True)
    assert s.matched(s.request("other", TOKENS)) == (64, True), "nor to others"
    meta = s.step(new=[("r", list(range(10)), 64, 236)])
    [job] = meta.saves
    assert (job.first_chunk, job.replace, len(job.keys[0])) == (1, True, 3)
    s.report(saved=job.keys[0])
    assert s.matched(s.request("third", TOKENS)) == (256, True), "until they are mended"


def test_chunks_are_saved_once_in_chunked_prefill_and_after_preemption():
    s = Scheduler()
    request = s.request("r", TOKENS)
    assert s.matched(request) == (0, False)
    assert not s.step(new=[("r", [1, 2], 0, 50)]).saves
    [job] = s.step(cached=[("r", [3, 4], 50, 80)]).saves
    assert (job.first_chunk, job.block_ids) == (0, [1, 2, 3, 4])
    [job] = s.step(cached=[("r", [11, 12, 13, 14, 15, 16], 0, 192)], resumed=["r"]).saves
    assert (job.first_chunk, job.block_ids) == (2, [15, 16])
    [job] = s.step(cached=[("r", [17, 18, 19, 20], 192, 108)]).saves
    assert (job.first_chunk, job.block_ids) == (3, [17, 18])
    assert not s.side._saving and not s.step(cached=[("r", None, 300, 1)]).saves
    other = s.request("same", TOKENS)
    s.matched(other)
    assert not s.step(new=[("same", list(range(10)), 0, 300)]).saves, "they are on their way"
    s.report(unsaved=kvcodec.chunk_keys(s.ns, TOKENS, 64))
    third = s.request("third", TOKENS)
    s.matched(third)
    assert len(s.step(new=[("third", list(range(10)), 0, 300)]).saves[0].keys[0]) == 4, "what was not saved is tried again"


def test_the_rank_that_has_least_decides():
    s = Scheduler()
    s.side._identity = s.side._lookups.submit(lambda: identity(ranks=2))
    spaces = identity(ranks=2).namespaces(None, "")
    for ns, chunks in zip(spaces, (3, 2)):
        for key in kvcodec.chunk_keys(ns, TOKENS, 64)[:chunks]:
            s.backing.use(lambda store, n=ns, key=key: store.put(kvcodec.object_name(n, key, "exact"), b"x"))
    request = s.request("r", TOKENS)
    assert s.matched(request) == (128, True)
    s.side.update_state_after_alloc(request, list(range(10)), 128)
    [job] = s.step().loads
    assert job.namespaces == spaces and job.keys[0] != job.keys[1] and len(job.keys[1]) == 2
    result = StepResults(loads={"r": [LoadResult(128, 1.0)]}).aggregate(StepResults(loads={"r": [LoadResult(64, 1.0, 1)]}))
    s.side.update_connector_output(types.SimpleNamespace(finished_recving={"r"}, kv_connector_worker_meta=result))
    assert s.matched(request) == (64, True)


@pytest.mark.parametrize("more", [{"mm_features": [object()]}, {"prompt_embeds": object()}, {"pooling_params": object()}])
def test_requests_that_token_ids_do_not_identify_are_left_alone(more):
    s = Scheduler()
    s.store(TOKENS, 4)
    request = s.request("r", TOKENS, **more)
    assert s.matched(request) == (0, False) and not s.step(new=[("r", list(range(10)), 0, 300)]).saves


def test_an_abort_cancels_a_load_and_forgets_the_request():
    s = Scheduler()
    s.store(TOKENS, 4)
    request = s.request("r", TOKENS)
    s.matched(request)
    s.side.update_state_after_alloc(request, list(range(10)), 256)
    s.side.request_finished(request)
    meta = s.step()
    assert [job.request for job in meta.loads] == ["r"] and meta.cancelled == ["r"], "started, to be reported; and cancelled"
    s.report(finished=["r"], loads={"r": [LoadResult(0, 0.1)]})
    assert not s.side._requests and not s.side._saving


def test_load_and_save_can_be_turned_off():
    s = Scheduler(load=False)
    s.store(TOKENS, 4)
    assert s.matched(s.request("r", TOKENS)) == (0, False)
    s = Scheduler(save=False)
    s.matched(s.request("r", TOKENS))
    assert not s.step(new=[("r", list(range(10)), 0, 300)]).saves


def test_saves_beyond_the_bound_are_dropped_and_reported():
    layout = Layout(fused(torch.float32)[0], heads())
    size = layout.shape.token_bytes * 64
    settings = Settings.parse({"store": "mem:", "chunk_tokens": 64, "max_pending_save_bytes": size}, 32)
    go, backing = threading.Event(), Backing("mem:", 0)
    use = backing.use
    backing.use = lambda call: (go.wait(60), use(call))[1]
    saver = Saver(settings, layout, 0, "exact", None, kvcodec.Rope(), backing)
    keys = [[b"a" * 32, b"b" * 32]]
    saver.stage(SaveJob("r", 0, [bytes(32)], keys, [1, 2, 3, 4]), False)
    go.set()
    saver.shutdown()
    assert saver.results() == ([b"a" * 32], [b"b" * 32])
    assert saver.take_stats().data["save_dropped"] == 1
    saver = Saver(settings, layout, 0, "exact", None, kvcodec.Rope(), backing)
    saver.stage(SaveJob("r", 0, [bytes(32)], keys, [1, 2, 3, 4]), True)
    assert saver.results() == ([], keys[0]) and saver.take_stats().data == {"save_refused": 2}


def test_stats_add_up():
    a, b = KvCodecStats(), KvCodecStats()
    a.count("loads")
    a.count("load_tokens", 100)
    b.count("load_tokens", 50)
    b.count("load_seconds", 0.5)
    total = a.aggregate(b).reduce()
    assert total["kvcodec load_tokens"] == 150 and total["kvcodec load_tokens_per_s"] == 300
    assert KvCodecStats().is_empty() and not a.is_empty()
    with pytest.raises(AssertionError):
        a.count("no such counter")


def test_every_counter_is_documented(root):
    from kvcodec.vllm.metrics import COUNTERS

    text = pathlib.Path(root, "docs", "connectors.md").read_text()
    assert not [name for name in COUNTERS if f"`{name}`" not in text]


# The connector as vLLM makes it.


def kv_config(spec, groups=1):
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

    names = [f"model.layers.{i}.self_attn.attn" for i in range(L)]
    return KVCacheConfig(num_blocks=B, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(names, spec)] * groups)


def vllm_config(policy="recompute", pipeline=1, **extra):
    from vllm.config import KVTransferConfig

    transfer = KVTransferConfig(kv_connector="KvCodecConnector", kv_connector_module_path="kvcodec.vllm", kv_role="kv_both",
                                kv_load_failure_policy=policy, kv_connector_extra_config={"store": "mem:", **extra})  # fmt: skip
    text = types.SimpleNamespace(hidden_size=64, num_attention_heads=2, head_dim=D, rope_theta=1e4)
    return types.SimpleNamespace(
        kv_transfer_config=transfer, cache_config=types.SimpleNamespace(block_size=N, cache_dtype="auto"),
        parallel_config=types.SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=pipeline),
        model_config=types.SimpleNamespace(hf_text_config=text, hf_config=types.SimpleNamespace(to_dict=dict), model="m",
                                           quantization=None),
        load_config=types.SimpleNamespace(load_format="auto"))  # fmt: skip


def connect(spec=None, groups=1, role="WORKER", **options):
    from kvcodec.vllm import KvCodecConnector
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    spec = spec or FullAttentionSpec(block_size=N, num_kv_heads=H, head_size=D, dtype=torch.float32)
    return KvCodecConnector(vllm_config(**options), KVConnectorRole[role], kv_config(spec, groups))


def test_what_the_connector_refuses_at_start():
    from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

    fields = dict(block_size=N, num_kv_heads=H, head_size=D)
    with pytest.raises(ValueError, match="kv_load_failure_policy"):
        connect(policy="fail")
    with pytest.raises(Unsupported, match="2 KV cache groups"):
        connect(groups=2)
    with pytest.raises(Unsupported, match="SlidingWindowSpec"):
        connect(SlidingWindowSpec(**fields, dtype=torch.float32, sliding_window=64))
    with pytest.raises(Unsupported, match="uint8"):
        connect(FullAttentionSpec(**fields, dtype=torch.uint8))
    with pytest.raises(Unsupported, match="pipeline_parallel_size 2"):
        connect(pipeline=2)
    with pytest.raises(InvalidArgument, match="teir"):
        connect(teir="exact")
    with pytest.raises(Unsupported, match="not registered"):
        connect().register_kv_caches({})


def test_the_worker_saves_and_loads_through_vllms_interface():
    """Two workers over one store, step by step, without an engine: what one saves, the other loads."""
    from kvcodec.vllm.jobs import LoadJob, StepMetadata

    names = [f"model.layers.{i}.self_attn.attn" for i in range(L)]
    store = kvcodec.open_store("mem:")
    caches, ns, keys = [], bytes(32), [b"k" * 32]
    for _ in range(2):
        worker = connect(chunk_tokens=2 * N)
        worker._backing._store = store
        tensors = {name: torch.randn(B, H, N, 2 * D) for name in names}
        worker.register_kv_caches(tensors)
        caches.append((worker, tensors))
    (first, ours), (second, theirs) = caches
    first.bind_connector_metadata(StepMetadata(saves=[SaveJob("r", 0, [ns], [keys], [4, 2])]))
    first.start_load_kv(None)
    first.wait_for_save()
    first.clear_connector_metadata()
    for tensor in ours.values():
        held = tensor[[4, 2]].clone()
        tensor[[4, 2]] = 0  # the engine may overwrite the blocks at once
        tensor[[0, 1]] = held
    first._saver.shutdown()
    assert first.build_connector_worker_meta().saved == keys and first.get_kv_connector_stats().data["saves"] == 1
    second.bind_connector_metadata(StepMetadata(loads=[LoadJob("q", 0, [ns], [keys], [3, 5])]))
    second.start_load_kv(None)
    ended = set()
    deadline = time.monotonic() + 60
    while not ended and time.monotonic() < deadline:
        ended = second.get_finished(set())[1] or set()
    assert ended == {"q"} and second.get_block_ids_with_load_errors() == set()
    assert second.build_connector_worker_meta().loads["q"][0].tokens == 2 * N
    assert second.get_finished(set()) == (None, None), "reported once"
    for name in names:
        assert torch.equal(theirs[name][[3, 5]], ours[name][[0, 1]])
    for worker, _ in caches:
        worker.shutdown()
