"""``results.json`` and ``linear.json``: what the experiments found, as the report shows it.

The classes are the schema: msgspec checks a file while it is read. A score is a share from 0 to 1;
a deviation is the population's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from scipy import stats

from benchmarks.machine import QUIET, Machine
from experiments.paper import NAMES
from hoplite import HopliteError
from hoplite.files import atomic_write_text

RESULTS, LINEAR = "results.json", "linear.json"
CHECK = "check"  # the protocol of a training that only shows that a model runs
LEVEL = 0.95
Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Curve = list[float | None]  # None is a gap: a value that was not finite
Config = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Of a model on a dataset."""

    dataset: str
    model: str
    gate: str | None = None  # of hLGC

    @property
    def about(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "model": self.model, "gate": self.gate}

    @property
    def label(self) -> str:
        """The model as people write it."""
        name = NAMES.get(self.model, self.model)
        return f"{name}, {self.gate} gate" if self.gate else name

    @property
    def name(self) -> str:
        """
        >>> Trained(dataset="cora", model="hlgc", gate="node").name
        'hLGC, node gate on Cora'
        """
        return f"{self.label} on {NAMES.get(self.dataset, self.dataset)}"


@dataclass(frozen=True, kw_only=True)
class Accuracy(Trained):
    """What a protocol chose, and its accuracies over the seeds.

    ``grid`` is the name of the space that was searched, ``cut`` why it is smaller than the paper's;
    ``minutes`` are of all processors together; ``command`` gives the figures again.
    """

    protocol: str
    grid: str | None = None
    cut: str | None = None
    configurations: Count | None = None
    runs: Count | None = None
    minutes: Amount | None = None
    config: Config
    seeds: list[int] = field(default_factory=list)
    val_mean: Share | None = None
    val_std: Share | None = None
    test_mean: Share
    test_std: Share
    val: Curve = field(default_factory=list)
    test: Curve = field(default_factory=list)
    command: str | None = None
    date: str | None = None
    hoplite: str | None = None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Test scores minus those of the model ``to``, split by split: the mean and its intervals.

    ``low`` to ``high`` is the interval of 95 % of this pair alone, ``low_all`` to ``high_all`` the
    one that holds for all ``pairs`` at once (Bonferroni).
    """

    to: str
    splits: Count
    pairs: Count
    mean: Annotated[float, Meta(ge=-1, le=1)]
    low: float
    high: float
    low_all: float
    high_all: float


def paired(
    ours: Sequence[float | None], base: Sequence[float | None], pairs: int, to: str = "lgc"
) -> Difference | None:
    """The mean of ``ours - base`` over the splits that have both, with its t-intervals.

    >>> found = paired([0.5, 0.6, 0.7], [0.4, 0.4, 0.4], pairs=1)
    >>> [round(value, 4) for value in (found.mean, found.low, found.high)]
    [0.2, -0.0484, 0.4484]
    """
    both = zip(ours, base, strict=True)
    values = np.array([a - b for a, b in both if a is not None and b is not None])
    if len(values) < 2:
        return None
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
    half, wide = (
        error * float(stats.t.ppf(1 - (1 - LEVEL) / (2 * count), len(values) - 1))
        for count in (1, pairs)
    )
    return Difference(
        to=to, splits=len(values), pairs=pairs, mean=mean,
        low=mean - half, high=mean + half, low_all=mean - wide, high_all=mean + wide,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OnSplits(Trained):
    """A chosen setting on random splits: ``test[s]`` is its accuracy on split s."""

    val: Curve = field(default_factory=list)
    test: Curve
    test_mean: Share | None = None
    test_std: Share | None = None
    difference: Difference | None = None


@dataclass(frozen=True, kw_only=True)
class Timing(Trained):
    """Milliseconds per epoch: the median and the quartiles of the repeats.

    ``others`` is the share of the CPU that other programs used meanwhile.
    """

    config: Config = field(default_factory=dict)
    threads: Count | None = None
    ms_median: Amount
    ms_low: Amount | None = None
    ms_high: Amount | None = None
    others: Share = 0.0

    @property
    def busy(self) -> bool:
        """Whether other programs used so much that the time cannot be compared."""
        return self.others > QUIET


@dataclass(frozen=True, kw_only=True)
class LossCurves(Trained):
    """Losses of one run, epoch by epoch; ``best_epoch`` counts from 1."""

    config: Config = field(default_factory=dict)
    best_epoch: Count | None = None
    train_loss: Curve
    val_loss: Curve
    test_loss: Curve


@dataclass(frozen=True, kw_only=True)
class Coefficients(Trained):
    """c_0 .. c_k over the seeds; ``node_std`` is their spread over the nodes, where gates act."""

    seeds: list[int] = field(default_factory=list)
    mean: Curve
    std: Curve
    node_std: Curve | None = None


@dataclass(frozen=True, kw_only=True)
class Response(Trained):
    """What the filter of a model does to each eigenvalue, over the seeds."""

    dataset: str = ""
    mean: Curve
    std: Curve


@dataclass(frozen=True, kw_only=True)
class Spectrum:
    """The density of an operator's eigenvalues at ``points``, and the responses there."""

    dataset: str
    operator: str | None = None
    points: Curve
    density: Curve | None = None
    responses: list[Response]


@dataclass(frozen=True)
class Provenance:
    """When and where the results were made."""

    date: str | None = None
    machine: Machine = field(default_factory=Machine)


@dataclass(frozen=True, kw_only=True)
class Results:
    """``results.json``: the paper's experiments; any section may be missing or empty."""

    format: int = 1
    kind: str = "full"  # or quick: settings that were chosen beforehand, without a search
    command: str = ""
    datasets: list[str] = field(default_factory=list)
    seeds: int = 5
    provenance: Provenance = field(default_factory=Provenance)
    accuracy: list[Accuracy] = field(default_factory=list)
    timing: list[Timing] = field(default_factory=list)
    curves: list[LossCurves] = field(default_factory=list)
    coefficients: list[Coefficients] = field(default_factory=list)
    spectrum: list[Spectrum] = field(default_factory=list)
    comparison: list[OnSplits] = field(default_factory=list)

    @property
    def quick(self) -> bool:
        return self.kind == "quick"

    def of(self, protocol: str) -> list[Accuracy]:
        """The accuracies of one protocol."""
        return [entry for entry in self.accuracy if entry.protocol == protocol]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A method on a problem; ``difference`` is from the reference, on the same splits."""

    method: str
    problem: str
    reading: Config
    config: Config
    splits: list[Count]
    seeds: list[Count]
    val: Curve
    test: Curve
    test_mean: Share | None = None
    test_std: Share | None = None
    baseline: Share | None = None
    tried: Count
    runs: Count
    diverged: Count
    search_seconds: Amount  # of processor time
    epochs: Amount
    ms_per_epoch: Amount | None = None
    seconds: Amount | None = None
    difference: Difference | None = None
    hoplite: str
    changed: list[str] = field(default_factory=list)  # the settings that the method's grid names


@dataclass(frozen=True)
class Row:
    """A method."""

    name: str
    title: str
    model: str
    linear: bool


@dataclass(frozen=True)
class Column:
    """A problem; those of one ``group`` are in one table."""

    name: str
    title: str
    group: str
    group_title: str
    words: str
    score: str
    searched: bool = True  # False if the settings are those of another column


@dataclass(frozen=True, kw_only=True)
class LinearTable:
    """``linear.json``: every method on every problem; it grows while it is made."""

    format: int = 1
    command: str = ""
    provenance: Provenance = field(default_factory=Provenance)
    note: str = ""
    reference: str = ""
    protocol: list[str] = field(default_factory=list)  # in words
    rows: list[Row] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # problems and methods without a graph's file

    def figure(self, method: str, problem: str) -> Figure | None:
        """That of a method on a problem, if there is one."""
        same = (one for one in self.figures if (one.method, one.problem) == (method, problem))
        return next(same, None)


Content = TypeVar("Content", Results, LinearTable)


def load_results(folder: str | os.PathLike[str], schema: type[Content] = Results) -> Content:
    """The checked content of a folder's ``results.json`` or ``linear.json``."""
    path = Path(folder) / _file(schema)
    try:
        return msgspec.json.decode(path.read_bytes(), type=schema)
    except FileNotFoundError:
        raise HopliteError(f"{path} does not exist; `python -m experiments` writes it.") from None
    except OSError as error:
        raise HopliteError(f"cannot read {path}: {error.strerror}.") from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise HopliteError(f"{path} is not a valid file of results: {error}.") from None


def write_results(results: Results | LinearTable, folder: Path) -> None:
    """Write ``results.json`` or ``linear.json``, completely or not at all."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=1).decode()
    atomic_write_text(folder / _file(type(results)), text + "\n")


def _file(schema: type[Results] | type[LinearTable]) -> str:
    return LINEAR if schema is LinearTable else RESULTS


def mean_and_std(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """None if one of them is not known.

    >>> mean_and_std([0.5, 0.7]), mean_and_std([0.5, None])
    ((0.6, 0.09999999999999998), (None, None))
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None, None
    return float(np.mean(known)), float(np.std(known))
