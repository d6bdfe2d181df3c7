"""The objective of linear models: closed gradients of a NumPy engine.

From G = dLoss/dH the engine computes dLoss/dTheta and dLoss/dc, and the model computes the gradient
by its own weights from dLoss/dc.

Step t + 1 trains on the weights that epoch t validates. So without dropout one evaluation serves
both, and with dropout both may be propagated in one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.engine.dropout import Dropout
from hoplite.engine.evaluation import (
    Evaluation,
    FeaturesFirst,
    FilterRows,
    KeptHops,
    KeptRows,
    Order,
    Plan,
    Sizes,
    WeightsFirst,
    make_plan,
)
from hoplite.engine.features import Features
from hoplite.engine.propagation import Propagation
from hoplite.models.base import Model, Weights
from hoplite.models.linear import LinearModel
from hoplite.training.objective import GradientObjective, Measured, Problem, Signal
from hoplite.training.stored import RangeOrder

MAX_EVALUATIONS = 400  # estimate, for all penalties of a path
SHARED_COLUMNS = 16  # a cache line: most columns of training and validation in one pass


class LinearObjective(GradientObjective):
    """The loss of a linear model, from a graph in memory or from rows of hop features."""

    def __init__(
        self, model: LinearModel, problem: Problem, config: TrainingConfig, seed: int
    ) -> None:
        super().__init__(model, problem, config, seed)
        self.model = model
        first = model.initial(np.random.default_rng(seed))
        dtype = problem.source.dtype
        self.params = {name: np.array(value, dtype) for name, value in first.items()}
        self._orders = Orders(model, problem, config)

    @property
    def training_order(self) -> Order:
        """The order that evaluates the training nodes, which are its first rows."""
        return self._orders.train

    @cached_property
    def _first(self) -> Order:
        """The same without the scored nodes, if rows are kept."""
        order = self._orders.train
        return order if self._trains_everywhere else order.head(len(self.problem.train))

    def training_signal(self, dropout: Dropout | None) -> Signal:
        evaluation = self._first.evaluate(self.model.filter(self.params), dropout)
        return self._signal(evaluation, self.training_labels)

    def batch_signal(self, batch: np.ndarray) -> Signal:
        labels = self.training_labels
        part = self._orders.train.part(batch)
        return self._evaluate(part, None if labels is None else labels.rows(batch))

    def outputs(self, next_step: int | None) -> dict[str, np.ndarray]:
        orders, self.ahead = self._orders, None
        if orders.together is None:
            if not self.problem.scored:
                return {}
            labels = orders.labels(orders.scored_nodes)
            return orders.cut(self.finished(self._evaluate(orders.scored, labels)).values)
        labels = orders.labels(orders.together_nodes)
        if next_step is None or not self._config.drops:
            whole = self.finished(self._evaluate(orders.together, labels))
            self.ahead = whole if next_step is not None else None
            return orders.cut(whole.values)
        dropout = self.dropout(0, next_step)
        assert isinstance(orders.together, WeightsFirst)
        assert dropout is not None
        dropped, clean = orders.together.evaluate_twice(self.model.filter(self.params), dropout)
        signal = self._signal(dropped, labels)
        self.ahead = self.finished(signal)
        if labels is not None:
            clean += labels.times(self.params["neighbours"])
        return orders.cut(self.finished(signal._replace(values=clean)).values)

    def gradient_by_ranges(self) -> tuple[Measured, Weights] | None:
        order = self._orders.train
        if not isinstance(order, RangeOrder) or self._trains_everywhere:
            return None
        filter, bias = self.model.filter(self.params), self.params.get("bias")
        measured, by_bias, by_filter = order.loss_and_gradient(
            filter, bias, self.problem.task, self.problem.train
        )
        by_weight = {} if bias is None else {"bias": by_bias}
        return measured, self.model.filter_gradient(self.params, by_filter) | by_weight

    @property
    def training_labels(self) -> Features | None:
        """The labels of neighbours at the rows of a step; None if the model uses none."""
        return self._orders.labels(self._orders.train_nodes)

    def _evaluate(self, order: Order, labels: Features | None) -> Signal:
        return self._signal(order.evaluate(self.model.filter(self.params)), labels)

    def _signal(self, evaluation: Evaluation, labels: Features | None) -> Signal:
        """The signal of an evaluation; ``labels`` are the labels of neighbours at its rows."""
        values = evaluation.values
        if labels is not None:
            by_neighbours = labels.times(self.params["neighbours"])
            values[: len(by_neighbours)] += by_neighbours

        def gradient(outer: np.ndarray) -> Weights:
            by_weight = self.model.filter_gradient(self.params, evaluation.gradient(outer))
            if labels is None:
                return by_weight
            head = labels if len(outer) == labels.shape[0] else self.training_labels
            assert head is not None
            return by_weight | {"neighbours": head.transposed_times(np.ascontiguousarray(outer))}

        return Signal(values, gradient)


class Orders:
    """How the rows of one configuration are evaluated; runs share equal orders.

    ``together`` has the training rows followed by the scored rows, if one evaluation serves both;
    otherwise there are separate orders ``train`` and ``scored``. With standardised outputs, or
    consistency on all nodes, an order has all nodes, and the rows are selected afterwards.
    """

    def __init__(self, model: LinearModel, problem: Problem, config: TrainingConfig) -> None:
        self._model, self._problem, self._config = model, problem, config
        self._constants = model.coefficients({}) if model.is_fixed else None
        self._one_map = len(model.shapes()["theta"]) == 2
        self.everywhere = model.config.standardize
        train, scored = problem.train.nodes, [*problem.scored.values()]
        nodes = None if self.everywhere or config.consistency else train
        self.train_nodes, self.scored_nodes = nodes, None  # None for all nodes
        self.together: Order | None = None
        self._first = 0  # the first scored row
        if self._fits_together(nodes):
            self._first = 0 if self.everywhere else len(train)
            nodes = None if self.everywhere else np.concatenate([train, *scored])
            self.together_nodes = nodes
            self.train = self.together = self._order(nodes, learns=True)
            return
        self.train = self._order(nodes, learns=True)
        if scored:
            nodes = self.scored_nodes = None if self.everywhere else np.concatenate(scored)
            self.scored = self._order(nodes, learns=False)

    def labels(self, nodes: np.ndarray | None) -> Features | None:
        """The labels of neighbours at ``nodes`` (all if None); None if the model uses none."""
        if not self._model.config.neighbour_labels:
            return None
        whole = self._problem.source.required_neighbours()
        if nodes is None:
            return whole
        key = Orders.labels, nodes.tobytes()
        return self._problem.shared(key, partial(whole.rows, nodes))

    def cut(self, logits: np.ndarray) -> dict[str, np.ndarray]:
        """Split the outputs of ``together`` or ``scored`` into those of each scored part."""
        return self._problem.cut(logits[self._first :], everywhere=self.everywhere)

    def _fits_together(self, nodes: np.ndarray | None) -> bool:
        """Whether one evaluation serves a step and the validation before it."""
        config, problem = self._config, self._problem
        if not isinstance(problem.source, Propagation):
            return self.everywhere
        if config.batch or config.consistency or not problem.scored or config.optimizer != "adam":
            return False
        if not config.drops:
            return True
        narrow = 2 * self._model.num_classes <= SHARED_COLUMNS
        plain = config.draws == 1 and self._choice(nodes, learns=True).func is WeightsFirst
        return narrow and plain and self._one_map

    def _choice(self, nodes: np.ndarray | None, *, learns: bool) -> partial[Order]:
        """The cheapest order, as a function that creates it."""
        source, model, constants = self._problem.source, self._model, self._constants
        if not isinstance(source, Propagation):
            return partial(source.order, model, nodes)
        plan = plan_order(model, source, self._config, nodes, learns=learns)
        if plan.order == "hops-first":
            if self._config.optimizer == "lbfgs" and not model.config.neighbour_labels:
                return partial(RangeOrder.in_memory, source, model, nodes)
            if constants is not None:
                return partial(KeptRows.of_filter, source, nodes, constants)
            make: Callable[..., Order] = KeptHops.of if self._one_map else KeptRows.of_hops
            return partial(make, source, nodes)
        kept = self._config.drops and learns and plan.sizes.keeps_filter()
        if kept and constants is not None and nodes is not None:
            return partial(FilterRows, source, nodes, constants)
        few = source.features.shape[1] < model.num_classes
        return partial(FeaturesFirst if few else WeightsFirst, source, nodes)

    def _order(self, nodes: np.ndarray | None, *, learns: bool) -> Order:
        make = self._choice(nodes, learns=learns)
        return self._problem.shared((make.func, None if nodes is None else nodes.tobytes()), make)


def plan_order(
    model: Model,
    source: Propagation,
    config: TrainingConfig,
    nodes: np.ndarray | None,
    *,
    learns: bool = True,
) -> Plan:
    """The evaluation order for the outputs of ``nodes`` (all if None) in training steps.

    Unless it ``learns``, for scoring them: one pass without dropout.
    """
    features, theta = source.features, model.shapes().get("theta", ())
    fixed = isinstance(model, LinearModel) and model.is_fixed
    last = model.hops_read[-1] if isinstance(model, LinearModel) and fixed else source.hops
    sizes = Sizes(
        nodes=features.shape[0],
        features=features.shape[1],
        classes=model.num_classes,
        operator_nonzeros=source.nonzeros,
        feature_nonzeros=features.nnz,
        hops=last,
        kept_hops=1 if fixed else source.slices,
        rows=features.shape[0] if nodes is None else len(nodes),
        epochs=MAX_EVALUATIONS if config.optimizer == "path" else config.epochs,
        maps=theta[0] if len(theta) == 3 else 1,
        dropout=learns and config.drops,
        passes=2 if learns else 1,
        itemsize=features.dtype.itemsize,
    )
    order = "hops-first" if config.batch else config.order
    return make_plan(sizes, order, like_store=config.optimizer == "lbfgs" and not config.drops)
