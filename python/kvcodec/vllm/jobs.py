# SPDX-License-Identifier: Apache-2.0
"""What the scheduler's half of the connector tells the workers' half, and back. Pickled each step."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata


@dataclass
class Chunks:
    """Consecutive chunks of a request. `namespaces` and `keys` are by rank."""

    request: str
    first_chunk: int
    namespaces: list[bytes]
    keys: list[list[bytes]]
    # Of the tokens from the first chunk's first one on, to the end of the last chunk.
    block_ids: list[int]


@dataclass
class LoadJob(Chunks):
    # Leading blocks of the first chunk that are the engine's already and must not be written.
    skip_blocks: int = 0


@dataclass
class SaveJob(Chunks):
    # Write chunks that seem to be there too: one of them was found damaged.
    replace: bool = False


@dataclass
class StepMetadata(KVConnectorMetadata):
    loads: list[LoadJob] = field(default_factory=list)
    saves: list[SaveJob] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)


@dataclass
class LoadResult:
    """One request's load on one rank. failed_chunk: the first that was not restored, else -1."""

    tokens: int
    seconds: float
    failed_chunk: int = -1
    reason: str = ""


@dataclass
class StepResults(KVConnectorWorkerMetadata):
    loads: dict[str, list[LoadResult]] = field(default_factory=dict)
    # Keys of rank 0: what it has written or found there, and what it was told to save and did not.
    saved: list[bytes] = field(default_factory=list)
    unsaved: list[bytes] = field(default_factory=list)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        assert isinstance(other, StepResults)
        for request, results in other.loads.items():
            self.loads.setdefault(request, []).extend(results)
        self.saved.extend(other.saved)
        self.unsaved.extend(other.unsaved)
        return self
