# SPDX-License-Identifier: Apache-2.0
"""KVTC: KV Cache Transform Coding for Compact Storage in LLM Inference (arXiv 2511.01815).

From the paper: rotation is removed from the keys; keys, and values, of all layers and heads are
concatenated; mean and PCA basis come from calibration texts; a dynamic programme gives every
component a width in bits so that the total fits the budget and the squared error is least; codes
are packed and compressed with DEFLATE. The first 4 tokens and the last 128 stay as they are.

What differs. The basis is of exact PCA, not of randomised SVD. Steps are a component's own, from
calibration (a uniform quantiser over the range that has the least squared error for that width),
where the paper shares scales between blocks of components: no less favourable, as nothing of it is
stored in the object. Codes are packed as bytes and as bits and the smaller DEFLATE stream counts.
`window` may be 0, as an object in a store need not carry the recent tokens raw; both are shown.
"""

import zlib

import numpy as np

SINKS, WINDOW, MAX_WIDTH = 4, 128, 8
RANGES = np.array([1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.5, 8.0])  # standard deviations, tried for each width


def flat(x):
    """[layers, tokens, heads, dim] as float32 [tokens, layers * heads * dim]."""
    return x.transpose(1, 0, 2, 3).reshape(x.shape[1], -1).astype(np.float32)


def unflat(x, shape):
    layers, tokens, heads, dim = shape
    return x.reshape(tokens, layers, heads, dim).transpose(1, 0, 2, 3)


def quantise(y, width, reach):
    """Uniform, 2^width levels over -reach..reach. y [tokens, components]; width, reach [components].
    Returns (codes, restored); components of width 0 restore as 0."""
    levels = (2.0**width).astype(np.float32)
    step = np.where(width > 0, 2 * reach / levels, 1).astype(np.float32)
    codes = np.clip(np.floor(y / step) + levels / 2, 0, levels - 1)
    restored = np.where(width > 0, (codes - levels / 2 + 0.5) * step, 0)
    return codes.astype(np.uint8) * (width > 0), restored.astype(np.float32)


def width_errors(y):
    """Squared error of every component at every width, and the reach that gives it."""
    spread = y.std(0) + 1e-12
    errors = np.empty((y.shape[1], MAX_WIDTH + 1))
    reaches = np.zeros((y.shape[1], MAX_WIDTH + 1), np.float32)
    errors[:, 0] = (y**2).mean(0)
    for width in range(1, MAX_WIDTH + 1):
        tried = []
        for reach in RANGES:
            _, back = quantise(y, np.full(y.shape[1], width), (reach * spread).astype(np.float32))
            tried.append(((y - back) ** 2).mean(0))
        best = np.argmin(tried, axis=0)
        errors[:, width] = np.min(tried, axis=0)
        reaches[:, width] = RANGES[best] * spread
    return errors, reaches


def allocate(errors, budget):
    """The widths of least total error whose sum is at most `budget`, by dynamic programming."""
    components, widths = errors.shape
    best = np.zeros(budget + 1)
    chosen = np.zeros((components, budget + 1), np.uint8)
    for c in range(components):
        options = np.full((widths, budget + 1), np.inf)
        for width in range(min(widths, budget + 1)):
            options[width, width:] = best[: budget + 1 - width] + errors[c, width]
        chosen[c] = np.argmin(options, axis=0)
        best = options[chosen[c], np.arange(budget + 1)]
    out, left = np.zeros(components, np.int64), budget
    for c in reversed(range(components)):
        out[c] = chosen[c, left]
        left -= out[c]
    return out


class Basis:
    """Mean, basis and quantisers of one kind, from calibration vectors [samples, channels]."""

    def __init__(self, x, components=2048):
        self.mean = x.mean(0)
        centred = x - self.mean
        n, channels = centred.shape
        if n < channels:  # the samples' Gram matrix has the same spectrum and is smaller
            values, vectors = np.linalg.eigh(centred @ centred.T)
            order = np.argsort(-values)[: min(components, n - 1)]
            self.basis = (centred.T @ vectors[:, order] / np.sqrt(np.maximum(values[order], 1e-9))).T
        else:
            values, vectors = np.linalg.eigh(centred.T @ centred)
            self.basis = vectors[:, np.argsort(-values)[:components]].T
        self.basis = np.ascontiguousarray(self.basis, np.float32)
        self.errors, self.reaches = width_errors(centred @ self.basis.T)

    def code(self, x, width):
        reach = self.reaches[np.arange(len(width)), width]
        live = np.flatnonzero(width)
        codes, back = quantise((x - self.mean) @ self.basis[live].T, width[live], reach[live])
        return codes, back @ self.basis[live] + self.mean


def deflate_bits(codes, width):
    """codes [tokens, live components]."""
    as_bytes = zlib.compress(np.ascontiguousarray(codes.T).tobytes(), 9)
    columns = [((codes[:, [c]] >> np.arange(w)[::-1]) & 1).ravel() for c, w in enumerate(width)]
    as_bits = zlib.compress(np.packbits(np.concatenate(columns) if columns else np.zeros(0, np.uint8)).tobytes(), 9)
    return 8 * min(len(as_bytes), len(as_bits))


class Kvtc:
    def __init__(self, caches):
        key = [flat(c.rope.turn(c.key, -1))[SINKS:] for c in caches]
        value = [flat(c.value)[SINKS:] for c in caches]
        self.bases = {"key": Basis(np.concatenate(key)), "value": Basis(np.concatenate(value))}

    def encode(self, cache, budget, window):
        """budget: bits a value before DEFLATE. Returns (key, value, bits)."""
        tokens = cache.key.shape[1]
        middle = slice(SINKS, max(SINKS, tokens - window))
        restored, bits = {}, 0
        for kind, x in (("key", cache.rope.turn(cache.key, -1)), ("value", cache.value)):
            basis, rows = self.bases[kind], flat(x)
            width = allocate(basis.errors, int(budget * rows.shape[1]))
            out = rows.copy()
            codes, out[middle] = basis.code(rows[middle], width)
            bits += deflate_bits(codes, width[width > 0])
            bits += 16 * rows.shape[1] * (tokens - len(codes))
            restored[kind] = unflat(out, x.shape)
        return cache.rope.turn(restored["key"], 1), restored["value"], bits
