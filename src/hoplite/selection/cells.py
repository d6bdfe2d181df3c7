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

from hoplite.cluster import connect
from hoplite.config import TrainingConfig
from hoplite.datasets.npz import read_npz, write_npz
from hoplite.errors import ConfigError, HopliteWarning, LedgerError
from hoplite.graph import Graph
from hoplite.models import ModelConfig, all_settings, build_model, split_options, usual_options
from hoplite.models.settings import without_idle
from hoplite.propagation.relations import propagation_for
from hoplite.selection.ledger import FORMAT, Claim, Ledger, RecordedRun, Settings
from hoplite.selection.workers import LOOK_SECONDS
from hoplite.tasks import task_of
from hoplite.training.loop import fit_runs
from hoplite.training.runs import Run, batch_kind, node_sets, run_bytes, weighted_sets
from hoplite.training.scoring import check_after, number, scored_run
from hoplite.version import VERSION

CELL_RUNS = 45  # at most: more hardly train faster, and a crash costs less
CELL_BYTES = 2**30
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
    named, usual = {name for options in full for name in options}, usual_options(model)
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
        cells=cells_of(graph, model, full, len(seeds)),
        screened=screened,
        loop_weight=graph.loop_weight,
    )


def full_options(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` of ``train`` with all that were left out, and that ``model`` has, at defaults.

    Only settings that came late are not there at their defaults: earlier ledgers lack them.
    """
    config, training = split_options(model, dict(options))
    full = without_idle(model, dataclasses.asdict(config) | dataclasses.asdict(training))
    late = {name: field for name, field in all_settings().items() if field.metadata.get("late")}
    return {k: v for k, v in full.items() if k not in late or v != late[k].default}


def cells_of(
    graph: Graph, model: str, configurations: list[dict[str, Any]], seeds: int
) -> list[list[int]]:
    """Positions of the configurations that train together: of one shape, not too many."""
    groups: dict[Any, list[int]] = {}
    usual = dataclasses.asdict(TrainingConfig(dropout=0.0))  # which goes with batches, too
    for position, options in enumerate(configurations):
        config, training = split_options(model, options)
        together = dataclasses.replace(training, **{name: usual[name] for name in OWN})
        groups.setdefault((config, together, batch_kind(training)), []).append(position)
    cells = []
    for (config, training, _), positions in groups.items():
        outputs = task_of(graph.labels).outputs(graph.labels, graph.class_names)
        shape = build_model(config, graph.num_features, outputs, graph.relation_weights)
        propagation = propagation_for(graph, config)
        most = min(CELL_RUNS, CELL_BYTES // run_bytes(shape, propagation, training.draws))
        if training.optimizer == "lbfgs" or not shape.many_at_once:
            most = 1
        step = max(1, most // seeds)
        cells += [positions[i : i + step] for i in range(0, len(positions), step)]
    return cells


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
        config = both[0][0].fitted(self.graph)
        runs = [Run(training, seed) for _, training in both for seed in seeds]
        graph, task = self.graph, task_of(self.graph.labels).with_loss(both[0][1].loss)
        outputs = task.outputs(graph.labels, graph.class_names)
        model = build_model(config, graph.num_features, outputs, graph.relation_weights)
        propagation = propagation_for(graph, config)
        parts = node_sets(graph)
        task = task.fitted(parts["train"].labels, outputs)
        parts = weighted_sets(parts, task, both[0][1], self.graph.class_names)
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
                model, propagation, runs, parts["train"], parts["val"], progress=note, task=task
            )
        monitor = task.monitor(runs[0].config.monitor)
        curve = f"val_{monitor.name}"
        found, test = [], []
        unseen = {name: part for name, part in parts.items() if name != "test"}
        for i, result in enumerate(results):
            accuracy = result.best("val_accuracy")
            figure, loss = result.best(curve), result.best("val_loss")
            if result.run.config.correct_smooth:  # it is part of what is compared
                after = scored_run(graph, config, result, propagation, unseen, task)
                accuracy, (figure, loss) = after.judged_accuracy, after.judged
            found.append(
                RecordedRun(
                    configuration=positions[i // len(seeds)],
                    seed=result.run.seed,
                    val_accuracy=number(accuracy),
                    val_score=None if curve == "val_accuracy" else number(monitor.rank(figure)),
                    val_loss=number(loss),
                    best_epoch=result.best_epoch,
                    epochs=result.epochs,
                    diverged=result.diverged,
                    seconds=result.seconds,
                )
            )
            if self.test:
                scored = scored_run(self.graph, config, result, propagation, parts, task)
                test.append(number(scored.test_accuracy))
        cpu_seconds = time.process_time() - started
        self.ledger.record(cell, found, cpu_seconds, test if self.test else None)

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
        return config, training.on(self.graph.name)


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
        cluster.run(
            f"{__name__}:train_cell", arguments, lambda number, _: look(), lambda number: look()
        )


def train_cell(folder: str, cell: int, test: bool, model: str, tell: Callable[[Any], None]) -> None:
    """Run on a worker: train one cell, unless another process has it, or has finished it."""
    ledger = Ledger.read(folder)
    graph = _graph(ledger.folder / GRAPH, ledger.settings.graph)
    graph = graph.with_loop_weight(ledger.settings.loop_weight)
    CellWork(graph, ledger, test, model).work_on(cell, lambda: tell(cell))


@functools.lru_cache(maxsize=1)
def _graph(path: Path, digest: str) -> Graph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)  # the process that leads has told
        graph = read_npz(path)
    if graph_digest(graph) != digest:
        raise LedgerError(f"{path} is not the search's graph; delete it.")
    return graph
