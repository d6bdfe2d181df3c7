"""``linear.json``: the second table as it is kept, checked while it is read.

Scores are shares from 0 to 1; deviations are the population's, over the seeds of a public split or
over the splits.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hoplite.errors import HopliteError
from hoplite.json_files import read_json, write_json
from hoplite.lab.results import Amount, Count, Difference, Provenance, Share
from hoplite.words import plural

FORMAT = 1
FILE = "linear.json"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A method on a problem; ``difference`` is from the reference, on the same splits."""

    method: str
    problem: str
    reading: dict[str, Any]
    config: dict[str, Any]
    splits: list[Count]
    seeds: list[Count]
    val: list[Share | None]
    test: list[Share | None]
    test_mean: Share | None = None
    test_std: Share | None = None
    baseline: Share | None = None
    tried: Count
    finalists: Count
    runs: Count
    diverged: Count
    search_seconds: Amount  # of processor time
    epochs: Amount
    ms_per_epoch: Amount | None = None
    seconds: Amount | None = None
    difference: Difference | None = None
    hoplite: str
    changed: list[str] | None = None  # settings that are not the model's defaults; None: not known
    sizes: dict[str, Count] = field(default_factory=dict)  # of splits that were made
    unread: Count = 0  # settings that were left out, as their graph has no file


@dataclass(frozen=True)
class Row:
    """A method."""

    name: str
    title: str
    model: str
    linear: bool


@dataclass(frozen=True)
class Column:
    """A problem; those of one ``group`` stand in one table."""

    name: str
    title: str
    group: str
    group_title: str
    words: str
    score: str
    searched: bool = True  # False if the settings are those of another column


@dataclass(frozen=True, kw_only=True)
class LinearTable:
    """The whole table; it grows while it is made."""

    format: int = FORMAT
    command: str = ""
    provenance: Provenance = field(default_factory=Provenance)
    note: str = ""
    reference: str = ""
    protocol: list[str] = field(default_factory=list)  # in words
    rows: list[Row] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    missing: Count = 0  # figures that are still to come
    coming: dict[str, list[str]] = field(default_factory=dict)  # their methods, by column
    minutes: Amount = 0.0

    def figure(self, method: str, problem: str) -> Figure | None:
        """That of a method on a problem, if there is one."""
        same = (one for one in self.figures if (one.method, one.problem) == (method, problem))
        return next(same, None)

    @property
    def left_out(self) -> list[str]:
        """What has no file of its graph: problems, methods on them, and some of their settings."""
        searched = {column.name for column in self.columns if column.searched}
        some = (
            f"{plural(one.unread, 'setting')} of {one.method} on {one.problem}"
            for one in self.figures
            if one.unread and one.problem in searched
        )
        return [*self.absent, *some]


def read_linear(folder: str | os.PathLike[str]) -> LinearTable:
    """The checked content of ``folder/linear.json``."""
    path = Path(folder) / FILE
    try:
        found = read_json(path, LinearTable)
    except FileNotFoundError:
        raise HopliteError(
            f"{path} does not exist; `hoplite reproduce --table linear --out {folder}` writes it."
        ) from None
    except OSError as error:
        raise HopliteError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        raise HopliteError(f"{path} holds no table that can be shown: {error}.") from None
    if found.format != FORMAT:
        raise HopliteError(f"{path} has format {found.format}, and this version reads {FORMAT}.")
    return found


def write_linear(table: LinearTable, folder: Path) -> None:
    """Write ``folder/linear.json``, completely or not at all."""
    try:
        write_json(folder / FILE, table)
    except OSError as error:
        raise HopliteError(f"cannot write to {folder}: {error.strerror}.") from error


def mean_and_std(values: list[float | None]) -> tuple[float | None, float | None]:
    """None if one of them is not known.

    >>> mean_and_std([0.5, 0.7]), mean_and_std([0.5, None])
    ((0.6, 0.09999999999999998), (None, None))
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None, None
    return float(np.mean(known)), float(np.std(known))


class Quoted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure of others, in percent."""

    figure: float
    by: str


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What others reached on a problem, and what is to be reached here."""

    linear: Quoted | None = None
    anchor: Quoted | None = None
    reach: float | None = None


def published() -> dict[str, Published]:
    """By problem; quoted, not measured.

    >>> published()["cora-public"].linear
    Quoted(figure=83.6, by='GGCM')
    """
    text = (resources.files("hoplite.lab.linear") / "published.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Published])
