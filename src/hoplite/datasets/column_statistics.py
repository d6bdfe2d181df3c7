"""What scaling needs to know of a column: to the bit the same, however its rows are cut."""

from __future__ import annotations

from typing import Protocol

import numpy as np

FIRST = 64  # rows whose median is taken off, so that squares do not cancel


class Statistics(Protocol):
    """Of the numbers (rows, width) that are added, NaN where there is none."""

    def add(self, values: np.ndarray) -> None: ...

    def centre(self) -> np.ndarray:
        """(width,)"""
        ...

    def scale(self) -> np.ndarray:
        """(width,), 1 where all numbers are the same."""
        ...


class Moments:
    """Mean and standard deviation, as scikit-learn's StandardScaler.

    Rows are added one after the other, so the sums do not depend on the batches they come in.

    >>> found = Moments(1)
    >>> for value in (1.0, np.nan, 3.0):
    ...     found.add(np.array([[value]]))
    >>> found.centre().tolist(), found.scale().tolist()
    ([2.0], [1.0])
    """

    def __init__(self, width: int) -> None:
        self._first: list[np.ndarray] = []
        self._shift: np.ndarray | None = None
        self._sums = np.zeros((3, width))  # of how many, of x - shift, of its square

    def add(self, values: np.ndarray) -> None:
        if self._shift is None:
            known = _some(values, axis=1)
            held = sum(len(part) for part in self._first)
            last = int(np.searchsorted(np.cumsum(known), FIRST - held)) + 1
            self._first.append(values[:last][known[:last]])
            if held + len(self._first[-1]) < FIRST:
                return
            values = values[last:]
            self._begin()
        self._add(values)

    def _begin(self) -> None:
        first, self._first = np.concatenate(self._first), []
        self._shift = _middle(first)
        self._add(first)

    def _add(self, values: np.ndarray) -> None:
        away = values - self._shift
        known = ~np.isnan(away)
        away[~known] = 0
        for total, more in zip(self._sums, (known, away, away * away), strict=True):
            rows = np.concatenate([total[None], more])
            total[:] = np.cumsum(rows, axis=0)[-1]  # which adds row by row, unlike np.sum

    def _means(self) -> tuple[np.ndarray, np.ndarray]:
        if self._shift is None:
            self._first.append(np.empty((0, self._sums.shape[1])))
            self._begin()
        count, total, squares = self._sums
        count = np.maximum(count, 1)
        return total / count, squares / count

    def centre(self) -> np.ndarray:
        mean, _ = self._means()
        return self._shift + mean

    def scale(self) -> np.ndarray:
        mean, squares = self._means()
        variance = squares - mean * mean
        least = 1e-12 * squares + np.finfo(np.float64).tiny  # what rounding leaves of nothing
        return np.where(variance > least, np.sqrt(np.maximum(variance, least)), 1.0)


class Quantiles:
    """Median and the distance of the quartiles, as scikit-learn's RobustScaler.

    Of ``most`` rows, evenly spread over the table, if it has more. Where the quartiles are the same
    the distance is the standard deviation.

    >>> found = Quantiles(1, most=100)
    >>> found.add(np.arange(9.0)[:, None])
    >>> found.centre().tolist(), found.scale().tolist()
    ([4.0], [4.0])
    """

    def __init__(self, width: int, most: int) -> None:
        self._kept, self._most = np.empty((0, width)), most
        self._stride, self._seen = 1, 0

    def add(self, values: np.ndarray) -> None:
        values = values[_some(values, axis=1)]
        first = -self._seen % self._stride
        self._seen += len(values)
        self._kept = np.concatenate([self._kept, values[first :: self._stride]])
        while len(self._kept) > self._most:
            self._kept = self._kept[::2].copy()
            self._stride *= 2

    def centre(self) -> np.ndarray:
        return _middle(self._kept)

    def scale(self) -> np.ndarray:
        low, high = (_middle(self._kept, share) for share in (25, 75))
        moments = Moments(self._kept.shape[1])
        moments.add(self._kept)
        return np.where(high > low, high - low, moments.scale())


def _some(values: np.ndarray, axis: int) -> np.ndarray:
    """Whether there is a number."""
    return np.asarray(~np.isnan(values).all(axis=axis))


def _middle(values: np.ndarray, share: float = 50) -> np.ndarray:
    """The quantile of every column, 0 where it has no number."""
    empty = ~_some(values, axis=0)
    known = np.where(empty, 0.0, values) if len(values) else np.zeros((1, len(empty)))
    return np.nanpercentile(known, share, axis=0)
