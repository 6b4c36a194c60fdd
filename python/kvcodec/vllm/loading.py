# SPDX-License-Identifier: Apache-2.0
"""A worker's loads: chunks from the store into the engine's blocks, in threads."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from .._native import (
    ChunkId,
    DecodeOptions,
    DeviceRestorer,
    KvCache,
    KvGeometry,
    Profile,
    StopSource,
    Strides,
    Tier,
    decode_chunk,
    object_name,
    rendition_tier,
)
from ..errors import Cancelled, Corrupt, NotFound
from .backing import Backing
from .jobs import LoadJob, LoadResult
from .layout import Layout
from .metrics import KvCodecStats
from .settings import Settings

logger = logging.getLogger("vllm.kvcodec")


class Loader:
    """Every load that was started ends in finished() exactly once, whatever happens to it."""

    def __init__(self, settings: Settings, layout: Layout, rank: int, rendition: str, profile: Profile | None,
                 backing: Backing, restorer: DeviceRestorer | None):  # fmt: skip
        self._settings, self._layout, self._rank, self._rendition = settings, layout, rank, rendition
        self._backing, self._restorer, self._profile = backing, restorer, profile
        self._loads = ThreadPoolExecutor(settings.load_threads, "kvcodec-load")
        self._gets = ThreadPoolExecutor(settings.load_threads * 2, "kvcodec-get")
        self._lock = threading.Lock()
        self._stops: dict[str, StopSource] = {}
        self._finished: dict[str, LoadResult] = {}
        self._bad_blocks: set[int] = set()
        self.stats = KvCodecStats()

    def start(self, job: LoadJob) -> None:
        """From the engine's thread, when what it has queued for the GPU may still use the job's blocks."""
        stop = StopSource()
        with self._lock:
            self._stops[job.request] = stop
        self._loads.submit(self._run, job, stop, time.monotonic(), self._layout.queued_work())

    def cancel(self, request: str) -> None:
        with self._lock:
            stop = self._stops.get(request)
        if stop is not None:
            stop.request_stop()

    def finished(self) -> dict[str, LoadResult]:
        """Loads that ended since the last call. Their bad blocks are in bad_blocks() by then."""
        with self._lock:
            finished, self._finished = self._finished, {}
        return finished

    def bad_blocks(self) -> set[int]:
        with self._lock:
            bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def take_stats(self) -> KvCodecStats:
        with self._lock:
            stats, self.stats = self.stats, KvCodecStats()
        return stats

    def _run(self, job: LoadJob, stop: StopSource, queued: float, wait_for_engine: Callable[[], None]) -> None:
        each = self._settings.chunk_tokens // self._layout.heads.block_tokens
        keys = job.keys[self._rank]
        restored, fetched, reason = 0, 0, ""
        stats = KvCodecStats()
        try:
            wait_for_engine()
            for i, object_ in self._objects(job, stop):
                self._restore(job, i, object_, each)
                restored, fetched = i + 1, fetched + len(object_)
        except Cancelled as error:
            reason = str(error)
            stats.count("load_cancelled")
        except NotFound as error:
            reason = str(error)
            stats.count("load_missing")
        except Corrupt as error:
            reason = str(error)
            stats.count("load_corrupt")
        except BaseException as error:  # whatever it is, the request must go on
            reason = f"{type(error).__name__}: {error}"
            stats.count("load_errors")
        failed = restored < len(keys)
        if failed and not stop.stop_requested:
            logger.warning("kvcodec: request %s: chunk %d of its prefix is computed, not loaded: %s", job.request,
                           job.first_chunk + restored, reason)  # fmt: skip
        tokens = max(0, restored * each - job.skip_blocks) * self._layout.heads.block_tokens
        seconds = time.monotonic() - queued
        for name, amount in (("loads", 1), ("load_tokens", tokens), ("load_bytes", fetched), ("load_seconds", seconds)):
            stats.count(name, amount)
        with self._lock:
            self._bad_blocks.update(job.block_ids[max(job.skip_blocks, restored * each) :])
            failed_chunk = job.first_chunk + restored if failed and not stop.stop_requested else -1
            self._finished[job.request] = LoadResult(tokens, seconds, failed_chunk, reason)
            self._stops.pop(job.request, None)
            self.stats.aggregate(stats)

    def _objects(self, job: LoadJob, stop: StopSource) -> Iterator[tuple[int, bytes]]:
        """(index, object) in order; the next ones are on their way while one is restored."""
        names = [object_name(job.namespaces[self._rank], key, self._rendition) for key in job.keys[self._rank]]
        ahead: deque[Future[bytes]] = deque()
        try:
            for i in range(len(names)):
                while len(ahead) < self._settings.chunks_in_flight and i + len(ahead) < len(names):
                    ahead.append(self._gets.submit(self._get, names[i + len(ahead)]))
                object_ = ahead.popleft().result()
                if stop.stop_requested:
                    raise Cancelled(f"request {job.request} was aborted")
                yield i, object_
        finally:
            for future in ahead:
                future.cancel()

    def _get(self, name: str) -> bytes:
        return self._backing.use(lambda store: store.get(name))

    def _restore(self, job: LoadJob, i: int, object_: bytes, each: int) -> None:
        blocks = job.block_ids[i * each : (i + 1) * each]
        first_token = (job.first_chunk + i) * self._settings.chunk_tokens
        tier = rendition_tier(self._rendition)
        exactly = tier in (Tier.EXACT, Tier.INT8)
        options = DecodeOptions(
            expected=ChunkId(job.namespaces[self._rank], job.keys[self._rank][i], first_token), profile=self._profile,
            expected_tier=tier if exactly else None, lowest_tier=None if exactly else tier,
            threads=self._settings.decode_threads)  # fmt: skip
        skip = job.skip_blocks if i == 0 else 0
        direct = not skip and (self._layout.on_cpu or self._restorer is not None)
        target = self._layout.cache(blocks) if direct else None
        if target is None:
            staged = self._layout.staging(each)
            decode_chunk(object_, staged, 0, options)
            self._layout.scatter(_tail(staged, skip * self._layout.heads.block_tokens), blocks[skip:])
        elif self._restorer is not None:
            self._restorer.restore(object_, target, 0, options)
        else:
            decode_chunk(object_, target, 0, options)

    def shutdown(self) -> None:
        with self._lock:
            stops = list(self._stops.values())
        for stop in stops:
            stop.request_stop()
        self._loads.shutdown(wait=True, cancel_futures=True)
        self._gets.shutdown(wait=False, cancel_futures=True)


def _tail(staged: KvCache, skip_tokens: int) -> KvCache:
    """Staging memory without its first tokens."""
    if skip_tokens == 0:
        return staged
    g = staged.geometry
    key, value = (Strides(s.offset + skip_tokens * s.token, s.layer, s.token, s.head, s.dim) for s in (g.key, g.value))
    return KvCache(staged.memory, KvGeometry(g.shape, g.tokens - skip_tokens, key, value))
