# SPDX-License-Identifier: Apache-2.0
"""CacheGen: KV Cache Compression and Streaming for Fast LLM Serving (Liu et al., SIGCOMM 2024,
arXiv 2310.07240), in two variants. Sizes are ideal arithmetic-coded sizes, so a real coder is a
little larger.

`Paper`, the scheme of section 5.2:
- Tokens in groups of ten; the first of a group is its anchor, and every other token is coded as
  its difference from the (decoded) anchor.
- Anchors are quantised to 8 bits by the largest magnitude of the vector ("vectorwise"), stored as
  float16.
- Differences are quantised with bins that grow with depth: the layers in three equal groups, bins
  0.5, 1 and 1.5 by default; the quality levels scale these.
- Arithmetic coding with a distribution for each layer and channel (anchors and differences apart).
Where the paper leaves it open: bins are taken in units of the differences' standard deviation in
that layer and kind, stored as float16 in every object.

`LMCache`, what its authors ship (lmcache, CacheGenConfig and torch_quant): no differences; every
token of a layer is scaled by its largest magnitude, stored as float16, and rounded to `bins`
levels; keys 32 bins in the first 10 layers and 16 after, values 32 in the first 2 and 16 after.
The configuration is published for models of 32 layers; ours keeps the counts of layers.

Distributions: the paper profiles them offline, a model at a time; LMCache counts them in each
chunk and ships tables of 16-bit entries. Both are computed here and the SMALLER is taken: cross
entropy under distributions of the calibration texts, tables free; or the entropy of the object's
own distributions over the whole prefix, plus tables at the precision that pays (entropy.py). That
is kinder than LMCache's real tables, which alone take 2 bits a value at 256 tokens a chunk.
"""

import numpy as np

import entropy

GROUP = 10
LMCACHE_FIRST = {"key": 10, "value": 2}  # layers that keep more bins


def channels(x):
    """[layers, tokens, heads, dim] as float32 [layers, tokens, channels]."""
    return x.reshape(x.shape[0], x.shape[1], -1).astype(np.float32)


def by_channel(codes):
    """[layers, tokens, channels] as [layers * channels, tokens]: a context a layer and channel."""
    return codes.transpose(0, 2, 1).reshape(-1, codes.shape[1])


def scaled_codes(x, levels):
    """Rounds each vector of the last axis to -levels..levels of its largest magnitude."""
    largest = np.abs(x).max(-1, keepdims=True).astype(np.float16).astype(np.float32)
    largest[largest == 0] = 1
    codes = np.clip(np.rint(x / largest * levels), -levels, levels).astype(np.int32)
    return codes, codes / levels * largest


class LMCache:
    def __init__(self, scale=1.0):
        self.first, self.rest = round(32 * scale), round(16 * scale)
        self.profiles = {}

    def code(self, kind, x):
        """Returns ([codes], [restored], bits of side data)."""
        first = min(LMCACHE_FIRST[kind], len(x))
        codes, restored = [], []
        for layer, values in enumerate(x):
            c, r = scaled_codes(values, (self.first if layer < first else self.rest) // 2 - 1)
            codes.append(c)
            restored.append(r)
        return [np.stack(codes)], np.stack(restored), 16 * x.shape[0] * x.shape[1]


class Paper:
    def __init__(self, scale=1.0):
        self.bins = [0.5 * scale, 1.0 * scale, 1.5 * scale]
        self.profiles = {}

    def code(self, kind, x):
        layers, tokens, _ = x.shape
        anchors = np.arange(0, tokens, GROUP)
        others = np.setdiff1d(np.arange(tokens), anchors)
        codes, exact = scaled_codes(x[:, anchors], 127)
        difference = x[:, others] - exact[:, others // GROUP]
        spread = difference.std((1, 2), keepdims=True).astype(np.float16).astype(np.float32)
        spread[spread == 0] = 1
        bins = np.array([self.bins[min(3 * layer // layers, 2)] for layer in range(layers)], np.float32)
        step = spread * bins[:, None, None]
        deltas = np.rint(difference / step).astype(np.int32)
        restored = np.empty_like(x)
        restored[:, anchors] = exact
        restored[:, others] = exact[:, others // GROUP] + deltas * step
        return [codes, deltas], restored, 16 * layers * (len(anchors) + 1)


def profile(method, caches):
    """Gathers the distributions of calibration caches."""
    coded = {}
    for cache in caches:
        for kind, x in (("key", channels(cache.key)), ("value", channels(cache.value))):
            for part, codes in enumerate(method.code(kind, x)[0]):
                coded.setdefault((kind, part), []).append(by_channel(codes))
    for name, parts in coded.items():
        low, high = min(int(p.min()) for p in parts), max(int(p.max()) for p in parts)
        method.profiles[name] = entropy.Profile(len(parts[0]), low, high)
        for p in parts:
            method.profiles[name].add(p)


def encode(method, cache):
    """Returns (key, value, bits, details)."""
    restored, static, profiled = {}, 0.0, 0.0
    for kind, x in (("key", channels(cache.key)), ("value", channels(cache.value))):
        codes, back, side = method.code(kind, x)
        restored[kind] = back.reshape(getattr(cache, kind).shape)
        for part, c in enumerate(codes):
            contexts = by_channel(c)
            static += entropy.static_bits(contexts)
            known = method.profiles.get((kind, part))
            profiled += known.bits(contexts) if known else np.inf
        static, profiled = static + side, profiled + side
    details = {"static_bits": static, "profiled_bits": profiled if np.isfinite(profiled) else None}
    return restored["key"], restored["value"], min(static, profiled), details
