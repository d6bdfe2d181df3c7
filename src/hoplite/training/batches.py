"""Mini-batches: rows in an order that is random, yet read from files in long pieces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

WINDOW = 8  # segments whose rows are shuffled among each other


def shuffled_batches(count: int, batch: int, seed: int, epoch: int) -> Iterator[np.ndarray | None]:
    """Positions 0 .. count - 1 in random order, ``batch`` at a time; None, for all, if it is 0.

    The positions are cut into segments of ``batch`` neighbours, the segments shuffled, and the
    rows of every 8 of them shuffled again. Every position is in one batch of the epoch, and only
    one batch has fewer than ``batch``.

    >>> [len(rows) for rows in shuffled_batches(5, 2, seed=0, epoch=0)]
    [2, 2, 1]
    """
    if not batch:
        yield None
        return
    batch = min(batch, count)
    rng = np.random.default_rng([seed, epoch])
    segments = rng.permutation(-(-count // batch))
    for first in range(0, len(segments), WINDOW):
        starts = np.sort(segments[first : first + WINDOW]) * batch
        window = (starts[:, None] + np.arange(batch)).ravel()
        window = window[window < count]
        order = window[rng.permutation(len(window))]
        for start in range(0, len(order), batch):
            yield order[start : start + batch]
