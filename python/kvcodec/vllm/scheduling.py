# SPDX-License-Identifier: Apache-2.0
"""The scheduler's half of the connector: what to load, what to save. Nothing here waits."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._native import chunk_keys, match_prefix
from ..errors import KvCodecError
from .backing import Backing
from .identity import Identity, lora_identity
from .jobs import LoadJob, SaveJob, StepMetadata, StepResults
from .metrics import KvCodecStats
from .reuse import ReusePolicy
from .settings import Settings

logger = logging.getLogger("vllm.kvcodec")
MAX_REMEMBERED_KEYS = 1 << 20
MIN_MEASURED_TOKENS = 64  # a step of fewer says little of what a prompt costs


@dataclass
class Prefix:
    """A prompt's whole chunks: namespaces and keys by rank, and how many leading ones are stored."""

    namespaces: list[bytes]
    keys: list[list[bytes]]
    stored: int
    error: str = ""  # why the store was not asked, or did not answer


@dataclass
class Tracked:
    """What is known of a request. Chunks are numbered from the prompt's start."""

    prompt_tokens: int
    lookup: Future[Prefix] | None
    asked_at: float
    prefix: Prefix | None = None
    decided: bool = False  # the answer of the lookup was taken or given up
    local_tokens: int = 0  # computed already when external tokens were offered
    blocks: list[int] = field(default_factory=list)
    next_save: int = 0
    loading: bool = False


class KeyMemory:
    """Keys with a time to forget them, bounded, oldest out first."""

    def __init__(self, ttl_s: float, clock: Callable[[], float] = time.monotonic):
        self._ttl, self._clock = ttl_s, clock
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def add(self, key: bytes) -> None:
        self._until.pop(key, None)
        self._until[key] = self._clock() + self._ttl
        if len(self._until) > MAX_REMEMBERED_KEYS:
            self._until.popitem(last=False)

    def discard(self, key: bytes) -> None:
        self._until.pop(key, None)

    def __contains__(self, key: bytes) -> bool:
        until = self._until.get(key)
        if until is not None and until < self._clock():
            del self._until[key]
            return False
        return until is not None

    def __bool__(self) -> bool:
        return bool(self._until)


class SchedulerSide:
    """One thread, the scheduler's; lookups run in threads of their own."""

    def __init__(self, settings: Settings, identify: Callable[[], Identity], rendition: str, block_tokens: int,
                 backing: Backing):  # fmt: skip
        self._settings, self._rendition, self._block_tokens, self._backing = settings, rendition, block_tokens, backing
        self._chunk_tokens = settings.chunk_tokens
        self._lookups = ThreadPoolExecutor(settings.lookup_threads, "kvcodec-lookup")
        self._identity = self._lookups.submit(identify)
        self._requests: dict[str, Tracked] = {}
        self._saving: dict[str, Tracked] = {}  # those with prompt chunks yet to be saved
        self._loads: list[LoadJob] = []
        self._cancelled: list[str] = []
        self._failed = KeyMemory(settings.failed_key_ttl_s)  # keys of rank 0
        self._stored = KeyMemory(settings.failed_key_ttl_s)
        self._on_their_way: set[bytes] = set()  # keys of saves that workers have not answered for
        self.reuse = ReusePolicy(settings.min_tokens, settings.chunk_tokens)
        self._step: tuple[float, int] | None = None
        self.stats = KvCodecStats()

    # Lookup.

    def on_new_request(self, request: Any) -> Tracked:
        tracked = self._requests.get(request.request_id)
        if tracked is None:
            tracked = self._track(request)
            self._requests[request.request_id] = tracked
        return tracked

    def _track(self, request: Any) -> Tracked:
        tokens = getattr(request, "prompt_token_ids", None) or []
        # Images and embeddings are not in the token ids, so that keys would not tell them apart.
        other = getattr(request, "mm_features", None) or getattr(request, "prompt_embeds", None) is not None
        lookup = None
        if len(tokens) >= self._chunk_tokens and not other and getattr(request, "pooling_params", None) is None:
            self.stats.count("lookups")
            lora = getattr(request, "lora_request", None)
            lookup = self._lookups.submit(self._look_up, tokens, getattr(request, "cache_salt", None), lora)
        return Tracked(len(tokens), lookup, time.monotonic())

    def _look_up(self, tokens: list[int], salt: str | None, lora: Any) -> Prefix:
        """In a thread. A store that is down has nothing."""
        namespaces = self._identity.result().namespaces(salt, lora_identity(lora))
        ids = np.asarray(tokens[: len(tokens) // self._chunk_tokens * self._chunk_tokens], np.int32)
        keys = [chunk_keys(ns, ids, self._chunk_tokens) for ns in namespaces]
        stored, fault = 0, ""
        if self._settings.load:
            try:
                stored = min(self._stored_tokens(ns, ids) for ns in namespaces)
            except KvCodecError as error:
                fault = str(error)
        return Prefix(namespaces, keys, stored // self._chunk_tokens, fault)

    def _stored_tokens(self, ns: bytes, ids: Any) -> int:
        return self._backing.use(lambda store: match_prefix(store, ns, ids, self._rendition, self._chunk_tokens))

    def _settle(self, tracked: Tracked) -> bool:
        """Takes the lookup's answer once it is there; False: ask again later."""
        if tracked.decided:
            return True
        lookup = tracked.lookup
        if lookup is None:
            tracked.decided = True
            return True
        if lookup.done():
            tracked.decided = True
            try:
                tracked.prefix = lookup.result()
            except KvCodecError as error:
                self.stats.count("lookup_errors")
                logger.warning("kvcodec: a request is computed, not looked up: %s", error)
                return True
            if tracked.prefix.error:
                self.stats.count("lookup_errors")
            else:
                self._forget_evicted(tracked.prefix)
            if tracked.prefix.stored:
                self.stats.count("lookup_hits")
            return True
        if time.monotonic() - tracked.asked_at > self._settings.lookup_timeout_s:
            tracked.decided = True
            self.stats.count("lookup_timeouts")
            return True
        return False

    def _forget_evicted(self, prefix: Prefix) -> None:
        """What the store has no more is saved again."""
        keys = prefix.keys[0][prefix.stored :]
        if keys and keys[0] in self._stored:
            for key in keys:
                self._stored.discard(key)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        tracked = self.on_new_request(request)
        if not self._settle(tracked):
            return None, False
        chunks = self._usable_chunks(tracked)
        external = min(chunks * self._chunk_tokens, tracked.prompt_tokens) - num_computed_tokens
        if external <= 0:
            return 0, False
        if not self.reuse.worth(external):
            self.stats.count("not_worth_it")
            return 0, False
        tracked.local_tokens = num_computed_tokens
        return external, True

    def _usable_chunks(self, tracked: Tracked) -> int:
        """Leading stored chunks, up to the first whose key has failed."""
        prefix = tracked.prefix
        if prefix is None or not self._settings.load:
            return 0
        if self._failed:
            for i, key in enumerate(prefix.keys[0][: prefix.stored]):
                if key in self._failed:
                    return i
        return prefix.stored

    # Steps.

    def update_state_after_alloc(self, request: Any, block_ids: list[int], num_external_tokens: int) -> None:
        if num_external_tokens <= 0:
            return
        tracked = self._requests[request.request_id]
        assert tracked.prefix is not None
        first = tracked.local_tokens // self._chunk_tokens
        end = (tracked.local_tokens + num_external_tokens) // self._chunk_tokens
        self._loads.append(LoadJob(
            request=request.request_id, first_chunk=first, namespaces=tracked.prefix.namespaces,
            keys=[keys[first:end] for keys in tracked.prefix.keys], block_ids=self._blocks_of(block_ids, first, end),
            skip_blocks=(tracked.local_tokens - first * self._chunk_tokens) // self._block_tokens))  # fmt: skip
        tracked.loading = True

    def _blocks_of(self, table: list[int], first_chunk: int, end_chunk: int) -> list[int]:
        each = self._chunk_tokens // self._block_tokens
        return list(table[first_chunk * each : end_chunk * each])

    def build_connector_meta(self, output: Any) -> StepMetadata:
        meta = StepMetadata(loads=self._loads, cancelled=self._cancelled)
        self._loads, self._cancelled = [], []
        prefill_tokens = 0
        for new in output.scheduled_new_reqs:
            tracked = self._requests.get(new.req_id)
            scheduled = output.num_scheduled_tokens[new.req_id]
            prefill_tokens += scheduled
            if tracked is None or not self._settings.save or not self._savable(tracked):
                continue
            tracked.blocks = list(new.block_ids[0])
            self._saving[new.req_id] = tracked
            self._save(new.req_id, tracked, new.num_computed_tokens + scheduled, meta)
        if self._saving:
            prefill_tokens += self._continue_saving(output, meta)
        self._step = (time.monotonic(), prefill_tokens)
        return meta

    def _savable(self, tracked: Tracked) -> bool:
        return self._settle(tracked) and tracked.prefix is not None

    def _continue_saving(self, output: Any, meta: StepMetadata) -> int:
        cached, tokens = output.scheduled_cached_reqs, 0
        for i, name in enumerate(cached.req_ids):
            tracked = self._saving.get(name)
            if tracked is None:
                continue
            new_blocks = cached.new_block_ids[i]
            if name in cached.resumed_req_ids:  # after a preemption: the whole table anew
                tracked.blocks = list(new_blocks[0]) if new_blocks else []
            elif new_blocks is not None:
                tracked.blocks.extend(new_blocks[0])
            scheduled = output.num_scheduled_tokens[name]
            tokens += scheduled
            self._save(name, tracked, cached.num_computed_tokens[i] + scheduled, meta)
        return tokens

    def _save(self, name: str, tracked: Tracked, computed: int, meta: StepMetadata) -> None:
        """Adds a job for the chunks that are whole after this step and not stored."""
        assert tracked.prefix is not None
        keys = tracked.prefix.keys[0]
        end = min(computed // self._chunk_tokens, len(keys))
        usable = self._usable_chunks(tracked)
        run: list[int] = []
        for chunk in range(tracked.next_save, end):
            key = keys[chunk]
            wanted = chunk >= usable and key not in self._stored and key not in self._on_their_way
            if wanted:
                run.append(chunk)
            if run and (not wanted or chunk == end - 1):
                first, stop = run[0], run[-1] + 1
                meta.saves.append(SaveJob(
                    request=name, first_chunk=first, namespaces=tracked.prefix.namespaces,
                    keys=[k[first:stop] for k in tracked.prefix.keys], block_ids=self._blocks_of(tracked.blocks, first, stop),
                    replace=any(keys[c] in self._failed for c in run)))  # fmt: skip
                self._on_their_way.update(keys[first:stop])
                run = []
        tracked.next_save = max(tracked.next_save, end)
        if tracked.next_save >= len(keys):
            self._saving.pop(name, None)

    def update_connector_output(self, output: Any) -> None:
        if self._step is not None and self._step[1] >= MIN_MEASURED_TOKENS:
            self.reuse.observe_compute(self._step[1], time.monotonic() - self._step[0])
        self._step = None
        results = getattr(output, "kv_connector_worker_meta", None)
        if isinstance(results, StepResults):
            for request, loads in results.loads.items():
                self._loaded(request, loads)
            for key in results.saved:
                self._failed.discard(key)
                self._stored.add(key)
            self._on_their_way.difference_update(results.saved, results.unsaved)
        for request in output.finished_recving or ():
            tracked = self._requests.get(request)
            if tracked is not None:
                tracked.loading = False

    def _loaded(self, request: str, loads: list[Any]) -> None:
        worst = min(loads, key=lambda load: load.tokens)
        self.reuse.observe_fetch(worst.tokens, max(load.seconds for load in loads))
        tracked = self._requests.get(request)
        failed = [load.failed_chunk for load in loads if load.failed_chunk >= 0]
        if tracked is not None and tracked.prefix is not None and failed:
            key = tracked.prefix.keys[0][min(failed)]
            self._failed.add(key)
            # What was thought to be stored from there on is computed now, and saved again.
            for later in tracked.prefix.keys[0][min(failed) :]:
                self._stored.discard(later)
            tracked.prefix.stored = min(tracked.prefix.stored, min(failed))

    def request_finished(self, request: Any) -> None:
        name = request.request_id
        tracked = self._requests.pop(name, None)
        self._saving.pop(name, None)
        if tracked is None:
            return
        if tracked.lookup is not None:
            tracked.lookup.cancel()
        if tracked.loading:
            self._cancelled.append(name)

    def take_stats(self) -> KvCodecStats | None:
        if self.stats.is_empty():
            return None
        stats, self.stats = self.stats, KvCodecStats()
        return stats

    def reset(self) -> None:
        self._stored = KeyMemory(self._settings.failed_key_ttl_s)

    def shutdown(self) -> None:
        self._lookups.shutdown(wait=False, cancel_futures=True)
