# SPDX-License-Identifier: Apache-2.0
"""Sizes of arithmetic-coded symbols, without coding them: what an ideal coder needs."""

import numpy as np


def histograms(codes):
    """codes: integers [contexts, symbols]. Returns (counts [contexts, alphabet], lowest code)."""
    codes = np.asarray(codes)
    if codes.ndim != 2:
        raise ValueError(f"codes: expected [contexts, symbols], found {codes.shape}")
    low = int(codes.min())
    alphabet = int(codes.max()) - low + 1
    index = (codes.astype(np.int64) - low) + alphabet * np.arange(len(codes), dtype=np.int64)[:, None]
    counts = np.bincount(index.ravel(), minlength=alphabet * len(codes))
    return counts.reshape(len(codes), alphabet), low


def static_bits(codes):
    """Bits of a static distribution a context: its order-0 entropy plus the table that the decoder
    needs, at half a log2(symbols) a free parameter (Rissanen's two-part code; what a table of
    counts takes at the precision that pays)."""
    counts, _ = histograms(codes)
    symbols = codes.shape[1]
    logs = np.zeros(counts.shape)
    np.log2(counts / symbols, out=logs, where=counts > 0)
    entropy = -(counts * logs).sum()
    tables = 0.5 * np.log2(max(symbols, 2)) * np.maximum((counts > 0).sum(1) - 1, 0).sum()
    return float(entropy + tables)


class Profile:
    """Distributions a context, gathered once from other caches of the model and known to the
    decoder: no tables in the object."""

    SMOOTHING = 0.1  # a count for what was never seen

    def __init__(self, contexts, low, high):
        self.low, self.high = low, high
        self.counts = np.full((contexts, high - low + 1), self.SMOOTHING)

    def add(self, codes):
        codes = np.clip(codes, self.low, self.high)
        alphabet = self.counts.shape[1]
        index = (codes.astype(np.int64) - self.low) + alphabet * np.arange(len(codes), dtype=np.int64)[:, None]
        self.counts += np.bincount(index.ravel(), minlength=self.counts.size).reshape(self.counts.shape)

    def bits(self, codes):
        """Cross-entropy; a code outside the alphabet costs the rarest symbol and 16 bits."""
        if len(codes) != len(self.counts):
            raise ValueError(f"codes: expected {len(self.counts)} contexts, found {len(codes)}")
        cost = -np.log2(self.counts / self.counts.sum(1, keepdims=True))
        inside = np.clip(codes, self.low, self.high)
        bits = np.take_along_axis(cost, inside.astype(np.int64) - self.low, axis=1).sum()
        return float(bits + 16 * np.count_nonzero(inside != codes))
