"""Tasks on a Dask cluster, each done at least once, whatever happens to the workers.

A worker is given one task at a time, by its address. When it is lost, the task goes to another as
long as there is progress, because such a task is rarely to blame: machines are taken away, and
memory is bounded. A worker that cannot do the work, such as one of another version that has joined
in the meantime, says so instead of doing it, and is given no more.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hoplite.cluster.worker import Sign, UnfitWorker, call
from hoplite.errors import ClusterError, HopliteError

LOOK_SECONDS = 0.5  # between two looks at the workers
ANSWER_SECONDS = 10.0  # for the scheduler to say who they are
PATIENCE = 120.0  # seconds without any worker until the work is given up
GATHER_SECONDS = 30.0
RESULT_SECONDS = 2.0  # for a result to come, the first time; then twice as long
LOSSES = 10  # how often workers may be lost at a task that shows no progress in between


class Cluster:
    """A connection to a scheduler, see :func:`connect`.

    ``where`` is how errors name it, ``size`` the number of workers to plan with; ``renew``, where
    workers can be started from here, is told how many are at work and starts those that are not.
    """

    def __init__(
        self, client: Any, where: str, size: int, sign: Sign, renew: Callable[[int], None] | None
    ) -> None:
        self.where, self.size = where, size
        self._client, self._sign, self._renew = client, sign, renew
        self._seen = self._looked = 0.0
        self._gathered = False
        self._fit: list[str] = []  # workers, when they were last looked at
        self._unfit: dict[str, str] = {}  # why, by a worker's address
        self._count, self._files = itertools.count(), itertools.count()

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
        topic = self._sign["name"]
        news: _News = queue.SimpleQueue()
        self._client.subscribe_topic(topic, lambda event: news.put((*event[1], False)))
        try:
            self._run(function, arguments, news, hear, lambda number, _, __: not done(number))
        finally:
            if self._client.status == "running":
                self._client.unsubscribe_topic(topic)

    def map(
        self, function: str, arguments: Sequence[tuple[Any, ...]], homes: list[str | None]
    ) -> list[Any]:
        """What ``function`` returns for each tuple of ``arguments``; a task is as in :meth:`run`.

        ``homes`` are the workers that did each task before and may remember what it needs: they do
        it again if they can. It is kept up to date, and all are None at first.
        """
        results: list[Any] = [None] * len(arguments)

        def done(number: int, future: Any, address: str) -> bool:
            found = self._result(future, address)
            if found is None:
                return False
            results[number], homes[number] = found[0], address
            return True

        self._run(function, arguments, queue.SimpleQueue(), lambda *_: None, done, homes)
        return results

    def new_file(self) -> Path:
        """Where to write what all workers are to read; it is removed with the connection."""
        return Path(self._sign["folder"], f"{self._sign['name']}-{next(self._files)}.tmp")

    def _run(
        self,
        function: str,
        arguments: Sequence[tuple[Any, ...]],
        news: _News,
        hear: Callable[[int, Any], None],
        done: Callable[[int, Any, str], bool],
        homes: Sequence[str | None] = (),
    ) -> None:
        def submit(number: int, address: str) -> Any:
            # no key is used twice: Dask may still know an old task, or its error, by it
            key = f"hoplite-{self._sign['name']}-{next(self._count)}"
            task = (self._sign, function, arguments[number], number)
            future = self._client.submit(call, *task, key=key, pure=False, workers=[address])
            future.add_done_callback(lambda future: news.put((number, future, True)))
            return future

        work = _Work(len(arguments), submit, self._fit, self._unfit, homes)
        self._gather()
        try:
            while work.waiting or work.given:
                self._look(work)
                work.hand_out()
                try:
                    number, found, ended = news.get(timeout=LOOK_SECONDS)
                except queue.Empty:
                    continue
                if not ended:
                    work.losses[number] = 0
                    hear(number, found)
                elif address := work.worker_of(found):  # it was not taken from it before
                    if self._is_done(found, address) and done(number, found, address):
                        del work.given[address]
                    else:
                        work.take_back(address)
                self._check_losses(max(work.losses))
        finally:
            self._fit = work.fit
            if self._client.status == "running" and work.given:
                self._client.cancel([future for _, future in work.given.values()], force=True)

    def _result(self, future: Any, address: str) -> tuple[Any] | None:
        """What a finished task returned; None if its worker is lost, and that with it."""
        from distributed.client import FutureCancelledError

        seconds = RESULT_SECONDS
        while True:
            try:
                return (future.result(timeout=seconds),)
            except TimeoutError:
                if address not in self._workers():
                    return None
            except (FutureCancelledError, OSError):
                self._workers()  # raises if the scheduler is gone
                return None
            seconds *= 2

    def _gather(self) -> None:
        """Wait a while for workers that start: later they would find the tasks given away."""
        started = time.monotonic()
        while (
            self._renew is not None
            and not self._gathered
            and time.monotonic() - started < GATHER_SECONDS
        ):
            workers = len(self._workers())
            if workers >= self.size:
                break
            self._renew(workers)
            time.sleep(0.1)
        self._gathered, self._seen = True, time.monotonic()

    def _is_done(self, future: Any, address: str) -> bool:
        """Whether the task is done; False if another worker must do it, its own error if any."""
        from distributed.scheduler import KilledWorker

        if future.status == "finished":
            return True
        if future.status != "error":  # cancelled or lost, with its worker or with the scheduler
            self._workers()  # raises if it is the latter
            return False
        error = future.exception()
        if isinstance(error, KilledWorker):
            return False
        if isinstance(error, UnfitWorker):
            self._unfit[address] = str(error)
            return False
        if isinstance(error, ImportError | AttributeError):  # the task could not be read
            self._unfit[address] = cannot_import(address, error, self._sign)
            return False
        if isinstance(error, HopliteError):
            raise error
        raise ClusterError(
            f"a task failed on {self.where} ({type(error).__name__}: {error}); what is finished "
            "stays, and the same command continues."
        ) from error

    def _check_losses(self, losses: int) -> None:
        if losses >= LOSSES:
            raise ClusterError(
                f"workers of {self.where} keep dying at the same task; see in their logs why "
                "(too little memory for --memory?), then run the same command again: what is "
                "finished stays."
            )

    def _look(self, work: _Work) -> None:
        """See who is there; ClusterError if there is no scheduler, or has been no worker for long.

        A worker that the scheduler does not know any more has lost its task.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS and self._client.status == "running":
            return
        self._looked = now
        workers = self._workers()
        work.see(workers)
        if work.fit:
            self._seen = now
        elif now - self._seen > PATIENCE:
            problem = next((self._unfit[address] for address in workers), None)
            raise ClusterError(problem) if problem else no_workers(self.where)
        if self._renew is not None and len(workers) < self.size:
            self._renew(len(workers))

    def _workers(self) -> list[str]:
        """The addresses of the workers."""
        client = self._client
        if client.status != "running":
            raise self._gone()
        try:
            ask = client.scheduler.ncores
            return list(client.sync(ask, workers=None, callback_timeout=ANSWER_SECONDS))
        except (OSError, RuntimeError) as error:  # also Dask's own errors of a lost connection
            raise self._gone() from error

    def _gone(self) -> ClusterError:
        return ClusterError(
            f"the scheduler {self.where} is gone; start it again and run the same command: what "
            "is finished stays."
        )


_News = queue.SimpleQueue[tuple[int, Any, bool]]  # a task's number, message or future, the end?


class _Work:
    """Who does what: the tasks 0 to ``count`` - 1, given to workers by ``submit``.

    ``fit`` are the workers as they are known before the first look.
    """

    def __init__(
        self,
        count: int,
        submit: Callable[[int, str], Any],
        fit: list[str],
        unfit: dict[str, str],
        homes: Sequence[str | None],
    ) -> None:
        self._submit, self._homes = submit, homes
        self.waiting = list(range(count))[::-1]
        self.given: dict[str, tuple[int, Any]] = {}  # by a worker's address
        self.fit, self.unfit = fit, unfit
        self.losses = [0] * count  # since the task's last sign of progress

    def see(self, workers: list[str]) -> None:
        """These workers are there, and no others."""
        for address in self.given.keys() - set(workers):
            self.take_back(address)
        self.fit = [address for address in workers if address not in self.unfit]

    def hand_out(self) -> None:
        """Give every worker something to do: what it did before, or else what others wait with."""
        for own in (True, False):
            for address in self.fit:
                if address in self.given or not self.waiting:
                    continue
                known = [n for n in self.waiting if self._homes and self._homes[n] == address]
                if known or not own:
                    number = known[-1] if known else self.waiting[-1]
                    self.waiting.remove(number)
                    self.given[address] = (number, self._submit(number, address))

    def worker_of(self, future: Any) -> str | None:
        """The address of the worker to which this very task is given."""
        return next((address for address, (_, f) in self.given.items() if f is future), None)

    def take_back(self, address: str) -> None:
        """Let another worker do what this one could not, and give it no more for now."""
        number, future = self.given.pop(address)
        future.cancel(force=True)
        self.fit = [other for other in self.fit if other != address]
        self.waiting.append(number)
        self.losses[number] += address not in self.unfit


def no_workers(where: str) -> ClusterError:
    """The error that nobody is there to work."""
    return ClusterError(
        f"{where} has had no workers for {PATIENCE:.0f} s; start some (`dask worker ADDRESS`) and "
        "run the same command again: what is finished stays."
    )


def cannot_import(address: str, error: BaseException, sign: Sign) -> str:
    """The sentence about a worker without Hoplite."""
    return (
        f"worker {address} cannot import Hoplite ({error}); install version {sign['version']} on "
        "all machines."
    )
