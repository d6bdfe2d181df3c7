"""The one training loop: R runs of one model on one graph, as one wide problem.

The runs differ in seed, learning rate, weight decay and dropout. No run's arithmetic sees another
run, masks depend on (seed, epoch) alone, and finished runs leave the batch. So a run's result does
not depend on who shares its batch, but for rounding (the order of some sums).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from hoplite.config import MOST_SEED, check_number
from hoplite.errors import ConfigError, GraphError, HopliteWarning
from hoplite.models import Model, Weights
from hoplite.propagation.backend import threads_for
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import Propagation, RowView
from hoplite.training.optimizers import LBFGS, Adam, Optimizer
from hoplite.training.runs import (
    NodeSet,
    Progress,
    Run,
    RunResult,
    batches_of,
    plan_runs,
    signal_size,
)


def fit_runs(
    model: Model,
    propagation: Propagation,
    runs: Sequence[Run],
    train: NodeSet,
    val: NodeSet | None = None,
    *,
    watch: NodeSet | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[RunResult]:
    """Train ``runs`` together and return their results in the same order.

    Early stopping and the choice of the best epoch read ``val`` alone; without it the last epoch
    counts. ``watch`` adds the test curves to the history and influences nothing.
    """
    if not runs:
        raise ConfigError("runs is empty; give at least one run.")
    if not len(train):
        raise GraphError("the training set is empty; give at least one labelled training node.")
    if model.config.hops != propagation.hops or model.config.basis != propagation.basis:
        raise ConfigError(
            f"the propagation is for {propagation.hops} hops ({propagation.basis}) but the model "
            f"has {model.config.hops} ({model.config.basis}); make both from one configuration."
        )
    for run in runs:
        check_number("seed", run.seed, 0, MOST_SEED, whole=True)
    val = val if val is not None and len(val) else None
    for part in (train, val, watch):
        if part is not None:
            part.check(propagation.features.shape[0], model.num_classes)
    configs = [run.config for run in runs]
    if len({(c.optimizer, c.epochs, c.patience, c.order) for c in configs}) > 1:
        raise ConfigError("runs trained together must share optimizer, epochs, patience and order.")
    report = progress or (lambda state: None)
    results: dict[int, RunResult] = {}
    for batch in batches_of(model, propagation, runs):
        done, waiting = len(results), len(runs) - len(results) - len(batch)
        with threads_for(len(batch) * signal_size(model, propagation)):
            found = _Batch(model, propagation, [runs[r] for r in batch], train, val, watch).fit(
                lambda state, d=done, w=waiting: report(state.among(d, w))
            )
        results |= zip(batch, found, strict=True)
    return [results[r] for r in range(len(runs))]


class _Batch:
    """The state of runs that train together; rows of every tensor are the runs still active."""

    def __init__(
        self,
        model: Model,
        propagation: Propagation,
        runs: list[Run],
        train: NodeSet,
        val: NodeSet | None,
        watch: NodeSet | None,
    ) -> None:
        self.started = time.perf_counter()
        self.runs = runs
        scored = {"val": val, "test": watch}
        rows = len(train) + (0 if val is None else len(val))  # `watch` must not change the plan
        if model.config.standardize:
            rows = propagation.features.shape[0]
        order = plan_runs(model, propagation, runs, rows).order
        # nothing is dropped when runs are scored, so that pass may take the other order
        score_order = plan_runs(model, propagation, runs, rows, dropout=False).order
        self.train_view = _View(model, propagation, train, order)
        self.scored = {
            name: _View(model, propagation, part, score_order)
            for name, part in scored.items()
            if part is not None
        }
        first = [model.initial(torch.Generator().manual_seed(run.seed)) for run in runs]
        self.weights = {
            name: torch.stack([weights[name] for weights in first])
            .to(propagation.features.dtype)
            .requires_grad_()
            for name in first[0]
        }
        self.best = {name: value.detach().clone() for name, value in self.weights.items()}
        self.active = torch.arange(len(runs))
        kind = LBFGS if runs[0].config.optimizer == "lbfgs" else Adam
        self.optimizer: Optimizer = kind(self.weights, [run.config for run in runs])
        count = len(runs)
        self.history = {
            f"{part}_{what}": torch.empty((count, 0), dtype=torch.float64)
            for part in ("train", *self.scored)
            for what in ("loss", "accuracy")
        }
        self.best_value = torch.full((count,), -1.0, dtype=torch.float64)
        self.best_epoch = torch.zeros(count, dtype=torch.int64)
        self.epochs = torch.zeros(count, dtype=torch.int64)

    def fit(self, progress: Callable[[Progress], None]) -> list[RunResult]:
        config = self.runs[0].config
        for epoch in range(config.epochs):
            self._make_room(epoch)
            self._train(epoch)
            self._score(epoch)
            self._choose(epoch, config.patience)
            progress(self._progress(epoch, config.epochs))
            if not len(self.active):
                break
        return self._results()

    def _train(self, epoch: int) -> None:
        runs = [self.runs[r] for r in self.active.tolist()]
        rates = tuple(run.config.dropout for run in runs)
        dropout = Dropout(rates, tuple(run.seed for run in runs), epoch) if any(rates) else None
        evaluated: list[tuple[Tensor, Tensor]] = []

        def losses() -> Tensor:
            logits = self.train_view.logits(self.weights, dropout)
            loss, accuracy = _loss_and_accuracy(logits, self.train_view.labels)
            evaluated.append((loss.detach(), accuracy))
            return loss

        self.optimizer.step(losses)
        self._record("train", epoch, *evaluated[0])  # before the step, as the others come after

    def _make_room(self, epoch: int) -> None:
        """Let the curves grow in steps: most runs stop long before the last epoch."""
        for name, curve in self.history.items():
            if epoch == curve.shape[1]:
                grown = torch.full((len(self.runs), max(256, 2 * epoch)), torch.nan).double()
                grown[:, :epoch] = curve
                self.history[name] = grown

    def _score(self, epoch: int) -> None:
        with torch.no_grad():
            for name, view in self.scored.items():
                logits = view.logits(self.weights, None)
                self._record(name, epoch, *_loss_and_accuracy(logits, view.labels))

    def _record(self, part: str, epoch: int, loss: Tensor, accuracy: Tensor) -> None:
        self.history[f"{part}_loss"][self.active, epoch] = loss.double()
        self.history[f"{part}_accuracy"][self.active, epoch] = accuracy

    def _choose(self, epoch: int, patience: int) -> None:
        """Keep each run's first best epoch and let the finished and diverged runs leave."""
        active = self.active
        self.epochs[active] = epoch + 1
        diverged = ~self.history["train_loss"][active, epoch].isfinite()
        if "val" in self.scored:  # the step itself may have been the one too far
            diverged |= ~self.history["val_loss"][active, epoch].isfinite()
        else:
            for value in self.weights.values():
                diverged |= ~value.detach().reshape(len(active), -1).isfinite().all(dim=1)
        if "val" in self.scored:
            value = self.history["val_accuracy"][active, epoch]
        else:
            value = torch.full_like(self.best_value[active], epoch)  # the last epoch counts
        better = (value > self.best_value[active]) & ~diverged
        if better.any():
            self.best_value[active[better]] = value[better]
            self.best_epoch[active[better]] = epoch
            for name, kept in self.best.items():
                kept[active[better]] = self.weights[name].detach()[better]
        if diverged.any():
            seeds = [self.runs[r].seed for r in active[diverged].tolist()]
            warnings.warn(
                f"training diverged at epoch {epoch + 1} for seeds {seeds}; "
                "their best weights so far are kept, try a lower learning rate.",
                HopliteWarning,
                stacklevel=2,
            )
        stays = ~diverged
        if "val" in self.scored:
            stays &= epoch - self.best_epoch[active] < patience
        if not stays.all():
            kept_rows = stays.nonzero().flatten()
            self.active = active[kept_rows]
            self.weights = {
                name: value.detach()[kept_rows].requires_grad_()
                for name, value in self.weights.items()
            }
            self.optimizer.keep(self.weights, kept_rows)

    def _progress(self, epoch: int, epochs: int) -> Progress:
        count, running = len(self.runs), len(self.active)
        done = (count - running) * epochs + running * (epoch + 1)
        value = float(self.best_value.mean()) if "val" in self.scored else float("nan")
        return Progress(done, count * epochs, epoch + 1, epochs, running, value)

    def _results(self) -> list[RunResult]:
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
                    val_accuracy=float(self.best_value[r]) if "val" in self.scored else np.nan,
                    history={name: curve[r, :used].numpy() for name, curve in self.history.items()},
                    seconds=seconds * float(shares[r]),
                )
            )
        return results


class _View:
    """The logits of a node set, in one evaluation order, with the labels that they should give."""

    def __init__(self, model: Model, propagation: Propagation, part: NodeSet, order: str) -> None:
        hops_first = order == "hops-first"
        nodes = np.array(part.nodes, np.int64)
        self.labels = torch.from_numpy(np.array(part.labels, np.int64))
        self._model = model
        self._rows: Tensor | None = None
        if model.config.standardize:  # mean and deviation are over all nodes
            self._rows = torch.from_numpy(nodes)
            self._view: RowView = propagation.view(hops_first=hops_first)
        else:
            self._view = propagation.view(nodes, hops_first=hops_first)

    def logits(self, weights: Weights, dropout: Dropout | None) -> Tensor:
        """(rows, R, m)."""
        return self._model.logits(weights, self._view, dropout, self._rows)


def _loss_and_accuracy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy and accuracy per run: (rows, R, m) and (rows,) -> (R,), (R,)."""
    picked = labels.view(-1, 1, 1).expand(-1, logits.shape[1], 1)
    loss = -log_softmax(logits, dim=2).gather(2, picked).mean(dim=(0, 2))
    accuracy = (logits.detach().argmax(dim=2) == labels.unsqueeze(1)).double().mean(dim=0)
    return loss, accuracy
