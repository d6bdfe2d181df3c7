"""The ledger: a search on disk that any number of processes may share and any crash may interrupt.

    DIR/search.json           the settings; a ledger of other settings is refused
    DIR/cells/0007.json       what the runs of cell 7 gave, without a word of the test set
    DIR/cells/0007.test.json  their test accuracies, written and read by the test protocol alone
    DIR/cells/0007.lock       locked by the process that trains cell 7; holds how far it is

A cell is a batch of runs that train together, and always the same batch. Its file appears whole,
by an atomic rename, so a run is either recorded once or not at all. A lock belongs to a process
and not to the file: when the process dies, by ``kill -9`` or otherwise, the cell is free again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hoplite.errors import LedgerError
from hoplite.files import atomic_write_text

FORMAT = 1
SETTINGS = "search.json"


class Ledger:
    """The finished cells of one search in ``folder``; create or join it with :meth:`open`."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.settings = settings
        self.count = len(settings["cells"])

    @classmethod
    def open(cls, folder: str | os.PathLike[str], settings: dict[str, Any]) -> Ledger:
        """The ledger of ``settings`` (plain JSON values) in ``folder``, new or continued."""
        folder = Path(folder)
        settings = json.loads(json.dumps({"format": FORMAT, **settings}, allow_nan=False))
        path = folder / SETTINGS
        try:
            if folder.is_dir() and not path.exists():
                strangers = [p for p in folder.iterdir() if not _from_the_first_moments(p)]
                if strangers:
                    raise LedgerError(
                        f"{folder} is not empty and holds no search; give a new folder."
                    )
            (folder / "cells").mkdir(parents=True, exist_ok=True)
            with _locked(folder / "search.lock"):  # two processes may begin at once
                if not path.exists():
                    atomic_write_text(path, json.dumps(settings, indent=1) + "\n")
        except OSError as error:
            raise LedgerError(f"cannot keep a search in {folder}: {error.strerror}.") from error
        _check_same(folder, _read(path), settings)
        return cls(folder, settings)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Ledger:
        """The ledger that is in ``folder``, whatever its settings."""
        path = Path(folder) / SETTINGS
        if not path.is_file():
            raise LedgerError(f"{folder} holds no search ({SETTINGS} is missing).")
        settings = _read(path)
        if settings.get("format") != FORMAT or not isinstance(settings.get("cells"), list):
            raise LedgerError(f"{path} is not of this version of Hoplite.")
        return cls(Path(folder), settings)

    def has(self, cell: int, *, test: bool = False) -> bool:
        """Whether the cell is finished (for the test protocol: with its test accuracies)."""
        return self._path(cell).exists() and (not test or self._path(cell, ".test.json").exists())

    def waiting(self, *, test: bool = False) -> list[int]:
        """The cells that are not finished."""
        return [cell for cell in range(self.count) if not self.has(cell, test=test)]

    @contextlib.contextmanager
    def claim(self, cell: int) -> Iterator[Claim | None]:
        """The right to train ``cell``, for as long as the block lasts; None if another has it."""
        path = self._path(cell, ".lock")
        try:
            file = path.open("a+b", buffering=0)
        except OSError as error:
            raise LedgerError(f"cannot write to {self.folder}: {error.strerror}.") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            yield Claim(file.fileno())

    def tidy(self, *, test: bool = False) -> None:
        """Remove what killed processes left of unfinished cells; those in work are not touched."""
        for cell in self.waiting(test=test):
            with self.claim(cell) as claim:
                if claim is not None:
                    claim.note(0.0)
                    for left in (self.folder / "cells").glob(f".{cell:04d}.*.tmp"):
                        left.unlink(missing_ok=True)

    def record(self, cell: int, runs: list[dict[str, Any]], cpu_seconds: float) -> None:
        """Keep what the cell's runs gave; ``test_accuracy``, if there, goes to its own file."""
        hidden = [run["test_accuracy"] for run in runs if "test_accuracy" in run]
        shown = [{k: v for k, v in run.items() if k != "test_accuracy"} for run in runs]
        try:
            if hidden:
                self._write(cell, ".test.json", {"cell": cell, "test_accuracy": hidden})
            if not self.has(cell):  # what was recorded stays
                self._write(
                    cell, ".json", {"cell": cell, "cpu_seconds": cpu_seconds, "runs": shown}
                )
        except OSError as error:
            raise LedgerError(
                f"cannot write to {self.folder}: {error.strerror}. What was finished is kept; "
                "the same command continues."
            ) from error

    def runs(self, *, test: bool = False) -> list[dict[str, Any]]:
        """Every recorded run once, in the order of the cells; test accuracies only on demand."""
        found = []
        for cell in range(self.count):
            if not self.has(cell, test=test):
                continue
            runs = self._cell(cell, ".json", "runs")
            if test:
                hidden = self._cell(cell, ".test.json", "test_accuracy")
                runs = [
                    {**run, "test_accuracy": value} for run, value in zip(runs, hidden, strict=True)
                ]
            found += runs
        return found

    def cpu_seconds(self) -> float:
        """The processor time that the finished cells took, added up over processes and threads."""
        done = [cell for cell in range(self.count) if self.has(cell)]
        return sum(self._cell(cell, ".json", "cpu_seconds") for cell in done)

    def share(self, cell: int, *, test: bool = False) -> float:
        """How far a cell is, 0 to 1, whichever process trains it."""
        if self.has(cell, test=test):
            return 1.0
        with contextlib.suppress(OSError, ValueError):
            return min(1.0, float(self._path(cell, ".lock").read_text() or 0))
        return 0.0

    def _cell(self, cell: int, ending: str, key: str) -> Any:
        path = self._path(cell, ending)
        value = _read(path).get(key)
        runs = [(c, s) for c in self.settings["cells"][cell] for s in self.settings["seeds"]]
        if not _CHECKS[key](value, runs):
            raise LedgerError(f"{path} is damaged; delete it and run the search again.")
        return value

    def _write(self, cell: int, ending: str, content: dict[str, Any]) -> None:
        atomic_write_text(self._path(cell, ending), json.dumps(content, allow_nan=False) + "\n")

    def _path(self, cell: int, ending: str = ".json") -> Path:
        return self.folder / "cells" / f"{cell:04d}{ending}"


class Claim:
    """A locked cell, in whose lock file the share done can be noted for others to see."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def note(self, share: float) -> None:
        """Say how far the training is."""
        with contextlib.suppress(OSError):  # a full disk must not stop the training itself
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"{share:.4f}".encode(), 0)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _from_the_first_moments(path: Path) -> bool:
    """Whether a search that was killed before it had settings leaves this."""
    if path.name == "cells":
        return path.is_dir() and not any(path.glob("*.json"))
    return path.name == "search.lock" or path.name.startswith(f".{SETTINGS}.")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        remedy = "delete the search's folder" if path.name == SETTINGS else "delete it"
        raise LedgerError(f"{path} is damaged; {remedy} and run the search again.")
    return content


def _is_number(value: Any, most: float = math.inf) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most


def _is_run(run: Any, configuration: int, seed: int) -> bool:
    return (
        isinstance(run, dict)
        and (run.get("configuration"), run.get("seed")) == (configuration, seed)
        and _is_number(run.get("val_accuracy"), 1)
        and (run.get("val_loss") is None or _is_number(run["val_loss"]))
    )


def _are_runs(value: Any, runs: list[tuple[int, int]]) -> bool:
    return (
        isinstance(value, list)
        and len(value) == len(runs)
        and all(_is_run(run, *expected) for run, expected in zip(value, runs, strict=True))
    )


def _are_accuracies(value: Any, runs: list[tuple[int, int]]) -> bool:
    return (
        isinstance(value, list)
        and len(value) == len(runs)
        and all(_is_number(accuracy, 1) for accuracy in value)
    )


_CHECKS: dict[str, Callable[[Any, list[tuple[int, int]]], bool]] = {
    "runs": _are_runs,
    "test_accuracy": _are_accuracies,
    "cpu_seconds": lambda value, runs: _is_number(value),
}


def _check_same(folder: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    for key in [*here, *there]:
        old, new = there.get(key), here.get(key)
        if old != new:
            raise LedgerError(
                f"{folder} holds a search with other settings: {_difference(key, old, new)}. "
                "Give another folder, or delete this one."
            )


def _difference(key: str, old: Any, new: Any) -> str:
    if isinstance(old, list) and isinstance(new, list) and len(old) != len(new):
        return f"{len(old)} {key} there, {len(new)} here"
    if isinstance(old, list) and isinstance(new, list):
        at, old, new = next(
            (i, a, b) for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b
        )
        key = f"{key}[{at}]"
    if isinstance(old, dict) and isinstance(new, dict):
        name = next(name for name in [*old, *new] if old.get(name) != new.get(name))
        key, old, new = f"{key}: {name}", old.get(name), new.get(name)
    return f"{key} is {_short(old)} there and {_short(new)} here"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
