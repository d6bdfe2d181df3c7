"""Input dropout without stored masks: a hash of the element's number decides what is kept.

Whether run r keeps element e = row * d + column at an epoch depends on (seed_r, epoch, e) and the
rate alone: not on the other runs, the threads, the backend, or whether X is stored sparse or dense.

Three things may be dropped, each kept one scaled by 1 / (1 - rate), so that expectations stay:

    entries of X   X[v, f]             n x d    the paper's dropout
    nodes          X[v, :]             n        whole rows of X (DropNode)
    outputs        (X Theta)[v, c]     n x m    before they are propagated
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from hoplite.errors import ConfigError

_WORD = (1 << 32) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
NODES, OUTPUTS = 64, 65  # layers of masks, beyond those of any model


@dataclass(frozen=True)
class Dropout:
    """Which inputs are dropped, for several runs side by side.

    Parameters
    ----------
    rates : per run the probability of dropping an element, 0 <= rate < 1
    seeds : per run the seed, any integer
    epoch : a number that changes with every step; the same (seed, epoch) gives the same mask
    nodes, outputs : per run the probability of dropping a node, an output; nothing if empty

    >>> dropout = Dropout(rates=(0.5, 0.0), seeds=(7, 8), epoch=3)
    >>> dropout.mask(torch.arange(8), run=0).tolist() == Dropout((0.5,), (7,), 3).mask(
    ...     torch.arange(8), run=0).tolist()
    True
    >>> dropout.mask(torch.arange(3), run=1).tolist(), dropout.scale(0)
    ([True, True, True], 2.0)
    """

    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    epoch: int = 0
    nodes: tuple[float, ...] = ()
    outputs: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _constants(tuple(self.rates), tuple(self.seeds))  # checks them

    def layer(self, index: int) -> Dropout:
        """Independent masks of entries for another layer of the same step; 0 has this one's."""
        return Dropout(self.rates, self.seeds, self.epoch + (index << 32))

    def of_run(self, run: int) -> Dropout:
        """One run's alone."""
        own = slice(run, run + 1)
        return Dropout(
            self.rates[own], self.seeds[own], self.epoch, self.nodes[own], self.outputs[own]
        )

    @cached_property
    def of_nodes(self) -> Dropout | None:
        """The masks of nodes, with a node's number for its element; None if all are kept."""
        if not any(self.nodes):
            return None
        return Dropout(self.nodes, self.seeds, self.epoch + (NODES << 32))

    @cached_property
    def of_outputs(self) -> Dropout | None:
        """The masks of outputs, row * m + column for each; None if all are kept."""
        if not any(self.outputs):
            return None
        return Dropout(self.outputs, self.seeds, self.epoch + (OUTPUTS << 32))

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len(self.rates)

    @property
    def active(self) -> bool:
        """Whether any run drops entries."""
        return bool(self._constants[0].any())

    @property
    def _constants(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _constants(tuple(self.rates), tuple(self.seeds))

    @cached_property
    def rules(self) -> np.ndarray:
        """Per run (key0, key1, threshold) as uint32; kept iff hash(e; key0, key1) >= threshold."""
        thresholds, _, states = self._constants
        keys = _splitmix(states ^ np.uint64(self.epoch & (2**64 - 1)))
        rules = np.empty((len(thresholds), 3), np.uint32)
        rules[:, 0] = keys & np.uint64(_WORD)
        rules[:, 1] = keys >> np.uint64(32)
        rules[:, 2] = thresholds
        return rules

    @property
    def scales(self) -> np.ndarray:
        """Per run the factor 1 / (1 - rate) of the kept elements, float64."""
        return self._constants[1]

    def scale(self, run: int) -> float:
        """The factor 1 / (1 - rate) that keeps the expectation, for one run."""
        return float(self.scales[run])

    def mask(self, elements: Tensor, run: int) -> Tensor:
        """Whether each element is kept: a boolean tensor of the shape of ``elements``.

        ``elements`` holds int64 numbers ``row * d + column``. The same hash as the C++ core's, in
        torch operations: x = mix(mix(low ^ key0) ^ key1 ^ (high * 0x9E3779B9 mod 2^32)).
        """
        key0, key1, threshold = (int(word) for word in self.rules[run])
        if threshold == 0:
            return torch.ones_like(elements, dtype=torch.bool)
        high = ((elements >> 32) * 0x9E3779B9) & _WORD
        word = _mix((elements & _WORD) ^ key0)
        return _mix(word ^ key1 ^ high) >= threshold


def _mix(x: Tensor) -> Tensor:
    """lowbias32 on 32-bit words held in int64 (products wrap; their low words are right)."""
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & _WORD
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & _WORD
    return x ^ (x >> 16)


def _splitmix(state: np.ndarray) -> np.ndarray:
    """One step of splitmix64 on uint64 words (arithmetic mod 2^64)."""
    z = state + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@lru_cache(maxsize=256)
def _constants(
    rates: tuple[float, ...], seeds: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check the arguments; thresholds (uint32), scales and seed states (uint64), all per run.

    Cached, since they stay the same from epoch to epoch.
    """
    if len(rates) != len(seeds):
        raise ConfigError(
            f"dropout has {len(rates)} rates but {len(seeds)} seeds; pass one of each per run."
        )
    for rate in rates:
        if not 0 <= rate < 1:
            raise ConfigError(f"a dropout rate is {rate}; it must be at least 0 and below 1.")
    thresholds = np.array([int(rate * 2**32) for rate in rates], np.uint32)
    scales = 1 / (1 - thresholds / 2**32)
    states = _splitmix(np.array([seed & (2**64 - 1) for seed in seeds], np.uint64))
    for array in (thresholds, scales, states):
        array.setflags(write=False)
    return thresholds, scales, states
