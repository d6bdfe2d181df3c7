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
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from hoplite.errors import LedgerError
from hoplite.files import locked, read_regular
from hoplite.json_files import read_json, write_json
from hoplite.selection.records import (
    FORMAT,
    Cell,
    HiddenCell,
    RecordedRun,
    Settings,
    check_settings,
    checked_runs,
)

Kind = TypeVar("Kind")
SETTINGS = "search.json"


class Ledger:
    """The finished cells of one search in ``folder``; create or join it with :meth:`open`."""

    def __init__(self, folder: Path, settings: Any) -> None:
        self.folder = folder
        self.settings: Settings = settings
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
            with locked(folder / "search.lock", wait=True):  # two processes may begin at once
                if not path.exists():
                    write_json(path, settings)
        except OSError as error:
            raise LedgerError(f"cannot keep a search in {folder}: {error.strerror}.") from error
        _check_same(folder, _read_settings(path), settings)
        return cls(folder, settings)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Ledger:
        """The ledger that is in ``folder``, whatever its settings."""
        path = Path(folder) / SETTINGS
        if not path.is_file():
            raise LedgerError(f"{folder} holds no search ({SETTINGS} is missing).")
        return cls(Path(folder), _read_settings(path))

    def has(self, cell: int, *, test: bool = False) -> bool:
        """Whether the cell is finished (for the test protocol: with its test accuracies)."""
        return self._path(cell).exists() and (not test or self._path(cell, ".test.json").exists())

    def waiting(self, *, test: bool = False) -> list[int]:
        """The cells that are not finished."""
        return [cell for cell in range(self.count) if not self.has(cell, test=test)]

    @contextlib.contextmanager
    def claim(self, cell: int) -> Iterator[Claim | None]:
        """The right to train ``cell``, for as long as the block lasts; None if another has it."""
        with contextlib.ExitStack() as stack:
            path = self._path(cell, ".lock")
            try:
                handle, ours = stack.enter_context(locked(path))
            except OSError as error:
                raise LedgerError(f"cannot write to {path}: {error.strerror}.") from error
            yield None if ours is False else Claim(handle, sure=ours is True)

    def tidy(self, *, test: bool = False) -> None:
        """Remove what killed processes left of unfinished cells; those in work are not touched."""
        for cell in self.waiting(test=test):
            with self.claim(cell) as claim:
                if claim is not None and claim.sure:
                    claim.note(0.0)
                    for left in (self.folder / "cells").glob(f".{cell:04d}.*.tmp"):
                        left.unlink(missing_ok=True)

    def record(self, cell: int, runs: list[RecordedRun], cpu_seconds: float) -> None:
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

    def runs(self, *, test: bool = False) -> list[RecordedRun]:
        """Every recorded run once, in the order of the cells; test accuracies only on demand."""
        found: list[RecordedRun] = []
        for cell in range(self.count):
            if not self.has(cell, test=test):
                continue
            runs = self._cell(cell)["runs"]
            if test:
                pairs = zip(runs, self._hidden(cell), strict=True)
                runs = [RecordedRun(**{**run, "test_accuracy": value}) for run, value in pairs]
            found += runs
        return found

    def cpu_seconds(self) -> float:
        """The processor time that the finished cells took, added up over processes and threads."""
        done = [cell for cell in range(self.count) if self.has(cell)]
        return sum(self._cell(cell)["cpu_seconds"] for cell in done)

    def share(self, cell: int, *, test: bool = False) -> float:
        """How far a cell is, 0 to 1, whichever process trains it."""
        if self.has(cell, test=test):
            return 1.0
        with contextlib.suppress(OSError, ValueError):
            return min(1.0, float(read_regular(self._path(cell, ".lock"), 64) or 0))
        return 0.0

    def _cell(self, cell: int) -> Cell:
        def check(found: Cell) -> None:
            if found["cell"] != cell:
                raise ValueError("it is of another cell")
            found["runs"] = checked_runs(found["runs"], self._pairs(cell))

        return _read(self._path(cell), Cell, check)

    def _hidden(self, cell: int) -> list[float | None]:
        def check(found: HiddenCell) -> None:
            if found["cell"] != cell or len(found["test_accuracy"]) != len(self._pairs(cell)):
                raise ValueError("it is of another cell")

        return _read(self._path(cell, ".test.json"), HiddenCell, check)["test_accuracy"]

    def _pairs(self, cell: int) -> list[tuple[int, int]]:
        """Configuration and seed of the cell's runs."""
        return [(c, s) for c in self.settings["cells"][cell] for s in self.settings["seeds"]]

    def _write(self, cell: int, ending: str, content: dict[str, Any]) -> None:
        write_json(self._path(cell, ending), content, indent=None)

    def _path(self, cell: int, ending: str = ".json") -> Path:
        return self.folder / "cells" / f"{cell:04d}{ending}"


class Claim:
    """A locked cell, in whose lock file the share done can be noted for others to see.

    It is not ``sure`` where the disk has no locks: then others may have it, too.
    """

    def __init__(self, handle: int, *, sure: bool) -> None:
        self._handle, self.sure = handle, sure

    def note(self, share: float) -> None:
        """Say how far the training is."""
        with contextlib.suppress(OSError):  # a full disk must not stop the training itself
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"{share:.4f}".encode(), 0)


def _from_the_first_moments(path: Path) -> bool:
    """Whether a search that was killed before it had settings leaves this."""
    if path.name == "cells":
        return path.is_dir() and not any(path.glob("*.json"))
    return path.name == "search.lock" or path.name.startswith(f".{SETTINGS}.")


def _read_settings(path: Path) -> Settings:
    def check(found: Settings) -> None:
        if found["format"] != FORMAT:
            raise LedgerError(f"{path} is not of this version of Hoplite.")
        check_settings(found)

    return _read(path, Settings, check)


def _read(path: Path, kind: type[Kind], check: Callable[[Kind], None]) -> Kind:
    try:
        there = read_json(path, dict[str, Any])
        content = msgspec.convert(there, kind)
        check(content)
        unknown = there.keys() - get_type_hints(kind).keys()
        if unknown:
            raise LedgerError(
                f"{path} has {min(unknown)!r}, which this version of Hoplite does not know; go on "
                "with the one that wrote it, or search into a new folder."
            )
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        remedy = "delete the search's folder" if path.name == SETTINGS else "delete it"
        raise LedgerError(
            f"{path} is damaged; {remedy} and run the search again ({error})."
        ) from error
    return content


def _check_same(folder: Path, there: Settings, here: dict[str, Any]) -> None:
    for key, old in there.items():
        new = here[key]
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
