# SPDX-License-Identifier: Apache-2.0
"""A store that may be down: opened when it is first used, and left alone for a while after a fault."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from .._native import Store, open_store
from ..errors import InternalError, InvalidArgument, IoError, KvCodecError, Unavailable, Unsupported

logger = logging.getLogger("vllm.kvcodec")
T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


class Backing:
    """Thread-safe. Raises Unavailable at once while the store is left alone."""

    def __init__(self, uri: str, max_bytes: int, opener: Callable[[str, int], Store] = open_store):
        self._uri, self._max_bytes, self._opener = uri, max_bytes, opener
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._pause, self._resume_at = 0.0, 0.0
        try:
            self._store = opener(uri, max_bytes)
        except (InvalidArgument, Unsupported):
            raise  # no later time makes it right
        except KvCodecError as error:
            self._fault(error)

    def use(self, call: Callable[[Store], T]) -> T:
        """call(store); its own exceptions pass, and faults of the store start a pause."""
        if time.monotonic() < self._resume_at:
            raise Unavailable(f"{self._uri}: left alone after a fault")
        try:
            with self._lock:
                if self._store is None:
                    self._store = self._opener(self._uri, self._max_bytes)
                store = self._store
            result = call(store)
        except (Unavailable, IoError, InternalError) as error:
            self._fault(error)
            raise
        if self._pause:
            logger.info("kvcodec: %s is back", self._uri)
            self._pause = 0.0
        return result

    def _fault(self, error: KvCodecError) -> None:
        with self._lock:
            self._pause = min(LONGEST_PAUSE, self._pause * 2 or FIRST_PAUSE)
            self._resume_at = time.monotonic() + self._pause
            self._store = None
        logger.warning("kvcodec: %s: %s; requests are computed, next try in %.0f s", self._uri, error, self._pause)
