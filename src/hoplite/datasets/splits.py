"""Splits that are made, for graphs that come without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hoplite.config import check_number
from hoplite.errors import ConfigError
from hoplite.graph import Split


def stratified_split(
    labels: Any, seed: int = 0, fractions: Sequence[float] = (0.6, 0.2, 0.2)
) -> Split:
    """Deal the labelled nodes of each class out to training, validation and test.

    Of a class with ``c`` nodes, shuffled with ``seed``, the first ``round(f_1 c)`` (one at least)
    train, those up to ``round((f_1 + f_2) c)`` validate, those up to ``round((f_1 + f_2 + f_3) c)``
    test. Nodes with label -1 are left out. The same labels and seed give the same split.

    >>> stratified_split([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, -1]).sizes()
    {'train': 6, 'val': 2, 'test': 2}
    """
    shares = np.asarray(fractions, np.float64)
    if shares.shape != (3,) or not (shares >= 0).all() or not 0 < shares.sum() <= 1 + 1e-9:
        raise ConfigError(
            f"fractions is {tuple(fractions)}; give three shares for training, validation and "
            "test, none negative, that add up to at most 1."
        )
    check_number("seed", seed, 0, whole=True)
    labels = np.asarray(labels)
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
    train, val, test = (np.concatenate([np.empty(0, np.int64), *part]) for part in parts)
    percent = "/".join(f"{100 * share:g}" for share in shares)
    return Split(train, val, test, note=f"stratified {percent}, seed {seed}")
