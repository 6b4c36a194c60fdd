# SPDX-License-Identifier: Apache-2.0
"""What a rendition costs: how far a restored cache is from the exact one, and what a model that
reads it then says. Nothing here decides anything; `kvcodec eval` does whole comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._native import DType, KvCache
from .arrays import views
from .errors import InvalidArgument


@dataclass(frozen=True)
class Distortion:
    """Of all elements of a kind: root of the squared error over that of the exact values (0 for equal
    caches), its maximum, and whether every bit is equal."""

    relative_error: float
    largest_error: float
    equal: bool


def _values(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    if dtype == DType.BF16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def distortion(exact: KvCache, restored: KvCache) -> tuple[Distortion, Distortion]:
    """(keys, values) of two caches of one shape and number of tokens, both in host memory."""
    if exact.shape != restored.shape or exact.tokens != restored.tokens:
        raise InvalidArgument(f"{exact.shape} of {exact.tokens} tokens against {restored.shape} of {restored.tokens}")
    result = []
    for a, b in zip(views(exact), views(restored)):
        equal = a.tobytes() == b.tobytes()
        x, y = (_values(array, exact.shape.dtype).astype(np.float64) for array in (a, b))
        norm, error = np.linalg.norm(x), np.linalg.norm(x - y)
        relative = float(error / norm) if norm else float(error > 0)
        result.append(Distortion(relative, float(np.abs(x - y).max(initial=0)), equal))
    return result[0], result[1]


def kl_divergence(reference: Any, other: Any) -> np.ndarray[Any, Any]:
    """KL(reference || other) in nats for each row of two arrays of logits [..., vocabulary]."""
    p, q = (_log_softmax(np.asarray(logits, np.float64)) for logits in (reference, other))
    return np.asarray((np.exp(p) * (p - q)).sum(-1))


def top1_agreement(reference: Any, other: Any) -> float:
    """Share of the rows of two arrays of logits [..., vocabulary] whose most likely token is equal."""
    return float((np.argmax(reference, -1) == np.argmax(other, -1)).mean())


def _log_softmax(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
