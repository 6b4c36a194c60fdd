# SPDX-License-Identifier: Apache-2.0
"""When a fetch is worth its wait: costs measured in this engine, not guessed."""

from __future__ import annotations

# Share of a new measurement in the running averages.
WEIGHT = 0.3
# Every so many refusals one fetch is let through, so that a faster link is noticed.
RETRY_EVERY = 16


class ReusePolicy:
    """Compares seconds of fetching with seconds of computing; one thread at a time.

    Seconds a token of each are running averages. Until both are known, and where `min_tokens` is
    set, only the number of tokens decides.
    """

    def __init__(self, min_tokens: int | None, chunk_tokens: int):
        self._fixed = min_tokens
        self._floor = chunk_tokens if min_tokens is None else min_tokens
        self._fetch: float | None = None
        self._compute: float | None = None
        self._refused = 0

    @property
    def fetch_seconds_per_token(self) -> float | None:
        return self._fetch

    @property
    def compute_seconds_per_token(self) -> float | None:
        return self._compute

    def observe_fetch(self, tokens: int, seconds: float) -> None:
        if tokens > 0:
            self._fetch = _mix(self._fetch, seconds / tokens)

    def observe_compute(self, tokens: int, seconds: float) -> None:
        """A step that computed `tokens` of prompts. Steps of decoding say nothing of prefill."""
        if tokens > 0:
            self._compute = _mix(self._compute, seconds / tokens)

    def worth(self, tokens: int) -> bool:
        """Whether to fetch so many tokens rather than compute them."""
        if tokens <= 0 or tokens < self._floor:
            return False
        if self._fixed is not None or self._fetch is None or self._compute is None or self._fetch < self._compute:
            self._refused = 0
            return True
        self._refused += 1
        return self._refused % RETRY_EVERY == 0


def _mix(old: float | None, new: float) -> float:
    return new if old is None else old + WEIGHT * (new - old)
