"""The columns of the second table: graphs with the splits that models are compared on.

    few            cora, citeseer, pubmed with their one public split
    sixty          ten splits of 60/20/20 of every class, split s made by seed s
    even           the same share, but as many training nodes of every class: as others publish
    heterophilous  graphs with ten public splits, judged by accuracy
    imbalanced     the same, judged by ROC AUC

From a problem of ``few`` more columns are made, without a search of their own: the chosen settings
on random splits (``cora-random``), and with other options (``cora-NAME``).
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

from hoplite.dataset_names import EMBEDDED
from hoplite.datasets import load
from hoplite.datasets.masks_npz import MATRIX_OPTIONS
from hoplite.datasets.splits import even_split, stratified_split
from hoplite.errors import ConfigError, check_choice
from hoplite.graph import Graph, Split
from hoplite.version import VERSION

DIRECTED = "_directed"  # how the file of the same graph with directions is called
UNDIRECTED = ("directed", False)  # is the usual, and not said: graphs without columns refuse it
SPLITS = 10
SPARSE = 0.1  # the share of values that are not 0, up to which features are kept as sparse rows
RANDOM = "random"
Reading = Mapping[str, Any]  # options of ``load``


@dataclass(frozen=True)
class Group:
    """Problems that stand in one table; ``words`` tell how its figures are made."""

    name: str
    title: str
    words: str


GROUPS = {
    one.name: one
    for one in (
        Group(
            "few",
            "The public splits of the citation graphs",
            "20 labels a class, 500 validation and 1,000 test nodes. Deviations are over seeds.",
        ),
        Group(
            RANDOM,
            "Random splits",
            "The settings that were chosen on the public split, on splits that nothing was chosen "
            "on: split s with seed s, the same for all methods. Deviations are over splits.",
        ),
        Group(
            "sixty",
            "60/20/20",
            "Ten splits, of every class 60 % of the nodes to train, 20 % to validate, 20 % to "
            "test; split s is made by seed s. Deviations are over splits.",
        ),
        Group(
            "even",
            "60/20/20, as many of every class",
            "Ten splits as GPR-GNN, JacobiConv and others make them, and so what their published "
            "figures are to be compared with: the same number of nodes of every class to train, "
            "60 % of all nodes divided by the number of classes, or all of a smaller class, which "
            "is then in no test set; of the rest 20 % of all nodes to validate, the others to "
            "test; split s is made by seed s. Deviations are over splits.",
        ),
        Group(
            "heterophilous",
            "Heterophilous graphs",
            "Their ten public splits. Deviations are over splits.",
        ),
        Group(
            "imbalanced",
            "Imbalanced graphs",
            "Their ten public splits, judged and chosen by ROC AUC. Deviations are over splits.",
        ),
    )
}


def _own(graph: Graph, path: Path, number: int) -> Split:
    return graph.split


def _sixty(graph: Graph, path: Path, number: int) -> Split:
    return stratified_split(graph.labels, number)


def _even(graph: Graph, path: Path, number: int) -> Split:
    return even_split(graph.labels, number)


def _masks(graph: Graph, path: Path, number: int) -> Split:
    return graph.split if number == 0 else _public_split(str(path), number)


@dataclass(frozen=True)
class Problem:
    """A graph and how it is split ``splits`` times; ``score`` judges, ``fixed`` is for all."""

    name: str
    dataset: str
    groups: tuple[str, ...]  # the first has its table; grids may name any
    splits: int
    deal: Callable[[Graph, Path, int], Split]
    title: str
    score: str = "accuracy"
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.groups[0]

    @property
    def names(self) -> tuple[str, ...]:
        """All that a grid may call it, the widest first."""
        return (*self.groups, self.dataset, self.name)

    @property
    def options(self) -> tuple[str, ...]:
        """The options of tables that its graph is read with."""
        return ("directed",) if self.dataset in EMBEDDED else MATRIX_OPTIONS

    def path(self, folder: Path | None, reading: Reading) -> Path | None:
        """Where its graph is, one with directions if ``reading`` says so; None if nowhere."""
        if self.dataset in EMBEDDED:
            return None if reading.get("directed") else Path(self.dataset)
        if folder is None:
            return None
        ending = DIRECTED if reading.get("directed") else ""
        path = folder / f"{self.dataset}{ending}.npz"
        return path if path.is_file() else None

    def graph(self, folder: Path | None, reading: Reading, number: int) -> Graph:
        """The graph with split ``number``; read anew only if it is another one than lately."""
        path = self.path(folder, reading)
        if path is None:
            raise ConfigError(f"graphs is {str(folder)!r}, which has no graph for {self.name}.")
        given = {name: value for name, value in reading.items() if (name, value) != UNDIRECTED}
        graph = _read(str(path), tuple(sorted(given.items())))
        return graph.with_split(self.deal(graph, path, number))


def _few(name: str, *groups: str) -> Problem:
    return Problem(f"{name}-public", name, ("few", *groups), 1, _own, name.capitalize())


def _sixty_of(dataset: str, title: str, *groups: str) -> Problem:
    return Problem(f"{dataset}-60", dataset, ("sixty", *groups), SPLITS, _sixty, title)


def _even_of(dataset: str, title: str, *groups: str) -> Problem:
    return Problem(f"{dataset}-even", dataset, ("even", *groups), SPLITS, _even, title)


def _public(name: str, title: str, *groups: str, **about: Any) -> Problem:
    return Problem(name, name, groups or ("heterophilous",), SPLITS, _masks, title, **about)


_AUC: dict[str, Any] = {"score": "roc_auc", "fixed": {"monitor": "auc"}}
PROBLEMS = {
    one.name: one
    for one in (
        _few("cora"),
        _few("citeseer"),
        _few("pubmed"),
        _sixty_of("cora", "Cora"),
        _sixty_of("citeseer", "Citeseer"),
        _sixty_of("pubmed", "Pubmed", "large"),
        _sixty_of("amazon_photo", "Photo", "large"),
        _sixty_of("amazon_computers", "Computers", "large"),
        _even_of("cora", "Cora"),
        _even_of("citeseer", "Citeseer"),
        _even_of("pubmed", "Pubmed", "large"),
        _even_of("amazon_photo", "Photo", "large"),
        _even_of("amazon_computers", "Computers", "large"),
        _public("texas", "Texas"),
        _public("cornell", "Cornell"),
        _public("wisconsin", "Wisconsin"),
        _public("actor", "Actor", "heterophilous", "large"),
        _public("chameleon_filtered", "Chameleon (filtered)"),
        _public("squirrel_filtered", "Squirrel (filtered)"),
        _public("minesweeper", "Minesweeper", "imbalanced", "large", **_AUC),
        _public("tolokers", "Tolokers", "imbalanced", "large", **_AUC),
    )
}
NAMES = tuple(dict.fromkeys(name for one in PROBLEMS.values() for name in one.names))


def chosen_problems(names: Sequence[str] | None) -> list[Problem]:
    """All, or those that are called so: a problem, all problems of a dataset, or of a group.

    >>> [one.name for one in chosen_problems(["cora", "texas"])]
    ['cora-public', 'cora-60', 'cora-even', 'texas']
    """
    for name in names or ():
        check_choice("datasets", name, NAMES)
    return [one for one in PROBLEMS.values() if names is None or {*one.names} & {*names}]


@functools.lru_cache(maxsize=3)
def _read(source: str, reading: tuple[tuple[str, Any], ...]) -> Graph:
    graph = load(source, **dict(reading))
    features = graph.features
    if sp.issparse(features) or np.count_nonzero(features) > SPARSE * features.size:
        return graph
    rows = sp.csr_array(features)  # the same numbers, many times as fast
    return graph.with_features(rows, graph.feature_names or None, preparation=graph.preparation)


@functools.lru_cache(maxsize=4 * SPLITS)
def _public_split(source: str, number: int) -> Split:
    return load(source, split=number).split


@functools.lru_cache(maxsize=256)
def fingerprint(path: Path) -> str:
    """Of the bytes of a graph's file; of one that comes with Hoplite, its version.

    >>> fingerprint(Path("cora")) == VERSION
    True
    """
    if path.name in EMBEDDED:
        return VERSION
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
