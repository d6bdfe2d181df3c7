"""The problems: graphs with the splits that models are compared on (``problems.toml``).

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
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import scipy.sparse as sp

from hoplite import ConfigError, Graph, Split, load
from hoplite.errors import check_choice
from hoplite.io import even_split, random_split, stratified_split

EMBEDDED = ("cora", "citeseer", "pubmed")  # they come with Hoplite
SPLITS = 10
SPARSE = 0.1  # the share of nonzero values up to which features are kept as sparse rows
RANDOM = "random"
Reading = Mapping[str, Any]  # options of ``load``


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A graph and how it is split ``splits`` times; ``score`` judges, ``fixed`` is for all."""

    dataset: str
    title: str
    groups: list[str]  # the first has its table; grids may name any
    deal: Literal["public", "stratified", "even"] = "public"
    splits: int = SPLITS
    score: str = "accuracy"
    fixed: dict[str, Any] = {}
    name: str = ""

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
        given = {
            key: value for key, value in reading.items() if (key, value) != ("directed", False)
        }
        graph = _read(str(path), tuple(sorted(given.items())))
        if self.deal == "public":
            return graph.with_split(_listed_split(str(path), number)) if number else graph
        deal = stratified_split if self.deal == "stratified" else even_split
        return graph.with_split(deal(graph.labels, number))


_FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
GROUPS: dict[str, dict[str, str]] = _FILE["groups"]
PROBLEMS = {
    name: msgspec.convert({**table, "name": name}, Problem)
    for name, table in _FILE["problems"].items()
}
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
