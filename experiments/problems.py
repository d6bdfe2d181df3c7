"""The problems: graphs with the splits that models are compared on.

    few            cora, citeseer, pubmed with their one public split
    sixty          ten splits of 60/20/20 of every class, split s made by seed s
    even           the same share, but as many training nodes of every class: as others publish
    heterophilous  graphs with ten public splits, judged by accuracy
    imbalanced     the same, judged by ROC AUC

The settings chosen on a problem of ``few`` are also trained on random splits (``cora-random``), and
with other options (``cora-NAME``), without a search of their own.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite import ConfigError, Graph, Split, load
from hoplite.datasets.splits import even_split, random_split, stratified_split
from hoplite.errors import check_choice

EMBEDDED = ("cora", "citeseer", "pubmed")  # they come with Hoplite
SPLITS = 10
SPARSE = 0.1  # the share of nonzero values up to which features are kept as sparse rows
RANDOM = "random"
Reading = Mapping[str, Any]  # options of ``load``
GROUPS = {
    "few": (
        "The public splits of the citation graphs",
        "20 labels a class, 500 validation and 1,000 test nodes. Deviations are over seeds.",
    ),
    RANDOM: (
        "Random splits",
        "The settings that were chosen on the public split, on splits that nothing was chosen on: "
        "split s with seed s, the same for all methods. Deviations are over splits.",
    ),
    "sixty": (
        "60/20/20",
        "Ten splits, of every class 60 % of the nodes to train, 20 % to validate, 20 % to test; "
        "split s is made by seed s. Deviations are over splits.",
    ),
    "even": (
        "60/20/20, as many of every class",
        "Ten splits as GPR-GNN, JacobiConv and others make them, so that their published figures "
        "can be compared: the same number of nodes of every class to train, 60 % of all nodes "
        "divided by the number of classes, or all of a smaller class, which is then in no test "
        "set; of the rest 20 % of all nodes to validate, the others to test; split s is made by "
        "seed s. Deviations are over splits.",
    ),
    "heterophilous": (
        "Heterophilous graphs",
        "Their ten public splits. Deviations are over splits.",
    ),
    "imbalanced": (
        "Imbalanced graphs",
        "Their ten public splits, judged and chosen by ROC AUC. Deviations are over splits.",
    ),
}


@dataclass(frozen=True)
class Problem:
    """A graph and how it is split ``splits`` times; ``score`` judges, ``fixed`` is for all."""

    name: str
    dataset: str
    title: str
    groups: tuple[str, ...]  # the first has its table; grids may name any
    deal: Callable[[Graph, Path, int], Split]
    splits: int = SPLITS
    score: str = "accuracy"
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """All that a grid may call it, the widest first."""
        return (*self.groups, self.dataset, self.name)

    def path(self, folder: Path | None, reading: Reading) -> Path | None:
        """Where its graph is, one with directions if ``reading`` says so; None if it is missing."""
        if self.dataset in EMBEDDED:
            return None if reading.get("directed") else Path(self.dataset)
        ending = "_directed" if reading.get("directed") else ""
        path = None if folder is None else folder / f"{self.dataset}{ending}.npz"
        return path if path is not None and path.is_file() else None

    def graph(self, folder: Path | None, reading: Reading, number: int) -> Graph:
        """The graph with split ``number``; it is read once for several splits."""
        path = self.path(folder, reading)
        if path is None:
            raise ConfigError(f"graphs is {str(folder)!r}, which has no graph for {self.name}.")
        # a graph without columns refuses "directed", and False is its default
        options = {
            key: value for key, value in reading.items() if (key, value) != ("directed", False)
        }
        graph = _read(str(path), tuple(sorted(options.items())))
        return graph.with_split(self.deal(graph, path, number))


def _public_split(graph: Graph, path: Path, number: int) -> Split:
    return graph.split if number == 0 else _listed_split(str(path), number)


def _problems() -> list[Problem]:
    found = [
        Problem(f"{name}-public", name, name.capitalize(), ("few",), _public_split, splits=1)
        for name in EMBEDDED
    ]
    titles = {
        "cora": ("Cora",),
        "citeseer": ("Citeseer",),
        "pubmed": ("Pubmed", "large"),
        "amazon_photo": ("Photo", "large"),
        "amazon_computers": ("Computers", "large"),
    }
    for group, ending, deal in (("sixty", "60", stratified_split), ("even", "even", even_split)):
        found += [
            Problem(
                f"{name}-{ending}", name, title, (group, *more),
                lambda graph, path, number, deal=deal: deal(graph.labels, number),
            )
            for name, (title, *more) in titles.items()
        ]  # fmt: skip
    public = {
        "texas": ("Texas", "heterophilous"),
        "cornell": ("Cornell", "heterophilous"),
        "wisconsin": ("Wisconsin", "heterophilous"),
        "actor": ("Actor", "heterophilous", "large"),
        "chameleon_filtered": ("Chameleon (filtered)", "heterophilous"),
        "squirrel_filtered": ("Squirrel (filtered)", "heterophilous"),
    }
    found += [
        Problem(name, name, title, tuple(groups), _public_split)
        for name, (title, *groups) in public.items()
    ]
    return found + [
        Problem(
            name, name, name.capitalize(), ("imbalanced", "large"), _public_split,
            score="roc_auc", fixed={"monitor": "auc"},
        )
        for name in ("minesweeper", "tolokers")
    ]  # fmt: skip


PROBLEMS = {one.name: one for one in _problems()}
NAMES = tuple(dict.fromkeys(name for one in PROBLEMS.values() for name in one.names))


def chosen_problems(names: Sequence[str] | None) -> list[Problem]:
    """All, or those with these names: a problem, all problems of a dataset, or of a group.

    >>> [one.name for one in chosen_problems(["cora", "texas"])]
    ['cora-public', 'cora-60', 'cora-even', 'texas']
    """
    for name in names or ():
        check_choice("datasets", name, NAMES)
    return [one for one in PROBLEMS.values() if not names or {*one.names} & {*names}]


@functools.lru_cache(maxsize=3)
def _read(source: str, reading: tuple[tuple[str, Any], ...]) -> Graph:
    graph = load(source, **dict(reading))
    features = graph.features
    if sp.issparse(features) or np.count_nonzero(features) > SPARSE * features.size:
        return graph
    rows = sp.csr_array(features)  # the same numbers, many times as fast
    return graph.with_features(rows, graph.feature_names or None, preparation=graph.preparation)


@functools.lru_cache(maxsize=4 * SPLITS)
def _listed_split(source: str, number: int) -> Split:
    return load(source, split=number).split


@functools.lru_cache(maxsize=256)
def fingerprint(path: Path) -> str:
    """Of the bytes of a graph's file; the name of one that comes with Hoplite."""
    if path.name in EMBEDDED:
        return path.name
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def on_random_split(graph: Graph, number: int, sizes: Mapping[str, int]) -> Graph:
    """The graph with random split ``number``: ``per_class`` training nodes, ``val``, ``test``."""
    return graph.with_split(random_split(graph.labels, number, **sizes))
