"""The objective of networks: PyTorch's gradients, of a loss that is the tasks' own.

    loss = mean over draws of the task's loss  (+ consistency * penalty over all nodes)

The weights are NumPy arrays, which the optimizers change in place; tensors share their memory. A
network gives its signal V, (rows, m). Standardisation, the bias and the loss are those of the
linear models, in NumPy, and so is dV; PyTorch takes it back to the weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hoplite.config import TrainingConfig
from hoplite.engine.dropout import DRAW_BIT, Dropout
from hoplite.engine.orders import Sizes, make_plan
from hoplite.engine.propagation import Propagation
from hoplite.engine.standardize import Standardized
from hoplite.errors import ConfigError
from hoplite.models.base import Weights
from hoplite.nets.view import GraphView, HopView, RowView, TorchGraph, torch_threads
from hoplite.training.consistency import penalty
from hoplite.training.objective import Measured, Objective, Problem

if TYPE_CHECKING:
    from hoplite.nets.base import Network, RowNetwork

Tensors = dict[str, Tensor]


class Signal(NamedTuple):
    """V (rows, m), and what gives the gradient by the weights from dV."""

    values: np.ndarray
    gradient: Callable[[np.ndarray], Weights]


class NetworkObjective(Objective):
    """The loss of a network, from a graph in memory or, of a RowNetwork, rows of hop features.

    Parameters
    ----------
    model : Network
    problem : Problem
    config : TrainingConfig
    seed : int
        Draws the first weights and, with the step, what is dropped.
    """

    def __init__(self, model: Network, problem: Problem, config: TrainingConfig, seed: int) -> None:
        self.model, self.problem, self._config, self._seed = model, problem, config, seed
        self.map_weights = model.map_weights
        first = model.initial(np.random.default_rng(seed))
        dtype, unlearned = problem.source.dtype, model.unlearned
        whole = {name: np.array(value, dtype, order="C") for name, value in first.items()}
        self.params = {name: value for name, value in whole.items() if name not in unlearned}
        self._buffers = {name: whole[name] for name in unlearned}
        if not self.params:
            raise ConfigError(f"{model.title} has no weight that can be learned; give it one.")
        self._tensors = {name: torch.from_numpy(value) for name, value in whole.items()}
        for name in self.params:
            self._tensors[name].requires_grad_()
        self._scored_nodes = [problem.parts[name].nodes for name in problem.scored]
        self._everywhere = model.config.standardize  # mean and deviation are over all nodes
        trains_everywhere = self._everywhere or config.consistency > 0
        self._train = self._rows(None if trains_everywhere else problem.train.nodes, learns=True)
        self._train_rows = problem.train.nodes if trains_everywhere else slice(None)
        if problem.scored:
            nodes = None if self._everywhere else np.concatenate(self._scored_nodes)
            self._scored = self._rows(nodes, learns=False)

    def weights(self) -> Weights:
        return super().weights() | {name: one.copy() for name, one in self._buffers.items()}

    def gradient(self, step: int, batch: np.ndarray | None = None) -> tuple[Measured, Weights]:
        config = self._config
        with self._threads():
            if batch is not None:
                return self._supervised(self._train.part(batch), None, batch)
            if config.consistency:
                return self._consistent(step)
            draws = [
                self._supervised(self._train, self._dropout(draw, step))
                for draw in range(config.draws)
            ]
        return draws[0] if len(draws) == 1 else _mean(draws)

    def outputs(self, next_step: int | None) -> dict[str, np.ndarray]:
        if not self.problem.scored:
            return {}
        with self._threads(), torch.no_grad():
            logits, _ = self._finished(self._scored.evaluate(self._forward, None).values)
        if self._everywhere:
            parts = [logits[nodes] for nodes in self._scored_nodes]
        else:
            parts = np.split(logits, np.cumsum([len(nodes) for nodes in self._scored_nodes])[:-1])
        return dict(zip(self.problem.scored, parts, strict=True))

    def _supervised(
        self, rows: _Rows, dropout: Dropout | None, batch: np.ndarray | None = None
    ) -> tuple[Measured, Weights]:
        """Loss and gradient of the training nodes, or of a batch, with what is dropped once."""
        part, task = self.problem.train, self.problem.task
        part = part if batch is None else part.at(batch)
        signal = rows.evaluate(self._forward, dropout)
        logits, scale = self._finished(signal.values)
        own = logits[self._train_rows]
        loss, gradient = task.loss_and_gradient(own, part.targets, part.weights)
        if not isinstance(self._train_rows, slice):
            gradient = _spread(logits, self._train_rows, gradient)
        measured = Measured(loss, task.tally(own, part.targets))
        return measured, self._by_weight(signal, scale, gradient)

    def _consistent(self, step: int) -> tuple[Measured, Weights]:
        """The mean loss of the draws, and the penalty of their differences on all nodes."""
        config, part, task = self._config, self.problem.train, self.problem.task
        signals = [
            self._train.evaluate(self._forward, self._dropout(draw, step))
            for draw in range(config.draws)
        ]
        outputs = [self._finished(signal.values) for signal in signals]
        apart, by_logits = penalty(
            np.stack([logits for logits, _ in outputs]), config.sharpen, config.confidence
        )
        draws = []
        for signal, (logits, scale), outer in zip(signals, outputs, by_logits, strict=True):
            own = logits[part.nodes]
            loss, gradient = task.loss_and_gradient(own, part.targets, part.weights)
            whole = (config.consistency * config.draws) * outer  # the mean below divides by draws
            whole += _spread(logits, part.nodes, gradient)
            measured = Measured(loss, task.tally(own, part.targets))
            draws.append((measured, self._by_weight(signal, scale, whole)))
        measured, gradients = _mean(draws)
        return Measured(measured.loss + config.consistency * apart, measured.tally), gradients

    def _finished(self, values: np.ndarray) -> tuple[np.ndarray, Standardized | None]:
        """The outputs from the signal, and what standardised them."""
        scale = None
        if self._everywhere:
            scale = Standardized.of(values)
            values = scale.apply(values)
        return values + self.params["bias"] if self._adds_bias else values, scale

    def _by_weight(
        self, signal: Signal, scale: Standardized | None, gradient: np.ndarray
    ) -> Weights:
        """The gradient by all weights from that by the outputs."""
        by_bias = {"bias": gradient.sum(axis=0)} if self._adds_bias else {}
        if scale is not None:
            standardized = scale.apply(signal.values)
            means = scale.gradient_means(gradient, standardized)
            gradient = scale.gradient(gradient, standardized, means)
        return signal.gradient(gradient) | by_bias

    @property
    def _adds_bias(self) -> bool:
        return not self.model.own_bias and "bias" in self.params

    def _forward(self, view: RowView, dropout: Dropout | None) -> tuple[Tensor, Tensors]:
        """The signal at a view's rows, and the weights that it is differentiated by."""
        values = self.model.forward(self._tensors, view, dropout)  # pyright: ignore
        return values, {name: self._tensors[name] for name in self.params}

    def _rows(self, nodes: np.ndarray | None, *, learns: bool) -> _Rows:
        problem, model, config = self.problem, self.model, self._config
        if not isinstance(problem.source, Propagation):
            return _StoredRows(problem.source, model.hops_read, nodes)  # pyright: ignore
        row_network: Any = model
        hops_first = model.reads_rows() and _hops_first(
            row_network, problem.source, config, nodes, learns=learns
        )
        key = ("view", hops_first, None if nodes is None else nodes.tobytes())
        graph = TorchGraph.of(problem.source)
        view = problem.shared(key, lambda: graph.view(nodes, hops_first=hops_first))
        return _GraphRows(view)

    def _dropout(self, draw: int, step: int) -> Dropout | None:
        config = self._config
        if not (config.drops or self.model.random_steps):
            return None
        seed = self._seed ^ (draw << DRAW_BIT)
        return Dropout(config.dropout, seed, step, config.drop_nodes, config.output_dropout)

    def _threads(self) -> Any:
        return torch_threads(self.problem.source.num_nodes * self.model.signal_columns())


Forward = Callable[[RowView, Dropout | None], tuple[Tensor, Tensors]]


class _Rows(ABC):
    """Some nodes whose signals are evaluated."""

    @abstractmethod
    def evaluate(self, forward: Forward, dropout: Dropout | None) -> Signal:
        """The signal, with its gradient unless gradients are off."""

    @abstractmethod
    def part(self, rows: np.ndarray) -> _Rows:
        """The hop features of some of the rows, by their positions."""


class _GraphRows(_Rows):
    """Rows of a graph in memory, or of hop features in memory."""

    def __init__(self, view: RowView) -> None:
        self._view = view

    def evaluate(self, forward: Forward, dropout: Dropout | None) -> Signal:
        values, weights = forward(self._view, dropout)
        return Signal(values.detach().numpy(), lambda outer: _backward(values, weights, outer))

    def part(self, rows: np.ndarray) -> _Rows:
        assert isinstance(self._view, GraphView)  # rows of a batch have no parts
        return _GraphRows(self._view.part(rows))


class _StoredRows(_Rows):
    """Rows of hop features in files, which are read a chunk at a time.

    A gradient reads them twice, as the first pass keeps the signal alone, unless one chunk has all.
    """

    def __init__(self, source: Any, hops: list[int], nodes: np.ndarray | None) -> None:
        self._source, self._hops, self._nodes = source, hops, nodes
        # files are read in rising order
        self._order = np.arange(source.num_nodes) if nodes is None else np.argsort(nodes)
        self._sorted = None if nodes is None else nodes[self._order]

    def evaluate(self, forward: Forward, dropout: Dropout | None) -> Signal:
        signal = self._evaluate(forward, dropout)
        values = np.empty_like(signal.values)
        values[self._order] = signal.values
        return Signal(values, lambda outer: signal.gradient(outer[self._order]))

    def _evaluate(self, forward: Forward, dropout: Dropout | None) -> Signal:
        """The same of the nodes in rising order."""
        chunks: list[np.ndarray] = []
        for part, hops in self._chunks():
            if part.stop - part.start == len(self._order):
                return _GraphRows(HopView(hops)).evaluate(forward, dropout)
            with torch.no_grad():
                values, _ = forward(HopView(hops), dropout)
            chunks.append(values.numpy())

        def gradient(outer: np.ndarray) -> Weights:
            total: dict[str, np.ndarray] = {}
            for part, hops in self._chunks():
                values, weights = forward(HopView(hops), dropout)
                for name, value in _backward(values, weights, outer[part]).items():
                    total[name] = total.get(name, 0) + value.astype(np.float64)
            return {name: value.astype(outer.dtype) for name, value in total.items()}

        return Signal(np.concatenate(chunks), gradient)

    def _chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        return self._source.chunks(self._sorted, self._hops)

    def part(self, rows: np.ndarray) -> _Rows:
        nodes = rows if self._nodes is None else self._nodes[rows]
        return _GraphRows(HopView(self._source.rows(nodes, self._hops)))


def _backward(values: Tensor, weights: Tensors, outer: np.ndarray) -> Weights:
    """The gradient by the weights from that by a signal; 0 for those that have no part in it."""
    zeros = {name: np.zeros(value.shape, outer.dtype) for name, value in weights.items()}
    if not values.requires_grad:
        return zeros
    # as an argument of grad, the outer gradient would make torch import SymPy, which takes a second
    inner = (values * torch.from_numpy(np.ascontiguousarray(outer))).sum()
    gradients = torch.autograd.grad(inner, [*weights.values()], allow_unused=True)
    pairs = zip(weights, gradients, strict=True)
    known = {name: np.ascontiguousarray(one.numpy()) for name, one in pairs if one is not None}
    return zeros | known


def _hops_first(
    model: RowNetwork,
    source: Propagation,
    config: TrainingConfig,
    nodes: np.ndarray | None,
    *,
    learns: bool,
) -> bool:
    """Whether products with kept hop features cost less than propagation in every step."""
    features = source.features
    sizes = Sizes(
        nodes=source.num_nodes,
        features=features.shape[1],
        classes=model.num_classes,
        operator_nonzeros=source.nonzeros,
        feature_nonzeros=features.nnz,
        hops=source.hops,
        kept_hops=source.slices,
        rows=source.num_nodes if nodes is None else len(nodes),
        epochs=config.epochs,
        dropout=learns and config.drops,
        passes=2 if learns else 1,
        itemsize=features.dtype.itemsize,
    )
    return make_plan(sizes, "hops-first" if config.batch else config.order).order == "hops-first"


def _spread(like: np.ndarray, rows: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """The gradient at its rows, 0 at all others; a node may be listed twice."""
    spread = np.zeros_like(like)
    np.add.at(spread, rows, gradient)
    return spread


def _mean(draws: list[tuple[Measured, Weights]]) -> tuple[Measured, Weights]:
    """The mean of losses, tallies and gradients."""
    count = len(draws)
    loss = sum(measured.loss for measured, _ in draws) / count
    tally = np.sum([measured.tally for measured, _ in draws], axis=0) / count
    gradients = {name: sum(own[name] for _, own in draws) / count for name in draws[0][1]}
    return Measured(loss, tally), gradients  # pyright: ignore[reportReturnType]
