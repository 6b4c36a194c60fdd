# SPDX-License-Identifier: Apache-2.0
"""The options of the connector, from kv_connector_extra_config."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .._native import Profile, Tier, rendition_name, tier_from_name
from ..errors import InvalidArgument


@dataclass(frozen=True)
class Settings:
    """Documented in docs/connectors.md; defaults are there too."""

    store: str
    store_max_bytes: int = 0
    tier: str = "exact"
    profile: str = ""
    chunk_tokens: int = 256
    salt: str = ""
    weights: str = ""
    model: str = ""
    load: bool = True
    save: bool = True
    min_tokens: int | None = None  # None: the cost model decides
    lookup_threads: int = 4
    lookup_timeout_s: float = 2.0
    load_threads: int = 2
    chunks_in_flight: int = 4
    decode_threads: int = 0
    save_threads: int = 1
    encode_threads: int = 1
    verify_saves: bool = True
    max_pending_save_bytes: int = 1 << 30
    failed_key_ttl_s: float = 600.0
    shutdown_timeout_s: float = 20.0

    @classmethod
    def parse(cls, extra: dict[str, Any], block_tokens: int) -> Settings:
        """Raises InvalidArgument, which names the option."""
        known = {field.name: field for field in fields(cls)}
        for name, value in extra.items():
            if name not in known:
                raise InvalidArgument(f"kv_connector_extra_config: unknown option '{name}'; known: {', '.join(known)}")
            kind = str(known[name].type)
            wanted: tuple[type, ...] = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}.get(
                kind.removesuffix(" | None"), (object,))  # fmt: skip
            if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
                raise InvalidArgument(f"kv_connector_extra_config: {name} is {value!r}, expected {kind}")
        if not extra.get("store"):
            raise InvalidArgument("kv_connector_extra_config: store is missing, as in \"file:///var/cache/kv\"")
        settings = cls(**extra)
        tier = tier_from_name(settings.tier)
        if settings.chunk_tokens < 1 or settings.chunk_tokens % block_tokens != 0:
            raise InvalidArgument(f"kv_connector_extra_config: chunk_tokens {settings.chunk_tokens} is no multiple of vLLM's "
                                  f"block_size {block_tokens}")  # fmt: skip
        if tier not in (Tier.EXACT, Tier.INT8) and not settings.profile:
            raise InvalidArgument(f"kv_connector_extra_config: tier {settings.tier} needs profile, a file or \"identity\"")
        for name in ("lookup_threads", "load_threads", "chunks_in_flight", "save_threads", "max_pending_save_bytes"):
            if getattr(settings, name) < 1:
                raise InvalidArgument(f"kv_connector_extra_config: {name} is below 1")
        return settings

    def rendition(self, profile: Profile | None) -> str:
        return rendition_name(tier_from_name(self.tier), profile)
