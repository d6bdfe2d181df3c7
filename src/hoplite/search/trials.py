"""A search on disk: one SQLite file with a row per trial, which any number of processes may share.

A trial is one configuration and one seed. Its row has its status (waiting, running or done), the
process that runs it and since when, and its scores. All writes are transactions, so after a crash
at any moment each trial is either finished or not started. A process claims a trial before it
trains it. The claim of a process that no longer exists is ignored: the trial is trained again, with
the same bits.

A call adds the trials that it needs, and only those without scores are trained. A larger grid
therefore extends the file, and a smaller one reads a part of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import psutil
from msgspec import Meta

from hoplite.errors import SearchError
from hoplite.files import parse_json, to_json

FILE = "search.sqlite"
FACTS = "search"
WAITING, RUNNING, DONE = "waiting", "running", "done"
BUSY_SECONDS = 120.0  # to wait for another process that writes
CLOCK_SECONDS = 2.0  # maximum difference of two readings of when a process began
SCHEMA = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE trials (id INTEGER PRIMARY KEY, model TEXT NOT NULL, options TEXT NOT NULL, "
    "seed INTEGER NOT NULL, fold INTEGER NOT NULL, status TEXT NOT NULL, pid INTEGER, "
    "claimed REAL, scores TEXT, test TEXT, seconds REAL, UNIQUE (model, options, seed, fold))",
)
Content = TypeVar("Content")
Count = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True)
class Trial:
    """One configuration and one seed.

    Parameters
    ----------
    model : str
        A model's name, or ``module:Class``.
    options : dict
        Options of ``train`` for the model.
    seed : int
        The seed.
    fold : int, default 0
        Index of the split if the data has several.

    Examples
    --------
    >>> Trial("sgc", {"hops": 2}, seed=1).key
    ('sgc', '{"hops": 2}', 1, 0)
    """

    model: str
    options: dict[str, Any]
    seed: int
    fold: int = 0

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Different for different trials."""
        return self.model, json.dumps(self.options), self.seed, self.fold


@dataclass(frozen=True)
class Scores:
    """The scores of a trial on the validation nodes; None if they are not finite.

    Parameters
    ----------
    score : float or None
        The score of the monitor; larger is better.
    val_accuracy : float or None
        The accuracy; None without classes.
    val_loss : float or None
        The loss.
    best_epoch, epochs : int
        The epoch with the best score, and the number of epochs.
    diverged : bool
        Whether the training diverged.

    Examples
    --------
    >>> Scores(0.8, 0.8, 0.6, best_epoch=12, epochs=100, diverged=False).score
    0.8
    """

    score: float | None
    val_accuracy: Annotated[float, Meta(ge=0, le=1)] | None
    val_loss: Annotated[float, Meta(ge=0)] | None
    best_epoch: Count
    epochs: Count
    diverged: bool


@dataclass(frozen=True)
class FinishedTrial:
    """A trial with its scores.

    Parameters
    ----------
    trial : Trial
        The configuration and the seed.
    scores : Scores
        Its validation scores.
    test_accuracy : float or None
        The accuracy on the test nodes; None except under the protocol "test".
    seconds : float
        Time of the training.

    Examples
    --------
    >>> scores = Scores(0.8, 0.8, 0.6, best_epoch=12, epochs=100, diverged=False)
    >>> FinishedTrial(Trial("sgc", {"hops": 2}, seed=1), scores, None, 0.5).trial.seed
    1
    """

    trial: Trial
    scores: Scores
    test_accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class _Record:
    """The text of the column ``scores``, or of ``test``, which has the test accuracy alone.

    ``trial`` is a checksum of the trial's key.
    """

    trial: int
    scores: Scores | None = None
    seconds: Annotated[float, Meta(ge=0)] = 0.0
    test_accuracy: Annotated[float, Meta(ge=0, le=1)] | None = None


class SearchFile(contextlib.AbstractContextManager):
    """The SQLite file of a search, or a database in memory if there is no ``folder``.

    ``facts`` are what all its trials have in common, such as the fingerprint of the data. A file
    with other facts is refused.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, facts: dict[str, Any]) -> None:
        self.path, self.facts = None if folder is None else Path(folder) / FILE, facts
        self._lock = threading.RLock()  # threads share the connection
        try:
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                if self.path.exists() and not self.path.is_file():
                    raise SearchError(f"{self.path} is not a file.")
        except OSError as error:
            raise SearchError(f"{folder} cannot be used as a folder: {error.strerror}.") from error
        with self._explained():
            self._db = sqlite3.connect(
                ":memory:" if self.path is None else self.path.absolute().as_uri() + "?mode=rwc",
                timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False,
                uri=self.path is not None,
            )  # fmt: skip
        with self.transaction() as db:
            tables = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_master") if sql]
            if not tables:
                for statement in SCHEMA:
                    db.execute(statement)
                db.execute("INSERT INTO facts VALUES (?, ?)", (FACTS, to_json(facts)))
            elif tables != list(SCHEMA):  # also triggers, which would run here
                raise SearchError(
                    f"{self.path} was not written by a search of this version of "
                    "Hoplite; use another folder."
                )
            if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("its pages are inconsistent")
        stored = self.fact(FACTS, dict[str, Any]) or {}
        for name, value in facts.items():
            if stored.get(name) != value:
                raise SearchError(
                    f"{self.path} belongs to a search with another {name}: {stored.get(name)!r} "
                    f"instead of {value!r}; use another folder, or delete this one."
                )

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, once no other thread uses it."""
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone."""
        with self._lock, self._explained():
            yield self._db

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Everything in the block is written, or nothing."""
        with self.reading() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise SearchError for any error of SQLite, and for damaged content."""
        try:
            yield
        except sqlite3.OperationalError as error:  # locked, full, read-only
            raise SearchError(
                f"{self.path} cannot be used ({error}); finished work is kept, so run it again to "
                "resume."
            ) from error
        except (sqlite3.Error, ValueError, TypeError, AttributeError) as error:
            raise SearchError(
                f"{self.path} is damaged ({error}); delete it and search again."
            ) from error

    def fact(self, name: str, type_: type[Content]) -> Content | None:
        """The value that :meth:`keep_fact` wrote; None if there is none."""
        with self.reading() as db:
            row = db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
            return None if row is None else parse_json(row[0].encode(), type_)

    def keep_fact(self, name: str, value: Any) -> None:
        """Write plain values, a dict or a dataclass, under a name."""
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, to_json(value)))

    def queue(self, trials: Sequence[Trial], *, test: bool = False) -> TrialQueue:
        """The ``trials`` as work to do, added to the file if it does not have them."""
        keys = [trial.key for trial in trials]
        with self.transaction() as db:
            db.executemany(
                "INSERT OR IGNORE INTO trials (model, options, seed, fold, status) "
                f"VALUES (?, ?, ?, ?, '{WAITING}')",
                keys,
            )
            rows = db.execute("SELECT model, options, seed, fold, id FROM trials").fetchall()
        ids = {tuple(key): number for *key, number in rows}
        return TrialQueue(self, [ids[key] for key in keys], test=test)


class TrialQueue:
    """The trials of a file that one call needs, by their ids, with test scores or without."""

    def __init__(self, file: SearchFile, ids: Sequence[int], *, test: bool) -> None:
        self.file, self.ids, self.test = file, list(ids), test
        self._open = dict.fromkeys(self.ids)  # those that are not known to be finished
        self._finished = f"scores IS NOT NULL{' AND test IS NOT NULL' if test else ''}"

    def claim(self) -> tuple[int, Trial] | None:
        """Claim the next trial that no process runs, with its id; None if there is none."""
        finished, claimed = [], None
        with self.file.transaction() as db:
            for number in self._open:
                done, status, pid, since, model, options, seed, fold = db.execute(
                    f"SELECT {self._finished}, status, pid, claimed, model, options, seed, fold "
                    "FROM trials WHERE id = ?",
                    (number,),
                ).fetchone()
                if done:
                    finished.append(number)
                elif status != RUNNING or not _is_alive(pid, since):
                    db.execute(
                        "UPDATE trials SET status = ?, pid = ?, claimed = ? WHERE id = ?",
                        (RUNNING, os.getpid(), time.time(), number),
                    )
                    claimed = number, Trial(model, json.loads(options), seed, fold)
                    break
            for number in finished:
                del self._open[number]
        return claimed

    def release(self, number: int) -> None:
        """Give up a claim."""
        with self.file.transaction() as db:
            db.execute(
                "UPDATE trials SET status = iif(scores IS NULL, ?, ?) WHERE id = ? AND status = ? "
                "AND pid = ?",
                (WAITING, DONE, number, RUNNING, os.getpid()),
            )

    def record(self, number: int, finished: FinishedTrial) -> None:
        """Write the scores of a trial, unless another process has written them before."""
        key = _checksum(finished.trial)
        scores = to_json(_Record(key, finished.scores, finished.seconds), indent=None)
        test = to_json(_Record(key, test_accuracy=finished.test_accuracy), indent=None)
        with self.file.transaction() as db:
            db.execute(
                "UPDATE trials SET status = ?, scores = ?, test = coalesce(?, test), seconds = ? "
                f"WHERE id = ? AND NOT ({self._finished})",
                (DONE, scores, test if self.test else None, finished.seconds, number),
            )

    def done(self, first: int | None = None) -> int:
        """The number of finished trials, of all or of the ``first`` so many."""
        with self.file.reading() as db:
            rows = db.execute(f"SELECT id FROM trials WHERE {self._finished}").fetchall()
        finished = {number for (number,) in rows}
        return sum(number in finished for number in self.ids[:first])

    def finished(self) -> list[FinishedTrial | None]:
        """Every trial with its scores, in the queue's order; None for those not finished."""
        results: list[FinishedTrial | None] = []
        with self.file.reading() as db:
            for number in self.ids:
                model, options, seed, fold, scores, test = db.execute(
                    "SELECT model, options, seed, fold, scores, test FROM trials WHERE id = ?",
                    (number,),
                ).fetchone()
                trial = Trial(model, json.loads(options), seed, fold)
                if scores is None or (self.test and test is None):
                    results.append(None)
                    continue
                record = _read(scores, trial)
                if record.scores is None:
                    raise ValueError("a trial has no scores")
                accuracy = _read(test, trial).test_accuracy if self.test else None
                results.append(FinishedTrial(trial, record.scores, accuracy, record.seconds))
        return results


def _read(text: str, trial: Trial) -> _Record:
    record = parse_json(text.encode(), _Record)
    if record.trial != _checksum(trial):
        raise ValueError("scores belong to another trial")
    return record


def _checksum(trial: Trial) -> int:
    return zlib.crc32(json.dumps(trial.key).encode())


def _is_alive(pid: int, since: float) -> bool:
    """Whether the process that made a claim at the time ``since`` still runs.

    A process of the same id that started later is another one.
    """
    try:
        process = psutil.Process(pid)
        alive = process.status() != psutil.STATUS_ZOMBIE
        return alive and process.create_time() <= since + CLOCK_SECONDS
    except psutil.Error:
        return False
