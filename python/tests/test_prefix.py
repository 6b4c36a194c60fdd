# SPDX-License-Identifier: Apache-2.0
"""Stores, prefixes, progress, cancellation, and the background fetch."""

import asyncio
import threading
import time

import kvcodec
import numpy as np
import pytest
from kvcodec import Tier, arrays
from kvcodec.errors import Cancelled, Corrupt, InvalidArgument, NotFound

from conftest import kv_like

CHUNK = 16


@pytest.fixture
def prefix(store, kv):
    """A published prefix of six chunks: (store, namespace, tokens, kv)."""
    cache = arrays.from_array(kv)
    ns = kvcodec.namespace_digest("model", cache.shape)
    tokens = list(range(100, 100 + cache.tokens))
    report = kvcodec.publish_prefix(store, ns, tokens, cache, chunk_tokens=CHUNK)
    assert (report.chunks, report.written, report.tokens) == (6, 6, 96)
    return store, ns, tokens, kv


def names(store, ns, tokens, rendition="exact"):
    return [kvcodec.object_name(ns, key, rendition) for key in kvcodec.chunk_keys(ns, tokens, CHUNK)]


def test_store(store):
    store.put("a/b", b"12345")
    store.put("a/c", bytearray(b"1"))
    assert store.get("a/b") == b"12345" and "a/b" in store and "a" not in store
    out = bytearray(4)
    assert store.get_into("a/b", out, 3) == 2 and out[:2] == b"45"
    assert store.get_into("a/b", np.zeros(2, np.uint8)) == 2
    with pytest.raises(TypeError):
        store.get_into("a/b", b"read-only")
    stat = store.stat("a/b")
    assert (stat.name, stat.bytes) == ("a/b", 5) and abs(stat.last_used - time.time()) < 3600
    assert [s.name for s in store.list("a/")] == ["a/b", "a/c"]
    with pytest.raises(Corrupt):
        store.get("a/b", max_bytes=4)
    store.remove("a/b")
    with pytest.raises(NotFound):
        store.remove("a/b")
    store.put("a/d", b"x" * 1000)
    report = kvcodec.collect_garbage(store, 1000)
    assert report.objects_removed == 1 and report.bytes_before == 1001


def test_a_bounded_store_evicts():
    store = kvcodec.open_store("mem:", max_bytes=10)
    store.put("a", b"123456")
    store.put("b", b"123456")
    assert "a" not in store and "b" in store


def test_publish_and_fetch(prefix):
    store, ns, tokens, kv = prefix
    assert kvcodec.match_prefix(store, ns, tokens, chunk_tokens=CHUNK) == 96
    assert kvcodec.match_prefix(store, ns, tokens[:40] + [1] * 56, chunk_tokens=CHUNK) == 32
    again = kvcodec.publish_prefix(store, ns, tokens, arrays.from_array(kv), chunk_tokens=CHUNK)
    assert again.written == 0
    target = np.zeros_like(kv)
    report = kvcodec.fetch_prefix(store, ns, np.array(tokens), arrays.from_array(target), chunk_tokens=CHUNK)
    assert (report.tokens_restored, report.chunks, report.stopped_by) == (96, 6, None)
    assert np.array_equal(target, kv) and report.object_bytes == again.object_bytes


def test_fetch_into_paged_memory_of_another_engine(prefix):
    store, ns, tokens, kv = prefix
    pages = np.zeros((3, 13, 2, 8, 32), np.float16)  # [layer, block, head, token, 2 * dim]
    keys, values = (pages[..., s].transpose(0, 1, 3, 2, 4) for s in (slice(0, 16), slice(16, 32)))
    table = list(range(12, 0, -1))
    target = arrays.paged(keys, values, table, copy=False)
    assert kvcodec.fetch_prefix(store, ns, tokens, target, chunk_tokens=CHUNK).tokens_restored == 96
    seen = arrays.views(target)
    assert np.array_equal(seen[0], kv[:, 0]) and np.array_equal(seen[1], kv[:, 1]) and not pages[:, 0].any()


def test_a_missing_or_damaged_chunk_ends_the_chain_and_is_never_restored(prefix):
    store, ns, tokens, kv = prefix
    object_ = names(store, ns, tokens)[3]
    for damage, kind in (("corrupt", Corrupt), ("missing", NotFound)):
        if damage == "corrupt":
            data = bytearray(store.get(object_))
            data[-5] ^= 1
            store.put(object_, data)
        else:
            store.remove(object_)
        target = np.zeros_like(kv)
        report = kvcodec.fetch_prefix(store, ns, tokens, arrays.from_array(target), chunk_tokens=CHUNK)
        assert report.tokens_restored == 48 and isinstance(report.stopped_by, kind) and object_ in str(report.stopped_by)
        assert np.array_equal(target[:, :, :48], kv[:, :, :48]) and not target[:, :, 48:].any()


def test_renditions_and_the_fidelity_floor(store, kv):
    cache = arrays.from_array(kv)
    ns, tokens = kvcodec.namespace_digest("m", cache.shape), list(range(96))
    profile = kvcodec.Profile.identity(cache.shape)
    for tier in (Tier.INT8, Tier.BALANCED):
        kvcodec.publish_prefix(store, ns, tokens, cache, tier=tier, profile=profile, chunk_tokens=CHUNK)
    target = arrays.from_array(np.zeros_like(kv))
    rendition = kvcodec.rendition_name(Tier.BALANCED, profile)
    report = kvcodec.fetch_prefix(store, ns, tokens, target, rendition=rendition, profile=profile, chunk_tokens=CHUNK)
    assert report.tokens_restored == 96
    for wrong in ({"rendition": rendition}, {"rendition": rendition, "profile": profile, "lowest_tier": Tier.HIGH},
                  {"rendition": "nonsense"}, {"chunk_tokens": 0}, {"max_chunks_in_flight": 0}):  # fmt: skip
        with pytest.raises(InvalidArgument):
            kvcodec.fetch_prefix(store, ns, tokens, target, **wrong)
    assert kvcodec.fetch_prefix(store, ns, tokens, target, chunk_tokens=CHUNK).tokens_restored == 0


def test_namespaces_separate():
    shape = kvcodec.KvShape(2, 2, 8)
    rope = kvcodec.Rope.plain(kvcodec.RopeStyle.NEOX, 8, 1e4)
    fields = [{}, {"weights": bytes(31) + b"1"}, {"rope": rope}, {"rank": 1, "ranks": 2}, {"ranks": 2}, {"salt": "tenant"},
              {"profile": b"p" * 32}]  # fmt: skip
    digests = [kvcodec.namespace_digest("m", shape, **f) for f in fields]
    digests += [kvcodec.namespace_digest("n", shape), kvcodec.namespace_digest("m", kvcodec.KvShape(2, 2, 8, 0))]
    assert len(set(digests)) == len(digests)
    assert kvcodec.namespace_digest("m", shape, weights=bytes(32), salt="") == digests[0]


def test_keys_chain_and_take_any_kind_of_ids():
    ns, ids = bytes(32), list(range(40))
    keys = kvcodec.chunk_keys(ns, ids, CHUNK)
    assert len(keys) == 2 and keys[0] == kvcodec.chunk_key(ns, ids[:16]) and keys[1] == kvcodec.chunk_key(keys[0], ids[16:32])
    for same in (tuple(ids), np.array(ids), np.array(ids, np.int32), memoryview(np.array(ids, np.int32))):
        assert kvcodec.chunk_keys(ns, same, CHUNK) == keys
    for wrong in (np.array(ids, float), np.array([ids]), np.array([2**31]), b"bytes", np.array(ids, np.int16)):
        with pytest.raises(TypeError):
            kvcodec.chunk_keys(ns, wrong, CHUNK)


def test_progress_and_what_it_raises(prefix):
    store, ns, tokens, kv = prefix
    target = arrays.from_array(np.zeros_like(kv))
    seen = []
    kvcodec.fetch_prefix(store, ns, tokens, target, chunk_tokens=CHUNK, progress=lambda *p: seen.append(p))
    assert seen == [(i, 6) for i in range(1, 7)]

    def boom(done, total):
        raise ZeroDivisionError(f"after {done}")

    with pytest.raises(ZeroDivisionError, match="after 1"):
        kvcodec.fetch_prefix(store, ns, tokens, target, chunk_tokens=CHUNK, progress=boom)
    with pytest.raises(ZeroDivisionError, match="after 1"):
        kvcodec.publish_prefix(store, ns, tokens, target, chunk_tokens=CHUNK, progress=boom)


def test_a_stopped_fetch_reports_what_it_restored(prefix):
    store, ns, tokens, kv = prefix
    stop = kvcodec.StopSource()
    target = np.zeros_like(kv)

    def progress(done, total):
        if done == 2:
            assert stop.request_stop() and stop.stop_requested

    report = kvcodec.fetch_prefix(store, ns, tokens, arrays.from_array(target), chunk_tokens=CHUNK, progress=progress,
                                  stop=stop, max_chunks_in_flight=2)  # fmt: skip
    assert isinstance(report.stopped_by, Cancelled) and 2 <= report.chunks < 6
    assert np.array_equal(target[:, :, : report.tokens_restored], kv[:, :, : report.tokens_restored])


def test_a_background_fetch(prefix):
    store, ns, tokens, kv = prefix
    target = np.zeros_like(kv)
    finished = threading.Event()
    fetch = kvcodec.submit_fetch(store, ns, tokens, arrays.from_array(target), chunk_tokens=CHUNK)
    fetch.add_done_callback(lambda f: finished.set())
    assert fetch.result(60).tokens_restored == 96 and fetch.done() and fetch.progress == (6, 6)
    assert finished.wait(60) and np.array_equal(target, kv)

    async def await_it():
        return await kvcodec.submit_fetch(store, ns, tokens, arrays.from_array(target), chunk_tokens=CHUNK)

    assert asyncio.run(await_it()).tokens_restored == 96
    with pytest.raises(InvalidArgument):
        kvcodec.submit_fetch(store, ns, tokens, arrays.from_array(target), chunk_tokens=0).result(60)


def test_a_background_fetch_is_cancelled_and_leaves_python_running(prefix):
    store, ns, tokens, kv = prefix
    # So slow that it cannot end before it is cancelled; its first chunks take some seconds.
    slow = kvcodec.limit_bandwidth(store, 8 * store.stat(names(store, ns, tokens)[0]).bytes)
    fetch = kvcodec.submit_fetch(slow, ns, tokens, arrays.from_array(np.zeros_like(kv)), chunk_tokens=CHUNK)
    turns = 0
    while fetch.progress[0] == 0:  # runs only while the fetch has let go of the GIL
        turns += 1
        time.sleep(0.001)
    fetch.cancel()
    report = fetch.result(60)
    assert turns > 10 and report.chunks < 6 and isinstance(report.stopped_by, Cancelled)


def test_two_threads_publish_and_fetch_at_once(tmp_path):
    store = kvcodec.open_store(f"file://{tmp_path}/s")
    caches = [kv_like(2, 64, 2, 16, seed=i) for i in range(4)]
    ns = kvcodec.namespace_digest("m", arrays.from_array(caches[0]).shape)
    errors = []

    def work(i):
        try:
            tokens = [i] * 64
            kvcodec.publish_prefix(store, ns, tokens, arrays.from_array(caches[i]), chunk_tokens=CHUNK)
            target = np.zeros_like(caches[i])
            assert kvcodec.fetch_prefix(store, ns, tokens, arrays.from_array(target), chunk_tokens=CHUNK).chunks == 4
            assert np.array_equal(target, caches[i])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
