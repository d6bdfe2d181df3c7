"""Splits that are drawn for graphs without one, or chosen from their masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hoplite.config import check_number
from hoplite.errors import ConfigError, GraphError, option_name, plural, warn
from hoplite.formatting import short
from hoplite.graph import PARTS, Split
from hoplite.labels import CLASSES, known_labels, label_type

NO_NODES = np.empty(0, np.int64)


def stratified_split(
    labels: Any, seed: int = 0, fractions: Sequence[float] = (0.6, 0.2, 0.2)
) -> Split:
    """Split the labelled nodes of each class into training, validation and test nodes.

    A class with c nodes is shuffled. With fractions f_1, f_2 and f_3, its first round(f_1 c) nodes
    (at least one) are training nodes, those up to round((f_1 + f_2) c) validation nodes, and those
    up to round((f_1 + f_2 + f_3) c) test nodes. The same labels and seed give the same split.

    Parameters
    ----------
    labels : (n,) integers or floats, or (n, m) matrix of 0 and 1
        Labels as in a :class:`hoplite.Graph`. Nodes without a label are in no part. Numbers and
        several labels are split as if all nodes were of one class.
    seed : int, default 0
        Seed of the shuffle.
    fractions : sequence of float, default (0.6, 0.2, 0.2)
        Shares of training, validation and test nodes.

    Returns
    -------
    Split

    Examples
    --------
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
    type_ = label_type(labels)
    labels = type_.groups(labels)
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
    how = "stratified" if type_ is CLASSES else "random"
    return Split(train, val, test, note=f"{how} {percent}", seed=seed)


def random_split(
    labels: Any, seed: int, *, per_class: int = 20, val: int = 500, test: int = 1000
) -> Split:
    """Draw a split with the sizes of the public citation splits.

    The labelled nodes of each class are shuffled and the first ``per_class`` are training nodes.
    The remaining nodes are shuffled together and divided into validation and test nodes.

    Parameters
    ----------
    labels : (n,) integers
        Classes, -1 where unknown; these nodes are in no part.
    seed : int
        Seed of both shuffles.
    per_class : int, default 20
        Number of training nodes of each class.
    val, test : int, default 500 and 1000
        Numbers of validation and test nodes.

    Returns
    -------
    Split

    Examples
    --------
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
                f"per_class is {per_class}, but class {label} has only "
                f"{plural(nodes.size, 'labelled node')}; use a smaller number."
            )
        chosen.append(nodes[:per_class])
    train = np.concatenate([NO_NODES, *chosen])
    rest = generator.permutation(np.setdiff1d(np.flatnonzero(labels >= 0), train))
    if rest.size < val + test:
        raise ConfigError(
            f"val and test are {val} and {test}, but only {plural(rest.size, 'labelled node')} "
            "would be left; use smaller numbers."
        )
    note = f"{per_class} a class, {val} and {test} at random"
    return Split(train, rest[:val], rest[val : val + test], note=note, seed=seed)


def even_split(labels: Any, seed: int, *, train: float = 0.6, val: float = 0.2) -> Split:
    """Draw a split with equally many training nodes of each class, as GPR-GNN and JacobiConv do.

    Of n labelled nodes of m classes, round(train n / m) of each class are training nodes, or all
    nodes of a class that has no more. Of all remaining nodes, round(val n) are validation nodes and
    the others test nodes. A small class may therefore have **no** test node, and scores are not
    comparable with those of a stratified split.

    Parameters
    ----------
    labels : (n,) integers
        Classes, -1 where unknown; these nodes are in no part.
    seed : int
        Seed of the draws.
    train, val : float, default 0.6 and 0.2
        Shares of training and validation nodes.

    Returns
    -------
    Split

    Examples
    --------
    >>> split = even_split([0] * 2 + [1] * 8, seed=3)
    >>> split.sizes(), sorted({0, 1} - {*split.train.tolist()})
    ({'train': 5, 'val': 2, 'test': 3}, [])
    """
    check_number("seed", seed, 0, whole=True)
    for name, share in (("train", train), ("val", val)):
        check_number(name, share, 0, 1)
    labels, generator = np.asarray(labels), np.random.default_rng(seed)
    labelled = np.flatnonzero(labels >= 0)
    classes = np.unique(labels[labelled])
    most = math.floor(train * labelled.size / max(classes.size, 1) + 0.5)
    chosen = [generator.permutation(np.flatnonzero(labels == label))[:most] for label in classes]
    first = np.concatenate([NO_NODES, *chosen])
    rest = generator.permutation(np.setdiff1d(labelled, first))
    size = math.floor(val * labelled.size + 0.5)
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
    for part, mask in masks.items():
        if len(mask) != len(labels):
            raise GraphError(
                f"{part}_mask has {len(mask):,} values but the graph has "
                f"{plural(len(labels), 'node')}; pass one value per node."
            )
    labelled = known_labels(labels)
    column = which or 0
    none = np.zeros(len(labels), bool)
    chosen = (masks.get(part, none) for part in PARTS)
    parts = (
        (mask if mask.ndim == 1 else mask[:, column]).astype(bool) & labelled for mask in chosen
    )
    return Split(*parts, note=f"{note}, split {column} of 0 to {count - 1}" if count > 1 else note)


def warn_of_unused_seed(data: Any, seed: int | None) -> None:
    """Warn that ``seed`` is given for ``data`` whose split is not drawn with it.

    >>> import hoplite
    >>> warn_of_unused_seed(hoplite.load("cora"), None)
    """
    if seed is None or (split := data.split).seed == seed:
        return
    if split.train.size:
        has = f"its own split ({split.description})" if split.description else "its own split"
    else:
        has = "no training nodes" if known_labels(data.labels).any() else "no labels"
    warn(f"{option_name('seed', seed)} has no effect, because {data.name} has {has}; leave it out.")


def refuse_split(source: Any, split: int | None) -> None:
    """ConfigError if ``split`` is given for a source that has at most one."""
    if split is not None:
        raise ConfigError(
            f"is {split}, but {short(source)} does not have several splits; leave it out.", "split"
        )
