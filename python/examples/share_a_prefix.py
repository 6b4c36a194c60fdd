#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shares the KV cache of a prefix between two engines, a cell at a time."""

# %% An engine has computed the cache of 1,024 tokens: 4 layers of 2 heads of 32, in float16.
import asyncio
import tempfile

import kvcodec
import numpy as np
from kvcodec import Tier, arrays

rng = np.random.default_rng(0)
tokens = rng.integers(0, 32000, 1024)
steps = rng.standard_normal((4, 2, 1024, 2, 32), dtype=np.float32)
kv = (np.cumsum(steps, axis=2) * 0.05 + rng.standard_normal((4, 2, 1, 2, 32)) * 2).astype(np.float16)
cache = arrays.from_array(kv, copy=False)  # in place: [layer, 2, token, head, dim]
print(cache.shape, f"{cache.shape.token_bytes} bytes a token")

# %% It publishes all whole chunks, in two renditions, to a store that others reach too.
folder = tempfile.TemporaryDirectory()
store = kvcodec.open_store(f"file://{folder.name}/kv")
ns = kvcodec.namespace_digest("my-model", cache.shape, salt="tenant 7")
for tier in (Tier.EXACT, Tier.INT8):
    report = kvcodec.publish_prefix(store, ns, tokens, cache, tier=tier)
    print(f"{kvcodec.tier_name(tier):6} {report.written} chunks, {report.raw_bytes} -> {report.object_bytes} bytes")

# %% What is in an object?
name = kvcodec.object_name(ns, kvcodec.chunk_keys(ns, tokens)[0], "int8")
info = kvcodec.chunk_info(store.get(name))
print(f"{info.tier}, {info.tokens} tokens, {len(info.pictures)} pictures, {info.bits_per_value:.2f} bits a value")

# %% Another engine pages its cache: [layer, block, head, token, key and value]. Views say so, and the
# chunks are restored into the blocks of one sequence in place.
pages = np.zeros((4, 40, 2, 32, 64), np.float16)
keys, values = pages[..., :32].transpose(0, 1, 3, 2, 4), pages[..., 32:].transpose(0, 1, 3, 2, 4)
table = rng.permutation(40)[:32]
target = arrays.paged(keys, values, table, copy=False)
print(kvcodec.match_prefix(store, ns, tokens), "tokens are in the store")
report = kvcodec.fetch_prefix(store, ns, tokens, target)
seen = arrays.views(target)
print("restored bit for bit:", bool(np.array_equal(seen[0], kv[:, 0]) and np.array_equal(seen[1], kv[:, 1])))


# %% In the background, with progress, from an event loop; another link, another rendition.
async def fetch_slowly():
    slow = kvcodec.limit_bandwidth(store, 20e6)
    fetch = kvcodec.submit_fetch(slow, ns, tokens, target, rendition="int8",
                                 progress=lambda done, total: print(f"  {done} of {total} chunks"))  # fmt: skip
    return await fetch


report = asyncio.run(fetch_slowly())
error = np.linalg.norm(arrays.views(target)[0].astype(np.float32) - kv[:, 0]) / np.linalg.norm(kv[:, 0].astype(np.float32))
print(f"int8: {report.tokens_restored} tokens in {report.seconds:.2f} s, keys off by {error:.2%}")

# %% A damaged object is found, named, and never restored: the engine computes the rest.
damaged = bytearray(store.get(name))
damaged[-100] ^= 1
store.put(name, damaged)
report = kvcodec.fetch_prefix(store, ns, tokens, target, rendition="int8")
print(f"{report.tokens_restored} tokens restored: {report.stopped_by!r}")
folder.cleanup()
