"""The order of rows in an epoch of mini-batches: random, yet read from the disk in long pieces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

WINDOW = 8  # segments whose rows are shuffled among each other


def shuffled_windows(
    count: int, batch: int, seed: int, epoch: int
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Positions 0 .. count - 1 in random order: windows, each with its batches.

    The positions are cut into segments of ``batch`` neighbours, the segments shuffled, and the
    rows of every 8 of them shuffled again. A window holds its positions in rising order; every
    position is in one batch of the epoch, and only one batch has fewer than ``batch``.

    >>> for window, batches in shuffled_windows(5, 2, seed=0, epoch=0):
    ...     print(window, [len(batch) for batch in batches])
    [0 1 2 3 4] [2, 2, 1]
    """
    batch = min(batch, count)
    generator = np.random.default_rng([seed, epoch])
    segments = generator.permutation(-(-count // batch))
    for first in range(0, len(segments), WINDOW):
        starts = np.sort(segments[first : first + WINDOW]) * batch
        window = (starts[:, None] + np.arange(batch)).ravel()
        window = window[window < count]
        order = window[generator.permutation(len(window))]
        yield window, [order[i : i + batch] for i in range(0, len(order), batch)]
