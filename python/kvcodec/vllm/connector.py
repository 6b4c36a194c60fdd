# SPDX-License-Identifier: Apache-2.0
"""The connector that vLLM loads: it hands each half what is its."""

from __future__ import annotations

import logging
import sys
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats

from .._native import DeviceRestorer, KvShape, Profile
from ..engine_config import rope_of
from ..errors import Unsupported
from .backing import Backing
from .identity import identify
from .jobs import StepMetadata, StepResults
from .layout import DTYPES, Heads, Layout, cpu_kernel, layer_order
from .loading import Loader
from .metrics import KvCodecPromMetrics, KvCodecStats
from .saving import Saver
from .scheduling import SchedulerSide
from .settings import Settings

logger = logging.getLogger("vllm.kvcodec")


def _heads(kv_cache_config: Any, block_size: int) -> tuple[Heads, list[str]]:
    """What the one KV cache group holds, and its layers in order. Raises Unsupported."""
    groups = kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        raise Unsupported(f"{len(groups)} KV cache groups: models with one kind of attention are supported")
    spec = groups[0].kv_cache_spec
    kind = type(spec).__name__
    if kind not in ("FullAttentionSpec", "MLAAttentionSpec") or getattr(spec, "sliding_window", None):
        raise Unsupported(f"KV cache of {kind}: expected FullAttentionSpec or MLAAttentionSpec without a window")
    if spec.dtype not in DTYPES:
        raise Unsupported(f"KV cache of {spec.dtype}: expected one of {', '.join(map(str, DTYPES))}")
    mla = kind == "MLAAttentionSpec"
    value = 0 if mla else getattr(spec, "head_size_v", None) or spec.head_size
    return Heads(spec.num_kv_heads, spec.head_size, value, block_size, spec.dtype), layer_order(groups[0].layer_names)


class KvCodecConnector(KVConnectorBase_V1):
    """Stores whole chunks of prompts, and loads them before a request is scheduled. A request never
    fails for it: what is missing, damaged or late is computed."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any):
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        transfer, parallel = vllm_config.kv_transfer_config, vllm_config.parallel_config
        if getattr(transfer, "kv_load_failure_policy", "recompute") != "recompute":
            raise ValueError('KvCodecConnector: set "kv_load_failure_policy": "recompute" in kv-transfer-config; a cache '
                             "must not fail requests")  # fmt: skip
        for name in ("pipeline_parallel_size", "prefill_context_parallel_size", "decode_context_parallel_size"):
            if getattr(parallel, name, 1) > 1:
                raise Unsupported(f"{name} {getattr(parallel, name)}: expected 1")
        self._heads, self._layers = _heads(kv_cache_config, vllm_config.cache_config.block_size)
        self._settings = Settings.parse(dict(transfer.kv_connector_extra_config), self._heads.block_tokens)
        heads = self._heads
        self._shape = KvShape(len(self._layers), heads.kv_heads, heads.key_dim, heads.value_dim, DTYPES[heads.dtype])
        # MLA keeps one latent vector on every rank, the same on all: stored once.
        self._ranks = 1 if heads.value_dim == 0 else parallel.tensor_parallel_size
        self._rope = rope_of(vllm_config.model_config.hf_text_config)
        self._profile = self._load_profile()
        rendition = self._settings.rendition(self._profile)
        backing = Backing(self._settings.store, self._settings.store_max_bytes)
        self._scheduler: SchedulerSide | None = None
        self._loader: Loader | None = None
        self._saver: Saver | None = None
        self._rendition, self._backing = rendition, backing
        if role == KVConnectorRole.SCHEDULER:
            digest = self._profile.digest if self._profile is not None else None
            self._scheduler = SchedulerSide(
                self._settings, lambda: identify(vllm_config, self._settings, self._shape, self._ranks, digest), rendition,
                heads.block_tokens, backing)  # fmt: skip
            logger.info("kvcodec: %s in %s, chunks of %d tokens, %s on %d ranks", rendition, self._settings.store,
                        self._settings.chunk_tokens, self._shape, self._ranks)  # fmt: skip

    def _load_profile(self) -> Profile | None:
        path = self._settings.profile
        if not path:
            return None
        if path == "identity":
            return Profile.identity(self._shape, self._rope)
        profile = Profile.load(path)
        profile.check_shape(self._shape)
        return profile

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # a cache: what it does not save is computed again

    # Scheduler.

    def on_new_request(self, request: Any) -> None:
        assert self._scheduler is not None
        self._scheduler.on_new_request(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        assert self._scheduler is not None
        return self._scheduler.get_num_new_matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        assert self._scheduler is not None
        if num_external_tokens > 0:
            self._scheduler.update_state_after_alloc(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        assert self._scheduler is not None
        return self._scheduler.build_connector_meta(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        assert self._scheduler is not None
        self._scheduler.update_connector_output(connector_output)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        assert self._scheduler is not None
        self._scheduler.request_finished(request)
        return False, None  # saves copy blocks within the step: none need be kept

    def reset_cache(self) -> bool | None:
        if self._scheduler is not None:
            self._scheduler.reset()
        return True

    # Worker.

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        missing = [name for name in self._layers if name not in kv_caches]
        if missing:
            raise Unsupported(f"KV cache of layer {missing[0]} was not registered")
        tensors = [kv_caches[name] for name in self._layers]
        on_cpu = tensors[0].device.type == "cpu"
        layout = Layout(tensors, self._heads, cpu_kernel(self._heads) if on_cpu and self._heads.value_dim else None)
        rank, restorer = 0, None
        if self._ranks > 1:
            from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

            rank = get_tensor_model_parallel_rank()
        if not on_cpu:
            try:
                restorer = DeviceRestorer(tensors[0].device.index or 0)
            except Unsupported as error:
                logger.warning("kvcodec: chunks are decoded by the CPU and copied to %s, which is slower: %s",
                               tensors[0].device, error)  # fmt: skip
        self._loader = Loader(self._settings, layout, rank, self._rendition, self._profile, self._backing, restorer)
        self._saver = Saver(self._settings, layout, rank, self._rendition, self._profile, self._rope, self._backing)
        logger.info("kvcodec: rank %d of %d: %s", rank, self._ranks, layout.describe())

    def _is_saving_rank(self) -> bool:
        """All ranks save what is theirs; of a cache that all share, the first does."""
        if self._ranks > 1 or self._vllm_config.parallel_config.tensor_parallel_size == 1:
            return True
        from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

        return bool(get_tensor_model_parallel_rank() == 0)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, StepMetadata) and self._loader is not None
        for job in metadata.loads:
            self._loader.start(job)
        for request in metadata.cancelled:
            self._loader.cancel(request)

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass  # loads end before their request is scheduled

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        pass  # whole chunks are copied at the end of the step

    def wait_for_save(self) -> None:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, StepMetadata) and self._saver is not None
        if not metadata.saves or not self._is_saving_rank():
            return
        # vLLM calls this from a `finally`: while an exception passes, the blocks hold garbage.
        failed = sys.exc_info()[0] is not None
        for job in metadata.saves:
            self._saver.stage(job, failed)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        assert self._loader is not None
        self._ended = self._loader.finished()
        return None, set(self._ended) or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        assert self._loader is not None
        return self._loader.bad_blocks()

    def build_connector_worker_meta(self) -> StepResults | None:
        assert self._saver is not None
        ended = getattr(self, "_ended", {})
        self._ended = {}
        saved, unsaved = self._saver.results()
        if not ended and not saved and not unsaved:
            return None
        return StepResults({request: [result] for request, result in ended.items()}, saved, unsaved)

    # Both.

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        if self._scheduler is not None:
            return self._scheduler.take_stats()
        if self._loader is None or self._saver is None:
            return None
        stats = self._loader.take_stats().aggregate(self._saver.take_stats())
        return None if stats.is_empty() else stats

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        return KvCodecStats(data=dict(data or {}))

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, metric_types: Any, labelnames: list[str],
                           per_engine_labelvalues: Any) -> KvCodecPromMetrics:  # fmt: skip
        return KvCodecPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        for part in (self._scheduler, self._loader, self._saver):
            if part is not None:
                part.shutdown()
