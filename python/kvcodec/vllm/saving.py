# SPDX-License-Identifier: Apache-2.0
"""A worker's saves: blocks are copied out within the step, encoded and written in threads."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from concurrent.futures import Future as FutureOf
from typing import Any

import numpy as np

from .. import arrays
from .._native import ChunkId, DType, KvCache, Profile, Rope, Store, encode_chunk, object_name, rendition_tier
from ..errors import KvCodecError, NotFound
from .backing import Backing
from .jobs import SaveJob
from .layout import Layout
from .metrics import KvCodecStats
from .settings import Settings

logger = logging.getLogger("vllm.kvcodec")


def all_finite(cache: KvCache) -> bool:
    """Whether no element of staging memory is NaN or infinite."""
    for plane in arrays.views(cache):
        if cache.shape.dtype == DType.BF16:
            if ((plane & np.uint16(0x7F80)) == 0x7F80).any():
                return False
        elif not np.isfinite(plane).all():
            return False
    return True


class Saver:
    def __init__(self, settings: Settings, layout: Layout, rank: int, rendition: str, profile: Profile | None, rope: Rope,
                 backing: Backing):  # fmt: skip
        self._settings, self._layout, self._rank, self._rendition = settings, layout, rank, rendition
        self._profile, self._rope, self._backing = profile, rope, backing
        self._threads = ThreadPoolExecutor(settings.save_threads, "kvcodec-save")
        self._lock = threading.Lock()
        self._pending_bytes = 0
        self._futures: set[FutureOf[None]] = set()
        self._saved: list[bytes] = []
        self._unsaved: list[bytes] = []
        self.stats = KvCodecStats()

    def stage(self, job: SaveJob, step_failed: bool) -> None:
        """Copies the job's blocks, so that the engine may overwrite them, and queues the rest. To be
        called when the step has written them."""
        each = self._settings.chunk_tokens // self._layout.heads.block_tokens
        for i in range(len(job.keys[self._rank])):
            if step_failed:
                self._give_up(job, i, "save_refused")
                continue
            size = self._layout.shape.token_bytes * self._settings.chunk_tokens
            with self._lock:
                room = self._pending_bytes + size <= self._settings.max_pending_save_bytes
                self._pending_bytes += size if room else 0
            if not room:
                self._give_up(job, i, "save_dropped")
                continue
            staged = self._layout.staging(each)
            self._layout.gather(job.block_ids[i * each : (i + 1) * each], staged)
            future = self._threads.submit(self._run, job, i, staged, size)
            with self._lock:
                self._futures.add(future)
            future.add_done_callback(self._forget)

    def _forget(self, future: FutureOf[None]) -> None:
        with self._lock:
            self._futures.discard(future)

    def _give_up(self, job: SaveJob, i: int, why: str) -> None:
        with self._lock:
            self.stats.count(why)
            self._unsaved.append(job.keys[0][i])

    def _run(self, job: SaveJob, i: int, staged: KvCache, size: int) -> None:
        try:
            if not all_finite(staged):
                logger.warning("kvcodec: request %s: chunk %d is not saved: a value is not finite", job.request,
                               job.first_chunk + i)  # fmt: skip
                self._give_up(job, i, "save_refused")
                return
            self._save(job, i, staged)
        except KvCodecError as error:
            logger.warning("kvcodec: request %s: chunk %d is not saved: %s", job.request, job.first_chunk + i, error)
            self._give_up(job, i, "save_errors")
        finally:
            with self._lock:
                self._pending_bytes -= size

    def _save(self, job: SaveJob, i: int, staged: KvCache) -> None:
        ns, key = job.namespaces[self._rank], job.keys[self._rank][i]
        name = object_name(ns, key, self._rendition)
        began = time.monotonic()
        written = 0
        if job.replace or not self._backing.use(lambda store: _present(store, name)):
            object_ = encode_chunk(
                staged, id=ChunkId(ns, key, (job.first_chunk + i) * self._settings.chunk_tokens),
                tier=rendition_tier(self._rendition), rope=self._rope, profile=self._profile,
                threads=self._settings.encode_threads, verify=self._settings.verify_saves)  # fmt: skip
            self._backing.use(lambda store: store.put(name, object_))
            written = len(object_)
        with self._lock:
            self._saved.append(job.keys[0][i])
            if written:
                for counter, amount in (("saves", 1), ("save_bytes", written), ("save_raw_bytes", staged.nbytes),
                                        ("save_seconds", time.monotonic() - began)):  # fmt: skip
                    self.stats.count(counter, amount)
            else:
                self.stats.count("save_present")

    def results(self) -> tuple[list[bytes], list[bytes]]:
        """(saved, not saved) since the last call."""
        with self._lock:
            result = self._saved, self._unsaved
            self._saved, self._unsaved = [], []
        return result

    def take_stats(self) -> KvCodecStats:
        with self._lock:
            stats, self.stats = self.stats, KvCodecStats()
        return stats

    def shutdown(self) -> None:
        """Gives what is queued some time to be written."""
        with self._lock:
            futures: set[Any] = set(self._futures)
        wait(futures, self._settings.shutdown_timeout_s)
        self._threads.shutdown(wait=False, cancel_futures=True)


def _present(store: Store, name: str) -> bool:
    try:
        return store.stat(name).bytes > 0
    except NotFound:
        return False
