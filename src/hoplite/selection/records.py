"""What the files of a ledger hold; :mod:`hoplite.json_files` checks it when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from hoplite.config import MOST_SEED
from hoplite.selection.dimensions import MOST_CONFIGURATIONS

FORMAT = 1
LOST = -1.0  # how earlier versions wrote the accuracy of a run without a finite result
Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Position = Annotated[int, Meta(ge=0, lt=MOST_CONFIGURATIONS)]
Positions = Annotated[list[Position], Meta(min_length=1)]
Some = Meta(min_length=1, max_length=MOST_CONFIGURATIONS)


class Settings(TypedDict):
    """``search.json``: all that decides the results."""

    format: int
    hoplite: str
    dataset: str
    graph: str
    model: str
    seeds: Annotated[list[Annotated[int, Meta(ge=0, le=MOST_SEED)]], Some]
    configurations: Annotated[list[dict[str, Any]], Some]
    cells: Annotated[list[Positions], Some]


class RecordedRun(TypedDict):
    """What a run gave; ``val_accuracy`` is None if it diverged before it had a finite result."""

    configuration: Position
    seed: Count
    val_accuracy: Annotated[float, Meta(ge=LOST, le=1)] | None
    val_loss: NotRequired[Amount | None]
    best_epoch: NotRequired[Count]
    epochs: NotRequired[Count]
    diverged: NotRequired[bool]
    seconds: NotRequired[Amount]
    test_accuracy: NotRequired[Share | None]  # never in the file of the cell itself


class Cell(TypedDict):
    """``cells/0007.json``."""

    cell: Count
    cpu_seconds: Amount
    runs: list[RecordedRun]


class HiddenCell(TypedDict):
    """``cells/0007.test.json``: a value per run of the cell."""

    cell: Count
    test_accuracy: list[Share | None]


def check_settings(settings: Settings) -> None:
    """ValueError unless every configuration is in one cell."""
    placed = sorted(position for cell in settings["cells"] for position in cell)
    if placed != list(range(len(settings["configurations"]))):
        raise ValueError("its cells do not hold every configuration once")
    if len(set(settings["seeds"])) < len(settings["seeds"]):
        raise ValueError("it has a seed twice")


def checked_runs(runs: Sequence[RecordedRun], expected: list[tuple[int, int]]) -> list[RecordedRun]:
    """``runs``; ValueError unless they are those of the (configuration, seed) pairs ``expected``.

    A run without a finite result that an earlier version recorded is as one of today's.
    """
    if [(run["configuration"], run["seed"]) for run in runs] != expected:
        raise ValueError("it does not hold the runs of its cell")
    found = []
    for run in runs:
        accuracy = run["val_accuracy"]
        if accuracy is not None and LOST < accuracy < 0:
            raise ValueError("an accuracy is negative")
        lost = {"val_accuracy": None, "val_loss": None, "best_epoch": 0, "diverged": True}
        found.append({**run, **lost} if accuracy == LOST else run)
    return found
