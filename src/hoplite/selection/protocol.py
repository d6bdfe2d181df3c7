"""The two protocols of model selection. They share nothing but the trained runs.

validation  the configuration with the best mean validation accuracy; then, and only then, that
            one is trained again and scored on the test set, once
test        the configuration with the best mean test accuracy: an upper bound that is biased by
            the choice itself, as in the paper's appendix
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.errors import HopliteError, LedgerError, check_choice
from hoplite.selection.ledger import Ledger
from hoplite.selection.records import RecordedRun

PROTOCOLS = ("validation", "test")
BIASED = "biased: chosen on the test set, so an upper bound and no estimate"


def check_protocol(protocol: str) -> str:
    """Return ``protocol`` if it is one of the two."""
    return check_choice("protocol", protocol, PROTOCOLS)


@dataclass(frozen=True)
class Candidate:
    """A configuration's figures over its seeds; ``test`` is empty outside of the test protocol.

    An accuracy is NaN where the run diverged before it had a finite result.
    """

    position: int  # in the ledger's configurations
    options: dict[str, Any]
    val: tuple[float, ...]
    val_loss: float  # mean at the best epochs; infinite if a run has none
    test: tuple[float, ...] = ()

    @property
    def lost(self) -> int:
        """Runs without a finite result."""
        return sum(math.isnan(value) for value in self.val)

    @property
    def val_mean(self) -> float:
        return float(np.mean(self.val))

    @property
    def test_mean(self) -> float:
        return float(np.mean(self.test))


def rank(ledger: Ledger, protocol: str) -> list[Candidate]:
    """The configurations of a finished search, best first.

    Equal means are common, as the sets are small. Then the lower mean validation loss goes first,
    then the earlier in the grid; under the test protocol the higher validation accuracy before.
    Configurations of which runs have no finite result come last, those with more such runs later.
    """
    test = check_protocol(protocol) == "test"
    if ledger.waiting(test=test):
        raise LedgerError(f"the search in {ledger.folder} is not finished; run it again first.")
    found = _candidates(ledger, ledger.runs(test=test))
    if all(candidate.lost == len(candidate.val) for candidate in found):
        raise HopliteError(
            f"every run of the search in {ledger.folder} diverged, so there is nothing to choose; "
            "search lower learning rates, fewer hops or another operator, in another folder."
        )
    if test:
        return sorted(found, key=lambda c: (c.lost, -_exact(c.test), -_exact(c.val), c.val_loss))
    return sorted(found, key=lambda c: (c.lost, -_exact(c.val), c.val_loss))


def _candidates(ledger: Ledger, runs: Sequence[RecordedRun]) -> list[Candidate]:
    by_position: dict[int, list[RecordedRun]] = {}
    for run in runs:
        by_position.setdefault(run["configuration"], []).append(run)
    return [
        Candidate(
            position=position,
            options=ledger.settings["configurations"][position],
            val=tuple(_known(run["val_accuracy"]) for run in of_one),
            val_loss=float(np.mean([_known(run.get("val_loss"), math.inf) for run in of_one])),
            test=tuple(_known(run["test_accuracy"]) for run in of_one if "test_accuracy" in run),
        )
        for position, of_one in sorted(by_position.items())
    ]


def _exact(values: tuple[float, ...]) -> float:
    """Their sum, the same whatever the order: means that are equal must compare as equal."""
    return round(math.fsum(value for value in values if not math.isnan(value)), 9)


def _known(value: float | None, otherwise: float = math.nan) -> float:
    return otherwise if value is None else value
