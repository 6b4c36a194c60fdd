# SPDX-License-Identifier: Apache-2.0
"""Counters of the connector through vLLM's interface: in its log, and as vllm:kvcodec_* for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

COUNTERS = {
    "lookups": "Requests whose prefix was looked up in the store.",
    "lookup_hits": "Lookups that found at least one chunk.",
    "lookup_errors": "Lookups that failed: store down.",
    "lookup_timeouts": "Requests that went on without their lookup's answer.",
    "not_worth_it": "Hits that were not fetched: computing them is faster.",
    "loads": "Requests whose prefix was loaded.",
    "load_tokens": "Tokens restored.",
    "load_bytes": "Bytes of objects fetched.",
    "load_seconds": "Seconds of loads, from queueing to the last block.",
    "load_missing": "Loads cut short by a chunk that was gone.",
    "load_corrupt": "Loads cut short by a chunk that was damaged or foreign.",
    "load_errors": "Loads cut short by another fault.",
    "load_cancelled": "Loads of requests that were aborted.",
    "saves": "Chunks written.",
    "save_bytes": "Bytes of chunks written.",
    "save_raw_bytes": "Bytes of cache they hold.",
    "save_seconds": "Seconds of encoding and writing.",
    "save_present": "Chunks not written: there already.",
    "save_dropped": "Chunks not saved: too many were waiting.",
    "save_refused": "Chunks not saved: the step failed or the values are not finite.",
    "save_errors": "Chunks not saved: store or encoder failed.",
}


@dataclass
class KvCodecStats(KVConnectorStats):
    """Sums since the last report."""

    data: dict[str, Any] = field(default_factory=dict)

    def count(self, name: str, amount: float = 1) -> None:
        assert name in COUNTERS, name
        self.data[name] = self.data.get(name, 0) + amount

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, amount in other.data.items():
            self.data[name] = self.data.get(name, 0) + amount
        return self

    def reduce(self) -> dict[str, int | float]:
        shown = {name: self.data[name] for name in COUNTERS if self.data.get(name)}
        if shown.get("load_seconds"):
            shown["load_tokens_per_s"] = round(shown.get("load_tokens", 0) / shown["load_seconds"])
        if shown.get("save_bytes"):
            shown["save_ratio"] = round(shown["save_raw_bytes"] / shown["save_bytes"], 3)
        return {f"kvcodec {name}": round(value, 3) for name, value in shown.items()}

    def is_empty(self) -> bool:
        return not any(self.data.values())


class KvCodecPromMetrics(KVConnectorPromMetrics):
    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters: dict[str, dict[int, Any]] = {}
        for name, text in COUNTERS.items():
            counter = self._counter_cls(name=f"vllm:kvcodec_{name}", documentation=text, labelnames=labelnames)
            self._counters[name] = {engine: counter.labels(*values) for engine, values in per_engine_labelvalues.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, amount in transfer_stats_data.items():
            if name in self._counters and amount:
                self._counters[name][engine_idx].inc(amount)
