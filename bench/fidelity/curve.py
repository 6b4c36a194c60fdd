# SPDX-License-Identifier: Apache-2.0
"""Means over judged texts, curves of bits against KL, and what they cross."""

import math


def mean_points(rows, methods, kinds=None):
    """{method: (bits a value, KL)} over plain continuations; kinds: of texts, None for all."""
    points = {}
    for method in methods:
        own = [r for r in rows if r["method"] == method and "depth" not in r and (kinds is None or r["kind"] in kinds)]
        if own:
            bits = sum(r["bits"] for r in own) / sum(r["values"] for r in own)
            points[method] = (bits, sum(r["kl"] for r in own) / len(own))
    return points


def bits_at(points, kl):
    """Bits a value at which a curve reaches `kl`, between its points on logarithmic axes; None
    outside them: nothing is extrapolated. points: (bits, kl) pairs."""
    curve = sorted((p for p in points if p[0] > 0 and p[1] > 0), key=lambda p: p[1])
    for (b0, k0), (b1, k1) in zip(curve, curve[1:]):
        if k0 <= kl <= k1:
            share = 0.0 if k0 == k1 else math.log(kl / k0) / math.log(k1 / k0)
            return math.exp(math.log(b0) + share * math.log(b1 / b0))
    return None


def compare(rows, ours, others, kinds=None):
    """How many times smaller our curve is at the damage of each of `others`."""
    curve = list(mean_points(rows, ours, kinds).values())
    out = []
    for name, (bits, kl) in mean_points(rows, others, kinds).items():
        at = bits_at(curve, kl)
        out.append({"method": name, "bits_per_value": bits, "kl": kl, "ours_at_that_kl": at,
                    "times_smaller": bits / at if at else None})
    return out
