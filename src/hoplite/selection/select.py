"""Search and choose: a finished ledger, the ranking under one protocol, and the chosen one."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from hoplite.config import ModelConfig, TrainingConfig, idle_settings
from hoplite.datasets import load
from hoplite.errors import LedgerError
from hoplite.graph import Graph
from hoplite.json_files import read_json, write_json
from hoplite.selection.ledger import Ledger
from hoplite.selection.protocol import BIASED, Candidate, check_protocol, rank
from hoplite.selection.records import Share
from hoplite.selection.runner import SearchProgress, run_search
from hoplite.selection.space import read_space
from hoplite.training.train import TrainingResult, number, train


class _Kept(TypedDict):
    """What is read again of ``validation.json`` or ``test.json``."""

    config: dict[str, Any]
    val: list[Share | None]
    test: list[Share | None]


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search found under one protocol.

    ``test`` holds the chosen configuration's test accuracies, a value per seed: under
    ``validation`` of its models trained anew, the first and only time the test set is read.
    """

    protocol: str
    ledger: Ledger
    ranking: list[Candidate]  # best first
    val: tuple[float, ...]
    test: tuple[float, ...]
    cut: str | None = None

    @property
    def best(self) -> Candidate:
        """The chosen configuration."""
        return self.ranking[0]

    @property
    def test_accuracy(self) -> float:
        """Mean test accuracy of the chosen configuration."""
        return float(np.mean(self.test))

    def summary(self) -> dict[str, Any]:
        """Plain JSON values; std is over the seeds (n)."""
        settings = self.ledger.settings
        return {
            "protocol": self.protocol,
            "biased": BIASED if self.protocol == "test" else None,
            "dataset": settings["dataset"],
            "model": settings["model"],
            "configurations": len(settings["configurations"]),
            "runs": len(settings["configurations"]) * len(settings["seeds"]),
            "diverged": sum(run.get("diverged", False) for run in self.ledger.runs()),
            "cut": self.cut,
            "seeds": settings["seeds"],
            "config": self.best.options,
            "val_mean": number(float(np.mean(self.val))),
            "val_std": number(float(np.std(self.val))),
            "test_mean": number(self.test_accuracy),
            "test_std": number(float(np.std(self.test))),
            "val": [number(value) for value in self.val],
            "test": [number(value) for value in self.test],
            "cpu_minutes": self.ledger.cpu_seconds() / 60,
            "hoplite": settings["hoplite"],
        }

    def table(self) -> pa.Table:
        """Every run as a row: its configuration, seed and figures (no test but in ``test``)."""
        return runs_table(self.ledger, self.protocol)


def search(
    graph: Graph | str,
    model: str = "lgc",
    *,
    grid: str | Path = "paper",
    out: str | os.PathLike[str],
    protocol: str = "validation",
    seeds: int | Sequence[int] = 5,
    samples: int | None = None,
    sample_seed: int = 0,
    workers: int = 1,
    cluster: str | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
    **fixed: Any,
) -> SearchResult:
    """Train a grid (or ``samples`` random draws from a space) and choose by ``protocol``.

    The same call on the same ``out`` continues what was interrupted; see :func:`run_search`.
    ``fixed`` options of ``train`` hold for all configurations.
    """
    check_protocol(protocol)
    name = graph.name if isinstance(graph, Graph) else str(graph)
    space = read_space(grid)
    if samples is None:
        configurations = space.configurations(name, model, fixed)
    else:
        configurations = space.sample(name, model, samples, sample_seed, fixed)
    graph = graph if isinstance(graph, Graph) else load(graph)
    ledger = run_search(
        graph, model, configurations, out,
        seeds=seeds, protocol=protocol, workers=workers, cluster=cluster, progress=progress,
    )  # fmt: skip
    return choose(graph, ledger, protocol, cut=space.cut(name, model, fixed))


def choose(graph: Graph, ledger: Ledger, protocol: str, *, cut: str | None = None) -> SearchResult:
    """The result of a finished ledger; kept in its folder as ``validation.json`` or ``test.json``.

    Under ``validation`` this reads the test set for the chosen configuration, and if the file is
    there already, not even that.
    """
    ranking = rank(ledger, protocol)
    best = ranking[0]
    path = ledger.folder / f"{protocol}.json"
    kept = _kept(path, best, len(ledger.settings["seeds"]))
    if kept is not None:
        return SearchResult(protocol, ledger, ranking, kept[0], kept[1], cut)
    val, test = best.val, best.test
    if protocol == "validation":
        trained = retrain(graph, ledger, best)
        val = tuple(run.val_accuracy for run in trained.runs)
        test = tuple(run.test_accuracy for run in trained.runs)
    result = SearchResult(protocol, ledger, ranking, val, test, cut)
    try:
        write_json(path, result.summary())
    except OSError as error:
        raise LedgerError(f"cannot write {path}: {error.strerror}.") from error
    return result


def retrain(graph: Graph, ledger: Ledger, candidate: Candidate, **options: Any) -> TrainingResult:
    """Train a configuration of the ledger with its seeds, as ``hoplite train`` would."""
    settings = ledger.settings
    return train(graph, settings["model"], seeds=settings["seeds"], **candidate.options, **options)


def runs_table(ledger: Ledger, protocol: str = "validation") -> pa.Table:
    """Every recorded run as a row, in the grid's order."""
    test = check_protocol(protocol) == "test"
    configurations = ledger.settings["configurations"]
    runs = sorted(ledger.runs(test=test), key=lambda run: (run["configuration"], run["seed"]))
    rows = [
        {"configuration": run["configuration"], **configurations[run["configuration"]], **run}
        for run in runs
    ]
    return pa.Table.from_pylist(rows)


def train_command(
    dataset: str, model: str, options: Mapping[str, Any], seeds: int, split_seed: int = 0
) -> str:
    """The ``hoplite train`` command that repeats a configuration with the seeds 0, 1, ..."""
    fields = [f for kind in (ModelConfig, TrainingConfig) for f in dataclasses.fields(kind)]
    usual = {field.name: field.default for field in fields}
    idle = idle_settings(model)
    shown = {"hops", "hidden", "lr", "weight_decay", "dropout"}
    words = ["hoplite", "train", dataset, "--model", model]
    for name, value in options.items():
        if name not in idle and (name in shown or value != usual[name]):
            flag = f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, str(value)]
    words += ["--split-seed", str(split_seed)] if split_seed else []
    return shlex.join([*words, "--seeds", str(seeds)])


def _kept(
    path: Path, best: Candidate, seeds: int
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """The figures that an earlier call kept for the same choice, if they are whole."""
    try:
        summary = read_json(path, _Kept)
    except (OSError, ValueError):
        return None
    val, test = (
        tuple(math.nan if value is None else value for value in values)
        for values in (summary["val"], summary["test"])
    )
    if summary["config"] != best.options:
        raise LedgerError(
            f"{path} holds another choice than this search gives; delete it and run again."
        )
    return (val, test) if len(val) == len(test) == seeds else None
