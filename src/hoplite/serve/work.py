"""Work for requests in a few threads, with limits: how many wait, and how long one may take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

THREADS = 2  # which share one interpreter; the products with S leave it meanwhile
MOST_WAITING = 256
SECONDS = 20.0

T = TypeVar("T")


class Overloaded(Exception):
    """The work was not done, or not in time; the text says why."""


class Work:
    """Runs functions in threads. Work that began keeps its place until it ends, however late."""

    def __init__(
        self, threads: int = THREADS, waiting: int = MOST_WAITING, seconds: float = SECONDS
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="hoplite-serve")
        self._most, self._seconds = threads + waiting, seconds
        self._there, self._lock = 0, Lock()

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """What the function returns; Overloaded if too many wait, or it takes too long."""
        if self._there >= self._most:
            raise Overloaded(f"{self._there} requests are waiting already; try again in a while.")
        with self._lock:
            self._there += 1
        thread = self._pool.submit(function, *arguments)
        thread.add_done_callback(self._leave)  # of the thread itself, which no timeout ends
        doing = asyncio.wrap_future(thread)
        doing.add_done_callback(_seen)
        done, _ = await asyncio.wait([doing], timeout=self._seconds)
        if not done:
            doing.cancel()  # which helps only if it has not begun
            raise Overloaded(f"the work took more than {self._seconds:g} seconds.")
        return doing.result()

    def _leave(self, thread: Future[Any]) -> None:
        with self._lock:
            self._there -= 1

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _seen(doing: asyncio.Future[Any]) -> None:
    if not doing.cancelled():
        doing.exception()  # whoever waited was told, or has left
