"""``results.json``: what `hoplite reproduce` found, as the report shows it.

The classes are the schema: msgspec checks a file while it is read, strict about what is there and
patient about what is missing. An accuracy is a share from 0 to 1; a deviation is the population's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hoplite.errors import HopliteError
from hoplite.files import atomic_write_text
from hoplite.json_files import read_json
from hoplite.lab.machine import QUIET, Machine
from hoplite.selection.ledger import SETTINGS
from hoplite.selection.ranking import PROTOCOLS, Summary, train_command
from hoplite.training.results import Figures
from hoplite.words import dataset_name, model_name

FORMAT = 1
FILE = "results.json"
NULLABLE = {"seeds", "val", "test", "machine", "versions"}  # in version 0.1.0: null is missing
LEVELS = 3  # of objects and lists, from the file down to where these are
Share = Annotated[float, Meta(ge=0, le=1)]
Signed = Annotated[float, Meta(ge=-1, le=1)]
Amount = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Curve = list[float | None]  # None is a gap: a value that was not finite
Config = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Of a model on a dataset."""

    dataset: str
    model: str
    gate: str | None = None  # of hyper-LGC

    @property
    def label(self) -> str:
        """The model as people write it."""
        return model_name(self.model, self.gate)

    @property
    def name(self) -> str:
        """
        >>> Trained(dataset="cora", model="hlgc", gate="node").name
        'hLGC, node gate on Cora'
        """
        return f"{self.label} on {dataset_name(self.dataset)}"


@dataclass(frozen=True, kw_only=True)
class Accuracy(Trained):
    """What a protocol chose, and its accuracies over the seeds.

    ``grid`` is the name of the space that was searched, ``cut`` why it is smaller than the paper's;
    ``minutes`` are of all processors together; ``command`` gives the figures again; ``date`` and
    ``hoplite`` say when and with which version they were made.
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
    figures: Figures | None = None  # beside the accuracy, of the same trainings

    @property
    def one_seed(self) -> bool:
        """Whether it is known to rest on a single seed, which has no deviation."""
        return len(self.seeds or self.test) == 1


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Test accuracies minus those of the model ``to``, split by split: the mean and its intervals.

    ``low`` to ``high`` is the interval of 95 % of this pair alone, ``low_all`` to ``high_all`` the
    one that holds for all ``pairs`` at once (Bonferroni).
    """

    to: str
    splits: Count
    pairs: Count
    mean: Signed
    low: float
    high: float
    low_all: float
    high_all: float


@dataclass(frozen=True, kw_only=True)
class OnSplits(Trained):
    """A chosen setting on random splits: ``test[s]`` is its accuracy on split s."""

    config: Config | None = None
    val: Curve = field(default_factory=list)
    test: Curve
    test_mean: Share | None = None
    test_std: Share | None = None
    difference: Difference | None = None
    command: str | None = None
    hoplite: str | None = None


@dataclass(frozen=True)
class Peer:
    """The same model, of the same size, as others write it; measured in turn with ours."""

    name: str
    ms_median: Amount


@dataclass(frozen=True, kw_only=True)
class Timing(Trained):
    """Milliseconds per epoch: the median and the quartiles of the repeats.

    ``others`` is the share of the CPU that other programs used meanwhile.
    """

    config: Config | None = None
    threads: Count | None = None
    epochs: Count | None = None
    ms_median: Amount
    ms_low: Amount | None = None
    ms_high: Amount | None = None
    repeats: Count | None = None
    peers: list[Peer] = field(default_factory=list)
    others: Share | None = None


@dataclass(frozen=True, kw_only=True)
class LossCurves(Trained):
    """Losses of one run, epoch by epoch; ``best_epoch`` counts from 1."""

    config: Config | None = None
    seed: int | None = None
    best_epoch: Count | None = None
    train_loss: Curve
    val_loss: Curve
    test_loss: Curve


@dataclass(frozen=True, kw_only=True)
class Coefficients(Trained):
    """c_0 .. c_k over the seeds; ``node_std`` is their spread over the nodes, where gates act."""

    config: Config | None = None
    seeds: list[int] = field(default_factory=list)
    mean: Curve
    std: Curve
    runs: list[Curve] = field(default_factory=list)
    node_std: Curve | None = None

    @property
    def one_seed(self) -> bool:
        return len(self.seeds) == 1


@dataclass(frozen=True, kw_only=True)
class Response:
    """What the filter of a model does to each eigenvalue, over the seeds."""

    model: str
    gate: str | None = None
    config: Config | None = None
    mean: Curve
    std: Curve

    @property
    def label(self) -> str:
        return model_name(self.model, self.gate)


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
    """The whole file; any section may be missing or empty."""

    format: Literal[1] = FORMAT
    kind: str | None = None  # full or quick; search: what one `hoplite search` chose
    command: str | None = None
    datasets: list[str] | None = None
    seeds: int | None = None
    provenance: Provenance = field(default_factory=Provenance)
    accuracy: list[Accuracy] = field(default_factory=list)
    timing: list[Timing] = field(default_factory=list)
    curves: list[LossCurves] = field(default_factory=list)
    coefficients: list[Coefficients] = field(default_factory=list)
    spectrum: list[Spectrum] = field(default_factory=list)
    comparison: list[OnSplits] = field(default_factory=list)

    def __post_init__(self) -> None:
        _check_unique((e.protocol, e.dataset, e.model, e.gate) for e in self.accuracy)
        _check_unique((e.dataset, e.model, e.gate) for e in self.timing)
        _check_unique((e.dataset, e.model, e.gate) for e in self.comparison)

    @property
    def quick(self) -> bool:
        """Whether settings that were chosen beforehand were trained, without a search."""
        return self.kind == "quick"

    @property
    def searched(self) -> bool:
        """Whether it is one search alone, and not the paper's experiments."""
        return self.kind == "search"

    def of(self, protocol: str) -> list[Accuracy]:
        """The accuracies of one protocol."""
        return [entry for entry in self.accuracy if entry.protocol == protocol]

    def busy(self, entry: Timing) -> float:
        """The share of the CPU that others used, if that was too much for ``entry``; else 0.

        Version 0.1.0 knew only how it was when the run began.
        """
        share = self.provenance.machine.busy_before if entry.others is None else entry.others
        return share if share is not None and share > QUIET else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return msgspec.to_builtins(self)


def load_results(folder: str | os.PathLike[str]) -> Results:
    """The checked content of ``folder/results.json``, or of a finished search in ``folder``.

    HopliteError if neither is there.
    """
    path = Path(folder) / FILE
    if not path.exists() and (Path(folder) / SETTINGS).is_file():
        return _of_search(Path(folder))
    try:
        content = read_json(path, dict[str, Any])
    except FileNotFoundError:
        raise HopliteError(
            f"{path} does not exist; `hoplite reproduce --out {folder}`, or with --quick, writes "
            "it, and `hoplite search` writes what can be shown instead."
        ) from None
    except OSError as error:
        raise HopliteError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        raise HopliteError(f"{path} is not valid JSON: {error}.") from None
    try:
        return as_results(content)
    except ValueError as error:
        raise HopliteError(f"{path} holds no results that can be shown: {error}.") from None


def _of_search(folder: Path) -> Results:
    """What a search chose, under each protocol that it was finished for."""
    entries = []
    for protocol in PROTOCOLS:
        path = folder / f"{protocol}.json"
        try:
            found = read_json(path, Summary)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise HopliteError(f"{path} cannot be shown: {error}.") from None
        if found.score != "accuracy":
            raise HopliteError(
                f"the search in {folder} was for {found.score.replace('_', ' ')}, and a page shows "
                f"accuracies of classes only; the figures of what it chose are in {path}."
            )
        if found.test_mean is None or found.test_std is None:
            raise HopliteError(
                f"{path} has no test accuracy, which a page shows; give the dataset test nodes and "
                "search in another folder."
            )
        entries.append(
            Accuracy(
                protocol=protocol,
                dataset=found.dataset,
                model=found.model,
                gate=found.config.get("gate"),
                cut=found.cut,
                configurations=found.configurations,
                runs=found.runs,
                minutes=found.cpu_minutes,
                config=found.config,
                seeds=found.seeds,
                val_mean=found.val_mean,
                val_std=found.val_std,
                test_mean=found.test_mean,
                test_std=found.test_std,
                val=found.val,
                test=found.test,
                command=train_command(found.dataset, found.model, found.config, len(found.seeds)),
                hoplite=found.hoplite,
                figures=found.figures,
            )
        )
    if not entries:
        raise HopliteError(f"the search in {folder} is not finished; run it again first.")
    datasets = list(dict.fromkeys(entry.dataset for entry in entries))
    return Results(kind="search", datasets=datasets, accuracy=entries)


def as_results(content: dict[str, Any]) -> Results:
    """Plain JSON values as results; ValueError, whose text is a phrase, if they are none."""
    if content.get("format") != FORMAT:
        raise ValueError(f"they have format {content.get('format')!r}, this version reads {FORMAT}")
    known = {k: v for k, v in content.items() if v is not None}
    return msgspec.convert(_without_null(known, LEVELS), Results)


def _without_null(value: Any, levels: int) -> Any:
    """``value`` without the ``NULLABLE`` keys whose value is null, down so many levels."""
    if levels and isinstance(value, dict):
        known = {k: v for k, v in value.items() if v is not None or k not in NULLABLE}
        return {k: _without_null(v, levels - 1) for k, v in known.items()}
    if levels and isinstance(value, list):
        return [_without_null(inner, levels - 1) for inner in value]
    return value


def write_results(results: Results, folder: Path) -> None:
    """Write ``folder/results.json``, completely or not at all."""
    try:
        atomic_write_text(folder / FILE, json.dumps(results.as_dict(), allow_nan=False) + "\n")
    except OSError as error:
        raise HopliteError(f"cannot write to {folder}: {error.strerror}.") from error


def _check_unique(keys: Iterable[tuple[str | None, ...]]) -> None:
    seen = set()
    for key in keys:
        if key in seen:
            what = ", ".join(part for part in key if part)
            raise ValueError(f"there are two results for {what}; keep one of them")
        seen.add(key)
