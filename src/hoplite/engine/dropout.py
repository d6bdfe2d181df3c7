"""Dropout without stored masks: a hash of an element's number decides whether it is kept.

Whether element e = row * d + column is kept at a step depends on (seed, step, e) and the rate
alone: not on threads, the backend, or whether X is stored sparse or dense.

Three things may be dropped, each kept one scaled by 1 / (1 - rate), so that expectations stay:

    entries of X   X[v, f]             n x d    the paper's dropout
    nodes          X[v, :]             n        whole rows of X (DropNode)
    outputs        (X Theta)[v, c]     n x m    before they are propagated
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from hoplite.errors import ConfigError

_WORD = (1 << 32) - 1
_LONG = (1 << 64) - 1
NODES, OUTPUTS = 64, 65  # layers of masks, beyond those of any network
DRAW_BIT = 48  # the bit of a seed from which on the number of a draw is counted


@dataclass(frozen=True)
class Mask:
    """Which elements are kept: those whose hash by ``seed`` and ``step`` is large enough.

    Parameters
    ----------
    rate : float
        Probability of dropping an element, 0 <= rate < 1.
    seed, step : int
        The same pair gives the same mask.

    >>> mask = Mask(0.5, seed=7, step=3)
    >>> mask.keeps(np.arange(8)).tolist() == Mask(0.5, 7, 3).keeps(np.arange(8)).tolist()
    True
    >>> Mask(0.0, 8, 3).keeps(np.arange(3)).tolist(), mask.scale
    ([True, True, True], 2.0)
    """

    rate: float
    seed: int
    step: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise ConfigError(f"dropout rate is {self.rate}; it must be at least 0 and below 1.")

    @property
    def threshold(self) -> int:
        """An element is kept if its hash, 0 to 2^32 - 1, is at least this."""
        return int(self.rate * 2**32)

    @property
    def scale(self) -> float:
        """1 / (1 - rate), of the rate as it is with 32 bits."""
        return 1 / (1 - self.threshold / 2**32)

    @cached_property
    def keys(self) -> tuple[int, int]:
        """The two words of 32 bits that the hash mixes in."""
        word = _splitmix(_splitmix(self.seed & _LONG) ^ (self.step & _LONG))
        return word & _WORD, word >> 32

    @cached_property
    def rule(self) -> tuple[int, int, int, float]:
        """key0, key1, threshold and scale, as the C++ core takes them."""
        return *self.keys, self.threshold, self.scale

    def keeps(self, elements: np.ndarray) -> np.ndarray:
        """Whether each element is kept: bool, of the shape of ``elements`` (int64 numbers).

        The hash of the C++ core: mix(mix(low ^ key0) ^ key1 ^ (high * 0x9E3779B9 mod 2^32)).
        """
        if self.threshold == 0:
            return np.ones(elements.shape, bool)
        key0, key1 = (np.uint32(key) for key in self.keys)
        numbers = elements.astype(np.uint64)
        low = numbers.astype(np.uint32)
        high = (numbers >> np.uint64(32)).astype(np.uint32) * np.uint32(0x9E3779B9)
        return _mix(_mix(low ^ key0) ^ key1 ^ high) >= np.uint32(self.threshold)


@dataclass(frozen=True)
class Dropout:
    """What a step of a training drops: entries of X, whole nodes, entries of X Theta."""

    rate: float
    seed: int
    step: int = 0
    nodes: float = 0.0
    outputs: float = 0.0

    def of_entries(self, layer: int = 0) -> Mask | None:
        """The mask of entries, another one for each layer of a network; None if all are kept."""
        return self._mask(self.rate, layer)

    @property
    def of_nodes(self) -> Mask | None:
        """The mask of nodes, with a node's number for its element; None if all are kept."""
        return self._mask(self.nodes, NODES)

    @property
    def of_outputs(self) -> Mask | None:
        """The mask of outputs, row * m + column for each; None if all are kept."""
        return self._mask(self.outputs, OUTPUTS)

    def _mask(self, rate: float, layer: int) -> Mask | None:
        return _mask(rate, self.seed, self.step + (layer << 32)) if rate else None


@lru_cache(maxsize=64)
def _mask(rate: float, seed: int, step: int) -> Mask:
    """A mask with its keys, which a step forward and back both need."""
    return Mask(rate, seed, step)


def _mix(x: np.ndarray) -> np.ndarray:
    """lowbias32 on uint32 words (products wrap)."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def _splitmix(state: int) -> int:
    """One step of splitmix64 on a 64-bit word."""
    z = (state + 0x9E3779B97F4A7C15) & _LONG
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _LONG
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _LONG
    return z ^ (z >> 31)
