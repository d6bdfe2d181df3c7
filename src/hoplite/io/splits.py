"""Splits that are drawn for graphs without one, or chosen from their masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hoplite.config import check_number
from hoplite.errors import ConfigError
from hoplite.formatting import short
from hoplite.graph import PARTS, Split
from hoplite.labels import CLASSES, kind_of, known_labels

NO_NODES = np.empty(0, np.int64)


def stratified_split(
    labels: Any, seed: int = 0, fractions: Sequence[float] = (0.6, 0.2, 0.2)
) -> Split:
    """Deal the labelled nodes of each class out to training, validation and test.

    Of a class with ``c`` nodes, shuffled with ``seed``, the first ``round(f_1 c)`` (one at least)
    train, those up to ``round((f_1 + f_2) c)`` validate, those up to ``round((f_1 + f_2 + f_3) c)``
    test. Nodes without a label are left out. The same labels and seed give the same split. Labels
    that are no classes are dealt out as if they were all one.

    >>> stratified_split([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, -1]).sizes()
    {'train': 6, 'val': 2, 'test': 2}
    """
    shares = np.asarray(fractions, np.float64)
    if shares.shape != (3,) or not (shares >= 0).all() or not 0 < shares.sum() <= 1 + 1e-9:
        raise ConfigError(
            f"fractions is {tuple(fractions)}; pass three shares for training, validation and "
            "test that are not negative and add up to at most 1."
        )
    check_number("seed", seed, 0, whole=True)
    labels = np.asarray(labels)
    kind = kind_of(labels)
    labels = kind.groups(labels)
    # Each class has its own generator, so what happens to one class moves no node of another.
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for label in np.unique(labels[labels >= 0]):
        nodes = np.random.default_rng([seed, int(label)]).permutation(
            np.flatnonzero(labels == label)
        )
        # floor(x + 1/2), not round(): Python rounds halves to even, which surprises here.
        ends = np.floor(np.cumsum(shares) * nodes.size + 0.5 + 1e-9).astype(int)
        ends[0] = max(ends[0], 1)
        for part, piece in zip(parts, np.split(nodes, np.maximum.accumulate(ends)), strict=False):
            part.append(piece)
    train, val, test = (np.concatenate([NO_NODES, *part]) for part in parts)
    percent = "/".join(f"{100 * share:g}" for share in shares)
    how = "stratified" if kind is CLASSES else "random"
    return Split(train, val, test, note=f"{how} {percent}", seed=seed)


def random_split(
    labels: Any, seed: int, *, per_class: int = 20, val: int = 500, test: int = 1000
) -> Split:
    """A split of the sizes of the public ones: ``per_class`` training nodes of every class, then
    ``val`` and ``test`` nodes from all the rest.

    One generator, of ``seed``, shuffles the labelled nodes class after class and takes the first
    of each; then it shuffles what is left. Nodes with label -1 are left out.

    >>> random_split([0, 1] * 40, seed=3, per_class=2, val=10, test=20).sizes()
    {'train': 4, 'val': 10, 'test': 20}
    """
    check_number("seed", seed, 0, whole=True)
    for name, size in (("per_class", per_class), ("val", val), ("test", test)):
        check_number(name, size, 1, whole=True)
    labels, generator = np.asarray(labels), np.random.default_rng(seed)
    chosen = []
    for label in np.unique(labels[labels >= 0]):
        nodes = generator.permutation(np.flatnonzero(labels == label))
        if nodes.size < per_class:
            raise ConfigError(
                f"per_class is {per_class}, but class {label} has only {nodes.size} labelled "
                "nodes; use a smaller number."
            )
        chosen.append(nodes[:per_class])
    train = np.concatenate([NO_NODES, *chosen])
    rest = generator.permutation(np.setdiff1d(np.flatnonzero(labels >= 0), train))
    if rest.size < val + test:
        raise ConfigError(
            f"val and test are {val} and {test}, but {rest.size} labelled nodes are left; use "
            "smaller numbers."
        )
    note = f"{per_class} a class, {val} and {test} at random"
    return Split(train, rest[:val], rest[val : val + test], note=note, seed=seed)


def even_split(labels: Any, seed: int, *, train: float = 0.6, val: float = 0.2) -> Split:
    """As many training nodes of every class, as GPR-GNN, JacobiConv and others split 60/20/20.

    Of ``n`` labelled nodes of ``m`` classes: ``round(train n / m)`` of every class train, or all of
    a class that has no more; ``round(val n)`` of all the rest validate and the others test. So a
    small class may have **no** test node, and figures are not those of a stratified split.

    >>> split = even_split([0] * 2 + [1] * 8, seed=3)
    >>> split.sizes(), sorted({0, 1} - {*split.train.tolist()})
    ({'train': 5, 'val': 2, 'test': 3}, [])
    """
    check_number("seed", seed, 0, whole=True)
    for name, share in (("train", train), ("val", val)):
        check_number(name, share, 0, 1)
    labels, generator = np.asarray(labels), np.random.default_rng(seed)
    known = np.flatnonzero(labels >= 0)
    classes = np.unique(labels[known])
    most = math.floor(train * known.size / max(classes.size, 1) + 0.5)
    chosen = [generator.permutation(np.flatnonzero(labels == label))[:most] for label in classes]
    first = np.concatenate([NO_NODES, *chosen])
    rest = generator.permutation(np.setdiff1d(known, first))
    size = math.floor(val * known.size + 0.5)
    note = f"even {100 * train:g}/{100 * val:g}"
    return Split(first, rest[:size], rest[size:], note=note, seed=seed)


def masked_split(
    masks: dict[str, np.ndarray], which: int | None, labels: np.ndarray | None, note: str
) -> Split | None:
    """The split of boolean masks, (n,) or (n, splits) each; None if there are none.

    Without ``which`` the first of several is taken. Nodes without a label are in no part.

    >>> masks = {"train": np.eye(3, dtype=bool)}
    >>> masked_split(masks, 2, np.array([0, 1, 1]), "public").train
    array([2])
    """
    if not masks or labels is None:
        return None
    count = max(1 if mask.ndim == 1 else mask.shape[1] for mask in masks.values())
    if which is not None:
        check_number("split", which, 0, count - 1, whole=True)
    known = known_labels(labels)
    column = which or 0
    none = np.zeros(len(labels), bool)
    chosen = (masks.get(part, none) for part in PARTS)
    parts = ((mask if mask.ndim == 1 else mask[:, column]).astype(bool) & known for mask in chosen)
    return Split(*parts, note=f"{note}, split {column} of 0 to {count - 1}" if count > 1 else note)


def refuse_split(source: Any, split: int | None) -> None:
    """ConfigError if ``split`` is given for a source that has at most one."""
    if split is not None:
        raise ConfigError(
            f"is {split}, but {short(source)} does not have several splits; leave it out.", "split"
        )
