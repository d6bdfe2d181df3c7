"""The work of a search: cells, each a batch of runs of one model shape that train together.

They train in this process, in several (:mod:`hoplite.selection.workers`) or on a Dask cluster:
there a cell is a task, and the graph goes to the workers by a file in the ledger's folder.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.cluster import check_wanted, connect
from hoplite.config import TrainingConfig
from hoplite.datasets.npz import read_npz, write_npz
from hoplite.errors import ConfigError, HopliteWarning, LedgerError
from hoplite.graph import Graph
from hoplite.machine import VERSION
from hoplite.models import ModelConfig, model_defaults, split_options
from hoplite.models.settings import without_idle
from hoplite.selection.ledger import FORMAT, Claim, Ledger, RecordedRun, Settings
from hoplite.selection.workers import LOOK_SECONDS
from hoplite.tasks import task_of
from hoplite.training.fit import fit
from hoplite.training.runs import Run
from hoplite.training.scoring import SCORED, check_after, number
from hoplite.training.sets import node_sets

CELL_RUNS = 45  # at most: a crash costs less
# settings in which runs that train together may differ
OWN = ("lr", "weight_decay", "filter_lr_factor", "filter_decay_factor", "dropout", "drop_nodes")
OWN += ("output_dropout", "consistency", "sharpen", "confidence")
GRAPH = "graph.npz"  # for the workers of a cluster


def search_settings(
    graph: Graph,
    model: str,
    configurations: Sequence[Mapping[str, Any]],
    seeds: list[int],
    screened: int = 0,
) -> Settings:
    """Everything that decides the results."""
    if not configurations:
        raise ConfigError("configurations is empty; give at least one.")
    full = [full_options(model, options) for options in configurations]
    # two spellings of one basis are one configuration
    full = list({tuple(options.items()): options for options in full}.values())
    named, usual = {name for options in full for name in options}, model_defaults(model)
    full = [o | {name: usual[name] for name in sorted(named - o.keys())} for o in full]
    if len({options.get("monitor") for options in full}) > 1:
        raise ConfigError("monitor has several values; a search compares by one, so give one.")
    if len({options.get("refit") for options in full}) > 1:
        raise ConfigError(
            "refit has several values, but validation nodes cannot compare them: a refit learns "
            "from these; give one, and the configuration that is chosen is trained so."
        )
    if any(options.get("correct_smooth") for options in full):
        check_after(TrainingConfig(correct_smooth=True), task_of(graph.labels))
    return Settings(
        format=FORMAT,
        hoplite=VERSION,
        dataset=graph.name,
        graph=graph_digest(graph),
        model=model,
        seeds=seeds,
        configurations=full,
        cells=cells_of(model, full, len(seeds)),
        screened=screened,
        loop_weight=graph.loop_weight,
    )


def full_options(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` of ``train`` with all that were left out, and that ``model`` has, at defaults.

    Only settings that came late are not there at their defaults: earlier ledgers lack them.
    """
    config, training = split_options(model, dict(options))
    return without_idle(model, dataclasses.asdict(config) | dataclasses.asdict(training))


def cells_of(model: str, configurations: list[dict[str, Any]], seeds: int) -> list[list[int]]:
    """Positions of the configurations that train together: of one shape, not too many."""
    groups: dict[Any, list[int]] = {}
    usual = dataclasses.asdict(TrainingConfig(dropout=0.0))  # which goes with batches, too
    for position, options in enumerate(configurations):
        config, training = split_options(model, options)
        together = dataclasses.replace(training, **{name: usual[name] for name in OWN})
        groups.setdefault((config, together), []).append(position)
    step = max(1, CELL_RUNS // seeds)
    return [
        positions[i : i + step]
        for positions in groups.values()
        for i in range(0, len(positions), step)
    ]


def graph_digest(graph: Graph) -> str:
    """A fingerprint of everything in the graph that training reads."""
    features: Any = graph.features
    digest = hashlib.sha256()
    parts = [graph.adjacency.indptr, graph.adjacency.indices, graph.adjacency.data]
    if sp.issparse(features):
        parts += [features.indptr, features.indices, features.data]
    else:
        parts.append(np.asarray(features))
    parts += [graph.labels, graph.split.train, graph.split.val, graph.split.test]
    for relation in graph.relations:
        own = relation.adjacency
        parts += [np.frombuffer(relation.name.encode(), np.uint8)]
        parts += [own.indptr, own.indices, own.data]
    for part in parts:
        array = np.ascontiguousarray(part)
        if array.dtype.kind in "iu":  # the width of an index is no difference
            array = array.astype(np.int64)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class CellWork:
    """What a worker needs to know; it travels to the worker's process."""

    graph: Graph
    ledger: Ledger
    test: bool
    model: str = ""  # where a worker finds a model that is not Hoplite's own

    @property
    def folder(self) -> Path:
        return self.ledger.folder

    def work(self, look: Callable[[], None] | None = None) -> None:
        """Train cells until none is left that nobody has."""
        for cell in self.waiting():
            self.work_on(cell, look)

    def waiting(self) -> list[int]:
        """The cells that are not finished, those that take longest first."""
        weights = self.cell_weights()
        return sorted(self.ledger.waiting(test=self.test), key=lambda cell: -weights[cell])

    def tidy(self) -> None:
        """Remove what killed processes left of unfinished cells."""
        self.ledger.tidy(test=self.test)

    def work_on(self, cell: int, look: Callable[[], None] | None = None) -> None:
        """Train one cell, unless another process has it, or has finished it."""
        with self.ledger.claim(cell) as claim:
            if claim is not None and not self.ledger.has(cell, test=self.test):
                self._train(cell, claim, look)

    def _train(self, cell: int, claim: Claim, look: Callable[[], None] | None) -> None:
        started = time.process_time()  # on a shared machine, waiting is not work
        positions, seeds = self.ledger.settings.cells[cell], self.ledger.settings.seeds
        both = [self._configs(position) for position in positions]
        runs = [Run(training, seed) for _, training in both for seed in seeds]
        graph, task = self.graph, task_of(self.graph.labels)
        outputs = task.outputs(graph.labels, graph.class_names)
        last_look = 0.0

        def note(state: Any) -> None:
            nonlocal last_look
            if time.perf_counter() - last_look > LOOK_SECONDS:
                last_look = time.perf_counter()
                claim.note(min(0.999, max(0.001, state.done / state.total)))
                if look is not None:
                    look()

        scored = fit(
            graph,
            both[0][0],
            [dataclasses.replace(run, config=_without_refit(run.config)) for run in runs],
            node_sets(graph),
            task,
            names=task.output_names(graph.class_names) or [str(c) for c in range(outputs)],
            class_texts=graph.class_names,
            split=graph.split,
            score=SCORED if self.test else ["val"] if runs[0].config.correct_smooth else [],
            progress=note,
            quiet=True,  # divergence is recorded instead
        )
        monitor = scored[0].task.monitor(runs[0].config.monitor)
        found = []
        for i, run in enumerate(scored):
            figure, loss = run.judged
            by_accuracy = monitor.name == "accuracy"
            found.append(
                RecordedRun(
                    configuration=positions[i // len(seeds)],
                    seed=run.seed,
                    val_accuracy=number(run.judged_accuracy),
                    val_score=None if by_accuracy else number(monitor.rank(figure)),
                    val_loss=number(loss),
                    best_epoch=run.best_epoch,
                    epochs=run.epochs,
                    diverged=run.diverged,
                    seconds=run.seconds,
                )
            )
        test = [number(run.test_accuracy) for run in scored] if self.test else None
        cpu_seconds = time.process_time() - started
        self.ledger.record(cell, found, cpu_seconds, test)

    def cell_weights(self) -> np.ndarray:
        """About how the cells' costs compare, for the order."""
        costs = []
        for cell in self.ledger.settings.cells:
            config, training = self._configs(cell[0])
            grown = getattr(config, config.kind.growth)
            per_run = (20 + grown) * (3 * training.draws if training.drops else 1)
            costs.append(len(cell) * per_run)
        return np.array(costs, dtype=np.float64)

    def _configs(self, position: int) -> tuple[ModelConfig, TrainingConfig]:
        settings = self.ledger.settings
        options = settings.configurations[position]
        config, training = split_options(self.model or settings.model, options)
        return config, training


def _without_refit(config: TrainingConfig) -> TrainingConfig:
    """A refit learns from the nodes that compare; the chosen configuration alone is trained so."""
    return dataclasses.replace(config, refit=False)


def train_on_cluster(where: str, work: CellWork, look: Callable[[], None]) -> None:
    """Train the cells that nobody has finished on the cluster ``where``."""
    folder = work.folder.absolute()
    if not (folder / GRAPH).exists():
        try:
            write_npz(folder / GRAPH, work.graph)
        except OSError as error:
            raise LedgerError(f"cannot write to {folder}: {error.strerror}.") from error
    arguments = [(str(folder), cell, work.test, work.model) for cell in work.waiting()]
    with connect(where, folder, memory=0) as cluster:
        for _ in cluster.map(train_cell, arguments, look):
            look()


def train_cell(folder: str, cell: int, test: bool, model: str) -> None:
    """Run on a worker: train one cell, unless another process has it, or has finished it."""
    ledger = Ledger.read(folder)
    graph = _graph(ledger.folder / GRAPH, ledger.settings.graph)
    graph = graph.with_loop_weight(ledger.settings.loop_weight)
    CellWork(graph, ledger, test, model).work_on(cell, check_wanted)


@functools.lru_cache(maxsize=1)
def _graph(path: Path, digest: str) -> Graph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)  # the process that leads has told
        graph = read_npz(path)
    if graph_digest(graph) != digest:
        raise LedgerError(f"{path} is not the search's graph; delete it.")
    return graph
