# SPDX-License-Identifier: Apache-2.0
"""Fetching in the background."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Generator
from typing import Any

from ._native import FetchReport, KvCache, StopSource, Store, fetch_prefix


class Fetch:
    """A fetch under way. Await it, or wait for result(); cancel() stops it after the chunk at hand.

    The target may be read when it is done, and memory and store must live until then (this object
    keeps them).
    """

    def __init__(self, future: concurrent.futures.Future[FetchReport], stop: StopSource, progress: list[int]):
        self._future, self._stop, self._progress = future, stop, progress

    @property
    def progress(self) -> tuple[int, int]:
        """(chunks restored, chunks of the prefix); (0, 0) before the first."""
        return self._progress[0], self._progress[1]

    def cancel(self) -> None:
        """Asks it to stop. The report then has what was restored, and `Cancelled` as stopped_by."""
        self._stop.request_stop()

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: float | None = None) -> FetchReport:
        """Waits for the report. Raises what fetch_prefix raises, or TimeoutError."""
        return self._future.result(timeout)

    def add_done_callback(self, callback: Any) -> None:
        """callback(fetch) from a thread of the fetch when it is done, at once where it is already."""
        self._future.add_done_callback(lambda _: callback(self))

    def __await__(self) -> Generator[Any, None, FetchReport]:
        return asyncio.wrap_future(self._future).__await__()


def submit_fetch(store: Store, namespace: bytes, tokens: Any, target: KvCache, *,
                 executor: concurrent.futures.Executor | None = None, **options: Any) -> Fetch:  # fmt: skip
    """fetch_prefix without waiting: returns a Fetch at once.

    executor: where it runs; None: a thread of its own. options: those of fetch_prefix; progress, if
    given, is called from that thread.
    """
    stop = options.pop("stop", None) or StopSource()
    callback = options.pop("progress", None)
    progress = [0, 0]

    def count(done: int, total: int) -> None:
        progress[:] = done, total
        if callback is not None:
            callback(done, total)

    def run() -> FetchReport:
        return fetch_prefix(store, namespace, tokens, target, progress=count, stop=stop, **options)

    if executor is not None:
        return Fetch(executor.submit(run), stop, progress)
    future: concurrent.futures.Future[FetchReport] = concurrent.futures.Future()

    def fill() -> None:
        try:
            future.set_result(run())
        except BaseException as error:  # the waiting thread gets it
            future.set_exception(error)

    threading.Thread(target=fill, name="kvcodec-fetch", daemon=True).start()
    return Fetch(future, stop, progress)
