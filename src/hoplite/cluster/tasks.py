"""Tasks on a Dask cluster, each done at least once, whatever happens to the workers.

Dask gives a task that was running when its worker died to another worker, and gives up after a few
deaths (``distributed.scheduler.allowed-failures``). Here it is handed in again as long as there is
progress, because such a task is rarely to blame: machines are taken away, and memory is bounded.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable, Sequence
from typing import Any

from hoplite.cluster.worker import Sign, call
from hoplite.errors import ClusterError, HopliteError

LOOK_SECONDS = 2.0  # between two looks at the workers
PATIENCE = 120.0  # seconds without any worker until the work is given up
GATHER_SECONDS = 30.0
ROUNDS = 10  # how often Dask may give up a task that shows no progress in between


class Cluster:
    """A connection to a scheduler, see :func:`connect`.

    ``where`` is how errors name it, ``size`` the number of workers to plan with; ``renew`` asks for
    those that are missing, where that can be done from here.
    """

    def __init__(
        self, client: Any, where: str, size: int, sign: Sign, renew: Callable[[], None] | None
    ) -> None:
        self.where, self.size = where, size
        self._client, self._sign, self._renew = client, sign, renew
        self._seen = self._looked = 0.0
        self._count = itertools.count()

    def run(
        self,
        function: str,
        arguments: Sequence[tuple[Any, ...]],
        hear: Callable[[int, Any], None],
        done: Callable[[int], None],
    ) -> None:
        """Call ``function`` ("module:name") with each tuple of ``arguments`` on some worker.

        A task may run more than once, even at the same time, so it must not matter. ``hear`` gets
        the number of a task and each message it sends, ``done`` the number of one that has ended.
        """
        news: queue.SimpleQueue[tuple[int, Any, bool]] = queue.SimpleQueue()  # True: at the end
        topic, futures = self._sign["name"], {}
        rounds = [0] * len(arguments)

        def hand_in(number: int) -> None:
            # no key is used twice: Dask may still know an old task, or its error, by it
            key = f"hoplite-{topic}-{next(self._count)}"
            task = (self._sign, function, arguments[number], number)
            futures[number] = self._client.submit(call, *task, key=key, pure=False)
            futures[number].add_done_callback(lambda future: news.put((number, future, True)))

        self._gather()
        self._client.subscribe_topic(topic, lambda event: news.put((*event[1], False)))
        try:
            for number in range(len(arguments)):
                hand_in(number)
            while futures:
                self._look()
                try:
                    number, found, ended = news.get(timeout=LOOK_SECONDS)
                except queue.Empty:
                    continue
                if not ended:
                    rounds[number] = 0
                    hear(number, found)
                elif found is futures.get(number):
                    del futures[number]
                    if self._ended(found):
                        done(number)
                    else:
                        rounds[number] += 1
                        self._check_rounds(rounds[number])
                        hand_in(number)
        finally:
            self._client.unsubscribe_topic(topic)
            self._client.cancel(list(futures.values()), force=True)

    def _gather(self) -> None:
        """Wait a while for workers that start: later they would find the tasks given away."""
        self._seen = time.monotonic()
        while self._renew is not None and time.monotonic() - self._seen < GATHER_SECONDS:
            if len(self._client.nthreads()) >= self.size:
                break
            self._renew()
            time.sleep(0.1)
        self._seen = time.monotonic()

    def _ended(self, future: Any) -> bool:
        """Whether the task is done; False if Dask gave it up, its own error if it failed."""
        from distributed.scheduler import KilledWorker

        if future.status == "finished":
            return True
        if future.status != "error":  # cancelled or lost, which only a scheduler's end does
            raise self._gone()
        error = future.exception()
        if isinstance(error, KilledWorker):
            return False
        if isinstance(error, HopliteError):
            raise error
        if isinstance(error, ImportError | AttributeError):  # the task could not be read
            raise ClusterError(
                f"a worker of {self.where} cannot run Hoplite ({error}); install version "
                f"{self._sign['version']} on all machines."
            ) from error
        raise ClusterError(
            f"a task failed on {self.where} ({type(error).__name__}: {error}); what is finished "
            "stays, and the same command continues."
        ) from error

    def _check_rounds(self, rounds: int) -> None:
        if rounds >= ROUNDS:
            raise ClusterError(
                f"workers of {self.where} keep dying at the same task; see in their logs why "
                "(too little memory for --memory?), then run the same command again: what is "
                "finished stays."
            )

    def _look(self) -> None:
        """ClusterError if there is no scheduler, or has been no worker for long."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        try:
            workers = len(self._client.nthreads())
        except (OSError, RuntimeError) as error:  # also Dask's own errors of a lost connection
            raise self._gone() from error
        if workers:
            self._seen = now
        elif now - self._seen > PATIENCE:
            raise no_workers(self.where)
        if self._renew is not None and workers < self.size:
            self._renew()

    def _gone(self) -> ClusterError:
        return ClusterError(
            f"the scheduler {self.where} is gone; start it again and run the same command: what "
            "is finished stays."
        )


def no_workers(where: str) -> ClusterError:
    """The error that nobody is there to work."""
    return ClusterError(
        f"{where} has had no workers for {PATIENCE:.0f} s; start some (`dask worker ADDRESS`) and "
        "run the same command again: what is finished stays."
    )
