"""The ledger: a search on disk that any number of processes may share and any crash may interrupt.

    DIR/search.json           the settings; a ledger of other settings is refused, unless it has
                              some of the search's configurations: then it gets the others, too
    DIR/cells/0007.json       what the runs of cell 7 gave, without a word of the test set
    DIR/cells/0007.test.json  their test accuracies, written and read by the test protocol alone
    DIR/cells/0007.lock       locked by the process that trains cell 7; holds how far it is
    DIR/screen/               the ledger of a first stage, if there was one: more configurations,
                              of which those of DIR are the best

A cell is a batch of runs that train together, and always the same batch. Its file appears whole,
by an atomic rename, so a run is either recorded once or not at all. A lock belongs to a process
and not to the file: when the process dies, by ``kill -9`` or otherwise, the cell is free again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from hoplite.config import MAX_SEED
from hoplite.errors import HopliteWarning, LedgerError, some_of
from hoplite.files import locked, parse_json, read_json, read_regular, to_json, write_json
from hoplite.machine import source_hash
from hoplite.models import model_defaults, without_idle
from hoplite.selection.dimensions import MOST_CONFIGURATIONS

FORMAT = 1
SETTINGS = "search.json"
SCREEN = "screen"
LOST = -1.0  # how earlier versions wrote the accuracy of a run without a finite result

Kind = TypeVar("Kind")
Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Position = Annotated[int, Meta(ge=0, lt=MOST_CONFIGURATIONS)]
Positions = Annotated[list[Position], Meta(min_length=1)]
Some = Meta(min_length=1, max_length=MOST_CONFIGURATIONS)


@dataclass(frozen=True)
class Settings:
    """``search.json``: all that decides the results."""

    format: int
    hoplite: str
    dataset: str
    graph: str  # a fingerprint
    model: str
    seeds: Annotated[list[Annotated[int, Meta(ge=0, le=MAX_SEED)]], Some]
    configurations: Annotated[list[dict[str, Any]], Some]  # options of ``train``
    cells: Annotated[list[Positions], Some]  # the configurations that train together
    source: str = ""  # of the Hoplite that began it; earlier versions do not tell
    screened: Count = 0  # configurations that a first stage chose these from
    loop_weight: Annotated[float, Meta(gt=0)] = 1.0  # of the graph's self-loops, then and now

    def __post_init__(self) -> None:
        placed = sorted(position for cell in self.cells for position in cell)
        if placed != list(range(len(self.configurations))):
            raise ValueError("its cells do not hold every configuration once")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("it has a seed twice")


@dataclass(frozen=True)
class RecordedRun:
    """What a run gave; ``val_accuracy`` is None if it diverged before it had a finite result."""

    configuration: Position
    seed: Count
    val_accuracy: Annotated[float, Meta(ge=LOST, le=1)] | None
    val_loss: Amount | None = None
    best_epoch: Count = 0
    epochs: Count = 0
    diverged: bool = False
    seconds: Amount = 0.0
    val_score: float | None = None  # what the monitor says, larger is better, if not the accuracy

    def __post_init__(self) -> None:
        if self.val_accuracy == LOST:
            lost = {"val_accuracy": None, "val_loss": None, "best_epoch": 0, "diverged": True}
            for name, value in lost.items():
                object.__setattr__(self, name, value)
        elif self.val_accuracy is not None and self.val_accuracy < 0:
            raise ValueError("an accuracy is negative")


@dataclass(frozen=True)
class Cell:
    """``cells/0007.json``."""

    cell: Count
    cpu_seconds: Amount
    runs: list[RecordedRun]


@dataclass(frozen=True)
class HiddenCell:
    """``cells/0007.test.json``: a value per run of the cell."""

    cell: Count
    test_accuracy: list[Share | None]


class Ledger:
    """The finished cells of one search in ``folder``; create or join it with :meth:`open`."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.count = len(settings.cells)

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], settings: Settings, *, grows: bool = True
    ) -> Ledger:
        """The ledger of ``settings`` in ``folder``, new or continued.

        If it ``grows``, one that has only some of the configurations gets the others as well: its
        cells stay, finished or not, and new ones follow them.
        """
        folder = Path(folder)
        settings = dataclasses.replace(settings, source=source_hash())
        settings = parse_json(to_json(settings).encode(), Settings)  # as it will be read again
        path = folder / SETTINGS
        try:
            if folder.is_dir() and not path.exists():
                known = {SCREEN} if settings.screened else set()
                found = [p for p in folder.iterdir() if p.name not in known]
                if not all(map(_from_the_first_moments, found)):
                    raise LedgerError(
                        f"{folder} is not empty and holds no search; give a new folder."
                    )
            (folder / "cells").mkdir(parents=True, exist_ok=True)
            with locked(folder / "search.lock", wait=True):  # two processes may begin at once
                if not path.exists():
                    write_json(path, settings)
                there = _read_settings(path)
                settings = _continued(there, settings)
                _check_same(folder, there, settings, grows=grows)
                if len(settings.configurations) > len(there.configurations):
                    write_json(path, dataclasses.replace(settings, source=there.source))
        except OSError as error:
            raise LedgerError(f"cannot keep a search in {folder}: {error.strerror}.") from error
        return cls(folder, settings)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Ledger:
        """The ledger that is in ``folder``, whatever its settings."""
        path = Path(folder) / SETTINGS
        if not path.is_file():
            raise LedgerError(f"{folder} holds no search ({SETTINGS} is missing).")
        return cls(Path(folder), _read_settings(path))

    @property
    def screen(self) -> Ledger | None:
        """The first stage, if there was one."""
        return Ledger.read(self.folder / SCREEN) if self.settings.screened else None

    @property
    def stages(self) -> list[Ledger]:
        """This ledger, after the first stage if there was one."""
        return [*filter(None, [self.screen]), self]

    def has(self, cell: int, *, test: bool = False) -> bool:
        """Whether the cell is finished (for the test protocol: with its test accuracies)."""
        return self._path(cell).exists() and (not test or self._path(cell, ".test.json").exists())

    def finished(self, *, test: bool = False) -> list[int]:
        """The cells that are finished."""
        return [cell for cell in range(self.count) if self.has(cell, test=test)]

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

    def record(
        self,
        cell: int,
        runs: list[RecordedRun],
        cpu_seconds: float,
        test: list[float | None] | None = None,
    ) -> None:
        """Keep what the cell's runs gave; their ``test`` accuracies go to a file of their own."""
        try:
            if test is not None:
                hidden = HiddenCell(cell, test)
                write_json(self._path(cell, ".test.json"), hidden, indent=None)
            if not self.has(cell):  # what was recorded stays
                write_json(self._path(cell), Cell(cell, cpu_seconds, runs), indent=None)
        except OSError as error:
            raise LedgerError(
                f"cannot write to {self.folder}: {error.strerror}. What was finished is kept; "
                "the same command continues."
            ) from error

    def runs(self, *, test: bool = False) -> list[RecordedRun]:
        """Every run of the finished cells once, in the order of the cells."""
        return [run for cell in self.finished(test=test) for run in self._cell(cell).runs]

    def test_accuracies(self) -> list[float | None]:
        """A value for each of ``runs(test=True)``: nothing else looks at the test set."""
        return [value for cell in self.finished(test=True) for value in self._hidden(cell)]

    def cpu_seconds(self) -> float:
        """The processor time of the finished cells of all stages, over processes and threads."""
        stages = ((stage, cell) for stage in self.stages for cell in stage.finished())
        return sum(stage._cell(cell).cpu_seconds for stage, cell in stages)

    def share(self, cell: int, *, test: bool = False) -> float:
        """How far a cell is, 0 to 1, whichever process trains it."""
        if self.has(cell, test=test):
            return 1.0
        with contextlib.suppress(OSError, ValueError):
            return min(1.0, float(read_regular(self._path(cell, ".lock"), 64) or 0))
        return 0.0

    def _cell(self, cell: int) -> Cell:
        def check(found: Cell) -> None:
            if found.cell != cell:
                raise ValueError("it is of another cell")
            if [(run.configuration, run.seed) for run in found.runs] != self._pairs(cell):
                raise ValueError("it does not hold the runs of its cell")

        return _read(self._path(cell), Cell, check)

    def _hidden(self, cell: int) -> list[float | None]:
        def check(found: HiddenCell) -> None:
            if found.cell != cell or len(found.test_accuracy) != len(self._pairs(cell)):
                raise ValueError("it is of another cell")

        return _read(self._path(cell, ".test.json"), HiddenCell, check).test_accuracy

    def _pairs(self, cell: int) -> list[tuple[int, int]]:
        """Configuration and seed of the cell's runs."""
        return [(c, s) for c in self.settings.cells[cell] for s in self.settings.seeds]

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
            os.lseek(self._handle, 0, os.SEEK_SET)
            os.write(self._handle, f"{share:.4f}".encode())


def _from_the_first_moments(path: Path) -> bool:
    """Whether a search that was killed before it had settings leaves this."""
    if path.name == "cells":
        return path.is_dir() and not any(path.glob("*.json"))
    return path.name == "search.lock" or path.name.startswith(f".{SETTINGS}.")


def _read_settings(path: Path) -> Settings:
    def check(found: Settings) -> None:
        if found.format != FORMAT:
            raise LedgerError(f"{path} is not of this version of Hoplite.")
        if not found.model.isidentifier():  # a file must not choose what is imported
            raise ValueError(f"its model is {found.model!r}")

    found = _read(path, Settings, check)
    own = [without_idle(found.model, one) for one in found.configurations]
    return dataclasses.replace(found, configurations=own)


def _read(path: Path, kind: type[Kind], check: Callable[[Kind], None]) -> Kind:
    try:
        there = read_json(path, dict[str, Any])
        content = msgspec.convert(there, kind)
        check(content)
        unknown = there.keys() - {field.name for field in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
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


def _continued(there: Settings, here: Settings) -> Settings:
    """``here`` with the configurations of ``there`` first, in the cells that they have there.

    Cells for the others follow: those of ``here`` without what ``there`` has. What only one of the
    two names is at its default in the other. If ``here`` lacks a configuration it stays as it is.
    """
    named = {name for one in (*there.configurations, *here.configurations) for name in one}
    defaults = model_defaults(here.model)
    usual = {name: value for name, value in defaults.items() if name in named}
    old, new = ([usual | one for one in s.configurations] for s in (there, here))
    if any(one not in new for one in old):
        return here
    places = {i: old.index(one) for i, one in enumerate(new) if one in old}
    added = [i for i in range(len(new)) if i not in places]
    places |= {i: len(old) + place for place, i in enumerate(added)}
    cells = [[places[i] for i in cell if i in added] for cell in here.cells]
    return dataclasses.replace(
        here,
        configurations=[*there.configurations, *(here.configurations[i] for i in added)],
        cells=[*there.cells, *filter(None, cells)],
        loop_weight=there.loop_weight,
    )


def _check_same(folder: Path, there: Settings, here: Settings, *, grows: bool) -> None:
    """LedgerError unless the settings are equal; another source of the version is only told.

    Another source may cut the cells otherwise; those that are there stay. If the ledger ``grows``,
    there may be more configurations here.
    """
    for key, old in dataclasses.asdict(there).items():
        new = getattr(here, key)
        if key == "configurations" and grows:
            new = new[: len(old)]
        if old != new and key not in ("source", "cells", "loop_weight"):
            raise LedgerError(
                f"{folder} holds a search with other settings: {_difference(key, old, new)}. "
                "Give another folder, or delete this one."
            )
    if there.source not in ("", here.source):
        warnings.warn(
            f"the search in {folder} was begun with other source code of Hoplite {there.hoplite} "
            f"({there.source}, here {here.source}); its runs may differ from those of this one.",
            HopliteWarning,
            stacklevel=2,
        )


def _difference(key: str, old: Any, new: Any) -> str:
    if isinstance(old, list) and isinstance(new, list) and len(old) != len(new):
        return f"{len(old)} {key} there, {len(new)} here{_other_values(old, new)}"
    if isinstance(old, list) and isinstance(new, list):
        at, old, new = next(
            (i, a, b) for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b
        )
        key = f"{key}[{at}]"
    if isinstance(old, dict) and isinstance(new, dict):
        name = next(name for name in [*old, *new] if old.get(name) != new.get(name))
        key, old, new = f"{key}: {name}", old.get(name), new.get(name)
    return f"{key} is {_short(old)} there and {_short(new)} here"


def _other_values(old: list[Any], new: list[Any]) -> str:
    """Which options have other values there than here: `` (lr: 1, 2 there, 1 here)``."""
    if not all(isinstance(one, dict) for one in (*old, *new)):
        return ""
    told = []
    for name in dict.fromkeys(name for one in (*old, *new) for name in one):
        there, here = (
            [*dict.fromkeys(_short(one.get(name)) for one in some)] for some in (old, new)
        )
        if set(there) != set(here):
            told.append(f"{name}: {some_of(there)} there, {some_of(here)} here")
    return f" ({'; '.join(told)})" if told else ""


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
