"""The one training loop: R runs of one model on one graph, as one wide problem.

The runs differ in seed, learning rate, weight decay and dropout. No run's arithmetic sees another
run, masks depend on (seed, epoch) alone, and finished runs leave the batch. So a run's result does
not depend on who shares its batch, but for rounding (the order of some sums).
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoplite.config import MOST_SEED, check_number
from hoplite.errors import ConfigError, GraphError, HopliteWarning
from hoplite.models import Model, Weights, check_batch
from hoplite.propagation.backend import threads_for
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import View
from hoplite.tasks import USUAL, Task, find_task
from hoplite.training.consistency import disagreement, drawn, dropped, mean_of_draws
from hoplite.training.optimizers import LBFGS, Adam, Optimizer, learned
from hoplite.training.runs import (
    AnyPropagation,
    NodeSet,
    Run,
    RunResult,
    TrainingProgress,
    batches_of,
    check_stored,
    order_of,
    signal_size,
    team_of,
    warn_of_overflow,
)
from hoplite.training.stored_rows import shuffled_windows

log = logging.getLogger("hoplite.training")

TOLD_EPOCHS = 10  # of a training, in the log
LOWEST = -np.finfo(np.float64).max
SHARED = (
    "optimizer",
    "epochs",
    "patience",
    "order",
    "batch",
    "monitor",
    "tie",
    "loss",
    "class_weight",
    "draws",
)


def fit_runs(
    model: Model,
    source: AnyPropagation,
    runs: Sequence[Run],
    train: NodeSet,
    val: NodeSet | None = None,
    *,
    watch: NodeSet | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
    task: str | Task = USUAL,
) -> list[RunResult]:
    """Train ``runs`` of ``task`` together and return their results in the same order.

    ``source`` is a graph's Propagation or, for hop features in a store, a StoredPropagation.
    Early stopping and the choice of the best epoch read ``val`` alone; without it the last epoch
    counts. ``watch`` adds the test curves to the history and influences nothing.
    """
    if not runs:
        raise ConfigError("runs is empty; give at least one run.")
    if not len(train):
        raise GraphError("the training set is empty; give at least one labelled training node.")
    if model.config.hops != source.hops or model.config.basis != str(source.basis):
        raise ConfigError(
            f"the propagation is for {source.hops} hops ({source.basis}) but the model "
            f"has {model.config.hops} ({model.config.basis}); make both from one configuration."
        )
    for run in runs:
        check_number("seed", run.seed, 0, MOST_SEED, whole=True)
    val = val if val is not None and len(val) else None
    for part in (train, val, watch):
        if part is not None:
            part.check(source.num_nodes)
    configs = [run.config for run in runs]
    if len({tuple(getattr(config, name) for name in SHARED) for config in configs}) > 1:
        raise ConfigError(f"runs trained together must share {', '.join(SHARED)}.")
    check_batch(model.config, configs[0])
    if source.stored is True:
        for config in configs:
            check_stored(config)
    else:
        warn_of_overflow(model.config, source)
    task = find_task(task)
    task.check_consistency(max(config.consistency for config in configs))
    targets = task.targets(np.asarray(train.labels), model.num_classes)
    each = None if train.weights is None else torch.from_numpy(train.weights)
    model = model.shown(source.num_nodes, train.nodes, targets, each)
    monitor = task.monitor(configs[0].monitor)
    whole = not task.adds_up or monitor.name not in task.curves
    if whole and team_of(source).size > 1:
        raise ConfigError(
            f"the metrics of {task.name}, monitored by {monitor.name}, need all rows; train in "
            "one process."
        )
    results: dict[int, RunResult] = {}
    for batch in batches_of(model, source, runs):
        done, waiting = len(results), len(runs) - len(results) - len(batch)
        with threads_for(len(batch) * configs[0].draws * signal_size(model, source)):
            trained = _Batch(model, source, task, [runs[r] for r in batch], train, val, watch)
            for state in trained.fit():
                if progress is not None:
                    progress(state().among(done, waiting))
                if log.isEnabledFor(logging.DEBUG):
                    _tell(state())
            found = trained.results()
        results |= zip(batch, found, strict=True)
    return [results[r] for r in range(len(runs))]


def _tell(state: TrainingProgress) -> None:
    """Every tenth of the epochs, and the last one, in the log."""
    step = max(1, state.epochs // TOLD_EPOCHS)
    if state.epoch == 1 or state.epoch % step == 0 or not state.running:
        log.debug(
            "epoch %d of at most %d: %d running, best validation so far %.4f",
            state.epoch, state.epochs, state.running, state.val_score,
        )  # fmt: skip


def outputs_of(
    model: Model, source: AnyPropagation, task: Task, weights: Weights, part: NodeSet
) -> np.ndarray:
    """The outputs (nodes, m) of one run's weights (without run axis) at ``part``, from its hops."""
    stacked = {name: value.unsqueeze(0) for name, value in weights.items()}
    rows = ScoredRows.of(model, source, task, part, "hops-first")
    with torch.no_grad():
        mine = rows.logits(stacked, None)[:, 0]
        if rows.processes == 1:
            return mine.numpy()
        found = mine.new_zeros(len(part), model.num_classes)
        found[torch.from_numpy(rows.mine)] = mine
        return team_of(source).total(found).numpy()


@dataclass(frozen=True)
class ScoredRows:
    """Rows with the targets that they should meet: a node set as the loop sees it.

    It is this process's part of a set of ``total`` nodes, in one evaluation order.

    ``mine`` tells which positions of the node set are this process's, and ``rows`` picks theirs
    where ``view`` holds all nodes, as standardisation needs it.
    """

    model: Model
    view: View
    rows: Tensor | None
    task: Task
    targets: Tensor
    mine: np.ndarray
    processes: int
    weights: Tensor | None = None

    @classmethod
    def of(
        cls,
        model: Model,
        source: AnyPropagation,
        task: Task,
        part: NodeSet,
        order: str,
        *,
        all_nodes: bool = False,
    ) -> ScoredRows:
        """``all_nodes``: whether the view holds the others, too, as standardisation needs it."""
        team = team_of(source)
        first, stop = team.shard(source.num_nodes)
        nodes = np.array(part.nodes, np.int64)
        mine = (nodes >= first) & (nodes < stop)
        nodes, hops_first = nodes[mine], order == "hops-first"
        targets = task.targets(np.asarray(part.labels), model.num_classes)
        targets = targets[torch.from_numpy(mine)]
        weights = None
        if part.weights is not None:
            weights = torch.from_numpy(part.weights[mine]).to(source.dtype)
        rows: Tensor | None = None
        if model.config.standardize or all_nodes:  # mean and deviation are over all nodes
            rows = torch.from_numpy(nodes - first)
            view: View = source.view(hops_first=hops_first)
        else:
            view = source.view(nodes, hops_first=hops_first)
        return cls(model, view, rows, task, targets, mine, team.size, weights)

    @property
    def total(self) -> int:
        """Nodes of the set, over all processes."""
        return len(self.mine)

    def logits(self, weights: Weights, dropout: Dropout | None) -> Tensor:
        """(rows, R, m)."""
        return self.model.logits(weights, self.view, dropout, self.rows)

    def measure(self, weights: Weights, dropout: Dropout | None = None) -> tuple[Tensor, ...]:
        """The loss and the task's metrics per run, (R,) each.

        Their average over the processes is over all rows; see
        :mod:`hoplite.training.distributed`.
        """
        return self.measured(self.logits(weights, dropout))

    def measured(self, logits: Tensor) -> tuple[Tensor, ...]:
        """As :meth:`measure`, of outputs (rows, R, m) that are known."""
        count = self.total / self.processes
        loss = self.task.loss(logits, self.targets, count, self.weights)
        return loss, *self.task.measure(logits.detach(), self.targets, count)

    def batches(self, batch: int, seed: int, epoch: int) -> Iterator[ScoredRows]:
        """All rows in one (``batch`` 0), or in batches, of which every process has its rows."""
        if not batch:
            yield self
            return
        place = np.cumsum(self.mine) - 1  # of a position of the set among this process's rows
        kept = self.model.kept_hops
        for window, parts in shuffled_windows(self.total, batch, seed, epoch):
            here = place[window[self.mine[window]]]
            near = self.view.part(torch.from_numpy(here), kept)
            for part in parts:
                mine = self.mine[part]
                rows = place[part[mine]]
                inside = torch.from_numpy(np.searchsorted(here, rows))
                inner = torch.from_numpy(rows)
                targets = self.targets[inner]
                weights = None if self.weights is None else self.weights[inner]
                view = near.part(inside, kept)
                yield ScoredRows(
                    self.model, view, None, self.task, targets, mine, self.processes, weights
                )


class _Batch:
    """The state of runs that train together; rows of every tensor are the runs still active."""

    def __init__(
        self,
        model: Model,
        source: AnyPropagation,
        task: Task,
        runs: list[Run],
        train: NodeSet,
        val: NodeSet | None,
        watch: NodeSet | None,
    ) -> None:
        self.started = time.perf_counter()
        self.task, self.runs = task, runs
        self.team = team_of(source)
        scored = {"val": val, "test": watch}
        # the passes may take different orders; `watch` must not change them
        unlabelled = any(run.config.consistency for run in runs)
        rows, score_rows = (
            source.num_nodes if model.config.standardize or whole else len(part)
            for part, whole in ((train, unlabelled), (train if val is None else val, False))
        )
        order = order_of(model, source, runs, rows)
        score_order = order_of(model, source, runs, score_rows, learns=False)
        self.train_rows = ScoredRows.of(model, source, task, train, order, all_nodes=unlabelled)
        self.scored = {
            name: ScoredRows.of(model, source, task, part, score_order)
            for name, part in scored.items()
            if part is not None
        }
        first = [model.initial(torch.Generator().manual_seed(run.seed)) for run in runs]
        unlearned = model.unlearned
        self.weights: Weights = {
            name: torch.nn.Parameter(
                torch.stack([weights[name] for weights in first]).to(source.dtype),
                requires_grad=name not in unlearned,
            )
            for name in first[0]
        }
        if model.learns and not learned(self.weights):
            raise ConfigError(f"{model.title} has no weight that can be learned; give it one.")
        self.objective = self.team.objective(self._measure, self.weights)
        self.best = {name: value.detach().clone() for name, value in self.weights.items()}
        self.active = np.arange(len(runs))
        kind = LBFGS if runs[0].config.optimizer == "lbfgs" else Adam
        filters = self.weights.keys() - set(model.map_weights)
        self.optimizer: Optimizer = kind(self.weights, [run.config for run in runs], filters)
        count = len(runs)
        self.monitor = task.monitor(runs[0].config.monitor)
        self.history = {
            f"{part}_{what}": np.empty((count, 0))
            for part in ("train", *self.scored)
            for what in task.curves
        }
        if val is not None:
            self.history.setdefault(f"val_{self.monitor.name}", np.empty((count, 0)))
            self.val_labels = np.asarray(val.labels)
        self.best_rank = np.full(count, -np.inf)
        self.best_loss = np.full(count, np.inf)
        self.best_epoch = np.full(count, -1)  # -1: none so far
        self.diverged = np.zeros(count, dtype=bool)
        self.epochs = np.zeros(count, dtype=np.int64)

    def fit(self) -> Iterator[Callable[[], TrainingProgress]]:
        """Train, and after each epoch give what tells how far that is."""
        config = self.runs[0].config
        epochs = config.epochs if self.train_rows.model.learns else 1
        for epoch in range(epochs):
            self._make_room(epoch)
            self._train(epoch)
            self._score(epoch)
            self._choose(epoch, config.patience)
            self.team.check_agreement(self.weights)
            yield partial(self._progress, epoch, epochs)
            if not len(self.active):
                break

    def _train(self, epoch: int) -> None:
        if not self.train_rows.model.learns:
            with torch.no_grad():
                found = self.train_rows.measure(self.weights)
            self._record("train", epoch, [value.numpy() for value in found])
            return
        runs = [self.runs[r] for r in self.active.tolist()]
        dropout = dropped(runs, epoch, always=self.train_rows.model.random_steps)
        steps = self.train_rows.batches(runs[0].config.batch, runs[0].seed, epoch)
        found = [self._step(rows, dropout) for rows in steps]
        self._record("train", epoch, [sum(values) for values in zip(*found, strict=True)])

    def _step(self, rows: ScoredRows, dropout: Dropout | None) -> list[np.ndarray]:
        """One step; the rows' share of the epoch's curves as they were before it."""
        evaluated: list[list[Tensor]] = []

        def losses() -> Tensor:
            loss, *metrics = (self.team.mean(value) for value in self.objective(rows, dropout))
            evaluated.append([loss.detach(), *metrics])
            return loss

        self.optimizer.step(losses)
        share = rows.total / self.train_rows.total
        return [share * value.numpy() for value in evaluated[0]]

    def _measure(self, rows: ScoredRows, dropout: Dropout | None) -> tuple[Tensor, ...]:
        """The loss, with the penalty if there is one, and the task's metrics of every run."""
        runs = [self.runs[r] for r in self.active.tolist()]
        draws = runs[0].config.draws
        weights = drawn(self.weights, draws)
        factors = [run.config.consistency for run in runs]
        if not any(factors):
            found = rows.measure(weights, dropout)
            return tuple(mean_of_draws(value, draws) for value in found)
        logits = rows.model.logits(weights, rows.view, dropout)
        found = rows.measured(logits[rows.rows])
        loss, *metrics = (mean_of_draws(value, draws) for value in found)
        return loss + logits.new_tensor(factors) * disagreement(logits, runs), *metrics

    def _make_room(self, epoch: int) -> None:
        """Let the curves grow in steps: most runs stop long before the last epoch."""
        for name, curve in self.history.items():
            if epoch == curve.shape[1]:
                grown = np.full((len(self.runs), max(256, 2 * epoch)), np.nan)
                grown[:, :epoch] = curve
                self.history[name] = grown

    def _score(self, epoch: int) -> None:
        with torch.no_grad():
            for name, rows in self.scored.items():
                logits = rows.logits(self.weights, None)
                found = rows.measured(logits)
                self._record(name, epoch, [self.team.mean(value).numpy() for value in found])
                if name == "val" and self.monitor.name not in self.task.curves:
                    values = [self._figure(one.numpy()) for one in logits.unbind(dim=1)]
                    self.history[f"val_{self.monitor.name}"][self.active, epoch] = values

    def _figure(self, logits: np.ndarray) -> float:
        if not np.isfinite(logits).all():
            return float("nan")
        return self.task.figure(self.monitor.name, self.val_labels, logits)

    def _record(self, part: str, epoch: int, values: Sequence[Any]) -> None:
        for curve, value in zip(self.task.curves, values, strict=True):
            self.history[f"{part}_{curve}"][self.active, epoch] = value

    def _choose(self, epoch: int, patience: int) -> None:
        """Keep each run's best epoch and let the finished and diverged runs leave."""
        active = self.active
        self.epochs[active] = epoch + 1
        diverged = ~np.isfinite(self.history["train_loss"][active, epoch])
        for value in self.weights.values():  # the step itself may have been the one too far
            if not value.numel():  # of no hops
                continue
            flat = value.detach().reshape(len(active), -1)
            # a NaN goes through; torch's norm of infinity takes 10 times as long
            diverged |= ~np.isfinite(flat.abs().amax(dim=1).numpy())
        if "val" in self.scored:
            diverged |= ~np.isfinite(self.history["val_loss"][active, epoch])
        self.diverged[active] = diverged
        if "val" in self.scored:
            rank = self.monitor.rank(self.history[f"val_{self.monitor.name}"][active, epoch])
            rank = np.nan_to_num(rank, nan=LOWEST)  # what means nothing is equal in every epoch
            loss = self.history["val_loss"][active, epoch]
        else:
            rank = np.full(len(active), float(epoch))  # the last epoch counts
            loss = np.zeros(len(active))
        better = rank > self.best_rank[active]
        if self.runs[0].config.tie != "first":
            better |= (rank == self.best_rank[active]) & (loss < self.best_loss[active])
        better &= ~diverged
        if better.any():
            self.best_rank[active[better]] = rank[better]
            self.best_loss[active[better]] = loss[better]
            self.best_epoch[active[better]] = epoch
            to, of = torch.from_numpy(active[better]), torch.from_numpy(better)
            for name, kept in self.best.items():
                kept[to] = self.weights[name].detach()[of]
        if diverged.any():
            seeds = [self.runs[r].seed for r in active[diverged].tolist()]
            warnings.warn(
                f"training diverged at epoch {epoch + 1} for seeds {seeds}; their best epoch "
                "before that counts, if there is one; try a lower learning rate or fewer hops.",
                HopliteWarning,
                stacklevel=2,
            )
        lasts = np.array([self.runs[r].last or epoch + 2 for r in active.tolist()])
        stays = ~diverged & (lasts > epoch + 1)
        if "val" in self.scored:
            stays &= epoch - self.best_epoch[active] < patience
        if not stays.all():
            self.active = active[stays]
            kept_rows = torch.from_numpy(stays.nonzero()[0])
            self.weights = {
                name: torch.nn.Parameter(value.detach()[kept_rows], value.requires_grad)
                for name, value in self.weights.items()
            }
            if len(kept_rows):
                self.objective = self.team.objective(self._measure, self.weights)
            self.optimizer.keep(self.weights, kept_rows)

    def _progress(self, epoch: int, epochs: int) -> TrainingProgress:
        count, running = len(self.runs), len(self.active)
        done = (count - running) * epochs + running * (epoch + 1)
        known = self.monitor.rank(self.best_rank[self.best_epoch >= 0])
        value = float(known.mean()) if "val" in self.scored and known.size else float("nan")
        return TrainingProgress(done, count * epochs, epoch + 1, epochs, running, value)

    def results(self) -> list[RunResult]:
        """What the runs gave, once they are trained."""
        seconds = time.perf_counter() - self.started
        shares = self.epochs / self.epochs.sum()
        results = []
        for r, run in enumerate(self.runs):
            used = int(self.epochs[r])
            results.append(
                RunResult(
                    run=run,
                    weights={name: value[r].clone() for name, value in self.best.items()},
                    best_epoch=int(self.best_epoch[r]) + 1,
                    epochs=used,
                    diverged=bool(self.diverged[r]),
                    history={name: curve[r, :used] for name, curve in self.history.items()},
                    seconds=seconds * float(shares[r]),
                )
            )
        return results
