"""The objective of linear models: closed gradients of a NumPy engine.

    loss = mean over draws of the task's loss  (+ consistency * penalty over all nodes)

With G = dLoss/dH the engine gives dLoss/dTheta and dLoss/dc, the model takes the latter to its own
weights, and dLoss/db are the column sums of G.

The weights that step t + 1 trains on are those that epoch t validates. So without dropout one
evaluation serves both, and under dropout both may be propagated in one pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.engine.dropout import DRAW_BIT, Dropout
from hoplite.engine.evaluation import (
    Evaluation,
    FeaturesFirst,
    FilterRows,
    KeptHops,
    KeptRows,
    Order,
    WeightsFirst,
)
from hoplite.engine.orders import Plan, Sizes, make_plan
from hoplite.engine.propagation import Propagation
from hoplite.engine.standardize import Standardized
from hoplite.models.base import Weights
from hoplite.models.linear import LinearModel
from hoplite.training.consistency import penalty
from hoplite.training.objective import Measured, Objective, Problem
from hoplite.training.stored import StoredOrder

SHARED_COLUMNS = 16  # that training and validation may have together in one pass: a cache line


class _Signal(NamedTuple):
    """An evaluation with what stands between its signal and the outputs."""

    evaluation: Evaluation
    logits: np.ndarray  # of the rows that the evaluation has
    scale: Standardized | None


class LinearObjective(Objective):
    """The loss of a linear model, from a graph in memory or from rows of hop features.

    Parameters
    ----------
    model : LinearModel
    problem : Problem
    config : TrainingConfig
    seed : int
        Draws the first weights and, with the step, what is dropped.
    """

    def __init__(
        self, model: LinearModel, problem: Problem, config: TrainingConfig, seed: int
    ) -> None:
        self.model, self.problem, self._config, self._seed = model, problem, config, seed
        first = model.initial(np.random.default_rng(seed))
        dtype = problem.source.dtype
        self.params = {name: np.array(value, dtype) for name, value in first.items()}
        self._orders = Orders(model, problem, config)
        self._ahead: _Signal | None = None  # of the training nodes, for the next step

    def gradient(self, step: int, batch: np.ndarray | None = None) -> tuple[Measured, Weights]:
        if batch is not None:
            return self._batch_gradient(batch)
        if self._config.consistency:
            return self._consistent_gradient(step)
        order, standardize = self._orders.train, self.model.config.standardize
        if isinstance(order, StoredOrder) and not standardize:
            return self._gradient_from_files(order)
        part, task, rows = self.problem.train, self.problem.task, self._orders.train_rows
        draws = []
        for draw in range(self._config.draws):
            signal, self._ahead = self._ahead, None
            if signal is None or draw:
                signal = self._evaluate(order, self._dropout(draw, step), len(part))
            logits = signal.logits[rows]
            loss, gradient = task.loss_and_gradient(logits, part.targets, part.weights)
            if not isinstance(rows, slice):
                gradient = _spread(signal.logits, rows, gradient)
            measured = Measured(loss, task.tally(logits, part.targets))
            draws.append((measured, self._by_weight(signal, gradient)))
        return draws[0] if len(draws) == 1 else _mean(draws)

    def outputs(self, next_step: int | None) -> dict[str, np.ndarray]:
        orders, config = self._orders, self._config
        self._ahead = None
        if orders.together is None:
            if not self.problem.scored:
                return {}
            return orders.cut(self._evaluate(orders.scored, None).logits)
        if not config.drops:
            whole = self._evaluate(orders.together, None)
            self._ahead = whole if next_step is not None else None
            return orders.cut(whole.logits)
        if next_step is None:
            return orders.cut(self._evaluate(orders.together, None).logits)
        filter, dropout = self.model.filter(self.params), self._dropout(0, next_step)
        assert isinstance(orders.together, WeightsFirst)
        assert dropout is not None
        dropped, clean = orders.together.evaluate_twice(filter, dropout)
        self._ahead = self._finished(dropped)
        return orders.cut(self._finished(dropped._replace(values=clean)).logits)

    def _gradient_from_files(self, order: StoredOrder) -> tuple[Measured, Weights]:
        """Loss and gradient in one pass over the rows."""
        filter, bias = self.model.filter(self.params), self.params.get("bias")
        measured, by_bias, by_filter = order.loss_and_gradient(
            filter, bias, self.problem.task, self.problem.train
        )
        found = {} if bias is None else {"bias": by_bias}
        return measured, self.model.filter_gradient(self.params, by_filter) | found

    def _by_weight(self, signal: _Signal, gradient: np.ndarray) -> Weights:
        """The gradient by all weights from that by the outputs, of all rows or of the first."""
        found = {}
        if "bias" in self.params:
            found["bias"] = gradient.sum(axis=0)
        if signal.scale is not None:
            standardized = signal.scale.apply(signal.evaluation.values)
            means = signal.scale.gradient_means(gradient, standardized)
            gradient = signal.scale.gradient(gradient, standardized, means)
        filter_gradient = signal.evaluation.gradient(gradient)
        return self.model.filter_gradient(self.params, filter_gradient) | found

    def _consistent_gradient(self, step: int) -> tuple[Measured, Weights]:
        """The mean loss of the draws, and the penalty of their differences on all nodes."""
        config, part, task = self._config, self.problem.train, self.problem.task
        signals = [
            self._evaluate(self._orders.train, self._dropout(draw, step))
            for draw in range(config.draws)
        ]
        apart, by_logits = penalty(
            np.stack([signal.logits for signal in signals]), config.sharpen, config.confidence
        )
        draws = []
        for signal, outer in zip(signals, by_logits, strict=True):
            logits = signal.logits[part.nodes]
            loss, gradient = task.loss_and_gradient(logits, part.targets, part.weights)
            whole = (config.consistency * config.draws) * outer  # the mean below divides by draws
            whole += _spread(whole, part.nodes, gradient)
            measured = Measured(loss, task.tally(logits, part.targets))
            draws.append((measured, self._by_weight(signal, whole)))
        measured, gradients = _mean(draws)
        return Measured(measured.loss + config.consistency * apart, measured.tally), gradients

    def _batch_gradient(self, batch: np.ndarray) -> tuple[Measured, Weights]:
        part, task = self.problem.train.at(batch), self.problem.task
        signal = self._evaluate(self._orders.train.part(batch), None)
        loss, gradient = task.loss_and_gradient(signal.logits, part.targets, part.weights)
        measured = Measured(loss, task.tally(signal.logits, part.targets))
        return measured, self._by_weight(signal, gradient)

    def _evaluate(self, order: Order, dropout: Dropout | None, count: int | None = None) -> _Signal:
        if self.model.config.standardize:
            count = None
        return self._finished(order.evaluate(self.model.filter(self.params), dropout, count))

    def _finished(self, evaluation: Evaluation) -> _Signal:
        values, scale = evaluation.values, None
        if self.model.config.standardize:
            scale = Standardized.of(values)
            values = scale.apply(values)
        if "bias" in self.params:
            values = values + self.params["bias"]
        return _Signal(evaluation, values, scale)

    def _dropout(self, draw: int, step: int) -> Dropout | None:
        config = self._config
        if not config.drops:
            return None
        seed = self._seed ^ (draw << DRAW_BIT)
        return Dropout(config.dropout, seed, step, config.drop_nodes, config.output_dropout)


def _spread(like: np.ndarray, rows: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """The gradient at its rows, 0 at all others; a node may be listed twice."""
    spread = np.zeros_like(like)
    np.add.at(spread, rows, gradient)
    return spread


def _mean(draws: list[tuple[Measured, Weights]]) -> tuple[Measured, Weights]:
    """The mean of losses, tallies and gradients."""
    count = len(draws)
    loss = sum(measured.loss for measured, _ in draws) / count
    tally = sum(measured.tally for measured, _ in draws) / count
    names = draws[0][1]
    return Measured(loss, np.asarray(tally)), {
        name: sum(gradients[name] for _, gradients in draws) / count for name in names
    }  # pyright: ignore[reportReturnType]


class Orders:
    """How the rows of one configuration are evaluated; runs that are alike share the orders.

    ``together`` has the training rows and then the scored ones, where one evaluation serves both;
    otherwise ``train`` and ``scored`` have their own. With standardised outputs, or consistency on
    all nodes, an order has all nodes, and the rows are picked afterwards.
    """

    def __init__(self, model: LinearModel, problem: Problem, config: TrainingConfig) -> None:
        self._model, self._problem, self._config = model, problem, config
        self.everywhere = model.config.standardize
        trains_everywhere = self.everywhere or config.consistency > 0
        train = problem.train.nodes
        self._scored_nodes = [problem.parts[name].nodes for name in problem.scored]
        both = np.concatenate([train, *self._scored_nodes])
        self.together: Order | None = None
        self.train_rows: slice | np.ndarray = train if trains_everywhere else slice(len(train))
        self._cut_at = np.cumsum([0, *map(len, self._scored_nodes)])
        if not isinstance(problem.source, Propagation):
            self._from_files(train, both)
            return
        nodes = None if trains_everywhere else train
        if self._fits_together(nodes):
            nodes = None if self.everywhere else both
            self.train = self.together = self._order(nodes, learns=True)
            self._first = 0 if self.everywhere else len(train)
            return
        self.train = self._order(nodes, learns=True)
        self._first = 0
        if problem.scored:
            nodes = None if self.everywhere else np.concatenate(self._scored_nodes)
            self.scored = self._order(nodes, learns=False)

    def cut(self, logits: np.ndarray) -> dict[str, np.ndarray]:
        """The outputs of each scored part, from those of ``together`` or ``scored``."""
        if self.everywhere:
            pairs = zip(self._problem.scored, self._scored_nodes, strict=True)
            return {name: logits[nodes] for name, nodes in pairs}
        rest = logits[self._first :]
        return {
            name: rest[self._cut_at[i] : self._cut_at[i + 1]]
            for i, name in enumerate(self._problem.scored)
        }

    def _from_files(self, train: np.ndarray, both: np.ndarray) -> None:
        source = self._problem.source
        if self.everywhere:
            self.train = self.together = self._problem.shared(
                "all rows", lambda: source.order(self._model, None)
            )
            self._first = 0
            return
        self.train = self._problem.shared("train", lambda: source.order(self._model, train))
        self._first = 0
        if self._problem.scored:
            nodes = np.concatenate(self._scored_nodes)
            self.scored = self._problem.shared("scored", lambda: source.order(self._model, nodes))

    def _fits_together(self, nodes: np.ndarray | None) -> bool:
        """Whether one evaluation serves a step and the validation before it."""
        config = self._config
        if config.batch or config.consistency or not self._problem.scored:
            return False
        if not config.drops:
            return config.optimizer == "adam"
        narrow = 2 * self._model.num_classes <= SHARED_COLUMNS
        plain = config.draws == 1 and self._kind(nodes, learns=True) == "weights-first"
        return narrow and plain and config.optimizer == "adam" and self._one_map

    @property
    def _one_map(self) -> bool:
        return len(self._model.shapes()["theta"]) == 2

    def _kind(self, nodes: np.ndarray | None, *, learns: bool) -> str:
        """The name of the order that costs least."""
        source, config, model = self._problem.source, self._config, self._model
        plan = plan_order(model, source, config, nodes, learns=learns)
        fixed = model.constants(model.config) is not None
        if plan.order == "hops-first":
            return "kept-rows" if fixed or not self._one_map else "kept-hops"
        drops = config.drops and learns
        if drops and fixed and nodes is not None and plan.sizes.keeps_filter():
            return "filter-rows"
        few = source.features.shape[1] < model.num_classes
        return "features-first" if few else "weights-first"

    def _order(self, nodes: np.ndarray | None, *, learns: bool) -> Order:
        source, kind = self._problem.source, self._kind(nodes, learns=learns)
        fixed = self._model.constants(self._model.config) is not None
        constants = self._model.coefficients({}) if fixed else None
        key = (kind, None if nodes is None else nodes.tobytes())

        def make() -> Order:
            if kind == "weights-first":
                return WeightsFirst(source, nodes)
            if kind == "features-first":
                return FeaturesFirst(source, nodes)
            if kind == "filter-rows":
                assert nodes is not None
                assert constants is not None
                return FilterRows(source, nodes, constants)
            if kind == "kept-rows":
                if constants is None:
                    return KeptRows.of_hops(source, nodes)
                return KeptRows.of_filter(source, nodes, constants)
            return KeptHops.of(source, nodes)

        return self._problem.shared(key, make)


def plan_order(
    model: LinearModel,
    source: Propagation,
    config: TrainingConfig,
    nodes: np.ndarray | None,
    *,
    learns: bool = True,
) -> Plan:
    """The evaluation order of steps that need the outputs of ``nodes`` (all if None).

    Or, if nothing ``learns`` there, of scoring them: one pass, in which nothing is dropped.
    """
    features = source.features
    constants = model.constants(model.config)
    hops = model.hops_read[-1] if constants is not None else source.hops
    maps = model.shapes()["theta"][0] if len(model.shapes()["theta"]) == 3 else 1
    sizes = Sizes(
        nodes=features.shape[0],
        features=features.shape[1],
        classes=model.num_classes,
        operator_nonzeros=source.nonzeros,
        feature_nonzeros=features.nnz,
        hops=hops,
        kept_hops=1 if constants is not None else source.slices,
        rows=features.shape[0] if nodes is None else len(nodes),
        epochs=config.epochs,
        maps=maps,
        dropout=learns and config.drops,
        passes=2 if learns else 1,
        itemsize=features.dtype.itemsize,
    )
    return make_plan(sizes, "hops-first" if config.batch else config.order)
