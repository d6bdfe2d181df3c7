"""How strange the labels of validation nodes were, for prediction sets with a stated coverage.

Split conformal prediction: with s_(1) <= .. <= s_(n) the strangeness of n nodes that were not
trained on, the set of all labels no stranger than

    q = s_(r),    r = ceil((n + 1) coverage),    q = infinity where r > n

holds the label of a further node with a probability of at least ``coverage``, and at most
coverage + 1 / (n + 1) without ties, whatever the model, if that node and the n are exchangeable.

That is an average over all nodes, and may leave a rare class out. Class by class (Mondrian), q_c is
that of the n_c nodes of class c, and so is the coverage.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Self

import msgspec
import numpy as np
from msgspec import Meta

from hoplite.config import check_number
from hoplite.errors import ModelFileError
from hoplite.labels import JOINT

NEAR = 1e-6  # probabilities so near are equal: float32, evaluated in any order
MAX_KEPT = 1000  # scores: beyond, a set may cover 1/1000 more than asked


@dataclass(frozen=True)
class Conformal:
    """The sorted scores of n = ``nodes`` validation nodes, thinned where they are many.

    Of K ``scores`` the j-th, from 1, is s_(ceil(j n / K)); a rank between two of them takes the
    larger one, so that coverage is never lost.

    >>> found = Conformal.of(np.array([0.4, 0.1, 0.3, 0.2]))
    >>> found.quantile(0.5), found.quantile(0.8), found.quantile(0.9)
    (0.3, 0.4, inf)

    ``classes`` are those of the nodes of each class, None of one that no node has; none where nodes
    have no classes.
    """

    nodes: Annotated[int, Meta(ge=1)]
    scores: Annotated[tuple[float, ...], Meta(min_length=1)]
    classes: tuple[Conformal | None, ...] = ()

    @classmethod
    def of(cls, scores: np.ndarray) -> Self:
        """Of the strangeness (n,) of the nodes, in any order."""
        n = len(scores)
        kept = min(n, MAX_KEPT)
        ranks = -(-np.arange(1, kept + 1) * n // kept)
        return cls(n, tuple(np.sort(scores)[ranks - 1].tolist()))

    @classmethod
    def of_classes(cls, scores: np.ndarray, labels: np.ndarray, count: int) -> Self:
        """As :meth:`of`, with those of each of ``count`` classes, which the nodes have."""
        parts = (scores[labels == c] for c in range(count))
        kept = tuple(cls.of(part) if len(part) else None for part in parts)
        return dataclasses.replace(cls.of(scores), classes=kept)

    @classmethod
    def restored(cls, state: Any) -> Self:
        """From plain values; ModelFileError if they are damaged."""
        try:
            return msgspec.convert(state, cls)
        except msgspec.ValidationError as error:
            raise ModelFileError(
                f"the model's scores are damaged ({error}); train again."
            ) from None

    def quantile(self, coverage: float) -> float:
        """q, by the exact rule: ``coverage`` is the decimal number that it is written as.

        >>> Conformal.of(np.arange(1, 10)).quantile(0.7)  # rank 7, though 10 * 0.7 > 7 in floats
        7
        """
        check_number("coverage", coverage, 0, 1, open_ends="lm")
        rank = math.ceil(Fraction(repr(float(coverage))) * (self.nodes + 1))
        if rank > self.nodes:
            return math.inf
        return self.scores[-(-rank * len(self.scores) // self.nodes) - 1]

    def quantiles(self, coverage: float) -> np.ndarray:
        """q_c of every class, infinite where its nodes are too few: (m,).

        >>> found = Conformal.of_classes(np.array([0.1, 0.2, 0.9]), np.array([0, 0, 1]), 3)
        >>> found.quantiles(0.5).tolist()
        [0.2, 0.9, inf]
        """
        parts = self.classes
        return np.array([math.inf if part is None else part.quantile(coverage) for part in parts])


def nodes_needed(coverage: float) -> int:
    """The fewest nodes of which q is finite.

    >>> nodes_needed(0.9), nodes_needed(0.95), nodes_needed(0.5)
    (9, 19, 1)
    """
    share = Fraction(repr(float(coverage)))
    return math.ceil(share / (1 - share))


def set_names(names: Sequence[str]) -> list[str]:
    """Names in which ``|`` is escaped, so that it can separate them."""
    return [name.replace("\\", "\\\\").replace(JOINT, f"\\{JOINT}") for name in names]
