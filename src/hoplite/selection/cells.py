"""The work of a search: cells, each a batch of runs of one model shape that train together."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.config import split_options
from hoplite.errors import HopliteWarning
from hoplite.graph import Graph
from hoplite.models import build_model
from hoplite.propagation.engine import Propagation
from hoplite.selection.ledger import Claim, Ledger
from hoplite.training.loop import fit_runs
from hoplite.training.results import number
from hoplite.training.runs import Run, node_sets
from hoplite.training.train import scored_run

LOOK_SECONDS = 0.25  # between two looks at the workers


@dataclass(frozen=True)
class Task:
    """What a worker needs to know; it travels to the worker's process."""

    graph: Graph
    model: str
    folder: Path
    settings: dict[str, Any]
    test: bool

    def work(self, look: Callable[[], None] | None = None) -> None:
        """Train cells until none is left that nobody has."""
        for cell in self.waiting():
            self.work_on(cell, look)

    def waiting(self) -> list[int]:
        """The cells that are not finished, those that take longest first."""
        weights, ledger = self.cell_weights(), Ledger(self.folder, self.settings)
        return sorted(ledger.waiting(test=self.test), key=lambda cell: -weights[cell])

    def tidy(self) -> None:
        """Remove what killed processes left of unfinished cells."""
        Ledger(self.folder, self.settings).tidy(test=self.test)

    def work_on(self, cell: int, look: Callable[[], None] | None = None) -> None:
        """Train one cell, unless another process has it, or has finished it."""
        ledger = Ledger(self.folder, self.settings)
        with ledger.claim(cell) as claim:
            if claim is not None and not ledger.has(cell, test=self.test):
                self._train(ledger, cell, claim, look)

    def _train(
        self, ledger: Ledger, cell: int, claim: Claim, look: Callable[[], None] | None
    ) -> None:
        started = time.process_time()  # on a shared machine, waiting is not work
        positions = self.settings["cells"][cell]
        seeds = self.settings["seeds"]
        both = [self._configs(position) for position in positions]
        config = both[0][0]
        runs = [Run(training, seed) for _, training in both for seed in seeds]
        model = build_model(config, self.graph.num_features, self.graph.num_classes)
        propagation = Propagation(self.graph, config.operator, config.basis, config.hops)
        parts = node_sets(self.graph)
        last_look = 0.0

        def note(state: Any) -> None:
            nonlocal last_look
            if time.perf_counter() - last_look > LOOK_SECONDS:
                last_look = time.perf_counter()
                claim.note(min(0.999, max(0.001, state.done / state.total)))
                if look is not None:
                    look()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HopliteWarning)  # divergence is recorded instead
            results = fit_runs(
                model, propagation, runs, parts["train"], parts["val"], progress=note
            )
        found = []
        for i, result in enumerate(results):
            record = {
                "configuration": positions[i // len(seeds)],
                "seed": result.run.seed,
                "val_accuracy": number(result.best("val_accuracy")),
                "val_loss": number(result.best("val_loss")),
                "best_epoch": result.best_epoch,
                "epochs": result.epochs,
                "diverged": result.diverged,
                "seconds": result.seconds,
            }
            if self.test:
                scored = scored_run(self.graph, config, result, propagation, parts["test"])
                record["test_accuracy"] = number(scored.test_accuracy)
            found.append(record)
        ledger.record(cell, found, time.process_time() - started)

    def cell_weights(self) -> np.ndarray:
        """About how the cells' costs compare, for the order and the time left."""
        costs = []
        for cell in self.settings["cells"]:
            config, training = self._configs(cell[0])
            grown = getattr(config, config.kind.growth)
            per_run = (20 + grown) * (3 if training.dropout else 1)
            costs.append(len(cell) * per_run)
        return np.array(costs, dtype=np.float64)

    def _configs(self, position: int) -> Any:
        return split_options(self.model, self.settings["configurations"][position])
